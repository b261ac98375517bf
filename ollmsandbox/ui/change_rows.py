# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of the list of changes: a run, and below it the files it changed."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Gtk, Pango

from ..project.changes.change import Kind, State
from ..text.visible import visible_line
from . import change_words as words
from .accessible import set_accessible_name
from .change_items import FileItem, RunItem
from .lines import WrapBox
from .plain_text import without_hyphens
from .work_bar import hold

Act = Callable[[str, RunItem], None]
Fold = Callable[[RunItem], None]
_MOST_READ = 200
# For what one should look at twice.
_MOST_LINES = 4
_COLOURS = {Kind.ADDED: "success", Kind.DELETED: "error", Kind.REPLACED: "warning"}


class RunRow(Gtk.Box):
    __gtype_name__ = "OllmRunRow"

    def __init__(self, item: RunItem, act: Act, fold: Fold) -> None:
        super().__init__(orientation=Gtk.Orientation.VERTICAL, spacing=3)
        for side in ("top", "bottom"):
            getattr(self, f"set_margin_{side}")(6)
        run = item.data
        top = Gtk.Box(spacing=6)
        # The keyboard never gets to a row of a list that has buttons in it, only to them.
        self.arrow = Gtk.Button(
            icon_name="pan-down-symbolic" if item.is_open else "pan-end-symbolic",
            css_classes=["flat", "fold-button"],
            valign=Gtk.Align.CENTER,
        )
        self.arrow.connect("clicked", lambda _button: fold(item))
        top.append(self.arrow)
        text = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, hexpand=True)
        command = _line(visible_line(run.command))
        command.add_css_class("monospace")
        told = words.run_about(run)
        # For a screen reader.
        self.name = f"{visible_line(run.command)[:_MOST_READ]}. {told}"
        self.arrow.update_property([Gtk.AccessibleProperty.LABEL], [self.name])
        self.arrow.update_state([Gtk.AccessibleState.EXPANDED], [int(item.is_open)])
        about = _line(told)
        about.add_css_class("caption")
        about.add_css_class("warning" if run.waiting else "dim-label")
        text.append(command)
        text.append(about)
        top.append(text)
        states = set(run.states) - {State.CONFLICT}
        buttons: list[Gtk.Button] = []
        verbs = words.verbs(states)
        for name, label in verbs:
            button = Gtk.Button(label=label)
            button.add_css_class("small-button")
            if name == "apply":
                button.add_css_class("suggested-action")
            button.connect("clicked", lambda _button, name=name: act(name, item))
            set_accessible_name(button, f"{label}: {visible_line(run.command)[:_MOST_READ]}")
            buttons.append(button)
        self.append(top)
        # Several beside the command would leave nothing of it to read.
        if len(buttons) > 1:
            lines = WrapBox()
            lines.add_group(buttons[:2])
            lines.add_group(buttons[2:])
            self.append(lines)
        elif buttons:
            buttons[0].set_valign(Gtk.Align.CENTER)
            # A long command is cut off right before it.
            buttons[0].set_margin_start(6)
            top.append(buttons[0])
        self._buttons = buttons
        self.set_tooltip_text(visible_line(run.command)[:500])

    def hold(self, is_held: bool) -> None:
        for button in self._buttons:
            hold(button, is_held)

    def focus(self, *, verbs: bool) -> None:
        (self._buttons[0] if verbs and self._buttons else self.arrow).grab_focus()


class FileRow(Gtk.Box):
    __gtype_name__ = "OllmFileRow"

    def __init__(self, item: FileItem) -> None:
        # Each of them is felt: there are hundreds of rows.
        super().__init__(
            spacing=9, margin_start=18, margin_top=3, margin_bottom=3, has_tooltip=True
        )
        self.item = item
        recorded = item.recorded
        path = visible_line(recorded.change.path)
        icon = Gtk.Image.new_from_icon_name(words.icon(recorded))
        colour = _COLOURS.get(recorded.change.kind)
        if colour:
            icon.add_css_class(colour)
        self.append(icon)
        folder, _slash, name = path.rpartition("/")
        text = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, hexpand=True)
        text.append(_line(name or "."))
        told = words.about(recorded)
        self.name = f"{path}. {told}"
        # A path may be as long as it likes: what is told comes before it.
        below = _line(f"{told} · {folder}/" if folder else told)
        below.add_css_class("caption")
        waits = recorded.state in (State.CONFLICT, State.FAILED) or words.marks(recorded)
        below.add_css_class("warning" if waits else "dim-label")
        if waits:
            below.set_wrap(True)
            below.set_wrap_mode(Pango.WrapMode.WORD_CHAR)
            below.set_lines(_MOST_LINES)
            without_hyphens(below)
        text.append(below)
        self.append(text)
        self._text = text
        self.append(Gtk.Image.new_from_icon_name("go-next-symbolic"))
        # Its text would take as long as all else in it.
        self.connect("query-tooltip", _tell_path)

    def show_lines(self, added: int, removed: int) -> None:
        """Once; most rows are never seen, so there is no room for it before."""
        for sign, number, colour in (("\N{MINUS SIGN}", removed, "error"), ("+", added, "success")):
            if number > 0:
                self.insert_child_after(_count(f"{sign}{number}", colour), self._text)


def _tell_path(row: FileRow, _x: int, _y: int, _by_key: bool, tooltip: Gtk.Tooltip) -> bool:
    tooltip.set_text(row.name)
    return True


def _count(text: str, colour: str) -> Gtk.Label:
    label = Gtk.Label(label=text, css_classes=["caption", "numeric", colour])
    # The sign stands before the number, whichever way one reads.
    label.set_direction(Gtk.TextDirection.LTR)
    return label


def _line(text: str) -> Gtk.Label:
    return Gtk.Label(label=text, xalign=0, ellipsize=Pango.EllipsizeMode.END)
