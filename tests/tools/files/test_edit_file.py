# SPDX-License-Identifier: GPL-3.0-or-later
"""edit_file is a run with one change."""

from __future__ import annotations

import asyncio
import os
import stat
import threading

import pytest
from support.person import Person
from support.timing import PATIENCE
from support.tools import Agent

from ollmsandbox import loop
from ollmsandbox.permission.request import Answer
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.tools.base import ToolError
from ollmsandbox.tools.files import sandboxed
from ollmsandbox.tools.files.change import FileChange
from ollmsandbox.tools.files.edit_file import EditFile
from ollmsandbox.tools.files.edits import replace_text
from ollmsandbox.tools.files.write_file import WriteFile

pytestmark = pytest.mark.ordinary


def test_an_exact_replacement(agent: Agent) -> None:
    file = agent.person.project / "a.py"
    file.write_text("one\ntwo\nthree\nfour\nfive\nsix\n")
    outcome = agent.edit("a.py", old_text="five\n", new_text="5\n")
    assert outcome.ok
    assert file.read_text() == "one\ntwo\nthree\nfour\n5\nsix\n"
    assert outcome.text.splitlines() == [
        "Changes: 1 modified.",
        "  modified a.py",
        "@@ -2,5 +2,5 @@",
        *(" two", " three", " four", "-five", "+5", " six"),
    ]


def test_an_edit_is_recorded_backed_up_and_can_be_undone(agent: Agent, review: Review) -> None:
    file = agent.person.project / "a"
    file.write_text("before")
    outcome = agent.edit("a", old_text="before", new_text="after")
    run = review.manager.run(outcome.run_id)
    assert (run.command, run.session_id, run.call_id) == ("edit_file a", "the-session", "the-call")
    [backup] = os.listdir(agent.person.paths.backups)
    assert (agent.person.paths.backups / backup).read_text() == "before"
    review.undo(run)
    assert file.read_text() == "before"


def test_a_new_file_is_made_with_its_folders(agent: Agent) -> None:
    outcome = agent.write("src/deep/a.py", content="")
    assert outcome.ok
    assert "added src/deep/a.py" in outcome.text
    assert (agent.person.project / "src/deep/a.py").read_bytes() == b""
    assert os.listdir(agent.person.project / "src/deep") == ["a.py"]


def test_a_whole_file_is_written_unless_nothing_would_change(agent: Agent) -> None:
    file = agent.person.project / "a"
    file.write_text("old\n")
    assert "-old\n+new" in agent.write("a", content="new\n").text
    assert file.read_text() == "new\n"
    outcome = agent.write("a", content="new\n")
    assert outcome.ok
    assert outcome.report is None
    assert "already" in outcome.text


def test_a_large_file_is_written_whole(agent: Agent) -> None:
    text = "".join(f"line {number}\n" for number in range(100_000))
    assert agent.write("a", content=text).ok
    assert (agent.person.project / "a").read_text() == text
    outcome = agent.edit("a", old_text="line 77777\n", new_text="changed\n")
    assert outcome.ok
    assert (agent.person.project / "a").read_text() == text.replace("line 77777\n", "changed\n")
    assert len(outcome.text) < 500


def test_mode_mark_and_line_ends_stay(agent: Agent) -> None:
    file = agent.person.project / "a.sh"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    file.chmod(0o751)
    assert agent.edit("a.sh", old_text="one\ntwo", new_text="1\n2\n3").ok
    assert file.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n3\r\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o751
    assert agent.write("a.sh", content="new\n").ok
    assert file.read_bytes() == b"\xef\xbb\xbfnew\r\n"


def test_mixed_line_ends_are_left_as_they_are(agent: Agent) -> None:
    file = agent.person.project / "a"
    file.write_bytes(b"one\r\ntwo\nthree")
    # Without new text, the old one is removed.
    assert agent.edit("a", old_text="two").ok
    assert file.read_bytes() == b"one\r\n\nthree"


def test_a_link_inside_the_project_stays_a_link(agent: Agent) -> None:
    (agent.person.project / "real").write_text("x")
    link = agent.person.project / "link"
    link.symlink_to("real")
    outcome = agent.edit("link", old_text="x", new_text="y")
    assert "modified real" in outcome.text
    assert link.is_symlink()
    assert (agent.person.project / "real").read_text() == "y"


def test_odd_names_work(agent: Agent) -> None:
    for name in ("-n", "new\nline", "$(touch x) '\"", "ö" * 127):
        assert agent.write(name, content="1").ok, name
        assert agent.edit(name, old_text="1", new_text="2").ok, name
        assert (agent.person.project / name).read_text() == "2"
    assert not (agent.person.project / "x").exists()


