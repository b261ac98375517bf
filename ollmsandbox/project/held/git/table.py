# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of what crosses unasked, by the path in a repository. What is in no row is held.

A row gives the rule, the form that the content must have, and what git would do with a file that
breaks the rule. The first row that matches counts.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from ...reasons import Reason


class GitRule(Enum):
    # The content hashes to the name. Git itself does not look when it reads an object.
    OBJECT = auto()
    # A new pack, with an index that we make: git believes the index.
    PACK = auto()
    # Left out, and removed if it was changed: git makes it again.
    CACHE = auto()
    # Left out: it belongs to a git process that has ended.
    LOCK = auto()
    # The whole content has the form.
    FORM = auto()
    # The same, of a new file; and only in a repository that the command creates.
    FORM_IF_ADDED = auto()
    FORM_IF_NEW = auto()
    # The same, of a file that was there; or of a repository that the command creates.
    FORM_UNLESS_ADDED = auto()
    # The lines that were added or removed have the form.
    LINES = auto()
    # Written again by us: `index.py`.
    INDEX = auto()
    # Only allowed settings differ: `config.py`.
    CONFIG = auto()
    # It leads to a folder of the project or of its repository that leads back.
    POINTER = auto()
    HELD = auto()


class GitRow(NamedTuple):
    path: re.Pattern[str]
    rule: GitRule
    form: re.Pattern[bytes]
    why: Reason
    # Whether it is held if it is deleted.
    stays: bool


_ID = r"(?:[0-9a-f]{40}|[0-9a-f]{64})"
# References that git only shows, merges and pushes. `refs/replace` is obeyed. A shell's prompt may
# obey a name as the shell would.
_REF = (
    r"refs/(?:(?:heads|tags|remotes|notes|bisect|rewritten|original)/"
    r"(?!-|\S*\.\.)[^\0-\x20\x7f:\\^~?*\[$`]+|stash)"
)
# A part of a path that git may write to: not `..`, and not `.git` on any file system.
_PART = r"(?!(?i:\.git[. ]*|git~\d+|\.{0,2})[/\0])[^/\0]+"
_TEXT = r"(?s:.*)"
_COMMENTS = r"(?:(?:#.*)?\n)*"
_WORD = r"[\w-]*\n?"
# In a list of steps. `exec` would run a program.
_STEP = (
    r"(?:pick|p|reword|r|edit|e|squash|s|fixup|f|drop|d|break|b|label|l|reset|t|merge|m|revert"
    rf"|noop)(?: [^\0\r\n]*)?|(?:update-ref|u) {_REF}|#[^\0\r\n]*|"
)
_STRATEGY = r"(?:ort|recursive|resolve|octopus|ours|subtree)?\n?"
_REBASE, _ANY_STATE = "rebase-(?:merge|apply)/", "(?:rebase-(?:merge|apply)|sequencer)/"


def _row(
    path: str,
    rule: GitRule,
    form: str = _TEXT,
    why: Reason = Reason.GIT_UNKNOWN,
    *,
    stays: bool = False,
) -> GitRow:
    return GitRow(re.compile(path, re.DOTALL), rule, re.compile(form.encode()), why, stays)


