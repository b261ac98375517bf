# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions in the database: searching, renaming, deleting, restoring, exporting."""

from __future__ import annotations

import base64
import json
import multiprocessing
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.person import Person
from support.timing import PATIENCE

from ollmsandbox.chat.messages import Message, Role, ServerFields, ToolCall
from ollmsandbox.chat.storage.export import as_json, as_markdown
from ollmsandbox.chat.storage.history import FoundLine, History, new_session_id, title_from
from ollmsandbox.chat.storage.stored import (
    INTERRUPTED,
    CallRecord,
    SessionInfo,
    Spent,
    StoredMessage,
    record_from_json,
    with_extra,
)
from ollmsandbox.database.tables import ChatPicture
from ollmsandbox.engine.session_lock import SessionLock
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.permission.request import Answer, PermissionRequest, Source, Verdict
from ollmsandbox.project.change import Kind
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.sandbox.process import Stop
from ollmsandbox.tools.base import Picture

pytestmark = pytest.mark.anybody

LARGE = Picture("image/png", bytes(2000))
SHOT = Picture("image/png", b"pixels", "a_b.png")


@pytest.fixture
def history(person: Person) -> Iterator[History]:
    manager = ProjectManager(person.paths)
    yield History(manager)
    manager.close()


def begin(
    history: History, title: str = "A talk", project: Path | None = None, at: float = 1.0
) -> str:
    session_id = new_session_id()
    history.create(SessionInfo(session_id, title, str(project or ""), "model", "server", at, at))
    return session_id


def write(history: History, session_id: str, *messages: Message) -> None:
    for number, message in enumerate(messages):
        history.write(session_id, StoredMessage(number, message))


def test_stored_messages_are_loaded_unchanged(history: History, person: Person) -> None:
    session_id = begin(history, project=person.project)
    calls = (ToolCall("1", "run_command", {"command": "ls", "n": [1]}), ToolCall("2", "x", "{bad"))
    record = CallRecord(
        ok=False,
        description="ls",
        run_id="r",
        exit_code=2,
        duration=0.5,
        answer=Answer.ALLOW_SESSION,
        source=Source.PERSON,
        stop=Stop.TIME,
        changes={Kind.DELETED: 1, Kind.ADDED: 2000},
    )
    denied = CallRecord(ok=False, answer=Answer.DENY, source=Source.PERSON)
    own = CallRecord(ok=True, description="ls", own=True, output_start=3)
    entries = (
        StoredMessage(0, Message(Role.USER, "Hello\n\U0001f600", at=1.0)),
        StoredMessage(
            1, Message(Role.ASSISTANT, "Hm", thinking="deep", calls=calls, model="m", at=2.0)
        ),
        StoredMessage(2, Message(Role.TOOL, "output", call_id="1", at=3.0), record),
        StoredMessage(3, Message(Role.TOOL, "error", call_id="2", at=3.0, was_denied=True), denied),
        StoredMessage(4, Message(Role.USER, "I: output", at=3.5), own),
        StoredMessage(5, Message(Role.ASSISTANT, "Half a", partial=True, at=4.0)),
    )
    for entry in entries:
        history.write(session_id, entry)
    stored = history.load(session_id)
    assert stored.entries == entries
    assert stored.info.project == str(person.project)
    assert stored.info.updated_at == 4.0


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ('{"ok": true, "exit_code": 0, "own": true}', CallRecord(ok=True, exit_code=0, own=True)),
        ('{"ok": true, "stop": "unheard of"}', CallRecord(ok=True)),
        ('{"ok": true, "changes": {"added": "many"}}', None),
        ('{"ok": true, "changes": 3}', None),
    ],
    ids=["written by an earlier version", "unknown stop", "no count", "no counts"],
)
def test_a_record_of_another_version(text: str, record: CallRecord | None) -> None:
    assert record_from_json(text) == record


def test_what_belongs_to_a_server_and_summaries_are_kept(history: History) -> None:
    session_id = begin(history)
    fields = ServerFields("0123", "reasoning_content", {"reasoning_details": [{"data": "x"}]})
    signed = {"extra_content": {"google": {"thought_signature": "abc"}}}
    messages = [
        Message(Role.USER, "Hello", at=1.0),
        Message(
            Role.ASSISTANT,
            "",
            thinking="Hm.",
            calls=(ToolCall("1", "run_command", {}, signed),),
            fields=fields,
            at=2.0,
        ),
        Message(Role.TOOL, "done", call_id="1", at=3.0),
        Message(Role.SUMMARY, "Task: greet.", keeps=2, at=4.0),
    ]
    write(history, session_id, *messages)
    assert history.load(session_id).messages == messages


