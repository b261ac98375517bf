# SPDX-License-Identifier: GPL-3.0-or-later
"""git works over ssh with the user's ssh-agent, if they allowed it for the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.servers.world import in_world

from ollmsandbox.sandbox.network.ssh import may_pass
from ollmsandbox.sandbox.plan.mounts import ResolverFile
from ollmsandbox.sandbox.plan.resolver import SSH_FOLDER, ssh_files


@pytest.mark.ordinary
def test_git_fetches_and_pushes_with_the_agent(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        from support.servers import world
        repository = serve_ssh(PUBLIC, "www.example.org", "[files.example.org]:2222")
        done = run(
            f"git clone -q tester@www.example.org:{repository} work && cd work && "
            "git -c user.name=me -c user.email=me@x commit -q --allow-empty -m one && "
            f"git push -q ssh://www.example.org{repository} HEAD:main && git fetch -q && "
            "git log -1 --format=%s origin/main; ls -A ~/.ssh; cat /run/ssh/known_hosts",
            ["www.example.org"], ssh_agent=True)
        assert "one\\n" in done.out, done
        # Neither key files nor other known hosts.
        assert "id_ed25519" not in done.out and done.out.count("ssh-ed25519") == 1, done
        assert "www.example.org ssh-ed25519" in done.out, done
        log = subprocess.run(["git", "-C", repository, "log", "--format=%s", "main"],
                             capture_output=True, text=True, check=True)
        assert log.stdout == "one\\n"

        # An alias is resolved outside, and a host that was asked about is known.
        (world._folder / "home" / ".ssh" / "config").write_text(
            "Host work\\n  HostName files.example.org\\n  Port 2222\\n  User tester\\n")
        done = run(f"git ls-remote work:{repository} && echo OK", ["work"], ssh_agent=True)
        assert done.out.endswith("OK\\n"), done
        assert done.uses == {"files.example.org:2222": (True, "")}, done
        done = run(f"git ls-remote www.example.org:{repository} && echo OK",
                   answer=lambda host, port, address: True, ssh_agent=True)
        assert done.out.endswith("OK\\n"), done
        assert asked == [("www.example.org", 22, "")]
        """,
    )


ATTACK = """
import os, socket, sys
for path in sys.argv[1:]:
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            s.sendall(b"\\0\\0\\0\\1\\x0b")
            print("REACHED", path, s.recv(100))
    except OSError as error:
        print(error)
"""


def test_the_agent_is_out_of_reach_without_consent(tmp_path: Path) -> None:
    """The attack: the agent's socket, or that of another run which may use it."""
    in_world(
        tmp_path,
        f"""
        import glob
        from support.servers import world
        from ollmsandbox.paths import Paths
        repository = serve_ssh(PUBLIC, "www.example.org")
        write_script({ATTACK!r})
        os.environ["XDG_RUNTIME_DIR"] = os.getcwd() + "/runtime"
        os.mkdir("runtime", 0o700)
        runtime = Paths.from_environ(os.environ).runtime
        # Left by a program that was killed.
        os.mkdir(runtime / "ssh-old")
        import socket
        os.chdir(runtime / "ssh-old")
        socket.socket(socket.AF_UNIX).bind("agent")
        os.chdir(world._folder)
        program = [sys.executable, "-I", str(ROOT / "build" / "ollmsandbox")]
        first = subprocess.Popen(
            [*program, "run", "--ssh-agent", "--host", "www.example.org", "-c",
             "ssh-add -l && cat"],
            cwd=os.getcwd() + "/project", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert b"ED25519" in first.stdout.readline()
        [theirs] = glob.glob(f"{{runtime}}/ssh-*/agent")
        done = run(
            "env | grep SSH_AUTH; ls /run/ssh; "
            f"python3 script.py {{os.environ['SSH_AUTH_SOCK']}} {{theirs}} /run/ssh/agent; "
            f"git ls-remote www.example.org:{{repository}} || echo FAILED",
            ["www.example.org"])
        assert "REACHED" not in done.out and "SSH_AUTH" not in done.out, done
        assert done.out.endswith("FAILED\\n"), done
        first.stdin.close()
        assert first.wait() == 0
        # Nothing is left of it.
        assert not glob.glob(f"{{runtime}}/ssh-*")
        """,
    )


def test_the_agent_only_logs_in(tmp_path: Path) -> None:
    """The attack: remove or lock the user's keys, load a library, or sign a file."""
    in_world(
        tmp_path,
        """
        serve_ssh(PUBLIC, "www.example.org")
        done = run(
            "ssh-add -l; ssh-add -D; ssh-add -s /usr/lib/libc.so </dev/null; "
            "ssh-add -L >key.pub; echo text >file; "
            "ssh-keygen -Y sign -n git -f key.pub file; ls; "
            "ssh www.example.org echo LOGGED IN",
            ["www.example.org"], ssh_agent=True)
        assert "ED25519" in done.out and "file.sig" not in done.out, done
        assert "LOGGED IN" in done.out, done
        left = subprocess.run(["ssh-add", "-l"], capture_output=True, text=True, check=True)
        assert "ED25519" in left.stdout
        # There has to be a host, and an agent.
        done = cli("run", "--ssh-agent", "--", "true")
        assert done.returncode == 125 and "--host" in done.stderr, done
        os.environ.pop("SSH_AUTH_SOCK")
        done = cli("run", "--ssh-agent", "--host", "www.example.org", "--", "true")
        assert done.returncode == 125 and "There is no ssh-agent." in done.stderr, done
        """,
    )


@pytest.mark.ordinary
@pytest.mark.parametrize(
    ("request_", "passes"),
    [
        (b"\x0b", True),
        (b"\x0b\0", False),
        (b"\x13", False),
        (b"\x14", False),
        (b"\x16", False),
        (b"\x0d", False),
        (b"\x0d\0\0\0\1k\0\0\0\6SSHSIG\0\0\0\0", False),
        (b"\x0d\0\0\0\1k\0\0\0\x06\0\0\0\1s\x32\0\0\0\0", True),
        (b"\x0d\0\0\0\1k\0\0\0\x05\0\0\0\0\x32\0\0\0\0", False),
        (b"\x1b\0\0\0\5query", False),
        (b"\x1b\0\0\0\x18session-bind@openssh.com", True),
    ],
)
def test_requests_that_pass(request_: bytes, passes: bool) -> None:
    assert may_pass(request_) is passes


def test_the_systems_configuration_includes_nothing_inside(tmp_path: Path) -> None:
    file = tmp_path / "etc/ssh/ssh_config"
    file.parent.mkdir(parents=True)
    file.write_bytes(
        b"# Include this, \xff\nInclude /etc/ssh/ssh_config.d/*.conf\n  include more\n"
        b"Host *\n  SendEnv LANG\n"
    )
    _folder, config = ssh_files(tmp_path / "runtime", "1", str(tmp_path))
    assert isinstance(config, ResolverFile)
    expected = f"Include {SSH_FOLDER}/config\n# Include this, \ufffd\nHost *\n  SendEnv LANG\n"
    assert config.text == expected


def test_a_resolver_file_without_its_text_counts_as_missing(tmp_path: Path) -> None:
    file = ResolverFile(tmp_path, "nameserver 198.18.0.1\n", "/etc/resolv.conf")
    assert not file.is_written()
    file.source.parent.mkdir()
    file.source.write_text("")
    assert not file.is_written()
    file.source.write_text(file.text)
    assert file.is_written()
