# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe tries out what the machine can do; if a sandbox cannot work, no command runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.bubble import with_profile
from support.cli_inline import cli_here
from support.person import Person
from support.probe import REAL, VERSION, fake, first_in_path, look

from ollmsandbox.errors import SandboxError
from ollmsandbox.sandbox.bubble import Bubble
from ollmsandbox.sandbox.probe import probe as probe_module
from ollmsandbox.sandbox.probe.environment import find_surroundings


def missed(person: Person) -> set[str]:
    return {finding.key for finding in look(person).missing}


def assert_nothing_runs(person: Person) -> str:
    """Neither through the engine nor through the command line; gives what was said."""
    assert not Bubble.can_wrap(person.environ)
    with pytest.raises(SandboxError) as caught:
        person.run("touch ran; touch ~/playground/ran")
    assert "cannot be sandboxed here" in str(caught.value)
    done = person.cli("run", "-c", "touch ran; touch ~/playground/ran")
    assert done.returncode == 125
    assert done.stdout == ""
    assert "cannot be sandboxed here" in done.stderr
    assert "doctor" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(person.project) == []
    assert not (person.playground / "ran").exists()
    return str(caught.value)


@pytest.fixture
def programs(person: Person) -> Path:
    return first_in_path(person)


# --- a machine that can ------------------------------------------------------------------------


def test_this_machine_can(person: Person) -> None:
    found = look(person)
    assert found.can_wrap
    assert found.missing == ()
    assert os.path.isabs(found.bwrap)
    told = {finding.key: finding for finding in found.findings}
    assert "bubblewrap" in told["bwrap"].detail
    assert found.bwrap in told["bwrap"].detail
    for key in ("surroundings", "bwrap", "sandbox", "network", "seccomp"):
        assert told[key].ok
        assert told[key].needed
    assert not any(f.needed for f in found.findings if f.key in ("overlay", "systemd"))
    assert all(finding.title for finding in found.findings)
    for finding in found.findings:
        assert bool(finding.cause) == bool(finding.remedy) == (not finding.ok)
    assert Bubble.can_wrap(person.environ)


# --- machines that cannot ----------------------------------------------------------------------


def lacking(option: str) -> str:
    return f'case " $* " in *" {option} "*) exit 1;; esac\nexec {REAL} "$@"'


# A fake bwrap, and what is missing then.
BROKEN = {
    "refusing": (VERSION + 'echo "No permissions to create new namespace" >&2\nexit 1', "sandbox"),
    "crashing": ("kill -SEGV $$", "bwrap"),
    "crashing in every sandbox": (VERSION + "kill -SEGV $$", "sandbox"),
    "silent": ("exit 0", "bwrap"),
    "failing at once": ("exit 1", "bwrap"),
    "of another format": ("\0\0\0\0", "bwrap"),
    "without namespaces": (lacking("--unshare-user"), "sandbox"),
    "without network namespaces": (lacking("--unshare-net"), "network"),
    "without filters": (lacking("--seccomp"), "seccomp"),
}


@pytest.mark.ordinary
@pytest.mark.parametrize(("script", "key"), BROKEN.values(), ids=BROKEN.keys())
def test_a_bwrap_that_does_not_work_is_noticed_and_nothing_runs(
    person: Person, programs: Path, script: str, key: str
) -> None:
    fake(programs, script)
    found = look(person)
    miss = found.missing[0]
    assert miss.key == key
    assert miss.cause
    assert miss.remedy
    said = assert_nothing_runs(person)
    assert miss.cause in said
    assert miss.remedy in said


def test_a_bwrap_that_refuses_its_setuid_bit_is_explained(person: Person, programs: Path) -> None:
    file = fake(programs, f"{VERSION}exit 1")
    file.chmod(0o4755)
    cause, remedy = look(person).why_not()
    assert str(cause) == f"{file} has the setuid bit, which newer versions refuse."
    assert str(remedy) == f"Remove it: sudo chmod u-s {file}"


def test_folders_that_cannot_be_written_are_named(person: Person) -> None:
    # A file instead of a folder stops root as well.
    (person.home / "cache").write_text("")
    person.environ["XDG_CACHE_HOME"] = f"{person.home}/cache"
    (missing,) = look(person).missing
    assert missing.key == "folders"
    assert f"{person.home}/cache" in missing.cause
    assert "XDG_CACHE_HOME" in missing.remedy


@pytest.mark.ordinary
def test_without_a_bwrap_the_package_is_named_and_nothing_runs(person: Person) -> None:
    person.environ["PATH"] = f"{person.home}/nowhere"
    assert missed(person) == {"bwrap"}
    said = assert_nothing_runs(person)
    assert "bubblewrap is not installed" in said
    assert "nstall" in said.partition("bubblewrap is not installed")[2]


@pytest.mark.ordinary
def test_without_a_path_the_usual_folders_are_searched(person: Person) -> None:
    del person.environ["PATH"]
    assert look(person).can_wrap


