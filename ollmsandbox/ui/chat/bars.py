# SPDX-License-Identifier: GPL-3.0-or-later
"""What is around the composer: bars above it, and suggestions in an empty session."""

from __future__ import annotations

from collections.abc import Sequence

from gi.repository import Gtk, Pango

from ...chat.messages import QueuedMessage
from ...i18n import _, ngettext
from ...text.visible import visible_line
from ...tools.base import Picture
from ..widgets.boxes import hbox, icon_button, vbox
from ..widgets.labels import decorative_icon, name_buttons, one_line, set_accessible_name
from ..widgets.signals import forward, signals
from ..widgets.wrap_box import WrapBox

_MOST_SHOWN = 500
# Characters in a line beside a button.
_LEAST = 30


class MissingFolderBar(Gtk.Revealer):
    __gsignals__ = signals({"open-other": (), "remove": (), "locate": ()})

    def __init__(self) -> None:
        super().__init__()
        self._label = Gtk.Label(
            xalign=0, hexpand=True, wrap=True, wrap_mode=Pango.WrapMode.WORD_CHAR
        )
        icon = decorative_icon("dialog-warning-symbolic", "warning")
        buttons = WrapBox()
        for label, name in (
            (_("_Remove From List"), "remove"),
            (_("_Open a Project"), "open-other"),
            (_("_Locate…"), "locate"),
        ):
            button = Gtk.Button(label=label, use_underline=True)
            forward(button, "clicked", self, name)
            buttons.add_group([button])
        content = vbox(hbox(icon, self._label, spacing=9), buttons, spacing=9)
        content.add_css_class("missing-bar")
        name_buttons(content)
        self.set_child(content)

    def show_folder(self, folder: str) -> None:
        """Show which folder is missing; hide the bar if `folder` is empty."""
        if folder:
            words = _("The folder {} is missing. Commands cannot run until it is back.")
            self._label.set_label(words.format(visible_line(folder)))
        self.set_reveal_child(bool(folder))


class QuestionBar(Gtk.Revealer):
    __gsignals__ = signals({"show-question": ()})

    def __init__(self) -> None:
        super().__init__()
        self._label = Gtk.Label(xalign=0, hexpand=True, wrap=True)
        self._arrow = decorative_icon("go-up-symbolic")
        icon = decorative_icon("security-medium-symbolic")
        self._button = Gtk.Button(child=hbox(icon, self._label, self._arrow, spacing=9))
        self._button.add_css_class("waiting-bar")
        forward(self._button, "clicked", self, "show-question")
        self.set_child(self._button)
        self.show_count(0)

    def show_count(self, count: int, *, is_below: bool = False) -> None:
        """Show how many questions are out of view, and in which direction the first one is."""
        text = ngettext(
            "A question needs your answer", "{} questions need your answer", count
        ).format(count)
        # While the bar slides away, it keeps its text.
        if count or not self._label.get_label():
            self._label.set_label(text)
            self._arrow.set_from_icon_name("go-down-symbolic" if is_below else "go-up-symbolic")
            self._button.update_property([Gtk.AccessibleProperty.LABEL], [text])
        self.set_reveal_child(count > 0)


class QueueBar(Gtk.Box):
    """The messages that wait."""

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


class TourBar(Gtk.Box):
    """Next after each idea of the tour, and what to do at its end."""

    __gsignals__ = signals({"next": (), "open-project": (), "connect-model": (), "remove": ()})

    def __init__(self) -> None:
        super().__init__(spacing=12, visible=False)
        self.add_css_class("queue-bar")
        self._label = Gtk.Label(
            xalign=0, hexpand=True, wrap=True, css_classes=["caption", "dim-label"]
        )
        self.append(self._label)
        self.next_button = self._button(_("_Next"), "next")
        self.next_button.add_css_class("suggested-action")
        self.append(self.next_button)
        self._end = WrapBox()
        self._end.set_hexpand(True)
        for label, name in (
            (_("_Remove the Sample"), "remove"),
            (_("_Open a Project"), "open-project"),
            (_("Connect a _Model"), "connect-model"),
        ):
            self._end.add_group([self._button(label, name)])
        self.append(self._end)
        name_buttons(self)

    def show_stop(self, number: int, most: int) -> None:
        """Show the Next button at this stop."""
        self._label.set_label(_("Tour: {number} of {most}").format(number=number, most=most))
        self._show(is_end=False)
        self.next_button.grab_focus()

    def show_end(self) -> None:
        self._show(is_end=True)

    def _show(self, *, is_end: bool) -> None:
        self._label.set_visible(not is_end)
        self.next_button.set_visible(not is_end)
        self._end.set_visible(is_end)
        self.set_visible(True)

    def _button(self, label: str, name: str) -> Gtk.Button:
        button = Gtk.Button(label=label, use_underline=True, valign=Gtk.Align.CENTER)
        forward(button, "clicked", self, name)
        return button


class Suggestions(Gtk.Box):
    """Buttons for what many users begin with."""

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