@pytest.mark.parametrize("text", ["", "[]", "{", '{"fields": {}, "keeps": "x"}', '{"fields": 7}'])
def test_fields_of_another_version_are_left_out(text: str) -> None:
    message = Message(Role.ASSISTANT, "Hello")
    assert with_extra(message, text) == message


def test_a_message_that_grows_takes_its_own_place(history: History) -> None:
    session_id = begin(history)
    for text in ("Ha", "Half", "Half a"):
        history.write(
            session_id, StoredMessage(0, Message(Role.ASSISTANT, text, partial=True, at=1.0))
        )
    history.write(session_id, StoredMessage(0, Message(Role.ASSISTANT, "Half a day.", at=2.0)))
    assert [m.text for m in history.load(session_id).messages] == ["Half a day."]
    history.remove(session_id, 0)
    assert not history.load(session_id).entries


def test_a_call_that_was_never_answered_has_an_answer_when_it_is_loaded(history: History) -> None:
    session_id = begin(history)
    calls = (ToolCall("a", "t", {}), ToolCall("b", "t", {}))
    write(
        history,
        session_id,
        Message(Role.USER, "go", at=1.0),
        Message(Role.ASSISTANT, "", calls=calls, at=1.0),
        Message(Role.TOOL, "done", call_id="b", at=1.0),
        Message(Role.TOOL, "of nobody", call_id="z", at=1.0),
        Message(Role.USER, "and?", at=1.0),
    )
    found = history.load(session_id).messages
    assert [(m.role, m.call_id) for m in found[2:]] == [
        (Role.TOOL, "b"),
        (Role.TOOL, "a"),
        (Role.USER, ""),
    ]
    assert found[3].text == INTERRUPTED


def test_sessions_are_listed_with_the_last_one_first(history: History, person: Person) -> None:
    old = begin(history, "old", at=1.0)
    new = begin(history, "new", person.project, at=2.0)
    assert [info.id for info in history.sessions()] == [new, old]
    assert [info.id for info in history.sessions(str(person.project))] == [new]
    assert [info.id for info in history.sessions(limit=1)] == [new]
    history.write(old, StoredMessage(0, Message(Role.USER, "again", at=3.0)))
    assert [info.id for info in history.sessions()] == [old, new]


@pytest.mark.parametrize(
    ("search", "is_found"),
    [
        ("parser", True),
        ("PARSER", True),
        ("fix parser", True),
        ("needle", True),
        ("parser needle", True),
        ("100%", True),
        ("1__%", False),
        ("straße", True),
        ("STRASSE", False),
        ("ÄPFEL", True),
        ("parser absent", False),
        ("%", True),
        ("_", False),
        ("", True),
    ],
)
def test_a_search_in_titles_and_texts(history: History, search: str, is_found: bool) -> None:
    session_id = begin(history, "Fix the parser")
    text = "a needle in 100% of the Straße, äpfel"
    write(history, session_id, Message(Role.USER, text, at=1.0))
    assert bool(history.sessions(search=search)) is is_found


def test_sessions_are_found_by_their_commands(history: History) -> None:
    session_id = begin(history)
    record = CallRecord(ok=True, description='pytest "-k" tests/größe.py')
    history.write(session_id, StoredMessage(0, Message(Role.TOOL, "say", call_id="1"), record))
    begin(history)
    for word in ("pytest", "TESTS/größe.py", '"-k"', "pytest say"):
        assert [info.id for info in history.sessions(search=word)] == [session_id], word
    # But not by the names of stored fields.
    for word in ("description", "run_id", "exit_code", "ok"):
        assert history.sessions(search=word) == [], word


def test_a_search_returns_the_line_it_found(history: History) -> None:
    said, ran, titled = begin(history), begin(history), begin(history, "A needle")
    text = "nothing here\nand a long beginning before the Needle in the hay\nneedle"
    write(history, said, Message(Role.USER, text, at=1.5))
    record = CallRecord(ok=True, description="grep needle hay")
    history.write(ran, StoredMessage(0, Message(Role.TOOL, "1", call_id="c", at=2.5), record))
    found = history.found_lines("needle hay")
    assert found == {
        said: FoundLine("…ning before the Needle in the hay", 1.5, "", "needle"),
        ran: FoundLine("grep needle hay", 2.5, "c", "needle"),
    }
    assert titled not in history.found_lines("needle")
    assert history.found_lines("") == {}


