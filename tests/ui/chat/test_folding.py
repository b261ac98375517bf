# SPDX-License-Identifier: GPL-3.0-or-later
"""Finished calls that need no attention are one line of the chat."""

from __future__ import annotations

import pytest
from support.chat import Chat, done, report
from support.chat_screen import Place
from support.screen import all_of, draw_frames, one_of, spin_until, texts

from ollmsandbox.chat.events import ReplyWithdrawn, TextGrew, ThinkingGrew
from ollmsandbox.tools.base import Outcome
from ollmsandbox.ui.chat.group import CallGroupRow
from ollmsandbox.ui.chat.row import MessageRow
from ollmsandbox.ui.chat.tool_card import ToolCard
from ollmsandbox.ui.sessions.entries import CallEntry
from ollmsandbox.ui.sessions.folding import CallGroup, fold


def run(place: Place, command: str = "ls", code: int = 0, tool: str = "run_command") -> CallEntry:
    entry = place.chat.call(command, tool)
    place.chat.start(entry)
    place.chat.output(entry, f"output of {command}\n".encode())
    place.chat.end(entry, done(code))
    return entry


def group(place: Place) -> CallGroupRow:
    place.settle()
    return one_of(place.view, CallGroupRow)


def counts(card: ToolCard) -> str:
    return card.status.get_label().replace("\N{LEFT-TO-RIGHT MARK}", "")


def test_neighbours_that_succeeded_fold_into_one_line(place: Place) -> None:
    alone = run(place)
    place.chat.agent("Next.")
    # An answer keeps them apart.
    entries = [run(place)]
    place.settle()
    assert not all_of(place.view, CallGroupRow)
    entries += [run(place, "cat a", tool="read_file"), run(place)]
    row = group(place)
    assert texts(row) == ["Ran 2 commands, read 1 file", "6.3 s"]
    assert [card.entry for card in all_of(place.view, ToolCard)] == [alone]
    # The line opens and shows its calls.
    row.header.emit("clicked")
    assert [card.entry for card in all_of(row, ToolCard)] == entries
    entries.append(run(place, "id"))
    place.settle()
    assert one_of(place.view, CallGroupRow) is row
    assert [card.entry for card in all_of(row, ToolCard)] == entries
    row.header.emit("clicked")
    assert not all_of(row, ToolCard)
    place.chat.talk.tell(TextGrew("Nonsense"), ReplyWithdrawn())
    spin_until(lambda: len(all_of(place.view, MessageRow)) == 1)
    # When its session is shown again, they are folded as before.
    place.view.show(None)
    place.view.show(place.chat.session)
    assert group(place).group.calls == entries


@pytest.mark.parametrize("why", ["failed", "changed", "own", "opened", "running"])
def test_a_call_that_needs_attention_keeps_its_card(place: Place, why: str) -> None:
    run(place)
    entry = place.chat.call("make", own=why == "own")
    place.chat.start(entry)
    if why == "opened":
        place.card(entry).header.emit("clicked")
        place.card(entry).header.emit("clicked")
        assert entry.is_open
    if why != "running":
        paths = ("a.txt",) if why == "changed" else ()
        place.chat.end(entry, done(1 if why == "failed" else 0, "", *paths))
    run(place)
    run(place)
    place.settle()
    assert entry in [card.entry for card in all_of(place.view, ToolCard)]
    assert len(group(place).group.calls) == 2


def test_a_call_that_ends_after_its_neighbours_joins_them(place: Place) -> None:
    first, second, third = (place.chat.call(name) for name in ("a", "b", "c"))
    for entry in (third, first, second):
        place.chat.start(entry)
        place.chat.end(entry, done())
    assert group(place).group.entries == (first, second, third)


def test_reasoning_between_calls_is_folded_with_them(place: Place) -> None:
    run(place)
    place.chat.talk.tell(ThinkingGrew("Now the other one."))
    place.chat.agent("", thinking="Now the other one.")
    run(place)
    place.chat.agent("Both are fine.")
    assert texts(group(place)) == ["Ran 2 commands", "4.2 s"]
    assert len(all_of(place.view, MessageRow)) == 1
    group(place).header.emit("clicked")
    assert len(all_of(group(place), MessageRow)) == 1


def test_a_folded_call_can_be_gone_to(place: Place) -> None:
    place.fill(10)
    entry = run(place)
    run(place)
    place.fill(10)
    place.view.show_call(entry.call.id)
    card = place.card(entry)
    assert place.has_focus(card.header)
    place.settle()
    block = place.view.column.focused_item
    assert isinstance(block, CallGroup) and place.view.column.is_in_view(block)


def test_the_focus_stays_where_a_call_was_folded(place: Place) -> None:
    run(place)
    entry = place.chat.call("make")
    place.chat.start(entry)
    place.settle()
    place.card(entry).header.grab_focus()
    place.chat.end(entry, done())
    spin_until(lambda: place.focus is group(place).header)
    assert not group(place).group.is_open


def test_folding_thousands_of_calls_takes_linear_time() -> None:
    chat = Chat()
    for number in range(2000):
        entry = chat.call(f"echo {number}")
        chat.end(entry, done())
    [block] = fold(chat.session)
    assert isinstance(block, CallGroup)
    assert len(block.calls) == 2000


# --- the card ------------------------------------------------------------------------------------


def edited(place: Place, lines: int = 1) -> CallEntry:
    entry = place.chat.call("src/parser.py", "edit_file")
    diff = ["@@ -11,3 +11,3 @@", " def read(text):"]
    diff += [f'-    return text.split(",") # {number}' for number in range(lines)]
    diff += [f"+    return rows(text) # {number}" for number in range(lines)]
    text = "\n".join(["Changed: src/parser.py", "", *diff])
    place.chat.end(entry, Outcome(text, ok=True, report=report("src/parser.py")))
    return entry


def test_a_small_edit_shows_its_lines(place: Place) -> None:
    card = place.card(edited(place))
    assert texts(card.diff_box) == [
        '12 -     return text.split(",") # 0',
        "12 +     return rows(text) # 0",
    ]
    assert card.diff_box.get_visible()
    assert counts(card) == "+1 \N{MINUS SIGN}1"
    assert card.title.get_text() == "parser.py  src/"
    card.open()
    assert not card.diff_box.get_visible()


def test_a_large_edit_shows_how_many_lines_it_changed(place: Place) -> None:
    card = place.card(edited(place, lines=30))
    assert not card.diff_box.get_visible()
    assert counts(card) == "+30 \N{MINUS SIGN}30"


def test_only_a_call_without_consequences_looks_quiet_and_a_failure_is_no_danger(
    place: Place,
) -> None:
    quiet, failed = place.card(run(place)), place.card(run(place, "make test", code=1))
    assert quiet.has_css_class("quiet") and not failed.has_css_class("quiet")
    draw_frames(failed)
    assert failed.mark.get_icon_name() == "window-close-symbolic"
    assert failed.mark.has_css_class("dim-label") and not failed.mark.has_css_class("error")
    quiet.header.emit("clicked")
    assert not quiet.has_css_class("quiet")
