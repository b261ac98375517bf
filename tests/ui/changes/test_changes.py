# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from gi.repository import Gtk
from support.changes_pane import LONG, Pane, loaded
from support.escape.kill import Leaver, LeftBehind
from support.person import Person
from support.screen import all_of, draw_frames, popover_of, texts
from support.window import button, buttons, dialog, dialogs, finish, press, says, wait_until

from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.chat.storage.history import History
from ollmsandbox.chat.storage.stored import SessionInfo, StoredMessage
from ollmsandbox.project.change import State
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.overlay import leftovers
from ollmsandbox.sandbox.spec import Mode, RunSpec
from ollmsandbox.ui.changes import view as changes_view
from ollmsandbox.ui.changes.model import FileItem, RunItem
from ollmsandbox.ui.changes.rows import FileRow, IgnoredRow, RunRow
from ollmsandbox.ui.changes.text import busy_text
from ollmsandbox.ui.diff.view import DiffView


def test_runs_are_listed_with_the_files_of_the_newest(pane: Pane) -> None:
    pane.run("echo 1 > first")
    pane.show_run("echo 2 > '<b>bold&'; chmod +x '<b>bold&'")
    wait_until(lambda: [says(r, "bold") for r in all_of(pane.view, RunRow)] == [True, False])
    wait_until(lambda: all_of(pane.view, FileRow))
    (shown,) = all_of(pane.view, FileRow)
    assert says(shown, "New executable")
    # Not as markup.
    assert "<b>bold&" in texts(shown)
    assert pane.counts[-1] == 0
    pane.open("<b>bold&")


def test_a_list_that_is_filled_again_while_it_becomes_shorter_is_complete(pane: Pane) -> None:
    pane.show_run("for i in $(seq 300); do echo > file$i; done")
    wait_until(lambda: pane.view.count > 300)
    pane.run("echo > last")
    pane.view.refresh()
    wait_until(lambda: pane.view.count < 220)
    pane.view.refresh()
    wait_until(lambda: "echo > last" in _commands(pane) and pane.view.count > 300)


def test_a_session_shows_its_own_changes_and_the_whole_project_on_request(pane: Pane) -> None:
    pane.run("echo 1 > other", session="first")
    pane.run("echo 2 > held", Mode.REVIEW, session="first")
    pane.run("echo 3 > own", session="second")
    pane.view.show_project(str(pane.person.project), "second")
    # What is pending needs a decision in whichever session it was made.
    wait_until(lambda: _commands(pane) == ["echo 2 > held", "echo 3 > own"])
    pane.view.project_button.set_active(True)
    wait_until(lambda: "echo 1 > other" in _commands(pane))
    pane.view.show_project(str(pane.person.project), "third")
    wait_until(lambda: _commands(pane) == ["echo 2 > held"])
    press(pane.view, "Discard")
    wait_until(lambda: says(pane.view, "No Changes Yet"))


def test_a_run_is_titled_by_what_the_model_said(pane: Pane) -> None:
    history = History(pane.manager)
    history.create(SessionInfo("one", "A talk", str(pane.person.project), "", "", 1.0, 1.0))
    call = ToolCall("1", "run_command", {"command": "echo 1 > file"})
    for number, message in enumerate(
        (
            Message(Role.USER, "Please fix it."),
            Message(Role.ASSISTANT, "All tests pass.\n\n## I will **write** the `file`:\nNow."),
            Message(Role.ASSISTANT, "", calls=(call,)),
        )
    ):
        history.write("one", StoredMessage(number, message))
    pane.run("echo 1 > file", session="one")
    pane.run("echo 2 > file", session="another")
    pane.show()
    wait_until(lambda: len(all_of(pane.view, RunRow)) == 2)
    silent, spoken = all_of(pane.view, RunRow)
    assert texts(spoken)[:2] == ["I will write the file", "echo 1 > file"]
    assert texts(silent)[0] == "echo 2 > file"
    assert spoken.name.startswith("I will write the file. ")


