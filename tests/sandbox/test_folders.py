# SPDX-License-Identifier: GPL-3.0-or-later
"""A command's folders in a real sandbox: project, home folder, playground."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.bubble import WAYS, by, each_way
from support.person import Person

from ollmsandbox.sandbox.plan.mounts import OverlayMethod

# --- where it runs -------------------------------------------------------------------------------


def test_it_starts_in_the_project_and_its_changes_are_real(person: Person) -> None:
    # Which may lie outside of the home folder.
    for project in (person.project, person.home.parent / "elsewhere"):
        project.mkdir(exist_ok=True)
        (project / "old").write_text("old")
        command = "pwd; cat old; rm old; echo new >new; mkdir -p a/b; ln -s new link"
        result = person.run(f"{command}; id -u >&2; id -g >&2", project=project)
        assert result.stdout.text == f"{project}\nold"
        assert (project / "new").read_text() == "new\n"
        assert (project / "a/b").is_dir()
        assert os.readlink(project / "link") == "new"
        assert not (project / "old").exists()
        # The user is the same inside.
        assert result.stderr.text == f"{os.getuid()}\n{os.getgid()}\n"
        assert (project / "new").stat().st_uid == os.getuid()


ODD_NAMES = {
    "everything": "we,ird:na\\me \"q\" 'ü'",
    "newline at the end": "end\n",
    "newline inside": "new\nline",
    "200 characters": "x" * 200,
    "not UTF-8": os.fsdecode(b"caf\xe9\xff"),
    "leading dash": "-rf",
    "command": "$(touch ran)",
    "spaces": "  ",
    "star": "*",
    "backslash at the end": "end\\",
    "octal": "\\040\\134",
    "tilde": "~",
    "dots": "...",
    "control characters": "\x01\x1b[31m\x7f",
}


@pytest.mark.ordinary
@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES.keys())
def test_a_project_and_a_folder_in_it_may_have_any_name(person: Person, name: str) -> None:
    project = person.home / name
    (project / name).mkdir(parents=True)
    (project / "old").write_text("old")
    command = 'cat ../old; cd ..; cat "$PWD/old"; mkdir inner'
    for way in WAYS:
        found = by(person, way)
        result = person.run(command, project=project, working_dir=f"./{name}", capabilities=found)
        assert result.stdout.text == "oldold"
        if way is OverlayMethod.NONE:
            assert result.stderr.text.endswith("Read-only file system\n")
        else:
            assert (result.exit_code, result.stderr.text) == (0, "")
            (project / "inner").rmdir()
        assert sorted(os.listdir(project)) == sorted([name, "old"])
    assert not (person.project / "ran").exists()


@each_way
def test_a_project_may_lie_on_another_file_system(person: Person, way: OverlayMethod) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as project:
        assert os.stat(project).st_dev != os.stat(person.home).st_dev
        Path(project, "old").write_text("old")
        found = by(person, way)
        result = person.run("pwd; cat old; touch made", project=project, capabilities=found)
        assert result.stdout.text == f"{project}\nold"
        is_read_only = way is OverlayMethod.NONE
        assert ("Read-only file system" in result.stderr.text) is is_read_only
        assert sorted(os.listdir(project)) == (["old"] if is_read_only else ["made", "old"])


# --- the home folder and the playground ----------------------------------------------------------


@each_way
def test_the_home_folder_is_seen_without_secrets_and_not_written(
    person: Person, way: OverlayMethod
) -> None:
    (person.home / ".ssh").mkdir()
    (person.home / ".ssh/id").write_text("secret")
    (person.home / ".bash_history").write_text("secret")
    (person.home / ".config/gh").mkdir(parents=True)
    (person.home / ".config/gh/hosts").write_text("secret")
    (person.home / ".config/app").write_text("seen")
    (person.home / "notes").write_text("seen")
    (person.home / "private").mkdir(mode=0o700)
    result = person.run(
        "cat ~/.ssh/id ~/.bash_history ~/.config/gh/hosts ~/.config/app ~/notes;"
        " stat -c %a ~/private; touch ~/new ~/.config/new; echo x >~/notes; rm ~/notes",
        capabilities=by(person, way),
    )
    assert result.stdout.text == "seenseen700\n"
    assert (person.home / "notes").read_text() == "seen"
    assert not (person.home / "new").exists()
    assert not (person.home / ".config/new").exists()


@each_way
def test_the_real_home_folder_stays_unchanged(
    person: Person, way: OverlayMethod, tmp_path: Path
) -> None:
    for name in ("DATA", "CACHE", "CONFIG"):
        person.environ[f"XDG_{name}_HOME"] = str(tmp_path / name)
    person.home.chmod(0o750)

    def look() -> list[str]:
        done = subprocess.run(
            ["find", person.home, "-printf", "%P %y %m %U %T@ %C@\n"],
            capture_output=True,
            text=True,
            check=True,
        )
        return sorted(done.stdout.splitlines())

    before = look()
    result = person.run("touch ~/playground/new; ls ~", capabilities=by(person, way))
    # Caches that are missing have links, in folders that exist only inside.
    assert result.stdout.text == "go\nplayground\nproject\n"
    assert look() == before
    assert os.listdir(person.playground) == ["new"]


def test_the_playground_is_the_same_folder_for_every_run(person: Person) -> None:
    other = person.home / "other"
    other.mkdir()
    for way in WAYS:
        found = by(person, way)
        write = f"echo {way.value} >>~/playground/note"
        assert person.run(write, capabilities=found).exit_code == 0
        result = person.run(
            "cat note; pwd", project=other, working_dir="playground", capabilities=found
        )
        *notes, where = result.stdout.text.splitlines()
        assert (notes[-1], where) == (way.value, f"{person.home}/playground")
    kept = (person.playground / "note").read_text()
    assert kept.split() == [way.value for way in WAYS]


@pytest.mark.ordinary
def test_what_the_user_has_called_playground_is_left_alone(person: Person) -> None:
    own = person.home / "playground"
    own.write_text("mine")
    assert person.run("touch ~/playground/new").exit_code == 0
    assert own.read_text() == "mine"
    own.unlink()
    own.mkdir()
    (own / "mine").write_text("mine")
    result = person.run("ls ~/playground; touch ~/playground/newer")
    assert (result.exit_code, result.stdout.text) == (0, "new\n")
    assert os.listdir(own) == ["mine"]


def test_temporary_folders_are_fresh_for_each_run(person: Person) -> None:
    name = f"ollmsandbox-test-{os.getpid()}"
    folders = [Path(folder) for folder in ("/tmp", "/var/tmp", "/dev/shm")]
    for folder in folders:
        (folder / name).touch()
    try:
        for folder in folders:
            command = f"test -e {name} || echo fresh; echo x >{name}-inside; ls"
            result = person.run(command, working_dir=str(folder))
            assert result.stdout.text.startswith("fresh\n")
            assert f"{name}-inside\n" in result.stdout.text
        for folder in folders:
            assert person.run(f"cat {folder}/{name}-inside").exit_code == 1
            assert not (folder / f"{name}-inside").exists()
    finally:
        for folder in folders:
            (folder / name).unlink()
