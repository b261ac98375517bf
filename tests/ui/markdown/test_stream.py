# SPDX-License-Identifier: GPL-3.0-or-later
"""A long message is several rows, and reads as one."""

from __future__ import annotations

import pytest
from support.chat import Chat

from ollmsandbox.chat import events
from ollmsandbox.chat.messages import Message, Role
from ollmsandbox.ui.chat.entries import MessageEntry
from ollmsandbox.ui.markdown.parse import parse
from ollmsandbox.ui.markdown.stream import LONG, Cutter, parts_of

pytestmark = pytest.mark.anybody

_BLOCKS = (
    "A paragraph with **strong** words.\nAnd its second line.",
    "## A heading",
    "- one\n\n  with more of it\n\n- two",
    "```python\ndef first():\n    pass\n\nSecond = 2\n\n# no heading\n```",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "1. ~~~\n   code in a list\n\n   more\n   ~~~",
    "> said\n> by others",
)
_TEXT = "\n\n".join(_BLOCKS * 60) + "\n"


def test_a_short_message_is_one_part() -> None:
    assert parts_of("Hello.\n\nBye.") == ["Hello.\n\nBye."]


def test_parts_are_all_of_the_text_and_read_as_the_whole_does() -> None:
    parts = parts_of(_TEXT)
    assert "".join(parts) == _TEXT
    assert len(parts) > 3
    assert all(len(part) < 2 * LONG for part in parts)
    assert [block for part in parts for block in parse(part)] == list(parse(_TEXT))


def test_code_is_never_cut() -> None:
    code = "```\n" + "line\n\nWord\n\n" * LONG + "```\n"
    assert parts_of(code) == [code]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_comes_in_pieces_is_cut_in_the_same_places(size: int) -> None:
    cutter, parts = Cutter(), [""]
    for start in range(0, len(_TEXT), size):
        piece = _TEXT[start : start + size]
        while (place := cutter.feed(piece)) is not None:
            parts[-1] += piece[:place]
            parts.append("")
            piece = piece[place:]
        parts[-1] += piece
    assert parts == parts_of(_TEXT)


def test_a_stored_message_names_its_speaker_once_and_breaks_off_at_its_end() -> None:
    message = Message(Role.ASSISTANT, _TEXT, thinking="Hm.", partial=True, model="m")
    entries = MessageEntry.of(message)
    assert "".join(entry.text for entry in entries) == _TEXT
    assert [entry.thinking for entry in entries] == ["Hm.", *[""] * (len(entries) - 1)]
    assert [entry.partial for entry in entries] == [*[False] * (len(entries) - 1), True]


def test_a_message_grows_into_parts_and_can_be_withdrawn() -> None:
    chat = Chat()
    for _time in range(2):
        chat.talk.tell(events.TextGrew(_TEXT[:50]), events.TextGrew(_TEXT[50:]))
        entries = [entry for entry in chat.session if isinstance(entry, MessageEntry)]
        assert [entry.text for entry in entries] == parts_of(_TEXT)
        assert [entry.is_growing for entry in entries[-2:]] == [False, True]
        assert [entry.continues for entry in entries[:2]] == [False, True]
        if _time == 0:
            chat.talk.tell(events.ReplyWithdrawn())
            assert not list(chat.session)
    chat.talk.tell(events.MessageAdded(Message(Role.ASSISTANT, _TEXT, model="m")))
    assert [e.text for e in chat.session if isinstance(e, MessageEntry)] == parts_of(_TEXT)
    assert not entries[-1].is_growing
