# SPDX-License-Identifier: GPL-3.0-or-later
"""Open links of a message, saved output and a shell in other programs; save hosts as a list."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable

from gi.repository import Adw, Gdk, Gio, GLib, Gtk

from ...errors import OllmSandboxError
from ...i18n import _
from ...paths import Paths
from ...sandbox.network.lists import hosts_for_list, is_list_name, save_host_list
from ...text.visible import visible_line
from ..sessions.entries import CallEntry
from ..widgets.dialogs import ask_for_name, confirm
from ..widgets.readable import number

_OURSELVES = os.path.abspath(sys.argv[0])
# Terminals, and what stands between them and the command.
_TERMINALS = (
    ("xdg-terminal-exec",),
    ("ptyxis", "--"),
    ("kgx", "--"),
    ("gnome-terminal", "--"),
    ("konsole", "-e"),
    ("xfce4-terminal", "-x"),
    ("x-terminal-emulator", "-e"),
    ("xterm", "-e"),
)


async def open_link(window: Gtk.Window, address: str) -> None:
    """Open a link after the user has confirmed its address, which a model wrote."""
    if not address.lower().startswith(("http://", "https://", "mailto:")):
        return
    style = Adw.ResponseAppearance.SUGGESTED
    heading, action = _("Open This Link?"), _("_Open")
    if await confirm(window, heading, visible_line(address), action, style=style):
        await show_address(window, address)


async def show_address(window: Gtk.Window, address: str) -> None:
    shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(_window: Gtk.Window, result: Gio.AsyncResult) -> None:
        try:
            Gtk.show_uri_full_finish(window, result)
        except GLib.Error as error:
            # The user may have closed the dialog that offers programs.
            is_wanted = not error.matches(Gio.io_error_quark(), Gio.IOErrorEnum.CANCELLED)
            if is_wanted and not shown.done():
                text = _("Cannot open {address}: {why}.")
                why = error.message.rstrip(".")
                shown.set_exception(
                    OllmSandboxError(text.format(address=visible_line(address), why=why))
                )
        if not shown.done():
            shown.set_result(None)

    Gtk.show_uri_full(window, address, Gdk.CURRENT_TIME, None, answered)
    await shown


async def open_port(window: Gtk.Window, entry: CallEntry, port: int) -> None:
    """Publish a port of a running command, and open it in the browser: the user asked for it."""
    if entry.ports is not None:
        await show_address(window, entry.ports.publish(port).url)


async def open_in_editor(window: Gtk.Window, path: str) -> None:
    """Open a text in the default text editor: the program for its own type might run it."""
    editor = Gio.AppInfo.get_default_for_type("text/plain", False)
    address = Gio.File.new_for_path(path).get_uri()
    if editor is None or os.environ.get("FLATPAK_ID"):
        # In a Flatpak, the desktop asks which program to use.
        await show_address(window, address)
        return
    try:
        editor.launch_uris([address], window.get_display().get_app_launch_context())
    except GLib.Error as error:
        raise OllmSandboxError(_("Cannot open the file: {}").format(error.message)) from error


async def open_output(window: Gtk.Window, entry: CallEntry) -> None:
    """Open a readable copy of a call's output in the default text editor."""
    try:
        file = await asyncio.to_thread(entry.readable_file)
    except OSError as error:
        raise OllmSandboxError(_("Cannot read the output: {}.").format(error.strerror)) from error
    if file is not None:
        await show_address(window, file.as_uri())


async def open_terminal(project: str) -> None:
    """Open the user's terminal with a shell in the project's sandbox."""
    program = shutil.which("ollmsandbox") or _OURSELVES
    for name, *between in _TERMINALS:
        if (terminal := shutil.which(name)) is not None:
            command = [terminal, *between, program, "shell"]
            await asyncio.create_subprocess_exec(
                *command, cwd=project or None, start_new_session=True
            )
            return
    raise OllmSandboxError(
        _("No terminal was found."), _("Run `ollmsandbox shell` in the project's folder.")
    )


async def save_hosts(
    window: Gtk.Window, paths: Paths, entry: CallEntry, tell: Callable[[str], None]
) -> None:
    """Ask for a name, and save the hosts that a command was allowed to reach as a list."""
    found = hosts_for_list(entry.hosts)
    shown = [visible_line(str(rule)) for rule in found[:12]]
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
