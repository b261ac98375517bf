# SPDX-License-Identifier: GPL-3.0-or-later
"""What would stop something that runs, or hide something that waits, is a question first.

Menus that are open when their window goes.

The window's end: nothing that goes wrong in it keeps the window from closing.

The end of the program that the system asks for: in order if that is soon, else as it is. What is
cut off then is found and finished at the next start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gi.repository import Gtk

from ...i18n import _, localized, ngettext
from ..widgets.dialogs import Choice, choose

if TYPE_CHECKING:
    from ..sessions.open_session import OpenSession
    from ..sessions.sessions import Sessions
import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from ...errors import OllmSandboxError
from ...paths import Paths
from ...project.apply.journal import Journal
from ..permission.asker import WindowAsker
from ..preferences.settings import Settings
from ..sessions.sessions import Sessions
from ..widgets.tasks import Tasks
from ..widgets.work_bar import WorkBar


async def may_close(window: Gtk.Window, sessions: Sequence[OpenSession]) -> bool:
    busy = [session for session in sessions if session.is_busy]
    if not busy:
        return True
    asking = any(session.asking() for session in busy)
    body = (
        _("The agent waits for an answer. Closing the window means Deny, and stops it.")
        if asking
        else _("The agent is at work. Closing the window stops it; what it changed is kept.")
    )
    answer = await choose(
        window,
        _("Stop and Close?"),
        body,
        (
            Choice("cancel", _("_Keep Open")),
            Choice("close", _("_Stop and Close"), is_destructive=True),
        ),
    )
    return answer == "close"


async def may_leave_work(window: Gtk.Window) -> bool:
    answer = await choose(
        window,
        _("Close Before That Is Over?"),
        _(
            "Changes are being made in the project. They are finished in any case, but what came "
            "of them is told only here."
        ),
        (Choice("cancel", _("_Keep Open")), Choice("close", _("_Close"))),
    )
    return answer == "close"


async def may_lose_draft(window: Gtk.Window, why: str) -> bool:
    answer = await choose(
        window,
        _("Close Without the Draft?"),
        _("What you typed cannot be kept: {why}").format(why=why),
        (
            Choice("cancel", _("_Keep Open")),
            Choice("close", _("_Close"), is_destructive=True),
        ),
    )
    return answer == "close"


async def may_lose_words(window: Gtk.Window) -> bool:
    answer = await choose(
        window,
        _("Close Without the Last Messages?"),
        _(
            "What was said last cannot be written just now, and would be lost. Keep the window "
            "open, and close it when the disk has room and no other program holds the database."
        ),
        (
            Choice("cancel", _("_Keep Open")),
            Choice("close", _("_Close"), is_destructive=True),
        ),
    )
    return answer == "close"


async def may_discard_all(window: Gtk.Window) -> bool:
    answer = await choose(
        window,
        _("Discard All That Waits?"),
        _("The project stays as it is. What was discarded can be applied file by file."),
        (
            Choice("cancel", _("_Cancel")),
            Choice("discard", _("_Discard"), is_destructive=True),
        ),
    )
    return answer == "discard"


async def may_delete(window: Gtk.Window, sessions: Sessions, session_id: str) -> bool:
    if not any(session.is_busy for session in sessions.open_ones if session.id == session_id):
        return True
    answer = await choose(
        window,
        _("Stop and Delete?"),
        _("The agent is at work in this session. Deleting it stops it; what it changed is kept."),
        (
            Choice("cancel", _("_Cancel")),
            Choice("delete", _("_Stop and Delete"), is_destructive=True),
        ),
    )
    return answer == "delete"


async def may_remove(window: Gtk.Window, sessions: Sessions, path: str, name: str) -> bool:
    """A project from the list: it comes back as it was, but it might be forgotten until then."""
    sentences = []
    if any(session.is_busy for session in sessions.open_ones if session.project == path):
        sentences.append(_("The agent is at work there, and is stopped."))
    if count := await sessions.waiting(path):
        text = ngettext("{} change waits there.", "{} changes wait there.", count)
        sentences.append(text.format(count))
    if not sentences:
        return True
    sentences.append(_("Nothing is lost: open its folder again, and all of it is back."))
    answer = await choose(
        window,
        _("Remove {} From the List?").format(name),
        " ".join(sentences),
        (
            Choice("cancel", _("_Cancel")),
            Choice("remove", _("_Remove"), is_destructive=True),
        ),
    )
    return answer == "remove"


# Seconds, in which the main loop turns.
_TURN = 0.05


async def close_popovers(window: Gtk.Window) -> None:
    """GTK does not notice that one goes with its window while it has the pointer: half a second
    later it would look for the hint of what is under the pointer there, and complain."""
    found = list(_open_ones(window))
    for popover in found:
        popover.popdown()
    if found:
        # Only when it has heard that the pointer has left does it look no more.
        window.get_display().sync()
        await asyncio.sleep(_TURN)


def _open_ones(widget: Gtk.Widget) -> Iterator[Gtk.Popover]:
    child = widget.get_first_child()
    while child is not None:
        if child.get_mapped():
            if isinstance(child, Gtk.Popover):
                yield child
            yield from _open_ones(child)
        child = child.get_next_sibling()


# Seconds: longer than a database waits for another program.
PATIENCE = 20.0


class Ending:
    """`keep_draft` begins to keep what is typed, if it has to; `leave` is the last thing done."""

    def __init__(
        self,
        window: Gtk.Window,
        sessions: Sessions,
        asker: WindowAsker,
        settings: Settings,
        changing: WorkBar,
        keep_draft: Callable[[], asyncio.Task[None] | None],
        leave: Callable[[], object],
    ) -> None:
        self._window = window
        self._sessions = sessions
        self._asker = asker
        self._settings = settings
        self._changing = changing
        self._begin_keeping = keep_draft
        self._leave = leave
        # Nobody sees any more what the window could tell.
        self._tasks = Tasks(_say)
        self._is_asking = False
        self.is_begun = False

    def ask(self) -> None:
        """First, if something would be cut off or lost."""

        async def ask() -> None:
            try:
                if await self._may_end():
                    await self._end()
            finally:
                self._is_asking = False

        if not self._is_asking and not self.is_begun:
            self._is_asking = True
            self._tasks.start(ask())

    def begin(self) -> None:
        """Without a question: nobody is there to answer it, nor one that was asked before."""
        self._tasks.start(self._end())

    async def _may_end(self) -> bool:
        if not await may_close(self._window, self._sessions.open_ones):
            return False
        if self._changing.is_working and not await may_leave_work(self._window):
            return False
        try:
            await self._keep_drafts()
        except (OllmSandboxError, OSError, RuntimeError, ValueError) as error:
            if not await may_lose_draft(self._window, localized(str(error))):
                return False
        return await self._is_written() or await may_lose_words(self._window)

    async def _is_written(self) -> bool:
        talks = [session.conversation for session in self._sessions.open_ones]
        writing = asyncio.gather(*(talk.is_written() for talk in talks))
        try:
            return all(await asyncio.wait_for(writing, PATIENCE))
        except TimeoutError:
            return False

    async def _end(self) -> None:
        """Questions are denied, commands end, what they changed is put in order."""
        if self.is_begun:
            return
        self.is_begun = True
        try:
            # What goes wrong in one is told, and keeps none of the others from its turn.
            steps = (self._keep_size, self._keep_drafts, self._end_sessions, self._close_popovers)
            for step in steps:
                await asyncio.wait({self._tasks.start(step())})
        finally:
            self._leave()

    async def _keep_size(self) -> None:
        is_maximized = self._window.is_maximized()
        self._settings.set("window-maximized", is_maximized)
        if not is_maximized:
            width, height = self._window.get_default_size()
            self._settings.set("window-width", max(width, 360))
            self._settings.set("window-height", max(height, 294))

    async def _keep_drafts(self) -> None:
        """Raises where the disk takes longer than anybody waits: nobody is to be kept here."""
        try:
            await asyncio.wait_for(self._keep_each(), PATIENCE)
        except TimeoutError:
            raise OllmSandboxError(_("The disk does not answer.")) from None

    async def _keep_each(self) -> None:
        """Of the session that is shown; and of others where it failed when they were left."""
        if (keeping := self._begin_keeping()) is not None:
            await keeping
        for session in self._sessions.open_ones:
            if session.draft != session.kept_draft:
                await self._sessions.keep_draft(session, session.draft)

    async def _close_popovers(self) -> None:
        await close_popovers(self._window)

    async def _end_sessions(self) -> None:
        self._asker.deny_all()
        await self._sessions.close_all()


def _say(text: str) -> None:
    print(f"ollmsandbox: {text}", file=sys.stderr)


# Seconds for what is only looked at: there may be much, or others may be at work in the project.
_PATIENCE = 5.0
# And for what is changed in it already. Whoever ends a session waits little longer.
_PATIENCE_TO_CHANGE = 60.0
_PAUSE = 0.2


def leave_in_time(paths: Paths, number: int) -> None:
    """On a thread of its own: Python's own end waits for other threads, whatever they do."""
    threading.Thread(target=_leave, args=(paths, number), name="leaving", daemon=True).start()


def _leave(paths: Paths, number: int) -> None:
    began = time.monotonic()
    time.sleep(_PATIENCE)
    while time.monotonic() < began + _PATIENCE_TO_CHANGE and _is_changing(paths):
        time.sleep(_PAUSE)
    try:
        text = _("Left at once. What is not finished is taken up at the next start.")
        print(f"ollmsandbox: {text}", file=sys.stderr, flush=True)
    finally:
        os._exit(128 + number)


def _is_changing(paths: Paths) -> bool:
    """Something in a project: what is not to be left half done, if that can be helped."""
    try:
        is_run = any(paths.cache.glob("overlay-*/journal.json"))
    except OSError:
        return False
    return is_run or bool(Journal.left(paths))
