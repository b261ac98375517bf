# SPDX-License-Identifier: GPL-3.0-or-later
"""Reasons why a change or a version is not as expected. Code compares the reason; its sentence is
only for people and models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ... import N_
from ...errors import Sentence


class Reason(Enum):
    """The values are stored in the database: do not change them."""

    # Conflicts: someone else was there first.
    CHANGED = "changed"
    SAME_LINES = "same-lines"
    REMOVED = "removed"
    BASE_DISCARDED = "base-discarded"
    IS_FOLDER = "is-folder"
    IS_SPECIAL_FILE = "is-special-file"
    PLACE_TAKEN = "place-taken"
    FOLDER_NOT_EMPTY = "folder-not-empty"
    PARENT_REPLACED = "parent-replaced"
    CONCURRENT = "concurrent"
    RECREATED = "recreated"
    # What became of an applied change.
    EDITED = "edited"
    PARTLY = "partly"
    # Another run's version of the same file.
    LATER_RUN = "later-run"
    EARLIER_RUN = "earlier-run"
    # The version does not exist or cannot be used.
    LOST = "lost"
    OTHER_LOST = "other-lost"
    CHANGED_SINCE = "changed-since"
    ROOT_MISSING = "root-missing"
    UNREADABLE = "unreadable"
    SYSTEM_ERROR = "system-error"
    # Text that an earlier version of the program stored instead of a reason.
    OTHER = "other"


_SENTENCES = {
    Reason.CHANGED: N_("It was changed in the meantime."),
    Reason.SAME_LINES: N_("The same lines were changed in the meantime."),
    Reason.REMOVED: N_("It was removed in the meantime."),
    Reason.BASE_DISCARDED: N_("It is based on a version that you discarded."),
    Reason.IS_FOLDER: N_("It is a folder now."),
    Reason.IS_SPECIAL_FILE: N_("It is a special file now."),
    Reason.PLACE_TAKEN: N_("Something else with the same name exists now."),
    Reason.FOLDER_NOT_EMPTY: N_("The folder contains something that the command did not see."),
    Reason.PARENT_REPLACED: N_("A parent folder was replaced."),
    Reason.CONCURRENT: N_("Another command changed it at the same time."),
    Reason.RECREATED: N_(
        "The command recreated it unchanged, but another command's version is still pending."
    ),
    Reason.EDITED: N_("The file has been edited since."),
    Reason.PARTLY: N_("Only part of the change is in the project."),
    # Translators: {run} is the id of a run, such as 20260131-120000-abc.
    Reason.LATER_RUN: N_("A later run also changed it: {run}."),
    # Translators: {run} is the id of a run, such as 20260131-120000-abc.
    Reason.EARLIER_RUN: N_("An earlier run's version is pending again: {run}."),
    Reason.LOST: N_("This version no longer exists."),
    Reason.OTHER_LOST: N_("The other version no longer exists."),
    Reason.CHANGED_SINCE: N_("The file was changed later, and this version was not kept."),
    Reason.ROOT_MISSING: N_("Its folder no longer exists."),
    # Translators: {error} is the system's message, such as "Permission denied".
    Reason.UNREADABLE: N_("It cannot be read: {error}."),
    # The system's own words, in the language of whoever it happened to.
    Reason.SYSTEM_ERROR: "{error}.",
    Reason.OTHER: "{text}",
}


@dataclass(frozen=True)
class Note:
    """A reason, and what its sentence mentions."""

    reason: Reason
    arguments: Mapping[str, str] = field(default_factory=dict, hash=False)
    # Of a conflict, the signature of the file on disk that the user was told about.
    found: str = field(default="", compare=False)

    @property
    def sentence(self) -> Sentence:
        return Sentence(_SENTENCES[self.reason], **self.arguments)

    def packed_arguments(self) -> str:
        """Return the arguments as JSON, or "" if there are none."""
        given = {**self.arguments, "found": self.found} if self.found else self.arguments
        return json.dumps(given) if given else ""

    @classmethod
    def unpacked(cls, reason: str, arguments: str) -> Note:
        given = json.loads(arguments) if arguments else {}
        return cls(Reason(reason), given, given.pop("found", ""))

    @classmethod
    def of_error(cls, error: OSError) -> Note:
        return cls(Reason.SYSTEM_ERROR, {"error": error.strerror or str(error).rstrip(".")})


# What databases before version 4 hold, word for word: never reword it.
_OLD_SENTENCES = {
    "A folder around it is none any more.": Reason.PARENT_REPLACED,
    "Another command changed it at the same time, and that version waits.": Reason.CONCURRENT,
    "It is neither a file nor a link now.": Reason.IS_SPECIAL_FILE,
    "It was changed again since, and this version is not kept.": Reason.CHANGED_SINCE,
    "It was changed in the meantime.": Reason.CHANGED,
    "It was made again as it was. Another command changed it, and that version waits.": (
        Reason.RECREATED
    ),
    "It was removed in the meantime.": Reason.REMOVED,
    "The folder that it belongs to is gone.": Reason.ROOT_MISSING,
    "The other version is no longer kept.": Reason.OTHER_LOST,
    "There is a folder now.": Reason.IS_FOLDER,
    "There is something at its place now.": Reason.PLACE_TAKEN,
    "There is something in it that the command did not see.": Reason.FOLDER_NOT_EMPTY,
    "This version is no longer kept.": Reason.LOST,
}
_OLD_BEGINNINGS = {
    "A later run changed it, too: ": Reason.LATER_RUN,
    "An earlier run's version waits again: ": Reason.EARLIER_RUN,
}


def note_of_old_text(text: str) -> Note:
    """Return the note for a sentence in the database of an earlier version of the program."""
    if text in _OLD_SENTENCES:
        return Note(_OLD_SENTENCES[text])
    for beginning, reason in _OLD_BEGINNINGS.items():
        if text.startswith(beginning):
            return Note(reason, {"run": text.removeprefix(beginning).removesuffix(".")})
    return Note(Reason.OTHER, {"text": text})
