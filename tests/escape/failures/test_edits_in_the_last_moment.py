# SPDX-License-Identifier: GPL-3.0-or-later
"""The user edits a file between the last look at it and the step that replaces or deletes it: the
edit stays, and the command's version is kept."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.escape.copy_back import settle
from support.escape.kill import Snapshot, look_at
from support.person import Person

from ollmsandbox.files import exchange
from ollmsandbox.files.dirfd import DirEntryAt
from ollmsandbox.project.change import Recorded, State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.swap import Item, Left, Swapper
from ollmsandbox.project.versions import Versions
from ollmsandbox.sandbox.spec import Mode

MAKE = r"""
umask 022
mkdir -p one two/inner closed gone .git
echo HEAD >.git/HEAD
for name in a b one/a one/b two/a two/inner/a closed/a gone/a gone/b one/left two/left \
    left same; do
    echo "old $name" >$name
done
ln -s a link
printf 'old\n' >"$(printf '\377bytes')"
chmod 555 closed
"""

CHANGE = r"""
umask 022
for name in a b one/a one/b two/a two/inner/a; do echo "this is new: $name" >$name; done
echo added >one/added; echo added >added
mkdir -p more/deep; echo added >more/deep/a; chmod 500 more/deep
chmod u+w closed; echo 'this is new' >closed/a; chmod 555 closed
rm -r gone
rm left one/left; mv two/left two/moved
ln -sfn b link
chmod 755 one/b
touch same
echo 'this is new' >"$(printf '\377bytes')"
"""


@pytest.fixture
def snapshot(person: Person) -> Iterator[Snapshot]:
    subprocess.run(["sh", "-ec", MAKE], cwd=person.project, check=True)
    made = Snapshot(person)
    made.leave(CHANGE)
    yield made
    subprocess.run(["chmod", "-R", "u+rwx", person.home], check=True)


def test_each_version_is_found_and_chosen_ones_can_be_undone(snapshot: Snapshot) -> None:
    project = snapshot.person.project
    untouched = look_at(project)
    snapshot.settle(Mode.AUTO)
    applied = look_at(project)
    with snapshot.review() as (review, run):
        items = {item.change.path: item for item in read(snapshot)}
        versions = Versions(review.manager)
        assert versions.before(run, items["one/a"]).read() == b"old one/a\n"
        assert versions.after(run, items["one/a"]).read() == b"this is new: one/a\n"
        for gone in ("gone/a", "one/left"):
            assert versions.before(run, items[gone]).read() == f"old {gone}\n".encode()
        review.undo(run, [str(project / "one" / "a")])
        assert (project / "one" / "a").read_text() == "old one/a\n"
        assert (project / "one" / "b").read_text() == "this is new: one/b\n"
        review.apply(run, [str(project / "one" / "a")])
        assert look_at(project) == applied
        review.undo(run)
    assert look_at(project) == untouched


def write_to_it(file: Path) -> None:
    file.write_text("mine\n")


def put_another_there(file: Path) -> None:
    other = file.with_name("other")
    other.write_text("mine\n")
    other.rename(file)


def put_a_link_there(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


def put_a_folder_there(file: Path) -> None:
    file.unlink()
    file.mkdir()


def take_it_away(file: Path) -> None:
    file.unlink()


def just_before(monkeypatch: pytest.MonkeyPatch, file: Path, act: Callable[[Path], None]) -> None:
    """Act once, right before something is moved to or from the file's place."""
    real = exchange._rename
    acted: list[Path] = []

    def meanwhile(one: DirEntryAt, other: DirEntryAt, flag: int) -> None:
        places = [f"{os.readlink(f'/proc/self/fd/{at.dir_fd}')}/{at.name}" for at in (one, other)]
        if str(file) in places and not acted:
            acted.append(file)
            act(file)
        real(one, other, flag)

    monkeypatch.setattr(exchange, "_rename", meanwhile)


