# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows two versions of a file that is not text: as pictures if possible, otherwise by size."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from gi.repository import Gdk, GLib, Gtk

from ...i18n import _
from ...loop import start_daemon
from ..resources import template
from ..terminal.usage import amount
from ..widgets.weak import weakly
from . import decoder

MOST_BYTES = 32 << 20
_LONGEST = 30.0  # seconds
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
    found = run_isolated(argv, data, environ, most=MOST_BYTES, timeout=_LONGEST) or b""
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


@Gtk.Template(filename=template("diff/images"))
class ImagePair(Gtk.Box):
    __gtype_name__ = "OllmImagePair"

    before = Gtk.Template.Child()
    after = Gtk.Template.Child()
    before_picture = Gtk.Template.Child()
    after_picture = Gtk.Template.Child()
    before_label = Gtk.Template.Child()
    after_label = Gtk.Template.Child()
    words = Gtk.Template.Child()

    def __init__(self) -> None:
        super().__init__()
        self._ticket = 0
        # Held here, so that a thread never frees it. See weak_reference.
        self._when_read = weakly(self._read)
        self.is_loaded = False

    def show_files(self, old: bytes | None, new: bytes | None) -> None:
        """Show both versions; None stands for a file that does not exist. Decodes pictures on a
        thread."""
        self._ticket += 1
        self.is_loaded = False
        before, after = (None if data is None else len(data) for data in (old, new))
        self.words.set_label(binary_text(before, after))
        for box in (self.before, self.after):
            box.set_visible(False)
        done, ticket = self._when_read, self._ticket

        def work() -> None:
            pictures = [read_picture(data, os.environ) if data else None for data in (old, new)]
            GLib.timeout_add(0, done, ticket, pictures, [before or 0, after or 0])

        start_daemon("picture", work)

    def _read(self, ticket: int, pictures: list[Gdk.Texture | None], sizes: list[int]) -> bool:
        if ticket != self._ticket:
            return GLib.SOURCE_REMOVE
        self.is_loaded = True
        old = self.before, self.before_picture, self.before_label, _("Before")
        new = self.after, self.after_picture, self.after_label, _("After")
        for (box, picture, label, when), texture, size in zip(
            (old, new), pictures, sizes, strict=True
        ):
            box.set_visible(texture is not None)
            if texture is not None:
                picture.set_paintable(texture)
                picture.set_alternative_text(when)
                pixels = f"{texture.get_width()} \N{MULTIPLICATION SIGN} {texture.get_height()}"
                label.set_label(f"{when}: {pixels}, {amount(size)}")
        self.words.set_visible(all(texture is None for texture in pictures))
        return GLib.SOURCE_REMOVE
