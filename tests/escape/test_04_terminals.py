# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to type into a terminal, to read what is typed there, or to act through its output; and
what a command inherits."""

from __future__ import annotations

import base64
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.escape.attack import (
    IS_ROOT,
    attempt,
    python,
    refusal,
    refusals,
    work_outside,
    works_outside,
)
from support.person import Person, cli_argv
from support.servers.tmux import Tmux, at_terminal


class Terminal:
    """A terminal with a program in it, which controls it as a shell does."""

    def __init__(self) -> None:
        self.outside, self.inside = pty.openpty()
        # What is put in shall not come back out.
        attributes = termios.tcgetattr(self.inside)
        attributes[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(self.inside, termios.TCSANOW, attributes)

    def run(self, person: Person, argv: list[str]) -> str:
        with subprocess.Popen(
            [sys.executable, "-ISc", _IN_TERMINAL, *argv],
            cwd=person.project,
            env={**person.environ, "TERM": "dumb"},
            stdin=self.inside,
            stdout=self.inside,
            stderr=self.inside,
            start_new_session=True,
        ) as process:
            output = b""
            while process.poll() is None or select.select([self.outside], [], [], 0)[0]:
                if select.select([self.outside], [], [], 0.01)[0]:
                    output += os.read(self.outside, 4096)
            return output.decode().replace("\r\n", "\n")

    def typed(self) -> bytes:
        """Return what the next program in this terminal would read as the user's typing."""
        if select.select([self.inside], [], [], 0)[0]:
            return os.read(self.inside, 100)
        return b""

    def close(self) -> None:
        os.close(self.outside)
        os.close(self.inside)


_IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
pid = os.fork()
if not pid:
    os.execvp(sys.argv[1], sys.argv[1:])
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


# Outside only into its own terminal: root's typing would arrive in all of them.
TYPING = """
    TIOCSTI = 0x5412
    others = ['/dev/tty', '/dev/stdin', '/proc/self/fd/1', '/dev/console']
    others += [f'/dev/pts/{n}' for n in range(100)]
    for name in (0, 1, 2, *(others if INSIDE else [])):
        for high in (0, 1 << 32, 1 << 63):
            try:
                fd = name if isinstance(name, int) else os.open(name, os.O_RDWR | os.O_NOCTTY)
                call('ioctl', fd, TIOCSTI | high, b'x')
            except OSError:
                pass
    print('done')
    """


def _typing_allowed() -> bool:
    try:
        return Path("/proc/sys/dev/tty/legacy_tiocsti").read_text() == "1\n" or IS_ROOT
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_typing_into_the_terminal(person: Person, terminal: Terminal, profile: str) -> None:
    attack = python(TYPING.replace("INSIDE", "True"))
    output = terminal.run(person, cli_argv("run", "--profile", profile, "-c", attack))
    assert output == "done\n"
    assert terminal.typed() == b""
    if _typing_allowed():
        terminal.run(person, ["sh", "-c", python(TYPING.replace("INSIDE", "False"))])
        assert terminal.typed().startswith(b"x")


WITHOUT = "for n in 0 1 2; do test -t $n && echo $n; done; echo evil > /dev/tty; ls /dev/pts"


def test_the_terminal_is_not_the_users(person: Person, terminal: Terminal) -> None:
    devices = "for n in 0 1 2; do stat -L -c %r /proc/self/fd/$n; done; stat -c %r /dev/console"
    output = terminal.run(person, cli_argv("run", "-c", f"{devices}; ls /dev/pts; ps -o tty= $$"))
    *found, only_pts, _name = output.split("\n")[:-1]
    assert len(set(found)) == 1
    assert int(found[0]) != os.fstat(terminal.inside).st_rdev
    assert only_pts == "ptmx"
    # Without one of its own it has none.
    output = terminal.run(person, cli_argv("run", "--no-tty", "-c", f"exec 2>&-; {WITHOUT}"))
    assert output == "ptmx\n"


def test_reading_what_is_typed(person: Person, terminal: Terminal) -> None:
    os.write(terminal.outside, b"password\n")
    attack = "cat; cat /dev/tty 2> /dev/null"
    assert terminal.run(person, cli_argv("run", "--no-tty", "-c", attack)) == ""
    assert terminal.typed() == b"password\n"


def test_writing_to_a_terminal_by_its_name(person: Person, terminal: Terminal) -> None:
    attack = attempt(f"open({os.ttyname(terminal.inside)!r}, 'w').write('evil')")
    assert refusal(person, attack) in ("ENOENT", "EACCES")
    assert not select.select([terminal.outside], [], [], 0.01)[0]
    assert works_outside(person, attack)
    assert os.read(terminal.outside, 100) == b"evil"


# It may have one, and control it; that is how the filter itself is seen to refuse.
OWN = """
    outer, inner = os.openpty()
    child = os.fork()
    if child == 0:
        os.setsid()
        fcntl.ioctl(inner, 0x540E, 0)
        try:
            call('ioctl', inner, {number} | {high}, b'x')
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if failed:
        raise OSError(failed, os.strerror(failed))
    """


def test_a_terminal_of_its_own(person: Person) -> None:
    codes = {
        f"{name} {high:#x}": OWN.format(number=number, high=high)
        for name, number in {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C}.items()
        for high in (0, 1 << 32, 1 << 63, 0xFFFFFFFF << 32)
    }
    assert refusals(person, codes) == dict.fromkeys(codes, "EPERM")
    if _typing_allowed():
        for name, works in work_outside(person, codes).items():
            assert works == name.startswith("TIOCSTI"), name


# Output: the title, the clipboard, what the terminal answers, and what it hides.

RAW = pytest.mark.parametrize("raw", ["", "--raw"], ids=["filtered", "raw"])


