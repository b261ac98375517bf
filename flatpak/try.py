# SPDX-License-Identifier: GPL-3.0-or-later
"""Tries the installed Flatpak out, in a terminal and with its window: `try.py ID`."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time

PATIENCE = 120.0
QUESTION = "[d]eny"
NOT_WALLED_IN = "without a sandbox"


class Failed(Exception):
    pass


def check(condition: object, what: str) -> None:
    if not condition:
        raise Failed(what)
    print(f"test-local: {what}", flush=True)


def flatpak(app: str, *arguments: str, command: str = "ollmsandbox") -> list[str]:
    return ["flatpak", "run", "--user", f"--command={command}", app, *arguments]


def output(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.stdout + done.stderr


class Terminal:
    def __init__(self, argv: list[str]) -> None:
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.environ["TERM"] = "xterm"
            os.execvp(argv[0], argv)
        self.seen = ""
        self._at = 0

    def wait_for(self, *texts: str) -> str:
        """Which of them came first after the last one."""
        end = time.monotonic() + PATIENCE
        while True:
            found = [(at, t) for t in texts if (at := self.seen.find(t, self._at)) >= 0]
            if found:
                at, text = min(found)
                self._at = at + len(text)
                return text
            if not self._read(end - time.monotonic()):
                raise Failed(f"none of {texts} was seen, but this:\n{self.seen}")

    def press(self, key: str) -> None:
        os.write(self._file, key.encode())

    def wait_end(self) -> int:
        while self._read(PATIENCE):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read(self, patience: float) -> bool:
        if patience <= 0 or not select.select([self._file], [], [], patience)[0]:
            return False
        try:
            piece = os.read(self._file, 65536)
        except OSError:  # nobody is at the other end any more
            return False
        text = piece.decode(errors="replace").replace("\r\n", "\n")
        self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
        return bool(piece)


def try_terminal(app: str) -> None:
    """Most is allowed; running the tests of the sample project is not."""
    terminal = Terminal(flatpak(app, "tour"))
    answers = []
    while terminal.wait_for(QUESTION, "That was all.") == QUESTION:
        question = terminal.seen[terminal.seen.rfind(NOT_WALLED_IN) :]
        answers.append("d" if "unittest" in question else "a")
        terminal.press(answers[-1])
    check(terminal.wait_end() == 0, "the tour comes to its end in a terminal")
    check(terminal.seen.count(NOT_WALLED_IN) == len(answers) > 4, "everything asks, and says why")
    check("\u2502 It was written." in terminal.seen, "a command that was allowed has run")
    denied = terminal.seen.count("ERROR: The command was denied")
    check(denied == answers.count("d") > 0, "one that was denied has not")


def try_window(app: str) -> None:
    window = subprocess.Popen(flatpak(app))
    try:
        end = time.monotonic() + PATIENCE
        name = ["xdotool", "search", "--onlyvisible", "--name", "OLLM Sandbox"]
        while not subprocess.run(name, capture_output=True, check=False).stdout:
            if time.monotonic() > end or window.poll() is not None:
                raise Failed("the window was not seen")
            time.sleep(0.2)
        check(window.poll() is None, "the window is there")
    finally:
        subprocess.run(["flatpak", "kill", app], check=False)
        window.wait(PATIENCE)


def main(app: str) -> None:
    told = output(flatpak(app, "-c", "echo id:$FLATPAK_ID; ls ~ | wc -l", command="sh"))
    check(f"id:{app}" in told, f"FLATPAK_ID is {app}")
    told = output(flatpak(app, "doctor"))
    check("Flatpak" in told, "the doctor says that this is a Flatpak")
    try_terminal(app)
    try_window(app)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Failed as failed:
        sys.exit(f"test-local: not so: {failed}")
