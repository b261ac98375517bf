# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's plan: the order of mounts, their descriptions, home folders and masks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.bubble import with_profile
from support.person import Person, make_person
from support.plan import plan_of, project_error, starts_in

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.paths import Paths
from ollmsandbox.sandbox.plan.mounts import (
    BoundFolder,
    DevicesAndProcesses,
    EmptyFolder,
    HiddenPath,
    HostSystem,
    MaskedFolder,
    Mount,
    OverlaidFolder,
    OverlayMethod,
    SealedFolder,
    SeparatePlayground,
    UnrecordedFolder,
    WritableFolder,
)
from ollmsandbox.sandbox.plan.plan import Plan

# Each is the name of a folder.
WEIRD = ["we,ird:na\\me \"q\" 'ü'", "new\nline", "-dash", "$(x)", "`x`", "[a]*?", "~", " ", "%s"]


def places(plan: Plan) -> list[str]:
    """Return the mount points in order."""
    return [getattr(mount, "folder", getattr(mount, "path", "")) for mount in plan.mounts]


def only(plan: Plan, kind: type[Mount]) -> list[int]:
    return [number for number, mount in enumerate(plan.mounts) if isinstance(mount, kind)]


# --- the order of mounts -----------------------------------------------------------------------


@pytest.mark.parametrize("way", OverlayMethod)
def test_a_later_mount_does_not_hide_an_earlier_one_that_is_needed(
    person: Person, way: OverlayMethod
) -> None:
    plan = plan_of(person, way)
    home = [
        number
        for number, mount in enumerate(plan.mounts)
        if (isinstance(mount, MaskedFolder) and mount.spec.folder == str(person.home))
        or (isinstance(mount, BoundFolder) and mount.folder == str(person.home))
    ]
    is_none = way is OverlayMethod.NONE
    (playground,) = only(plan, WritableFolder if is_none else SeparatePlayground)
    project = only(plan, UnrecordedFolder if is_none else OverlaidFolder)[-1]
    assert only(plan, HostSystem) == [0]
    assert only(plan, DevicesAndProcesses) == [1]
    assert len(home) == 1
    empty = only(plan, EmptyFolder)
    assert {"/tmp", "/var/tmp", "/dev/shm", "/run"} <= {places(plan)[number] for number in empty}
    assert max(empty) < home[0] < playground < project
    assert places(plan)[playground] == f"{person.home}/playground"
    assert places(plan)[project] == str(person.project)
    # Scratch folders are sealed after everything is in them.
    seals = only(plan, SealedFolder)
    assert seals == list(range(len(plan.mounts) - len(seals), len(plan.mounts)))
    sealed = {places(plan)[number] for number in seals}
    assert "/dev" in sealed
    assert (str(person.home) in sealed) == is_none


def test_the_playground_that_is_mounted_is_the_one_of_the_data_folder(person: Person) -> None:
    person.share_playground()
    plan = plan_of(person)
    mount = plan.mounts[only(plan, WritableFolder)[0]]
    assert mount.args() == ("--bind", str(person.playground), f"{person.home}/playground")
    assert person.playground.is_dir()
    assert person.playground.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("network", [False, True])
def test_bwrap_drops_everything(person: Person, network: bool) -> None:
    arguments = plan_of(person, network=network).args()
    for option in ("user", "pid", "ipc", "uts", "cgroup-try"):
        assert f"--unshare-{option}" in arguments
    assert ("--unshare-net" in arguments) == (not network)
    assert "--new-session" in arguments
    assert arguments[arguments.index("--cap-drop") + 1] == "ALL"
    assert arguments[:3] == ["--ro-bind", "/", "/"]


# --- what a user is asked about --------------------------------------------------------------


@pytest.mark.parametrize("way", OverlayMethod)
def test_the_description_names_project_playground_network_and_secrets(
    person: Person, way: OverlayMethod
) -> None:
    (person.home / ".ssh").mkdir()
    (person.home / ".netrc").write_text("secret")
    (person.project / ".env").write_text("secret")
    with_profile(person, "masks: [~/project/.env]")
    told = plan_of(person, way, profile="mine").describe()
    assert "The network is off." in told
    assert "The system is read-only." in told
    (project,) = [line for line in told if line.startswith(f"{person.project} (the project) is ")]
    assert ("read-only" if way is OverlayMethod.NONE else "writable") in project
    assert f"{person.home}/playground (the playground) is writable." in told
    assert any("/tmp" in sentence and "discarded" in sentence for sentence in told)
    hidden = "\n".join(sentence for sentence in told if sentence.startswith("Hidden:"))
    assert f"{person.home}/.ssh" in hidden
    assert f"{person.home}/.netrc" in hidden
    # It does not exist.
    assert ".gnupg" not in hidden
    assert f"{person.project}/.env is hidden." in told
    assert all(sentence.endswith(".") for sentence in told)
    with_network = plan_of(person, way, network=True).describe()
    assert "The network is on." in with_network
    assert "The network is off." not in with_network