def test_deletions_come_first_and_what_git_writes_for_itself_last(pane: Pane) -> None:
    for name in ("b", "z"):
        (pane.person.project / name).write_text("old")
    pane.person.run_outside("git init -q .", cwd=pane.person.project, check=True)
    pane.show_run("echo 1 > a; echo new > b; rm z; git add a")
    wait_until(lambda: len(all_of(pane.view, FileRow)) == 5)
    rows = [item.recorded.change.path for item in pane.view.items if isinstance(item, FileItem)]
    assert rows[:4] == ["z", "a", "b", ".git/index"]


def test_earlier_changes_are_shown_before_they_are_applied_along(pane: Pane) -> None:
    file = pane.person.project / "both"
    pane.run("echo 1 > both", Mode.REVIEW)
    pane.show_run("echo 2 > both", Mode.REVIEW)
    wait_until(lambda: buttons(pane.view).count("Apply") == 2)
    for answer in ("cancel", "confirm"):
        applies = [one for one in all_of(pane.view, Gtk.Button) if texts(one)[:1] == ["Apply"]]
        applies[0].emit("clicked")
        asked = dialog()
        assert asked.get_body().endswith("\nboth")
        assert not file.exists()
        asked.response(answer)
        wait_until(lambda: not dialogs() and not pane.view.progress.is_working)
    assert file.read_text() == "2\n"


def test_one_hunk_is_undone(pane: Pane) -> None:
    file, page, shown = pane.two_parts()
    undo = [one for one in all_of(shown, Gtk.Button) if texts(one) == ["Undo"]]
    assert len(undo) == 2
    assert undo[1].grab_focus()
    undo[1].emit("clicked")
    wait_until(lambda: "Redo" in buttons(shown))
    assert "line 33\n" in file.read_text() and "changed 3\n" in file.read_text()
    # It is still there, where the user reads, and so is the keyboard.
    assert page.diff is shown
    window = page.get_root()
    assert isinstance(window, Gtk.Window)
    wait_until(lambda: texts(window.get_focus() or page) == ["Redo"])
    press(shown, "Redo")
    wait_until(lambda: "Redo" not in buttons(shown))
    assert "changed 33\n" in file.read_text()
    pane.run("sed -i 's/changed 33/something else/' text")
    pane.view.refresh()
    wait_until(lambda: says(page, "Edited since"))
    assert buttons(shown).count("Undo") == 1


def test_one_pending_hunk_is_applied_and_can_be_undone(pane: Pane) -> None:
    file, page, shown = pane.two_parts(Mode.REVIEW)
    apply = [one for one in all_of(shown, Gtk.Button) if texts(one) == ["Apply"]]
    assert apply[1].grab_focus()
    apply[1].emit("clicked")
    wait_until(lambda: "changed 33\n" in file.read_text())
    assert "line 3\n" in file.read_text()
    window = page.get_root()
    assert isinstance(window, Gtk.Window)
    # The page shows all that the command did, and what became of it.
    wait_until(lambda: buttons(shown)[:4] == ["Apply", "Discard", "Apply", "Undo"])
    wait_until(lambda: texts(window.get_focus() or page) == ["Undo"])
    focus = window.get_focus()
    assert focus is not None and focus.is_ancestor(shown)
    press(shown, "Undo")
    wait_until(lambda: "line 33\n" in file.read_text())


def test_one_pending_hunk_is_discarded_and_the_rest_is_applied(pane: Pane) -> None:
    file, page, shown = pane.two_parts(Mode.REVIEW)
    shown.emit("section-action", 0, "discard")
    wait_until(lambda: says(page, "Discarded"))
    assert says(page, "changed 3\n")
    assert buttons(shown)[:4] == ["Apply", "Discard", "Apply", "Discard"]
    # It is one file as before, and one row.
    wait_until(lambda: pane.view._tasks.is_idle)
    assert set(pane.counts) == {1}
    assert [one.pending for one in pane.view._found.runs] == [1]
    wait_until(lambda: "Apply" in buttons(page.verbs))
    press(page.verbs, "Apply")
    wait_until(lambda: "changed 33\n" in file.read_text())
    assert "line 3\n" in file.read_text()


