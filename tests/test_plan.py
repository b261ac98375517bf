# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a run: which mounts in which order, where it starts, what cannot be a project."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Person, make_person

from ollmsandbox.errors import OllmSandboxError, ProjectError, WorkingDirError
from ollmsandbox.sandbox.mounts import (
    Hidden,
    Kernel,
    Layered,
    Mount,
    Overlaid,
    OverlayWay,
    Pieced,
    Scratch,
    Sealed,
    System,
    Unrecorded,
    Writable,
)
from ollmsandbox.sandbox.plan import Plan
from ollmsandbox.sandbox.probe import probe

WEIRD = "we,ird:na\\me \"q\" 'ü'"


def plan_of(person: Person, way: OverlayWay | None = None, **options: Any) -> Plan:
    found = probe(person.paths, person.environ)
    if way is not None:
        found = replace(found, overlay=way)
    return person.bubble(capabilities=found, **options).plan


def places(plan: Plan) -> list[str]:
    """Where the mounts are, in their order."""
    return [getattr(mount, "folder", getattr(mount, "path", "")) for mount in plan.mounts]


def only(plan: Plan, kind: type[Mount]) -> list[int]:
    return [number for number, mount in enumerate(plan.mounts) if isinstance(mount, kind)]


# --- the order of mounts -----------------------------------------------------------------------


@pytest.mark.parametrize("way", OverlayWay)
def test_a_later_mount_does_not_hide_an_earlier_one_that_is_needed(
    person: Person, way: OverlayWay
) -> None:
    plan = plan_of(person, way)
    home = [
        number
        for number, mount in enumerate(plan.mounts)
        if (isinstance(mount, Layered) and mount.spec.folder == str(person.home))
        or (isinstance(mount, Pieced) and mount.folder == str(person.home))
    ]
    (playground,) = only(plan, Writable)
    (project,) = only(plan, Unrecorded if way is OverlayWay.NONE else Overlaid)
    assert only(plan, System) == [0]
    assert only(plan, Kernel) == [1]
    assert len(home) == 1
    assert max(only(plan, Scratch)) < home[0] < playground < project
    assert places(plan)[playground] == f"{person.home}/playground"
    assert places(plan)[project] == str(person.project)


@pytest.mark.parametrize("way", OverlayWay)
def test_scratch_folders_are_sealed_after_everything_is_in_them(
    person: Person, way: OverlayWay
) -> None:
    seals = only(plan := plan_of(person, way), Sealed)
    assert seals == list(range(len(plan.mounts) - len(seals), len(plan.mounts)))
    sealed = {places(plan)[number] for number in seals}
    assert "/dev" in sealed
    assert (str(person.home) in sealed) == (way is OverlayWay.NONE)


def test_temporary_folders_are_the_sandboxes_own(person: Person) -> None:
    plan = plan_of(person)
    scratch = {places(plan)[number] for number in only(plan, Scratch)}
    assert {"/tmp", "/var/tmp", "/dev/shm", "/run"} <= scratch


def test_the_playground_that_is_mounted_is_the_one_of_the_data_folder(person: Person) -> None:
    plan = plan_of(person)
    mount = plan.mounts[only(plan, Writable)[0]]
    assert mount.args() == ("--bind", str(person.playground), f"{person.home}/playground")
    assert person.playground.is_dir()
    assert person.playground.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("network", [False, True])
def test_bwrap_is_told_to_take_everything_away(person: Person, network: bool) -> None:
    arguments = plan_of(person, network=network).args()
    for option in ("user", "pid", "ipc", "uts", "cgroup-try"):
        assert f"--unshare-{option}" in arguments
    assert ("--unshare-net" in arguments) == (not network)
    assert "--die-with-parent" in arguments
    assert "--new-session" in arguments
    assert arguments[arguments.index("--cap-drop") + 1] == "ALL"
    assert arguments[:3] == ["--ro-bind", "/", "/"]


# --- where a command starts --------------------------------------------------------------------


def starts_in(person: Person, working_dir: str | None, **options: Any) -> str:
    """Asked of a real command, and of the plan."""
    bubble = person.bubble(working_dir=working_dir, **options)
    planned = bubble.plan.working_dir
    result = person.run(["pwd", "-P"], working_dir=working_dir, **options)
    assert (result.exit_code, result.stderr.text) == (0, "")
    assert result.stdout.text == planned + "\n"
    assert bubble.plan.environment["PWD"] == planned
    return planned


