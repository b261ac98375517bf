# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of the chat: a message, finished or still growing, and a notice between messages."""

from __future__ import annotations

import time

from gi.repository import GObject, Gtk

from ...chat.messages import Role
from ...i18n import _
from ...text.visible import visible_words
from ..diff.images import DecodedPicture
from ..markdown.view import MarkdownView
from ..models.chooser import shown_model
from ..sessions.entries import MessageEntry, NoticeEntry, SummaryEntry
from ..widgets.boxes import icon_button, text_button, vbox
from ..widgets.labels import (
    decorative_icon,
    one_line,
    set_accessible_name,
    set_class,
    without_hyphens,
    wrap_label,
)
from ..widgets.long_text import LongText
from ..widgets.signals import SignalHandlers, forward, signals
from ..widgets.weak import weakly
from ..widgets.wrap_box import WrapBox

# Characters of a message that fills the width of the chat.
_LONG = 2_000


class MessageRow(Gtk.Box):
    # "settled": all of a text that was built in steps is there.
    __gsignals__ = signals(
        {"open-link": (str,), "edit": (), "restore": (), "retry": (), "settled": ()}
    )

    def __init__(self, entry: MessageEntry, project: str | None = None) -> None:
        role = Gtk.AccessibleRole.GROUP
        super().__init__(orientation=Gtk.Orientation.VERTICAL, spacing=6, accessible_role=role)
        self.add_css_class("message")
        self.entry = entry
        self._thinking: Gtk.Expander | None = None
        self._thoughts: LongText | None = None
        self._body: MarkdownView | None = None
        is_own = entry.role is Role.USER
        who = _("You") if is_own else shown_model(entry.model) or _("Agent")
        at = time.strftime("%H:%M", time.localtime(entry.at))
        # Translators: who said something, and when.
        set_accessible_name(self, _("{who}, {time}").format(who=who, time=at))
        if not is_own and not entry.continues:
            name = one_line(who, "caption", "dim-label")
            self.append(name)
        if entry.thinking:
            self._think(entry, entry.thinking)
        if entry.role is Role.ASSISTANT:
            self._body = MarkdownView(project=project or "")
            forward(self._body, "open-link", self)
            forward(self._body, "settled", self)
            self.append(self._body)
            if entry.is_growing:
                self._body.append(entry.text)
            else:
                self._body.set_text(entry.text)
        else:
            self._add_bubble(at)
        self._broken_off = Gtk.Label(xalign=0, css_classes=["caption", "dim-label"])
        self._actions: Gtk.Box | None = None
        # Files can be restored only in a project.
        self._can_restore = is_own and bool(project)
        if not is_own:
            self.append(self._broken_off)
        self._show_state()
        handlers = SignalHandlers(self)
        handlers.connect(entry, "grew", self._on_grew)
        handlers.connect(entry, "thought", self._think)
        handlers.connect(entry, "changed", self._on_changed)

    def _add_bubble(self, at: str) -> None:
        self.add_css_class("own-message")
        # Neither a box nor `halign`: both would wrap the text a hundred times to find its
        # narrowest width.
        self._line = Gtk.Grid(column_spacing=6)
        is_long = len(self.entry.text) > _LONG
        self._line.attach(Gtk.Box(hexpand=not is_long), 0, 0, 1, 1)
        bubble = Gtk.Box(
            orientation=Gtk.Orientation.VERTICAL,
            spacing=6,
            hexpand=is_long,
            tooltip_text=at,
            css_classes=["bubble"],
        )
        for picture in self.entry.pictures:
            bubble.append(DecodedPicture(picture.data, picture.name, highest=160))
        if self.entry.text:
            bubble.append(_plain(self.entry.text))
        self._line.attach(bubble, 2, 0, 1, 1)
        self.append(self._line)

    def _think(self, _entry: MessageEntry, text: str) -> None:
        if self._thinking is None:
            is_open = self.entry.is_open
            self._thinking = Gtk.Expander(label=_("Reasoning"), expanded=is_open)
            self._thinking.connect("notify::expanded", weakly(self._on_unfolded))
            self._thinking.update_property([Gtk.AccessibleProperty.LABEL], [_("Reasoning")])
            self._thinking.add_css_class("dim-label")
            self._show_thinking()
            if self._body is None:
                self.append(self._thinking)
            else:
                self._thinking.insert_before(self, self._body)
            self._show_thoughts()
        elif self._thoughts is not None:
            self._thoughts.append(text)

    def _show_thoughts(self) -> None:
        """Show the text only while it is unfolded: it may be very long."""
        assert self._thinking is not None
        self._thoughts = None
        if self._thinking.get_expanded():
            self._thoughts = LongText(self.entry.thinking)
            self._thoughts.add_css_class("thinking")
            set_accessible_name(self._thoughts, _("Reasoning"))
        self._thinking.set_child(self._thoughts)

    def _on_unfolded(self, thinking: Gtk.Expander, _property: GObject.ParamSpec) -> None:
        self.entry.is_open = thinking.get_expanded()
        self._show_thoughts()

    def _show_thinking(self) -> None:
        """Show the reasoning once it is over: until then, the line below says that it goes on."""
        if self._thinking is not None:
            self._thinking.set_visible(bool(self.entry.text) or not self.entry.is_growing)

    def _on_grew(self, _entry: MessageEntry, text: str) -> None:
        self._show_thinking()
        if self._body is not None:
            self._body.append(text)

    def _on_changed(self, entry: MessageEntry) -> None:
        self._show_state()
        self._show_thinking()
        if self._body is not None and entry.is_replaced:
            self._body.set_text(entry.text)
        elif self._body is not None and not entry.is_growing:
            self._body.finish()

    def _show_state(self) -> None:
        """Show what can be done with the message, and whether it is incomplete."""
        entry = self.entry
        stopped, cut = _("You stopped this answer."), _("This answer was cut short.")
        self._broken_off.set_label(stopped if entry.is_stopped else cut)
        self._broken_off.set_visible(entry.partial)
        is_own = entry.role is Role.USER
        # Made when they are needed: most messages stand inside a turn.
        is_needed = (entry.is_last or self._can_restore) if is_own else entry.is_final
        if self._actions is None and is_needed:
            self._actions = Gtk.Box(css_classes=["message-actions"])
            if is_own:
                self._actions.set_valign(Gtk.Align.CENTER)
                self._edit = self._add_action(
                    "document-edit-symbolic", _("Edit and Send Again"), "edit"
                )
                if self._can_restore:
                    self._add_action(
                        "document-revert-symbolic", _("Restore Files to This Point"), "restore"
                    )
                self._line.attach(self._actions, 1, 0, 1, 1)
            else:
                self._add_action("edit-copy-symbolic", _("Copy Answer"), "copy")
                self._retry = self._add_action("view-refresh-symbolic", _("Try Again"), "retry")
                self.append(self._actions)
        if self._actions is None:
            return
        set_class(self._actions, "last", entry.is_last and not is_own)
        if is_own:
            self._edit.set_visible(entry.is_last)
        else:
            self._retry.set_visible(entry.is_last)

    def _add_action(self, icon: str, label: str, name: str) -> Gtk.Button:
        assert self._actions is not None
        button = icon_button(icon, label, "flat")
        if name == "copy":
            button.connect("clicked", weakly(self._on_copy))
        else:
            forward(button, "clicked", self, name)
        self._actions.append(button)
        return button

    def _on_copy(self, _button: Gtk.Button) -> None:
        self.get_clipboard().set(self.entry.text)


