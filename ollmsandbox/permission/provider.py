# SPDX-License-Identifier: GPL-3.0-or-later
"""Who answers a request: what was said for this session, then what was saved, then the person."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from .. import N_
from ..errors import OllmSandboxError, Sentence
from .request import Answer, Asker, Audit, PermissionRequest, Source, Unanswered, Verdict
from .rule_store import RuleStore
from .rules import Key, Rule, key_of

# More cards than anybody reads; who is flooded with questions says yes to be rid of them.
MOST_WAITING = 50

# What holds for a session, by what it is about.
Answers = dict[Key, tuple[Answer, Source]]

_LASTING = (Answer.DENY_ALWAYS, Answer.ALLOW_SESSION, Answer.ALLOW_ALWAYS)


@dataclass(frozen=True)
class _Waiting:
    key: Key | None
    # Done when a rule answers instead of the person.
    ruled: asyncio.Future[Answer]


class NobodyAsks:
    """Where nobody is there to be asked."""

    async def ask(self, request: PermissionRequest) -> Answer:
        raise Unanswered(N_("Nobody is there to be asked."))


class Provider:
    """For one session. All calls on the loop's own thread."""

    def __init__(
        self,
        asker: Asker,
        store: RuleStore,
        audit: Audit | None,
        *,
        clock: Callable[[], float] = time.time,
        patience: float | None = None,
    ) -> None:
        self.notices: list[str] = []
        self._asker = asker
        self._store = store
        self._audit = audit
        self._clock = clock
        self._patience = patience
        self._session: Answers = {}
        # Counts what was ever remembered: a lookup that it overtook is done again.
        self._remembered = 0
        self._waiting: list[_Waiting] = []
        # Asyncio itself does not keep tasks.
        self._tasks: set[asyncio.Future[Answer] | asyncio.Future[None]] = set()

    async def decide(self, request: PermissionRequest) -> Verdict:
        """Cancelled, it is denied, and recorded as that."""
        key = key_of(request)
        try:
            answer, source = await self._decide(request, key)
        except asyncio.CancelledError:
            self._told(Verdict(request, Answer.DENY, Source.NOBODY, self._clock()))
            raise
        verdict = Verdict(request, answer, source, self._clock())
        self._told(verdict)
        if source is Source.PERSON and key is not None and answer in _LASTING:
            await self._remember(key, answer)
        return verdict

    def forget_session(self) -> None:
        self._session.clear()

    def take_notices(self) -> list[str]:
        taken, self.notices = self.notices, []
        return taken

    async def _decide(self, request: PermissionRequest, key: Key | None) -> tuple[Answer, Source]:
        if key is not None and (found := await self._look_up(key)):
            return found
        if len(self._waiting) >= MOST_WAITING:
            text = N_(
                "More than {number} questions were waiting for you; further ones were denied."
            )
            self._notice(Sentence(text, number=MOST_WAITING))
            return Answer.DENY, Source.NOBODY
        waiting = _Waiting(key, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            return await self._ask(request, waiting)
        finally:
            self._waiting.remove(waiting)

    async def _look_up(self, key: Key) -> tuple[Answer, Source] | None:
        while True:
            if key in self._session:
                return self._session[key]
            before = self._remembered
            saved = await asyncio.to_thread(self._store.find, key)
            self._pass_on_notices()
            if saved is not None and saved in key.allowed_answers:
                return saved, Source.SAVED
            if before == self._remembered:
                return None

    async def _ask(self, request: PermissionRequest, waiting: _Waiting) -> tuple[Answer, Source]:
        self._record(lambda audit: audit.asked(request))
        asked = asyncio.ensure_future(self._asker.ask(request))
        self._tasks.add(asked)
        asked.add_done_callback(self._over)
        try:
            await asyncio.wait(
                {asked, waiting.ruled},
                timeout=self._patience,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            asked.cancel()
        if asked.done():
            return self._said(request, asked)
        if waiting.ruled.done():
            answer = waiting.ruled.result()
            return answer, _source(answer)
        return Answer.DENY, Source.NOBODY  # it took too long

    def _said(
        self, request: PermissionRequest, asked: asyncio.Future[Answer]
    ) -> tuple[Answer, Source]:
        if asked.cancelled():
            return Answer.DENY, Source.NOBODY
        error = asked.exception()
        if error is not None:
            if not isinstance(error, Unanswered):
                text = N_("You could not be asked, so it was denied: {why}")
                self._notice(Sentence(text, why=str(error)))
            return Answer.DENY, Source.NOBODY
        answer = asked.result()
        if answer not in request.answers:
            # What was not offered counts for this once.
            answer = Answer.ALLOW if answer.allows else Answer.DENY
        return answer, Source.PERSON

    async def _remember(self, key: Key, answer: Answer) -> None:
        """At once for all that wait, then on disk."""
        self._session[key] = answer, _source(answer)
        self._remembered += 1
        for waiting in self._waiting:
            if waiting.key == key and not waiting.ruled.done():
                waiting.ruled.set_result(answer)
        if answer is Answer.ALLOW_SESSION:
            return
        # The person has said it: a turn that is stopped now does not take it back.
        saving = asyncio.ensure_future(self._save(Rule(key, answer)))
        self._tasks.add(saving)
        saving.add_done_callback(self._tasks.discard)
        await asyncio.shield(saving)

    async def _save(self, rule: Rule) -> None:
        try:
            await asyncio.to_thread(self._store.add, rule)
        except OllmSandboxError as error:
            self._session[rule.key] = rule.answer, Source.SESSION
            text = N_("Your answer holds for this session only. {why}")
            self._notice(Sentence(text, why=str(error)))
        else:
            # From here on the file says it, so that it can be forgotten there.
            if self._session.get(rule.key) == (rule.answer, Source.SAVED):
                del self._session[rule.key]
        self._pass_on_notices()

    def _over(self, asked: asyncio.Future[Answer]) -> None:
        self._tasks.discard(asked)
        if not asked.cancelled():
            asked.exception()  # looked at, though perhaps nobody waits for it any more

    def _told(self, verdict: Verdict) -> None:
        self._record(lambda audit: audit.answered(verdict))

    def _record(self, what: Callable[[Audit], None]) -> None:
        if self._audit is None:
            return
        try:
            what(self._audit)
        except OllmSandboxError as error:
            text = N_("A question and its answer could not be recorded. {why}")
            self._notice(Sentence(text, why=str(error)))

    def _pass_on_notices(self) -> None:
        for notice in self._store.take_notices():
            self._notice(notice)

    def _notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices.append(text)


def _source(answer: Answer) -> Source:
    """Where a rule with this answer is kept."""
    return Source.SESSION if answer is Answer.ALLOW_SESSION else Source.SAVED
