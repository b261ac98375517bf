# SPDX-License-Identifier: GPL-3.0-or-later
"""What came of a command."""

from __future__ import annotations

import errno
import os
import signal
from enum import Enum

from .. import N_
from .output import Capture, harmless
from .records import record

# What copying a file up into an overlay ends with, if its group has no number inside.
_NOT_MAPPED = os.strerror(errno.EOVERFLOW)


class Stop(Enum):
    """Why a command was ended before its time; the value says it to a person."""

    TIME = N_("It took longer than the time limit.")
    PERSON = N_("It was stopped.")
    DISK = N_("The disk filled by more than the limit while it ran.")
    FULL = N_("The disk is almost full.")
    MEMORY = N_("It used more memory than the limit.")
    PROCESSES = N_("It started more processes than the limit.")


@record(frozen=True)
class Result:
    exit_code: int
    stdout: Capture
    stderr: Capture
    duration: float
    stop: Stop | None = None

    @property
    def hint(self) -> str:
        """What an error that the sandbox causes, and nobody would guess, comes from."""
        if _NOT_MAPPED in self.stderr.text:
            return (
                "Files that belong to another group than your main one cannot be changed by "
                "commands here (the kernel calls it a value too large). Give them to your own "
                "group with chgrp."
            )
        return ""

    @property
    def timed_out(self) -> bool:
        return self.stop is Stop.TIME

    @property
    def signal(self) -> int | None:
        """The signal that ended the command, by the shell's convention of 128 + n."""
        number = self.exit_code - 128
        return number if number in set(signal.Signals) else None

    @property
    def truncated(self) -> bool:
        return self.stdout.truncated or self.stderr.truncated

    def for_model(self) -> str:
        """Output, then errors, then the status if it is not 0."""
        parts = [harmless(self.stdout.text), harmless(self.stderr.text)]
        if self.stop is not None:
            parts.append(f"The command was ended: {self.stop.value}")
        if self.exit_code != 0:
            parts.append(f"Exit status: {self.exit_code}")
        if self.hint:
            parts.append(self.hint)
        return "\n".join(part.rstrip("\n") for part in parts if part.strip())
