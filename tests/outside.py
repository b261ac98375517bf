# SPDX-License-Identifier: GPL-3.0-or-later
"""The program as a process of its own, seen as a screen reader sees it and driven with a mouse and
a keyboard: nothing of it is imported."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conftest import Person, cli_argv
from gi.repository import GLib
from screen_reader import Look, Node, Reader

PATIENCE = 60.0
CLOSING = "Stop and Close?"
_BAD = ("WARNING", "CRITICAL", "ERROR", "Traceback", "Exception")
# What it needs of the world around it: where the display and the buses are.
_AROUND = ("DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "GDK_BACKEND")


@dataclass
class Outside:
    """Looks anew at each question: what was seen a moment ago may be gone."""

    process: subprocess.Popen[bytes]
    reader: Reader
    errors: Path

    # --- looking ---------------------------------------------------------------------------------

    def read(self) -> list[Node]:
        """All that there is, in the order of reading."""
        return self.reader.read(self.process.pid)

    def reads(self, part: str) -> bool:
        return any(part in node.name for node in self.read())

    def wait_for(self, part: str) -> None:
        self.until(lambda: self.reads(part), f"{part!r} can be read")

    def find(self, role: str, name: str) -> tuple[Node, Look] | None:
        """The last one: what is new stands below."""
        found = [node for node in self.read() if node.role == role and _same(node.name, name)]
        looks = zip(found, self.reader.look(*found), strict=True)
        seen = [(node, look) for node, look in looks if look is not None and look.is_seen]
        return seen[-1] if seen else None

    def wait_find(self, role: str, name: str) -> Node:
        """It can be seen, and used."""
        return self._usable(role, name)[0]

    def wait_find_insensitive(self, role: str, name: str) -> None:
        """It can be seen, but not used."""

        def look() -> bool:
            one = self.find(role, name)
            return one is not None and not one[1].is_sensitive

        self.until(look, f"there is a {role} {name!r} that cannot be used")

    def _usable(self, role: str, name: str) -> tuple[Node, Look]:
        found: list[tuple[Node, Look]] = []

        def look() -> bool:
            one = self.find(role, name)
            found[:] = [one] if one is not None and one[1].is_sensitive else []
            return bool(found)

        self.until(look, f"there is a {role} {name!r}")
        return found[0]

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            state = self.process.poll()
            if time.monotonic() > end or state is not None:
                told = self.errors.read_text(errors="replace")
                # Nearly all widgets without a name of their own have that of their type.
                seen = [n.name for n in self.read() if " " in n.name]
                raise AssertionError(f"not {what}; {state}\n{told}\n{seen}")
            time.sleep(0.05)

    # --- doing -----------------------------------------------------------------------------------

    def click(self, role: str, name: str) -> None:
        """With the mouse, in its middle, once it is in sight and stands still."""
        still: list[Look] = []

        def look() -> bool:
            one = self.find(role, name)
            if one is None or not one[1].is_sensitive or not self._in_sight(one[1]):
                still.clear()
            elif still and still[-1] != one[1]:
                still[:] = [one[1]]
            else:
                still.append(one[1])
            return len(still) == 3

        try:
            self.until(look, f"there is a {role} {name!r} in sight")
        except AssertionError as error:
            raise AssertionError(f"it is at {self.find(role, name)}") from error
        x, y = still[-1].middle
        _xdotool("mousemove", str(x), str(y), "click", "1")

    def _in_sight(self, look: Look) -> bool:
        """Of the chat, all but what is above and below it; of anything else, all."""
        found = [node for node in self.read() if node.name == "Message"]
        composer = self.reader.look(found[0])[0] if found else None
        x, y = look.middle
        bottom = composer.area[1] if composer is not None and composer.is_seen else 10_000
        return y > 40 and (y < bottom or x < 250 or not composer)

    def press(self, *keys: str) -> None:
        self._take_keyboard()
        _xdotool("key", *keys)

    def type(self, text: str) -> None:
        self._take_keyboard()
        _xdotool("type", "--delay", "2", text)

    def say(self, text: str) -> None:
        """Into the composer, and sent."""
        self.wait_find("text box", "Message")
        self.press("ctrl+l")
        self.until(lambda: self._has_focus("Message"), "the composer has the focus")
        self.type(text)
        self.press("Return")

    def wait_focus(self, name: str) -> None:
        self._take_keyboard()
        self.until(lambda: self._has_focus(name), f"{name!r} has the focus")

    def _has_focus(self, name: str) -> bool:
        found = [node for node in self.read() if _same(node.name, name)]
        return any(look is not None and look.is_focused for look in self.reader.look(*found))

    def _take_keyboard(self) -> None:
        """No window manager is there to give it to the window that was opened last."""
        windows = self.windows()
        if windows:
            # It may be closing at this moment.
            _xdotool("windowfocus", windows[-1], may_fail=True)

    def windows(self) -> list[str]:
        done = subprocess.run(
            ["xdotool", "search", "--onlyvisible", "--pid", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        return sorted(done.stdout.split(), key=int)

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """As a person does who waits until nothing is under way any more."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.press("ctrl+q")
            # A key may be lost to a window that is just being drawn: then it is pressed again.
            again = time.monotonic() + 5
            while self.process.poll() is None and not self.reads(CLOSING):
                if time.monotonic() > again:
                    break
                time.sleep(0.05)
            if self.process.poll() is not None:
                break
            if self.reads(CLOSING):
                self.press("Escape")
                self.until(lambda: not self.reads(CLOSING), "the question is gone")
        self.wait_end()

    def wait_end(self) -> None:
        self.process.wait(PATIENCE)
        assert self.process.returncode == 0, self.errors.read_text(errors="replace")

    def check(self) -> None:
        told = self.errors.read_text(errors="replace")
        assert not any(word in told for word in _BAD), told


@contextmanager
def program(person: Person, *arguments: str, **settings: bool | str) -> Iterator[Outside]:
    """Ended in any case; what it complained of on its console fails the test."""
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
            # Kept over a restart, in a file of the person's own.
            "GSETTINGS_BACKEND": "keyfile",
        },
        stdin=subprocess.DEVNULL,
        stderr=errors,
    )


def _write_settings(person: Person, settings: dict[str, bool | str]) -> None:
    """Where the program keeps them: with the schema, and without it."""
    if not settings:
        return
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    kept = person.paths.config / "preferences.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(named), encoding="utf-8")
    file = person.home / ".config" / "glib-2.0" / "settings" / "keyfile"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{name}={_typed(value).print_(False)}" for name, value in named.items()]
    section = "[io/github/ollmsandbox/OllmSandbox]"
    file.write_text("\n".join((section, *lines, "")), encoding="utf-8")


def _typed(value: bool | str) -> GLib.Variant:
    return GLib.Variant("b" if isinstance(value, bool) else "s", value)


def _same(name: str, wanted: str) -> bool:
    """GTK 4.8 tells the name of a button that has a letter twice, once with its mark."""
    return name.replace("_", "") in (wanted, f"{wanted} {wanted}")


def _xdotool(*words: str, may_fail: bool = False) -> None:
    done = subprocess.run(["xdotool", *words], capture_output=True, text=True, check=False)
    assert may_fail or done.returncode == 0, f"xdotool {words}: {done.stderr}"
