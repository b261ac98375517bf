# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from support.person import Person
from support.screen import Screen, texts
from support.scripted import Reply, ScriptedModel, call
from support.window import (
    buttons,
    finish,
    in_project,
    open_session,
    press,
    program,
    says,
    wait_until,
    window_of,
)

from ollmsandbox.project.review import Review
from ollmsandbox.ui.chat import controller
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window

_TURN: tuple[Reply, ...] = (
    ["I will write.", call(id="1", command="printf '1\\n2\\n3\\n' > new; sed -i 1d old")],
    [call(id="2", command="printf '1\\n2\\n' > new")],
    ["Done."],
)


_FILES = ["new", "old", "new"]


def _say(session: OpenSession, text: str) -> None:
    finish(session.conversation.say(text))


def _shown(window: Window) -> list[str]:
    return [text for text in texts(window.chat.turn) if text]


def _begin(person: Person, session: OpenSession) -> Path:
    old = person.project / "old"
    old.write_text("a\nb\n")
    session.conversation.use_model(ScriptedModel(*_TURN, ["Nothing to do."]))
    _say(session, "Please do it.")
    return old


def test_one_bar_sums_up_the_turn_and_undoes_all_of_it(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        old = _begin(person, session)
        # Two commands wrote one of the files: it counts once, with what is left of it.
        wait_until(lambda: says(window.chat.turn, "2 files changed"))
        assert _shown(window)[:3] == ["2 files changed", "+2", "\N{MINUS SIGN}1"]
        press(window.chat.turn, "Undo")
        wait_until(lambda: not (person.project / "new").exists())
        wait_until(lambda: says(window.chat.turn, "2 files changed · undone"))
        assert old.read_text() == "a\nb\n"
        # A second click does nothing; the way back is another button.
        assert not window.chat.turn.undo_button.get_sensitive()
        press(window.chat.turn, "Redo")
        wait_until(lambda: old.read_text() == "b\n" and (person.project / "new").exists())
        wait_until(lambda: window.chat.turn.undo_button.get_sensitive())
        assert "Redo" not in buttons(window.chat.turn)
        # A command of the user's own that changed nothing: the turn can still be undone.
        finish(session.conversation.run("true"))
        wait_until(lambda: says(window.chat.turn, "2 files changed"))
        finish(session.conversation.run("echo mine > mine.txt"))
        wait_until(lambda: says(window.chat.turn, "1 file changed"))
        press(window.chat.turn, "Undo")
        wait_until(lambda: not (person.project / "mine.txt").exists())
        assert old.read_text() == "b\n"
        _say(session, "And now?")
        wait_until(lambda: not window.chat.turn.get_reveal_child())


def test_a_turn_that_waits_is_discarded_or_applied(screen: Screen, person: Person) -> None:
    with program(person) as application:
        application.settings.set("apply-mode", "review")
        window = window_of(application)
        session = open_session(window, person.project)
        _begin(person, session)
        wait_until(lambda: says(window.chat.turn, "2 files changed · 2 pending"))
        with closing(Review(person.paths)) as review:
            [project] = review.manager.projects()
            review.discard_all(project)
        window.chat.turn.emit("apply")
        wait_until(lambda: says(window.chat.turn, "2 files changed · discarded"))
        # It was never done.
        assert "Redo" not in buttons(window.chat.turn)
        old = _begin(person, session)
        wait_until(lambda: says(window.chat.turn, "2 files changed · 2 pending"))
        assert buttons(window.chat.turn) == ["Review", "Apply"]
        press(window.chat.turn, "Apply")
        wait_until(lambda: old.read_text() == "b\n" and (person.project / "new").exists())
        # It stays where it was, and the way back is beside it.
        wait_until(lambda: buttons(window.chat.turn) == ["Review", "Undo", "Apply"])
        assert not window.chat.turn.apply_button.get_sensitive()


def test_the_turn_is_reviewed(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    async def note(_window: Window, path: str) -> None:
        opened.append(path)

    monkeypatch.setattr(controller, "open_in_editor", note)
    with in_project(person) as (window, session):
        _begin(person, session)
        wait_until(lambda: says(window.chat.turn, "2 files changed"))
        press(window.chat.turn, "Review")
        assert window.flap.get_reveal_flap()
        # All files are in one scroll, each with its header and its buttons.
        several = window.changes.several
        assert several is not None
        wait_until(lambda: [page.path.get_label() for page in several.pages] == _FILES)
        wait_until(lambda: all(page.diff and page.diff.is_loaded for page in several.pages))
        press(several.pages[1], "Open in Editor")
        wait_until(lambda: opened == [str(person.project / "old")])
        press(several.pages[1].verbs, "Undo")
        wait_until(lambda: (person.project / "old").read_text() == "a\nb\n")
        wait_until(lambda: buttons(several.pages[1].verbs)[-2:] == ["Redo", "Undo"])
        press(several, "All Changes")
        assert window.changes.is_list


def test_ignored_files_are_counted_apart_and_undone_too(screen: Screen, person: Person) -> None:
    person.run_outside("git init -q; echo '*.o' > .gitignore")
    replies: tuple[Reply, ...] = (
        [call(id="1", command="echo > a.o; echo > new")],
        [call(id="2", command="echo > b.o")],
        ["Done."],
        [call(id="3", command="echo > c.o")],
        ["Done."],
    )
    with in_project(person) as (window, session):
        session.conversation.use_model(ScriptedModel(*replies))
        _say(session, "Please do it.")
        wait_until(lambda: says(window.chat.turn, "1 file changed"))
        assert says(window.chat.turn, "2 files that git ignores")
        press(window.chat.turn, "Undo")
        wait_until(lambda: says(window.chat.turn, "1 file changed · undone"))
        assert not (person.project / "b.o").exists()
        # Alone, they need no bar.
        _say(session, "And now?")
        wait_until(lambda: (person.project / "c.o").exists())
        wait_until(lambda: not window.chat.turn.get_reveal_child())
