# SPDX-License-Identifier: GPL-3.0-or-later
"""The badge in the header bar: it shows whether commands are sandboxed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from gi.repository import Gtk, Pango

from ...i18n import _
from ...text.visible import visible_words
from ..widgets.labels import decorative_icon, show_hidden_as_tooltip, without_hyphens


class SandboxState(Enum):
    UNKNOWN = "unknown"
    SANDBOXED = "sandboxed"
    # A command may reach hosts that the user allows right now.
    NETWORK = "network"
    # The sandbox of a Flatpak; every command asks there.
    INNER = "inner"
    INNER_NETWORK = "inner-network"
    # In a Flatpak, before a project is open.
    ASKING = "asking"
    NONE = "none"
    # No command can run, for example because the project is missing.
    BROKEN = "broken"


class Section(NamedTuple):
    """A heading of the popover, and the sentences below it."""

    title: str
    sentences: Sequence[str]


_ICONS = {
    SandboxState.UNKNOWN: "security-medium-symbolic",
    SandboxState.SANDBOXED: "security-high-symbolic",
    SandboxState.NETWORK: "network-wired-symbolic",
    SandboxState.INNER: "security-medium-symbolic",
    SandboxState.INNER_NETWORK: "network-wired-symbolic",
    SandboxState.ASKING: "security-medium-symbolic",
    SandboxState.NONE: "security-low-symbolic",
    SandboxState.BROKEN: "dialog-warning-symbolic",
}
_CLASSES = {
    SandboxState.SANDBOXED: "success",
    SandboxState.NETWORK: "warning",
    SandboxState.INNER_NETWORK: "warning",
    SandboxState.NONE: "warning",
    SandboxState.BROKEN: "warning",
}


class SandboxBadge(Gtk.MenuButton):
    __gtype_name__ = "OllmSandboxBadge"

    def __init__(self) -> None:
        super().__init__()
        self.state = SandboxState.UNKNOWN
        self._icon = decorative_icon()
        self.label = Gtk.Label(ellipsize=Pango.EllipsizeMode.END)
        box = Gtk.Box(spacing=6)
        box.append(self._icon)
        box.append(self.label)
        self.set_child(box)
        show_hidden_as_tooltip(self, self.label)
        self.add_css_class("flat")
        self._sections = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=12)
        for side in ("start", "end", "top", "bottom"):
            getattr(self._sections, f"set_margin_{side}")(6)
        scrolled = Gtk.ScrolledWindow(
            hscrollbar_policy=Gtk.PolicyType.NEVER,
            propagate_natural_height=True,
            propagate_natural_width=True,
            max_content_height=420,
            child=self._sections,
        )
        # It takes the focus, so that the keyboard can scroll it.
        scrolled.update_property(
            [Gtk.AccessibleProperty.LABEL], [_("What commands can see and change")]
        )
        self.set_popover(Gtk.Popover(child=scrolled))
        self.show(SandboxState.UNKNOWN, ())

    def show(self, sandbox: SandboxState, sections: Sequence[Section]) -> None:  # type: ignore[override]
        text = {
            SandboxState.UNKNOWN: _("Checking…"),
            SandboxState.SANDBOXED: _("Sandboxed, no network"),
            SandboxState.NETWORK: _("Sandboxed, allowed hosts only"),
            # Translators: commands run in a second sandbox, which the Flatpak portal starts.
            SandboxState.INNER: _("Inner sandbox, no network"),
            SandboxState.INNER_NETWORK: _("Inner sandbox, network on"),
            SandboxState.ASKING: _("Asks each time"),
            SandboxState.NONE: _("Not sandboxed: asks each time"),
            SandboxState.BROKEN: _("Commands cannot run"),
        }[sandbox]
        self.state = sandbox
        self._icon.set_from_icon_name(_ICONS[sandbox])
        self.label.set_label(text)
        # Without this, the title would take its room.
        self.label.set_width_chars(len(text))
        self.update_property([Gtk.AccessibleProperty.LABEL], [text])
        for name in ("success", "warning"):
            self.remove_css_class(name)
        if sandbox in _CLASSES:
            self.add_css_class(_CLASSES[sandbox])
        while (child := self._sections.get_first_child()) is not None:
            self._sections.remove(child)
        for section in sections:
            self._sections.append(_section_box(section))

    def set_narrow(self, narrow: bool) -> None:
        """Show only the icon, whose tooltip has the text."""
        self.label.set_visible(not narrow)

    @property
    def text_width(self) -> int:
        """The width of the text in pixels, shown or not."""
        return self.label.create_pango_layout(self.label.get_label()).get_pixel_size()[0]


def _section_box(section: Section) -> Gtk.Widget:
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=6)
    heading = Gtk.Label(label=section.title, xalign=0, css_classes=["heading"])
    box.append(heading)
    for sentence in map(visible_words, section.sentences):
        label = Gtk.Label(label=sentence, xalign=0, wrap=True, max_width_chars=48, selectable=False)
        # A long path must not make the popover wider.
        label.set_wrap_mode(Pango.WrapMode.WORD_CHAR)
        without_hyphens(label)
        box.append(label)
    return box
