# SPDX-License-Identifier: GPL-3.0-or-later
"""The user deletes, moves or closes whole folders while a command works in them."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.changes import states
from support.escape.copy_back import during, each_mode, review
from support.person import Person

from ollmsandbox.project.change import State
from ollmsandbox.sandbox.spec import Mode


def _folder(path: Path, **files: str) -> Path:
    path.mkdir(parents=True)
    path.chmod(0o755)
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def texts(folder: Path) -> dict[str, str]:
    return {one.name: one.read_text() for one in folder.iterdir()}


def settled(person: Person, command: str, act: Callable[[], object]) -> dict[str, str]:
    """Return the states of the changes of a command, during which something is done."""
    found = states(during(person, command, act, Mode.AUTO))
    return {path: state.value for path, state in found.items()}


def test_a_folder_that_the_user_deletes_during_the_run(person: Person) -> None:
    inner = _folder(person.project / "d" / "e", f="old\n")
    report = during(
        person, "echo new >>d/e/f", lambda: shutil.rmtree(person.project / "d"), Mode.AUTO
    )
    assert states(report) == dict.fromkeys(("d", "d/e", "d/e/f"), State.CONFLICT)
    assert list(person.project.iterdir()) == []
    review(person, "apply", report.run_id, "d/e/f")
    assert texts(inner) == {"f": "old\nnew\n"}


def test_a_new_file_in_a_folder_that_the_user_deletes_during_the_run(person: Person) -> None:
    folder = _folder(person.project / "d", f="old\n", h="moved\n")
    command = "echo new >>d/f; echo made >d/g; mkdir x; mv d/h x/"
    assert settled(person, command, lambda: shutil.rmtree(folder)) == {
        "d": "applied",
        "d/f": "conflict",
        "d/g": "applied",
        "x": "applied",
        "x/h": "applied",
    }
    assert texts(folder) == {"g": "made\n"}


def test_a_folder_that_was_moved_to_where_the_command_deletes(person: Person) -> None:
    folder = _folder(person.project / "d", f="old\n")
    photos = _folder(person.home / "photos", p="photo\n")
    assert settled(person, "rm -rf d", lambda: os.rename(photos, folder / "photos")) == {
        "d": "conflict",
        "d/f": "applied",
        "d/photos": "conflict",
        "d/photos/p": "conflict",
    }
    assert texts(folder / "photos") == {"p": "photo\n"}


def test_a_folder_that_took_the_place_of_the_one_the_command_changes(person: Person) -> None:
    source = _folder(person.project / "src", f="old\n", g="old\n")
    other = _folder(person.project / "other", f="mine\n", g="mine\n")

    def swap() -> None:
        os.rename(source, person.project / "before")
        os.rename(other, source)

    found = settled(person, "echo new >>src/f; rm src/g; echo made >src/h", swap)
    assert found == {"src/f": "conflict", "src/g": "conflict", "src/h": "applied"}
    assert texts(source) == {"f": "mine\n", "g": "mine\n", "h": "made\n"}


def test_work_beside_the_command_is_no_conflict(person: Person) -> None:
    source = _folder(person.project / "src" / "in", f="old\n", g="old\n", h="old\n")
    _folder(person.project / "src" / "old", f="old\n")

    def act() -> None:
        for folder in (source, source.parent):
            folder.chmod(0o750)
            (folder / "note").write_text("mine\n")

    found = settled(person, "echo new >>src/in/f; rm src/in/g; rm -r src/old", act)
    # Whose modes these are cannot be known: the user's stay.
    assert (found.pop("src"), found.pop("src/in")) == ("conflict", "conflict")
    assert set(found.values()) == {"applied"}
    assert stat.S_IMODE(source.stat().st_mode) == 0o750


def test_a_move_by_the_command_is_no_conflict_with_an_edit_beside_it(person: Person) -> None:
    for name in ("a", "log", "linked", "kept"):
        (person.project / name).write_text(f"old {name}\n")

    def act() -> None:
        (person.project / "note").write_text("mine\n")
        (person.project / "kept").unlink()

    command = "mv a b; mv log log.1; echo new >log; ln linked other; echo more >>kept"
    found = settled(person, command, act)
    # The file's origin is known only where the overlay could name the file.
    assert found.pop("kept") in ("conflict", "applied")
    assert set(found.values()) == {"applied"}
    there = texts(person.project)
    there.pop("kept", None)
    assert there == {
        "b": "old a\n",
        "log": "new\n",
        "log.1": "old log\n",
        "linked": "old linked\n",
        "other": "old linked\n",
        "note": "mine\n",
    }


@each_mode
def test_a_mode_that_the_user_gives_a_folder_stays(person: Person, mode: Mode) -> None:
    folder = _folder(person.project / "d", f="old\n")
    report = during(person, "echo new >d/g", lambda: folder.chmod(0o700), mode)
    assert states(report) == {"d/g": State.APPLIED if mode is Mode.AUTO else State.PENDING}
    review(person, "apply", report.run_id)
    assert (folder / "g").read_text() == "new\n"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    review(person, "undo", report.run_id)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("command", "state"), [("echo new >d/g", "conflict"), ("chmod 711 d; echo new >d/g", "applied")]
)
def test_the_mode_of_a_folder(person: Person, command: str, state: str) -> None:
    """It is a conflict if the user writes there, too, and applied if only the command does."""
    folder = _folder(person.project / "d", f="old\n")

    def act() -> None:
        if state == "conflict":
            (folder / "mine").write_text("mine\n")
            folder.chmod(0o700)

    assert settled(person, command, act) == {"d": state, "d/g": "applied"}
    assert stat.S_IMODE(folder.stat().st_mode) == (0o700 if state == "conflict" else 0o711)
