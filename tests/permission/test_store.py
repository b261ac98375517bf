# SPDX-License-Identifier: GPL-3.0-or-later
"""permissions.yaml: read, written, edited by hand, damaged, shared by programs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.person import ROOT, Person
from support.questions import command, other
from support.timing import PATIENCE

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.permission.rules import Key, Rule, key_of
from ollmsandbox.permission.store import RuleStore

pytestmark = pytest.mark.ordinary

ALLOW, DENY = Answer.ALLOW_ALWAYS, Answer.DENY_ALWAYS


@pytest.fixture
def store(person: Person, monkeypatch: pytest.MonkeyPatch) -> RuleStore:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    return RuleStore(person.paths)


def key(request: PermissionRequest) -> Key:
    found = key_of(request)
    assert found is not None
    return found


def rule(text: str, answer: Answer = ALLOW, project: str = "/p") -> Rule:
    return Rule(key(command(text, project)), answer)


def write(store: RuleStore, text: str) -> None:
    store.file.parent.mkdir(parents=True, exist_ok=True)
    store.file.write_text(text, encoding="utf-8")


def test_nothing_is_there_at_first_and_nothing_is_made(store: RuleStore) -> None:
    assert store.rules() == ()
    assert store.find(rule("make").key) is None
    assert not store.file.parent.exists()


def test_a_rule_is_kept_readably_and_for_its_owner_only(store: RuleStore, person: Person) -> None:
    kept = rule("grep  'a b' x", project="/home/u/My Project")
    store.add(kept)
    assert store.find(kept.key) is ALLOW
    again = rule("grep 'a b' 'x'", project="/home/u/My Project")
    assert RuleStore(person.paths).find(again.key) is ALLOW
    assert stat.S_IMODE(store.file.stat().st_mode) == 0o600
    assert (
        "  - answer: allow\n"
        "    tool: run_command\n"
        '    project: "/home/u/My Project"\n'
        "    command: \"grep 'a b' x\"\n"
    ) in store.file.read_text()


def test_a_file_that_others_can_read_is_closed_to_them(store: RuleStore) -> None:
    write(store, "rules:\n")
    store.file.chmod(0o666)
    store.rules()
    assert stat.S_IMODE(store.file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "name",
    ['/p/a "b" \\c', "/p/naïve: #x", "/p/\U0001f600", "/p/a\nb", "/p/\u202ea", "/p/\x01", "/p/- a"],
)
def test_any_name_is_read_back_unchanged(store: RuleStore, person: Person, name: str) -> None:
    made = Rule(key(other("edit_file", name, "/p")), DENY)
    store.add(made)
    assert RuleStore(person.paths).rules() == (made,)
    text = store.file.read_text(encoding="utf-8").replace("\n", "")
    assert text.isprintable()


def test_a_name_that_is_no_text_cannot_be_kept(store: RuleStore) -> None:
    store.add(rule("make"))
    before = store.file.read_bytes()
    with pytest.raises(OllmSandboxError, match="UTF-8"):
        store.add(Rule(key(other("edit_file", "/p/\udcff", "/p")), ALLOW))
    assert store.file.read_bytes() == before
    assert [file.name for file in store.file.parent.glob("permissions*")] == ["permissions.yaml"]


def test_the_last_word_counts(store: RuleStore) -> None:
    store.add(rule("make"))
    store.add(rule("ls"))
    store.add(rule("make", DENY))
    assert store.rules() == (rule("ls"), rule("make", DENY))


def test_of_two_contradicting_rules_the_denying_one_wins(store: RuleStore) -> None:
    entry = "  - {answer: %s, tool: run_command, project: /p, command: make}\n"
    write(store, "rules:\n" + entry % "deny" + entry % "allow")
    assert store.find(rule("make").key) is DENY


def test_a_one_time_answer_cannot_be_saved(store: RuleStore) -> None:
    with pytest.raises(ValueError, match="not an answer"):
        store.add(rule("make", Answer.ALLOW_SESSION))
    with pytest.raises(ValueError, match="this key allows"):
        store.add(rule("make && rm x", ALLOW))
    store.add(rule("make && rm x", DENY))
    assert store.find(rule("make && rm x").key) is DENY
    assert store.find(rule("make &&  rm x").key) is None


def test_a_rule_written_by_hand_holds_without_a_restart(store: RuleStore) -> None:
    store.add(rule("make"))
    with store.file.open("a") as file:
        file.write("  - answer: deny\n    tool: web_fetch\n    project: ''\n    target: x.org\n")
    assert store.find(key(other("web_fetch", "x.org", ""))) is DENY
    assert store.find(rule("make").key) is ALLOW


def test_words_that_yaml_takes_for_something_else_are_words(store: RuleStore) -> None:
    write(store, "rules:\n- {answer: allow, tool: run_command, project: /p/, command: true}\n")
    assert store.find(rule("true").key) is ALLOW


def test_comments_of_the_user_are_kept_in_a_copy_and_this_is_reported(store: RuleStore) -> None:
    old = "# mine\nrules: [{answer: deny, tool: run_command, project: /p, command: ls}]\n"
    write(store, old)
    store.add(rule("make"))
    store.add(rule("grep ' #'"))
    store.add(rule("true"))
    assert store.rules() == (rule("ls", DENY), rule("make"), rule("grep ' #'"), rule("true"))
    [notice] = store.take_notices()
    [kept] = store.file.parent.glob("permissions-before-*.yaml")
    assert str(kept) in notice and kept.read_text() == old


def test_after_all_rules_are_gone_there_can_be_new_ones(store: RuleStore) -> None:
    store.add(rule("make"))
    store.remove(store.rules())
    assert store.rules() == ()
    store.add(rule("ls"))
    assert store.rules() == (rule("ls"),)
    assert not store.take_notices()


GOOD = "- answer: allow\n  tool: run_command\n  project: /p\n  command: make\n"
BROKEN = {
    "no YAML": ("rules:\n  - a: [\n", "line 3"),
    "a tab": ("rules:\n\t- x\n", "line 2"),
    "a list": ("- a\n", "line 1: expected keys"),
    "an unknown key": ("rules:\nruls:\n", "line 2, key ruls:"),
    "no list": ("rules: yes\n", "line 1, key rules: expected a list"),
    "a word for a rule": ("rules:\n- make\n", "line 2, key rules: expected keys"),
    "a misspelt key": ("rules:\n- anwser: allow\n", "line 2, key rules.anwser:"),
    "a key twice": ("rules:\n" + GOOD + "  command: ls\n", "line 6, key rules.command:"),
    "no answer": ("rules:\n- tool: x\n", "line 2, key rules: the key answer "),
    "another answer": (
        "rules:\n" + GOOD.replace("allow", "maybe"),
        "line 2, key rules.answer: expected",
    ),
    "no project": ("rules:\n- {answer: deny, tool: x, target: y}\n", "the key project is missing"),
    "half a path": ("rules:\n" + GOOD.replace("/p", "p"), "line 4, key rules.project:"),
    "a home folder": ("rules:\n" + GOOD.replace("/p", "~/p"), "line 4, key rules.project"),
    "a detour": ("rules:\n" + GOOD.replace("/p", "/p/../q"), "line 4, key rules.project"),
    "no command": (
        "rules:\n- {answer: deny, tool: run_command, project: /p}\n",
        "the key command is missing",
    ),
    "an empty command": (
        "rules:\n" + GOOD.replace("make", ""),
        "line 5, key rules.command: expected text",
    ),
    "a list of words": ("rules:\n" + GOOD.replace("make", "[make]"), "line 5, key rules.command"),
    "two commands allowed": (
        "rules:\n" + GOOD.replace("make", "make; ls"),
        "line 5, key rules.command:",
    ),
    "a target for a command": ("rules:\n" + GOOD + "  target: x\n", "line 6, key rules.target"),
    "a command elsewhere": (
        "rules:\n" + GOOD.replace("run_command", "x"),
        "line 5, key rules.command",
    ),
    "bytes that are no text": ("rules:\n# \udcff\n", "line 2: not valid UTF-8"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_set_aside_and_reported(store: RuleStore, case: str) -> None:
    text, complaint = BROKEN[case]
    store.file.parent.mkdir(parents=True)
    store.file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert store.rules() == ()
    [notice] = store.take_notices()
    [aside] = store.file.parent.glob("permissions-broken-*.yaml")
    assert complaint in notice and str(aside) in notice and str(store.file) in notice
    assert aside.read_bytes() == text.encode("utf-8", "surrogateescape")
    assert not store.file.exists()
    store.add(rule("make"))
    assert store.rules() == (rule("make"),)
    assert not store.take_notices()


def test_a_file_that_is_just_being_saved_is_not_broken(
    store: RuleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, "rules: [")
    # The editor goes on while the store waits.
    monkeypatch.setattr(time, "sleep", lambda _seconds: write(store, f"rules:\n{GOOD}"))
    assert store.rules() == (rule("make"),)
    assert not store.take_notices()


def test_a_broken_file_is_set_aside_before_a_rule_is_added(store: RuleStore) -> None:
    write(store, "rules: 5\n")
    store.add(rule("make"))
    assert store.rules() == (rule("make"),)
    assert len(store.take_notices()) == 1
    assert len(list(store.file.parent.glob("permissions-broken-*.yaml"))) == 1


def test_a_file_that_grows_too_large_is_not_read(store: RuleStore) -> None:
    write(store, "rules:\n" + "#" * (5 << 20))
    assert store.rules() == ()
    assert "too large" in store.take_notices()[0]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_folder_in_the_place_of_the_file_is_set_aside(
    store: RuleStore, make: Callable[[Path], None]
) -> None:
    store.file.parent.mkdir(parents=True)
    make(store.file)
    store.add(rule("make"))
    assert store.rules() == (rule("make"),)
    assert "not a regular file" in store.take_notices()[0]


def test_a_file_that_cannot_be_read_is_not_written_over(store: RuleStore) -> None:
    store.file.parent.mkdir(parents=True)
    # A file whose reading fails, for root as well.
    store.file.symlink_to("/proc/self/mem")
    assert store.rules() == ()
    assert "Cannot read" in store.take_notices()[0]
    with pytest.raises(OllmSandboxError, match="Cannot read"):
        store.add(rule("make"))
    assert store.file.readlink() == Path("/proc/self/mem")
    assert not store.take_notices()


def test_a_store_without_a_folder_to_write_to(store: RuleStore) -> None:
    store.file.parent.parent.mkdir(parents=True)
    store.file.parent.write_text("in the way")
    assert store.rules() == ()
    with pytest.raises(OllmSandboxError, match="Cannot create"):
        store.add(rule("make"))


def test_a_linked_file_stays_linked(store: RuleStore, tmp_path: Path) -> None:
    elsewhere = tmp_path / "dotfiles.yaml"
    elsewhere.write_text("rules:\n")
    store.file.parent.mkdir(parents=True)
    store.file.symlink_to(elsewhere)
    store.add(rule("make"))
    assert store.file.is_symlink()
    assert "make" in elsewhere.read_text()


_ADDING = """
import os, sys
sys.path.insert(0, sys.argv[1])
from ollmsandbox.paths import Paths
from ollmsandbox.permission.request import Answer
from ollmsandbox.permission.rules import Key, Rule, Target
from ollmsandbox.permission.store import RuleStore
store = RuleStore(Paths.from_environ(os.environ))
for number in range(10):
    name = f"{sys.argv[2]}-{number}"
    store.add(Rule(Key("edit_file", "", Target(name)), Answer.DENY_ALWAYS))
"""


def test_several_programs_at_once_lose_nothing(store: RuleStore, person: Person) -> None:
    programs = [
        subprocess.Popen([sys.executable, "-I", "-c", _ADDING, ROOT, str(n)], env=person.environ)
        for n in range(3)
    ]
    assert [program.wait(timeout=PATIENCE) for program in programs] == [0, 0, 0]
    assert len(store.rules()) == 30
    left = set(os.listdir(store.file.parent))
    assert left == {"permissions.yaml", ".permissions.lock"}


def test_a_rule_that_could_not_be_read_again_does_not_spoil_the_file(store: RuleStore) -> None:
    store.add(rule("make"))
    bad = Rule(key(command("ls", "/p", target_path="/p/../q")), ALLOW)
    with pytest.raises(OllmSandboxError, match=r"Cannot save this rule.*absolute path"):
        store.add(bad)
    assert store.rules() == (rule("make"),)
