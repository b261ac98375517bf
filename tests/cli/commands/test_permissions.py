# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox permissions`: listing and forgetting saved answers."""

from __future__ import annotations

import json

import pytest
from support.cli_inline import cli_here
from support.person import Person
from support.questions import command, other

from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.permission.rules import Rule, key_of
from ollmsandbox.permission.store import RuleStore

pytestmark = pytest.mark.ordinary


class Terminal:
    def __init__(self, person: Person) -> None:
        self.person = person
        self.store = RuleStore(person.paths)
        self.project = str(person.project)

    def keep(self, request: PermissionRequest, answer: Answer = Answer.ALLOW_ALWAYS) -> None:
        key = key_of(request)
        assert key is not None
        self.store.add(Rule(key, answer))

    def type(self, *arguments: str) -> str:
        done = cli_here(self.person, "permissions", *arguments)
        assert done.returncode == 0
        return done.stdout


@pytest.fixture
def terminal(person: Person) -> Terminal:
    made = Terminal(person)
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


def test_a_project_is_forgotten(terminal: Terminal) -> None:
    terminal.keep(command("ls", f"{terminal.project}-evil"))
    assert terminal.type("forget", "--project", ".") == "2 rules forgotten.\n"
    assert len(terminal.store.rules()) == 2
    evil = ("--project", f"{terminal.project}-evil/")
    assert terminal.type("forget", *evil) == "1 rule forgotten.\n"


def test_everything_is_forgotten(terminal: Terminal) -> None:
    assert terminal.type("forget", "--all") == "3 rules forgotten.\n"
    assert json.loads(terminal.type("list", "--json")) == {"rules": []}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "what to forget"),
        (["1", "--all"], "what to forget"),
        (["--project", "/p", "--all"], "what to forget"),
        (["1", "0"], "no rule 0"),
        (["1", "4"], "no rule 4"),
    ],
)
def test_nothing_is_forgotten_unless_it_is_clear_what(
    terminal: Terminal, arguments: list[str], why: str
) -> None:
    done = cli_here(terminal.person, "permissions", "forget", *arguments)
    assert done.returncode == 125
    assert why in done.stderr
    assert len(terminal.store.rules()) == 3


def test_a_broken_file_is_reported(terminal: Terminal) -> None:
    terminal.store.file.write_text("rules: 5\n")
    done = cli_here(terminal.person, "permissions", "list")
    assert done.returncode == 0
    assert "line 1, key rules" in done.stderr
