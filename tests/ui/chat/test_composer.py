# SPDX-License-Identifier: GPL-3.0-or-later
"""The text field for messages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from gi.repository import Gdk, Gio, Gtk
from support.chat import press_key
from support.screen import Screen, spin_until, texts

from ollmsandbox.paths import Paths
from ollmsandbox.ui.chat.composer import Composer
from ollmsandbox.ui.preferences.settings import Settings

pytestmark = pytest.mark.anybody

CONTROL, SHIFT = Gdk.ModifierType.CONTROL_MASK, Gdk.ModifierType.SHIFT_MASK
NONE = Gdk.ModifierType(0)


class Desk:
    """A composer in a window, and what it was asked to do."""

    def __init__(self, screen: Screen, folder: Path) -> None:
        self.settings = Settings(Paths.from_environ({"HOME": str(folder)}))
        # It may be kept for the whole process.
        self.settings.set("send-with-enter", value=True)
        self.composer = Composer(self.settings)
        heard = self.heard = list[tuple[str, str]]()
        self.composer.connect("send", lambda _composer, text: heard.append(("send", text)))
        self.composer.connect("run", lambda _composer, text: heard.append(("run", text)))
        self.composer.connect("stop", lambda _composer: heard.append(("stop", "")))
        box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
        box.append(Gtk.Label(label="above", vexpand=True))
        box.append(self.composer)
        self.window = screen.show(box, 500, 400)

    def key(self, key: int, state: Gdk.ModifierType = NONE) -> bool:
        return press_key(self.composer.view, key, state, Gtk.PropagationPhase.CAPTURE)

    def write(self, text: str) -> None:
        self.composer.text = text


@pytest.fixture
def desk(screen: Screen, tmp_path: Path) -> Desk:
    return Desk(screen, tmp_path)


def test_enter_sends_and_empties(desk: Desk) -> None:
    desk.write("  hello \n")
    assert desk.key(Gdk.KEY_Return)
    assert desk.heard == [("send", "hello")]
    assert desk.composer.text == ""


def test_shift_and_enter_begin_a_new_line(desk: Desk) -> None:
    desk.write("hello")
    assert not desk.key(Gdk.KEY_Return, SHIFT)
    assert not desk.heard


def test_control_and_enter_send_where_enter_alone_does_not(desk: Desk) -> None:
    desk.settings.set("send-with-enter", value=False)
    desk.write("hello")
    assert not desk.key(Gdk.KEY_Return)
    assert not desk.heard
    assert desk.key(Gdk.KEY_KP_Enter, CONTROL)
    assert desk.heard == [("send", "hello")]
    desk.settings.set("send-with-enter", value=True)


def test_enter_belongs_to_an_input_method_that_is_at_work(desk: Desk) -> None:
    desk.write("hello")
    desk.composer.view.emit("preedit-changed", "に")
    assert not desk.key(Gdk.KEY_Return)
    desk.composer.view.emit("preedit-changed", "")
    assert desk.key(Gdk.KEY_Return)


def test_nothing_is_sent_of_nothing(desk: Desk) -> None:
    for text in ("", " \n ", "!", "! "):
        desk.write(text)
        desk.key(Gdk.KEY_Return)
        assert not desk.composer.send_button.get_sensitive()
    assert not desk.heard


def test_a_command_of_the_user_runs_without_a_model(desk: Desk) -> None:
    desk.composer.set_can_send("Connect a model first.")
    desk.write("hello")
    desk.key(Gdk.KEY_Return)
    assert not desk.heard
    assert desk.composer.text == "hello"
    desk.write("!git status\ngit log")
    assert desk.composer.view.has_css_class("monospace")
    desk.composer.send_button.emit("clicked")
    assert desk.heard == [("run", "git status\ngit log")]
    assert not desk.composer.view.has_css_class("monospace")


def test_send_and_stop_are_in_one_place(desk: Desk) -> None:
    desk.write("next")
    desk.composer.set_busy(True)
    assert desk.composer.buttons.get_visible_child() is desk.composer.stop_button
    desk.key(Gdk.KEY_Return)
    assert desk.composer.text == "next"
    desk.composer.stop_button.emit("clicked")
    assert desk.heard == [("stop", "")]
    desk.composer.set_busy(False)
    assert desk.composer.buttons.get_visible_child() is desk.composer.send_button


def test_sent_messages_can_be_recalled(desk: Desk) -> None:
    desk.composer.set_history(["first", "second"])
    desk.write("third")
    desk.key(Gdk.KEY_Return)
    desk.write("being written")
    for expected in ("third", "second", "first"):
        assert desk.key(Gdk.KEY_Up)
        assert desk.composer.text == expected
    assert not desk.key(Gdk.KEY_Up)
    for expected in ("second", "third", "being written"):
        assert desk.key(Gdk.KEY_Down)
        assert desk.composer.text == expected
    assert not desk.key(Gdk.KEY_Down)


def test_the_typed_text_stays_the_draft_while_browsing_sent_messages(desk: Desk) -> None:
    desk.composer.set_history(["first", "second"])
    desk.write("being written")
    assert desk.key(Gdk.KEY_Up)
    assert (desk.composer.text, desk.composer.draft) == ("second", "being written")
    desk.write("second, in other words")
    assert desk.composer.draft == "second, in other words"


def test_with_alt_the_arrows_are_not_handled(desk: Desk) -> None:
    desk.composer.set_history(["before"])
    for key in (Gdk.KEY_Up, Gdk.KEY_Down):
        assert not desk.key(key, Gdk.ModifierType.ALT_MASK)
    assert desk.composer.text == ""


def test_up_and_down_move_within_a_text_of_several_lines(desk: Desk) -> None:
    desk.composer.set_history(["before"])
    desk.write("one\ntwo")
    spin_until(lambda: desk.composer.view.get_height() > 30)
    assert not desk.key(Gdk.KEY_Up)
    buffer = desk.composer.view.get_buffer()
    buffer.place_cursor(buffer.get_start_iter())
    assert not desk.key(Gdk.KEY_Down)
    assert desk.key(Gdk.KEY_Up)
    assert desk.composer.text == "before"


def test_dropped_files_become_paths(desk: Desk) -> None:
    desk.write("look at")
    files = [Gio.File.new_for_path(path) for path in ("/a/b.c", "/a/it's here; rm -rf ~")]
    found = [one for one in desk.composer.observe_controllers() if isinstance(one, Gtk.DropTarget)]
    assert len(found) == 1
    assert found[0].emit("drop", Gdk.FileList.new_from_list(files), 5, 5)
    spin_until(lambda: "b.c" in desk.composer.text)
    assert desk.composer.text == "look at /a/b.c '/a/it'\"'\"'s here; rm -rf ~' "


def test_a_hint_is_there_while_nothing_is_written(desk: Desk) -> None:
    hint = "Message, or !command to run it yourself"
    assert hint in texts(desk.composer)
    desk.write("x")
    assert hint not in texts(desk.composer)


def test_its_height_follows_its_text_up_to_a_limit(desk: Desk) -> None:
    before = desk.composer.frame.get_height()
    desk.write("\n".join("abc"))
    spin_until(lambda: desk.composer.frame.get_height() > before)
    desk.write("\n".join("abc" * 50))
    spin_until(lambda: desk.composer.frame.get_height() >= 150)
    assert desk.composer.frame.get_height() <= 200
    assert desk.composer.measure(Gtk.Orientation.HORIZONTAL, -1)[0] <= 336


def test_a_dropped_file_whose_name_is_not_utf_8_is_named_for_a_shell(
    desk: Desk, tmp_path: Path
) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9 it's 100%\\"
    Path(os.fsdecode(name)).write_text("found")
    desk.composer.add_paths([os.fsdecode(name)])
    command = f"cat {desk.composer.text}"
    for shell in ("sh", "bash"):
        assert subprocess.run([shell, "-c", command], capture_output=True).stdout == b"found"
