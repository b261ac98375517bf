# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to write to devices and to files of the kernel."""

from __future__ import annotations

import os
import stat

import pytest
from support.escape.attack import IS_ROOT, attempt, python, refusal, refusals, works_outside
from support.person import Person


def test_disks_and_other_devices_are_not_there(person: Person) -> None:
    result = person.run("find /dev ! -type d ! -type l; ls /dev/pts")
    devices = {"null", "zero", "full", "random", "urandom", "tty", "console"}
    allowed = {f"/dev/{name}" for name in devices} | {"/dev/pts/ptmx", "ptmx"}
    assert set(result.stdout.text.split()) <= allowed


def test_putting_something_into_dev(person: Person) -> None:
    changes = ("open('/dev/new', 'x')", "os.remove('/dev/null')", "os.mkdir('/dev/new')")
    for change, why in refusals(person, {change: change for change in changes}).items():
        assert why in ("EROFS", "EBUSY", "EACCES"), change


if IS_ROOT:

    def test_a_device_that_lies_in_the_project(person: Person) -> None:
        # /dev/null, /dev/mem and /dev/kmsg by another name.
        names = {"null": (1, 3), "mem": (1, 1), "kmsg": (1, 11)}
        for name, device in names.items():
            os.mknod(person.project / name, stat.S_IFCHR | 0o666, os.makedev(*device))
        codes = {name: f"open({name!r}, 'r').close()" for name in names}
        codes["write"] = "open('null', 'w').write('evil')"
        assert refusals(person, codes) == dict.fromkeys(codes, "EACCES")
        assert works_outside(person, attempt(codes["write"]))


def test_a_pipe_in_the_home_folder(person: Person) -> None:
    pipe = person.home / "pipe"
    os.mkfifo(pipe)
    attack = attempt(f"os.write(os.open('{pipe}', os.O_WRONLY | os.O_NONBLOCK), b'evil')")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert refusal(person, attack) == "ENXIO"
        assert os.read(reader, 100) == b""
        assert works_outside(person, attack)
        assert os.read(reader, 100) == b"evil"
    finally:
        os.close(reader)


SETTINGS = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hotplug",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sysrq-trigger",
    "/proc/irq/default_smp_affinity",
    "/proc/acpi/wakeup",
    "/proc/dynamic_debug/control",
    "/proc/scsi/scsi",
    "/proc/mtrr",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/power/state",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/unified/cgroup.procs",
    "/sys/fs/cgroup/memory/release_agent",
]


OPEN_ALL = """
for top in ("/proc", "/sys"):
    for folder, folders, files in os.walk(top):
        if folder == "/proc":  # processes are not the kernel's
            folders[:] = [f for f in folders if not f.isdigit() and not f.endswith("self")]
        settings += [f"{folder}/{name}" for name in files]
for file in settings:
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError:
        continue
    print(file)
print("looked at")
"""
# Of the namespaces that the command has to itself; any process may subscribe to pressure events.
NAMES = ("msg", "sem", "shm", "auto_msgmni", "ns_last_pid", "pid_max")
OWN = (
    *("/proc/pressure/", "/proc/sys/fs/mqueue/"),
    *(f"/proc/sys/kernel/{name}" for name in NAMES),
)


@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_no_file_of_the_kernel_can_be_opened_for_writing(person: Person, profile: str) -> None:
    # As root most of them need no capability: one starts a program of the command's choice
    # outside, another one restarts the machine. They are opened only: nothing is written.
    result = person.run(python(f"settings = {SETTINGS!r}\n{OPEN_ALL}"), profile=profile)
    assert result.exit_code == 0, result.stderr.text
    opened = result.stdout.text.splitlines()
    assert [file for file in opened if not file.startswith(OWN)] == ["looked at"]
    if IS_ROOT:
        assert not any(file.startswith("/proc/sys/") for file in opened)


def test_a_control_group_of_its_own(person: Person) -> None:
    groups = [
        folder
        for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory")
        if os.path.isdir(folder)
    ]
    names = [f"{folder}/evil-{os.getpid()}" for folder in groups]
    for name, why in refusals(person, {name: f"os.mkdir({name!r})" for name in names}).items():
        assert why in ("EROFS", "EACCES"), name
        assert not os.path.exists(name)
