# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes to the project, and back. What was there before is kept, what somebody else changed is
left alone, and doing it once more after a kill finishes it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..files import trees
from ..paths import make_folder
from .change import Change, Kind, Recorded, State, Type
from .exchange import ConflictError, Exchanged, Spot, Step, exchange, make_single, signature
from .guard import Check, Guard
from .kept import Kept
from .layers import FOLDER
from .plain import Plain
from .resuming import bring_deleted, has_changed_places, return_rights
from .tree import Tree, modes_of

if TYPE_CHECKING:
    from .alongside import Alongside

__all__ = ["Applier", "Recorded", "State"]

# So many are recorded in one transaction; between two, others can write to the database.
AT_ONCE = 500


class Applier:
    """Works on one root of a project, for one run. `versions` is where the run keeps what was there
    before (by number) and, when that is undone, what was there after (`new-` and the number)."""

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
            top = trees.open_root(root)
            opened.callback(os.close, top)
            self._versions = os.open(make_folder(versions), FOLDER)
            opened.callback(os.close, self._versions)
            self._kept = Kept(versions, self._versions, root)
            opened.callback(self._kept.close)
            note = versions / f"modes-{zlib.crc32(os.fsencode(root)):08x}"
            self._project = Tree(root, note, top=top)
            opened.pop_all()
        self._guard = Guard(decided)
        self._run_id = run_id
        self._step = step
        self._resumed = resumed
        # By number: the paths of which the layer has what was in the project.
        self.exchanged: dict[int, str] = {}

    def close(self) -> None:
        self._kept.close()
        os.close(self._versions)
        self._project.leave()

    def apply(
        self,
        recorded: Sequence[Recorded],
        source: str,
        *,
        forced: Iterable[str] = (),
        closed: Mapping[str, int] = MappingProxyType({}),
        fresh: bool = False,
        is_own: bool = False,
        alongside: Alongside | None = None,
    ) -> list[Recorded]:
        """From a layer into the project. What is forced is put in place whatever is there. What is
        closed has to be opened for it, and gets its mode back. If it is `fresh`, nothing of it was
        begun before. If the layer `is_own`, no other run puts files there: they may have changed
        places. If there are many, they are recorded `alongside`, and that is what they do."""
        for path, mode in closed.items():
            self._project.set_mode(path, mode)
        layer = Tree(source, modes_of(source), missing_ok=self._resumed and not is_own)
        always = frozenset(forced)
        guard = self._guard

        def one(item: Recorded) -> Exchanged:
            change = item.change
            kept = Spot(self._versions, str(item.number))
            if change.path == ".":
                self._project.set_mode("", (change.mode or 0o700) | self._group_bit())
                return Exchanged()
            if is_own and change.kind is Kind.DELETED and change.inode:
                bring_deleted(change, layer, kept, self._step)
            place = self._place(change, kept)
            if place is None:
                return Exchanged()
            is_forced = change.path in always
            check = guard.whatever() if is_forced else guard.unchanged_since(item.began)
            if change.type is Type.FOLDER:
                return self._folder(change, place, kept, check)
            incoming = None
            if change.kind is not Kind.DELETED:
                try:
                    incoming = Spot(*layer.split(change.path))
                except FileNotFoundError:
                    # Taken out before, with the folder around it.
                    if (found := place.look()) is None:
                        raise
                    return Exchanged("", signature(found))
                if is_own and has_changed_places(change, incoming, kept, self._step):
                    return Exchanged("", signature(place.look()))
                if self._resumed:
                    return_rights(incoming, change.mode)
                if change.old_type is Type.FOLDER and incoming.look() is not None:
                    self._remove_folder(place)
            return exchange(
                place,
                incoming,
                kept,
                may_replace=check,
                expects=change.old_type in (Type.FILE, Type.LINK) and not is_forced,
                temporary=self._temporary(item),
                step=self._step,
                fresh=fresh and not guard.is_again,
            )

        plain = Plain(self._project, layer, self._versions, self._step)
        if alongside:
            # Here: what it needs takes long to load, and is mostly not needed.
            from .bulk import Bulk

            plain = bulk = Bulk(self._project, layer, self._versions, self._step)
            self.exchanged = bulk.exchanged
        done: list[Recorded] = []
        ready: list[Recorded] = []
        try:
            for item in recorded:
                change = item.change
                if fresh and change.is_plain and plain.is_possible and not always:
                    put = plain.put(change, item.number, item.began)
                    if put is not None:
                        before, after = put
                        ready.append(
                            Recorded(
                                item.number, change, State.APPLIED, "", item.began, before, after
                            )
                        )
                        if len(ready) == AT_ONCE:
                            done += ready
                            if alongside:
                                alongside.put(ready)
                            ready = []
                        continue
                begun = plain.found if plain.is_begun else None
                done.append(self._try(item, one, State.APPLIED, layer, begun))
                plain.reset()
            done += ready
            if alongside:
                alongside.put(ready)
                # Before folders are closed that it looks into.
                alongside.wait()
        finally:
            layer.close()
        return self._finish(done)

    def go(
        self,
        recorded: Sequence[Recorded],
        forced: Iterable[str] = (),
        *,
        back: bool,
    ) -> list[Recorded]:
        """Undo, or redo."""
        return self._finish(self._back_or_forth(recorded, frozenset(forced), back=back))

    def _back_or_forth(
        self, recorded: Sequence[Recorded], forced: frozenset[str], *, back: bool
    ) -> list[Recorded]:
        guard = self._guard

        def one(item: Recorded) -> Exchanged:
            change = _reversed(item.change) if back else item.change
            old, new = str(item.number), f"new-{item.number}"
            kept, given = (new, old) if back else (old, new)
            if change.path == ".":
                self._project.set_mode("", (change.mode or 0o700) | self._group_bit())
                return Exchanged()
            spot = Spot(self._versions, kept)
            place = self._place(change, spot)
            if place is None:
                return Exchanged()
            is_forced = change.path in forced
            left = guard.as_left(item.after)
            if item.state is State.DISCARDED:
                # It never was in the project.
                left = guard.unchanged_since(item.began)
            check = guard.whatever() if is_forced else left
            if change.type is Type.FOLDER:
                return self._folder(change, place, spot, check)
            incoming = None
            if change.kind is not Kind.DELETED:
                incoming = Spot(self._versions, given)
                if back:
                    self._kept.bring(item.number, change.path)
                if incoming.look() is None and not self._resumed and not guard.is_again:
                    raise ConflictError("The other version is no longer kept.")
                if self._resumed:
                    return_rights(incoming, change.mode)
                make_single(incoming, place)
                if change.old_type is Type.FOLDER and incoming.look() is not None:
                    self._remove_folder(place)
            try:
                return exchange(
                    place,
                    incoming,
                    spot,
                    may_replace=check,
                    expects=change.old_type in (Type.FILE, Type.LINK) and not is_forced,
                    temporary=self._temporary(item),
                    step=self._step,
                )
            except FileNotFoundError as error:
                if error.filename == given:
                    raise ConflictError("The other version is no longer kept.") from error
                raise

        order = list(reversed(recorded)) if back else list(recorded)
        state = State.UNDONE if back else State.APPLIED
        done = [self._try(item, one, state) for item in order]
        return list(reversed(done)) if back else done

    def _try(
        self,
        item: Recorded,
        one: Callable[[Recorded], Exchanged],
        state: State,
        layer: Tree | None = None,
        begun: str | None = None,
    ) -> Recorded:
        """A failure of one is said, and the others go on. If it is `begun`, that is what was found
        at its place."""
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
            return item._replace(state=State.CONFLICT, note=str(conflict))
        except OSError as error:
            self._forget_half(item)
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                note = "A folder around it is none any more."
                return item._replace(state=State.CONFLICT, note=note)
            note = f"{error.strerror}." if error.strerror else str(error)
            return item._replace(state=State.FAILED, note=note)
        return Recorded(item.number, item.change, state, "", item.began, *done)

    def _finish(self, done: list[Recorded]) -> list[Recorded]:
        failed = dict(self._project.close())
        if not failed:
            return done
        return [
            item._replace(state=State.FAILED, note=f"{failed[item.change.path].strerror}.")
            if item.change.path in failed
            else item
            for item in done
        ]

    def _place(self, change: Change, kept: Spot) -> Spot | None:
        """None: it was to be deleted, and is gone with all that was around it."""
        try:
            return Spot(*self._project.split(change.path))
        except FileNotFoundError:
            if change.kind is Kind.DELETED:
                return None
            raise
        except OSError as error:
            # The folder around it was to be replaced, and that is done already. The first time that
            # cannot be: what is in a folder goes before it.
            is_done = self._resumed and (change.type is Type.FOLDER or kept.look() is not None)
            if (
                error.errno in (errno.ELOOP, errno.ENOTDIR)
                and change.kind is Kind.DELETED
                and is_done
            ):
                return None
            raise

    def _folder(self, change: Change, place: Spot, kept: Spot, check: Check) -> Exchanged:
        """What is in it has changes of its own."""
        before = ""
        if change.kind is Kind.DELETED:
            self._remove_folder(place)
            return Exchanged()
        if change.kind is Kind.REPLACED and change.old_type is not Type.FOLDER:
            found = place.look()
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
        elif (found := place.look()) is None or not stat.S_ISDIR(found.st_mode):
            raise ConflictError("It was removed in the meantime.")
        else:
            # The bit that passes on the folder's group is none of the command's business.
            mode |= found.st_mode & stat.S_ISGID
        self._project.set_mode(change.path, mode)
        return Exchanged(before)

    def _group_bit(self) -> int:
        return os.fstat(self._project.folder("")).st_mode & stat.S_ISGID

    def _make_folder(self, place: Spot) -> int:
        try:
            os.mkdir(place.name, 0o700, dir_fd=place.around)
            self._step()
        except FileExistsError as error:
            found = place.look()
            if found is None or not stat.S_ISDIR(found.st_mode):
                raise ConflictError("There is something at its place now.") from error
        found = place.look()
        return found.st_mode & stat.S_ISGID if found else 0

    def _remove_folder(self, place: Spot) -> None:
        found = place.look()
        if found is None or not stat.S_ISDIR(found.st_mode):
            return
        try:
            os.rmdir(place.name, dir_fd=place.around)
            self._step()
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise ConflictError("There is something in it that the command did not see.") from (
                    error
                )
            raise

    def _temporary(self, item: Recorded) -> str:
        return f".ollmsandbox-{self._run_id}-{item.number}~"

    def _forget_half(self, item: Recorded) -> None:
        """Where files have to be copied, one may be there in part."""
        with contextlib.suppress(OSError, ConflictError):
            around, _ = self._project.split(item.change.path)
            os.unlink(self._temporary(item), dir_fd=around)
        for name in (f"{item.number}.half", f"new-{item.number}.half"):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._versions)


def _reversed(change: Change) -> Change:
    """The change that takes this one back."""
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
