# SPDX-License-Identifier: GPL-3.0-or-later
"""ChatPermission: a question in the chat, at the call that waits for it."""

from __future__ import annotations

from gi.repository import Gdk, GLib, Gtk, Pango

from ..permission.request import Answer, PermissionRequest, Verdict
from ..permission.visible import visible, visible_words
from ..tools.asking import every_time
from . import permission_words as words
from .accessible import name_buttons
from .in_sight import edges_in_sight, scrolled_around
from .lines import Lines
from .plain_text import set_plain, without_hyphens
from .signals import signals
from .template import template
from .weakly import weakly

# Milliseconds: a click that was meant for what stood here a moment ago allows nothing.
_PAUSE = 400
# Milliseconds between two looks at what is in sight, as long as that matters.
_LOOK = 100
# With each look.
_LINES = 2000


@Gtk.Template(filename=template("permission_card"))
class ChatPermission(Gtk.Box):
    """Shows all of a request as plain text. What is shown never changes; it is answered once, and
    with a yes only after all of it was to be seen."""

    __gtype_name__ = "ChatPermission"

    __gsignals__ = signals({"answered": (object,)})

    question_box: Gtk.Box = Gtk.Template.Child()
    icon: Gtk.Image = Gtk.Template.Child()
    question: Gtk.Label = Gtk.Template.Child()
    subject: Gtk.TextView = Gtk.Template.Child()
    subject_frame: Gtk.ScrolledWindow = Gtk.Template.Child()
    facts: Gtk.Grid = Gtk.Template.Child()
    sees: Gtk.Expander = Gtk.Template.Child()
    sees_text: Gtk.Label = Gtk.Template.Child()
    notes: Gtk.Stack = Gtk.Template.Child()
    lasting: Gtk.Label = Gtk.Template.Child()
    buttons: Lines = Gtk.Template.Child()
    verdict_box: Gtk.Box = Gtk.Template.Child()
    verdict_icon: Gtk.Image = Gtk.Template.Child()
    verdict: Gtk.Label = Gtk.Template.Child()

    def __init__(self, request: PermissionRequest) -> None:
        super().__init__()
        self.request = request
        self._is_answered = False
        self._saw_start = self._saw_end = self._had_time = False
        self._is_look_due = False
        # Of the command, whose height is known; and for which width it is.
        self._known_lines = self._known_width = 0
        self._timers: list[int] = []
        self._around: tuple[Gtk.Adjustment, int] | None = None
        self._by_answer: dict[Answer, Gtk.Button] = {}
        self._fill()
        name_buttons(self)
        adjustment = self.subject_frame.get_vadjustment()
        for name in ("changed", "value-changed"):
            adjustment.connect(name, weakly(self._look_soon))
        keys = Gtk.EventControllerKey()
        keys.connect("key-pressed", weakly(self._on_key))
        self.add_controller(keys)
        self.connect("map", weakly(self._on_map))
        self.connect("unmap", weakly(self._on_unmap))
        self._show_whether_it_can_be_allowed()

    @property
    def is_open(self) -> bool:
        """It waits for an answer."""
        return self.question_box.get_visible()

    def focus_deny(self) -> None:
        self._by_answer[Answer.DENY].grab_focus()
        window = self.get_root()
        if isinstance(window, Gtk.Window):
            # What the Enter key would do now is to be seen.
            window.set_focus_visible(True)

    def button_for(self, answer: Answer) -> Gtk.Button:
        return self._by_answer[answer]

    def show_verdict(self, verdict: Verdict) -> None:
        """Folds to one line, which stays."""
        icon = "object-select-symbolic" if verdict.allowed else "action-unavailable-symbolic"
        self._fold(words.verdict(verdict), icon)

    def show_over(self) -> None:
        """Nobody needs an answer any more."""
        self._fold(words.over(), "action-unavailable-symbolic")

    # --- what it shows ---------------------------------------------------------------------------

    def _fill(self) -> None:
        request = self.request
        self.question.set_label(words.question(request))
        set_plain(self.subject, visible(request.subject))
        if request.network or not request.sandboxed:
            self.icon.set_from_icon_name("dialog-warning-symbolic")
            self.icon.add_css_class("warning")
        # That it is asked every time stands above the buttons.
        facts = [fact for fact in request.facts if fact != every_time()]
        for row, fact in enumerate(facts):
            self._add_fact(row, *words.fact(fact))
        self.facts.set_visible(bool(facts))
        self.sees.set_visible(bool(request.sees))
        self.sees_text.set_label("\n".join(map(visible_words, request.sees)))
        without_hyphens(self.question, self.sees_text)
        self.lasting.set_label(words.lasting(request))
        for allows in (False, True):
            group = [self._button(a) for a in request.answers if a.allows is allows]
            self.buttons.add_group(group)

    def _add_fact(self, row: int, label: str, value: str) -> None:
        name = Gtk.Label(label=label, xalign=0, yalign=0)
        name.add_css_class("dim-label")
        shown = Gtk.Label(label=value, xalign=0, wrap=True, hexpand=True)
        shown.set_wrap_mode(Pango.WrapMode.WORD_CHAR)
        without_hyphens(name, shown)
        self.facts.attach(name, 0, row, 1, 1)
        self.facts.attach(shown, 1, row, 1, 1)

    def _button(self, answer: Answer) -> Gtk.Button:
        button = Gtk.Button(label=words.button(answer, self.request), use_underline=True)
        button.connect("clicked", weakly(self._on_clicked), answer)
        self._by_answer[answer] = button
        return button

    def _fold(self, text: str, icon: str) -> None:
        self._is_answered = True
        self._on_unmap()
        self.question_box.set_visible(False)
        self.verdict_box.set_visible(True)
        self.verdict.set_label(text)
        self.verdict_icon.set_from_icon_name(icon)

    # --- whether it was seen ---------------------------------------------------------------------

    @property
    def _can_allow(self) -> bool:
        return self._saw_start and self._saw_end and self._had_time

    def _look_soon(self, _adjustment: Gtk.Adjustment) -> None:
        """Not at once: this may come in the middle of laying out."""
        if not self._is_look_due:
            self._is_look_due = True
            GLib.timeout_add(0, weakly(self._look_now))

    def _look_now(self) -> bool:
        self._is_look_due = False
        self._look()
        return GLib.SOURCE_REMOVE

    def _look(self, *_args: object) -> None:
        adjustment = self.subject_frame.get_vadjustment()
        page = adjustment.get_page_size()
        # Before it is laid out there is nothing to be seen.
        if not self._is_answered and self.get_mapped() and page > 1:
            most = self.subject_frame.get_max_content_height()
            if page < min(adjustment.get_upper(), most) - 1:
                # A text finds out where its lines break while it gets its place, when asking for
                # a larger one may go unheard.
                self.subject.queue_resize()
            top, bottom = edges_in_sight(self.subject_frame)
            if top and adjustment.get_value() <= 1:
                self._saw_start = True
            # From the start to the end: somebody who scrolls there has passed what is between.
            if self._is_end_in_sight() and bottom:
                self._saw_end = True
        self._show_whether_it_can_be_allowed()

    def _is_end_in_sight(self) -> bool:
        """A text view finds out little by little how high its lines are, and seems to be at its end
        before it has begun. A line that it does not know yet has no height. There may be very many:
        each is looked at once, and some at a time."""
        if self._known_width != (width := self.subject.get_width()):
            self._known_lines, self._known_width = 0, width
        _found, place = self.subject.get_buffer().get_iter_at_line(self._known_lines)
        for _number in range(_LINES):
            top, height = self.subject.get_line_yrange(place)
            if not height:
                return False
            if not place.forward_line():
                seen = self.subject.get_visible_rect()
                return bool(top + height <= seen.y + seen.height + 1)
            self._known_lines += 1
        return False

    def _show_whether_it_can_be_allowed(self) -> None:
        for answer, button in self._by_answer.items():
            if answer.allows:
                button.set_sensitive(self._can_allow and not self._is_answered)
        unseen = self._had_time and not (self._saw_start and self._saw_end)
        self.notes.set_visible_child_name("unseen" if unseen else "lasting")

    def _on_map(self, *_args: object) -> None:
        if self._is_answered:
            return
        around = scrolled_around(self)
        if around is not None and self._around is None:
            adjustment = around.get_vadjustment()
            self._around = adjustment, adjustment.connect("value-changed", weakly(self._look_soon))
        if not self._timers:
            self._timers = [
                GLib.timeout_add(_PAUSE, weakly(self._on_time)),
                # A window that is made larger, or a row above that shrinks, tells nobody.
                GLib.timeout_add(_LOOK, weakly(self._look_again)),
            ]

    def _on_unmap(self, *_args: object) -> None:
        for timer in self._timers:
            GLib.source_remove(timer)
        self._timers = []
        if self._around is not None:
            adjustment, handler = self._around
            adjustment.disconnect(handler)
            self._around = None

    def _on_time(self) -> bool:
        self._had_time = True
        self._timers = self._timers[1:]
        self._look()
        return GLib.SOURCE_REMOVE

    def _look_again(self) -> bool:
        self._look()
        if not self._can_allow:
            return GLib.SOURCE_CONTINUE
        self._timers = self._timers[:-1]
        return GLib.SOURCE_REMOVE

    # --- answers ---------------------------------------------------------------------------------

    def _answer(self, answer: Answer) -> None:
        if self._is_answered:
            return
        self._is_answered = True
        for button in self._by_answer.values():
            button.set_sensitive(False)
        self.emit("answered", answer)

    def _on_key(
        self, _keys: Gtk.EventControllerKey, key: int, _code: int, _state: Gdk.ModifierType
    ) -> bool:
        if key == Gdk.KEY_Escape and not self._is_answered:
            self._answer(Answer.DENY)
            return Gdk.EVENT_STOP
        return Gdk.EVENT_PROPAGATE

    def _on_clicked(self, button: Gtk.Button, answer: Answer) -> None:
        # Its letter works from anywhere in the window, also when it is scrolled out of sight.
        if answer.allows and not (self._can_allow and all(edges_in_sight(button))):
            self.focus_deny()
            return
        self._answer(answer)
