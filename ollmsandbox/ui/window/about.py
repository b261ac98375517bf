# SPDX-License-Identifier: GPL-3.0-or-later
"""The About window and the list of keyboard shortcuts."""

from __future__ import annotations

from gi.repository import Adw, Gtk

from ... import __version__
from ...i18n import _
from ..resources import template
from ..settings import SCHEMA


def about(parent: Gtk.Window) -> Adw.AboutWindow:
    return Adw.AboutWindow(
        transient_for=parent,
        modal=True,
        application_name="OLLM Sandbox",
        application_icon=Gtk.Window.get_default_icon_name() or SCHEMA,
        version=__version__,
        developer_name=_("The OLLM Sandbox founders"),
        copyright=_("© 2026 The OLLM Sandbox founders"),
        license_type=Gtk.License.GPL_3_0,
        comments=_("Let an agent run commands on a real project without fear"),
        # Translators: your name below those of earlier translators, one per line.
        translator_credits=_("translator-credits"),
    )


def show_shortcuts(window: Gtk.ApplicationWindow) -> None:
    overlay = window.get_help_overlay()
    if overlay is None:
        made = Gtk.Builder.new_from_file(template("window/shortcuts")).get_object("shortcuts")
        assert isinstance(made, Gtk.ShortcutsWindow)
        # It finds the keys of the window's actions only if it belongs to the window.
        window.set_help_overlay(overlay := made)
    overlay.present()
