# SPDX-License-Identifier: GPL-3.0-or-later
"""A command tries to use up what it shares with everybody: processes, memory, disk, attention.

Every bomb here is bounded: where a limit did not hold, the machine would live on.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attack import IS_ROOT, python
from conftest import Person, cli_argv

from ollmsandbox import loop
from ollmsandbox.errors import SandboxError
from ollmsandbox.sandbox.process import Sinks
from ollmsandbox.sandbox.result import Result, Stop

MIB = 1 << 20
# A run that is over is over at once; this is for a machine with much to do.
SOON = 5.0
# How much of an output is kept, at each end.
KEPT = MIB
# How much the program may grow while a command pours out what it can.
GROWTH = 64 * MIB


def limited(person: Person, limits: str) -> str:
    """A profile with limits of the person's own."""
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "small.yaml").write_text(f"limits: {{{limits}}}\n")
    return "small"


# --- processes -----------------------------------------------------------------------------------

_CHILDREN = """
started = 0
try:
    while started < 400:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        started += 1
except OSError as error:
    print("stopped", started, errno.errorcode[error.errno], flush=True)
    os.kill(0, signal.SIGKILL)
time.sleep(20)
"""
_THREADS = """
import threading
started = 0
try:
    while started < 400:
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        started += 1
except RuntimeError:
    print("stopped", started, "EAGAIN", flush=True)
    os._exit(1)
time.sleep(20)
"""
_ORPHANS = """
started = 0
try:
    while started < 400:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(20)
            os._exit(0)
        os.wait()
        started += 1
except OSError as error:
    print("stopped", started, errno.errorcode[error.errno], flush=True)
    os.kill(-1, signal.SIGKILL)
time.sleep(20)
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
    result = person.run(BOMBS[kind], profile=limited(person, "processes: 100"), timeout=3)
    assert result.duration < SOON + 3
    if IS_ROOT:
        # The kernel holds no limit against root.
        assert (result.stop, result.exit_code) == (Stop.PROCESSES, 137)
    elif kind == "generations":
        assert "fork" in result.stderr.text.lower()
    else:
        word, started, why = result.stdout.text.split()
        assert (word, why) == ("stopped", "EAGAIN")
        assert 50 < int(started) <= 100


def test_the_limit_counts_the_command_alone(person: Person) -> None:
    # Not the person's other programs: a limit below their number must not stop a command.
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
    assert _longest_pause(lambda: person.bubble(profile=profile, timeout=2).exec(_BOMB)) < 1


# --- memory --------------------------------------------------------------------------------------

_FILL = "\nprint('filled', flush=True)\ntime.sleep(20)"
_SHMGET, _SHMAT = {"x86_64": (29, 30), "aarch64": (194, 196)}[os.uname().machine]
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
    "of System V": f"""
