# SPDX-License-Identifier: GPL-3.0-or-later
"""The texts of the list of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ... import N_
from ...i18n import _, localized, ngettext
from ...project.change import Flag, Kind, Recorded, Report, State, Type
from ...project.reasons import Note, Reason
from ...project.short_list import count_files, mode_text, split_ignored
from ...text.visible import visible_path, visible_words
from ..widgets.actions import Action
from ..widgets.readable import day_and_time, ignored_files, number
from .model import RunData

# In a question.
_MOST_NAMES = 8
# Translated only when they are shown: a long list has very many rows.
_KINDS = {
    Kind.ADDED: (N_("Added"), "list-add-symbolic"),
    Kind.MODIFIED: (N_("Modified"), "document-edit-symbolic"),
    Kind.DELETED: (N_("Deleted"), "list-remove-symbolic"),
    Kind.REPLACED: (N_("Replaced"), "view-refresh-symbolic"),
}
# Each of them, and the same in short.
_MARKS = {
    Flag.LATER: (N_("Can run code outside the sandbox"), N_("Can run code")),
    Flag.OPENING: (N_("Can run code when you enter or open the folder"), N_("Can run code")),
    Flag.TOOL: (N_("Can run code when a tool starts"), N_("Can run code")),
    Flag.SHARED: (N_("Gives other users more rights"), N_("More rights")),
    Flag.EXECUTABLE: (N_("New executable"), N_("New executable")),
    Flag.OUTSIDE: (N_("Link that points outside the project"), N_("Points outside")),
    Flag.STRIPPED: (N_("Setuid bit removed"), N_("Setuid removed")),
}
_STATES = {
    State.APPLIED: N_("Applied"),
    State.PENDING: N_("Pending"),
    State.CONFLICT: N_("You also edited this file"),
    State.FAILED: N_("Could not be applied"),
    State.DISCARDED: N_("Discarded"),
    State.UNDONE: N_("Undone"),
}


def _kind(item: Recorded) -> str:
    return _(_KINDS[item.change.kind][0])


def kind_icon(item: Recorded) -> str:
    return _KINDS[item.change.kind][1]


def flag_labels(item: Recorded) -> list[str]:
    """Return labels for what the user should look at."""
    found = [_(_MARKS[flag][0]) for flag in item.change.flags if flag in _MARKS]
    if item.is_held and item.state is State.PENDING:
        found.append(_("Needs approval"))
    return found


def _state(item: Recorded) -> str:
    return _(_STATES[item.state])


def pill_label(item: Recorded) -> str:
    """Return one short label for what the user should look at, or ""; `flag_labels` says more."""
    if item.is_held and item.state is State.PENDING:
        return _("Needs approval")
    return next((_(_MARKS[flag][1]) for flag in item.change.flags if flag in _MARKS), "")


def change_text(item: Recorded) -> str:
    """Return everything about a change, in one line."""
    return " · ".join((_kind(item), _state(item), *flag_labels(item), *_details(item)))


def row_text(item: Recorded, *, is_said: bool) -> str:
    """Return what is worth a line below the name: neither the kind, which the icon shows, nor the
    flags, which have a pill, nor its state if that `is_said` above, for all files of the run."""
    parts = _details(item)
    # The pill of a held one says that it is pending.
    is_held = item.state is State.PENDING and item.is_held
    needs_attention = item.state in (State.CONFLICT, State.FAILED)
    if needs_attention or not (is_said or is_held):
        parts.insert(0, _state(item))
    return " · ".join(parts)


def page_text(item: Recorded) -> str:
    """Return a line above the content of the file. A conflict has sentences of its own."""
    # All lines of a new file are green.
    is_plain = item.change.kind in (Kind.ADDED, Kind.MODIFIED)
    pill = pill_label(item)
    flags = [label for label in flag_labels(item) if label != pill]
    parts = [*([] if is_plain else [_kind(item)]), *flags]
    if item.state is not State.CONFLICT:
        is_said = item.state is State.APPLIED or (item.state is State.PENDING and item.is_held)
        parts += [*([] if is_said else [_state(item)]), *_details(item)]
    return " · ".join(parts)


def _details(item: Recorded) -> list[str]:
    # Good to know, but it needs no second look.
    parts = [_("Runs in a build or a test")] if Flag.BUILD in item.change.flags else []
    if mode := mode_text(item.change):
        # Translators: {} is the mode of a file, or the old and the new one: 0644 → 0666.
        parts.append(_("Mode {}").format(mode))
    if item.change.type is Type.LINK and item.change.target:
        parts.append(f"→ {visible_path(item.change.target)}")
    # Of these, the state says all.
    is_said = item.state is State.CONFLICT and item.is_because(Reason.CHANGED)
    if item.note and not is_said:
        parts.append(note_text(item.note))
    return parts


def note_text(note: Note) -> str:
    """Return the reason in the language of the window."""
    return visible_words(localized(note.sentence))


def run_text(run: RunData) -> str:
    """Return when the run began, and what became of its changes."""
    total = sum(run.states.values())
    files = ngettext("{} file", "{} files", total).format(number(total))
    if run.ignored and not run.items:
        files = ignored_files(count_files(run.ignored))
    parts = [day_and_time(run.started_at), files]
    conflicts = run.states[State.CONFLICT]
    if conflicts:
        parts.append(ngettext("{} conflict", "{} conflicts", conflicts).format(number(conflicts)))
    elif run.pending:
        text = ngettext("{} pending", "{} pending", run.pending)
        parts.append(text.format(number(run.pending)))
    for what, word in (
        (State.UNDONE, _("undone")),
        (State.DISCARDED, _("discarded")),
    ):
        if total and run.states[what] == total:
            parts.append(word)
    return " · ".join(parts)


def ignored_row_text(run: RunData) -> str:
    """Return how many files of a run git ignores, and what became of them, unless that is the same
    for all files of the run."""
    parts = [ignored_files(count_files(run.ignored))]
    if len(run.ignored_states) == 1 and run.ignored_states.keys() != run.states.keys():
        parts.append(_state(run.ignored[0]))
    return " · ".join(parts)


def ignored_actions(run: RunData) -> list[Action]:
    if len(run.ignored_states) == 1:
        return file_actions(run.ignored[0])
    return run_actions(run.ignored_states)


def result_text(verb: str, count: int, problems: list[str]) -> str:
    """Return what a toast says after an action."""
    if problems:
        return problems[0]
    same = {"take": "apply", "both": "apply", "keep": "discard", "undo-later": "undo"}
    words = {
        "apply": ngettext("{} file applied.", "{} files applied.", count),
        "redo": ngettext("{} file applied again.", "{} files applied again.", count),
        "discard": ngettext("{} file discarded.", "{} files discarded.", count),
        "undo": ngettext("{} file undone.", "{} files undone.", count),
        "restore": ngettext("{} file restored.", "{} files restored.", count)
        if count
        else _("No files have changed since then."),
    }
    return words[same.get(verb, verb)].format(number(count))


def problems_text(problems: Sequence[str]) -> str:
    """Return what a toast says about several problems: the first, and how many more there are."""
    left = len(problems) - 1
    text = ngettext("{problem} {count} more problem.", "{problem} {count} more problems.", left)
    return text.format(problem=problems[0], count=number(left))


def hunk_text(verb: str, problems: list[str]) -> str:
    words = {
        "apply": _("Hunk applied."),
        "redo": _("Hunk applied again."),
        "discard": _("Hunk discarded."),
        "undo": _("Hunk undone."),
    }
    return problems[0] if problems else words[verb]


def along_text(verb: str, reports: Sequence[Report]) -> tuple[str, str, str]:
    """Return the heading, the body and the button of a question about changes of other runs."""
    shown, ignored = split_ignored([item for report in reports for item in report.changes])
    # Several runs may have changed the same file.
    names = [*dict.fromkeys(visible_path(item.change.path) for item in shown)]
    left = len(names) - _MOST_NAMES
    lines = names[:_MOST_NAMES]
    if left > 0:
        lines.append(ngettext("{} more", "{} more", left).format(number(left)))
    if ignored:
        places = {(item.change.root, item.change.path): item for item in ignored}
        lines.append(ignored_files(count_files([*places.values()])))
    if verb == "restore":
        heading, action = _("Restore Files to This Point?"), _("_Restore")
        body = _(
            "This session has changed these files since you sent the message. They go back to how "
            "they were then; your own edits stay:"
        )
    elif verb == "undo":
        heading, action = _("Undo Later Changes Too?"), _("_Undo")
        body = _("Later commands changed the same lines of these files:")
    elif verb in ("apply", "take", "redo"):
        heading, action = _("Apply Earlier Changes Too?"), _("_Apply")
        body = _("Earlier commands also changed these files, and their changes come first:")
    else:
        heading, action = _("Discard Later Changes Too?"), _("_Discard")
        body = _("Later commands changed these files further. That is discarded as well:")
    return heading, "\n".join([body, "", *lines]), action


def empty_text(*, is_filtered: bool, of_session: bool = False) -> tuple[str, str, str]:
    """Return the icon, title and description of the empty list."""
    if is_filtered:
        sentence = _("No command or changed path matches.")
        return "edit-find-symbolic", _("No Results Found"), sentence
    own = _("Changes that commands of this session make appear here.")
    sentence = own if of_session else _("Changes that commands make appear here.")
    return "document-edit-symbolic", _("No Changes Yet"), sentence


def busy_text() -> str:
    return _("Changes are being applied. Try again in a moment.")


def run_actions(states: Mapping[State, int]) -> list[Action]:
    """Return the actions on a whole run. Conflicts are decided file by file. If the buttons would
    not all be for the same files, each one says for how many it is."""
    pending, applied, undone = (
        sum(states.get(state, 0) for state in group)
        for group in ((State.PENDING, State.FAILED), (State.APPLIED,), (State.UNDONE,))
    )
    is_mixed = sum(map(bool, (pending, applied, undone))) > 1

    def named(count: int, label: str, counted: str) -> str:
        return counted.format(number(count)) if is_mixed else label

    found = []
    if pending:
        text = ngettext("Apply {} File", "Apply {} Files", pending)
        found.append(Action("apply", named(pending, _("Apply"), text)))
        text = ngettext("Discard {} File", "Discard {} Files", pending)
        found.append(Action("discard", named(pending, _("Discard"), text)))
    if undone:
        text = ngettext("Redo {} File", "Redo {} Files", undone)
        found.append(Action("redo", named(undone, _("Redo"), text)))
    if applied:
        text = ngettext("Undo {} File", "Undo {} Files", applied)
        found.append(Action("undo", named(applied, _("Undo"), text)))
    elif undone and not is_mixed:
        found.append(Action("undo", _("Undo"), is_done=True))
    return found


def file_actions(item: Recorded, edited_at: float | None = None) -> list[Action]:
    """Return the actions on one file; of a conflict, with the time of the user's edit."""
    state = item.state
    undo, discard = Action("undo", _("Undo")), Action("discard", _("Discard"))
    if state is State.CONFLICT:
        # As high while the time is being looked up.
        when = "\N{NO-BREAK SPACE}"
        if edited_at is not None:
            # Translators: {} is a day and a time.
            when = _("Edited: {}").format(day_and_time(edited_at))
        return [
            Action("take", _("Use the Agent's"), caption=_("Replaces your edit")),
            Action("both", _("Keep Both"), caption=_("Your lines, then the agent's")),
            Action("keep", _("Keep Mine"), caption=when),
        ]
    if state is State.APPLIED:
        return [undo]
    if state is State.UNDONE:
        return [Action("redo", _("Redo")), undo._replace(is_done=True)]
    if state is State.DISCARDED:
        return [Action("redo", _("Apply")), discard._replace(is_done=True)]
    return [Action("apply", _("Apply")), discard]
