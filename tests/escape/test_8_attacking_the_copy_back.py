# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command leaves in its upper folder, and what somebody does to the project meanwhile, must
not lead the copy-back to anything but the named path in the project."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from attack import IS_ROOT, attempt, python, refusal
from conftest import Person, cli_argv

from ollmsandbox import loop, trees
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.apply import State
from ollmsandbox.project.changes import Kind, Type
from ollmsandbox.project.recorder import Mode, Recorder, Report
from ollmsandbox.project.review import Review
from ollmsandbox.project.settling import recover
from ollmsandbox.sandbox.process import Sinks

# Every second step: root looks at these, an ordinary user at the others.
FIRST_STEP = 0 if IS_ROOT else 1

OURS = (".cache", ".local", ".config", "playground")
WAIT = "echo ready; until [ -e ~/playground/go ]; do sleep 0.01; done"
ATTACK = """
cd outer/sub
echo evil >changed; echo evil >new; rm gone; rm -r tree; ln -s /etc/passwd link
mkdir made; echo evil >made/file; chmod 700 shut; chmod 777 tool
"""
REPORTED = (State.CONFLICT, State.FAILED, State.PENDING)


def fill(folder: Path) -> None:
    """The same everywhere, so that nothing but the way there tells them apart."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("changed", "gone", "tool"):
        (folder / name).write_text("old\n")
    for name in ("tree", "shut"):
        (folder / name).mkdir()
        (folder / name / "leaf").write_text("old\n")


def snapshot(folder: Path, without: tuple[Path, ...]) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        if path in without:
            continue
        seen = path.lstat()
        what: object = None
        if stat.S_ISDIR(seen.st_mode):
            waiting += path.iterdir()
        elif stat.S_ISLNK(seen.st_mode):
            what = os.readlink(path)
        elif stat.S_ISREG(seen.st_mode):
            what = path.read_bytes()
        changed = 0 if path == folder else seen.st_mtime_ns
        attributes = tuple(os.listxattr(path, follow_symlinks=False))
        found[str(path)] = (seen.st_mode, seen.st_uid, seen.st_ino, changed, what, attributes)
    return found


@pytest.fixture(autouse=True)
def home(person: Person) -> Iterator[Path]:
    """The person's other files. They are the same after every attack."""
    for folder in (".", "sub", "outer/sub", "decoy/project/outer/sub"):
        fill(person.home / folder)
    (person.home / ".bashrc").write_text("mine\n")
    (person.home / "way").symlink_to("outer/sub")
    without = (
        *(person.home / name for name in OURS),
        *(person.home / name for name in ("project", "project.aside", "area", "area.aside")),
    )
    before = snapshot(person.home, without)
    yield person.home
    assert snapshot(person.home, without) == before


@pytest.fixture
def cleared(person: Person) -> Iterator[None]:
    """pytest cannot remove a folder that is too deep."""
    yield
    for folder in (person.project, person.paths.cache, person.paths.data):
        trees.empty(folder)


@pytest.fixture
def inside(person: Person) -> Person:
    """The person, with a project that has a folder around it that is not the home folder."""
    project = person.home / "area" / "project"
    fill(project / "outer" / "sub")
    return replace(person, project=project)


def settle(
    person: Person, command: str, mode: Mode = Mode.AUTO, step: Callable[[], None] | None = None
) -> Report:
    recorder = Recorder(
        os.path.realpath(person.project), person.paths, mode=mode, step=step or (lambda: None)
    )
    person.run(command, keeper=recorder)
    return recorder.report or Report("")


def states(report: Report) -> dict[str, State]:
    return {item.change.path: item.state for item in report.changes}


def during(person: Person, command: str, act: Callable[[], object], mode: Mode) -> Report:
    """`act` happens outside after the command has done its work, while it still runs."""
    recorder = Recorder(os.path.realpath(person.project), person.paths, mode=mode)
    person.playground.mkdir(parents=True, exist_ok=True)

    async def noticed(_data: bytes) -> None:
        if not (person.playground / "go").exists():
            act()
            (person.playground / "go").touch()

    bubble = person.bubble(keeper=recorder)
    loop.run(bubble.exec(f"{command}\n{WAIT}", sinks=Sinks(noticed)))
    return recorder.report or Report("")