def test_a_conflict_shows_both_and_leaves_the_choice(pane: Pane) -> None:
    file = pane.person.project / "file"
    file.write_text("before\n")
    pane.run("echo theirs > file", Mode.REVIEW)
    file.write_text("mine\n")
    pane.show()
    press(pane.view, "Apply")
    wait_until(lambda: says(pane.view, "1 conflict"))
    page = pane.open("file")
    wait_until(lambda: page.sides.get_visible())
    assert page.conflict.get_visible()
    assert file.read_text() == "mine\n"
    for side, lines in (
        (page.theirs_button, ("-before", "+theirs")),
        (page.mine_button, ("-before", "+mine")),
        (page.merged_button, (" mine", "+theirs")),
    ):
        side.set_active(True)
        assert _compared(loaded(page)) == lines
    press(page, "Use the Agent's")
    wait_until(lambda: file.read_text() == "theirs\n")


def test_the_users_own_edit_is_the_choice_at_hand(pane: Pane) -> None:
    file = pane.person.project / "file"
    file.write_text("before\n")

    def edit() -> None:
        file.write_text("mine\n")
        os.utime(file, (0, time.mktime((2001, 2, 3, 14, 2, 0, 0, 0, -1))))

    finish(_run_while(pane.person, "echo theirs > file", edit))
    pane.show()
    page = pane.open("file")
    wait_until(lambda: says(page.choices, "Edited: 3 February 2001"))
    assert "Keep Mine" in texts(pane.window.get_focus() or page)
    # What it was before is not kept.
    assert _compared(loaded(page)) == ("-mine", "+theirs")
    assert not page.mine_button.get_visible()
    assert not [one for one in all_of(page, Gtk.Button) if one.has_css_class("suggested-action")]
    press(page, "Keep Mine")
    wait_until(lambda: says(pane.view, "Discarded"))
    assert file.read_text() == "mine\n"


def test_hunks_beside_the_users_edit_are_applied(pane: Pane) -> None:
    file = pane.person.project / "text"
    file.write_text(LONG)
    command = "sed -i -e 's/line 3$/theirs 3/' -e 's/line 33/theirs 33/' text"
    pane.run(command, Mode.REVIEW)
    file.write_text(LONG.replace("line 3\n", "mine 3\n"))
    pane.show()
    press(pane.view, "Apply")
    wait_until(lambda: says(pane.view, "1 conflict"))
    page = pane.open("text")
    shown = loaded(page)
    assert says(shown, "You also edited these lines")
    press(shown, "Apply")
    wait_until(lambda: "theirs 33\n" in file.read_text())
    assert "mine 3\n" in file.read_text()
    wait_until(lambda: "Undo" in buttons(shown))
    # The rest is still to be decided.
    assert page.recorded.state is State.CONFLICT


def test_a_held_file_is_not_suggested(pane: Pane) -> None:
    pane.show_run("echo 1 > plain", Mode.REVIEW)
    wait_until(lambda: pane.view.apply_all.has_css_class("suggested-action"))
    pane.run("git init -q . 2>/dev/null; echo 1 > .git/hooks/pre-commit", Mode.REVIEW)
    pane.view.refresh()
    wait_until(lambda: not pane.view.apply_all.has_css_class("suggested-action"))
    wait_until(lambda: len(all_of(pane.view, RunRow)) == 2)
    held, plain = (
        next(one for one in all_of(row, Gtk.Button) if "Apply" in texts(one))
        for row in all_of(pane.view, RunRow)
    )
    assert plain.has_css_class("suggested-action")
    assert not held.has_css_class("suggested-action")
    page = pane.open(".git/hooks/pre-commit")
    assert not button(page, "Apply").has_css_class("suggested-action")


