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
    from gi.repository import Gio, Secret

T = TypeVar("T")

# libsecret is one connection for the whole program and breaks when two threads use it at once.
_ONE_AT_A_TIME = threading.Lock()


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

    def __repr__(self) -> str:
        return "KeyStore()"

    async def get(self, name: str, place: KeyStorage) -> str:
        if place is KeyStorage.KEYRING:
            found = await self._ask_keyring(lambda cancel: _look_up(name, cancel))
            if not found:
                raise ProviderError(
                    N_("The keyring has no key for {name}."),
                    N_("Enter the key again."),
                    name=repr(name),
                )
            return found
        return self._read().get(name, "") if place is KeyStorage.FILE else ""

    async def put(self, name: str, key: str) -> KeyStorage:
        try:
            await self._ask_keyring(lambda cancel: _store(name, key, cancel))
        except ProviderError:
            with self._changing() as kept:
                kept[name] = key
            return KeyStorage.FILE
        self._forget(name)
        return KeyStorage.KEYRING

    async def remove(self, name: str, place: KeyStorage) -> None:
        if place is KeyStorage.KEYRING:
            await self._ask_keyring(lambda cancel: _clear(name, cancel))
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

    async def _ask_keyring(self, ask: Callable[[Gio.Cancellable], T]) -> T:
        if not _has_bus(self._environ):
            raise _no_keyring()
        from gi.repository import Gio

        cancel = Gio.Cancellable()
        asking = in_daemon("keyring", _ask_alone, ask, cancel, self._patience)
        try:
            return await asyncio.wait_for(asking, self._patience)
        except TimeoutError:
            raise _no_keyring() from None
        finally:
            cancel.cancel()


def _ask_alone(ask: Callable[[Gio.Cancellable], T], cancel: Gio.Cancellable, patience: float) -> T:
    from gi.repository import GLib

    if not _ONE_AT_A_TIME.acquire(timeout=patience):
        raise _no_keyring()
    try:
        return ask(cancel)
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


def _look_up(name: str, cancel: Gio.Cancellable) -> str:
    secret, schema = _library()
    return secret.password_lookup_sync(schema, {"connection": name}, cancel) or ""


def _store(name: str, key: str, cancel: Gio.Cancellable) -> None:
    secret, schema = _library()
    label = f"OLLM Sandbox: API key for {name}"
    which = secret.COLLECTION_DEFAULT
    secret.password_store_sync(schema, {"connection": name}, which, label, key, cancel)


def _clear(name: str, cancel: Gio.Cancellable) -> None:
    secret, schema = _library()
    secret.password_clear_sync(schema, {"connection": name}, cancel)


def _library() -> tuple[ModuleType, Secret.Schema]:
    """Return libsecret, and the schema of our keys."""
    import gi

    gi.require_version("Secret", "1")
    from gi.repository import Secret

    attributes = {"connection": Secret.SchemaAttributeType.STRING}
    name = "io.github.ollmsandbox.OllmSandbox.Key"
    return Secret, Secret.Schema.new(name, Secret.SchemaFlags.NONE, attributes)
