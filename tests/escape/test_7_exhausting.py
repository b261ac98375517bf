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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from attack import IS_ROOT, python
from conftest import Person, cli_argv, make_person

from ollmsandbox import loop
from ollmsandbox.errors import SandboxError
from ollmsandbox.sandbox.plain import PlainRunner
from ollmsandbox.sandbox.process import Sinks
from ollmsandbox.sandbox.result import Result, Stop

MIB = 1 << 20
# A run that is over is over at once; this is for a machine with much to do.
SOON = 40.0
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
    result = person.run(BOMBS[kind], profile=limited(person, "processes: 100"), timeout=SOON)
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
    assert _turns(lambda: person.bubble(profile=profile, timeout=2).exec(_BOMB)) > 1


# --- memory --------------------------------------------------------------------------------------

_FILL = "\nprint('filled', flush=True)\ntime.sleep(200)"
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
    result = person.run(python(MEMORY[kind]), profile=profile, timeout=SOON)
    # By us, or by a control group's.
    assert result.stop is Stop.MEMORY or result.signal == signal.SIGKILL, result.stderr.text
    assert result.exit_code == 137


def test_a_command_below_the_limit_is_left_alone(person: Person) -> None:
    profile = limited(person, "memory: 2 GiB")
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
    assert in_memory == {"/tmp", "/var/tmp", "/dev/shm", "/run", "/proc/1"}
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

# Again and again: what other programs delete meanwhile counts against it.
_AGAIN = "for i in 1 2 3 4; do {}; sleep 0.5; done"
DISK = {
    "a file": "head -c 200M /dev/zero >>big",
    "many files": "for j in 1 2 3 4 5; do head -c 40M /dev/zero >big$i$j; done",
    "space without content": "fallocate -l 200M big$i",
    "a file that was deleted": "exec 3>big; rm big; head -c 600M /dev/zero >&3",
}


@pytest.mark.parametrize("where", [".", "~/playground"], ids=["project", "playground"])
@pytest.mark.parametrize("kind", sorted(DISK))
def test_the_disk_is_limited(person: Person, kind: str, where: str) -> None:
    profile = limited(person, "disk: 100 MiB")
    command = f"cd {where} && {_AGAIN.format(DISK[kind])}"
    result = person.run(command, profile=profile, timeout=SOON)
    assert (result.stop, result.exit_code) == (Stop.DISK, 137)


def test_a_full_disk_ends_a_command(person: Person) -> None:
    command = _AGAIN.format("head -c 200M /dev/zero >>big")
    result = person.run(command, profile=limited(person, "free: 900 TiB"), timeout=SOON)
    assert (result.stop, result.exit_code) == (Stop.FULL, 137)
    assert "almost full" in result.for_model()


def test_a_sparse_file_is_not_counted(person: Person) -> None:
    profile = limited(person, "disk: 50 GiB")
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
    for number in range(250):
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
    "many files": (_MANY, 5_000),
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
        assert result.duration < SOON
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", person.project], check=False)
        subprocess.run(["rm", "-rf", person.project], check=True)


# --- output --------------------------------------------------------------------------------------


def _memory_of(pid: int) -> int:
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
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


def _read_all(stream: IO[bytes] | None, pause: float, into: list[int]) -> threading.Thread:
    assert stream is not None
    number = stream.fileno()

    def work() -> None:
        while data := os.read(number, 1 << 16):
            into.append(len(data))
            time.sleep(pause)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


ENDLESS = {
    "lines": "yes",
    "lines on both streams": "yes & yes >&2",
    "one line": "cat /dev/zero",
    "noise": "cat /dev/urandom",
}


@pytest.mark.parametrize("how", ["as it comes", "as JSON", "to a slow reader"])
@pytest.mark.parametrize("kind", sorted(ENDLESS))
def test_endless_output_does_not_fill_our_memory(
    person: Person, memory_of_one_that_says_nothing: int, kind: str, how: str
) -> None:
    options = ["--json"] if how == "as JSON" else []
    pause = 0.004 if how == "to a slow reader" else 0
    # Longer where the machine had no time for it.
    for seconds in ("0.4", "5", "30"):
        given = [*options, "--timeout", seconds, "-c", ENDLESS[kind]]
        code, read, most = _measured(person, pause, *given)
        if read > KEPT:
            break
    assert code == 124
    assert read > KEPT
    assert most - memory_of_one_that_says_nothing < GROWTH


@pytest.fixture(scope="module")
def memory_of_one_that_says_nothing(tmp_path_factory: pytest.TempPathFactory) -> int:
    person = make_person(tmp_path_factory.mktemp("silent"))
    _code, _read, most = _measured(person, 0, "-c", "sleep 0.5")
    return most


