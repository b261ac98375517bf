# SPDX-License-Identifier: GPL-3.0-or-later
"""A command tries to use up shared resources: processes, memory, disk.

Every bomb here is bounded: if a limit does not hold, the machine survives."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.bubble import with_profile
from support.escape.attack import IS_ROOT, python, writable_caches
from support.escape.processes import turns
from support.person import Person
from support.timing import PATIENCE, given_time

from ollmsandbox.sandbox.process import Result, Stop

MIB = 1 << 20


def limited(person: Person, limits: str) -> str:
    """A profile with limits of the user's own."""
    with_profile(person, f"limits: {{{limits}}}\n", "small")
    return "small"


def run_limited(person: Person, limits: str, command: str, **options: Any) -> Result:
    return person.run(command, profile=limited(person, limits), **options)


# --- processes -----------------------------------------------------------------------------------

_CHILDREN = """
started = 0
try:
    while started < 400:
        if os.fork() == 0:
            time.sleep(200)
            os._exit(0)
        started += 1
except OSError as error:
    print("stopped", started, errno.errorcode[error.errno], flush=True)
    os.kill(0, signal.SIGKILL)
time.sleep(200)
"""
_THREADS = """
import threading
started = 0
try:
    while started < 400:
        threading.Thread(target=time.sleep, args=(200,), daemon=True).start()
        started += 1
except RuntimeError:
    print("stopped", started, "EAGAIN", flush=True)
    os._exit(1)
time.sleep(200)
"""
_ORPHANS = """
started = 0
try:
    while started < 400:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(200)
            os._exit(0)
        os.wait()
        started += 1
except OSError as error:
    print("stopped", started, errno.errorcode[error.errno], flush=True)
    os.kill(-1, signal.SIGKILL)
time.sleep(200)
"""
# Eight generations, each twice as many as the one before.
_BOMB = """
bomb() { if [ "$1" -gt 8 ]; then exec sleep 20; fi; bomb $(($1+1)) & bomb $(($1+1)) & wait; }
bomb 1
"""
BOMBS = {
    "children": python(_CHILDREN),
    "threads": python(_THREADS),
    "orphans": python(_ORPHANS),
    "generations": _BOMB,
}


@pytest.mark.parametrize("kind", sorted(BOMBS))
def test_a_bomb_is_limited(person: Person, kind: str) -> None:
    def attempt(seconds: float) -> Result:
        return person.run(BOMBS[kind], profile=profile, timeout=seconds)

    profile = limited(person, "processes: 100")
    if kind == "generations" and not IS_ROOT:
        # Bash would try again for half a minute.
        result = given_time(attempt, lambda ran: "fork" in ran.stderr.text)
        assert "fork" in result.stderr.text
        return
    result = attempt(PATIENCE)
    if IS_ROOT:
        # The kernel holds no limit against root.
        assert (result.stop, result.exit_code) == (Stop.PROCESSES, 137)
    else:
        word, started, why = result.stdout.text.split()
        assert (word, why) == ("stopped", "EAGAIN")
        assert 50 < int(started) <= 100


def test_the_limit_counts_the_command_alone(person: Person) -> None:
    # Not the user's other programs: a limit below their number must not stop a command.
    others = [subprocess.Popen(["sleep", "30"]) for _ in range(25)]
    try:
        profile = limited(person, "processes: 20")
        result = person.run(
            "for i in 1 2 3 4 5; do sleep 0.5 & done; wait; echo done", profile=profile
        )
    finally:
        for process in others:
            process.kill()
            process.wait()
    assert (result.stdout.text, result.stop) == ("done\n", None)


def test_the_program_answers_while_a_bomb_goes_off(person: Person) -> None:
    profile = limited(person, "processes: 100")
    assert turns(lambda: person.bubble(profile=profile, timeout=2).exec(_BOMB)) > 1


# --- memory --------------------------------------------------------------------------------------

_FILL = "\nprint('filled', flush=True)\ntime.sleep(200)"
MEMORY = {
    "of its own": "kept = b'x' * (400 << 20)" + _FILL,
    "of many processes": """
for _ in range(8):
    if os.fork() == 0:
        kept = b"x" * (50 << 20)
        break
"""
    + _FILL,
    "shared between processes": """
import mmap
kept = mmap.mmap(-1, 400 << 20)
for _ in range(400):
    kept.write(b"x" * (1 << 20))
"""
    + _FILL,
    "in a file without a name": """
kept = os.memfd_create("kept")
for _ in range(400):
    os.write(kept, b"x" * (1 << 20))
"""
    + _FILL,
    "of System V": """
kept = call('shmget', 0, 400 << 20, 0o1600)
libc.shmat.restype = ctypes.c_void_p
ctypes.memset(libc.shmat(kept, None, 0), 120, 400 << 20)
"""
    + _FILL,
}