def test_several_edits_are_one_change(agent: Agent, review: Review) -> None:
    file = agent.person.project / "a"
    file.write_text("one\ntwo\nthree\ntwo\n")
    edits = [
        {"old_text": "one", "new_text": "1"},
        {"old_text": "1\ntwo", "new_text": "1\n2"},
        {"old_text": "t", "new_text": "T", "replace_all": True},
    ]
    outcome = agent.edit("a", edits=edits)
    assert outcome.ok
    assert file.read_text() == "1\n2\nThree\nTwo\n"
    review.undo(review.manager.run(outcome.run_id))
    assert file.read_text() == "one\ntwo\nthree\ntwo\n"


def test_one_of_several_edits_that_fails_changes_nothing(agent: Agent) -> None:
    file = agent.person.project / "a"
    file.write_text("one\ntwo\n")
    edits = [{"old_text": "one", "new_text": "1"}, {"old_text": "tow", "new_text": "2"}]
    outcome = agent.edit("a", edits=edits)
    assert not outcome.ok
    assert "Edit 2 of 2 failed, so nothing was changed" in outcome.text
    assert "The closest line is 2: 'two'" in outcome.text
    assert file.read_text() == "one\ntwo\n"


# --- what does not fit -------------------------------------------------------------------------


def test_text_that_occurs_twice_is_not_replaced(agent: Agent) -> None:
    file = agent.person.project / "a"
    file.write_text("x\ny\nx\n")
    outcome = agent.edit("a", old_text="x", new_text="z")
    assert not outcome.ok
    assert "occurs 2 times (lines 1, 3)" in outcome.text
    assert file.read_text() == "x\ny\nx\n"
    assert agent.edit("a", old_text="x", new_text="z", replace_all=True).ok
    assert file.read_text() == "z\ny\nz\n"


@pytest.mark.parametrize(
    ("old", "words"),
    [
        ("retrun x", "The closest line is 2: '    return x'"),
        ("\treturn x", "Line 2 has the same words with other white space: '    return x'"),
        ("def f():\n  other", "Its first line is line 1, but what follows differs"),
        ("zzzzzzzzzzzz", "Nothing in the file is like it"),
        ("\n\n\n", "contains only white space"),
    ],
)
def test_the_closest_match_is_shown(old: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        replace_text("def f():\n    return x\n", old, "new", everywhere=False)


def test_what_is_no_file_is_not_edited(agent: Agent) -> None:
    assert not agent.edit("a", old_text="x", new_text="y").ok
    assert os.listdir(agent.person.project) == []
    (agent.person.project / "d").mkdir()
    os.mkfifo(agent.person.project / "p")
    (agent.person.project / "l").symlink_to("no/where")
    assert "is a folder" in agent.write("d", content="x").text
    assert "not a file" in agent.write("p", content="x").text
    assert "dangling link" in agent.write("l", content="x").text


def test_a_file_that_is_no_text_is_only_written_whole(agent: Agent) -> None:
    file = agent.person.project / "a"
    file.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in agent.edit("a", old_text="x", new_text="y").text
    assert agent.write("a", content="text").ok
    assert file.read_text() == "text"


def test_a_file_that_may_not_be_written_stays(agent: Agent) -> None:
    file = agent.person.project / "a"
    file.write_text("x")
    file.chmod(0o444)
    assert "permission denied" in agent.write("a", content="y").text
    assert file.read_text() == "x"


def test_nothing_is_written_outside(agent: Agent) -> None:
    for path in ("/etc/x", "~/x", "../x", "/tmp/x", f"{agent.person.project}-evil/x"):
        outcome = agent.write(path, content="x")
        assert not outcome.ok
        assert "is not in the project" in outcome.text


def test_a_link_does_not_lead_outside(agent: Agent) -> None:
    outside = agent.person.home / "outside"
    outside.mkdir()
    (outside / "a").write_text("x")
    (agent.person.project / "out").symlink_to(outside)
    (agent.person.project / "tmp").symlink_to("/tmp")
    assert not agent.write("out/a", content="y").ok
    assert not agent.write("out/new", content="y").ok
    assert "out of the project" in agent.write("tmp/new", content="y").text
    assert (outside / "a").read_text() == "x"
    assert os.listdir(outside) == ["a"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": ""}, "empty"),
        ({"path": "d/"}, "folder"),
        ({"path": "d/."}, "folder"),
        ({"path": "a", "edits": [{"old_text": "x"}], "old_text": "y"}, "Both"),
        ({"path": "a", "edits": [{"old_text": "x"}, {"old_text": ""}]}, "Edit 2 of 2"),
        ({"path": "a", "edits": [{"new_text": "x"}]}, r"`edits\[0\]`: `old_text` is missing"),
        ({"path": "a", "edits": {"old_text": "x"}}, "must be a list"),
        ({"path": "a"}, "changes nothing"),
        ({"path": "a", "old_text": "", "new_text": ""}, "changes nothing"),
        ({"path": "a", "new_text": "y"}, "`old_text` is missing"),
        ({"path": "a", "new_text": "y", "old_text": "y"}, "the same"),
    ],
)
def test_calls_that_make_no_sense(agent: Agent, arguments: dict[str, str], words: str) -> None:
    with pytest.raises(ToolError, match=words):
        EditFile(agent.tool_context).read(arguments)


