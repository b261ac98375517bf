# SPDX-License-Identifier: GPL-3.0-or-later
"""A command leaves more than files and folders: pipes, devices, overlay attributes, hard links,
setuid bits. None of them misleads the copy-back."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from support.changes import states
from support.escape.attack import IS_ROOT, python, refusals
from support.escape.copy_back import (
    during,
    each_mode,
    fill,
    review,
    settle,
    settle_and_apply,
    snapshot,
)
from support.person import Person

from ollmsandbox.project.change import State
from ollmsandbox.project.reasons import Reason
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.usefixtures("home")


def bind_socket(file: Path) -> None:
    # The kernel takes no long path for one.
    around = os.open(file.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{around}/{file.name}")
    os.close(around)


@each_mode
def test_a_pipe_a_socket_and_a_device_in_place_of_a_file(person: Person, mode: Mode) -> None:
    for name in ("pipe", "socket", "device"):
        (person.project / name).write_text("old\n")
    report = settle(
        person,
        "rm pipe socket device; mkfifo pipe more;"
        + python("socket.socket(socket.AF_UNIX).bind('socket')")
        + "; mknod device c 1 3; mknod device b 8 0; echo new >file",
        mode,
    )
    assert {skip.path: skip.what for skip in report.skipped} == {
        "pipe": "a pipe",
        "more": "a pipe",
        "socket": "a socket",
    }
    if mode is Mode.REVIEW:
        report = review(person, "apply", report.run_id)
    assert states(report) == {"device": State.APPLIED, "file": State.APPLIED}
    assert sorted(path.name for path in person.project.iterdir()) == ["file", "pipe", "socket"]
    assert (person.project / "pipe").read_text() == "old\n"
    assert settle(person, "test ! -p more && echo new >pipe && cat pipe >seen").changes


def block(file: Path) -> None:
    """Create a file that blocks its reader for ever, or until a terminal appears."""
    file.unlink(missing_ok=True)
    kind = file.name[1:]
    if kind == "socket":
        bind_socket(file)
    elif kind == "device" and IS_ROOT:
        os.mknod(file, stat.S_IFCHR | 0o666, os.makedev(5, 0))
    else:
        os.mkfifo(file)


BLOCKING = [f"{name}{kind}" for name in "abc" for kind in ("pipe", "socket", "device")]
REPLACE = """
    for kind in pipe socket device; do
        rm -f a$kind b$kind; echo new >a$kind; rm -f c$kind; ln -s x c$kind
    done