def refused(person: Person, working_dir: str) -> None:
    with pytest.raises(WorkingDirError) as caught:
        person.run("touch ran", working_dir=working_dir)
    assert str(caught.value) == f"ERROR: Working directory does not exist: {working_dir}"
    assert not (person.project / "ran").exists()


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
def test_a_folder_that_is_not_there_is_told_in_exact_words(person: Person, given: str) -> None:
    (person.project / "file").write_text("")
    (person.project / "src").mkdir()
    (person.project / "dangling").symlink_to("nowhere")
    (person.project / "loop").symlink_to("loop")
    refused(person, given)


def test_a_file_of_the_playground_cannot_be_started_in(person: Person) -> None:
    person.run("touch file", working_dir="playground")
    refused(person, f"{person.home}/playground/file")


def test_a_link_in_the_playground_does_not_lead_to_what_is_hidden(person: Person) -> None:
    (person.home / ".ssh").mkdir()
    person.run(f"ln -s {person.home}/.ssh link", working_dir="playground")
    refused(person, f"{person.home}/playground/link")


@pytest.mark.parametrize("given", ["~/.ssh", "../.ssh", "../.ssh/sub", "link", "../.ssh/."])
def test_a_hidden_folder_does_not_exist(person: Person, given: str) -> None:
    (person.home / ".ssh/sub").mkdir(parents=True)
    (person.project / "link").symlink_to(person.home / ".ssh")
    refused(person, given.replace("~", str(person.home)))


def test_our_own_folders_do_not_exist(person: Person) -> None:
    plan_of(person)
    refused(person, str(person.paths.cache))
    refused(person, str(person.paths.data))
    refused(person, str(person.playground))


def test_a_folder_in_tmp_does_not_exist_for_tmp_is_empty_inside(
    person: Person, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert str(elsewhere).startswith(("/tmp/", "/var/tmp/"))
    refused(person, str(elsewhere))


def test_a_process_of_the_machine_does_not_exist(person: Person) -> None:
    refused(person, f"/proc/{os.getpid()}")
    refused(person, "/proc/self")


def test_a_folder_that_may_not_be_entered_is_refused(person: Person) -> None:
    closed = person.project / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o000)
    try:
        refused(person, "closed")
        refused(person, "closed/inner")
    finally:
        closed.chmod(0o700)


# --- what a person is asked about --------------------------------------------------------------


@pytest.mark.parametrize("way", OverlayWay)
def test_the_description_names_project_playground_network_and_secrets(
    person: Person, way: OverlayWay
) -> None:
    (person.home / ".ssh").mkdir()
    (person.home / ".netrc").write_text("secret")
    told = plan_of(person, way).describe()
    assert "The network cannot be reached." in told
    assert "The system can be read, not written." in told
    written = [line for line in told if line.startswith(f"{person.project} (the project) can be ")]
    assert written == [
        f"{person.project} (the project) can be read, not written: changes cannot be recorded here."
        if way is OverlayWay.NONE
        else f"{person.project} (the project) can be written; what changes is recorded."
    ]
    assert f"{person.home}/playground (the playground) can be written." in told
    assert any("/tmp" in sentence and "forgotten" in sentence for sentence in told)
    hidden = "\n".join(sentence for sentence in told if sentence.startswith("Hidden:"))
    assert f"{person.home}/.ssh" in hidden
    assert f"{person.home}/.netrc" in hidden
    assert all(sentence.endswith(".") for sentence in told)


def test_the_description_says_when_the_network_can_be_reached(person: Person) -> None:
    told = plan_of(person, network=True).describe()
    assert "The network can be reached." in told
    assert "The network cannot be reached." not in told


def test_the_description_names_no_secret_that_the_person_does_not_have(person: Person) -> None:
    (person.home / ".ssh").mkdir()
    assert ".gnupg" not in "\n".join(plan_of(person).describe())


def test_the_description_names_what_is_hidden_in_the_project(person: Person) -> None:
    (person.paths.profiles).mkdir(parents=True)
    (person.paths.profiles / "mine.yaml").write_text("masks: [~/project/.env]")
    (person.project / ".env").write_text("secret")
    assert f"{person.project}/.env is hidden." in plan_of(person, profile="mine").describe()


# --- what cannot be a project ------------------------------------------------------------------


def cannot_be_a_project(person: Person, folder: str | Path) -> str:
    with pytest.raises(ProjectError) as caught:
        person.run("touch ran", project=folder)
    return str(caught.value)


def test_the_home_folder_and_what_holds_it_cannot_be_a_project(person: Person) -> None:
    for folder in (person.home, person.home.parent, Path("/")):
        assert "your whole home folder" in cannot_be_a_project(person, folder)
        assert not (folder / "ran").exists()