@pytest.mark.ordinary
@pytest.mark.parametrize("kind", ["folder", "not executable", "dangling link", "empty file"])
def test_a_file_that_cannot_run_is_no_bwrap(person: Person, programs: Path, kind: str) -> None:
    if kind == "folder":
        (programs / "bwrap").mkdir()
        # Nor does it hide a later program.
        assert look(person).bwrap == REAL
    elif kind == "not executable":
        shutil.copyfile(REAL, programs / "bwrap")
    elif kind == "dangling link":
        (programs / "bwrap").symlink_to("nowhere")
    else:
        (programs / "bwrap").touch(mode=0o755)
    person.environ["PATH"] = str(programs)
    assert missed(person) == {"bwrap"}
    with pytest.raises(SandboxError, match="cannot be sandboxed here"):
        person.run("touch ran")


HANGING = {
    "at once": "exec sleep 1000",
    "in every sandbox": VERSION + "exec sleep 1000",
    "in a child that holds the pipe": "sleep 1000 & wait",
    "whatever it is told": VERSION + "trap '' TERM INT HUP\nwhile :; do sleep 1000; done",
}


@pytest.mark.ordinary
@pytest.mark.parametrize("script", HANGING.values(), ids=HANGING.keys())
def test_a_bwrap_that_hangs_is_given_up_and_nothing_runs(
    person: Person, programs: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(programs, script)
    # Nobody has to wait for the whole time to see that there is an end to it.
    monkeypatch.setattr(probe_module, "_TIMEOUT", 0.3)
    assert missed(person) <= {"bwrap", "time"}
    done = cli_here(person, "run", "--", "touch", "ran")
    assert done.returncode == 125
    assert "cannot be sandboxed here" in done.stderr
    assert os.listdir(person.project) == []


@pytest.mark.ordinary
@pytest.mark.parametrize("late", ["--unshare-net", "--seccomp", "--overlay-src"])
def test_a_slow_machine_does_not_count_as_incapable(
    person: Person, programs: Path, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(programs, f'case "$*" in *"{late} "*) exec sleep 1000;; esac\nexec {REAL} "$@"')
    monkeypatch.setattr(probe_module, "_TIMEOUT", 1)
    # With so little time even its version may come late.
    with pytest.raises(SandboxError, match=r"took too long|does not answer"):
        person.run("touch ran")
    monkeypatch.undo()
    fake(programs, f'exec {REAL} "$@"')
    assert look(person).can_wrap


def test_slow_namespaces_do_not_count_as_missing(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("select.select", lambda *_given: ([], [], []))
    assert missed(person) == {"time"}
    monkeypatch.undo()
    assert look(person).namespaces


def test_a_bwrap_that_says_yes_to_everything_and_runs_nothing_is_no_success(
    person: Person, programs: Path
) -> None:
    fake(programs, VERSION + "exit 0")
    with pytest.raises(SandboxError):
        person.run("touch ran")
    done = person.cli("run", "--", "touch", "ran")
    assert done.returncode == 125
    assert person.cli("doctor").returncode == 1
    assert os.listdir(person.project) == []


def test_a_bwrap_that_fails_after_it_was_tried_is_an_error_and_nothing_runs(
    person: Person, programs: Path
) -> None:
    broken = person.home / "broken"
    fake(programs, f'test -e "{broken}" && exit 3\nexec {REAL} "$@"')
    assert look(person).can_wrap
    broken.touch()
    with pytest.raises(SandboxError, match="did not run"):
        person.run("touch ran")
    done = person.cli("run", "--", "touch", "ran")
    assert done.returncode == 125
    assert "did not run" in done.stderr
    assert os.listdir(person.project) == []


def test_a_bwrap_that_hangs_after_it_was_tried_is_given_up(
    person: Person, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = person.home / "broken"
    fake(programs, f'test -e "{broken}" && exec sleep 1000\nexec {REAL} "$@"')
    assert look(person).can_wrap
    broken.touch()
    monkeypatch.setattr("ollmsandbox.sandbox.bubble._START_TIMEOUT", 0.5)
    with pytest.raises(SandboxError, match="did not run"):
        person.run("touch ran")
    assert os.listdir(person.project) == []


def test_a_bwrap_that_is_removed_after_it_was_tried_is_missed(
    person: Person, programs: Path
) -> None:
    person.environ["PATH"] = str(programs)
    file = fake(programs, f'exec {REAL} "$@"')
    assert look(person).can_wrap
    file.unlink()
    assert_nothing_runs(person)


# --- programs of the project -------------------------------------------------------------------


def planted(person: Person, *folders: Path) -> Path:
    """A bwrap that commands could have left in each of the folders; gives what tells of its use."""
    marker = person.home / "used"
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        fake(folder, f'touch "{marker}"\nexec {REAL} "$@"')
    return marker


@pytest.mark.ordinary
def test_a_bwrap_of_the_current_folder_is_not_used(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = planted(person, person.project, person.project / "programs", person.home)
    monkeypatch.chdir(person.project)
    usual = person.environ["PATH"]
    person.environ["PATH"] = f".::programs:./:..:{usual}"
    assert look(person).bwrap == REAL
    assert person.cli("run", "--", "true").returncode == 0
    # Alone, they count as missing.
    for entry in (".::programs:./:..", ""):
        person.environ["PATH"] = entry
        assert person.cli("run", "--", "true").returncode == 125
        assert missed(person) == {"bwrap"}
    assert not marker.exists()


def test_a_bwrap_of_the_project_or_the_playground_is_not_used(person: Person) -> None:
    theirs = [person.project / "bin", person.playground / "bin"]
    marker = planted(person, *theirs)
    folder, program = person.home / "link", person.home / "programs"
    folder.symlink_to(person.project / "bin")
    program.mkdir()
    (program / "bwrap").symlink_to(person.project / "bin/bwrap")
    usual = person.environ["PATH"]
    for planted_one in (*theirs, folder, program):
        person.environ["PATH"] = f"{planted_one}:{usual}"
        assert person.run("true").exit_code == 0
    assert person.cli("run", "--", "true").returncode == 0
    person.environ["PATH"] = f"{person.project}/bin"
    with pytest.raises(SandboxError, match="bubblewrap is not installed"):
        person.run("true")
    assert not marker.exists()


def test_a_bwrap_of_the_playground_is_not_used_where_a_link_leads_there(person: Person) -> None:
    real = person.home / "elsewhere"
    marker = planted(person, real / "ollmchat/playground/bin")
    (person.home / ".local").mkdir()
    (person.home / ".local/share").symlink_to(real)
    for folder in (person.playground, real / "ollmchat/playground"):
        person.environ["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
        assert person.run("true").exit_code == 0
        assert not marker.exists()


# --- surroundings ------------------------------------------------------------------------------


def test_in_a_flatpak_nothing_runs_and_the_remedy_is_named(person: Person, programs: Path) -> None:
    tried = person.home / "tried"
    fake(programs, f'touch "{tried}"\nexec {REAL} "$@"')
    person.environ["FLATPAK_ID"] = "org.example.App"
    found = look(person)
    assert found.surroundings == "flatpak"
    assert [miss.key for miss in found.missing] == ["surroundings"]
    said = assert_nothing_runs(person)
    assert "Flatpak" in said
    assert "without Flatpak" in said
    assert not tried.exists()


@pytest.mark.ordinary
def test_leaving_the_flatpak_is_noticed(person: Person) -> None:
    person.environ["FLATPAK_ID"] = "org.example.App"
    assert not look(person).can_wrap
    del person.environ["FLATPAK_ID"]
    assert look(person).can_wrap
    person.environ["FLATPAK_ID"] = "org.example.App"
    assert not look(person).can_wrap


@pytest.mark.ordinary
def test_a_container_is_recognised_by_its_variable() -> None:
    assert find_surroundings({"container": "podman"}) in ("container", "bubblewrap")
    assert find_surroundings({"FLATPAK_ID": "x", "container": "flatpak"}) == "flatpak"


def test_a_container_is_recognised_by_what_it_hides_in_proc(person: Person) -> None:
    script = 'mount -t tmpfs none /proc/driver && exec "$@"'
    around = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = person.cli("doctor", around=around)
    assert "The container or sandbox around this program" in done.stdout, done.stdout


# --- what is not needed ------------------------------------------------------------------------


def test_a_systemd_that_does_not_answer_is_not_needed(person: Person, programs: Path) -> None:
    program = programs / "systemd-run"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    found = look(person)
    assert found.can_wrap
    assert found.systemd_run == ""
    told = next(finding for finding in found.findings if finding.key == "systemd")
    assert (told.ok, told.needed) == (False, False)
    assert told.cause
    assert told.remedy


def test_a_memory_limit_is_held_by_systemd_where_it_answers(person: Person, programs: Path) -> None:
    """The fake does what systemd-run does: it starts what follows its own options."""
    calls = person.home / "calls"
    program = programs / "systemd-run"
    program.write_text(
        f'#!/bin/sh\necho "$*" >>"{calls}"\n'
        'while :; do case "$1" in -p) shift 2;; --) shift; break;; -*) shift;; *) break;; esac\n'
        'done\nexec "$@"\n'
    )
    program.chmod(0o755)
    person.environ |= {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/x", "XDG_RUNTIME_DIR": ""}
    assert look(person).systemd_run == str(program)
    calls.unlink()
    assert person.run("true").exit_code == 0
    assert not calls.exists()
    with_profile(person, "limits: {memory: 100 MiB}")
    result = person.run("env; exit 3", profile="mine")
    assert result.exit_code == 3
    assert "DBUS" not in result.stdout.text
    assert f"MemoryMax={100 << 20}" in calls.read_text()
