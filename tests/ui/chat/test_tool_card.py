# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gi.repository import Gtk
from support.chat import PROJECT, Chat, allow, done, printed, report, result, shown
from support.screen import Screen, all_of, draw_frames, spin_until, texts, watch_freeing
from support.window import running_loop, wait_until

from ollmsandbox.chat.calls import stopped_outcome
from ollmsandbox.chat.events import CallBegan, CallQueued, CallSettled, FilesChanged
from ollmsandbox.chat.messages import ToolCall
from ollmsandbox.permission.request import Answer
from ollmsandbox.project.change import Change, Kind, Recorded, Report, Type
from ollmsandbox.project.change import State as ChangeState
from ollmsandbox.sandbox.monitor import EventKind, FileEvent
from ollmsandbox.sandbox.process import Stop, disk_bytes_below, read_status
from ollmsandbox.sandbox.refusals import NETWORK_OFF
from ollmsandbox.tools.base import Outcome
from ollmsandbox.ui.chat import tool_card
from ollmsandbox.ui.permission.card import ChatPermission
from ollmsandbox.ui.sessions import tool_text
from ollmsandbox.ui.sessions.entries import CallEntry
from ollmsandbox.ui.sessions.folding import is_quiet
from ollmsandbox.ui.terminal.graph import UsageGraph
from ollmsandbox.ui.widgets.labels import with_code

pytestmark = pytest.mark.usefixtures("quick")

# --- how it stands -------------------------------------------------------------------------------


def test_a_command_that_runs_is_open_and_shows_what_it_prints(screen: Screen, chat: Chat) -> None:
    call = ToolCall("second", "run_command", {"command": "make test"})
    # It has its card already while it waits for its turn.
    chat.talk.tell(CallQueued(call, "make test"))
    [entry] = chat.session
    assert isinstance(entry, CallEntry)
    card = shown(screen, entry)
    assert card.status.get_label() == "Waiting"
    chat.talk.tell(CallBegan(call, "make test"))
    chat.start(entry)
    assert list(chat.session) == [entry]
    chat.output(entry, b"one\r\x1b[31mtwo\x1b[0m\n")
    assert card.is_open
    assert printed(card) == "two"
    first = card.status.get_label()
    assert first.startswith("Running · ")
    assert card.stop_button.get_visible()
    assert card.spinner.get_spinning()
    spin_until(lambda: card.status.get_label() != first)
    chat.end(entry, done())
    assert card.status.get_label() == "2.1 s"


def test_a_search_is_offered_where_more_was_printed_than_fits(screen: Screen, chat: Chat) -> None:
    for text, is_offered in (("line\n" * 2, False), ("line\n" * 40, True), ("x" * 4000, True)):
        card = shown(screen, entry := chat.call())
        chat.start(entry)
        chat.output(entry, text.encode())
        chat.end(entry, done(1, text))
        card.open()
        assert card.find_button.get_visible() is is_offered
        assert card.copy_button.get_visible()


def test_code_in_a_remark_has_no_backticks() -> None:
    assert with_code("use `ollmsandbox roots add` & <b>") == (
        "use <tt>ollmsandbox roots add</tt> &amp; &lt;b&gt;"
    )
    assert with_code("a ` alone") == "a ` alone"


def test_a_success_is_one_quiet_line_that_a_click_opens(screen: Screen, chat: Chat) -> None:
    entry = chat.call("make test")
    card = shown(screen, entry)
    chat.start(entry)
    chat.output(entry, b"all is well\n")
    chat.end(entry, done())
    assert not card.is_open
    assert texts(card) == ["$ make test", "2.1 s"]
    card.header.emit("clicked")
    assert printed(card) == "all is well"
    card.header.emit("clicked")
    assert not card.is_open


@pytest.mark.parametrize("code", [0, 1])
def test_a_card_stays_open_or_closed_when_shown_again(
    screen: Screen, chat: Chat, code: int
) -> None:
    entry = chat.call("make test")
    card = shown(screen, entry)
    chat.start(entry)
    chat.output(entry, b"so it is\n")
    chat.end(entry, done(code))
    assert card.is_open is bool(code)
    for _time in range(2):
        card.header.emit("clicked")
        was_open = card.is_open
        card = shown(screen, entry)
        assert card.is_open is was_open


def test_a_command_that_printed_nothing_does_not_open_to_say_so(screen: Screen, chat: Chat) -> None:
    entry = chat.call("false")
    card = shown(screen, entry)
    chat.start(entry)
    chat.end(entry, done(1, output_end=0))
    assert not card.is_open
    assert texts(card) == ["$ false", "Failed with status 1 · 2.1 s"]
    assert not card.output_tools.get_visible()
    card.open()
    assert "No output" in texts(card)


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


def test_nothing_in_a_command_acts_or_hides(screen: Screen, chat: Chat) -> None:
    trick = "ls <b>x</b>\nrm -rf ~ \x1b[2K\u202e"
    entry = chat.call(trick)
    card = shown(screen, entry)
    chat.end(entry, done(1, "", "<i>\n.c"))
    assert card.title.get_text() == "$ ls <b>x</b>⟨NEWLINE⟩rm -rf ~ ⟨ESC⟩[2K⟨U+202E⟩"
    assert card.whole.get_text() == "ls <b>x</b>\nrm -rf ~ ⟨ESC⟩[2K⟨U+202E⟩"
    assert not any(label.get_use_markup() for label in all_of(card, Gtk.Label))


