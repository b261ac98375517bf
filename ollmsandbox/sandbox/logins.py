# SPDX-License-Identifier: GPL-3.0-or-later
"""The login files in an agent's folder of settings: what of them goes back to the user.

A note in the run's own folder, which no command sees, has what this needs if our program is killed.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import N_
from ..errors import Sentence
from ..files.atomic import write_atomically
from ..files.dirfd import opened_folder
from .profile.agent import SettingsFolder

_LARGEST = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NOTE = ".login"

# The values of a login, by the keys that lead to them.
_Login = dict[tuple[str, ...], object]


class Logins:
    """The login files of one folder."""

    def __init__(self, folder: str, home: str, rules: SettingsFolder) -> None:
        self._folder = folder
        self._home = home
        self._rules = rules
        # Those of the user, as they were at the start.
        self._before: dict[str, _Login] = {}

    def read(self) -> None:
        for name, _keys in self._rules.login:
            self._before[name] = self._login(
                name, json_object(read_small_file(self._home_of(name)))
            )

    def write_note(self, note: str) -> None:
        before = [(name, list(login.items())) for name, login in self._before.items()]
        document = self._folder, self._home, tuple(self._rules), before
        write_atomically(Path(note), json.dumps(document))

    @classmethod
    def of_note(cls, note: str) -> Logins:
        """Raise ValueError if a power cut left the note empty."""
        with open(note, encoding="ascii") as file:
            folder, home, rules, before = json.load(file)
        made = cls(folder, home, SettingsFolder(*rules))
        for name, login in before:
            made._before[name] = {tuple(path): value for path, value in login}
        return made

    def give_back(self, layer: int) -> list[Sentence]:
        """Give what the agent changed in its layer back. Return what could not be stored."""
        notices = []
        for name in self._before:
            try:
                self._put_back(name, self._login(name, json_object(_read_below(layer, name))))
            except OSError as error:
                text = N_("The agent's new login could not be stored in {file}: {why}.")
                notices.append(Sentence(text, file=self._home_of(name), why=error.strerror))
        return notices

    def _home_of(self, name: str) -> str:
        """Return the user's own file for a name in the folder."""
        copied = dict(self._rules.copies).get(name)
        inside = f"{self._folder}/{name}"
        path = inside if copied is None or os.path.lexists(inside) else self.outside(copied)
        # A link of the user: the file that it leads to is the one to replace.
        return os.path.realpath(path)

    def outside(self, path: str) -> str:
        """Return the path of a file that the agent has elsewhere."""
        return f"{self._home}{path[1:]}" if path.startswith("~/") else path

    def _login(self, name: str, found: dict[str, object] | None) -> _Login:
        """Return what is a login in the content of a file."""
        values: _Login = {}
        # The objects that have one of the allowed values, if only some are allowed.
        fit: set[tuple[str, ...]] | None = None
        for key in dict(self._rules.login)[name]:
            place, _, allowed = key.partition("=")
            found_here = dict(_values_at(found, place.split(".")))
            if allowed:
                given = allowed.split("|")
                fit = {path[:-1] for path, value in found_here.items() if value in given}
            values |= found_here
        return {path: value for path, value in values.items() if fit is None or path[:-1] in fit}

    def _put_back(self, name: str, new: _Login) -> None:
        before = self._before[name]
        changed = {path: value for path, value in new.items() if value != before.get(path)}
        if not changed:
            return
        file = Path(self._home_of(name))
        now = json_object(read_small_file(str(file)))
        if now is None:
            if os.path.lexists(file):
                return  # not what the agent writes: the user's business
            now = {}
        known = self._login(name, now)
        if any(known.get(path) != before.get(path) for path in changed):
            # The agent also runs elsewhere, and has a newer login there.
            return
        for path, value in changed.items():
            inner = now
            for key in path[:-1]:
                entry = inner.setdefault(key, {})
                if not isinstance(entry, dict):
                    return  # not what the agent writes
                inner = entry
            inner[path[-1]] = value
        write_atomically(file, json.dumps(now, indent=2) + "\n")


def note_of(run: str, part: str) -> str:
    """Return the path of the note about a layer of a run."""
    return f"{run}/{part}{NOTE}"


def give_back_logins(run: str) -> bool:
    """Give back what the agents of a run changed whose program was killed. Return whether that is
    done. The caller holds the run's lock."""
    is_done = True
    for name in os.listdir(run):
        if name.endswith(NOTE):
            upper = f"{run}/upper/{name.removesuffix(NOTE)}"
            try:
                os.chmod(upper, 0o700)
                with opened_folder(upper) as layer:
                    if Logins.of_note(f"{run}/{name}").give_back(layer):
                        is_done = False
                        continue
            except (FileNotFoundError, ValueError):
                pass
            os.unlink(f"{run}/{name}")
    return is_done


def _values_at(
    found: object, place: Sequence[str], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the texts, numbers and lists of texts at a place in an object, each with its path."""
    if not place:
        is_list = isinstance(found, list) and all(isinstance(entry, str) for entry in found)
        # Infinity and NaN would make the file unreadable for others.
        is_number = isinstance(found, int) or (isinstance(found, float) and math.isfinite(found))
        if is_list or is_number or found is None or isinstance(found, str):
            yield above, found
    elif isinstance(found, dict):
        for key in found if place[0] == "*" else found.keys() & {place[0]}:
            yield from _values_at(found[key], place[1:], (*above, key))


def read_small_file(path: str, dir_fd: int | None = None) -> bytes | None:
    """Return the content of a regular file that is not large, through no link; None for others."""
    try:
        descriptor = os.open(path, _READ, dir_fd=dir_fd)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = file.read(_LARGEST + 1)
    return data if len(data) <= _LARGEST else None


def _read_below(folder: int, name: str) -> bytes | None:
    """Return the content of a regular file below a folder that the agent wrote, following no
    link."""
    first, _, rest = name.partition("/")
    if not rest:
        return read_small_file(first, folder)
    try:
        with opened_folder(first, folder) as inner:
            return _read_below(inner, rest)
    except OSError:
        return None


def json_object(data: bytes | None) -> dict[str, object] | None:
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
