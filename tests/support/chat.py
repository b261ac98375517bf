# SPDX-License-Identifier: GPL-3.0-or-later
"""A scripted conversation for tests of the chat, and the events in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from gi.repository import Gdk, Gtk
from support.screen import Screen, draw_frames, spin_until

from ollmsandbox.chat.conversation import Conversation
from ollmsandbox.chat.events import (
    CallBegan,
    CallEnded,
    ChatEvent,
    CommandOutput,
    CommandStarted,
    ConversationState,
    MessageAdded,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    StateChanged,
)
from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.permission.request import Answer, Fact, PermissionRequest, Source, Verdict
from ollmsandbox.project.change import Change, Kind, Recorded, Report, Type
from ollmsandbox.project.change import State as ChangeState
from ollmsandbox.sandbox.network.publish import CommandPorts
from ollmsandbox.sandbox.output import Capture
from ollmsandbox.sandbox.process import Result, Stop
from ollmsandbox.tools.base import Outcome, Stream, UserQuestion
from ollmsandbox.tools.context import ToolContext
from ollmsandbox.ui.chat.tool_card import ToolCard
from ollmsandbox.ui.permission.card import ChatPermission
from ollmsandbox.ui.sessions.entries import CallEntry
from ollmsandbox.ui.sessions.open_session import OpenSession

PROJECT = "/home/ada/src/parser"


class Talk(Conversation):
    """A conversation without a model: the test sends its events."""

    def __init__(self, tool_context: ToolContext | None) -> None:
        super().__init__(model=None, tool_context=tool_context)
        self._heard: list[Callable[[ChatEvent], None]] = []

    def listen(self, listener: Callable[[ChatEvent], None]) -> Callable[[], None]:
        self._heard.append(listener)
        return lambda: self._heard.remove(listener)

    def tell(self, *events: ChatEvent) -> None:
        for event in events:
            if isinstance(event, StateChanged):
                self.state = event.state
            for listener in tuple(self._heard):
                listener(event)


class Chat:
    """An open session, and methods for what happens in it."""

    def __init__(self, tool_context: ToolContext | None = None) -> None:
        self.talk = Talk(tool_context)
        self.session = OpenSession(self.talk, PROJECT)
        self._calls = 0

    def person(self, text: str) -> None:
        self.talk.tell(MessageAdded(Message(Role.USER, text, at=time.time())))

    def agent(self, text: str, **options: object) -> None:
        message = Message(Role.ASSISTANT, text, model="qwen3:14b", at=time.time())
        self.talk.tell(MessageAdded(replace(message, **options)))  # type: ignore[arg-type]

    def call(
        self, command: str = "make test", tool: str = "run_command", *, own: bool = False
    ) -> CallEntry:
        self._calls += 1
        call = ToolCall(f"call-{self._calls}", tool, {"command": command})
        self.talk.tell(CallBegan(call, command, own))
        entry = self.session.entry_of(call.id)
        assert entry is not None
        return entry

    def ask(self, entry: CallEntry, **options: object) -> PermissionRequest:
        request = asked(entry.description, id=f"ask-{entry.call.id}", call_id=entry.call.id)
        request = replace(request, **options)  # type: ignore[arg-type]
        self.talk.tell(
            StateChanged(ConversationState.ASKING), PermissionAsked(entry.call.id, request)
        )
        return request

    def answer(self, entry: CallEntry, answer: Answer, source: Source = Source.PERSON) -> Verdict:
        assert entry.request is not None
        verdict = Verdict(entry.request, answer, source, time.time())
        self.talk.tell(
            PermissionAnswered(entry.call.id, verdict), StateChanged(ConversationState.RUNNING)
        )
        return verdict

    def start(self, entry: CallEntry, pid: int = 0, ports: CommandPorts | None = None) -> None:
        started = CommandStarted(entry.call.id, pid, None, ports)
        self.talk.tell(StateChanged(ConversationState.RUNNING), started)

    def output(self, entry: CallEntry, data: bytes) -> None:
        self.talk.tell(CommandOutput(entry.call.id, Stream.STDOUT, data))

    def end(self, entry: CallEntry, outcome: Outcome) -> None:
        self.talk.tell(CallEnded(entry.call, outcome))

    def plan(self, *steps: tuple[str, str]) -> CallEntry:
        """Set a to-do list of texts and states."""
        self._calls += 1
        given = [{"text": text, "state": state} for text, state in steps]
        call = ToolCall(f"call-{self._calls}", "plan", {"steps": given})
        self.talk.tell(CallBegan(call, "plan"), CallEnded(call, Outcome("ok", ok=True)))
        entry = self.session.entry_of(call.id)
        assert entry is not None
        return entry

    def question(self, text: str, *choices: str) -> CallEntry:
        """Ask the user what the model wants to know."""
        entry = self.call(text, "ask")
        question = UserQuestion(f"question-{entry.call.id}", text, choices, call_id=entry.call.id)
        self.talk.tell(
            StateChanged(ConversationState.ASKING), QuestionAsked(entry.call.id, question)
        )
        return entry

    def reply(self, entry: CallEntry, text: str | None) -> None:
        self.talk.tell(
            QuestionAnswered(entry.call.id, text),
            CallEnded(entry.call, Outcome(f"The user answered: {text}", ok=True, reply=text)),
        )

    def idle(self) -> None:
        self.talk.tell(StateChanged(ConversationState.IDLE))


def asked(subject: str, **options: object) -> PermissionRequest:
    """Return a request whose answer can be saved, unless the options say otherwise."""
    request = PermissionRequest(
        id="ask",
        tool="run_command",
        project=PROJECT,
        question="Run command?",
        subject=subject,
        target_path=PROJECT,
        one_time_only=False,
        facts=(
            Fact("in", "~/src/parser"),
            Fact("network", "off"),
            Fact("writes", "~/src/parser, playground"),
        ),
        sees=("The system is read-only.", "Secrets are hidden: ~/.ssh, ~/.gnupg."),
        session_id="session",
        call_id="call",
    )
    return replace(request, **options)  # type: ignore[arg-type]


def with_network(subject: str = "pip download requests", **options: object) -> PermissionRequest:
    question = "Run command with network access?"
    return asked(subject, question=question, one_time_only=True, network=True, **options)


def result(code: int = 0, *, seconds: float = 2.1, stop: Stop | None = None) -> Result:
    return Result(code, Capture(), Capture(), seconds, stop)


def report(*paths: str, state: ChangeState = ChangeState.APPLIED) -> Report:
    kinds = (Kind.MODIFIED, Kind.ADDED, Kind.DELETED)
    return Report(
        "run-1",
        tuple(
            Recorded(at, Change(PROJECT, path, kinds[at % 3], Type.FILE), state)
            for at, path in enumerate(paths)
        ),
    )


def done(code: int = 0, text: str = "", *paths: str, **options: object) -> Outcome:
    changed = report(*paths) if paths else None
    end = len(text) if text else None
    outcome = Outcome(text, code == 0, result(code), changed, output_end=end)
    return replace(outcome, **options)  # type: ignore[arg-type]


# --- cards on a screen ---------------------------------------------------------------------------


def shown(screen: Screen, entry: CallEntry, width: int = 600) -> ToolCard:
    """Show a card as high as it wants to be, as in a chat."""
    card = ToolCard(entry, PROJECT)
    view = Gtk.Viewport(child=card, vscroll_policy=Gtk.ScrollablePolicy.NATURAL)
    screen.show(Gtk.ScrolledWindow(child=view), width, 700)
    return card


def printed(card: ToolCard) -> str:
    output = card.output
    assert output is not None
    spin_until(lambda: output.is_up_to_date)
    return output.text


# --- what a user does --------------------------------------------------------------------------


def press_key(
    widget: Gtk.Widget,
    key: int,
    state: Gdk.ModifierType = Gdk.ModifierType(0),  # noqa: B008 - it is a number
    phase: Gtk.PropagationPhase = Gtk.PropagationPhase.BUBBLE,
) -> bool:
    """Send a key to the controllers of that phase; return whether one of them took it."""
    found = [
        one
        for one in widget.observe_controllers()
        if isinstance(one, Gtk.EventControllerKey) and one.get_propagation_phase() is phase
    ]
    assert found, "no controller handles keys there"
    return any(one.emit("key-pressed", key, 0, state) for one in found)


def press_shortcut(widget: Gtk.Widget, key: str) -> bool:
    """Press a shortcut of the widget; return whether it was handled."""
    for controller in widget.observe_controllers():
        for shortcut in controller if isinstance(controller, Gtk.ShortcutController) else ():
            assert isinstance(shortcut, Gtk.Shortcut)
            trigger, action = shortcut.get_trigger(), shortcut.get_action()
            assert trigger is not None and action is not None
            if trigger.to_string() == key:
                return bool(action.activate(Gtk.ShortcutActionFlags(0), widget, None))
    raise AssertionError(f"no {key}")


def allow(card: ChatPermission, answer: Answer = Answer.ALLOW) -> None:
    """Click an answer as soon as it is sensitive and the card stands still."""
    button = card.button_for(answer)
    spin_until(lambda: button.get_sensitive() and card.is_at_rest)
    button.emit("clicked")


def _is_laid_out(widget: Gtk.Widget | None) -> bool:
    """Return whether a text view has measured its lines, which it does when idle."""
    if not isinstance(widget, Gtk.TextView):
        return True
    place = widget.get_buffer().get_start_iter()
    while widget.get_line_yrange(place)[1]:
        if not place.forward_line():
            return True
    return False


def scroll_to_end(scroller: Gtk.ScrolledWindow) -> None:
    """Scroll to the end, even if the content grows meanwhile."""
    adjustment = scroller.get_vadjustment()

    def is_there() -> bool:
        end = adjustment.get_upper() - adjustment.get_page_size()
        there = adjustment.get_value() >= end - 1
        adjustment.set_value(end)
        return there and _is_laid_out(scroller.get_child())

    draw_frames(scroller)
    spin_until(is_there)
    draw_frames(scroller)
