# SPDX-License-Identifier: GPL-3.0-or-later
"""What was answered with "always" goes along with a project whose folder was moved."""

from __future__ import annotations

from dataclasses import replace

from .request import Answer
from .rules import Rule, Target, What
from .store import RuleStore


def copy_rules(store: RuleStore, old: str, new: str) -> list[Rule]:
    """Both are folders of the project, with links resolved. Returns the rules of the old one: to
    be removed when all else is moved, so that at no time one that forbids is missing."""
    store.check()
    before = [rule for rule in store.rules() if rule.key.project == old]
    for rule in sorted(before, key=lambda rule: rule.answer.allows):
        moved = _moved(rule, old, new)
        # To add it would take away what forbids the same there.
        if not rule.answer.allows or store.find(moved.key) is not Answer.DENY_ALWAYS:
            store.add(moved)
    return before


def _moved(rule: Rule, old: str, new: str) -> Rule:
    return replace(
        rule, key=replace(rule.key, project=new, what=_moved_what(rule.key.what, old, new))
    )


def _moved_what(what: What, old: str, new: str) -> What:
    if isinstance(what, Target):
        return Target(_moved_path(what.name, old, new))
    return replace(what, folder=_moved_path(what.folder, old, new))


def _moved_path(path: str, old: str, new: str) -> str:
    """What lies elsewhere, or is no path at all, stays as it is."""
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path
