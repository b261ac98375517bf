# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles: what the files say, what a person's own file changes, and how mistakes are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ollmsandbox.errors import ProfileError
from ollmsandbox.sandbox import profile_file
from ollmsandbox.sandbox.profile import Profile

pytestmark = pytest.mark.anybody

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "profiles"
    made.mkdir()
    return made


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def load(folder: Path, text: str, name: str = "mine") -> Profile:
    write(folder, name, text)
    return profile_file.load(name, folder)


def mistake(folder: Path, text: str, name: str = "mine") -> str:
    """The message about it, without the file's name, which it must begin with."""
    file = write(folder, name, text)
    with pytest.raises(ProfileError) as caught:
        profile_file.load(name, folder)
    message = str(caught.value)
    assert message.startswith(f"{file}, line ")
    return message.removeprefix(f"{file}, ")


# --- what comes with the program ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["standard", "strict"])
def test_the_built_in_profiles_can_be_loaded_without_any_file_of_the_person(
    name: str, tmp_path: Path
) -> None:
    found = profile_file.load(name, tmp_path / "nowhere")
    assert found.name == name
    assert found.description
    assert {"~/.ssh", "~/.gnupg", "~/.aws", "/etc/shadow"} <= set(found.hidden)
    assert None not in (found.limits.time, found.limits.processes, found.limits.disk)
    assert not found.own_memory_limit


def test_strict_hides_all_that_standard_hides_and_allows_less(folder: Path) -> None:
    standard = profile_file.load("standard", folder)
    strict = profile_file.load("strict", folder)
    assert set(standard.hidden) <= set(strict.hidden)
    assert set(standard.environment_drop) <= set(strict.environment_drop)
    assert standard.unix_sockets
    assert not strict.unix_sockets
    assert "ptrace" in strict.deny_syscalls
    assert (strict.limits.time, standard.limits.time) == (300, 600)
    for name in ("processes", "disk", "memory", "tmp"):
        assert getattr(strict.limits, name) < getattr(standard.limits, name)


def test_the_choice_is_what_is_built_in_and_what_the_person_wrote(folder: Path) -> None:
    write(folder, "zebra", "")
    (folder / "notes.txt").write_text("not a profile")
    assert profile_file.available(folder) == ["standard", "strict", "zebra"]
    assert profile_file.available(folder / "missing") == ["standard", "strict"]


# --- the person's own files --------------------------------------------------------------------


def test_a_file_of_the_same_name_adds_to_the_built_in_one(folder: Path) -> None:
    before = profile_file.load("standard", folder)
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
    assert after.environment_set == (("EDITOR", "cat"),)
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
    assert "~/letters" in profile_file.load("strict", folder).hidden


def test_a_profile_of_the_persons_own_stands_on_standard(folder: Path) -> None:
    standard = profile_file.load("standard", folder)
    found = load(folder, "limits: {time: 1 h}")
    assert found.name == "mine"
    assert found.hidden == standard.hidden
    assert found.environment_drop == standard.environment_drop
    assert found.limits.time == 3600


@pytest.mark.parametrize("text", ["", "# only a remark\n", "---\n"])
def test_an_empty_file_is_standard_under_another_name(folder: Path, text: str) -> None:
    found = load(folder, text)
    assert found.name == "mine"
    assert found.hidden == profile_file.load("standard", folder).hidden


def test_a_profile_can_extend_strict(folder: Path) -> None:
    found = load(folder, "extends: strict\nlimits: {time: 10 min}")
    assert not found.unix_sockets
    assert found.limits.time == 600
    assert found.limits.processes == 512


def test_extends_counts_wherever_it_stands(folder: Path) -> None:
    found = load(folder, "limits: {time: 7}\nunix_sockets: allow\nextends: strict")
    assert found.unix_sockets
    assert found.limits.time == 7
    assert "ptrace" in found.deny_syscalls


def test_what_is_named_under_show_is_seen_again_and_nothing_else(folder: Path) -> None:
    standard = profile_file.load("standard", folder)
    found = load(folder, "show: [~/.npmrc]")
    assert set(standard.hidden) - set(found.hidden) == {"~/.npmrc"}


def test_a_variable_set_twice_has_the_last_value(folder: Path) -> None:
    write(folder, "standard", "environment: {set: {EDITOR: vi, PAGER: less}}")
    found = load(folder, "environment: {set: {EDITOR: cat}}")
    assert found.environment({}) == {"EDITOR": "cat", "PAGER": "less"}


