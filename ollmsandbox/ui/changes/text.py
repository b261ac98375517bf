# SPDX-License-Identifier: GPL-3.0-or-later
"""What the list of changes says."""

from __future__ import annotations

import time

from ... import N_
from ...i18n import _, localized, ngettext
from ...project.changes.change import Flag, Kind, Recorded, State, Type
from ...project.changes.reasons import Note
from ...text.visible import visible_line, visible_words
from .list_model import RunData

# One row of a long list after the other says such words: only those it says are looked up.
_KINDS = {
    Kind.ADDED: N_("Added"),
    Kind.MODIFIED: N_("Modified"),
    Kind.DELETED: N_("Deleted"),
    Kind.REPLACED: N_("Replaced"),
}
_ICONS = {
    Kind.ADDED: "list-add-symbolic",
    Kind.MODIFIED: "document-edit-symbolic",
    Kind.DELETED: "list-remove-symbolic",
    Kind.REPLACED: "view-refresh-symbolic",
}
_MARKS = {
    Flag.LATER: N_("Acts later, outside the sandbox"),
    Flag.EXECUTABLE: N_("New program that can be run"),
    Flag.OUTSIDE: N_("Link that leaves the project"),
    Flag.STRIPPED: N_("Its setuid bit was removed"),
}
_STATES = {
    State.APPLIED: N_("Applied"),
    State.PENDING: N_("Waits"),
    State.CONFLICT: N_("You changed it, too"),
    State.FAILED: N_("Could not be applied"),
    State.DISCARDED: N_("Discarded"),
    State.UNDONE: N_("Undone"),
}


def kind(item: Recorded) -> str:
    return _(_KINDS[item.change.kind])


def icon(item: Recorded) -> str:
    return _ICONS[item.change.kind]


def marks(item: Recorded) -> list[str]:
    """What a person should look at twice."""
    found = [_(_MARKS[flag]) for flag in item.change.flags if flag in _MARKS]
    if item.is_held and item.state is State.PENDING:
        found.append(_("Waits for your yes, since it acts later"))
    return found


def state(item: Recorded) -> str:
    if item.state is State.CONFLICT and item.is_aside:
        return _("Another command changed it, too")
    return _(_STATES[item.state])


def about(item: Recorded) -> str:
    """One line below the name."""
    parts = [kind(item), state(item), *marks(item)]
    if item.change.type is Type.LINK and item.change.target:
        parts.append(f"→ {visible_line(item.change.target)}")
    if item.note:
        parts.append(note_text(item.note))
    return " · ".join(parts)


def note_text(note: Note) -> str:
    """Return the reason in the language of the window."""
    return visible_words(localized(note.sentence))


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


def done(verb: str, count: int, problems: list[str]) -> str:
    """What is told after a verb."""
    if problems:
        return problems[0]
    action = {"take": "apply", "keep": "discard"}.get(verb, verb)
    words = {
        "apply": ngettext("{} change applied.", "{} changes applied.", count),
        "redo": ngettext("{} change applied again.", "{} changes applied again.", count),
        "discard": ngettext("{} change discarded.", "{} changes discarded.", count),
        "undo": ngettext("{} change undone.", "{} changes undone.", count),
    }
    return words[action].format(count)


def empty(*, is_filtered: bool) -> tuple[str, str, str]:
    """An icon, a title and a sentence, where no run is listed."""
    if is_filtered:
        sentence = _("No command has this in it, and no path that one changed.")
        return "edit-find-symbolic", _("Nothing Found"), sentence
    sentence = _("What commands change in the project is listed here.")
    return "document-edit-symbolic", _("No Changes Yet"), sentence


def held() -> str:
    """Why nothing is begun just now."""
    return _("Something is being changed. Try again when that is over.")


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
