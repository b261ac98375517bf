# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows pictures, and two versions of a file that is not text: as pictures or by their sizes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from gi.repository import Adw, Gdk, GLib, Gtk

from ...i18n import _
from ...loop import start_daemon
from ..terminal.usage import amount
from ..widgets.boxes import hbox, set_margins, vbox
from ..widgets.labels import wrapped
from ..widgets.weak import weakly
from . import decoder

MOST_BYTES = 32 << 20
_LONGEST_SIDE = 16384  # what every graphics card can show
_FORMATS = {3: Gdk.MemoryFormat.R8G8B8, 4: Gdk.MemoryFormat.R8G8B8A8}


def binary_text(old: int | None, new: int | None) -> str:
    """Return a sentence with both sizes; None stands for a file that does not exist."""
    if old is None:
        return _("Binary file, {after}, new").format(after=amount(new or 0))
    if new is None:
        return _("Binary file, {before}, deleted").format(before=amount(old))
    return _("Binary file, {before} before, {after} after").format(
        before=amount(old), after=amount(new)
    )


def read_picture(data: bytes, environ: Mapping[str, str]) -> Gdk.Texture | None:
    """Return the picture; None if it is not one, or too large. May run on any thread.

    A project's files are not to be trusted, and decoders have had many holes: a process that can do
    nothing else decodes them, and only pixels come back.
    """
    if len(data) > MOST_BYTES:
        return None
    from ...sandbox.isolated import run_isolated  # the composer needs only MOST_BYTES

    argv = (sys.executable, "-I", decoder.__file__)
    found = run_isolated(argv, data, environ, most=MOST_BYTES, timeout=30.0) or b""
    head, _newline, pixels = found.partition(b"\n")
    try:
        width, height, row, channels = map(int, head.split())
    except ValueError:
        return None
    if channels not in _FORMATS or not 0 < width * channels <= row or height <= 0:
        return None
    if max(width, height) > _LONGEST_SIDE or row * height > MOST_BYTES:
        return None
    # The last row may end with its last pixel.
    if len(pixels) < row * (height - 1) + width * channels:
        return None
    content = GLib.Bytes.new(pixels.ljust(row * height, b"\0"))
    return Gdk.MemoryTexture.new(width, height, _FORMATS[channels], content, row)


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
            self.set_child(self._make(texture))
            self.set_visible(True)
        return GLib.SOURCE_REMOVE

    def _make(self, texture: Gdk.Texture) -> Gtk.Widget:
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
        return Adw.Clamp(child=picture, maximum_size=most, tightening_threshold=most)


class PictureVersion(DecodedPicture):
    """One of two versions of a picture, with its size below it."""

    def __init__(self, data: bytes, when: str) -> None:
        super().__init__(data, when, highest=_LONGEST_SIDE)
        self._bytes = len(data)
        self.set_halign(Gtk.Align.CENTER)
        self.set_valign(Gtk.Align.START)

    def _make(self, texture: Gdk.Texture) -> Gtk.Widget:
        pixels = f"{texture.get_width()} \N{MULTIPLICATION SIGN} {texture.get_height()}"
        text = f"{self._name}: {pixels}, {amount(self._bytes)}"
        return vbox(super()._make(texture), _centred(text, "caption"), spacing=6)


class ImagePair(Gtk.Box):
    """Both versions as pictures, or a sentence with their sizes if neither is one."""

    def __init__(self, old: bytes | None, new: bytes | None) -> None:
        """None stands for a file that does not exist."""
        super().__init__(orientation=Gtk.Orientation.VERTICAL)
        set_margins(self, 12)
        before, after = (None if data is None else len(data) for data in (old, new))
        words = _centred(binary_text(before, after), "dim-label")
        words.set_vexpand(True)
        self.append(words)
        beside = hbox(spacing=12, homogeneous=True)
        self.append(beside)
        for data, when in ((old, _("Before")), (new, _("After"))):
            if data:
                picture = PictureVersion(data, when)
                picture.connect("notify::visible", lambda *_args: words.set_visible(False))
                beside.append(picture)


def _centred(text: str, style: str) -> Gtk.Label:
    return wrapped(text, style, xalign=0.5, justify=Gtk.Justification.CENTER)
