# SPDX-License-Identifier: GPL-3.0-or-later
"""The window: the only package that imports Gtk. It requires the versions before anything else."""

from __future__ import annotations

import gi

gi.require_version("Gtk", "4.0")
gi.require_version("Gdk", "4.0")
gi.require_version("Gsk", "4.0")
gi.require_version("Graphene", "1.0")
gi.require_version("Adw", "1")
gi.require_version("GtkSource", "5")
