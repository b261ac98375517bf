# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders without permissions are opened while they are changed, and closed again in every case."""

from __future__ import annotations

import json
import os
import stat
from functools import partial
from pathlib import Path

import pytest
from support.changes import states
from support.escape.attack import IS_ROOT
from support.escape.copy_back import review, settle
from support.escape.kill import Snapshot, killed_after, look_at
from support.person import Person, make_person

from ollmsandbox.errors import ProjectError
from ollmsandbox.project.change import State
from ollmsandbox.project.held.git.view import View
from ollmsandbox.project.layer import PendingLayer
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.recover import finish_leftovers
from ollmsandbox.project.run import OpenRuns
from ollmsandbox.project.scan import scan
from ollmsandbox.project.swap import Swapper
from ollmsandbox.sandbox.spec import Mode, RunSpec


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_many_files_in_a_folder_that_the_command_closed_and_one_that_is_held(
    person: Person, mode: int
) -> None:
    shut = person.project / "shut"
    shut.mkdir()
    (person.project / ".git").mkdir()
    for name in "ab":
        (shut / name).write_text("old\n")
    report = settle(
        person,
        "for name in a b; do echo 'this is new' >shut/$name; done\n"
        f"chmod {mode:o} shut; printf '[x]\\ny = z\\n' >.git/config",
    )
    found = states(report)
    assert found.pop(".git/config") is State.PENDING
    assert set(found.values()) == {State.APPLIED}
    assert mode_of(shut) == mode
    assert look_at(person.project)["shut/a"][1] == b"this is new\n"
    assert [file.read_text() for file in person.paths.backups.iterdir()] == ["old\n"] * 2
    assert not list(person.paths.cache.glob("overlay-*"))
    Snapshot(person).undo()
    assert mode_of(shut) == 0o755
    assert [(shut / name).read_text() for name in "ab"] == ["old\n"] * 2


@pytest.mark.parametrize("then", ["", "; mkdir shut; echo new >shut/new"])
def test_a_closed_folder_that_is_deleted_is_as_it_was_if_that_is_discarded(
    person: Person, then: str
) -> None:
    shut = person.project / "shut"
    inner = shut / "inner"
    inner.mkdir(parents=True)
    for file in (shut / "file", inner / "file", inner / "other"):
        file.write_text("old\n")
    for folder in (inner, shut):
        folder.chmod(0o000)
    report = settle(person, f"chmod 700 shut shut/inner; rm -r shut{then}", Mode.REVIEW)
    if IS_ROOT:
        discard_by_and_by(person, report.run_id, ["new"] if then else [])
    else:
        # We cannot look into it.
        assert [skipped.path for skipped in report.skipped] == ["shut"]
        assert not report.changes
    assert modes(person.project) == (0o000, 0o000)
    assert not PendingLayer(person.paths, str(person.project)).runs()


def discard_by_and_by(person: Person, run_id: str, added: list[str]) -> None:
    """Discard that one file in the closed folder is deleted, then the rest."""
    shut = person.project / "shut"
    report = review(person, "discard", run_id, "shut/inner/file")
    assert set(states(report).values()) == {State.DISCARDED}
    assert mode_of(shut) == 0o000
    looks = person.run(
        "chmod 700 shut; stat -c %a shut/inner; chmod 700 shut/inner; ls shut shut/inner",
        keeper=Recorder(RunSpec(str(person.project), mode=Mode.NEVER), person.paths),
    )
    listed = ["shut:", "inner", *added, "shut/inner:", "file"]
    assert looks.stdout.text.split() == ["0", *listed]
    review(person, "discard", run_id)


@pytest.mark.parametrize("mode", [0o300, 0o000])
def test_a_command_gives_permissions_to_a_folder_without_any(person: Person, mode: int) -> None:
    shut = person.project / "shut"
    shut.mkdir()
    shut.chmod(mode)
    person.run("chmod 755 shut")
    assert mode_of(shut) == 0o755


LOOKED_INTO = "chmod 700 shut shut/inner; echo new >shut/inner/file; chmod 000 shut/inner shut"


def left_behind(folder: Path, mode: Mode) -> Snapshot:
    """A command wrote into folders that are closed, and closed them again."""
    person = make_person(folder)
    inner = person.project / "shut" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("old\n")
    for closed in (inner, inner.parent):
        closed.chmod(0o000)
    snapshot = Snapshot(person)
    snapshot.leave(LOOKED_INTO)
    (file,) = person.paths.cache.glob("overlay-*/map.json")
    document = json.loads(file.read_text())
    document["about"]["mode"] = mode.value
    file.write_text(json.dumps(document))
    return snapshot


def modes(project: Path) -> tuple[int, int]:
    """Return the modes of the two folders."""
    shut = project / "shut"
    outer = mode_of(shut)
    shut.chmod(0o700)
    inner = mode_of(shut / "inner")
    shut.chmod(outer)
    return outer, inner


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.NEVER])
def test_a_kill_while_closed_folders_are_looked_into(tmp_path: Path, mode: Mode) -> None:
    # It is one of the first things that are done.
    for number in range(1, 28, 9 if IS_ROOT else 4):
        snapshot = left_behind(tmp_path / str(number), mode)
        killed_after(number, partial(snapshot.settle, mode))
        assert not [
            error for report in finish_leftovers(snapshot.person.paths) for error in report.errors
        ]
        assert modes(snapshot.person.project) == (0, 0), f"killed after step {number}"
        assert not list(snapshot.person.paths.cache.glob("overlay-*"))
        (snapshot.person.project / "shut").chmod(0o700)


def test_a_root_that_is_gone_leaves_no_descriptor(person: Person, tmp_path: Path) -> None:
    upper, gone = tmp_path / "upper", tmp_path / "gone"
    upper.mkdir()

    def look() -> None:
        scan(str(gone), View({str(gone): (str(upper), str(upper), str(gone))}))

    def apply() -> None:
        runs = OpenRuns(person.paths)
        Swapper(str(gone), "", runs, tmp_path / "modes", (), is_resumed=False, flushes=False)

    for act in (look, apply):
        with pytest.raises(ProjectError) as caught:
            act()
        del caught
        # Not those of other tests, which may be closed just now.
        opened = map(os.path.realpath, Path("/proc/self/fd").iterdir())
        assert not [file for file in opened if file.startswith(str(tmp_path))]
