# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from gi.repository import Adw, Gtk
from support.person import Person
from support.rootfs import VERSION, Mirror, mirror, system
from support.screen import Screen, all_of
from support.timing import PATIENCE
from support.window import (
    card_that,
    cards,
    dialog,
    dialogs,
    finish,
    in_project,
    press,
    running_loop,
    says,
    wait_until,
)

from ollmsandbox.engine.system import System, set_system
from ollmsandbox.sandbox.rootfs.settings import load_rootfs_settings, save_rootfs_settings
from ollmsandbox.ui.preferences.system import SystemPage
from ollmsandbox.ui.widgets.tasks import Tasks


@pytest.fixture
def served(person: Person) -> Iterator[Mirror]:
    with mirror() as made:
        made.has(VERSION, system())
        save_rootfs_settings(person.paths.config, made.settings)
        yield made


@contextmanager
def shown(person: Person, told: list[str]) -> Iterator[SystemPage]:
    with running_loop():
        window = Adw.PreferencesWindow()
        tasks = Tasks(told.append)
        page = SystemPage(person.paths, person.environ, tasks)
        window.add(page)
        window.present()
        wait_until(lambda: tasks.is_idle)
        yield page
        wait_until(lambda: tasks.is_idle)
        window.destroy()


def row_of(page: SystemPage, title: str) -> Adw.ComboRow:
    return next(row for row in all_of(page, Adw.ComboRow) if row.get_title() == title)


def entry_of(page: SystemPage, title: str) -> Adw.EntryRow:
    return next(row for row in all_of(page, Adw.EntryRow) if says(row, title))


def test_alpine_is_installed_and_removed(screen: Screen, person: Person, served: Mirror) -> None:
    told: list[str] = []
    with shown(person, told) as page:
        assert says(page, "Not installed")
        # What the person has set.
        assert row_of(page, "Programs").get_selected() == 1
        row_of(page, "Programs").set_selected(0)
        press(page, "Install")
        wait_until(lambda: says(page, f"Alpine {VERSION}"))
        assert [VERSION in text for text in told] == [True]

        press(page, "Remove Alpine")
        dialog().response("confirm")
        wait_until(lambda: says(page, "Not installed"))


def test_a_download_is_cancelled_at_once(screen: Screen, person: Person, served: Mirror) -> None:
    asked, answers = threading.Event(), threading.Event()

    def stall(path: str) -> None:
        if path.endswith(".tar.gz"):
            asked.set()
            answers.wait(PATIENCE)

    served.when = stall
    told: list[str] = []
    with shown(person, told) as page:
        press(page, "Install")
        wait_until(lambda: says(page, "Downloading") and asked.is_set())
        assert all_of(page, Gtk.ProgressBar)[0].get_mapped()
        press(page, "Cancel")
        # The mirror has not answered yet.
        wait_until(lambda: says(page, "Not installed"))
        assert not answers.is_set()
        assert not all_of(page, Gtk.ProgressBar)[0].get_mapped()
        answers.set()
        row_of(page, "Programs").set_selected(0)
        press(page, "Install")
        wait_until(lambda: says(page, f"Alpine {VERSION}"))
    assert [VERSION in text for text in told] == [True]


def test_a_window_closed_meanwhile_asks_first(
    screen: Screen, person: Person, served: Mirror
) -> None:
    answers = threading.Event()
    served.when = lambda path: path.endswith(".tar.gz") and answers.wait(PATIENCE)
    with shown(person, []) as page:
        window = page.get_root()
        assert isinstance(window, Gtk.Window)
        row_of(page, "Programs").set_selected(0)
        press(page, "Install")
        wait_until(lambda: says(page, "Downloading"))
        window.close()
        asked = dialog()
        assert window.get_mapped()
        asked.response("cancel")
        wait_until(lambda: not dialogs())
        answers.set()
        wait_until(lambda: says(page, f"Alpine {VERSION}"))
        # Nothing is under way any more, so it closes without a question.
        window.close()
        wait_until(lambda: not window.get_mapped())
    assert dialogs() == []


def test_an_error_stays_until_the_next_action(
    screen: Screen, person: Person, served: Mirror
) -> None:
    told: list[str] = []
    with shown(person, told) as page:
        mirror_row = entry_of(page, "Mirror")
        mirror_row.set_text("nonsense")
        mirror_row.emit("apply")
        wait_until(lambda: says(page, "'nonsense' is not a valid mirror"))
        mirror_row.set_text("http://127.0.0.1:9")
        mirror_row.emit("apply")
        wait_until(lambda: not says(page, "nonsense' is not"))
        assert load_rootfs_settings(person.paths.config).mirror == "http://127.0.0.1:9"

        press(page, "Install")
        wait_until(lambda: says(page, "No server"))
        assert says(page, "rootfs install --from FILE")
        assert says(page, "Not installed")
        assert told == []


@pytest.mark.parametrize("wrong", ["settings", "folder"])
def test_a_page_without_a_known_state_says_why(screen: Screen, person: Person, wrong: str) -> None:
    if wrong == "settings":
        person.paths.config.mkdir(parents=True)
        (person.paths.config / "rootfs.yaml").write_text("mirror: file:///etc\n")
    else:
        person.environ["ROOTFS_DIR"] = "/nowhere"
    with shown(person, []) as page:
        assert says(
            page, "rootfs.yaml" if wrong == "settings" else "ROOTFS_DIR is not a root file system"
        )
        assert says(page, "Unknown")


def test_the_first_command_of_a_project_shows_the_installation_and_can_be_stopped(
    screen: Screen, person: Person, served: Mirror
) -> None:
    answers = threading.Event()

    def stall(path: str) -> None:
        if path.endswith(".tar.gz"):
            answers.wait(PATIENCE)

    served.when = stall
    save_rootfs_settings(person.paths.config, replace(served.settings, tier=0))
    set_system(person.paths, os.path.realpath(person.project), System.ALPINE)
    with in_project(person) as (window, session):
        wait_until(lambda: says(window.badge._sections, "installed with the first command"))
        running = asyncio.ensure_future(session.conversation.run("cat /etc/alpine-release"))
        card = card_that(window, lambda card: says(card, "Alpine: Downloading"))
        wait_until(card.stop_button.get_visible)
        card.stop_button.emit("clicked")
        wait_until(running.done)
        wait_until(lambda: says(card, "Stopped"))
        answers.set()
        finish(session.conversation.run("cat /etc/alpine-release"))
        assert cards(window)[-1].entry.text == VERSION
