# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox doctor --attack` shows that the sandbox holds, and would show if it did not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.person import Person

from ollmsandbox.engine import attack
from ollmsandbox.engine.attack import Attempt


def test_all_attacks_are_refused_and_nothing_is_left(person: Person) -> None:
    (person.home / ".ssh").mkdir()
    (person.home / ".ssh/id_ed25519").write_text("a key")
    done = person.cli("doctor", "--attack", "--json")
    results = json.loads(done.stdout)
    assert [result["title"] for result in results if not result["held"]] == []
    assert done.returncode == 0
    assert {r["detail"] for r in results if r["title"] == "Read ~/.ssh"} == {"hidden"}
    assert set(os.listdir(person.home)) == {".ssh", ".cache", ".local", "project"}
    assert not [*(person.paths.cache / "caches").glob("*")]
    assert json.loads(person.cli("history", "--json").stdout) == []


def test_what_gets_through_is_said(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    (person.home / "file").touch()
    [fill] = [one for one in attack._ATTEMPTS if one.title == "Fill the disk with one call"]
    unlimited = fill.code.replace("resource.getrlimit(resource.RLIMIT_FSIZE)[0]", "-1")
    assert unlimited != fill.code
    expected = {
        "make('.')": False,
        "result = readable(HOME)": False,
        "result = []": True,
        "raise OSError(1, 'no')": True,
        fill.code: True,
        # Without a limit for the disk.
        unlimited: False,
        # It made a file, whatever it says: see below.
        "make('/usr')": False,
        # It ends the program, so that nothing is known of the next one either.
        "os._exit(0)": False,
        "result = [][:]": False,
    }

    def planted(folders: tuple[Path, ...], mark: str) -> bool:
        return True

    monkeypatch.setattr(attack, "_planted", planted)
    attempts = tuple(Attempt("area", code, code) for code in expected)
    monkeypatch.setattr(attack, "_ATTEMPTS", attempts)
    # Changes that were not made have not held.
    monkeypatch.setattr(attack, "_COPY_BACK", "touch other; exit 1")
    *found, stays, hook, link = attack.attack(person.environ)
    assert {one.title: one.held for one in found} == expected
    assert next(one.detail for one in found if one.title == fill.code) == "EFBIG"
    assert (stays.held, hook.held, link.held) == (True, False, False)
