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
from ollmsandbox.sandbox.profile.profile import Profile
from ollmsandbox.sandbox.seccomp import FilterRules

pytestmark = pytest.mark.anybody

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
# By the built-in profiles.
ALWAYS_SET = {"GIT_OPTIONAL_LOCKS": "0", "RUSTUP_PERMIT_COPY_RENAME": "1"}


# --- what comes with the program ---------------------------------------------------------------


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


def test_a_file_named_strict_adds_to_strict(folder: Path) -> None:
    found = load(folder, "limits: {processes: 7}", "strict")
    assert found.limits.processes == 7
    assert not found.unix_sockets
    assert found.limits.time == 300


def test_a_change_of_standard_is_in_strict_too(folder: Path) -> None:
    write(folder, "standard", "masks: [~/letters]")
    assert "~/letters" in read_profile("strict", folder).hidden


def test_a_profile_of_the_user_extends_standard(folder: Path) -> None:
    standard = read_profile("standard", folder)
    found = load(folder, "limits: {time: 1 h}")
    assert found.name == "mine"
    assert found.hidden == standard.hidden
    assert found.environment_drop == standard.environment_drop
    assert found.limits.time == 3600


@pytest.mark.parametrize("text", ["", "# only a remark\n", "---\n"])
def test_an_empty_file_is_standard_under_another_name(folder: Path, text: str) -> None:
    found = load(folder, text)
    assert found.name == "mine"
    assert found.hidden == read_profile("standard", folder).hidden


def test_a_profile_can_extend_strict(folder: Path) -> None:
    found = load(folder, "extends: strict\nlimits: {time: 10 min}")
    assert not found.unix_sockets
    assert found.limits.time == 600
    assert found.limits.processes == 512


def test_extends_counts_anywhere_in_the_file(folder: Path) -> None:
    found = load(folder, "limits: {time: 7}\nunix_sockets: allow\nextends: strict")
    assert found.unix_sockets
    assert found.limits.time == 7
    assert "ptrace" in found.deny_syscalls


def test_paths_under_show_are_unmasked_and_nothing_else(folder: Path) -> None:
    standard = read_profile("standard", folder)
    found = load(folder, "show: [~/.npmrc]")
    assert set(standard.hidden) - set(found.hidden) == {"~/.npmrc"}


def test_a_variable_set_twice_has_the_last_value(folder: Path) -> None:
    write(folder, "standard", "environment: {set: {EDITOR: vi, PAGER: less}}")
    found = load(folder, "environment: {set: {EDITOR: cat}}")
    assert found.environment({}) == ALWAYS_SET | {"EDITOR": "cat", "PAGER": "less"}


def test_unix_sockets_can_be_denied_and_allowed(folder: Path) -> None:
    assert not load(folder, "unix_sockets: deny").unix_sockets
    assert load(folder, "extends: strict\nunix_sockets: allow").unix_sockets


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


def test_a_new_mistake_is_seen_by_the_next_load(folder: Path, cache: Path | None) -> None:
    write(folder, "mine", "limits: {time: 1}")
    assert time_of("mine", folder, cache) == 1
    write(folder, "mine", "limits: {time: soon}")
    with pytest.raises(ProfileError):
        read_profile("mine", folder, cache)
    write(folder, "mine", "limits: {time: 2}")
    assert time_of("mine", folder, cache) == 2


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
    ("given", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("90 s", 90),
        ("1.5 min", 90),
        ("2 h", 7200),
        ("2 H", 7200),
        ("none", None),
    ],
)
def test_times_have_units(folder: Path, given: str, seconds: float | None) -> None:
    assert load(folder, f"limits: {{time: {given}}}").limits.time == seconds


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ("4096", 4096),
        ("4096 B", 4096),
        ("3 KiB", 3 << 10),
        ("3KiB", 3 << 10),
        ("3 kib", 3 << 10),
        ("0.5 MiB", 1 << 19),
        ("2 GiB", 2 << 30),
        ("1 TiB", 1 << 40),
        ("none", None),
    ],
)
@pytest.mark.parametrize("key", ["disk", "free", "memory", "tmp"])
def test_sizes_have_units(folder: Path, key: str, given: str, size: int | None) -> None:
    assert getattr(load(folder, f"limits: {{{key}: {given}}}").limits, key) == size