# --- homes -------------------------------------------------------------------------------------

WHOLE = 'cd "$HOME" && pwd -P && ls -A && touch "$HOME/playground/new" && cat .ssh/key'


def assert_works_at_home(person: Person) -> None:
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


def test_a_home_folder_may_have_any_name(tmp_path: Path) -> None:
    assert_works_at_home(make_person(tmp_path.joinpath(*WEIRD, "x" * 200, "end\n")))


def test_a_home_folder_may_be_a_link(tmp_path: Path) -> None:
    person = make_person(tmp_path / "real")
    link = tmp_path / "link"
    link.symlink_to(person.home)
    through = Person(link, link / "project", {**person.environ, "HOME": str(link)})
    assert_works_at_home(through)
    assert starts_in(through, None) == str(person.project)
    assert starts_in(through, "playground") == f"{person.home}/playground"
    for folder in (link, person.home):
        assert "your whole home folder" in project_error(through, folder)


@pytest.mark.ordinary
@pytest.mark.parametrize("home", ["missing", "/", "relative/home", "file"])
def test_a_home_folder_that_is_no_folder_is_reported(person: Person, home: str) -> None:
    (person.home / "file").write_text("")
    given = home if home in ("/", "relative/home") else f"{person.home}/{home}"
    person.environ["HOME"] = given
    person.environ["XDG_DATA_HOME"] = f"{person.home}/data"
    person.environ["XDG_CACHE_HOME"] = f"{person.home}/cache"
    with pytest.raises(OllmSandboxError, match=r"HOME|home folder"):
        person.run("touch ran")
    assert not (person.project / "ran").exists()


# --- masks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [None, OverlayMethod.NONE])
def test_a_star_in_a_mask_matches_any_part_of_a_name(
    tmp_path: Path, way: OverlayMethod | None
) -> None:
    person = make_person(tmp_path.joinpath(*WEIRD))
    with_profile(person, "masks: ['~/letters-*', '~/*/private.*']")
    for name in ("letters-1", "letters-2", "letter", "project/private.key", "project/public.key"):
        (person.home / name).write_text(name)
    found = person.capabilities()
    found = found if way is None else found._replace(overlay=way)
    result = person.run(
        "cat ~/letter ~/letters-* public.key private.key", profile="mine", capabilities=found
    )
    assert result.stdout.text == "letterproject/public.key"


def test_masked_files_of_the_project_are_hidden_and_untouched(person: Person) -> None:
    with_profile(person, "masks: [~/project/.env, ~/project/keys]")
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
    with_profile(person, "masks: [~/project/.env, ~/not/there, /not/there]")
    assert only(plan_of(person, OverlayMethod.UNSHARE, profile="mine"), HiddenPath) == []
    assert person.run("true", profile="mine").exit_code == 0
    assert os.listdir(person.project) == []
    assert not (person.home / "not").exists()


def test_masks_outside_the_home_folder_are_hidden(person: Person) -> None:
    with_profile(person, "masks: [/etc/hostname, /usr/share/glib-2.0]")
    for way in (None, OverlayMethod.NONE):
        found = person.capabilities()
        found = found if way is None else found._replace(overlay=way)
        result = person.run(
            "cat /etc/hostname; ls /usr/share/glib-2.0", profile="mine", capabilities=found
        )
        assert result.stdout.text == ""
    assert os.listdir("/usr/share/glib-2.0")


def test_a_folder_of_another_user_is_not_used(person: Person, tmp_path: Path) -> None:
    """In a shared folder, any user can create a predictable name first."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / f"ollmchat-{os.getuid()}").symlink_to(person.project)
    own = person.paths
    paths = Paths(own.home, own.data, own.cache, own.config, runtime_candidates=(shared,))
    folder = paths.runtime
    assert folder.parent == shared
    assert not folder.is_symlink()
    assert folder == paths.runtime
