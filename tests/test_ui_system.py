# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of the preferences for Alpine: it is installed, chosen for a project, and removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import Person
from gi.repository import Adw, Gtk
from rootfs_helper import VERSION, Mirror, mirror, system
from ui_helper import Screen, all_of
from window_helper import press, running_loop, says, wait_until

from ollmsandbox.project.manager import ProjectManager
from ollmsandbox.project.system import System, system_of
from ollmsandbox.sandbox import rootfs_settings
from ollmsandbox.ui.preferences_system import SystemPage
from ollmsandbox.ui.tasks import Tasks


@pytest.fixture
def served(person: Person) -> Iterator[Mirror]:
    with mirror() as made:
        made.has(VERSION, system())
        rootfs_settings.save(person.paths.config, made.settings)
        yield made


def test_alpine_is_installed_used_and_removed(
    screen: Screen, person: Person, served: Mirror
) -> None:
    told: list[str] = []
    manager = ProjectManager(person.paths)
    project = manager.add_project(person.project).path
    with running_loop():
        window = Adw.PreferencesWindow()
        tasks = Tasks(told.append)
        page = SystemPage(person.paths, person.environ, manager, tasks)
        window.add(page)
        window.present()
        wait_until(lambda: says(page, "Not installed"))
        next(r for r in all_of(page, Adw.ComboRow) if says(r, "Programs in It")).set_selected(0)
        press(page, "Install")
        wait_until(lambda: says(page, f"Alpine {VERSION}"))
        assert told == [f"Alpine {VERSION} is installed."]

        row = next(r for r in all_of(page, Adw.ComboRow) if says(r, person.project.name))
        row.set_selected(1)
        wait_until(lambda: system_of(person.paths, project) is System.ALPINE)

        press(page, "Remove Alpine")
        wait_until(lambda: _questions())
        _questions()[0].response("remove")
        wait_until(lambda: says(page, "Not installed"))
        wait_until(lambda: tasks.is_idle)
        window.destroy()
    manager.close()


def test_a_mirror_that_does_not_answer_is_said_in_words(screen: Screen, person: Person) -> None:
    settings = rootfs_settings.load(person.paths.config).with_value("mirror", "http://127.0.0.1:9")
    rootfs_settings.save(person.paths.config, settings)
    told: list[str] = []
    manager = ProjectManager(person.paths)
    with running_loop():
        window = Adw.PreferencesWindow()
        tasks = Tasks(told.append)
        page = SystemPage(person.paths, person.environ, manager, tasks)
        window.add(page)
        window.present()
        wait_until(lambda: says(page, "Not installed"))
        press(page, "Install")
        wait_until(lambda: told)
        assert "rootfs install --from" in told[0]
        wait_until(lambda: tasks.is_idle)
        window.destroy()
    manager.close()


def _questions() -> list[Adw.MessageDialog]:
    return [w for w in Gtk.Window.list_toplevels() if isinstance(w, Adw.MessageDialog)]
