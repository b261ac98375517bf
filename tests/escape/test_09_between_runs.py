# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that one command leaves must not run outside, or lift a mask, when the next command
starts."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.bubble import with_profile
from support.escape.attack import python
from support.person import ROOT, Person, make_person

from ollmsandbox import loop
from ollmsandbox.errors import OllmSandboxError, ProfileError, ProjectError
from ollmsandbox.sandbox.process import Sinks

LIBRARY = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) {
    FILE *file = fopen(getenv("MARK") ? getenv("MARK") : "MARK_PATH", "w");
    if (file) fclose(file);
}
"""


@pytest.fixture
def library(person: Person) -> tuple[Path, Path]:
    """A library that tells when it is loaded, under the name of one that bwrap needs."""
    folder, mark = person.project / "lib", person.home / "loaded"
    folder.mkdir()
    source = folder / "l.c"
    source.write_text(LIBRARY.replace("MARK_PATH", str(mark)))
    made = folder / "libselinux.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    return made, mark


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"])
def test_a_library_for_the_program_that_makes_the_sandbox(
    person: Person, library: tuple[Path, Path], variable: str
) -> None:
    made, mark = library
    person.environ[variable] = str(made.parent if variable.endswith("PATH") else made)
    outside = person.run_outside("bwrap --version")
    assert mark.exists() or variable != "LD_PRELOAD", outside.stderr
    mark.unlink(missing_ok=True)
    assert person.run("true").exit_code == 0
    assert not mark.exists()


def test_the_user_s_library_path_is_passed_to_the_command(person: Person) -> None:
    person.environ["LD_LIBRARY_PATH"] = "/opt/lib"
    assert person.run('echo "$LD_LIBRARY_PATH"').stdout.text == "/opt/lib\n"


RUN_COPY = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from ollmsandbox.__main__ import main
sys.exit(main())
"""


def run_copy(person: Person, *options: str) -> str:
    """Run a copy of the program that is in the project, as in a checkout of it."""
    argv = [sys.executable, "-I", "-c", RUN_COPY, str(person.project), "run", *options]
    done = person.run_outside(argv)
    assert done.stdout, done.stderr
    return done.stdout


def test_the_program_s_own_code(person: Person) -> None:
    # Where `build-aux/run` is used on the checkout itself.
    package = person.project / "ollmsandbox"
    shutil.copytree(ROOT / "ollmsandbox", package)
    (person.project / "build-aux").mkdir()
    (person.project / "build-aux/run").write_text("old\n")
    attack = """
    for place in ollmsandbox ollmsandbox/sandbox/starter/server.py build-aux; do
        touch $place/x; echo evil >>$place; mv $place away; rm -rf $place
    done 2>/dev/null
    touch mine && echo fine
    """
    assert run_copy(person, "-c", attack) == "fine\n"
    for file in (ROOT / "ollmsandbox").rglob("*.py"):
        copied = package / file.relative_to(ROOT / "ollmsandbox")
        assert copied.read_bytes() == file.read_bytes()
    assert [file.read_text() for file in (person.project / "build-aux").iterdir()] == ["old\n"]
    # What builds the program waits for approval.
    inputs = ("meson.build", "pyproject.toml", "setup.py", "data/x.in", "po/LINGUAS", "new.py")
    for name in ("docs/x.md", "tests/x.py", *inputs[:-1]):
        (person.project / name).parent.mkdir(exist_ok=True)
        (person.project / name).write_text("old\n")
    attack = f"for f in {' '.join(inputs)} docs/x.md tests/x.py; do echo evil >>$f; done"
    changes = json.loads(run_copy(person, "--json", "-c", attack))["changes"]
    assert {one["path"] for one in changes if one["state"] == "pending"} == set(inputs)
    for name in inputs[:-1]:
        assert (person.project / name).read_text() == "old\n"


