# SPDX-License-Identifier: GPL-3.0-or-later
"""One command is always allowed. A command that looks like it, or contains it, asks again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.person import Person
from support.questions import ScriptedUser, VerdictRecorder, command, other

from ollmsandbox import loop
from ollmsandbox.permission.provider import Provider
from ollmsandbox.permission.request import Answer, PermissionRequest, Source
from ollmsandbox.permission.store import RuleStore

pytestmark = pytest.mark.ordinary

ALLOWED = "make test"
ALWAYS = Answer.ALLOW_ALWAYS

ATTACKS = {
    "a second command after a semicolon": "make test; rm -r x",
    "a second command after a semicolon without blanks": "make test;rm",
    "a second command if the first succeeds": "make test && rm x",
    "a second command if the first fails": "make test || rm x",
    "a second command in the background": "make test & rm x",
    "a second command in a pipe": "make test | sh",
    "a second command on a new line": "make test\nrm x",
    "a second command after a carriage return": "make test\rrm x",
    "a second command far away": "make test" + " " * 10_000 + "; rm x",
    "a command before it": "rm x; make test",
    "a substitution": "make test $(rm x)",
    "a substitution in quotes": 'make "$(rm x)" test',
    "a substitution in backticks": "make test `rm x`",
    "a substitution in place of a word": "make $(echo test)",
    "a substituted process": "make test <(rm x)",
    "a variable": "make $x",
    "a variable for blanks": "make${IFS}test",
    "an assignment": "PATH=. make test",
    "an assignment of what make reads": "MAKEFLAGS=--eval=x make test",
    "an assignment by env": "env PATH=. make test",
    "output to a file": "make test > .git/hooks/pre-commit",
    "output to a file without blanks": "make test>x",
    "input from a file": "make test < x",
    "a here-document": "make test <<E\nrm x\nE",
    "a longer command": "make test install",
    "a longer word": "make tests",
    "an option more": "make test -n",
    "an option before": "make -f evil.mk test",
    "a variable for make": "make test CC=evil",
    "fewer words": "make",
    "the words in another order": "test make",
    "one word for two": "'make test'",
    "two words that are joined": "make' 'test",
    "an empty word more": "make test ''",
    "another case": "make TEST",
    "a program of the same name elsewhere": "./make test",
    "a program of the same name by its path": "/tmp/make test",
    "a pattern": "make tes?",
    "braces": "make {test,install}",
    "a tilde": "make ~/test",
    "a comment": "make test # and more",
    "a group": "{ make test; }",
    "a subshell": "(make test)",
    "a negation": "! make test",
    "a condition": "if make test; then rm x; fi",
    "a function": "make() { rm x; }; make test",
    "an alias": "alias make=rm; make test",
    "a shell": "sh -c 'make test'",
    "a shell with more": "sh -c 'make test; rm x'",
    "eval": "eval make test",
    "exec": "exec make test",
    "an interpreter": "python3 -c 'import os; os.system(\"make test\")'",
    "a program that runs it": "nohup make test",
    "another program that runs it": "sudo make test",
    "time": "time make test",
    "a continued line": "make test \\\ninstall",
    "a quote without end": "make test '",
    "a letter that looks like another": "m\u0430ke test",
    "a look-alike blank": "make\u00a0test",
    "a zero-width space": "make te\u200bst",
    "a right-to-left mark": "make \u202etset",
    "a control character": "make test\x01",
    "a backspace": "rm x\b\b\b\bmake test",
    "a zero byte": "make test\0; rm x",
    "a history reference": "make test !!",
}  # fmt: skip

THE_SAME = ("make test", "  make   test  ", "make 'test'", '"make" t\\est')


class Rules:
    """One command is always allowed; every further question is answered with no."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.project = str(person.project)
        self.user = ScriptedUser([ALWAYS])
        self.store = RuleStore(person.paths)
        self.provider = Provider(self.user, self.store, VerdictRecorder())
        self.decide(command(ALLOWED, self.project))
        assert [rule.answer for rule in self.store.rules()] == [ALWAYS]

    def decide(self, request: PermissionRequest) -> tuple[Answer, Source]:
        if not self.user.says:
            self.user.says = [Answer.DENY]
        verdict = loop.run(self.provider.decide(request))
        return verdict.answer, verdict.source

    def asks_again(self, request: PermissionRequest) -> bool:
        return self.decide(request) == (Answer.DENY, Source.PERSON)


@pytest.fixture
def rules(person: Person) -> Rules:
    return Rules(person)


