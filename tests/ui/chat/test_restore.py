# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from support.person import Person
from support.screen import Screen, all_of, texts
from support.scripted import Reply, ScriptedModel, call
from support.window import button, dialog, dialogs, finish, in_project, press, say, wait_until

from ollmsandbox.chat.messages import Role
from ollmsandbox.ui.chat.row import MessageRow
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window

_POINT = "Restore Files to This Point"
_TURNS: tuple[Reply, ...] = (
    [call(id="1", command="echo 1 > file; echo 1 > first")],
    ["Done."],
    [call(id="2", command="echo 2 > file; echo 2 > second")],
    ["Done."],
    [call(id="3", command="echo 3 > file")],
    ["Done."],
)


def _own_rows(window: Window) -> list[MessageRow]:
    rows = all_of(window.chat, MessageRow)
    return [row for row in rows if row.entry.role is Role.USER]


def _talk(session: OpenSession, *texts_: str) -> None:
    session.conversation.use_model(ScriptedModel(*_TURNS))
    for text in texts_:
        finish(session.conversation.say(text))


def test_files_go_back_to_an_earlier_message(screen: Screen, person: Person) -> None:
    file = person.project / "file"
    with in_project(person) as (window, session):
        _talk(session, "one", "two", "three")
        wait_until(lambda: len(_own_rows(window)) == 3)
        press(_own_rows(window)[1], _POINT)
        asked = dialog()
        # It shows the files first; one that several commands changed is named once.
        assert asked.get_heading() == "Restore Files to This Point?"
        assert asked.get_body().splitlines()[-2:] == ["file", "second"]
        asked.response("cancel")
        wait_until(lambda: not dialogs())
        assert file.read_text() == "3\n"
        press(_own_rows(window)[1], _POINT)
        dialog().response("confirm")
        wait_until(lambda: file.read_text() == "1\n")
        wait_until(lambda: "2 files restored." in texts(window.toasts))
        assert not (person.project / "second").exists()
        assert (person.project / "first").exists()
        # A second time, there is nothing to do, and nothing to ask.
        wait_until(lambda: not window.changes.progress.is_working)
        press(_own_rows(window)[1], _POINT)
        wait_until(lambda: "No files have changed since then." in texts(window.toasts))


def test_a_message_that_is_edited_offers_the_same(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        _talk(session, "one", "two")
        wait_until(lambda: len(_own_rows(window)) == 2)
        press(_own_rows(window)[1], "Edit and Send Again")
        press(window.chat.editing, "Restore Files…")
        dialog().response("confirm")
        wait_until(lambda: (person.project / "file").read_text() == "1\n")
        # The text is still there to be edited.
        assert window.chat.composer.text == "two"


def test_nothing_is_restored_while_the_agent_works(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        _talk(session, "one")
        wait_until(lambda: len(_own_rows(window)) == 1)
        # The keyboard reaches the button.
        found = button(_own_rows(window)[0], _POINT)
        assert found.grab_focus()
        wait_until(lambda: window.get_focus() is found)
        session.conversation.use_model(ScriptedModel([call(id="4", command="sleep 600")], ["Ok."]))
        window.chat.set_can_send("")
        say(window, "wait")
        wait_until(lambda: session.is_busy)
        press(_own_rows(window)[0], _POINT)
        wait_until(lambda: "Files can be restored when the agent is done." in texts(window.toasts))
        finish(session.conversation.stop())
        assert (person.project / "file").read_text() == "1\n"