def test_files_are_decided_one_by_one_and_buttons_say_for_how_many(pane: Pane) -> None:
    pane.show_run("echo 1 > one; echo 2 > two; echo 3 > three", Mode.REVIEW)
    wait_until(lambda: {"Apply", "Discard"} < set(buttons(pane.view)))
    assert says(pane.view, "3 pending files") and pane.counts[-1] == 3
    page = pane.open("one")
    press(page, "Apply")
    wait_until((pane.person.project / "one").exists)
    press(page, "All Changes")
    wait_until(lambda: "Undo 1 File" in buttons(pane.view))
    assert {"Apply 2 Files", "Discard 2 Files"} < set(buttons(pane.view))
    page = pane.open("two")
    press(page, "Discard")
    wait_until(lambda: pane.counts[-1] == 1)
    assert os.listdir(pane.person.project) == ["one"]
    # After all, it is applied.
    wait_until(lambda: "Apply" in buttons(page))
    press(page, "Apply")
    wait_until((pane.person.project / "two").exists)
    wait_until(lambda: "Undo" in buttons(page))


def test_applied_is_shown_only_where_something_is_not(pane: Pane) -> None:
    pane.show_run("mkdir src; echo 1 > src/one; echo 2 > src/two")
    wait_until(lambda: len(all_of(pane.view, FileRow)) == 2)
    row = all_of(pane.view, FileRow)[0]
    # One line: the folder is beside the name.
    assert texts(row)[0] == "one  src/"
    assert not says(pane.view, "Applied")
    page = pane.open("src/one")
    assert not says(page, "Applied")
    press(page, "Undo")
    wait_until(lambda: "Redo" in buttons(page))
    page.back_button.emit("clicked")
    wait_until(lambda: says(pane.view, "Applied") and says(pane.view, "Undone"))


def test_no_button_takes_the_place_of_its_opposite_after_undo_and_redo(pane: Pane) -> None:
    file = pane.person.project / "file"
    file.write_text("old\n")
    pane.show_run("echo new > file")
    wait_until(lambda: pane.view._tasks.is_idle)
    draw_frames(pane.window)
    undo = button(pane.view, "Undo")
    at = _place(undo, pane.window)
    undo.emit("clicked")
    wait_until(lambda: "Redo" in buttons(pane.view) and pane.view._tasks.is_idle)
    assert file.read_text() == "old\n" and says(pane.view, "undone")
    draw_frames(pane.window)
    assert not button(pane.view, "Undo").get_sensitive()
    assert _place(button(pane.view, "Undo"), pane.window) == at
    assert _place(button(pane.view, "Redo"), pane.window) != at
    page = pane.open("file")
    wait_until(lambda: buttons(page.verbs)[-2:] == ["Redo", "Undo"])
    assert not button(page.verbs, "Undo").get_sensitive()
    assert buttons(loaded(page))[:2] == ["Undo", "Redo"]
    press(page.verbs, "Redo")
    wait_until(lambda: file.read_text() == "new\n")
    # Each is confirmed.
    wait_until(lambda: len(pane.told) == 2)


def test_of_two_versions_made_at_once_the_one_not_chosen_is_a_conflict(pane: Pane) -> None:
    file = pane.person.project / "file"
    file.write_text("old\n")
    recorder = Recorder(RunSpec(str(pane.person.project), mode=Mode.REVIEW), pane.person.paths)
    with contextlib.suppress(LeftBehind):
        finish(pane.person.bubble(keeper=Leaver(recorder)).exec("echo 2 > file"))
    pane.run("echo 1 > file", Mode.REVIEW)
    # The one that began first ends last.
    [overlay] = leftovers(pane.person.paths.cache, print)
    recorder.settle(overlay)
    overlay.cleanup()
    with closing(Review(pane.person.paths)) as review:
        project = review.manager.find_project(pane.person.project)
        assert project is not None
        first, second = review.waiting(project)
        review.apply(first)
        assert file.read_text() == "1\n"
        [left] = review.apply(second).changes
        assert left.state is State.CONFLICT
    pane.show()
    page = pane.open("file")
    assert page.conflict.get_visible()
    wait_until(lambda: "Keep Mine" in texts(page))
    press(page, "Use the Agent's")
    wait_until(lambda: file.read_text() == "2\n")