kept = call({_SHMGET}, 0, 400 << 20, 0o1600)
libc.shmat.restype = ctypes.c_void_p
ctypes.memset(libc.shmat(kept, None, 0), 120, 400 << 20)
"""
    + _FILL,
}


@pytest.mark.parametrize("kind", sorted(MEMORY))
def test_memory_is_limited(person: Person, kind: str) -> None:
    profile = limited(person, "memory: 200 MiB")
    result = person.run(python(MEMORY[kind]), profile=profile, timeout=6)
    # By us, or by a control group's.
    assert result.stop is Stop.MEMORY or result.signal == signal.SIGKILL, result.stderr.text
    assert result.exit_code == 137


def test_a_command_below_the_limit_is_left_alone(person: Person) -> None:
    profile = limited(person, "memory: 200 MiB")
    result = person.run(python("kept = b'x' * (100 << 20)\ntime.sleep(0.6)"), profile=profile)
    assert (result.stop, result.exit_code) == (None, 0)


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm"])
def test_a_folder_in_memory_is_limited(person: Person, folder: str) -> None:
    profile = limited(person, "tmp: 8 MiB")
    result = person.run(
        f"head -c 50M /dev/zero >{folder}/big; stat -c %s {folder}/big", profile=profile
    )
    assert "No space left" in result.stderr.text
    assert int(result.stdout.text) <= 8 * MIB


def test_all_folders_in_memory_are_limited_or_sealed(person: Person) -> None:
    profile = limited(person, "tmp: 8 MiB")
    result = person.run(python(_WRITABLE), profile=profile)
    found = dict(line.split(" ") for line in result.stdout.text.splitlines())
    in_memory = {place for place, kind in found.items() if kind == "tmpfs"}
    assert in_memory == {"/tmp", "/var/tmp", "/dev/shm"}
    on_disk = set(found) - in_memory
    home = os.path.realpath(person.home)
    assert on_disk == {f"{home}/project", f"{home}/playground"}


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

DISK = {
    "one file": "head -c 300M /dev/zero >big",
    "many files": "for i in 1 2 3 4 5 6 7 8 9; do head -c 40M /dev/zero >big$i; done",
    "space without content": "fallocate -l 300M big",
    "a file that was deleted": "exec 3>big; rm big; head -c 300M /dev/zero >&3",
}


@pytest.mark.parametrize("where", [".", "~/playground"], ids=["project", "playground"])
@pytest.mark.parametrize("kind", sorted(DISK))
def test_the_disk_is_limited(person: Person, kind: str, where: str) -> None:
    profile = limited(person, "disk: 100 MiB")
    result = person.run(f"cd {where} && {DISK[kind]}; sleep 20", profile=profile, timeout=10)
    assert (result.stop, result.exit_code) == (Stop.DISK, 137)


def test_a_full_disk_ends_a_command(person: Person) -> None:
    result = person.run("sleep 20", profile=limited(person, "free: 900 TiB"), timeout=10)
    assert (result.stop, result.exit_code) == (Stop.FULL, 137)
    assert "almost full" in result.for_model()


def test_a_sparse_file_is_not_counted(person: Person) -> None:
    profile = limited(person, "disk: 100 MiB")
    command = "truncate -s 1T ~/playground/sparse && sleep 0.6 && stat -c %s ~/playground/sparse"
    result = person.run(command, profile=profile)
    assert (result.stdout.text, result.stop) == (f"{1 << 40}\n", None)
    assert re.fullmatch(r"[0-9.]+ (bytes|KiB) in 1 file\n", person.cli("playground", "size").stdout)


# --- a playground nobody wants to tidy up --------------------------------------------------------

_DEEP = """
os.chdir("{where}")
for number in range(2000):
    os.mkdir("deep")
    os.chdir("deep")
open("file", "w").write("at the bottom")
"""
_MANY = """
os.chdir("{where}")
for folder in range(20):
    os.mkdir(str(folder))
    for number in range(1000):
        os.close(os.open(f"{{folder}}/{{number}}", os.O_CREAT))
"""
_NAMES = r"""
os.chdir("{where}")
for name in (b"n" * 255, b"\xff\xfe", b"new\nline", b"\x1b[2J", b"-rf", b" ", "\u202e".encode(), b"*"):
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
    "many files": (_MANY, 20_000),
    "strange names": (_NAMES, 8),
    "locked folders": (_LOCKED, 6),
    "strange kinds": (_KINDS, 6),
}


@pytest.mark.parametrize("mess", sorted(MESSES))
def test_a_playground_can_be_measured_and_cleared_of(person: Person, mess: str) -> None:
    code, files = MESSES[mess]
    (person.project / "precious").touch()
    where = os.path.realpath(person.home) + "/playground"
    result = person.run(python(code.format(where=where)))
    assert result.exit_code == 0, result.stderr.text
    try:
        measured = person.cli("playground", "size")
        assert (measured.returncode, measured.stderr) == (0, "")
        if mess != "locked folders":
            assert re.fullmatch(rf".* in {files} files?\n", measured.stdout)
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
    for name, (code, _) in MESSES.items():
        folder = person.project / name
        folder.mkdir()
        person.run(python(code.format(where=folder)))
    try:
        result = person.run("ls | wc -l")
        assert (result.stdout.text, result.exit_code) == (f"{len(MESSES)}\n", 0)
        assert result.duration < SOON
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", person.project], check=False)
        subprocess.run(["rm", "-rf", person.project], check=True)


# --- output --------------------------------------------------------------------------------------


