# SPDX-License-Identifier: GPL-3.0-or-later
"""Buttons in an empty session for what many users begin with."""

from __future__ import annotations

from gi.repository import Gtk

from ...i18n import _
from ..widgets.signals import forward, signals
from ..widgets.wrap_box import WrapBox


class Suggestions(Gtk.Box):
    __gtype_name__ = "OllmSuggestions"

    __gsignals__ = signals({"chosen": (str,)})

    def __init__(self) -> None:
        super().__init__(halign=Gtk.Align.CENTER, margin_start=12, margin_end=12, margin_bottom=18)
        # Below each other where they do not fit.
        lines = WrapBox()
        for text in (_("Run the tests"), _("Explain this project"), _("What changed last?")):
            button = Gtk.Button(label=text, css_classes=["chip"])
            forward(button, "clicked", self, "chosen", text)
            lines.add_group([button])
        self.append(lines)
