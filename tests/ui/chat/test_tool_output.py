# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from support.chat import PROJECT, Chat, done, printed, shown
from support.screen import Screen, spin_until

from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.chat.storage.stored import CallRecord, SessionInfo, StoredMessage, StoredSession
from ollmsandbox.paths import Paths
from ollmsandbox.permission.provider import NobodyAsks, Provider
from ollmsandbox.permission.store import RuleStore
from ollmsandbox.project.change import Kind
from ollmsandbox.sandbox.process import Stop
from ollmsandbox.tools.context import ToolContext
from ollmsandbox.ui.sessions.entries import CallEntry, entries_of
from ollmsandbox.ui.terminal.output import OutputFiles, remove_old


def test_all_of_much_output_is_kept_on_disk(screen: Screen, chat: Chat, tmp_path: Path) -> None:
    files = OutputFiles(Paths.from_environ({"HOME": str(tmp_path)}))
    entry = chat.call()
    entry.new_store = files.new
    card = shown(screen, entry)
    opened: list[CallEntry] = []
    card.connect("open-output", lambda _card, which: opened.append(which))
    chat.start(entry)
    whole = b"".join(b"line %d\n" % number for number in range(20_000))
    for start in range(0, len(whole), 3000):
        chat.output(entry, whole[start : start + 3000])
    chat.end(entry, done(1))
    assert card.output is not None
    spin_until(lambda: card.output is not None and card.output.earlier.get_visible())
    card.output.open_all.emit("clicked")
    assert opened == [entry]
    assert entry.output_file is not None
    assert entry.output_file.read_bytes() == whole
    assert entry.output_file.stat().st_mode & 0o077 == 0
    files.remove()
    assert not entry.output_file.exists()


def test_the_end_of_very_much_output_is_kept_in_memory(chat: Chat) -> None:
    entry = chat.call()
    chat.start(entry)
    for letter in b"letter by letter ":
        chat.output(entry, bytes([letter]))
    assert entry.kept_output() == b"letter by letter "
    for number in range(120):
        chat.output(entry, b"%06d\n" % number * 10_000)
    kept = entry.kept_output()
    assert len(kept) <= 4 << 20
    assert kept.endswith(b"000119\n")
    assert entry.printed == 17 + 120 * 70_000


def test_closing_a_session_removes_what_its_commands_printed(tmp_path: Path) -> None:
    paths = Paths.from_environ({"HOME": str(tmp_path)})
    provider = Provider(NobodyAsks(), RuleStore(paths), None)
    chat = Chat(ToolContext(None, paths, {}, provider))
    entry = chat.call("../../odd/name")
    chat.start(entry)
    chat.output(entry, b"x" * 5000)
    assert entry.output_file is not None
    assert entry.output_file.parent.parent == paths.cache / "output"
    asyncio.run(chat.session.close())
    assert not entry.output_file.parent.exists()


def test_little_output_makes_no_file(chat: Chat, tmp_path: Path) -> None:
    paths = Paths.from_environ({"HOME": str(tmp_path)})
    entry = chat.call()
    entry.new_store = OutputFiles(paths).new
    chat.start(entry)
    chat.output(entry, b"x" * 4000)
    chat.end(entry, done())
    assert entry.output_file is None
    assert not paths.cache.exists()


def test_files_of_a_program_that_was_killed_go_after_a_day(tmp_path: Path) -> None:
    paths = Paths.from_environ({"HOME": str(tmp_path)})
    old, new = (OutputFiles(paths).new() for _ in range(2))
    # A session that is open stays, however quiet it is.
    files = OutputFiles(paths)
    quiet = files.new()
    for store in (old, new, quiet):
        store.close()
    for store in (old, quiet):
        _age(store.path.parent)
    remove_old(old.path.parent.parent)
    assert not old.path.parent.exists()
    assert new.path.exists() and quiet.path.exists()
    files.remove()
    assert not quiet.path.parent.exists()


def _age(folder: Path) -> None:
    """Make the files look as if they were written yesterday."""
    long_ago = time.time() - 25 * 3600
    for path in (*folder.iterdir(), folder):
        os.utime(path, (long_ago, long_ago))


def test_a_stored_call_shows_what_it_printed(screen: Screen) -> None:
    call = ToolCall("c", "run_command", {"command": "make"})
    record = CallRecord(
        ok=True,
        description="make",
        run_id="run-1",
        exit_code=2,
        duration=61.0,
        changes={Kind.DELETED: 1, Kind.ADDED: 2},
        output_end=len("said"),
    )
    told = "said\nChanges: 7 replaced."
    introduction = "I ran this command myself:\n$ ls\n"
    session = StoredSession(
        SessionInfo("s", "t", PROJECT, "m", "c", 0, 0),
        (
            StoredMessage(1, Message(Role.ASSISTANT, "", calls=(call,))),
            StoredMessage(2, Message(Role.TOOL, told, call_id="c"), record),
            StoredMessage(
                3,
                Message(Role.USER, f"{introduction}a\nb"),
                CallRecord(
                    ok=True,
                    description="ls",
                    exit_code=0,
                    own=True,
                    output_start=len(introduction),
                ),
            ),
        ),
    )
    made, own = entries_of(session)
    assert isinstance(made, CallEntry)
    card = shown(screen, made)
    assert card.status.get_label() == "Failed with status 2 · 1 min 1 s"
    assert printed(card) == "said"
    assert isinstance(own, CallEntry)
    card = shown(screen, own)
    assert card.status.get_label() == "Your command"
    assert printed(card) == "a\nb"


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        (Stop.PERSON, "Stopped"),
        (Stop.TIME, "Exceeded the time limit"),
        (None, "Failed"),
    ],
)
def test_a_stored_call_says_why_it_stopped(screen: Screen, stop: Stop | None, status: str) -> None:
    record = CallRecord(ok=False, description="make", stop=stop)
    call = ToolCall("c", "run_command", {"command": "make"})
    # The text for the model does not matter.
    entry = CallEntry.stored(call, "Stopped by the user.", record)
    assert shown(screen, entry).status.get_label() == status


def test_all_of_a_stored_call_is_opened_as_a_file(tmp_path: Path) -> None:
    paths = Paths.from_environ({"HOME": str(tmp_path)})
    chat = Chat(ToolContext(None, paths, {}, Provider(NobodyAsks(), RuleStore(paths), None)))
    call = ToolCall("c", "run_command", {"command": "seq"})
    entry = CallEntry.stored(call, "\x1b[31mred\x1b[0m\rover\n" * 6000, None)
    chat.session.show_stored([entry])
    file = entry.readable_file()
    assert file is not None
    lines = file.read_text().splitlines()
    assert len(lines) == 12_000
    assert "\x1b" not in lines[0]
    asyncio.run(chat.session.close())
    assert not file.exists()