_CONTENT, _RUNS, _OBEYS = Reason.GIT_CONTENT, Reason.GIT_RUNS, Reason.GIT_OBEYS
TABLE = (
    _row(r"objects/[0-9a-f]{2}/(?:[0-9a-f]{38}|[0-9a-f]{62})", GitRule.OBJECT, why=_CONTENT),
    _row(rf"objects/pack/pack-{_ID}\.(?:pack|idx)", GitRule.PACK, why=_CONTENT),
    _row(r".+\.lock|objects/(?:../|pack/)?\.?tmp[_-].+|gc\.pid|rebase-apply/patch-merge-index",
         GitRule.LOCK, stays=True),
    _row(r"objects/pack/(?:[^/]+\.(?:rev|bitmap|mtimes)|multi-pack-index[^/]*|multi-pack-index.d/.+)"
         r"|objects/info/(?:packs|commit-graph|commit-graphs/.+)|info/refs|gc\.log"
         # Git writes to the files in the list of MERGE_RR, and copies them to a postimage.
         r"|MERGE_RR|rr-cache/[^/]+/postimage[^/]*", GitRule.CACHE, why=_CONTENT),
    # References, and their logs.
    _row(_REF, GitRule.FORM, rf"(?:{_ID}|ref: {_REF})\n?", _CONTENT),
    _row(rf"logs/(?:HEAD|{_REF})", GitRule.FORM, rf"(?:{_ID} {_ID} [^\0\n]*(?:\n|\Z))*+"),
    _row("packed-refs", GitRule.LINES, rf"#[^\0]*|\^{_ID}|{_ID} {_REF}|", _CONTENT),
    _row("HEAD", GitRule.FORM, rf"(?:{_ID}|ref: {_REF})\n?", _CONTENT, stays=True),
    _row(r"(?:ORIG|MERGE|CHERRY_PICK|REVERT|REBASE|BISECT)_HEAD|AUTO_MERGE|MERGE_AUTOSTASH"
         r"|BISECT_EXPECTED_REV", GitRule.FORM, rf"(?:{_ID}\n?)*+", _CONTENT),
    # Git takes these commits for first ones.
    _row("shallow", GitRule.FORM_UNLESS_ADDED, rf"(?:{_ID}\n)*+", _CONTENT),
    _row("FETCH_HEAD", GitRule.FORM, rf"(?:{_ID}\t(?:not-for-merge)?\t[^\0\n]*\n)*+", _CONTENT),
    _row(r"[A-Z]+_(?:EDITMSG|MSG)|EDIT_DESCRIPTION|hooks/[^/]+\.sample|locked", GitRule.FORM),
    _row("MERGE_MODE", GitRule.FORM, _WORD),
    _row(r"rr-cache/[^/]+/(?:preimage|thisimage)[.\d]*", GitRule.FORM_IF_ADDED),
    # A rebase, a cherry-pick or a bisection in progress.
    _row(rf"{_REBASE}(?:git-rebase-todo(?:\.backup)?|done)|sequencer/todo", GitRule.FORM,
         rf"(?:(?:{_STEP})(?:\n|\Z))*+", Reason.GIT_STEPS),
    _row(rf"{_ANY_STATE}(?:onto|orig-head|amend|stopped-sha|autostash|squash-onto|abort-safety|head"
         r"|original-commit|rewritten|rewritten-(?:list|pending))", GitRule.FORM,
         rf"(?:{_ID}(?: {_ID})?\n?)*+", Reason.GIT_STEPS),
    _row(rf"{_REBASE}(?:head-name|refs-to-delete|update-refs)", GitRule.FORM,
         rf"(?:(?:detached HEAD|{_REF}|{_ID})\n?)*+", Reason.GIT_STEPS),
    _row(rf"{_REBASE}author-script", GitRule.FORM,
         r"(?:GIT_AUTHOR_(?:NAME|EMAIL|DATE)='(?:[^'\0]|'\\['!]')*+'\n)*+", Reason.GIT_STEPS),
    _row(rf"{_REBASE}(?:message[^/]*|patch|info|msg|msg-clean|final-commit|\d+|current-fixups)",
         GitRule.FORM),
    _row(rf"{_REBASE}(?:end|msgnum|next|last|interactive|quiet|verbose|signoff|sign|keep|utf8"
         r"|scissors|threeway|messageid|quoted-cr|rebasing|applying|dirtyindex|ignore_date"
         r"|(?:no-)?reschedule-failed-exec|(?:drop|keep)_redundant_commits|cdate_is_adate"
         r"|allow_rerere_autoupdate)", GitRule.FORM, _WORD, Reason.GIT_STEPS),
    _row(rf"{_REBASE}strategy", GitRule.FORM, _STRATEGY, Reason.GIT_STEPS),
    _row(rf"{_REBASE}apply-opt", GitRule.FORM, r"\n?", Reason.GIT_STEPS),
    _row(rf"{_REBASE}strategy_opts", GitRule.FORM, r"(?: '?--(?:ours|theirs)'?)*\n?",
         Reason.GIT_STEPS),
    _row("sequencer/opts", GitRule.FORM, r"\[options\]\n(?:\t(?:no-commit|edit|signoff"
         r"|record-origin|allow-ff|allow-empty|keep-redundant-commits|mainline) = \w+\n"
         r"|\tstrategy-option = (?:ours|theirs)\n)*+", Reason.GIT_STEPS),
    _row("BISECT_LOG", GitRule.FORM,
         r"(?:(?:#[^\0\n]*|git bisect (?:start|good|bad|new|old|skip|terms)[\w '^~./@{}+-]*)\n)*+"),
    _row("BISECT_(?:NAMES|START|TERMS|ANCESTORS_OK|FIRST_PARENT)", GitRule.FORM,
         r"(?:(?!-)\w[\w./+@-]*|(?: '[\w./ -]*')*+)?(?:\n[\w-]*)*+", Reason.GIT_STEPS),
    # What leads git to files, and settings.
    _row("index", GitRule.INDEX, why=_CONTENT),
    _row("config", GitRule.CONFIG, why=_OBEYS, stays=True),
    _row(r"\.git|gitdir|commondir", GitRule.POINTER, why=_OBEYS, stays=True),
    _row("description", GitRule.FORM_IF_NEW),
    _row("info/exclude", GitRule.FORM_IF_NEW, _COMMENTS, _CONTENT, stays=True),
    # Only for the sentence.
    _row(r"hooks(?:/.+)?", GitRule.HELD, why=_RUNS, stays=True),
    _row(r"config\.worktree|(?:remotes|branches|info)(?:/.+)?", GitRule.HELD, why=_OBEYS,
         stays=True),
    _row(r"refs/.+|objects/.+|sharedindex\..+", GitRule.HELD, why=_CONTENT, stays=True),
    _row(rf"{_ANY_STATE}.+", GitRule.HELD, why=Reason.GIT_STEPS),
    _row(_TEXT, GitRule.HELD, stays=True),
)  # fmt: skip

