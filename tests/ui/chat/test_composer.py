# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gi.repository import Gdk, Gio, GLib, Gtk
from support.chat import press_key
from support.screen import Screen, spin_until, texts
from support.window import finish, running_loop, wait_until

from ollmsandbox.paths import Paths
from ollmsandbox.ui.chat.composer import Composer
from ollmsandbox.ui.settings import Settings

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
        box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
        stop = Gio.SimpleAction.new("stop", None)
        stop.connect("activate", lambda _action, _target: heard.append(("stop", "")))
        actions = Gio.SimpleActionGroup()
        actions.add_action(stop)
        box.insert_action_group("win", actions)
        box.append(Gtk.Label(label="above", vexpand=True))
        box.append(self.composer)
        self.window = screen.show(box, 500, 400)

    def key(self, key: int, state: Gdk.ModifierType = NONE) -> bool:
        return press_key(self.composer.view, key, state, Gtk.PropagationPhase.CAPTURE)

    def write(self, text: str) -> None:
        self.composer.text = text


@pytest.fixture
def factory(screen: Screen, tmp_path: Path) -> Desk:
    return Desk(screen, tmp_path)


def test_enter_sends_and_empties(factory: Desk) -> None:
    hint = "Message, @file, or !command"
    assert hint in texts(factory.composer)
    factory.write("  hello \n")
    assert hint not in texts(factory.composer)
    # A new line.
    assert not factory.key(Gdk.KEY_Return, SHIFT)
    assert not factory.heard
    assert factory.key(Gdk.KEY_Return)
    assert factory.heard == [("send", "hello")]
    assert factory.composer.text == ""


def test_control_and_enter_send_where_enter_alone_does_not(factory: Desk) -> None:
    factory.settings.set("send-with-enter", value=False)
    factory.write("hello")
    assert not factory.key(Gdk.KEY_Return)
    assert not factory.heard
    assert factory.key(Gdk.KEY_KP_Enter, CONTROL)
    assert factory.heard == [("send", "hello")]
    factory.settings.set("send-with-enter", value=True)


def test_enter_belongs_to_an_input_method_that_is_at_work(factory: Desk) -> None:
    factory.write("hello")
    factory.composer.view.emit("preedit-changed", "に")
    assert not factory.key(Gdk.KEY_Return)
    factory.composer.view.emit("preedit-changed", "")
    assert factory.key(Gdk.KEY_Return)


def test_a_very_long_word_is_broken_anywhere(factory: Desk) -> None:
    """Pango takes seconds to find the breaks in it, at each key."""
    for text, wraps in (
        ("short words", Gtk.WrapMode.WORD_CHAR),
        ("a word " + 600 * "x", Gtk.WrapMode.CHAR),
        ("", Gtk.WrapMode.WORD_CHAR),
    ):
        factory.write(text)
        assert factory.composer.view.get_wrap_mode() == wraps


def test_nothing_is_sent_of_nothing(factory: Desk) -> None:
    for text in ("", " \n ", "!", "! "):
        factory.write(text)
        factory.key(Gdk.KEY_Return)
        assert not factory.composer.send_button.get_sensitive()
    assert not factory.heard


def test_a_command_of_the_user_runs_without_a_model(factory: Desk) -> None:
    factory.composer.set_can_send("Connect a model first.")
    factory.write("hello")
    factory.key(Gdk.KEY_Return)
    assert not factory.heard
    assert factory.composer.text == "hello"
    factory.write("!git status\ngit log")
    assert factory.composer.view.has_css_class("monospace")
    factory.composer.send_button.emit("clicked")
    assert factory.heard == [("send", "!git status\ngit log")]
    assert not factory.composer.view.has_css_class("monospace")


def test_enter_while_the_agent_works_queues(factory: Desk) -> None:
    composer = factory.composer
    factory.write("next")
    composer.set_busy(True)
    assert composer.stop_button.get_visible()
    # Nothing else appears where the button to send is.
    assert composer.send_button.get_visible()
    factory.key(Gdk.KEY_Return)
    assert composer.text == ""
    composer.stop_button.emit("clicked")
    assert factory.heard == [("send", "next"), ("stop", "")]
    composer.set_busy(False)
    assert not composer.stop_button.get_visible()


def test_the_mode_is_set_at_the_composer(factory: Desk) -> None:
    button = factory.composer.mode_button
    assert button.get_label() == "Apply Right Away"
    factory.composer.activate_action("composer.apply-mode", GLib.Variant("s", "review"))
    assert factory.settings.get_string("apply-mode") == "review"
    assert button.get_label() == "Review First"
    factory.settings.set("apply-mode", "auto")
    assert button.get_label() == "Apply Right Away"


