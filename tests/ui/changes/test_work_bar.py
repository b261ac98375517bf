# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from gi.repository import Gtk
from support.changes_pane import Pane, loaded
from support.screen import Screen, all_of, texts
from support.timing import PATIENCE
from support.window import press, wait_until

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.change import State
from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.ui.changes import actions, versions
from ollmsandbox.ui.changes import page as change_page
from ollmsandbox.ui.changes.actions import act_on_hunks, look
from ollmsandbox.ui.changes.page import ChangePage
from ollmsandbox.ui.widgets.actions import ActionButton
from ollmsandbox.ui.widgets.work_bar import WorkBar


class Slow:
    """Work that blocks until it may go on."""

    def __init__(self, work: Callable[..., object]) -> None:
        self._work = work
        self.calls = 0
        self.may_go_on = threading.Event()

    def __call__(self, *given: object, **named: object) -> object:
        self.calls += 1
        assert self.may_go_on.wait(PATIENCE)
        return self._work(*given, **named)


def test_leaving_the_page_interrupts_nothing(pane: Pane, monkeypatch: pytest.MonkeyPatch) -> None:
    file, left, diff = pane.two_parts()
    slow = Slow(act_on_hunks)
    monkeypatch.setattr(change_page, "act_on_hunks", slow)
    next(one for one in all_of(diff, Gtk.Button) if texts(one) == ["Undo"]).emit("clicked")
    wait_until(lambda: slow.calls)
    pane.view.leave_file()
    assert pane.view.progress.get_visible()
    # The same file once more: nothing can be begun there before that is over.
    page = pane.open("text")
    assert page is not left
    loaded(page)
    assert not any(one.is_sensitive() for one in buttons(page))
    slow.may_go_on.set()
    wait_until(lambda: not pane.view.progress.get_visible() and pane.view._tasks.is_idle)
    assert pane.view.page is page
    assert len(pane.told) == 1
    assert "line 3\n" in file.read_text()
    # It says what became of it, and can be pressed again.
    wait_until(lambda: page.diff is not None and "Redo" in texts(page.diff))
    assert all(one.is_sensitive() for one in buttons(page))


def test_an_older_look_that_comes_late_is_not_shown(
    pane: Pane, monkeypatch: pytest.MonkeyPatch
) -> None:
    _file, page, _diff = pane.two_parts()
    wait_until(lambda: pane.view._tasks.is_idle)
    may_come_back, looked = threading.Event(), threading.Event()

    def slow(*given: object) -> object:
        found = look(*given)  # type: ignore[arg-type]
        looked.set()
        assert may_come_back.wait(PATIENCE)
        return found

    monkeypatch.setattr(change_page, "look", slow)
    pane.view.refresh()
    wait_until(looked.is_set)
    monkeypatch.setattr(change_page, "look", look)
    press(page.verbs, "Undo")
    wait_until(lambda: "Redo" in texts(page.verbs))
    may_come_back.set()
    wait_until(lambda: pane.view._tasks.is_idle)
    assert page.recorded.state is State.UNDONE
    assert "Redo" in texts(page.verbs)


def test_the_bar_is_hidden_when_the_last_task_ends(screen: Screen) -> None:
    bar = WorkBar()
    with bar.during():
        with bar.during():
            pass
        assert bar.get_visible()
    assert not bar.get_visible()
    # Work that ends before the bar's delay never shows it.
    with bar.during(patience=60_000):
        assert not bar.get_visible()


def buttons(page: ChangePage) -> list[Gtk.Button]:
    """Return all buttons that change the file, its hunks or its versions, without what is done."""
    popover = page.versions_button.get_popover()
    assert popover is not None and page.diff is not None
    found = [*all_of(page.verbs, ActionButton), *all_of(page.diff, ActionButton)]
    left: list[Gtk.Button] = [one for one in found if not one.action.is_done]
    left += all_of(popover, Gtk.Button)
    return [one for one in left if texts(one) in (["Undo"], ["Redo"], ["Restore"])]


@pytest.mark.parametrize(
    ("by", "fails"), [("part", False), ("file", False), ("version", False), ("file", True)]
)
def test_work_shows_progress_and_nothing_else_can_be_pressed_meanwhile(
    pane: Pane, monkeypatch: pytest.MonkeyPatch, by: str, fails: bool
) -> None:
    def fail(*_given: object, **_named: object) -> None:
        raise OllmSandboxError("It does not work today.")

    module, name = {
        "part": (change_page, "act_on_hunks"),
        "file": (actions, "act_on_run"),
        "version": (versions, "restore"),
    }[by]
    slow = Slow(fail if fails else getattr(module, name))
    monkeypatch.setattr(module, name, slow)
    _file, page, _diff = pane.two_parts()
    wait_until(lambda: page.versions_button.get_visible() and len(buttons(page)) == 4)
    assert all(one.is_sensitive() for one in buttons(page))
    pressed = buttons(page)[{"file": 0, "part": 1, "version": 3}[by]]
    pressed.grab_focus()
    pressed.emit("clicked")
    # At once, and the keyboard stays where it is.
    assert not any(one.is_sensitive() for one in buttons(page) if one is not pressed)
    assert pressed.is_sensitive() or by == "version"
    for one in buttons(page):
        one.emit("clicked")
    wait_until(lambda: slow.calls and pane.view.progress.get_mapped())
    slow.may_go_on.set()
    wait_until(lambda: pane.view._tasks.is_idle and not pane.view.progress.get_visible())
    assert slow.calls == 1 and not pane.view.progress.is_working
    assert all(one.is_sensitive() for one in buttons(page))


def test_all_is_discarded_where_it_was_asked(pane: Pane, monkeypatch: pytest.MonkeyPatch) -> None:
    view, other = pane.view, pane.person.home / "other"
    other.mkdir()
    for project in (pane.person.project, other):
        pane.run("echo x > new", Mode.REVIEW, project=project)
    answers: list[asyncio.Future[bool]] = []

    async def confirm(*_given: object) -> bool:
        answers.append(asyncio.get_running_loop().create_future())
        return await answers[0]

    monkeypatch.setattr("ollmsandbox.ui.changes.view.confirm", confirm)
    view.show_project(str(pane.person.project))
    wait_until(lambda: view.count > 1)
    view.discard_all.emit("clicked")
    wait_until(lambda: answers)
    view.show_project(str(other))
    wait_until(lambda: view._project == str(other) and view._found.pending == 1)
    answers[0].set_result(True)
    wait_until(lambda: view._tasks.is_idle)
    assert view._found.pending == 1
    view.show_project(str(pane.person.project))
    wait_until(lambda: view._tasks.is_idle)
    assert view._found.pending == 0