def _memory_of(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


@contextmanager
def _command_line(person: Person, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        cli_argv("run", *arguments),
        cwd=person.project,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
        process.wait()


def _read_all(stream: object, pause: float, into: list[int]) -> threading.Thread:
    def work() -> None:
        while data := os.read(stream.fileno(), 1 << 16):  # type: ignore[attr-defined]
            into.append(len(data))
            time.sleep(pause)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


ENDLESS = {
    "lines": "yes",
    "lines of errors": "yes >&2",
    "lines on both streams": "yes & yes >&2",
    "one line": "cat /dev/zero",
    "noise": "cat /dev/urandom",
}


@pytest.mark.parametrize("how", ["as it comes", "--json", "to a slow reader"])
@pytest.mark.parametrize("kind", sorted(ENDLESS))
def test_endless_output_does_not_fill_our_memory(person: Person, kind: str, how: str) -> None:
    options = ["--json"] if how == "--json" else []
    options += ["--timeout", "1.5", "-c", f"echo begun; echo begun >&2; {ENDLESS[kind]}"]
    with _command_line(person, *options) as process:
        read: list[int] = []
        pause = 0.02 if how == "to a slow reader" else 0
        readers = [_read_all(s, pause, read) for s in (process.stdout, process.stderr)]
        start = time.monotonic()
        most = least = 0
        while process.poll() is None and time.monotonic() - start < 2 * SOON:
            time.sleep(0.05)
            now = _memory_of(process.pid)
            # By then it has loaded what it needs.
            if time.monotonic() - start > 0.7:
                least = least or now
                most = max(most, now)
        assert process.wait(SOON) == 124
        for reader in readers:
            reader.join(SOON)
    assert least > 0
    assert most - least < GROWTH


def test_the_program_answers_while_a_command_pours_out(person: Person) -> None:
    assert _longest_pause(lambda: person.bubble(timeout=1.5).exec("yes & yes >&2")) < 0.5


def _longest_pause(run: Callable[[], object]) -> float:
    """For how long a window would not have answered during a run."""

    async def main() -> float:
        task = asyncio.ensure_future(run())  # type: ignore[call-overload]
        longest, before = 0.0, time.monotonic()
        while not task.done():
            await asyncio.sleep(0.01)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
        await task
        return longest

    return loop.run(main())


def test_of_one_endless_line_the_ends_are_kept(person: Person) -> None:
    size = 300 * MIB
    result = person.run("printf begin; head -c 300M /dev/zero; printf end")
    assert result.exit_code == 0
    assert result.stdout.total == size + 8
    assert result.stdout.left_out == size + 8 - 2 * KEPT
    text = result.stdout.text
    assert text.startswith("begin\0")
    assert text.endswith("\0end")
    assert f"[... {result.stdout.left_out} bytes left out ...]" in text
    assert len(text) < 2 * KEPT + 100


def test_both_streams_at_once_lose_nothing(person: Person) -> None:
    one = "head -c 30M /dev/zero"
    result = person.run(f"{one} & {one} >&2 & {one} & {one} >&2 & wait")
    assert result.stdout.total == result.stderr.total == 60 * MIB


BYTES = {
    "all of them": bytes(range(256)) * 50,
    "half a character": "\u20ac".encode()[:2],
    "a character cut in two": b"a" * (KEPT - 1) + "\u20ac".encode() * KEPT,
    "surrogates": b"\xed\xa0\x80\xed\xb0\x80",
    "too long": b"\xf8\x88\x80\x80\x80 \xc0\xaf",
    "only zeros": bytes(1000),
    "escapes": b"\x1b]0;title\x07\x1b[2J\x1b[31mred\r\nover\x08\x9b0m",
}


@pytest.mark.parametrize("kind", sorted(BYTES))
def test_whatever_a_command_says_can_be_told(person: Person, kind: str) -> None:
    (person.project / "said").write_bytes(BYTES[kind])
    # As it is on a pipe, as text in JSON, harmless for the model.
    done = subprocess.run(
        cli_argv("run", "--", "cat", "said"),
        cwd=person.project,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert done.stdout == BYTES[kind]
    told = json.loads(person.cli("run", "--json", "--", "cat", "said").stdout)
    assert told["exit_code"] == 0
    result = person.run("cat said")
    assert result.stdout.total == len(BYTES[kind])
    assert told["stdout"] == result.stdout.text
    said = result.for_model()
    said.encode()
    assert "\x1b" not in said and "\0" not in said and "\x9b" not in said


# --- readers that do not read --------------------------------------------------------------------


@contextmanager
def _marked(
    person: Person, command: str, *options: str
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], bool]]]:
    """A command line, and whether all is gone that has its number in the arguments."""
    number = f"{random.randrange(9**8, 9**9)}"

    def gone() -> bool:
        end = time.monotonic() + SOON
        while any(number in _arguments(pid) for pid in os.listdir("/proc") if pid.isdigit()):
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    with _command_line(person, *options, "-c", f": {number}; {command}") as process:
        yield process, gone


