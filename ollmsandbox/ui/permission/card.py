# SPDX-License-Identifier: GPL-3.0-or-later
"""ChatPermission: the card with a permission question, at its call in the chat."""

from __future__ import annotations

from collections.abc import Sequence

from gi.repository import Gdk, GLib, Gtk

from ...i18n import _
from ...permission.request import Answer, PermissionRequest
from ...text.visible import visible, visible_words
from ...tools.questions import every_time
from ..resources import template
from ..widgets.boxes import hbox, vbox
from ..widgets.keyboard import on_key
from ..widgets.labels import (
    name_buttons,
    set_accessible_name,
    set_plain,
    show_text,
    without_hyphens,
    wrapped,
)
from ..widgets.scheduling import Timer
from ..widgets.scroller import lower_when_wider
from ..widgets.signals import SignalHandlers, signals
from ..widgets.weak import weakly
from ..widgets.wrap_box import WrapBox
from .text import button_label, duration_text, fact_text, question_text, spoken_question
from .visibility import edges_in_sight, is_covered, is_in_reach, place_in_window, scrolled_around

_LASTING = (Answer.ALLOW_SESSION, Answer.ALLOW_ALWAYS, Answer.DENY_ALWAYS)
# Milliseconds in which a click is ignored, as it may be meant for what was here before.
_PAUSE = 400
# Milliseconds between two checks of what is in view.
_LOOK = 100
# The same for a card that is out of view.
_LOOK_AWAY = 1500
# Lines measured in each check.
_LINES = 2000