def link_from_a_command(person: Person) -> Path:
    """Return a link in the project that leads to a folder of the user's."""
    target = person.home / "bin"
    target.mkdir()
    (person.project / "sub").mkdir()
    done = person.cli("run", "-c", "rmdir sub; ln -s ~/bin sub; touch made")
    assert done.returncode == 0 and (person.project / "sub").is_symlink(), done.stderr
    return person.project / "sub"


def test_a_link_that_a_command_made_as_the_project(person: Person) -> None:
    link, target = link_from_a_command(person), person.home / "bin"
    (target / "inner").mkdir()
    for inner in ("", "/inner", "/../bin"):
        done = person.cli("run", "--project", f"{link}{inner}", "-c", "echo evil >x")
        assert done.returncode == 125 and str(target) in done.stderr, done.stderr
    person.environ["PWD"] = str(link)
    attack = ("-c", "echo evil >x")
    for words in (
        ("run", *attack),
        ("run", "--project", ".", *attack),
        ("run", "--project", "../bin", *attack),
        ("roots", "list"),
    ):
        done = person.cli(*words, cwd=link)
        assert done.returncode != 0 and str(target) in done.stderr, done.stderr
    assert not list(target.rglob("x"))
    # By its own name it is the user's choice.
    assert person.cli("run", "--project", str(target), "-c", "true").returncode == 0


def test_the_user_s_own_link_to_a_project(person: Person) -> None:
    person.cli("run", "-c", "touch made")
    (person.home / "way").symlink_to(person.project)
    assert person.cli("run", "--project", str(person.home / "way"), "-c", "true").returncode == 0


@pytest.mark.parametrize("mark", ["pyvenv.cfg", ".git", "package.json"])
def test_a_sandbox_program_in_another_project(person: Person, mark: str) -> None:
    # An environment of that project may be active still.
    other = person.home / "other"
    (other / "bin").mkdir(parents=True)
    (other / mark).touch()
    planted = other / "bin" / "bwrap"
    planted.write_text(f"#!/bin/sh\ntouch {person.home}/ran\n")
    planted.chmod(0o755)
    person.environ["PATH"] = f"{other}/bin:{person.environ['PATH']}"
    assert person.run("echo walled in").stdout.text == "walled in\n"
    assert person.cli("doctor").returncode == 0
    assert not (person.home / "ran").exists()


def test_renaming_the_folder_around_what_is_hidden_in_the_project(person: Person) -> None:
    secret = person.project / "private" / "deep" / "key"
    secret.parent.mkdir(parents=True)
    secret.write_text("secret")
    with_profile(person, f"masks: ['{secret}', /opt]\n")
    for attack in ("mv private/deep p; mv private p", "cat p/key p/deep/key private/deep/key"):
        assert "secret" not in person.run(attack, profile="mine").stdout.text
    assert secret.read_text() == "secret"
    # At the top of the file system, too.
    assert person.run("ls -A /opt", profile="mine").stdout.text == ""


def test_a_mask_around_the_home_folder_is_refused(person: Person) -> None:
    with_profile(person, f"masks: ['{person.home.parent}']\n")
    with pytest.raises(ProfileError, match="home folder"):
        person.run("true", profile="mine")


def test_a_removed_layer_is_made_again(person: Person, tmp_path: Path) -> None:
    # Of its own: all that run for one user have their layers at one place.
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    person.environ["XDG_RUNTIME_DIR"] = str(runtime)
    (person.home / ".ssh").mkdir()
    (person.home / ".ssh" / "key").write_text("secret")
    person.run("true")
    layers = list(runtime.glob("*/layers/*/top/.ssh"))
    assert layers
    for hidden in layers:
        hidden.unlink()
    # Another program: each looks at a layer once.
    assert "secret" not in person.cli("run", "--", "cat", f"{person.home}/.ssh/key").stdout


