# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox permissions`: listing and forgetting saved answers."""

from __future__ import annotations

import argparse
import json

import pytest
from support.cli_inline import cli_here
from support.person import Person
from support.questions import command, other

from ollmsandbox.cli.arguments import add_permissions_arguments
from ollmsandbox.cli.commands.permissions import permissions
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.permission.rules import Rule, key_of
from ollmsandbox.permission.store import RuleStore

pytestmark = pytest.mark.anybody


class Terminal:
    def __init__(self, person: Person, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = RuleStore(person.paths)
        self.project = str(person.project)
        self._capsys = capsys

    def keep(self, request: PermissionRequest, answer: Answer = Answer.ALLOW_ALWAYS) -> None:
        key = key_of(request)
        assert key is not None
        self.store.add(Rule(key, answer))

    def type(self, *arguments: str) -> str:
        parser = argparse.ArgumentParser()
        add_permissions_arguments(parser)
        assert permissions(parser.parse_args(arguments)) == 0
        return self._capsys.readouterr().out


@pytest.fixture
def terminal(
    person: Person, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(person.home))
    made = Terminal(person, capsys)
    made.keep(command("make  test", made.project))
    made.keep(command("rm x", made.project, target_path="/tmp"), Answer.DENY_ALWAYS)
    made.keep(other("web_fetch", "example.org", ""))
    return made


def test_rules_are_listed_with_numbers(terminal: Terminal) -> None:
    assert terminal.type("list").splitlines() == [
        f"  1  allow  run_command: make test  [{terminal.project}]",
        f"  2  deny   run_command: rm x  [{terminal.project}, started in /tmp]",
        "  3  allow  web_fetch: example.org  [no project]",
    ]


def test_the_list_as_json(terminal: Terminal) -> None:
    document = json.loads(terminal.type("list", "--json"))
    assert document["rules"][1] == {
        "number": 2,
        "answer": "deny",
        "tool": "run_command",
        "project": terminal.project,
        "command": "rm x",
        "folder": "/tmp",
        "target": None,
    }
    assert document["rules"][2]["target"] == "example.org"


def test_a_name_in_a_rule_has_no_effect_on_the_terminal(terminal: Terminal) -> None:
    terminal.keep(other("edit_file", "/p/\x1b[2J\n", "/p/\u202e"))
    assert "edit_file: /p/⟨ESC⟩[2J⟨NEWLINE⟩  [/p/⟨U+202E⟩]" in terminal.type("list")


def test_numbers_are_those_of_one_list(terminal: Terminal) -> None:
    assert terminal.type("forget", "1", "3", "1") == "2 rules forgotten.\n"
    assert "rm x" in terminal.type("list")
    assert len(terminal.store.rules()) == 1


def test_a_project_is_forgotten(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.keep(command("ls", f"{terminal.project}-evil"))
    monkeypatch.chdir(terminal.project)
    assert terminal.type("forget", "--project", ".") == "2 rules forgotten.\n"
    assert len(terminal.store.rules()) == 2
    assert (
        terminal.type("forget", "--project", f"{terminal.project}-evil/") == "1 rule forgotten.\n"
    )


def test_everything_is_forgotten(terminal: Terminal) -> None:
    assert terminal.type("forget", "--all") == "3 rules forgotten.\n"
    assert json.loads(terminal.type("list", "--json")) == {"rules": []}


@pytest.mark.parametrize("arguments", [[], ["1", "--all"], ["--project", "/p", "--all"]])
def test_nothing_is_forgotten_unless_it_is_clear_what(
    terminal: Terminal, arguments: list[str]
) -> None:
    with pytest.raises(OllmSandboxError, match="what to forget"):
        terminal.type("forget", *arguments)
    assert len(terminal.store.rules()) == 3


@pytest.mark.parametrize("number", ["0", "4", "99"])
def test_a_number_that_is_not_there_forgets_nothing(terminal: Terminal, number: str) -> None:
    with pytest.raises(OllmSandboxError, match=f"no rule {number}"):
        terminal.type("forget", "1", number)
    assert len(terminal.store.rules()) == 3


def test_a_broken_file_is_reported(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.store.file.write_text("rules: 5\n")
    parser = argparse.ArgumentParser()
    add_permissions_arguments(parser)
    assert permissions(parser.parse_args(["list"])) == 0
    assert "line 1, key rules" in capsys.readouterr().err


def test_the_command_line_has_it(terminal: Terminal, person: Person) -> None:
    listed = person.cli("permissions", "list", "--json")
    assert len(json.loads(listed.stdout)["rules"]) == 3
    wrong = cli_here(person, "permissions", "forget", "9")
    assert wrong.returncode == 125
    assert "rule 9" in wrong.stderr
    assert cli_here(person, "permissions", "forget", "2").stdout == "1 rule forgotten.\n"
    assert len(terminal.store.rules()) == 2
