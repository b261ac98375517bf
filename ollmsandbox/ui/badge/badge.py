# SPDX-License-Identifier: GPL-3.0-or-later
"""The badge: one look says whether commands are walled in. A fact from the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from gi.repository import Gtk, Pango

from ...i18n import _
from ...text.visible import visible_words
from ..widgets.labels import without_hyphens


class Wall(Enum):
    UNKNOWN = "unknown"
    SANDBOXED = "sandboxed"
    # A command has the network right now.
    NETWORK = "network"
    # The Flatpak's, not ours: each command asks there.
    INNER = "inner"
    INNER_NETWORK = "inner-network"
    # In a Flatpak, as long as it is not known what holds a command.
    ASKING = "asking"
    NONE = "none"
    # Nothing runs at all: the project is gone, say.
    BROKEN = "broken"


@dataclass(frozen=True)
class Section:
    """A heading of the popover, and the sentences below it."""

    title: str
    sentences: Sequence[str]


_ICONS = {
    Wall.UNKNOWN: "security-medium-symbolic",
    Wall.SANDBOXED: "security-high-symbolic",
    Wall.NETWORK: "network-wired-symbolic",
    Wall.INNER: "security-medium-symbolic",
    Wall.INNER_NETWORK: "network-wired-symbolic",
    Wall.ASKING: "security-medium-symbolic",
    Wall.NONE: "security-low-symbolic",
    Wall.BROKEN: "dialog-warning-symbolic",
}
_CLASSES = {
    Wall.SANDBOXED: "success",
    Wall.NETWORK: "warning",
    Wall.INNER_NETWORK: "warning",
    Wall.NONE: "warning",
    Wall.BROKEN: "warning",
}


class SandboxBadge(Gtk.MenuButton):
    __gtype_name__ = "OllmSandboxBadge"

    def __init__(self) -> None:
        super().__init__()
        self._icon = Gtk.Image()
        self._label = Gtk.Label(ellipsize=Pango.EllipsizeMode.END)
        box = Gtk.Box(spacing=6)
        box.append(self._icon)
        box.append(self._label)
        self.set_child(box)
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
        # The keyboard goes there, to scroll.
        scrolled.update_property([Gtk.AccessibleProperty.LABEL], [_("What it can see and change")])
        self.set_popover(Gtk.Popover(child=scrolled))
        self.show(Wall.UNKNOWN, ())

    def show(self, wall: Wall, sections: Sequence[Section]) -> None:  # type: ignore[override]
        words = {
            Wall.UNKNOWN: _("Looking…"),
            Wall.SANDBOXED: _("Sandboxed, no network"),
            Wall.NETWORK: _("Sandboxed, network on"),
            # Translators: commands run in a second sandbox, which the Flatpak portal starts.
            Wall.INNER: _("Inner sandbox, no network"),
            Wall.INNER_NETWORK: _("Inner sandbox, network on"),
            Wall.ASKING: _("Asks each time"),
            Wall.NONE: _("Not sandboxed: asks each time"),
            Wall.BROKEN: _("Commands cannot run"),
        }[wall]
        self._icon.set_from_icon_name(_ICONS[wall])
        self._label.set_label(words)
        # Or the title would take its room.
        self._label.set_width_chars(len(words))
        self.set_tooltip_text(words)
        self.update_property([Gtk.AccessibleProperty.LABEL], [words])
        for name in ("success", "warning"):
            self.remove_css_class(name)
        if wall in _CLASSES:
            self.add_css_class(_CLASSES[wall])
        while (child := self._sections.get_first_child()) is not None:
            self._sections.remove(child)
        for section in sections:
            self._sections.append(_shown(section))

    def set_narrow(self, narrow: bool) -> None:
        """Where there is no room for words, the icon and its tooltip say it."""
        self._label.set_visible(not narrow)


def _shown(section: Section) -> Gtk.Widget:
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=6)
    heading = Gtk.Label(label=section.title, xalign=0, css_classes=["heading"])
    box.append(heading)
    for sentence in map(visible_words, section.sentences):
        told = Gtk.Label(label=sentence, xalign=0, wrap=True, max_width_chars=48, selectable=False)
        # Or a long path would make it as wide as itself.
        told.set_wrap_mode(Pango.WrapMode.WORD_CHAR)
        without_hyphens(told)
        box.append(told)
    return box
