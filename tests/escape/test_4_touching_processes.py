# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to see, signal, read or slow down programs outside, or to type into a terminal."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack import IS_ROOT, NUMBERS, attempt, python, refusal, works_outside
from conftest import Person, cli_argv

SECRET = "correct horse battery staple"

# It lets anybody debug it, so that only the wall is in the way.
VICTIM = """
import ctypes, sys, time
secret = ctypes.create_string_buffer(sys.argv[1].encode())
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)
ctypes.CDLL(None).prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)
print(ctypes.addressof(secret), flush=True)
time.sleep(120)
"""

libc = ctypes.CDLL(None, use_errno=True)


class Victim:
    def __init__(self, process: subprocess.Popen[str], address: int) -> None:
        self.process = process
        self.pid = process.pid
        self.address = address

    def fill(self, code: str) -> str:
        """`PID` and `ADDRESS` in the code become the victim's."""
        return (
            textwrap.dedent(code)
            .replace("PID", str(self.pid))
            .replace("ADDRESS", str(self.address))
        )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


@pytest.fixture
def victim() -> Iterator[Victim]:
    """A program of the person's that minds its own business."""
    argv = ["/usr/bin/python3", "-IS", "-c", VICTIM, SECRET]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            yield Victim(process, int(process.stdout.readline()))
        finally:
            process.kill()


def _debuggers_allowed() -> bool:
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except FileNotFoundError:
        return True
    return scope < (3 if IS_ROOT else 2)


# Signals.

SIGNALS = {
    "kill": "os.kill(PID, signal.SIGKILL)",
    "kill of the group": "os.killpg(PID, signal.SIGKILL)",
    "tgkill": "call('tgkill', PID, PID, int(signal.SIGKILL))",
    "sigqueue": """
        info = ctypes.create_string_buffer(struct.pack('iii', signal.SIGTERM, 0, -1), 128)
        call('rt_sigqueueinfo', PID, int(signal.SIGTERM), info)
        """,
    "pidfd": "signal.pidfd_send_signal(os.pidfd_open(PID), signal.SIGKILL)",
    "pidfd from /proc": """
        fd = os.open('/proc/PID', os.O_RDONLY | os.O_DIRECTORY)
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        """,
    "owner of a pipe": """
        reader, writer = os.pipe()
        fcntl.fcntl(reader, fcntl.F_SETOWN, PID)
        F_SETSIG = 10
        fcntl.fcntl(reader, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
        os.write(writer, b'x')
        """,
}


@pytest.mark.parametrize("how", SIGNALS)
def test_killing_a_program_outside(person: Person, victim: Victim, how: str) -> None:
    attack = attempt(victim.fill(SIGNALS[how]))
    assert refusal(person, attack) in ("ESRCH", "ENOENT", "EINVAL")
    time.sleep(0.01)
    assert victim.alive
    assert works_outside(person, attack)
    victim.process.wait(10)


@pytest.mark.parametrize("target", [-1, 0, "-os.getpgid(0)", "-os.getsid(0)"])
def test_killing_everything_there_is(person: Person, victim: Victim, target: object) -> None:
    # Not tried outside.
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        person.run(python(f"os.kill({target}, signal.SIGKILL)"))
        assert victim.alive
        assert bystander.poll() is None
        assert person.run("echo still here").stdout.text == "still here\n"
    finally:
        bystander.kill()
        bystander.wait()


def test_killing_by_trying_all_numbers(person: Person, victim: Victim) -> None:
    result = person.run(
        python(f"""
        killed = 0
        for pid in range(100, max(40000, {victim.pid} + 100)):
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
        print(killed)
        """)
    )
    assert result.stdout.text == "0\n"
    assert victim.alive


def test_stopping_whoever_started_the_command(person: Person) -> None:
    attack = "kill -STOP $PPID; kill -KILL $PPID; kill -STOP 1; kill -KILL 1; echo still here"
    started = time.monotonic()
    done = person.cli("run", "-c", f"sh -c '{attack}'")
    assert time.monotonic() - started < 30
    # Its own shell is dead, the program around it is not.
    assert done.returncode == 137
    assert "Traceback" not in done.stderr


