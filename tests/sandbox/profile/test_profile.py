# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles: the built-in files, and what a user's own file changes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.profile import load, write

from ollmsandbox.errors import ProfileError, SandboxError
from ollmsandbox.sandbox import seccomp
from ollmsandbox.sandbox.profile.file import _load, profile_names, read_profile
from ollmsandbox.sandbox.profile.profile import Limits, Profile
from ollmsandbox.sandbox.seccomp import FilterRules

pytestmark = pytest.mark.ordinary

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
HALF = pytest.approx(MEMORY / 2, rel=0.01)
# By the built-in profiles.
ALWAYS_SET = {"GIT_OPTIONAL_LOCKS": "0", "RUSTUP_PERMIT_COPY_RENAME": "1"}


# --- what comes with the program ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["standard", "strict"])
def test_the_built_in_profiles_need_no_file_of_the_user(name: str, tmp_path: Path) -> None:
    found = read_profile(name, tmp_path / "nowhere")
    assert found.name == name
    assert found.description
    assert {"~/.ssh", "~/.gnupg", "~/.aws", "/etc/shadow"} <= set(found.hidden)
    assert None not in (found.limits.time, found.limits.processes, found.limits.disk)
    assert not found.own_memory_limit


def test_strict_hides_all_that_standard_hides_and_allows_less(folder: Path) -> None:
    standard = read_profile("standard", folder)
    strict = read_profile("strict", folder)
    assert set(standard.hidden) <= set(strict.hidden)
    assert set(standard.environment_drop) <= set(strict.environment_drop)
    assert standard.unix_sockets
    assert not strict.unix_sockets
    assert "ptrace" in strict.deny_syscalls
    assert (strict.limits.time, standard.limits.time) == (300, 600)
    assert (strict.limits.max_time, standard.limits.max_time) == (900, 3600)
    for name in ("processes", "disk", "memory", "tmp"):
        assert getattr(strict.limits, name) < getattr(standard.limits, name)


def test_the_choice_is_the_built_in_profiles_and_the_user_s(folder: Path) -> None:
    write(folder, "zebra", "")
    (folder / "notes.txt").write_text("not a profile")
    assert profile_names(folder) == ["standard", "strict", "zebra"]
    assert profile_names(folder / "missing") == ["standard", "strict"]


# --- the user's own files --------------------------------------------------------------------


def test_a_file_of_the_same_name_adds_to_the_built_in_one(folder: Path) -> None:
    before = read_profile("standard", folder)
    after = load(
        folder,
        """
        description: Mine.
        masks: [~/letters, ~/.ssh]
        environment:
          drop: [MY_*]
          set: {EDITOR: cat}
        limits: {time: 5 s}
        deny_syscalls: [ptrace]
        run: [/run/something]
        """,
        "standard",
    )
    assert after.name == "standard"
    assert after.description == "Mine."
    assert after.masks == (*before.masks, "~/letters")
    assert after.environment_drop == (*before.environment_drop, "MY_*")
    assert after.environment_set == (*before.environment_set, ("EDITOR", "cat"))
    assert after.deny_syscalls == ("ptrace",)
    assert after.run == (*before.run, "/run/something")
    assert after.limits.time == 5
    assert after.limits.disk == before.limits.disk


@pytest.mark.parametrize("text", ["limits: {time: 1 h}", "", "# only a remark\n", "---\n"])
def test_a_profile_of_the_user_extends_standard(folder: Path, text: str) -> None:
    standard = read_profile("standard", folder)
    found = load(folder, text)
    assert found.name == "mine"
    assert found.hidden == standard.hidden
    assert found.environment_drop == standard.environment_drop
    assert found.limits.time == (3600 if text.startswith("limits") else 600)


def test_strict_can_be_added_to_and_extended(folder: Path) -> None:
    found = load(folder, "limits: {processes: 7}", "strict")
    assert (found.limits.processes, found.limits.time, found.unix_sockets) == (7, 300, False)
    (folder / "strict.yaml").unlink()
    # Wherever in the file it says so.
    found = load(folder, "limits: {time: 7}\nunix_sockets: allow\nextends: strict")
    assert (found.limits.processes, found.limits.time, found.unix_sockets) == (512, 7, True)
    assert "ptrace" in found.deny_syscalls
    assert not load(folder, "unix_sockets: deny").unix_sockets


def test_paths_under_show_are_unmasked_and_nothing_else(folder: Path) -> None:
    standard = read_profile("standard", folder)
    found = load(folder, "show: [~/.npmrc]")
    assert set(standard.hidden) - set(found.hidden) == {"~/.npmrc"}


