# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers come from the session, then the saved rules, then the user; several questions at once; no
user to ask."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from support.person import Person
from support.questions import Book, ScriptedUser, command, other, until

from ollmsandbox import loop
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.permission.provider import MAX_OPEN_QUESTIONS, NobodyAsks, Provider
from ollmsandbox.permission.request import Answer, PermissionRequest, Source, Unanswered, Verdict
from ollmsandbox.permission.rules import Rule, key_of
from ollmsandbox.permission.store import RuleStore

pytestmark = pytest.mark.anybody

ALWAYS, SESSION = Answer.ALLOW_ALWAYS, Answer.ALLOW_SESSION


class Desk:
    """A provider with a scripted user, and all that it uses."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.project = str(person.project)
        self.user = ScriptedUser()
        self.book = Book()
        self.store = RuleStore(person.paths, at_rest=0)
        self.provider = self.next_session()

    def next_session(self) -> Provider:
        self.provider = Provider(self.user, self.store, self.book, clock=lambda: 7.0)
        return self.provider

    def says(self, *answers: Answer) -> None:
        self.user.says = list(answers)

    def decide(self, request: PermissionRequest | str) -> tuple[Answer, Source]:
        verdict = loop.run(self.provider.decide(self.request(request)))
        assert verdict == self.book.verdicts[-1]
        return verdict.answer, verdict.source

    def request(self, request: PermissionRequest | str) -> PermissionRequest:
        return command(request, self.project) if isinstance(request, str) else request

    def begin(self, text: str) -> asyncio.Task[Verdict]:
        return asyncio.ensure_future(self.provider.decide(self.request(text)))

    @property
    def times_asked(self) -> int:
        return len(self.user.asked)


@pytest.fixture
def desk(person: Person) -> Desk:
    return Desk(person)


@pytest.mark.parametrize("answer", Answer)
def test_each_answer_is_the_user_s(desk: Desk, answer: Answer) -> None:
    desk.says(answer)
    assert desk.decide("make") == (answer, Source.PERSON)
    assert desk.book.verdicts[-1].allowed is answer.allows
    assert desk.book.verdicts[-1].at == 7.0
    assert desk.book.asked_of == desk.user.asked


@pytest.mark.parametrize("answer", [Answer.ALLOW, Answer.DENY])
def test_an_answer_for_once_is_not_remembered(desk: Desk, answer: Answer) -> None:
    desk.says(answer, Answer.DENY)
    desk.decide("make")
    assert desk.decide("make") == (Answer.DENY, Source.PERSON)
    assert not desk.store.file.exists()


def test_an_answer_for_the_session_ends_with_it(desk: Desk) -> None:
    desk.says(SESSION)
    desk.decide("make")
    assert desk.decide("make") == (SESSION, Source.SESSION)
    assert not desk.store.file.exists()
    desk.provider.forget_session()
    desk.says(Answer.DENY)
    assert desk.decide("make") == (Answer.DENY, Source.PERSON)


@pytest.mark.parametrize("answer", [ALWAYS, Answer.DENY_ALWAYS])
def test_always_holds_in_the_next_session(desk: Desk, answer: Answer) -> None:
    desk.says(answer)
    desk.decide("make")
    assert desk.decide("make") == (answer, Source.SAVED)
    desk.next_session()
    assert desk.decide("make") == (answer, Source.SAVED)
    assert desk.times_asked == 1
    assert len(desk.book.verdicts) == 3


def test_the_session_comes_before_what_is_saved(desk: Desk) -> None:
    desk.says(SESSION)
    desk.decide("make")
    key = key_of(desk.request("make"))
    assert key is not None
    desk.store.add(Rule(key, Answer.DENY_ALWAYS))
    assert desk.decide("make") == (SESSION, Source.SESSION)


def test_a_rule_removed_from_the_file_is_removed_from_the_session(desk: Desk) -> None:
    desk.says(ALWAYS, Answer.DENY)
    desk.decide("make")
    RuleStore(desk.person.paths).remove(desk.store.rules())
    assert desk.decide("make") == (Answer.DENY, Source.PERSON)


def test_other_tools_are_remembered_by_their_target(desk: Desk) -> None:
    desk.says(ALWAYS, Answer.DENY, Answer.DENY)
    fetch = other("web_fetch", "example.org", desk.project, network=True, sandboxed=False)
    assert desk.decide(fetch) == (ALWAYS, Source.PERSON)
    assert desk.decide(fetch) == (ALWAYS, Source.SAVED)
    for changed in ({"target_path": "example.org.evil"}, {"tool": "edit_file"}):
        assert desk.decide(dataclasses.replace(fetch, **changed))[1] is Source.PERSON  # type: ignore[arg-type]


def test_one_time_only_is_neither_stored_nor_looked_up(desk: Desk) -> None:
    once = command("make", desk.project, one_time_only=True, network=True)
    assert once.answers == (Answer.DENY, Answer.ALLOW)
    # Not even if an asker gives what was not offered, or a rule was written by hand.
    desk.says(ALWAYS, SESSION, Answer.DENY_ALWAYS, Answer.DENY)
    for said in (Answer.ALLOW, Answer.ALLOW, Answer.DENY):
        assert desk.decide(once) == (said, Source.PERSON)
    assert not desk.store.file.exists()
    desk.store.file.parent.mkdir(parents=True, exist_ok=True)
    desk.store.file.write_text(
        "rules:\n- answer: allow\n  tool: run_command\n"
        f"  project: {desk.project}\n  command: make\n"
    )
    assert desk.decide("make") == (ALWAYS, Source.SAVED)
    assert desk.decide(once) == (Answer.DENY, Source.PERSON)


def test_an_answer_that_was_not_offered_counts_once(desk: Desk) -> None:
    desk.says(ALWAYS, Answer.DENY)
    assert desk.decide("make && ls") == (Answer.ALLOW, Source.PERSON)
    assert desk.decide("make && ls") == (Answer.DENY, Source.PERSON)


def test_without_an_asker_everything_is_denied(desk: Desk) -> None:
    desk.provider = Provider(NobodyAsks(), desk.store, desk.book)
    assert desk.decide("make") == (Answer.DENY, Source.NOBODY)
    assert desk.provider.notices == []


def test_an_asker_that_fails_means_deny_and_is_reported(desk: Desk) -> None:
    class Broken:
        async def ask(self, request: PermissionRequest) -> Answer:
            raise RuntimeError("the screen is gone")

    desk.provider = Provider(Broken(), desk.store, desk.book)
    assert desk.decide("make") == (Answer.DENY, Source.NOBODY)
    assert "the screen is gone" in desk.provider.take_notices()[0]
    assert desk.provider.notices == []


def test_a_card_that_is_closed_means_deny(desk: Desk) -> None:
    async def close_it(how: BaseException) -> Verdict:
        deciding = desk.begin("make")
        await desk.user.cards_shown(1)
        _, answer = desk.user.cards[0]
        if isinstance(how, asyncio.CancelledError):
            answer.cancel()
        else:
            answer.set_exception(how)
        return await deciding

    for how in (asyncio.CancelledError(), Unanswered("The window was closed.")):
        verdict = loop.run(close_it(how))
        assert (verdict.answer, verdict.source) == (Answer.DENY, Source.NOBODY)
        assert desk.book.verdicts[-1] == verdict
    assert desk.provider.notices == []


def test_a_stopped_turn_takes_the_card_away_and_is_recorded_as_deny(desk: Desk) -> None:
    async def stop() -> None:
        deciding = desk.begin("make")
        await desk.user.cards_shown(1)
        deciding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deciding
        await desk.user.cards_shown(0)

    loop.run(stop())
    [verdict] = desk.book.verdicts
    assert (verdict.answer, verdict.source) == (Answer.DENY, Source.NOBODY)


def test_an_unanswered_question_is_denied(desk: Desk) -> None:
    async def wait() -> Verdict:
        verdict = await desk.provider.decide(desk.request("make"))
        await desk.user.cards_shown(0)
        return verdict

    desk.provider = Provider(desk.user, desk.store, desk.book, patience=0.01)
    verdict = loop.run(wait())
    assert (verdict.answer, verdict.source) == (Answer.DENY, Source.NOBODY)


@pytest.mark.parametrize(
    ("answer", "source"),
    [(ALWAYS, Source.SAVED), (SESSION, Source.SESSION), (Answer.DENY_ALWAYS, Source.SAVED)],
)
def test_a_lasting_answer_answers_the_other_open_questions(
    desk: Desk, answer: Answer, source: Source
) -> None:
    async def ask_three() -> list[Verdict]:
        same = [desk.begin("make"), desk.begin("mak'e'")]
        another = desk.begin("make test")
        await desk.user.cards_shown(3)
        # In which order the cards came is not ours to say.
        subjects = [request.subject for request, _ in desk.user.cards]
        desk.user.answer(0 if subjects[0] != "make test" else 1, answer)
        verdicts = [await deciding for deciding in same]
        await desk.user.cards_shown(1)
        assert desk.user.cards[0][0].subject == "make test"
        assert not another.done()
        desk.user.answer(0, Answer.DENY)
        return [*verdicts, await another]

    found = [(v.answer, v.source) for v in loop.run(ask_three())]
    assert sorted(found[:2], key=str) == sorted(
        [(answer, source), (answer, Source.PERSON)], key=str
    )
    assert found[2] == (Answer.DENY, Source.PERSON)
    assert len(desk.book.verdicts) == 3


def test_an_answer_for_once_leaves_the_others_open(desk: Desk) -> None:
    async def ask_two() -> None:
        two = [desk.begin("make"), desk.begin("make")]
        await desk.user.cards_shown(2)
        desk.user.answer(0, Answer.ALLOW)
        await desk.user.cards_shown(1)
        desk.user.answer(0, Answer.DENY)
        assert {(await one).answer for one in two} == {Answer.ALLOW, Answer.DENY}

    loop.run(ask_two())


def test_a_lookup_that_an_answer_overtakes_sees_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read for the second request, then the first one is answered and saved."""
    find = desk.store.find
    second_read = asyncio.Event()

    async def overtake() -> Verdict:
        running = asyncio.get_running_loop()
        first = desk.begin("make")
        await desk.user.cards_shown(1)
        may_go_on = asyncio.Event()

        def slow(key: object) -> Answer | None:
            found = find(key)  # type: ignore[arg-type]
            monkeypatch.setattr(desk.store, "find", find)
            running.call_soon_threadsafe(second_read.set)
            asyncio.run_coroutine_threadsafe(may_go_on.wait(), running).result(60)
            return found

        monkeypatch.setattr(desk.store, "find", slow)
        second = desk.begin("make")
        await second_read.wait()
        desk.user.answer(0, ALWAYS)
        assert (await first).source is Source.PERSON
        may_go_on.set()
        return await second

    verdict = loop.run(overtake())
    assert (verdict.answer, verdict.source) == (ALWAYS, Source.SAVED)
    assert desk.times_asked == 1


