# SPDX-License-Identifier: GPL-3.0-or-later
"""Each mistake in a profile is reported with the file, the line and the key. How YAML itself is
read: config/test_yaml_reader.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.profile import load, write

from ollmsandbox.errors import ProfileError
from ollmsandbox.sandbox.profile.file import read_profile

pytestmark = pytest.mark.ordinary

# riscv_flush_icache is one of RISC-V alone, modify_ldt one of x86.
OF_ANOTHER_MACHINE = "modify_ldt" if os.uname().machine == "riscv64" else "riscv_flush_icache"


def mistake(folder: Path, text: str, name: str = "mine") -> str:
    """The message about it, without the file's name, which it must begin with."""
    file = write(folder, name, text)
    with pytest.raises(ProfileError) as caught:
        read_profile(name, folder)
    message = str(caught.value)
    assert message.startswith(f"{file}, line ")
    return message.removeprefix(f"{file}, ")


# The file, and what is said of it.
MISTAKES = [
    # Keys.
    ("description: x\nmaks: []", "line 2, key maks:", "did you mean 'masks'?"),
    ("colour: red", "line 1, key colour:", "use one of", "extends", "masks", "limits"),
    ("limits:\n  time: 1\n  tiem: 1", "line 3, key limits.tiem", "did you mean 'time'?"),
    ("environment:\n  sett: {}", "line 2, key environment.sett", "did you mean 'set'?"),
    ("- masks", "line 1: expected keys with values"),
    ("masks: ~/x", "line 1, key masks: expected a list"),
    ("description: [a]", "line 1, key description: expected text"),
    ("environment:\n  set:\n    AB:", "line 3, key environment.set.AB", "expected text"),
    # Commands and devices.
    ("devices:\n  - /dev/dri/card0\n  - /dev/../etc/x", "line 3, key devices", "below /dev."),
    ("devices: [/dev/sda]", "line 1, key devices: '/dev/sda' leads to disks"),
    ("commands:\n  make:\n    devices: [/dev/mem]", "line 3, key commands.make.devices", "memory"),
    ("commands:\n  cd b && make: {}", "line 2, key commands.cd b && make", "is more than words"),
    ("commands:\n  make:\n    masks: []", "line 3, key commands.make.masks", "environment, limits"),
    ("commands:\n  cargo test: {limits: {tiem: 1}}", "line 2, key commands.cargo test.limits.tiem"),
    ("commands: {' ': {}}", "expected the first words of a command."),
    # Limits.
    ("limits:\n  time: 5 MiB", "line 2, key limits.time", "a number with s, min, h", "'5 MiB'"),
    ("limits:\n  disk: 5 GB", "line 2, key limits.disk", "kib, mib, gib, tib", "'5 GB'"),
    ("limits:\n  disk: 5%", "line 2, key limits.disk", "'5%'"),
    ("limits: {time: 0}", "key limits.time", "'0'"),
    ("limits: {processes: 5 s}", "key limits.processes", "'5 s'"),
    # Paths.
    ("masks:\n  - ~/x\n  - secrets", "line 3, key masks", "'secrets' is not an absolute path"),
    ("masks: [~/../x]", "key masks", "'~/../x'"),
    ("masks: [~/x/]", "key masks", "'~/x/'"),
    ("masks: [~root/x]", "key masks", "'~root/x'"),
    ("masks: [/]", "key masks", "'/' cannot be named as a whole"),
    ("masks: ['~']", "key masks", "'~' cannot be named as a whole"),
    ("show: [x]", "key show", "'x' is not an absolute path"),
    ("run:\n  - /run/x\n  - /etc/x", "line 3, key run", "'/etc/x' is not below /run"),
    ("caches:\n  - ~/.cache\n  - cache", "line 3, key caches", "'cache'"),
    ("caches_if_present: ['${X:-~/a}/../b']", "key caches_if_present", "is not a folder such as"),
    ("masks_in_other_projects: [a/.env]", "line 1, key masks_in_other_projects", "'a/.env'"),
    ("moved_folders:\n  AB: c", "line 2, key moved_folders.AB", "'c' is not an absolute path"),
    # Variables, secrets and choices.
    ("moved_folders:\n  A-B: ~/.c", "line 2, key moved_folders", "'A-B' is not a valid variable"),
    ("environment:\n  set:\n    A-B: c", "line 3, key environment.set", "'A-B' is not a valid"),
    ("secret_values:\n  co-: 'co-[a'", "line 2, key secret_values", "co-[a is not a pattern"),
    ("secret_values: {CO-: 'CO-.*'}", "key secret_values", "'CO-' is not text in lower case"),
    ("unix_sockets: maybe", "line 1, key unix_sockets", "one of allow, deny; found 'maybe'"),
    ("playground: common", "line 1, key playground", "one of separate, shared; found 'common'"),
    # System calls.
    ("deny_syscalls: [rm -rf]", "line 1, key deny_syscalls", "'rm -rf' is not a system call"),
    ("deny_syscalls:\n  - ptrace\n  - ptrcae", "line 3, key deny_syscalls", "'ptrcae' is not a"),
    (f"deny_syscalls:\n  - {OF_ANOTHER_MACHINE}", f"has no system call '{OF_ANOTHER_MACHINE}'"),
    ('deny_syscalls: ["ptrace\\0x"]', "line 1, key deny_syscalls", "is not a system call"),
    # What is extended.
    ("description: x\nextends: mine", "line 2, key extends:", "itself"),
    ("extends: nothing", "line 1, key extends", "there is no built-in profile 'nothing'"),
    ("extends: ../../x", "line 1, key extends", "there is no built-in profile"),
]


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: repr(case[0]))
def test_a_mistake_is_reported_with_file_line_and_key(folder: Path, case: tuple[str, ...]) -> None:
    text, *told = case
    message = mistake(folder, text)
    for part in told:
        assert part in message


def test_a_built_in_profile_does_not_extend_itself(folder: Path) -> None:
    assert "line 1, key extends" in mistake(folder, "extends: strict", "standard")
    (folder / "standard.yaml").unlink()
    assert "cannot extend itself" in mistake(folder, "extends: strict", "strict")


def test_a_mistake_in_an_extended_file_names_that_file(folder: Path) -> None:
    broken = write(folder, "standard", "maks: []")
    with pytest.raises(ProfileError) as caught:
        load(folder, "limits: {time: 1}")
    assert str(caught.value).startswith(f"{broken}, line 1, key maks")


def test_nothing_in_a_file_is_executed(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    with pytest.raises(ProfileError):
        load(folder, f"description: !!python/object/apply:os.mkdir ['{marker}']")
    load(folder, f"description: !!python/name:os.mkdir {marker}")
    assert not marker.exists()


def test_an_unknown_name_lists_the_choice(folder: Path) -> None:
    write(folder, "mine", "")
    with pytest.raises(ProfileError) as caught:
        read_profile("other", folder)
    assert "'other'" in str(caught.value)
    assert "mine, standard, strict" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["../x", "", ".", "a/b", "/etc/passwd", "Standard", "a b", "-x", "x\n", "x\0", "ü", "a" * 65],
)
def test_a_name_that_could_be_a_path_is_no_name(folder: Path, name: str) -> None:
    (folder.parent / "x.yaml").write_text("")
    with pytest.raises(ProfileError, match="is not a valid profile name"):
        read_profile(name, folder)
