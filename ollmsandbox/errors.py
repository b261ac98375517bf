# SPDX-License-Identifier: GPL-3.0-or-later
"""What can go wrong, in sentences for the person who has to act on it."""


class OllmSandboxError(Exception):
    """Base of all our errors: what happened, and what to do about it where that is known."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class SandboxError(OllmSandboxError):
    """The sandbox could not be built; the command did not run."""


class ProjectError(OllmSandboxError):
    """The project folder cannot be used."""


class WorkingDirError(OllmSandboxError):
    """The working folder is not there."""

    def __init__(self, working_dir: str) -> None:
        super().__init__(f"ERROR: Working directory does not exist: {working_dir}")


class ProfileError(OllmSandboxError):
    """A profile file has a mistake; the message names file, line and key."""


class DeniedError(OllmSandboxError):
    """The person said no; nothing ran."""


class RootfsError(OllmSandboxError):
    """The Alpine system cannot be prepared, used or removed."""
