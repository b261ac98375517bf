# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from gi.repository import Adw, Gtk, Pango
from support.chat import Chat, done
from support.chat_screen import Place
from support.screen import Screen, all_of, one_of, spin_until, texts, watch_freeing

from ollmsandbox.chat.calls import stopped_outcome
from ollmsandbox.chat.events import (
    ConversationState,
    MessageAdded,
    Notice,
    ReplyWithdrawn,
    Retrying,
    StateChanged,
    TextGrew,
    ThinkingGrew,
    TokensUsed,
    TurnEnded,
)
from ollmsandbox.chat.messages import Message, Role
from ollmsandbox.chat.turn_end import TurnEnd
from ollmsandbox.ui.chat.question import QuestionCard
from ollmsandbox.ui.chat.row import MessageRow, NoticeRow, SummaryRow
from ollmsandbox.ui.chat.tool_card import ToolCard
from ollmsandbox.ui.permission.card import ChatPermission
from ollmsandbox.ui.sessions.entries import NoticeEntry
from ollmsandbox.ui.sessions.folding import CallGroup

pytestmark = pytest.mark.usefixtures("quick")

# --- what is said --------------------------------------------------------------------------------


def test_messages_name_their_author_and_replace_the_introduction(place: Place) -> None:
    empty = one_of(place.view, Adw.StatusPage)
    assert empty.get_mapped()
    place.chat.person("<b>Hello</b>")
    place.chat.agent("Good day.")
    place.chat.agent("From before models had names.", model="")
    spin_until(lambda: len(all_of(place.view, MessageRow)) == 3)
    rows = all_of(place.view, MessageRow)
    assert [texts(row)[0] for row in rows] == ["<b>Hello</b>", "qwen3:14b", "Agent"]
    assert rows[0].has_css_class("own-message")
    assert not rows[1].has_css_class("own-message")
    assert not empty.get_mapped()


def test_a_message_of_the_user_stands_at_the_side(place: Place) -> None:
    place.chat.person("Short")
    place.chat.person("And a long one, " * 40)
    place.chat.agent("An answer. " * 40)
    place.settle()
    answer = all_of(place.view, MessageRow)[-1]
    short, long = (box for box in all_of(place.view, Gtk.Box) if box.has_css_class("bubble"))
    wide = answer.get_width()
    assert short.get_width() < wide / 3
    assert wide / 2 < long.get_width() < wide * 0.9
    right = {row.compute_bounds(place.view)[1].get_top_right().x for row in (short, long, answer)}
    assert len(right) == 1


def test_an_answer_grows(place: Place) -> None:
    tell = place.chat.talk.tell
    tell(StateChanged(ConversationState.STREAMING), ThinkingGrew("Let me "), ThinkingGrew("see."))
    tell(TextGrew("First.\n\n"), TextGrew("Sec"))
    spin_until(lambda: "Sec" in texts(place.view))
    row = one_of(place.view, MessageRow)
    thinking = one_of(row, Gtk.Expander)
    assert not thinking.get_expanded()
    # It may be very long.
    assert thinking.get_child() is None
    thinking.set_expanded(True)
    tell(ThinkingGrew(" Well"))
    spin_until(lambda: "Let me see. Well" in texts(row))
    view = thinking.get_child()
    assert isinstance(view, Gtk.TextView)
    tell(ThinkingGrew(", yes."))
    assert "Let me see. Well, yes." in texts(row)
    assert view.get_wrap_mode() == Gtk.WrapMode.WORD_CHAR
    for _ in range(2):
        tell(ThinkingGrew(300 * "x"))
    assert view.get_wrap_mode() == Gtk.WrapMode.CHAR
    whole = f"Let me see. Well, yes.{600 * 'x'}"
    thinking.set_expanded(False)
    assert whole not in texts(row)
    thinking.set_expanded(True)
    spin_until(lambda: whole in texts(row))
    place.chat.agent("First.\n\nSecond.", thinking=whole)
    tell(TextGrew("ond."))
    assert len(all_of(place.view, MessageRow)) == 1


def test_an_answer_may_break_off_be_corrected_or_be_withdrawn(place: Place) -> None:
    place.chat.talk.tell(TextGrew("Half of"))
    place.chat.agent("Half of", partial=True)
    spin_until(lambda: any("cut short" in text for text in texts(place.view)))
    # A call that was written as text is one.
    place.chat.talk.tell(TextGrew("I look.\n\n<tool_call>run_command"))
    spin_until(lambda: any("tool_call" in text for text in texts(place.view)))
    place.chat.agent("I look.")
    spin_until(lambda: not any("tool_call" in text for text in texts(place.view)))
    assert "I look." in texts(place.view)
    place.chat.person("Hello")
    place.chat.talk.tell(TextGrew("Nonsense"), ReplyWithdrawn())
    spin_until(lambda: len(all_of(place.view, MessageRow)) == 3)