@pytest.mark.parametrize("kind", sorted(MEMORY))
def test_memory_is_limited(person: Person, kind: str) -> None:
    result = run_limited(person, "memory: 200 MiB", python(MEMORY[kind]), timeout=PATIENCE)
    # By us, or by a control group's.
    assert result.stop is Stop.MEMORY or result.signal == signal.SIGKILL, result.stderr.text
    assert result.exit_code == 137


def test_a_command_below_the_limit_is_left_alone(person: Person) -> None:
    result = run_limited(
        person, "memory: 2 GiB", python("kept = b'x' * (100 << 20)\ntime.sleep(0.6)")
    )
    assert (result.stop, result.exit_code) == (None, 0)


def test_a_folder_in_memory_is_limited(person: Person) -> None:
    profile = limited(person, "tmp: 8 MiB")
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):
        command = f"head -c 50M /dev/zero >{folder}/big; stat -c %s {folder}/big"
        result = person.run(command, profile=profile)
        assert "No space left" in result.stderr.text, folder
        assert int(result.stdout.text) <= 8 * MIB, folder


def test_all_folders_in_memory_are_limited_or_sealed(person: Person) -> None:
    result = run_limited(person, "tmp: 8 MiB", python(_WRITABLE))
    found = dict(line.split(" ") for line in result.stdout.text.splitlines())
    in_memory = {place for place, kind in found.items() if kind == "tmpfs"}
    assert in_memory == {"/tmp", "/var/tmp", "/dev/shm", "/run", "/proc/1"}
    on_disk = set(found) - in_memory
    home = os.path.realpath(person.home)
    assert on_disk == {f"{home}/project", f"{home}/playground"} | writable_caches(person)


# Where something can be made, of all mount points; and the kind of file system.
_WRITABLE = """
points = {}
for line in open("/proc/self/mounts"):
    _, point, kind, *_ = line.split(" ")
    points[point.replace("\\\\040", " ")] = kind
for point, kind in points.items():
    try:
        os.close(os.open(f"{point}/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:
        continue
    size = os.statvfs(point)
    if kind != "tmpfs" or size.f_blocks * size.f_frsize <= 8 << 20:
        print(point, kind)
    else:
        print(point, "unlimited")
"""


# --- disk ----------------------------------------------------------------------------------------

# Again and again: what other programs delete meanwhile counts against it.
_AGAIN = "for i in 1 2 3 4; do {}; sleep 0.5; done"
DISK = {
    "a file": "head -c 200M /dev/zero >>big",
    "many files": "for j in 1 2 3 4 5; do head -c 40M /dev/zero >big$i$j; done",
    "space without content": "fallocate -l 60M big$i",
    "a folder that cannot be read": "mkdir -p d; chmod 300 d; fallocate -l 60M d/big$i",
    "a file that was deleted": "exec 3>big; rm big; head -c 600M /dev/zero >&3",
}


IN_PLAYGROUND = ("space without content", "a folder that cannot be read")


@pytest.mark.parametrize(
    ("kind", "where"),
    [*((kind, ".") for kind in DISK), *((kind, "~/playground") for kind in IN_PLAYGROUND)],
)
def test_the_disk_is_limited(person: Person, kind: str, where: str) -> None:
    command = f"cd {where} && {_AGAIN.format(DISK[kind])}"
    result = run_limited(person, "disk: 100 MiB", command, timeout=PATIENCE)
    assert (result.stop, result.exit_code) == (Stop.DISK, 137)


def test_a_full_disk_ends_a_command(person: Person) -> None:
    command = _AGAIN.format("head -c 200M /dev/zero >>big")
    result = run_limited(person, "free: 900 TiB", command, timeout=PATIENCE)
    assert (result.stop, result.exit_code) == (Stop.FULL, 137)
    assert "almost full" in result.for_model()


def test_a_sparse_file_is_not_counted(person: Person) -> None:
    command = "truncate -s 1T ~/playground/sparse && sleep 0.6 && stat -c %s ~/playground/sparse"
    result = run_limited(person, "disk: 2 TiB", command)
    assert (result.stdout.text, result.stop) == (f"{1 << 40}\n", None)
    assert re.fullmatch(r"[0-9.]+ (bytes|KiB) in 1 file\n", person.cli("playground", "size").stdout)


# What one call takes is taken before anybody looks.
IN_ONE_STEP = {
    "a file": "fallocate -l 200M big",
    "a file in the playground": "fallocate -l 200M ~/playground/big",
    "two files": "fallocate -l 90M one; fallocate -l 90M two",
    "a folder without permissions": "mkdir d; for n in 1 2 3; do fallocate -l 90M d/$n; done;"
    " chmod 0 d",
    "a file that grows": "fallocate -l 90M big; fallocate -o 90M -l 90M big",
    "a hole and a byte": "printf x | dd of=big bs=1 seek=300M status=none",
}