# Looking.


def test_programs_outside_are_not_seen(person: Person, victim: Victim) -> None:
    attack = "ls /proc; cat /proc/[0-9]*/cmdline"
    seen = person.run(attack).stdout.text
    assert SECRET not in seen
    pids = [int(line) for line in seen.splitlines() if line.isdigit()]
    # The first process, the shell and what that starts.
    assert 1 in pids
    assert len(pids) <= 4
    assert SECRET in person.run_outside(attack).stdout


@pytest.mark.parametrize("what", ["environ", "cmdline", "maps", "root/etc/passwd", "fd", "stat"])
def test_files_of_a_program_outside(person: Person, victim: Victim, what: str) -> None:
    attack = f"cat /proc/{victim.pid}/{what} || ls /proc/{victim.pid}/{what}"
    result = person.run(attack)
    assert result.stdout.text == ""
    assert result.exit_code != 0
    assert person.run_outside(attack).stdout


DEBUGGERS = {
    "ptrace attach": """
        PTRACE_ATTACH, PTRACE_DETACH = 16, 17
        call('ptrace', PTRACE_ATTACH, PID, 0, 0)
        os.waitpid(PID, 0x40000000)
        call('ptrace', PTRACE_DETACH, PID, 0, 0)
        """,
    "ptrace seize": "call('ptrace', 0x4206, PID, 0, 0)",
    "reading its memory": """
        with open('/proc/PID/mem', 'rb', 0) as file:
            file.seek(ADDRESS)
            print(file.read(28))
        """,
    "writing its memory": """
        with open('/proc/PID/mem', 'r+b', 0) as file:
            file.seek(ADDRESS)
            file.write(b'evil')
        """,
    "process_vm_readv": """
        buffer = ctypes.create_string_buffer(28)
        here = struct.pack('PN', ctypes.addressof(buffer), 28)
        call('process_vm_readv', PID, here, 1, struct.pack('PN', ADDRESS, 28), 1, 0)
        print(buffer.value)
        """,
    "process_vm_writev": """
        buffer = ctypes.create_string_buffer(b'evil')
        here = struct.pack('PN', ctypes.addressof(buffer), 4)
        call('process_vm_writev', PID, here, 1, struct.pack('PN', ADDRESS, 4), 1, 0)
        """,
    "taking its descriptor": "call('pidfd_getfd', os.pidfd_open(PID), 1, 0)",
}


@pytest.mark.parametrize("profile", ["standard", "strict"])
@pytest.mark.parametrize("how", DEBUGGERS)
def test_debugging_a_program_outside(
    person: Person, victim: Victim, how: str, profile: str
) -> None:
    attack = attempt(victim.fill(DEBUGGERS[how]))
    assert refusal(person, attack, profile=profile) in ("ESRCH", "ENOENT", "EINVAL", "EPERM")
    assert victim.alive
    if _debuggers_allowed():
        assert works_outside(person, attack)


# Making others slower.

CHANGES = {
    "priority": ("os.setpriority(os.PRIO_PROCESS, PID, 10)", "nice"),
    "priority of the group": ("os.setpriority(os.PRIO_PGRP, PID, 10)", "nice"),
    "disk priority": ("call('ioprio_set', 1, PID, 3 << 13)", "disk"),
    "disk priority of the group": ("call('ioprio_set', 2, PID, 3 << 13)", "disk"),
    "scheduler": ("os.sched_setscheduler(PID, os.SCHED_BATCH, os.sched_param(0))", "scheduler"),
    "processor": ("os.sched_setaffinity(PID, [min(os.sched_getaffinity(0))])", "processors"),
    "limits": (
        "import resource; resource.prlimit(PID, resource.RLIMIT_FSIZE, (0, 0))",
        "limits",
    ),
    "memory killer": ("open('/proc/PID/oom_score_adj', 'w').write('1000')", "killer"),
}


