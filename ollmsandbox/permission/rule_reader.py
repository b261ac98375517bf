# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of rules, read: every mistake in it is named by line and key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import yaml

from .. import N_
from ..errors import Sentence, sentence
from . import rules, shell
from .request import RUN_COMMAND, Answer
from .rule_file import RULES, Entry, RuleFileError
from .rules import Key, Rule, Target, Text

_ANSWERS = {"allow": Answer.ALLOW_ALWAYS, "deny": Answer.DENY_ALWAYS}
_KEYS = ("answer", "tool", "project", "command", "target", "folder")


def read(text: str) -> tuple[Entry, ...]:
    """Raises RuleFileError."""
    root = _compose(text)
    if root is None or _is_nothing(root):
        return ()
    node = dict(_pairs(root, (RULES,))).get(RULES)
    if node is None or _is_nothing(node):
        return ()
    if not isinstance(node, yaml.SequenceNode):
        raise _wrong(node, RULES, N_("it must be a list of rules."))
    return tuple(_entry(item) for item in node.value)


def _compose(text: str) -> yaml.Node | None:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise RuleFileError(
            N_("line {line}: {problem}."), line=line, problem=error.problem
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise RuleFileError(N_("it is not YAML: {why}."), why=str(error)) from error
    return root


def _is_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")


def _pairs(node: yaml.Node, known: Sequence[str]) -> Iterator[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(node, "", N_("here must be keys: {names}."), names=", ".join(known))
    seen: set[str] = set()
    for key_node, value in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else ""
        if key not in known:
            raise _wrong(
                key_node, key, N_("it is not known; there is {names}."), names=", ".join(known)
            )
        if key in seen:
            raise _wrong(key_node, key, N_("it is there twice."))
        seen.add(key)
        yield key, value


def _entry(item: yaml.Node) -> Entry:
    values = dict(_pairs(item, _KEYS))
    texts = {key: _text(node, key) for key, node in values.items()}

    def need(key: str) -> str:
        if key not in texts:
            raise _wrong(item, key, N_("it is missing."))
        return texts[key]

    def absolute(key: str, otherwise: str) -> str:
        """As it is in a request: a path that leads there by no detour."""
        path = texts.get(key, otherwise).rstrip("/") or texts.get(key, otherwise)[:1]
        if path and (not path.startswith("/") or os.path.normpath(path) != path):
            raise _wrong(values[key], key, N_("it must be a full path, without ~ and ..."))
        return path

    answer = _ANSWERS.get(need("answer"))
    if answer is None:
        raise _wrong(values["answer"], "answer", N_("it must be allow or deny."))
    need("project")
    project = absolute("project", "")
    what: rules.What
    if need("tool") == RUN_COMMAND:
        command = need("command")
        if "target" in texts:
            raise _wrong(values["target"], "target", N_("it is not for {tool}."), tool=RUN_COMMAND)
        what = rules.command(command, absolute("folder", project))
        if isinstance(what, Text) and answer is Answer.ALLOW_ALWAYS:
            raise _wrong(values["command"], "command", _why_never(command))
    else:
        for key in ("command", "folder"):
            if key in texts:
                raise _wrong(values[key], key, N_("it is for {tool} only."), tool=RUN_COMMAND)
        what = Target(need("target"))
    last = max(node.end_mark.line for node in values.values())
    return Entry(Rule(Key(texts["tool"], project, what), answer), item.start_mark.line, last)


def _why_never(command: str) -> Sentence:
    reading = shell.read(command)
    why = reading.why if isinstance(reading, shell.CannotSay) else ""
    # Translators: {why} is such as "consists of several commands".
    text = N_("it cannot be allowed always, because it {why}.")
    return Sentence(text, why=Sentence(why))


def _text(node: yaml.Node, key: str) -> str:
    # Whatever YAML takes it for: `command: true` is the program of that name.
    if not isinstance(node, yaml.ScalarNode):
        raise _wrong(node, key, N_("it must be text."))
    if not node.value and key != "project":
        raise _wrong(node, key, N_("it is empty."))
    return str(node.value)


def _wrong(node: yaml.Node, key: str, why: str, **fields: object) -> RuleFileError:
    return RuleFileError(
        N_("line {line}, key {key}: {why}") if key else N_("line {line}: {why}"),
        line=node.start_mark.line + 1,
        key=key,
        why=sentence(why, **fields),
    )
