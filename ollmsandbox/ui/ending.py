# SPDX-License-Identifier: GPL-3.0-or-later
"""The window's end: nothing that goes wrong in it keeps the window from closing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from gettext import gettext as _

from gi.repository import Gtk

from ..errors import OllmSandboxError
from .asking import WindowAsker
from .closing import may_close, may_leave_work, may_lose_draft, may_lose_words
from .popovers import close_popovers
from .sessions import Sessions
from .settings import Settings
from .spoken import spoken
from .tasks import Tasks
from .work_bar import WorkBar

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
            if not await may_lose_draft(self._window, spoken(str(error))):
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
