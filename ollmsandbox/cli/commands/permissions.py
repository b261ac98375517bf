# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox permissions`"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence

from ...errors import OllmSandboxError
from ...paths import Paths
from ...permission.rules import Rule, Target
from ...permission.store import RuleStore
from ...project.short_list import counted
from ...text.visible import visible_line
from ..streams import print_notices


def permissions(given: argparse.Namespace) -> int:
    store = RuleStore(Paths.from_environ(os.environ))
    try:
        if given.action == "list":
            return _list(store.rules(), as_json=given.json)
        return _forget(store, given)
    finally:
        print_notices(*store.take_notices())


def _list(rules: Sequence[Rule], *, as_json: bool) -> int:
    if as_json:
        documents = [_document(number, rule) for number, rule in enumerate(rules, 1)]
        print(json.dumps({"rules": documents}, indent=2))
        return 0
    for number, rule in enumerate(rules, 1):
        print(f"{number:>3}  {_line(rule)}")
    if not rules:
        print("There are no saved answers.")
    return 0


def _forget(store: RuleStore, given: argparse.Namespace) -> int:
    ways = [bool(given.number), given.project is not None, given.all]
    if sum(ways) != 1:
        raise OllmSandboxError(
            "Choose what to forget.",
            "Use: ollmsandbox permissions forget (NUMBER... | --project DIR | --all)",
        )
    rules = store.rules()
    chosen = rules
    if given.number:
        for number in given.number:
            if not 1 <= number <= len(rules):
                raise OllmSandboxError(
                    f"There is no rule {number}.", "See them with `ollmsandbox permissions list`."
                )
        chosen = tuple(rules[number - 1] for number in dict.fromkeys(given.number))
    elif given.project is not None:
        # The folder may no longer exist, or be typed as `permissions list` shows it.
        folders = {os.path.realpath(given.project), given.project.rstrip("/")}
        chosen = tuple(rule for rule in rules if rule.key.project in folders)
    print(f"{counted(store.remove(chosen), 'rule')} forgotten.")
    return 0


def _document(number: int, rule: Rule) -> dict[str, object]:
    what = rule.key.what
    return {
        "number": number,
        "answer": "allow" if rule.answer.allows else "deny",
        "tool": rule.key.tool,
        "project": rule.key.project,
        "command": None if isinstance(what, Target) else what.text,
        "folder": None if isinstance(what, Target) else what.folder,
        "target": what.name if isinstance(what, Target) else None,
    }


def _line(rule: Rule) -> str:
    what = rule.key.what
    name = what.name if isinstance(what, Target) else what.text
    where = rule.key.project or "no project"
    if not isinstance(what, Target) and what.folder != rule.key.project:
        where += f", started in {what.folder}"
    answer = "allow" if rule.answer.allows else "deny"
    return f"{answer:5}  {visible_line(f'{rule.key.tool}: {name}')}  [{visible_line(where)}]"
