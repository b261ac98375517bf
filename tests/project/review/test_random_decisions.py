# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever is decided, and in whatever order: the lines of the user stay."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from random import Random

import pytest
from support.escape.copy_back import WAIT
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.apply.recorder import Recorder
from ollmsandbox.project.changes.mode import Mode
from ollmsandbox.project.database.runs import read_changes
from ollmsandbox.project.review import hunks, state
from ollmsandbox.project.review.review import Review
from ollmsandbox.sandbox.process import Sinks

pytestmark = pytest.mark.ordinary

_LINES = 12
_STEPS = 20


class Story:
    """A user and commands that change one file, and decisions about what the commands did."""

    def __init__(self, person: Person, review: Review, random: Random) -> None:
        self._person, self._review, self._random = person, review, random
        self._file = person.project / "file"
        self._file.write_text("".join(f"line {number}\n" for number in range(_LINES)))
        self._mode = random.choice((Mode.AUTO, Mode.REVIEW))
        self._runs: list[str] = []
        self._count = 0
        self._mine: list[str] = []
        self.log: list[str] = []

    def step(self) -> None:
        steps = [self._run, self._edit, self._run_and_edit, self._decide, self._decide_on_hunk]
        [step] = self._random.choices(steps, [3, 3, 1, 4, 4])
        # A conflict, or nothing to decide.
        with contextlib.suppress(OllmSandboxError):
            step()

    def check(self) -> None:
        lines = self._file.read_text().splitlines()
        assert [line for line in lines if line in self._mine] == self._mine, self.log
        assert len(lines) == len(set(lines)), self.log

    def _new(self, whose: str) -> str:
        self._count += 1
        return f"{whose} {self._count}"

    def _command(self) -> str:
        line, new = f"line {self._random.randrange(_LINES)}", self._new("theirs")
        edits = (f"/^{line}$/a {new}", f"s/^{line}$/{new}/", f"/^{line}$/d", f"1i {new}")
        return f"sed -i '{self._random.choice(edits)}' file"

    def _edit(self) -> None:
        lines = self._file.read_text().splitlines()
        new = self._new("mine")
        lines.insert(self._random.randint(0, len(lines)), new)
        self._mine = [line for line in lines if line == new or line in self._mine]
        self.log.append(f"user adds {new!r}: {lines}")
        text = "".join(f"{line}\n" for line in lines)
        if self._random.random() < 0.5:
            self._file.write_text(text)
        else:
            # As many editors save.
            other = self._file.with_name("file~")
            other.write_text(text)
            os.replace(other, self._file)

    def _run(self, *, edits: bool = False) -> None:
        command = " && ".join(self._command() for _ in range(self._random.randint(1, 3)))
        self.log.append(f"run {command!r} ({self._mode.value})")
        recorder = Recorder(str(self._person.project), self._person.paths, mode=self._mode)
        go = self._person.playground / "go"

        async def work(_data: bytes) -> None:
            await asyncio.to_thread(self._edit)
            go.touch()

        bubble = self._person.bubble(keeper=recorder)
        if edits:
            go.unlink(missing_ok=True)
            loop.run(bubble.exec(f"{command}\n{WAIT}\n{self._command()}", sinks=Sinks(work)))
        else:
            loop.run(bubble.exec(command))
        if recorder.report is not None and recorder.report.changes:
            self._runs.append(recorder.report.run_id)

    def _run_and_edit(self) -> None:
        self._run(edits=True)

    def _decide(self) -> None:
        if not self._runs:
            return
        run = self._review.manager.run(self._random.choice(self._runs))
        decide = self._random.choice((self._review.apply, self._review.undo, self._review.discard))
        report = decide(run)
        self.log.append(f"{decide.__name__} {run.command!r}: {[i.state for i in report.changes]}")

    def _decide_on_hunk(self) -> None:
        if not self._runs:
            return
        manager = self._review.manager
        run = manager.run(self._random.choice(self._runs))
        [item] = read_changes(manager, run)
        found = state.text_versions(manager, run, item)
        if found is not None and found.hunks:
            verbs = (hunks.apply_hunks, hunks.undo_hunks, hunks.discard_hunks, hunks.redo_hunks)
            decide, part = self._random.choice(verbs), self._random.choice(found.hunks)
            self.log.append(f"{decide.__name__} {part} of {run.command!r}, {item.state}")
            decide(manager, run, item, [part])


@pytest.fixture
def review(person: Person) -> Iterator[Review]:
    review = Review(person.paths)
    yield review
    review.close()


# These found faults when they were chosen from a hundred.
@pytest.mark.parametrize("seed", [8, 10, 16, 38, 39])
def test_the_lines_of_the_user_stay(person: Person, review: Review, seed: int) -> None:
    person.share_playground()
    story = Story(person, review, Random(seed))
    for _ in range(_STEPS):
        story.step()
        story.check()
