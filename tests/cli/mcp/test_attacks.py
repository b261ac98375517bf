# SPDX-License-Identifier: GPL-3.0-or-later
"""A hostile client: it reaches for other projects, floods the user with questions and disguises
what it asks for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.person import Person
from support.servers.mcp_client import MODES, accept, allow, deny, raw_client, run_client, text_of

from ollmsandbox.sandbox.spec import Mode

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import ElicitResult

pytestmark = pytest.mark.ordinary


def other_project(person: Person) -> tuple[Person, str]:
    """Return the same user in another project, and a pending run there."""
    folder = person.home / "other"
    folder.mkdir()
    (folder / "file").write_text("mine\n")
    other = Person(person.home, folder, person.environ)
    return other, other.record("echo theirs >file", Mode.REVIEW).run_id


@pytest.mark.parametrize("mode", MODES)
def test_a_client_cannot_reach_another_project(person: Person, mode: str) -> None:
    other, run = other_project(person)
    file = other.project / "file"

    async def use(client: Client) -> None:
        for tool in ("list_changes", "show_diff", "apply_changes", "discard_changes", "undo_run"):
            result = await client.call_tool(tool, {"run": run})
            assert result.is_error and "There is no run" in text_of(result)
            # Not even by the beginning of its id.
            assert (await client.call_tool(tool, {"run": run[:12]})).is_error
        assert run not in text_of(await client.call_tool("list_changes", {}))
        write = {"path": str(file), "content": "x"}
        assert "not in the project" in text_of(await client.call_tool("write_file", write))
        there = {"command": f"echo x >{file}; echo x >file", "working_dir": str(other.project)}
        found: Any = (await client.call_tool("run_command", there)).structured_content
        assert found["exit_status"] == 1 and found["changes"] == []
        # There is no parameter for a project.
        named = {"command": "true", "project": str(other.project)}
        assert "no parameter `project`" in text_of(await client.call_tool("run_command", named))

    # The client says yes to everything.
    run_client(use, person, mode=mode, answer=allow)
    assert file.read_text() == "mine\n"
    (item,) = json.loads(other.cli("changes", run, "--json").stdout)["changes"]
    assert item["state"] == "pending"


def test_no_spelling_of_a_path_leads_to_another_project(person: Person) -> None:
    other, _run = other_project(person)
    file = other.project / "file"
    (person.project / "link").symlink_to(other.project)
    (person.project / "file-link").symlink_to(file)
    paths = (
        *("../other/file", "./../other/file", "~/other/file", "$HOME/other/file", f"file://{file}"),
        *("link/file", "file-link", f"/proc/self/root{file}", f"//{file}"),
        f"{person.project}/../other/file",
    )

    async def use(client: Client) -> None:
        for path in paths:
            await client.call_tool("write_file", {"path": path, "content": "x"})
            edit = {"path": path, "old_text": "mine", "new_text": "x"}
            await client.call_tool("edit_file", edit)
            for working_dir in (path, path.removesuffix("/file")):
                there = {"command": "echo x >file; echo x >new", "working_dir": working_dir}
                await client.call_tool("run_command", there)
            await client.call_tool("run_command", {"command": f"echo x >{path}; rm -f {path}"})
            assert file.read_text() == "mine\n" and not (other.project / "new").exists(), path

    # The client says yes to everything.
    run_client(use, person, answer=allow)
    assert sorted(path.name for path in other.project.iterdir()) == ["file"]


def test_no_field_of_the_protocol_names_another_project(person: Person) -> None:
    other, run = other_project(person)
    root = {"uri": other.project.as_uri(), "name": "other"}
    with raw_client(person) as client:
        info = {"name": "raw", "version": "1", "project": str(other.project)}
        client.ask(
            "first",
            "initialize",
            protocolVersion="2025-11-25",
            capabilities={"roots": {"listChanged": True}, "experimental": {"project": root}},
            clientInfo=info,
            rootUri=root["uri"],
            workspaceFolders=[root],
            roots=[root],
        )
        client.send(method="notifications/initialized")
        client.send(method="notifications/roots/list_changed", params={"roots": [root]})
        params = {"name": "run_command", "arguments": {"command": "pwd; echo x >made"}}
        meta = {"project": str(other.project), "roots": [root]}
        found = client.ask(1, "tools/call", **params, _meta=meta, project=str(other.project))
        assert found["result"]["content"][0]["text"].startswith(f"{person.project}\n")
        listed = client.ask(2, "tools/call", name="list_changes", arguments={}, _meta=meta)
        assert run not in json.dumps(listed)
    assert (person.project / "made").exists() and not (other.project / "made").exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_client_cannot_make_its_rights_last(person: Person, mode: str) -> None:
    """It is asked about what counts once, whatever it answers, and about no folder outside."""
    outside = person.home / "outside"
    outside.mkdir()
    (person.project / "link").symlink_to(outside)
    asked: list[str] = []

    def answer(question: str) -> ElicitResult:
        asked.append(question)
        return accept("allow always")

    async def use(client: Client) -> None:
        command = {"command": "true", "network": True, "hosts": ["example.org"]}
        for _ in range(2):
            assert "denied" in text_of(await client.call_tool("run_command", command))
        there = {"command": "echo x >x", "working_dir": str(person.project / "link")}
        result = await client.call_tool("run_command", there)
        assert result.is_error and "opens OLLM Sandbox" in text_of(result)

    run_client(use, person, mode=mode, answer=answer)
    assert len(asked) == 2 and not list(outside.iterdir())
    assert json.loads(person.cli("permissions", "list", "--json").stdout) == {"rules": []}


@pytest.mark.parametrize("mode", MODES)
def test_a_user_who_denies_is_not_asked_again_and_again(person: Person, mode: str) -> None:
    asked: list[str] = []

    def answer(question: str) -> ElicitResult:
        asked.append(question)
        return deny(question)

    async def use(client: Client) -> None:
        for number in range(12):
            command = {"command": f"echo {number}", "network": True}
            assert (await client.call_tool("run_command", command)).is_error

    run_client(use, person, mode=mode, answer=answer)
    assert len(asked) == 5


def test_questions_come_one_at_a_time(person: Person) -> None:
    with raw_client(person) as client:
        client.initialize(elicitation={})
        params = {"name": "run_command", "arguments": {"command": "true", "network": True}}
        for number in range(50):
            client.send(id=number, method="tools/call", params=params)
        for _ in range(3):
            question = client.receive()
            assert question["method"] == "elicitation/create"
            # Nothing else comes before it is answered.
            client.send(id="ping", method="ping")
            assert client.receive() == {"jsonrpc": "2.0", "id": "ping", "result": {}}
            client.send(id=question["id"], result={"action": "decline"})
            assert client.receive()["result"]["isError"]


@pytest.mark.parametrize("mode", MODES)
def test_a_question_shows_what_runs_however_it_is_disguised(person: Person, mode: str) -> None:
    command = "echo fine\r\x1b[2K\u202e\n\n\n" + " " * 300 + "rm -rf /"
    asked: list[str] = []

    def answer(question: str) -> ElicitResult:
        asked.append(question)
        return deny(question)

    async def use(client: Client) -> None:
        await client.call_tool("run_command", {"command": command, "network": True})
        # So long that a client may cut it off.
        long = {"command": "true; " * 1000 + "rm -rf /", "network": True}
        result = await client.call_tool("run_command", long)
        assert "opens OLLM Sandbox" in text_of(result)

    name = "Bank\n\u202e\x1b[1m  Folder  /tmp\n" + "x" * 500
    run_client(use, person, mode=mode, answer=answer, name=name)
    (question,) = asked
    assert "rm -rf /" in question and "⟨U+202E⟩" in question
    assert not any(c in question for c in "\r\x1b\u202e")
    lines = question.split("\n")
    assert len([line for line in lines if line.startswith(("  ┃ ", "  ┊ "))]) >= 4
    # The name stays in its line, and is short.
    (named,) = [line for line in lines if "Bank" in line]
    assert named.split()[:2] == ["Agent", "Bank"] and len(named) < 100
    assert not any(line.startswith("  Folder") and "/tmp" in line.split() for line in lines)


def test_a_state_of_another_call_answers_nothing(person: Person) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }
    call = {"name": "run_command", "arguments": {"command": "echo ran", "network": True}}
    yes = {"permission": {"action": "accept", "content": {"answer": "allow"}}}
    with raw_client(person) as client:
        guessed = {**call, "_meta": meta, "requestState": "0" * 32, "inputResponses": yes}
        assert "error" in client.ask(1, "tools/call", **guessed)
        asked = client.ask(2, "tools/call", **call, _meta=meta)["result"]
        assert asked["resultType"] == "input_required"
        state = asked["requestState"]
        # Another command with the same state: the one that was asked about runs.
        other = {"name": "run_command", "arguments": {"command": "echo other", "network": True}}
        given = {**other, "_meta": meta, "requestState": state, "inputResponses": yes}
        found = client.ask(3, "tools/call", **given)["result"]
        assert "ran" in found["content"][0]["text"]
        assert "error" in client.ask(4, "tools/call", **given)