def test_the_tokens_of_a_session_add_up(history: History) -> None:
    session_id, other = begin(history), begin(history)
    assert history.find(session_id).spent == Spent()
    history.add_spent(session_id, Spent(100, 20))
    history.add_spent(session_id, Spent(1000, 5, 0.25))
    history.add_spent(session_id, Spent(1, 1, 0.5))
    history.add_spent("unknown", Spent(1, 1))
    spent = Spent(1101, 26, 0.75)
    assert spent.tokens == 1127
    assert history.load(session_id).info.spent == spent
    listed = {info.id: info.spent for info in history.sessions()}
    assert listed == {session_id: spent, other: Spent()}
    assert "1,127 tokens, cost 0.7500" in as_markdown(history, session_id)
    exported = json.loads(as_json(history, session_id))
    assert exported["tokens"] == {"prompt": 1101, "reply": 26}
    assert exported["cost"] == 0.75
    history.delete(session_id)
    history.undelete(session_id)
    assert history.find(session_id).spent == spent


def test_a_session_is_found_by_the_beginning_of_its_id(history: History) -> None:
    first = begin(history)
    assert history.find(first[:-1]).id == first
    second = begin(history)
    with pytest.raises(OllmSandboxError, match="Several"):
        history.find(first[:8] if first[:8] == second[:8] else "2")
    assert history.find(second).id == second
    for wrong in ("", "nothing"):
        with pytest.raises(OllmSandboxError, match="no session"):
            history.find(wrong)


def test_a_session_is_renamed(history: History) -> None:
    session_id = begin(history)
    history.rename(session_id, "  A new\tname \n and more")
    assert history.load(session_id).info.title == "A new name"
    with pytest.raises(OllmSandboxError):
        history.rename(session_id, " \n ")


def test_a_deleted_session_can_be_brought_back(history: History) -> None:
    session_id = begin(history)
    messages = [Message(Role.USER, str(number), at=1.0) for number in range(5)]
    write(history, session_id, *messages)
    history.keep_draft(session_id, "unsent")
    history.delete(session_id)
    assert not history.sessions()
    with pytest.raises(OllmSandboxError):
        history.load(session_id)
    # What is still on its way goes nowhere.
    history.write(session_id, StoredMessage(9, Message(Role.USER, "late", at=9.0)))
    history.undelete(session_id)
    assert history.load(session_id).messages == messages
    assert history.load(session_id).draft == "unsent"
    with pytest.raises(OllmSandboxError):
        history.undelete(session_id)


def test_pictures_are_kept_with_their_messages(history: History) -> None:
    session_id, other = begin(history), begin(history)
    one, two = (Picture("image/png", bytes([number, 0, 255])) for number in range(2))
    call = ToolCall("1", "read_file", {"path": "a.png"})
    messages = [
        Message(Role.USER, "Look", at=1.0, pictures=(one, two)),
        Message(Role.ASSISTANT, "", calls=(call,), at=2.0),
        Message(Role.TOOL, "a picture", call_id="1", at=3.0, pictures=(two,)),
    ]
    write(history, session_id, *messages)
    write(history, other, Message(Role.USER, "Mine", at=1.0, pictures=(one,)))
    assert history.load(session_id).messages == messages
    # A message that is written again replaces its pictures.
    history.write(session_id, StoredMessage(2, messages[2]))
    assert history.load(session_id).messages == messages
    history.delete(session_id)
    assert ChatPicture.select().count() == 1
    history.undelete(session_id)
    assert history.load(session_id).messages == messages
    history.remove(session_id, 2)
    assert ChatPicture.select().count() == 3
    history.remove_from(session_id, 1.0)
    assert ChatPicture.select().count() == 1


def test_the_newest_pictures_are_kept(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ollmsandbox.chat.storage.history._MOST_OF_PICTURES", 1000)
    session_id, other = begin(history), begin(history)
    pictures = [Picture("image/png", bytes([number]) * 400) for number in range(4)]
    write(history, other, Message(Role.USER, "Mine", pictures=(pictures[0],)))
    write(history, session_id, *(Message(Role.USER, "Look", pictures=(p,)) for p in pictures))
    kept = [message.pictures for message in history.load(session_id).messages]
    assert kept == [(), (), (pictures[2],), (pictures[3],)]
    history.write(session_id, StoredMessage(9, Message(Role.USER, "", pictures=(LARGE,))))
    assert not any(message.pictures for message in history.load(session_id).messages)
    assert history.load(other).messages[0].pictures == (pictures[0],)


def test_a_session_of_a_removed_project_is_still_of_that(history: History, person: Person) -> None:
    session_id = begin(history, project=person.project)
    project = history.manager.find_project(person.project)
    assert project is not None
    history.manager.list_project(project, is_listed=False)
    assert history.load(session_id).info.project == str(person.project)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Make the tests pass", "Make the tests pass"),
        ("\n\n  first \nsecond", "first"),
        ("x" * 200, "x" * 59 + "…"),
        ("with \x1b[31mcolour\u202e", "with [31mcolour"),
        ("", ""),
    ],
)
def test_the_title_comes_from_the_first_line(text: str, title: str) -> None:
    assert title_from(text) == title