_BOOLEAN = r"true|false"
# Of a branch, a remote or a submodule.
_NAME = r"(?![-./])(?!.*(?:\.\.|//))[^\s\\\"^:~?*\[]+"
# Settings, as `section.*.key` with a name between, and the values that cross in any repository.
SETTINGS = {
    "branch.*.merge": rf"refs/heads/{_NAME}",
    "branch.*.rebase": rf"{_BOOLEAN}|merges",
    "user.name": r"[^\n\t]*",
    "user.email": r"[^\n\t]*",
    "submodule.active": r"[\w./*-]+",
    "submodule.*.active": _BOOLEAN,
}
# The same for a repository that the command creates. `config.py` looks at those that have no value
# here: names of remotes, addresses, and the worktree of a submodule.
NEW_SETTINGS = {
    **SETTINGS,
    "core.repositoryformatversion": r"[01]",
    "core.filemode": _BOOLEAN,
    "core.bare": _BOOLEAN,
    "core.logallrefupdates": rf"{_BOOLEAN}|always",
    "core.symlinks": _BOOLEAN,
    "core.ignorecase": _BOOLEAN,
    "core.precomposeunicode": _BOOLEAN,
    "remote.*.fetch": r"\+?refs/(?:heads|tags)/[\w./*-]+:refs/(?:remotes|tags)/[\w./*-]+",
    "remote.*.tagopt": r"--no-tags",
}
NAME = re.compile(_NAME)
SAFE_PATH = re.compile(rf"{_PART}(?:/{_PART})*+/?\0".encode())
# Where other programs, or commands, may put a repository.
UNTRUSTED = ("/proc", "/dev", "/run", "/sys", "/tmp", "/var/tmp")


def find_row(path: str) -> GitRow:
    return next(row for row in TABLE if row.path.fullmatch(path))