def _arguments(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize(
    "command",
    [
        "yes",
        "yes >&2",
        "yes; true",
        "trap '' PIPE; yes 2>/dev/null; yes >&2; sleep 20",
        "yes & yes",
    ],
)
def test_a_reader_that_leaves_ends_the_command(person: Person, command: str) -> None:
    with _marked(person, command) as (process, gone):
        assert process.stdout is not None and process.stderr is not None
        stream = process.stderr if command == "yes >&2" else process.stdout
        assert os.read(stream.fileno(), 2) == b"y\n"
        process.stdout.close()
        process.stderr.close()
        left = time.monotonic()
        assert process.wait(SOON) == 128 + signal.SIGPIPE
        assert time.monotonic() - left < SOON
        assert gone()


def test_a_reader_that_does_not_read_keeps_no_command_alive(person: Person) -> None:
    with _marked(person, "sleep 50 & yes", "--timeout", "1") as (process, gone):
        # Nobody reads; the limit is kept all the same.
        time.sleep(1.5)
        number = process.args[-1]  # type: ignore[index]
        assert isinstance(number, str)
        inside = [
            p for p in os.listdir("/proc") if p.isdigit() and _arguments(p) == "sleep\00050\0"
        ]
        assert not any(number in Path(f"/proc/{p}/environ").read_text() for p in inside)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SOON) in (124, 128 + signal.SIGPIPE)
        assert gone()


def test_a_slow_reader_gets_everything(person: Person) -> None:
    with _command_line(person, "-c", "head -c 3M /dev/zero; echo end") as process:
        read: list[int] = []
        _read_all(process.stdout, 0.01, read).join(30)
        assert process.wait(SOON) == 0
    assert sum(read) == 3 * MIB + 4


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)], ids=str)
def test_a_program_without_streams_runs_its_command(
    person: Person, closed: tuple[int, ...]
) -> None:
    # Their numbers are given to other files then, which must not get the command's output.
    words = " ".join(f"{number}>&-" for number in closed)
    command = subprocess.list2cmdline(cli_argv()[:1])
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {words}', "sh", *cli_argv("run", "-c", "echo out; : >ran")],
        cwd=person.project,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert command
    assert (person.project / "ran").exists(), done.stderr
    assert b"Traceback" not in done.stderr


# --- commands that are too much ------------------------------------------------------------------


@pytest.mark.parametrize("size", [(128 << 10) - 1, 128 << 10, 1 << 20, 8 << 20])
def test_a_long_command_runs_or_is_refused(person: Person, size: int) -> None:
    command = ": ".ljust(size - 9, "x") + "; echo ok"
    assert len(command) == size
    if size < 128 << 10:
        assert person.run(command).stdout.text == "ok\n"
        return
    with pytest.raises(SandboxError, match="longer than"):
        person.run(command)


def test_a_long_command_is_refused_on_the_command_line(person: Person) -> None:
    # The kernel lets nobody start a program like that, so what is too long comes as one more word.
    done = person.cli("run", "--", "echo", "\u20ac" * (40 << 10))
    assert done.returncode == 0
    done = person.cli("run", "-c", "")
    assert done.returncode == 125
    assert done.stderr.startswith("ollmsandbox: ")


@pytest.mark.parametrize("words", [1_000, 300_000], ids=str)
def test_many_words_run_or_are_refused(person: Person, words: int) -> None:
    command = ["/bin/sh", "-c", "echo $#", "sh", *["word"] * words]
    try:
        assert person.run(command).stdout.text == f"{words}\n"
    except SandboxError as error:
        assert words > 10_000
        assert "too long" in str(error).lower()


BAD_COMMANDS = {
    "a NUL": "echo a\0b",
    "a NUL in a word": ["echo", "a\0b"],
    "half a character": "echo \ud800",
    "half a character in a word": ["echo", "\udfff"],
    "nothing": "",
    "only spaces": " \n\t ",
    "no words": [],
}


@pytest.mark.parametrize("kind", sorted(BAD_COMMANDS))
def test_what_cannot_be_a_command_is_refused(person: Person, kind: str) -> None:
    with pytest.raises(SandboxError):
        person.run(BAD_COMMANDS[kind])


@pytest.mark.parametrize("kind", ["bytes that are not UTF-8", "a new line", "right to left"])
def test_what_can_be_a_command_runs(person: Person, kind: str) -> None:
    word = {
        "bytes that are not UTF-8": "\udcff\udc80",
        "a new line": "a\nb",
        "right to left": "\u202eabc",
    }[kind]
    seen: list[bytes] = []

    async def noticed(data: bytes) -> None:
        seen.append(data)

    async def main() -> Result:
        return await person.bubble().exec(["printf", "%s", word], sinks=Sinks(noticed))

    assert loop.run(main()).exit_code == 0
    assert b"".join(seen) == os.fsencode(word)