def _request(session_id: str, id: str = "q") -> PermissionRequest:
    return PermissionRequest(
        id=id,
        tool="run_command",
        project="/p",
        question="Run?",
        subject="ls",
        target_path="/p",
        one_time_only=True,
        session_id=session_id,
        call_id="1",
    )


def test_questions_stay_when_their_session_goes(history: History) -> None:
    session_id = begin(history)
    request = _request(session_id)
    history.write_question(request, 5.0)
    assert history.questions(session_id)[0].answer is None
    history.write_answer(Verdict(request, Answer.DENY, Source.NOBODY, 6.0))
    # A rule answers what was never asked.
    ruled = _request(session_id, "r")
    history.write_answer(Verdict(ruled, Answer.ALLOW_ALWAYS, Source.SAVED, 7.0))
    history.delete(session_id)
    found = history.questions(session_id)
    assert [(q.answer, q.source) for q in found] == [("deny", "nobody"), ("allow always", "saved")]
    assert found[0].asked_at == 5.0


def test_a_session_as_markdown_and_as_json(history: History, person: Person) -> None:
    session_id = begin(history, "A *talk*", person.project)
    fence = "output\n```\nnot the end\n```"
    for entry in (
        StoredMessage(0, Message(Role.USER, "Please look", pictures=(SHOT, SHOT), at=1.0)),
        StoredMessage(
            1,
            Message(
                Role.ASSISTANT,
                "I look.",
                thinking="hm",
                calls=(ToolCall("1", "run_command", {"command": "cat x"}),),
                model="m",
                at=2.0,
            ),
        ),
        StoredMessage(
            2,
            Message(Role.TOOL, fence, call_id="1", pictures=(LARGE,), at=3.0),
            CallRecord(ok=True, answer=Answer.ALLOW, source=Source.PERSON),
        ),
        StoredMessage(
            3,
            Message(Role.USER, "I ran this: make\nall", at=3.5),
            CallRecord(ok=True, description="make", own=True),
        ),
        StoredMessage(4, Message(Role.ASSISTANT, "Half", partial=True, at=4.0)),
        StoredMessage(5, Message(Role.SUMMARY, "Task: look.", keeps=2, model="m", at=5.0)),
    ):
        history.write(session_id, entry)
    history.write_question(_request(session_id), 2.5)
    text = as_markdown(history, session_id)
    assert text.startswith("# A \\*talk\\*\n")
    assert "````\noutput\n```\nnot the end\n```\n````" in text
    for part in (
        "Please look",
        "> hm",
        "cat x",
        "allow (person)",
        "## Your command",
        "(interrupted)",
        "Task: look.",
    ):
        assert part in text
    found = re.findall(r"!\[(.*)\]\[(.*)\]", text)
    assert [name for name, _label in found] == ["a\\_b.png", "a\\_b.png", "Picture"]
    for (_name, label), data in zip(found, (SHOT, SHOT, LARGE), strict=True):
        kept = base64.b64encode(data.data).decode()
        assert text.count(f"\n\n[{label}]: data:image/png;base64,{kept}\n") == 1
    named = as_markdown(history, session_id, with_pictures=False)
    assert "*a\\_b.png*" in named
    assert "base64" not in named and "![" not in named
    short = json.loads(as_json(history, session_id, with_pictures=False))
    assert short["messages"][0]["pictures"][0] == {"name": "a_b.png", "media_type": "image/png"}
    document = json.loads(as_json(history, session_id))
    [shot, _again] = document["messages"][0]["pictures"]
    assert (shot["name"], base64.b64decode(shot["data"])) == ("a_b.png", SHOT.data)
    assert document["messages"][1]["calls"][0]["arguments"] == {"command": "cat x"}
    assert document["messages"][2]["result"]["answer"] == "allow"
    assert document["messages"][4]["partial"] is True
    assert document["messages"][5]["role"] == "summary"
    assert document["questions"][0]["subject"] == "ls"


def _hold(person: Person, session_id: str, ready: object, done: object) -> None:
    lock = SessionLock(person.paths, session_id)
    ready.set()  # type: ignore[attr-defined]
    done.wait()  # type: ignore[attr-defined]
    lock.release()


def test_a_session_is_open_in_one_program_at_a_time(person: Person) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(person, "s", ready, done))
    other.start()
    try:
        assert ready.wait(PATIENCE)
        with pytest.raises(OllmSandboxError, match="another program"):
            SessionLock(person.paths, "s")
        SessionLock(person.paths, "t").release()
    finally:
        done.set()
        other.join()
    lock = SessionLock(person.paths, "s")
    lock.release()
    lock.release()
    assert not list((person.paths.cache / "open-sessions").iterdir())