"""


@each_mode
def test_special_files_are_removed_and_restored(person: Person, mode: Mode) -> None:
    for name in ("sub", "other"):
        (person.project / name).mkdir()
    for number in range(30):
        # So that the run does not delete most of the project.
        (person.project / "other" / str(number)).touch()
    names = [*BLOCKING, *(f"sub/{name}" for name in BLOCKING), "dpipe"]
    for name in names:
        block(person.project / name)
        (person.project / name).chmod(0o640)
    before = {name: (person.project / name).lstat() for name in names}
    report = settle(person, f"{REPLACE} rm -r sub dpipe; mkdir dpipe; echo x >dpipe/x", mode)
    assert person.cli("changes", report.run_id, "--diff").returncode == 0
    if mode is Mode.REVIEW:
        report = review(person, "apply", report.run_id)
    assert set(states(report).values()) == {State.APPLIED}
    assert sorted(path.name for path in person.project.iterdir()) == sorted(
        name for name in (*BLOCKING, "dpipe", "other") if not name.startswith("b")
    )
    assert person.cli("changes", report.run_id, "--diff").returncode == 0
    report = review(person, "undo", report.run_id)
    assert set(states(report).values()) == {State.UNDONE}
    for name, found in before.items():
        now = (person.project / name).lstat()
        assert (now.st_mode, now.st_rdev) == (found.st_mode, found.st_rdev), name


@pytest.mark.ordinary
@pytest.mark.usefixtures("on_another_disk")
def test_what_can_be_restored_from_another_disk(person: Person) -> None:
    """A pipe is made again; a socket goes, and undo says that it cannot be restored."""
    project = person.project
    os.mkfifo(project / "pipe", 0o640)
    bind_socket(project / "socket")
    report = settle(person, "rm pipe socket")
    assert states(report) == {"pipe": State.APPLIED, "socket": State.APPLIED}
    assert os.listdir(project) == []
    report = review(person, "undo", report.run_id)
    assert states(report) == {"pipe": State.UNDONE, "socket": State.CONFLICT}
    assert [item.note.reason for item in report.changes if item.note] == [Reason.OTHER_LOST]
    assert (project / "pipe").lstat().st_mode == stat.S_IFIFO | 0o640


@pytest.mark.parametrize("when", ["during", "between", "undo"])
def test_a_file_of_the_project_that_blocks_its_reader(person: Person, when: str) -> None:
    files = [person.project / name for name in BLOCKING]

    def act() -> None:
        for file in files:
            block(file)

    for file in files:
        file.write_text("old\n")
    attack = REPLACE
    if when == "during":
        report = during(person, attack, act, Mode.AUTO)
    else:
        run = settle(person, attack, Mode.REVIEW if when == "between" else Mode.AUTO).run_id
        act()
        assert person.cli("changes", run, "--diff").returncode == 0
        report = review(person, "apply" if when == "between" else "undo", run)
    assert set(states(report)) == {file.name for file in files}
    assert set(states(report).values()) == {State.CONFLICT}
    assert all(item.note for item in report.changes)
    for file in files:
        assert not stat.S_ISREG(file.lstat().st_mode)
    assert person.run("echo fine").stdout.text == "fine\n"


ATTRIBUTES = (
    *("opaque", "redirect", "metacopy", "whiteout", "origin", "impure"),
    *("overlay.opaque", "overlay.whiteout", "overlay.overlay.opaque"),
)


def test_attributes_that_mean_something_to_an_overlay(person: Person) -> None:
    for name in ATTRIBUTES:
        fill(person.project / name / "sub")
    attack = f"""
    for name in {ATTRIBUTES!r}:
        os.chdir(name)
        for path in 'sub', 'made', 'sub/changed', 'sub/new', 'empty':
            if path == 'made':
                os.makedirs(path, exist_ok=True)
            elif not os.path.exists(path):
                open(path, 'w').close()
            for space in 'user', 'trusted', 'security':
                for value in b'y', b'x', b'/../../../outer/sub', b'':
                    try:
                        os.setxattr(path, f'{{space}}.overlay.{{name}}', value)
                    except OSError:
                        pass
        open('sub/changed', 'a').write('new')
        os.chdir('..')
    """
    for mode in (Mode.REVIEW, Mode.AUTO):
        report = settle(person, python(attack), mode)
        assert State.FAILED not in states(report).values()
        for name in ATTRIBUTES:
            # Also where it is set on what was there before.
            assert f"{name}/sub/changed" in states(report)
        result = person.run("for d in *; do find $d | sort; cat $d/sub/changed; done")
        for name in ATTRIBUTES:
            lines = result.stdout.text.splitlines()
            assert [line for line in lines if line.startswith(f"{name}/")][:8] == [
                f"{name}/{path}"
                for path in (
                    *("empty", "made", "sub", "sub/changed", "sub/gone", "sub/new"),
                    *("sub/shut", "sub/shut/leaf"),
                )
            ]
    for name in ATTRIBUTES:
        assert (person.project / name / "sub" / "gone").read_text() == "old\n"
    for path in person.project.rglob("*"):
        assert [n for n in os.listxattr(path) if "overlay" in n] == [], path


def test_overlay_attributes_on_the_project_itself(person: Person) -> None:
    # As an archive may bring them: the layer below is read, too.
    fill(person.project / "sub")
    fill(person.project / "other")
    values = {
        "opaque": b"y",
        "redirect": b"/other",
        "metacopy": b"",
        "whiteout": b"",
        "origin": b"x",
    }
    for path in (person.project / "sub", person.project / "sub" / "changed"):
        for name, value in values.items():
            os.setxattr(path, f"user.overlay.{name}", value)
    (person.project / "sub" / "tool").write_text("")
    os.setxattr(person.project / "sub" / "tool", "user.overlay.redirect", b"/other/gone")
    os.setxattr(person.project / "sub" / "tool", "user.overlay.metacopy", b"")
    for mode in (Mode.REVIEW, Mode.AUTO):
        report = settle(
            person,
            f"cat sub/tool >seen-{mode.value}; echo new >sub/new; chmod 700 sub/changed",
            mode,
        )
        assert not {"sub/gone", "sub/tree", "sub/tool"} & states(report).keys()
    assert (person.project / "seen-auto").read_text() == ""
    assert (person.project / "sub" / "gone").read_text() == "old\n"


def test_a_whiteout_made_by_the_command_itself(person: Person) -> None:
    (person.project / "file").write_text("old\n")
    for why in refusals(
        person,
        {
            "in the project": "os.mknod('made', stat.S_IFCHR, 0)",
            "in a folder of its own": "os.mkdir('sub'); os.mknod('sub/made', stat.S_IFCHR, 0)",
        },
    ).values():
        assert why in ("EPERM", "EACCES", "EINVAL")
    # In a folder that is no overlay it may be made, and moved.
    moved = "mknod ~/playground/w c 0 0; mv -T ~/playground/w made; cp -a ~/playground/w other"
    assert settle(person, f"{moved}; ln ~/playground/w made; rm -f ~/playground/w").changes == ()
    assert (person.project / "file").read_text() == "old\n"


def test_a_file_of_the_project_with_another_name_outside(person: Person) -> None:
    outside = person.home / "outer" / "sub"
    for number, name in enumerate(("changed", "gone", "tool")):
        (person.project / name).hardlink_to(outside / name)
        os.setxattr(outside / name, "user.overlay.mine", b"%d" % number)
    before = snapshot(outside, ())
    for mode in (Mode.AUTO, Mode.REVIEW):
        report = settle(person, "echo evil >>changed; rm gone; chmod 4777 tool", mode)
        if mode is Mode.REVIEW:
            review(person, "apply", report.run_id)
        assert snapshot(outside, ()) == before
        assert (person.project / "changed").read_text() == "old\nevil\n"
        assert stat.S_IMODE((person.project / "tool").stat().st_mode) == 0o777
        for action in ("undo", "apply", "undo"):
            done = review(person, action, report.run_id)
            assert set(states(done).values()) <= {State.UNDONE, State.APPLIED}
            assert snapshot(outside, ()) == before
        assert (person.project / "gone").read_text() == "old\n"
        # What came back is a file of its own: writing to it writes nowhere else.
        for name in ("changed", "gone", "tool"):
            (person.project / name).write_text("old\n")
        assert snapshot(outside, ()) == before
        for name in ("changed", "gone", "tool"):
            (person.project / name).unlink()
            (person.project / name).hardlink_to(outside / name)
    for name in ("changed", "gone", "tool"):
        os.removexattr(outside / name, "user.overlay.mine")


def test_hard_links_between_applied_and_pending_files(person: Person) -> None:
    (person.project / ".git").mkdir()
    report = settle(person, "echo one >plain; mkdir .git/hooks; ln plain .git/hooks/pre-commit")
    assert states(report)["plain"] is State.APPLIED
    assert states(report)[".git/hooks/pre-commit"] is State.PENDING
    # Who writes to the one must not write to the other, which was shown as it is.
    (person.project / "plain").write_text("two\n")
    assert person.run("cat .git/hooks/pre-commit").stdout.text == "one\n"


@each_mode
def test_hard_links_between_files_of_the_command(person: Person, mode: Mode) -> None:
    (person.project / "old").write_text("old\n")
    command = "echo new >a; ln a b; ln old c; echo more >>c; chmod 6755 b"
    report = settle_and_apply(person, command, mode)
    assert set(states(report).values()) == {State.APPLIED}
    texts = {path.name: path.read_text() for path in person.project.iterdir()}
    assert texts == {"a": "new\n", "b": "new\n", "old": "old\nmore\n", "c": "old\nmore\n"}
    assert stat.S_IMODE((person.project / "a").stat().st_mode) == 0o755
    review(person, "undo", report.run_id)
    assert [path.name for path in person.project.iterdir()] == ["old"]


@each_mode
def test_files_and_folders_that_lend_rights(person: Person, mode: Mode) -> None:
    for name in ("file", "folder/file"):
        (person.project / name).parent.mkdir(exist_ok=True)
        (person.project / name).write_text("old\n")
    (person.project / "shared").mkdir()
    (person.project / "shared").chmod(0o2755)
    report = settle(
        person,
        "cp /bin/true suid; chmod 6755 suid file folder/file; mkdir new sticky; chmod 6777 new;"
        "chmod 1777 sticky; chmod g+s folder .; chmod 6755 . ; chmod 700 shared; chmod 2711 new/.",
        mode,
    )
    stripped = [
        i.change.path for i in report.changes if "stripped" in [f.value for f in i.change.flags]
    ]
    assert {"suid", "file", "folder/file", "new"} <= set(stripped)
    if mode is Mode.REVIEW:
        report = review(person, "apply", report.run_id)
    assert State.FAILED not in states(report).values()
    for path in (person.project, *person.project.rglob("*")):
        lent = path.stat().st_mode & 0o6000
        assert lent == (0o2000 if path.name == "shared" else 0), path
    assert (person.project / "sticky").stat().st_mode & 0o7777 == 0o1777


@each_mode
def test_a_project_folder_without_permissions(person: Person, mode: Mode) -> None:
    """The run is settled all the same, and the user can still use the project."""
    report = settle(person, "touch a; chmod 0 .", mode)
    assert "a" in {item.change.path for item in report.changes}
    assert person.project.stat().st_mode & 0o700 == 0o700


def test_a_playground_without_permissions(person: Person) -> None:
    settle(person, "chmod 0 ~/playground; touch a")
    settle(person, "touch ~/playground/x && touch b")
    assert (person.project / "b").exists()
