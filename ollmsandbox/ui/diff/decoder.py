# SPDX-License-Identifier: GPL-3.0-or-later
"""Decode the picture on standard input: a program of its own, which images.py runs in a sandbox.

It writes the width, the height, the bytes of a row and the channels in a line, and then the pixels.
"""

from __future__ import annotations

import resource
import sys

from gi.repository import GdkPixbuf, GLib

# Pixels. A small file can claim to be a picture that fills the memory.
_MOST_PIXELS = 40_000_000
_LARGEST_SIDE = 1600
_MOST_MEMORY = 2 << 30
_MOST_SECONDS = 20


class _TooLarge(Exception):
    pass


def decode(data: bytes) -> GdkPixbuf.Pixbuf | None:
    """Return the picture; None if it is not one, or too large."""
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


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
    picture = decode(sys.stdin.buffer.read())
    if picture is None:
        return 1
    size = (picture.get_width(), picture.get_height(), picture.get_rowstride())
    sys.stdout.buffer.write(b"%d %d %d %d\n" % (*size, picture.get_n_channels()))
    sys.stdout.buffer.write(picture.read_pixel_bytes().get_data() or b"")
    return 0


if __name__ == "__main__":
    sys.exit(main())
