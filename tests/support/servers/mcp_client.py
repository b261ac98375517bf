# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients of `ollmsandbox mcp`: that of the protocol's own SDK, which checks what it gets by the
published schema of the revision, and one that sends any line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from support.cli_server import Started, server
from support.person import Person, cli_argv

# To load it takes as long as to collect half of all tests.
if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, ElicitResult

# The SDK uses the handshake of 2025-11-25, or finds out that there is a newer revision.
MODES = ("legacy", "auto")

Answer = Callable[[str], "ElicitResult"]


@contextlib.asynccontextmanager
async def sdk_client(
    person: Person,
    *options: str,
    mode: str = "legacy",
    answer: Answer | None = None,
    name: str = "test agent",
) -> AsyncIterator[Client]:
    """Start a server, and connect to it. `answer` plays the user of the client: it gets the
    question. Without it, the client cannot ask."""
    from mcp import Client, StdioServerParameters
    from mcp_types import Implementation

    person.capabilities()
    argv = cli_argv("mcp", "--project", str(person.project), *options)
    started = StdioServerParameters(command=argv[0], args=argv[1:], env=person.environ, cwd="/")

    async def elicit(_context: Any, params: Any) -> ElicitResult:
        assert answer is not None
        return answer(params.message)

    info = Implementation(name=name, version="1")
    callback: Any = elicit if answer is not None else None
    async with Client(
        started, mode=mode, elicitation_callback=callback, client_info=info
    ) as client:
        yield client


def run_client(
    use: Callable[[Client], Awaitable[None]], person: Person, *options: str, **more: Any
) -> None:
    """Connect to a new server, use it, and disconnect."""

    async def main() -> None:
        async with sdk_client(person, *options, **more) as client:
            await use(client)

    asyncio.run(asyncio.wait_for(main(), 120))


def text_of(result: CallToolResult) -> str:
    """Return the text of a result."""
    from mcp_types import TextContent

    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


def accept(answer: str) -> ElicitResult:
    from mcp_types import ElicitResult

    return ElicitResult(action="accept", content={"answer": answer})


def allow(_question: str) -> ElicitResult:
    return accept("allow")


def deny(_question: str) -> ElicitResult:
    return accept("deny")


class RawClient:
    """Sends any line to a server, and reads what it answers."""

    def __init__(self, process: Started | subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process = process
        self._stdin, self._stdout = process.stdin, process.stdout

    def send_line(self, line: bytes) -> None:
        self._stdin.write(line + b"\n")
        self._stdin.flush()

    def send(self, **message: object) -> None:
        self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def receive(self) -> dict[str, Any]:
        found = json.loads(self._stdout.readline())
        assert isinstance(found, dict) and found["jsonrpc"] == "2.0"
        return found

    def ask(self, id_: object, method: str, **params: object) -> dict[str, Any]:
        """Send a request, and return its answer; what comes before that is dropped."""
        self.send(id=id_, method=method, params=params)
        while (answer := self.receive()).get("id") != id_:
            pass
        return answer

    def initialize(self, revision: str = "2025-11-25", **capabilities: object) -> dict[str, Any]:
        info = {"name": "raw", "version": "1"}
        params = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": info}
        answer = self.ask("first", "initialize", **params)
        self.send(method="notifications/initialized")
        return answer

    def wait_for_output(self, text: str) -> None:
        """Wait until the progress of a call shows a text."""
        while True:
            message = self.receive()
            if message.get("method") == "notifications/progress" and text in str(message["params"]):
                return

    def leave(self) -> int:
        """Close the pipes, as the death of a client does; return the server's exit status."""
        self._stdin.close()
        self._stdout.close()
        return self.process.wait(60)


@contextlib.contextmanager
def raw_client(person: Person, *options: str, is_new: bool = False) -> Iterator[RawClient]:
    """Start a server, in a new Python process if that is what counts."""
    person.capabilities()
    words = ("mcp", "--project", str(person.project), *options)
    process: Started | subprocess.Popen[bytes]
    if is_new:
        process = subprocess.Popen(
            cli_argv(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=person.environ,
            cwd="/",
        )
    else:
        process = server().start(words, "/", person.environ, stdin=subprocess.PIPE, stderr=2)
    try:
        yield RawClient(process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def is_running(mark: str) -> bool:
    """Return whether a process has this word in its command line."""
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            if mark.encode() in file.read().split(b"\0"):
                return True
    return False
