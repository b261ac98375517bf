# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rule applies to, and that rules survive being written to the file."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.questions import command, other

from ollmsandbox.permission import rules_file
from ollmsandbox.permission.request import Answer
from ollmsandbox.permission.rules import Command, Key, Rule, Target, key_of
from ollmsandbox.permission.shell import UnparsedCommand, read_command_line

pytestmark = pytest.mark.ordinary


def test_a_command_is_found_by_its_words_and_its_folder() -> None:
    assert key_of(command("make  'a b'", "/p", target_path="/p/sub")) == Key(
        "run_command", "/p", Command("make 'a b'", "/p/sub")
    )


def test_a_command_that_cannot_be_read_is_found_by_its_text() -> None:
    key = key_of(command("make >x", "/p"))
    assert key == Key("run_command", "/p", Command("make >x", "/p", "redirects output"))
    assert key.allowed_answers == (Answer.DENY_ALWAYS,)


def test_other_tools_are_found_by_their_target() -> None:
    assert key_of(other("edit_file", "/p/a", "/p")) == Key("edit_file", "/p", Target("/p/a"))


@pytest.mark.parametrize(
    "options",
    [
        {"one_time_only": True},
        {"network": True},
        {"sandboxed": False},
        {"target_path": "network:1"},
        {"target_path": ""},
    ],
)
def test_a_one_time_request_matches_no_rule(options: dict[str, object]) -> None:
    request = command("make", "/p", **options)
    assert key_of(request) is None
    assert request.answers == (Answer.DENY, Answer.ALLOW)
    assert "every time" in request.why_not_remembered


def test_all_answers_are_offered_for_a_command_that_was_read() -> None:
    request = command("make", "/p")
    assert set(request.answers) == set(Answer) - {Answer.ALLOW_PROJECT}
    assert request.why_not_remembered == ""


def test_the_reason_is_given_why_an_answer_cannot_be_saved() -> None:
    with pytest.raises(UnparsedCommand) as caught:
        read_command_line("make | sh")
    assert caught.value.why in command("make | sh", "/p").why_not_remembered


_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_FOLDERS = st.sampled_from(["/p", "/p/a b", "/p-evil", "/"])
_COMMANDS = st.sampled_from(["make", "make 'a b' \"c\"", "true", "echo '\\' ''", "null"])
_UNREAD = st.sampled_from(["a; b", "a\n\nb # c", "$x", "'", " a: &b ", "x\x01\u202e\u0085"])
_RULES = st.one_of(
    st.builds(lambda name, folder: other("edit_file", name, folder), _NAMES, _FOLDERS),
    st.builds(lambda text, a, b: command(text, a, target_path=b), _COMMANDS, _FOLDERS, _FOLDERS),
    st.builds(lambda text, a, b: command(text, a, target_path=b), _UNREAD, _FOLDERS, _FOLDERS),
).map(lambda request: Rule(key_of(request), Answer.DENY_ALWAYS))  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(_RULES, max_size=5, unique=True))
def test_rules_come_back_from_the_file_as_they_were(rules: list[Rule]) -> None:
    assert rules_file.parse_rules(rules_file.written(rules)) == tuple(rules)
