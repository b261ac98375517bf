# SPDX-License-Identifier: GPL-3.0-or-later
"""The language of the window: of the texts in Python and of those in .ui files.

What comes from below, in the person's language. It is English everywhere else.

The language of the window: of the texts in Python and of those in .ui files.
"""

from __future__ import annotations

import functools
import gettext
import locale
import os
import sys

from ..errors import Sentence
from .resources import translations


def spoken(text: str) -> str:
    """To be asked before anything is done to the text: what is made of it is no sentence."""
    return text.translated(gettext.gettext) if isinstance(text, Sentence) else text


DOMAIN = "ollmsandbox"

_find = gettext.find


def look_once() -> None:
    """Python looks on the disk for the file of a language anew with each word that is shown: it
    took most of the time in which a long list is made. Which files there are does not change."""
    gettext.find = functools.cache(_find)  # type: ignore[assignment]


def speak(folder: str = "") -> None:
    """As the environment asks for it. Without a folder, what came with the package counts."""
    try:
        locale.setlocale(locale.LC_ALL, "")
    except locale.Error:
        # GTK would say the same, in less helpful words, and go on in English too.
        print("ollmsandbox: This locale is not installed; going on in English.", file=sys.stderr)
    if not os.path.isdir(folder):
        folder = translations()
    look_once()
    # Python has its own reader of translations; Gtk.Builder asks the C library's.
    gettext.bindtextdomain(DOMAIN, folder)
    gettext.textdomain(DOMAIN)
    locale.bindtextdomain(DOMAIN, folder)
    locale.bind_textdomain_codeset(DOMAIN, "UTF-8")
    locale.textdomain(DOMAIN)