def test_the_home_folder_cannot_be_a_project_by_another_name(person: Person) -> None:
    link = person.home.parent / "link"
    link.symlink_to(person.home)
    assert "your whole home folder" in cannot_be_a_project(person, link)
    assert "your whole home folder" in cannot_be_a_project(person, f"{person.project}/..")


def test_our_own_folders_cannot_be_projects(person: Person) -> None:
    plan_of(person)
    person.paths.profiles.mkdir(parents=True)
    for folder in (*person.paths.own, person.playground, person.paths.profiles):
        assert "this program" in cannot_be_a_project(person, folder)


def test_a_folder_around_our_own_cannot_be_a_project(person: Person) -> None:
    for name in (".local", ".local/share", ".cache", ".config"):
        (person.home / name).mkdir(exist_ok=True)
        assert "this program" in cannot_be_a_project(person, person.home / name)


@pytest.mark.parametrize("name", [".ssh", ".ssh/inner"])
def test_a_hidden_folder_cannot_be_a_project(person: Person, name: str) -> None:
    folder = person.home / name
    folder.mkdir(parents=True)
    told = cannot_be_a_project(person, folder)
    assert f"{person.home}/.ssh, which commands may not see" in told
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
    assert folder in cannot_be_a_project(person, folder).replace(f"/{os.getpid()}", "/self")


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp"])
def test_a_folder_that_everybody_uses_cannot_be_a_project(
    tmp_path_factory: pytest.TempPathFactory, folder: str
) -> None:
    person = make_person(tmp_path_factory.mktemp("person"))
    told = cannot_be_a_project(person, folder)
    # The test's own home folder lies in one of them.
    assert "temporary files" in told or "your whole home folder" in told


