# SPDX-License-Identifier: GPL-3.0-or-later
"""Review mode: a whole session works as if each command had been applied, and nothing is, until the
user agrees."""

from __future__ import annotations

import asyncio
import os

import pytest
from support.oracle import (
    SAME_COMMITS,
    Aside,
    apply_what_waits,
    assert_all,
    assert_nothing_is_left,
    assert_same,
    comparable,
    run_inside,
    run_plain,
    run_sandboxed,
    snapshot,
    with_review,
)
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.database.tables import Run
from ollmsandbox.project.change import State
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

_SESSION = (
    "mkdir -p src tests && printf 'int twice(int n) { return n + n; }\\n' > src/twice.c",
    "printf 'int twice(int);\\nint main(void) { return twice(2) != 4; }\\n' > tests/main.c",
    "printf 'check: test\\n\\t./test\\ntest: twice.o tests/main.c\\n"
    "\\tcc -o $@ tests/main.c twice.o\\ntwice.o: src/twice.c\\n\\tcc -c -o $@ $<\\n' > Makefile",
    "make check",
    "make check",
    "sed -i 's/n + n/n * n + 1/' src/twice.c && make check",
    "sed -i 's/n . n + 1/2 * n/' src/twice.c && make check && cat src/twice.c",
    "rm -f test twice.o && ls -A",
    "make test && ls -A",
    "git init -q -b main . && printf 'test\\n*.o\\n' > .gitignore && git add -A && git status -s",
    "git commit -q -m first && git log --format='%H %s'",
    "git checkout -q -b topic && git mv README README.md && git commit -qm readme && git status -s",
    "git checkout -q main && cat README && git merge -q topic && git log --oneline",
    "rm -rf tests && mkdir tests && echo new > tests/new && find tests | sort",
    "git checkout -q -- tests && cat tests/main.c && rm tests/new",
    "mv src lib && ln -s lib src && make check && ls -l src | sed 's/.* src/src/'",
    "chmod -R go-rwx lib && chmod 500 lib && stat -c '%a %n' lib lib/*",
    "chmod 700 lib && rm src && mv lib src && stat -c '%a %n' . src src/*",
    "git stash -q && git status -s && git stash pop -q; git status -s",
    "git clean -qfdx && find . -path ./.git -prune -o -print | sort && cat notes/kept",
)  # fmt: skip


@pytest.fixture
def project(person: Person) -> Person:
    person.environ.update(SAME_COMMITS)
    (person.project / "README").write_text("read me\n")
    (person.project / "notes").mkdir()
    (person.project / "notes/kept").write_text("kept\n")
    return person


def test_a_session_of_many_commands_works_as_if_all_were_applied(project: Person) -> None:
    aside = Aside(project)
    plain = [run_plain(project, command) for command in _SESSION]
    expected = comparable(project)
    aside.bring_back()
    at_first = snapshot(project.project)
    for command, ran in zip(_SESSION, plain, strict=True):
        assert run_sandboxed(project, command, Mode.REVIEW) == ran, command
        assert_same(at_first, snapshot(project.project), command)
    apply_what_waits(project)
    assert_same(expected, comparable(project))
    assert_nothing_is_left(project)


def test_the_next_command_sees_applied_and_discarded_changes(project: Person) -> None:
    first = "mkdir new; for n in 1 2 3; do echo $n > new/$n; done; rm -r notes; echo more >> README"
    run_sandboxed(project, first, Mode.REVIEW)
    here = os.path.realpath(project.project)

    def choose(review: Review, runs: list[Run]) -> None:
        (run,) = runs
        assert_all(review.apply(run, [f"{here}/new/1"]), State.APPLIED)
        assert_all(review.discard(run, [f"{here}/new/2", f"{here}/notes"]), State.DISCARDED)

    with_review(project, choose)
    on_disk = {"README": "read me\n", "notes/kept": "kept\n", "new/1": "1\n"}
    assert _texts(project) == on_disk
    seen = run_sandboxed(project, "cat README notes/kept; ls new; echo 4 > new/4", Mode.REVIEW)
    assert seen.stdout == "read me\nmore\nkept\n1\n3\n"
    assert _texts(project) == on_disk

    def again(review: Review, runs: list[Run]) -> None:
        assert_all(review.discard(runs[0], [f"{here}/README"]), State.DISCARDED)
        assert_all(review.apply(runs[1]), State.APPLIED)

    with_review(project, again)
    assert run_sandboxed(project, "cat README; ls new", Mode.REVIEW).stdout == "read me\n1\n3\n4\n"
    apply_what_waits(project)
    assert _texts(project) == {**on_disk, "new/3": "3\n", "new/4": "4\n"}
    assert_nothing_is_left(project)


