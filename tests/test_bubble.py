# SPDX-License-Identifier: GPL-3.0-or-later
"""A command in a real sandbox: what it gets, what it leaves, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Person, cli_argv, given_time, make_person

from ollmsandbox import loop
from ollmsandbox.errors import ProjectError, SandboxError
from ollmsandbox.sandbox.bubble import Bubble
from ollmsandbox.sandbox.mounts import OverlayWay
from ollmsandbox.sandbox.probe import Capabilities, probe
from ollmsandbox.sandbox.process import Sinks
from ollmsandbox.sandbox.result import Result, Stop

IS_ROOT = os.getuid() == 0


def ways_of_this_machine() -> list[OverlayWay]:
    """Without any overlay it must work everywhere."""
    with tempfile.TemporaryDirectory() as folder:
        person = make_person(Path(folder))
        found = probe(person.paths, person.environ)
    ways = [OverlayWay.UNSHARE] if found.namespaces else []
    if any(finding.key == "overlay-bwrap" and finding.ok for finding in found.findings):
        ways.append(OverlayWay.BWRAP)
    return [*ways, OverlayWay.NONE]


WAYS = ways_of_this_machine()
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.value)
# Without one, changes could not be recorded, and the project is not written.
OVERLAYS = [way for way in WAYS if way is not OverlayWay.NONE]
each_overlay = pytest.mark.parametrize("way", OVERLAYS, ids=lambda way: way.value)


def by(person: Person, way: OverlayWay) -> Capabilities:
    return replace(probe(person.paths, person.environ), overlay=way)


def with_profile(person: Person, text: str, name: str = "mine") -> None:
    person.paths.profiles.mkdir(parents=True, exist_ok=True)
    (person.paths.profiles / f"{name}.yaml").write_text(text)


# --- how a command ends ------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 2, 42, 124, 125, 126, 127, 128, 255])
def test_the_exit_code_is_the_commands(person: Person, code: int) -> None:
    result = person.run(f"exit {code}")
    assert result.exit_code == code
    assert result.stop is None
    assert not result.timed_out


@pytest.mark.parametrize("number", [1, 2, 3, 6, 9, 11, 13, 14, 15], ids=signal.strsignal)
def test_a_signal_that_ends_it_is_added_to_128(person: Person, number: int) -> None:
    result = person.run(f"kill -{number} $$")
    assert result.exit_code == 128 + number
    assert result.signal == number
    assert result.stop is None


def test_output_and_errors_are_kept_apart(person: Person) -> None:
    result = person.run("echo one; echo two >&2; echo three; echo four >&2")
    assert result.stdout.text == "one\nthree\n"
    assert result.stderr.text == "two\nfour\n"
    assert not result.truncated


def test_a_command_that_is_not_there_ends_with_127(person: Person) -> None:
    for command in ("no-such-command-here", ["no-such-command-here"], ["./missing"]):
        result = person.run(command)
        assert result.exit_code == 127
        assert "not found" in result.stderr.text


def test_a_file_that_is_no_program_ends_with_126(person: Person) -> None:
    (person.project / "text").write_text("hello")
    for command in ("./text", ["./text"], ["/etc"]):
        result = person.run(command)
        assert result.exit_code == 126
        assert "ermission denied" in result.stderr.text


@pytest.mark.parametrize("command", ["", " ", "\n\t", []], ids=repr)
def test_an_empty_command_is_an_error(person: Person, command: str | list[str]) -> None:
    with pytest.raises(SandboxError, match="The command is empty"):
        person.run(command)


@pytest.mark.parametrize("command", ["touch ran\0", ["touch", "ran", "\0"]], ids=repr)
def test_a_command_with_a_nul_is_an_error(person: Person, command: str | list[str]) -> None:
    with pytest.raises(SandboxError, match="NUL"):
        person.run(command)
    assert not (person.project / "ran").exists()


def test_a_command_may_be_as_long_as_the_kernel_takes(person: Person) -> None:
    longest = (128 << 10) - 1
    text = "printf %s ${#1}".ljust(longest)
    assert person.run(["sh", "-c", "printf %s ${#1}", "sh", "x" * longest]).stdout.text == str(
        longest
    )
    assert person.run(text).exit_code == 0
    for command in (
        text + " ",
        ["touch", "x" * (longest + 1)],
        ["touch", "ü" * (longest // 2 + 1)],
    ):
        with pytest.raises(SandboxError, match="longer than"):
            person.run(command)


def test_too_many_words_are_an_error_and_nothing_runs(person: Person) -> None:
    with pytest.raises(SandboxError, match="did not run"):
        person.run(["touch", "ran", *["x" * 100_000] * 100])
    assert os.listdir(person.project) == []


def test_shell_text_goes_through_the_shell_and_words_do_not(person: Person) -> None:
    assert person.run("echo $((1 + 1)) | tr 2 3").stdout.text == "3\n"
    words = ["printf", "[%s]", "$(touch ran)", "a  b", "", "*", "-n", "'\"`", "new\nline", "ü"]
    assert person.run(words).stdout.text == "".join(f"[{word}]" for word in words[2:])
    assert not (person.project / "ran").exists()


def test_a_command_may_begin_with_a_dash(person: Person) -> None:
    program = person.project / "-c"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    assert person.run(["./-c"]).stdout.text == "ran\n"
    assert person.run(["-c", "touch", "ran"]).exit_code == 127
    assert not (person.project / "ran").exists()


# --- where it runs -----------------------------------------------------------------------------


def test_it_starts_in_the_project_and_its_changes_are_real(person: Person) -> None:
    (person.project / "old").write_text("old")
    result = person.run("pwd; cat old; rm old; echo new >new; mkdir -p a/b; ln -s new link")
    assert result.stdout.text == f"{person.project}\nold"
    assert (person.project / "new").read_text() == "new\n"
    assert (person.project / "a/b").is_dir()
    assert os.readlink(person.project / "link") == "new"
    assert not (person.project / "old").exists()
    assert (person.project / "new").stat().st_uid == os.getuid()


ODD_NAMES = {
    "everything": "we,ird:na\\me \"q\" 'ü'",
    "newline at the end": "end\n",
    "newline inside": "new\nline",
    "200 characters": "x" * 200,
    "not UTF-8": os.fsdecode(b"caf\xe9\xff"),
    "leading dash": "-rf",
    "command": "$(touch ran)",
    "spaces": "  ",
    "star": "*",
    "backslash at the end": "end\\",
    "octal": "\\040\\134",
    "tilde": "~",
    "dots": "...",
    "control characters": "\x01\x1b[31m\x7f",
}


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES.keys())
@each_overlay
def test_a_project_may_have_any_name(person: Person, name: str, way: OverlayWay) -> None:
    project = person.home / name
    project.mkdir()
    (project / "old").write_text("old")
    command = 'cat old; mkdir inner; cp old "$PWD/new"'
    result = person.run(command, project=project, capabilities=by(person, way))
    assert (result.exit_code, result.stdout.text) == (0, "old")
    assert sorted(os.listdir(project)) == ["inner", "new", "old"]
    deeper = person.run("touch deep", project=project, working_dir="inner")
    assert deeper.exit_code == 0
    assert os.listdir(project / "inner") == ["deep"]
    assert not (person.project / "ran").exists()


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES.keys())
def test_a_project_of_any_name_can_be_read_without_an_overlay(person: Person, name: str) -> None:
    project = person.home / name
    project.mkdir()
    (project / "old").write_text("old")
    command = 'cat old "$PWD/old"; mkdir inner'
    result = person.run(command, project=project, capabilities=by(person, OverlayWay.NONE))
    assert (result.exit_code, result.stdout.text) == (1, "oldold")
    assert result.stderr.text.endswith("Read-only file system\n")
    assert os.listdir(project) == ["old"]


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES.keys())
def test_a_folder_in_the_project_may_have_any_name(person: Person, name: str) -> None:
    (person.project / name).mkdir()
    result = person.run(["touch", "./made"], working_dir=f"./{name}")
    assert result.exit_code == 0
    assert os.listdir(person.project / name) == ["made"]


def test_a_project_may_lie_outside_of_the_home_folder(person: Person, tmp_path: Path) -> None:
    project = tmp_path / "elsewhere"
    project.mkdir()
    assert person.run("pwd; touch made", project=project).stdout.text == f"{project}\n"
    assert (project / "made").exists()


@each_overlay
def test_a_project_may_lie_on_another_file_system(person: Person, way: OverlayWay) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as project:
        assert os.stat(project).st_dev != os.stat(person.home).st_dev
        result = person.run("pwd; touch made; ls", project=project, capabilities=by(person, way))
        assert result.stdout.text == f"{project}\nmade\n"
        assert os.listdir(project) == ["made"]


def test_a_project_on_another_file_system_can_be_read_without_an_overlay(person: Person) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as project:
        Path(project, "old").write_text("old")
        found = by(person, OverlayWay.NONE)
        result = person.run("pwd; cat old; touch made", project=project, capabilities=found)
        assert result.stdout.text == f"{project}\nold"
        assert "Read-only file system" in result.stderr.text
        assert os.listdir(project) == ["old"]


def in_mounts(script: str, *words: str | Path) -> list[str]:
    """How to start a command that has mounts of its own: they are gone with it."""
    begin = ["unshare", "-m"] if IS_ROOT else ["unshare", "-Urm"]
    back = [] if IS_ROOT else ["unshare", "-U", f"--map-user={os.getuid()}"]
    back += [] if IS_ROOT else [f"--map-group={os.getgid()}"]
    ready = f'set -e; {script}; shift {len(words)}; exec "$@"'
    return [*begin, "sh", "-c", ready, "sh", *map(str, words), *back]


READ_ONLY = 'mount -t tmpfs none "$1"; echo seen >"$1/file"; mount -o remount,bind,ro "$1"'


def run_beside(
    person: Person, before: list[str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, *cli_argv(*arguments)],
        cwd=person.home,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_project_on_a_read_only_file_system_can_be_read(person: Person) -> None:
    """A command may write there as everywhere; only applying it fails, and that is told."""
    done = run_beside(
        person,
        in_mounts(READ_ONLY, person.project),
        *("run", "--json", "--project", str(person.project), "-c"),
        "cat file; echo new >new && cat new; touch ~/playground/new",
    )
    told = json.loads(done.stdout)
    assert (told["exit_code"], told["stdout"]) == (0, "seen\nnew\n")
    (change,) = told["changes"]
    assert (change["path"], change["state"]) == ("new", "failed")
    assert "Read-only file system" in change["note"]
    assert os.listdir(person.project) == []
    assert (person.playground / "new").exists()


def test_what_is_mounted_in_the_home_folder_is_seen_and_not_written(person: Person) -> None:
    disk = person.home / "disk"
    (disk).mkdir()
    done = run_beside(
        person,
        in_mounts('mount -t tmpfs none "$1"; echo seen >"$1/file"', disk),
        *("run", "--project", str(person.project), "-c"),
        'cat ~/disk/file; touch ~/disk/new || echo "not written"; touch new',
    )
    assert (done.returncode, done.stdout) == (0, "seen\nnot written\n")
    # Of the project changes can be recorded all the same.
    assert os.listdir(person.project) == ["new"]


def test_what_is_mounted_in_the_project_is_seen_and_not_written(person: Person) -> None:
    """An overlay does not reach into other mounts, so nothing there could be recorded."""
    disk = person.project / "disk"
    disk.mkdir()
    (person.project / "old").write_text("old\n")
    done = run_beside(
        person,
        in_mounts('mount -t tmpfs none "$1"; echo seen >"$1/file"', disk),
        *("run", "--project", str(person.project), "-c"),
        "cat old disk/file; echo x >disk/file; echo new >new; cat disk/file; touch ~/playground/a",
    )
    assert (done.returncode, done.stdout) == (0, "old\nseen\nseen\n")
    assert "cannot create disk/file: Read-only file system" in done.stderr
    assert (person.playground / "a").exists()
    if IS_ROOT:
        assert (person.project / "new").read_text() == "new\n"
    else:
        # A user namespace cannot take the project apart from what is mounted in it.
        assert "cannot create new: Read-only file system" in done.stderr
        assert f"{person.project} (the project) can be read, not written" in done.stderr
        assert not (person.project / "new").exists()
    assert os.listdir(disk) == []


# As high as overlays can be stacked, so that no other can be put on top.
STACKED = (
    'mount -t overlay none -o "userxattr,lowerdir=$1:$2" "$3";'
    'mount -t overlay none -o "userxattr,lowerdir=$3:$4" "$1"'
)


def test_where_no_overlay_can_be_mounted_commands_run_all_the_same(
    person: Person, tmp_path: Path
) -> None:
    for name in ("DATA", "CACHE"):
        person.environ[f"XDG_{name}_HOME"] = str(tmp_path / name)
    (person.home / ".ssh").mkdir()
    for name in ("two", "three", "four"):
        (tmp_path / name).mkdir()
    around = in_mounts(STACKED, person.home, *(tmp_path / n for n in ("two", "three", "four")))
    told = json.loads(run_beside(person, around, "doctor", "--json").stdout)
    assert (told["overlay"], told["sandboxed"]) == ("none", True)
    overlay = next(check for check in told["checks"] if check["key"] == "overlay")
    assert (overlay["ok"], overlay["needed"]) == (False, False)
    assert overlay["cause"]
    assert "project" in overlay["remedy"]
    writes = next(check for check in told["checks"] if check["key"] == "writes")
    assert (writes["ok"], writes["needed"]) == (False, False)
    assert "recorded" in writes["cause"]
    command = "ls ~; ls -A ~/.ssh; touch ~/playground/new; touch new"
    done = run_beside(person, around, "run", "--project", str(person.project), "-c", command)
    assert (done.returncode, done.stdout) == (1, "playground\nproject\n")
    assert "cannot touch 'new': Read-only file system" in done.stderr
    assert f"{person.project} (the project) can be read, not written" in done.stderr
    assert os.listdir(person.playground) == ["new"]
    assert os.listdir(person.project) == []


def test_where_changes_cannot_be_kept_the_project_is_not_written(
    person: Person, tmp_path: Path
) -> None:
    """An overlay's own changes cannot be kept on another overlay, as a container's disk is one."""
    cache = tmp_path / "cache"
    person.environ["XDG_CACHE_HOME"] = str(cache)
    for folder in (cache, tmp_path / "two", tmp_path / "upper", tmp_path / "work"):
        folder.mkdir()
    mounted = 'mount -t overlay none -o "userxattr,lowerdir=$2,upperdir=$3,workdir=$4" "$1"'
    folders = (cache, *(tmp_path / name for name in ("two", "upper", "work")))
    done = run_beside(
        person,
        in_mounts(mounted, *folders),
        *("run", "--project", str(person.project), "-c", "pwd; touch ~/playground/new; touch new"),
    )
    assert (done.returncode, done.stdout) == (1, f"{person.project}\n")
    assert f"{person.project} (the project) can be read, not written" in done.stderr
    assert os.listdir(person.playground) == ["new"]
    assert os.listdir(person.project) == []


# --- the home folder and the playground --------------------------------------------------------


@each_way
def test_the_home_folder_is_seen_without_secrets_and_not_written(
    person: Person, way: OverlayWay
) -> None:
    (person.home / ".ssh").mkdir()
    (person.home / ".ssh/id").write_text("secret")
    (person.home / ".bash_history").write_text("secret")
    (person.home / ".config/gh").mkdir(parents=True)
    (person.home / ".config/gh/hosts").write_text("secret")
    (person.home / ".config/app").write_text("seen")
    (person.home / "notes").write_text("seen")
    (person.home / "private").mkdir(mode=0o700)
    result = person.run(
        "cat ~/.ssh/id ~/.bash_history ~/.config/gh/hosts ~/.config/app ~/notes;"
        " stat -c %a ~/private; touch ~/new ~/.config/new; echo x >~/notes; rm ~/notes",
        capabilities=by(person, way),
    )
    assert result.stdout.text == "seenseen700\n"
    assert (person.home / "notes").read_text() == "seen"
    assert not (person.home / "new").exists()
    assert not (person.home / ".config/new").exists()


@each_way
def test_the_real_home_folder_stays_as_it_was(
    person: Person, way: OverlayWay, tmp_path: Path
) -> None:
    for name in ("DATA", "CACHE", "CONFIG"):
        person.environ[f"XDG_{name}_HOME"] = str(tmp_path / name)
    person.home.chmod(0o750)

    def look() -> list[str]:
        done = subprocess.run(
            ["find", person.home, "-printf", "%P %y %m %U %T@ %C@\n"],
            capture_output=True,
            text=True,
            check=True,
        )
        return sorted(done.stdout.splitlines())

    before = look()
    result = person.run("touch ~/playground/new; ls ~", capabilities=by(person, way))
    assert result.stdout.text == "playground\nproject\n"
    assert look() == before
    assert os.listdir(person.playground) == ["new"]


@each_way
def test_the_playground_is_the_same_folder_for_every_run(person: Person, way: OverlayWay) -> None:
    found = by(person, way)
    assert person.run("echo kept >~/playground/note", capabilities=found).exit_code == 0
    other = person.home / "other"
    other.mkdir()
    result = person.run(
        "cat note; pwd", project=other, working_dir="playground", capabilities=found
    )
    assert result.stdout.text == f"kept\n{person.home}/playground\n"
    assert (person.playground / "note").read_text() == "kept\n"


def test_the_playground_is_the_same_folder_for_every_way(person: Person) -> None:
    for way in WAYS:
        person.run(f"touch ~/playground/{way.value}", capabilities=by(person, way))
    assert set(os.listdir(person.playground)) == {way.value for way in WAYS}


def test_a_folder_of_the_persons_own_called_playground_is_left_alone(person: Person) -> None:
    own = person.home / "playground"
    own.mkdir()
    (own / "mine").write_text("mine")
    result = person.run("ls ~/playground; touch ~/playground/new")
    assert (result.exit_code, result.stdout.text) == (0, "")
    assert os.listdir(own) == ["mine"]


def test_a_file_called_playground_is_left_alone(person: Person) -> None:
    (person.home / "playground").write_text("mine")
    result = person.run("touch ~/playground/new")
    assert result.exit_code == 0
    assert (person.home / "playground").read_text() == "mine"


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm"])
def test_temporary_folders_are_fresh_for_each_run(person: Person, folder: str) -> None:
    name = f"{folder}/ollmsandbox-test-{os.getpid()}"
    Path(name).touch()
    try:
        result = person.run(f"test -e {name} || echo fresh; echo x >{name}-inside; ls {folder}")
        assert "fresh\n" in result.stdout.text
        assert f"{os.path.basename(name)}-inside\n" in result.stdout.text
        assert person.run(f"cat {name}-inside").exit_code == 1
        assert not Path(f"{name}-inside").exists()
    finally:
        os.unlink(name)


def test_it_is_the_same_user_inside(person: Person) -> None:
    result = person.run("id -u; id -g")
    assert result.stdout.text == f"{os.getuid()}\n{os.getgid()}\n"


# --- side by side ------------------------------------------------------------------------------


async def five(person: Person) -> list[Result]:
    # None is over before all have begun.
    waiting = "until test $(ls ~/playground | wc -l) -ge 5; do sleep 0.02; done"
    command = f"echo $1 >/tmp/mine; touch $1 ~/playground/$1; {waiting}; cat /tmp/mine"
    return await asyncio.gather(
        *(person.bubble().exec(["sh", "-c", command, "sh", str(n)]) for n in range(5))
    )


def test_commands_run_side_by_side(person: Person) -> None:
    results = loop.run(five(person))
    assert [result.stdout.text for result in results] == [f"{n}\n" for n in range(5)]
    assert sorted(os.listdir(person.project)) == list("01234")
    assert sorted(os.listdir(person.playground)) == list("01234")


def test_commands_run_side_by_side_in_one_loop_after_another(person: Person) -> None:
    for _ in range(2):
        shutil.rmtree(person.playground, ignore_errors=True)
        assert [result.exit_code for result in loop.run(five(person))] == [0] * 5


def test_nothing_is_left_open_and_nobody_left_running(person: Person) -> None:
    person.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        person.run("sleep 100 & echo $!")
    with pytest.raises(SandboxError):
        person.run("true", capabilities=replace(by(person, OverlayWay.NONE), bwrap="/bin/false"))
    assert len(os.listdir("/proc/self/fd")) == before


# --- network -----------------------------------------------------------------------------------


@contextmanager
def server() -> Iterator[int]:
    """Says hello on the loopback interface; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    with listening.accept()[0] as talk:
                        talk.sendall(b"hello\n")
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listening.getsockname()[1])
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def call(port: int) -> list[str]:
    return ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3"]


