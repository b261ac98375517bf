# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers come from the session, then the saved rules, then the user; several questions at once; no
user to ask."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import pytest
from support.person import Person
from support.questions import ScriptedUser, VerdictRecorder, command, other
from support.timing import until

from ollmsandbox import loop
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.permission.provider import MAX_OPEN_QUESTIONS, NobodyAsks, Provider
from ollmsandbox.permission.request import Answer, PermissionRequest, Source, Unanswered, Verdict
from ollmsandbox.permission.rules import Rule, key_of
from ollmsandbox.permission.store import RuleStore

pytestmark = pytest.mark.ordinary

ALWAYS, SESSION = Answer.ALLOW_ALWAYS, Answer.ALLOW_SESSION


class Setup:
    """A provider with a scripted user, and all that it uses."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.project = str(person.project)
        self.user = ScriptedUser()
        self.recorder = VerdictRecorder()
        self.store = RuleStore(person.paths)
        self.provider = self.next_session()

    def next_session(self) -> Provider:
        self.provider = Provider(self.user, self.store, self.recorder)
        return self.provider

    def says(self, *answers: Answer) -> None:
        self.user.says = list(answers)

    def decide(self, request: PermissionRequest | str) -> tuple[Answer, Source]:
        verdict = loop.run(self.provider.decide(self.request(request)))
        assert verdict == self.recorder.verdicts[-1]
        return verdict.answer, verdict.source

    def request(self, request: PermissionRequest | str) -> PermissionRequest:
        return command(request, self.project) if isinstance(request, str) else request

    def begin(self, text: str) -> asyncio.Task[Verdict]:
        return asyncio.ensure_future(self.provider.decide(self.request(text)))

    @property
    def times_asked(self) -> int:
        return len(self.user.asked)


@pytest.fixture
def setup(person: Person) -> Setup:
    return Setup(person)


@pytest.mark.parametrize("answer", command("make", "/p").answers)
def test_each_answer_is_the_user_s(setup: Setup, answer: Answer) -> None:
    setup.says(answer)
    before = time.time()
    assert setup.decide("make") == (answer, Source.PERSON)
    assert setup.recorder.verdicts[-1].allowed is answer.allows
    assert before <= setup.recorder.verdicts[-1].at <= time.time()
    assert setup.recorder.asked_of == setup.user.asked


@pytest.mark.parametrize("answer", [Answer.ALLOW, Answer.DENY])
def test_an_answer_for_once_is_not_remembered(setup: Setup, answer: Answer) -> None:
    setup.says(answer, Answer.DENY)
    setup.decide("make")
    assert setup.decide("make") == (Answer.DENY, Source.PERSON)
    assert not setup.store.file.exists()


def test_an_answer_for_the_session_ends_with_it(setup: Setup) -> None:
    setup.says(SESSION)
    setup.decide("make")
    assert setup.decide("make") == (SESSION, Source.SESSION)
    assert not setup.store.file.exists()
    setup.next_session()
    setup.says(Answer.DENY)
    assert setup.decide("make") == (Answer.DENY, Source.PERSON)


@pytest.mark.parametrize("answer", [ALWAYS, Answer.DENY_ALWAYS])
def test_always_holds_in_the_next_session(setup: Setup, answer: Answer) -> None:
    setup.says(answer)
    setup.decide("make")
    assert setup.decide("make") == (answer, Source.SAVED)
    setup.next_session()
    assert setup.decide("make") == (answer, Source.SAVED)
    assert setup.times_asked == 1
    assert len(setup.recorder.verdicts) == 3


def test_the_session_comes_before_what_is_saved(setup: Setup) -> None:
    setup.says(SESSION)
    setup.decide("make")
    key = key_of(setup.request("make"))
    assert key is not None
    setup.store.add(Rule(key, Answer.DENY_ALWAYS))
    assert setup.decide("make") == (SESSION, Source.SESSION)


def test_a_rule_removed_from_the_file_is_removed_from_the_session(setup: Setup) -> None:
    setup.says(ALWAYS, Answer.DENY)
    setup.decide("make")
    RuleStore(setup.person.paths).remove(setup.store.rules())
    assert setup.decide("make") == (Answer.DENY, Source.PERSON)


def test_other_tools_are_remembered_by_their_target(setup: Setup) -> None:
    setup.says(ALWAYS, Answer.DENY, Answer.DENY)
    fetch = other("web_fetch", "example.org", setup.project, network=True, sandboxed=False)
    assert setup.decide(fetch) == (ALWAYS, Source.PERSON)
    assert setup.decide(fetch) == (ALWAYS, Source.SAVED)
    for changed in ({"target_path": "example.org.evil"}, {"tool": "edit_file"}):
        assert setup.decide(dataclasses.replace(fetch, **changed))[1] is Source.PERSON  # type: ignore[arg-type]


def test_one_time_only_is_neither_stored_nor_looked_up(setup: Setup) -> None:
    once = command("make", setup.project, one_time_only=True, network=True)
    assert once.answers == (Answer.DENY, Answer.ALLOW)
    # Not even if an asker gives what was not offered, or a rule was written by hand.
    setup.says(ALWAYS, SESSION, Answer.DENY_ALWAYS, Answer.DENY)
    for said in (Answer.ALLOW, Answer.ALLOW, Answer.DENY):
        assert setup.decide(once) == (said, Source.PERSON)
    assert not setup.store.file.exists()
    setup.store.file.parent.mkdir(parents=True, exist_ok=True)
    setup.store.file.write_text(
        "rules:\n- answer: allow\n  tool: run_command\n"
        f"  project: {setup.project}\n  command: make\n"
    )
    assert setup.decide("make") == (ALWAYS, Source.SAVED)
    assert setup.decide(once) == (Answer.DENY, Source.PERSON)


def test_an_answer_that_was_not_offered_counts_once(setup: Setup) -> None:
    setup.says(ALWAYS, Answer.DENY)
    assert setup.decide("make && ls") == (Answer.ALLOW, Source.PERSON)
    assert setup.decide("make && ls") == (Answer.DENY, Source.PERSON)


def test_without_an_asker_everything_is_denied(setup: Setup) -> None:
    setup.provider = Provider(NobodyAsks(), setup.store, setup.recorder)
    assert setup.decide("make") == (Answer.DENY, Source.NOBODY)
    assert setup.provider.notices == []


def test_an_asker_that_fails_means_deny_and_is_reported(setup: Setup) -> None:
    class Broken:
        async def ask(self, request: PermissionRequest) -> Answer:
            raise RuntimeError("the screen is gone")

    setup.provider = Provider(Broken(), setup.store, setup.recorder)
    assert setup.decide("make") == (Answer.DENY, Source.NOBODY)
    assert "the screen is gone" in setup.provider.take_notices()[0]
    assert setup.provider.notices == []


def test_a_card_that_is_closed_means_deny(setup: Setup) -> None:
    async def close_it(how: BaseException) -> Verdict:
        deciding = setup.begin("make")
        await setup.user.cards_shown(1)
        _, answer = setup.user.cards[0]
        if isinstance(how, asyncio.CancelledError):
            answer.cancel()
        else:
            answer.set_exception(how)
        return await deciding

    for how in (asyncio.CancelledError(), Unanswered("The window was closed.")):
        verdict = loop.run(close_it(how))
        assert (verdict.answer, verdict.source) == (Answer.DENY, Source.NOBODY)
        assert setup.recorder.verdicts[-1] == verdict
    assert setup.provider.notices == []


def test_a_stopped_turn_takes_the_card_away_and_is_recorded_as_deny(setup: Setup) -> None:
    async def stop() -> None:
        deciding = setup.begin("make")
        await setup.user.cards_shown(1)
        deciding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deciding
        await setup.user.cards_shown(0)

    loop.run(stop())
    [verdict] = setup.recorder.verdicts
    assert (verdict.answer, verdict.source) == (Answer.DENY, Source.NOBODY)


@pytest.mark.parametrize(
    ("answer", "source"),
    [(ALWAYS, Source.SAVED), (SESSION, Source.SESSION), (Answer.DENY_ALWAYS, Source.SAVED)],
)
def test_a_lasting_answer_answers_the_other_open_questions(
    setup: Setup, answer: Answer, source: Source
) -> None:
    async def ask_three() -> list[Verdict]:
        same = [setup.begin("make"), setup.begin("mak'e'")]
        another = setup.begin("make test")
        await setup.user.cards_shown(3)
        # In which order the cards came is not ours to say.
        subjects = [request.subject for request, _ in setup.user.cards]
        setup.user.answer(0 if subjects[0] != "make test" else 1, answer)
        verdicts = [await deciding for deciding in same]
        await setup.user.cards_shown(1)
        assert setup.user.cards[0][0].subject == "make test"
        assert not another.done()
        setup.user.answer(0, Answer.DENY)
        return [*verdicts, await another]

    found = [(v.answer, v.source) for v in loop.run(ask_three())]
    assert sorted(found[:2], key=str) == sorted(
        [(answer, source), (answer, Source.PERSON)], key=str
    )
    assert found[2] == (Answer.DENY, Source.PERSON)
    assert len(setup.recorder.verdicts) == 3


def test_an_answer_for_once_leaves_the_others_open(setup: Setup) -> None:
    async def ask_two() -> None:
        two = [setup.begin("make"), setup.begin("make")]
        await setup.user.cards_shown(2)
        setup.user.answer(0, Answer.ALLOW)
        await setup.user.cards_shown(1)
        setup.user.answer(0, Answer.DENY)
        assert {(await one).answer for one in two} == {Answer.ALLOW, Answer.DENY}

    loop.run(ask_two())


def test_a_lookup_that_an_answer_overtakes_sees_it(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read for the second request, then the first one is answered and saved."""
    find = setup.store.find
    second_read = asyncio.Event()

    async def overtake() -> Verdict:
        running = asyncio.get_running_loop()
        first = setup.begin("make")
        await setup.user.cards_shown(1)
        may_go_on = asyncio.Event()

        def slow(key: object) -> Answer | None:
            found = find(key)  # type: ignore[arg-type]
            monkeypatch.setattr(setup.store, "find", find)
            running.call_soon_threadsafe(second_read.set)
            asyncio.run_coroutine_threadsafe(may_go_on.wait(), running).result(60)
            return found

        monkeypatch.setattr(setup.store, "find", slow)
        second = setup.begin("make")
        await second_read.wait()
        setup.user.answer(0, ALWAYS)
        assert (await first).source is Source.PERSON
        may_go_on.set()
        return await second

    verdict = loop.run(overtake())
    assert (verdict.answer, verdict.source) == (ALWAYS, Source.SAVED)
    assert setup.times_asked == 1