# --- files of the project ------------------------------------------------------------------------

FILES = ["src/parser.py", "src/my parser.py", "tests/test_parser.py"]


@pytest.fixture
def files(factory: Desk) -> Iterator[Desk]:
    async def find(text: str) -> list[str]:
        return [path for path in FILES if text in path]

    factory.composer.completion.find = find
    with running_loop():
        yield factory


def type_text(desk: Desk, text: str) -> None:
    async def insert() -> None:
        desk.composer.view.get_buffer().insert_at_cursor(text)

    finish(insert())


def test_an_at_sign_completes_files(files: Desk) -> None:
    completion = files.composer.completion
    type_text(files, "Look at @pars")
    wait_until(lambda: list(completion.paths) == FILES)
    files.key(Gdk.KEY_Down)
    type_text(files, "er.p")
    wait_until(lambda: len(completion.paths) == 3)
    assert files.key(Gdk.KEY_Down)
    assert files.key(Gdk.KEY_Return)
    assert files.composer.text == "Look at 'src/my parser.py' "
    assert not files.heard
    wait_until(lambda: not completion.paths)


def test_escape_closes_the_list_of_files_and_enter_sends_again(files: Desk) -> None:
    type_text(files, "ada@pars")
    finish(asyncio.sleep(0.05))
    # Inside a word it completes nothing.
    assert not files.composer.completion.paths
    type_text(files, " @pars")
    wait_until(lambda: files.composer.completion.paths)
    assert files.key(Gdk.KEY_Escape)
    assert files.key(Gdk.KEY_Return)
    assert files.heard == [("send", "ada@pars @pars")]


def test_sent_messages_can_be_recalled(factory: Desk) -> None:
    composer = factory.composer
    composer.set_history(["first", "second"])
    factory.write("third")
    factory.key(Gdk.KEY_Return)
    factory.write("being written")
    for key in (Gdk.KEY_Up, Gdk.KEY_Down):
        assert not factory.key(key, Gdk.ModifierType.ALT_MASK)
    for expected in ("third", "second", "first"):
        assert factory.key(Gdk.KEY_Up)
        assert (composer.text, composer.draft) == (expected, "being written")
    assert not factory.key(Gdk.KEY_Up)
    for expected in ("second", "third", "being written"):
        assert factory.key(Gdk.KEY_Down)
        assert composer.text == expected
    assert not factory.key(Gdk.KEY_Down)
    assert factory.key(Gdk.KEY_Up)
    factory.write("third, in other words")
    assert composer.draft == "third, in other words"


def test_up_and_down_move_within_a_text_of_several_lines(factory: Desk) -> None:
    factory.composer.set_history(["before"])
    factory.write("one\ntwo")
    spin_until(lambda: factory.composer.view.get_height() > 30)
    assert not factory.key(Gdk.KEY_Up)
    buffer = factory.composer.view.get_buffer()
    buffer.place_cursor(buffer.get_start_iter())
    assert not factory.key(Gdk.KEY_Down)
    assert factory.key(Gdk.KEY_Up)
    assert factory.composer.text == "before"


def test_dropped_files_become_paths(factory: Desk) -> None:
    factory.write("look at")
    files = [Gio.File.new_for_path(path) for path in ("/a/b.c", "/a/it's here; rm -rf ~")]
    found = [
        one for one in factory.composer.observe_controllers() if isinstance(one, Gtk.DropTarget)
    ]
    assert len(found) == 1
    factory.composer.connect("dropped", Composer.add_paths)
    assert found[0].emit("drop", Gdk.FileList.new_from_list(files), 5, 5)
    spin_until(lambda: "b.c" in factory.composer.text)
    assert factory.composer.text == "look at /a/b.c '/a/it'\"'\"'s here; rm -rf ~' "


def test_its_height_follows_its_text_up_to_a_limit(factory: Desk) -> None:
    before = factory.composer.frame.get_height()
    factory.write("\n".join("abc"))
    spin_until(lambda: factory.composer.frame.get_height() > before)
    factory.write("\n".join("abc" * 50))
    spin_until(lambda: factory.composer.frame.get_height() >= 150)
    assert factory.composer.frame.get_height() <= 200
    assert factory.composer.measure(Gtk.Orientation.HORIZONTAL, -1)[0] <= 336


def test_a_dropped_file_with_an_odd_name_is_quoted_for_a_shell(
    factory: Desk, tmp_path: Path
) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9 it's 100%\\"
    Path(os.fsdecode(name)).write_text("found")
    factory.composer.add_paths([os.fsdecode(name)])
    command = f"cat {factory.composer.text}"
    for shell in ("sh", "bash"):
        assert subprocess.run([shell, "-c", command], capture_output=True).stdout == b"found"
