# SPDX-License-Identifier: GPL-3.0-or-later
"""`commands` and `devices` in a profile: what some commands get, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.bubble import with_profile
from support.person import Person
from support.profile import load, write
from support.tools import Agent

from ollmsandbox.errors import ProfileError
from ollmsandbox.sandbox.profile.devices import is_forbidden, usable_devices
from ollmsandbox.sandbox.profile.file import _load, read_profile
from ollmsandbox.sandbox.profile.profile import Limits
from ollmsandbox.tools.run_command import CommandParameters, RunCommand

RULES = """
limits: { time: 100 s, max_time: 200 s, memory: 1 GiB }
commands:
  make test:
    limits: { time: 300 s, memory: none }
    environment: { set: { COLOUR: blue } }
  make:
    limits: { time: 250 s }
    environment: { set: { COLOUR: red, JOBS: "4" }, drop: [OLD_JOB], keep: [BUILD_KEY] }
    caches: [~/.make-cache]
  ./configure: { limits: { max_time: 50 s } }
"""


@pytest.mark.ordinary
@pytest.mark.parametrize(
    ("command", "time", "most", "colour"),
    [
        ("make", 250, 250, "red"),
        ("/usr/bin/make -j4", 250, 250, "red"),
        ("make test", 300, 300, "blue"),
        ("make test --all", 300, 300, "blue"),
        ("make tests", 250, 250, "red"),
        ("makeinfo", 100, 200, None),
        ("echo make", 100, 200, None),
        ("./configure", 50, 50, None),
        ("configure", 100, 200, None),
        ("", 100, 200, None),
    ],
)
def test_the_first_words_decide_and_longer_rules_come_last(
    folder: Path, command: str, time: int, most: int, colour: str | None
) -> None:
    found = load(folder, RULES).for_command(command.split())
    assert (found.limits.time, found.limits.max_time) == (time, most)
    environment = found.environment({"OLD_JOB": "x", "BUILD_KEY": "y"})
    assert environment.get("COLOUR") == colour
    is_make = colour is not None
    assert (environment.get("JOBS"), environment.get("BUILD_KEY")) == (
        ("4", "y") if is_make else (None, None)
    )
    assert ("OLD_JOB" in environment) is not is_make
    assert ("~/.make-cache" in found.caches) is is_make
    is_test = colour == "blue"
    assert (found.limits.memory, found.own_memory_limit) == (
        (None, False) if is_test else (1 << 30, True)
    )


@pytest.mark.ordinary
def test_rules_are_the_same_from_the_cache(folder: Path, tmp_path: Path) -> None:
    write(folder, "mine", RULES)
    first = read_profile("mine", folder, tmp_path / "cache")
    _load.cache_clear()
    assert read_profile("mine", folder, tmp_path / "cache") == first
    assert len(first.commands) == 3


@pytest.mark.ordinary
def test_only_matching_commands_get_them(person: Person) -> None:
    with_profile(
        person, "commands: { printenv: { environment: { set: { COLOUR: blue } } } }", "standard"
    )
    assert person.cli("run", "--", "printenv", "COLOUR").stdout == "blue\n"
    assert person.cli("run", "-c", "printenv COLOUR").stdout == "blue\n"
    # The program cannot read these completely, or they begin otherwise.
    for command in ("printenv COLOUR; true", "env printenv COLOUR", "$(echo printenv) COLOUR"):
        assert person.cli("run", "-c", command).stdout == ""


@pytest.mark.ordinary
def test_a_model_gets_the_time_of_the_command(person: Person) -> None:
    with_profile(person, "commands: { make: { limits: { time: 2 h } } }", "standard")
    tool = RunCommand(Agent(person, own_limits=Limits()).tool_context)
    given = [CommandParameters(command, timeout=7000) for command in ("make", "sleep 1")]
    times = [tool.request(one, "").spec().timeout for one in given]
    assert times == [7000, 3600]


# --- devices -------------------------------------------------------------------------------------


FORBIDDEN = (
    *("mem", "kmem", "port", "kmsg", "sda", "sda1", "nvme0", "nvme0n1", "ng0n1", "sg0", "mtd0"),
    *("dm-0", "mapper/control", "loop0", "loop-control", "disk/by-id/x", "fuse", "raw/raw1"),
    *("input/event0", "uinput", "uhid", "hidraw0", "bus/usb/001/002", "net/tun", "cpu/0/msr"),
    *("tty", "tty1", "console", "pts/0", "ptmx", "vcs", "vcsa1", "null", "shm/x", "vfio/vfio"),
)
USABLE = (
    *("dri/renderD128", "dri/card0", "kfd", "nvidia0", "nvidiactl", "kvm", "video0"),
    *("ttyUSB0", "ttyACM0", "ttyS0", "serial/by-id/usb-x", "snd/pcmC0D0p", "usbtmc0"),
)


@pytest.mark.ordinary
def test_devices_that_lead_to_disks_memory_or_the_user_are_refused() -> None:
    assert [name for name in FORBIDDEN if not is_forbidden(f"/dev/{name}")] == []
    assert [name for name in USABLE if is_forbidden(f"/dev/{name}")] == []


def test_no_device_is_there_unless_the_profile_names_it(person: Person) -> None:
    device = _some_device()
    person.paths.profiles.mkdir(parents=True)
    looks = f"test -c {device} && echo there || echo none"
    assert person.cli("run", "-c", looks).stdout == "none\n"
    agent = Agent(person, ask_every_command=True)
    agent.run("true")
    assert "Devices" not in {f.label for f in agent.asked[0].facts}
    profile = person.paths.profiles / "standard.yaml"
    profile.write_text(f"devices: [{device}, /dev/dri/not-there]")
    assert person.cli("run", "-c", looks).stdout == "there\n"
    # It is the device itself, and nothing else of /dev came along.
    number = os.stat(device).st_rdev
    shown = f"{os.major(number):x} {os.minor(number):x}\n"
    assert person.cli("run", "-c", f"stat -c '%t %T' {device}").stdout == shown
    assert "mem" not in person.cli("run", "--", "ls", "/dev").stdout.split()
    assert person.cli("run", "-c", f"rm -f {device}").returncode != 0
    agent.run("true")
    assert {f.label: f.value for f in agent.asked[1].facts}["Devices"] == device
    assert any(device in sentence for sentence in agent.asked[1].sees)


@pytest.mark.ordinary
def test_a_link_to_another_device_is_refused() -> None:
    """Only root can make one in /dev; but what a name leads to can change."""
    for path in ("/dev/stdin", "/dev/fd", "/dev/shm", "/dev/null", "/etc/passwd"):
        with pytest.raises(ProfileError, match="cannot be let through"):
            usable_devices([path])


def _some_device() -> str:
    """Return a device of this computer that may be named."""
    for name in sorted(os.listdir("/dev")):
        path = f"/dev/{name}"
        try:
            if usable_devices([path]):
                return path
        except ProfileError:
            continue
    raise AssertionError("There is no such device here.")