def test_secrets_stay_hidden_where_their_folder_was_moved(person: Person) -> None:
    moved = person.home / "moved"
    (moved / "gh").mkdir(parents=True)
    (moved / "gh" / "hosts.yml").write_text("secret")
    (person.home / "kube").write_text("secret")
    person.environ["XDG_CONFIG_HOME"] = str(moved)
    person.environ["KUBECONFIG"] = str(person.home / "kube")
    assert "secret" not in person.run("cat ~/moved/gh/hosts.yml ~/kube").stdout.text


def test_the_playground_is_cleared_while_a_command_swaps_folders_for_links(
    person: Person,
) -> None:
    precious = person.home / "precious"
    precious.mkdir()
    for number in range(50):
        (precious / f"{number}").touch()
    swap = f"""
import os
os.chdir({str(person.playground)!r})
while True:
    try:
        os.makedirs('a/b')
        os.rename('a', 'c')
        os.symlink('{precious}', 'a')
        os.unlink('a')
    except OSError:
        pass
"""
    person.playground.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", swap]) as swapping:
        try:
            for _ in range(8):
                person.cli("playground", "clear")
        finally:
            swapping.kill()
    assert len(list(precious.iterdir())) == 50


# One run offers ways to reach it in the playground and prints what comes in; the other one tries
# them all while the first one waits.
OFFER = """
    import mmap, select, threading
    os.chdir(os.environ['HOME'] + '/FOLDER')
    os.mkfifo('new pipe')
    pipes = {name: os.open(name, os.O_RDWR) for name in ('old pipe', 'new pipe')}
    stream, datagram = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, 2)
    stream.bind('stream'); stream.listen(); datagram.bind('datagram')
    file = open('file', 'r+b')
    fcntl.flock(file, fcntl.LOCK_EX)
    records = open('records', 'r+b')
    fcntl.lockf(records, fcntl.LOCK_EX)
    memory = mmap.mmap(file.fileno(), 6)
    memory[:] = b'secret'
    sent = open('sent', 'wb', buffering=0)
    sent.write(b'secret')
    print('ready', flush=True)
    named = {**{pipe: name for name, pipe in pipes.items()}, stream: 'stream', datagram: 'datagram'}
    while True:
        for one in select.select(list(named), [], [], 0.05)[0]:
            print(repr(named.pop(one)), flush=True)
        if memory[:] == b'answer':
            memory[:] = b'secret'
            print(repr('memory'), flush=True)
    """
TRY = """
    import mmap
    os.chdir(os.environ['HOME'] + '/FOLDER')
    def pipe(name):
        os.write(os.open(name, os.O_WRONLY | os.O_NONBLOCK), b'answer')
    def connect(name):
        socket.socket(socket.AF_UNIX).connect(name)
    def send(name):
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'answer', name)
    def memory(name):
        with open('file', 'r+b') as file:
            shared = mmap.mmap(file.fileno(), 6)
            seen = shared[:]
            shared[:] = b'answer'
        if seen != b'secret':
            raise BlockingIOError(0, 'it is another file')
    def read(name):
        open(name).close()
    def held(name):
        lock = fcntl.flock if name == 'file' else fcntl.lockf
        with open(name, 'r+b') as file:
            try:
                lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        raise BlockingIOError(0, 'it is free')
    for act, name in (
        (pipe, 'old pipe'), (pipe, 'new pipe'), (connect, 'stream'), (send, 'datagram'),
        (held, 'file'), (held, 'records'), (memory, 'memory'), (read, 'sent'),
    ):
        try:
            act(name)
            print(repr(name))
        except OSError:
            pass
    time.sleep(0.3)
    """
SOCKETS = {"stream", "datagram"}
INCOMING = {"old pipe", "new pipe", "memory", *SOCKETS}


