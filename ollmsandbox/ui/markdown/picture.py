# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures in the chat: files of the project that an answer names, and attached ones. Nothing is
fetched from the network."""

from __future__ import annotations

import os
from collections.abc import Callable

from gi.repository import Adw, Gdk, GLib, Gtk

from ...files.overlayfs import find_in_layers, read_seen
from ...loop import start_daemon
from ..diff.images import MOST_BYTES, read_picture
from ..widgets.weak import weakly


def read_from_project(project: str, path: str) -> bytes | None:
    """Return the content of a file of the project; None if there is none at this path, or if it
    leaves the project, also through a link that a command made."""
    inner = os.path.relpath(os.path.join(project, path), project)
    if inner.split("/")[0] in ("..", ".", "") or "\0" in inner:
        return None
    try:
        seen = find_in_layers([project], inner)
        return read_seen(seen, MOST_BYTES) if seen is not None and seen.is_file else None
    except OSError:
        return None


class DecodedPicture(Adw.Bin):
    """Takes no room until it is read and decoded, on a thread and outside the window's process."""

    def __init__(
        self,
        content: bytes | Callable[[], bytes | None],
        name: str,
        highest: int = 420,
        widest: int | None = None,
    ) -> None:
        """A picture without a name is decoration for screen readers."""
        super().__init__(visible=False, halign=Gtk.Align.START)
        self._name = name
        self._highest = highest
        self._widest = widest
        # Held here, so that a thread never frees it. See weak_reference.
        self._when_read = done = weakly(self._show)

        def work() -> None:
            data = content if isinstance(content, bytes) else content()
            picture = read_picture(data, os.environ) if data else None
            GLib.timeout_add(0, done, picture)

        start_daemon("picture", work)

    def _show(self, texture: Gdk.Texture | None) -> bool:
        if texture is not None:
            roles = Gtk.AccessibleRole
            picture = Gtk.Picture(
                paintable=texture,
                can_shrink=True,
                keep_aspect_ratio=True,
                accessible_role=roles.IMG if self._name else roles.PRESENTATION,
            )
            picture.set_alternative_text(self._name)
            picture.add_css_class("card")
            picture.set_overflow(Gtk.Overflow.HIDDEN)
            # Its height follows from its width.
            width = texture.get_width() * min(1.0, self._highest / texture.get_height())
            most = max(1, round(min(width, self._widest or width)))
            clamp = Adw.Clamp(child=picture, maximum_size=most, tightening_threshold=most)
            self.set_child(clamp)
            self.set_visible(True)
        return GLib.SOURCE_REMOVE


class ProjectPicture(DecodedPicture):
    def __init__(self, project: str, path: str, name: str) -> None:
        super().__init__(lambda: read_from_project(project, path), name)
