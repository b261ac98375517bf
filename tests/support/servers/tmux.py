# SPDX-License-Identifier: GPL-3.0-or-later
"""A user at a real terminal, with a shell in it: tmux shows what is on the screen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.person import ROOT, Person
from support.timing import PATIENCE

_PROMPT = "user$ "
_PROGRAM = f"""\
#!{sys.executable} -I
import sys
sys.path.insert(0, {str(ROOT)!r})
from ollmsandbox.__main__ import main
sys.exit(main())
"""


class Tmux:
    """A terminal of 24 lines and 80 columns, in which `ollmsandbox` can be typed."""

    def __init__(self, person: Person, folder: Path) -> None:
        person._copy_probe()
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", os.devnull]
        program = folder / "ollmsandbox"
        program.write_text(_PROGRAM)
        program.chmod(0o755)
        environ = {**person.environ, "PS1": _PROMPT}
        environ["PATH"] = f"{folder}:{environ['PATH']}"
        self._control(
            *("set", "-g", "default-shell", "/bin/bash", ";"),
            *("set", "-s", "set-clipboard", "on", ";"),
            *("set", "-g", "allow-rename", "on", ";"),
            *("new-session", "-x", "80", "-y", "24", "-d", "-c", str(person.project), "--"),
            *("bash", "--noprofile", "--norc"),
            env=environ,
        )
        self.wait_for(lambda screen: screen.startswith(_PROMPT.rstrip()))

    def close(self) -> None:
        self._control("kill-server")

    @property
    def screen(self) -> str:
        """What is on the screen, without the blank lines at its end."""
        return self._control("capture-pane", "-p").rstrip("\n")

    def with_colours(self, line: str) -> str:
        """Return a line of the screen with the sequences that set its colours."""
        number = str(self.screen.split("\n").index(line))
        return self._control("capture-pane", "-p", "-e", "-S", number, "-E", number).rstrip("\n")

    def type(self, text: str) -> None:
        """Type a line."""
        self._control("send-keys", "-l", "--", f"{text}\r")

    def press(self, *keys: str) -> None:
        """Press keys by their names, such as C-c."""
        self._control("send-keys", *keys)

    def run(self, line: str) -> int:
        """Type a command on an empty screen; return its exit status when it has ended."""
        self.clear()
        self.type(f"{line}; echo =$?=")
        return self.end()

    def clear(self) -> None:
        self.type("clear")
        self.wait_for(lambda screen: screen == _PROMPT.rstrip())

    def end(self) -> int:
        """Wait for the end of what `run` began."""

        def ended(screen: str) -> bool:
            *_, status, prompt = ("", *screen.split("\n"))
            return status.startswith("=") and prompt == _PROMPT.rstrip()

        screen = self.wait_for(ended)
        return int(screen.split("\n")[-2].strip("="))

    def wait_for(self, wanted: str | Callable[[str], bool]) -> str:
        """Wait until the text is on the screen, or the screen is as wanted; return the screen."""
        give_up = time.monotonic() + PATIENCE
        while True:
            screen = self.screen
            if wanted in screen if isinstance(wanted, str) else wanted(screen):
                return screen
            assert time.monotonic() < give_up, f"waiting for {wanted}; the screen is:\n{screen}"
            time.sleep(0.03)

    def resize(self, columns: int, rows: int) -> None:
        self._control("resize-window", "-x", str(columns), "-y", str(rows))

    def show(self, name: str) -> str:
        """Return the value of one of tmux's variables."""
        return self._control("display-message", "-p", f"#{{{name}}}").rstrip("\n")

    def clipboard(self) -> str:
        return self._control("list-buffers", "-F", "#{buffer_sample}").rstrip("\n")

    def job(self) -> int:
        """Return the process id of the program that the shell has started."""
        shell = self.show("pane_pid")
        children = Path(f"/proc/{shell}/task/{shell}/children")
        give_up = time.monotonic() + PATIENCE
        while not (found := children.read_text().split()):
            assert time.monotonic() < give_up, "the shell has started nothing"
        return int(found[0])

    def _control(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [*self._tmux, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def at_terminal(person: Person, folder: Path) -> Iterator[Tmux]:
    assert shutil.which("tmux"), "tmux is missing"
    made = Tmux(person, folder)
    try:
        yield made
    finally:
        made.close()
