# SPDX-License-Identifier: GPL-3.0-or-later
"""The badge in the header bar: it shows whether commands are sandboxed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from gi.repository import Gtk, Pango

from ... import N_
from ...i18n import _
from ...text.visible import visible_words
from ..widgets.boxes import hbox, scrolled_list, set_margins, vbox
from ..widgets.labels import (
    children_of,
    decorative_icon,
    set_class,
    show_hidden_as_tooltip,
    wrapped,
)

_GOOD, _FAIR, _POOR = (f"security-{degree}-symbolic" for degree in ("high", "medium", "low"))
_WIRED, _WARNING = "network-wired-symbolic", "dialog-warning-symbolic"


class SandboxState(Enum):
    """The text of each state, its icon, and the style class of its colour or ""."""

    UNKNOWN = (N_("Checking…"), _FAIR, "")
    SANDBOXED = (N_("Sandboxed, no network"), _GOOD, "success")
    # A command may reach hosts that the user allows right now.
    NETWORK = (N_("Sandboxed, allowed hosts only"), _WIRED, "warning")
    # The sandbox of a Flatpak; every command asks there.
    # Translators: commands run in a second sandbox, which the Flatpak portal starts.
    INNER = (N_("Inner sandbox, no network"), _FAIR, "")
    INNER_NETWORK = (N_("Inner sandbox, network on"), _WIRED, "warning")
    # In a Flatpak, before a project is open.
    ASKING = (N_("Asks each time"), _FAIR, "")
    NONE = (N_("Not sandboxed: asks each time"), _POOR, "warning")
    # No command can run, for example because the project is missing.
    BROKEN = (N_("Commands cannot run"), _WARNING, "warning")


class Section(NamedTuple):
    title: str
    sentences: Sequence[str]


class SandboxBadge(Gtk.MenuButton):
    def __init__(self) -> None:
        super().__init__()
        self.state = SandboxState.UNKNOWN
        self._icon = decorative_icon()
        self.label = Gtk.Label(ellipsize=Pango.EllipsizeMode.END)
        self.set_child(hbox(self._icon, self.label, spacing=6))
        show_hidden_as_tooltip(self, self.label)
        self.add_css_class("flat")
        self._sections = vbox(spacing=12)
        set_margins(self._sections, 6)
        scrolled = scrolled_list(self._sections, 420)
        # It takes the focus, so that the keyboard can scroll it.
        scrolled.update_property(
            [Gtk.AccessibleProperty.LABEL], [_("What commands can see and change")]
        )
        self.set_popover(Gtk.Popover(child=scrolled))
        self.show(SandboxState.UNKNOWN, ())

    def show(self, sandbox: SandboxState, sections: Sequence[Section]) -> None:  # type: ignore[override]
        self.state = sandbox
        words, icon, style = sandbox.value
        text = _(words)
        self._icon.set_from_icon_name(icon)
        self.label.set_label(text)
        # Without this, the title would take its room.
        self.label.set_width_chars(len(text))
        self.update_property([Gtk.AccessibleProperty.LABEL], [text])
        for name in ("success", "warning"):
            set_class(self, name, name == style)
        for child in children_of(self._sections):
            self._sections.remove(child)
        for section in sections:
            title = Gtk.Label(label=section.title, xalign=0, css_classes=["heading"])
            # A long path must not make the popover wider.
            lines = [wrapped(visible_words(one), max_width_chars=48) for one in section.sentences]
            self._sections.append(vbox(title, *lines, spacing=6))

    def set_narrow(self, narrow: bool) -> None:
        """Show only the icon, whose tooltip has the text."""
        self.label.set_visible(not narrow)

    @property
    def text_width(self) -> int:
        """The width of the text in pixels, shown or not."""
        return self.label.create_pango_layout(self.label.get_label()).get_pixel_size()[0]
