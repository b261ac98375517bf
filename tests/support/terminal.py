# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the command line at a real terminal, with a scripted model server."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import struct
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from support.person import Person
from support.servers.http import Answer, Part, Replay, Reply, Stall
from support.timing import PATIENCE

CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"


class Terminal:
    """A program at a terminal. `expect` continues where the last one ended."""

    def __init__(
        self,
        person: Person,
        *arguments: str,
        rows: int = 40,
        columns: int = 100,
        typed_before: str = "",
    ) -> None:
        person._copy_probe()
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environ = {**person.environ, "TERM": "xterm", "PS1": "$"}
        environ.pop("NO_COLOR", None)
        self.send(typed_before)
        self._process = replace(person, environ=environ).start(
            *arguments, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self._raw = b""
        self._at = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    @property
    def text(self) -> str:
        """Return all that was printed."""
        return self._raw.decode("utf-8", "replace").replace("\r\n", "\n")

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, wanted: str) -> str:
        """Wait until it was printed; return what came before it."""
        give_up = time.monotonic() + PATIENCE
        while (at := self.text.find(wanted, self._at)) < 0:
            if time.monotonic() > give_up or not self._read(give_up):
                raise AssertionError(f"{wanted!r} did not come; there was:\n{self.text}")
        before = self.text[self._at : at]
        self._at = at + len(wanted)
        return before

    def wait_for(self, happened: Callable[[], object]) -> None:
        give_up = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < give_up, self.text
            time.sleep(0.02)

    def send_until_end(self, key: str) -> int:
        """Send it again and again until the program has ended."""
        give_up = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < give_up:
            with contextlib.suppress(OSError):  # it has just closed the terminal
                self.send(key)
            # Not at once: Ctrl+C throws away what is on its way to the screen.
            pause = time.monotonic() + 1
            while self._process.poll() is None and time.monotonic() < pause:
                self._read(pause)
        return self.end()

    def end(self) -> int:
        """Wait for the program's end; return its status."""
        give_up = time.monotonic() + PATIENCE
        while self._read(give_up):
            pass
        return self._process.wait(PATIENCE)

    def _read(self, give_up: float) -> bool:
        while time.monotonic() < give_up:
            if not select.select([self._master], [], [], 0.2)[0]:
                if self._process.poll() is not None:
                    return False
                continue
            with contextlib.suppress(OSError):
                if data := os.read(self._master, 1 << 16):
                    self._raw += data
                    return True
            return False  # everybody has closed it
        return False


def call_part(name: str, id: str = "1", **arguments: object) -> bytes:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": id, "type": "function", "function": function}
    return _event({"tool_calls": [call]})


def reply(*parts: str | bytes | Part) -> Reply:
    """Return a reply with text, calls and other fields."""
    sent: list[Part] = [_event({"content": p}) if isinstance(p, str) else p for p in parts]
    if not any(isinstance(part, Stall) for part in sent):
        sent.append(b"data: [DONE]\n\n")
    return Reply(tuple(sent), headers={"Content-Type": "text/event-stream"})


def run_command(command: str, id: str = "1", **more: object) -> Reply:
    return reply(call_part("run_command", id, command=command, **more))


@contextlib.contextmanager
def model_server(person: Person, replies: Sequence[Reply]) -> Iterator[Replay]:
    """Run a model server that the user's settings name."""
    models = json.dumps({"data": [{"id": "played", "max_model_len": 100_000}]}).encode()
    routes: dict[str, Answer | Sequence[Answer]] = {
        "/v1/models": Reply((models,), headers={"Content-Type": "application/json"}),
        "/v1/chat/completions": list(replies),
    }
    with Replay(routes) as server:
        file = person.paths.config / "connections.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            "connections:\n"
            f"  test:\n    kind: openai\n    address: {server.address}/v1\n    model: played\n"
        )
        yield server


def _event(delta: dict[str, object]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"
