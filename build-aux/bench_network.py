# SPDX-License-Identifier: GPL-3.0-or-later
"""What access by host costs: a large download through the relay, a new connection, and the sockets
at the start of a command, each against the same without it, in the same run.

The server is in a network namespace of its own: see tests/support/servers/world.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.servers import world  # noqa: E402

from ollmsandbox import loop  # noqa: E402
from ollmsandbox.sandbox.bubble import Bubble  # noqa: E402
from ollmsandbox.sandbox.network.hosts import parse_hosts  # noqa: E402
from ollmsandbox.sandbox.network.network import HostNetwork  # noqa: E402

SIZE = 200_000_000
PORT = 8080
# Of the download, then of connections one after the other; the first is not counted.
CLIENT = """\
import socket, sys, time
host, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
address = socket.gethostbyname(host)
room = bytearray(1 << 20)
def once(wanted):
    start = time.perf_counter()
    with socket.create_connection((address, {port})) as server:
        server.sendall(wanted.to_bytes(8, "big"))
        left = wanted
        while left:
            left -= server.recv_into(room)
    return time.perf_counter() - start
once(1)
print(once(size), sorted(once(1) for _ in range(count))[count // 2])
"""


def serve() -> None:
    """Answer each connection with as many bytes as it asks for."""
    import socket

    listener = socket.create_server((world.PUBLIC, PORT), backlog=100)
    zeros = bytes(1 << 20)
    while True:
        client, _address = listener.accept()
        with client:
            left = int.from_bytes(client.recv(8), "big")
            while left:
                left -= client.send(zeros[: min(left, len(zeros))])


def in_bubble(command: str, hosts: tuple[str, ...]) -> str:
    async def once() -> str:
        network = HostNetwork(parse_hosts(hosts)) if hosts else None
        result = await Bubble(world._folder / "project", hosts=network, timeout=600).exec(command)
        assert result.exit_code == 0, result.stderr.text
        return result.stdout.text

    return loop.run(once())


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def verdict(what: str, value: float, most: float, unit: str = "") -> None:
    reached = "reached" if value <= most else "MISSED"
    print(f"{what}: {value:.2f}{unit}, to reach: {most:.2f}{unit} at most: {reached}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="ollmsandbox-bench-", dir="/var/tmp") as folder:
        os.environ["HOME"] = f"{folder}/home"
        world.enter(folder)
        # A process of its own: it must not share the interpreter with the relay.
        if (server := os.fork()) == 0:
            serve()
        try:
            measure(rounds)
        finally:
            os.kill(server, 9)


def measure(rounds: int) -> None:
    world.write_script(CLIENT.format(port=PORT))
    script = f"{world._folder}/project/script.py"
    downloads, connections, starts = [], [], []
    rule = f"www.example.org:{PORT}"
    for _ in range(rounds):
        direct = subprocess.run(
            ["python3", script, world.PUBLIC, str(SIZE), "100"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        relayed = in_bubble(f"python3 script.py www.example.org {SIZE} 100", (rule,))
        (long, short), (long_relayed, short_relayed) = (
            map(float, text.split()) for text in (direct, relayed)
        )
        downloads.append(long_relayed / long)
        connections.append((short_relayed - short) * 1000)
        for _ in range(4):
            without = timed(lambda: in_bubble("true", ()))
            starts.append((timed(lambda: in_bubble("true", (rule,))) - without) * 1000)
    verdict("200 MB through the relay / direct", statistics.median(downloads), 1.15)
    verdict("a new connection", statistics.median(connections), 3.0, " ms more")
    verdict("the sockets at the start of a command", statistics.median(starts), 10.0, " ms more")


if __name__ == "__main__":
    main()
