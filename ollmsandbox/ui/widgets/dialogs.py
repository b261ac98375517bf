# SPDX-License-Identifier: GPL-3.0-or-later
"""Message dialogs and file choosers that can be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from gi.repository import Adw, Gio, GLib, Gtk, Pango

from ...i18n import _
from .labels import name_buttons, set_accessible_name

# Pixels, to which a heading may shrink.
_LEAST = 60


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
    dialog.add_response("cancel", cancel or _("_Cancel"))
    dialog.add_response("confirm", action)
    dialog.set_response_appearance("confirm", style)
    dialog.set_close_response("cancel")
    dialog.set_default_response("cancel")
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answered(_dialog: Adw.MessageDialog, response: str) -> None:
        if not answer.done():
            answer.set_result(response)

    dialog.connect("response", answered)
    name_buttons(dialog)
    let_heading_shrink(dialog)
    dialog.present()
    try:
        return await answer == "confirm"
    finally:
        dialog.destroy()


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
    """Return the name that the user types, or "" if they cancel. `label` says what the
    entry is for; only a good name can be chosen."""
    entry = Gtk.Entry(text=name, activates_default=True, placeholder_text=label)
    set_accessible_name(entry, label)
    dialog = Adw.MessageDialog(
        transient_for=parent, modal=True, heading=heading, body=body, extra_child=entry
    )
    dialog.add_response("cancel", _("_Cancel"))
    dialog.add_response("choose", action)
    dialog.set_response_appearance("choose", Adw.ResponseAppearance.SUGGESTED)
    dialog.set_default_response("choose")
    dialog.set_close_response("cancel")
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answered(_dialog: Adw.MessageDialog, response: str) -> None:
        if not answer.done():
            answer.set_result(response)

    def typed(_entry: Gtk.Entry) -> None:
        dialog.set_response_enabled("choose", is_good(entry.get_text().strip()))

    dialog.connect("response", answered)
    entry.connect("changed", typed)
    typed(entry)
    let_heading_shrink(dialog)
    dialog.present()
    entry.grab_focus()
    try:
        return entry.get_text().strip() if await answer == "choose" else ""
    finally:
        dialog.destroy()


def let_heading_shrink(dialog: Adw.MessageDialog) -> None:
    """Let a heading be narrow, to avoid a warning.

    Libadwaita up to 1.7 measures its large heading even where only the small one fits.
    """
    for label in _labels(dialog):
        if label.has_css_class("title-2") and not label.get_wrap():
            label.set_ellipsize(Pango.EllipsizeMode.END)
        if label.has_css_class("title-2") or label.has_css_class("title-4"):
            label.set_size_request(_LEAST, -1)


def _labels(widget: Gtk.Widget) -> Iterator[Gtk.Label]:
    child = widget.get_first_child()
    while child is not None:
        if isinstance(child, Gtk.Label):
            yield child
        yield from _labels(child)
        child = child.get_next_sibling()


async def choose_folder(parent: Gtk.Window, title: str) -> str | None:
    chooser = Gtk.FileChooserNative.new(
        title, parent, Gtk.FileChooserAction.SELECT_FOLDER, None, None
    )
    # Else GTK begins with the list of recent files, which is often empty.
    chooser.set_current_folder(Gio.File.new_for_path(GLib.get_home_dir()))
    file = await _chosen(chooser)
    return file.get_path() if file is not None else None


async def choose_file(parent: Gtk.Window, title: str) -> Path | None:
    chooser = Gtk.FileChooserNative.new(title, parent, Gtk.FileChooserAction.OPEN, None, None)
    return _path_of(await _chosen(chooser))


async def choose_files(parent: Gtk.Window, title: str, folder: str) -> list[str]:
    """Return the files that the user chose, none if they cancelled. Begin in the folder."""
    chooser = Gtk.FileChooserNative.new(title, parent, Gtk.FileChooserAction.OPEN, None, None)
    chooser.set_select_multiple(True)
    chooser.set_current_folder(Gio.File.new_for_path(folder or GLib.get_home_dir()))
    chosen: list[str] = []

    def note(_chooser: Gtk.FileChooserNative, response: int) -> None:
        if response == Gtk.ResponseType.ACCEPT:
            files = chooser.get_files()
            for at in range(files.get_n_items()):
                path = _path_of(cast(Gio.File, files.get_item(at)))
                chosen.extend([] if path is None else [str(path)])

    chooser.connect("response", note)
    await _chosen(chooser)
    return chosen


async def choose_new_file(parent: Gtk.Window, title: str, name: str) -> Path | None:
    chooser = Gtk.FileChooserNative.new(title, parent, Gtk.FileChooserAction.SAVE, None, None)
    chooser.set_current_name(name)
    return _path_of(await _chosen(chooser))


def _path_of(file: Gio.File | None) -> Path | None:
    path = file.get_path() if file is not None else None
    return Path(path) if path is not None else None


async def _chosen(chooser: Gtk.FileChooserNative) -> Gio.File | None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def answered(_chooser: Gtk.FileChooserNative, response: int) -> None:
        if not answer.done():
            answer.set_result(response)

    chooser.set_modal(True)
    chooser.connect("response", answered)
    chooser.show()
    try:
        accepted = await answer == Gtk.ResponseType.ACCEPT
        return chooser.get_file() if accepted else None
    finally:
        chooser.destroy()
