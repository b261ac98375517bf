# SPDX-License-Identifier: GPL-3.0-or-later
"""A question is open, and what it is about changes. The answer is for what was shown."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.person import Person
from support.tools import Agent

from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

GOOD, BAD = "#!/bin/sh\necho good\n", "#!/bin/sh\necho bad\n"


@pytest.fixture
def script(agent: Agent) -> Path:
    file = agent.person.project / "update.sh"
    file.write_text(GOOD)
    file.chmod(0o755)
    return file


def allow_after(agent: Agent, attack: Callable[[], object]) -> None:
    """Let the user allow the first question, after the attack, and deny each further one."""

    def answer(_request: PermissionRequest) -> Answer:
        if len(agent.asked) > 1:
            return Answer.DENY
        attack()
        return Answer.ALLOW

    agent.asker.answer = answer


def rewrite(person: Person, *options: str, file: str = "update.sh") -> None:
    """Rewrite a script by a real second run."""
    command = f"printf '#!/bin/sh\\necho bad\\n' > {file}"
    done = person.cli("run", *options, "-c", command)
    assert done.returncode == 0, done.stderr


def assert_asked_again(agent: Agent, command: str, **arguments: object) -> None:
    outcome = agent.run(command, network=True, **arguments)
    assert "bad" not in outcome.text
    assert agent.looking.starts == []
    first, again = agent.asked
    assert first.notice == ""
    assert again.notice
    assert (again.subject, again.question) == (first.subject, first.question)
    assert again.id != first.id


def test_another_run_rewrites_the_script(agent: Agent, script: Path) -> None:
    allow_after(agent, lambda: rewrite(agent.person))
    assert_asked_again(agent, "./update.sh")
    assert script.read_text() == BAD


def test_another_run_rewrites_what_the_script_uses(agent: Agent, script: Path) -> None:
    # The words of the command do not name this file.
    script.write_text("#!/bin/sh\n. ./part.sh\n")
    (agent.person.project / "part.sh").write_text(GOOD)
    allow_after(agent, lambda: rewrite(agent.person, file="part.sh"))
    assert_asked_again(agent, "./update.sh")


def test_another_run_leaves_a_pending_change(agent: Agent, script: Path) -> None:
    allow_after(agent, lambda: rewrite(agent.person, "--apply", "review"))
    assert_asked_again(agent, "./update.sh")
    assert script.read_text() == GOOD


def test_a_pending_change_is_applied_or_an_applied_one_undone(
    agent: Agent, script: Path, review: Review
) -> None:
    agent.tool_context.mode = Mode.REVIEW
    agent.run("printf '#!/bin/sh\\necho bad\\n' > update.sh")
    agent.looking.starts.clear()
    [run] = review.manager.runs()
    for action in (review.apply, review.undo, review.apply):
        agent.asked.clear()
        allow_after(agent, partial(action, run))
        assert_asked_again(agent, "./update.sh")


# Files that the words of the command do not name, but that it reads: in the playground, in a cache,
# and in a cache that the user does not have.
ELSEWHERE = ("~/playground/part.sh", "~/.cache/part.sh", "~/.npm/part.sh")


@pytest.mark.parametrize("part", ELSEWHERE)
def test_another_run_rewrites_what_is_not_in_the_project(
    agent: Agent, script: Path, part: str
) -> None:
    script.write_text(f"#!/bin/sh\n. {part}\n")
    agent.person.run(f"printf '#!/bin/sh\\necho good\\n' > {part}")
    allow_after(agent, lambda: rewrite(agent.person, file=part))
    assert_asked_again(agent, "./update.sh")
    # Otherwise it would have been run.
    assert agent.person.run("./update.sh").stdout.text == "bad\n"


# Ways in which an editor, which leaves no record, can change the file that a command names.
NAMED = {
    "the first word": ("./update.sh", "update.sh"),
    "an argument": ("sh update.sh", "update.sh"),
    "in quotes": ("sh 'update.sh'", "update.sh"),
    "behind other commands": ("true && cd . ; sh update.sh", "update.sh"),
    "as input": ("sh <update.sh", "update.sh"),
    "by its whole path": ("sh $PROJECT/update.sh", "update.sh"),
    "in another folder": ("cd sub && sh ../update.sh", "update.sh"),
    "by a link": ("./link.sh", "update.sh"),
    "relative to a folder that is named": ("cd sub && ./own.sh", "sub/own.sh"),
    "a Python module": ("python3 -m tool.part", "tool/part/__main__.py"),
    "a Makefile": ("make", "Makefile"),
    "a package": ("npm install", "package.json"),
}


@pytest.mark.parametrize("case", NAMED)
def test_an_editor_rewrites_a_file_that_is_named(agent: Agent, script: Path, case: str) -> None:
    command, name = NAMED[case]
    project = agent.person.project
    file = project / name
    file.parent.mkdir(parents=True, exist_ok=True)
    (project / "sub").mkdir(exist_ok=True)
    (project / "link.sh").symlink_to("update.sh")
    if file != script:
        file.write_text("")

    def edit() -> None:
        # In place, with the same size and time.
        before = file.stat()
        file.write_text(file.read_text().replace("good", "bad "))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    allow_after(agent, edit)
    assert_asked_again(agent, command.replace("$PROJECT", str(project)))


def test_a_file_of_the_working_folder_is_rewritten(agent: Agent) -> None:
    own = agent.person.project / "sub" / "own.sh"
    own.parent.mkdir()
    own.write_text(GOOD)
    allow_after(agent, lambda: own.write_text(BAD))
    assert_asked_again(agent, "sh own.sh", working_dir="sub")


def test_a_run_rewrites_a_script_in_the_playground(agent: Agent) -> None:
    # What is there is not recorded.
    agent.person.playground.mkdir(parents=True, exist_ok=True)
    (agent.person.playground / "own.sh").write_text(GOOD)
    allow_after(agent, lambda: rewrite(agent.person, file="~/playground/own.sh"))
    assert_asked_again(agent, "sh ~/playground/own.sh")
    agent.asked.clear()
    allow_after(agent, lambda: rewrite(agent.person, file="~/playground/own.sh"))
    assert_asked_again(agent, "sh own.sh", working_dir="playground")


def test_without_a_sandbox_it_is_asked_again_too(person: Person) -> None:
    agent = Agent(person, environ={"FLATPAK_ID": "x"})
    (person.project / "update.sh").write_text(GOOD)
    allow_after(agent, lambda: (person.project / "update.sh").write_text(BAD))
    assert_asked_again(agent, "sh update.sh")


def test_each_answer_is_compared_with_its_own_question(agent: Agent, script: Path) -> None:
    def answer(_request: PermissionRequest) -> Answer:
        if len(agent.asked) == 1:
            rewrite(agent.person)
        return Answer.ALLOW

    agent.asker.answer = answer
    assert "bad" in agent.run("./update.sh", network=True).text
    # The user saw the second question after the change.
    assert len(agent.asked) == 2


def test_a_run_that_changes_nothing_asks_nothing_again(agent: Agent, script: Path) -> None:
    # Nor does what the command does not name.
    agent.person.run(f"touch {' '.join(ELSEWHERE)}")

    def look() -> None:
        reading = f"cat update.sh {' '.join(ELSEWHERE)}"
        assert agent.person.cli("run", "-c", reading).returncode == 0
        assert agent.person.cli("run", "--apply", "never", "--", "touch", "new").returncode == 0
        (agent.person.project / "other").write_text("mine")

    allow_after(agent, look)
    assert "good" in agent.run("./update.sh", network=True).text
    assert len(agent.asked) == 1


def test_a_saved_answer_needs_no_check(agent: Agent, script: Path) -> None:
    agent.tool_context.ask_every_command = True
    agent.asker.answer = Answer.ALLOW_ALWAYS
    assert "good" in agent.run("./update.sh").text
    rewrite(agent.person)
    assert "bad" in agent.run("./update.sh").text
    assert len(agent.asked) == 1