# --- questions -----------------------------------------------------------------------------------


def test_a_question_is_shown_at_its_call_until_it_is_answered(screen: Screen, chat: Chat) -> None:
    entry = chat.call("pip download requests")
    card = shown(screen, entry)
    answers: list[tuple[str, Answer]] = []
    card.connect("answer", lambda _card, *answer: answers.append(answer))
    request = chat.ask(entry, one_time_only=True, network=True)
    [question] = all_of(card, ChatPermission)
    assert not card.header_box.get_visible()
    draw_frames(card)
    allow(question)
    assert answers == [(request.id, Answer.ALLOW)]
    chat.answer(entry, Answer.ALLOW)
    chat.start(entry)
    assert card.question is None
    chat.end(entry, done())
    assert texts(card) == ["$ pip download requests", "2.1 s"]


def test_a_question_in_the_place_of_another_is_not_answered_with_it(
    screen: Screen, chat: Chat
) -> None:
    entry = chat.call("ls")
    card = shown(screen, entry)
    answers: list[tuple[str, Answer]] = []
    card.connect("answer", lambda _card, *answer: answers.append(answer))
    chat.ask(entry, id="first", subject="ls")
    first = card.question
    assert first is not None
    spin_until(first.button_for(Answer.ALLOW).get_sensitive)
    chat.ask(entry, id="second", subject="rm -rf ~")
    first.button_for(Answer.ALLOW).emit("clicked")
    assert not answers
    assert card.question is not first


def test_a_denied_call_is_calm(screen: Screen, chat: Chat) -> None:
    entry = chat.call("pip download requests")
    card = shown(screen, entry)
    chat.ask(entry, one_time_only=True, network=True)
    verdict = chat.answer(entry, Answer.DENY)
    chat.end(entry, Outcome("ERROR: Denied.", ok=False, verdict=verdict))
    assert not card.is_open
    assert not card.mark.has_css_class("error")
    assert card.status.get_label() == "Denied, did not run"


def test_a_call_that_is_stopped_while_it_asks_asks_no_more(screen: Screen, chat: Chat) -> None:
    entry = chat.call("make install")
    card = shown(screen, entry)
    chat.ask(entry)
    chat.end(entry, stopped_outcome())
    assert card.question is None
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


def test_files_that_git_ignores_are_one_quiet_line(screen: Screen, chat: Chat) -> None:
    change = Change(PROJECT, "a.o", Kind.ADDED, Type.FILE, is_ignored=True)
    ignored = [Recorded(n, change._replace(path=f"{n}.o"), ChangeState.APPLIED) for n in range(3)]
    entry = chat.call()
    card = shown(screen, entry)
    chat.end(entry, done(report=Report("run-1", (*report("a.c").changes, *ignored))))
    assert texts(card)[2:] == ["3 files that git ignores"]
    alone = chat.call()
    card = shown(screen, alone)
    chat.end(alone, done(report=Report("run-1", tuple(ignored))))
    assert card.ignored.get_mapped()
    assert not card.show_button.get_visible()
    assert is_quiet(alone) and not is_quiet(entry)


def test_changes_of_a_stopped_call_are_shown_later(screen: Screen, chat: Chat) -> None:
    entry = chat.call()
    card = shown(screen, entry)
    chat.start(entry)
    chat.end(entry, stopped_outcome())
    chat.talk.tell(CallSettled(entry.call.id, report("a.c", state=ChangeState.PENDING)))
    assert card.show_button.get_visible()


# --- beside it -----------------------------------------------------------------------------------


def test_usage_of_a_command_that_runs_for_long_is_drawn(
    screen: Screen, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_loop():
        entry = chat.call()
        card = shown(screen, entry)
        chat.start(entry, os.getpid())
        first = card.status.get_label()
        spin_until(lambda: card.status.get_label() != first)
        assert not all_of(card, UsageGraph)
        monkeypatch.setattr(tool_card, "GRAPH_AFTER", 0.0)
        wait_until(lambda: card.usage is not None)
        watch = card.usage
        assert watch is not None
        wait_until(lambda: len(watch.graph.memory.values) >= 2)
        chat.end(entry, done())
        assert not watch.graph.get_visible()
        wait_until(lambda: watch.is_over)


def test_bytes_written_to_disk_are_counted(tmp_path: Path) -> None:
    writes = "open('file', 'wb').write(bytes(1_000_000)); print('done', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", writes], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        # The process that starts a command writes before that.
        assert disk_bytes_below(child.pid) == 0
        [wrote] = read_status(child.pid, "write_bytes", file="io")["write_bytes"]
        assert disk_bytes_below(os.getpid()) >= wrote
        child.communicate(b"\n")


def test_a_removed_card_is_freed_while_the_call_runs(screen: Screen, chat: Chat) -> None:
    entry = chat.call()
    card = shown(screen, entry)
    window = card.get_root()
    chat.ask(entry)
    chat.answer(entry, Answer.ALLOW)
    chat.start(entry)
    chat.output(entry, b"x")
    is_freed = watch_freeing(card)
    assert isinstance(window, Gtk.Window)
    window.destroy()
    del card, window
    spin_until(is_freed)
    chat.output(entry, b"more")
    assert entry.kept_output() == b"xmore"
