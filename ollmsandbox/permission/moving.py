# SPDX-License-Identifier: GPL-3.0-or-later
"""What was answered with "always" goes along with a project whose folder was moved."""

from __future__ import annotations

from dataclasses import replace

from .rules import Rule, Target, What
from .store import RuleStore


def move_rules(store: RuleStore, old: str, new: str) -> None:
    """Both are folders of the project, with links resolved."""
    before = [rule for rule in store.rules() if rule.key.project == old]
    for rule in before:
        store.add(_moved(rule, old, new))
    store.remove(before)


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