def test_an_answer_that_cannot_be_saved_holds_for_the_session(setup: Setup) -> None:
    setup.store.file.parent.parent.mkdir(parents=True)
    setup.store.file.parent.write_text("in the way")
    setup.says(ALWAYS)
    assert setup.decide("make") == (ALWAYS, Source.PERSON)
    assert any("this session only" in notice for notice in setup.provider.notices)
    assert setup.decide("make") == (ALWAYS, Source.SESSION)


def test_a_lasting_answer_is_saved_although_the_turn_is_stopped(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = setup.store.add
    saving = asyncio.Event()
    stopped = asyncio.Event()

    async def stop_while_saving() -> None:
        running = asyncio.get_running_loop()

        def slow(rule: Rule) -> None:
            running.call_soon_threadsafe(saving.set)
            asyncio.run_coroutine_threadsafe(stopped.wait(), running).result(60)
            add(rule)

        monkeypatch.setattr(setup.store, "add", slow)
        deciding = setup.begin("make")
        await saving.wait()
        deciding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deciding
        stopped.set()
        await until(setup.store.file.exists)

    setup.says(ALWAYS)
    loop.run(stop_while_saving())
    assert [rule.answer for rule in setup.store.rules()] == [ALWAYS]
    assert [verdict.source for verdict in setup.recorder.verdicts] == [Source.PERSON]


def test_a_broken_rule_file_is_reported_once(setup: Setup) -> None:
    setup.store.file.parent.mkdir(parents=True)
    setup.store.file.write_text("rules: 5\n")
    setup.says(Answer.DENY, Answer.DENY)
    setup.decide("make")
    setup.decide("make")
    [notice] = setup.provider.take_notices()
    assert "line 1, key rules" in notice


def test_an_audit_that_fails_is_reported_and_the_answer_counts(setup: Setup) -> None:
    class Full(VerdictRecorder):
        def answered(self, verdict: Verdict) -> None:
            raise OllmSandboxError("The disk is full.")

    setup.says(Answer.ALLOW)
    setup.provider = Provider(setup.user, setup.store, Full())
    assert loop.run(setup.provider.decide(setup.request("make"))).allowed
    assert "The disk is full." in setup.provider.notices[0]


def test_a_flood_of_questions_is_denied_from_some_number_on(setup: Setup) -> None:
    async def flood() -> None:
        waiting = [setup.begin(f"make {number}") for number in range(MAX_OPEN_QUESTIONS)]
        await setup.user.cards_shown(MAX_OPEN_QUESTIONS)
        for number in range(20):
            verdict = await setup.provider.decide(setup.request(f"rm {number}"))
            assert (verdict.answer, verdict.source) == (Answer.DENY, Source.NOBODY)
        assert len(setup.user.cards) == MAX_OPEN_QUESTIONS
        setup.user.answer(0, Answer.DENY)
        await setup.user.cards_shown(MAX_OPEN_QUESTIONS - 1)
        waiting.append(setup.begin("make again"))
        await setup.user.cards_shown(MAX_OPEN_QUESTIONS)
        for _, answer in list(setup.user.cards):
            answer.set_result(Answer.DENY)
        assert not any([(await one).allowed for one in waiting])

    loop.run(flood())
    assert len(setup.provider.notices) == 1
    assert "50 questions" in setup.provider.notices[0]
