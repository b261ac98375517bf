# SPDX-License-Identifier: GPL-3.0-or-later
"""The card with a question of the model, at its call in the chat. It grants nothing."""

from __future__ import annotations

from gi.repository import GLib, Gtk

from ...i18n import _
from ...text.visible import visible, visible_line
from ...tools.base import UserQuestion
from ..resources import template
from ..widgets.labels import name_buttons, set_accessible_name, show_code, wrap_label
from ..widgets.signals import signals
from ..widgets.weak import weakly


@Gtk.Template(filename=template("chat/question"))
class QuestionCard(Gtk.Box):
    __gtype_name__ = "OllmQuestionCard"

    # The text of the answer; "" lets the model decide.
    __gsignals__ = signals({"replied": (str,)})

    question_box: Gtk.Box = Gtk.Template.Child()
    question: Gtk.Label = Gtk.Template.Child()
    choices: Gtk.Box = Gtk.Template.Child()
    entry: Gtk.Entry = Gtk.Template.Child()
    answer_button: Gtk.Button = Gtk.Template.Child()
    skip_button: Gtk.Button = Gtk.Template.Child()
    answer_box: Gtk.Box = Gtk.Template.Child()
    answer: Gtk.Label = Gtk.Template.Child()

    def __init__(self, question: UserQuestion) -> None:
        super().__init__()
        self.shown = question
        self._is_answered = False
        self._rests_at = 0
        shown = visible(question.text)
        show_code(self.question, shown)
        wrap_label(self.question, shown)
        for choice in question.choices:
            self.choices.append(self._choice(choice))
        self.choices.set_visible(bool(question.choices))
        hint = _("Another answer") if question.choices else _("Your answer")
        self.entry.set_placeholder_text(hint)
        set_accessible_name(self.entry, hint)
        name_buttons(self)
        # Not through the template, which would keep the card alive.
        self.entry.connect("changed", weakly(self._on_typed))
        self.entry.connect("activate", weakly(self._on_entered))
        self.answer_button.connect("clicked", weakly(self._on_entered))
        self.skip_button.connect("clicked", weakly(self._on_choice), "")
        self.connect("map", weakly(self.wait_a_moment))

    @property
    def is_open(self) -> bool:
        """Whether it is still to be answered."""
        return self.question_box.get_visible()

    def take_focus(self) -> None:
        """Focus the text field: Enter alone answers nothing there."""
        self.entry.grab_focus()

    def wait_a_moment(self, *_args: object) -> None:
        """Ignore clicks for a moment: the card may have moved under the pointer."""
        self._rests_at = GLib.get_monotonic_time() + 400_000

    def show_answer(self, text: str) -> None:
        """Fold to one line with the answer; "" if the agent decides."""
        self._is_answered = True
        self.question_box.set_visible(False)
        self.answer_box.set_visible(True)
        given = _("You answered: {answer}").format(answer=visible_line(text)) if text else ""
        show_code(self.answer, given or _("You let the agent decide"))
        wrap_label(self.answer, given)

    def _choice(self, text: str) -> Gtk.Button:
        label = Gtk.Label(xalign=0)
        shown = show_code(label, visible_line(text))
        wrap_label(label, shown)
        button = Gtk.Button(child=label)
        set_accessible_name(button, shown)
        button.connect("clicked", weakly(self._on_choice), text)
        return button

    def _reply(self, text: str) -> None:
        if self._is_answered:
            return
        self._is_answered = True
        self.question_box.set_sensitive(False)
        self.emit("replied", text)

    def _on_choice(self, _button: Gtk.Button, text: str) -> None:
        if GLib.get_monotonic_time() >= self._rests_at:
            self._reply(text)

    def _on_typed(self, entry: Gtk.Entry) -> None:
        self.answer_button.set_sensitive(bool(entry.get_text().strip()))

    def _on_entered(self, _widget: Gtk.Widget) -> None:
        text = self.entry.get_text().strip()
        if text:
            self._reply(text)
