# SPDX-License-Identifier: GPL-3.0-or-later
"""A command that misuses its network does not stop the relay, and a relay that ends stops nothing
else. See also test_many_connections_garbage_and_silence."""

from __future__ import annotations

from pathlib import Path

from support.servers.world import in_world

GARBAGE = """
import random, socket
random.seed(1)
sent = 0
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    while sent < 5_000_000:
        sent += udp.sendto(random.randbytes(random.randrange(1, 1400)), ("198.18.0.1", 53))
print(socket.gethostbyname("www.example.org").startswith("198.18."))
"""


def test_names_are_answered_after_5_mb_of_garbage(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        f"""
        write_script({GARBAGE!r})
        done = run("python3 script.py && curl -sS http://www.example.org/", ["www.example.org"],
                   timeout=300)
        assert done.out.startswith("True\\n") and "hello" in done.out, done
        """,
    )


def test_a_host_that_never_answers_stops_nobody_else(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        import socket, threading
        # A queue that is full: the kernel drops what else arrives.
        full = socket.socket()
        full.bind((OTHER, 8443))
        full.listen(0)
        for _ in range(3):
            waiting = socket.socket()
            waiting.setblocking(False)
            waiting.connect_ex((OTHER, 8443))
        done = run("curl -sS -m 100 http://other.example.org:8443/ & "
                   "curl -sS http://www.example.org/",
                   ["other.example.org:8443", "www.example.org"])
        assert "hello from 203.0.113.5" in done.out, done
        # The command ended, and nobody waits for the other host.
        assert done.uses["other.example.org:8443"][0], done
        assert not [t for t in threading.enumerate() if t.name == "relay"]
        """,
    )


def test_a_relay_that_fails_closes_its_connections_and_the_command_goes_on(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        import threading
        from ollmsandbox.sandbox.network import relay
        failures = []
        threading.excepthook = failures.append
        def fail(*_arguments):
            raise RuntimeError
        relay.Relay._begin_to_carry = fail
        done = run("curl -sS -m 50 http://www.example.org/; curl -sS -m 50 http://www.example.org/;"
                   " echo END", ["www.example.org"])
        assert done.out == "END\\n" and done.code == 0, done
        assert len(failures) == 1
        """,
    )


def test_nothing_is_left_of_a_program_that_is_killed(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        import signal, socket
        slow = socket.create_server((PUBLIC, 8888))
        inside = "import socket; s = socket.create_connection(('www.example.org', 8888)); s.recv(1)"
        program = [sys.executable, "-I", str(ROOT / "build" / "ollmsandbox")]
        one = subprocess.Popen(
            [*program, "run", "--host", "www.example.org:8888", "--publish", "3000", "--",
             "python3", "-c", inside], cwd=os.getcwd() + "/project")
        slow.settimeout(PATIENCE)
        client, _address = slow.accept()
        with socket.create_connection(("127.0.0.1", 3000)):
            one.send_signal(signal.SIGKILL)
            one.wait()
        client.settimeout(60)
        assert client.recv(1) == b""
        assert socket.socket().connect_ex(("127.0.0.1", 3000)) != 0
        """,
    )


# Ends its own side, and reads when the server has long ended its own, too.
SLOW = """
import socket, time
s = socket.create_connection(("www.example.org", 8888))
s.sendall(b"all")
s.shutdown(socket.SHUT_WR)
time.sleep(1)
size = 0
while part := s.recv(1 << 16):
    size += len(part)
    time.sleep(0.001)
print(size)
"""
BROKEN_OFF = """
import socket
s = socket.create_connection(("www.example.org", 8888))
s.sendall(b"break")
size = 0
try:
    while part := s.recv(1 << 16):
        size += len(part)
    print(size, "complete")
except ConnectionResetError:
    print(size, "broken off")
"""
# Sends more than the server reads before it answers.
REFUSED = """
import socket
s = socket.create_connection(("www.example.org", 8888))
try:
    s.sendall(b"refuse" + bytes(4_000_000))
except OSError:
    pass
print(s.recv(100).decode())
"""
# One connection after the other breaks off in the middle, while another gets what is its own.
BESIDE = """
import socket, struct, threading
def break_off():
    for _ in range(40):
        with socket.create_connection(("www.example.org", 8888)) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.sendall(b"all")
            s.shutdown(socket.SHUT_WR)
            s.recv(1000)
breaking = [threading.Thread(target=break_off) for _ in range(3)]
for thread in breaking:
    thread.start()
with socket.create_connection(("www.example.org", 8888)) as s:
    s.sendall(b"letter")
    found = b"".join(iter(lambda: s.recv(1 << 16), b""))
print(len(found), set(found) == set(b"letter"), found[:12].decode())
for thread in breaking:
    thread.join()
"""


def test_the_end_of_a_connection_is_the_server_s(tmp_path: Path) -> None:
    """A slow reader gets everything and nobody else's, what was broken off does not look complete,
    and an answer before the end of the request arrives."""
    in_world(
        tmp_path,
        f"""
        import contextlib, socket, threading, time
        def answer(client):
            with client, contextlib.suppress(ConnectionError):
                said = client.recv(6)
                if said == b"all":
                    client.recv(1)
                    client.sendall(bytes(6_000_000))
                elif said == b"letter":
                    client.sendall(said * 1_000_000)
                elif said == b"refuse":
                    client.sendall(b"too large")
                else:
                    client.sendall(bytes(5_000))
                    time.sleep(0.3)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        def serve():
            listener = socket.create_server((PUBLIC, 8888))
            while True:
                client, _address = listener.accept()
                threading.Thread(target=answer, args=(client,), daemon=True).start()
        threading.Thread(target=serve, daemon=True).start()
        for script, out in (({SLOW!r}, "6000000"), ({BROKEN_OFF!r}, "5000 broken off"),
                            ({REFUSED!r}, "too large"), ({BESIDE!r}, "6000000 True letterletter")):
            write_script(script)
            done = run("python3 script.py", ["www.example.org:8888"])
            assert done.out == out + "\\n", done
        """,
    )
