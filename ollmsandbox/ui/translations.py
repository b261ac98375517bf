# SPDX-License-Identifier: GPL-3.0-or-later
"""The language of the window: of the texts in Python and of those in .ui files."""

from __future__ import annotations

import gettext
import locale
import os
import sys

from .template import translations

DOMAIN = "ollmsandbox"


def speak(folder: str = "") -> None:
    """As the environment asks for it. Without a folder, what came with the package counts."""
    try:
        locale.setlocale(locale.LC_ALL, "")
    except locale.Error:
        # GTK would say the same, in less helpful words, and go on in English too.
        print("ollmsandbox: This locale is not installed; going on in English.", file=sys.stderr)
    if not os.path.isdir(folder):
        folder = translations()
    # Python has its own reader of translations; Gtk.Builder asks the C library's.
    gettext.bindtextdomain(DOMAIN, folder)
    gettext.textdomain(DOMAIN)
    locale.bindtextdomain(DOMAIN, folder)
    locale.bind_textdomain_codeset(DOMAIN, "UTF-8")
    locale.textdomain(DOMAIN)
