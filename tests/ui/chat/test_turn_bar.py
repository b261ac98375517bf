# SPDX-License-Identifier: GPL-3.0-or-later
"""The bar that sums up what a turn changed."""

from __future__ import annotations

from pathlib import Path

from support.person import Person
from support.screen import Screen, texts
from support.scripted import Reply, ScriptedModel, call
from support.window import finish, in_project, press, says, wait_until

from ollmsandbox.ui.changes.model import RunItem
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window

_TURN: tuple[Reply, ...] = (
    ["I will write.", call(id="1", command="printf '1\\n2\\n3\\n' > new; sed -i 1d old")],
    [call(id="2", command="printf '1\\n2\\n' > new")],
    ["Done."],
)


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
        # A second click does nothing.
        assert not window.chat.turn.undo_button.get_sensitive()
        _say(session, "And now?")
        wait_until(lambda: not window.chat.turn.get_reveal_child())


def test_a_command_of_the_user_s_own_is_undone_in_the_bar(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        old = _begin(person, session)
        finish(session.conversation.run("true"))
        # It changed nothing: the turn can still be undone.
        wait_until(lambda: says(window.chat.turn, "2 files changed"))
        finish(session.conversation.run("echo mine > mine.txt"))
        wait_until(lambda: says(window.chat.turn, "1 file changed"))
        press(window.chat.turn, "Undo")
        wait_until(lambda: not (person.project / "mine.txt").exists())
        assert old.read_text() != "a\nb\n"


def test_the_turn_is_reviewed(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        _begin(person, session)
        wait_until(lambda: says(window.chat.turn, "2 files changed"))
        press(window.chat.turn, "Review")
        wait_until(
            lambda: (
                [item.is_open for item in window.changes.items if isinstance(item, RunItem)]
                == [True, True]
            )
        )
        assert window.flap.get_reveal_flap()


def test_ignored_files_are_counted_apart_and_undone_with_the_turn(
    screen: Screen, person: Person
) -> None:
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
