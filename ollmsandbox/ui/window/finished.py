# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell the user about turns that ended while they looked elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gi.repository import Gio, GLib, Gtk

from ...chat.turn_end import TurnEnd
from ...i18n import _
from ..chat.bars import last_turn_runs, turn_text
from ..chat.view import ChatView
from ..sessions.sessions import Sessions
from ..widgets.signals import SignalHandlers
from ..widgets.tasks import Tasks
from ..widgets.weak import weakly

if TYPE_CHECKING:
    from ..sessions.open_session import OpenSession


class FinishedTurns:
    """Marks sessions as unread, and sends a notification if the window is not in front."""

    def __init__(
        self,
        window: Gtk.ApplicationWindow,
        chat: ChatView,
        sessions: Sessions,
        tasks: Tasks,
    ) -> None:
        self._window = window
        self._chat = chat
        self._sessions = sessions
        self._tasks = tasks
        window.connect("notify::is-active", weakly(self.note_seen))
        # The sessions outlive the window.
        SignalHandlers(window).connect(sessions, "turn-ended", self._on_ended)

    def note_seen(self, *_args: object) -> None:
        """Note that the user sees the session that is shown, if the window is in front."""
        session = self._chat.session
        if session is None or not session.is_unread or not self._window.is_active():
            return
        session.is_unread = False
        if (application := self._window.get_application()) is not None:
            application.withdraw_notification(_id(session))
        self._sessions.emit("changed")

    def _on_ended(self, _sessions: Sessions, session: OpenSession, end: TurnEnd) -> None:
        is_in_front = self._window.is_active()
        is_seen = is_in_front and self._chat.session is session
        # What the user stopped is no news, and what waits is sent now.
        if is_seen or end is TurnEnd.STOPPED or session.conversation.queued:
            return
        session.is_unread = True
        self._sessions.emit("changed")
        if not is_in_front and self._sessions.settings.get_boolean("notifications"):
            self._tasks.start(self._notify(session, end))

    async def _notify(self, session: OpenSession, end: TurnEnd) -> None:
        title = await self._sessions.title(session.id) or _("New Session")
        body = _(end.value) if end.value else await asyncio.to_thread(self._changed, session)
        application = self._window.get_application()
        # The user may have looked at it meanwhile.
        if application is None or not session.is_unread:
            return
        notification = Gio.Notification.new(title)
        notification.set_body(body)
        target = GLib.Variant.new_string(session.id)
        notification.set_default_action_and_target("app.show-session", target)
        application.send_notification(_id(session), notification)

    def _changed(self, session: OpenSession) -> str:
        from ..changes.counts import turn_changes  # not needed for the first frame

        found = turn_changes(self._sessions.factory.manager, last_turn_runs(session))
        return turn_text(found) if found.files else _("No files changed")


def _id(session: OpenSession) -> str:
    return f"turn-{session.id}"
