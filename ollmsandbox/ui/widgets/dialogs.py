# SPDX-License-Identifier: GPL-3.0-or-later
"""Message dialogs and file choosers that can be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from gi.repository import Adw, Gio, GLib, Gtk, Pango

from ...i18n import _, ngettext
from .boxes import scrolled_list
from .labels import children_of, name_buttons, set_accessible_name, wrapped
from .readable import number


async def confirm(
    parent: Gtk.Window,
    heading: str,
    body: str,
    action: str,
    *,
    cancel: str = "",
    style: Adw.ResponseAppearance = Adw.ResponseAppearance.DESTRUCTIVE,
) -> bool:
    """Return whether the user chose the action. Enter, Escape and closing the dialog cancel it."""
    dialog = Adw.MessageDialog(transient_for=parent, modal=True, heading=heading, body=body)
    name_buttons(_with_responses(dialog, cancel or _("_Cancel"), action, style))
    dialog.set_default_response("cancel")
    return await _is_confirmed(dialog)


def show_list(parent: Gtk.Window, heading: str, lines: Sequence[str]) -> None:
    """Show lines that the user may scroll through and copy."""
    shown, left = list(lines[:1000]), len(lines) - 1000
    if left > 0:
        shown.append(ngettext("{} more", "{} more", left).format(number(left)))
    label = wrapped("\n".join(shown), selectable=True, max_width_chars=60)
    scrolled = scrolled_list(label, 300)
    dialog = Adw.MessageDialog(
        transient_for=parent, modal=True, heading=heading, extra_child=scrolled
    )
    dialog.add_response("close", _("_Close"))
    dialog.set_default_response("close")
    name_buttons(dialog)
    let_heading_shrink(dialog)
    dialog.present()


async def ask_for_name(
    parent: Gtk.Window,
    heading: str,
    body: str,
    label: str,
    action: str,
    *,
    name: str = "",
    is_good: Callable[[str], bool] = bool,
) -> str:
    """Return the name that the user types, "" if they cancel. Only a good one can be chosen."""
    entry = Gtk.Entry(text=name, activates_default=True, placeholder_text=label)
    set_accessible_name(entry, label)
    dialog = Adw.MessageDialog(
        transient_for=parent, modal=True, heading=heading, body=body, extra_child=entry
    )
    _with_responses(dialog, _("_Cancel"), action, Adw.ResponseAppearance.SUGGESTED)
    dialog.set_default_response("confirm")
    typed = ""

    def note(_entry: Gtk.Entry) -> None:
        nonlocal typed
        typed = entry.get_text().strip()
        dialog.set_response_enabled("confirm", is_good(typed))

    entry.connect("changed", note)
    note(entry)
    return typed if await _is_confirmed(dialog, entry) else ""


def _with_responses(
    dialog: Adw.MessageDialog, cancel: str, action: str, style: Adw.ResponseAppearance
) -> Adw.MessageDialog:
    dialog.add_response("cancel", cancel)
    dialog.add_response("confirm", action)
    dialog.set_response_appearance("confirm", style)
    dialog.set_close_response("cancel")
    return dialog


async def _is_confirmed(dialog: Adw.MessageDialog, focused: Gtk.Widget | None = None) -> bool:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answered(_dialog: Adw.MessageDialog, response: str) -> None:
        if not answer.done():
            answer.set_result(response)

    dialog.connect("response", answered)
    let_heading_shrink(dialog)
    dialog.present()
    if focused is not None:
        focused.grab_focus()
    try:
        return await answer == "confirm"
    finally:
        dialog.destroy()


def let_heading_shrink(widget: Gtk.Widget) -> None:
    """Let a heading in a dialog be narrow, to avoid a warning.

    Libadwaita up to 1.7 measures its large heading even where only the small one fits.
    """
    for child in children_of(widget):
        if isinstance(child, Gtk.Label):
            if child.has_css_class("title-2") and not child.get_wrap():
                child.set_ellipsize(Pango.EllipsizeMode.END)
            if child.has_css_class("title-2") or child.has_css_class("title-4"):
                child.set_size_request(60, -1)
        let_heading_shrink(child)


async def choose_folder(parent: Gtk.Window, title: str) -> str | None:
    chooser = Gtk.FileChooserNative.new(
        title, parent, Gtk.FileChooserAction.SELECT_FOLDER, None, None
    )
    # Else GTK begins with the list of recent files, which is often empty.
    chooser.set_current_folder(Gio.File.new_for_path(GLib.get_home_dir()))
    return next(iter(await _chosen(chooser)), None)


async def choose_file(parent: Gtk.Window, title: str) -> Path | None:
    chooser = Gtk.FileChooserNative.new(title, parent, Gtk.FileChooserAction.OPEN, None, None)
    return next(map(Path, await _chosen(chooser)), None)


async def choose_files(parent: Gtk.Window, title: str, folder: str) -> list[str]:
    """Return the files that the user chose, none if they cancelled. Begin in the folder."""
    chooser = Gtk.FileChooserNative.new(title, parent, Gtk.FileChooserAction.OPEN, None, None)
    chooser.set_select_multiple(True)
    chooser.set_current_folder(Gio.File.new_for_path(folder or GLib.get_home_dir()))
    return await _chosen(chooser)


async def choose_new_file(parent: Gtk.Window, title: str, name: str) -> Path | None:
    chooser = Gtk.FileChooserNative.new(title, parent, Gtk.FileChooserAction.SAVE, None, None)
    chooser.set_current_name(name)
    return next(map(Path, await _chosen(chooser)), None)


async def _chosen(chooser: Gtk.FileChooserNative) -> list[str]:
    answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    def answered(_chooser: Gtk.FileChooserNative, response: int) -> None:
        files = chooser.get_files() if response == Gtk.ResponseType.ACCEPT else ()
        # The stubs do not know that the list can be iterated over.
        paths = [file.get_path() for file in files]  # type: ignore[attr-defined]
        if not answer.done():
            answer.set_result([path for path in paths if path is not None])

    chooser.set_modal(True)
    chooser.connect("response", answered)
    chooser.show()
    try:
        return await answer
    finally:
        chooser.destroy()
