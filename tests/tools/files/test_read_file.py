# SPDX-License-Identifier: GPL-3.0-or-later
"""read_file sees what a command sees, and nothing else."""

from __future__ import annotations

import os
import socket

import pytest
from support.person import Person
from support.tools import Agent

from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.tools.base import ToolError
from ollmsandbox.tools.files.read_file import ReadFile

pytestmark = pytest.mark.ordinary


def write(person: Person, name: str, text: str) -> None:
    file = person.project / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_file_is_read_by_any_name_it_has(agent: Agent) -> None:
    write(agent.person, "src/a.py", "one\ntwo\n")
    for name in ("src/a.py", "./src/../src/a.py", f"{agent.person.project}/src/a.py"):
        outcome = agent.read(name)
        assert outcome.ok
        assert outcome.text == f"{name} (2 lines):\n     1\tone\n     2\ttwo"
    assert agent.read("~/project/src/a.py").text.endswith("one\n     2\ttwo")
    assert agent.asked == []


def test_a_part_is_read_with_a_hint_how_to_continue(agent: Agent) -> None:
    write(agent.person, "a", "".join(f"{number}\n" for number in range(1, 101)))
    text = agent.read("a", first_line=10, line_count=3).text
    assert text == "a (lines 10 to 12 of 100). More with first_line=13.\n" + "\n".join(
        f"{number:>6}\t{number}" for number in (10, 11, 12)
    )
    text = agent.read("a", first_line=99, line_count=10).text
    assert text == "a (lines 99 to 100 of 100).\n    99\t99\n   100\t100"


def test_a_last_line_without_an_end_counts(agent: Agent) -> None:
    for end in ("", "\n"):
        write(agent.person, "a", f"1\n2{end}")
        assert agent.read("a").text == "a (2 lines):\n     1\t1\n     2\t2"
        outcome = agent.read("a", first_line=3)
        assert not outcome.ok
        assert "ends with line 2" in outcome.text


def test_a_large_file_comes_in_parts(agent: Agent) -> None:
    lines = [f"line {number}" for number in range(50_000)]
    write(agent.person, "a", "\n".join(lines) + "\n")
    text = agent.read("a", line_count=50_000).text
    assert len(text) < 61_000
    head, *shown = text.split("\n")
    assert (
        head == f"a (lines 1 to {len(shown):,} of 50,000). More with first_line={len(shown) + 1}."
    )
    assert [line.partition("\t")[2] for line in shown] == lines[: len(shown)]


def test_a_long_line_is_cut_and_all_of_it_can_be_read(agent: Agent) -> None:
    write(agent.person, "a", "x" * 5000 + "\nend\n")
    text = agent.read("a").text
    assert "x" * 2000 + " [... the line goes on. More with first_line=1, first_byte=2001]" in text
    assert text.endswith("\n     2\tend")
    line = "".join(chr(0xE0 + number % 50) for number in range(300_000))
    write(agent.person, "a", f"first\n{line}\nlast\n")
    found, given = "", {"first_line": 2, "first_byte": 1}
    for _number in range(3):
        shown = agent.read("a", line_count=1, **given).text.partition("\t")[2]
        piece, _, more = shown.partition(" [... the line goes on. More with ")
        found += piece
        given = {k: int(v) for k, v in (p.split("=") for p in more.rstrip("]").split(", "))}
    assert found == line[:6000]
    # From the middle of a character on.
    assert agent.read("a", first_line=2, first_byte=599_998).text.partition("\t")[2] == line[-1]
    assert "shorter than that" in agent.read("a", first_line=2, first_byte=10**6).text


def test_a_picture_is_for_models_that_can_see(agent: Agent) -> None:
    for kind, start in (
        ("png", b"\x89PNG\r\n\x1a\n"),
        ("jpeg", b"\xff\xd8\xff\xe0"),
        ("gif", b"GIF89a"),
        ("webp", b"RIFF\0\0\0\0WEBP"),
    ):
        data = start + bytes(range(256)) * 2000
        (agent.person.project / "a").write_bytes(data)
        agent.tool_context.sees_pictures = False
        blind = agent.read("a")
        assert not blind.ok
        assert "This model cannot see it" in blind.text
        assert blind.pictures == ()
        agent.tool_context.sees_pictures = True
        seen = agent.read("a")
        assert seen.ok
        assert [(p.media_type, p.data) for p in seen.pictures] == [(f"image/{kind}", data)]
    (agent.person.project / "a").write_bytes(start + b"x" * (4 << 20))
    assert "too large" in agent.read("a").text


def test_binary_is_refused_with_its_size(agent: Agent) -> None:
    (agent.person.project / "a").write_bytes(b"\x7fELF\0\0" * 100)
    outcome = agent.read("a")
    assert not outcome.ok
    assert "not a text file; it has 600 bytes" in outcome.text


def test_bytes_that_are_no_text_and_controls_do_no_harm(agent: Agent) -> None:
    (agent.person.project / "a").write_bytes(b"a\xff\x1b[31mb\r\nc")
    assert agent.read("a").text.endswith("\ta\ufffdb\n     2\tc")


def test_what_is_empty_is_reported_as_empty(agent: Agent) -> None:
    outcome = agent.read(".")
    assert outcome.ok
    assert "empty" in outcome.text
    write(agent.person, "a", "")
    assert agent.read("a").text == "a is empty."


def test_a_folder_lists_its_names(agent: Agent) -> None:
    write(agent.person, "d/b", "")
    write(agent.person, "d/.hidden", "")
    write(agent.person, "d/sub/x", "")
    (agent.person.project / "d/link").symlink_to("nowhere")
    (agent.person.project / "d/new\nline").touch()
    (agent.person.project / "d/-n").touch()
    assert agent.read("d").text.split("\n")[1:] == sorted(
        ["-n", ".hidden", "b", "link@", "new\\nline", "sub/"]
    )


