# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers for labels: accessible names, tooltips for ellipsized text, and how they wrap."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gi.repository import GLib, Gtk, Pango

_CODE = re.compile(r"`([^`\n]+)`")


def children_of(widget: Gtk.Widget) -> Iterator[Gtk.Widget]:
    """Yield the children, each of which may be removed before the next one is asked for."""
    child = widget.get_first_child()
    while child is not None:
        following = child.get_next_sibling()
        yield child
        child = following


def set_accessible_name(widget: Gtk.Widget, name: str) -> None:
    """Give a widget an accessible name of its own.

    Without this, some versions of GTK read the text in it, or that of its row, as well or instead.
    """
    widget.reset_relation(Gtk.AccessibleRelation.LABELLED_BY)
    widget.update_property([Gtk.AccessibleProperty.LABEL], [name])


def decorative_icon(name: str | None = None, *styles: str, **properties: object) -> Gtk.Image:
    """Return an icon that screen readers leave out: a text beside or around it says the same."""
    icon = Gtk.Image(icon_name=name, accessible_role=Gtk.AccessibleRole.PRESENTATION)
    add_classes(icon, *styles)
    icon.set_properties(**properties)
    return icon


def one_line(text: str = "", *styles: str, **properties: object) -> Gtk.Label:
    """Return a label that cuts the end of its text off rather than taking more room."""
    end = Pango.EllipsizeMode.END
    label = Gtk.Label(label=text, xalign=0, ellipsize=end, css_classes=list(styles))
    label.set_properties(**properties)
    return label


def wrapped(text: str = "", *styles: str, **properties: object) -> Gtk.Label:
    """Return a label that breaks lines between words, or in a long word without a hyphen."""
    mode = Pango.WrapMode.WORD_CHAR
    label = Gtk.Label(label=text, xalign=0, wrap=True, wrap_mode=mode, css_classes=list(styles))
    label.set_properties(**properties)
    without_hyphens(label)
    return label


def show_text(label: Gtk.Label, text: str) -> None:
    """Show a text, or hide the label if there is none."""
    label.set_label(text)
    label.set_visible(bool(text))


def set_expanded(widget: Gtk.Widget, is_expanded: bool) -> None:
    """Tell screen readers whether a widget shows what can be folded."""
    # An integer: this state has a third value, so GTK does not take a boolean.
    widget.update_state([Gtk.AccessibleState.EXPANDED], [int(is_expanded)])


def in_sentences(*parts: str) -> str:
    """Return what a screen reader says: the parts, with full stops where there are no marks."""
    said = ""
    for part in filter(None, parts):
        stop = " " if said[-1:] in tuple(".!?…:") else ". "
        said = f"{said}{stop}{part}" if said else part
    return said


def with_code(text: str) -> str:
    """Return markup that shows what is between backticks as code, without them."""
    return _CODE.sub(r"<tt>\1</tt>", GLib.markup_escape_text(text))


def file_markup(path: str) -> str:
    """Return markup with the name of a file, and beside it its folder, dimmed."""
    folder, _slash, name = path.rpartition("/")
    shown = GLib.markup_escape_text(name or ".")
    beside = GLib.markup_escape_text(folder)
    return f'{shown}  <span alpha="55%">{beside}/</span>' if folder else shown


def show_code(label: Gtk.Label, text: str) -> str:
    """Show a text of the model's `with_code`; return it without the marks, for a screen reader."""
    _is_valid, attributes, shown, _key = Pango.parse_markup(with_code(text), -1, "\0")
    attributes.insert(Pango.attr_insert_hyphens_new(insert_hyphens=False))
    # A label that takes markup could be tricked one day.
    label.set_label(shown)
    label.set_attributes(attributes)
    return shown


def describe(widget: Gtk.Widget, text: str) -> None:
    """Tell screen readers what a button is about that has the same name as others."""
    widget.update_property([Gtk.AccessibleProperty.DESCRIPTION], [text])


def name_buttons(top: Gtk.Widget) -> None:
    """Name buttons that have a mnemonic: GTK 4.8 reads their label twice, once with the "_"."""
    if isinstance(top, Gtk.Button) and top.get_use_underline() and (label := top.get_label()):
        name = label.replace("__", "\0").replace("_", "").replace("\0", "_")
        set_accessible_name(top, name)
    for child in children_of(top):
        name_buttons(child)


def show_ellipsized_as_tooltip(*widgets: Gtk.Widget) -> None:
    """Show the whole text of ellipsized labels, or of those inside the widgets, as a tooltip."""
    for widget in widgets:
        if isinstance(widget, Gtk.Label):
            widget.set_has_tooltip(True)
            widget.connect("query-tooltip", _show_tooltip)
        else:
            show_ellipsized_as_tooltip(*children_of(widget))


def set_left_to_right(label: Gtk.Label) -> None:
    """Write a path or a command from left to right, at the side where lines begin."""
    label.set_direction(Gtk.TextDirection.LTR)
    is_mirrored = Gtk.Widget.get_default_direction() is Gtk.TextDirection.RTL
    label.set_xalign(1.0 if is_mirrored else 0.0)


def is_cut_off(label: Gtk.Label) -> bool:
    return label.get_layout().is_ellipsized()


def _show_tooltip(label: Gtk.Label, _x: int, _y: int, _by_key: bool, tooltip: Gtk.Tooltip) -> bool:
    tooltip.set_text(label.get_text())
    return is_cut_off(label)


def without_hyphens(*labels: Gtk.Label) -> None:
    """Stop Pango from adding a hyphen where it breaks a long word, such as a path or a command."""
    for label in labels:
        label.set_attributes(Pango.AttrList.from_string("0 -1 insert-hyphens false"))


def has_long_word(text: str) -> bool:
    """Return whether a word is so long that Pango would take seconds to find its breaks."""
    return any(len(word) > 500 for word in text.split())


def wrap_label(label: Gtk.Label, text: str) -> None:
    """Have a label break its text between words, or anywhere if a word is very long."""
    label.set_wrap(True)
    label.set_wrap_mode(Pango.WrapMode.CHAR if has_long_word(text) else Pango.WrapMode.WORD_CHAR)


def set_plain(view: Gtk.TextView, text: str) -> None:
    """Replace the text of a view, without added hyphens, which text appended later would get."""
    view.set_wrap_mode(Gtk.WrapMode.CHAR if has_long_word(text) else Gtk.WrapMode.WORD_CHAR)
    buffer = view.get_buffer()
    buffer.set_text(text)
    buffer.apply_tag(buffer.create_tag(None, insert_hyphens=False), *buffer.get_bounds())


def add_classes(widget: Gtk.Widget, *names: str) -> None:
    for name in names:
        widget.add_css_class(name)


def set_class(widget: Gtk.Widget, name: str, is_set: bool) -> None:
    if is_set:
        widget.add_css_class(name)
    else:
        widget.remove_css_class(name)


def show_hidden_as_tooltip(widget: Gtk.Widget, label: Gtk.Label) -> None:
    """Give a widget the text of a label in it as a tooltip, as long as the label is hidden."""

    def tell(_widget: Gtk.Widget, _x: int, _y: int, _by_key: bool, tooltip: Gtk.Tooltip) -> bool:
        tooltip.set_text(label.get_label())
        return not label.get_visible()

    widget.set_has_tooltip(True)
    widget.connect("query-tooltip", tell)
