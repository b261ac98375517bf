# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a command starts, and what cannot be a project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.bubble import with_profile
from support.person import Person
from support.plan import plan_of, project_error, starts_in

from ollmsandbox.errors import ProjectError, WorkingDirError
from ollmsandbox.paths import Paths
from ollmsandbox.sandbox.plan.folders import find_project

# --- where a command starts --------------------------------------------------------------------


def assert_refused(person: Person, working_dir: str | Path) -> None:
    with pytest.raises(WorkingDirError) as caught:
        person.run("touch ran", working_dir=str(working_dir))
    assert str(caught.value) == f"ERROR: Working directory does not exist: {working_dir}"
    assert not (person.project / "ran").exists()


# By the folder: the names that lead there.
PLACES: dict[str, list[str | None]] = {
    "{project}": [None, "", ".", "./", "src/..", "../project"],
    "{project}/src/deep": ["src/deep", "./src//deep/", "src/deep/../deep", "link/deep"],
    "{home}": ["..", "{home}", "~"],
    "{around}": ["../.."],
    "{home}/other": ["~/other", "../other"],
    "{home}/playground": ["playground", "~/playground", "../playground"],
    "{home}/playground/sub/deep": ["~/playground/sub/deep/", "{home}/playground/sub/deep"],
    # One of this name in the project has a path.
    "{project}/playground": ["./playground"],
    "/usr/bin": ["/usr/bin", "programs"],
    "/tmp": ["/tmp"],
    "/dev/shm": ["/dev/shm"],
    "/": ["/"],
    "/etc": ["/etc"],
    "/var/tmp": ["/var/tmp"],
}


