# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gi.repository import Adw, Gtk
from support.person import Person
from support.screen import Screen, all_of, popover_of, texts
from support.window import controller_of, finish, in_project, session_of, wait_until

from ollmsandbox.sandbox.profile.profile import Limits, Profile
from ollmsandbox.sandbox.spec import RunSpec
from ollmsandbox.ui.badge import controller, project
from ollmsandbox.ui.badge.project import ProjectState, limits_without_sandbox, sentences
from ollmsandbox.ui.preferences.safety import LimitsRow
from ollmsandbox.ui.sessions.entries import CallEntry
from ollmsandbox.ui.settings import LIMITS, Settings, own_limits
from ollmsandbox.ui.window.window import Window

MIB = 1 << 20
OF_PROFILE = Limits(time=600, processes=4096, disk=20 << 30, memory=8 << 30, tmp=2 << 30)


@pytest.fixture
def settings(person: Person, without_bus: None) -> Settings:
    return Settings(person.paths)


@pytest.fixture
def group(screen: Screen, settings: Settings) -> LimitsRow:
    made = LimitsRow(settings)
    made.show_profile(OF_PROFILE)
    made.set_expanded(True)
    around = Adw.PreferencesGroup()
    around.add(made)
    screen.show(around)
    return made


def said(widget: Gtk.Widget) -> list[str]:
    """A number and its unit stay on one line."""
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in texts(widget)]


def spin(group: LimitsRow, title: str) -> Gtk.SpinButton:
    row = next(row for row in all_of(group, Adw.ActionRow) if title in texts(row))
    (found,) = all_of(row, Gtk.SpinButton)
    return found


def test_each_limit_is_the_profile_s_until_it_is_set(group: LimitsRow, settings: Settings) -> None:
    assert own_limits(settings) == Limits()
    # In the unit of the row's title.
    for text in ("600", "8,192", "20,480"):
        assert f"Default: {text}" in said(group)
    # The number is not 0, which would look like a limit.
    assert spin(group, "Memory (MiB)").get_text() == "Default"
    assert "No limit" in said(group)
    spin(group, "Memory (MiB)").set_value(512)
    spin(group, "Processes").set_value(40)
    spin(group, "Disk Space Used (MiB)").set_value(3)
    spin(group, "Disk Space Left Free (MiB)").set_value(4)
    spin(group, "Temporary Files (MiB)").set_value(5)
    assert own_limits(settings) == Limits(
        memory=512 * MIB, processes=40, disk=3 * MIB, free=4 * MIB, tmp=5 * MIB
    )
    assert "Default: 8,192" not in said(group)
    spin(group, "Memory (MiB)").set_value(0)
    assert "Default: 8,192" in said(group)


def test_limits_that_prevent_all_commands_are_refused(group: LimitsRow, settings: Settings) -> None:
    memory = spin(group, "Memory (MiB)")
    memory.set_text("a lot")
    memory.update()
    assert (memory.get_text(), settings.get_int("memory-limit")) == ("Default", 0)
    memory.set_text("128")
    memory.update()
    assert settings.get_int("memory-limit") == 128
    memory.set_value(1)
    assert memory.get_value_as_int() == settings.get_int("memory-limit") == 64
    assert "The minimum" in said(group)
    memory.set_value(10**9)
    assert settings.get_int("memory-limit") == 999_999
    # And from the least, the next step down is to none of one's own.
    memory.set_value(64)
    memory.spin(Gtk.SpinType.STEP_BACKWARD, 0)
    assert settings.get_int("memory-limit") == 0


def test_values_in_the_file_are_clamped_or_ignored(person: Person, settings: Settings) -> None:
    file = person.paths.config / "preferences.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"memory-limit": 1, "process-limit": -5, "time-limit": 10**9}))
    assert own_limits(Settings(person.paths)) == Limits(memory=64 * MIB)


def test_the_user_s_limits_replace_those_of_the_profile() -> None:
    profile = Profile("any", limits=OF_PROFILE)
    assert profile.with_limits(Limits()) is profile
    assert not profile.with_limits(Limits(disk=MIB)).own_memory_limit
    mine = profile.with_limits(Limits(memory=MIB, free=7))
    assert mine.own_memory_limit
    assert (mine.limits.memory, mine.limits.free, mine.limits.time) == (MIB, 7, 600)
    # The time is also the most that a call may set.
    assert {setting.name for setting in LIMITS} == set(Limits._fields) - {"max_time"}
    assert len(sentences(mine.limits)) == len(LIMITS)


@pytest.fixture
def window(screen: Screen, person: Person) -> Iterator[Window]:
    with in_project(person) as (window, _session):
        yield window


def test_a_limit_is_shown_in_the_badge_and_holds_for_the_next_command(window: Window) -> None:
    settings, session = window._settings, session_of(window)
    settings.set("temporary-limit", 3)
    popover = popover_of(window.badge)
    wait_until(lambda: "3.0 MiB in each folder for temporary files" in said(popover))
    finish(session.conversation.run("head -c 9000000 /dev/zero > /tmp/much; wc -c < /tmp/much"))
    assert "3145728" in _last(window)
    settings.set("memory-limit", 64)
    wait_until(lambda: "64.0 MiB of memory" in said(popover))
    finish(
        session.conversation.run(
            "python3 -c 'import time; much = bytearray(200 << 20); time.sleep(100)'"
        )
    )
    assert "memory" in _last(window)


def test_the_badge_skips_all_but_the_last(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until(lambda: controller_of(window).badge._tasks.is_idle)
    looked: list[Limits] = []

    async def look(spec: RunSpec, *given: Any) -> ProjectState:
        looked.append(spec.limits)
        return await project.find_state(spec, *given)

    monkeypatch.setattr(controller, "find_state", look)
    for value in range(1, 51):
        window._settings.set("temporary-limit", value)
    popover = popover_of(window.badge)
    wait_until(lambda: "50.0 MiB in each folder for temporary files" in said(popover))
    assert [limits.tmp for limits in looked] == [50 * MIB]


def _last(window: Window) -> str:
    return [one for one in session_of(window) if isinstance(one, CallEntry)][-1].text


def test_without_a_sandbox_only_what_is_written_to_the_project_has_a_limit() -> None:
    limits = limits_without_sandbox(Profile("any", limits=OF_PROFILE)).sentences
    told = [text.replace("\N{NO-BREAK SPACE}", " ") for text in limits]
    assert "20.0 GiB written to the project" in told
    assert not any("to disk" in text or "temporary" in text for text in told)
    assert "10 minutes" in told
