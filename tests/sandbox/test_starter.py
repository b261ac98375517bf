# SPDX-License-Identifier: GPL-3.0-or-later
"""One starter process serves all commands of a program, each with the machine's current state."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.bubble import IS_ROOT, run_beside, with_profile
from support.person import Person
from support.timing import PATIENCE

from ollmsandbox import loop
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.process import Result
from ollmsandbox.sandbox.starter.child import die_with_parent
from ollmsandbox.sandbox.starter.server import StarterServer


def in_a_row(
    person: Person, *commands: str, between: Callable[[], object] = int, **options: Any
) -> list[Result]:
    """Run commands one after the other, with the same starter."""

    async def main() -> list[Result]:
        results = []
        for command in commands:
            results.append(await person.bubble(**options).exec(command))
            await asyncio.sleep(0.1)
            between()
        return results

    return loop.run(main())


def test_changes_in_the_home_folder_between_two_runs_are_seen_and_secrets_hidden(
    person: Person,
) -> None:
    (person.home / "plain").write_text("0\n")

    def change() -> None:
        file = person.home / "plain"
        file.write_text(f"{int(file.read_text()) + 1}\n")
        (person.home / f"new{file.read_text().strip()}").touch()
        (person.home / ".config/gh").mkdir(parents=True, exist_ok=True)
        (person.home / ".config/gh/hosts.yml").write_text("secret")

    command = "cat ~/.config/gh/hosts.yml; cat ~/plain; ls ~ | grep -c new"
    results = in_a_row(person, *[command] * 3, between=change)
    said = [result.stdout.text.split() for result in results]
    assert said == [["0", "0"], ["1", "1"], ["2", "2"]]


def test_a_home_folder_that_is_another_one_by_now_is_that_one(person: Person) -> None:
    (person.home / "mark").write_text("first\n")

    def replace() -> None:
        kept = person.home.with_name("kept")
        if kept.exists():
            return
        person.home.rename(kept)
        person.home.mkdir()
        (kept / "project").rename(person.project)
        (person.home / "mark").write_text("second\n")

    results = in_a_row(person, "cat ~/mark", "cat ~/mark", between=replace)
    assert [result.stdout.text for result in results] == ["first\n", "second\n"]


def test_another_profile_makes_another_sandbox(person: Person) -> None:
    (person.home / "mine").write_text("mine\n")
    with_profile(person, "masks: [~/mine]", "closed")

    async def main() -> list[str]:
        said = []
        for profile in ("standard", "closed", "closed", "standard"):
            result = await person.bubble(profile=profile).exec("cat ~/mine")
            said.append(result.stdout.text)
            await asyncio.sleep(0.1)
        return said

    assert loop.run(main()) == ["mine\n", "", "", "mine\n"]


def test_bwrap_cannot_be_written_by_a_command(person: Person) -> None:
    command = "grep -c ' /usr/bin/bwrap ' /proc/self/mountinfo; test -w /usr/bin/bwrap; echo $?"
    for result in in_a_row(person, command, command):
        assert result.stdout.text.split() == ["1", "1"]


def test_where_there_can_be_no_mounts_of_our_own_those_of_the_machine_stay(person: Person) -> None:
    found = person.capabilities()._replace(namespaces=(), overlay=OverlayMethod.NONE)

    def count() -> int:
        return Path("/proc/self/mountinfo").read_text().count("/bwrap ")

    before = count()
    results = in_a_row(person, *["true"] * 3, capabilities=found)
    assert [result.exit_code for result in results] == [0, 0, 0]
    assert count() == before


def test_many_commands_at_once_and_one_more_afterwards(person: Person) -> None:
    async def main() -> list[int]:
        first = await asyncio.gather(*(person.bubble().exec("true") for _ in range(8)))
        await asyncio.sleep(0.1)
        return [result.exit_code for result in (*first, await person.bubble().exec("true"))]

    before = len(os.listdir("/proc/self/fd"))
    assert loop.run(main()) == [0] * 9
    loop.run(person.bubble().exec("true"))
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_a_machine_on_which_no_process_has_the_number_two(person: Person) -> None:
    # As in a container: bwrap's child has that number in its namespace, and bwrap looks it up.
    apart = ["unshare", *([] if IS_ROOT else ["--map-root-user"]), "--fork", "--pid"]
    script = '/bin/true; /bin/true; "$@"'
    around = [*apart, "--mount-proc", "sh", "-c", script, "sh"]
    done = run_beside(person, around, "run", "--project", str(person.project), "--", "echo", "here")
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")


def test_a_shell_with_a_low_limit_of_open_files(person: Person) -> None:
    done = person.cli("run", "--", "echo", "here", around=["sh", "-c", 'ulimit -n 64; "$@"', "sh"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")


def test_a_child_of_a_dead_starter_ends_although_a_sibling_holds_its_descriptors() -> None:
    reader, writer = os.pipe()
    starter = os.fork()
    if starter == 0:
        _die_with_two_children(writer)
    os.close(writer)
    os.waitpid(starter, 0)
    with open(reader, "rb") as answers:
        sibling, *survived = answers.read().split()
    os.kill(int(sibling), signal.SIGKILL)
    assert survived == []


def _die_with_two_children(answers: int) -> None:
    """Start a sibling that sleeps and a child that begins when this process is dead; then die."""
    here = os.getpid()
    try:
        server = StarterServer(socket.socketpair()[0])
        sibling = os.fork()
        if sibling == 0:
            os.close(answers)
            time.sleep(600)
        os.write(answers, b"%d " % sibling)
        if os.fork() == 0:
            while os.getppid() == here:
                time.sleep(0.001)
            die_with_parent(server.alive)
            os.write(answers, b"survived")
    finally:
        os._exit(0)


_LAUNCH = """
import os, sys, time
from pathlib import Path
for name in {taken}:
    # As a desktop or a shell may leave them open to everything that they start.
    number = os.open("/etc/hostname", os.O_RDONLY)
    if name:
        os.dup2(number, name, inheritable=True)
    os.set_inheritable(number, True)
