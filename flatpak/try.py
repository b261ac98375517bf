# SPDX-License-Identifier: GPL-3.0-or-later
"""Tries the installed Flatpak out, in a terminal and with its window: `try.py ID`."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

PATIENCE = 120.0
QUESTION = "[d]eny"
CARD = re.compile("(Run command|Read a file|Change a file)[^?]*\\?")
PLAIN = "without a sandbox"
INNER = "in the Flatpak's inner sandbox"
WITH_NETWORK = "with network access"
# What makes the portal unreachable.
NO_PORTAL = ("--no-session-bus",)
# A program that is given as text, with the parts of ours.
PROGRAM = """\
import sys
sys.path[:0] = ["/app/share/ollmsandbox", "/app/lib/ollmsandbox"]
exec(compile(sys.stdin.read(), "try_inner.py", "exec"))
"""


class Failed(Exception):
    pass


def check(condition: object, what: str, seen: str = "") -> None:
    if not condition:
        raise Failed(f"{what}\n{seen}")
    print(f"test-local: {what}", flush=True)


def flatpak(
    app: str, *arguments: str, command: str = "ollmsandbox", options: Sequence[str] = ()
) -> list[str]:
    return ["flatpak", "run", "--user", f"--command={command}", *options, app, *arguments]


def output(argv: list[str], given: str = "", *, errors: bool = True) -> str:
    done = subprocess.run(
        argv, input=given, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stdout + (done.stderr if errors else "")


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


def try_terminal(app: str, way: str, options: Sequence[str] = ()) -> None:
    """Most is allowed; running the tests of the sample project is not."""
    terminal = Terminal(flatpak(app, "tour", options=options))
    answers, cards, at = [], [], 0
    while terminal.wait_for(QUESTION, "That was all.") == QUESTION:
        *_, card = CARD.finditer(terminal.seen, at)
        at = card.end()
        cards.append(card[0])
        answers.append("d" if "unittest" in terminal.seen[at:] else "a")
        terminal.press(answers[-1])
    seen = terminal.seen
    check(terminal.wait_end() == 0, "the tour comes to its end in a terminal", seen)
    commands = [card for card in cards if card.startswith("Run command")]
    fine = all(way in card or WITH_NETWORK in card for card in commands)
    check(len(commands) > 2 and fine, f"commands ask: {way}", seen)
    files = [card for card in cards if card not in commands]
    check(files and all(PLAIN in card for card in files), "so do reading and changing files", seen)
    check("\u2502 It was written." in seen, "a command that was allowed has run", seen)
    denied = seen.count("ERROR: The command was denied")
    check(denied == answers.count("d") > 0, "one that was denied has not", seen)


def try_inner(app: str) -> None:
    """What the inner sandbox is, seen from inside."""
    inside = Path(__file__).with_name("try_inner.py").read_text(encoding="utf-8")
    told = output(flatpak(app, "-I", "-c", PROGRAM, command="python3"), inside)
    for line in told.splitlines():
        print(f"test-local: {line}", flush=True)
    check("all is as it should be" in told, "the inner sandbox is tight")


def try_window(app: str) -> None:
    """The tour again, with all of it allowed; and with nothing, which makes it a short one."""
    path = f"/{app.replace('.', '/')}/window/1"
    kept = Path.home() / ".var/app" / app / "data"
    with tempfile.TemporaryFile("w+") as said:
        # Where preferences are kept is up to the Flatpak, not to the one who tests it.
        argv = flatpak(app, options=("--unset-env=GSETTINGS_BACKEND",))
        window = subprocess.Popen(argv, stderr=said)
        try:
            name = ["xdotool", "search", "--onlyvisible", "--name", "OLLM Sandbox"]
            wait_until(lambda: output(name), "the window is there", window)
            subprocess.run(["xdotool", "windowfocus", output(name).split()[-1]], check=False)
            for key, end in (("alt+a", "That was all."), ("alt+d", "The command was denied")):
                tours = set(kept.glob("OLLM Sandbox Tour*"))
                call = ["gdbus", "call", "--session", f"--dest={app}", f"--object-path={path}"]
                output([*call, "--method=org.gtk.Actions.Activate", "take-tour", "[]", "{}"])
                wait_until(partial(is_over, app, key, end), f"the tour ends with {key}", window)
                [project] = set(kept.glob("OLLM Sandbox Tour*")) - tours
                code, notes = (project / "basket.py").read_text(), project / "old-notes.txt"
                if key == "alt+a":
                    check("* number" in code and not notes.exists(), "what was allowed was done")
                else:
                    check("* number" not in code and notes.exists(), "what was denied was not")
        finally:
            subprocess.run(["flatpak", "kill", app], check=False)
            window.wait(PATIENCE)
        said.seek(0)
        complaints = said.read()
        preferences = kept.parent / "config/glib-2.0/settings/keyfile"
        check(preferences.is_file(), "preferences are kept in the Flatpak's own folder")
        check("CRITICAL" not in complaints, "and GTK has nothing to complain of", complaints)


def is_over(app: str, key: str, end: str) -> bool:
    """Presses the key of a question, or Next, whichever there is, until the newest session is at
    its end."""
    subprocess.run(["xdotool", "key", key, "alt+n"], check=False)
    time.sleep(0.5)
    listing = flatpak(app, "sessions", "list", "--json")
    sessions = json.loads(output(listing, errors=False) or "[]")
    if not sessions:
        return False
    return end in output(flatpak(app, "sessions", "show", sessions[0]["id"]))


def wait_until(is_so: Callable[[], object], what: str, window: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 2 * PATIENCE
    while not is_so():
        if time.monotonic() > end or window.poll() is not None:
            raise Failed(what)
        time.sleep(0.2)
    check(window.poll() is None, what)


def main(app: str) -> None:
    told = output(flatpak(app, "-c", "echo id:$FLATPAK_ID; ls ~ | wc -l", command="sh"))
    check(f"id:{app}" in told, f"FLATPAK_ID is {app}")
    told = output(flatpak(app, "doctor"))
    check("Flatpak" in told, "the doctor says that this is a Flatpak")
    try_inner(app)
    try_terminal(app, INNER)
    try_terminal(app, PLAIN, NO_PORTAL)
    try_window(app)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Failed as failed:
        sys.exit(f"test-local: not so: {failed}")
