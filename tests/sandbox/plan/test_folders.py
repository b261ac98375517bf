# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a command starts, and what cannot be a project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.person import Person, make_person
from support.plan import plan_of, project_error, starts_in

from ollmsandbox.errors import ProjectError, WorkingDirError

# --- where a command starts --------------------------------------------------------------------


def assert_refused(person: Person, working_dir: str) -> None:
    with pytest.raises(WorkingDirError) as caught:
        person.run("touch ran", working_dir=working_dir)
    assert str(caught.value) == f"ERROR: Working directory does not exist: {working_dir}"
    assert not (person.project / "ran").exists()


@pytest.mark.anybody
@pytest.mark.parametrize("given", [None, "", ".", "./", "src/..", "../project"])
def test_a_command_starts_in_the_project(person: Person, given: str | None) -> None:
    (person.project / "src").mkdir()
    assert starts_in(person, given) == str(person.project)


@pytest.mark.parametrize("given", ["src/deep", "./src//deep/", "src/deep/../deep"])
def test_a_relative_folder_is_one_of_the_project(person: Person, given: str) -> None:
    (person.project / "src/deep").mkdir(parents=True)
    assert starts_in(person, given) == f"{person.project}/src/deep"


def test_a_relative_folder_does_not_depend_on_the_current_one(
    person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (person.project / "src").mkdir()
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    assert starts_in(person, "src") == f"{person.project}/src"


@pytest.mark.anybody
@pytest.mark.parametrize("given", ["/", "/usr/bin", "/etc", "/tmp", "/var/tmp", "/dev/shm"])
def test_a_full_path_is_a_folder_of_the_machine(person: Person, given: str) -> None:
    assert starts_in(person, given) == given


def test_the_folders_around_the_project_can_be_started_in(person: Person) -> None:
    assert starts_in(person, str(person.home)) == str(person.home)
    assert starts_in(person, "..") == str(person.home)
    assert starts_in(person, "../..") == str(person.home.parent)


def test_a_folder_beside_the_project_can_be_started_in(person: Person) -> None:
    (person.home / "other").mkdir()
    assert starts_in(person, "../other") == f"{person.home}/other"


def test_a_tilde_is_the_home_folder(person: Person) -> None:
    (person.home / "other").mkdir()
    assert starts_in(person, "~") == str(person.home)
    assert starts_in(person, "~/other") == f"{person.home}/other"


@pytest.mark.parametrize("given", ["playground", "~/playground", "../playground"])
def test_the_playground_can_be_started_in(person: Person, given: str) -> None:
    assert starts_in(person, given) == f"{person.home}/playground"


def test_a_folder_below_the_playground_can_be_started_in(person: Person) -> None:
    person.run("mkdir -p sub/deep", working_dir="playground")
    inside = f"{person.home}/playground"
    assert starts_in(person, f"{inside}/sub") == f"{inside}/sub"
    assert starts_in(person, f"{inside}/sub/deep/") == f"{inside}/sub/deep"


def test_a_folder_called_playground_in_the_project_has_a_path(person: Person) -> None:
    (person.project / "playground").mkdir()
    assert starts_in(person, "playground") == f"{person.home}/playground"
    assert starts_in(person, "./playground") == f"{person.project}/playground"


def test_a_link_leads_to_its_folder(person: Person) -> None:
    (person.project / "src").mkdir()
    (person.project / "link").symlink_to("src")
    (person.project / "system").symlink_to("/usr/lib")
    assert starts_in(person, "link") == f"{person.project}/src"
    assert starts_in(person, "system") == os.path.realpath("/usr/lib")


@pytest.mark.anybody
@pytest.mark.parametrize(
    "given",
    [
        "missing",
        "/missing",
        "src/missing",
        "file",
        "/etc/passwd",
        "file/..//file",
        "~/missing",
        "~nobody-of-this-name",
        "src\0",
        "\0",
        "playground/missing",
        "../playground/missing",
        "../playground/../missing",
        " ",
        "dangling",
        "loop",
        "x" * 300,
        "x/" * 3000,
        "new\nline",
    ],
)
def test_a_missing_working_folder_is_an_error(person: Person, given: str) -> None:
    (person.project / "file").write_text("")
    (person.project / "src").mkdir()
    (person.project / "dangling").symlink_to("nowhere")
    (person.project / "loop").symlink_to("loop")
    assert_refused(person, given)


def test_a_file_of_the_playground_cannot_be_started_in(person: Person) -> None:
    person.run("touch file", working_dir="playground")
    assert_refused(person, f"{person.home}/playground/file")


def test_a_link_in_the_playground_does_not_lead_to_what_is_hidden(person: Person) -> None:
    (person.home / ".ssh").mkdir()
    person.run(f"ln -s {person.home}/.ssh link", working_dir="playground")
    assert_refused(person, f"{person.home}/playground/link")


@pytest.mark.parametrize("given", ["~/.ssh", "../.ssh", "../.ssh/sub", "link", "../.ssh/."])
def test_a_hidden_folder_does_not_exist(person: Person, given: str) -> None:
    (person.home / ".ssh/sub").mkdir(parents=True)
    (person.project / "link").symlink_to(person.home / ".ssh")
    assert_refused(person, given.replace("~", str(person.home)))


def test_our_own_folders_do_not_exist(person: Person) -> None:
    plan_of(person)
    assert_refused(person, str(person.paths.cache))
    assert_refused(person, str(person.paths.data))
    assert_refused(person, str(person.playground))


def test_a_folder_in_tmp_does_not_exist_for_tmp_is_empty_inside(
    person: Person, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert str(elsewhere).startswith(("/tmp/", "/var/tmp/"))
    assert_refused(person, str(elsewhere))


def test_a_process_of_the_machine_does_not_exist(person: Person) -> None:
    assert_refused(person, f"/proc/{os.getpid()}")
    assert_refused(person, "/proc/self")


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


def test_the_home_folder_and_what_holds_it_cannot_be_a_project(person: Person) -> None:
    for folder in (person.home, person.home.parent, Path("/")):
        assert "your whole home folder" in project_error(person, folder)
        assert not (folder / "ran").exists()


def test_the_home_folder_cannot_be_a_project_by_another_name(person: Person) -> None:
    link = person.home.parent / "link"
    link.symlink_to(person.home)
    assert "your whole home folder" in project_error(person, link)
    assert "your whole home folder" in project_error(person, f"{person.project}/..")


def test_our_own_folders_cannot_be_projects(person: Person) -> None:
    plan_of(person)
    person.paths.profiles.mkdir(parents=True)
    for folder in (*person.paths.own, person.playground, person.paths.profiles):
        assert "this program" in project_error(person, folder)


def test_a_folder_around_our_own_cannot_be_a_project(person: Person) -> None:
    for name in (".local", ".local/share", ".cache", ".config"):
        (person.home / name).mkdir(exist_ok=True)
        assert "this program" in project_error(person, person.home / name)


@pytest.mark.parametrize("name", [".ssh", ".ssh/inner"])
def test_a_hidden_folder_cannot_be_a_project(person: Person, name: str) -> None:
    folder = person.home / name
    folder.mkdir(parents=True)
    told = project_error(person, folder)
    assert f"{person.home}/.ssh" in told
    assert "show" in told
    assert not (folder / "ran").exists()


def test_a_hidden_folder_that_is_shown_can_be_a_project(person: Person) -> None:
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "mine.yaml").write_text("show: [~/.ssh]")
    folder = person.home / ".ssh"
    folder.mkdir()
    assert person.run("touch ran", project=folder, profile="mine").exit_code == 0
    assert (folder / "ran").exists()


@pytest.mark.parametrize("folder", ["/proc", "/proc/self", "/sys", "/dev", "/dev/pts"])
def test_a_folder_of_the_kernel_cannot_be_a_project(person: Person, folder: str) -> None:
    assert folder in project_error(person, folder).replace(f"/{os.getpid()}", "/self")


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp"])
def test_a_folder_shared_by_all_users_cannot_be_a_project(
    tmp_path_factory: pytest.TempPathFactory, folder: str
) -> None:
    person = make_person(tmp_path_factory.mktemp("person"))
    assert folder in project_error(person, folder)


@pytest.mark.parametrize("name", ["missing", "missing/deeper", "", "dangling", "loop"])
def test_a_folder_that_is_not_there_cannot_be_a_project(
    person: Person, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(person.project)
    (person.project / "dangling").symlink_to("nowhere")
    (person.project / "loop").symlink_to("loop")
    told = "does not exist" if name else "is empty"
    assert told in project_error(person, name)


def test_a_file_cannot_be_a_project(person: Person) -> None:
    file = person.project / "file"
    file.write_text("")
    told = project_error(person, file)
    assert f"a file, not a folder: {file}." in told


@pytest.mark.parametrize("name", ["\0", "/tmp/\0", "/" + "x" * 300, "/x" * 3000])
def test_an_invalid_name_cannot_be_a_project(person: Person, name: str) -> None:
    project_error(person, name)


def test_a_relative_project_is_one_of_the_current_folder(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(person.home)
    assert person.bubble(project="project").project == str(person.project)


def test_a_project_may_be_named_by_a_link(person: Person) -> None:
    link = person.home / "link"
    link.symlink_to("project")
    assert person.run("touch ran; pwd -P", project=link).stdout.text == f"{person.project}\n"
    assert (person.project / "ran").exists()


def test_a_project_in_a_folder_named_as_the_playground_leaves_nothing_in_it(
    person: Person,
) -> None:
    """The user may have a folder of that name; inside it is hidden by the playground."""
    project = person.home / "playground/mine"
    project.mkdir(parents=True)
    try:
        assert person.run("touch ran", project=project).exit_code == 0
        assert (project / "ran").exists()
    except ProjectError:
        assert not (project / "ran").exists()
    assert not person.playground.exists() or os.listdir(person.playground) == []
