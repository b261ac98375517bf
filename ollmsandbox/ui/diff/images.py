# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows two versions of a file that is not text: as pictures if possible, otherwise by size."""

from __future__ import annotations

from gi.repository import Gdk, GdkPixbuf, GLib, Gtk

from ...i18n import _
from ...loop import start_daemon
from ..resources import template
from ..terminal.usage import amount
from ..widgets.weak import weakly

# Pixels. A small file can claim to be a picture that fills the memory.
_MOST_PIXELS = 40_000_000
_MOST_BYTES = 32 << 20
_LARGEST_SIDE = 1600


class _TooLarge(Exception):
    pass


def binary_text(old: int | None, new: int | None) -> str:
    """Return a sentence with both sizes; None stands for a file that does not exist."""
    if old is None:
        return _("Binary file, {after}, new").format(after=amount(new or 0))
    if new is None:
        return _("Binary file, {before}, deleted").format(before=amount(old))
    return _("Binary file, {before} before, {after} after").format(
        before=amount(old), after=amount(new)
    )


def read_picture(data: bytes) -> GdkPixbuf.Pixbuf | None:
    """Return the picture; None if it is not one, or too large. May run on any thread."""
    if len(data) > _MOST_BYTES:
        return None
    loader = GdkPixbuf.PixbufLoader()
    is_too_large = False

    def prepare(loader: GdkPixbuf.PixbufLoader, width: int, height: int) -> None:
        nonlocal is_too_large
        if width * height > _MOST_PIXELS:
            is_too_large = True
        elif max(width, height) > _LARGEST_SIDE:
            share = _LARGEST_SIDE / max(width, height)
            loader.set_size(max(1, round(width * share)), max(1, round(height * share)))

    loader.connect("size-prepared", prepare)
    try:
        try:
            # In pieces, so that a picture is refused before memory is allocated for it.
            for start in range(0, len(data), 4096):
                loader.write(data[start : start + 4096])
                if is_too_large:
                    raise _TooLarge
        finally:
            loader.close()
    except (GLib.Error, _TooLarge):
        return None
    return None if is_too_large else loader.get_pixbuf()


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
        self.words.set_label(
            binary_text(None if old is None else len(old), None if new is None else len(new))
        )
        for box in (self.before, self.after):
            box.set_visible(False)
        done, ticket = self._when_read, self._ticket

        def work() -> None:
            pictures = [None if data is None else read_picture(data) for data in (old, new)]
            sizes = [0 if data is None else len(data) for data in (old, new)]
            GLib.timeout_add(0, done, ticket, pictures, sizes)

        start_daemon("picture", work)

    def _read(self, ticket: int, pictures: list[GdkPixbuf.Pixbuf | None], sizes: list[int]) -> bool:
        if ticket != self._ticket:
            return GLib.SOURCE_REMOVE
        self.is_loaded = True
        for box, picture, label, when, pixbuf, size in zip(
            (self.before, self.after),
            (self.before_picture, self.after_picture),
            (self.before_label, self.after_label),
            (_("Before"), _("After")),
            pictures,
            sizes,
            strict=True,
        ):
            box.set_visible(pixbuf is not None)
            if pixbuf is not None:
                picture.set_paintable(Gdk.Texture.new_for_pixbuf(pixbuf))
                picture.set_alternative_text(when)
                pixels = f"{pixbuf.get_width()} \N{MULTIPLICATION SIGN} {pixbuf.get_height()}"
                label.set_label(f"{when}: {pixels}, {amount(size)}")
        self.words.set_visible(all(pixbuf is None for pixbuf in pictures))
        return GLib.SOURCE_REMOVE