def test_the_playground_can_be_shared(folder: Path) -> None:
    assert not load(folder, "").shared_playground
    write(folder, "standard", "playground: shared")
    assert load(folder, "").shared_playground
    assert not load(folder, "playground: separate").shared_playground


def test_a_profile_can_be_read_without_libseccomp(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a Flatpak its other settings are used without a filter of ours.
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    found = load(folder, "deny_syscalls: [ptrace]")
    assert found.deny_syscalls == ("ptrace",)
    with pytest.raises(SandboxError, match="cannot be built"):
        seccomp.open_filter(FilterRules.of(found, network=False), tmp_path)


# --- changes while the program runs, and between its runs --------------------------------------


@pytest.fixture(params=[False, True], ids=["read", "kept"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Return the file that caches a profile, if it exists."""
    return tmp_path / "cache" if request.param else None


def time_of(name: str, folder: Path, cache: Path | None) -> float | None:
    return read_profile(name, folder, cache).limits.time


def test_a_change_of_the_file_is_seen_by_the_next_load(folder: Path, cache: Path | None) -> None:
    for seconds in (11, 12, 11):
        write(folder, "mine", f"limits: {{time: {seconds}}}")
        assert time_of("mine", folder, cache) == seconds
    write(folder, "mine", "limits: {time: soon}")
    with pytest.raises(ProfileError):
        read_profile("mine", folder, cache)
    write(folder, "mine", "limits: {time: 2}")
    assert time_of("mine", folder, cache) == 2


def test_a_new_file_and_its_removal_are_seen_by_the_next_load(
    folder: Path, cache: Path | None
) -> None:
    assert time_of("standard", folder, cache) == 600
    file = write(folder, "standard", "limits: {time: 9}")
    assert time_of("standard", folder, cache) == 9
    file.unlink()
    assert time_of("standard", folder, cache) == 600


@pytest.mark.parametrize("name", ["mine", "strict"])
def test_a_change_of_an_extended_profile_is_seen_by_the_next_load(
    folder: Path, cache: Path | None, name: str
) -> None:
    write(folder, "mine", "description: Mine.")
    assert "~/letters" not in read_profile(name, folder, cache).hidden
    write(folder, "standard", "masks: [~/letters]")
    assert "~/letters" in read_profile(name, folder, cache).hidden
    write(folder, "standard", "masks: [~/diaries]")
    assert "~/diaries" in read_profile(name, folder, cache).hidden


def test_the_cache_equals_what_was_read(folder: Path, tmp_path: Path) -> None:
    write(
        folder,
        "mine",
        "masks: [~/ü]\nenvironment: {set: {A: b, C: d}}\nlimits: {time: none, memory: 1 GiB}",
    )
    for name in ("standard", "strict", "mine"):
        read = read_profile(name, folder)
        assert read_profile(name, folder, tmp_path / "cache") == read
        # As another start of the program would find it.
        _load.cache_clear()
        assert read_profile(name, folder, tmp_path / "cache") == read


def test_a_cache_of_another_architecture_is_read_anew(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A home folder that several machines share.
    write(folder, "mine", "deny_syscalls: [ptrace]")
    read_profile("mine", folder, tmp_path / "cache")
    monkeypatch.setattr("ollmsandbox.sandbox.profile.file.find_call", lambda _name: None)
    here = os.uname()
    there = os.uname_result((*here[:4], f"not {here.machine}"))
    monkeypatch.setattr(os, "uname", lambda: there)
    with pytest.raises(ProfileError, match="no system call 'ptrace'"):
        read_profile("mine", folder, tmp_path / "cache")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"versions": []}', "null", "\0"], ids=repr)
def test_a_damaged_cache_is_read_anew(folder: Path, tmp_path: Path, content: str) -> None:
    cache = tmp_path / "cache"
    before = read_profile("strict", folder, cache)
    for file in cache.iterdir():
        file.write_text(content)
    _load.cache_clear()
    assert read_profile("strict", folder, cache) == before


# --- units -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((f"time: {given}", {"time": 90}) for given in ("90", "90s", "90 s", "1.5 min")),
        *((f"disk: {given}", {"disk": 3 << 10}) for given in ("3072", "3072 B", "3KiB", "3 kib")),
        (
            "time: 2 H, free: 0.5 MiB, memory: 2 GiB, tmp: 1 TiB, processes: 12",
            {"time": 7200, "free": 1 << 19, "memory": 2 << 30, "tmp": 1 << 40, "processes": 12},
        ),
        ("memory: 50%, tmp: 50%", dict.fromkeys(("memory", "tmp"), HALF)),
        (", ".join(f"{key}: none" for key in Limits._fields), dict.fromkeys(Limits._fields)),
    ],
)
def test_limits_have_units(folder: Path, text: str, expected: dict[str, float | None]) -> None:
    found = load(folder, f"limits: {{{text}}}")
    assert {key: getattr(found.limits, key) for key in expected} == expected
    # One of the user's own is held more strictly.
    assert found.own_memory_limit is (expected.get("memory") is not None)


def test_the_memory_limit_of_a_built_in_profile_is_not_the_user_s_own(folder: Path) -> None:
    (folder / "standard.yaml").write_text("limits: {memory: 1 GiB}\n")
    assert read_profile("standard", folder).own_memory_limit
    strict = read_profile("strict", folder)
    assert strict.limits.memory == HALF
    assert not strict.own_memory_limit


@pytest.mark.parametrize(
    ("text", "usual", "most"),
    [
        ("processes: 7", 600, 3600),
        # Whoever sets a limit does not expect a model to get more.
        ("time: 20 s", 20, 20),
        ("time: 20 s, max_time: 1 min", 20, 60),
        ("max_time: 1 min", 60, 60),
        ("max_time: none", 600, None),
        ("time: none", None, None),
        ("time: 2 min, max_time: 1 min", 60, 60),
    ],
)
def test_the_default_and_the_most_time(
    folder: Path, text: str, usual: int | None, most: int | None
) -> None:
    limits = load(folder, f"limits: {{{text}}}").limits
    assert (limits.time, limits.max_time) == (usual, most)


# --- environment -------------------------------------------------------------------------------

SECRET = (
    *("GITHUB_TOKEN", "github_token", "Api_Key", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD"),
    *("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY"),
    *("XDG_RUNTIME_DIR", "LD_PRELOAD", "TMPDIR", "A\nB_TOKEN", "B_TOKEN\nX_KEY"),
)


def test_variables_that_carry_secrets_are_dropped_whatever_their_case(folder: Path) -> None:
    plain = {"PATH": "/bin", "HOME": "/h", "LANG": "C", "EDITOR": "vi", "KEYBOARD": "de"}
    found = read_profile("standard", folder).environment(dict.fromkeys(SECRET, "x") | plain)
    assert found == plain | ALWAYS_SET


@pytest.mark.parametrize(
    ("rules", "given", "expected"),
    [
        # A kept variable is kept although a pattern drops it.
        (
            "drop: [MY_*], keep: [my_own_token, CI_*]",
            {"MY_OWN_TOKEN": "1", "MY_OTHER": "2", "CI_TOKEN": "3", "GH_TOKEN": "4", "A": "5"},
            {"MY_OWN_TOKEN": "1", "CI_TOKEN": "3", "A": "5"},
        ),
        # A set variable is set even if a pattern drops it.
        (
            "set: {API_KEY: dummy, NUMBER: 1, EMPTY: ''}",
            {"API_KEY": "real", "NUMBER": "0"},
            {"API_KEY": "dummy", "NUMBER": "1", "EMPTY": ""},
        ),
        # Names are matched as a whole.
        (
            "drop: ['ONE', 'T?O', 'TH[RX]EE']",
            dict.fromkeys(("ONE", "ONES", "NONE", "TWO", "TOO", "THREE", "THYEE"), "x"),
            dict.fromkeys(("ONES", "NONE", "THYEE"), "x"),
        ),
    ],
    ids=["keep", "set", "drop"],
)
def test_variables_that_a_profile_names(
    folder: Path, rules: str, given: dict[str, str], expected: dict[str, str]
) -> None:
    found = load(folder, f"environment: {{{rules}}}")
    assert found.environment(given) == expected | ALWAYS_SET


def test_a_variable_set_twice_has_the_last_value(folder: Path) -> None:
    write(folder, "standard", "environment: {set: {EDITOR: vi, PAGER: less}}")
    found = load(folder, "environment: {set: {EDITOR: cat}}")
    assert found.environment({}) == ALWAYS_SET | {"EDITOR": "cat", "PAGER": "less"}


def test_a_profile_without_patterns_drops_nothing() -> None:
    given = {"API_KEY": "real", "A": "b"}
    assert Profile("empty").environment(given) == given