def test_notices_stand_between_the_messages(place: Place) -> None:
    failed = TurnEnded(TurnEnd.FAILED, "The server is <gone>.\ncaf\udce9")
    place.chat.talk.tell(Notice("Old output was left out."), failed)
    spin_until(lambda: len(all_of(place.view, NoticeRow)) == 2)
    told = {"Old output was left out.", "The server is <gone>.\ncaf⟨byte E9⟩"}
    assert told <= set(texts(place.view))


def test_a_server_that_is_asked_again_is_shown_until_it_answers(place: Place) -> None:
    tell = place.chat.talk.tell
    tell(StateChanged(ConversationState.WAITING), Retrying(2.0, "It is overloaded."))
    spin_until(lambda: any("2 seconds" in text for text in texts(place.view)))
    tell(Retrying(120.0, "It is overloaded."))
    spin_until(lambda: any("120 seconds" in text for text in texts(place.view)))
    assert one_of(place.view, NoticeRow).entry.text.startswith("It is overloaded. ")
    tell(TextGrew("Here"))
    spin_until(lambda: not all_of(place.view, NoticeRow))


def test_a_summary_can_be_unfolded(place: Place) -> None:
    place.chat.talk.tell(MessageAdded(Message(Role.SUMMARY, "Task: <b>everything</b>")))
    spin_until(lambda: all_of(place.view, SummaryRow))
    row = one_of(place.view, SummaryRow)
    assert not row.get_expanded()
    row.set_expanded(True)
    spin_until(lambda: "Task: <b>everything</b>" in texts(row))


def test_the_ring_shows_how_much_of_the_context_is_used(place: Place) -> None:
    ring = place.view.context
    assert not ring.get_visible()
    # That of an unknown model is not guessed.
    place.chat.talk.tell(TokensUsed(10, 5, None))
    assert ring.details.get_label() == "15 tokens in this session"
    place.chat.talk.tell(TokensUsed(1000, 240, 4000))
    assert ring.get_visible()
    assert texts(ring)[:1] == ["31 %"]
    place.chat.talk.tell(TokensUsed(2000, 0, 4000, 0.01), TokensUsed(2800, 200, 4000, 0.02))
    assert ring.details.get_label().splitlines() == [
        "75 % of the model's context of 4,000 tokens",
        "6,255 tokens in this session",
        "Cost: 0.0300",
    ]
    place.chat.talk.tell(MessageAdded(Message(Role.SUMMARY, "All of it")))
    place.chat.idle()
    assert texts(ring)[:1] == ["0 %"]


def test_find_goes_from_one_entry_to_the_next(place: Place) -> None:
    chat, bar = place.chat, place.view.find_bar
    assert not place.view.find()
    chat.person("Where is the needle?")
    first = chat.call("grep Needle")
    chat.end(first, done(0, "hay.txt"))
    second = chat.call("ls")
    chat.end(second, done(0, "needle.txt"))
    place.fill()
    assert place.view.find()
    bar.entry.set_text("NEEDLE")
    spin_until(lambda: bar.count.get_label() == "3 of 3")
    [group] = [item for item in place.view.column.items if isinstance(item, CallGroup)]
    row = place.view.column.row_of(group)
    assert row is not None and row.has_css_class("found")
    spin_until(lambda: place.view.column.is_in_view(group))
    bar.entry.emit("activate")
    bar.entry.emit("activate")
    assert bar.count.get_label() == "1 of 3"
    assert not row.has_css_class("found")
    bar.entry.set_text("nowhere")
    spin_until(lambda: bar.count.get_label() == "Nothing found")
    bar.set_search_mode(False)
    assert bar.count.get_label() == ""


def is_marked(label: Gtk.Label) -> bool:
    attributes = label.get_attributes()
    return attributes is not None and "background" in attributes.to_string()