def test_a_command_starts_in_the_given_folder(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("project/src/deep", "project/playground", "other"):
        (person.home / folder).mkdir(parents=True)
    (person.playground / "sub/deep").mkdir(parents=True)
    (person.project / "link").symlink_to("src")
    (person.project / "programs").symlink_to("/usr/bin")
    # It does not depend on the current one.
    (tmp_path / "src/deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    names = {"home": person.home, "project": person.project, "around": person.home.parent}
    for place, given in PLACES.items():
        for one in given:
            found = plan_of(person, working_dir=one and one.format(**names))
            assert found.working_dir == place.format(**names), one
    # There a command really starts.
    for one in (
        "",
        "src/deep",
        "..",
        "~/playground/sub/deep/",
        "programs",
        "/tmp",
        "/dev/shm",
        "/",
    ):
        starts_in(person, one)


@pytest.mark.ordinary
def test_a_missing_working_folder_is_an_error(person: Person) -> None:
    (person.project / "file").write_text("")
    (person.project / "src").mkdir()
    (person.project / "dangling").symlink_to("nowhere")
    (person.project / "loop").symlink_to("loop")
    for given in (
        *(
            "missing",
            "/missing",
            "src/missing",
            "file",
            "/etc/passwd",
            "file/..//file",
            "~/missing",
        ),
        *("~nobody-of-this-name", "src\0", "\0", "playground/missing", "../playground/missing"),
        *("../playground/../missing", " ", "dangling", "loop", "x" * 300, "x/" * 3000, "new\nline"),
    ):
        assert_refused(person, given)


def test_a_hidden_folder_does_not_exist(person: Person, tmp_path: Path) -> None:
    (person.home / ".ssh/sub").mkdir(parents=True)
    (person.project / "link").symlink_to(person.home / ".ssh")
    for given in (f"{person.home}/.ssh", "../.ssh", "../.ssh/sub", "link", "../.ssh/."):
        assert_refused(person, given)
    # Those that are our own, or of the machine.
    for folder in (person.paths.cache, person.paths.data, person.playground):
        assert_refused(person, folder)
    assert tmp_path.is_relative_to("/tmp") or tmp_path.is_relative_to("/var/tmp")
    (tmp_path / "elsewhere").mkdir()
    for given in (f"{tmp_path}/elsewhere", f"/proc/{os.getpid()}", "/proc/self"):
        assert_refused(person, given)


def test_a_file_or_a_link_in_the_playground_is_no_folder(person: Person) -> None:
    (person.home / ".ssh").mkdir()
    person.run(f"touch file; ln -s {person.home}/.ssh link", working_dir="playground")
    for name in ("file", "link"):
        assert_refused(person, f"{person.home}/playground/{name}")


def test_a_folder_that_may_not_be_entered_is_refused(person: Person) -> None:
    closed = person.project / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o000)
    try:
        assert_refused(person, "closed")
        assert_refused(person, "closed/inner")
    finally:
        closed.chmod(0o700)


# --- what cannot be a project ------------------------------------------------------------------


@pytest.mark.ordinary
def test_the_home_folder_and_what_holds_it_cannot_be_a_project(person: Person) -> None:
    link = person.home.parent / "link"
    link.symlink_to(person.home)
    for folder in (person.home, person.home.parent, Path("/"), link, f"{person.project}/.."):
        assert "your whole home folder" in project_error(person, folder)
        assert not Path(folder, "ran").exists()


@pytest.mark.ordinary
def test_our_own_folders_cannot_be_projects_nor_what_is_around_them(person: Person) -> None:
    plan_of(person)
    person.paths.profiles.mkdir(parents=True)
    for folder in (*person.paths.own, person.playground, person.paths.profiles):
        assert "this program" in project_error(person, folder)
    for name in (".local", ".local/share", ".cache", ".config"):
        (person.home / name).mkdir(exist_ok=True)
        assert "this program" in project_error(person, person.home / name)


@pytest.mark.ordinary
def test_a_hidden_folder_cannot_be_a_project_unless_it_is_shown(person: Person) -> None:
    (person.home / ".ssh/inner").mkdir(parents=True)
    for name in (".ssh", ".ssh/inner"):
        told = project_error(person, person.home / name)
        assert f"{person.home}/.ssh" in told
        assert "show" in told
        assert not (person.home / name / "ran").exists()
    with_profile(person, "show: [~/.ssh]")
    shown = person.home / ".ssh"
    assert person.run("touch ran", project=shown, profile="mine").exit_code == 0
    assert (shown / "ran").exists()


@pytest.mark.ordinary
@pytest.mark.parametrize(
    ("folders", "why"),
    [
        # Files of this program may be in one of them.
        (("/proc", "/proc/self", "/sys", "/dev", "/dev/pts"), "is not on a disk|this program"),
        (("/etc", "/usr/lib", "/home", "/opt"), "belongs to the system"),
        (("/tmp", "/var/tmp", "/dev/shm"), "temporary files of all programs|this program"),
        (("relative/missing", "/missing", "/" + "x" * 300, "/x" * 3000), "does not exist"),
        (("\0", "/tmp/\0"), "Not a valid folder name"),
        (("",), "is empty"),
    ],
)
def test_a_folder_of_all_users_or_of_nobody_cannot_be_a_project(
    folders: tuple[str, ...], why: str
) -> None:
    paths = Paths.from_environ({"HOME": "/nowhere/home"})
    for folder in folders:
        with pytest.raises(ProjectError, match=why):
            find_project(folder, paths)


@pytest.mark.ordinary
def test_a_file_or_a_link_that_leads_nowhere_cannot_be_a_project(person: Person) -> None:
    file = person.project / "file"
    file.write_text("")
    assert f"a file, not a folder: {file}." in project_error(person, file)
    (person.project / "dangling").symlink_to("nowhere")
    (person.project / "loop").symlink_to("loop")
    for name in ("dangling", "loop"):
        assert "does not exist" in project_error(person, person.project / name)


@pytest.mark.ordinary
def test_a_project_may_be_named_by_a_link_or_from_the_current_folder(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(person.home)
    assert person.bubble(project="project").project == str(person.project)
    link = person.home / "link"
    link.symlink_to("project")
    assert person.run("touch ran; pwd -P", project=link).stdout.text == f"{person.project}\n"
    assert (person.project / "ran").exists()


@pytest.mark.ordinary
def test_a_project_in_a_folder_named_as_the_playground_is_refused(person: Person) -> None:
    """The user may have a folder of that name; inside it is hidden by the playground."""
    project = person.home / "playground/mine"
    project.mkdir(parents=True)
    assert "where commands find the playground" in project_error(person, project)
    assert os.listdir(project) == []
    assert not person.playground.exists() or os.listdir(person.playground) == []
