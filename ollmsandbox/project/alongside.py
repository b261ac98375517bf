# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups and records of what was applied, made while the rest still is: by a clerk, which is a
process of its own, since two threads of one Python only take turns. If it fails, who sent it does
its work."""

from __future__ import annotations

import contextlib
import fcntl
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

import peewee

from ..paths import real_path
from .change import Recorded
from .clerk import DONE, Errand
from .manager import is_below

# A command may have put modules into any folder that we search: Python's own come first, and only
# what each of the two folders is there for is loaded while it is searched.
_MAIN = """\
import sys
sys.path.append(sys.argv[1])
import peewee
sys.path[-1] = sys.argv[2]
from ollmsandbox.project.clerk import main
main()
"""
# In bytes, as much as anybody may have: while the clerk gets ready, nobody waits for it.
_PIPE = 1 << 20


class Alongside:
    """A clerk that gets ready, and is at work from `begin()` on as long as it is used."""

    def __init__(self) -> None:
        folders = [str(Path(file).parent) for file in (peewee.__file__, Path(__file__).parents[1])]
        utf_8 = f"utf8={sys.flags.utf8_mode}"
        self._clerk = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", utf_8, "-c", _MAIN, *folders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        assert self._clerk.stdin is not None
        with contextlib.suppress(OSError):  # somebody has many pipes; then we wait now and then
            fcntl.fcntl(self._clerk.stdin, fcntl.F_SETPIPE_SZ, _PIPE)
        # The numbers of what needs nothing more, if it is done.
        self.recorded: set[int] = set()
        self.is_done = False
        self._is_waited_for = False

    @classmethod
    def call(cls, writable: Iterable[str]) -> Alongside | None:
        """None if there cannot be one: a program that a command can change is not started."""
        needed = (sys.executable, peewee.__file__, __file__)
        places = [*needed, *map(real_path, needed)]
        if any(is_below(path, folder) for path in places for folder in writable):
            return None
        try:
            return cls()
        except OSError:
            # Memory is short, or Python was replaced meanwhile.
            return None

    def begin(self, errand: Errand) -> None:
        """Once the journal is there."""
        self._tell(errand)

    def put(self, items: Sequence[Recorded]) -> None:
        if items:
            self._tell([(item.number, item.before, item.after) for item in items])
            self.recorded.update(item.number for item in items)

    def wait(self) -> None:
        """Until all is done, or it has failed."""
        if self._is_waited_for:
            return
        self._is_waited_for = True
        self._tell([])
        assert self._clerk.stdout is not None
        with self._clerk.stdout as answer:
            self.is_done = answer.read() == DONE
        # It may still write to the disk. Nobody waits for that, nor is kept from leaving.
        threading.Thread(target=_see_off, args=(self._clerk,), daemon=True).start()

    def __enter__(self) -> Alongside:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.wait()

    def _tell(self, words: object) -> None:
        assert self._clerk.stdin is not None
        # One that gave up has not done it all in the end.
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(words, self._clerk.stdin)
            self._clerk.stdin.flush()


def _see_off(clerk: subprocess.Popen[bytes]) -> None:
    assert clerk.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        clerk.stdin.close()
    clerk.wait()