class Victim:
    def __init__(self, person: Person, tmux: Tmux) -> None:
        self.tmux = tmux
        self._sent = person.project / "sent"
        # Sends it as a question and prints the answer. $1 limits the time to wait for one.
        (person.project / "ask").write_text(
            "old=$(stty -g); stty raw -echo min 0 time $1; cat sent\n"
            "got=$(dd bs=100 count=1 2> /dev/null | od -An -c); stty $old; echo answer: $got\n"
        )

    def attack(
        self, text: str, command: str = "cat sent", *, options: str = "", redirect: str = ""
    ) -> None:
        """Send this to the terminal from the sandbox."""
        self._sent.write_text(text)
        self.tmux.run(
            f"ollmsandbox run --apply never {options} -c 'touch new; {command}' {redirect}"
        )

    def assert_summary_is_visible(self) -> None:
        line = "  added     new [discarded]"
        assert self.tmux.with_colours(line) == line
        assert self.tmux.show("alternate_on") == "0"
        assert self.tmux.show("scroll_region_lower") == "23"
        assert self.tmux.show("wrap_flag") == "1"


@pytest.fixture(scope="module")
def victim(shared_person: Person, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with at_terminal(shared_person, tmp_path_factory.mktemp("tmux")) as tmux:
        yield Victim(shared_person, tmux)


@pytest.mark.anybody
@RAW
@pytest.mark.parametrize(
    ("title", "name"), [("\x1b]2;evil\x1b\\", "pane_title"), ("\x1bkevil\x1b\\", "window_name")]
)
def test_changing_the_title(victim: Victim, title: str, name: str, raw: str) -> None:
    victim.attack(title, options=raw)
    assert (victim.tmux.show(name) == "evil") == bool(raw)


@pytest.mark.anybody
@RAW
def test_setting_the_clipboard(victim: Victim, raw: str) -> None:
    text = base64.b64encode(b"evil").decode()
    victim.attack(f"\x1b]52;c;{text}\x07", options=raw)
    assert victim.tmux.clipboard() == ("evil" if raw else "")


@pytest.mark.anybody
@RAW
@pytest.mark.parametrize("question", ["\x1b[6n", "\x1b[>c", "\x1b[5n"])
def test_making_the_terminal_answer(victim: Victim, question: str, raw: str) -> None:
    # In tenths of a second.
    longest = 200 if raw else 5
    victim.attack(question, f"sh ask {longest}", options=raw)
    assert ("answer: 033" in victim.tmux.screen) == bool(raw)
    assert "answer:" in victim.tmux.screen


HIDING = {
    "conceal": "\x1b[8m",
    "black on black": "\x1b[30;40m",
    "another screen": "\x1b[?1049h",
    "one line that scrolls": "\x1b[1;1r",
    "line drawing": "\x1b(0",
    "shifted line drawing": "\x1b)0\x0e",
    "no line wrap": "\x1b[?7l\x1b[79C",
    "an open string": "\x1b]0;",
    "an open string of another kind": "\x1bP",
    "half a sequence": "\x1b[",
    "over other text": "x\n" * 30 + "\x1b[H",
}


@pytest.mark.anybody
@pytest.mark.parametrize("way", HIDING)
def test_hiding_the_summary(victim: Victim, way: str) -> None:
    victim.attack(HIDING[way])
    victim.assert_summary_is_visible()


@pytest.mark.anybody
@pytest.mark.parametrize("last", ["another screen", "an open string", "half a sequence"])
def test_hiding_the_summary_in_raw_output(victim: Victim, last: str) -> None:
    victim.attack("\x1b[8m\x1b(0\x1b[1;1r" + HIDING[last], options="--raw")
    victim.assert_summary_is_visible()


@pytest.mark.anybody
@pytest.mark.parametrize(
    ("command", "redirect"), [("cat sent", "< /dev/null"), ("cat sent >&2", "| cat")]
)
def test_hiding_the_summary_without_a_terminal_of_its_own_or_with_errors(
    victim: Victim, command: str, redirect: str
) -> None:
    victim.attack("\x1b]2;wrong\x1b\\\x1b[8m", command, redirect=redirect)
    assert victim.tmux.show("pane_title") != "wrong"
    victim.assert_summary_is_visible()


@pytest.mark.anybody
def test_keys_and_mouse_are_as_before(victim: Victim) -> None:
    victim.attack("\x1b[?1;1000;1003;1006;2004h\x1b=\x1b[?25l")
    names = ("keypad_cursor_flag", "keypad_flag", "mouse_any_flag", "mouse_sgr_flag")
    assert [victim.tmux.show(name) for name in names] == ["0"] * 4
    assert victim.tmux.show("cursor_flag") == "1"


# Descriptors.


@pytest.mark.parametrize("options", [{}, {"network": True}, {"profile": "strict"}], ids=str)
def test_only_three_descriptors_are_open(person: Person, options: dict[str, object]) -> None:
    program = "for n in $(seq 0 4096); do test -e /proc/$$/fd/$n && echo $n; done"
    assert person.run(program, **options).stdout.text.split() == ["0", "1", "2"]


def test_the_three_descriptors_lead_nowhere(person: Person) -> None:
    result = person.run("for n in 0 1 2; do readlink /proc/$$/fd/$n; done")
    first, *others = result.stdout.text.split()
    assert first == "/dev/null"
    assert all(name.startswith("pipe:") for name in others)


def test_signals_are_as_for_any_program(person: Person) -> None:
    # An ignored signal is inherited: the command could not be ended, or would not end, by it.
    result = person.run("grep -E '^Sig(Ign|Blk)' /proc/self/status")
    for line in result.stdout.text.splitlines():
        mask = int(line.split()[1], 16)
        for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            assert not mask & 1 << (number - 1)
