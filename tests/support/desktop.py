# SPDX-License-Identifier: GPL-3.0-or-later
"""Drive the program from outside: with a mouse, a keyboard and what it tells screen readers.
Nothing of it is imported."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gi.repository import GLib, Gtk
from support.person import Person, cli_argv
from support.screen_reader import Area, Node, Reader
from support.timing import PATIENCE

# Seconds: for a machine that has ten times as much to do; and when a user would try once more.
AGAIN = 30.0
# Seconds that something stands still before it is pressed; and a question before it is allowed,
# which counts only after a user could have seen which one is there.
STILL, AT_REST = 0.2, 0.8
CLOSING = "Stop and Close?"
_BAD = ("WARNING", "CRITICAL", "ERROR", "Traceback", "Exception")
# What it needs of the world around it: where the display and the buses are.
_AROUND = ("DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "GDK_BACKEND")
# Below and beside the window: over a button it would bring up a hint, which is a window, too.
_ASIDE = ("1590", "1190")
# Pixels: so near to an edge is inside, also where a corner is round.
_EDGE = 3

Condition = Callable[[], object]


def is_not(condition: Condition) -> bool:
    return not condition()


@dataclass
class Outside:
    """The program seen and driven from outside. It reads the window anew for each question, and
    repeats an action without effect: a row may move under the pointer, a key may be lost."""

    process: subprocess.Popen[bytes]
    reader: Reader
    errors: Path

    # --- looking ---------------------------------------------------------------------------------

    def read(self) -> list[Node]:
        """Return all nodes in reading order."""
        return self.reader.read(self.process.pid)

    def reads(self, part: str) -> bool:
        return any(part in node.name for node in self.read())

    def wait_for(self, part: str) -> None:
        self.until(lambda: self.reads(part), f"{part!r} can be read")

    def find(self, role: str, name: str) -> tuple[Node, Area] | None:
        """Return the last node that is laid out: new ones stand below."""
        return self._find(self.read(), role, name)

    def _find(self, nodes: list[Node], role: str, name: str) -> tuple[Node, Area] | None:
        for node in reversed(nodes):
            is_it = node.role == role and node.name == name
            if is_it and (area := self.reader.area(node)) is not None:
                return node, area
        return None

    def wait_find(self, role: str, name: str) -> None:
        """Wait until it is visible and sensitive."""
        self.until(lambda: self._usable(self.read(), role, name), f"there is a {role} {name!r}")

    def wait_at_rest(self, role: str, name: str) -> None:
        """Wait until it is sensitive and has not moved for a while."""

        def look() -> bool:
            one = self._usable(self.read(), role, name)
            return one is not None and self._stands_still(*one, AT_REST)

        self.until(look, f"the {role} {name!r} is at rest")

    def _usable(self, nodes: list[Node], role: str, name: str) -> tuple[Node, Area] | None:
        one = self._find(nodes, role, name)
        return one if one is not None and one[0].is_sensitive else None

    def until(self, condition: Condition, what: str, seconds: float = PATIENCE) -> None:
        if not self.is_within(seconds, condition):
            told = self.errors.read_text(errors="replace")
            # Nearly all widgets without a name of their own have that of their type.
            seen = [n.name for n in self.read() if " " in n.name]
            raise AssertionError(f"not: {what}; {self.process.poll()}\n{told}\n{seen}")

    def is_within(self, seconds: float, condition: Condition) -> bool:
        end = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            if condition():
                return True
            if began > end or self.process.poll() is not None:
                return False
            # To look keeps the program busy, too: it gets more time for what it is to do.
            time.sleep(max(0.05, 2 * (time.monotonic() - began)))

    # --- doing -----------------------------------------------------------------------------------

    def do(self, act: Callable[[], None], then: Condition, what: str) -> None:
        """Repeat an action until it has an effect."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            act()
            if self.is_within(AGAIN, then):
                return
        self.until(then, what, seconds=0)

    def click(self, role: str, name: str, then: Condition, still: float = STILL) -> None:
        """Click with the mouse once it is visible and stands still."""

        def act() -> None:
            found: list[Area] = []

            def look() -> bool:
                nodes = self.read()
                one = self._usable(nodes, role, name)
                if one is None or not self._in_sight(one[1], nodes):
                    # What came of it may have come late, and taken it away.
                    return bool(then())
                if self._stands_still(*one, still):
                    found.append(one[1])
                return bool(found)

            if self.is_within(PATIENCE, look) and found:
                x, y = _inside(found[0])
                _xdotool("mousemove", str(x), str(y), "click", "1", "mousemove", *_ASIDE)

        self.do(act, then, f"something came of a click on the {role} {name!r}")

    def _stands_still(self, node: Node, area: Area, seconds: float) -> bool:
        for _look in range(round(seconds / 0.1)):
            time.sleep(0.1)
            if self.reader.area(node) != area:
                return False
        return True

    def _in_sight(self, area: Area, nodes: list[Node]) -> bool:
        """Return whether it is visible: a row of the chat may be scrolled out of view."""
        x, y = area[0] + area[2] // 2, area[1] + area[3] // 2
        composer = self._find(nodes, "text box", "Message")
        bottom = composer[1][1] if composer is not None else 10_000
        return y > 40 and (y < bottom or x < 250)

    def press(self, key: str, then: Condition) -> None:
        self.do(lambda: self._press(key), then, f"something came of the key {key}")

    def say(self, text: str) -> None:
        """Type into the composer and send it."""
        self.wait_find("text box", "Message")
        self.press("ctrl+l", lambda: self.has_focus("Message"))

        def write() -> None:
            self._press("ctrl+a")
            _xdotool("type", "--delay", "2", text)

        self.do(write, lambda: self._written() == text, f"{text!r} is written")
        self.press("Return", lambda: not self._written())

    def _written(self) -> str:
        found = self.find("text box", "Message")
        return self.reader.text(found[0]) if found is not None else ""

    def wait_focus(self, name: str) -> None:
        self._take_keyboard()
        self.until(lambda: self.has_focus(name), f"{name!r} has the focus")

    def has_focus(self, name: str) -> bool:
        return any(node.is_focused for node in self.read() if node.name == name)

    def _press(self, key: str) -> None:
        self._take_keyboard()
        _xdotool("key", key)

    def _take_keyboard(self) -> None:
        """Focus the window that was opened last, because there is no window manager."""
        windows = self.windows()
        if windows:
            # It may be closing at this moment.
            _xdotool("windowfocus", windows[-1], may_fail=True)

    def windows(self) -> list[str]:
        """Return the titles of the windows; tooltips and menus have none."""
        which = ("--all", "--onlyvisible", "--pid", str(self.process.pid), "--name", ".")
        done = subprocess.run(
            ["xdotool", "search", *which], capture_output=True, text=True, check=False
        )
        return sorted(done.stdout.split(), key=int)

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the window once nothing is under way."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not self._has_ended():
            self._press("ctrl+q")
            self.is_within(AGAIN, lambda: self._has_ended() or self.reads(CLOSING))
            if not self._has_ended() and self.reads(CLOSING):
                self.press("Escape", lambda: not self.reads(CLOSING))
        self.wait_end()

    def _has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait_end(self) -> None:
        self.process.wait(PATIENCE)
        assert self.process.returncode == 0, self.errors.read_text(errors="replace")

    def check(self) -> None:
        told = self.errors.read_text(errors="replace")
        assert not any(word in told for word in _BAD), told


