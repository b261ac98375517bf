# SPDX-License-Identifier: GPL-3.0-or-later
"""The program's exceptions, with translatable sentences for the user."""

from __future__ import annotations

import os
from collections.abc import Callable

from . import N_


class Sentence(str):
    """English text for logs, records, models and the command line, which the window can translate.

    A field may be a sentence, too.
    """

    _template: str
    _fields: dict[str, object]

    def __new__(cls, template: str, /, **fields: object) -> Sentence:
        # A field's content is never used as a format.
        sentence = super().__new__(cls, template.format_map(fields) if fields else template)
        sentence._template, sentence._fields = template, fields
        return sentence

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, object]]:
        return (self._template,), self._fields

    def translated(self, say: Callable[[str], str]) -> str:
        # gettext returns the header of the translation for an empty text.
        template = say(self._template) if self._template else ""
        fields = {
            name: field.translated(say) if isinstance(field, Sentence) else field
            for name, field in self._fields.items()
        }
        return template.format_map(fields) if fields else template


def sentence(text: str, /, **fields: object) -> Sentence:
    """Return a sentence; one that already is a sentence keeps its fields."""
    return text if isinstance(text, Sentence) else Sentence(text, **fields)


def in_lines(*texts: str) -> Sentence:
    """Return the texts as lines, without empty ones."""
    lines = {f"line{number}": text for number, text in enumerate(texts) if text}
    return Sentence("\n".join(f"{{{name}}}" for name in lines), **lines)


def in_words(error: Exception) -> str:
    """Return an error's text, also for errors of the operating system."""
    if not isinstance(error, OSError):
        return str(error)
    what = error.strerror or str(error)
    # The file name may also be the number of a descriptor.
    if isinstance(error.filename, str | bytes):
        return f"{os.fsdecode(error.filename)}: {what}."
    return f"{what}."


class OllmSandboxError(Exception):
    """Base of all errors: what happened, and a remedy where one is known.

    Both texts are marked for translation or come from another error; `str` returns a Sentence.
    """

    def __init__(self, message: str, remedy: str = "", /, **fields: object) -> None:
        self.message = sentence(message, **fields)
        self.remedy = sentence(remedy, **fields)
        super().__init__(self.message)

    def __str__(self) -> str:
        return in_lines(self.message, self.remedy)


class SandboxError(OllmSandboxError):
    """The sandbox could not start, or ended unexpectedly."""


class ProjectError(OllmSandboxError):
    """The project folder cannot be used."""


class WorkingDirError(OllmSandboxError):
    """The working directory does not exist. The words are those for the model."""

    def __init__(self, working_dir: str) -> None:
        super().__init__(
            N_("ERROR: Working directory does not exist: {folder}"), folder=working_dir
        )
        self.working_dir = working_dir


class ProfileError(OllmSandboxError):
    """A profile has a mistake; the message names file, line and key."""


class DeniedError(OllmSandboxError):
    """The user denied the request; nothing ran."""


class UnsavedError(OllmSandboxError):
    """The last messages of a session could not be stored."""

    def __init__(self) -> None:
        super().__init__(N_("The end of this session could not be saved."))


class RootfsError(OllmSandboxError, RuntimeError):
    """The Alpine root file system cannot be prepared, used or removed."""


class NetError(OllmSandboxError):
    """A request to another machine failed, or its address cannot be used.

    `can_retry`: the same request may succeed later. `was_lost`: the connection broke, so it makes
    sense to try again at once.
    """

    def __init__(
        self,
        message: str,
        remedy: str = "",
        /,
        *,
        can_retry: bool = False,
        was_lost: bool = False,
        **fields: object,
    ) -> None:
        super().__init__(message, remedy, **fields)
        self.can_retry = can_retry
        self.was_lost = was_lost