def test_an_answer_that_cannot_be_saved_holds_for_the_session(desk: Desk) -> None:
    desk.store.file.parent.parent.mkdir(parents=True)
    desk.store.file.parent.write_text("in the way")
    desk.says(ALWAYS)
    assert desk.decide("make") == (ALWAYS, Source.PERSON)
    assert any("this session only" in notice for notice in desk.provider.notices)
    assert desk.decide("make") == (ALWAYS, Source.SESSION)


def test_a_lasting_answer_is_saved_although_the_turn_is_stopped(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = desk.store.add
    saving = asyncio.Event()
    stopped = asyncio.Event()

    async def stop_while_saving() -> None:
        running = asyncio.get_running_loop()

        def slow(rule: Rule) -> None:
            running.call_soon_threadsafe(saving.set)
            asyncio.run_coroutine_threadsafe(stopped.wait(), running).result(60)
            add(rule)

        monkeypatch.setattr(desk.store, "add", slow)
        deciding = desk.begin("make")
        await saving.wait()
        deciding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deciding
        stopped.set()
        await until(desk.store.file.exists)

    desk.says(ALWAYS)
    loop.run(stop_while_saving())
    assert [rule.answer for rule in desk.store.rules()] == [ALWAYS]
    assert [verdict.source for verdict in desk.book.verdicts] == [Source.PERSON]


def test_a_broken_rule_file_is_reported_once(desk: Desk) -> None:
    desk.store.file.parent.mkdir(parents=True)
    desk.store.file.write_text("rules: 5\n")
    desk.says(Answer.DENY, Answer.DENY)
    desk.decide("make")
    desk.decide("make")
    [notice] = desk.provider.take_notices()
    assert "line 1, key rules" in notice


def test_an_audit_that_fails_is_reported_and_the_answer_counts(desk: Desk) -> None:
    class Full(Book):
        def answered(self, verdict: Verdict) -> None:
            raise OllmSandboxError("The disk is full.")

    desk.says(Answer.ALLOW)
    desk.provider = Provider(desk.user, desk.store, Full())
    assert loop.run(desk.provider.decide(desk.request("make"))).allowed
    assert "The disk is full." in desk.provider.notices[0]


def test_a_flood_of_questions_is_denied_from_some_number_on(desk: Desk) -> None:
    async def flood() -> None:
        waiting = [desk.begin(f"make {number}") for number in range(MAX_OPEN_QUESTIONS)]
        await desk.user.cards_shown(MAX_OPEN_QUESTIONS)
        for number in range(20):
            verdict = await desk.provider.decide(desk.request(f"rm {number}"))
            assert (verdict.answer, verdict.source) == (Answer.DENY, Source.NOBODY)
        assert len(desk.user.cards) == MAX_OPEN_QUESTIONS
        desk.user.answer(0, Answer.DENY)
        await desk.user.cards_shown(MAX_OPEN_QUESTIONS - 1)
        waiting.append(desk.begin("make again"))
        await desk.user.cards_shown(MAX_OPEN_QUESTIONS)
        for _, answer in list(desk.user.cards):
            answer.set_result(Answer.DENY)
        assert not any([(await one).allowed for one in waiting])

    loop.run(flood())
    assert len(desk.provider.notices) == 1
    assert "50 questions" in desk.provider.notices[0]
