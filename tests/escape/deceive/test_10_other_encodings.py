# SPDX-License-Identifier: GPL-3.0-or-later
"""A command prints text in UTF-8 to a terminal with another encoding, where bytes of it are the
beginning of control sequences."""

from __future__ import annotations

import os
import select
import subprocess
import termios
from dataclasses import replace

import pytest
from support.person import Person

pytestmark = pytest.mark.ordinary

# Each has a byte that begins a sequence in ISO 8859: a title, a question.
TEXT = "Û6n Ý0;title \\a"
CONTROLS = frozenset(range(0x80, 0xA0))
IUTF8 = 0x4000


def printed(person: Person, locale: dict[str, str], *arguments: str, utf8: bool = False) -> bytes:
    """Return the bytes that reach a terminal, which may say that it takes UTF-8."""
    person._copy_probe()
    environ = {k: v for k, v in person.environ.items() if k != "LANG" and k[:3] != "LC_"} | locale
    master, slave = os.openpty()
    settings = termios.tcgetattr(slave)
    settings[0] = settings[0] | IUTF8 if utf8 else settings[0] & ~IUTF8
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    someone = replace(person, environ={**environ, "TERM": "xterm"})
    process = someone.start(
        *arguments, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    found = b""
    while select.select([master], [], [], 60)[0]:
        try:
            found += os.read(master, 4096)
        except OSError:
            break
    process.wait()
    os.close(master)
    return found


OTHERS: list[dict[str, str]] = [
    {},
    {"LC_ALL": "C"},
    {"LANG": "POSIX"},
    {"LANG": "de_DE.ISO-8859-1"},
]


@pytest.mark.parametrize("locale", OTHERS, ids=str)
def test_text_in_another_encoding(person: Person, locale: dict[str, str]) -> None:
    command = ("run", "--", "printf", f"{TEXT} end")
    shown = printed(person, locale, *command)
    assert b"end" in shown
    assert not CONTROLS.intersection(shown)
    # The terminal itself may say that it takes UTF-8.
    assert TEXT[:3].encode() in printed(person, locale, *command, utf8=True)

    # A name in a list of changes, too.
    person.run(f"touch '{TEXT}'")
    shown = printed(person, locale, "changes")
    assert b"6n" in shown
    assert not CONTROLS.intersection(shown)


def test_text_in_utf_8_is_as_it_was(person: Person) -> None:
    for locale in ({"LANG": "C.UTF-8"}, {"LC_ALL": "de_DE.utf8"}):
        assert TEXT[:3].encode() in printed(person, locale, "run", "--", "printf", TEXT)
