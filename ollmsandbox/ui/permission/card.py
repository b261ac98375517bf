# SPDX-License-Identifier: GPL-3.0-or-later
"""ChatPermission: a question in the chat, at the call that waits for it."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Gdk, GLib, GObject, Gtk, Pango

from ...permission.request import Answer, PermissionRequest, Verdict
from ...text.visible import visible, visible_words
from ...tools.questions import every_time
from ..resources import template
from ..widgets.labels import name_buttons, set_plain, without_hyphens
from ..widgets.signals import signals
from ..widgets.weak import weakly
from ..widgets.wrap_box import WrapBox
from . import text as words
from .visibility import edges_in_sight, is_covered, is_in_reach, place_in_window, scrolled_around

# Milliseconds: a click that was meant for what stood here a moment ago allows nothing.
_PAUSE = 400
# Milliseconds between two looks at what is in sight, as long as that matters.
_LOOK = 100
# And for what is out of sight.
_LOOK_AWAY = 1500
# With each look.
_LINES = 2000


@Gtk.Template(filename=template("permission/card"))
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
    buttons: WrapBox = Gtk.Template.Child()
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
        self._pausing = self._looking = 0
        # Where its buttons were in the last frame; and from when on a yes counts there.
        self._place: tuple[int, ...] | None = None
        self._rests_at = 0
        # What is listened to while it is to be seen.
        self._handlers: list[tuple[GObject.Object, int]] = []
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

    def wait_a_moment(self) -> None:
        """It may have come to where something else was. Its buttons stay as they are: if they were
        switched off, the keyboard would go from one to another."""
        self._rests_at = GLib.get_monotonic_time() + 1000 * _PAUSE

    @property
    def is_at_rest(self) -> bool:
        """Whoever presses a button has had the time to see which one is there."""
        self._note_place()
        return GLib.get_monotonic_time() >= self._rests_at

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
        # And soon again: what was scrolled is only about to get its place.
        self._keep_looking(_LOOK)
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
        around, window = scrolled_around(self), self.get_root()
        if around is not None:
            for signal in ("changed", "value-changed"):
                self._listen(around.get_vadjustment(), signal, self._look_soon)
        if isinstance(window, Gtk.Window):
            self._listen(window, "notify::is-active", self._on_active)
        if (clock := self.get_frame_clock()) is not None:
            # Nothing moves without a frame, and this asks for none.
            self._listen(clock, "after-paint", self._note_place)
        self._place = None
        self._had_time = False
        self._show_whether_it_can_be_allowed()
        self._pausing = GLib.timeout_add(_PAUSE, weakly(self._on_time))
        self._keep_looking(_LOOK)

    def _on_unmap(self, *_args: object) -> None:
        for timer in (self._pausing, self._looking):
            if timer:
                GLib.source_remove(timer)
        self._pausing = self._looking = 0
        for source, handler in self._handlers:
            source.disconnect(handler)
        self._handlers = []

    def _listen(self, source: GObject.Object, signal: str, method: Callable[..., object]) -> None:
        self._handlers.append((source, source.connect(signal, weakly(method))))

    def _on_active(self, _window: Gtk.Window, _property: object) -> None:
        """The click that brings the window to the front was meant for that."""
        self.wait_a_moment()

    def _note_place(self, *_args: object) -> None:
        """What grows above or below it moves it, and another to where it was."""
        if self._place != (place := place_in_window(self.buttons)):
            self._place = place
            self.wait_a_moment()

    def _on_time(self) -> bool:
        self._had_time = True
        self._pausing = 0
        self._look()
        return GLib.SOURCE_REMOVE

    def _keep_looking(self, pause: int) -> None:
        """A row above that shrinks, or a page over it that goes away, tells nobody. To scroll does,
        and many may be scrolled out of sight."""
        if self._looking:
            GLib.source_remove(self._looking)
            self._looking = 0
        if self.get_mapped() and not self._is_answered and not self._can_allow:
            self._looking = GLib.timeout_add(pause, weakly(self._look_again))

    def _look_again(self) -> bool:
        self._looking = 0
        self._look()
        self._keep_looking(_LOOK if is_in_reach(self) else _LOOK_AWAY)
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
        # Its letter works from anywhere in the window, also when it is scrolled out of sight, or
        # another page lies over it.
        if answer.allows and not (self._can_allow and all(edges_in_sight(button))):
            if not is_covered(self):
                self.focus_deny()
            return
        if answer.allows and not self.is_at_rest:
            return
        self._answer(answer)
