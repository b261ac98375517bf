# SPDX-License-Identifier: GPL-3.0-or-later
"""The user deletes, moves or closes whole folders while a command works in them."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from support.cli_inline import cli_here
from support.escape.paused import run_while, states
from support.person import Person


def _folder(path: Path, **files: str) -> Path:
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def test_a_folder_that_the_user_deletes_during_the_run(person: Person) -> None:
    inner = _folder(person.project / "d" / "e", f="old\n")
    done = run_while(person, "echo new >>d/e/f", lambda: shutil.rmtree(person.project / "d"))
    assert states(done) == {"d": "conflict", "d/e": "conflict", "d/e/f": "conflict"}
    assert list(person.project.iterdir()) == []
    applied = cli_here(person, "apply", done["run_id"], "d/e/f")
    assert applied.returncode == 0, applied.stdout
    assert (inner / "f").read_text() == "old\nnew\n"


def test_a_new_file_in_a_folder_that_the_user_deletes_during_the_run(person: Person) -> None:
    folder = _folder(person.project / "d", f="old\n")
    command = "echo new >>d/f; echo made >d/g; mkdir x; mv d/h x/"
    (folder / "h").write_text("moved\n")
    done = run_while(person, command, lambda: shutil.rmtree(folder))
    assert states(done) == {
        "d": "applied",
        "d/f": "conflict",
        "d/g": "applied",
        "x": "applied",
        "x/h": "applied",
    }
    assert [one.name for one in folder.iterdir()] == ["g"]


def test_a_folder_that_was_moved_to_where_the_command_deletes(person: Person) -> None:
    folder = _folder(person.project / "d", f="old\n")
    photos = _folder(person.home / "photos", p="photo\n")
    done = run_while(person, "rm -rf d", lambda: os.rename(photos, folder / "photos"))
    assert states(done) == {
        "d": "conflict",
        "d/f": "applied",
        "d/photos": "conflict",
        "d/photos/p": "conflict",
    }
    assert (folder / "photos" / "p").read_text() == "photo\n"


def test_a_folder_that_took_the_place_of_the_one_the_command_changes(person: Person) -> None:
    source = _folder(person.project / "src", f="old\n", g="old\n")
    other = _folder(person.project / "other", f="mine\n", g="mine\n")

    def swap() -> None:
        os.rename(source, person.project / "before")
        os.rename(other, source)

    done = run_while(person, "echo new >>src/f; rm src/g; echo made >src/h", swap)
    assert states(done) == {"src/f": "conflict", "src/g": "conflict", "src/h": "applied"}
    assert {one.name: one.read_text() for one in source.iterdir()} == {
        "f": "mine\n",
        "g": "mine\n",
        "h": "made\n",
    }


def test_work_beside_the_command_is_no_conflict(person: Person) -> None:
    source = _folder(person.project / "src" / "in", f="old\n", g="old\n", h="old\n")
    _folder(person.project / "src" / "old", f="old\n")

    def act() -> None:
        source.chmod(0o750)
        (source / "note").write_text("mine\n")
        (person.project / "src").chmod(0o750)
        (person.project / "src" / "note").write_text("mine\n")

    done = run_while(person, "echo new >>src/in/f; rm src/in/g; rm -r src/old", act)
    told = states(done)
    # Whose modes these are cannot be known: the user's stay.
    assert (told.pop("src"), told.pop("src/in")) == ("conflict", "conflict")
    assert set(told.values()) == {"applied"}
    assert stat.S_IMODE(source.stat().st_mode) == 0o750


def test_a_move_by_the_command_is_no_conflict_with_an_edit_beside_it(person: Person) -> None:
    for name in ("a", "log", "linked"):
        (person.project / name).write_text(f"old {name}\n")
    (person.project / "kept").write_text("old\n")

    def act() -> None:
        (person.project / "note").write_text("mine\n")
        (person.project / "kept").unlink()

    command = "mv a b; mv log log.1; echo new >log; ln linked other; echo more >>kept"
    done = run_while(person, command, act)
    told = states(done)
    # The file's origin is known only where the overlay could name the file.
    assert told.pop("kept") in ("conflict", "applied")
    assert set(told.values()) == {"applied"}
    found = {one.name: one.read_text() for one in person.project.iterdir() if one.name != "kept"}
    assert found == {
        "b": "old a\n",
        "log": "new\n",
        "log.1": "old log\n",
        "linked": "old linked\n",
        "other": "old linked\n",
        "note": "mine\n",
    }


@pytest.mark.parametrize("mode", ["auto", "review"])
def test_a_mode_that_the_user_gives_a_folder_stays(person: Person, mode: str) -> None:
    folder = _folder(person.project / "d", f="old\n")
    folder.chmod(0o755)
    done = run_while(person, "echo new >d/g", lambda: folder.chmod(0o700), "--apply", mode)
    assert states(done) == {"d/g": "applied" if mode == "auto" else "pending"}
    assert cli_here(person, "apply").returncode == 0
    assert (folder / "g").read_text() == "new\n"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert cli_here(person, "undo").returncode == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_mode_of_a_folder_in_which_the_user_also_writes_is_a_conflict(person: Person) -> None:
    folder = _folder(person.project / "d", f="old\n")
    folder.chmod(0o755)

    def act() -> None:
        (folder / "mine").write_text("mine\n")
        folder.chmod(0o700)

    done = run_while(person, "echo new >d/g", act)
    assert states(done) == {"d": "conflict", "d/g": "applied"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_mode_that_the_command_gives_a_folder_is_applied(person: Person) -> None:
    folder = _folder(person.project / "d", f="old\n")
    folder.chmod(0o755)
    done = run_while(person, "chmod 711 d; echo new >d/g", lambda: None)
    assert states(done) == {"d": "applied", "d/g": "applied"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o711
