# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistyped arguments and unusual surroundings are reported in one sentence."""

from __future__ import annotations

import json
import os

import pytest
from support.cli_inline import Done, cli_here
from support.person import Person, make_person

pytestmark = pytest.mark.ordinary

# What sqlite, and UTF-8, cannot hold.
_NO_TEXT = "a\udcff\udcfeb"


def assert_refused(done: Done, *told: str, code: int = 125) -> None:
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    for text in told:
        assert text in done.stderr


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["changes", "--nonsense"], "ollmsandbox changes"),
        (["run", "--nonsense", "--", "true"], "ollmsandbox run"),
        (["history", "word"], "ollmsandbox history"),
        (["sessions", "list", "word"], "ollmsandbox sessions list"),
        (["rootfs", "status", "--nonsense"], "ollmsandbox rootfs status"),
    ],
)
def test_an_unknown_argument_prints_the_usage_of_that_command(
    person: Person, arguments: list[str], usage: str
) -> None:
    done = cli_here(person, *arguments)
    assert_refused(done, f"usage: {usage} ", f"{usage}: error: unrecognized arguments: ", code=2)


def test_what_is_no_command_is_named(person: Person) -> None:
    assert_refused(cli_here(person, "--nonsense"), "unrecognized arguments: --nonsense", code=2)
    assert_refused(cli_here(person, "nonsense"), "usage:", "'nonsense'", code=2)


def test_a_value_that_is_none_is_named(person: Person) -> None:
    for command in ("run", "shell", "claude"):
        done = cli_here(person, command, "--network=foo")
        assert_refused(done, "error: argument --network: the only value is 'all'\n", code=2)
    for seconds in ("0", "-1", "nan", "inf", "x", ""):
        done = cli_here(person, "run", f"--timeout={seconds}", "--", "true")
        assert_refused(done, f"{seconds!r} is not a number of seconds", code=2)
    for limit in ("0", "-1", "x", "9" * 20, "9" * 5000):
        for words in (["history"], ["sessions", "list"]):
            done = cli_here(person, *words, f"--limit={limit}")
            assert_refused(done, "is not a whole number above 0", code=2)


def test_the_words_of_a_command_are_its_own(person: Person) -> None:
    done = person.cli("run", "echo", "--network=all", "--network=foo")
    assert done.stdout == "--network=all --network=foo\n"


def test_a_folder_name_without_a_slash_is_explained(person: Person) -> None:
    (person.project / "thing").mkdir()
    assert_refused(cli_here(person, "thing"), "ollmsandbox ./thing", code=2)


def test_what_names_no_run_is_explained(person: Person) -> None:
    person.cli("run", "-c", "echo new > file")
    for action in ("changes", "apply", "discard", "undo"):
        assert_refused(cli_here(person, action, ""), "''", "history --all")
    # A path, where paths can be named and where not.
    assert_refused(cli_here(person, "undo", "file"), "Name the run first: ")
    assert_refused(cli_here(person, "changes", "file"), "`ollmsandbox history --all`")
    assert (person.project / "file").read_text() == "new\n"


def test_no_pending_changes_are_reported_as_such(person: Person) -> None:
    person.cli("run", "-c", "echo new > file")
    done = cli_here(person, "changes", "--all")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert cli_here(person, "changes", "--all", "--json").stdout == "[]\n"
    assert_refused(cli_here(person, "changes", "--all", "2026"), "--all")


def test_roots_says_what_it_does_not_do(person: Person) -> None:
    (person.project / "inside").mkdir()
    assert_refused(cli_here(person, "roots", "remove", "/etc"), "/etc was not added")
    assert_refused(cli_here(person, "roots", "add", "inside"), "is in the project")
    assert_refused(cli_here(person, "roots", "list", "/etc"), "takes no folder")


def test_roots_takes_its_folder_before_an_option_and_after_it(person: Person) -> None:
    project, shared = str(person.project), str(person.home / "shared")
    os.mkdir(shared)
    for words in (["add", shared, "--project", project], ["remove", "--project", project, shared]):
        done = cli_here(person, "roots", *words)
        assert (done.returncode, done.stderr) == (0, "")
    assert cli_here(person, "roots", "add", "--project", project, shared, shared).returncode == 2


def test_an_unknown_setting_is_named_as_it_was_typed(person: Person) -> None:
    for given in (["rootfs-nonsense"], ["rootfs-nonsense", "value"], ["nonsense"]):
        assert_refused(cli_here(person, "settings", *given), repr(given[0]), "rootfs-mirror")


@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions", "show", _NO_TEXT],
        ["sessions", "delete", _NO_TEXT],
        ["sessions", "rename", _NO_TEXT, "name"],
        ["sessions", "export", _NO_TEXT],
        ["agent", "--session", _NO_TEXT, "--yes-to-nothing", "text"],
    ],
)
def test_bytes_that_are_no_text_name_no_session(person: Person, arguments: list[str]) -> None:
    done = cli_here(person, *arguments)
    assert_refused(done, "There is no session a", code=1 if arguments[0] == "agent" else 125)


def test_the_agent_does_not_begin_with_a_profile_that_is_not_there(person: Person) -> None:
    words = ("--yes-to-nothing", "--connection", "tour", "text")
    done = cli_here(person, "agent", "--profile", "nonsense", *words)
    assert_refused(done, "'nonsense'", code=1)
    assert done.stdout == ""


def test_a_home_folder_that_is_a_file_is_reported(person: Person) -> None:
    home = person.home / "file"
    home.write_text("")
    person.environ["HOME"] = str(home)
    for command in (["history"], ["run", "--", "true"], ["settings"]):
        assert_refused(cli_here(person, *command), str(home), "Not a directory.")
    document = json.loads(person.cli("run", "--json", "--", "true").stdout)
    assert document["exit_code"] == 125
    assert "Not a directory." in document["errors"][0]


@pytest.mark.parametrize("full", [["history"], ["changes"], ["undo"]])
def test_an_error_is_printed_once(person: Person, full: list[str]) -> None:
    """Cleaning up comes first and finds the same error."""
    person.environ["XDG_DATA_HOME"] = "/proc/nothing"
    assert_refused(done := cli_here(person, *full), "Cannot create")
    assert done.stderr.count("/proc/nothing") == 1


@pytest.mark.parametrize("home", [None, ""])
def test_without_a_home_variable_a_command_has_the_home_on_record(
    person: Person, home: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands look for their playground in the home folder."""
    monkeypatch.setattr("ollmsandbox.paths.home_on_record", lambda: str(person.home))
    given = {**person.environ}
    del person.environ["HOME"]
    if home is not None:
        person.environ["HOME"] = home
    done = cli_here(person, "playground", "path")
    assert done.stdout == f"{given['HOME']}/.local/share/ollmchat/playground\n"


def test_names_that_are_no_text_are_printed(person: Person) -> None:
    odd = make_person(person.home / os.fsdecode(b"odd\xff"))
    for command in (["playground", "path"], ["roots", "list"], ["rootfs", "status"]):
        done = odd.cli(*command)
        assert (done.returncode, done.stderr) == (0, "")
        assert "odd" in done.stdout
