# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to act through the user's terminal: its title, the clipboard, what it answers, and what
it hides."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from support.person import Person
from support.servers.tmux import Tmux, at_terminal

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


@RAW
@pytest.mark.parametrize(
    ("title", "name"), [("\x1b]2;evil\x1b\\", "pane_title"), ("\x1bkevil\x1b\\", "window_name")]
)
def test_changing_the_title(victim: Victim, title: str, name: str, raw: str) -> None:
    victim.attack(title, options=raw)
    assert (victim.tmux.show(name) == "evil") == bool(raw)


@RAW
def test_setting_the_clipboard(victim: Victim, raw: str) -> None:
    text = base64.b64encode(b"evil").decode()
    victim.attack(f"\x1b]52;c;{text}\x07", options=raw)
    assert victim.tmux.clipboard() == ("evil" if raw else "")


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


@pytest.mark.parametrize("way", HIDING)
def test_hiding_the_summary(victim: Victim, way: str) -> None:
    victim.attack(HIDING[way])
    victim.assert_summary_is_visible()


@pytest.mark.parametrize("last", ["another screen", "an open string", "half a sequence"])
def test_hiding_the_summary_in_raw_output(victim: Victim, last: str) -> None:
    victim.attack("\x1b[8m\x1b(0\x1b[1;1r" + HIDING[last], options="--raw")
    victim.assert_summary_is_visible()


def test_hiding_the_summary_without_a_terminal_of_its_own(victim: Victim) -> None:
    victim.attack("\x1b]2;wrong\x1b\\\x1b[8m", redirect="< /dev/null")
    assert victim.tmux.show("pane_title") != "wrong"
    victim.assert_summary_is_visible()


def test_hiding_the_summary_with_errors(victim: Victim) -> None:
    victim.attack("\x1b]2;wrong\x1b\\\x1b[8m", "cat sent >&2", redirect="| cat")
    assert victim.tmux.show("pane_title") != "wrong"
    victim.assert_summary_is_visible()


def test_keys_and_mouse_are_as_before(victim: Victim) -> None:
    victim.attack("\x1b[?1;1000;1003;1006;2004h\x1b=\x1b[?25l")
    names = ("keypad_cursor_flag", "keypad_flag", "mouse_any_flag", "mouse_sgr_flag")
    assert [victim.tmux.show(name) for name in names] == ["0"] * 4
    assert victim.tmux.show("cursor_flag") == "1"
