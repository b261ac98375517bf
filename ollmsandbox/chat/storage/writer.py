# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said in one session, on its way to the database.

Writes into the database, one thing after the other, while nobody waits for it.

The audit trail of a session: its questions and answers go to the database, in order.

What is said in one session, on its way to the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

from ... import N_
from ...errors import OllmSandboxError, Sentence
from ...files.locks import SessionLock
from ...permission.request import PermissionRequest, Verdict
from .history import History, title_from
from .stored import SessionInfo, StoredMessage, StoredSession

Job = Callable[[], None]


class WriterThread:
    """A thread of its own. What cannot be written (the database is locked, the disk is full) is
    kept and tried again with the next thing, in its order."""

    def __init__(self, failed: Callable[[str], None], done: Callable[[], None]) -> None:
        """`failed` hears, on the clerk's thread, why something could not be written, once in a
        row; `done` is called there at the end."""
        self._failed = failed
        self._done = done
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_failing = False
        # How often all of it was tried: who waits for a write waits for one more round.
        self._wanted = self._tried = 0
        self._thread: threading.Thread | None = None

    def put(self, job: Job) -> None:
        """Never waits."""
        with self._changed:
            self._jobs.append(job)
            self._wake()

    @property
    def left(self) -> int:
        """How much is not written yet."""
        with self._changed:
            return len(self._jobs)

    def flush(self, patience: float) -> bool:
        """Wait until all is written; False if that does not work."""
        give_up = time.monotonic() + patience
        with self._changed:
            if not self._jobs:
                return True
            self._wake()
            round_ = self._wanted
            self._changed.wait_for(
                lambda: not self._jobs or self._tried >= round_, give_up - time.monotonic()
            )
            return not self._jobs

    async def flushed(self, patience: float) -> bool:
        return not self.left or await asyncio.to_thread(self.flush, patience)

    def close(self) -> None:
        """Ends the thread once it has tried what is left. Does not wait for it."""
        with self._changed:
            self._is_closing = True
            if self._thread is not None:
                self._wanted += 1
                self._changed.notify_all()

    def join(self, patience: float) -> None:
        if self._thread is not None:
            self._thread.join(patience)

    def _wake(self) -> None:
        self._wanted += 1
        if self._thread is None:
            # Not of a pool: those are waited for at the end, and a database may stay locked.
            self._thread = threading.Thread(target=self._work, name="clerk", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._wanted > self._tried)
                    wanted, is_last = self._wanted, self._is_closing
                self._write()
                with self._changed:
                    self._tried = wanted
                    self._changed.notify_all()
                    if is_last:
                        return
        finally:
            self._done()

    def _write(self) -> None:
        while True:
            with self._changed:
                if not self._jobs:
                    return
                job = self._jobs[0]
            try:
                job()
            except OllmSandboxError as error:
                if not self._is_failing:
                    self._is_failing = True
                    self._failed(str(error))
                return
            self._is_failing = False
            with self._changed:
                self._jobs.popleft()


class AuditLog:
    """An Audit for whom nobody waits."""

    def __init__(self, history: History, clerk: WriterThread) -> None:
        self._history = history
        self._clerk = clerk

    def asked(self, request: PermissionRequest) -> None:
        now = time.time()
        self._clerk.put(lambda: self._history.write_question(request, now))

    def answered(self, verdict: Verdict) -> None:
        self._clerk.put(lambda: self._history.write_answer(verdict))


_PATIENCE = 5.0
LOST = N_("The end of this session could not be written.")


class SessionWriter:
    """Numbers the messages and hands them to a clerk. The session is made with its first one."""

    def __init__(self, history: History, session_id: str) -> None:
        """Raises if the session is open in another program."""
        self._lock = SessionLock(history.manager.paths, session_id)
        self.history = history
        self.session_id = session_id
        self._project = self._connection = ""
        self._next = 0
        self._is_stored = False
        # Something was said since it was opened. Which model is used can be chosen again.
        self._has_words = False
        # Set by the conversation: what the person should know.
        self.tell: Callable[[str], None] = lambda _text: None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Why nothing can be written, before there was a loop to say it on.
        self._untold = ""
        self._clerk = WriterThread(self._failed, self._thread_ends)
        self.trail = AuditLog(history, self._clerk)

    def place(self, project: str, connection: str, stored: StoredSession | None) -> None:
        """Where it belongs, and what is in it already."""
        self._project, self._connection = project, connection
        if stored is not None:
            self._is_stored = True
            self._next = 1 + max((entry.number for entry in stored.entries), default=-1)

    def take_number(self) -> int:
        self._next += 1
        return self._next - 1

    def begin(self, text: str, model: str) -> None:
        """Before the first message of a session."""
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
        self._clerk.put(lambda: self.history.create(info))

    def note_model(self, model: str, connection: str) -> None:
        self._connection = connection
        if self._is_stored:
            self._note_loop()
            self._clerk.put(lambda: self.history.note_model(self.session_id, model, connection))

    def write(self, entry: StoredMessage) -> None:
        self._clerk.put(lambda: self.history.write(self.session_id, entry))

    def remove(self, number: int) -> None:
        self._clerk.put(lambda: self.history.remove(self.session_id, number))

    @property
    def is_behind(self) -> bool:
        return self._clerk.left > 0

    async def is_written(self) -> bool:
        """Waits for what is on its way."""
        return await self._clerk.flushed(_PATIENCE) or not self._has_words

    async def close(self) -> bool:
        """False if the end of it is lost."""
        is_written = await self.is_written()
        if not is_written:
            self.tell(Sentence(LOST))
        self._clerk.close()
        await asyncio.to_thread(self._clerk.join, _PATIENCE)
        self._lock.release()
        return is_written or not self.is_behind

    def _note_loop(self) -> None:
        """Where a loop runs: what goes wrong from now on is said on it, and what did before."""
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        if self._loop is not None:
            why, self._untold = self._untold, ""
            if why and self.is_behind:
                self._failed(why)

    def _thread_ends(self) -> None:
        """Its connection to the database is its own."""
        self.history.manager.store.close()

    def _failed(self, why: str) -> None:
        loop = self._loop
        if loop is None:
            self._untold = why
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
                notice = Sentence(N_("The session is not being written: {why}"), why=why)
                loop.call_soon_threadsafe(self.tell, notice)
