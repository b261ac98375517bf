# SPDX-License-Identifier: GPL-3.0-or-later
"""Save the hosts of a command as a list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gi.repository import Gtk

from ...i18n import _
from ...paths import Paths
from ...sandbox.network.lists import hosts_for_list, is_list_name, save_host_list
from ...text.visible import visible_line
from ..sessions.entries import CallEntry
from ..widgets.dialogs import ask_for_name
from ..widgets.readable import number

_MOST_SHOWN = 12


async def save_hosts(
    window: Gtk.Window, paths: Paths, entry: CallEntry, tell: Callable[[str], None]
) -> None:
    """Ask for a name, and save the hosts that a command was allowed to reach as a list."""
    found = hosts_for_list(entry.hosts)
    shown = [visible_line(str(rule)) for rule in found[:_MOST_SHOWN]]
    if left_out := len(found) - len(shown):
        shown.append(_("and {} more").format(number(left_out)))
    meaning = _(
        "A model can name the list instead of its hosts. You are still asked about each command. "
        "A list of the same name is replaced."
    )
    name = await ask_for_name(
        window,
        _("Save These Hosts as a List"),
        "\n".join([meaning, "", *shown]),
        _("Name (lowercase)"),
        _("_Save"),
        is_good=is_list_name,
    )
    if name:
        await asyncio.to_thread(save_host_list, paths.config, name, found)
        # Translators: {name} is a list of hosts, such as @python.
        tell(_("Saved as {name}").format(name=f"@{name}"))
