# SPDX-License-Identifier: GPL-3.0-or-later
"""The person's preferences: in GSettings, or in a file where that cannot be used."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from gettext import gettext as _
from pathlib import Path

from gi.repository import Gio, GObject

from ...files.atomic import write_atomically
from ...paths import Paths
from ..resources import schemas
from ..widgets.signals import signals

SCHEMA = "io.github.ollmsandbox.OllmSandbox"

Value = bool | int | str

# As in the schema.
DEFAULTS: dict[str, Value] = {
    "window-width": 1100,
    "window-height": 750,
    "window-maximized": False,
    "last-session": "",
    "send-with-enter": True,
    "apply-mode": "auto",
    "ask-every-command": False,
    "profile": "standard",
    "time-limit": 0,
    "memory-limit": 0,
    "process-limit": 0,
    "disk-limit": 0,
    "free-limit": 0,
    "temporary-limit": 0,
    "side-by-side": False,
    "notifications": True,
}


# As in the schema: what else may be written in a file that anybody can edit.
_CHOICES: dict[str, tuple[str, ...]] = {"apply-mode": ("auto", "review")}
_MOST = 999_999
_RANGES: dict[str, tuple[int, int]] = {
    "window-width": (360, _MOST),
    "window-height": (294, _MOST),
    "time-limit": (0, 86400),
}


class Settings(GObject.Object):
    """The same whether the schema is there or not."""

    __gtype_name__ = "OllmSettings"

    # A value is other; and, once, why none can be kept for the next time.
    __gsignals__ = signals({"changed": (str,), "trouble": (str,)})

    def __init__(self, paths: Paths) -> None:
        super().__init__()
        schema = _find_schema() if _has_backend(os.environ) else None
        self._file = paths.config / "preferences.json"
        self._kept: dict[str, Value] = {}
        self._is_told = False
        self._settings: Gio.Settings | None = None
        if schema is not None:
            self._settings = Gio.Settings.new_full(schema, None, None)
            self._settings.connect("changed", lambda _settings, key: self.emit("changed", key))
        else:
            self._kept = _read(self._file)

    def boolean(self, key: str) -> bool:
        return bool(self._get(key))

    def number(self, key: str) -> int:
        return int(self._get(key))

    def text(self, key: str) -> str:
        return str(self._get(key))

    def set(self, key: str, value: Value) -> None:
        if type(value) is not type(DEFAULTS[key]):
            raise TypeError(f"{key} is no {type(value).__name__}")
        if self._get(key) == value:
            return
        if self._settings is None:
            self._kept[key] = value
            self._write()
            self.emit("changed", key)
        elif isinstance(value, bool):
            self._settings.set_boolean(key, value)
        elif isinstance(value, int):
            self._settings.set_int(key, value)
        else:
            self._settings.set_string(key, value)

    def _write(self) -> None:
        try:
            write_atomically(self._file, json.dumps(self._kept, indent=2))
            self._is_told = False
        except OSError as error:
            # They count until the program ends, and nothing else has to stop for it.
            if not self._is_told:
                self._is_told = True
                text = _("Preferences cannot be kept for the next time: {file}: {why}")
                self.emit("trouble", text.format(file=self._file, why=error.strerror))

    def _get(self, key: str) -> Value:
        if self._settings is None:
            return self._kept.get(key, DEFAULTS[key])
        value: Value = self._settings.get_value(key).unpack()
        return value


def _has_backend(environ: Mapping[str, str]) -> bool:
    """GSettings writes through the session bus, unless told otherwise; without one it forgets."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    return bool(
        environ.get("GSETTINGS_BACKEND")
        or environ.get("DBUS_SESSION_BUS_ADDRESS")
        or (runtime and os.path.exists(f"{runtime}/bus"))
    )


def _find_schema() -> Gio.SettingsSchema | None:
    """Where every program looks, or with the package that was not installed there."""
    default = Gio.SettingsSchemaSource.get_default()
    found = default.lookup(SCHEMA, True) if default is not None else None
    for folder in schemas():
        if found is None:
            source = Gio.SettingsSchemaSource.new_from_directory(str(folder), default, True)
            found = source.lookup(SCHEMA, False)
    # One of another version does not know all that is asked for.
    return found if found is not None and set(DEFAULTS) <= set(found.list_keys()) else None


def _read(file: Path) -> dict[str, Value]:
    found: object = {}
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        return {}
    return {
        key: value
        for key, value in found.items()
        if key in DEFAULTS and type(value) is type(DEFAULTS[key]) and _is_possible(key, value)
    }


def _is_possible(key: str, value: Value) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        least, most = _RANGES.get(key, (0, _MOST))
        return least <= value <= most
    return value in _CHOICES.get(key, (value,))
