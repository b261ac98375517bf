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
from .patch import Patch, has_same_bytes, keep_copy, modes_note
from .swap import (
    HALF,
    ConflictError,
    Exchanged,
    Found,
    Plain,
    Step,
    exchange,
    make_single,
    signature,
)

Check = Callable[[Found], bool]


class Guard:
    """Checks for conflicts before each change of one run to one root."""

    def __init__(self, decided: int) -> None:
        """`decided` is when somebody decided what is finished now, after a kill; else 0."""
        self._decided = decided
        self._linked: dict[int, tuple[int, int, int]] = {}
        # Of the change that is at work: what was at its place, and whether it is the second try.
        self.found = ""
        self.is_again = False

    def unchanged_since(self, began: int) -> Check:
        def check(found: Found) -> bool:
            there = found.stat
            if found.is_linked:
                return self._is_as_linked(there, began)
            looks = (there.st_mtime_ns, there.st_size, there.st_mode)
            # That we took another of its names away changed its time, too.
            if there.st_ctime_ns > began and self._linked.get(there.st_ino) != looks:
                return False
            if there.st_nlink > 1:
                self._linked[there.st_ino] = looks
            self.found = signature(there)
            return True

        return check

    def as_left(self, after: str) -> Check:
        def check(found: Found) -> bool:
            there = found.stat
            inode, _, changed = after.partition(":")
            if not found.is_linked or not changed:
                return signature(there) == after
            return there.st_ino == int(inode) and self._is_as_linked(there, int(changed))

        return check

    def allow_any(self) -> Check:
        """Allow any replacement, because the user said so; but after a kill, not of what was saved
        later."""
        return self.unchanged_since(self._decided) if self._decided else _any

    def _is_as_linked(self, there: os.stat_result, at: int) -> bool:
        """Return whether a file is as it was when it was linked, by the first try or before a kill:
        then it was as it should be."""
        return self.is_again or there.st_mtime_ns <= at


def _any(_found: Found) -> bool:
    return True


def return_rights(spot: DirEntryAt, mode: int | None) -> None:
    """Restore the mode of a file whose owner was given the right to read or write it for a moment,
    to copy or cleanse it. A kill may have come in between."""
    found = spot.lstat()
    if found is None or mode is None or not stat.S_ISREG(found.st_mode):
        return
    lent = (mode | stat.S_IRUSR, mode | stat.S_IWUSR, mode | stat.S_IRUSR | stat.S_IWUSR)
    if stat.S_IMODE(found.st_mode) != mode and stat.S_IMODE(found.st_mode) in lent:
        dirfd.set_mode(spot.name, spot.dir_fd, mode, any_kind=True)


def only_ours(
    item: Recorded, written: Mapping[int, tuple[str, str]], since: int, is_moved: bool
) -> Recorded:
    """Return an item without its signature if what is at its place after a kill may be somebody
    else's: then an undo has to ask.

    If it was not yet written down what we left, it counts as ours only if it is as old as the
    command.
    """
    if item.state not in (State.APPLIED, State.UNDONE) or not item.after:
        return item
    if item.number in written:
        before, after = written[item.number]
        return item._replace(before=before, after=after)
    change, place = item.change, f"{item.change.root}/{item.change.path}"
    is_new = item.state is State.APPLIED
    try:
        if is_new and change.type is Type.LINK:
            is_ours = os.readlink(place) == change.target
        else:
            found = os.lstat(place)
            is_ours = found.st_mtime_ns <= since
            if is_new and is_moved and change.inode:
                is_ours &= found.st_ino == change.inode
    except OSError:
        is_ours = False
    return item if is_ours else item._replace(after="")


