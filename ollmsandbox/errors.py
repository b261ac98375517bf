# SPDX-License-Identifier: GPL-3.0-or-later
"""What can go wrong, in sentences for the person who has to act on it."""

from __future__ import annotations

import os
from collections.abc import Callable

from . import N_


class Sentence(str):
    """English to whoever takes it for a text: logs, records, models, the command line. Whoever
    shows it to a person can have it in their language. A field may be a sentence, too."""

    _template: str
    _fields: dict[str, object]

    def __new__(cls, template: str, /, **fields: object) -> Sentence:
        # What is in a field is never taken for a format.
        sentence = super().__new__(cls, template.format_map(fields) if fields else template)
        sentence._template, sentence._fields = template, fields
        return sentence

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, object]]:
        return (self._template,), self._fields

    def translated(self, say: Callable[[str], str]) -> str:
        # To gettext, the empty text means what it knows of the translation itself.
        template = say(self._template) if self._template else ""
        fields = {
            name: field.translated(say) if isinstance(field, Sentence) else field
            for name, field in self._fields.items()
        }
        return template.format_map(fields) if fields else template


def sentence(text: str, /, **fields: object) -> Sentence:
    """One that is made already has its fields."""
    return text if isinstance(text, Sentence) else Sentence(text, **fields)


def in_lines(*texts: str) -> Sentence:
    """One below the other, without those that are empty."""
    lines = {f"line{number}": text for number, text in enumerate(texts) if text}
    return Sentence("\n".join(f"{{{name}}}" for name in lines), **lines)


def in_words(error: Exception) -> str:
    """Also one of the system's that nobody else has put into words."""
    if not isinstance(error, OSError):
        return str(error)
    what = error.strerror or str(error)
    # It may also be the number of a descriptor.
    if isinstance(error.filename, str | bytes):
        return f"{os.fsdecode(error.filename)}: {what}."
    return f"{what}."


class OllmSandboxError(Exception):
    """Base of all our errors: what happened, and what to do about it where that is known. Both
    are marked for translation, or another error's; `str` of an error is a Sentence as well."""

    def __init__(self, message: str, remedy: str = "", /, **fields: object) -> None:
        self.message = sentence(message, **fields)
        self.remedy = sentence(remedy, **fields)
        super().__init__(self.message)

    def __str__(self) -> str:
        return in_lines(self.message, self.remedy)


class SandboxError(OllmSandboxError):
    """The sandbox could not be built; the command did not run."""


class ProjectError(OllmSandboxError):
    """The project folder cannot be used."""


class WorkingDirError(OllmSandboxError):
    """The working folder is not there."""

    def __init__(self, working_dir: str) -> None:
        super().__init__(
            N_("ERROR: Working directory does not exist: {folder}"), folder=working_dir
        )


class ProfileError(OllmSandboxError):
    """A profile file has a mistake; the message names file, line and key."""


class DeniedError(OllmSandboxError):
    """The person said no; nothing ran."""


class RootfsError(OllmSandboxError):
    """The Alpine system cannot be prepared, used or removed."""


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