@each_way
def test_the_network_is_off(person: Person, way: OverlayWay) -> None:
    with server() as port:
        result = person.run(call(port), capabilities=by(person, way))
        assert result.exit_code != 0
        assert result.stdout.text == ""
        assert subprocess.run(call(port), stdout=subprocess.PIPE, check=True).stdout == b"hello\n"


@each_way
def test_the_network_is_on_when_it_is_allowed(person: Person, way: OverlayWay) -> None:
    with server() as port:
        result = person.run(call(port), network=True, capabilities=by(person, way))
    assert (result.exit_code, result.stdout.text) == (0, "hello\n")


def test_names_are_resolved_as_outside_when_the_network_is_on(person: Person) -> None:
    result = person.run("cat /etc/resolv.conf; getent hosts localhost", network=True)
    assert Path("/etc/resolv.conf").read_text() in result.stdout.text
    assert "localhost" in result.stdout.text


def test_a_command_can_talk_to_itself_without_the_network(person: Person) -> None:
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 8080));"
        "c = socket.create_connection(s.getsockname()); s.accept()[0].send(b'me');"
        "print(c.recv(2).decode())"
    )
    assert person.run(["/usr/bin/python3", "-c", program]).stdout.text == "me\n"


# --- an end before its time --------------------------------------------------------------------