def settings(pid: int) -> dict[str, object]:
    return {
        "nice": os.getpriority(os.PRIO_PROCESS, pid),
        "disk": libc.syscall(NUMBERS["ioprio_get"], 1, pid),
        "scheduler": os.sched_getscheduler(pid),
        "processors": os.sched_getaffinity(pid),
        "limits": Path(f"/proc/{pid}/limits").read_text(),
        "killer": Path(f"/proc/{pid}/oom_score_adj").read_text(),
    }


@pytest.mark.parametrize("change", CHANGES)
def test_changing_how_a_program_outside_runs(person: Person, victim: Victim, change: str) -> None:
    code, setting = CHANGES[change]
    before = settings(victim.pid)
    attack = attempt(victim.fill(code))
    assert refusal(person, attack) in ("ESRCH", "ENOENT")
    assert settings(victim.pid) == before
    assert works_outside(person, attack)
    if setting != "processors" or len(os.sched_getaffinity(0)) > 1:
        assert settings(victim.pid)[setting] != before[setting]


@pytest.mark.parametrize(
    "code",
    [
        "os.setpriority(os.PRIO_USER, os.getuid(), 10)",
        "os.setpriority(os.PRIO_USER, 0, 10)",
        "os.setpriority(os.PRIO_PGRP, 0, 10)",
        "call('ioprio_set', 3, os.getuid(), 3 << 13)",
    ],
)
def test_changing_how_all_programs_of_the_person_run(
    person: Person, victim: Victim, code: str
) -> None:
    # Not tried outside. Inside it works, for the command's own programs.
    before = settings(victim.pid), settings(os.getpid())
    person.run(attempt(code))
    assert (settings(victim.pid), settings(os.getpid())) == before


def test_locking_a_file_of_the_person(person: Person) -> None:
    file = person.home / "database"
    file.touch()
    attack = attempt(f"""
        fd = os.open('{file}', os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        """)
    with file.open() as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        # It gets a lock, but of something else.
        assert refusal(person, attack) == ""
        assert not works_outside(person, attack)


# Memory and messages shared between programs.


@pytest.fixture
def key() -> int:
    return 0x6F6C0000 | os.getpid() & 0xFFFF


SHARED = {
    "memory": ("shmget", "call('shmget', KEY, 0, 0)", (4096, 0o1600), "shmctl"),
    "semaphores": ("semget", "call('semget', KEY, 0, 0)", (1, 0o1600), "semctl"),
    "messages": ("msgget", "call('msgget', KEY, 0)", (0o1600,), "msgctl"),
}


@pytest.mark.parametrize("what", SHARED)
def test_system_v(person: Person, key: int, what: str) -> None:
    create, code, arguments, control = SHARED[what]
    number = libc.syscall(NUMBERS[create], key, *arguments)
    assert number >= 0
    try:
        attack = attempt(code.replace("KEY", str(key)))
        assert refusal(person, attack) == "ENOENT"
        assert works_outside(person, attack)
        listing = "cut -c1-11 /proc/sysvipc/* | sort -u"
        assert str(key) not in person.run(listing).stdout.text
        assert str(key) in person.run_outside(listing).stdout
    finally:
        remove = (number, 0, 0) if control == "semctl" else (number, 0, None)
        assert getattr(libc, control)(*remove) == 0


def test_shared_memory_by_its_number(person: Person, key: int) -> None:
    number = libc.syscall(NUMBERS["shmget"], key, 4096, 0o1600)
    try:
        attack = attempt(f"call('shmat', {number}, 0, 0)")
        assert refusal(person, attack) == "EINVAL"
        assert works_outside(person, attack)
    finally:
        libc.shmctl(number, 0, None)


def test_message_queues(person: Person) -> None:
    name = f"evil-{os.getpid()}".encode()
    queue = libc.syscall(NUMBERS["mq_open"], name, os.O_CREAT | os.O_RDWR, 0o600, None)
    assert queue >= 0
    try:
        attack = attempt(f"call('mq_open', {name!r}, os.O_RDWR, 0, None)")
        assert refusal(person, attack) == "ENOENT"
        assert works_outside(person, attack)
    finally:
        os.close(queue)
        assert libc.mq_unlink(b"/" + name) == 0


