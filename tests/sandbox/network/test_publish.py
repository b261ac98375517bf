# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of this computer reach the ports of a command that are published, while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.servers.world import in_world

pytestmark = pytest.mark.ordinary

# In the code: a server in the project, and a way to wait until it listens.
SERVE = """
import asyncio, socket, urllib.request
from ollmsandbox import loop
from ollmsandbox.sandbox.bubble import Bubble
from ollmsandbox.sandbox.spec import RunSpec
from support.servers import world

def server(address, port=3000, count=1):
    return f'''
import http.server, socket, sys
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in "{address}" else socket.AF_INET
    request_queue_size = 2048
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"from inside" + b"x" * int(self.path[1:] or 0)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a):
        pass
Server(("{address}", {port}), Handler).serve_forever()
'''

def get(port, path="/", host="127.0.0.1"):
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=20) as page:
        return page.read()

async def with_command(act, command="python3 script.py", publish=(), **more):
    spec = RunSpec(str(world._folder / "project"), timeout=100, publish=publish)
    bubble = Bubble(spec, **more)
    running = asyncio.ensure_future(bubble.exec(command))
    while not bubble.ports.listening():
        assert not running.done(), running.result()
        await asyncio.sleep(0.01)
    try:
        return await act(bubble)
    finally:
        bubble.stop()
        await running
"""


def publish_in_world(tmp_path: Path, code: str) -> None:
    in_world(tmp_path, f"exec({SERVE!r})\n{code}")


def test_a_published_port_leads_to_the_command(tmp_path: Path) -> None:
    """Without any network. The attack: a command that listens on all addresses is not open to the
    network."""
    publish_in_world(
        tmp_path,
        """
async def act(bubble):
    [one] = bubble.ports.published
    assert one.host_port == 3000 and one.url == "http://localhost:3000"
    for host in ("127.0.0.1", "[::1]", "localhost"):
        assert await asyncio.to_thread(get, 3000, "/", host) == b"from inside"
    for address in (PUBLIC, PRIVATE):
        assert socket.socket().connect_ex((address, 3000)) != 0
    places = {line.split()[1] for name in ("tcp", "tcp6")
              for line in open(f"/proc/self/net/{name}") if line.split()[1].endswith(":0BB8")
              and line.split()[3] == "0A"}
    assert places == {"0100007F:0BB8", "00000000000000000000000001000000:0BB8"}, places
for address in ("127.0.0.1", "0.0.0.0", "::1", "::"):
    write_script(server(address))
    loop.run(with_command(act, publish=(3000,)))
    # It is closed together with the command.
    assert socket.socket().connect_ex(("127.0.0.1", 3000)) != 0
""",
    )


def test_a_port_is_published_while_the_command_runs(tmp_path: Path) -> None:
    publish_in_world(
        tmp_path,
        """
from ollmsandbox.sandbox.network.hosts import parse_hosts
from ollmsandbox.sandbox.network.network import HostNetwork
write_script(server("127.0.0.1", 8443))
async def act(bubble):
    assert bubble.ports.listening() == [8443]
    # Nothing is open before the user asked for it.
    assert socket.socket().connect_ex(("127.0.0.1", 8443)) != 0
    one = bubble.ports.publish(8443)
    assert bubble.ports.publish(8443) is one
    assert await asyncio.to_thread(get, one.host_port) == b"from inside"
    return bubble
bubble = loop.run(with_command(act))
assert bubble.ports.listening() == []
try:
    raise AssertionError(bubble.ports.publish(8443))
except Exception as error:
    assert "ended" in str(error), error
assert socket.socket().connect_ex(("127.0.0.1", 8443)) != 0

# Our own listener for that port is not the command's.
hosts = HostNetwork(parse_hosts(["www.example.org:8443", "localhost:5432"]))
loop.run(with_command(act, hosts=hosts))
""",
    )


def test_another_run_does_not_reach_the_port(tmp_path: Path) -> None:
    """The attack: one run's published port, used by another run."""
    publish_in_world(
        tmp_path,
        """
from ollmsandbox.sandbox.network.hosts import parse_hosts
from ollmsandbox.sandbox.network.network import HostNetwork
write_script(server("127.0.0.1"))
async def act(bubble):
    assert await asyncio.to_thread(get, 3000) == b"from inside"
    for rules in ([], ["*.example.org:3000", "www.example.org:3000", "evil.example.org:3000"]):
        hosts = HostNetwork(parse_hosts(rules)) if rules else None
        other = Bubble(RunSpec(str(world._folder / "project"), timeout=60), hosts=hosts)
        result = await other.exec(
            "for host in 127.0.0.1 localhost 0.0.0.0 [::1] evil.example.org www.example.org; do "
            "curl -gsS -m 5 http://$host:3000/; done; true"
        )
        assert "from inside" not in result.stdout.text, result
loop.run(with_command(act, publish=(3000,)))
""",
    )


def test_a_port_in_use_becomes_another_and_one_where_nobody_listens_refuses(tmp_path: Path) -> None:
    publish_in_world(
        tmp_path,
        """
write_script(server("127.0.0.1"))
taken = socket.create_server(("127.0.0.1", 3000))
async def act(bubble):
    used, silent = bubble.ports.published
    assert used.host_port not in (0, 3000) and silent.host_port == 3001
    assert await asyncio.to_thread(get, used.host_port) == b"from inside"
    with socket.create_connection(("127.0.0.1", 3001)) as one:
        one.settimeout(20)
        try:
            assert await asyncio.to_thread(one.recv, 1) == b""
        except ConnectionResetError:
            pass
loop.run(with_command(act, publish=(3000, 3001)))
""",
    )


def test_many_connections_and_large_answers(tmp_path: Path) -> None:
    publish_in_world(
        tmp_path,
        """
import os, threading
from concurrent.futures import ThreadPoolExecutor
write_script(server("127.0.0.1"))
async def act(bubble):
    def work():
        silent = [socket.create_connection(("127.0.0.1", 3000)) for _ in range(300)]
        with ThreadPoolExecutor(20) as pool:
            assert set(pool.map(lambda _: get(3000), range(200))) == {b"from inside"}
        assert len(get(3000, "/30000000")) == 30000011
        for one in silent:
            one.close()
    await asyncio.to_thread(work)
before = len(os.listdir("/proc/self/fd"))
loop.run(with_command(act, publish=(3000,)))
assert not [t for t in threading.enumerate() if t.name.startswith("published")]
after = len(os.listdir("/proc/self/fd"))
# The starter, and the loop's own.
assert after < before + 10, (before, after)
""",
    )