def test_a_time_out_keeps_the_output_so_far(person: Person) -> None:
    command = "echo before; echo wrong >&2; sleep 60; echo after"
    result = given_time(lambda s: person.run(command, timeout=s), lambda r: r.stderr.text)
    assert result.timed_out
    assert (result.exit_code, result.stop) == (124, Stop.TIME)
    assert (result.stdout.text, result.stderr.text) == ("before\n", "wrong\n")


def test_a_time_out_ends_what_ignores_signals_and_hides(person: Person) -> None:
    beat = person.project / "beat"
    command = "trap '' TERM INT HUP; setsid sh -c 'while :; do date +%N >beat; done' & sleep 60"
    result = given_time(lambda s: person.run(command, timeout=s), lambda _: beat.exists())
    assert result.timed_out
    last = beat.read_text()
    time.sleep(0.2)
    assert beat.read_text() == last


def test_a_child_in_the_background_ends_with_the_command(person: Person) -> None:
    result = person.run("(while :; do date +%N >beat; done) & setsid sleep 100 & echo done")
    assert result.duration < 50
    assert (result.exit_code, result.stdout.text) == (0, "done\n")
    beat = person.project / "beat"
    last = beat.read_text() if beat.exists() else ""
    time.sleep(0.2)
    assert (beat.read_text() if beat.exists() else "") == last