def test_find_marks_each_place_of_a_text(place: Place) -> None:
    chat, view = place.chat, place.view
    chat.agent("A needle, and\n\n- another **Needle**.\n\n```\nneedle\n```")
    place.settle()
    assert view.find()
    view.find_bar.entry.set_text("needle")
    spin_until(lambda: view.find_bar.count.get_label() == "3 of 3")
    assert view._found_place is not None
    code: object = view._found_place.part
    assert isinstance(code, Gtk.TextView)
    assert code.get_buffer().get_iter_at_offset(0).get_tags()[-1].props.background_set
    for number, text in ((2, "another Needle."), (1, "A needle, and")):
        view.find_bar.entry.emit("activate")
        assert view.find_bar.count.get_label() == f"{number} of 3"
        [label] = [one for one in all_of(view, Gtk.Label) if one.get_text() == text]
        assert view._found_place.part is label and is_marked(label)
    view.find_bar.set_search_mode(False)
    assert not is_marked(label)


def test_find_shows_the_place_in_a_long_answer_and_stays_there(place: Place) -> None:
    chat, view = place.chat, place.view
    chat.person("Where is it?")
    chat.agent("\n\n".join(f"Paragraph {number}." for number in range(80)))
    place.settle()
    assert view.find()
    view.find_bar.entry.set_text("PARAGRAPH 40.")

    def is_seen() -> bool:
        labels = [one for one in all_of(view, Gtk.Label) if one.get_text() == "Paragraph 40."]
        tops = [label.compute_bounds(view.column)[1].get_y() for label in labels]
        return any(0 < top < view.column.get_height() / 2 for top in tops)

    spin_until(is_seen)
    # As the Escape key does.
    view.find_bar.entry.emit("stop-search")
    assert not view.find_bar.get_search_mode()
    spin_until(lambda: place.has_focus(view.composer.view))
    assert is_seen()


