# SPDX-License-Identifier: GPL-3.0-or-later
"""The window: all that imports Gtk. The versions are named here, once, before any of it."""

from __future__ import annotations

import functools
import gettext

import gi

gi.require_version("Gtk", "4.0")
gi.require_version("Gdk", "4.0")
gi.require_version("Gsk", "4.0")
gi.require_version("Adw", "1")
gi.require_version("GtkSource", "5")

# Python looks on the disk for the file of a language anew with each word that is shown: it took
# most of the time in which a long list is made. Which files there are does not change.
gettext.find = functools.cache(gettext.find)  # type: ignore[assignment]
