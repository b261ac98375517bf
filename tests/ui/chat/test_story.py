# SPDX-License-Identifier: GPL-3.0-or-later
"""A session looks the same while it happens and when it is opened again."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gi.repository import Gtk
from support.person import Person
from support.screen import Screen, all_of, texts
from support.scripted import Reply, ScriptedModel, call
from support.window import finish, running_loop, wait_until

from ollmsandbox.chat.providers.base import FinishPiece, ProviderError, ThinkingPiece
from ollmsandbox.chat.sessions import SessionFactory
from ollmsandbox.paths import Paths
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.tools.base import UserQuestion
from ollmsandbox.ui.chat.tool_card import ToolCard
from ollmsandbox.ui.chat.view import ChatView, row_name
from ollmsandbox.ui.markdown.view import MarkdownView
from ollmsandbox.ui.sessions.entries import entries_of
from ollmsandbox.ui.sessions.folding import CallGroup
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.settings import Settings


class _User:
    """Denies everything, and prefers tabs."""

    async def ask(self, _request: PermissionRequest) -> Answer:
        return Answer.DENY

    async def ask_user(self, _question: UserQuestion) -> str:
        return "Tabs"


def _plan(state: str) -> list[dict[str, str]]:
    return [{"text": "Read", "state": "done"}, {"text": "Fix", "state": state}]


def _replies() -> list[Reply]:
    never = asyncio.Event()
    return [
        [
            ThinkingPiece("Let me see."),
            "I look.\n",
            call(id="1", command="sleep 0.3; echo one"),
            call(id="2", command="echo two"),
            call("read_file", "3", path="notes.txt"),
        ],
        [call("plan", "4", steps=_plan("in_progress"))],
        [
            call("edit_file", "5", path="notes.txt", old_text="b", new_text="B"),
            call("read_file", "6", path="missing.txt"),
            call(id="7", command="echo new > new.txt; echo x > x.o"),
            call(id="8", command="curl example.org", network=True),
            call("ask", "9", question="Tabs or spaces?", choices=["Tabs", "Spaces"]),
            call("ask", "10"),
            call(id="11", command="false"),
            call(id="12", command="echo bad >&2; exit 3"),
            call(id="13", command="sleep 60 & echo left; touch /usr/share/x"),
            call("plan", "14", steps=_plan("done")),
        ],
        ["That is **all**.", FinishPiece(cut_off=True)],
        ["Half an answer", never],
        [never],
        [call(id="15", command="echo begun; sleep 60")],
        ["A part", ProviderError("The connection broke off.")],
        [ProviderError("The server is gone.")],
        [ThinkingPiece("Hm."), FinishPiece()],
        [FinishPiece()],
        ["At last."],
    ]


def _live(factory: SessionFactory, person: Person) -> OpenSession:
    """Play a session with every kind of entry."""
    conversation = finish(factory.open(str(person.project), with_model=False))
    model = ScriptedModel(*_replies())
    conversation.use_model(model)
    session = OpenSession(conversation, str(person.project))
    finish(conversation.say("Please <b>fix</b> it"))
    finish(conversation.run("printf '\\033[31mred\\033[0m\\n'; exit 2"))

    def ends_with(text: str) -> bool:
        return row_name(list(session)[-1]).endswith(text)

    def has_printed() -> bool:
        return any(b"begun" in entry.kept_output() for entry in session._calls.values())

    stops: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("Stop in the middle", lambda: ends_with("Half an answer")),
        ("Stop before the first word", lambda: ends_with("first word") and bool(model.open)),
        ("Stop a command", has_printed),
    )
    for text, is_there in stops:
        turn = asyncio.ensure_future(conversation.say(text))
        wait_until(is_there)
        finish(conversation.stop())
        wait_until(turn.done)
    for text in ("Fail in the middle", "Fail at once", "Say nothing", "Now?"):
        finish(conversation.say(text))
    finish(conversation._tool_calls.settled())
    assert finish(conversation.is_written())
    return session


def _rows(screen: Screen, folder: Path, session: OpenSession) -> list[tuple[object, ...]]:
    """Return kind, name, texts and state of each row, those in groups below their group."""
    view = ChatView(Settings(Paths.from_environ({"HOME": str(folder)})))
    screen.show(view, 700, 600)
    view.show(session)
    found: list[tuple[object, ...]] = []
    for item in view.column.items:
        view.column.scroll_to(item)
        if isinstance(item, CallGroup) and (group := view._group_row(item)) is not None:
            group.open()
        row = view.column.row_of(item)
        assert row is not None
        wait_until(partial(_is_still, view, row))
        cards = all_of(row, ToolCard)
        states = [(card.is_open, card.mark.get_icon_name()) for card in cards]
        output = [card.output.text for card in cards if card.output is not None]
        found.append((type(item).__name__, row_name(item), texts(row), states, output))
    return found


def _is_still(view: ChatView, row: Gtk.Widget) -> bool:
    outputs = [card.output for card in all_of(row, ToolCard) if card.output is not None]
    written = all_of(row, MarkdownView)
    return (
        view.column.is_settled
        and all(text.is_settled for text in written)
        and all(not output.get_mapped() or output.is_up_to_date for output in outputs)
    )


def test_every_kind_of_entry_is_the_same_opened_again(screen: Screen, person: Person) -> None:
    (person.project / "AGENTS.md").write_text("Be kind.")
    (person.project / "notes.txt").write_text("a\nb\n")
    subprocess.run(["git", "init", "-q", person.project], check=True)
    (person.project / ".gitignore").write_text("*.o\n")
    person._copy_probe()
    with running_loop():
        user = _User()
        factory = SessionFactory(person.paths, person.environ, user, questions=user)
        live = _live(factory, person)
        stored = OpenSession(live.conversation, str(person.project))
        stored.show_stored(entries_of(factory.history.load(live.id)))
        before = _rows(screen, person.home, live)
        after = _rows(screen, person.home, stored)
        assert [row[:2] for row in after] == [row[:2] for row in before]
        assert after == before
        finish(live.conversation.close())
        factory.close()