@pytest.mark.parametrize("key", ["memory", "tmp"])
def test_a_share_of_the_memory_is_given_in_percent(folder: Path, key: str) -> None:
    found = getattr(load(folder, f"limits: {{{key}: 50%}}").limits, key)
    assert found == pytest.approx(MEMORY / 2, rel=0.01)


def test_processes_are_counted_without_a_unit(folder: Path) -> None:
    assert load(folder, "limits: {processes: 12}").limits.processes == 12
    assert load(folder, "limits: {processes: none}").limits.processes is None


def test_only_a_memory_limit_of_the_user_is_marked_as_theirs(folder: Path) -> None:
    assert load(folder, "limits: {memory: 1 GiB}").own_memory_limit
    assert not load(folder, "limits: {memory: none}").own_memory_limit
    assert not load(folder, "limits: {tmp: 1 GiB}").own_memory_limit


# --- mistakes ----------------------------------------------------------------------------------
# --- environment -------------------------------------------------------------------------------


def test_variables_that_carry_secrets_are_dropped_whatever_their_case(folder: Path) -> None:
    secret = {
        "GITHUB_TOKEN": "x",
        "github_token": "x",
        "Api_Key": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "PGPASSWORD": "x",
        "SSH_AUTH_SOCK": "x",
        "DBUS_SESSION_BUS_ADDRESS": "x",
        "DISPLAY": "x",
        "WAYLAND_DISPLAY": "x",
        "XDG_RUNTIME_DIR": "x",
        "LD_PRELOAD": "x",
        "TMPDIR": "x",
    }
    plain = {"PATH": "/bin", "HOME": "/h", "LANG": "C", "EDITOR": "vi", "KEYBOARD": "de"}
    found = read_profile("standard", folder).environment({**secret, **plain})
    assert found == plain | ALWAYS_SET


def test_a_kept_variable_is_kept_although_a_pattern_drops_it(folder: Path) -> None:
    found = load(folder, "environment: {drop: [MY_*], keep: [my_own_token, CI_*]}")
    given = {"MY_OWN_TOKEN": "1", "MY_OTHER": "2", "CI_TOKEN": "3", "GH_TOKEN": "4", "A": "5"}
    kept = {"MY_OWN_TOKEN": "1", "CI_TOKEN": "3", "A": "5"}
    assert found.environment(given) == kept | ALWAYS_SET


def test_a_set_variable_is_set_even_if_a_pattern_drops_it(folder: Path) -> None:
    found = load(folder, "environment: {set: {API_KEY: dummy, NUMBER: 1, EMPTY: ''}}")
    given = {"API_KEY": "real", "NUMBER": "0"}
    made = {"API_KEY": "dummy", "NUMBER": "1", "EMPTY": ""}
    assert found.environment(given) == made | ALWAYS_SET


def test_a_profile_without_patterns_drops_nothing() -> None:
    given = {"API_KEY": "real", "A": "b"}
    assert Profile("empty").environment(given) == given


def test_names_are_matched_as_a_whole(folder: Path) -> None:
    found = load(folder, "environment: {drop: ['ONE', 'T?O', 'TH[RX]EE']}")
    given = dict.fromkeys(("ONE", "ONES", "NONE", "TWO", "TOO", "THREE", "THYEE"), "x")
    assert found.environment(given).keys() - ALWAYS_SET == {"ONES", "NONE", "THYEE"}


def test_a_name_with_a_line_break_is_matched_too(folder: Path) -> None:
    found = read_profile("standard", folder)
    assert found.environment({"A\nB_TOKEN": "x", "B_TOKEN\nX_KEY": "x"}) == ALWAYS_SET