def test_a_command_can_be_stopped(person: Person) -> None:
    bubble = person.bubble()

    async def stop_at_the_first_word(_data: bytes) -> None:
        bubble.stop()

    exec_ = bubble.exec("echo begun; sleep 60", sinks=Sinks(stdout=stop_at_the_first_word))
    result = loop.run(exec_)
    assert (result.exit_code, result.stop) == (137, Stop.PERSON)
    assert result.stdout.text == "begun\n"


def test_a_task_that_is_cancelled_ends_the_command(person: Person) -> None:
    async def cancelled() -> None:
        begun = asyncio.Event()

        async def note(_data: bytes) -> None:
            begun.set()

        command = "date >beat; echo begun; while :; do date +%N >beat; done"
        bubble = person.bubble()
        task = asyncio.ensure_future(bubble.exec(command, sinks=Sinks(stdout=note)))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(cancelled())
    last = (person.project / "beat").read_text()
    time.sleep(0.2)
    assert (person.project / "beat").read_text() == last


def test_a_sink_that_fails_ends_the_command_and_is_told(person: Person) -> None:
    async def full(_data: bytes) -> None:
        raise OSError("nobody takes it")

    with pytest.raises(OSError, match="nobody takes it"):
        loop.run(person.bubble().exec("echo begun; sleep 60", sinks=Sinks(stdout=full)))


