# SPDX-License-Identifier: GPL-3.0-or-later
"""The bar above the composer that sums up what the last turn changed, with ways to review, apply,
undo and redo it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gi.repository import Gtk

from ...chat.messages import Role
from ...i18n import _, ngettext
from ...project.change import State
from ..sessions.entries import CallEntry, MessageEntry
from ..sessions.tool_text import has_changes
from ..widgets.boxes import hbox, vbox
from ..widgets.labels import describe, name_buttons, one_line
from ..widgets.readable import ignored_files, number
from ..widgets.signals import signals
from ..widgets.weak import weakly
from ..widgets.wrap_box import WrapBox

if TYPE_CHECKING:
    from ..changes.counts import TurnChanges
    from ..sessions.open_session import OpenSession


class TurnBar(Gtk.Revealer):
    # The runs of the turn, the oldest first.
    __gsignals__ = signals(
        {"review": (object,), "redo": (object,), "undo": (object,), "apply": (object,)}
    )

    def __init__(self) -> None:
        super().__init__()
        self._runs: tuple[str, ...] = ()
        self._text = one_line()
        self._added = Gtk.Label(css_classes=["numeric", "success"])
        self._removed = Gtk.Label(css_classes=["numeric", "error"])
        self.review_button = Gtk.Button(label=_("_Review"), use_underline=True)
        self.redo_button = Gtk.Button(label=_("_Redo"), use_underline=True)
        self.undo_button = Gtk.Button(label=_("_Undo"), use_underline=True)
        self.apply_button = Gtk.Button(label=_("_Apply"), use_underline=True, visible=False)
        self._ignored = one_line("", "caption", "dim-label")
        for label in (self._added, self._removed):
            # The sign is before the number in right-to-left languages, too.
            label.set_direction(Gtk.TextDirection.LTR)
        line = hbox(self._text, self._added, self._removed, spacing=6)
        text = vbox(line, self._ignored)
        text.set_valign(Gtk.Align.CENTER)
        self._buttons = {
            "review": self.review_button,
            "redo": self.redo_button,
            "undo": self.undo_button,
            "apply": self.apply_button,
        }
        for signal, button in self._buttons.items():
            button.add_css_class("small-button")
            button.set_valign(Gtk.Align.CENTER)
            button.connect("clicked", weakly(self._on_clicked), signal)
        # In a narrow window, the buttons are below.
        content = WrapBox()
        content.set_property("spread", True)
        content.add_css_class("turn-bar")
        content.add_group([text])
        content.add_group([*self._buttons.values()])
        name_buttons(content)
        self.set_child(content)

    def show_changes(self, found: TurnChanges) -> None:
        is_same, self._runs = found.runs == self._runs, found.runs
        # While the bar slides away, it keeps its text.
        if found.files:
            text = turn_text(found)
            self._text.set_label(text)
            self._ignored.set_label(ignored_files(found.ignored))
            self._ignored.set_visible(found.ignored > 0)
            for button in self._buttons.values():
                describe(button, text)
            for label, sign, count in (
                (self._added, "+", found.lines.added if found.lines else 0),
                (self._removed, "\N{MINUS SIGN}", found.lines.removed if found.lines else 0),
            ):
                label.set_label(f"{sign}{number(count)}")
                label.set_visible(count > 0)
            # A button that was pressed stays where it is; the way back appears before it.
            is_applied = State.APPLIED in found.states
            had_focus = self.undo_button.has_focus()
            self.redo_button.set_visible(found.is_undone)
            self.undo_button.set_visible(is_applied or found.is_undone)
            self.undo_button.set_sensitive(is_applied)
            if had_focus and found.is_undone:
                self.redo_button.grab_focus()
            # Conflicts are decided file by file.
            can_apply = not found.states.isdisjoint((State.PENDING, State.FAILED))
            was_offered = is_same and self.apply_button.get_visible()
            self.apply_button.set_visible(can_apply or was_offered)
            self.apply_button.set_sensitive(can_apply)
        self.set_reveal_child(found.files > 0)

    def _on_clicked(self, _button: Gtk.Button, signal: str) -> None:
        self.emit(signal, self._runs)


def turn_text(found: TurnChanges) -> str:
    """Return how many files a turn changed, and what became of them."""
    text = ngettext("{} file changed", "{} files changed", found.files).format(number(found.files))
    if found.pending:
        some = ngettext("{} pending", "{} pending", found.pending).format(number(found.pending))
        return f"{text} · {some}"
    if found.states == {State.DISCARDED}:
        return f"{text} · {_('discarded')}"
    return f"{text} · {_('undone')}" if found.is_undone else text


def last_turn_runs(session: OpenSession) -> list[str]:
    """Return the runs since the user's last message, or since a command of their own that changed
    something."""
    runs: list[str] = []
    for entry in reversed(list(session)):
        if isinstance(entry, MessageEntry) and entry.role is Role.USER:
            return runs[::-1]
        if isinstance(entry, CallEntry) and entry.own:
            if has_changes(entry):
                return [*runs, entry.run_id][::-1]
        elif isinstance(entry, CallEntry) and entry.run_id:
            runs.append(entry.run_id)
    return []
