# SPDX-License-Identifier: GPL-3.0-or-later
"""browser.py COMMAND...: start the program without a display, with its window in a browser.

GTK's Broadway server draws the window, for whoever reaches it. So it listens on a Unix socket in a
folder of ours, and a proxy on 127.0.0.1 lets only those through who know the token in the printed
address. Other users of this machine, commands with network access and other sites' pages do not.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

_NAMES = ("gtk4-broadwayd", "broadwayd")
_DISPLAY = ":5"
_PATIENCE = 10.0
_PORTS = (8085, 0)  # the usual one, or any
_LONGEST_HEAD = 16 << 10


class Refused(Exception):
    """A request that is not passed on."""


class Proxy:
    def __init__(self, server: Path, port: int, token: str) -> None:
        self._server = str(server)
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._start = f"/{token}/"
        self._is_in_use = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            await self._pass_on(head, reader, writer)
        except Refused as error:
            text = f"{error}\n".encode()
            writer.write(
                b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(text), text)
            )
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
            pass  # not a browser, or it has gone: there is nobody to tell
        finally:
            writer.close()

    async def _pass_on(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, target, version = first.split(" ")
        fields = dict(self._field(line) for line in lines)
        if not hmac.compare_digest(target[: len(self._start)].encode(), self._start.encode()):
            raise Refused("The address lacks its secret part. Copy all of it from the terminal.")
        # Another site's page may have this address under its own name.
        if fields.get("host") not in self._hosts or method != "GET":
            raise Refused("Use the address that the terminal shows.")
        is_window = fields.get("upgrade", "").lower() == "websocket"
        origin = fields.get("origin", "" if is_window else None)
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            raise Refused("Another site's page asked for this.")
        if not is_window:
            # One request for each connection: a browser may use an open one for other sites' pages.
            lines = [line for line in lines if self._field(line)[0] != "connection"]
            lines.append("Connection: close")
        elif self._is_in_use:
            raise Refused("The window is open in another browser or tab. Close it there first.")
        new_head = "\r\n".join(
            [f"{method} /{target[len(self._start) :]} {version}", *lines, "", ""]
        )
        self._is_in_use |= is_window
        try:
            there, to_server = await asyncio.open_unix_connection(self._server)
            try:
                to_server.write(new_head.encode("latin-1"))
                back = asyncio.create_task(copy(there, writer))
                forth = asyncio.create_task(copy(reader, to_server)) if is_window else None
                await asyncio.wait(filter(None, (back, forth)), return_when="FIRST_COMPLETED")
                for task in filter(None, (back, forth)):
                    task.cancel()
            finally:
                to_server.close()
        finally:
            self._is_in_use &= not is_window

    @staticmethod
    def _field(line: str) -> tuple[str, str]:
        name, _, value = line.partition(":")
        return name.strip().lower(), value.strip()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


def listen() -> socket.socket:
    for port in _PORTS:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(("127.0.0.1", port))
        except OSError:
            made.close()
            continue
        made.listen()
        return made
    raise OSError("no free port")


def start_server(program: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start Broadway, and return when it listens."""
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            [program, f"--unixsocket={folder / 'http'}", _DISPLAY],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    end = time.monotonic() + _PATIENCE
    while not (folder / "http").exists():
        if server.poll() is not None or time.monotonic() > end:
            server.kill()
            why = (folder / "log").read_text(errors="replace")
            raise OSError(f"{program} did not start: {why}")
        time.sleep(0.02)
    return server


def serve(program: str, folder: Path, owner: int, told: int) -> None:
    """Serve the window until the owner ends, and then remove the folder."""
    # A signal to all is not for us: without a display the program could not end in order.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    server = None
    with open(told, "w") as pipe:
        try:
            server = start_server(program, folder)
            made, token = listen(), secrets.token_urlsafe(24)
            port = made.getsockname()[1]
            pipe.write(f"http://127.0.0.1:{port}/{token}/")
        except OSError as error:
            pipe.write(str(error))
    try:
        if server is not None:
            asyncio.run(serve_until_end(owner, made, Proxy(folder / "http", port, token)))
            server.kill()
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def serve_until_end(owner: int, made: socket.socket, proxy: Proxy) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(owner, ended.set)
    server = await asyncio.start_server(proxy.serve, sock=made, limit=_LONGEST_HEAD)
    await ended.wait()
    server.close()


def main(command: list[str]) -> NoReturn:
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        print(
            "There is no display, and gtk4-broadwayd is not installed (Debian: libgtk-4-bin).",
            file=sys.stderr,
        )
        sys.exit(1)
    folder = Path(tempfile.mkdtemp())
    # Its sockets go where nobody else can reach them.
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    owner = os.pidfd_open(os.getpid())
    answer, told = os.pipe()
    if os.fork() == 0:
        os.close(answer)
        try:
            serve(program, folder, owner, told)
        finally:
            os._exit(0)
    os.close(told)
    with open(answer) as pipe:
        address = pipe.read()
    if not address.startswith("http:"):
        print(address or "The window's server did not start.", file=sys.stderr)
        sys.exit(1)
    print("There is no display here, so the window is shown in a browser on this machine:")
    print(f"    {address}")
    print("Whoever has this address can use the window. Ctrl+C ends it.", flush=True)
    os.environ.update(GDK_BACKEND="broadway", BROADWAY_DISPLAY=_DISPLAY)
    # In our place, so that it gets the signals and its status is the one that counts.
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
