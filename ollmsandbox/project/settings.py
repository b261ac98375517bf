# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of how long records are kept, stored in the database."""

from __future__ import annotations

from dataclasses import dataclass

from .. import N_
from ..database.tables import Setting
from ..errors import OllmSandboxError
from .projects import ProjectManager


@dataclass(frozen=True)
class Number:
    """A whole number with a name, a default and a meaning."""

    name: str
    default: int
    what: str

    def read(self, manager: ProjectManager) -> int:
        with manager.store.translated_errors():
            found = Setting.get_or_none(Setting.key == self.name)
        return self.default if found is None else int(found.value)

    def write(self, manager: ProjectManager, text: str) -> None:
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise OllmSandboxError(
                # Translators: {name} is a setting, such as keep-runs-days.
                N_("{text} is not a number for {name}."),
                self.what,
                text=repr(text),
                name=self.name,
            )
        with manager.store.transaction():
            Setting.insert(key=self.name, value=text).on_conflict_replace().execute()


KEEP_DAYS = Number("keep-runs-days", 30, N_("The number of days during which you can undo a run."))
KEEP_MIB = Number("keep-runs-mib", 2048, N_("The maximum total size of earlier versions, in MiB."))
KEEP_CACHES_DAYS = Number(
    "keep-caches-days", 90, N_("The number of days after which unused caches are removed.")
)
KEEP_CACHES_MIB = Number(
    "keep-caches-mib", 20480, N_("The maximum total size of all caches, in MiB.")
)
ALL = (KEEP_DAYS, KEEP_MIB, KEEP_CACHES_DAYS, KEEP_CACHES_MIB)
