# SPDX-License-Identifier: GPL-3.0-or-later
"""The window: all that imports Gtk. The versions are named here, once, before any of it."""

from __future__ import annotations

import gi

gi.require_version("Gtk", "4.0")
gi.require_version("Gdk", "4.0")
gi.require_version("Gsk", "4.0")
gi.require_version("Graphene", "1.0")
gi.require_version("Adw", "1")
gi.require_version("GtkSource", "5")