def device(layer: str) -> int:
    try:
        return os.stat(layer).st_dev
    except FileNotFoundError:
        return -1


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
        resumed: bool,
        decided: int = 0,
    ) -> None:
        """If it is `resumed` after a kill, part of it may be done already. `decided` then is when
        somebody decided it."""
        with contextlib.ExitStack() as opened:
            top = dirfd.open_root(root)
            opened.callback(os.close, top)
            self._versions = os.open(make_folder(versions), FOLDER)
            opened.callback(os.close, self._versions)
            if resumed:
                _remove_halves(self._versions)
            self._project = OpenTree(root, modes_note(versions, root), top=top, is_durable=True)
            opened.pop_all()
        self._guard = Guard(decided)
        self._run_id = run_id
        self._step = step
        self._resumed = resumed

    def close(self) -> None:
        os.close(self._versions)
        self._project.leave()

    def apply(
        self,
        recorded: Sequence[Recorded],
        source: str,
        *,
        forced: Iterable[str] = (),
        fresh: bool = False,
        is_own: bool = False,
        find_base: Callable[[Recorded], Path | None] = lambda _item: None,
        left_before: Callable[[Recorded], Collection[str]] = lambda _item: (),
    ) -> list[Recorded]:
        """Move changes from the layer `source` into the project, and return them as they are then.

        `forced` paths are put in place whatever is there. `fresh` says that nothing of it was begun
        before, and `is_own` that no other run puts files into the layer. `find_base` finds what the
        command saw of a file that another run has changed since, and `left_before` the signatures
        of what earlier runs left there.
        """
        layer = OpenTree(source, modes_file(source) if source else None, missing_ok=not is_own)
        always = frozenset(forced)
        guard = self._guard

        def one(item: Recorded) -> Exchanged:
            change = item.change
            kept = DirEntryAt(self._versions, str(item.number))
            if change.path == ".":
                self._project.set_mode("", (change.mode or 0o700) | self._group_bit())
                return Exchanged()
            place = self._place(change, kept)
            if place is None:
                return Exchanged()
            is_forced = change.path in always
            unchanged = guard.unchanged_since(item.began)

            def was_left(found: Found) -> bool:
                guard.found = signature(found.stat)
                return guard.found in left_before(item)

            def is_expected(found: Found) -> bool:
                if unchanged(found):
                    return True
                if change.is_edit:
                    # An earlier change was applied, which was pending then.
                    guard.found = signature(found.stat)
                    return has_same_bytes(kept, place)
                return was_left(found)

            check = guard.allow_any() if is_forced else is_expected
            if change.type is Type.FOLDER:
                return self._folder(change, place, kept, check)
            incoming = None
            if change.kind is not Kind.DELETED:
                try:
                    incoming = DirEntryAt(*layer.split(change.path))
                except FileNotFoundError:
                    # Taken out before, with the folder around it.
                    if (found := place.lstat()) is None:
                        raise
                    return Exchanged("", signature(found))
                if self._resumed:
                    return_rights(incoming, change.mode)
                if change.old_type is Type.FOLDER and incoming.lstat() is not None:
                    self._remove_folder(place)

            def merge() -> Exchanged:
                assert incoming is not None
                patch = Patch(self._versions, item.number)
                if is_own:
                    # Another run may have changed it, and have kept what this one's command saw.
                    if (earlier := find_base(item)) is None:
                        raise ConflictError(Reason.CHANGED)
                    patch.take_base(earlier)
                modes = (change.old_mode, change.mode)
                done = self._merge(item, place, patch.base, incoming, modes)
                incoming.unlink()
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
                    fresh=fresh and not guard.is_again and kept.lstat() is None,
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

        plain = Plain(self._project, layer, self._versions, self._step)
        done: list[Recorded] = []
        try:
            keeps_results = len(recorded) < MANY
            for item in recorded:
                change = item.change
                if keeps_results and change.type is Type.FILE and change.kind is not Kind.DELETED:
                    self._keep_result(item, layer)
                begun = None
                if fresh and change.is_plain and plain.is_possible and not always:
                    put = plain.put(change, item.number, item.began)
                    if put is not None:
                        done.append(
                            Recorded(item.number, change, State.APPLIED, None, item.began, *put)
                        )
                        continue
                    begun = plain.begun
                done.append(self._try(item, one, State.APPLIED, layer, begun))
                plain.reset()
        finally:
            layer.close()
        return self._finish(done)

    def _keep_result(self, item: Recorded, layer: OpenTree) -> None:
        # What cannot be kept is applied all the same: undo then needs the file as it was left.
        with contextlib.suppress(OSError, ConflictError):
            incoming = DirEntryAt(*layer.split(item.change.path))
            keep_copy(incoming, Patch(self._versions, item.number).result)

    def undo_or_redo(
        self,
        recorded: Sequence[Recorded],
        forced: Iterable[str] = (),
        *,
        back: bool,
    ) -> list[Recorded]:
        """Undo changes (`back`) or redo them, and return them as they are then."""
        return self._finish(self._undo_or_redo(recorded, frozenset(forced), back=back))

    def _undo_or_redo(
        self,
        recorded: Sequence[Recorded],
        forced: frozenset[str],
        *,
        back: bool,
    ) -> list[Recorded]:
        guard = self._guard

        def one(item: Recorded) -> Exchanged:
            change = _reversed(item.change) if back else item.change
            patch = Patch(self._versions, item.number)
            new = patch.result if item.state is State.DISCARDED else patch.applied
            spot, incoming = (new, patch.base) if back else (patch.base, new)
            given = incoming.name
            if change.path == ".":
                self._project.set_mode("", (change.mode or 0o700) | self._group_bit())
                return Exchanged()
            place = self._place(change, spot)
            if place is None:
                return Exchanged()
            is_forced = change.path in forced
            left = guard.as_left(item.after)
            if item.state is State.DISCARDED:
                # It never was in the project.
                left = guard.unchanged_since(item.began)
            expected = patch.result if back else patch.base

            def is_expected(found: Found) -> bool:
                # Somebody may have saved the very same.
                return left(found) or has_same_bytes(expected, place)

            check = guard.allow_any() if is_forced else is_expected
            if change.type is Type.FOLDER:
                return self._folder(change, place, spot, check)
            is_first = is_forced and not self._resumed and spot.lstat() is not None
            there = place.lstat() if is_first else None
            if there is not None and not is_expected(Found(there, is_linked=False)):
                # The user's text is neither version, and must not take the place of one.
                spot = patch.mine
                spot.unlink(missing_ok=True)
            if change.kind is not Kind.DELETED:
                if incoming.lstat() is None and not self._resumed and not guard.is_again:
                    raise ConflictError(Reason.OTHER_LOST)
                if self._resumed:
                    return_rights(incoming, change.mode)
                make_single(incoming, place)
                incoming = patch.copy_of(incoming)
                if change.old_type is Type.FOLDER and incoming.lstat() is not None:
                    self._remove_folder(place)

            def merge() -> Exchanged:
                modes = (item.change.old_mode, item.change.mode)
                if back:
                    return self._merge(item, place, patch.result, patch.base, modes[::-1])
                return self._merge(item, place, patch.base, new, modes)

            if is_forced and change.is_edit:
                with contextlib.suppress(ConflictError):
                    return merge()
            try:
                return exchange(
                    place,
                    None if change.kind is Kind.DELETED else incoming,
                    spot,
                    may_replace=check,
                    expects=change.old_type in (Type.FILE, Type.LINK) and not is_forced,
                    temporary=self._temporary(item),
                    step=self._step,
                )
            except ConflictError as conflict:
                if conflict.reason is not Reason.CHANGED or not change.is_edit:
                    raise
                return merge()
            except FileNotFoundError as error:
                if error.filename == given:
                    raise ConflictError(Reason.OTHER_LOST) from error
                raise

        order = list(reversed(recorded)) if back else list(recorded)
        state = State.UNDONE if back else State.APPLIED
        done = [self._try(item, one, state) for item in order]
        return list(reversed(done)) if back else done

    def merge_hunks(self, recorded: Sequence[Recorded]) -> list[Recorded]:
        """Merge the hunks that the user chose; the state of a change stays."""

        def one(item: Recorded) -> Exchanged:
            patch = Patch(self._versions, item.number)
            place = DirEntryAt(*self._project.split(item.change.path))
            return self._merge(item, place, patch.without_hunks, patch.with_hunks)

        return self._finish([self._try(item, one, item.state) for item in recorded])

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
            resumed=self._resumed,
            temporary=self._temporary(item),
            step=self._step,
        )
        # What is in the project is neither version: it is known by no signature.
        return Exchanged(item.before, "")

    def _try(
        self,
        item: Recorded,
        one: Callable[[Recorded], Exchanged],
        state: State,
        layer: OpenTree | None = None,
        begun: str | None = None,
    ) -> Recorded:
        """Do one change, and return it with its new state: a failure does not stop the others.
        `begun` is what was found at its place, if it was begun before."""
        guard = self._guard
        guard.found, guard.is_again = begun or "", begun is not None
        try:
            try:
                done = one(item)
                if guard.is_again:
                    done = done._replace(before=done.before or guard.found)
            except PermissionError:
                # A command may write in a folder that it has opened for that, and closed again.
                around = os.path.dirname(item.change.path)
                self._project.unlock(around)
                if layer is not None:
                    with contextlib.suppress(OSError):
                        layer.unlock(around)
                guard.is_again = True
                done = one(item)
                # To keep it changed its time: what it was is known from the first try.
                done = done._replace(before=done.before or guard.found)
        except ConflictError as conflict:
            self._forget_half(item)
            return item._replace(state=State.CONFLICT, note=Note(conflict.reason))
        except OSError as error:
            self._forget_half(item)
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                note = Note(Reason.PARENT_REPLACED)
                return item._replace(state=State.CONFLICT, note=note)
            if error.errno == errno.ENOENT and not self._has_folder_of(item):
                return item._replace(state=State.FAILED, note=Note(Reason.ROOT_MISSING))
            return item._replace(state=State.FAILED, note=Note.of_error(error))
        return Recorded(item.number, item.change, state, None, item.began, *done)

    def _has_folder_of(self, item: Recorded) -> bool:
        try:
            self._project.split(item.change.path)
        except OSError:
            return False
        return True

    def _finish(self, done: list[Recorded]) -> list[Recorded]:
        failed = dict(self._project.close())
        if not failed:
            return done
        return [
            item._replace(state=State.FAILED, note=Note.of_error(failed[item.change.path]))
            if item.change.path in failed
            else item
            for item in done
        ]

    def _place(self, change: Change, kept: DirEntryAt) -> DirEntryAt | None:
        """Return the place of a change; None if it and its parents are deleted already."""
        try:
            return DirEntryAt(*self._project.split(change.path))
        except FileNotFoundError:
            if change.kind is Kind.DELETED:
                return None
            raise
        except OSError as error:
            # The folder around it was to be replaced, and that is done already. The first time that
            # cannot be: what is in a folder goes before it.
            is_done = self._resumed and (change.type is Type.FOLDER or kept.lstat() is not None)
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
        mode = change.mode if change.mode is not None else 0o755
        if change.kind is not Kind.MODIFIED:
            mode |= self._make_folder(place)
        elif (found := place.lstat()) is None or not stat.S_ISDIR(found.st_mode):
            raise ConflictError(Reason.REMOVED)
        else:
            # The bit that passes on the folder's group is none of the command's business.
            mode |= found.st_mode & stat.S_ISGID
        self._project.set_mode(change.path, mode)
        return Exchanged(before)

    def _group_bit(self) -> int:
        return os.fstat(self._project.folder("")).st_mode & stat.S_ISGID

    def _make_folder(self, place: DirEntryAt) -> int:
        try:
            os.mkdir(place.name, 0o700, dir_fd=place.dir_fd)
            self._step()
        except FileExistsError as error:
            found = place.lstat()
            if found is None or not stat.S_ISDIR(found.st_mode):
                raise ConflictError(Reason.PLACE_TAKEN) from error
        found = place.lstat()
        return found.st_mode & stat.S_ISGID if found else 0

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
