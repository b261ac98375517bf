# SPDX-License-Identifier: GPL-3.0-or-later
"""What access by host costs: a large download through the relay, a new connection, and the sockets
at the start of a command, each against the same without it, in the same run.

The server is in a network namespace of its own: see tests/support/servers/world.py.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "build-aux")]

import figures  # noqa: E402
from figures import Took  # noqa: E402
from support.servers import world  # noqa: E402

from ollmsandbox import loop  # noqa: E402
from ollmsandbox.sandbox.bubble import Bubble  # noqa: E402
from ollmsandbox.sandbox.network.hosts import parse_hosts  # noqa: E402
from ollmsandbox.sandbox.network.network import HostNetwork  # noqa: E402
from ollmsandbox.sandbox.spec import RunSpec  # noqa: E402

SIZE = 200_000_000
PORT = 8080
# Bytes per second that a fast connection to the internet has.
GIGABIT = 125_000_000
SO_MAX_PACING_RATE = 47
# Of the download, then as fast as a network is, then of connections one after the other; the first
# is not counted.
CLIENT = """\
import socket, sys, time
host, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
address = socket.gethostbyname(host)
room = bytearray(1 << 20)
def once(wanted, rate=0):
    start = time.perf_counter()
    with socket.create_connection((address, {port})) as server:
        server.sendall(wanted.to_bytes(8, "big") + rate.to_bytes(8, "big"))
        left = wanted
        while left:
            left -= server.recv_into(room)
    return time.perf_counter() - start
once(1)
print(once(size), once(size, {rate}), sorted(once(1) for _ in range(count))[count // 2])
"""


def serve() -> None:
    """Answer each connection with as many bytes as it asks for, as fast as it asks for."""
    import socket

    listener = socket.create_server((world.PUBLIC, PORT), backlog=100)
    zeros = bytes(1 << 20)
    while True:
        client, _address = listener.accept()
        with client:
            asked = client.recv(16)
            left, rate = int.from_bytes(asked[:8], "big"), int.from_bytes(asked[8:], "big")
            if rate:
                client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, rate)
            while left:
                left -= client.send(zeros[: min(left, len(zeros))])


def in_bubble(command: str, hosts: tuple[str, ...], *, everything: bool = False) -> str:
    async def once() -> str:
        network = HostNetwork(parse_hosts(hosts)) if hosts else None
        spec = RunSpec(str(world._folder / "project"), network=everything, timeout=600)
        bubble = Bubble(spec, hosts=network)
        result = await bubble.exec(command)
        assert result.exit_code == 0, result.stderr.text
        return result.stdout.text

    return loop.run(once())


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
    world.write_script(CLIENT.format(port=PORT, rate=GIGABIT))
    script = f"{world._folder}/project/script.py"
    times: dict[str, list[Took]] = {}
    rule = f"www.example.org:{PORT}"

    def note(name: str, start: Took) -> None:
        times.setdefault(name, []).append(Took.now().since(start))

    for _ in range(rounds):
        # The client tells the time of the clock; the processor's is that of client and relay.
        start = Took.now()
        direct = subprocess.run(
            ["python3", script, world.PUBLIC, str(SIZE), "100"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        used = Took.now().since(start).cpu
        start = Took.now()
        relayed = in_bubble(f"python3 script.py www.example.org {SIZE} 100", (rule,))
        used_relayed = Took.now().since(start).cpu
        for text, kind, cpu in ((direct, "direct", used), (relayed, "relayed", used_relayed)):
            long, paced, short = map(float, text.split())
            times.setdefault(f"download, {kind}", []).append(Took(long, cpu))
            times.setdefault(f"gigabit, {kind}", []).append(Took(paced, 0))
            times.setdefault(f"connection, {kind}", []).append(Took(short, 0))
        for _ in range(4):
            start = Took.now()
            in_bubble("true", ())
            note("start, without", start)
            start = Took.now()
            in_bubble("true", (), everything=True)
            note("start, with everything", start)
            start = Took.now()
            in_bubble("true", (rule,))
            note("start, with hosts", start)
    found = {name: figures.median(values) for name, values in times.items()}
    what = f"{SIZE // 1_000_000} MB through the relay"
    figures.rows(what, found["download, relayed"], "direct", found["download, direct"], wall=1.15)
    slow, usual = found["gigabit, relayed"], found["gigabit, direct"]
    figures.rows(f"{what}, at 1 Gbit/s", slow, "direct", usual, wall=1.15)
    for what, ours, other, theirs, allowed in (
        ("a new connection", "connection, relayed", "direct", "connection, direct", 0.003),
        ("start with --host", "start, with hosts", "without", "start, without", None),
        # With the same folders and variables, but without sockets.
        ("start with --host", "start, with hosts", "--network=all", "start, with everything", 0.01),
    ):
        plain = found[theirs].wall
        most = None if allowed is None else (plain + allowed) / plain
        figures.row(what, "wall", found[ours].wall, other, plain, most)


if __name__ == "__main__":
    main()
