# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox project move`"""

from __future__ import annotations

import os

import pytest
from support.cli import assert_failed
from support.person import Person

from ollmsandbox.permission.request import Answer
from ollmsandbox.permission.rules import Key, Rule, Target
from ollmsandbox.permission.store import RuleStore

pytestmark = pytest.mark.ordinary


def test_history_pending_changes_and_rules_move_along(person: Person) -> None:
    person.cli("run", "--apply", "review", "-c", "echo new > a")
    deny = Rule(Key("edit_file", str(person.project), Target("a")), Answer.DENY_ALWAYS)
    RuleStore(person.paths).add(deny)
    new = person.project.rename(person.home / "new name")
    done = person.cli("project", "move", str(person.project), str(new), cwd=person.home)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(new) in done.stdout
    person.cli("changes", cwd=new)
    assert person.cli("apply", cwd=new).returncode == 0
    assert (new / "a").read_text() == "new\n"
    (rule,) = RuleStore(person.paths).rules()
    assert rule.key.project == str(new)


def test_paths_may_be_relative_and_the_old_one_a_link_to_the_new_one(person: Person) -> None:
    person.cli("run", "-c", "echo new > a")
    new = person.project.rename(person.home / "new")
    person.project.symlink_to(new)
    old = os.path.relpath(person.project, person.home)
    done = person.cli("project", "move", old, "new", cwd=person.home)
    assert done.returncode == 0, done.stderr
    person.cli("changes", cwd=new)
    assert person.cli("undo", cwd=new).returncode == 0
    assert not (new / "a").exists()


def test_what_cannot_be_moved_is_an_error(person: Person) -> None:
    person.cli("run", "-c", "echo new > a")
    new = person.home / "new"
    new.mkdir()
    done = person.cli("project", "move", str(person.project), str(new), cwd=person.home)
    assert_failed(done, "still exists")
    done = person.cli("project", "move", "/nowhere", str(person.home), cwd=person.home)
    assert_failed(done, "/nowhere")
