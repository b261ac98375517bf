# SPDX-License-Identifier: GPL-3.0-or-later
"""The window in a Flatpak: the badge and the cards show what confines commands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.person import ROOT, Person
from support.screen import Screen, texts
from support.servers.bus import private_bus, service_on
from support.window import allow_once, finish, program, says, wait_until, window_of

from ollmsandbox.ui.window.window import Window

NOT_SANDBOXED = "Not sandboxed: asks each time"
CUT_OFF = "Off, unless you allow it for a single command."


@contextmanager
def window_in_flatpak(person: Person, *faults: str) -> Iterator[Window]:
    """Open the window with the portal, or with a faulty one."""
    portal = ROOT / "tests/support/servers/flatpak_portal.py"
    with private_bus() as bus, service_on(bus, portal, str(person.home), *faults):
        person.environ |= {
            "FLATPAK_ID": "org.example.App",
            "DBUS_SESSION_BUS_ADDRESS": bus.address,
        }
        with program(person) as application:
            yield window_of(application)


def wait_for_badge(window: Window, text: str) -> None:
    wait_until(lambda: text in texts(window.badge))


def popover_texts(window: Window) -> list[str]:
    popover = window.badge.get_popover()
    assert popover is not None
    return texts(popover)


def test_an_inner_sandbox_is_mentioned(screen: Screen, person: Person) -> None:
    with window_in_flatpak(person) as window:
        assert says(window.welcome, "In a Flatpak, you will be asked before each command runs.")
        assert "Asks each time" in texts(window.badge)
        window.open_project(str(person.project))
        wait_for_badge(window, "Inner sandbox, no network")
        assert says(window.chat, "You cannot undo its changes.")
        told = popover_texts(window)
        assert "The project and the playground." in told
        assert "In a Flatpak, you will be asked before each command runs." in told
        assert told[told.index("Network") + 1] == CUT_OFF
        assert "Limits" in told


def test_the_badge_says_while_a_command_has_the_network(screen: Screen, person: Person) -> None:
    with window_in_flatpak(person) as window:
        window.open_project(str(person.project))
        wait_for_badge(window, "Inner sandbox, no network")
        assert window.chat.session is not None
        talk = window.chat.session.conversation
        waiting = "until [ -e go ]; do sleep 0.05; done"
        running = asyncio.get_event_loop().create_task(talk.run(waiting, network=True))
        card = allow_once(window)
        assert says(card, "Run command in the Flatpak's inner sandbox, with network access?")
        wait_for_badge(window, "Inner sandbox, network on")
        (person.project / "go").touch()
        finish(asyncio.wait_for(running, 60))
        wait_for_badge(window, "Inner sandbox, no network")


@pytest.mark.parametrize(
    ("fault", "meaning", "why", "network"),
    [
        (
            "forget-folders",
            "Commands can do everything this Flatpak can, except use the network.",
            "The project is read-only in it.",
            CUT_OFF,
        ),
        (
            "refuse",
            "Commands can do everything this Flatpak can.",
            "The Flatpak portal refused",
            "On. It cannot be turned off here.",
        ),
    ],
)
def test_a_missing_inner_sandbox_is_reported_with_the_reason(
    screen: Screen, person: Person, fault: str, meaning: str, why: str, network: str
) -> None:
    with window_in_flatpak(person, fault) as window:
        window.open_project(str(person.project))
        wait_for_badge(window, NOT_SANDBOXED)
        told = popover_texts(window)
        assert meaning in told
        assert any(why in text for text in told)
        assert told[told.index("Network") + 1] == network


def test_a_missing_project_is_reported(screen: Screen, person: Person) -> None:
    with window_in_flatpak(person) as window:
        window.open_project(str(person.project))
        wait_for_badge(window, "Inner sandbox, no network")
        person.project.rmdir()
        window._badge.look_again()
        wait_for_badge(window, "Commands cannot run")
