# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies changes to one root of the project, and undoes and redoes them.

The version from before a change is kept. A file that somebody else changed meanwhile is left alone
and becomes a conflict. Every step can be repeated, so a job that was interrupted by a kill is
finished by running it again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from ...files import dirfd
from ...files.dirfd import FOLDER, DirEntryAt, OpenTree, modes_file
from ...paths import make_folder
from ..changes.change import MANY, Change, Kind, Recorded, State, Type
from ..changes.reasons import Note, Reason
from .journal import Task
from .patch import Patch, has_same_bytes, keep_copy, modes_note
from .swap import (
    HALF,
    ConflictError,
    Exchanged,
    Found,
    Plain,
    Step,
    exchange,
    in_conflict,
    make_single,
    signature,
)

Check = Callable[[Found], bool]


class Applier:
    """Applies, undoes and redoes changes of one run to one root of a project.

    `versions` is where the run keeps what was there before (by number) and, when that is undone,
    what was there after (`new-` and the number).
    """

    def __init__(
        self,
        root: str,
        versions: Path,
        run_id: str,
        step: Step,
        *,
        source: str | None = None,
        since: int = 0,
        forced: Iterable[str] = (),
        written: Mapping[int, tuple[str, str]] | None = None,
        find_base: Callable[[Recorded], Path | None] | None = None,
        left_before: Callable[[Recorded], Collection[str]] = lambda _item: (),
    ) -> None:
        """`source` is the layer that changes are applied from. `since` is when somebody decided
        what is finished now, after a kill, and `written` are the signatures recorded until then.

        `forced` paths are put in place whatever is there. `left_before` returns the signatures of
        what earlier runs left at a place. `find_base` is given to settle a run, whose layer has no
        other run's files: it finds what the command saw of a file that another run has changed
        since.
        """
        with contextlib.ExitStack() as opened:
            top = dirfd.open_root(root)
            opened.callback(os.close, top)
            self._versions = os.open(make_folder(versions), FOLDER)
            opened.callback(os.close, self._versions)
            if since:
                _remove_halves(self._versions)
            self._layer = None
            if source is not None:
                modes = modes_file(source) if source else None
                self._layer = OpenTree(source, modes, missing_ok=find_base is None)
            self._project = OpenTree(root, modes_note(versions, root), top=top, is_durable=True)
            opened.pop_all()
        self._run_id = run_id
        self._step = step
        self._since = since
        self._forced = frozenset(forced)
        self._written = written or {}
        self._find_base = find_base
        self._left_before = left_before
        self._is_fresh = find_base is not None and not since
        # Files with several names, by inode: time, size and mode when one of the names was removed.
        self._linked: dict[int, tuple[int, int, int]] = {}
        # Of the change that is at work: what was at its place, and whether it is the second try.
        self._found = ""
        self._is_again = False

    def close(self) -> None:
        os.close(self._versions)
        self._project.leave()
        if self._layer is not None:
            self._layer.close()

    def perform(self, task: Task, recorded: Sequence[Recorded]) -> list[Recorded]:
        """Do the same with each change, and return them as they are then."""
        if task is Task.HUNKS:
            # The state of a change stays.
            done = [self._try(item, self._merge_hunks, item.state) for item in recorded]
        elif task is Task.UNDO:
            done = [self._try(item, self._undo, State.UNDONE) for item in reversed(recorded)]
            done.reverse()
        else:
            done = self._apply(recorded)
        failed = dict(self._project.close())
        done = [
            item._replace(state=State.FAILED, note=Note.of_error(failed[item.change.path]))
            if item.change.path in failed
            else item
            for item in done
        ]
        is_resumed = self._since and task is not Task.HUNKS
        return [self._only_ours(item) for item in done] if is_resumed else done

    def _apply(self, recorded: Sequence[Recorded]) -> list[Recorded]:
        plain = None
        if self._layer is not None:
            if len(recorded) < MANY:
                self._keep_results(recorded, self._layer)
            if self._is_fresh:
                plain = Plain(self._project, self._layer, self._versions, self._step)
        done: list[Recorded] = []
        for item in recorded:
            begun = None
            if plain is not None and item.change.is_plain and plain.is_possible:
                put = plain.put(item.change, item.number, item.began)
                if put is not None:
                    done.append(
                        Recorded(item.number, item.change, State.APPLIED, None, item.began, *put)
                    )
                    continue
                begun = plain.begun
            done.append(self._try(item, self._exchange, State.APPLIED, begun))
            if plain is not None:
                plain.reset()
        return done

    def _keep_results(self, recorded: Iterable[Recorded], layer: OpenTree) -> None:
        for item in recorded:
            if item.change.type is Type.FILE and item.change.kind is not Kind.DELETED:
                # What cannot be kept is applied all the same: undo then needs the file as it was
                # left.
                with contextlib.suppress(OSError, ConflictError):
                    incoming = DirEntryAt(*layer.split(item.change.path))
                    keep_copy(incoming, Patch(self._versions, item.number).result)

    def _try(
        self,
        item: Recorded,
        one: Callable[[Recorded], Exchanged],
        state: State,
        begun: str | None = None,
    ) -> Recorded:
        """Do one change, and return it with its new state: a failure does not stop the others.
        `begun` is what was found at its place, if it was begun before."""
        self._found, self._is_again = begun or "", begun is not None
        try:
            try:
                done = one(item)
            except PermissionError:
                # A command may write in a folder that it has opened for that, and closed again.
                around = os.path.dirname(item.change.path)
                self._project.unlock(around)
                if self._layer is not None:
                    with contextlib.suppress(OSError):
                        self._layer.unlock(around)
                self._is_again = True
                done = one(item)
        except ConflictError as conflict:
            self._forget_half(item)
            return in_conflict(item, Note(conflict.reason))
        except OSError as error:
            self._forget_half(item)
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                return in_conflict(item, Note(Reason.PARENT_REPLACED))
            is_gone = error.errno == errno.ENOENT
            note = Note(Reason.ROOT_MISSING) if is_gone else Note.of_error(error)
            return item._replace(state=State.FAILED, note=note)
        if self._is_again:
            # To keep it changed its time: what it was is known from the first try.
            done = done._replace(before=done.before or self._found)
        return Recorded(item.number, item.change, state, None, item.began, *done)

    def _undo(self, item: Recorded) -> Exchanged:
        return self._exchange(item, back=True)

    def _exchange(self, item: Recorded, *, back: bool = False) -> Exchanged:
        """Put the version after a change in the place of the one before it; or `back`.

        If there is neither, because somebody else has changed the file, too, merge.
        """
        change = _reversed(item.change) if back else item.change
        if change.path == ".":
            group_bit = os.fstat(self._project.folder("")).st_mode & stat.S_ISGID
            self._project.set_mode("", (change.mode or 0o700) | group_bit)
            return Exchanged()
        patch = Patch(self._versions, item.number)
        result = patch.result if item.state is State.DISCARDED else patch.applied
        old, new, kept = patch.base, result, patch.base
        if back:
            old, new, kept = patch.result, patch.base, result
        place = self._place(change, kept)
        if place is None:
            return Exchanged()
        is_forced = change.path in self._forced

        def was_left(found: Found) -> bool:
            """Return whether an earlier run left it, whose change was pending until then."""
            self._found = signature(found.stat)
            return self._layer is not None and self._found in self._left_before(item)

        def is_expected(found: Found) -> bool:
            if item.state in (State.APPLIED, State.UNDONE):
                is_known = self._is_as_left(found, item.after)
            else:
                is_known = self._is_unchanged(found, item.began)
            # Somebody may have saved the same bytes. An edit is merged with what earlier runs left.
            return (
                is_known or has_same_bytes(old, place) or (not change.is_edit and was_left(found))
            )

        def is_allowed(found: Found) -> bool:
            """Allow any file, as the user said; but after a kill, none that was saved later."""
            return not self._since or self._is_unchanged(found, self._since)

        check = is_allowed if is_forced else is_expected
        if change.type is Type.FOLDER:
            return self._folder(change, place, kept, check)
        if is_forced and self._layer is None and not self._since and kept.lstat() is not None:
            there = place.lstat()
            if there is not None and not is_expected(Found(there, is_linked=False)):
                # The user's text is neither version, and must not take the place of one.
                kept = patch.mine
                kept.unlink(missing_ok=True)
        incoming = None
        if change.kind is not Kind.DELETED:
            if self._layer is not None:
                try:
                    new = DirEntryAt(*self._layer.split(change.path))
                except FileNotFoundError:
                    # Taken out before, with the folder around it.
                    if (found := place.lstat()) is None:
                        raise ConflictError(Reason.LOST) from None
                    return Exchanged("", signature(found))
            if self._since:
                return_rights(new, change.mode)
            incoming = new if self._layer is not None else self._copy_version(patch, new, place)
            if change.old_type is Type.FOLDER and incoming.lstat() is not None:
                self._remove_folder(place)

        def merge() -> Exchanged:
            if self._find_base is not None:
                # Another run may have changed it, and have kept what this one's command saw.
                if (earlier := self._find_base(item)) is None:
                    raise ConflictError(Reason.CHANGED)
                patch.take_base(earlier)
            done = self._merge(item, place, old, new, (change.old_mode, change.mode))
            if self._layer is not None:
                new.unlink()
            return done

        def put(check: Check) -> Exchanged:
            return exchange(
                place,
                incoming,
                kept,
                may_replace=check,
                expects=change.old_type in (Type.FILE, Type.LINK) and not is_forced,
                temporary=self._temporary(item),
                step=self._step,
                fresh=self._is_fresh and not self._is_again and kept.lstat() is None,
            )

        if is_forced and change.is_edit:
            # The conflict may be resolved by now.
            with contextlib.suppress(ConflictError):
                return merge()
        try:
            return put(check)
        except ConflictError as conflict:
            if conflict.reason is not Reason.CHANGED or not change.is_edit:
                raise
        try:
            return merge()
        except ConflictError as conflict:
            # Of some, no version is kept that could be merged.
            if conflict.reason is not Reason.CHANGED:
                raise
            return put(was_left)

    def _copy_version(self, patch: Patch, version: DirEntryAt, place: DirEntryAt) -> DirEntryAt:
        """Return what is put into the project in place of a version, which the run keeps."""
        if version.lstat() is None and not self._since and not self._is_again:
            raise ConflictError(Reason.OTHER_LOST)
        make_single(version, place)
        return patch.copy_of(version)

    def _is_unchanged(self, found: Found, began: int) -> bool:
        there = found.stat
        if found.is_linked:
            return self._is_as_linked(there, began)
        looks = (there.st_mtime_ns, there.st_size, there.st_mode)
        self._found = signature(there)
        # That we took another of its names away changed its time, too.
        if there.st_ctime_ns > began and self._linked.get(there.st_ino) != looks:
            return False
        if there.st_nlink > 1:
            self._linked[there.st_ino] = looks
        return True

    def _is_as_left(self, found: Found, after: str) -> bool:
        inode, _, changed = after.partition(":")
        if not found.is_linked or not changed:
            return signature(found.stat) == after
        return found.stat.st_ino == int(inode) and self._is_as_linked(found.stat, int(changed))

    def _is_as_linked(self, there: os.stat_result, at: int) -> bool:
        """Return whether nobody has written to a file since it was linked, by the first try or
        before a kill. Only a file that may be replaced is linked."""
        return self._is_again or there.st_mtime_ns <= at

    def _merge_hunks(self, item: Recorded) -> Exchanged:
        """Merge the hunks that the user chose."""
        patch = Patch(self._versions, item.number)
        place = DirEntryAt(*self._project.split(item.change.path))
        return self._merge(item, place, patch.without_hunks, patch.with_hunks)

    def _merge(
        self,
        item: Recorded,
        place: DirEntryAt,
        old: DirEntryAt,
        new: DirEntryAt,
        modes: tuple[int | None, int | None] = (None, None),
    ) -> Exchanged:
        """Merge a change into what somebody else has made of the file."""
        Patch(self._versions, item.number).merge_into(
            place,
            old,
            new,
            modes=modes,
            resumed=bool(self._since),
            temporary=self._temporary(item),
            step=self._step,
        )
        # What is in the project is neither version: it is known by no signature.
        return Exchanged(item.before, "")

    def _only_ours(self, item: Recorded) -> Recorded:
        """Return an item without its signature if what is at its place after a kill may be somebody
        else's: then an undo has to ask.

        If no signature was recorded before the kill, a file counts as ours only if it was not
        modified after the journal was written.
        """
        if item.state not in (State.APPLIED, State.UNDONE) or not item.after:
            return item
        if item.number in self._written:
            before, after = self._written[item.number]
            return item._replace(before=before, after=after)
        change, place = item.change, f"{item.change.root}/{item.change.path}"
        is_new = item.state is State.APPLIED
        try:
            found = os.lstat(place)
            is_ours = found.st_mtime_ns <= self._since
            if is_new and change.type is Type.LINK:
                is_ours = os.readlink(place) == change.target
            elif is_new and change.inode and self._layer is not None:
                is_copied = found.st_dev != os.fstat(self._layer.folder("")).st_dev
                is_ours &= is_copied or found.st_ino == change.inode
        except OSError:
            is_ours = False
        return item if is_ours else item._replace(after="")

    def _place(self, change: Change, kept: DirEntryAt) -> DirEntryAt | None:
        """Return the place of a change; None if it and its parents are deleted already."""
        try:
            return DirEntryAt(*self._project.split(change.path))
        except FileNotFoundError:
            if change.kind is Kind.DELETED:
                return None
            raise
        except OSError as error:
            # After a kill, the folder around it may be replaced already. Else it cannot be: the
            # content of a folder is deleted before the folder.
            is_done = self._since and (change.type is Type.FOLDER or kept.lstat() is not None)
            if (
                error.errno in (errno.ELOOP, errno.ENOTDIR)
                and change.kind is Kind.DELETED
                and is_done
            ):
                return None
            raise

    def _folder(
        self, change: Change, place: DirEntryAt, kept: DirEntryAt, check: Check
    ) -> Exchanged:
        """Apply the change of a folder. Its content has changes of its own."""
        before = ""
        if change.kind is Kind.DELETED:
            self._remove_folder(place)
            return Exchanged()
        if change.kind is Kind.REPLACED and change.old_type is not Type.FOLDER:
            found = place.lstat()
            if found is not None and not stat.S_ISDIR(found.st_mode):
                before = exchange(
                    place,
                    None,
                    kept,
                    may_replace=check,
                    expects=False,
                    temporary="",
                    step=self._step,
                ).before
        if change.kind is not Kind.MODIFIED:
            with contextlib.suppress(FileExistsError):
                os.mkdir(place.name, 0o700, dir_fd=place.dir_fd)
                self._step()
        found = place.lstat()
        if found is None or not stat.S_ISDIR(found.st_mode):
            is_mode = change.kind is Kind.MODIFIED
            raise ConflictError(Reason.REMOVED if is_mode else Reason.PLACE_TAKEN)
        mode = change.mode if change.mode is not None else 0o755
        # The bit that passes on the folder's group is none of the command's business.
        self._project.set_mode(change.path, mode | found.st_mode & stat.S_ISGID)
        return Exchanged(before)

    def _remove_folder(self, place: DirEntryAt) -> None:
        found = place.lstat()
        if found is None or not stat.S_ISDIR(found.st_mode):
            return
        try:
            os.rmdir(place.name, dir_fd=place.dir_fd)
            self._step()
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise ConflictError(Reason.FOLDER_NOT_EMPTY) from error
            raise

    def _temporary(self, item: Recorded) -> str:
        return f".ollmsandbox-{self._run_id}-{item.number}~"

    def _forget_half(self, item: Recorded) -> None:
        """Remove a partial copy that an interrupted job left."""
        with contextlib.suppress(OSError, ConflictError):
            around, _ = self._project.split(item.change.path)
            os.unlink(self._temporary(item), dir_fd=around)
        for name in (f"{item.number}.half", f"new-{item.number}.half"):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._versions)


