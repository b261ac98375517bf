# SPDX-License-Identifier: GPL-3.0-or-later
"""What is around the composer: bars above it, and suggestions in an empty session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gi.repository import Gtk

from ...chat.messages import QueuedMessage, Role
from ...i18n import _, ngettext
from ...project.change import State
from ...text.visible import visible_line
from ...tools.base import Picture
from ..sessions.entries import CallEntry, MessageEntry
from ..sessions.tool_text import has_changes
from ..widgets.boxes import hbox, icon_button, text_button, vbox
from ..widgets.labels import (
    decorative_icon,
    describe,
    one_line,
    set_accessible_name,
    wrapped,
)
from ..widgets.readable import ignored_files, number
from ..widgets.signals import forward, signals
from ..widgets.wrap_box import WrapBox

if TYPE_CHECKING:
    from ..changes.counts import TurnChanges
    from ..sessions.open_session import OpenSession


class MissingFolderBar(Gtk.Revealer):
    __gsignals__ = signals({"remove": (), "locate": ()})

    def __init__(self) -> None:
        super().__init__()
        self._label = wrapped(hexpand=True)
        icon = decorative_icon("dialog-warning-symbolic", "warning")
        buttons = WrapBox()
        for label, name in (
            (_("_Remove From List"), "remove"),
            (_("_Open a Project"), "win.open-project"),
            (_("_Locate…"), "locate"),
        ):
            buttons.add_group([text_button(self, label, name)])
        content = vbox(hbox(icon, self._label, spacing=9), buttons, spacing=9)
        content.add_css_class("missing-bar")
        self.set_child(content)

    def show_folder(self, folder: str) -> None:
        """Show which folder is missing; hide the bar if `folder` is empty."""
        if folder:
            words = _("The folder {} is missing. Commands cannot run until it is back.")
            self._label.set_label(words.format(visible_line(folder)))
        self.set_reveal_child(bool(folder))


class QuestionBar(Gtk.Revealer):
    __gsignals__ = signals({"show-question": ()})

    def __init__(self) -> None:
        super().__init__()
        self._label = Gtk.Label(xalign=0, hexpand=True, wrap=True)
        self._arrow = decorative_icon("go-up-symbolic")
        icon = decorative_icon("security-medium-symbolic")
        self._button = Gtk.Button(child=hbox(icon, self._label, self._arrow, spacing=9))
        self._button.add_css_class("waiting-bar")
        forward(self._button, "clicked", self, "show-question")
        self.set_child(self._button)
        self.show_count(0)

    def show_count(self, count: int, *, is_below: bool = False) -> None:
        """Show how many questions are out of view, and in which direction the first one is."""
        text = ngettext(
            "A question needs your answer", "{} questions need your answer", count
        ).format(count)
        # While the bar slides away, it keeps its text.
        if count or not self._label.get_label():
            self._label.set_label(text)
            self._arrow.set_from_icon_name("go-down-symbolic" if is_below else "go-up-symbolic")
            self._button.update_property([Gtk.AccessibleProperty.LABEL], [text])
        self.set_reveal_child(count > 0)


class QueueBar(Gtk.Box):
    # The place of a message in the queue.
    __gsignals__ = signals({"drop": (int,)})

    def __init__(self) -> None:
        super().__init__(orientation=Gtk.Orientation.VERTICAL, visible=False)
        self.add_css_class("queue-bar")
        self.append(one_line(_("Waiting for the agent"), "caption", "dim-label"))
        self._rows: list[Gtk.Widget] = []

    def show_messages(self, messages: Sequence[QueuedMessage]) -> None:
        for row in self._rows:
            self.remove(row)
        self._rows = [self._row(place, message) for place, message in enumerate(messages)]
        for row in self._rows:
            self.append(row)
        self.set_visible(bool(messages))

    def _row(self, place: int, message: QueuedMessage) -> Gtk.Widget:
        shown = visible_line(message.title[:500])
        row = hbox(spacing=6)
        if message.pictures:
            names = ", ".join(picture.name for picture in message.pictures)
            icon = Gtk.Image(icon_name="image-x-generic-symbolic", tooltip_text=names)
            set_accessible_name(icon, _("Attached pictures"))
            row.append(icon)
        row.append(one_line(shown, hexpand=True))
        cross = icon_button(
            "window-close-symbolic", _("Do Not Send"), "flat", "circular", "chip-button"
        )
        set_accessible_name(cross, _("Do not send: {}").format(shown))
        forward(cross, "clicked", self, "drop", place)
        row.append(cross)
        return row


class EditBar(Gtk.Box):
    """Shown while the composer has the last message, to be sent again."""

    __gsignals__ = signals({"cancel": (), "restore": ()})

    def __init__(self) -> None:
        super().__init__(spacing=6, visible=False)
        self.add_css_class("queue-bar")
        # In a narrow window, the button is below the text.
        content = WrapBox(spread=True, shrink=True, hexpand=True)
        # The text and the pictures that the composer had before.
        self.before: tuple[str, tuple[Picture, ...]] = ("", ())
        # When the message was sent.
        self.sent_at = 0.0
        words = _("Editing your last message. Its answer will be replaced; files stay as they are.")
        label = wrapped(words, "caption", "dim-label", width_chars=30)
        self.restore_button = text_button(self, _("_Restore Files…"), "restore")
        self.restore_button.add_css_class("small-button")
        cross = icon_button("window-close-symbolic", _("Cancel"), "flat", "circular", "chip-button")
        forward(cross, "clicked", self, "cancel")
        content.add_group([label])
        content.add_group([self.restore_button])
        self.append(content)
        self.append(cross)


class TourBar(Gtk.Box):
    """Next after each idea of the tour, and what to do at its end."""

    __gsignals__ = signals({"next": (), "remove": ()})

    def __init__(self) -> None:
        super().__init__(spacing=12, visible=False)
        self.add_css_class("queue-bar")
        self._label = wrapped("", "caption", "dim-label", hexpand=True)
        self.append(self._label)
        self.next_button = text_button(self, _("_Next"), "next")
        self.next_button.add_css_class("suggested-action")
        self.append(self.next_button)
        self._end = WrapBox(hexpand=True)
        for label, name in (
            (_("_Remove the Sample"), "remove"),
            (_("_Open a Project"), "win.open-project"),
            (_("Connect a _Model"), "win.connect-model"),
        ):
            self._end.add_group([text_button(self, label, name)])
        self.append(self._end)

    def show_stop(self, number: int, most: int) -> None:
        self._label.set_label(_("Tour: {number} of {most}").format(number=number, most=most))
        self._show(is_end=False)
        self.next_button.grab_focus()

    def show_end(self) -> None:
        self._show(is_end=True)

    def _show(self, *, is_end: bool) -> None:
        self._label.set_visible(not is_end)
        self.next_button.set_visible(not is_end)
        self._end.set_visible(is_end)
        self.set_visible(True)


class Suggestions(Gtk.Box):
    """Buttons for what many users begin with."""

    __gsignals__ = signals({"chosen": (str,)})

    def __init__(self) -> None:
        super().__init__(halign=Gtk.Align.CENTER, margin_start=12, margin_end=12, margin_bottom=18)
        # Below each other where they do not fit.
        lines = WrapBox()
        for text in (_("Run the tests"), _("Explain this project"), _("What changed last?")):
            button = Gtk.Button(label=text, css_classes=["chip"])
            forward(button, "clicked", self, "chosen", text)
            lines.add_group([button])
        self.append(lines)


class TurnBar(Gtk.Revealer):
    """Sums up what the last turn changed, with ways to review, apply, undo and redo it."""

    __gsignals__ = signals({"review": (), "redo": (), "undo": (), "apply": ()})

    def __init__(self) -> None:
        super().__init__()
        # Those of the turn, the oldest first.
        self.runs: tuple[str, ...] = ()
        self._text = one_line()
        self._added = Gtk.Label(css_classes=["numeric", "success"])
        self._removed = Gtk.Label(css_classes=["numeric", "error"])
        self.review_button = text_button(self, _("_Review"), "review")
        self.redo_button = text_button(self, _("_Redo"), "redo")
        self.undo_button = text_button(self, _("_Undo"), "undo")
        self.apply_button = text_button(self, _("_Apply"), "apply")
        self.apply_button.set_visible(False)
        self._ignored = one_line("", "caption", "dim-label")
        for label in (self._added, self._removed):
            # The sign is before the number in right-to-left languages, too.
            label.set_direction(Gtk.TextDirection.LTR)
        line = hbox(self._text, self._added, self._removed, spacing=6)
        text = vbox(line, self._ignored, valign=Gtk.Align.CENTER)
        self._buttons = self.review_button, self.redo_button, self.undo_button, self.apply_button
        for button in self._buttons:
            button.add_css_class("small-button")
        # In a narrow window, the buttons are below.
        content = WrapBox(spread=True)
        content.add_css_class("turn-bar")
        content.add_group([text])
        content.add_group(self._buttons)
        self.set_child(content)

    def show_changes(self, found: TurnChanges) -> None:
        is_same, self.runs = found.runs == self.runs, found.runs
        # While the bar slides away, it keeps its text.
        if found.files:
            text = turn_text(found)
            self._text.set_label(text)
            self._ignored.set_label(ignored_files(found.ignored))
            self._ignored.set_visible(found.ignored > 0)
            for button in self._buttons:
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
    """Return the runs since the user's last message, or own command that changed something."""
    runs: list[str] = []
    for entry in reversed(session.entries):
        if isinstance(entry, MessageEntry) and entry.role is Role.USER:
            return runs[::-1]
        if isinstance(entry, CallEntry) and entry.own:
            if has_changes(entry):
                return [*runs, entry.run_id][::-1]
        elif isinstance(entry, CallEntry) and entry.run_id:
            runs.append(entry.run_id)
    return []
