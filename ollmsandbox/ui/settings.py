# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's preferences: in GSettings, or in a file of our own where GSettings cannot store them.

GLib's keyfile backend could write such a file, too. But when the disk is full, GLib (2.74) replaces
the old file with the part that it could write, and all preferences are lost.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gi.repository import Gio, GLib

from .. import N_
from ..errors import OllmSandboxError
from ..files.atomic import write_atomically
from ..i18n import _
from ..paths import Paths
from ..sandbox.profile.profile import Limits
from .resources import schemas
from .widgets.signals import signals

SCHEMA = "io.github.ollmsandbox.OllmSandbox"

Value = bool | int | str


class Settings(Gio.Settings):
    """Reads and changes preferences. The schema says which there are, and what they may be."""

    # Why preferences cannot be saved.
    __gsignals__ = signals({"trouble": (str,)})

    def __init__(self, paths: Paths) -> None:
        """Raise if the schema is not installed."""
        schema = find_schema()
        self._file = None if _has_backend(os.environ) else paths.config / "preferences.json"
        self._failed = False
        # The memory backend stores nothing: what it has is read from and written to the file.
        backend = Gio.memory_settings_backend_new() if self._file is not None else None
        # The stubs do not know that None is the default one.
        super().__init__(settings_schema=schema, backend=backend)  # type: ignore[arg-type]
        if self._file is not None:
            self._read(self._file, schema)
            self.connect("changed", lambda *_args: self._write())

    def set(self, key: str, value: Value) -> None:
        variant = _variant(value)
        if self.get_value(key) != variant:
            self.set_value(key, variant)

    def _read(self, file: Path, schema: Gio.SettingsSchema) -> None:
        """Take the values that the schema allows: anybody can edit the file."""
        found: object = {}
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(file.read_text(encoding="utf-8"))
        for key, value in found.items() if isinstance(found, dict) else ():
            # A number can be too large for a variant, and a text can have half a character.
            with contextlib.suppress(OverflowError, ValueError):
                if schema.has_key(key) and isinstance(value, Value):
                    variant, allowed = _variant(value), schema.get_key(key)
                    has_type = allowed.get_value_type().equal(variant.get_type())
                    if has_type and allowed.range_check(variant):
                        self.set_value(key, variant)

    def _write(self) -> None:
        assert self._file is not None
        keys = self.props.settings_schema.list_keys()
        values = {key: self.get_user_value(key) for key in keys}
        chosen = {key: value.unpack() for key, value in values.items() if value is not None}
        try:
            write_atomically(self._file, json.dumps(chosen, indent=2))
            self._failed = False
        except OSError as error:
            # They count until the program ends. Say so once, not with every change.
            if not self._failed:
                self._failed = True
                text = _("Preferences cannot be saved to {file}: {why}")
                self.emit("trouble", text.format(file=self._file, why=error.strerror))


def _variant(value: Value) -> GLib.Variant:
    if isinstance(value, bool):
        return GLib.Variant("b", value)
    return GLib.Variant("i" if isinstance(value, int) else "s", value)


def _has_backend(environ: Mapping[str, str]) -> bool:
    """Return whether GSettings can store values: it needs a session bus, unless told otherwise."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    return bool(
        environ.get("GSETTINGS_BACKEND")
        or environ.get("DBUS_SESSION_BUS_ADDRESS")
        or (runtime and os.path.exists(f"{runtime}/bus"))
    )


def find_schema() -> Gio.SettingsSchema:
    """Return the schema of this version: an installed one may be another version's."""
    default = Gio.SettingsSchemaSource.get_default()
    sources = [
        Gio.SettingsSchemaSource.new_from_directory(str(folder), default, True)
        for folder in schemas()
    ]
    for source in (*sources, default):
        schema = source.lookup(SCHEMA, source is default) if source is not None else None
        if schema is not None:
            return schema
    raise OllmSandboxError(
        N_("The settings schema is not installed. In a checkout, start with build-aux/run.")
    )


_MIB = 1 << 20
_MOST_MIB = 999_999


class LimitSetting(NamedTuple):
    """A setting that replaces a profile's limit `name`, in units of `unit`.

    0 means the profile's limit. With less than `least`, no command would work.
    """

    key: str
    name: str
    unit: int
    least: int
    most: int
    step: int

    def fitting(self, value: int) -> int:
        """Return the nearest allowed value: users may edit the file."""
        return max(self.least, min(value, self.most)) if value > 0 else 0

    def chosen(self, settings: Settings) -> int:
        return self.fitting(settings.get_int(self.key))


LIMITS = (
    LimitSetting("time-limit", "time", 1, least=1, most=86400, step=10),
    LimitSetting("memory-limit", "memory", _MIB, least=64, most=_MOST_MIB, step=256),
    LimitSetting("process-limit", "processes", 1, least=16, most=_MOST_MIB, step=16),
    LimitSetting("disk-limit", "disk", _MIB, least=1, most=_MOST_MIB, step=256),
    LimitSetting("free-limit", "free", _MIB, least=1, most=_MOST_MIB, step=256),
    LimitSetting("temporary-limit", "tmp", _MIB, least=1, most=_MOST_MIB, step=256),
)


def own_limits(settings: Settings) -> Limits:
    """Return the limits that the user has set; the others are None."""
    chosen = {setting.name: setting.chosen(settings) * setting.unit for setting in LIMITS}
    return Limits(**{name: value for name, value in chosen.items() if value})
