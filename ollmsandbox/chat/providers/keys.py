# SPDX-License-Identifier: GPL-3.0-or-later
"""Stores API keys in the desktop's keyring, or without one in a file that only the user can read;
never in settings or messages."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from ... import N_
from ...files.atomic import write_atomically
from ...files.locks import locked
from ...loop import in_daemon
from ...paths import Paths
from .base import ProviderError

if TYPE_CHECKING:
    from gi.repository import Gio

T = TypeVar("T")

# libsecret is one connection for the whole program and breaks when two threads use it at once.
_ONE_AT_A_TIME = threading.Lock()
_SCHEMA = "io.github.ollmsandbox.OllmSandbox.Key"


class KeyStorage(Enum):
    """Where a key is stored."""

    NONE = "none"
    KEYRING = "keyring"
    FILE = "file"


class KeyStore:
    """Waits `patience` seconds for the keyring: the user may have to unlock it first."""

    def __init__(self, paths: Paths, environ: Mapping[str, str], *, patience: float = 60.0) -> None:
        self._file = paths.config / "keys.yaml"
        self._environ = environ
        self._patience = patience

    async def get(self, name: str, place: KeyStorage) -> str:
        if place is KeyStorage.KEYRING:
            found: str = await self._ask_keyring(
                name, lambda secret, *key: secret.password_lookup_sync(*key)
            )
            if not found:
                raise ProviderError(
                    N_("The keyring has no key for {name}."),
                    N_("Enter the key again."),
                    name=repr(name),
                )
            return found
        return self._read().get(name, "") if place is KeyStorage.FILE else ""

    async def put(self, name: str, key: str) -> KeyStorage:
        def store(
            secret: ModuleType, schema: object, attributes: object, cancel: Gio.Cancellable
        ) -> None:
            label, where = f"OLLM Sandbox: API key for {name}", secret.COLLECTION_DEFAULT
            secret.password_store_sync(schema, attributes, where, label, key, cancel)

        try:
            await self._ask_keyring(name, store)
        except ProviderError:
            with self._changing() as kept:
                kept[name] = key
            return KeyStorage.FILE
        self._forget(name)
        return KeyStorage.KEYRING

    async def remove(self, name: str, place: KeyStorage) -> None:
        if place is KeyStorage.KEYRING:
            await self._ask_keyring(name, lambda secret, *key: secret.password_clear_sync(*key))
        elif place is KeyStorage.FILE:
            self._forget(name)

    def _forget(self, name: str) -> None:
        if name in self._read():
            with self._changing() as kept:
                kept.pop(name, None)

    def _read(self) -> dict[str, str]:
        # Imported late: it takes long to load, and with a keyring there is no such file.
        import yaml

        from ...config.yaml_reader import YamlSource, read_text

        try:
            found = yaml.safe_load(read_text(self._file, YamlSource(ProviderError)))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, ProviderError, yaml.YAMLError, RecursionError):
            found = None
        if not isinstance(found, dict):
            # Raised without the cause, which would show what is in the file.
            raise ProviderError(
                N_("Cannot read {file}."),
                N_("Correct it, or delete it and enter the keys again."),
                file=self._file,
            )
        return {str(name): key for name, key in found.items() if isinstance(key, str)}

    @contextmanager
    def _changing(self) -> Iterator[dict[str, str]]:
        """Yield the keys, and write them back; meanwhile no other program can."""
        import yaml

        with locked(self._file):
            kept = self._read()
            yield kept
            text = yaml.safe_dump(kept, allow_unicode=True)
            try:
                # Made for its owner alone from the first moment.
                write_atomically(self._file, f"# API keys. Keep this file to yourself.\n{text}")
            except OSError as error:
                raise ProviderError(
                    N_("Cannot write {file}: {why}."), file=self._file, why=error.strerror
                ) from error

    async def _ask_keyring(self, name: str, ask: Callable[..., T]) -> T:
        """Return what `ask` returns. It gets libsecret, and what its functions get for a key."""
        if not _has_bus(self._environ):
            raise _no_keyring()
        from gi.repository import Gio

        cancel = Gio.Cancellable()
        asking = in_daemon("keyring", _ask_alone, name, ask, cancel, self._patience)
        try:
            return await asyncio.wait_for(asking, self._patience)
        except TimeoutError:
            raise _no_keyring() from None
        finally:
            cancel.cancel()


def _ask_alone(name: str, ask: Callable[..., T], cancel: Gio.Cancellable, patience: float) -> T:
    import gi
    from gi.repository import GLib

    if not _ONE_AT_A_TIME.acquire(timeout=patience):
        raise _no_keyring()
    try:
        gi.require_version("Secret", "1")
        from gi.repository import Secret

        attributes = {"connection": Secret.SchemaAttributeType.STRING}
        schema = Secret.Schema.new(_SCHEMA, Secret.SchemaFlags.NONE, attributes)
        return ask(Secret, schema, {"connection": name}, cancel)
    except (GLib.Error, ImportError, ValueError):
        raise _no_keyring() from None
    finally:
        _ONE_AT_A_TIME.release()


def _has_bus(environ: Mapping[str, str]) -> bool:
    """Tell whether a session bus runs. Without one, asking for the keyring could start one."""
    if environ.get("DBUS_SESSION_BUS_ADDRESS"):
        return True
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    return runtime.startswith("/") and os.path.exists(f"{runtime}/bus")


def _no_keyring() -> ProviderError:
    return ProviderError(
        N_("The keyring does not respond."), N_("Unlock it, or enter the key again.")
    )
