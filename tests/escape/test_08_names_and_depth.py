# SPDX-License-Identifier: GPL-3.0-or-later
"""Odd names, deep folders, guessed names of the program's own files, and unreadable files in the
copy-back."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator

import pytest
from support.changes import states
from support.escape.attack import python
from support.escape.copy_back import (
    cleared_afterwards,
    each_mode,
    fill,
    review,
    settle,
    settle_and_apply,
)
from support.person import Person, cli_argv

from ollmsandbox.project.change import Report, State
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def cleared(person: Person) -> Iterator[None]:
    with cleared_afterwards(person):
        yield


NAMES = [
    b"new\nline", b"tab\there", b"\x1b[31mred\x07", b"\xff\xfe\xc3", "\u202egnp.exe".encode(),
    b"..a", b"...", b".. ", b"-rf", b"*", b"$(touch evil)", b"a\\b", b"\x7f", b"n" * 255,
    "ä".encode() * 127, b".ollmsandbox-1-1~", b"x.half", b"new-1", b"1", b"0", b"overlay1",
    b".removed-1", b"#work", b".wh.x", b".wh..wh..opq", b"con.", b" ", b"\r",
]  # fmt: skip


@each_mode
def test_names_of_all_kinds(person: Person, mode: Mode) -> None:
    attack = f"""
    for name in {NAMES!r}:
        open(name, 'wb').write(name)
        os.makedirs(b'd/' + name)
        open(b'd/' + name + b'/' + name, 'wb').write(name)
        os.symlink(name, b'd/l' + name[:254])
    """
    folder = os.fsencode(person.project)
    report = settle(person, python(attack), mode)
    run = report.run_id
    for line in (*person.cli("changes", run).stdout.splitlines(), *person.cli("history").stdout):
        assert not set(line) & set("\x1b\x07\r\u202e"), line
    if mode is Mode.REVIEW:
        assert not os.listdir(folder)
        report = review(person, "apply", run)
    assert set(states(report).values()) == {State.APPLIED}
    assert sorted(os.listdir(folder)) == sorted([*NAMES, b"d"])
    for name in NAMES:
        with open(folder + b"/d/" + name + b"/" + name, "rb") as file:
            assert file.read() == name
        assert os.readlink(folder + b"/d/l" + name[:254]) == name
    assert set(states(review(person, "undo", run)).values()) == {State.UNDONE}
    assert os.listdir(folder) == []
    assert set(states(review(person, "apply", run)).values()) == {State.APPLIED}
    settle(person, "rm -rf -- ./* ./.[!.]* ./..?*", mode)


def test_files_named_like_those_of_ours(person: Person) -> None:
    names = ("map.json", "run.json", "job.json", "layer.json", "overlay1", "process", "work", "1")
    for mode in (Mode.REVIEW, Mode.AUTO):
        text = f'["/", "{mode.value}"]\n'
        settle(person, f"for name in {' '.join(names)}; do printf %s '{text}' >$name; done", mode)
        assert person.run(f"cat {' '.join(names)}").stdout.text == text * len(names)
    assert person.cli("apply", "--all").returncode == 0
    for name in names:
        assert (person.project / name).read_text() == text


def test_our_own_temporary_names_guessed_by_the_command(person: Person) -> None:
    (person.project / "b").write_text("old\n")
    attack = """
    run=$(sed -n 's/.*overlay-\\([-0-9a-f]*\\).*/\\1/p' /proc/self/mountinfo | head -n1)
    for n in 0 1 2 3; do mkdir ".ollmsandbox-$run-$n~"; ln -s ~/.bashrc "l-$run-$n"; done
    echo new >b
    """
    report = settle(person, attack)
    assert states(report)["b"] is State.APPLIED
    assert (person.project / "b").read_text() == "new\n"


def test_the_layers_the_database_and_the_job_are_not_visible(person: Person) -> None:
    settle(person, "echo one >a", Mode.REVIEW)
    result = person.run(
        "echo two >b; cat ~/.cache/ollmchat/*/* ~/.local/share/ollmchat/*;"
        f"ls -A {person.paths.cache} {person.paths.data};"
        "grep -o 'upperdir=[^, ]*' /proc/self/mountinfo | sort -u | cut -d= -f2 | while read d; do"
        ' ls "$d" "$d/.." "$d/../.."; echo evil >"$d/../../job.json"; done;'
        "find ~ /run /tmp /var/tmp /dev/shm -name 'job*.json' -path '*ollmchat*'"
    )
    for word in ("job.json", "map.json", "ollmsandbox.db", "layer.json", "runs"):
        assert word not in result.stdout.text


def at_depth(names: list[str], act: str) -> str:
    """Return a command that does something in a folder so deep that no path leads there."""
    return python(
        f"""
    for name in {names!r}:
        if not os.path.isdir(name):
            os.mkdir(name)
        os.chdir(name)
    {act}
    """
    )


LONG, MANY = ["deep" * 50] * 22, ["dddddddd"] * 470


@pytest.mark.parametrize(
    ("names", "mode"),
    [
        pytest.param(LONG, Mode.AUTO, id="long-auto"),
        pytest.param(LONG, Mode.REVIEW, id="long-review"),
        # They are applied, too, after they were held.
        pytest.param(MANY, Mode.REVIEW, id="many-review", marks=pytest.mark.anybody),
    ],
)
def test_folders_deeper_than_any_path_is_long(
    person: Person, names: list[str], mode: Mode, cleared: None
) -> None:
    def settled(act: str) -> Report:
        report = settle(person, f"{at_depth(names, act)}; date >file", mode)
        assert not report.skipped
        assert person.cli("changes", report.run_id, "--diff").returncode == 0
        if mode is Mode.REVIEW:
            report = review(person, "apply", report.run_id)
        assert set(states(report).values()) == {State.APPLIED}
        return report

    def content() -> str:
        return person.run(at_depth(names, "print(open('bottom').read(), end='')")).stdout.text

    bottom = "/".join((*names, "bottom"))
    made = settled("open('bottom', 'w').write('one\\n')")
    assert set(states(made)) >= {bottom, names[0], "file"}
    changed = settled("open('bottom', 'w').write('two\\n'); os.mkdir('more')")
    assert content() == "two\n"
    shown = person.cli("changes", changed.run_id, "--diff").stdout
    assert "\n-one\n+two\n" in shown
    assert set(states(review(person, "undo", changed.run_id)).values()) == {State.UNDONE}
    assert content() == "one\n"
    removed = settled(f"os.chdir('/'); os.chdir({str(person.project)!r}); os.system('rm -rf d*')")
    assert states(removed).keys() >= {bottom, names[0]}
    assert [path.name for path in person.project.iterdir()] == ["file"]
    assert set(states(review(person, "undo", removed.run_id)).values()) == {State.UNDONE}
    assert content() == "one\n"
    assert set(states(review(person, "undo", made.run_id)).values()) == {State.UNDONE}
    assert os.listdir(person.project) == []
    assert not list(person.paths.cache.glob("overlay-*"))


@pytest.mark.anybody
def test_folders_deeper_than_anybody_has_use_for(person: Person, cleared: None) -> None:
    """Each folder has a change with its whole path, which must not use up the memory."""
    report = settle(person, at_depth(["d" * 20] * 1000, "") + "; echo new >file")
    assert (person.project / "file").read_text() == "new\n"
    assert len(report.changes) < 1000
    assert [skip.path.count("/") for skip in report.skipped] == [len(report.changes) - 1]
    assert not list(person.paths.cache.glob("overlay-*"))
    assert person.run("echo fine").stdout.text == "fine\n"


@pytest.mark.parametrize(
    ("act", "mode"),
    [pytest.param("make", "review", marks=pytest.mark.anybody), ("remove", "auto")],
)
def test_folders_deeper_than_the_limit_of_open_files(
    person: Person, act: str, mode: str, cleared: None
) -> None:
    make = python("for _ in range(300):\n    os.mkdir('d')\n    os.chdir('d')")
    if act == "remove":
        person.run_outside(make)
    attack = f"{make if act == 'make' else 'rm -rf d'}; echo new >file"

    def limited(*arguments: str) -> subprocess.CompletedProcess[str]:
        # As some systems are set up, and containers on them.
        argv = ["prlimit", "--nofile=512:512", *cli_argv(*arguments)]
        return person.run_outside(argv)

    done = limited("run", "--apply", mode, "--json", "-c", attack)
    document = json.loads(done.stdout)
    assert (document["exit_code"], document["errors"], done.returncode) == (0, [], 0), done.stderr
    assert "too deep" in str(document["skipped"])
    assert not list(person.paths.cache.glob("overlay-*"))
    if mode == "review":
        assert not (person.project / "file").exists()
        limited("apply")
    assert (person.project / "file").read_text() == "new\n"
    assert limited("run", "-c", "echo fine").stdout == "fine\n"


@each_mode
def test_a_tree_without_any_permissions(person: Person, mode: Mode) -> None:
    fill(person.project / "sub")
    attack = (
        "mkdir -p new/deep; echo new >new/deep/file; echo new >sub/changed; rm sub/gone;"
        "chmod 000 sub/changed new/deep/file; chmod 000 new/deep new sub/tree; chmod 000 sub"
    )
    report = settle_and_apply(person, attack, mode)
    assert set(states(report).values()) == {State.APPLIED}
    for name in ("new", "sub"):
        assert stat.S_IMODE((person.project / name).stat().st_mode) == 0
    report = review(person, "undo", report.run_id)
    assert set(states(report).values()) == {State.UNDONE}
    assert (person.project / "sub" / "changed").read_text() == "old\n"
    assert not (person.project / "new").exists()
    assert not list(person.paths.cache.glob("overlay-*"))


def test_a_file_that_cannot_be_read_and_was_changed(person: Person) -> None:
    (person.project / "file").write_text("old\n")
    report = settle(person, "echo new >file; chmod 000 file")
    assert states(report) == {"file": State.APPLIED}
    run = settle(person, "chmod 600 file; echo newer >file; chmod 000 file", Mode.REVIEW).run_id
    assert person.cli("changes", run, "--diff").returncode == 0
    assert states(review(person, "apply", run)) == {"file": State.APPLIED}
    (person.project / "file").chmod(0o600)
    assert (person.project / "file").read_text() == "newer\n"