def test_an_attack_on_an_allowed_command(rules: Rules) -> None:
    for name, text in ATTACKS.items():
        assert rules.asks_again(command(text, rules.project)), name
    assert len(rules.store.rules()) == 1
    # Or one that is allowed for the session.
    rules.store.remove(rules.store.rules())
    rules.user.says = [Answer.ALLOW_SESSION]
    rules.decide(command(ALLOWED, rules.project))
    for name, text in ATTACKS.items():
        assert rules.asks_again(command(text, rules.project)), name


def test_the_command_itself_does_not_ask(rules: Rules) -> None:
    for text in THE_SAME:
        assert rules.decide(command(text, rules.project)) == (ALWAYS, Source.SAVED)


def test_the_words_are_what_the_sandbox_runs(rules: Rules, person: Person) -> None:
    """A rule is found by words that we read; a shell reads them again."""
    (person.project / "make").write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")
    (person.project / "make").chmod(0o755)
    person.environ["PATH"] = f"{person.project}:{person.environ['PATH']}"
    for text in THE_SAME:
        assert person.run(text).stdout.text == "test|"


LOOK_ALIKES = (
    "{project}-evil",
    "{project}/sub",
    "{parent}",
    "{project}.",
    "{project} ",
    "{project}\u200b",
    "/other{project}",
    "",
)


def test_a_project_with_a_similar_path(rules: Rules) -> None:
    for pattern in LOOK_ALIKES:
        folder = pattern.format(project=rules.project, parent=os.path.dirname(rules.project))
        assert rules.asks_again(command(ALLOWED, folder, target_path=rules.project)), pattern
        assert rules.asks_again(command(ALLOWED, folder)), pattern


def test_a_link_in_the_project_s_place(rules: Rules, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    rules.person.project.rename(tmp_path / "moved")
    rules.person.project.symlink_to(evil)
    assert rules.asks_again(command(ALLOWED, rules.project))


def test_a_link_to_the_project_is_the_project(rules: Rules, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(rules.project)
    request = command(ALLOWED, str(link), target_path=rules.project)
    assert rules.decide(request) == (ALWAYS, Source.SAVED)


def test_the_same_words_in_another_folder(rules: Rules) -> None:
    for folder in ("/tmp", f"{rules.project}/sub", f"{rules.project}-evil"):
        assert rules.asks_again(command(ALLOWED, rules.project, target_path=folder))


def test_the_same_words_without_the_sandbox(rules: Rules) -> None:
    """It asks even if the request does not say that it is for one time only."""
    for beyond in ({"network": True}, {"sandboxed": False}, {"one_time_only": True}):
        request = command(ALLOWED, rules.project, **beyond)
        assert request.answers == (Answer.DENY, Answer.ALLOW)
        assert rules.asks_again(request)


def test_the_same_words_for_another_tool(rules: Rules) -> None:
    assert rules.asks_again(other("web_fetch", ALLOWED, rules.project))
    assert rules.asks_again(other("web_fetch", rules.project, rules.project))


TARGETS = {
    ("edit_file", "/p/src/a.c"):
        ("/p/src/a.c.evil", "/p/src/", "/p/src", "/p/src/../../etc/a.c", "/p/src/A.c"),
    ("web_fetch", "example.org"):
        ("example.org.evil.net", "evil.example.org", "example.org:81", "ex\u0430mple.org"),
}  # fmt: skip


def test_a_target_that_looks_like_an_allowed_one(rules: Rules) -> None:
    for (tool, target), attacks in TARGETS.items():
        rules.user.says = [ALWAYS]
        rules.decide(other(tool, target, rules.project))
        assert rules.decide(other(tool, target, rules.project)) == (ALWAYS, Source.SAVED)
        for attack in attacks:
            assert rules.asks_again(other(tool, attack, rules.project)), attack


@pytest.mark.parametrize("name", ["a substitution", "a shell with more", "a pattern"])
def test_an_unparsed_command_cannot_be_allowed_permanently(rules: Rules, name: str) -> None:
    request = command(ATTACKS[name], rules.project)
    assert request.answers == (Answer.DENY_ALWAYS, Answer.DENY, Answer.ALLOW)
    assert "cannot always be allowed" in request.why_not_remembered
    rules.user.says = [Answer.DENY_ALWAYS]
    rules.decide(request)
    assert rules.decide(request) == (Answer.DENY_ALWAYS, Source.SAVED)
    assert rules.asks_again(command(ATTACKS[name] + " ", rules.project))


def test_a_pattern_in_a_rule_written_by_hand(rules: Rules) -> None:
    """A pattern matches itself only, or is an error in the file."""
    rules.store.file.write_text(
        f"rules:\n- answer: allow\n  tool: run_command\n  project: {rules.project}\n"
        "  command: make *\n"
    )
    assert rules.asks_again(command("make x", rules.project))
    assert rules.asks_again(command("make *", rules.project))
    assert "line 5" in rules.provider.notices[0]
