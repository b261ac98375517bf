# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that the kernel kills for systemd's memory limit. Only the control group counts the
kills, and it is removed with the command. A program here plays systemd and the kernel: it puts a
group's count where the sandbox's starter looks, in a mount namespace of that starter alone."""

from __future__ import annotations

import os

import pytest
from support.bubble import with_profile
from support.person import Person
from support.probe import first_in_path

from ollmsandbox.sandbox.process import Stop

_SYSTEMD = """#!/bin/sh
while :; do case "$1" in -p) shift 2;; --) shift; break;; -*) shift;; *) break;; esac; done
if [ "$(readlink /proc/self/ns/mnt)" != "{here}" ]; then
    group=$(sed -n s/^0:://p /proc/self/cgroup)
    mount -t tmpfs none /sys/fs/cgroup && mkdir -p "/sys/fs/cgroup/$group"
    printf 'max 7\\noom 1\\noom_kill {kills}\\n' >"/sys/fs/cgroup$group/memory.events"
    {meanwhile}
fi
exec "$@"
"""


class Systemd:
    def __init__(self, person: Person) -> None:
        self._program = first_in_path(person) / "systemd-run"
        person.environ |= {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/x", "XDG_RUNTIME_DIR": ""}
        with_profile(person, "limits: {memory: 100 MiB}")

    def counts(self, kills: int, *, meanwhile: str = "") -> None:
        here = os.readlink("/proc/self/ns/mnt")
        self._program.write_text(_SYSTEMD.format(here=here, kills=kills, meanwhile=meanwhile))
        self._program.chmod(0o755)


@pytest.fixture
def systemd(person: Person) -> Systemd:
    return Systemd(person)


def test_a_command_killed_for_the_memory_limit_says_so(person: Person, systemd: Systemd) -> None:
    systemd.counts(1)
    result = person.run("echo begun; kill -KILL $$", profile="mine")
    assert (result.exit_code, result.stop) == (137, Stop.MEMORY)
    assert result.stdout.text == "begun\n"
    done = person.cli("run", "--profile", "mine", "-c", "kill -KILL $$")
    assert done.returncode == 137
    assert "Exceeded the memory limit" in done.stderr


@pytest.mark.parametrize(
    ("kills", "command", "code", "stop"),
    [
        (1, "sh -c 'kill -KILL $$'; exit 2", 137, Stop.MEMORY),
        # It has handled that.
        (1, "sh -c 'kill -KILL $$'; exit 0", 0, None),
        (0, "kill -KILL $$", 137, None),
    ],
)
def test_the_memory_limit_is_named_only_where_a_command_failed_for_it(
    person: Person, systemd: Systemd, kills: int, command: str, code: int, stop: Stop | None
) -> None:
    systemd.counts(kills)
    result = person.run(command, profile="mine")
    assert (result.exit_code, result.stop) == (code, stop)


def test_a_sandbox_that_systemd_stops_for_the_memory_limit_says_so(
    person: Person, systemd: Systemd
) -> None:
    """Some versions stop all that is in the group, once something in it was killed."""
    person.share_playground()
    mark = person.playground / "now"
    until = f"for i in $(seq 600); do [ -e '{mark}' ] && break; sleep 0.1; done"
    wait = f"me=$$; ({until}; kill -TERM $me) >&- 2>&- 5<&- 6>&- &"
    systemd.counts(1, meanwhile=wait)
    result = person.run("echo begun; touch ~/playground/now; sleep 60", profile="mine")
    assert (result.exit_code, result.stop) == (137, Stop.MEMORY)
    assert result.stdout.text == "begun\n"


def test_nothing_of_the_group_s_witness_is_in_the_sandbox(person: Person, systemd: Systemd) -> None:
    systemd.counts(0)
    result = person.run("echo /proc/[0-9]*; ls /proc/self/fd", profile="mine")
    processes, *descriptors = result.stdout.text.splitlines()
    # The last one is the folder that is listed.
    assert descriptors[:3] == ["0", "1", "2"]
    assert len(descriptors) == 4
    assert person.run("echo /proc/[0-9]*").stdout.text == f"{processes}\n"