@pytest.mark.parametrize("kind", sorted(IN_ONE_STEP))
def test_the_disk_cannot_be_filled_in_one_step(person: Person, kind: str) -> None:
    result = run_limited(person, "disk: 100 MiB", IN_ONE_STEP[kind])
    assert result.stop is Stop.DISK or result.exit_code != 0
    for folder in (person.project, person.paths.playground):
        assert all(file.stat().st_size <= 101 * MIB for file in folder.iterdir())


def test_the_number_of_files_in_memory_is_limited(person: Person) -> None:
    files = "for n in range(20000):\n    os.close(os.open(f'/tmp/{n}', os.O_CREAT))\n"
    result = run_limited(person, "tmp: 8 MiB", python(f"{files}time.sleep(200)"))
    assert result.stop is Stop.DISK


# --- what the user's other programs need ---------------------------------------------------------

_INOTIFY = """
import ctypes
libc = ctypes.CDLL(None)
count = 0
while count < 5000 and libc.inotify_init1(0) >= 0:
    count += 1
print(count)
"""


_WATCHES = """
for number in range(2000):
    os.close(os.open(f"/tmp/{number}", os.O_CREAT))
count = 0
while (instance := libc.inotify_init1(0)) >= 0:
    for number in range(2000):
        if libc.inotify_add_watch(instance, f"/tmp/{number}".encode(), 2) < 0:
            break
        count += 1
    if count % 2000:
        break
print(count)
"""


# Root's namespace is the machine's.
if not IS_ROOT:

    @pytest.mark.parametrize(
        ("name", "code"), [("max_user_instances", _INOTIFY), ("max_user_watches", _WATCHES)]
    )
    def test_half_of_what_watches_files_is_left(person: Person, name: str, code: str) -> None:
        most = int(Path("/proc/sys/fs/inotify", name).read_text())
        assert 0 < int(person.run(python(code)).stdout.text) <= most // 2


_SIGNALS = """
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
count = 0
while count < 1 << 20 and libc.sigqueue(os.getpid(), 40, 0) == 0:
    count += 1
print(count)
"""
_MESSAGES = """
import resource
count = 0
# Each has room for ten messages of 8 KiB.
while count < 200 and libc.mq_open(f"/of-{os.getpid()}-{count}".encode(), 66, 0o600, 0) >= 0:
    count += 1
for number in range(count):
    libc.mq_unlink(f"/of-{os.getpid()}-{number}".encode())
print(count)
"""


def test_half_of_the_signals_that_a_user_can_queue_are_left(person: Person) -> None:
    most, _hard = resource.getrlimit(resource.RLIMIT_SIGPENDING)
    assert 0 < int(person.run(python(_SIGNALS)).stdout.text) <= most // 2 + 1
    assert int(person.run_outside(python(_SIGNALS)).stdout) > most // 2 + 1


def test_half_of_the_message_queues_of_a_user_are_left(person: Person) -> None:
    most, _hard = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
    assert 0 < int(person.run(python(_MESSAGES)).stdout.text) <= most // 2 // (10 * 8192)
    assert int(person.run_outside(python(_MESSAGES)).stdout) > most // 2 // (10 * 8192)


def test_the_limits_of_queues_cannot_be_raised(person: Person) -> None:
    raise_it = """
        import resource
        for kind in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE):
            soft, hard = resource.getrlimit(kind)
            try:
                resource.setrlimit(kind, (hard + 1, hard + 1))
            except ValueError:
                print(soft == hard)
        """
    assert person.run(python(raise_it)).stdout.text == "True\n" * 2


def test_the_user_s_other_programs_come_first(person: Person) -> None:
    result = person.run("nice; nice -n -5 nice 2>/dev/null")
    assert [int(line) for line in result.stdout.text.split()] == [min(os.nice(0) + 10, 19)] * 2


def test_no_rights_to_stop_others_and_no_dumps(person: Person) -> None:
    """A program outside takes the dumps of all that crash, on many systems."""
    limits = {"RLIMIT_RTPRIO": 0, "RLIMIT_NICE": 0, "RLIMIT_CORE": 1}
    ask = "import resource\n"
    ask += "\n".join(f"print(*resource.getrlimit(resource.{kind}))" for kind in limits)
    found = person.run(python(ask)).stdout.text.splitlines()
    for most, line in zip(limits.values(), found, strict=True):
        soft, hard = map(int, line.split())
        assert 0 <= soft == hard <= most


# --- names alone ----------------------------------------------------------------------------------

_EMPTY = """
number = 0
while number < 200_000:
    os.close(os.open(f"{where}/{{number}}", os.O_CREAT))
    number += 1
print("all")
"""


