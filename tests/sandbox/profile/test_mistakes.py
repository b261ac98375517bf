# SPDX-License-Identifier: GPL-3.0-or-later
"""Each mistake in a profile is reported with the file, the line and the key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.profile import load, write

from ollmsandbox.errors import ProfileError
from ollmsandbox.sandbox.profile.file import read_profile

pytestmark = pytest.mark.anybody

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


MISTAKES = {
    "an unknown key with one like it": (
        "description: x\nmaks: []",
        ("line 2, key maks:", "did you mean 'masks'?"),
    ),
    "an unknown key with none like it": (
        "colour: red",
        ("line 1, key colour:", "use one of", "extends", "masks", "limits"),
    ),
    "an unknown limit": (
        "limits:\n  time: 1\n  tiem: 1",
        ("line 3, key limits.tiem", "did you mean 'time'?"),
    ),
    "an unknown key of the environment": (
        "environment:\n  sett: {}",
        ("line 2, key environment.sett", "did you mean 'set'?"),
    ),
    "a device elsewhere": (
        "devices:\n  - /dev/dri/card0\n  - /dev/../etc/passwd",
        ("line 3, key devices: '/dev/../etc/passwd' is not below /dev.",),
    ),
    "a disk as a device": (
        "devices: [/dev/sda]",
        ("line 1, key devices: '/dev/sda' leads to disks",),
    ),
    "memory as a device of some commands": (
        "commands:\n  make:\n    devices: [/dev/mem]",
        ("line 3, key commands.make.devices: '/dev/mem' leads to disks, memory",),
    ),
    "rules for several commands at once": (
        "commands:\n  cd build && make: { limits: { time: 1 h } }",
        ("line 2, key commands.cd build && make: 'cd build && make' is more than words",),
    ),
    "a key that commands cannot have": (
        "commands:\n  make:\n    masks: []",
        ("line 3, key commands.make.masks: unknown key", "use one of environment, limits"),
    ),
    "an unknown limit of some commands": (
        "commands:\n  cargo test: {limits: {tiem: 1}}",
        ("line 2, key commands.cargo test.limits.tiem", "did you mean 'time'?"),
    ),
    "rules for no command": ("commands: {' ': {}}", ("expected the first words of a command.",)),
    "a text in place of a list": ("masks: ~/x", ("line 1, key masks: expected a list",)),
    "nothing in place of a list": ("masks:", ("line 1, key masks: expected a list",)),
    "a list in place of a text": (
        "description: [a]",
        ("line 1, key description: expected text",),
    ),
    "nothing in place of a text": (
        "description:",
        ("line 1, key description: expected text",),
    ),
    "a list in a list": ("masks:\n  - [~/x]", ("line 2, key masks: expected text",)),
    "a list in place of keys": (
        "limits:\n  - 5",
        ("line 2, key limits:",),
    ),
    "a list in place of everything": ("- masks", ("line 1: expected keys with values",)),
    "a text in place of everything": ("masks", ("line 1: expected keys with values",)),
    "a key that is a list": ("? [a, b]\n: c", ("line 1: expected text",)),
    "a key that stands there twice": (
        "masks: []\nshow: []\nmasks: []",
        ("line 3", "key masks: the key occurs twice"),
    ),
    "a limit that stands there twice": (
        "limits:\n  time: 1\n  time: 2",
        ("line 3, key limits.time:",),
    ),
    "a unit of something else": (
        "limits:\n  time: 5 MiB",
        ("line 2, key limits.time", "expected a number with s, min, h", "'5 MiB'"),
    ),
    "a unit that is not one": (
        "limits:\n  disk: 5 GB",
        ("line 2, key limits.disk", "kib, mib, gib, tib", "'5 GB'"),
    ),
    "percent of a disk": ("limits:\n  disk: 5%", ("line 2, key limits.disk", "'5%'")),
    "a word in place of a number": ("limits: {time: soon}", ("key limits.time", "'soon'")),
    "a limit of nothing": ("limits: {time: 0}", ("key limits.time", "'0'")),
    "a negative limit": ("limits: {time: -5}", ("key limits.time", "'-5'")),
    "a limit that is not a number": ("limits: {time: .nan}", ("key limits.time", "'.nan'")),
    "a unit of processes": ("limits: {processes: 5 s}", ("key limits.processes", "'5 s'")),
    "a list as a limit": ("limits: {time: [5]}", ("key limits.time: expected text",)),
    "a relative mask": (
        "masks:\n  - ~/x\n  - secrets",
        ("line 3, key masks", "'secrets' is not an absolute path"),
    ),
    "a mask with a step up": ("masks: [~/../x]", ("key masks", "'~/../x'")),
    "a mask with a slash at its end": ("masks: [~/x/]", ("key masks", "'~/x/'")),
    "a mask of another's home": ("masks: [~root/x]", ("key masks", "'~root/x'")),
    "a mask of everything": ("masks: [/]", ("key masks", "'/' cannot be named as a whole")),
    "a mask of the whole home": ("masks: ['~']", ("key masks", "'~' cannot be named as a whole")),
    "a relative path to show": ("show: [x]", ("key show", "'x' is not an absolute path")),
    "a path of run that lies elsewhere": (
        "run:\n  - /run/x\n  - /etc/x",
        ("line 3, key run", "'/etc/x' is not below /run"),
    ),
    "a cache with a relative path": (
        "caches:\n  - ~/.cache\n  - cache",
        ("line 3, key caches", "'cache'"),
    ),
    "a cache that leads out": (
        "caches_if_present: ['${X:-~/a}/../b']",
        ("key caches_if_present", "is not a folder such as"),
    ),
    "a secret that is not a pattern": (
        "secret_values:\n  co-: 'co-[a'",
        ("line 2, key secret_values", "co-[a is not a pattern"),
    ),
    "a text of secrets in capitals": (
        "secret_values: {CO-: 'CO-.*'}",
        ("key secret_values", "'CO-' is not text in lower case"),
    ),
    "another word for sockets": (
        "unix_sockets: maybe",
        ("key unix_sockets", "expected one of allow, deny; found 'maybe'"),
    ),
    "another word for the playground": (
        "playground: common",
        ("key playground", "expected one of separate, shared; found 'common'"),
    ),
    "a system call with a strange name": (
        "deny_syscalls: [rm -rf]",
        ("line 1, key deny_syscalls", "'rm -rf' is not a system call"),
    ),
    "a system call that no machine has": (
        "deny_syscalls:\n  - ptrace\n  - ptrcae",
        ("line 3, key deny_syscalls", "'ptrcae' is not a system call"),
    ),
    "a system call that only another kind of machine has": (
        f"deny_syscalls:\n  - ptrace\n  - {OF_ANOTHER_MACHINE}",
        ("line 3, key deny_syscalls", f"has no system call '{OF_ANOTHER_MACHINE}'"),
    ),
    "a system call's name that goes on after its end": (
        'deny_syscalls: ["ptrace\\0x"]',
        ("line 1, key deny_syscalls", "is not a system call"),
    ),
    "a variable with a strange name": (
        "environment:\n  set:\n    A-B: c",
        ("line 3, key environment.set", "'A-B' is not a valid variable name"),
    ),
    "a variable with a strange name that moves a folder": (
        "moved_folders:\n  A-B: ~/.c",
        ("line 2, key moved_folders", "'A-B' is not a valid variable name"),
    ),
    "a path in other projects": (
        "masks_in_other_projects: [a/.env]",
        ("line 1, key masks_in_other_projects", "'a/.env' is not the name of a file"),
    ),
    "a variable that moves a relative folder": (
        "moved_folders:\n  AB: c",
        ("line 2, key moved_folders.AB", "'c' is not an absolute path"),
    ),
    "a variable without a value": (
        "environment:\n  set:\n    AB:",
        ("line 3, key environment.set.AB", "expected text"),
    ),
    "extending itself": (
        "description: x\nextends: mine",
        (
            "line 2, key extends:",
            "itself",
        ),
    ),
    "extending what is not there": (
        "extends: nothing",
        ("line 1, key extends", "there is no built-in profile 'nothing'"),
    ),
    "extending a file elsewhere": (
        "extends: ../../x",
        ("line 1, key extends", "there is no built-in profile"),
    ),
    "a bracket that is not closed": ("masks: [~/x\nlimits: {}", ("line ",)),
    "a tab": ("limits:\n\ttime: 5", ("line 2",)),
    "an alias of nothing": ("masks: *nothing", ("line 1", "alias")),
    "two documents": ("masks: []\n---\nmasks: []", ("line 2",)),
}


@pytest.mark.parametrize(("text", "told"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_reported_with_file_line_and_key(
    folder: Path, text: str, told: tuple[str, ...]
) -> None:
    message = mistake(folder, text)
    for part in told:
        assert part in message


def test_a_suggestion_is_a_question_and_ends_as_one(folder: Path) -> None:
    assert mistake(folder, "maks: []").endswith("did you mean 'masks'?")


def test_standard_cannot_extend_strict_which_extends_it(folder: Path) -> None:
    message = mistake(folder, "extends: strict", "standard")
    assert "line 1, key extends" in message


def test_a_built_in_name_cannot_extend_itself(folder: Path) -> None:
    assert "cannot extend itself" in mistake(folder, "extends: strict", "strict")


def test_a_mistake_in_an_extended_file_names_that_file(folder: Path) -> None:
    broken = write(folder, "standard", "maks: []")
    write(folder, "mine", "limits: {time: 1}")
    with pytest.raises(ProfileError) as caught:
        read_profile("mine", folder)
    assert str(caught.value).startswith(f"{broken}, line 1, key maks")


def test_nothing_in_a_file_is_executed(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    with pytest.raises(ProfileError):
        load(folder, f"description: !!python/object/apply:os.mkdir ['{marker}']")
    load(folder, f"description: !!python/name:os.mkdir {marker}")
    assert not marker.exists()


def unreadable(file: Path, content: bytes) -> str:
    file.write_bytes(content)
    with pytest.raises(ProfileError) as caught:
        read_profile(file.stem, file.parent)
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"description: caf\xe9\n", b"\xff\xfed\x00", b"description: \x00\n", b"masks: \x1b[0m\n"],
    ids=["latin-1", "utf-16", "NUL", "escape"],
)
def test_a_file_that_is_not_text_is_a_mistake_that_names_it(folder: Path, content: bytes) -> None:
    assert str(folder / "mine.yaml") in unreadable(folder / "mine.yaml", content)


def test_a_folder_in_place_of_a_file_is_a_mistake_that_names_it(folder: Path) -> None:
    (folder / "mine.yaml").mkdir()
    with pytest.raises(ProfileError, match=r"mine\.yaml"):
        read_profile("mine", folder)


@pytest.mark.parametrize("depth", [500, 900, 3000])
@pytest.mark.parametrize("form", ["{open}", "masks: {open}{close}"], ids=["open", "closed"])
def test_a_file_of_endless_brackets_is_a_mistake_that_names_it(
    folder: Path, form: str, depth: int
) -> None:
    text = form.format(open="[" * depth, close="]" * depth)
    assert str(folder / "mine.yaml") in unreadable(folder / "mine.yaml", text.encode())


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
