# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a change did not come about. It is kept in English, and shown in the person's language."""

from __future__ import annotations

from ... import N_
from ...i18n import _
from ...text.visible import visible_line

WHOLE = (
    N_("A folder around it is none any more."),
    N_("Another command changed it at the same time, and that version waits."),
    N_("It is neither a file nor a link now."),
    N_("It was changed again since, and this version is not kept."),
    N_("It was changed in the meantime."),
    N_("It was made again as it was. Another command changed it, and that version waits."),
    N_("It was removed in the meantime."),
    N_("The folder that it belongs to is gone."),
    N_("The other version is no longer kept."),
    N_("There is a folder now."),
    N_("There is something at its place now."),
    N_("There is something in it that the command did not see."),
    N_("This version is no longer kept."),
)
_WITH_END = (
    # Translators: {} is a run's id, such as 20260131-120000-abc.
    N_("A later run changed it, too: {}."),
    # Translators: {} is a run's id, such as 20260131-120000-abc.
    N_("An earlier run's version waits again: {}."),
    # Translators: {} is what the system says, such as "Permission denied".
    N_("It cannot be read: {}."),
)


def note(text: str) -> str:
    """What the system itself says is in the person's language already."""
    if text in WHOLE:
        return _(text)
    for known in _WITH_END:
        start, end = known.split("{}")
        if text.startswith(start):
            return _(known).format(visible_line(text.removeprefix(start).removesuffix(end)))
    return visible_line(text)