@pytest.mark.parametrize("where", [".", "~/playground", "~/.cache", "~/.npm"])
def test_empty_files_without_end(person: Person, where: str) -> None:
    with_profile(person, "limits: {disk: 8 MiB}")
    (person.home / ".cache").mkdir()
    place = "." if where == "." else f"{person.home}/{where[2:]}"
    result = person.run(python(_EMPTY.format(where=place)), profile="mine")
    assert (result.stop, result.stdout.text) == (Stop.DISK, "")


_LONG_PATHS = """
name = "n" * 250
for _level in range(50):
    os.mkdir(name)
    os.chdir(name)
for number in range(3000):
    os.close(os.open(str(number), os.O_CREAT))
"""


def test_paths_without_end_do_not_fill_the_database(person: Person) -> None:
    document = person.cli_run(python(_LONG_PATHS))
    assert [s["what"] for s in document["skipped"]] == ["more than can be recorded, from here on"]
    assert 1000 < len(document["changes"]) < 2000
    size = sum(file.stat().st_size for file in person.paths.data.rglob("*") if file.is_file())
    # Without the limit, 200 MB.
    assert size < 100 << 20
    # What was recorded can be undone.
    assert person.cli("undo").returncode == 0
    assert list(person.project.iterdir()) == []


# --- a messy playground --------------------------------------------------------------------------

_DEEP = """
os.chdir("{where}")
for number in range(1000):
    os.mkdir("deep")
    os.chdir("deep")
open("file", "w").write("at the bottom")
"""
_MANY = """
os.chdir("{where}")
for folder in range(20):
    os.mkdir(str(folder))
    for number in range(100):
        os.close(os.open(f"{{folder}}/{{number}}", os.O_CREAT))
"""
_NAMES = r"""
os.chdir("{where}")
names = b"n" * 255, b"\xff\xfe", b"new\nline", b"\x1b[2J", b"-rf", b" ", b"\xe2\x80\xae", b"*"
for name in names:
    os.mkdir(name)
    os.close(os.open(name + b"/" + name, os.O_CREAT))
"""
_LOCKED = """
os.chdir("{where}")
for outer in ("a", "b"):
    os.makedirs(f"{{outer}}/c/d")
    for folder in (f"{{outer}}/c/d", f"{{outer}}/c", outer):
        open(f"{{folder}}/file", "w").close()
        os.chmod(f"{{folder}}/file", 0)
        os.chmod(folder, 0)
"""
_KINDS = """
os.chdir("{where}")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
os.symlink("loop", "loop")
os.symlink("../../../..", "up")
os.symlink(os.path.expanduser("~/project"), "project")
os.symlink("/", "root")
"""
MESSES = {
    "deep folders": (_DEEP, 1),
    "many files": (_MANY, 2_000),
    "strange names": (_NAMES, 8),
    "locked folders": (_LOCKED, 6),
    "strange kinds": (_KINDS, 6),
}


@pytest.mark.parametrize("mess", sorted(MESSES))
def test_a_playground_can_be_measured_and_cleared_of(person: Person, mess: str) -> None:
    code, files = MESSES[mess]
    (person.project / "precious").touch()
    where = os.path.realpath(person.home) + "/playground"
    if mess == "strange kinds":
        # Otherwise pipes and sockets end with the run.
        person.share_playground()
    result = person.run(python(code.format(where=where)))
    assert result.exit_code == 0, result.stderr.text
    try:
        measured = person.cli("playground", "size")
        assert (measured.returncode, measured.stderr) == (0, "")
        if mess != "locked folders":
            assert re.fullmatch(rf".* in {files:,} files?\n", measured.stdout)
        # Nothing of it keeps the next command from running.
        assert person.run("echo fine", working_dir="playground").stdout.text == "fine\n"
        cleared = person.cli("playground", "clear")
        assert (cleared.returncode, cleared.stderr) == (0, "")
        assert list(person.playground.iterdir()) == []
        assert (person.project / "precious").exists()
    finally:
        # Some of it would be too much for whoever tidies up after the test.
        subprocess.run(["chmod", "-R", "u+rwx", person.playground], check=False)
        subprocess.run(["rm", "-rf", person.playground], check=True)


def test_a_project_with_a_mess_is_a_project_still(person: Person) -> None:
    names = sorted(set(MESSES) - {"many files"})
    for name in names:
        folder = person.project / name
        folder.mkdir()
        person.run(python(MESSES[name][0].format(where=folder)))
    try:
        result = person.run("ls | wc -l")
        assert (result.stdout.text, result.exit_code) == (f"{len(names)}\n", 0)
        assert result.duration < PATIENCE
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", person.project], check=False)
        subprocess.run(["rm", "-rf", person.project], check=True)