def review(person: Person, action: str, run_id: str, *paths: str, step: int = -1) -> Report:
    counter = Counter(step, lambda: None)
    found = Review(person.paths, counter)
    try:
        run = found.manager.run(run_id)
        does = {"apply": found.apply, "discard": found.discard, "undo": found.undo}
        return does[action](run, [f"{run.project.path}/{path}" for path in paths])
    finally:
        found.close()


def bind_socket(file: Path) -> None:
    # The kernel takes no long path for one.
    around = os.open(file.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{around}/{file.name}")
    os.close(around)


class Counter:
    """Acts at one of the steps on disk."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.steps = 0
        self._at = at
        self._act = act

    def __call__(self) -> None:
        if self.steps == self._at:
            self._act()
        self.steps += 1


# What becomes a link, and where that leads: there everything is as it was in the project.
SWAPS = {
    "the folder": ("outer/sub", "."),
    "its parent": ("outer", "."),
    "the project": ("", "."),
    "the folder around the project": ("..", "decoy"),
}


def swap(person: Person, what: str) -> Callable[[], None]:
    name, target = SWAPS[what]
    place = Path(os.path.normpath(person.project / name))

    def act() -> None:
        place.rename(f"{place}.aside")
        place.symlink_to(person.home / target)

    return act


def swap_back(person: Person, what: str) -> None:
    place = Path(os.path.normpath(person.project / SWAPS[what][0]))
    if place.is_symlink():
        place.unlink()
        Path(f"{place}.aside").rename(place)


def test_a_naive_copy_falls_for_the_links(tmp_path: Path, home: Path) -> None:
    # What the tests below try is an attack.
    upper, project = tmp_path / "upper", tmp_path / "naive"
    (upper / "sub").mkdir(parents=True)
    (upper / "sub" / "changed").write_text("evil\n")
    precious = tmp_path / "precious"
    fill(precious)
    project.mkdir()
    (project / "sub").symlink_to(precious)
    shutil.copytree(upper, project, dirs_exist_ok=True)
    assert (precious / "changed").read_text() == "evil\n"
    (project / "file").hardlink_to(precious / "gone")
    (upper / "file").write_text("evil\n")
    subprocess.run(["cp", "--", upper / "file", project / "file"], check=True)
    assert (precious / "gone").read_text() == "evil\n"


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REVIEW], ids=lambda mode: str(mode.value))
@pytest.mark.parametrize("what", SWAPS)
def test_replaced_by_a_link_while_the_command_runs(inside: Person, what: str, mode: Mode) -> None:
    try:
        report = during(inside, ATTACK, swap(inside, what), mode)
    except OllmSandboxError as error:
        assert "Put the folder back" in str(error)
        swap_back(inside, what)
        (again,) = recover(inside.paths)
        # Nothing is lost: what the command wrote waits.
        assert states(again)["outer/sub/changed"] is State.PENDING
    else:
        assert report.changes
        for path, state in states(report).items():
            assert state in REPORTED or not path.startswith("outer/sub/"), path


@pytest.mark.parametrize("what", SWAPS)
def test_replaced_by_a_link_at_every_step_of_the_copy_back(inside: Person, what: str) -> None:
    step, acted = FIRST_STEP, True
    while acted:
        counter = Counter(step, swap(inside, what))
        try:
            settle(inside, ATTACK, step=counter)
        except OllmSandboxError as error:
            assert "Put the folder back" in str(error)
        acted = counter.steps > step
        swap_back(inside, what)
        recover(inside.paths)
        shutil.rmtree(inside.project)
        shutil.rmtree(inside.paths.pending(str(inside.project)), ignore_errors=True)
        fill(inside.project / "outer" / "sub")
        step += 2
    assert step > 10


@pytest.mark.parametrize("paths", [(), ("outer/sub/changed", "outer/sub/new")], ids=["all", "some"])
@pytest.mark.parametrize("action", ["apply", "discard"])
@pytest.mark.parametrize("what", SWAPS)
def test_replaced_by_a_link_before_changes_are_looked_at(
    inside: Person, what: str, action: str, paths: tuple[str, ...]
) -> None:
    run = settle(inside, ATTACK, Mode.REVIEW).run_id
    swap(inside, what)()
    try:
        report = review(inside, action, run, *paths)
    except OllmSandboxError as error:
        assert "Put the folder back" in str(error)
    else:
        # What was to be deleted there is not there.
        for item in report.changes:
            gone = action == "discard" or item.change.kind is Kind.DELETED
            assert gone or item.state in REPORTED, item
    # Another project is not held up by what could not be finished.
    other = inside.home / "project"
    assert inside.cli("run", "-c", "echo fine", cwd=other).stdout == "fine\n"
    swap_back(inside, what)
    for left in recover(inside.paths):
        assert not left.errors
    found = settle(inside, "cat outer/sub/changed outer/sub/new >outer/seen")
    assert found.changes


@pytest.mark.parametrize("paths", [(), ("outer/sub/changed", "outer/sub/new")], ids=["all", "some"])
@pytest.mark.parametrize("action", ["undo", "redo"])
@pytest.mark.parametrize("what", SWAPS)
def test_replaced_by_a_link_before_changes_are_undone(
    inside: Person, what: str, action: str, paths: tuple[str, ...]
) -> None:
    run = settle(inside, ATTACK).run_id
    if action == "redo":
        review(inside, "undo", run)
    swap(inside, what)()
    does = "undo" if action == "undo" else "apply"
    try:
        report = review(inside, does, run, *paths)
    except OllmSandboxError as error:
        assert "Put the folder back" in str(error)
        done = inside.cli(does, run)
        assert "Traceback" not in done.stderr
    else:
        for item in report.changes:
            assert item.change.type is Type.FOLDER or item.state is State.CONFLICT, item
    swap_back(inside, what)
    recover(inside.paths)
    sub = inside.project / "outer" / "sub"
    if not paths:
        review(inside, does, run)
        assert (sub / "changed").read_text() == ("old\n" if action == "undo" else "evil\n")
        assert (sub / "gone").exists() == (action == "undo")


@pytest.mark.parametrize("action", ["apply", "discard", "undo"])
@pytest.mark.parametrize("what", ["the folder", "its parent", "the project"])
def test_replaced_by_a_link_at_every_step_of_a_review(
    inside: Person, what: str, action: str
) -> None:
    step, acted = FIRST_STEP, True
    while acted:
        run = settle(inside, ATTACK, Mode.AUTO if action == "undo" else Mode.REVIEW).run_id
        counter = Counter(step, swap(inside, what))
        found = Review(inside.paths, counter)
        try:
            does = {"apply": found.apply, "discard": found.discard, "undo": found.undo}
            does[action](found.manager.run(run))
        except OllmSandboxError as error:
            assert "Put the folder back" in str(error)
        finally:
            found.close()
        acted = counter.steps > step
        swap_back(inside, what)
        recover(inside.paths)
        shutil.rmtree(inside.project)
        shutil.rmtree(inside.paths.pending(str(inside.project)), ignore_errors=True)
        fill(inside.project / "outer" / "sub")
        step += 2


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REVIEW], ids=lambda mode: str(mode.value))
def test_a_link_to_the_home_folder_that_was_there_before(person: Person, mode: Mode) -> None:
    (person.project / "sub").symlink_to(person.home)
    attack = (
        "echo evil >sub/.bashrc; rm sub/gone; chmod 777 sub; chmod 777 sub/tool; rm -r sub/outer"
    )
    assert not settle(person, attack, mode).changes
    # In its place a folder of the same name, with the same files in it.
    attack = "rm sub; mkdir sub; echo evil >sub/.bashrc; mkdir sub/outer; echo evil >sub/outer/x"
    report = settle(person, attack, mode)
    if mode is Mode.REVIEW:
        assert (person.project / "sub").is_symlink()
        report = review(person, "apply", report.run_id)
    assert set(states(report).values()) == {State.APPLIED}
    assert not (person.project / "sub").is_symlink()
    assert (person.project / "sub" / ".bashrc").read_text() == "evil\n"
    review(person, "undo", report.run_id)
    assert os.readlink(person.project / "sub") == str(person.home)


def test_a_folder_becomes_a_link_and_the_next_command_writes_through_it(person: Person) -> None:
    fill(person.project / "sub")
    for mode in (Mode.REVIEW, Mode.AUTO):
        settle(person, f"rm -r sub; ln -s {person.home} sub", mode)
        settle(person, "echo evil >sub/changed; echo evil >sub/new; rm sub/gone", mode)
        settle(person, "rm sub; mkdir sub; echo evil >sub/changed; echo evil >sub/gone", mode)
        settle(person, f"mv sub s; ln -s {person.home} sub; cp -r s/. sub; rm -r s", mode)


@pytest.mark.parametrize("place", ["upper", "pending"])
def test_a_link_among_the_changes_is_a_link_in_the_project(person: Person, place: str) -> None:
    fill(person.project / "sub")
    mode = Mode.AUTO if place == "upper" else Mode.REVIEW
    attack = f"rm -r sub; ln -s {person.home} sub; ln -s sub two; ln -s two/../.. three"
    report = settle(person, attack, mode)
    if mode is Mode.REVIEW:
        report = review(person, "apply", report.run_id)
    assert set(states(report).values()) == {State.APPLIED}
    assert os.readlink(person.project / "sub") == str(person.home)
    flags = {item.change.path: item.change.flags for item in report.changes}
    assert "leaves-project" in [flag.value for flag in flags["sub"]]
    assert "leaves-project" in [flag.value for flag in flags["three"]]
    report = review(person, "undo", report.run_id)
    assert set(states(report).values()) == {State.UNDONE}
    assert (person.project / "sub" / "tree" / "leaf").read_text() == "old\n"


@pytest.mark.parametrize("command", ["true", ATTACK], ids=["nothing", "something"])
def test_the_project_is_moved_away_while_the_command_runs(inside: Person, command: str) -> None:
    aside = inside.project.with_name("aside")
    try:
        during(inside, command, lambda: inside.project.rename(aside), Mode.AUTO)
    except OllmSandboxError as error:
        assert command == ATTACK
        assert "Put the folder back" in str(error)
    assert not inside.project.exists()
    aside.rename(inside.project)
    waiting = recover(inside.paths)
    assert len(waiting) == (1 if command == ATTACK else 0)
    assert (inside.project / "outer" / "sub" / "changed").read_text() == "old\n"


def test_a_folder_that_waits_around_a_file_that_does_not(person: Person) -> None:
    settle(person, "mkdir -p a/b/c; ln -s ~ a/link", Mode.REVIEW)
    report = settle(person, "echo new >a/b/c/file")
    assert set(states(report).values()) == {State.APPLIED}
    assert (person.project / "a" / "b" / "c" / "file").read_text() == "new\n"
    assert not (person.project / "a" / "link").is_symlink()


def test_a_whiteout_over_a_link(person: Person) -> None:
    (person.project / "sub").symlink_to(person.home)
    (person.project / "file").symlink_to(person.home / ".bashrc")
    report = settle(person, "rm sub file")
    assert states(report) == {"sub": State.APPLIED, "file": State.APPLIED}
    assert list(person.project.iterdir()) == []
    review(person, "undo", report.run_id)
    assert os.readlink(person.project / "file") == str(person.home / ".bashrc")


def test_a_whiteout_over_a_folder_that_became_a_link(person: Person) -> None:
    fill(person.project / "sub")

    def act() -> None:
        (person.project / "sub").rename(person.project / "aside")
        (person.project / "sub").symlink_to(person.home)

    report = during(person, "rm -r sub", act, Mode.AUTO)
    assert report.changes
    assert os.readlink(person.project / "sub") == str(person.home)
    assert (person.project / "aside" / "gone").read_text() == "old\n"


def test_links_to_the_program_s_own_folders(person: Person) -> None:
    own = (person.paths.data, person.paths.cache)
    for number, folder in enumerate(own):
        settle(person, f"ln -s {folder} own{number}")
        seen = person.run(f"ls -AR own{number}/ 2>/dev/null; echo evil >own{number}/x").stdout.text
        assert "overlay" not in seen and "db" not in seen
    assert not any((folder / "x").exists() for folder in own)


def test_the_layers_the_database_and_the_journal_are_not_visible(person: Person) -> None:
    settle(person, "echo one >a", Mode.REVIEW)
    result = person.run(
        "echo two >b; cat ~/.cache/ollmchat/*/* ~/.local/share/ollmchat/*;"
        f"ls -A {person.paths.cache} {person.paths.data};"
        "grep -o 'upperdir=[^, ]*' /proc/self/mountinfo | sort -u | cut -d= -f2 | while read d; do"
        ' ls "$d" "$d/.." "$d/../.."; echo evil >"$d/../../journal.json"; done;'
        "find / -xdev -name 'journal*.json' -path '*ollmchat*'"
    )
    for word in ("journal", "map.json", "ollmsandbox.db", "pending"):
        assert word not in result.stdout.text


@pytest.mark.parametrize("name", ["map.json", "journal.json", "overlay1", "process", "work", "1"])
def test_a_file_named_like_one_of_ours(person: Person, name: str) -> None:
    for mode in (Mode.REVIEW, Mode.AUTO):
        settle(person, f'echo \'["/", "{mode.value}"]\' >{name}', mode)
        assert person.run(f"cat {name}").stdout.text == f'["/", "{mode.value}"]\n'
    assert (person.project / name).read_text() == '["/", "auto"]\n'


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REVIEW], ids=lambda mode: str(mode.value))
def test_a_pipe_a_socket_and_a_device_in_place_of_a_file(person: Person, mode: Mode) -> None:
    for name in ("pipe", "socket", "device"):
        (person.project / name).write_text("old\n")
    report = settle(
        person,
        "rm pipe socket device; mkfifo pipe more;"
        + python("socket.socket(socket.AF_UNIX).bind('socket')")
        + "; mknod device c 1 3; mknod device b 8 0; echo new >file",
        mode,
    )
    assert {skip.path: skip.what for skip in report.skipped} == {
        "pipe": "a pipe",
        "more": "a pipe",
        "socket": "a socket",
    }
    if mode is Mode.REVIEW:
        report = review(person, "apply", report.run_id)
    assert states(report) == {"device": State.APPLIED, "file": State.APPLIED}
    assert sorted(path.name for path in person.project.iterdir()) == ["file", "pipe", "socket"]
    assert (person.project / "pipe").read_text() == "old\n"
    assert settle(person, "test ! -p more && echo new >pipe && cat pipe >seen").changes


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
@pytest.mark.parametrize("when", ["before", "during", "between", "undo"])
def test_a_file_of_the_project_that_would_block_who_opens_it(
    person: Person, kind: str, when: str
) -> None:
    if kind == "device" and not IS_ROOT:
        kind = "pipe"
    files = [person.project / name for name in ("a", "b", "c")]

    def act() -> None:
        for file in files:
            file.unlink(missing_ok=True)
            if kind == "pipe":
                os.mkfifo(file)
            elif kind == "socket":
                bind_socket(file)
            else:
                os.mknod(file, stat.S_IFCHR | 0o666, os.makedev(5, 0))

    for file in files:
        file.write_text("old\n")
    attack = "rm -f a b; echo new >a; rm -f c; ln -s x c"
    if when == "before":
        act()
        report = settle(person, attack)
    elif when == "during":
        report = during(person, attack, act, Mode.AUTO)
    else:
        run = settle(person, attack, Mode.REVIEW if when == "between" else Mode.AUTO).run_id
        act()
        assert person.cli("changes", run, "--diff").returncode == 0
        report = review(person, "apply" if when == "between" else "undo", run)
    assert set(states(report).values()) == {State.CONFLICT}
    assert all(item.note for item in report.changes)
    for file in files:
        assert not stat.S_ISREG(file.lstat().st_mode)
    assert person.run("echo fine").stdout.text == "fine\n"


@pytest.mark.parametrize(
    "name",
    ["opaque", "redirect", "metacopy", "whiteout", "origin", "impure", "overlay.opaque",
     "overlay.whiteout", "overlay.overlay.opaque"],
)  # fmt: skip
def test_attributes_that_mean_something_to_an_overlay(person: Person, name: str) -> None:
    fill(person.project / "sub")
    attack = f"""
    for path in 'sub', 'made', 'sub/changed', 'sub/new', 'empty':
        if path == 'made':
            os.mkdir(path)
        elif not os.path.exists(path):
            open(path, 'w').close()
        for space in 'user', 'trusted', 'security':
            for value in b'y', b'x', b'/../../../outer/sub', b'':
                try:
                    os.setxattr(path, f'{{space}}.overlay.{name}', value)
                except OSError:
                    pass
    open('sub/changed', 'a').write('new')
    """
    for mode in (Mode.REVIEW, Mode.AUTO):
        report = settle(person, python(attack), mode)
        assert State.FAILED not in states(report).values()
        result = person.run("find sub made empty | sort; cat sub/changed")
        assert result.stdout.text.split()[:8] == [
            *("empty", "made", "sub", "sub/changed", "sub/gone", "sub/new", "sub/shut"),
            "sub/shut/leaf",
        ]
    assert (person.project / "sub" / "gone").read_text() == "old\n"
    for path in person.project.rglob("*"):
        assert [n for n in os.listxattr(path) if "overlay" in n] == [], path


def test_such_attributes_on_the_project_itself(person: Person) -> None:
    # As an archive may bring them: the layer below is read, too.
    fill(person.project / "sub")
    fill(person.project / "other")
    values = {
        "opaque": b"y",
        "redirect": b"/other",
        "metacopy": b"",
        "whiteout": b"",
        "origin": b"x",
    }
    for path in (person.project / "sub", person.project / "sub" / "changed"):
        for name, value in values.items():
            os.setxattr(path, f"user.overlay.{name}", value)
    (person.project / "sub" / "tool").write_text("")
    os.setxattr(person.project / "sub" / "tool", "user.overlay.redirect", b"/other/gone")
    os.setxattr(person.project / "sub" / "tool", "user.overlay.metacopy", b"")
    for mode in (Mode.REVIEW, Mode.AUTO):
        report = settle(
            person,
            f"cat sub/tool >seen-{mode.value}; echo new >sub/new; chmod 700 sub/changed",
            mode,
        )
        assert not {"sub/gone", "sub/tree", "sub/tool"} & states(report).keys()
    assert (person.project / "seen-auto").read_text() == ""
    assert (person.project / "sub" / "gone").read_text() == "old\n"


def test_a_whiteout_made_by_the_command_itself(person: Person) -> None:
    (person.project / "file").write_text("old\n")
    for name in ("made", "sub/made"):
        attack = attempt(f"os.makedirs('sub', exist_ok=True); os.mknod('{name}', stat.S_IFCHR, 0)")
        assert refusal(person, attack) in ("EPERM", "EACCES", "EINVAL")
    # In a folder that is no overlay it may be made, and moved.
    moved = "mknod ~/playground/w c 0 0; mv -T ~/playground/w made; cp -a ~/playground/w other"
    assert settle(person, f"{moved}; ln ~/playground/w made; rm -f ~/playground/w").changes == ()
    assert (person.project / "file").read_text() == "old\n"


def test_hard_links_to_files_outside_the_project(person: Person) -> None:
    for target in (".bashrc", "outer/sub/changed"):
        why = refusal(person, attempt(f"os.link('{person.home}/{target}', 'x')"))
        assert why in ("EXDEV", "EPERM", "EROFS", "EACCES")
    assert list(person.project.iterdir()) == []


def test_a_file_of_the_project_with_another_name_outside(person: Person) -> None:
    outside = person.home / "outer" / "sub"
    for number, name in enumerate(("changed", "gone", "tool")):
        (person.project / name).hardlink_to(outside / name)
        os.setxattr(outside / name, "user.overlay.mine", b"%d" % number)
    before = snapshot(outside, ())
    for mode in (Mode.AUTO, Mode.REVIEW):
        report = settle(person, "echo evil >>changed; rm gone; chmod 4777 tool", mode)
        if mode is Mode.REVIEW:
            review(person, "apply", report.run_id)
        assert snapshot(outside, ()) == before
        assert (person.project / "changed").read_text() == "old\nevil\n"
        assert stat.S_IMODE((person.project / "tool").stat().st_mode) == 0o777
        for action in ("undo", "apply", "undo"):
            done = review(person, action, report.run_id)
            assert set(states(done).values()) <= {State.UNDONE, State.APPLIED}
            assert snapshot(outside, ()) == before
        assert (person.project / "gone").read_text() == "old\n"
        # What came back is a file of its own: writing to it writes nowhere else.
        for name in ("changed", "gone", "tool"):
            (person.project / name).write_text("old\n")
        assert snapshot(outside, ()) == before
        for name in ("changed", "gone", "tool"):
            (person.project / name).unlink()
            (person.project / name).hardlink_to(outside / name)
    for name in ("changed", "gone", "tool"):
        os.removexattr(outside / name, "user.overlay.mine")


def test_hard_links_between_what_is_applied_and_what_waits(person: Person) -> None:
    (person.project / ".git").mkdir()
    report = settle(person, "echo one >plain; mkdir .git/hooks; ln plain .git/hooks/pre-commit")
    assert states(report)["plain"] is State.APPLIED
    assert states(report)[".git/hooks/pre-commit"] is State.PENDING
    # Who writes to the one must not write to the other, which was shown as it is.
    (person.project / "plain").write_text("two\n")
    assert person.run("cat .git/hooks/pre-commit").stdout.text == "one\n"


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REVIEW], ids=lambda mode: str(mode.value))
def test_hard_links_between_files_of_the_command(person: Person, mode: Mode) -> None:
    (person.project / "old").write_text("old\n")
    report = settle(person, "echo new >a; ln a b; ln old c; echo more >>c; chmod 6755 b", mode)
    if mode is Mode.REVIEW:
        report = review(person, "apply", report.run_id)
    assert set(states(report).values()) == {State.APPLIED}
    texts = {path.name: path.read_text() for path in person.project.iterdir()}
    assert texts == {"a": "new\n", "b": "new\n", "old": "old\nmore\n", "c": "old\nmore\n"}
    assert stat.S_IMODE((person.project / "a").stat().st_mode) == 0o755
    review(person, "undo", report.run_id)
    assert [path.name for path in person.project.iterdir()] == ["old"]


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REVIEW], ids=lambda mode: str(mode.value))
def test_files_and_folders_that_lend_rights(person: Person, mode: Mode) -> None:
    for name in ("file", "folder/file"):
        (person.project / name).parent.mkdir(exist_ok=True)
        (person.project / name).write_text("old\n")
    (person.project / "shared").mkdir()
    (person.project / "shared").chmod(0o2755)
    report = settle(
        person,
        "cp /bin/true suid; chmod 6755 suid file folder/file; mkdir new sticky; chmod 6777 new;"
        "chmod 1777 sticky; chmod g+s folder .; chmod 6755 . ; chmod 700 shared; chmod 2711 new/.",
        mode,
    )
    stripped = [
        i.change.path for i in report.changes if "stripped" in [f.value for f in i.change.flags]
    ]
    assert {"suid", "file", "folder/file", "new"} <= set(stripped)
    if mode is Mode.REVIEW:
        report = review(person, "apply", report.run_id)
    assert State.FAILED not in states(report).values()
    for path in (person.project, *person.project.rglob("*")):
        lent = path.stat().st_mode & 0o6000
        assert lent == (0o2000 if path.name == "shared" else 0), path
    assert (person.project / "sticky").stat().st_mode & 0o7777 == 0o1777


NAMES = [
    b"new\nline", b"tab\there", b"\x1b[31mred\x07", b"\xff\xfe\xc3", "\u202egnp.exe".encode(),
    b"..a", b"...", b".. ", b"-rf", b"*", b"$(touch evil)", b"a\\b", b"\x7f", b"n" * 255,
    "ä".encode() * 127, b".ollmsandbox-1-1~", b"x.half", b"new-1", b"1", b"0", b"overlay1",
    b".removed-1", b"#work", b".wh.x", b".wh..wh..opq", b"con.", b" ", b"\r",
]  # fmt: skip


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REVIEW], ids=lambda mode: str(mode.value))
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


def test_upper_and_lower_case(person: Person) -> None:
    (person.project / ".git").mkdir()
    report = settle(
        person,
        "mkdir -p .GIT/hooks .Git/HOOKS; echo x >.GIT/hooks/pre-commit; echo x >.Git/Config;"
        "echo x >.Git/HOOKS/POST-checkout; echo x >.GIT/index",
    )
    assert {path for path, state in states(report).items() if state is State.PENDING} == {
        ".GIT/hooks/pre-commit",
        ".Git/Config",
        ".Git/HOOKS/POST-checkout",
    }


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REVIEW], ids=lambda mode: str(mode.value))
def test_folders_deeper_than_any_path_is_long(person: Person, mode: Mode, cleared: None) -> None:
    attack = """
    for _ in range(850):
        os.mkdir('deep')
        os.chdir('deep')
    open('bottom', 'w').close()
    """
    report = settle(person, python(attack) + "; echo new >file", mode)
    assert {skip.path.count("/") for skip in report.skipped} <= {*range(851)}
    if mode is Mode.REVIEW:
        report = review(person, "apply", report.run_id)
    assert states(report)["file"] is State.APPLIED
    assert set(states(report).values()) == {State.APPLIED}
    report = review(person, "undo", report.run_id)
    assert set(states(report).values()) == {State.UNDONE}
    assert os.listdir(person.project) == []
    assert not list(person.paths.cache.glob("overlay-*"))


def test_folders_deeper_than_a_program_may_open_files(person: Person, cleared: None) -> None:
    # Each level that is looked at takes a descriptor, and each path names all levels above it.
    attack = """
    for _ in range(2000):
        os.mkdir('d')
        os.chdir('d')
    """
    report = settle(person, python(attack) + "; echo new >file")
    assert (person.project / "file").read_text() == "new\n"
    assert len(report.changes) < 2000
    assert report.skipped
    assert not list(person.paths.cache.glob("overlay-*"))
    assert person.run("echo fine").stdout.text == "fine\n"


@pytest.mark.parametrize(("act", "mode"), [("make", "review"), ("remove", "auto")])
def test_folders_deeper_than_the_machine_lets_anybody_open_files(
    person: Person, act: str, mode: str, cleared: None
) -> None:
    make = python("for _ in range(600):\n    os.mkdir('d')\n    os.chdir('d')")
    if act == "remove":
        person.run_outside(make)
    attack = f"{make if act == 'make' else 'rm -rf d'}; echo new >file"

    def limited(*arguments: str) -> subprocess.CompletedProcess[str]:
        # As some systems are set up, and containers on them.
        argv = ["prlimit", "--nofile=1024:1024", *cli_argv(*arguments)]
        return subprocess.run(
            argv,
            cwd=person.project,
            env=person.environ,
            capture_output=True,
            text=True,
            check=False,
        )

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


def test_six_thousand_empty_files(person: Person) -> None:
    attack = """
    for folder in range(30):
        os.mkdir(f'd{folder}')
        for number in range(200):
            os.close(os.open(f'd{folder}/{number}', os.O_CREAT | os.O_WRONLY))
    """
    report = settle(person, python(attack))
    assert len(report.changes) == 6_030
    assert all(item.state is State.APPLIED for item in report.changes)
    assert sum(len(files) for _, _, files in os.walk(person.project)) == 6_000
    assert not list(person.paths.cache.glob("overlay-*"))


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REVIEW], ids=lambda mode: str(mode.value))
def test_a_tree_without_any_permissions(person: Person, mode: Mode) -> None:
    fill(person.project / "sub")
    attack = (
        "mkdir -p new/deep; echo new >new/deep/file; echo new >sub/changed; rm sub/gone;"
        "chmod 000 sub/changed new/deep/file; chmod 000 new/deep new sub/tree; chmod 000 sub"
    )
    report = settle(person, attack, mode)
    if mode is Mode.REVIEW:
        report = review(person, "apply", report.run_id)
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


def test_a_folder_that_became_a_file_with_another_name_outside(person: Person) -> None:
    # Its mode would be the other file's, too.
    fill(person.project / "sub")
    (person.project / "sub").chmod(0o555)

    def act() -> None:
        (person.project / "sub").chmod(0o755)
        (person.project / "sub").rename(person.project / "aside")
        (person.project / "sub").hardlink_to(person.home / ".bashrc")

    report = during(person, "chmod 755 sub; echo x >sub/new; chmod 511 sub", act, Mode.AUTO)
    assert State.APPLIED not in states(report).values()
    step, acted = FIRST_STEP, True
    while acted:
        (person.project / "sub").unlink(missing_ok=True)
        shutil.rmtree(person.project / "sub", ignore_errors=True)
        shutil.rmtree(person.project / "aside", ignore_errors=True)
        (person.project / "sub").mkdir(mode=0o555)
        counter = Counter(step, act)
        settle(person, f"chmod 755 sub; echo {step} >sub/new; chmod 511 sub", step=counter)
        acted = counter.steps > step
        step += 2