def test_a_large_folder_is_cut(agent: Agent) -> None:
    for number in range(1200):
        (agent.person.project / f"f{number}").touch()
    text = agent.read(".").text
    assert "1,000 names" in text
    assert text.count("\n") == 1001
    assert "and 20" in text.splitlines()[-1]


def test_a_missing_file_is_reported(agent: Agent) -> None:
    outcome = agent.read("nope")
    assert not outcome.ok
    assert "There is no file nope" in outcome.text


def test_a_pipe_a_socket_or_a_device_is_not_read(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(agent.person.project / "pipe")
    # By its short name: the whole one may be too long for a socket.
    monkeypatch.chdir(agent.person.project)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
    for name in ("pipe", "socket", "/dev/zero"):
        outcome = agent.read(name)
        assert not outcome.ok
        assert "not a file" in outcome.text


def test_the_playground_is_read(agent: Agent) -> None:
    agent.run("echo x > note", working_dir="playground")
    for name in ("playground/note", "~/playground/note", f"{agent.person.home}/playground/note"):
        assert agent.read(name).text.endswith("\tx")


def test_pending_changes_are_seen(person: Person) -> None:
    agent = Agent(person, mode=Mode.REVIEW)
    agent.run("echo waiting > a")
    assert agent.read("a").text.endswith("waiting")
    assert not (person.project / "a").exists()


def test_secrets_cannot_be_read_by_any_path(agent: Agent) -> None:
    home, data = agent.person.home, agent.person.paths.data
    ssh = home / ".ssh"
    ssh.mkdir()
    (ssh / "id").write_text("SECRET")
    agent.run("touch x")
    (data / "secret").write_text("SECRET")
    (agent.person.project / "link").symlink_to(ssh / "id")
    (agent.person.project / "folder").symlink_to(ssh)
    for way in (
        *(f"{ssh}/id", "~/.ssh/id", "../.ssh/id", "link", "folder/id"),
        *(f"/proc/self/root{ssh}/id", f"/proc/1/root{ssh}/id"),
        *(f"{data}/ollmsandbox.db", f"{data}/playground/../secret"),
    ):
        outcome = agent.read(way)
        assert not outcome.ok, way
        assert "SECRET" not in outcome.text


def test_the_environment_of_others_is_not_read(person: Person) -> None:
    agent = Agent(person, environ={"MY_TOKEN": "SECRET"})
    assert "SECRET" not in agent.read("/proc/self/environ").text


def test_programs_of_the_project_are_not_used(person: Person) -> None:
    write(person, "a", "the file\n")
    for name in ("cat", "head", "tail", "stat", "wc", "mv", "chmod"):
        write(person, f"bin/{name}", "#!/bin/sh\necho file 1 1\necho fooled\n")
        (person.project / "bin" / name).chmod(0o755)
    agent = Agent(person, environ={"PATH": f"{person.project}/bin:/usr/bin:/bin"})
    assert agent.read("a").text == "a (1 line):\n     1\tthe file"
    assert agent.edit("a", old_text="the file", new_text="changed").ok
    assert (person.project / "a").read_text() == "changed\n"


def test_reading_changes_nothing(person: Person) -> None:
    person.has_database = False
    agent = Agent(person)
    write(agent.person, "a", "1")
    agent.read("a")
    assert not [name for name in os.listdir(agent.person.paths.cache) if "overlay-" in name]
    assert not agent.person.paths.database.exists()


def test_an_empty_path_is_an_error(agent: Agent) -> None:
    with pytest.raises(ToolError, match="empty"):
        agent.read(" ")


def test_several_may_be_read_at_once(agent: Agent) -> None:
    assert not ReadFile(agent.tool_context).can_write


def test_without_a_sandbox_it_asks(person: Person) -> None:
    write(person, "a", "text\n")
    agent = Agent(person, environ={"FLATPAK_ID": "x"})
    assert "denied" in agent.read("a").text
    assert agent.asked[0].subject == f"{person.project}/a"
    assert not agent.asked[0].sandboxed
    agent.asker.answer = Answer.ALLOW
    assert agent.read("a").text == "a (1 line):\n     1\ttext"


def test_without_a_sandbox_it_is_asked_for_what_a_link_leads_to(person: Person) -> None:
    secret = person.home / "secret"
    secret.write_text("the key\n")
    (person.project / "notes").symlink_to(secret)
    agent = Agent(person, environ={"FLATPAK_ID": "x"})
    agent.read("notes")
    assert agent.asked[0].subject == str(secret)

    def swap(_request: PermissionRequest) -> Answer:
        (person.project / "plain").unlink()
        (person.project / "plain").symlink_to(secret)
        return Answer.ALLOW

    write(person, "plain", "text\n")
    agent.asker.answer = swap
    outcome = agent.read("plain")
    assert not outcome.ok
    assert "the key" not in outcome.text


def test_a_path_in_the_project_is_shown_without_it_and_one_that_may_lead_out_as_it_is(
    agent: Agent,
) -> None:
    project = agent.person.project
    elsewhere = agent.person.home / "elsewhere"
    (elsewhere / "inner").mkdir(parents=True)
    (project / "link").symlink_to(elsewhere / "inner")
    tool = ReadFile(agent.tool_context)
    shown = {
        f"{project}/src/a.py": "src/a.py",
        # A command finds another file there than that of the project.
        f"{project}/link/../a.py": f"{project}/link/../a.py",
        f"{project}/../elsewhere": f"{project}/../elsewhere",
        f"{project}-evil/a.py": f"{project}-evil/a.py",
    }
    for path, name in shown.items():
        assert tool.read({"path": path}).describe() == name