def test_an_earlier_version_comes_back(pane: Pane) -> None:
    file = pane.person.project / "file"
    file.write_text("first\n")
    pane.run("echo second > file")
    pane.show_run("echo third > file")
    page = pane.open("file")
    wait_until(lambda: page.versions_button.get_visible())
    popover = popover_of(page.versions_button)
    popover.popup()
    restores = [text for text in texts(popover) if text.startswith("Until")]
    assert len(restores) == 2
    buttons = [one for one in all_of(popover, Gtk.Button) if "Restore" in texts(one)]
    buttons[-1].emit("clicked")
    wait_until(lambda: file.read_text() == "first\n")


def test_a_file_shows_the_number_of_added_and_removed_lines(pane: Pane) -> None:
    (pane.person.project / "file").write_text("one\ntwo\nthree\n")
    pane.show_run("printf 'one\\n2\\nthree\\nfour\\n' > file; echo 1 > new; printf '\\0' > raw")
    wait_until(lambda: len(all_of(pane.view, FileRow)) == 3)
    rows = {row.item.recorded.change.path: row for row in all_of(pane.view, FileRow)}
    wait_until(lambda: says(rows["file"], "+2"))
    assert says(rows["file"], "\N{MINUS SIGN}1")
    wait_until(lambda: says(rows["new"], "+1"))
    assert not says(rows["new"], "\N{MINUS SIGN}")
    assert not says(rows["raw"], "+")


def test_lines_are_counted_for_what_is_in_sight_only(pane: Pane) -> None:
    pane.show_run("for i in $(seq 110 199); do echo 1 > f$i; done")
    wait_until(lambda: len(pane.view.items) == 91)

    def is_counted(name: str) -> bool:
        rows = [r for r in all_of(pane.view, FileRow) if r.item.recorded.change.path == name]
        return any(says(row, "+1") for row in rows)

    wait_until(lambda: is_counted("f110"))
    pane.wait_idle()
    assert not is_counted("f199")
    scrolled = pane.view.list_view.get_vadjustment()
    assert scrolled is not None
    scrolled.set_value(scrolled.get_upper())
    wait_until(lambda: is_counted("f199"))


def test_a_run_is_opened_and_closed_and_what_is_the_same_stays(pane: Pane) -> None:
    pane.show_run("touch a b c")
    wait_until(lambda: len(pane.view.items) == 4)
    pane.wait_idle()
    files = pane.view.items[1:]
    pane.view.refresh()
    pane.wait_idle()
    assert pane.view.items[1:] == files
    pane.view.list_view.emit("activate", 0)
    wait_until(lambda: len(pane.view.items) == 1)
    pane.wait_idle()
    pane.view.list_view.emit("activate", 0)
    wait_until(lambda: len(pane.view.items) == 4)


def test_a_run_whose_row_is_made_anew_before_it_is_seen_gets_the_focus(pane: Pane) -> None:
    # As long as the page is in front that says so, no row is seen.
    pane.view.show_project(str(pane.person.project))
    wait_until(lambda: says(pane.view, "No Changes Yet"))
    pane.run("echo 1 > a")
    pane.run("echo 2 > b")
    newest, oldest = pane.manager.runs(None, -1)
    pane.view.filter.grab_focus()
    rows = pane.view.list_view.get_model()
    assert rows is not None

    def undo_elsewhere(*_changed: object) -> None:
        rows.disconnect(handler)
        with closing(Review(pane.person.paths)) as review:
            review.undo(oldest)
        pane.view.refresh()

    handler = rows.connect("items-changed", undo_elsewhere)
    pane.view.select_run(newest.id)
    wait_until(lambda: _run_with_keyboard(pane) is not None)
    assert "Redo" in buttons(pane.view)