def test_posix_shared_memory(person: Person) -> None:
    file = Path("/dev/shm", f"evil-{os.getpid()}")
    file.write_text("mine")
    try:
        attack = attempt(f"open('{file}', 'r+').write('evil')")
        assert refusal(person, attack) == "ENOENT"
        assert person.run(f"echo evil > {file}").exit_code == 0
        assert file.read_text() == "mine"
        assert works_outside(person, attack)
    finally:
        file.unlink()


KEYRINGS = {
    "adding": "call('add_key', b'user', NAME, b'evil', 4, RING)",
    "asking": "call('request_key', b'user', NAME, None, RING)",
    "searching": "call('keyctl', 10, RING, b'user', NAME, 0)",
    "reading": """
        buffer = ctypes.create_string_buffer(100)
        call('keyctl', 11, call('keyctl', 10, RING, b'user', NAME, 0), buffer, 100)
        """,
    "joining a session": "call('keyctl', 1, None)",
    "clearing": "call('keyctl', 7, RING)",
}
USER_KEYRING = -4


@pytest.fixture
def kept_key() -> Iterator[bytes]:
    """The name of a key in the person's keyring."""
    name = f"ollmsandbox-test-{os.getpid()}".encode()
    secret = SECRET.encode()
    number = libc.syscall(NUMBERS["add_key"], b"user", name, secret, len(secret), USER_KEYRING)
    assert number > 0
    yield name
    keyctl_unlink = 9
    libc.syscall(NUMBERS["keyctl"], keyctl_unlink, number, USER_KEYRING)


@pytest.mark.parametrize("how", KEYRINGS)
def test_keyrings(person: Person, kept_key: bytes, how: str) -> None:
    code = textwrap.dedent(KEYRINGS[how])
    attack = attempt(code.replace("NAME", repr(kept_key)).replace("RING", str(USER_KEYRING)))
    assert refusal(person, attack) == "EPERM"
    # Clearing would take keys of the person's own.
    if how != "clearing":
        assert works_outside(person, attack)


def test_names_of_keys(person: Person, kept_key: bytes) -> None:
    assert kept_key.decode() in person.run_outside("cat /proc/keys").stdout
    assert kept_key.decode() not in person.run("cat /proc/keys").stdout.text


# Terminals.


