# SPDX-License-Identifier: GPL-3.0-or-later
"""Reasons why a change or a version is not as expected. Code compares the reason; its sentence is
only for people and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .. import N_
from ..errors import Sentence


class Reason(Enum):
    """The values are stored with the runs: do not change them."""

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
    # What became of an applied change.
    EDITED = "edited"
    PARTLY = "partly"
    # The version does not exist or cannot be used.
    LOST = "lost"
    OTHER_LOST = "other-lost"
    CHANGED_SINCE = "changed-since"
    ROOT_MISSING = "root-missing"
    UNREADABLE = "unreadable"
    SYSTEM_ERROR = "system-error"
    # Held: what git would do with it.
    GIT_RUNS = "git-runs"
    GIT_RUNS_STAGED = "git-runs-staged"
    GIT_OBEYS = "git-obeys"
    GIT_SETTING = "git-setting"
    GIT_CONTENT = "git-content"
    GIT_STEPS = "git-steps"
    GIT_LOSES = "git-loses"
    GIT_UNKNOWN = "git-unknown"
    # Not undone.
    GIT_NEEDS = "git-needs"


_SENTENCES = {
    Reason.CHANGED: N_("It was changed in the meantime."),
    Reason.SAME_LINES: N_("The same lines were changed in the meantime."),
    Reason.REMOVED: N_("It was removed in the meantime."),
    # Translators: {run} is the id of a run, such as 20260131-120000-abc.
    Reason.BASE_DISCARDED: N_("It is based on a version that you discarded, of run {run}."),
    Reason.IS_FOLDER: N_("It is a folder now."),
    Reason.IS_SPECIAL_FILE: N_("It is a special file now."),
    Reason.PLACE_TAKEN: N_("Something else with the same name exists now."),
    Reason.FOLDER_NOT_EMPTY: N_("The folder contains something that the command did not see."),
    Reason.PARENT_REPLACED: N_("A parent folder was replaced."),
    Reason.EDITED: N_("The file has been edited since."),
    Reason.PARTLY: N_("Only part of the change is in the project."),
    Reason.LOST: N_("This version no longer exists."),
    Reason.OTHER_LOST: N_("The other version no longer exists."),
    Reason.CHANGED_SINCE: N_("The file was changed later, and this version was not kept."),
    Reason.ROOT_MISSING: N_("Its folder no longer exists."),
    # Translators: {error} is the system's message, such as "Permission denied".
    Reason.UNREADABLE: N_("It cannot be read: {error}."),
    # The system's own words, in the language of whoever it happened to.
    Reason.SYSTEM_ERROR: "{error}.",
    Reason.GIT_RUNS: N_("Git runs it, or a hook does."),
    Reason.GIT_RUNS_STAGED: N_(
        "Git runs it, or a hook does. It is also in git's index or the last commit: "
        "`git checkout`, `git stash` and `git reset` would put it in place."
    ),
    Reason.GIT_OBEYS: N_("Git obeys it: it can name programs, files and other repositories."),
    # Translators: {setting} is the name of a setting of git's, such as core.pager.
    Reason.GIT_SETTING: N_("Git would obey the setting {setting}."),
    Reason.GIT_CONTENT: N_("Git would show other content than the project's for the same commits."),
    Reason.GIT_STEPS: N_("Git would follow it when a rebase, merge or bisection continues."),
    Reason.GIT_LOSES: N_("Git would lose what is in it: no other file of the repository has it."),
    Reason.GIT_UNKNOWN: N_("Git does not write such a file by itself, and may act on it."),
    Reason.GIT_NEEDS: N_("Git still needs it: a branch, the index or a later commit refers to it."),
}


@dataclass(frozen=True)
class Note:
    """A reason, and the values in its sentence."""

    reason: Reason
    arguments: Mapping[str, str] = field(default_factory=dict, hash=False)
    # Of a conflict, the signature of the file on disk that the user was told about.
    found: str = field(default="", compare=False)

    @property
    def sentence(self) -> Sentence:
        return Sentence(_SENTENCES[self.reason], **self.arguments)

    def packed(self) -> list[object]:
        """Return it as a run's file stores it."""
        return [self.reason.value, dict(self.arguments), self.found]

    @classmethod
    def unpacked(cls, values: Sequence[Any]) -> Note:
        reason, arguments, found = values
        return cls(Reason(reason), arguments, found)

    @classmethod
    def of_error(cls, error: OSError) -> Note:
        return cls(Reason.SYSTEM_ERROR, {"error": error.strerror or str(error).rstrip(".")})
