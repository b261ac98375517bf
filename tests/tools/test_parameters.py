# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's arguments are parsed, or refused with a message that it can act on."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from ollmsandbox.tools.base import ToolError
from ollmsandbox.tools.parameters import Parameters, parameter

pytestmark = pytest.mark.ordinary


@dataclass(frozen=True)
class Given:
    command: str = parameter("What to run.", longest=100)
    network: bool = parameter("Whether with network.", default=False)
    count: int = parameter("How many.", default=1, smallest=1)
    folder: str = parameter("Where.", default="")


WANTED = Parameters("tool", Given)


def error(arguments: object) -> str:
    with pytest.raises(ToolError) as caught:
        WANTED.read(arguments)
    return str(caught.value)


def test_the_schema_is_made_of_the_declaration() -> None:
    assert WANTED.schema() == {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "What to run."},
            "network": {
                "type": "boolean",
                "description": "Whether with network.",
                "default": False,
            },
            "count": {"type": "integer", "description": "How many.", "default": 1},
            "folder": {"type": "string", "description": "Where."},
        },
        "required": ["command"],
        "additionalProperties": False,
    }


def test_a_missing_argument_has_its_default() -> None:
    assert WANTED.read({"command": "ls"}) == Given("ls", False, 1, "")
    assert WANTED.read({"command": "ls", "network": None, "folder": None}) == Given("ls")


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        *(("network", value, True) for value in (True, "true", "True", " TRUE ", 1)),
        *(("network", value, False) for value in (False, "false", "FALSE", 0, "")),
        *(("count", value, 7) for value in (7, "7", 7.0, " 7 ")),
        ("command", 5, "5"),
    ],
)
def test_a_value_is_read_in_any_spelling(name: str, value: object, read: object) -> None:
    assert getattr(WANTED.read({"command": "x", name: value}), name) == read


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "`command` is missing: What to run."),
        ({"command": "x", "network": "maybe"}, '`network` .*"maybe"'),
        ({"command": "x", "network": []}, "`network` .*a list"),
        ({"command": "x", "count": "many"}, '`count` .*"many"'),
        ({"command": "x", "count": "--5"}, '`count` .*"--5"'),
        ({"command": "x", "count": 1.5}, "`count` .*a number"),
        ({"command": "x", "count": True}, "`count` .*true"),
        ({"command": "x", "count": 0}, "`count` .*1 .*0"),
        ({"command": ["ls", "-l"]}, "`command` .*a list"),
        ({"command": {"a": 1}}, "`command` .*an object"),
        ({"command": "x" * 101}, "`command` .*101 .*100"),
        ({"command": "a\0b"}, "`command` contains a NUL character"),
        ({"command": "a\ud800"}, "`command` contains invalid Unicode"),
        ({"command": "x", "commnad": "y"}, "`commnad`.*`command`"),
        ({"command": "x", "zzz": 1}, "command, network .*, count"),
    ],
)
def test_the_wrong_argument_is_named(arguments: object, words: str) -> None:
    assert re.search(words, error(arguments))


def test_text_of_json_is_read() -> None:
    assert WANTED.read('{"command": "ls", "count": 2}') == Given("ls", count=2)
    assert WANTED.read('{"command": "a\nb"}').command == "a\nb"


def test_broken_json_is_quoted_with_what_is_wrong() -> None:
    words = error('{"command": "ls" "count": 2}')
    assert "not valid JSON: Expecting ',' delimiter at character 17" in words
    assert '"ls" "count' in words


@pytest.mark.parametrize("text", ["[1]", "5", "null", '"ls"', "[" * 100_000, "9" * 10_000, "{"])
def test_text_that_is_no_object_is_refused(text: str) -> None:
    assert "JSON" in error(text)


def test_arguments_that_are_no_object_are_refused() -> None:
    wrong: tuple[object, ...] = (None, [], 5, True)
    for arguments in wrong:
        assert "must be a JSON object" in error(arguments)
    assert "too large" in error('{"command": "' + "x" * (9 << 20) + '"}')
    assert "`command` is missing" in error("")


def test_messages_for_a_model_are_valid_utf_8() -> None:
    for arguments in ({"a\ud800": 1}, {"command": "x", "network": "\ud800"}):
        error(arguments).encode("utf-8")
