# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies the table to the changes that a command made in git repositories."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from enum import Enum, auto
from hashlib import sha1

from ....files.dirfd import folders_above
from ...change import Change, Kind, Type
from ...reasons import Note, Reason
from ..risky import normalised
from .config import find_hostile_setting, leads_to_module, leads_to_worktree
from .folders import GitFolder, folder_around
from .index import LARGEST_INDEX, read_index, rewritten_index
from .objects import Allowance, IndexPack, Objects
from .table import GitRow, GitRule, find_row
from .view import View, read_disk


class GitAnswer(Enum):
    CROSSES = auto()
    # Git makes it again: what was there is removed, or nothing happens.
    LEFT_OUT = auto()
    REMOVED = auto()


class GitJudge:
    """Judges changes in one root: of files, and of folders in the place of files. What it makes
    instead of a command's file is written to the upper folder, and is the result of the change."""

    def __init__(self, root: str, view: View, index_pack: IndexPack) -> None:
        self._root = root
        self._view = view
        self._layers = view.roots[root]
        self._index_pack = index_pack
        self._objects: dict[str, Objects] = {}
        self._allowance = Allowance()
        self._staged: dict[str, dict[str, bytes]] = {}

    def judge(self, change: Change, git: str) -> GitAnswer | Note:
        """Decide about a change in the git folder `git`; return a note if it is held."""
        plain = os.path.basename(git)
        is_folder = change.type is Type.FOLDER
        if git and normalised(plain) in (".git", "git~1") and plain != ".git" and not is_folder:
            return Note(Reason.GIT_UNKNOWN)  # the same as .git on some file systems
        if os.path.isfile(f"{self._root}/{git}") or os.path.islink(f"{self._root}/{git}"):
            return Note(Reason.GIT_OBEYS)  # it leads to another repository
        folder = self._folder(git, change.path)
        row = find_row(folder.inner) if folder else find_row("")
        held = Note(row.why)
        if is_folder:
            # A branch may take the place of a folder of branches, and the other way round.
            # But not of a lock, which git would wait for in vain.
            inner = folder.inner if folder is not None else ""
            is_ref = inner.startswith(("refs/", "logs/"))
            is_fine = folder is None or (is_ref and row.rule is not GitRule.LOCK)
            # Git makes none in that of the hooks, where a hook may run all that is in one.
            is_made = change.kind is Kind.ADDED and not inner.startswith("hooks/")
            is_fine = is_fine or (row.rule is GitRule.HELD and is_made)
            return GitAnswer.CROSSES if is_fine else held
        if folder is None:
            return held
        try:
            if change.kind is Kind.DELETED:
                return self._judge_deletion(change, folder, row)
            # A file with another name could be changed by that, but not into another object: for
            # root, git makes links when it clones.
            is_object = row.rule in (GitRule.OBJECT, GitRule.PACK)
            is_linked = os.lstat(f"{self._layers[0]}/{change.path}").st_nlink != 1 and not is_object
            # Git makes no programs but samples of hooks.
            is_program = bool((change.mode or 0) & ~(change.old_mode or 0) & 0o111)
            is_program = is_program and not folder.inner.endswith(".sample")
            if is_linked or is_program or change.type is not Type.FILE:
                return held
            if change.old_type is Type.LINK:
                return held
            if row.rule in (GitRule.CACHE, GitRule.LOCK):
                is_stale = row.rule is GitRule.CACHE and change.kind is Kind.MODIFIED
                return GitAnswer.REMOVED if is_stale else GitAnswer.LEFT_OUT
            rule = _RULES.get(row.rule)
            return rule(self, change, folder, row) if rule else held
        except (OSError, ValueError):
            return held

    def _folder(self, git: str, path: str) -> GitFolder | None:
        """Return the innermost folder of git's that a path is in."""
        if os.path.basename(path) == ".git":
            place, _, name = f"{self._root}/{path}".rpartition("/")
            return GitFolder(place, name)
        place = f"{self._root}/{git}".rstrip("/")
        return folder_around(place, path[len(git) + 1 if git else 0 :], self._view)

    def _judge_deletion(self, change: Change, folder: GitFolder, row: GitRow) -> GitAnswer | Note:
        is_kept = row.stays or change.type is Type.LINK
        if folder.inner == ".git":
            # With its folder; otherwise git would take the repository around for it.
            is_kept = self._view.exists(folder.path)
        elif folder.is_worktree and not self._view.exists(folder.path):
            # Git removes what belongs to a worktree that it does not see.
            _, target = _pointer(read_disk(f"{folder.path}/gitdir") or b"")
            place = os.path.normpath(os.path.join(folder.path, target))
            is_kept = not target or self._view.exists(place)
        elif row.rule in (GitRule.OBJECT, GitRule.PACK):
            if self._objects_of(folder).loses(change.path):
                return Note(Reason.GIT_LOSES)
        elif row.rule is GitRule.LINES:
            return self._lines(change, folder, row)
        elif folder.inner.startswith("refs/"):
            # It may be in the packed ones now, and must not go without them.
            packed = f"{folder.path}/packed-refs"[len(self._root) + 1 :]
            found = self._view.read(f"{self._root}/{packed}")
            if found is not None and found != read_disk(f"{self._root}/{packed}"):
                packed_row = find_row("packed-refs")
                return self._lines(
                    change._replace(path=packed, kind=Kind.MODIFIED), folder, packed_row
                )
        return Note(row.why) if is_kept else GitAnswer.CROSSES

    def _objects_of(self, folder: GitFolder) -> Objects:
        if folder.path not in self._objects:
            inside = f"{folder.path}/objects"[len(self._root) + 1 :]
            self._objects[folder.path] = Objects(
                self._layers, inside, self._index_pack, self._allowance
            )
        return self._objects[folder.path]

    def _object(self, change: Change, folder: GitFolder, row: GitRow) -> GitAnswer | Note:
        is_right = self._objects_of(folder).is_right(change.path)
        return GitAnswer.CROSSES if is_right else Note(row.why)

    def _pack(self, change: Change, folder: GitFolder, row: GitRow) -> GitAnswer | Note:
        stem = change.path.rpartition(".")[0]
        made = self._objects_of(folder).made_index(stem)
        if made is None or (change.kind is not Kind.ADDED and change.path.endswith(".pack")):
            return Note(row.why)
        if change.path.endswith(".idx"):
            self._write(change, made)
            return GitAnswer.CROSSES
        index = self._view.read(f"{self._root}/{stem}.idx", most=len(made))
        is_ours = index == made or os.path.lexists(f"{self._layers[0]}/{stem}.idx")
        is_alone = not self._view.exists(f"{self._root}/{stem}.idx")
        return GitAnswer.CROSSES if is_ours or is_alone else Note(row.why)

    def _form(self, change: Change, folder: GitFolder, row: GitRow) -> GitAnswer | Note:
        is_added = change.kind is Kind.ADDED
        if (
            (row.rule is GitRule.FORM_IF_NEW and not folder.is_new)
            or (row.rule is GitRule.FORM_IF_ADDED and not is_added)
            or (row.rule is GitRule.FORM_UNLESS_ADDED and is_added and not folder.is_new)
        ):
            return Note(row.why)
        data = self._view.read(f"{self._root}/{change.path}")
        has_form = data is not None and row.form.fullmatch(data)
        return GitAnswer.CROSSES if has_form else Note(row.why)

    def _lines(self, change: Change, _folder: GitFolder, row: GitRow) -> GitAnswer | Note:
        path = f"{self._root}/{change.path}"
        new = b"" if change.kind is Kind.DELETED else self._view.read(path)
        old = read_disk(path)
        if new is None or old is None:
            return Note(row.why)
        differ = set(new.split(b"\n")) ^ set(old.split(b"\n"))
        return GitAnswer.CROSSES if all(map(row.form.fullmatch, differ)) else Note(row.why)

    def _index(self, change: Change, _folder: GitFolder, row: GitRow) -> GitAnswer | Note:
        path = f"{self._root}/{change.path}"
        new, old = self._view.read(path, LARGEST_INDEX), read_disk(path, LARGEST_INDEX)
        if new is None or old is None:
            return Note(row.why)
        time = int(os.lstat(path).st_mtime) if old else 0
        self._write(change, rewritten_index(new, old, time))
        return GitAnswer.CROSSES

    def _config(self, change: Change, folder: GitFolder, row: GitRow) -> GitAnswer | Note:
        path = f"{self._root}/{change.path}"
        new, old = self._view.read(path), read_disk(path)
        if new is None or old is None:
            return Note(row.why)
        hostile = find_hostile_setting(new, old, path, self._view, is_new=folder.is_new)
        if hostile is None:
            return GitAnswer.CROSSES
        return Note(Reason.GIT_SETTING, {"setting": hostile}) if hostile else Note(row.why)

    def _points(self, change: Change, folder: GitFolder, row: GitRow) -> GitAnswer | Note:
        data = self._view.read(f"{self._root}/{change.path}", 8192) or b""
        prefix, target = _pointer(data)
        if folder.inner == "commondir":
            is_good = folder.is_worktree and data == b"../..\n"
        elif folder.inner == "gitdir":
            is_good = folder.is_worktree and not prefix
            is_good = is_good and leads_to_worktree(target, folder.path, self._view)
        else:
            is_good = bool(prefix) and change.kind is Kind.ADDED and _is_empty(folder.path)
            is_good = is_good and leads_to_module(target, folder.path, self._view)
        return GitAnswer.CROSSES if is_good else Note(row.why)

    def _write(self, change: Change, data: bytes) -> None:
        """Put data in the place of the command's file, in one step."""
        file = f"{self._layers[0]}/{change.path}"
        made = f"{self._layers[0]}~made"
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as opened:
            opened.write(data)
            os.fchmod(descriptor, change.mode or 0o444)
        os.rename(made, file)

    def runs(self, change: Change) -> Note:
        """Return the note for a file of the project that git runs: whether the index has it, too,
        so that git itself would put it in place."""
        folder = os.path.dirname(f"{self._root}/{change.path}")
        data = self._view.read(f"{self._root}/{change.path}")
        for place in (folder, *folders_above(folder)) if data is not None else ():
            if not self._view.exists(f"{place}/.git"):
                continue
            id_ = sha1(b"blob %d\0%s" % (len(data or b""), data), usedforsecurity=False).digest()
            inside = f"{self._root}/{change.path}"[len(place) + 1 :]
            is_staged = self._staged_in(place).get(inside) == id_
            return Note(Reason.GIT_RUNS_STAGED if is_staged else Reason.GIT_RUNS)
        return Note(Reason.GIT_RUNS)

    def _staged_in(self, worktree: str) -> dict[str, bytes]:
        """Return the ids in the index of a worktree, by path."""
        if worktree not in self._staged:
            own = f"{worktree}/.git"
            if pointer := self._view.read(own, 8192):
                own = os.path.normpath(os.path.join(worktree, _pointer(pointer)[1]))
            data = self._view.read(f"{own}/index", LARGEST_INDEX)
            if data is None:
                data = read_disk(f"{own}/index", LARGEST_INDEX)
            try:
                entries = read_index(data or b"")
            except ValueError:
                entries = []
            self._staged[worktree] = {os.fsdecode(entry.name): entry.id for entry in entries}
        return self._staged[worktree]


_POINTER = re.compile(rb"(gitdir: )?([^\0\r\n]{1,4096})\n?")


def _is_empty(folder: str) -> bool:
    """Return whether there is nothing in a folder of the disk, or no such folder."""
    try:
        return not os.listdir(folder)
    except FileNotFoundError:
        return True


def _pointer(data: bytes) -> tuple[bytes | None, str]:
    """Return the prefix and the path in a file that leads to a folder."""
    found = _POINTER.fullmatch(data)
    return (found[1], os.fsdecode(found[2])) if found else (None, "")


_Rule = Callable[[GitJudge, Change, GitFolder, GitRow], GitAnswer | Note]
_RULES: dict[GitRule, _Rule] = {
    GitRule.OBJECT: GitJudge._object,
    GitRule.PACK: GitJudge._pack,
    GitRule.FORM: GitJudge._form,
    GitRule.FORM_IF_ADDED: GitJudge._form,
    GitRule.FORM_IF_NEW: GitJudge._form,
    GitRule.FORM_UNLESS_ADDED: GitJudge._form,
    GitRule.LINES: GitJudge._lines,
    GitRule.INDEX: GitJudge._index,
    GitRule.CONFIG: GitJudge._config,
    GitRule.POINTER: GitJudge._points,
}