def _plain(text: str) -> Gtk.Widget:
    """Show text as it was typed: the user does not write Markdown."""
    if len(text) > _LONG:
        return LongText(text)
    # With a space at its end, GTK 4.8 makes a label wider than a narrow window, and very high.
    text = text.rstrip()
    label = Gtk.Label(label=text, xalign=0, selectable=True, max_width_chars=52)
    wrap_label(label, text)
    without_hyphens(label)
    return label


class SummaryRow(Gtk.Expander):
    def __init__(self, entry: SummaryEntry) -> None:
        title = _("Earlier messages no longer fit. The model goes on from its summary.")
        super().__init__(expanded=entry.is_open)
        self.add_css_class("notice")
        self._entry = entry
        label = Gtk.Label(label=title, xalign=0, wrap=True, css_classes=["dim-label"])
        without_hyphens(label)
        self.set_label_widget(label)
        self.update_property([Gtk.AccessibleProperty.LABEL], [title])
        view = LongText(entry.text)
        view.update_property([Gtk.AccessibleProperty.LABEL], [_("Summary")])
        # Else the Tab key leads into it while it is folded.
        self.bind_property("expanded", view, "visible", GObject.BindingFlags.SYNC_CREATE)
        self.set_child(view)
        self.connect("notify::expanded", weakly(self._on_unfolded))

    def _on_unfolded(self, _row: Gtk.Expander, _property: GObject.ParamSpec) -> None:
        self._entry.is_open = self.get_expanded()


class NoticeRow(Gtk.Box):
    """A notice; an error that ended the last turn has buttons to go on."""

    __gsignals__ = signals({"retry": ()})

    def __init__(self, entry: NoticeEntry) -> None:
        super().__init__(spacing=9, accessible_role=Gtk.AccessibleRole.GROUP)
        self.add_css_class("notice")
        self.entry = entry
        icon = "dialog-warning-symbolic" if entry.is_error else "dialog-information-symbolic"
        image = decorative_icon(icon, valign=Gtk.Align.START)
        # It may contain a file name, which need not be valid Unicode.
        text = "\n".join(map(visible_words, entry.text.split("\n")))
        label = Gtk.Label(label=text, xalign=0, selectable=True, hexpand=True)
        wrap_label(label, text)
        without_hyphens(label)
        set_accessible_name(self, text)
        for widget in (label, image):
            widget.add_css_class("dim-label")
        content = vbox(label, spacing=9)
        self.append(image)
        self.append(content)
        if entry.is_error or entry.can_retry:
            self.add_css_class("card")
            for widget in (label, image):
                widget.remove_css_class("dim-label")
            self._image = image
            # Below each other where both do not fit, as in German.
            self._buttons = WrapBox()
            self._buttons.add_group([text_button(self, _("_Preferences"), "win.show-connections")])
            self._buttons.add_group([text_button(self, _("_Try Again"), "retry")])
            content.append(self._buttons)
            SignalHandlers(self).connect(entry, "changed", self._on_changed)
            self._on_changed(entry)

    def _on_changed(self, entry: NoticeEntry) -> None:
        self._buttons.set_visible(entry.is_last)
        # An error that was overcome is none any more.
        set_class(self._image, "warning", entry.is_last)
        set_class(self._image, "dim-label", not entry.is_last)
