# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a session is not stored, and is there again if it is opened once more meanwhile: its
calls with all that they printed and were asked, the sentences between the messages, and the answers
that hold for the session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .entries import CallEntry, Entry, NoticeEntry
from .output_files import OutputFiles

if TYPE_CHECKING:
    from ..permission.provider import Answers


@dataclass(frozen=True)
class Remains:
    files: OutputFiles | None
    answers: Answers
    # As they were: by id, and the person's own, which have another id when they are stored, by
    # their place among those.
    calls: dict[str, CallEntry]
    own_calls: dict[int, CallEntry]
    # Each with the number of other entries that stand before it.
    notices: tuple[tuple[int, NoticeEntry], ...]

    @classmethod
    def of(cls, entries: Iterable[Entry], files: OutputFiles | None, answers: Answers) -> Remains:
        calls: dict[str, CallEntry] = {}
        own_calls: dict[int, CallEntry] = {}
        notices: list[tuple[int, NoticeEntry]] = []
        count = own_count = 0
        for entry in entries:
            if isinstance(entry, NoticeEntry):
                notices.append((count, entry))
                continue
            count += 1
            if isinstance(entry, CallEntry):
                # One that was stored before is stored still.
                if entry.outcome is not None or entry.output_file is not None:
                    entry.rest()
                    if entry.own:
                        own_calls[own_count] = entry
                    else:
                        calls[entry.call.id] = entry
                own_count += entry.own
        return cls(files, answers, calls, own_calls, tuple(notices))

    def __bool__(self) -> bool:
        return bool(self.answers or self.calls or self.own_calls or self.notices)

    def added_to(self, stored: Sequence[Entry]) -> list[Entry]:
        whole: list[Entry] = []
        own_count = 0
        for entry in stored:
            kept: Entry | None = None
            if isinstance(entry, CallEntry) and entry.own:
                kept = self.own_calls.get(own_count)
                own_count += 1
            elif isinstance(entry, CallEntry):
                kept = self.calls.get(entry.call.id)
            whole.append(kept or entry)
        # Another program may have added some entries, behind these.
        for place, notice in reversed(self.notices):
            if place <= len(stored):
                whole.insert(place, notice)
        return whole

    def remove(self) -> None:
        """Blocks: for a thread."""
        if self.files is not None:
            self.files.remove()
