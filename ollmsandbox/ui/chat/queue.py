# SPDX-License-Identifier: GPL-3.0-or-later
"""Bars above the composer: for messages that wait, and while an earlier one is edited."""

from __future__ import annotations

from collections.abc import Sequence

from gi.repository import Gtk

from ...chat.messages import QueuedMessage
from ...i18n import _
from ...text.visible import visible_line
from ...tools.base import Picture
from ..widgets.boxes import hbox, icon_button
from ..widgets.labels import name_buttons, one_line, set_accessible_name
from ..widgets.signals import forward, signals
from ..widgets.wrap_box import WrapBox

_MOST_SHOWN = 500
# Characters in a line beside a button.
_LEAST = 30


class QueueBar(Gtk.Box):
    __gtype_name__ = "OllmQueueBar"

    # The place of a message in the queue.
    __gsignals__ = signals({"drop": (int,)})

    def __init__(self) -> None:
        super().__init__(orientation=Gtk.Orientation.VERTICAL, visible=False)
        self.add_css_class("queue-bar")
        self.append(
            Gtk.Label(
                label=_("Waiting for the agent"), xalign=0, css_classes=["caption", "dim-label"]
            )
        )
        self._rows: list[Gtk.Widget] = []

    def show_messages(self, messages: Sequence[QueuedMessage]) -> None:
        for row in self._rows:
            self.remove(row)
        self._rows = [self._row(place, message) for place, message in enumerate(messages)]
        for row in self._rows:
            self.append(row)
        self.set_visible(bool(messages))

    def _row(self, place: int, message: QueuedMessage) -> Gtk.Widget:
        shown = visible_line(message.title[:_MOST_SHOWN])
        row = hbox(spacing=6)
        if message.pictures:
            names = ", ".join(picture.name for picture in message.pictures)
            icon = Gtk.Image(icon_name="image-x-generic-symbolic", tooltip_text=names)
            set_accessible_name(icon, _("Attached pictures"))
            row.append(icon)
        text = one_line(shown)
        text.set_hexpand(True)
        row.append(text)
        cross = icon_button(
            "window-close-symbolic", _("Do Not Send"), "flat", "circular", "chip-button"
        )
        set_accessible_name(cross, _("Do not send: {}").format(shown))
        forward(cross, "clicked", self, "drop", place)
        row.append(cross)
        return row


class EditBar(Gtk.Box):
    """Shown while the composer has the last message, to be sent again."""

    __gtype_name__ = "OllmEditBar"

    __gsignals__ = signals({"cancel": (), "restore": ()})

    def __init__(self) -> None:
        super().__init__(spacing=6, visible=False)
        self.add_css_class("queue-bar")
        # In a narrow window, the button is below the text.
        content = WrapBox()
        content.set_property("spread", True)
        content.set_property("shrink", True)
        content.set_hexpand(True)
        # The text and the pictures that the composer had before.
        self.before: tuple[str, tuple[Picture, ...]] = ("", ())
        # When the message was sent.
        self.sent_at = 0.0
        words = _("Editing your last message. Its answer will be replaced; files stay as they are.")
        label = Gtk.Label(
            label=words,
            xalign=0,
            wrap=True,
            width_chars=_LEAST,
            css_classes=["caption", "dim-label"],
        )
        self.restore_button = Gtk.Button(label=_("_Restore Files…"), use_underline=True)
        self.restore_button.set_valign(Gtk.Align.CENTER)
        self.restore_button.add_css_class("small-button")
        name_buttons(self.restore_button)
        cross = icon_button("window-close-symbolic", _("Cancel"), "flat", "circular", "chip-button")
        forward(self.restore_button, "clicked", self, "restore")
        forward(cross, "clicked", self, "cancel")
        content.add_group([label])
        content.add_group([self.restore_button])
        self.append(content)
        self.append(cross)