def test_a_very_long_message_of_the_user_is_shown_at_once(place: Place) -> None:
    def is_shown(start: str) -> bool:
        return any(text.startswith(start) for text in texts(place.view))

    for text in ("x" * 5000, "line\n" * 3000):
        place.chat.person(text)
        # The one before may be out of sight by then, and is not kept.
        spin_until(partial(is_shown, text[:9]))
    shown = all_of(place.view, MessageRow)[-1]
    spin_until(lambda: one_of(shown, Gtk.TextView).get_width() > shown.get_width() // 2 > 0)


def test_a_long_message_has_its_height_though_nothing_else_happens(place: Place) -> None:
    place.chat.person("Words of a long message. " * 100)
    spin_until(lambda: any(view.get_height() > 200 for view in all_of(place.view, Gtk.TextView)))


def test_a_message_is_wrapped_only_a_few_times(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = Gtk.Label.do_measure
    widths = set()

    class MeasuredLabel(Gtk.Label):
        __gtype_name__ = "TestMeasuredLabel"

        def do_measure(self, orientation: Gtk.Orientation, size: int) -> tuple[int, int, int, int]:
            if orientation == Gtk.Orientation.VERTICAL and self.get_label().startswith("So many"):
                widths.add(size)
            least, natural, *_baselines = measure(self, orientation, size)
            return least, natural, -1, -1

    monkeypatch.setattr(Gtk, "Label", MeasuredLabel)
    place.chat.person("So many words. " * 100)
    spin_until(lambda: any(label.get_height() for label in all_of(place.view, MeasuredLabel)))
    # Each takes milliseconds.
    assert 0 < len(widths) < 10


def test_very_long_words_are_broken_anywhere(place: Place) -> None:
    """Pango takes seconds to find the breaks in them."""
    words = "short words " + 600 * "x"
    place.chat.person(words)
    place.chat.agent(words)
    place.chat.question(words, words)
    place.settle()
    shown = [*all_of(place.view, MessageRow), *all_of(place.view, QuestionCard)]
    found = [label for widget in shown for label in all_of(widget, Gtk.Label)]
    labels = [label for label in found if words in label.get_text()]
    assert len(labels) == 4
    assert {label.get_wrap_mode() for label in labels} == {Pango.WrapMode.CHAR}


# --- sending and stopping ------------------------------------------------------------------------


def test_the_stop_of_a_card_is_for_its_own_command(place: Place) -> None:
    first, second = place.chat.call("make one"), place.chat.call("make two")
    for entry in (first, second):
        place.chat.start(entry)
    place.card(second).stop_button.emit("clicked")
    assert place.heard == [("stop-call", second)]


def test_a_stop_is_reported_once(place: Place) -> None:
    entry = place.ask()
    place.chat.end(entry, stopped_outcome())
    place.chat.talk.tell(TurnEnded(TurnEnd.STOPPED))
    assert not any(isinstance(one, NoticeEntry) for one in place.chat.session)
    place.chat.person("And now?")
    place.chat.talk.tell(TurnEnded(TurnEnd.STOPPED))
    last = list(place.chat.session)[-1]
    assert isinstance(last, NoticeEntry)
    assert not last.is_error
    assert not last.can_retry


def test_drafts_and_history_belong_to_their_session(place: Place) -> None:
    place.chat.person("first")
    place.chat.end(place.chat.call("ls", own=True), done())
    other = Chat()
    other.session.draft = "half a thought"
    place.view.composer.text = "not yet"
    place.view.show(other.session)
    assert place.view.composer.text == "half a thought"
    place.view.show(place.chat.session)
    assert place.view.composer.text == "not yet"
    place.view.composer._leaf(-1)
    assert place.view.composer.text == "!ls"
    place.view.composer._leaf(-1)
    assert place.view.composer.text == "first"


# --- scrolling -----------------------------------------------------------------------------------


def test_it_follows_the_end_until_the_user_scrolls_up(place: Place) -> None:
    place.fill()
    assert place.view.column.at_end
    button = next(b for b in all_of(place.view, Gtk.Button) if b.has_css_class("osd"))
    assert not button.get_visible()
    place.scroll_up()
    place.chat.agent("More.")
    place.settle()
    assert not place.view.column.at_end
    assert button.get_visible()
    button.emit("clicked")
    spin_until(lambda: place.view.column.at_end)
    spin_until(lambda: not button.get_visible())


def test_the_user_s_own_message_is_always_in_view(place: Place) -> None:
    place.fill()
    place.scroll_up()
    place.chat.person("Here I am")
    spin_until(lambda: place.view.column.at_end)


# --- all of it -----------------------------------------------------------------------------------


def test_a_model_is_named_once_in_a_turn_and_again_only_after_another_one(place: Place) -> None:
    chat = place.chat
    chat.person("go")
    chat.agent("first")
    chat.call()
    chat.agent("second")
    chat.talk.tell(TextGrew(""), ReplyWithdrawn())
    chat.person("again")
    chat.agent("third")
    chat.agent("other", model="llama3")
    for name in ("qwen3", "qwen3", "llama3"):
        chat.person("Hello")
        chat.agent("Good day.", model=name)
    place.settle()
    names = [texts(row)[0] for row in all_of(place.view, MessageRow)]
    assert names[:6] == ["go", "qwen3:14b", "second", "again", "qwen3:14b", "llama3"]
    assert names[6:] == ["Hello", "qwen3", "Hello", "Good day.", "Hello", "llama3"]


def everything(place: Place) -> None:
    chat = place.chat
    chat.person("p" * 300)
    chat.agent("# Heading\n\ntext `code` " + "w" * 300, thinking="t" * 300)
    failed = chat.call("f" * 300)
    chat.start(failed)
    chat.output(failed, b"o" * 3000)
    chat.end(failed, done(1, "", "c" * 300))
    chat.talk.tell(Notice("n" * 300))
    place.ask("q" * 300)
    place.settle()


def test_a_message_that_ends_with_a_space_is_not_cut_off(screen: Screen, tmp_path: Path) -> None:
    place = Place(screen, tmp_path, 360, 640)
    place.chat.person("Question number 5, " + "which is a bit longer " * 5)
    place.settle()
    row = one_of(place.view, MessageRow)
    _known, bounds = row.compute_bounds(place.view)
    assert bounds.get_x() >= 0 and bounds.get_height() < 200


def test_nothing_needs_more_than_a_narrow_window(screen: Screen, tmp_path: Path) -> None:
    place = Place(screen, tmp_path, 360, 640)
    place.view.set_can_send("Choose or connect a model. !commands work without one.")
    everything(place)
    assert place.view.measure(Gtk.Orientation.HORIZONTAL, -1)[0] <= 360
    assert place.window.get_width() == 360


def test_a_session_that_is_left_is_freed_with_all_its_rows(place: Place) -> None:
    everything(place)
    place.chat.person("Hello")
    place.settle()
    kinds = (MessageRow, ToolCard, ChatPermission)
    rows = [one for kind in kinds for one in all_of(place.view, kind)]
    assert len(rows) >= 3
    rows_are_freed = watch_freeing(*rows)
    del rows
    session_is_freed = watch_freeing(place.chat.session)
    place.view.show(None)
    place.settle()
    spin_until(rows_are_freed)
    # Nobody listens any more, and what happens goes on happening.
    place.chat.person("Still there?")
    assert "Still there?" not in texts(place.view)
    place.chat = Chat()
    spin_until(session_is_freed)
