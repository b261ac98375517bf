# SPDX-License-Identifier: GPL-3.0-or-later
"""The layer above an agent's folder of settings: filled before the run, and emptied after it.

Only keys of login files that the profile names go back to the user's folder, so that a hook, a
setting or an MCP server that was planted there is gone. The agent's history stays in the layer.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import Sentence
from ..files import trees
from ..files.dirfd import opened_folder
from .logins import Logins, json_object, note_of, read_small_file

if TYPE_CHECKING:
    from .plan.mounts import AgentSettings

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class SettingsLayer:
    """The layer of one run above one folder."""

    def __init__(self, mount: AgentSettings) -> None:
        self._mount = mount
        self._rules = mount.rules
        self._upper = mount.layers.upper(mount.part)
        self._note = note_of(mount.layers.own_folder, mount.part)
        self._logins = Logins(mount.lower or mount.path, mount.home, mount.rules)

    def fill(self) -> None:
        """Put files into the layer that the agent expects in its folder."""
        below = self._mount.lower
        login = {name for name, _keys in self._rules.login}
        for name, text in self._mount.files:
            is_hidden = self._mount.hides_login and name in login
            own = None if is_hidden else json_object(read_small_file(f"{below}/{name}"))
            self._add(name, _merged(text, own).encode())
        # What was said in other projects.
        self._hide(self._rules.history)
        if self._mount.hides_login:
            self._hide(login)
            return
        for name, path in self._rules.copies:
            if not os.path.lexists(f"{below}/{name}") and not self._has(name):
                data = read_small_file(self._logins.outside(path))
                if data is not None:
                    self._add(name, data)
        self._logins.read()
        self._logins.write_note(self._note)

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

    def empty(self) -> list[Sentence]:
        """Give the changed login back, and drop all but the history. Return what the user should
        know. Call it after all processes have ended."""
        os.chmod(self._upper, 0o700)
        with opened_folder(self._upper) as upper:
            notices = self._logins.give_back(upper)
            for name in os.listdir(upper):
                if name not in self._rules.history:
                    trees.remove(name, upper)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._note)
        return notices


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