@contextmanager
def program(person: Person, *arguments: str, **settings: bool | str) -> Iterator[Outside]:
    """Start the program and end it in any case; warnings on its console fail the test."""
    errors = person.home.parent / f"errors-{time.monotonic_ns()}"
    _write_settings(person, settings)
    with Reader() as reader, errors.open("wb") as told:
        process = start(person, *arguments, errors=told.fileno())
        outside = Outside(process, reader, errors)
        try:
            outside.until(outside.read, "its window is there")
            yield outside
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    outside.check()


def start(person: Person, *arguments: str, errors: int | None = None) -> subprocess.Popen[bytes]:
    around = {name: os.environ[name] for name in _AROUND if name in os.environ}
    return subprocess.Popen(
        cli_argv(*arguments),
        cwd=person.home,
        env={
            **person.environ,
            **around,
            "G_DEBUG": "fatal-criticals",
            # Kept over a restart, in a file of the user's own.
            "GSETTINGS_BACKEND": "keyfile",
        },
        stdin=subprocess.DEVNULL,
        stderr=errors,
    )


def _write_settings(person: Person, settings: dict[str, bool | str]) -> None:
    file = person.home / ".config" / "glib-2.0" / "settings" / "keyfile"
    if not settings and file.exists():
        return  # those of the last start
    # A scripted server has no reply to spare for a title.
    all_settings = {"name_sessions": False, **settings}
    named = {name.replace("_", "-"): value for name, value in all_settings.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{name}={_typed(value).print_(False)}" for name, value in named.items()]
    section = "[io/github/ollmsandbox/OllmSandbox]"
    file.write_text("\n".join((section, *lines, "")), encoding="utf-8")


def _typed(value: bool | str) -> GLib.Variant:
    return GLib.Variant("b" if isinstance(value, bool) else "s", value)


def _inside(area: Area) -> tuple[int, int]:
    """Return a point inside it. From GTK 4.10 on the reported area leaves out borders and paddings
    of its containers, so that it is further down and to the right, by less than its size."""
    left, top, width, height = area
    if Gtk.get_minor_version() < 10:
        return left + width // 2, top + height // 2
    return left + width - _EDGE, top + height - _EDGE


def _xdotool(*words: str, may_fail: bool = False) -> None:
    done = subprocess.run(["xdotool", *words], capture_output=True, text=True, check=False)
    assert may_fail or done.returncode == 0, f"xdotool {words}: {done.stderr}"