from ollmsandbox.sandbox.starter import client
starter = client.shared_starter()
order = client.StartOrder(["/bin/ls", "/proc/self/fd"], "/")
out, theirs = os.pipe()
null = os.open("/dev/null", os.O_RDWR)
started = starter.start(order, [null, theirs, null, null])
os.close(theirs)
print(*os.read(out, 1000).decode().split())
def opened():
    try:
        return sorted(os.readlink(file) for file in Path(f"/proc/{{starter.pid}}/fd").iterdir())
    except FileNotFoundError:
        return []
# It closes what it passed on a moment later.
while (seen := opened()) != (time.sleep(0.2), opened())[1] or not seen:
    pass
print(*seen)
print(Path(f"/proc/{{starter.pid}}/environ").read_bytes())
starter.close()
print(Path(f"/proc/{{starter.pid}}").exists())
"""


@pytest.mark.parametrize("taken", [(), (0,) * 20, (3, 4, 5, 6, 7, 8, 9)], ids=str)
def test_no_descriptor_of_the_program_reaches_the_starter_or_a_sandbox(
    person: Person, taken: tuple[int, ...]
) -> None:
    program = _LAUNCH.format(taken=taken)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**person.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stderr == ""
    in_child, in_starter, environment, is_left = done.stdout.splitlines()
    # The last one is what `ls` itself has opened.
    assert in_child.split() == ["0", "1", "2", "3", "4"]
    assert "/etc/hostname" not in in_starter
    assert in_starter.split().count("/dev/null") == 3
    assert len([place for place in in_starter.split() if place.startswith("socket:")]) == 1
    assert environment == "b''"
    assert is_left == "False"
