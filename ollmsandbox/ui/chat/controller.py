# SPDX-License-Identifier: GPL-3.0-or-later
"""Pass the user's actions in the chat to the session."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gi.repository import GObject, Gtk

from ...chat.messages import QueuedMessage
from ...chat.providers.base import ProviderError
from ...chat.turn_end import TurnEnd
from ...errors import OllmSandboxError
from ...i18n import _, localized
from ...paths import near
from ...permission.request import Answer
from ...sandbox.process import Stop
from ...tools.base import Picture
from ..changes.view import ChangesView
from ..permission.asker import WindowAsker
from ..sessions.attachment import decode_attachment, is_picture_file, read_attachment
from ..sessions.entries import CallEntry
from ..sessions.sessions import Sessions
from ..widgets.actions import add_action
from ..widgets.dialogs import choose_files
from ..widgets.scheduling import Timer
from ..widgets.signals import SignalHandlers
from ..widgets.tasks import LatestOnly, Tasks, as_task
from ..widgets.weak import weakly
from .bars import TurnBar, last_turn_runs
from .composer import Composer
from .links import open_in_editor, open_link, open_output, open_port, open_terminal, save_hosts
from .view import ChatView

if TYPE_CHECKING:
    from ..changes.counts import TurnChanges
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
        sessions: Sessions,
        tasks: Tasks,
    ) -> None:
        self._window = window
        self._view = view
        self._changes = changes
        self._asker = asker
        self._sessions = sessions
        self._manager = sessions.factory.manager
        self._tasks = tasks
        self._newest_look = LatestOnly()
        heard: tuple[tuple[GObject.Object, str, Callable[..., object]], ...] = (
            (view, "send", self._on_send),
            (view, "resend", self._on_resend),
            (view, "restore", self._on_restore),
            (view, "retry", self._on_retry),
            (view, "stop-call", self._on_stop_call),
            (view, "answer", self._on_answer),
            (view, "save-hosts", self._on_save_hosts),
            (view, "open-terminal", self._on_open_terminal),
            (view.composer, "look-at-model", self._on_look_at_model),
            (view.composer, "set-seeing", self._on_set_seeing),
            (view.composer, "dropped", self._on_dropped),
            (view.composer, "pasted", self._on_pasted),
            (view.composer.view.get_buffer(), "changed", self._on_typed),
            (view.queue, "drop", self._on_unqueue),
            (view.context, "summarise", self._on_summarise),
            (changes, "acted", self.sum_up_turn),
        )
        for source, name, method in heard:
            source.connect(name, weakly(method))
        add_action(view.composer.actions, "attach", self._on_attach)
        add_action(view.composer.actions, "attach-pictures", self._on_attach_pictures)
        for name, opens in (
            ("open-link", open_link),
            ("open-output", open_output),
            ("open-port", open_port),
        ):
            view.connect(name, weakly(self._on_open), opens)
        changes.connect("open-file", weakly(self._on_open), open_in_editor)
        for verb in ("undo", "redo", "apply"):
            view.turn.connect(verb, weakly(self._on_turn_verb), verb)
        self._newest_sum = LatestOnly()
        # Of the session that is shown.
        self._handlers = SignalHandlers()
        self._rest = Timer(self._on_rest)
        view.composer.completion.find = weakly(self._find_files)

    def show_session(self, session: OpenSession | None) -> None:
        """Show beside the chat what belongs to a session that the view shows now."""
        self._handlers.disconnect()
        if session is not None:
            self._handlers.connect(session, "state-changed", self.sum_up_turn)
        self.look_for_folder()
        self.sum_up_turn()

    @as_task
    async def sum_up_turn(self, *_args: object) -> None:
        """Show in the bar what the last turn changed, once it has ended."""
        session, bar = self._view.session, self._view.turn
        runs = [] if session is None or session.is_busy else last_turn_runs(session)
        if not runs:
            bar.set_reveal_child(False)

        def read() -> TurnChanges:
            # Not needed for the first frame.
            from ..changes.counts import TurnChanges, turn_changes

            return turn_changes(self._manager, runs) if runs else TurnChanges()

        found = await self._newest_sum.run(read)
        if session is self._view.session and not (session and session.is_busy):
            bar.show_changes(found)

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
        self._rest.restart(REST)

    def _on_rest(self) -> None:
        if (keeping := self.keep_draft()) is not None:
            self._tasks.watch(keeping)

    @as_task
    async def look_for_folder(self) -> None:
        session, folder = self._view.session, self._folder
        is_missing = self._sessions.folders.is_missing
        is_gone = await self._newest_look.run(lambda: bool(folder) and is_missing(folder))
        if self._view.session is session:
            self._view.missing.show_folder(folder if is_gone else "")

    def _on_send(self, _source: Gtk.Widget, text: str) -> None:
        view, session = self._view, self._view.session
        if session is None:
            return
        is_command = text.startswith("!")
        pictures = () if is_command else view.composer.take_pictures()
        # Not what the view shows: a turn begins before its first state, or may just have ended.
        if session.conversation.is_busy:
            session.conversation.queue(text, pictures, waits_for_end=is_command)
        else:
            self._tasks.start(self.send(session, text, pictures))

    def _on_unqueue(self, _bar: Gtk.Widget, place: int) -> None:
        """Take a message back, into the composer if that is empty."""
        composer = self._view.composer
        if (session := self._view.session) is not None:
            taken = session.conversation.take_queued(place)
            if composer.is_untouched and not composer.attached:
                self._give_back(session, taken)
            composer.focus()

    def _on_retry(self, _view: ChatView) -> None:
        if (session := self._view.session) is not None:
            self._tasks.start(self.send(session, None))

    def _on_summarise(self, _ring: Gtk.Widget) -> None:
        if (session := self._view.session) is not None:
            self._tasks.start(session.conversation.summarise())

    @as_task
    async def _on_resend(self, view: ChatView, text: str, pictures: Sequence[Picture]) -> None:
        """Send the last message again, with another text and pictures if there are any."""
        if (session := view.session) is None:
            return
        before = session.take_back()
        if text or pictures:
            await self.send(session, text, pictures)
        else:
            await self.send(session, before.text, before.pictures)

    async def send(
        self, session: OpenSession, text: str | None, pictures: Sequence[Picture] = ()
    ) -> None:
        """Send a message or a !command, or try the last turn again without one. Then send what
        still waits, whether or not the session is still shown."""
        conversation = session.conversation
        waiting = [None if text is None else QueuedMessage(text, tuple(pictures))]
        while waiting:
            message = waiting.pop()
            try:
                goes_on = await self._turn(session, message)
            except OllmSandboxError as error:
                # The session refuses it, and says why where it was sent.
                refused = [message] if message is not None else []
                self._give_back(session, [*refused, *conversation.take_queued()])
                session.add_notice(localized(str(error)), is_error=True)
                return
            if not goes_on:
                self._give_back(session, conversation.take_queued())
            waiting += conversation.take_queued(0)
            if goes_on and not waiting and not session.was_named:
                session.was_named = True
                self._tasks.start(self._sessions.name(session))

    async def _turn(self, session: OpenSession, message: QueuedMessage | None) -> bool:
        """Return whether the turn ended by itself."""
        conversation = session.conversation
        if message is None:
            ended = await conversation.retry()
        elif message.text.startswith("!"):
            size = self._view.terminal_size
            outcome = await conversation.run(message.text[1:].strip(), terminal_size=size)
            return outcome.stop is not Stop.PERSON
        else:
            ended = await conversation.say(message.text, message.pictures)
        return ended.end is TurnEnd.DONE

    def _give_back(self, session: OpenSession, messages: Sequence[QueuedMessage]) -> None:
        """Put unsent messages back into the composer, in front of what it has."""
        composer = self._view.composer if self._view.session is session else None
        draft = composer.draft if composer else session.draft
        texts = [message.text for message in messages if message.text]
        if texts:
            text = "\n\n".join([*texts, draft] if draft else texts)
            if composer is not None:
                composer.text = text
            else:
                session.draft = text
        self._attach(session, *(picture for message in messages for picture in message.pictures))

    def _attach(self, session: OpenSession, *pictures: Picture) -> None:
        session.attached = (*session.attached, *pictures)
        if self._view.session is session:
            self._view.composer.attached = session.attached

    @property
    def _folder(self) -> str:
        """The shown session's project, or ""."""
        session = self._view.session
        return (session.project if session is not None else None) or ""

    @as_task
    async def _on_attach(self) -> None:
        folder = self._folder
        paths = await choose_files(self._window, _("Insert Paths"), folder)
        self._view.composer.add_paths([near(path, folder) for path in paths])

    @as_task
    async def _on_attach_pictures(self) -> None:
        paths = await choose_files(self._window, _("Attach Pictures"), self._folder)
        self._on_dropped(self._view.composer, paths)

    def _on_look_at_model(self, composer: Composer) -> None:
        def show() -> None:
            session = self._view.session
            model = session.conversation.model if session else None
            if model is not None:
                composer.show_sight(sees=model.sees_pictures, is_known=model.is_sight_known)

        async def look() -> None:
            await self._sees_pictures(self._view.session)
            show()

        composer.show_sight(sees=False)
        show()
        self._tasks.start(look())

    def _on_set_seeing(self, _composer: Composer, sees: bool) -> None:
        if (session := self._view.session) is not None:
            self._tasks.start(self._sessions.set_seeing(session, sees=sees))

    async def _sees_pictures(self, session: OpenSession | None) -> bool:
        model = session.conversation.model if session else None
        if model is None:
            return False
        # The server says both; if it does not answer, the user's word counts.
        with suppress(ProviderError):
            await model.context_length()
        return model.sees_pictures

    @as_task
    async def _on_dropped(self, composer: Composer, paths: Sequence[str]) -> None:
        """Attach pictures that the model can see, and insert the paths of all other files."""
        session, folder = self._view.session, self._folder
        pictures = [path for path in paths if is_picture_file(path)]
        left = list(paths)
        if pictures and await self._sees_pictures(session):
            for path in pictures:
                found = await asyncio.to_thread(read_attachment, path, os.environ)
                if found is not None and session is not None:
                    left.remove(path)
                    self._attach(session, found)
        elif pictures:
            self._tasks.tell(_why_blind(session))
        if self._view.session is session:
            composer.add_paths([near(path, folder) for path in left])
            composer.focus()

    @as_task
    async def _on_pasted(self, _composer: Composer, data: bytes) -> None:
        session = self._view.session
        if not await self._sees_pictures(session):
            self._tasks.tell(_why_blind(session))
            return
        name = time.strftime(_("Picture %H:%M:%S"))
        found = await asyncio.to_thread(decode_attachment, data, name, os.environ)
        if found is None:
            self._tasks.tell(_("This picture cannot be attached."))
        elif session is not None:
            self._attach(session, found)

    async def _find_files(self, text: str) -> list[str]:
        session = self._view.session
        if session is None or session.project is None:
            return []
        from ...project.records.folder import Folder  # not needed for the first frame

        folder = Folder(session.project, self._manager)
        return await asyncio.to_thread(folder.find_files, text, 8)

    def _on_answer(self, view: ChatView, asked_id: str, answer: Answer | str) -> None:
        self._asker.answer(asked_id, answer)
        view.focus_composer()

    def _on_turn_verb(self, bar: TurnBar, verb: str) -> None:
        self._changes.act_on_runs(verb, bar.runs)

    def _on_restore(self, view: ChatView, since: float) -> None:
        session = view.session
        if session is None or session.project is None:
            return
        if session.is_busy:
            self._tasks.tell(_("Files can be restored when the agent is done."))
            return
        self._changes.restore(session.project, session.id, since)

    def _on_open(self, _source: Gtk.Widget, *given: object) -> None:
        """Open something in another program, with a function of `links`."""
        *what, opens = given
        assert callable(opens)
        self._tasks.start(opens(self._window, *what))

    def _on_save_hosts(self, _view: ChatView, entry: CallEntry) -> None:
        self._tasks.start(save_hosts(self._window, self._manager.paths, entry, self._tasks.tell))

    def _on_open_terminal(self, _view: ChatView, _entry: CallEntry) -> None:
        """Stop a command that wants a whole screen, and give the user a shell in the sandbox."""
        self.stop()
        self._tasks.start(open_terminal(self._folder))


def _why_blind(session: OpenSession | None) -> str:
    model = session.conversation.model if session else None
    if model is None or model.is_sight_known:
        return _("This model cannot see pictures.")
    return _("If this model sees pictures, say so in the menu of “+”.")