class Terminal:
    """A terminal with a program in it, which controls it as a shell does."""

    def __init__(self) -> None:
        self.outside, self.inside = pty.openpty()
        # What is put in shall not come back out.
        attributes = termios.tcgetattr(self.inside)
        attributes[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(self.inside, termios.TCSANOW, attributes)

    def run(self, person: Person, argv: list[str]) -> str:
        with subprocess.Popen(
            [sys.executable, "-ISc", _IN_TERMINAL, *argv],
            cwd=person.project,
            env={**person.environ, "TERM": "dumb"},
            stdin=self.inside,
            stdout=self.inside,
            stderr=self.inside,
            start_new_session=True,
        ) as process:
            output = b""
            while process.poll() is None or select.select([self.outside], [], [], 0)[0]:
                if select.select([self.outside], [], [], 0.01)[0]:
                    output += os.read(self.outside, 4096)
            return output.decode().replace("\r\n", "\n")

    def typed(self) -> bytes:
        """What the next program in this terminal would take for the person's typing."""
        if select.select([self.inside], [], [], 0)[0]:
            return os.read(self.inside, 100)
        return b""

    def close(self) -> None:
        os.close(self.outside)
        os.close(self.inside)


_IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
pid = os.fork()
if not pid:
    os.execvp(sys.argv[1], sys.argv[1:])
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


# Outside only into its own terminal: root's typing would arrive in all of them.
TYPING = """
    TIOCSTI = 0x5412
    others = ['/dev/tty', '/dev/stdin', '/proc/self/fd/1', '/dev/console']
    others += [f'/dev/pts/{n}' for n in range(100)]
    for name in (0, 1, 2, *(others if INSIDE else [])):
        for high in (0, 1 << 32, 1 << 63):
            try:
                fd = name if isinstance(name, int) else os.open(name, os.O_RDWR | os.O_NOCTTY)
                call('ioctl', fd, TIOCSTI | high, b'x')
            except OSError:
                pass
    print('done')
    """


def _typing_allowed() -> bool:
    try:
        return Path("/proc/sys/dev/tty/legacy_tiocsti").read_text() == "1\n" or IS_ROOT
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_typing_into_the_terminal(person: Person, terminal: Terminal, profile: str) -> None:
    attack = python(TYPING.replace("INSIDE", "True"))
    output = terminal.run(person, cli_argv("run", "--profile", profile, "-c", attack))
    assert output == "done\n"
    assert terminal.typed() == b""
    if _typing_allowed():
        terminal.run(person, ["sh", "-c", python(TYPING.replace("INSIDE", "False"))])
        assert terminal.typed().startswith(b"x")


def test_there_is_no_terminal(person: Person, terminal: Terminal) -> None:
    attack = "for n in 0 1 2; do test -t $n && echo $n; done; echo evil > /dev/tty; ls /dev/pts"
    output = terminal.run(person, cli_argv("run", "-c", f"exec 2> /dev/null; {attack}"))
    assert output == "ptmx\n"


def test_reading_what_is_typed(person: Person, terminal: Terminal) -> None:
    os.write(terminal.outside, b"password\n")
    assert terminal.run(person, cli_argv("run", "-c", "cat; cat /dev/tty 2> /dev/null")) == ""
    assert terminal.typed() == b"password\n"


def test_writing_to_a_terminal_by_its_name(person: Person, terminal: Terminal) -> None:
    attack = attempt(f"open({os.ttyname(terminal.inside)!r}, 'w').write('evil')")
    assert refusal(person, attack) in ("ENOENT", "EACCES")
    assert not select.select([terminal.outside], [], [], 0.01)[0]
    assert works_outside(person, attack)
    assert os.read(terminal.outside, 100) == b"evil"


@pytest.mark.parametrize("request_name", ["TIOCSTI", "TIOCLINUX"])
@pytest.mark.parametrize("high", [0, 1 << 32, 1 << 63, 0xFFFFFFFF << 32], ids=hex)
def test_a_terminal_of_its_own(person: Person, request_name: str, high: int) -> None:
    # It may have one, and control it; that is how the filter itself is seen to refuse.
    number = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C}[request_name]
    attack = attempt(f"""
        outer, inner = os.openpty()
        if os.fork():
            sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
        os.setsid()
        fcntl.ioctl(inner, 0x540E, 0)
        call('ioctl', inner, {number} | {high}, b'x')
        """)
    assert refusal(person, attack) == "EPERM"
    if request_name == "TIOCSTI" and _typing_allowed():
        assert works_outside(person, attack)


# Descriptors.


@pytest.mark.parametrize("options", [{}, {"network": True}, {"profile": "strict"}], ids=str)
def test_only_three_descriptors_are_open(person: Person, options: dict[str, object]) -> None:
    program = "for n in $(seq 0 4096); do test -e /proc/$$/fd/$n && echo $n; done"
    assert person.run(program, **options).stdout.text.split() == ["0", "1", "2"]


def test_the_three_descriptors_lead_nowhere(person: Person) -> None:
    result = person.run("for n in 0 1 2; do readlink /proc/$$/fd/$n; done")
    first, *others = result.stdout.text.split()
    assert first == "/dev/null"
    assert all(name.startswith("pipe:") for name in others)


def test_signals_are_as_for_any_program(person: Person) -> None:
    # An ignored signal is inherited: the command could not be ended, or would not end, by it.
    result = person.run("grep -E '^Sig(Ign|Blk)' /proc/self/status")
    for line in result.stdout.text.splitlines():
        mask = int(line.split()[1], 16)
        for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            assert not mask & 1 << (number - 1)
