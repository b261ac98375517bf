# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from gi.repository import GLib, Gtk
from support.person import Person
from support.screen import Screen, texts
from support.window import (
    button,
    buttons,
    card_that,
    finish,
    in_project,
    press,
    says,
    toplevels,
    wait_until,
)

from ollmsandbox.project.recorder import linked_roots
from ollmsandbox.ui.permission.card import ChatPermission
from ollmsandbox.ui.preferences import folders
from ollmsandbox.ui.preferences.folders import FoldersWindow
from ollmsandbox.ui.preferences.window import Preferences
from ollmsandbox.ui.window.window import Window


def test_a_folder_is_opened_on_its_card_and_removed_in_a_menu(
    screen: Screen, person: Person
) -> None:
    other = _linked(person)
    with in_project(person) as (window, session):
        running = asyncio.ensure_future(session.conversation.run("touch link/a"))
        card = _question(window)
        assert buttons(card) == ["Deny", "Allow for This Project"]
        said = " ".join(texts(card))
        assert str(other) in said
        assert "~/project/link" in said
        assert "“Opened Folders”" in said
        assert "once" not in said.lower()
        assert "every time" not in said
        wait_until(lambda: button(card, "Allow for This Project").get_sensitive())
        wait_until(lambda: card.is_at_rest)
        press(card, "Allow for This Project")
        wait_until(running.done)
        finish(session.conversation.run("touch link/a"))
        assert (other / "a").exists()
        opened = _show_folders(window, person)
        wait_until(lambda: says(opened, str(other)))
        press(opened, "Remove other")
        wait_until(lambda: says(opened, "No opened folders"))
        assert linked_roots(person.paths, str(person.project)) == ()
        opened.close()


def test_a_folder_is_opened_in_the_projects_menu_and_removed_in_the_preferences(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = _linked(person)
    secret = person.home / ".ssh"
    secret.mkdir()
    chosen = [str(secret), str(other)]

    async def choose_folder(_parent: Gtk.Window, _title: str) -> str:
        return chosen.pop(0)

    monkeypatch.setattr(folders, "choose_folder", choose_folder)
    with in_project(person) as (window, _session):
        opened = _show_folders(window, person)
        wait_until(lambda: says(opened, "No opened folders"))
        press(opened, "Open…")
        wait_until(lambda: says(opened, "cannot be opened to commands"))
        press(opened, "Open…")
        wait_until(lambda: says(opened, str(other)))
        assert linked_roots(person.paths, str(person.project)) == (str(other),)
        opened.close()
        other.rename(person.home / "moved")
        window.activate_action("win.preferences", None)
        wait_until(lambda: toplevels(Preferences))
        [preferences] = toplevels(Preferences)
        preferences.set_visible_page(preferences.safety)
        wait_until(lambda: says(preferences.safety, str(other)))
        assert says(preferences.safety, "project · Folder not found")
        press(preferences.safety, "Remove other")
        wait_until(lambda: says(preferences.safety, "No opened folders"))
        preferences.close()
        wait_until(lambda: not preferences.get_mapped())


def _linked(person: Person) -> Path:
    """Return a folder outside the project that `link` in the project leads to."""
    other = person.home / "other"
    other.mkdir()
    (person.project / "link").symlink_to(other)
    return other


def _question(window: Window) -> ChatPermission:
    card = card_that(window, lambda card: card.question is not None)
    assert card.question is not None
    return card.question


def _show_folders(window: Window, person: Person) -> FoldersWindow:
    target = GLib.Variant.new_bytestring(os.fsencode(person.project))
    window.sidebar.activate_action("sidebar.show-folders", target)
    wait_until(lambda: toplevels(FoldersWindow))
    return toplevels(FoldersWindow)[0]