def test_a_run_gets_the_focus_of_a_removed_row(pane: Pane) -> None:
    pane.run("echo 1 > a")
    pane.show_run("echo 2 > b")
    pane.wait_idle()
    # As in a pane that is about to be opened.
    pane.view.set_child_visible(False)
    pane.view.focus()
    rows = pane.view.list_view.get_model()
    assert rows is not None
    rows.connect("items-changed", lambda *_changed: pane.view.set_child_visible(True))
    wanted = pane.manager.runs(None, -1)[1]
    pane.view.select_run(wanted.id)
    pane.wait_idle()
    wait_until(lambda: (row := _run_with_keyboard(pane)) and wanted.command in texts(row))


def test_a_run_keeps_the_focus_while_the_rest_loads(
    pane: Pane, monkeypatch: pytest.MonkeyPatch
) -> None:
    pane.show_run("echo 1 > a")
    pane.wait_idle()
    pane.view.filter.grab_focus()
    # It never comes.
    monkeypatch.setattr(changes_view, "_PAUSE", 3600)
    pane.view.select_run(pane.manager.runs(None, -1)[0].id)
    wait_until(lambda: _run_with_keyboard(pane) is not None)
    row = _run_with_keyboard(pane)
    monkeypatch.setattr(changes_view, "_PAUSE", 0)
    pane.view.refresh()
    pane.wait_idle()
    assert row is not None and row.get_mapped()


def test_older_runs_are_loaded_on_demand(pane: Pane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_view, "_PIECE", 2)
    pane.run("echo 0 > waits", Mode.REVIEW)
    for number in range(1, 6):
        pane.run(f"echo {number} > file{number}")
    pane.show()
    # What waits, however old it is, before the two newest.
    wait_until(lambda: _commands(pane) == ["echo 0 > waits", *_made(5, 4)])
    assert pane.counts[-1] == 1
    oldest = pane.manager.runs(None, -1)[-2].id
    pane.view.select_run(oldest)
    wait_until(lambda: _commands(pane) == ["echo 0 > waits", *_made(5, 4, 1)])
    press(pane.view, "Show Older")
    wait_until(lambda: _commands(pane) == ["echo 0 > waits", *_made(5, 4, 3, 2, 1)])
    press(pane.view, "Show Older")
    wait_until(lambda: not pane.view.older.get_visible())


def test_all_pending_changes_are_counted_and_applied_whatever_the_filter(pane: Pane) -> None:
    project = pane.person.project
    for command in ("echo 1 > apple", "echo 2 > pear", "echo 3 > pear"):
        pane.run(command, Mode.REVIEW)
    pane.show()
    assert says(pane.view, "3 pending files")
    pane.view.filter.set_text("apple")
    wait_until(lambda: len(all_of(pane.view, RunRow)) == 1)
    assert says(pane.view, "3 pending files")
    pane.view.filter.set_text("nothing like it")
    wait_until(lambda: says(pane.view, "No Results Found"))
    assert pane.counts[-1] == 3
    press(pane.view, "Apply All")
    wait_until(lambda: pane.counts[-1] == 0)
    assert (project / "apple").exists() and (project / "pear").read_text() == "3\n"
    wait_until(lambda: len(pane.told) == 1)


def test_an_open_file_follows_what_is_done_elsewhere(pane: Pane) -> None:
    file = pane.person.project / "text"
    file.write_text(LONG)
    pane.show_run("sed -i 's/line 33/changed 33/' text")
    page = pane.open("text")
    shown = loaded(page)
    pane.view.refresh()
    pane.wait_idle()
    # Nothing happened: it is where the user has scrolled to.
    assert page.diff is shown
    review = Review(pane.person.paths)
    review.undo(pane.manager.runs()[0])
    review.close()
    pane.view.refresh()
    wait_until(lambda: says(page, "Undone"))
    assert "Redo" in buttons(page)


