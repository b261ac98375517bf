# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers requests: by the session's answers, then by the saved rules, then by asking the user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from .. import N_
from ..errors import OllmSandboxError, Sentence
from .request import Answer, Asker, Audit, PermissionRequest, Source, Unanswered, Verdict
from .rules import Key, Rule, key_of
from .store import RuleStore

# Deny further questions: a user who is flooded with them allows anything to get rid of them.
MAX_OPEN_QUESTIONS = 50

# The answers for a session.
Answers = dict[Key, tuple[Answer, Source]]

_LASTING = (Answer.DENY_ALWAYS, Answer.ALLOW_SESSION, Answer.ALLOW_ALWAYS)


@dataclass(frozen=True)
class _OpenQuestion:
    key: Key | None
    # Done when a rule answers instead of the user.
    ruled: asyncio.Future[Answer]


class NobodyAsks:
    """Denies everything, for where nobody can be asked."""

    async def ask(self, request: PermissionRequest) -> Answer:
        raise Unanswered(N_("No one is available to answer."))


class Provider:
    """Answers the requests of one session. Call it only on the loop's own thread."""

    def __init__(self, asker: Asker, store: RuleStore, audit: Audit | None) -> None:
        self.notices: list[str] = []
        self._asker = asker
        self._store = store
        self._audit = audit
        self._session: Answers = {}
        # The number of answers remembered so far: if it changes during a lookup, look up again.
        self._remembered = 0
        self._open: list[_OpenQuestion] = []
        # Asyncio does not keep tasks alive.
        self._tasks: set[asyncio.Future[Answer] | asyncio.Future[None]] = set()

    async def decide(self, request: PermissionRequest) -> Verdict:
        """Return the verdict. If cancelled, record that the request was denied."""
        key = key_of(request)
        try:
            answer, source = await self._decide(request, key)
        except asyncio.CancelledError:
            verdict = Verdict(request, Answer.DENY, Source.NOBODY, time.time())
            self._record(lambda audit: audit.answered(verdict))
            raise
        verdict = Verdict(request, answer, source, time.time())
        self._record(lambda audit: audit.answered(verdict))
        if source is Source.PERSON and key is not None and answer in _LASTING:
            await self._remember(key, answer)
        return verdict

    def take_notices(self) -> list[str]:
        taken, self.notices = self.notices, []
        return taken

    async def _decide(self, request: PermissionRequest, key: Key | None) -> tuple[Answer, Source]:
        if key is not None and (found := await self._look_up(key)):
            return found
        if len(self._open) >= MAX_OPEN_QUESTIONS:
            text = N_("More than {number} questions are open. Further ones were denied.")
            self._notice(Sentence(text, number=MAX_OPEN_QUESTIONS))
            return Answer.DENY, Source.NOBODY
        question = _OpenQuestion(key, asyncio.get_running_loop().create_future())
        self._open.append(question)
        try:
            return await self._ask(request, question)
        finally:
            self._open.remove(question)

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

    async def _ask(
        self, request: PermissionRequest, question: _OpenQuestion
    ) -> tuple[Answer, Source]:
        self._record(lambda audit: audit.asked(request))
        asked = asyncio.ensure_future(self._asker.ask(request))
        self._tasks.add(asked)
        asked.add_done_callback(self._over)
        try:
            await asyncio.wait({asked, question.ruled}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        if asked.done():
            return self._answer(request, asked)
        answer = question.ruled.result()
        return answer, _source(answer)

    def _answer(
        self, request: PermissionRequest, asked: asyncio.Future[Answer]
    ) -> tuple[Answer, Source]:
        if asked.cancelled():
            return Answer.DENY, Source.NOBODY
        error = asked.exception()
        if error is not None:
            if not isinstance(error, Unanswered):
                text = N_("Denied, because you could not be asked: {why}")
                self._notice(Sentence(text, why=str(error)))
            return Answer.DENY, Source.NOBODY
        answer = asked.result()
        if answer not in request.answers:
            # An answer that was not offered counts only once.
            is_allowed = answer.allows and Answer.ALLOW in request.answers
            answer = Answer.ALLOW if is_allowed else Answer.DENY
        return answer, Source.PERSON

    async def _remember(self, key: Key, answer: Answer) -> None:
        """Answer open questions with the same key, then save the answer."""
        self._session[key] = answer, _source(answer)
        self._remembered += 1
        for question in self._open:
            if question.key == key and not question.ruled.done():
                question.ruled.set_result(answer)
        if answer is Answer.ALLOW_SESSION:
            return
        # The user has answered: stopping the turn must not undo that.
        saving = asyncio.ensure_future(self._save(Rule(key, answer)))
        self._tasks.add(saving)
        saving.add_done_callback(self._tasks.discard)
        await asyncio.shield(saving)

    async def _save(self, rule: Rule) -> None:
        try:
            await asyncio.to_thread(self._store.add, rule)
        except OllmSandboxError as error:
            self._session[rule.key] = rule.answer, Source.SESSION
            text = N_("Your answer applies to this session only. {why}")
            self._notice(Sentence(text, why=str(error)))
        else:
            # The file has it now, so that the user can remove it there.
            if self._session.get(rule.key) == (rule.answer, Source.SAVED):
                del self._session[rule.key]
        self._pass_on_notices()

    def _over(self, asked: asyncio.Future[Answer]) -> None:
        self._tasks.discard(asked)
        if not asked.cancelled():
            asked.exception()  # else asyncio logs that it was never retrieved

    def _record(self, what: Callable[[Audit], None]) -> None:
        if self._audit is None:
            return
        try:
            what(self._audit)
        except OllmSandboxError as error:
            text = N_("Could not record a question and its answer. {why}")
            self._notice(Sentence(text, why=str(error)))

    def _pass_on_notices(self) -> None:
        for notice in self._store.take_notices():
            self._notice(notice)

    def _notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices.append(text)


def _source(answer: Answer) -> Source:
    """Return where an answer is saved."""
    return Source.SESSION if answer is Answer.ALLOW_SESSION else Source.SAVED
