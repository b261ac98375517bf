# SPDX-License-Identifier: GPL-3.0-or-later
"""Close the window: nothing that goes wrong meanwhile keeps it open.

If the system asks for the end, the program ends soon in any case. The next start finishes what was
interrupted.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable

from gi.repository import Adw, Gtk

from ...errors import OllmSandboxError
from ...i18n import _, localized
from ...loop import start_daemon
from ...paths import Paths
from ..permission.asker import WindowAsker
from ..sessions.dialogs import may_stop_and_close
from ..sessions.sessions import Sessions
from ..widgets.dialogs import confirm
from ..widgets.tasks import Tasks, as_task
from ..widgets.work_bar import WorkBar

# Seconds until a disk that does not respond is given up: longer than the database waits for a lock.
PATIENCE = 20.0


class WindowCloser:
    """Asks what has to be asked, saves what has to be saved, then closes the window."""

    def __init__(
        self,
        window: Gtk.Window,
        sessions: Sessions,
        asker: WindowAsker,
        changing: WorkBar,
        save_draft: Callable[[], asyncio.Task[None] | None],
        close: Callable[[], object],
    ) -> None:
        """`save_draft` returns None if there is nothing to save; `close` is called last."""
        self._window = window
        self._sessions = sessions
        self._asker = asker
        self._changing = changing
        self._save_draft = save_draft
        self._close = close
        # The window cannot show messages any more.
        self._tasks = Tasks(_print)
        self._is_asking = False
        self.has_begun = False

    @as_task
    async def request(self) -> None:
        """Close the window, unless the user wants to keep it open."""
        if self._is_asking or self.has_begun:
            return
        self._is_asking = True
        try:
            if await self._may_close():
                await self._finish()
        finally:
            self._is_asking = False

    def close_now(self) -> None:
        """Close the window without a question, even if one is open."""
        self._tasks.start(self._finish())

    async def _may_close(self) -> bool:
        if not await may_stop_and_close(self._window, self._sessions.open_ones):
            return False
        if self._changing.is_working and not await self._may_close_without(
            _("Close While Changes Are Being Made?"),
            _("They will be finished, but you will not see the result."),
            Adw.ResponseAppearance.DEFAULT,
        ):
            return False
        try:
            await self._save_drafts()
        except (OllmSandboxError, OSError, RuntimeError, ValueError) as error:
            heading = _("Close Without Saving Your Draft?")
            body = _("The message you are writing cannot be saved: {why}")
            if not await self._may_close_without(heading, body.format(why=localized(str(error)))):
                return False
        return await self._is_written() or await self._may_close_without(
            _("Close Without Saving the Last Messages?"),
            _(
                "They cannot be saved right now and would be lost. Check that the disk is not full "
                "and that no other program is using the database, then try again."
            ),
        )

    async def _may_close_without(
        self,
        heading: str,
        body: str,
        style: Adw.ResponseAppearance = Adw.ResponseAppearance.DESTRUCTIVE,
    ) -> bool:
        keep = _("_Keep Open")
        return await confirm(self._window, heading, body, _("_Close"), cancel=keep, style=style)

    async def _is_written(self) -> bool:
        conversations = [session.conversation for session in self._sessions.open_ones]
        writing = asyncio.gather(*(conversation.is_written() for conversation in conversations))
        try:
            return all(await asyncio.wait_for(writing, PATIENCE))
        except TimeoutError:
            return False

    async def _finish(self) -> None:
        """Save drafts, deny questions, stop commands and settle their changes."""
        if self.has_begun:
            return
        self.has_begun = True
        try:
            # A step that fails is reported and does not keep the others from being done.
            for step in (self._save_size, self._save_drafts, self._close_sessions):
                await asyncio.wait({self._tasks.start(step())})
        finally:
            self._close()

    async def _save_size(self) -> None:
        is_maximized, settings = self._window.is_maximized(), self._sessions.settings
        settings.set("window-maximized", is_maximized)
        if not is_maximized:
            width, height = self._window.get_default_size()
            settings.set("window-width", max(width, 360))
            settings.set("window-height", max(height, 294))

    async def _save_drafts(self) -> None:
        """Raise if the disk does not respond in time."""
        try:
            await asyncio.wait_for(self._save_each(), PATIENCE)
        except TimeoutError:
            raise OllmSandboxError(_("The disk is not responding.")) from None

    async def _save_each(self) -> None:
        """Save the shown session's draft, and those that could not be saved before."""
        if (saving := self._save_draft()) is not None:
            await saving
        for session in self._sessions.open_ones:
            if session.draft != session.kept_draft:
                await self._sessions.keep_draft(session, session.draft)

    async def _close_sessions(self) -> None:
        self._asker.deny_all()
        await self._sessions.close_all()


def _print(text: str) -> None:
    print(f"ollmsandbox: {text}", file=sys.stderr)


def exit_in_time(paths: Paths, signal_number: int) -> None:
    """End the program after some seconds if it has not ended by then. This needs a thread and
    `os._exit`: Python's own end waits for all other threads."""
    start_daemon("exit in time", _exit_later, paths, signal_number)


def _exit_later(paths: Paths, signal_number: int) -> None:
    began = time.monotonic()
    # Reading may take long, or wait for others.
    time.sleep(5.0)
    # Systems wait little longer before they kill a program.
    while time.monotonic() < began + 60.0 and _is_changing_a_project(paths):
        time.sleep(0.2)
    try:
        _print(_("Stopped. Unfinished work resumes at the next start."))
        sys.stderr.flush()
    finally:
        os._exit(128 + signal_number)


def _is_changing_a_project(paths: Paths) -> bool:
    from ...project.jobs import unfinished  # not needed for the first frame

    return bool(unfinished(paths))
