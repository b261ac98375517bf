# SPDX-License-Identifier: GPL-3.0-or-later
"""A narrow window: cut-off text is available as a tooltip, and the important part comes first."""

from __future__ import annotations

import pytest
from gi.repository import Gtk, Pango
from support.chat import Chat, shown
from support.screen import Screen, all_of, draw_frames, spin_until

from ollmsandbox.project.change import Change, Flag, Kind, Recorded, State, Type
from ollmsandbox.ui.changes.model import FileItem, RunData
from ollmsandbox.ui.changes.rows import FileRow
from ollmsandbox.ui.widgets.labels import is_cut_off, show_ellipsized_as_tooltip
from ollmsandbox.ui.widgets.wrap_box import WrapBox

pytestmark = pytest.mark.anybody

_FOLDER = "/".join(f"folder-{number}" for number in range(30))


def _item(path: str, *flags: Flag, state: State = State.PENDING) -> Recorded:
    change = Change("/project", path, Kind.ADDED, Type.FILE, 0o755, flags=flags)
    return Recorded(1, change, state)


def test_a_cut_off_status_has_a_tooltip(
    screen: Screen,
) -> None:
    entry = Chat().call("make " + "very " * 60)
    card = shown(screen, entry, 340)
    draw_frames(card)
    assert is_cut_off(card.title) and card.title.get_has_tooltip()
    short = Gtk.Label(label="short")
    show_ellipsized_as_tooltip(short)
    screen.show(short)
    draw_frames(short)
    assert short.get_has_tooltip() and not is_cut_off(short)


def test_a_title_becomes_narrower_before_its_buttons_get_a_line_of_their_own(
    screen: Screen,
) -> None:
    title, button = (
        Gtk.Label(label="a_long_name.py", ellipsize=Pango.EllipsizeMode.END),
        Gtk.Button(label="Undo"),
    )
    box = WrapBox()
    box.add_group([title])
    box.add_group([button])
    screen.show(box)
    width = box.measure(Gtk.Orientation.HORIZONTAL, -1)[1]
    assert [len(line) for line in box.lines_for(width - 20)] == [1, 1]
    box.set_property("shrink", True)
    assert [len(line) for line in box.lines_for(width - 20)] == [2]
    assert [
        len(line) for line in box.lines_for(button.measure(Gtk.Orientation.HORIZONTAL, -1)[1] + 5)
    ] == [1, 1]


def test_a_risky_file_has_one_pill_that_is_complete_beside_a_long_path(screen: Screen) -> None:
    item = _item(f"{_FOLDER}/tool", Flag.LATER, Flag.EXECUTABLE)
    run = RunData("run", "make", 0.0, (item,))
    row = FileRow(FileItem(run, item))
    screen.show(row, 320)
    pills = [label for label in all_of(row, Gtk.Label) if label.has_css_class("pill")]
    assert [pill.get_label() for pill in pills] == ["Can run code"]
    path = all_of(row, Gtk.Label)[0]
    spin_until(lambda: path.get_width() > 0 and is_cut_off(path))
    # The folder is what is left out.
    assert path.get_label().startswith("tool  folder-0/")
    assert not is_cut_off(pills[0])
    # A screen reader, and the tooltip, say everything.
    assert "Can run code outside the sandbox · New executable" in row.name
