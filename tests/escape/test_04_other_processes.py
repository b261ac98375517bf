# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to see, signal, read or slow down programs outside."""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
import textwrap
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.escape.attack import (
    IS_ROOT,
    NUMBERS,
    attempt,
    one_by_one,
    python,
    refusal,
    refusals,
    said_by_each,
    work_outside,
    works_outside,
)
from support.person import Person
from support.timing import PATIENCE

SECRET = "correct horse battery staple"

# It lets any process debug it, so that only the sandbox prevents it.
VICTIM = """
import ctypes, sys, time
secret = ctypes.create_string_buffer(sys.argv[1].encode())
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)
ctypes.CDLL(None).prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)
print(ctypes.addressof(secret), flush=True)
time.sleep(120)
"""

libc = ctypes.CDLL(None, use_errno=True)


def fill(code: str, pid: int, address: int = 0) -> str:
    """`PID` and `ADDRESS` in the code become the victim's."""
    return textwrap.dedent(code).replace("PID", str(pid)).replace("ADDRESS", str(address))


class Victim:
    def __init__(self, process: subprocess.Popen[str], address: int) -> None:
        self.process = process
        self.pid = process.pid
        self.address = address

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


@pytest.fixture
def victim() -> Iterator[Victim]:
    """A program of the user's that minds its own business."""
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


@contextmanager
def bystanders(names: Iterable[str]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Programs that mind their own business, one for each attack."""
    with ExitStack() as stack:
        found = {}
        for name in names:
            started = subprocess.Popen(["sleep", "120"], start_new_session=True)
            found[name] = stack.enter_context(started)
            stack.callback(started.kill)
        yield found


def test_killing_a_program_outside(person: Person) -> None:
    with bystanders(SIGNALS) as there:
        codes = {how: fill(code, there[how].pid) for how, code in SIGNALS.items()}
        for how, why in refusals(person, codes).items():
            assert why in ("ESRCH", "ENOENT", "EINVAL"), how
        time.sleep(0.01)
        assert {process.poll() for process in there.values()} == {None}
        assert all(work_outside(person, codes).values())
        for process in there.values():
            process.wait(PATIENCE)


def test_killing_everything_there_is(person: Person, victim: Victim) -> None:
    # Not tried outside.
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        for target in ("-1", "0", "-os.getpgid(0)", "-os.getsid(0)"):
            person.run(python(f"os.kill({target}, signal.SIGKILL)"))
            assert victim.alive, target
            assert bystander.poll() is None, target
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


def test_stopping_the_program_that_started_the_command(person: Person) -> None:
    attack = "kill -STOP $PPID; kill -KILL $PPID; kill -STOP 1; kill -KILL 1; echo still here"
    done = person.cli("run", "-c", f"sh -c '{attack}'; true")
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


def test_files_of_a_program_outside(person: Person, victim: Victim) -> None:
    names = ("environ", "cmdline", "maps", "root/etc/passwd", "fd", "stat")
    files = {name: f"/proc/{victim.pid}/{name}" for name in names}
    attacks = {name: f"cat {file} || ls {file} || echo none" for name, file in files.items()}
    attack = one_by_one(attacks.values())
    inside = said_by_each(attacks, person.run(attack).stdout.text)
    assert inside == dict.fromkeys(names, "none\n")
    for name, said in said_by_each(attacks, person.run_outside(attack).stdout).items():
        assert said not in ("", "none\n"), name


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
            assert file.read(28) == b'correct horse battery staple'
        """,
    "process_vm_readv": """
        buffer = ctypes.create_string_buffer(28)
        here = struct.pack('PN', ctypes.addressof(buffer), 28)
        call('process_vm_readv', PID, here, 1, struct.pack('PN', ADDRESS, 28), 1, 0)
        assert buffer.value == b'correct horse battery staple'
        """,
    "writing its memory": """
        with open('/proc/PID/mem', 'r+b', 0) as file:
            file.seek(ADDRESS)
            file.write(b'evil')
        """,
    "process_vm_writev": """
        buffer = ctypes.create_string_buffer(b'evil')
        here = struct.pack('PN', ctypes.addressof(buffer), 4)
        call('process_vm_writev', PID, here, 1, struct.pack('PN', ADDRESS, 4), 1, 0)
        """,
    "taking its descriptor": "call('pidfd_getfd', os.pidfd_open(PID), 1, 0)",
}


@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_debugging_a_program_outside(person: Person, victim: Victim, profile: str) -> None:
    codes = {how: fill(code, victim.pid, victim.address) for how, code in DEBUGGERS.items()}
    for how, why in refusals(person, codes, profile=profile).items():
        assert why in ("ESRCH", "ENOENT", "EINVAL", "EPERM"), how
    assert victim.alive
    if _debuggers_allowed():
        assert all(work_outside(person, codes).values())


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


def test_changing_how_a_program_outside_runs(person: Person) -> None:
    with bystanders(CHANGES) as there:
        codes = {name: fill(code, there[name].pid) for name, (code, _) in CHANGES.items()}
        before = {name: settings(process.pid) for name, process in there.items()}
        for name, why in refusals(person, codes).items():
            assert why in ("ESRCH", "ENOENT"), name
        assert {name: settings(process.pid) for name, process in there.items()} == before
        assert all(work_outside(person, codes).values())
        for name, (_, setting) in CHANGES.items():
            if setting != "processors" or len(os.sched_getaffinity(0)) > 1:
                assert settings(there[name].pid)[setting] != before[name][setting], name


def test_changing_how_all_programs_of_the_user_run(person: Person, victim: Victim) -> None:
    # Not tried outside. Inside it works, for the command's own programs.
    codes = (
        "os.setpriority(os.PRIO_USER, os.getuid(), 10)",
        "os.setpriority(os.PRIO_USER, 0, 10)",
        "os.setpriority(os.PRIO_PGRP, 0, 10)",
        "call('ioprio_set', 3, os.getuid(), 3 << 13)",
    )
    before = settings(victim.pid), settings(os.getpid())
    refusals(person, {code: code for code in codes})
    assert (settings(victim.pid), settings(os.getpid())) == before


def test_locking_a_file_of_the_user(person: Person) -> None:
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


def test_making_whoever_writes_to_a_file_wait(person: Person) -> None:
    """Outside the home folder, a command opens the user's file itself."""
    codes = {
        command: f"""
            open('mine', 'w').close()
            fd = os.open('mine', os.O_RDONLY)
            call('fcntl', fd, {command}, fcntl.F_RDLCK)
            """
        for command in ("fcntl.F_SETLEASE", "fcntl.F_SETLEASE | 1 << 32")
    }
    assert refusals(person, codes) == dict.fromkeys(codes, "EPERM")
    assert work_outside(person, codes) == dict.fromkeys(codes, True)