def return_rights(spot: DirEntryAt, mode: int | None) -> None:
    """Restore the mode of a file whose owner was given the right to read or write it for a moment,
    to copy or cleanse it. A kill may have come in between."""
    found = spot.lstat()
    if found is None or mode is None or not stat.S_ISREG(found.st_mode):
        return
    lent = (mode | stat.S_IRUSR, mode | stat.S_IWUSR, mode | stat.S_IRUSR | stat.S_IWUSR)
    if stat.S_IMODE(found.st_mode) != mode and stat.S_IMODE(found.st_mode) in lent:
        dirfd.set_mode(spot.name, spot.dir_fd, mode, any_kind=True)


def _remove_halves(versions: int) -> None:
    """Remove copies that a kill cut off: what they were made of may be somebody else's by now."""
    for name in os.listdir(versions):
        if name.endswith(HALF):
            os.unlink(name, dir_fd=versions)


def _reversed(change: Change) -> Change:
    """Return the change that takes this one back."""
    kind = {Kind.ADDED: Kind.DELETED, Kind.DELETED: Kind.ADDED}.get(change.kind, change.kind)
    was = change.type if change.kind is not Kind.DELETED else None
    return Change(
        change.root,
        change.path,
        kind,
        change.old_type or change.type,
        change.old_mode,
        None,
        change.flags,
        was,
        change.mode,
    )