def test_unix_sockets_can_be_denied_and_allowed(folder: Path) -> None:
    assert not load(folder, "unix_sockets: deny").unix_sockets
    assert load(folder, "extends: strict\nunix_sockets: allow").unix_sockets


# --- changes while the program runs, and between its runs --------------------------------------


@pytest.fixture(params=[False, True], ids=["read", "kept"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Where what was read is kept for the next run, if it is."""
    return tmp_path / "cache" if request.param else None


def time_of(name: str, folder: Path, cache: Path | None) -> float | None:
    return profile_file.load(name, folder, cache).limits.time


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
def test_a_change_of_the_profile_it_stands_on_is_seen_by_the_next_load(
    folder: Path, cache: Path | None, name: str
) -> None:
    write(folder, "mine", "description: Mine.")
    assert "~/letters" not in profile_file.load(name, folder, cache).hidden
    write(folder, "standard", "masks: [~/letters]")
    assert "~/letters" in profile_file.load(name, folder, cache).hidden
    write(folder, "standard", "masks: [~/diaries]")
    assert "~/diaries" in profile_file.load(name, folder, cache).hidden


def test_a_new_mistake_is_seen_by_the_next_load(folder: Path, cache: Path | None) -> None:
    write(folder, "mine", "limits: {time: 1}")
    assert time_of("mine", folder, cache) == 1
    write(folder, "mine", "limits: {time: soon}")
    with pytest.raises(ProfileError):
        profile_file.load("mine", folder, cache)
    write(folder, "mine", "limits: {time: 2}")
    assert time_of("mine", folder, cache) == 2


def test_what_was_kept_is_what_was_read(folder: Path, tmp_path: Path) -> None:
    write(
        folder,
        "mine",
        "masks: [~/ü]\nenvironment: {set: {A: b, C: d}}\nlimits: {time: none, memory: 1 GiB}",
    )
    for name in ("standard", "strict", "mine"):
        read = profile_file.load(name, folder)
        assert profile_file.load(name, folder, tmp_path / "cache") == read
        # As another start of the program would find it.
        profile_file._load.cache_clear()
        assert profile_file.load(name, folder, tmp_path / "cache") == read


@pytest.mark.parametrize("content", ["", "{", "[]", '{"versions": []}', "null", "\0"], ids=repr)
def test_what_was_kept_and_is_damaged_is_read_anew(
    folder: Path, tmp_path: Path, content: str
) -> None:
    cache = tmp_path / "cache"
    before = profile_file.load("strict", folder, cache)
    for file in cache.iterdir():
        file.write_text(content)
    profile_file._load.cache_clear()
    assert profile_file.load("strict", folder, cache) == before


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


def test_only_a_memory_limit_of_the_persons_own_is_marked_as_theirs(folder: Path) -> None:
    assert load(folder, "limits: {memory: 1 GiB}").own_memory_limit
    assert not load(folder, "limits: {memory: none}").own_memory_limit
    assert not load(folder, "limits: {tmp: 1 GiB}").own_memory_limit


# --- mistakes ----------------------------------------------------------------------------------

MISTAKES = {
    "an unknown key with one like it": (
        "description: x\nmaks: []",
        ("line 2, key maks: there is no such key", "did you mean 'masks'?"),
    ),
    "an unknown key with none like it": (
        "colour: red",
        ("line 1, key colour: there is no such key", "known are", "extends", "masks", "limits"),
    ),
    "an unknown limit": (
        "limits:\n  time: 1\n  tiem: 1",
        ("line 3, key limits.tiem", "did you mean 'time'?"),
    ),
    "an unknown key of the environment": (
        "environment:\n  sett: {}",
        ("line 2, key environment.sett", "did you mean 'set'?"),
    ),
    "a text in place of a list": ("masks: ~/x", ("line 1, key masks: expected a list",)),
    "nothing in place of a list": ("masks:", ("line 1, key masks: expected a list",)),
    "a list in place of a text": (
        "description: [a]",
        ("line 1, key description: expected a text",),
    ),
    "nothing in place of a text": (
        "description:",
        ("line 1, key description: expected a text",),
    ),
    "a list in a list": ("masks:\n  - [~/x]", ("line 2, key masks: expected a text",)),
    "a list in place of keys": (
        "limits:\n  - 5",
        ("line 2, key limits: expected keys with values",),
    ),
    "a list in place of everything": ("- masks", ("line 1: expected keys with values",)),
    "a text in place of everything": ("masks", ("line 1: expected keys with values",)),
    "a key that is a list": ("? [a, b]\n: c", ("line 1: expected a text",)),
    "a key that stands there twice": (
        "masks: []\nshow: []\nmasks: []",
        ("line 3", "'masks' stands here twice"),
    ),
    "a limit that stands there twice": (
        "limits:\n  time: 1\n  time: 2",
        ("line 3, key limits", "'time' stands here twice"),
    ),
    "a unit of something else": (
        "limits:\n  time: 5 MiB",
        ("line 2, key limits.time", "expected a number with s, min, h", "'5 MiB'"),
    ),
    "a unit that is not one": (
        "limits:\n  disk: 5 GB",
        ("line 2, key limits.disk", "kib, mib, gib, tib", "'5 GB'"),
    ),
    "percent of a disk": ("limits:\n  disk: 5%", ("line 2, key limits.disk", "'5%'")),
    "a word in place of a number": ("limits: {time: soon}", ("key limits.time", "'soon'")),
    "a limit of nothing": ("limits: {time: 0}", ("key limits.time", "'0'")),
    "a negative limit": ("limits: {time: -5}", ("key limits.time", "'-5'")),
    "a limit that is not a number": ("limits: {time: .nan}", ("key limits.time", "'.nan'")),
    "a unit of processes": ("limits: {processes: 5 s}", ("key limits.processes", "'5 s'")),
    "a list as a limit": ("limits: {time: [5]}", ("key limits.time: expected a text",)),
    "a relative mask": (
        "masks:\n  - ~/x\n  - secrets",
        ("line 3, key masks", "'secrets' is not a full path"),
    ),
    "a mask with a step up": ("masks: [~/../x]", ("key masks", "'~/../x'")),
    "a mask with a slash at its end": ("masks: [~/x/]", ("key masks", "'~/x/'")),
    "a mask of another's home": ("masks: [~root/x]", ("key masks", "'~root/x'")),
    "a mask of everything": ("masks: [/]", ("key masks", "'/'")),
    "a mask of the whole home": ("masks: ['~']", ("key masks", "'~'")),
    "a relative path to show": ("show: [x]", ("key show", "'x' is not a full path")),
    "a path of run that lies elsewhere": (
        "run: [/etc/x]",
        ("key run", "'/etc/x' is not below /run"),
    ),
    "another word for sockets": (
        "unix_sockets: maybe",
        ("key unix_sockets", "expected allow or deny, found 'maybe'"),
    ),
    "a system call with a strange name": (
        "deny_syscalls: [rm -rf]",
        ("key deny_syscalls", "'rm -rf' is not a system call's name"),
    ),
    "a variable with a strange name": (
        "environment:\n  set:\n    A-B: c",
        ("line 3, key environment.set", "'A-B' is not a variable's name"),
    ),
    "a variable without a value": (
        "environment:\n  set:\n    AB:",
        ("line 3, key environment.set.AB", "expected a text"),
    ),
    "extending itself": (
        "description: x\nextends: mine",
        ("line 2, key extends: a profile cannot extend itself",),
    ),
    "extending what is not there": (
        "extends: nothing",
        ("line 1, key extends", "there is no built-in profile 'nothing'"),
    ),
    "extending a file elsewhere": (
        "extends: ../../x",
        ("line 1, key extends", "there is no built-in profile"),
    ),
    "a bracket that is not closed": ("masks: [~/x\nlimits: {}", ("line ",)),
    "a tab": ("limits:\n\ttime: 5", ("line 2",)),
    "an alias of nothing": ("masks: *nothing", ("line 1", "alias")),
    "two documents": ("masks: []\n---\nmasks: []", ("line 2",)),
}


@pytest.mark.parametrize(("text", "told"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_told_with_file_line_and_key(
    folder: Path, text: str, told: tuple[str, ...]
) -> None:
    message = mistake(folder, text)
    for part in told:
        assert part in message


def test_a_suggestion_is_a_question_and_ends_as_one(folder: Path) -> None:
    assert mistake(folder, "maks: []").endswith("did you mean 'masks'?")


def test_standard_cannot_extend_strict_which_stands_on_it(folder: Path) -> None:
    message = mistake(folder, "extends: strict", "standard")
    assert "line 1, key extends" in message


def test_a_built_in_name_cannot_extend_itself(folder: Path) -> None:
    assert "cannot extend itself" in mistake(folder, "extends: strict", "strict")


def test_a_mistake_in_the_file_it_stands_on_names_that_file(folder: Path) -> None:
    broken = write(folder, "standard", "maks: []")
    write(folder, "mine", "limits: {time: 1}")
    with pytest.raises(ProfileError) as caught:
        profile_file.load("mine", folder)
    assert str(caught.value).startswith(f"{broken}, line 1, key maks")


def test_nothing_in_a_file_is_executed(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    with pytest.raises(ProfileError):
        load(folder, f"description: !!python/object/apply:os.mkdir ['{marker}']")
    load(folder, f"description: !!python/name:os.mkdir {marker}")
    assert not marker.exists()


def unreadable(file: Path, content: bytes) -> str:
    file.write_bytes(content)
    with pytest.raises(ProfileError) as caught:
        profile_file.load(file.stem, file.parent)
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"description: caf\xe9\n", b"\xff\xfed\x00", b"description: \x00\n", b"masks: \x1b[0m\n"],
    ids=["latin-1", "utf-16", "NUL", "escape"],
)
def test_a_file_that_is_not_text_is_a_mistake_that_names_it(folder: Path, content: bytes) -> None:
    assert str(folder / "mine.yaml") in unreadable(folder / "mine.yaml", content)


def test_a_folder_in_place_of_a_file_is_a_mistake_that_names_it(folder: Path) -> None:
    (folder / "mine.yaml").mkdir()
    with pytest.raises(ProfileError, match=r"mine\.yaml"):
        profile_file.load("mine", folder)


@pytest.mark.parametrize("depth", [500, 900, 3000])
@pytest.mark.parametrize("form", ["{open}", "masks: {open}{close}"], ids=["open", "closed"])
def test_a_file_of_endless_brackets_is_a_mistake_that_names_it(
    folder: Path, form: str, depth: int
) -> None:
    text = form.format(open="[" * depth, close="]" * depth)
    assert str(folder / "mine.yaml") in unreadable(folder / "mine.yaml", text.encode())


def test_an_unknown_name_lists_the_choice(folder: Path) -> None:
    write(folder, "mine", "")
    with pytest.raises(ProfileError) as caught:
        profile_file.load("other", folder)
    assert "There is no profile 'other'." in str(caught.value)
    assert "mine, standard, strict" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["../x", "", ".", "a/b", "/etc/passwd", "Standard", "a b", "-x", "x\n", "x\0", "ü", "a" * 65],
)
def test_a_name_that_could_be_a_path_is_no_name(folder: Path, name: str) -> None:
    (folder.parent / "x.yaml").write_text("")
    with pytest.raises(ProfileError, match="is not a profile name"):
        profile_file.load(name, folder)


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
    found = profile_file.load("standard", folder).environment({**secret, **plain})
    assert found == plain


def test_what_is_kept_is_kept_although_it_is_dropped(folder: Path) -> None:
    found = load(folder, "environment: {drop: [MY_*], keep: [my_own_token, CI_*]}")
    given = {"MY_OWN_TOKEN": "1", "MY_OTHER": "2", "CI_TOKEN": "3", "GH_TOKEN": "4", "A": "5"}
    assert found.environment(given) == {"MY_OWN_TOKEN": "1", "CI_TOKEN": "3", "A": "5"}


def test_what_is_set_is_set_even_if_its_name_is_dropped(folder: Path) -> None:
    found = load(folder, "environment: {set: {API_KEY: dummy, NUMBER: 1, EMPTY: ''}}")
    given = {"API_KEY": "real", "NUMBER": "0"}
    assert found.environment(given) == {"API_KEY": "dummy", "NUMBER": "1", "EMPTY": ""}


def test_a_profile_without_patterns_drops_nothing() -> None:
    given = {"API_KEY": "real", "A": "b"}
    assert Profile("empty").environment(given) == given


def test_names_are_matched_as_a_whole(folder: Path) -> None:
    found = load(folder, "environment: {drop: ['ONE', 'T?O', 'TH[RX]EE']}")
    given = dict.fromkeys(("ONE", "ONES", "NONE", "TWO", "TOO", "THREE", "THYEE"), "x")
    assert set(found.environment(given)) == {"ONES", "NONE", "THYEE"}


def test_a_name_with_a_line_break_is_matched_too(folder: Path) -> None:
    found = profile_file.load("standard", folder)
    assert found.environment({"A\nB_TOKEN": "x", "B_TOKEN\nX_KEY": "x"}) == {}
