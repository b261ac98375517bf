# SPDX-License-Identifier: GPL-3.0-or-later
"""A command's folders in a real sandbox: project, home folder, playground."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from support.bubble import WAYS, by, each_overlay, each_way
from support.person import Person

from ollmsandbox.sandbox.plan.mounts import OverlayMethod

# --- where it runs -------------------------------------------------------------------------------


def test_it_starts_in_the_project_and_its_changes_are_real(person: Person) -> None:
    (person.project / "old").write_text("old")
    result = person.run("pwd; cat old; rm old; echo new >new; mkdir -p a/b; ln -s new link")
    assert result.stdout.text == f"{person.project}\nold"
    assert (person.project / "new").read_text() == "new\n"
    assert (person.project / "a/b").is_dir()
    assert os.readlink(person.project / "link") == "new"
    assert not (person.project / "old").exists()
    assert (person.project / "new").stat().st_uid == os.getuid()


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


@pytest.mark.anybody
@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES.keys())
@each_overlay
def test_a_project_may_have_any_name(person: Person, name: str, way: OverlayMethod) -> None:
    project = person.home / name
    project.mkdir()
    (project / "old").write_text("old")
    command = 'cat old; mkdir inner; cp old "$PWD/new"'
    result = person.run(command, project=project, capabilities=by(person, way))
    assert (result.exit_code, result.stdout.text) == (0, "old")
    assert sorted(os.listdir(project)) == ["inner", "new", "old"]
    deeper = person.run("touch deep", project=project, working_dir="inner")
    assert deeper.exit_code == 0
    assert os.listdir(project / "inner") == ["deep"]
    assert not (person.project / "ran").exists()


@pytest.mark.anybody
@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES.keys())
def test_a_project_of_any_name_can_be_read_without_an_overlay(person: Person, name: str) -> None:
    project = person.home / name
    project.mkdir()
    (project / "old").write_text("old")
    command = 'cat old "$PWD/old"; mkdir inner'
    result = person.run(command, project=project, capabilities=by(person, OverlayMethod.NONE))
    assert (result.exit_code, result.stdout.text) == (1, "oldold")
    assert result.stderr.text.endswith("Read-only file system\n")
    assert os.listdir(project) == ["old"]


@pytest.mark.anybody
@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES.keys())
def test_a_folder_in_the_project_may_have_any_name(person: Person, name: str) -> None:
    (person.project / name).mkdir()
    result = person.run(["touch", "./made"], working_dir=f"./{name}")
    assert result.exit_code == 0
    assert os.listdir(person.project / name) == ["made"]


def test_a_project_may_lie_outside_of_the_home_folder(person: Person, tmp_path: Path) -> None:
    project = tmp_path / "elsewhere"
    project.mkdir()
    assert person.run("pwd; touch made", project=project).stdout.text == f"{project}\n"
    assert (project / "made").exists()


@each_overlay
def test_a_project_may_lie_on_another_file_system(person: Person, way: OverlayMethod) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as project:
        assert os.stat(project).st_dev != os.stat(person.home).st_dev
        result = person.run("pwd; touch made; ls", project=project, capabilities=by(person, way))
        assert result.stdout.text == f"{project}\nmade\n"
        assert os.listdir(project) == ["made"]


def test_a_project_on_another_file_system_can_be_read_without_an_overlay(person: Person) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as project:
        Path(project, "old").write_text("old")
        found = by(person, OverlayMethod.NONE)
        result = person.run("pwd; cat old; touch made", project=project, capabilities=found)
        assert result.stdout.text == f"{project}\nold"
        assert "Read-only file system" in result.stderr.text
        assert os.listdir(project) == ["old"]


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


@each_way
def test_the_playground_is_the_same_folder_for_every_run(
    person: Person, way: OverlayMethod
) -> None:
    found = by(person, way)
    assert person.run("echo kept >~/playground/note", capabilities=found).exit_code == 0
    other = person.home / "other"
    other.mkdir()
    result = person.run(
        "cat note; pwd", project=other, working_dir="playground", capabilities=found
    )
    assert result.stdout.text == f"kept\n{person.home}/playground\n"
    assert (person.playground / "note").read_text() == "kept\n"


def test_the_playground_is_the_same_folder_for_every_way(person: Person) -> None:
    for way in WAYS:
        person.run(f"touch ~/playground/{way.value}", capabilities=by(person, way))
    assert set(os.listdir(person.playground)) == {way.value for way in WAYS}


def test_a_folder_of_the_user_called_playground_is_left_alone(person: Person) -> None:
    own = person.home / "playground"
    own.mkdir()
    (own / "mine").write_text("mine")
    result = person.run("ls ~/playground; touch ~/playground/new")
    assert (result.exit_code, result.stdout.text) == (0, "")
    assert os.listdir(own) == ["mine"]


def test_a_file_called_playground_is_left_alone(person: Person) -> None:
    (person.home / "playground").write_text("mine")
    result = person.run("touch ~/playground/new")
    assert result.exit_code == 0
    assert (person.home / "playground").read_text() == "mine"


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm"])
def test_temporary_folders_are_fresh_for_each_run(person: Person, folder: str) -> None:
    name = f"{folder}/ollmsandbox-test-{os.getpid()}"
    Path(name).touch()
    try:
        result = person.run(f"test -e {name} || echo fresh; echo x >{name}-inside; ls {folder}")
        assert "fresh\n" in result.stdout.text
        assert f"{os.path.basename(name)}-inside\n" in result.stdout.text
        assert person.run(f"cat {name}-inside").exit_code == 1
        assert not Path(f"{name}-inside").exists()
    finally:
        os.unlink(name)


def test_the_user_is_the_same_inside(person: Person) -> None:
    result = person.run("id -u; id -g")
    assert result.stdout.text == f"{os.getuid()}\n{os.getgid()}\n"
