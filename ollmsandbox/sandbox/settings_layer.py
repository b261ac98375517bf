# SPDX-License-Identifier: GPL-3.0-or-later
"""The layer above an agent's folder of settings: filled before the run, and emptied after it.

Only keys of login files that the profile names go back to the user's folder, so that a hook, a
setting or an MCP server that was planted there is gone. The agent's history stays in the layer.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import N_
from ..errors import Sentence
from ..files import trees
from ..files.atomic import write_atomically
from ..files.dirfd import opened_folder

if TYPE_CHECKING:
    from .plan.mounts import AgentSettings

_LARGEST = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

# The values of a login, by the keys that lead to them.
_Login = dict[tuple[str, ...], object]


class SettingsLayer:
    """The layer of one run above one folder."""

    def __init__(self, mount: AgentSettings) -> None:
        self._mount = mount
        self._rules = mount.rules
        self._upper = mount.layers.upper(mount.part)
        # The login files of the user, as they were at the start.
        self._before: dict[str, _Login] = {}

    def fill(self) -> None:
        """Put files into the layer that the agent expects in its folder."""
        below = self._mount.lower
        login = {name for name, _keys in self._rules.login}
        for name, text in self._mount.files:
            is_hidden = self._mount.hides_login and name in login
            own = None if is_hidden else _object(_read(f"{below}/{name}"))
            self._add(name, _merged(text, own).encode())
        # What was said in other projects.
        self._hide(self._rules.history)
        if self._mount.hides_login:
            self._hide(login)
            return
        for name, path in self._rules.copies:
            if not os.path.lexists(f"{below}/{name}") and not self._has(name):
                data = _read(self._outside(path))
                if data is not None:
                    self._add(name, data)
        for name, _keys in self._rules.login:
            self._before[name] = self._login(name, _object(_read(self._home_of(name))))

    def _hide(self, names: Iterable[str]) -> None:
        for name in names:
            # An earlier layer hides it already.
            layers = (self._upper, *self._mount.layers.mounted_parts(self._mount.part))
            is_hidden = any(os.path.lexists(f"{layer}/{name}") for layer in layers)
            if os.path.lexists(f"{self._mount.lower}/{name}") and not is_hidden:
                os.makedirs(os.path.dirname(f"{self._upper}/{name}"), 0o700, exist_ok=True)
                # A character device 0:0 is a whiteout.
                os.mknod(f"{self._upper}/{name}", stat.S_IFCHR, 0)

    def _has(self, name: str) -> bool:
        return os.path.lexists(f"{self._upper}/{name}")

    def _add(self, name: str, data: bytes) -> None:
        descriptor = os.open(f"{self._upper}/{name}", _NEW, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)

    def _home_of(self, name: str) -> str:
        """Return the user's own file for a name in the folder."""
        copied = dict(self._rules.copies).get(name)
        inside = f"{self._mount.lower or self._mount.path}/{name}"
        path = inside if copied is None or os.path.lexists(inside) else self._outside(copied)
        # A link of the user: the file that it leads to is the one to replace.
        return os.path.realpath(path)

    def _outside(self, path: str) -> str:
        return f"{self._mount.home}{path[1:]}" if path.startswith("~/") else path

    def empty(self) -> list[Sentence]:
        """Give the changed login back, and drop all but the history. Return what the user should
        know. Call it after all processes have ended."""
        notices = []
        os.chmod(self._upper, 0o700)
        with opened_folder(self._upper) as upper:
            for name in self._before:
                try:
                    self._put_back(name, self._login(name, _object(_read_below(upper, name))))
                except OSError as error:
                    text = N_("The agent's new login could not be stored in {file}: {why}.")
                    why = error.strerror
                    notices.append(Sentence(text, file=self._home_of(name), why=why))
            for name in os.listdir(upper):
                if name not in self._rules.history:
                    trees.remove(name, upper)
        return notices

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
        now = _object(_read(str(file)))
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


def _values_at(
    found: object, place: Sequence[str], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the texts, numbers and lists of texts at a place in an object, each with its path."""
    if not place:
        is_list = isinstance(found, list) and all(isinstance(entry, str) for entry in found)
        if is_list or found is None or isinstance(found, str | int | float):
            yield above, found
    elif isinstance(found, dict):
        for key in found if place[0] == "*" else found.keys() & {place[0]}:
            yield from _values_at(found[key], place[1:], (*above, key))


def _merged(text: str, own: dict[str, object] | None) -> str:
    """Return an object in JSON with what the user's file has besides."""
    if not own:
        return text
    added: dict[str, object] = json.loads(text)
    for name, value in added.items():
        before = own.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            value = {**before, **value}
        own[name] = value
    return json.dumps(own)


def _read(path: str, dir_fd: int | None = None) -> bytes | None:
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
        return _read(first, folder)
    try:
        with opened_folder(first, folder) as inner:
            return _read_below(inner, rest)
    except OSError:
        return None


def _object(data: bytes | None) -> dict[str, object] | None:
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
