# SPDX-License-Identifier: GPL-3.0-or-later
"""The language of the window. Everything stays English until `set_language` is called."""

from __future__ import annotations

import gettext
import os
import sys

from .errors import Sentence

DOMAIN = "ollmsandbox"

# Read once: gettext's own functions look for the file on disk for each text, which takes 80 µs
# instead of 2, and most of the time in which a long list is made.
_translations = gettext.NullTranslations()


def _(text: str) -> str:
    return _translations.gettext(text)


def ngettext(singular: str, plural: str, count: int) -> str:
    return _translations.ngettext(singular, plural, count)


def pgettext(context: str, text: str) -> str:
    return _translations.pgettext(context, text)


def localized(text: str) -> str:
    """Return a sentence in the window's language. Call this first: changing a sentence makes it
    an ordinary text, which cannot be translated."""
    return text.translated(_) if isinstance(text, Sentence) else text


def load_translations(folder: str) -> None:
    """Use the translations in a folder for the languages that the environment asks for."""
    global _translations
    _translations = gettext.translation(DOMAIN, folder, fallback=True)


def set_language(folder: str = "") -> None:
    """Use the environment's language. The folder of translations is the package's by default."""
    import locale

    try:
        locale.setlocale(locale.LC_ALL, "")
    except locale.Error:
        # GTK would say the same in less helpful words, and continue in English, too.
        print("ollmsandbox: This locale is not installed; using English.", file=sys.stderr)
    if not os.path.isdir(folder):
        folder = os.path.join(os.path.dirname(os.path.realpath(__file__)), "data", "locale")
    load_translations(folder)
    # Gtk.Builder asks the C library.
    locale.bindtextdomain(DOMAIN, folder)
    locale.bind_textdomain_codeset(DOMAIN, "UTF-8")
    locale.textdomain(DOMAIN)