@Gtk.Template(filename=template("permission/card"))
class ChatPermission(Gtk.Box):
    """Show a whole request as plain text, and take one answer.

    The text never changes, and the user can allow it only after seeing all of it.
    """

    __gtype_name__ = "ChatPermission"

    __gsignals__ = signals({"answered": (object,)})

    icon: Gtk.Image = Gtk.Template.Child()
    question: Gtk.Label = Gtk.Template.Child()
    notice: Gtk.Label = Gtk.Template.Child()
    subject: Gtk.TextView = Gtk.Template.Child()
    subject_frame: Gtk.ScrolledWindow = Gtk.Template.Child()
    facts: Gtk.Grid = Gtk.Template.Child()
    notes: Gtk.Stack = Gtk.Template.Child()
    lasting: Gtk.Label = Gtk.Template.Child()
    buttons: WrapBox = Gtk.Template.Child()

    def __init__(self, request: PermissionRequest) -> None:
        super().__init__()
        self.request = request
        self._is_answered = False
        self._saw_start = self._saw_end = self._had_time = False
        # Soon, as signals may come in the middle of a layout.
        self._due = Timer(self._look_now)
        # Lines of the command whose height is known, and for which width.
        self._known_lines = self._known_width = 0
        self._pausing, self._looking = Timer(self._on_time), Timer(self._look_again)
        # The position of the buttons in the last frame, and when a click on "Allow" counts there.
        self._place: tuple[int, ...] | None = None
        self._rests_at = 0
        # Signals that are connected while the card is shown.
        self._handlers = SignalHandlers()
        self._by_answer: dict[Answer, Gtk.Button] = {}
        # The answers that last, behind an arrow.
        self._more: Gtk.MenuButton | None = None
        self._fill()
        name_buttons(self)
        lower_when_wider(self.subject_frame)
        adjustment = self.subject_frame.get_vadjustment()
        for name in ("changed", "value-changed"):
            adjustment.connect(name, self._due.soon)
        on_key(self, self._on_key)
        self.connect("map", weakly(self._on_map))
        self.connect("unmap", weakly(self._on_unmap))
        self._show_whether_it_can_be_allowed()

    def take_focus(self) -> None:
        self._by_answer[Answer.DENY].grab_focus()
        window = self.get_root()
        if isinstance(window, Gtk.Window):
            # Show what the Enter key would press.
            window.set_focus_visible(True)

    def wait_a_moment(self) -> None:
        """Ignore clicks on "Allow" for a moment: the card may have moved under the pointer.

        Disabling the buttons instead would move the keyboard focus.
        """
        self._rests_at = GLib.get_monotonic_time() + 1000 * _PAUSE

    @property
    def is_at_rest(self) -> bool:
        """Whether the buttons have been in place long enough for the user to see them."""
        self._note_place()
        return GLib.get_monotonic_time() >= self._rests_at

    def button_for(self, answer: Answer) -> Gtk.Button:
        return self._by_answer[answer]

    # --- what it shows ---------------------------------------------------------------------------

    def _fill(self) -> None:
        request = self.request
        self.question.set_label(question_text(request))
        # A screen reader says it when the focus comes to a button of the card.
        self.update_property([Gtk.AccessibleProperty.LABEL], [spoken_question(request)])
        show_text(self.notice, visible_words(request.notice))
        set_plain(self.subject, visible(request.subject))
        if request.network or not request.sandboxed:
            self.icon.set_from_icon_name("dialog-warning-symbolic")
            self.icon.add_css_class("warning")
        # That the user is asked every time is shown above the buttons.
        facts = [fact for fact in request.facts if fact != every_time()]
        for row, fact in enumerate(facts):
            self._add_fact(row, *fact_text(fact), is_emphasized=fact.is_emphasized)
        self.facts.set_visible(bool(facts))
        without_hyphens(self.question, self.notice)
        self.lasting.set_label(duration_text(request))
        self.buttons.add_group([self._button(Answer.DENY)])
        allow = self._button(Answer.ALLOW_PROJECT if request.for_project else Answer.ALLOW)
        allow.set_hexpand(True)
        both = hbox(allow)
        both.add_css_class("linked")
        if more := [answer for answer in _LASTING if answer in request.answers]:
            self._more = self._menu(more)
            both.append(self._more)
        self.buttons.add_group([both])

    def _add_fact(self, row: int, label: str, value: str, *, is_emphasized: bool) -> None:
        name = Gtk.Label(label=label, xalign=0, yalign=0, css_classes=["dim-label"])
        shown = wrapped(value, *(["heading"] if is_emphasized else []), hexpand=True)
        without_hyphens(name)
        self.facts.attach(name, 0, row, 1, 1)
        self.facts.attach(shown, 1, row, 1, 1)

    def _menu(self, answers: Sequence[Answer]) -> Gtk.MenuButton:
        box = vbox()
        for answer in answers:
            button = self._button(answer)
            button.add_css_class("flat")
            label = button.get_child()
            assert isinstance(label, Gtk.Label)
            label.set_xalign(0)
            box.append(button)
        popover = Gtk.Popover(child=box, css_classes=["menu-like"])
        words = _("More Answers")
        menu = Gtk.MenuButton(popover=popover, icon_name="pan-down-symbolic", tooltip_text=words)
        set_accessible_name(menu, words)
        return menu

    def _button(self, answer: Answer) -> Gtk.Button:
        button = Gtk.Button(label=button_label(answer, self.request))
        # The others may contain a file name.
        button.set_use_underline(answer not in _LASTING)
        button.connect("clicked", weakly(self._on_clicked), answer)
        self._by_answer[answer] = button
        return button

    # --- whether it was seen ---------------------------------------------------------------------

    @property
    def _can_allow(self) -> bool:
        return self._saw_start and self._saw_end and self._had_time

    def _look_now(self) -> None:
        self._look()
        # And again: the position after scrolling is only known after the next layout.
        self._keep_looking(_LOOK)

    def _look(self, *_args: object) -> None:
        adjustment = self.subject_frame.get_vadjustment()
        page = adjustment.get_page_size()
        # Nothing is visible before the first layout.
        if not self._is_answered and self.get_mapped() and page > 1:
            most = self.subject_frame.get_max_content_height()
            if page < min(adjustment.get_upper(), most) - 1:
                # A label finds its line breaks during layout, when GTK may ignore a request for
                # more height.
                self.subject.queue_resize()
            top, bottom = edges_in_sight(self.subject_frame)
            if top and adjustment.get_value() <= 1:
                self._saw_start = True
            # A user who scrolls to the end has passed everything before it.
            if self._is_end_in_sight() and bottom:
                self._saw_end = True
        self._show_whether_it_can_be_allowed()

    def _is_end_in_sight(self) -> bool:
        """Return whether the last line is measured and in view.

        A text view measures its lines little by little and seems to be at its end before. A line
        that is not measured has no height. Each line is checked once, a limited number at a time.
        """
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
                self._handlers.connect(around.get_vadjustment(), signal, self._due.soon)
        if isinstance(window, Gtk.Window):
            self._handlers.connect(window, "notify::is-active", self._on_active)
        if (clock := self.get_frame_clock()) is not None:
            # Nothing moves without a frame, and this requests none.
            self._handlers.connect(clock, "after-paint", self._note_place)
        self._place = None
        self._had_time = False
        self._show_whether_it_can_be_allowed()
        self._pausing.restart(_PAUSE)
        self._keep_looking(_LOOK)

    def _on_unmap(self, *_args: object) -> None:
        self._pausing.stop()
        self._looking.stop()
        self._handlers.disconnect()

    def _on_active(self, _window: Gtk.Window, _property: object) -> None:
        """Ignore the click that brings the window to the front."""
        self.wait_a_moment()

    def _note_place(self, *_args: object) -> None:
        """Ignore clicks for a moment after the card has moved."""
        if self._place != (place := place_in_window(self.buttons)):
            self._place = place
            self.wait_a_moment()

    def _on_time(self) -> None:
        self._had_time = True
        self._look()

    def _keep_looking(self, pause: int) -> None:
        """Check again after a pause: no signal tells of a row above that shrinks, or a page over
        the card that goes away."""
        self._looking.stop()
        if self.get_mapped() and not self._is_answered and not self._can_allow:
            self._looking.start(pause)

    def _look_again(self) -> None:
        self._look()
        self._keep_looking(_LOOK if is_in_reach(self) else _LOOK_AWAY)

    # --- answers ---------------------------------------------------------------------------------

    def _answer(self, answer: Answer) -> None:
        if self._is_answered:
            return
        self._is_answered = True
        if self._more is not None:
            # Before the next question comes: while it is open, the window seems inactive.
            self._more.popdown()
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
        # Its mnemonic works even if the card is scrolled out of view or covered. The menu is above
        # the card, and opens only at an arrow in sight.
        is_seen = answer in _LASTING or all(edges_in_sight(button))
        if answer.allows and not (self._can_allow and is_seen):
            if not is_covered(self):
                self.take_focus()
            return
        if answer.allows and not self.is_at_rest:
            return
        self._answer(answer)
