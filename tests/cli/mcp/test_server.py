# SPDX-License-Identifier: GPL-3.0-or-later
"""Every tool, through the client of the protocol's own SDK, in the old and the new way."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from support.person import Person
from support.servers.mcp_client import (
    MODES,
    allow,
    deny,
    is_running,
    raw_client,
    run_client,
    sdk_client,
    text_of,
)

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.ordinary

TOOLS = {
    *("run_command", "read_file", "write_file", "edit_file", "search", "list_changes"),
    *("show_diff", "apply_changes", "discard_changes", "undo_run"),
}


@pytest.mark.parametrize("mode", MODES)
def test_the_tools_are_listed_with_their_schemas_and_hints(person: Person, mode: str) -> None:
    async def use(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == TOOLS
        reading = {
            name
            for name, tool in tools.items()
            if tool.annotations and tool.annotations.read_only_hint
        }
        assert reading == {"read_file", "search", "list_changes", "show_diff"}
        run = tools["run_command"]
        assert "sandbox" in (run.description or "")
        assert run.input_schema["required"] == ["command"]
        assert run.annotations and run.annotations.destructive_hint
        assert run.output_schema is not None
        assert client.instructions and "recorded" in client.instructions
        revisions = {"legacy": "2025-11-25", "auto": "2026-07-28"}
        assert client.protocol_version == revisions[mode]

    run_client(use, person, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_command_is_a_recorded_run(person: Person, mode: str) -> None:
    (person.project / "old").write_text("1\n")
    told: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async def use(client: Client) -> None:
        command = "echo new >file; rm old; echo said; sleep 0.8; echo x >/usr/x; exit 3"
        result = await client.call_tool("run_command", {"command": command}, progress_callback=hear)
        assert not result.is_error
        found: Any = result.structured_content
        assert found["exit_status"] == 3 and found["stopped"] is None
        assert {(c["path"], c["kind"], c["state"]) for c in found["changes"]} == {
            ("file", "added", "applied"),
            ("old", "deleted", "applied"),
        }
        assert found["hosts"] == [] and "read-only" in found["refused"][0]
        assert found["output"] == text_of(result) and "said" in found["output"]
        shown = json.loads(person.cli("changes", found["run_id"], "--json").stdout)
        assert shown["command"] == command and shown["exit_code"] == 3

    run_client(use, person, mode=mode)
    assert any("said" in message for message in told)
    assert (person.project / "file").read_text() == "new\n"
    sessions = json.loads(person.cli("sessions", "list", "--json").stdout)
    (title,) = [session["title"] for session in sessions]
    assert title.startswith("test agent: echo new >file;")


def test_files_are_written_edited_read_found_and_undone(person: Person) -> None:
    async def use(client: Client) -> None:
        written = await client.call_tool("write_file", {"path": "a.txt", "content": "one\ntwo\n"})
        assert "added a.txt" in text_of(written)
        edit = {"path": "a.txt", "old_text": "two", "new_text": "three"}
        assert not (await client.call_tool("edit_file", edit)).is_error
        read = await client.call_tool("read_file", {"path": "a.txt"})
        assert "three" in text_of(read)
        found = await client.call_tool("search", {"pattern": "three"})
        assert "a.txt" in text_of(found)
        listed = text_of(await client.call_tool("list_changes", {}))
        last, first = re.findall(r"^(\S+)  \w+_file a.txt$", listed, re.MULTILINE)
        diff = text_of(await client.call_tool("show_diff", {"run": last, "paths": ["a.txt"]}))
        assert "-two\n+three" in diff
        undone = await client.call_tool("undo_run", {"run": last})
        assert not undone.is_error and "1 change undone" in text_of(undone)
        assert (person.project / "a.txt").read_text() == "one\ntwo\n"
        await client.call_tool("undo_run", {"run": first})
        assert not (person.project / "a.txt").exists()

    run_client(use, person)


def test_only_the_user_applies_pending_changes(person: Person) -> None:
    asked: list[str] = []

    def answer(question: str) -> Any:
        asked.append(question)
        return (deny if len(asked) == 1 else allow)(question)

    async def use(client: Client) -> None:
        result = await client.call_tool("run_command", {"command": "echo 1 >a; echo 2 >b"})
        found: Any = result.structured_content
        run = found["run_id"]
        assert not (person.project / "a").exists()
        denied = await client.call_tool("apply_changes", {"run": run, "paths": ["a"]})
        assert denied.is_error and "denied by the user" in text_of(denied)
        assert not (person.project / "a").exists()
        applied = await client.call_tool("apply_changes", {"run": run, "paths": ["a"]})
        assert "1 change applied" in text_of(applied)
        assert (person.project / "a").read_text() == "1\n"
        # Its own changes may be dropped without a question.
        dropped = await client.call_tool("discard_changes", {"run": run})
        assert "1 change discarded" in text_of(dropped)

    run_client(use, person, "--apply", "review", mode="auto", answer=answer)
    assert len(asked) == 2 and not (person.project / "b").exists()
    assert "Apply changes" in asked[0] and "test agent" in asked[0]
    assert "added     a" in asked[0] and "added     b" not in asked[0]
    assert person.project.name in asked[0]


@pytest.mark.parametrize("mode", MODES)
def test_network_access_is_asked_about_through_the_client(person: Person, mode: str) -> None:
    command = {"command": "echo ran", "network": True, "hosts": ["example.org"]}
    asked: list[str] = []

    def answer(question: str) -> Any:
        asked.append(question)
        return allow(question) if len(asked) == 1 else deny(question)

    async def use(client: Client) -> None:
        allowed = await client.call_tool("run_command", command)
        assert "ran" in text_of(allowed) and not allowed.is_error
        denied = await client.call_tool("run_command", command)
        assert denied.is_error and "denied by the user" in text_of(denied)
        found: Any = denied.structured_content
        assert found["exit_status"] is None and found["refused"]

    run_client(use, person, mode=mode, answer=answer)
    assert "Run command with network access" in asked[0] and "echo ran" in asked[0]
    assert "example.org" in asked[0] and "test agent" in asked[0]


@pytest.mark.parametrize("mode", MODES)
def test_without_anybody_to_ask_the_result_says_how_to_allow_it(person: Person, mode: str) -> None:
    async def use(client: Client) -> None:
        result = await client.call_tool("run_command", {"command": "true", "network": True})
        assert result.is_error and "opens OLLM Sandbox" in text_of(result)

    run_client(use, person, mode=mode)
    run_client(use, person, "--ask-only-in-window", mode=mode, answer=allow)


@pytest.mark.parametrize("mode", MODES)
def test_mistakes_are_reported_and_the_session_goes_on(person: Person, mode: str) -> None:
    async def use(client: Client) -> None:
        from mcp.shared.exceptions import MCPError

        with pytest.raises(MCPError):
            await client.call_tool("no_such_tool", {})
        for tool, arguments, why in (
            ("run_command", {}, "`command` is missing"),
            ("run_command", {"command": 3.5, "x": 1}, "no parameter `x`"),
            ("run_command", {"command": "ls", "working_dir": "/nowhere"}, "does not exist"),
            ("read_file", {"path": "nothing"}, "nothing"),
            ("show_diff", {"run": "nothing"}, "There is no run"),
            ("undo_run", {"run": ""}, "There is no run"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error and why in text_of(result), text_of(result)
        result = await client.call_tool("run_command", {"command": "echo on"})
        assert "on" in text_of(result)

    run_client(use, person, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_cancelling_kills_the_command(person: Person, mode: str) -> None:
    mark = f"{900_000 + secrets.randbelow(90_000)}.5"

    async def use(client: Client) -> None:
        started = asyncio.Event()

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            if "started" in (message or ""):
                started.set()

        command = {"command": f"echo kept >file; echo started; sleep {mark}"}
        call = asyncio.ensure_future(
            client.call_tool("run_command", command, progress_callback=hear)
        )
        await started.wait()
        assert is_running(mark)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # It is settled before the next command begins.
        result = await client.call_tool("run_command", {"command": "cat file"})
        assert "kept" in text_of(result) and not is_running(mark)

    run_client(use, person, mode=mode)


def test_two_clients_work_at_once_each_in_a_session_of_its_own(person: Person) -> None:
    async def main() -> None:
        async with sdk_client(person, name="one") as one, sdk_client(person, name="two") as two:
            calls = [
                client.call_tool("run_command", {"command": f"echo {name} >{name}; ls"})
                for client, name in ((one, "a"), (two, "b"))
            ]
            results = await asyncio.gather(*calls)
            runs = [(result.structured_content or {})["run_id"] for result in results]
            assert len(set(runs)) == 2
            # Nobody may undo what another one did, unless the user agrees.
            other = await one.call_tool("undo_run", {"run": runs[1]})
            assert other.is_error and "nobody could be asked" in text_of(other)
            assert not (await two.call_tool("undo_run", {"run": runs[1]})).is_error

    asyncio.run(asyncio.wait_for(main(), 120))
    assert (person.project / "a").exists() and not (person.project / "b").exists()
    sessions = json.loads(person.cli("sessions", "list", "--json").stdout)
    titles = {session["title"] for session in sessions}
    assert titles == {"one: echo a >a; ls", "two: echo b >b; ls"}


def test_reading_does_not_wait_for_a_long_command(person: Person) -> None:
    (person.project / "file").write_text("words\n")

    async def use(client: Client) -> None:
        long = asyncio.ensure_future(client.call_tool("run_command", {"command": "sleep 1000"}))
        read = await client.call_tool("read_file", {"path": "file"})
        assert "words" in text_of(read) and not long.done()
        long.cancel()

    run_client(use, person)


def test_a_command_ends_with_its_client_and_its_changes_are_kept(person: Person) -> None:
    mark = f"{900_000 + secrets.randbelow(90_000)}.25"
    with raw_client(person) as client:
        client.initialize()
        arguments = {"command": f"echo kept >file; echo started; sleep {mark}"}
        params = {"name": "run_command", "arguments": arguments, "_meta": {"progressToken": "p"}}
        client.send(id=1, method="tools/call", params=params)
        client.wait_for_output("started")
        assert client.leave() == 0
    assert not is_running(mark)
    assert (person.project / "file").read_text() == "kept\n"
    (session,) = json.loads(person.cli("sessions", "list", "--json").stdout)
    assert session["title"].startswith("raw: echo kept")
