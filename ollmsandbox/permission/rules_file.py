# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules as YAML that users can read and edit. Errors name the line and the key."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from .. import N_
from ..config.yaml_reader import Value, YamlSource, parse_yaml
from ..errors import OllmSandboxError, Sentence
from . import rules
from .request import RUN_COMMAND, Answer
from .rules import Key, Rule, Target

RULES = "rules"
HEADER = """\
# Your saved answers. You may edit this file; the program rewrites it when you save an answer.
#   answer   allow or deny
#   tool     run_command, edit_file, web_fetch, ...
#   project  the full path of the project folder
#   command  for run_command: this command, no more words and no fewer
#   folder   where the command starts, if that is not the project folder
#   target   for other tools: the file or the host
"""
_ANSWERS = {"allow": Answer.ALLOW_ALWAYS, "deny": Answer.DENY_ALWAYS}
_KEYS = ("answer", "tool", "project", "command", "target", "folder")


class RuleFileError(OllmSandboxError):
    """A mistake in the file, with its line and key."""


SOURCE = YamlSource(RuleFileError)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules, or raise RuleFileError."""
    root = parse_yaml(text, SOURCE)
    rules_list = root.mapping((RULES,)).get(RULES) if root else None
    if rules_list is None or rules_list.is_null:
        return ()
    return tuple(map(_rule, rules_list.items()))


def written(found: Iterable[Rule]) -> str:
    """Return the text of the file. Raise UnicodeEncodeError for invalid Unicode."""
    body = "".join(f"  {line}\n" for rule in found for line in _lines(rule))
    return f"{HEADER}{RULES}:\n{body}"


def _lines(rule: Rule) -> Iterator[str]:
    what = rule.key.what
    fields = {"tool": rule.key.tool, "project": _quoted(rule.key.project)}
    if isinstance(what, Target):
        fields["target"] = _quoted(what.name)
    else:
        fields["command"] = _quoted(what.text)
        if what.folder != rule.key.project:
            fields["folder"] = _quoted(what.folder)
    yield f"- answer: {'allow' if rule.answer is Answer.ALLOW_ALWAYS else 'deny'}"
    for key, value in fields.items():
        yield f"  {key}: {value}"


def _quoted(text: str) -> str:
    """Return the text in double quotes, with escapes for unprintable characters."""
    text.encode("utf-8")  # raise UnicodeEncodeError: YAML cannot represent surrogates
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _rule(item: Value) -> Rule:
    values = item.mapping(_KEYS)

    def need(key: str) -> str:
        if key not in values:
            raise item.missing(key)
        text = values[key].text()
        if not text and key != "project":
            raise values[key].fail(N_("the value is empty."))
        return text

    def absolute(key: str) -> str:
        """Return a path as requests have it: absolute and normalized."""
        text = need(key)
        path = text.rstrip("/") or text[:1]
        if path and (not path.startswith("/") or os.path.normpath(path) != path):
            raise values[key].fail(N_("expected an absolute path without ~ or .."))
        return path

    need("answer")
    answer = _ANSWERS[values["answer"].choice(*_ANSWERS)]
    project, tool = absolute("project"), need("tool")
    if tool == RUN_COMMAND:
        if "target" in values:
            raise values["target"].fail(N_("not allowed for {tool}."), tool=RUN_COMMAND)
        what = rules.command(need("command"), absolute("folder") if "folder" in values else project)
        if what.why_unparsed and answer is Answer.ALLOW_ALWAYS:
            # Translators: {why} is the rest of the sentence, such as "redirects output".
            never = N_("this command cannot always be allowed, because it {why}.")
            raise values["command"].fail(never, why=Sentence(what.why_unparsed))
        return Rule(Key(tool, project, what), answer)
    for key in ("command", "folder"):
        if key in values:
            raise values[key].fail(N_("only allowed for {tool}."), tool=RUN_COMMAND)
    return Rule(Key(tool, project, Target(need("target"))), answer)
