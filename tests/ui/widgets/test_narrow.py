# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from gi.repository import Gtk, Pango
from support.chat import Chat, done, shown
from support.screen import Screen, all_of, draw_frames, one_of, spin_until

from ollmsandbox.project.change import Change, Flag, Kind, Recorded, State, Type
from ollmsandbox.tools.todo import TodoStep
from ollmsandbox.ui.changes.model import FileItem, RunData
from ollmsandbox.ui.changes.rows import FileRow
from ollmsandbox.ui.chat.bars import EditBar
from ollmsandbox.ui.chat.todo import TodoBar
from ollmsandbox.ui.diff.view import DiffView
from ollmsandbox.ui.widgets.labels import is_cut_off, show_ellipsized_as_tooltip
from ollmsandbox.ui.widgets.wrap_box import WrapBox

_FOLDER = "/".join(f"folder-{number}" for number in range(30))


def _item(path: str, *flags: Flag, state: State = State.PENDING) -> Recorded:
    change = Change("/project", path, Kind.ADDED, Type.FILE, 0o755, flags=flags)
    return Recorded(1, change, state)


def test_a_cut_off_status_has_a_tooltip(screen: Screen) -> None:
    entry = Chat().call("make " + "very " * 60)
    card = shown(screen, entry, 340)
    draw_frames(card)
    assert is_cut_off(card.title) and card.title.get_has_tooltip()
    short = Gtk.Label(label="short")
    show_ellipsized_as_tooltip(short)
    screen.show(short)
    draw_frames(short)
    assert short.get_has_tooltip() and not is_cut_off(short)


def test_the_status_of_a_call_is_never_cut_off(screen: Screen) -> None:
    chat = Chat()
    entry = chat.call("make " + "very " * 60)
    chat.start(entry)
    chat.end(entry, done(3))
    card = shown(screen, entry, 200)
    draw_frames(card)
    # However long it is in a language, the duration at its end can be read.
    card.status.set_label("Ihr Befehl · Fehlgeschlagen mit Status 3 · 0,3 s")
    draw_frames(card)
    assert card.status.get_layout().get_line_count() > 1
    assert not is_cut_off(card.status)
    _least, wanted, *_ = card.status.measure(Gtk.Orientation.VERTICAL, card.status.get_width())
    assert card.status.get_height() >= wanted


def test_the_line_counts_of_a_diff_stay_when_the_name_is_cut_off(screen: Screen) -> None:
    view = DiffView()
    bar = view.take_bar()
    path = Gtk.Label(label="a_long_name.py  folder/", ellipsize=Pango.EllipsizeMode.END)
    header = Gtk.Box()
    header.append(path)
    header.append(bar)
    page = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
    page.append(header)
    page.append(view)
    view.show_texts("".join(f"{n}\n" for n in range(99)), "0\n1\n50\n", "file")
    screen.show(page, 150)
    spin_until(lambda: "96" in view.summary.get_label())
    draw_frames(page)
    assert is_cut_off(path)
    shown_part = view.summary.get_layout().get_pixel_size()[0]
    assert shown_part >= view.summary.create_pango_layout("\N{MINUS SIGN}96").get_pixel_size()[0]
    assert not is_cut_off(view.summary) or view.summary.get_label().startswith("\u200e\u2212")


def test_the_bar_of_an_edited_message_takes_two_lines(screen: Screen) -> None:
    bar = EditBar()
    bar.set_visible(True)
    screen.show(bar, 320)
    least = bar.measure(Gtk.Orientation.HORIZONTAL, -1)[0]
    assert least < 320
    label = next(one for one in all_of(bar, Gtk.Label) if "Editing" in one.get_label())
    draw_frames(bar)
    assert label.get_width() > 200
    assert bar.restore_button.get_width() > 200


def test_as_many_buttons_stand_in_a_line_as_have_room(screen: Screen) -> None:
    box = WrapBox()
    buttons = [Gtk.Button(label=word) for word in ("Review", "Redo", "Undo", "Apply")]
    box.add_group([Gtk.Label(label="3 files changed")])
    box.add_group(buttons)
    screen.show(box)
    two = sum(one.measure(Gtk.Orientation.HORIZONTAL, -1)[1] for one in buttons[:2]) + 10
    assert [len(line) for line in box.lines_for(two)] == [1, 2, 2]


def test_the_plan_is_as_high_as_its_steps(screen: Screen) -> None:
    bar = TodoBar()
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
    box.append(Gtk.Label(label="the chat", vexpand=True))
    box.append(bar)
    screen.show(box, 300, 500)
    bar.show_steps(
        tuple(TodoStep(f"{n} " + "some words " * 5, "pending") for n in "123"), is_busy=True
    )
    bar.set_expanded(True)
    scrolled = one_of(bar, Gtk.ScrolledWindow).get_vadjustment()
    spin_until(lambda: scrolled.get_page_size() > 0)
    draw_frames(bar)
    assert scrolled.get_upper() == scrolled.get_page_size()


def test_a_title_becomes_narrower_before_its_buttons_get_a_line(screen: Screen) -> None:
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
    assert path.get_text().startswith("tool  folder-0/")
    assert not is_cut_off(pills[0])
    # A screen reader, and the tooltip, say everything.
    assert "Can run code outside the sandbox · New executable" in row.name
