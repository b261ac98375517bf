# SPDX-License-Identifier: GPL-3.0-or-later
"""A ring at the composer with the share of the model's context that is used; it opens to the tokens
of the session."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gi.repository import Gtk

from ...i18n import _, ngettext
from ..widgets.boxes import hbox, set_margins, text_button, vbox
from ..widgets.labels import set_accessible_name
from ..widgets.readable import money, number
from ..widgets.signals import signals
from ..widgets.weak import weakly

if TYPE_CHECKING:
    import cairo

    from ..sessions.open_session import OpenSession

# Pixels.
_SIZE, _LINE = 14, 2.5


class ContextRing(Gtk.MenuButton):
    # Let the model summarise the conversation.
    __gsignals__ = signals({"summarise": ()})

    def __init__(self) -> None:
        super().__init__(direction=Gtk.ArrowType.UP, visible=False, css_classes=["flat"])
        self._share = 0.0
        self._area = Gtk.DrawingArea(
            content_width=_SIZE, content_height=_SIZE, valign=Gtk.Align.CENTER
        )
        self._area.set_draw_func(weakly(self._draw))
        self._label = Gtk.Label(css_classes=["numeric"])
        self.set_child(hbox(self._area, self._label, spacing=6))
        self.details = Gtk.Label(xalign=0, wrap=True, max_width_chars=46)
        self.button = text_button(self, _("_Summarize Now"), "summarise")
        self.button.connect("clicked", weakly(self._on_clicked))
        box = vbox(self.details, self.button, spacing=12)
        set_margins(box, 6)
        self.set_popover(Gtk.Popover(child=box))
        none = _("{percent} %").format(percent=0)
        set_accessible_name(self, _("Context: {share}").format(share=none))

    def show_session(self, session: OpenSession, *_args: object) -> None:
        spent, room = session.spent, session.room
        self.set_visible(spent.tokens > 0)
        self._share = min(1.0, session.used / room) if room else 0.0
        # Translators: the share of a model's context that is used, in percent.
        share = _("{percent} %").format(percent=round(100 * self._share)) if room else ""
        self._label.set_label(share)
        self._label.set_visible(bool(share))
        lines = []
        if room:
            text = _("{share} of the model's context of {room} tokens")
            lines.append(text.format(share=share, room=number(room)))
        count = spent.tokens
        text = ngettext("{count} token in this session", "{count} tokens in this session", count)
        lines.append(text.format(count=number(count)))
        if spent.cost is not None:
            # Translators: what the model's answers in this session have cost.
            lines.append(_("Cost: {cost}").format(cost=money(spent.cost)))
        self.details.set_label("\n".join(lines))
        set_accessible_name(self, _("Context: {share}").format(share=share or lines[0]))
        self.button.set_sensitive(not session.is_busy and session.conversation.model is not None)
        self._area.queue_draw()

    def _draw(self, area: Gtk.DrawingArea, context: cairo.Context, width: int, height: int) -> None:
        colour = area.get_style_context().get_color()
        radius = (min(width, height) - _LINE) / 2
        context.set_line_width(_LINE)
        context.set_source_rgba(colour.red, colour.green, colour.blue, 0.2)
        context.arc(width / 2, height / 2, radius, 0, 2 * math.pi)
        context.stroke()
        context.set_source_rgba(colour.red, colour.green, colour.blue, 1)
        top = -math.pi / 2
        context.arc(width / 2, height / 2, radius, top, top + 2 * math.pi * self._share)
        context.stroke()

    def _on_clicked(self, _button: Gtk.Button) -> None:
        self.popdown()
