# SPDX-License-Identifier: GPL-3.0-or-later
"""About this program."""

from __future__ import annotations

from gettext import gettext as _

from gi.repository import Adw, Gtk

from .. import __version__
from .settings import SCHEMA


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
        comments=_("Let an agent run commands on a real project without fear."),
        # Translators: your name, and those before you, one a line.
        translator_credits=_("translator-credits"),
    )
