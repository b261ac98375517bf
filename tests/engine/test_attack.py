# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox doctor --attack` shows that the sandbox holds, and would show if it did not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.person import Person

from ollmsandbox import loop
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
    assert json.loads(person.cli("history", "--json").stdout) == []


@pytest.mark.anybody
@pytest.mark.parametrize(
    ("code", "held"),
    [
        ("make('.')", False),
        ("result = readable(HOME)", False),
        ("result = []", True),
        ("raise OSError(1, 'no')", True),
        # It ends the program, so that nothing is known.
        ("os._exit(0)", False),
    ],
)
def test_what_gets_through_is_said(
    person: Person, monkeypatch: pytest.MonkeyPatch, code: str, held: bool
) -> None:
    (person.home / "file").touch()
    monkeypatch.setattr(attack, "_ATTEMPTS", (Attempt("area", "title", code),))
    first, *_others = loop.run(attack.attack(person.environ))
    assert first.held is held


def test_a_file_that_was_made_counts_whatever_the_attempt_says(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(folders: tuple[Path, ...], mark: str) -> bool:
        return True

    monkeypatch.setattr(attack, "_planted", planted)
    monkeypatch.setattr(attack, "_ATTEMPTS", (Attempt("area", "title", "make('/usr')"),))
    assert not loop.run(attack.attack(person.environ))[0].held


def test_changes_that_were_not_made_have_not_held(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack, "_ATTEMPTS", ())
    monkeypatch.setattr(attack, "_COPY_BACK", "touch other; exit 1")
    *_others, hook, link = loop.run(attack.attack(person.environ))
    assert not hook.held
    assert not link.held


def test_a_missing_disk_limit_is_said(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    [fill] = [one for one in attack._ATTEMPTS if one.title == "Fill the disk with one call"]
    unlimited = fill.code.replace("resource.getrlimit(resource.RLIMIT_FSIZE)[0]", "-1")
    assert unlimited != fill.code
    monkeypatch.setattr(attack, "_ATTEMPTS", (fill, fill._replace(code=unlimited)))
    first, second, *_others = loop.run(attack.attack(person.environ))
    assert (first.held, first.detail, second.held) == (True, "EFBIG", False)
