# SPDX-License-Identifier: GPL-3.0-or-later
"""Random programs do the same in the sandbox as without it: alone, in a row, in review, undone and
redone."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from support.escape.kill import Snapshot, finish, killed_after
from support.oracle import (
    Ran,
    apply_what_waits,
    assert_all,
    assert_nothing_is_left,
    differences,
    run_plain,
    run_sandboxed,
    snapshot,
    steps,
    with_review,
)
from support.oracle_steps import Seen, Step
from support.person import Person, make_person

from ollmsandbox.database.tables import Run
from ollmsandbox.files import trees
from ollmsandbox.project.change import State
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

# How many times as much to try.
_EFFORT = int(os.environ.get("OLLMSANDBOX_ORACLE_EFFORT", "1"))
_TOGETHER = 25
Test = TypeVar("Test", bound=Callable[..., None])

_ODD_NAMES = (
    "d", "two words", "line\nbreak", "\u00fcml\u00e4ut \u2603", "\udcff\udcfe", "x" * 255, "-rf",
    ".hidden", "'\"$`\\", "*", "a~", "con,fig:x", "#", "\t",
)  # fmt: skip
_HELD_NAMES = (".git", "x.git", "hooks", "config")
_TARGETS = (
    "a", "b", "c/a", "../a", "nowhere", ".", "..", "../../..", "{here}/a", "{here}/b/c",
    "/nonexistent/a", "/usr/share", "../../outside", "\udcff", "a/", "x" * 300,
)  # fmt: skip
_MODES = (0o644, 0o755, 0o600, 0o444, 0o000, 0o700, 0o555, 0o500, 0o111, 0o1777)
# Not at first: the bit of a folder that is there already is not the command's to take.
_LENDING = (0o4755, 0o2755)


@dataclass(frozen=True)
class Program:
    """The files at first, and the steps of one or more runs."""

    first: list[Step]
    runs: list[list[Step]]


def _paths(*names: str) -> list[str]:
    short = list(names) * 4
    pairs = ["/".join(pair) for pair in itertools.product(names, names)]
    # Three and four deep, along one way, so that they meet: folders with folders in them are moved.
    first, second = names[0], names[1]
    deep = [f"{first}/{pair}" for pair in pairs]
    deeper = [f"{first}/{second}/{pair}" for pair in pairs]
    return [*short, *pairs, *deep, *deeper[: len(names) * 2]]


@cache
def _building(*names: str) -> st.SearchStrategy[Step]:
    """Steps that make something."""
    path = st.sampled_from(_paths(*names))
    text, times = st.sampled_from("xyz"), st.sampled_from((0, 1, 5, 5000, 70000))
    return st.one_of(
        _step("write", path, text, times),
        _step("makedirs", path),
        _step("become", path, st.just("full")),
        _step("symlink", path, st.sampled_from(_TARGETS)),
        _step("chmod", path, st.sampled_from(_MODES)),
        _step("link", path, path),
    )


@cache
def _anything(*names: str) -> st.SearchStrategy[Step]:
    path = st.sampled_from(_paths(*names))
    text, size = st.sampled_from("xyz"), st.sampled_from((0, 1, 5, 5000, 70000))
    attributes = ("user.foo", "user.overlay.opaque", "user.overlay.whiteout")
    return st.one_of(
        _building(*names),
        _step("append", path, text, size),
        _step("patch", path, text, size),
        _step("truncate", path, size),
        _step("rewrite", path),
        _step("save", path, text),
        _step("touch", path),
        _step("sparse", path, st.sampled_from((100, 1 << 20))),
        _step("read", path),
        _step("unlink", path),
        _step("xattr", path, st.sampled_from(attributes)),
        _step("chmod", path, st.sampled_from(_LENDING)),
        _step("mkdir", path, st.sampled_from(_MODES)),
        _step("rmdir", path),
        _step("list", path),
        _step("remove", path),
        _step("become", path, st.sampled_from(("file", "link", "empty", "full", "deep"))),
        _step("rename", path, path),
        _step("rename", path, path),
    )


def _step(
    kind: str, *arguments: st.SearchStrategy[str] | st.SearchStrategy[int]
) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(kind), *arguments).map(list)


@st.composite
def programs(
    draw: st.DrawFn, runs: st.SearchStrategy[int], odd: tuple[str, ...] = _ODD_NAMES
) -> Program:
    # Those that are held only make sense together.
    names = ("a", *odd) if odd is _HELD_NAMES else ("a", "b", "c", draw(st.sampled_from(odd)))
    first = draw(st.lists(_building(*names), max_size=8))
    count = draw(runs)
    each = st.lists(_anything(*names), min_size=1, max_size=12)
    return Program(first, [draw(each) for _ in range(count)])


def batches(
    runs: st.SearchStrategy[int], odd: tuple[str, ...] = _ODD_NAMES
) -> st.SearchStrategy[list[Program]]:
    """Many share a sandbox, each in a folder of its own: starting it takes longest."""
    return st.lists(programs(runs, odd), min_size=_TOGETHER, max_size=_TOGETHER)


def examples(count: int) -> Callable[[Test], Test]:
    """Choose the same examples each time, unless the effort is higher; root and an ordinary user
    get different ones, so that both together try hundreds of programs."""
    chosen = settings(
        max_examples=count * _EFFORT,
        derandomize=_EFFORT == 1,
        deadline=None,
        database=None,
        print_blob=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def decorate(test: Test) -> Test:
        test = chosen(test)
        return seed(int(os.getuid() == 0))(test) if _EFFORT == 1 else test

    return decorate


class Stage:
    """A fresh project for each batch; what the runs do plainly is known beforehand."""

    def __init__(self, person: Person, batch: list[Program]) -> None:
        self.person = person
        self._batch = {f"p{number}": program for number, program in enumerate(batch)}
        self.count = max(len(program.runs) for program in batch)
        self._set_up()
        self.expected = [self.seen()]
        # By run: the first, the second ... One that changed nothing is not recorded.
        self.recorded: dict[str, int] = {}
        self._said: list[dict[str, list[str]]] = []
        for number in range(self.count):
            self._said.append(_outcomes(run_plain(person, self._command(number))))
            self.expected.append(self.seen())
        trees.empty(person.project)
        self._set_up()
        self.assert_same(0, "set up")

    def seen(self) -> Seen:
        return snapshot(self.person.project)

    def _set_up(self) -> None:
        # Where one name of a file is changed, its other names look changed by somebody else to
        # runs that wait: with several runs there are none at first.
        alone: list[Step] = [["separate"]] if self.count > 1 else []
        first = {name: [*program.first, *alone] for name, program in self._batch.items()}
        _outcomes(run_plain(self.person, steps(self.person, first)))

    def _command(self, number: int) -> list[str]:
        separate: Step = ["separate"]
        return steps(
            self.person,
            {
                name: [separate, *program.runs[number]]
                for name, program in self._batch.items()
                if number < len(program.runs)
            },
        )

    def half(self, which: int) -> list[str]:
        """Return the command that does the first runs of every second program."""
        names = list(self._batch)[which::2]
        return steps(self.person, {name: self._batch[name].runs[0] for name in names})

    def run(self, number: int, mode: Mode) -> None:
        ran = run_sandboxed(self.person, self._command(number), mode)
        if ran.report is not None and ran.report.changes:
            self.recorded[ran.report.run_id] = number
        said = _outcomes(ran)
        wrong = {name for name in said if said[name] != self._said[number][name]}
        assert not wrong, self._told(
            wrong,
            [f"run {number} of {name}: {self._said[number][name]}\n{said[name]}" for name in wrong],
        )

    def assert_same(self, number: int, note: str) -> None:
        """Assert that the project equals the plain copy after that number of runs."""
        found = differences(self.expected[number], self.seen())
        wrong = {line[1:].partition(":")[0].rstrip("'").partition("/")[0] for line in found}
        assert not found, self._told(wrong, [f"{note}, {number} of {self.count}:", *found])

    def _told(self, names: set[str], lines: list[str]) -> str:
        for name in sorted(names & self._batch.keys()):
            program = self._batch[name]
            lines += [name, *(json.dumps(steps) for steps in (program.first, *program.runs))]
        return "\n".join(lines)


def _outcomes(ran: Ran) -> dict[str, list[str]]:
    assert ran.exit_code == 0, ran.stderr
    found: dict[str, list[str]] = json.loads(ran.stdout)
    return found


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Program]], Stage]:
    person = make_person(tmp_path_factory.mktemp("oracle"))
    numbers = itertools.count()

    def make(batch: list[Program]) -> Stage:
        project = person.home / f"project-{next(numbers)}"
        project.mkdir()
        return Stage(Person(person.home, project, person.environ), batch)

    return make


Making = Callable[[list[Program]], Stage]


@examples(8)
@given(batch=batches(st.just(1)))
def test_a_program_does_what_it_does_without_a_sandbox(stage: Making, batch: list[Program]) -> None:
    here = stage(batch)
    here.run(0, Mode.AUTO)
    here.assert_same(1, "applied")
    assert_nothing_is_left(here.person)


@examples(2)
@given(batch=batches(st.integers(2, 4)))
def test_runs_in_a_row_undone_and_done_again(stage: Making, batch: list[Program]) -> None:
    here = stage(batch)
    for number in range(here.count):
        here.run(number, Mode.AUTO)
        here.assert_same(number + 1, "applied")
    assert_nothing_is_left(here.person)

    def back_and_forth(review: Review, runs: list[Run]) -> None:
        assert [run.id for run in runs] == list(here.recorded)
        for run in reversed(runs):
            assert_all(review.undo(run), State.UNDONE)
            here.assert_same(here.recorded[run.id], "undone")
        for run in runs:
            assert_all(review.apply(run), State.APPLIED)
            here.assert_same(here.recorded[run.id] + 1, "done again")

    with_review(here.person, back_and_forth)
    assert_nothing_is_left(here.person)


@examples(2)
@given(batch=batches(st.integers(1, 4)))
def test_runs_in_review_applied_at_the_end(stage: Making, batch: list[Program]) -> None:
    here = stage(batch)
    for number in range(here.count):
        here.run(number, Mode.REVIEW)
        here.assert_same(0, "nothing applied")
    apply_what_waits(here.person)
    here.assert_same(here.count, "applied")
    assert_nothing_is_left(here.person)


@examples(3)
@given(
    batch=batches(st.just(1)),
    modes=st.tuples(*[st.sampled_from((Mode.AUTO, Mode.REVIEW))] * 2),
    kill=st.integers(1, 600),
)
def test_two_sessions_at_once_one_of_which_is_killed(
    stage: Making, batch: list[Program], modes: tuple[Mode, Mode], kill: int
) -> None:
    here = stage(batch)
    recover = Snapshot(here.person)
    # The second begins before the first has ended, and ends after it.
    recover.leave(here.half(1))
    run_sandboxed(here.person, here.half(0), modes[0])
    killed_after(kill, lambda: recover.settle(modes[1]))
    finish(recover)
    apply_what_waits(here.person)
    here.assert_same(1, f"killed after step {kill}, {modes}")
    assert_nothing_is_left(here.person)


@examples(2)
@given(batch=batches(st.integers(1, 3), _HELD_NAMES))
def test_held_changes_after_approval(stage: Making, batch: list[Program]) -> None:
    here = stage(batch)
    for number in range(here.count):
        here.run(number, Mode.AUTO)
    apply_what_waits(here.person)
    here.assert_same(here.count, "allowed")
    assert_nothing_is_left(here.person)