def test_a_command_whose_limits_cannot_be_looked_at_does_not_run_on(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_given: object) -> Stop:
        raise RuntimeError("no clock")

    monkeypatch.setattr("ollmsandbox.sandbox.bubble.watch", broken)
    with pytest.raises(RuntimeError, match="no clock"):
        loop.run(person.bubble().exec("sleep 87654"))


def test_endless_output_is_bounded_and_ended_in_time(person: Person) -> None:
    result = given_time(
        lambda s: person.run("yes", timeout=s, capture=1000), lambda r: r.stdout.total > 1 << 20
    )
    assert result.timed_out
    assert result.truncated
    assert result.stdout.total > 1 << 20
    assert len(result.stdout.text) < 2100
    assert result.stdout.text.startswith("y\ny\n")
    assert f"{result.stdout.left_out} bytes left out" in result.stdout.text


def test_output_of_any_bytes_is_text(person: Person) -> None:
    result = person.run(r"printf 'a\377\000b\303\274\n'")
    assert result.stdout.text == "a\N{REPLACEMENT CHARACTER}\0bü\n"


# --- input -------------------------------------------------------------------------------------


def test_without_input_a_command_reads_nothing(person: Person) -> None:
    result = person.run("cat; readlink /proc/self/fd/0")
    assert result.stdout.text == "/dev/null\n"