@pytest.mark.parametrize(
    "act",
    [write_to_it, put_another_there, put_a_link_there, put_a_folder_there, take_it_away],
)
def test_an_edit_just_before_a_file_is_replaced_stays(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], None]
) -> None:
    file = snapshot.person.project / "one" / "a"
    just_before(monkeypatch, file, act)
    snapshot.settle(Mode.AUTO)
    there = look_at(snapshot.person.project).get("one/a")
    (item,) = [item for item in read(snapshot) if item.change.path == "one/a"]
    assert item.state is State.CONFLICT
    if act is take_it_away:
        assert there is None
    else:
        kinds = {"put_a_link_there": stat.S_ISLNK, "put_a_folder_there": stat.S_ISDIR}
        assert kinds.get(act.__name__, stat.S_ISREG)(file.lstat().st_mode)
        assert there is not None
        assert there[1] in ("", b"mine\n", "/etc/passwd")
    # The command's version waits, and can be taken.
    with snapshot.review() as (review, run):
        if act is put_a_folder_there:
            file.rmdir()
        review.apply(run, [str(file)])
    assert file.read_text() == "this is new: one/a\n"


def test_an_added_file_does_not_take_the_place_of_one_made_just_before(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = snapshot.person.project / "one" / "added"
    just_before(monkeypatch, file, write_to_it)
    snapshot.settle(Mode.AUTO)
    assert file.read_text() == "mine\n"
    (item,) = [item for item in read(snapshot) if item.change.path == "one/added"]
    assert item.state is State.CONFLICT


@pytest.mark.parametrize("act", [write_to_it, put_another_there, put_a_folder_there])
@pytest.mark.parametrize("path", ["gone/a", "one/left"])
def test_an_edit_just_before_a_file_is_deleted_stays(
    snapshot: Snapshot,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    act: Callable[[Path], None],
) -> None:
    """The file is deleted with its folder, and alone."""
    file = snapshot.person.project / path
    just_before(monkeypatch, file, act)
    snapshot.settle(Mode.AUTO)
    assert file.is_dir() if act is put_a_folder_there else file.read_text() == "mine\n"
    states = {item.change.path: item.state for item in read(snapshot)}
    assert states.pop(path) is State.CONFLICT
    assert states["gone/b"] is State.APPLIED
    # That it is to go waits, and can be done.
    with snapshot.review() as (review, run):
        if act is put_a_folder_there:
            file.rmdir()
        review.apply(run, [str(file)])
    assert not os.path.lexists(file)


def write_as_if_nothing_was_done(file: Path) -> None:
    """Keep the size and the time of a file, as some tools do."""
    found = file.stat()
    file.write_bytes(b"m" * found.st_size)
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))


def put_another_that_looks_the_same_there(file: Path) -> None:
    other = Path(shutil.copy2(file, file.with_name("other")))
    write_as_if_nothing_was_done(other)
    other.rename(file)


@pytest.mark.parametrize(
    "act", [write_as_if_nothing_was_done, put_another_that_looks_the_same_there]
)
@pytest.mark.parametrize("path", ["one/a", "one/left"], ids=["replaced", "deleted"])
def test_an_edit_with_the_size_and_the_time_of_the_old_file_stays(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, path: str, act: Callable[[Path], None]
) -> None:
    """What comes out of the place afterwards does not tell that it was edited."""
    file = snapshot.person.project / path
    real = Swapper.do

    def do(swapper: Swapper, item: Item) -> Left:
        if item.path == path:
            act(file)
        return real(swapper, item)

    monkeypatch.setattr(Swapper, "do", do)
    snapshot.settle(Mode.AUTO)
    assert set(file.read_text()) == {"m"}
    assert {item.change.path: item.state for item in read(snapshot)}[path] is State.CONFLICT


def read(snapshot: Snapshot) -> list[Recorded]:
    with snapshot.review() as (review, run):
        return read_changes(review.manager, run)


def test_a_new_link_after_an_edited_file_replaces_nothing(person: Person) -> None:
    (person.project / "a").write_text("old\n")
    report = settle(person, "echo new text >a; rm -f b; ln -s a b; mkdir c")
    found = {item.change.path: item.before for item in report.changes}
    assert found.pop("a")
    assert found == {"b": "", "c": ""}