def test_a_discarded_session_leaves_nothing(project: Person) -> None:
    at_first = snapshot(project.project)
    for command in ("rm -r notes && echo > notes", "rm notes; mkdir -p notes/a", "chmod 700 ."):
        run_sandboxed(project, command, Mode.REVIEW)

    def discard(review: Review, runs: list[Run]) -> None:
        for run in reversed(runs):
            assert_all(review.discard(run), State.DISCARDED)

    with_review(project, discard)
    assert_same(at_first, snapshot(project.project))
    assert run_sandboxed(project, "cat notes/kept; stat -c %a .").stdout == "kept\n755\n"
    assert_nothing_is_left(project)


def test_the_mode_of_the_project_folder_is_pending_too(project: Person) -> None:
    run_sandboxed(project, "chmod 700 .", Mode.REVIEW)
    assert run_sandboxed(project, "stat -c %a .; touch new", Mode.REVIEW).stdout == "700\n"
    assert project.project.stat().st_mode & 0o777 == 0o755
    apply_what_waits(project)
    assert project.project.stat().st_mode & 0o777 == 0o700
    assert_nothing_is_left(project)


def test_a_recreated_folder_does_not_hide_what_is_applied_to_it(project: Person) -> None:
    (project.project / "notes/deep").mkdir()
    (project.project / "notes/deep/old").write_text("old\n")
    run_sandboxed(project, "rm -r notes; mkdir -p notes/deep; touch notes/a notes/b", Mode.REVIEW)
    here = os.path.realpath(project.project)

    def choose(review: Review, runs: list[Run]) -> None:
        assert_all(review.apply(runs[0], [f"{here}/notes/a"]), State.APPLIED)

    with_review(project, choose)
    seen = run_sandboxed(project, "find notes | sort", Mode.REVIEW).stdout
    assert seen == "notes\nnotes/a\nnotes/b\nnotes/deep\n"
    apply_what_waits(project)
    assert _texts(project) == {"README": "read me\n", "notes/a": "", "notes/b": ""}
    assert_nothing_is_left(project)


def test_two_concurrent_runs_are_both_recorded(project: Person) -> None:
    # Each waits for the other.
    project.share_playground()

    def command(mine: str, other: str) -> str:
        meet = f"touch ~/playground/{mine}; until [ -e ~/playground/{other} ]; do sleep 0.01; done"
        return f"echo {mine} > {mine}; mkdir -p both; echo {mine} > both/{mine}; {meet}"

    async def together() -> None:
        one, two = await asyncio.gather(
            run_inside(project, command("one", "two")), run_inside(project, command("two", "one"))
        )
        assert (one.exit_code, two.exit_code) == (0, 0)

    loop.run(together())
    recorded: list[str] = []
    with_review(project, lambda _, runs: recorded.extend(run.id for run in runs))
    assert len(recorded) == 2
    made = {"one": "one\n", "two": "two\n", "both/one": "one\n", "both/two": "two\n"}
    assert _texts(project) == {"README": "read me\n", "notes/kept": "kept\n", **made}
    assert_nothing_is_left(project)


def _texts(person: Person) -> dict[str, str]:
    files = (path for path in person.project.rglob("*") if path.is_file())
    return {str(path.relative_to(person.project)): path.read_text() for path in files}
