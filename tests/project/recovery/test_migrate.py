# SPDX-License-Identifier: GPL-3.0-or-later
"""Pending changes of earlier versions of the program, which had one layer for all runs."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from support.escape.copy_back import settle
from support.person import Person

from ollmsandbox.project.apply.recorder import needs_recovery
from ollmsandbox.project.changes.change import State
from ollmsandbox.project.changes.mode import Mode
from ollmsandbox.project.database.runs import read_changes
from ollmsandbox.project.pending.chain import Chain
from ollmsandbox.project.recovery import recover as recovery
from ollmsandbox.project.recovery.recover import recover
from ollmsandbox.project.review.review import Review
from ollmsandbox.project.review.versions import Versions


def merge_layers(person: Person) -> list[str]:
    """Make one layer of the chain, as earlier versions had it; return the runs."""
    project = str(person.project)
    chain = Chain(person.paths, project)
    runs = chain.runs
    layer = chain.folder / "overlay1"
    layer.mkdir()
    layer.chmod(person.project.stat().st_mode)
    for run_id in runs:
        source = Path(chain.layer_of(run_id, project))
        for file in source.iterdir():
            file.rename(layer / file.name)
        source.rmdir()
    chain.drop_empty(runs)
    (chain.folder / "map.json").write_text(json.dumps({"overlay1": project}))
    return runs


@pytest.fixture
def old(person: Person) -> list[str]:
    for name in ("a", "b"):
        (person.project / name).write_text("old\n")
    settle(person, "echo first >a; echo first >c", Mode.REVIEW)
    settle(person, "echo second >a; rm b; echo second >d", Mode.REVIEW)
    return merge_layers(person)


def test_the_layer_belongs_to_the_oldest_run(person: Person, old: list[str]) -> None:
    assert needs_recovery(person.paths)
    recovered = recover(person.paths)
    assert not (*recovered.errors, *recovered.notices)
    assert not needs_recovery(person.paths)
    assert person.run("cat a c d; ls").stdout.text == "second\nfirst\nsecond\na\nc\nd\n"
    with closing(Review(person.paths)) as review:
        first, second = map(review.manager.run, old)
        rows = read_changes(review.manager, first)
        assert {row.change.path: row.state for row in rows} == dict.fromkeys(
            ("a", "b", "c", "d"), State.PENDING
        )
        assert {row.state for row in read_changes(review.manager, second)} == {State.DISCARDED}
        [row] = [row for row in rows if row.change.path == "a"]
        assert Versions(review.manager).before(first, row).read() == b"old\n"
        report = review.apply(first)
        assert {item.state for item in report.changes} == {State.APPLIED}
        assert sorted(path.name for path in person.project.iterdir()) == ["a", "c", "d"]
        assert (person.project / "a").read_text() == "second\n"
        review.undo(first)
        assert sorted(path.name for path in person.project.iterdir()) == ["a", "b"]


def test_a_kill_in_between_is_finished(
    person: Person, old: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ollmsandbox.project.recovery import migrate

    for step in ("_record", "scan"):
        with monkeypatch.context() as patched:

            def cut(*_args: object) -> None:
                raise KeyboardInterrupt

            patched.setattr(migrate, step, cut)
            with pytest.raises(KeyboardInterrupt):
                recover(person.paths)
    test_the_layer_belongs_to_the_oldest_run(person, old)


def test_without_a_database_the_changes_are_listed_again(person: Person, old: list[str]) -> None:
    person.paths.database.unlink()
    assert [str(person.project) in notice for notice in recover(person.paths).notices] == [True]
    done = person.cli("apply", "--all")
    assert done.returncode == 0, done.stdout
    assert sorted(path.name for path in person.project.iterdir()) == ["a", "c", "d"]


def test_a_missing_folder_and_a_run_that_came_before_lose_nothing(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, linked = str(person.project), person.home / "linked"
    linked.mkdir()
    agreed = person.paths.linked_roots(project)
    agreed.parent.mkdir(parents=True, exist_ok=True)
    agreed.write_text(json.dumps([str(linked)]))
    settle(person, f"echo first >f; echo first >{linked}/o", Mode.REVIEW)
    agreed.write_text(json.dumps([str(linked)]))
    settle(person, f"echo second >g; echo second >{linked}/n", Mode.REVIEW)
    chain = Chain(person.paths, project)
    for name, root in (("overlay1", project), ("overlay2", str(linked))):
        (chain.folder / name).mkdir()
        for run_id in chain.runs:
            for file in Path(chain.layer_of(run_id, root)).iterdir():
                file.rename(chain.folder / name / file.name)
            Path(chain.layer_of(run_id, root)).rmdir()
    chain.drop_empty(chain.runs)
    layers = {"overlay1": project, "overlay2": str(linked)}
    (chain.folder / "map.json").write_text(json.dumps(layers))
    # It could not be migrated, and another run came.
    with monkeypatch.context() as patched:
        patched.setattr(recovery, "migrate_layers", lambda *_args: None)
        settle(person, "echo third >h", Mode.REVIEW)
    away = linked.rename(person.home / "away")
    assert not recover(person.paths).errors
    person.cli("apply", "--all")
    names = {file.name: file.read_text() for file in person.project.iterdir()}
    assert names == {"f": "first\n", "g": "second\n", "h": "third\n"}
    away.rename(linked)
    assert person.cli("apply", "--all").returncode == 0
    assert {file.name for file in linked.iterdir()} == {"o", "n"}