def test_nothing_is_begun_while_something_is_changed(pane: Pane) -> None:
    file = pane.person.project / "file"
    file.write_text("old\n")
    pane.run("echo new > file")
    pane.show_run("echo 1 > waits", Mode.REVIEW)
    verbs = ("Undo", "Apply", "Apply All", "Discard All…")
    wait_until(lambda: set(verbs) <= set(buttons(pane.view)))
    with pane.view.progress.working():
        assert not [verb for verb in verbs if button(pane.view, verb).get_sensitive()]
        # Also what comes into the list meanwhile.
        pane.run("echo 2 > second")
        pane.view.refresh()
        wait_until(lambda: len(all_of(pane.view, RunRow)) == 3 and pane.view._tasks.is_idle)
        undo = [one for one in all_of(pane.view, Gtk.Button) if "Undo" in texts(one)]
        assert len(undo) == 2 and not any(one.get_sensitive() for one in undo)
    assert all(one.get_sensitive() for one in undo)
    # Where the keyboard is, it stays.
    undo[1].grab_focus()
    with pane.view.progress.working():
        undo[1].emit("clicked")
    assert pane.told == [busy_text()]
    assert file.read_text() == "new\n"


def _compared(diff: DiffView) -> tuple[str, ...]:
    """Return the lines with their signs, where the text is shown in one column."""
    column = diff._columns[0]
    rows = [column.row(number) for number in range(len(column))]
    return tuple(f"{row.margin[-1]}{row.text}" for row in rows if row.line is not None)


def _place(widget: Gtk.Widget, window: Gtk.Widget) -> tuple[float, float] | None:
    return widget.translate_coordinates(window, 0, 0)


def _commands(pane: Pane) -> list[str]:
    return [item.data.command for item in pane.view.items if isinstance(item, RunItem)]


def _made(*numbers: int) -> list[str]:
    return [f"echo {number} > file{number}" for number in numbers]


async def _run_while(person: Person, command: str, act: Callable[[], object]) -> None:
    """The user does something while the command runs."""
    playground = person.playground
    person.share_playground()
    keeper = Recorder(RunSpec(str(person.project), command=command), person.paths)
    wait = "touch ~/playground/ready; while [ ! -e ~/playground/go ]; do sleep 0.01; done"
    running = asyncio.ensure_future(person.bubble(keeper=keeper).exec(f"{command}; {wait}"))
    while not (playground / "ready").exists():
        assert not running.done()
        await asyncio.sleep(0.01)
    act()
    (playground / "go").touch()
    await running


def _run_with_keyboard(pane: Pane) -> Gtk.Widget | None:
    focus = pane.window.get_focus()
    return focus.get_ancestor(RunRow) if focus is not None else None


_BUILD = "mkdir cache; echo 1 > cache/a.o; echo 2 > cache/b.o; echo 1 > build.o"


def _ignore(person: Person) -> None:
    person.run_outside("git init -q; printf '*.o\\ncache/\\n' > .gitignore")


def _open_ignored(pane: Pane) -> IgnoredRow:
    wait_until(lambda: any(row.get_mapped() for row in all_of(pane.view, IgnoredRow)))
    [row] = all_of(pane.view, IgnoredRow)
    row.arrow.emit("clicked")
    wait_until(lambda: says(pane.view, "a.o  cache/"))
    [row] = all_of(pane.view, IgnoredRow)
    return row


def test_ignored_files_are_one_quiet_line_that_opens(pane: Pane) -> None:
    _ignore(pane.person)
    pane.show_run(f"{_BUILD}; echo 1 > file")
    wait_until(lambda: all_of(pane.view, IgnoredRow))
    [line] = all_of(pane.view, IgnoredRow)
    assert texts(line) == ["3 files that git ignores"]
    assert [row.item.recorded.change.path for row in all_of(pane.view, FileRow)] == ["file"]
    [shown] = all_of(pane.view, RunRow)
    assert " · 1 file" in shown.name
    opened = _open_ignored(pane)
    paths = [row.item.recorded.change.path for row in all_of(pane.view, FileRow)]
    assert paths == ["file", "build.o", "cache/a.o", "cache/b.o"]
    opened.arrow.emit("clicked")
    wait_until(lambda: len(all_of(pane.view, FileRow)) == 1)


