# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that several programs write."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ... import N_
from ...errors import OllmSandboxError
from ...paths import make_folder


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """No other program changes it meanwhile, if it asks in this way."""
    lock = make_folder(file.parent) / f".{file.stem}.lock"
    with ExitStack() as held:
        try:
            fcntl.flock(held.enter_context(open(lock, "w")), fcntl.LOCK_EX)
        except OSError as error:
            raise OllmSandboxError(
                N_("{file} cannot be opened: {why}."), file=lock, why=error.strerror
            ) from error
        yield
