# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes what happens in a session to the database, in order, on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable

from ... import N_
from ...engine.session_lock import SessionLock
from ...errors import OllmSandboxError, Sentence, UnsavedError
from ...permission.request import PermissionRequest, Verdict
from .history import History, title_from
from .stored import SessionInfo, Spent, StoredMessage, StoredSession

Job = Callable[[], None]

# Seconds: for the end of what is being written, and until a job is tried again.
_PATIENCE, _PAUSE = 5.0, 1.0


class WriterThread:
    """Runs jobs one after the other. If one fails (the database is locked, the disk is full), it is
    tried again, and those behind it wait."""

    def __init__(self, failed: Callable[[str], bool], done: Callable[[], None]) -> None:
        """Both functions are called on the writer's thread: `failed` with the reason, until it
        returns True because the user was told; `done` when the thread ends."""
        self._failed = failed
        self._done = done
        # None ends the thread.
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._is_closing = threading.Event()
        # Whether the user knows that writing fails.
        self._is_known = False
        self._failures = 0
        self._thread: threading.Thread | None = None

    def put(self, job: Job) -> None:
        """Add a job, without waiting for it."""
        self._jobs.put(job)
        with self._jobs.mutex:  # two threads may add their first jobs at once
            if self._thread is not None:
                return
            # Not from a pool, which is joined when the program ends: a database may stay locked.
            self._thread = threading.Thread(target=self._work, name="session writer", daemon=True)
        self._thread.start()

    @property
    def left(self) -> int:
        """The number of jobs that are not done yet."""
        return self._jobs.unfinished_tasks

    async def flushed(self, patience: float) -> bool:
        """Wait until everything is written. Return False if that fails or takes longer."""
        return not self.left or await asyncio.to_thread(self._flush, patience)

    def _flush(self, patience: float) -> bool:
        # Queue.join has no limit of time, and knows no failures.
        done = self._jobs.all_tasks_done
        with done:
            before = self._failures
            done.wait_for(lambda: not self.left or self._failures > before, patience)
            return not self.left

    def close(self, patience: float) -> None:
        """Try what is left, and wait for that."""
        if self._thread is not None:
            self._is_closing.set()
            self._jobs.put(None)
            self._thread.join(patience)

    def _work(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                while not self._try(job):
                    if self._is_closing.is_set():
                        return
                    self._is_closing.wait(_PAUSE)
                self._jobs.task_done()
            self._jobs.task_done()
        finally:
            self._done()

    def _try(self, job: Job) -> bool:
        try:
            job()
        except OllmSandboxError as error:
            self._is_known = self._is_known or self._failed(str(error))
            with self._jobs.all_tasks_done:
                self._failures += 1
                self._jobs.all_tasks_done.notify_all()
            return False
        except Exception as error:  # noqa: BLE001 - reported; it would fail again
            self._failed(repr(error))
        self._is_known = False
        return True


class SessionWriter:
    """Numbers and stores the messages of one session, which is created with its first message, and
    records its permission questions and their answers."""

    def __init__(self, history: History, session_id: str) -> None:
        """Raise an error if the session is open in another program."""
        self._lock = SessionLock(history.manager.paths, session_id)
        self.history = history
        self.session_id = session_id
        self._project = self._connection = ""
        self._next = 0
        self._is_stored = False
        # Something was said since the session was opened. If only the choice of a model is lost, no
        # harm is done.
        self._has_words = False
        # Set by the conversation: shows a text to the user.
        self.notify: Callable[[str], None] = lambda _text: None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Each thread has its own connection to the database.
        self._writer = WriterThread(self._failed, history.manager.store.close)

    def set_session(self, project: str, connection: str, stored: StoredSession | None) -> None:
        """Set what the session belongs to, and the messages that it already has."""
        self._project, self._connection = project, connection
        if stored is not None:
            self._is_stored = True
            self._next = 1 + max((entry.number for entry in stored.entries), default=-1)

    def take_number(self) -> int:
        self._next += 1
        return self._next - 1

    def begin(self, text: str, model: str) -> None:
        """Begin a turn; before the first one, create the session."""
        self._note_loop()
        self._has_words = True
        if self._is_stored and self._next:
            return
        self._is_stored = True
        now = time.time()
        info = SessionInfo(
            id=self.session_id,
            title=title_from(text),
            project=self._project,
            model=model,
            connection=self._connection,
            created_at=now,
            updated_at=now,
        )
        self._writer.put(lambda: self.history.create(info))

    def note_model(self, model: str, connection: str) -> None:
        self._connection = connection
        if self._is_stored:
            self._note_loop()
            self._writer.put(lambda: self.history.note_model(self.session_id, model, connection))

    def write(self, entry: StoredMessage) -> None:
        self._writer.put(lambda: self.history.write(self.session_id, entry))

    def add_spent(self, spent: Spent) -> None:
        self._writer.put(lambda: self.history.add_spent(self.session_id, spent))

    def keep_told(self, text: str) -> None:
        self._writer.put(lambda: self.history.keep_told(self.session_id, text))

    def remove(self, number: int) -> None:
        self._writer.put(lambda: self.history.remove(self.session_id, number))

    def remove_from(self, at: float) -> None:
        self._writer.put(lambda: self.history.remove_from(self.session_id, at))

    def asked(self, request: PermissionRequest) -> None:
        now = time.time()
        self._writer.put(lambda: self.history.write_question(request, now))

    def answered(self, verdict: Verdict) -> None:
        self._writer.put(lambda: self.history.write_answer(verdict))

    @property
    def is_behind(self) -> bool:
        return self._writer.left > 0

    async def is_written(self) -> bool:
        """Wait for what is being written. Return False if that fails."""
        return await self._writer.flushed(_PATIENCE) or not self._has_words

    async def close(self) -> bool:
        """Return False if the end of the session could not be written."""
        is_written = await self.is_written()
        if not is_written:
            self.notify(UnsavedError().message)
        await asyncio.to_thread(self._writer.close, _PATIENCE)
        self._lock.release()
        return is_written or not self.is_behind

    def _note_loop(self) -> None:
        """Remember the running loop, to report failures on it."""
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()

    def _failed(self, why: str) -> bool:
        if self._loop is None:
            return False
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to read it
            notice = Sentence(N_("The session is not being saved: {why}"), why=why)
            self._loop.call_soon_threadsafe(self.notify, notice)
        return True
