# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to write to devices and to files of the kernel."""

from __future__ import annotations

import os
import stat

import pytest
from support.escape.attack import IS_ROOT, attempt, python, refusal, refusals, works_outside
from support.person import Person


def test_a_device_of_its_own(person: Person) -> None:
    names = ("disk", "/tmp/disk")
    code = "os.mknod({!r}, stat.S_IFBLK | 0o600, os.makedev(7, 0))"
    answers = refusals(person, {name: code.format(name) for name in names})
    assert answers == dict.fromkeys(names, "EPERM")
    assert not (person.project / "disk").exists()


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
        node = person.project / "node"
        os.mknod(node, stat.S_IFCHR | 0o666, os.stat("/dev/null").st_rdev)
        attack = attempt("open('node', 'w').write('evil')")
        assert refusal(person, attack) == "EACCES"
        assert works_outside(person, attack)


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


@pytest.fixture(scope="module")
def answers_to_settings(shared_person: Person) -> dict[str, str]:
    # Opened and not written: if this worked it would change the machine.
    return refusals(shared_person, {file: f"os.open({file!r}, os.O_WRONLY)" for file in SETTINGS})


@pytest.mark.parametrize("file", SETTINGS)
def test_settings_of_the_kernel(answers_to_settings: dict[str, str], file: str) -> None:
    assert answers_to_settings[file]


def test_no_file_of_the_kernel_outside_of_namespaces_can_be_opened_for_writing(
    person: Person,
) -> None:
    result = person.run(
        python("""
        for folder, folders, files in os.walk('/proc'):
            if folder == '/proc':
                folders[:] = [f for f in folders if not f.isdigit() and not f.endswith('self')]
            for name in files:
                try:
                    os.close(os.open(f'{folder}/{name}', os.O_WRONLY | os.O_NONBLOCK))
                    print(f'{folder}/{name}')
                except OSError:
                    pass
        """)
    )
    # Those of the sandbox's own namespaces; any process may subscribe to pressure events.
    own = ["/proc/pressure/", "/proc/sys/fs/mqueue/", "/proc/sys/net/", "/proc/sys/user/"]
    numbers = ("msg", "sem", "shm", "auto_msgmni", "ns_last_pid", "pid_max")
    own += [f"/proc/sys/kernel/{name}" for name in numbers]
    left = [line for line in result.stdout.text.splitlines() if not line.startswith(tuple(own))]
    assert left == []


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
