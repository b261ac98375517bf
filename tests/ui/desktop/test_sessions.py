# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import signal
import subprocess
from functools import partial

from support.desktop import CLOSING, is_not, program, start
from support.person import Person
from support.timing import PATIENCE

from ollmsandbox.project.jobs import project_lock


def test_a_command_is_typed_and_a_second_start_uses_the_same_window(person: Person) -> None:
    other = person.home / "another"
    other.mkdir()
    with program(person, f"{person.project}/") as window:
        window.say("!echo typed > here; echo it ran")
        window.wait_for("1 file changed")
        assert (person.project / "here").read_text() == "typed\n"
        window.click("button", "Undo", then=lambda: not (person.project / "here").exists())
        second = start(person, f"{other}/")
        assert second.wait(PATIENCE) == 0
        window.wait_for("another")
        assert len(window.windows()) == 1
        window.close()


def test_closing_while_a_command_runs_is_asked_and_a_restart_goes_on(person: Person) -> None:
    with program(person, f"{person.project}/") as window:
        window.say("!touch began; sleep 98761")
        window.wait_for("Running")
        is_asked = partial(window.reads, CLOSING)
        window.press("ctrl+q", then=is_asked)
        window.click("button", "Keep Open", then=partial(is_not, is_asked))
        window.wait_for("Running")
        window.press("ctrl+q", then=is_asked)
        window.click("button", "Stop and Close", then=partial(is_not, is_asked))
        window.wait_end()
    assert (person.project / "began").exists()
    assert not _processes("sleep 98761")
    with program(person) as window:
        window.wait_for("$ touch began; sleep 98761")
        window.say("!echo and after it")
        window.wait_for("$ echo and after it. Your command · Succeeded")
        window.close()


def test_asked_by_the_system_it_ends_soon_and_loses_nothing(person: Person) -> None:
    """Another program holds the project's lock, so the command's changes cannot be settled yet."""
    with program(person, f"{person.project}/") as window:
        window.say("!touch began; echo it has; sleep 98762")
        window.wait_for("Running")
        window.wait_for("1 file changed")
        with project_lock(person.paths, str(person.project)):
            window.process.terminate()
            assert window.process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert not _processes("sleep 98762")
    assert not (person.project / "began").exists()
    assert "began" in person.cli("run", "-c", "ls").stdout


def _processes(words: str) -> str:
    return subprocess.run(
        ["pgrep", "-f", f"^{words}$"], capture_output=True, text=True, check=False
    ).stdout
