# SPDX-License-Identifier: GPL-3.0-or-later
"""What the list of changes says."""

from __future__ import annotations

import time
from gettext import gettext as _
from gettext import ngettext

from ..permission.visible import visible_line
from ..project.apply import Recorded, State
from ..project.changes import Flag, Kind, Type
from .change_items import RunData
from .note_words import note


def kind(item: Recorded) -> str:
    return {
        Kind.ADDED: _("Added"),
        Kind.MODIFIED: _("Modified"),
        Kind.DELETED: _("Deleted"),
        Kind.REPLACED: _("Replaced"),
    }[item.change.kind]


def icon(item: Recorded) -> str:
    return {
        Kind.ADDED: "list-add-symbolic",
        Kind.MODIFIED: "document-edit-symbolic",
        Kind.DELETED: "list-remove-symbolic",
        Kind.REPLACED: "view-refresh-symbolic",
    }[item.change.kind]


def marks(item: Recorded) -> list[str]:
    """What a person should look at twice."""
    words = {
        Flag.LATER: _("Acts later, outside the sandbox"),
        Flag.EXECUTABLE: _("New program that can be run"),
        Flag.OUTSIDE: _("Link that leaves the project"),
        Flag.STRIPPED: _("Its setuid bit was removed"),
    }
    found = [words[flag] for flag in item.change.flags if flag in words]
    if item.is_held and item.state is State.PENDING:
        found.append(_("Waits for your yes, since it acts later"))
    return found


def state(item: Recorded) -> str:
    return {
        State.APPLIED: _("Applied"),
        State.PENDING: _("Waits"),
        State.CONFLICT: _("You changed it, too"),
        State.FAILED: _("Could not be applied"),
        State.DISCARDED: _("Discarded"),
        State.UNDONE: _("Undone"),
    }[item.state]


def about(item: Recorded) -> str:
    """One line below the name."""
    parts = [kind(item), state(item), *marks(item)]
    if item.change.type is Type.LINK and item.change.target:
        parts.append(f"→ {visible_line(item.change.target)}")
    if item.note:
        parts.append(note(item.note))
    return " · ".join(parts)


def run_about(run: RunData) -> str:
    """When, and what became of it."""
    today = time.strftime("%Y-%m-%d") == time.strftime("%Y-%m-%d", time.localtime(run.started_at))
    at = time.strftime("%H:%M" if today else "%Y-%m-%d %H:%M", time.localtime(run.started_at))
    total = len(run.items)
    parts = [at, ngettext("{} file", "{} files", total).format(total)]
    waiting, conflicts = run.waiting, run.states[State.CONFLICT]
    if conflicts:
        parts.append(ngettext("{} conflict", "{} conflicts", conflicts).format(conflicts))
    elif waiting:
        parts.append(ngettext("{} waits", "{} wait", waiting).format(waiting))
    for what, word in (
        (State.UNDONE, _("undone")),
        (State.DISCARDED, _("discarded")),
    ):
        if total and run.states[what] == total:
            parts.append(word)
    return " · ".join(parts)


def done(action: str, count: int, problems: list[str]) -> str:
    """What is told after a verb."""
    if problems:
        return problems[0]
    words = {
        "apply": ngettext("{} change applied.", "{} changes applied.", count),
        "redo": ngettext("{} change applied again.", "{} changes applied again.", count),
        "discard": ngettext("{} change discarded.", "{} changes discarded.", count),
        "undo": ngettext("{} change undone.", "{} changes undone.", count),
    }
    return words[action].format(count)


def verbs(states: set[State]) -> list[tuple[str, str]]:
    """What can be done: the name of the verb, and its label."""
    found = []
    if states & {State.PENDING, State.FAILED}:
        found += [("apply", _("Apply")), ("discard", _("Discard"))]
    if states & {State.CONFLICT}:
        found += [("take", _("Take Theirs")), ("keep", _("Keep Mine"))]
    if State.APPLIED in states:
        found.append(("undo", _("Undo")))
    if State.UNDONE in states:
        found.append(("redo", _("Redo")))
    return found


def file_verbs(state: State) -> list[tuple[str, str]]:
    """What was discarded comes back file by file only, so that nobody brings it all by mistake."""
    return [("redo", _("Apply"))] if state is State.DISCARDED else verbs({state})
