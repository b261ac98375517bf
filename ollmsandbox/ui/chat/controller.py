# SPDX-License-Identifier: GPL-3.0-or-later
"""Pass the user's actions in the chat to the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from gi.repository import GLib, Gtk

from ...chat.storage.history import History
from ...errors import OllmSandboxError
from ...permission.request import Answer
from ..changes.view import ChangesView
from ..permission.asker import WindowAsker
from ..sessions.entries import CallEntry
from ..sessions.sessions import Sessions
from ..widgets.tasks import Tasks
from ..widgets.weak import weakly
from .links import open_link, open_output
from .turn_bar import TurnBar, TurnSummary
from .view import ChatView

if TYPE_CHECKING:
    from ..sessions.open_session import OpenSession

# Milliseconds without a key.
REST = 2000


class ChatController:
    """The session is the one that the view shows."""

    def __init__(
        self,
        window: Gtk.Window,
        view: ChatView,
        changes: ChangesView,
        asker: WindowAsker,
        history: History,
        sessions: Sessions,
        tasks: Tasks,
    ) -> None:
        self._window = window
        self._view = view
        self._changes = changes
        self._asker = asker
        self._history = history
        self._sessions = sessions
        self._tasks = tasks
        self._is_looking = self._is_stale = False
        heard: tuple[tuple[str, Callable[..., object]], ...] = (
            ("send", self._on_send),
            ("run", self._on_run),
            ("stop", self.stop),
            ("retry", self._on_retry),
            ("stop-call", self._on_stop_call),
            ("answer", self._on_answer),
            ("reply", self._on_reply),
            ("undo", self._on_undo),
            ("open-link", self._on_open_link),
            ("open-output", self._on_open_output),
        )
        for name, method in heard:
            view.connect(name, weakly(method))
        changes.connect("acted", weakly(self._on_acted))
        view.turn.connect("undo", weakly(self._on_undo_turn))
        self.turn = TurnSummary(view.turn, history.manager, tasks)
        self._rest = 0
        view.composer.view.get_buffer().connect("changed", weakly(self._on_typed))

    def stop(self, *_args: object) -> None:
        if self._view.session is not None:
            self._tasks.start(self._view.session.conversation.stop())

    def _on_stop_call(self, view: ChatView, entry: CallEntry) -> None:
        if entry.own:
            self.stop()  # there is nothing beside it
        elif view.session is not None:
            view.session.conversation.stop_call(entry.call.id)

    def keep_draft(self) -> asyncio.Task[None] | None:
        """Save the unsent text. Return None if it is saved already."""
        session, text = self._view.session, self._view.composer.draft
        if session is None or text == session.kept_draft:
            return None
        return self._sessions.keep_draft(session, text)

    def _on_typed(self, _buffer: Gtk.TextBuffer) -> None:
        """Save the unsent text when the user pauses."""
        if self._rest:
            GLib.source_remove(self._rest)
        self._rest = GLib.timeout_add(REST, weakly(self._on_rest))

    def _on_rest(self) -> bool:
        self._rest = 0
        if (keeping := self.keep_draft()) is not None:
            self._tasks.watch(keeping)
        return GLib.SOURCE_REMOVE

    def look_for_folder(self) -> None:
        """Check whether the project folder exists, and once more if called in the meantime."""
        self._is_stale = True
        if not self._is_looking:
            self._is_looking = True
            self._tasks.start(self._look_for_folder())

    async def _look_for_folder(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                session = self._view.session
                folder = (session.project if session is not None else None) or ""
                is_gone = bool(folder) and await asyncio.to_thread(
                    self._sessions.folders.is_missing, folder
                )
                if self._view.session is session:
                    self._view.missing.show_folder(folder if is_gone else "")
        finally:
            self._is_looking = False

    def _on_send(self, _view: ChatView, text: str) -> None:
        if (session := self._view.session) is not None:
            self._tasks.start(self._try(session.conversation.say(text), session, text))

    def _on_retry(self, _view: ChatView) -> None:
        if (session := self._view.session) is not None:
            self._tasks.start(session.conversation.retry())

    def _on_run(self, _view: ChatView, command: str) -> None:
        if (session := self._view.session) is not None:
            self._tasks.start(self._try(session.conversation.run(command), session, f"!{command}"))

    async def _try(
        self, turn: Coroutine[object, object, object], session: OpenSession, text: str
    ) -> None:
        """Put the text back into the composer if the session refuses it."""
        try:
            await turn
        except OllmSandboxError:
            if self._view.session is session and not self._view.composer.text:
                self._view.composer.text = text
            raise

    def _on_answer(self, view: ChatView, request_id: str, answer: Answer) -> None:
        self._asker.answer(request_id, answer)
        view.focus_composer()

    def _on_reply(self, view: ChatView, question_id: str, text: str) -> None:
        self._asker.reply(question_id, text)
        view.focus_composer()

    def _on_undo(self, _view: ChatView, run_id: str) -> None:
        self._changes.undo_run(run_id)

    def _on_undo_turn(self, _bar: TurnBar, run_ids: tuple[str, ...]) -> None:
        self._changes.undo_runs(run_ids)

    def _on_acted(self, _changes: ChangesView) -> None:
        self._tasks.start(self._look_up_states())
        self.turn.refresh()

    async def _look_up_states(self) -> None:
        """Update the cards after changes were undone or applied elsewhere."""
        session = self._view.session
        if session is not None:
            session.note_states(await asyncio.to_thread(self._history.states, session.id))

    def _on_open_link(self, _view: ChatView, address: str) -> None:
        self._tasks.start(open_link(self._window, address))

    def _on_open_output(self, _view: ChatView, entry: CallEntry) -> None:
        self._tasks.start(open_output(self._window, entry))