def meet_in(
    person: Person, folder: str, *, offered_with_network: bool, tried_with_network: bool
) -> tuple[set[str], set[str]]:
    """Return which ways led from the second run to the first, as each of the two noticed."""
    prepare = "mkfifo 'old pipe' && printf public | tee file > records"
    if folder == "playground":
        # What a command left there would have no pipe.
        person.playground.mkdir(parents=True, exist_ok=True)
        subprocess.run(["sh", "-c", prepare], cwd=person.playground, check=True)
    else:
        assert person.run(f"cd ~/{folder} && {prepare}").exit_code == 0
    # With the network there are no Unix sockets.
    offer = OFFER.replace("stream, datagram = ", "stream, datagram = os.pipe() #")
    offer = offer.replace("stream.bind", "#") if offered_with_network else OFFER
    offer, attempt = offer.replace("FOLDER", folder), TRY.replace("FOLDER", folder)
    first = person.bubble(network=offered_with_network)
    second = person.bubble(network=tried_with_network)

    async def both() -> tuple[str, str]:
        ready, main = asyncio.Event(), asyncio.get_running_loop()

        def noticed(_data: bytes) -> None:
            main.call_soon_threadsafe(ready.set)

        offering = asyncio.ensure_future(first.exec(python(offer), sinks=Sinks(noticed)))
        waiting = asyncio.ensure_future(ready.wait())
        await asyncio.wait((offering, waiting), return_when=asyncio.FIRST_COMPLETED)
        assert not offering.done(), offering.result().stderr.text
        tried = await second.exec(python(attempt))
        assert tried.exit_code == 0, tried.stderr.text
        first.stop()
        return (await offering).stdout.text, tried.stdout.text

    offered, tried = loop.run(both())
    assert offered.startswith("ready\n")
    incoming = {ast.literal_eval(line) for line in offered.splitlines()[1:]}
    return incoming, {ast.literal_eval(line) for line in tried.splitlines()}


# The user has ~/.npm, but not ~/.cargo.
FOLDERS = ("playground", ".npm", ".cargo")


@pytest.mark.parametrize(
    ("folder", "offered_with_network", "tried_with_network"),
    [
        *(
            (folder, both, both)
            for folder in ("playground", ".npm", ".cargo")
            for both in (False, True)
        ),
        ("playground", False, True),
        ("playground", True, False),
    ],
)
def test_two_runs_at_once_do_not_meet(
    person: Person, folder: str, offered_with_network: bool, tried_with_network: bool
) -> None:
    (person.home / ".npm").mkdir()
    assert meet_in(
        person,
        folder,
        offered_with_network=offered_with_network,
        tried_with_network=tried_with_network,
    ) == (set(), set())


@pytest.mark.parametrize("network", [False, True], ids=["offline", "online"])
def test_two_runs_at_once_meet_in_a_playground_that_the_profile_shares(
    person: Person, network: bool
) -> None:
    person.share_playground()
    without = SOCKETS if network else set()
    assert meet_in(
        person, "playground", offered_with_network=False, tried_with_network=network
    ) == (INCOMING - without, (INCOMING | {"file", "records", "sent"}) - without)


def test_a_folder_of_the_system_as_a_project(person: Person) -> None:
    for folder in ("/etc", "/usr/lib", "/boot", "/home", "/var", "/opt", "/srv"):
        with pytest.raises(ProjectError, match=r"system|home|does not exist"):
            person.run("true", project=folder)


if os.getuid() == 0:

    def test_root_in_another_user_s_home_folder(person: Person) -> None:
        os.chown(person.home, 12345, 12345)
        with pytest.raises(OllmSandboxError, match="another user"):
            person.run("true")
        os.chown(person.home, 0, 0)


def test_files_of_a_second_user_are_distinguished(tmp_path: Path) -> None:
    # Equal homes share their layers; those with other modes or masks do not.
    one, two = make_person(tmp_path / "one"), make_person(tmp_path / "two")
    two.home.chmod(0o700)
    for person in (one, two):
        mode = stat.S_IMODE(person.home.stat().st_mode)
        assert person.run("stat -c %a ~").stdout.text == f"{mode:o}\n"
