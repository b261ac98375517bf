# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.person import ROOT, Person
from support.screen import Screen, popover_of, texts
from support.scripted import ScriptedModel, call
from support.servers.bus import private_bus, service_on
from support.timing import PATIENCE
from support.window import (
    allow_once,
    controller_of,
    finish,
    open_session,
    program,
    says,
    wait_until,
    window_of,
)

from ollmsandbox.ui.badge.badge import SandboxState
from ollmsandbox.ui.window.window import Window


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


def wait_for_badge(window: Window, state: SandboxState) -> None:
    wait_until(lambda: window.badge.state is state)


def popover_texts(window: Window) -> list[str]:
    return texts(popover_of(window.badge))


def network_in_popover(window: Window) -> str:
    """Return the first word about the network: "On." or "Off,"."""
    told = popover_texts(window)
    return told[told.index("Network") + 1].split()[0]


def test_an_inner_sandbox_and_its_network_are_mentioned(screen: Screen, person: Person) -> None:
    with window_in_flatpak(person) as window:
        assert says(window.welcome, "Flatpak")
        assert window.badge.state is SandboxState.ASKING
        session = open_session(window, person.project)
        wait_for_badge(window, SandboxState.INNER)
        assert says(window.chat, "cannot undo")
        headings = {"Asks each time", "Can write", "Network", "Limits"}
        assert headings <= set(popover_texts(window))
        assert network_in_popover(window) == "Off,"
        assert any("cannot be limited to hosts" in text for text in popover_texts(window))
        waiting = "until [ -e go ]; do sleep 0.05; done"
        talk = session.conversation
        talk.use_model(ScriptedModel([call(command=waiting, network=True)]))
        running = asyncio.ensure_future(talk.say("Go on"))
        card = allow_once(window)
        assert says(card, "inner sandbox") and says(card, "On, to all hosts")
        wait_for_badge(window, SandboxState.INNER_NETWORK)
        (person.project / "go").touch()
        finish(asyncio.wait_for(running, PATIENCE))
        wait_for_badge(window, SandboxState.INNER)
        shutil.rmtree(person.project)
        controller_of(window).badge.look_again()
        wait_for_badge(window, SandboxState.BROKEN)


@pytest.mark.parametrize(
    ("fault", "why", "network"),
    [("forget-folders", "read-only", "Off,"), ("refuse", "refused", "On.")],
)
def test_a_missing_inner_sandbox_is_reported_with_the_reason(
    screen: Screen, person: Person, fault: str, why: str, network: str
) -> None:
    with window_in_flatpak(person, fault) as window:
        controller_of(window).open_project(str(person.project))
        wait_for_badge(window, SandboxState.NONE)
        assert any(why in text for text in popover_texts(window))
        assert network_in_popover(window) == network