def _measured(person: Person, pause: float, *options: str) -> tuple[int, int, int]:
    """Exit status, bytes read, and the most memory that the program had."""
    with _command_line(person, *options) as process:
        read: list[int] = []
        readers = [_read_all(stream, pause, read) for stream in (process.stdout, process.stderr)]
        end = time.monotonic() + 4 * SOON
        most = 0
        while process.poll() is None and time.monotonic() < end:
            most = max(most, _memory_of(process.pid))
            time.sleep(0.02)
        code = process.wait(SOON)
        for reader in readers:
            reader.join(SOON)
    return code, sum(read), most


def test_the_program_answers_while_a_command_pours_out(person: Person) -> None:
    assert _turns(lambda: person.bubble(timeout=1.5).exec("yes & yes >&2")) > 1


def _turns(run: Callable[[], Coroutine[object, object, Result]]) -> int:
    """How many times a window could have answered during a run; once, if it was held up by all of
    it. The machine may have little time for us meanwhile."""

    async def main() -> int:
        task = asyncio.ensure_future(run())
        turns = 0
        while not task.done():
            await asyncio.sleep(0.01)
            turns += 1
        await task
        return turns

    return loop.run(main())


def test_of_one_endless_line_the_ends_are_kept(person: Person) -> None:
    size = 100 * MIB
    result = person.run("printf begin; head -c 100M /dev/zero; printf end")
    assert result.exit_code == 0
    assert result.stdout.total == size + 8
    assert result.stdout.left_out == size + 8 - 2 * KEPT
    text = result.stdout.text
    assert text.startswith("begin\0")
    assert text.endswith("\0end")
    assert f"[... {result.stdout.left_out} bytes left out ...]" in text
    assert len(text) < 2 * KEPT + 100


def test_both_streams_at_once_lose_nothing(person: Person) -> None:
    one = "head -c 10M /dev/zero"
    result = person.run(f"{one} & {one} >&2 & {one} & {one} >&2 & wait")
    assert result.stdout.total == result.stderr.total == 20 * MIB


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
    """A command line, and whether what it started is gone; all of that has a number of its own in
    the arguments."""
    number = str(random.randrange(9**8, 9**9))

    def gone() -> bool:
        end = time.monotonic() + SOON
        while [pid for pid in _processes() if number in _arguments(pid) and pid != process.pid]:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    with _command_line(person, *options, "-c", f": {number}; {command}; :") as process:
        yield process, gone


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _arguments(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


LEFT = {
    "output": "yes",
    "errors": "yes >&2",
    "ignored signals": "trap '' PIPE; yes 2>/dev/null; yes >&2; sleep 20",
    "a child": "yes & yes",
}


@pytest.mark.parametrize("kind", sorted(LEFT))
def test_a_reader_that_leaves_ends_the_command(person: Person, kind: str) -> None:
    with _marked(person, LEFT[kind]) as (process, gone):
        assert process.stdout is not None
        assert process.stderr is not None
        stream = process.stderr if kind == "errors" else process.stdout
        assert os.read(stream.fileno(), 2) == b"y\n"
        process.stdout.close()
        process.stderr.close()
        assert process.wait(SOON) == 128 + signal.SIGPIPE
        assert gone()


def test_a_reader_that_does_not_read_keeps_no_command_alive(person: Person) -> None:
    with _marked(person, "yes", "--timeout", "0.6") as (process, gone):
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 2) == b"y\n"
        # The rest waits to be read, by us; the command does not.
        assert gone()
        process.stdout.close()
        assert process.wait(SOON) in (124, 128 + signal.SIGPIPE)


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
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {words}', "sh", *cli_argv("run", "-c", "echo out; : >ran")],
        cwd=person.project,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
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


def test_bytes_are_counted_not_characters(person: Person) -> None:
    with pytest.raises(SandboxError, match="longer than"):
        person.run(["echo", "\u20ac" * (44 << 10)])


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


@pytest.mark.parametrize("sandbox", [True, False], ids=["sandbox", "no sandbox"])
@pytest.mark.parametrize("kind", sorted(BAD_COMMANDS))
def test_what_cannot_be_a_command_is_refused(person: Person, kind: str, sandbox: bool) -> None:
    async def yes(_question: str) -> bool:
        return True

    plain = PlainRunner(person.project, ask=yes, environ=person.environ)
    runner = person.bubble() if sandbox else plain
    with pytest.raises(SandboxError):
        loop.run(runner.exec(BAD_COMMANDS[kind]))


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