# --- modes, conflicts, permission --------------------------------------------------------------


def test_in_review_mode_the_next_edit_sees_the_last_one(person: Person) -> None:
    agent = Agent(person, mode=Mode.REVIEW)
    (person.project / "a").write_text("one")
    assert "Pending changes" in agent.edit("a", old_text="one", new_text="two").text
    assert agent.edit("a", old_text="two", new_text="three").ok
    assert agent.read("a").text.endswith("three")
    assert (person.project / "a").read_text() == "one"


def test_a_git_hook_is_held(agent: Agent) -> None:
    (agent.person.project / ".git").mkdir()
    outcome = agent.write(".git/hooks/pre-commit", content="x")
    assert "needs the user's approval" in outcome.text
    assert not (agent.person.project / ".git/hooks/pre-commit").exists()


def test_an_edit_by_the_user_at_the_same_time_is_a_conflict(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = agent.person.project / "a"
    file.write_text("before")
    request = EditFile(agent.tool_context).read(
        {"path": "a", "old_text": "before", "new_text": "after"}
    )
    assert isinstance(request, FileChange)
    read = request._new_content

    def late(said: sandboxed.ScriptReply) -> bytes:
        # Between the reading and the writing.
        file.write_text("the person's")
        return read(said)

    monkeypatch.setattr(request, "_new_content", late)
    outcome = loop.run(request.execute(agent.looking))
    assert "NOT applied" in outcome.text
    assert file.read_text() == "the person's"


def test_stopped_before_it_writes_it_writes_nothing(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = agent.person.project / "a"
    file.write_text("old")
    request = WriteFile(agent.tool_context).read({"path": "a", "content": "new"})
    read, over = threading.Event(), threading.Event()

    def wait(_said: object) -> bytes:
        read.set()
        over.wait(PATIENCE)
        return b""

    monkeypatch.setattr(request, "_new_content", wait)
    agent.stop(request, read.is_set, then=over.set)
    assert file.read_text() == "old"
    assert os.listdir(agent.person.project) == ["a"]


def test_stopped_while_it_writes_it_writes_all(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = agent.person.project / "a"
    file.write_text("old")
    text = "new\n" * 100_000
    request = WriteFile(agent.tool_context).read({"path": "a", "content": text})
    write = sandboxed._write

    async def run() -> None:
        task = asyncio.ensure_future(request.execute(agent.looking))

        def write_and_stop(descriptor: int, data: bytes) -> None:
            task.get_loop().call_soon_threadsafe(task.cancel)
            write(descriptor, data)

        monkeypatch.setattr(sandboxed, "_write", write_and_stop)
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(run())
    assert file.read_text() == text
    assert request.partial is not None
    assert "modified a" in request.partial.text
    assert os.listdir(agent.person.project) == ["a"]


def test_the_playground_is_written(agent: Agent) -> None:
    assert agent.write("playground/x/note", content="hi").ok
    assert (agent.person.playground / "x/note").read_text() == "hi"


def test_an_edit_asks_if_the_user_wants_that(person: Person) -> None:
    (person.project / "a").write_text("one")
    agent = Agent(person, ask_every_command=True)
    assert "denied" in agent.edit("a", old_text="one", new_text="two").text
    [request] = agent.asked
    assert request.subject == f"{person.project}/a\n-one\n+two"
    assert request.target_path == f"{person.project}/a"
    assert (person.project / "a").read_text() == "one"


def test_without_a_sandbox_it_asks_and_is_recorded_all_the_same(
    person: Person, review: Review
) -> None:
    file = person.project / "a"
    file.write_text("one\n")
    agent = Agent(person, environ={"FLATPAK_ID": "x"})
    assert "denied" in agent.edit("a", old_text="one", new_text="two").text
    assert file.read_text() == "one\n"
    agent.asker.answer = Answer.ALLOW
    outcome = agent.edit("a", old_text="one", new_text="two")
    assert outcome.ok
    assert file.read_text() == "two\n"
    assert agent.asked[1].one_time_only
    review.undo(review.manager.run(outcome.run_id))
    assert file.read_text() == "one\n"
    assert agent.write("playground/note", content="hi").ok
    assert (person.playground / "note").read_text() == "hi"


def test_without_a_sandbox_no_link_leads_out_of_the_project(person: Person) -> None:
    start = person.home / "start"
    start.write_text("old\n")
    (person.project / "link").symlink_to(start)
    (person.project / "folder").symlink_to(person.home)
    agent = Agent(person, environ={"FLATPAK_ID": "x"})
    agent.asker.answer = Answer.ALLOW
    for path in ("link", "folder/start"):
        outcome = agent.write(path, content="evil\n")
        assert not outcome.ok
        assert "not in the project" in outcome.text
        assert start.read_text() == "old\n"
    assert agent.asked == []