def test_ignored_files_are_undone_and_redone_as_one(pane: Pane) -> None:
    _ignore(pane.person)
    pane.run(f"{_BUILD}; echo 1 > file")
    project = pane.person.project
    pane.show()
    press(_open_ignored(pane), "Undo")
    wait_until(lambda: pane.told == ["3 files undone."])
    assert sorted(os.listdir(project)) == [".git", ".gitignore", "file"]
    wait_until(lambda: says(pane.view, "3 files that git ignores · Undone"))
    # The focus stays with the line.
    wait_until(lambda: "Redo" in buttons(all_of(pane.view, IgnoredRow)[0]))
    press(all_of(pane.view, IgnoredRow)[0], "Redo")
    wait_until(lambda: (project / "cache/a.o").exists() and (project / "build.o").exists())


def test_ignored_files_wait_in_review_mode_and_are_decided_as_one(pane: Pane) -> None:
    _ignore(pane.person)
    pane.run(f"{_BUILD}; echo 1 > file", Mode.REVIEW)
    project = pane.person.project
    pane.show()
    wait_until(lambda: pane.view.pending.get_label() == "1 pending file")
    assert pane.counts[-1] == 1
    press(_open_ignored(pane), "Discard")
    wait_until(lambda: says(pane.view, "3 files that git ignores · Discarded"))
    assert pane.view.pending.get_label() == "1 pending file"
    press(all_of(pane.view, IgnoredRow)[0], "Apply")
    wait_until(lambda: (project / "cache/a.o").exists())
    assert not (project / "file").exists()


def test_applying_all_includes_ignored_files(pane: Pane) -> None:
    _ignore(pane.person)
    pane.show_run(_BUILD, Mode.REVIEW)
    # They are no changes to be counted, but they wait.
    wait_until(lambda: pane.view.pending.get_label() == "3 files that git ignores")
    assert pane.view.pending_box.get_visible()
    assert pane.counts[-1] == 0
    pane.view.apply_all.emit("clicked")
    wait_until(lambda: (pane.person.project / "cache/b.o").exists())
    wait_until(lambda: not pane.view.pending_box.get_visible())


def test_a_run_of_ignored_files_alone_is_closed_and_acts_on_them(pane: Pane) -> None:
    _ignore(pane.person)
    pane.show_run(_BUILD)
    [row] = all_of(pane.view, RunRow)
    assert "3 files that git ignores" in row.name
    assert not all_of(pane.view, FileRow)
    # The first run with others opens, though one without was seen.
    pane.run("echo 1 > file")
    pane.view.refresh()
    wait_until(lambda: [row.item.recorded.change.path for row in all_of(pane.view, FileRow)])
    assert says(pane.view, "file")
    row = all_of(pane.view, RunRow)[1]
    press(row, "Undo")
    wait_until(lambda: not (pane.person.project / "cache").exists())
    row = all_of(pane.view, RunRow)[1]
    row.arrow.emit("clicked")
    wait_until(lambda: len(all_of(pane.view, FileRow)) == 4)
    assert not all_of(pane.view, IgnoredRow)


def test_a_held_file_in_an_ignored_folder_is_not_applied_with_the_others(pane: Pane) -> None:
    _ignore(pane.person)
    pane.show_run(f"{_BUILD}; echo 1 > file; echo 1 > cache/.envrc", Mode.REVIEW)
    press(_open_ignored(pane), "Apply")
    wait_until(lambda: (pane.person.project / "cache/b.o").exists())
    assert not (pane.person.project / "cache/.envrc").exists()
    assert pane.counts[-1] == 2
