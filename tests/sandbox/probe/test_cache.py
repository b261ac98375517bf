# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe's findings are cached until the machine changes."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.person import Person
from support.probe import REAL, VERSION, fake, first_in_path, look

from ollmsandbox.sandbox.probe.probe import probe

pytestmark = pytest.mark.ordinary


@pytest.fixture
def programs(person: Person) -> Path:
    return first_in_path(person)


@pytest.fixture
def counted(person: Person, programs: Path) -> Callable[[], int]:
    """Count how often bwrap is started."""
    calls = person.home / "calls"
    fake(programs, f'echo >>"{calls}"\nexec {REAL} "$@"')
    return lambda: len(calls.read_text().splitlines()) if calls.exists() else 0


def test_a_second_look_tries_nothing(person: Person, counted: Callable[[], int]) -> None:
    first = look(person)
    tried = counted()
    assert tried >= 4
    assert look(person) == first
    assert counted() == tried
    # The cache is readable by its owner only.
    assert stat.S_IMODE(person.paths.cache.stat().st_mode) == 0o700
    probe(person.paths, person.environ, fresh=True)
    assert counted() == 2 * tried


def test_a_second_run_starts_one_bwrap(person: Person, counted: Callable[[], int]) -> None:
    person.run("true")
    before = counted()
    person.run("true")
    assert person.cli("run", "--", "true").returncode == 0
    assert counted() == before + 2


def test_a_miss_is_not_remembered(person: Person, programs: Path) -> None:
    broken = person.home / "broken"
    broken.touch()
    fake(programs, VERSION + f'test -e "{broken}" && exit 1\nexec {REAL} "$@"')
    assert not look(person).can_wrap
    broken.unlink()
    assert look(person).can_wrap
    assert person.run("touch ran").exit_code == 0


def test_a_changed_bwrap_is_noticed(person: Person, programs: Path) -> None:
    fake(programs, f'exec {REAL} "$@"')
    assert look(person).can_wrap
    fake(programs, "exit 1")
    assert not look(person).can_wrap
    fake(programs, f'exec  {REAL} "$@"')
    assert look(person).can_wrap


def test_an_unreadable_cache_or_one_of_another_version_is_made_anew(person: Person) -> None:
    first = look(person)
    (kept,) = person.paths.cache.glob("probe-*")
    document = json.loads(kept.read_text())
    changed = json.dumps(["magic" if x == first.overlay.value else x for x in document])
    longer = json.dumps([*document, "something new"])
    for content in ("", "[]", '{"findings": 1}', changed, longer):
        kept.write_text(content)
        assert look(person) == first
        assert json.loads(kept.read_text()) == document


def test_a_remembered_finding_is_explained_in_the_words_of_today(
    person: Person, programs: Path
) -> None:
    fake(programs, VERSION + "exit 1")
    found = look(person)
    findings = tuple(f._replace(cause="As said before.", remedy="Old.") for f in found.findings)
    assert found._replace(findings=findings).why_not() == found.why_not()
