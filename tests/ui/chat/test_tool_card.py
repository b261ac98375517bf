# SPDX-License-Identifier: GPL-3.0-or-later
"""A tool call's card, from its start until long after its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gi.repository import Gtk
from support.chat import PROJECT, Chat, allow, done, printed, report, result, shown
from support.freed import watch_freeing
from support.screen import Screen, all_of, draw_frames, spin_until, texts
from support.window import running_loop, wait_until

from ollmsandbox.chat.calls import stopped_outcome
from ollmsandbox.chat.events import CallBegan, CallQueued, CallSettled, FilesChanged
from ollmsandbox.chat.messages import ToolCall
from ollmsandbox.chat.storage.stored import CallRecord, record_from_json, record_to_json
from ollmsandbox.permission.request import Answer, Source
from ollmsandbox.project.change import Change, Flag, Kind, Recorded, Report, Type
from ollmsandbox.project.change import State as ChangeState
from ollmsandbox.sandbox.monitor import EventKind, FileEvent
from ollmsandbox.sandbox.process import Stop, disk_bytes_below
from ollmsandbox.sandbox.refusals import NETWORK_OFF
from ollmsandbox.tools.base import Outcome
from ollmsandbox.ui.permission import card as permission_card
from ollmsandbox.ui.sessions import tool_text
from ollmsandbox.ui.sessions.entries import CallEntry
from ollmsandbox.ui.sessions.folding import is_quiet

pytestmark = pytest.mark.anybody


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permission_card, "_PAUSE", 0)
    monkeypatch.setattr(permission_card, "_LOOK", 5)


@pytest.fixture
def chat() -> Chat:
    return Chat()


# --- how it stands -------------------------------------------------------------------------------


def test_a_command_that_runs_is_open_and_shows_what_it_prints(screen: Screen, chat: Chat) -> None:
    entry = chat.call("make test")
    card = shown(screen, entry)
    assert card.status.get_label() == "Command · Waiting"
    chat.start(entry)
    chat.output(entry, b"one\r\x1b[31mtwo\x1b[0m\n")
    assert card.is_open
    assert printed(card) == "two"
    assert card.status.get_label().startswith("Command · Running · ")
    assert card.stop_button.get_visible()
    assert card.spinner.get_spinning()


def test_a_call_that_waits_for_its_turn_has_its_card_already(screen: Screen, chat: Chat) -> None:
    call = ToolCall("second", "run_command", {"command": "make test"})
    chat.talk.tell(CallQueued(call, "make test"))
    [entry] = chat.session
    assert isinstance(entry, CallEntry)
    card = shown(screen, entry)
    assert card.status.get_label() == "Command · Waiting"
    chat.talk.tell(CallBegan(call, "make test"))
    chat.start(entry)
    assert list(chat.session) == [entry]
    assert card.status.get_label().startswith("Command · Running · ")


def test_the_duration_of_a_running_command_grows(screen: Screen, chat: Chat) -> None:
    entry = chat.call()
    card = shown(screen, entry)
    chat.start(entry)
    first = card.status.get_label()
    spin_until(lambda: card.status.get_label() != first)
    chat.end(entry, done())
    assert card.status.get_label() == "Command · Succeeded · 2.1 s"


def test_a_success_is_one_quiet_line_that_a_click_opens(screen: Screen, chat: Chat) -> None:
    entry = chat.call("make test")
    card = shown(screen, entry)
    chat.start(entry)
    chat.output(entry, b"all is well\n")
    chat.end(entry, done())
    assert not card.is_open
    assert texts(card) == ["$ make test", "Command · Succeeded · 2.1 s"]
    card.header.emit("clicked")
    assert printed(card) == "all is well"
    card.header.emit("clicked")
    assert not card.is_open


def test_a_failed_call_opens_its_card(screen: Screen, chat: Chat) -> None:
    entry = chat.call("make test")
    card = shown(screen, entry)
    chat.end(entry, done(2, "No rule to make target."))
    assert card.is_open
    assert "Failed with status 2" in card.status.get_label()


@pytest.mark.parametrize("code", [0, 1])
def test_a_card_stays_open_or_closed_when_its_session_is_shown_again(
    screen: Screen, chat: Chat, code: int
) -> None:
    entry = chat.call("make test")
    card = shown(screen, entry)
    chat.start(entry)
    chat.output(entry, b"so it is\n")
    chat.end(entry, done(code))
    for _time in range(2):
        card.header.emit("clicked")
        was_open = card.is_open
        card.forget()
        card = shown(screen, entry)
        assert card.is_open is was_open


def test_a_command_that_printed_nothing_says_so(screen: Screen, chat: Chat) -> None:
    entry = chat.call("true")
    card = shown(screen, entry)
    chat.start(entry)
    chat.end(entry, done())
    card.open()
    assert "No output" in texts(card)
    assert not card.output_tools.get_visible()


def test_a_card_says_what_was_refused_and_what_was_ended(screen: Screen, chat: Chat) -> None:
    entry = chat.call("curl example.org & sleep 60 &")
    card = shown(screen, entry)
    chat.start(entry)
    chat.output(entry, b"curl: (6) Could not resolve host: example.org\n")
    told = result()._replace(left_running=2, refusals=(NETWORK_OFF,))
    chat.end(entry, Outcome("", ok=True, result=told))
    card.open()
    assert card.note.get_visible()
    ended, refused = card.note.get_label().splitlines()
    assert ended.startswith("2 processes ")
    assert refused == NETWORK_OFF


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (done(0), "Succeeded"),
        (done(1), "Failed with status 1"),
        (done(127), "Command not found"),
        (done(139), "Killed by SIGSEGV"),
        (done(137, result=result(137, stop=Stop.TIME)), "Exceeded the time limit"),
        (Outcome("ERROR: no such folder", ok=False), "Failed"),
        (Outcome("text", ok=True), "Done"),
        (stopped_outcome(), "Stopped"),
        (Outcome("", ok=False, result=result(137, stop=Stop.PERSON)), "Stopped"),
    ],
)
def test_the_end_of_a_call_is_described(chat: Chat, outcome: Outcome, words: str) -> None:
    entry = chat.call()
    chat.end(entry, outcome)
    assert tool_text.status(entry) == words


def test_a_stopped_call_is_not_shown_as_failed(screen: Screen, chat: Chat) -> None:
    entry = chat.call("sleep 100")
    card = shown(screen, entry)
    chat.start(entry)
    chat.output(entry, b"so far\n")
    chat.end(entry, Outcome("", ok=False, result=result(137, stop=Stop.PERSON)))
    assert "Stopped" in card.status.get_label()
    assert not card.mark.has_css_class("error")
    assert card.is_open
    assert printed(card) == "so far"


def test_buttons_say_what_is_wanted(screen: Screen, chat: Chat) -> None:
    entry = chat.call()
    card = shown(screen, entry)
    heard: list[object] = []
    card.connect("stop", lambda _card: heard.append("stop"))
    card.connect("undo", lambda _card, run: heard.append(("undo", run)))
    card.connect("show-changes", lambda _card, run: heard.append(("show", run)))
    chat.start(entry)
    card.stop_button.emit("clicked")
    chat.end(entry, done(0, "", "a.c"))
    card.undo_button.emit("clicked")
    card.show_button.emit("clicked")
    assert heard == ["stop", ("undo", "run-1"), ("show", "run-1")]


def test_nothing_in_a_command_acts_or_hides(screen: Screen, chat: Chat) -> None:
    trick = "ls <b>x</b>\nrm -rf ~ \x1b[2K\u202e"
    entry = chat.call(trick)
    card = shown(screen, entry)
    chat.end(entry, done(1, "", "<i>\n.c"))
    assert card.title.get_text() == "$ ls <b>x</b>⟨NEWLINE⟩rm -rf ~ ⟨ESC⟩[2K⟨U+202E⟩"
    assert card.whole.get_text() == "ls <b>x</b>\nrm -rf ~ ⟨ESC⟩[2K⟨U+202E⟩"
    assert card.change_list.get_text() == "~ <i>⟨NEWLINE⟩.c"
    assert not any(label.get_use_markup() for label in all_of(card, Gtk.Label))


def test_nothing_makes_it_wider_than_a_narrow_window(screen: Screen, chat: Chat) -> None:
    entry = chat.call("x" * 400)
    card = shown(screen, entry, 360)
    chat.ask(entry)
    draw_frames(card)
    assert card.get_width() == 360
    chat.answer(entry, Answer.ALLOW)
    chat.start(entry)
    chat.output(entry, b"y" * 4000)
    draw_frames(card)
    assert card.get_width() == 360
    chat.end(entry, done(1, "", "z" * 300))
    draw_frames(card)
    assert card.get_width() == 360


# --- questions -----------------------------------------------------------------------------------


def test_a_question_is_shown_at_its_call_and_its_verdict_stays(screen: Screen, chat: Chat) -> None:
    entry = chat.call("pip download requests")
    card = shown(screen, entry)
    answers: list[tuple[str, Answer]] = []
    card.connect("answered", lambda _card, *answer: answers.append(answer))
    request = chat.ask(entry, one_time_only=True, network=True)
    assert card.question is not None
    assert not card.header_box.get_visible()
    draw_frames(card)
    allow(card.question)
    assert answers == [(request.id, Answer.ALLOW)]
    chat.answer(entry, Answer.ALLOW)
    chat.start(entry)
    chat.end(entry, done())
    assert not card.question.is_open
    assert any(text.startswith("Allowed once") for text in texts(card))


def test_a_second_question_is_a_second_card(screen: Screen, chat: Chat) -> None:
    entry = chat.call("make")
    card = shown(screen, entry)
    chat.ask(entry, id="first", subject="/elsewhere", question="Write there?")
    first = card.question
    chat.answer(entry, Answer.ALLOW)
    chat.ask(entry, id="second", subject="make")
    assert first is not None
    assert card.question is not first
    assert card.question is not None
    assert card.question.request.id == "second"
    assert any(text.startswith("Allowed once") for text in texts(first))
    # An answer to another question changes nothing at this one.
    chat.answer(entry, Answer.DENY)
    assert any(text.startswith("Denied") for text in texts(card.question))
    assert any(text.startswith("Allowed once") for text in texts(first))


def test_a_question_that_takes_the_place_of_another_is_not_answered_with_it(
    screen: Screen, chat: Chat
) -> None:
    entry = chat.call("ls")
    card = shown(screen, entry)
    answers: list[tuple[str, Answer]] = []
    card.connect("answered", lambda _card, *answer: answers.append(answer))
    chat.ask(entry, id="first", subject="ls")
    first = card.question
    assert first is not None
    spin_until(first.button_for(Answer.ALLOW).get_sensitive)
    chat.ask(entry, id="second", subject="rm -rf ~")
    first.button_for(Answer.ALLOW).emit("clicked")
    assert not answers
    assert not first.is_open


def test_a_denied_call_is_calm(screen: Screen, chat: Chat) -> None:
    entry = chat.call("pip download requests")
    card = shown(screen, entry)
    chat.ask(entry, one_time_only=True, network=True)
    verdict = chat.answer(entry, Answer.DENY)
    chat.end(entry, Outcome("ERROR: Denied.", ok=False, verdict=verdict))
    assert not card.is_open
    assert not card.mark.has_css_class("error")
    assert "Did not run" in card.status.get_label()
    assert any(text.startswith("Denied") for text in texts(card))


def test_a_rule_that_answers_folds_the_question(screen: Screen, chat: Chat) -> None:
    entry = chat.call("make install")
    card = shown(screen, entry)
    chat.ask(entry)
    chat.answer(entry, Answer.ALLOW, Source.SAVED)
    assert any(text.startswith("Always allowed") for text in texts(card))


def test_a_call_that_is_stopped_while_it_asks_asks_no_more(screen: Screen, chat: Chat) -> None:
    entry = chat.call("make install")
    card = shown(screen, entry)
    chat.ask(entry)
    chat.end(entry, stopped_outcome())
    assert card.question is not None
    assert not card.question.is_open
    assert card.header_box.get_visible()
    assert "Stopped" in card.status.get_label()
    assert not card.mark.has_css_class("error")
    assert not card.is_open


# --- changes -------------------------------------------------------------------------------------


def test_changed_files_are_counted_while_it_runs(screen: Screen, chat: Chat) -> None:
    entry = chat.call()
    card = shown(screen, entry)
    chat.start(entry)
    chat.talk.tell(FilesChanged(entry.call.id, FileEvent(EventKind.ADDED, f"{PROJECT}/src/a.c", 3)))
    spin_until(lambda: card.changes.get_label() == "3 files changed, last: src/a.c")


def test_changes_can_be_undone_once(screen: Screen, chat: Chat) -> None:
    entry = chat.call()
    card = shown(screen, entry)
    chat.end(entry, done(0, "", "a.c", "b.c", "c.c"))
    assert card.changes.get_label() == "3 files changed"
    assert not card.change_list.get_visible()
    card.open()
    assert card.change_list.get_label() == "- c.c\n~ a.c\n+ b.c"
    entry.note_states(frozenset({ChangeState.UNDONE}))
    assert card.undo_button.get_label() == "Undone"
    assert not card.undo_button.get_sensitive()
    assert card.undo_button.get_visible()


def test_the_list_of_changes_is_short_and_ends_with_risky_files(screen: Screen, chat: Chat) -> None:
    def change(path: str, kind: Kind, type_: Type = Type.FILE, *flags: Flag) -> Recorded:
        return Recorded(0, Change(PROJECT, path, kind, type_, flags=flags), ChangeState.APPLIED)

    gone = [change(f"{number}.c", Kind.DELETED) for number in range(6)]
    folder = change("new", Kind.ADDED, Type.FOLDER)
    inside = [change(f"new/{number}", Kind.ADDED) for number in range(3)]
    git = change(".git/index", Kind.MODIFIED)
    hook = change(".git/hooks/pre-commit", Kind.ADDED, Type.FILE, Flag.LATER, Flag.HELD)
    entry = chat.call()
    card = shown(screen, entry)
    card.open(is_open=False)
    chat.end(entry, done(report=Report("run-1", (hook, git, folder, *inside, *gone))))
    assert not card.change_list.get_visible()
    card.open()
    *lost, summed, heading, risky, left_out = card.change_list.get_label().splitlines()
    assert lost == [f"- {number}.c" for number in range(6)]
    assert summed == "+ new/ (3 files)"
    assert heading == "Worth a second look:"
    assert risky == "+ .git/hooks/pre-commit"
    assert left_out == "and 1 more"


def _ignored(state: ChangeState = ChangeState.APPLIED) -> list[Recorded]:
    change = Change(PROJECT, "a.o", Kind.ADDED, Type.FILE, is_ignored=True)
    return [Recorded(n, change._replace(path=f"{n}.o"), state) for n in range(3)]


def test_files_that_git_ignores_are_one_line_below_the_changes(screen: Screen, chat: Chat) -> None:
    entry = chat.call()
    card = shown(screen, entry)
    chat.end(entry, done(report=Report("run-1", (*report("a.c").changes, *_ignored()))))
    assert card.changes.get_label() == "1 file changed"
    assert card.ignored.get_label() == "3 files that git ignores"
    card.open()
    assert card.change_list.get_label() == "~ a.c"


def test_a_call_that_changed_only_ignored_files_is_quiet(screen: Screen, chat: Chat) -> None:
    entry = chat.call()
    card = shown(screen, entry)
    chat.end(entry, done(report=Report("run-1", tuple(_ignored()))))
    assert card.ignored.get_mapped()
    assert not card.changes_row.get_visible()
    assert is_quiet(entry)
    waits = chat.call()
    chat.end(waits, done(report=Report("run-2", tuple(_ignored(ChangeState.PENDING)))))
    assert tool_text.ignored(waits) == "3 files that git ignores; pending your review"


def test_a_stored_call_still_counts_ignored_files_apart(screen: Screen, chat: Chat) -> None:
    outcome = done(report=Report("run-1", (*report("a.c").changes, *_ignored())))
    record = record_from_json(record_to_json(CallRecord.of(outcome, "make")))
    entry = CallEntry.stored(ToolCall("1", "run_command", {"command": "make"}), "", record)
    card = shown(screen, entry)
    assert card.changes.get_label() == "Changes: 1 modified"
    assert card.ignored.get_label() == "3 files that git ignores"


def test_changes_of_a_stopped_call_are_shown_later(screen: Screen, chat: Chat) -> None:
    entry = chat.call()
    card = shown(screen, entry)
    chat.start(entry)
    chat.end(entry, stopped_outcome())
    chat.talk.tell(CallSettled(entry.call.id, report("a.c", state=ChangeState.PENDING)))
    assert card.changes.get_label() == "1 file changed; pending your review"
    assert not card.undo_button.get_visible()
    assert card.show_button.get_visible()


# --- beside it -----------------------------------------------------------------------------------


def test_usage_of_a_running_command_is_drawn(screen: Screen, chat: Chat) -> None:
    with running_loop():
        entry = chat.call()
        card = shown(screen, entry)
        chat.start(entry, os.getpid())
        watch = card.usage
        assert watch is not None
        wait_until(lambda: len(watch.graph.memory.values) >= 2)
        chat.end(entry, done())
        assert watch.graph.get_parent() is not None
        wait_until(lambda: watch.is_over)


def test_bytes_written_to_disk_are_counted(tmp_path: Path) -> None:
    before = disk_bytes_below(os.getpid())
    file = tmp_path / "file"
    with file.open("wb") as written:
        written.write(b"x" * 1_000_000)
        os.fsync(written.fileno())
    assert disk_bytes_below(os.getpid()) >= before
    assert disk_bytes_below(2**22 + 1) == 0


def test_a_removed_card_is_freed_while_the_call_runs(screen: Screen, chat: Chat) -> None:
    entry = chat.call()
    card = shown(screen, entry)
    window = card.get_root()
    chat.ask(entry)
    chat.answer(entry, Answer.ALLOW)
    chat.start(entry)
    chat.output(entry, b"x")
    is_freed = watch_freeing(card)
    card.forget()
    assert isinstance(window, Gtk.Window)
    window.destroy()
    del card, window
    spin_until(is_freed)
    chat.output(entry, b"more")
    assert entry.kept_output() == b"xmore"
