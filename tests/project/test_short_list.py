# SPDX-License-Identifier: GPL-3.0-or-later
"""The short list of changes after a run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest
from support.person import Person

from ollmsandbox.project.change import Change, Flag, Kind, Recorded, State, Type
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.reasons import Note, Reason
from ollmsandbox.project.short_list import (
    HEADING,
    FolderLine,
    GitLine,
    Line,
    ShortList,
    short_lines,
    short_list,
)

pytestmark = pytest.mark.ordinary

HOOK = (Flag.LATER, Flag.HELD)


def change(
    path: str,
    kind: Kind = Kind.ADDED,
    flags: Sequence[Flag] = (),
    state: State = State.APPLIED,
    *,
    old_type: Type | None = None,
    note: Note | None = None,
    is_ignored: bool = False,
) -> Recorded:
    """A file, or a folder if the path ends with a slash."""
    type_ = Type.FOLDER if path.endswith("/") else Type.FILE
    old_type = type_ if kind is Kind.DELETED else old_type
    made = Change("/p", path.rstrip("/"), kind, type_, flags=tuple(flags), old_type=old_type)
    made = made._replace(is_ignored=is_ignored)
    return Recorded(0, made, state, note)


def paths(lines: Sequence[Line]) -> list[str]:
    return [line.change.path for line in lines if isinstance(line, Recorded)]


def counts(lines: Sequence[Line]) -> dict[str, int]:
    """The number of files in each folder that is one line."""
    return {line.folder.change.path: line.files for line in lines if isinstance(line, FolderLine)}


def git_lines(short: ShortList) -> list[GitLine]:
    return [line for line in short.lines if isinstance(line, GitLine)]


def ran(person: Person, command: str) -> ShortList:
    """Run a command in the sandbox and return the list of what it changed."""
    person.run_outside("git init -q; git config user.email a@b.c; git config user.name n")
    done = person.cli("run", "-c", command)
    assert done.returncode == 0, done.stderr
    with closing(ProjectManager(person.paths)) as manager:
        run = manager.last_run(manager.add_project(person.project))
        assert run is not None
        return short_list(read_changes(manager, run))


@pytest.mark.parametrize("kind", [Kind.ADDED, Kind.DELETED])
def test_a_whole_folder_is_one_line_with_the_number_of_its_files(kind: Kind) -> None:
    names = ["build/", "build/obj/", *(f"build/obj/{n}.o" for n in range(5)), "build/log"]
    # The folders that are deleted come after their content.
    items = [change(name, kind) for name in (names if kind is Kind.ADDED else reversed(names))]
    short = short_list([*items, change("builder", kind)])
    assert counts(short.lines) == {"build": 6}
    assert paths(short.lines) == ["builder"]
    assert not short.flagged
    assert not short.left_out


def test_a_folder_that_still_exists_is_not_summed_up() -> None:
    short = short_list([change(f"src/{n}", Kind.DELETED) for n in range(50)])
    assert paths(short.lines) == [f"src/{n}" for n in range(50)]


def test_a_new_folder_with_one_file_is_shown_by_that_file() -> None:
    short = short_list([change("a/"), change("a/b/"), change("a/b/c"), change("empty/")])
    assert paths(short.lines) == ["a/b/c"]
    assert counts(short.lines) == {"empty": 0}
    tool = change("bin/tool", flags=[Flag.EXECUTABLE])
    assert short_list([change("bin/"), tool]) == ShortList((), (tool,))
    hook = change(".git/hooks/pre-commit", flags=HOOK, state=State.PENDING)
    assert short_list([change(".git/hooks/"), hook]) == ShortList((), (hook,))


def test_a_risky_file_in_a_new_folder_has_its_own_line() -> None:
    names = ["modules/", *(f"modules/{n}.js" for n in range(9))]
    risky = change("modules/.envrc", flags=[Flag.LATER])
    tool = change("modules/tool", flags=[Flag.EXECUTABLE])
    short = short_list([*map(change, names), risky, tool])
    (line,) = short.lines
    assert isinstance(line, FolderLine)
    assert (line.files, line.executables) == (10, 1)
    assert short.flagged == (risky,)


def test_held_files_come_before_other_flagged_ones_and_after_everything_else() -> None:
    hook = change("hooks/a", Kind.MODIFIED, HOOK, State.PENDING)
    risky = change(".envrc", Kind.DELETED, [Flag.LATER])
    tool = change("tool", flags=[Flag.EXECUTABLE])
    many = [change(f"tools/{n}", flags=[Flag.EXECUTABLE]) for n in range(1000)]
    edits = [change(f"src/{n}", Kind.MODIFIED) for n in range(30)]
    short = short_list([tool, *many, risky, *edits, hook])
    assert short.lines == tuple(edits)
    assert short.flagged[:3] == (hook, risky, tool)
    text = list(short_lines(short, "/p", lambda _: ()))
    assert text.index(HEADING) == 30
    assert len(text) == 32 + len(short.flagged)  # the last line counts the others
    assert len(short.flagged) + short.left_out == 1003


def test_conflicts_and_failures_are_never_summed_up_with_the_rest() -> None:
    full = Note(Reason.SYSTEM_ERROR, {"error": "No space left on device"})
    failed = [change(f"new/{n}", state=State.FAILED, note=full) for n in range(9)]
    conflict = change("new/mine", state=State.CONFLICT)
    short = short_list([change("new/"), change("new/a"), change("new/b"), *failed, conflict])
    assert counts(short.lines) == {"new": 2}
    assert counts(short.flagged) == {"new": 9}
    assert paths(short.flagged) == ["new/mine"]


def test_a_folder_whose_deletion_is_held_is_one_flagged_line() -> None:
    items = [change(f"src/{n}", Kind.DELETED, [Flag.HELD], State.PENDING) for n in range(99)]
    own = change("src/", Kind.DELETED, [Flag.HELD], State.PENDING)
    risky = change("src/hooks/a", Kind.DELETED, HOOK, State.PENDING)
    short = short_list([*items, risky, own])
    assert not short.lines
    assert counts(short.flagged) == {"src": 99}
    assert paths(short.flagged) == ["src/hooks/a"]
    (line,) = (line for line in short.flagged if isinstance(line, FolderLine))
    assert line.example.is_held


def test_what_replaces_a_folder_stands_for_what_was_in_it() -> None:
    gone = [change(f"data/{n}", Kind.DELETED) for n in range(4)]
    file = change("data", Kind.REPLACED, old_type=Type.FOLDER)
    folder = change("page/", Kind.REPLACED, old_type=Type.FILE)
    short = short_list([*gone, file, folder, change("page/a"), change("page/b")])
    assert counts(short.lines) == {"data": 4, "page": 2}
    assert len(short.lines) == 2


def test_what_is_lost_comes_first_and_long_lists_are_cut_at_other_files() -> None:
    added = [change(f"new{n}") for n in range(100)]
    folder = [change("more/"), change("more/a"), change("more/b")]
    lost = [change(f"old{n}", Kind.DELETED) for n in range(300)]
    short = short_list([*added, *folder, change(".git/index", Kind.MODIFIED), *lost])
    assert short.lines[:300] == tuple(lost)
    assert paths(short.lines[300:]) == [f"new{n}" for n in range(38)]
    assert counts(short.lines) == {"more": 2}
    assert len(git_lines(short)) == 1
    assert short.left_out == 62


def test_the_number_of_lines_has_a_limit_for_each_part() -> None:
    lost = [change(f"old{n}", Kind.DELETED) for n in range(5000)]
    risky = [change(f".vscode/{n}", flags=[Flag.LATER]) for n in range(5000)]
    folders = [change(f"new{n}/") for n in range(5000)]
    short = short_list([*lost, *risky, *folders])
    assert len(short.lines) + len(short.flagged) < 1000
    assert len(short.lines) + len(short.flagged) + short.left_out == 15000


def test_a_commit_is_one_line_and_what_is_packed_another(person: Person) -> None:
    short = ran(person, "echo 1 >file; git add file; git commit -q -m one")
    (git,) = git_lines(short)
    assert {"index", "logs/HEAD", "COMMIT_EDITMSG"} < set(git.files)
    assert sum(name.startswith("objects/") for name in git.files) == 3
    text = short_lines(short, str(person.project), lambda _: ())
    assert f"  git: {len(git.files)} files" in text
    assert paths(short.lines) == ["file"]
    assert len(short.lines) == 2
    assert not short.flagged
    short = ran(person, "git gc -q")
    deleted, kept = git_lines(short)
    assert deleted.is_deleted and not kept.is_deleted
    assert short.lines == (deleted, kept)


def test_a_new_repository_in_a_new_folder_is_part_of_that_folder(person: Person) -> None:
    short = ran(person, "mkdir sub; git init -q sub; echo 1 >sub/file")
    assert list(counts(short.lines)) == ["sub"]
    assert not git_lines(short)


def test_other_files_in_a_repository_are_listed() -> None:
    names = ["info/attributes", "objects/info/alternates", "notes.txt", "config"]
    items = [change(f"sub/.git/{name}") for name in names]
    own = [change("sub/.git/objects/ab/"), change(f"sub/.git/objects/ab/{'c' * 38}")]
    short = short_list([*items, *own])
    assert paths(short.lines) == [f"sub/.git/{name}" for name in names]
    (git,) = git_lines(short)
    assert (git.folder, len(git.files)) == ("sub/", 1)


def test_a_hook_is_never_part_of_the_line_about_git() -> None:
    hook = change(".git/hooks/post-commit", flags=HOOK, state=State.PENDING)
    link = change(".git/refs/heads/main", Kind.MODIFIED, HOOK, State.PENDING)
    short = short_list([change(".git/index", Kind.MODIFIED), hook, link])
    assert {*short.flagged} == {hook, link}
    (git,) = git_lines(short)
    assert git.files == ["index"]
    assert "  git: index" in short_lines(short, "/p", lambda _: ())


def test_names_cannot_break_a_line_or_push_a_mark_out_of_sight() -> None:
    items = [change("a\nb/"), change("a\nb/1"), change("a\nb/2"), change(".git/refs/x\n  y")]
    text = list(short_lines(short_list(items), "/p", lambda _: ()))
    assert len(text) == 2
    assert not any("\n" in line for line in text)
    items = [change(f"{'é' * 4000}/.envrc", flags=[Flag.OPENING]), change("x", flags=HOOK)]
    text = list(short_lines(short_list(items), "/p", lambda _: ()))
    assert max(map(len, text)) < 300
    assert any("/.envrc" in line for line in text)


def test_files_that_git_ignores_are_one_line_at_the_end() -> None:
    items = [change("a"), *(change(f"{n}.pyc", is_ignored=True) for n in range(3))]
    text = list(short_lines(short_list(items), "/p", lambda _: ()))
    assert text == ["  added a", "  3 files that git ignores"]


def test_an_ignored_file_that_needs_attention_has_its_own_line() -> None:
    tool = change("build/tool", flags=(Flag.EXECUTABLE,), is_ignored=True)
    conflict = change("b.pyc", state=State.CONFLICT, is_ignored=True)
    # Whoever builds the project writes these anew.
    edited = change("c.pyc", note=Note(Reason.EDITED), is_ignored=True)
    short = short_list([tool, conflict, edited])
    assert sorted(paths(short.flagged)) == ["b.pyc", "build/tool"]
    assert short.ignored == 1


def test_a_folder_with_nothing_but_ignored_files_is_no_change_of_its_own() -> None:
    pyc = change("a/__pycache__/x.pyc", is_ignored=True)
    short = short_list([change("a/"), change("a/__pycache__/"), pyc])
    assert short == ShortList(ignored=1)
    short = short_list([change("a/"), change("a/x.py"), change("a/__pycache__/"), pyc])
    assert (paths(short.lines), short.ignored) == (["a/x.py"], 1)