@pytest.mark.parametrize("name", ["missing", "missing/deeper", "", "dangling", "loop"])
def test_a_folder_that_is_not_there_cannot_be_a_project(
    person: Person, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(person.project)
    (person.project / "dangling").symlink_to("nowhere")
    (person.project / "loop").symlink_to("loop")
    told = "does not exist" if name else "is empty"
    assert told in cannot_be_a_project(person, name)


def test_a_file_cannot_be_a_project(person: Person) -> None:
    file = person.project / "file"
    file.write_text("")
    told = cannot_be_a_project(person, file)
    assert f"a file, not a folder: {file}." in told
    assert "Name the folder that holds it." in told


@pytest.mark.parametrize("name", ["\0", "/tmp/\0", "/" + "x" * 300, "/x" * 3000])
def test_what_cannot_be_a_name_cannot_be_a_project(person: Person, name: str) -> None:
    cannot_be_a_project(person, name)


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
    """The person may have a folder of that name; inside it is hidden by the playground."""
    project = person.home / "playground/mine"
    project.mkdir(parents=True)
    try:
        assert person.run("touch ran", project=project).exit_code == 0
        assert (project / "ran").exists()
    except ProjectError:
        assert not (project / "ran").exists()
    assert not person.playground.exists() or os.listdir(person.playground) == []


# --- homes -------------------------------------------------------------------------------------

WHOLE = 'cd "$HOME" && pwd -P && ls -A && touch "$HOME/playground/new" && cat .ssh/key'


def works_at_home(person: Person) -> None:
    (person.home / ".ssh").mkdir()
    (person.home / ".ssh/key").write_text("secret")
    (person.home / "notes").write_text("seen")
    before = set(os.listdir(person.home))
    result = person.run(WHOLE)
    home = os.path.realpath(person.home)
    assert result.stdout.text.startswith(home.encode("utf-8", "replace").decode() + "\n")
    assert "secret" not in result.stdout.text
    assert {"notes", "playground", "project"} <= set(result.stdout.text.split("\n"))
    assert (person.playground / "new").exists()
    assert set(os.listdir(person.home)) == before | {".local", ".cache"}


@pytest.mark.parametrize(
    "name",
    [WEIRD, "new\nline", "end\n", "-dash", "$(x)", "`x`", "[a]*?", "x" * 200, "~", " ", "%s", "#"],
)
def test_a_home_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    works_at_home(make_person(tmp_path / name))


def test_a_home_folder_may_be_a_link(tmp_path: Path) -> None:
    person = make_person(tmp_path / "real")
    link = tmp_path / "link"
    link.symlink_to(person.home)
    through = Person(link, link / "project", {**person.environ, "HOME": str(link)})
    works_at_home(through)
    assert starts_in(through, None) == str(person.project)
    assert starts_in(through, "playground") == f"{person.home}/playground"
    for folder in (link, person.home):
        assert "your whole home folder" in cannot_be_a_project(through, folder)


@pytest.mark.parametrize("home", ["missing", "/", "relative/home", "file"])
def test_a_home_folder_that_is_none_is_told(person: Person, home: str) -> None:
    (person.home / "file").write_text("")
    given = home if home in ("/", "relative/home") else f"{person.home}/{home}"
    person.environ["HOME"] = given
    person.environ["XDG_DATA_HOME"] = f"{person.home}/data"
    person.environ["XDG_CACHE_HOME"] = f"{person.home}/cache"
    with pytest.raises(OllmSandboxError, match=r"HOME|home folder"):
        person.run("touch ran")
    assert not (person.project / "ran").exists()


# --- masks -------------------------------------------------------------------------------------


def with_masks(person: Person, *masks: str) -> None:
    person.paths.profiles.mkdir(parents=True)
    listed = "\n".join(f"  - {mask}" for mask in masks)
    (person.paths.profiles / "mine.yaml").write_text(f"masks:\n{listed}\n")


@pytest.mark.parametrize("folder", ["plain", "[a]*?", WEIRD])
@pytest.mark.parametrize("way", [None, OverlayWay.NONE])
def test_a_star_in_a_mask_stands_for_any_part_of_a_name(
    tmp_path: Path, folder: str, way: OverlayWay | None
) -> None:
    person = make_person(tmp_path / folder)
    with_masks(person, "~/letters-*", "~/*/private.*")
    for name in ("letters-1", "letters-2", "letter"):
        (person.home / name).write_text(name)
    for name in ("project/private.key", "project/public.key"):
        (person.home / name).write_text(name)
    found = probe(person.paths, person.environ)
    found = found if way is None else replace(found, overlay=way)
    result = person.run(
        "cat ~/letter ~/letters-* public.key private.key", profile="mine", capabilities=found
    )
    assert result.stdout.text == "letterproject/public.key"


def test_a_mask_hides_a_link_and_what_it_leads_to(person: Person) -> None:
    (person.home / "keys").mkdir()
    (person.home / "keys/id").write_text("secret")
    (person.home / ".ssh").symlink_to("keys")
    result = person.run("cat ~/.ssh/id ~/keys/id; ls -A ~")
    assert "secret" not in result.stdout.text
    assert not {".ssh", "keys"} & set(result.stdout.text.split())


def test_a_mask_is_found_behind_a_linked_folder(person: Person) -> None:
    (person.home / "dotfiles/gh").mkdir(parents=True)
    (person.home / "dotfiles/gh/hosts").write_text("secret")
    (person.home / ".config").symlink_to("dotfiles")
    result = person.run("cat ~/.config/gh/hosts ~/dotfiles/gh/hosts")
    assert result.stdout.text == ""


def test_what_is_hidden_in_the_project_is_hidden_and_untouched(person: Person) -> None:
    with_masks(person, "~/project/.env", "~/project/keys")
    (person.project / ".env").write_text("secret")
    (person.project / "keys").mkdir()
    (person.project / "keys/id").write_text("secret")
    result = person.run(
        "cat .env keys/id; echo changed >.env; touch keys/new; rm -rf .env keys", profile="mine"
    )
    assert result.stdout.text == ""
    assert (person.project / ".env").read_text() == "secret"
    assert os.listdir(person.project / "keys") == ["id"]


def test_a_mask_of_something_that_is_not_there_makes_nothing(person: Person) -> None:
    with_masks(person, "~/project/.env", "~/not/there", "/not/there")
    assert person.run("true", profile="mine").exit_code == 0
    assert os.listdir(person.project) == []
    assert not (person.home / "not").exists()


def test_masks_outside_the_home_folder_are_hidden(person: Person) -> None:
    with_masks(person, "/etc/hostname", "/usr/share/doc")
    for way in (None, OverlayWay.NONE):
        found = probe(person.paths, person.environ)
        found = found if way is None else replace(found, overlay=way)
        result = person.run(
            "cat /etc/hostname; ls /usr/share/doc", profile="mine", capabilities=found
        )
        assert result.stdout.text == ""
    assert os.listdir("/usr/share/doc")


def test_what_hides_a_folder_in_the_project_says_so_only_if_it_is_there(person: Person) -> None:
    with_masks(person, "~/project/.env")
    assert only(plan_of(person, OverlayWay.UNSHARE, profile="mine"), Hidden) == []


def test_a_folder_that_somebody_else_made_is_not_used(person: Person, tmp_path: Path) -> None:
    """In a folder for all, anybody can be first to make a name that can be guessed."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / f"ollmchat-{os.getuid()}").symlink_to(person.project)
    paths = replace(person.paths, runtime_candidates=(shared,))
    folder = paths.runtime
    assert folder.parent == shared
    assert not folder.is_symlink()
    assert folder == paths.runtime