def test_what_is_given_as_input_is_read(person: Person) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"given\n")
    os.close(writer)
    try:
        result = loop.run(person.bubble().exec("cat", stdin=reader))
    finally:
        os.close(reader)
    assert result.stdout.text == "given\n"


def test_nothing_else_that_is_open_is_handed_over(person: Person) -> None:
    with tempfile.TemporaryFile() as secret:
        os.set_inheritable(secret.fileno(), True)
        result = person.run("ls /proc/self/fd")
    # The last is the folder that ls reads.
    assert result.stdout.text.split() == ["0", "1", "2", "3"]


# --- environment and profile -------------------------------------------------------------------


def test_the_environment_is_inherited_without_secrets(person: Person) -> None:
    person.environ |= {"PLAIN": "a b\nc", "GITHUB_TOKEN": "s3cret", "Db_Password": "s3cret"}
    result = person.run('printf "%s" "$PLAIN"; env; cat /proc/1/environ /proc/self/environ')
    assert result.stdout.text.startswith("a b\nc")
    assert "s3cret" not in result.stdout.text
    assert f"HOME={person.home}\n" in result.stdout.text
    assert f"PWD={person.project}\n" in result.stdout.text


def test_the_environment_of_the_program_itself_is_not_inherited(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_THE_PROGRAM", "x")
    assert person.run('echo "[$FROM_THE_PROGRAM]"').stdout.text == "[]\n"


def test_variables_of_a_profile_are_set_and_dropped(person: Person) -> None:
    person.environ |= {"MINE": "x", "KEPT_TOKEN": "kept", "EDITOR": "vi"}
    with_profile(
        person, "environment: {drop: [MINE], keep: [KEPT_TOKEN], set: {EDITOR: 'cat \"x\"'}}"
    )
    result = person.run('echo "[$MINE][$KEPT_TOKEN][$EDITOR]"', profile="mine")
    assert result.stdout.text == '[][kept][cat "x"]\n'


def test_a_changed_profile_counts_from_the_next_run_on(person: Person) -> None:
    (person.home / "letters").write_text("secret")
    assert person.run("cat ~/letters").stdout.text == "secret"
    with_profile(person, "masks: [~/letters]", "standard")
    assert person.run("cat ~/letters").stdout.text == ""
    with_profile(person, "masks: [~/others]", "standard")
    assert person.run("cat ~/letters").stdout.text == "secret"


def test_without_a_profile_the_persons_standard_is_used(person: Person) -> None:
    with_profile(person, "environment: {set: {FROM: mine}}", "standard")
    bubble = Bubble(person.project, environ=person.environ)
    assert loop.run(bubble.exec("echo $FROM")).stdout.text == "mine\n"


def test_what_a_profile_shows_is_seen(person: Person) -> None:
    (person.home / ".npmrc").write_text("seen")
    assert person.run("cat ~/.npmrc").stdout.text == ""
    with_profile(person, "show: [~/.npmrc]")
    assert person.run("cat ~/.npmrc", profile="mine").stdout.text == "seen"


def test_the_time_limit_of_a_profile_counts(person: Person) -> None:
    with_profile(person, "limits: {time: 0.5 s}")
    assert person.run("sleep 60", profile="mine", timeout=None).timed_out


def test_the_limit_of_processes_counts(person: Person) -> None:
    with_profile(person, "limits: {processes: 20}")
    command = "for i in $(seq 40); do sleep 50 & done; sleep 50; echo all"
    result = person.run(command, profile="mine")
    assert result.exit_code != 0
    assert "all" not in result.stdout.text


def test_the_limit_of_the_disk_counts(person: Person) -> None:
    with_profile(person, "limits: {disk: 8 MiB}")
    result = person.run("head -c 200M /dev/zero >big; sync; sleep 50; echo all", profile="mine")
    assert result.stop is Stop.DISK
    assert result.exit_code == 137
    assert "all" not in result.stdout.text


def test_the_limit_of_memory_counts(person: Person) -> None:
    with_profile(person, "limits: {memory: 100 MiB}")
    program = "import time; x = b'x' * (300 << 20); time.sleep(50); print('all')"
    result = person.run(["/usr/bin/python3", "-c", program], profile="mine")
    assert result.exit_code == 137
    assert "all" not in result.stdout.text


def test_the_limit_of_tmp_counts(person: Person) -> None:
    with_profile(person, "limits: {tmp: 1 MiB}")
    result = person.run("head -c 4M /dev/zero >/tmp/big", profile="mine")
    assert "No space left" in result.stderr.text


def test_no_limit_is_no_limit(person: Person) -> None:
    limits = "{time: none, processes: none, disk: none, free: none, memory: none, tmp: none}"
    with_profile(person, f"limits: {limits}")
    assert person.run("echo ran", profile="mine", timeout=None).stdout.text == "ran\n"


@each_way
def test_a_strict_command_runs(person: Person, way: OverlayWay) -> None:
    command = "cd ~/playground && echo ran >made; cat made"
    result = person.run(command, profile="strict", capabilities=by(person, way))
    assert (result.exit_code, result.stdout.text) == (0, "ran\n")


@each_overlay
def test_a_strict_command_writes_to_the_project(person: Person, way: OverlayWay) -> None:
    result = person.run("echo ran >made; cat made", profile="strict", capabilities=by(person, way))
    assert (result.exit_code, result.stdout.text) == (0, "ran\n")
    assert (person.project / "made").read_text() == "ran\n"


# --- in other sandboxes ------------------------------------------------------------------------

NESTED = ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--unshare-pid", "--proc", "/proc"]


def test_in_another_sandbox_a_command_runs_in_one_of_its_own_or_not_at_all(person: Person) -> None:
    (person.home / ".ssh").mkdir()
    command = 'touch ran; ls -A ~; echo x >~/new || echo "not written"'
    done = run_beside(person, NESTED, "run", "--project", str(person.project), "-c", command)
    assert "Traceback" not in done.stderr
    assert not (person.home / "new").exists()
    if IS_ROOT and done.returncode == 125:
        # The kernel lets root mount no second /proc where the one around is partly covered.
        assert done.stdout == ""
        assert "cannot be sandboxed here" in done.stderr
        assert "container or sandbox around" in done.stderr
        assert not (person.project / "ran").exists()
    else:
        assert done.returncode == 0
        assert "not written" in done.stdout
        assert ".ssh" not in done.stdout
        assert (person.project / "ran").exists()


def test_in_our_own_sandbox_none_can_start_and_that_is_told(person: Person) -> None:
    bwrap = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    result = person.run([*bwrap, "--unshare-user", "touch", "ran"])
    assert result.exit_code not in (0, 127)
    assert not (person.project / "ran").exists()


# --- what goes wrong ---------------------------------------------------------------------------


def test_a_project_that_goes_away_is_an_error_and_nothing_runs(person: Person) -> None:
    bubble = person.bubble()
    shutil.rmtree(person.project)
    with pytest.raises((SandboxError, ProjectError)):
        loop.run(bubble.exec("touch ~/playground/ran"))
    assert not (person.playground / "ran").exists()


def test_a_bwrap_that_is_gone_is_an_error_with_its_reason(person: Person) -> None:
    found = replace(probe(person.paths, person.environ), bwrap=f"{person.home}/gone")
    with pytest.raises(SandboxError) as caught:
        person.run("touch ran", capabilities=found)
    assert "the command did not run" in str(caught.value)
    assert f"{person.home}/gone: No such file or directory." in str(caught.value)
    assert not (person.project / "ran").exists()


def test_the_duration_is_the_commands(person: Person) -> None:
    before = time.monotonic()
    assert 0.2 < person.run("sleep 0.3").duration < time.monotonic() - before
