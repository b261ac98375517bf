# SPDX-License-Identifier: GPL-3.0-or-later
"""A YAML file that users may edit and the program rewrites, and that several programs may use at
once."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from .. import N_
from ..errors import OllmSandboxError, Sentence
from ..files.atomic import write_atomically
from ..files.broken import set_aside
from ..files.locks import locked
from .yaml_reader import YamlSource, read_text

T = TypeVar("T")


class SettingsFile(Generic[T]):
    """Reads and writes the file. One with a mistake is renamed, and a notice says so."""

    def __init__(self, path: Path, source: YamlSource, parse: Callable[[str], T], empty: T) -> None:
        """`parse` raises the error of the source. `empty` is for a file that is missing."""
        self.path = path
        self._source = source
        self._parse = parse
        self._empty = empty
        # Texts to show to the user.
        self.notices: list[str] = []

    def take_notices(self) -> list[str]:
        """Return new texts for the user, each of them once."""
        notices, self.notices = self.notices, []
        return notices

    def read(self) -> T:
        """Return what is in the file. Raise OllmSandboxError if it cannot be read."""
        return self._read(is_locked=False)

    @contextlib.contextmanager
    def changing(self) -> Iterator[T]:
        """Yield what is in the file, and keep other programs from changing it."""
        with self._lock():
            yield self._read(is_locked=True)

    def write(self, text: str) -> None:
        try:
            # The user may keep it elsewhere, and link to it.
            write_atomically(Path(os.path.realpath(self.path)), text, durably=True)
        except OSError as error:
            raise self._failure(N_("Cannot write {file}: {why}."), error) from error

    def _lock(self) -> contextlib.AbstractContextManager[None]:
        return locked(self.path, timeout=10)

    def _read(self, *, is_locked: bool) -> T:
        try:
            return self._parsed()
        except self._source.error:
            # An editor may be saving it.
            time.sleep(0.3)
        with contextlib.nullcontext() if is_locked else self._lock():
            try:
                return self._parsed()
            except self._source.error as mistake:
                self._set_aside(mistake)
        return self._empty

    def _parsed(self) -> T:
        try:
            return self._parse(read_text(self.path, self._source))
        except FileNotFoundError:
            return self._empty
        except OSError as error:
            raise self._failure(N_("Cannot read {file}: {why}."), error) from error

    def _set_aside(self, mistake: OllmSandboxError) -> None:
        try:
            aside = set_aside(self.path)
        except OSError as error:
            text = N_("{file}, {mistake} Correct the file.")
            raise OllmSandboxError(text, file=self.path, mistake=mistake.message) from error
        # Translators: {mistake} is such as "line 3: not valid UTF-8."
        text = N_(
            "{file}, {mistake} It was renamed to {aside} and is not used. Correct it and rename it "
            "back."
        )
        self.notices.append(Sentence(text, file=self.path, mistake=mistake.message, aside=aside))

    def _failure(self, text: str, error: OSError) -> OllmSandboxError:
        return OllmSandboxError(text, file=self.path, why=error.strerror)
