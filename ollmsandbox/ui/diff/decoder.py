# SPDX-License-Identifier: GPL-3.0-or-later
"""Decode the picture on standard input: a program of its own, which images.py runs in a sandbox.

It writes the width, the height, the bytes of a row and the channels in a line, and then the pixels.
"""

from __future__ import annotations

import os
import resource
import sys

from gi.repository import GdkPixbuf, GLib


def decode(data: bytes) -> GdkPixbuf.Pixbuf | None:
    """Return the picture, not larger than it can be shown; None if it is none. End the process if
    it is too large to be decoded."""
    loader = GdkPixbuf.PixbufLoader()
    loader.connect("size-prepared", _prepare)
    try:
        try:
            loader.write(data)
        finally:
            loader.close()
    except GLib.Error:
        return None
    picture = loader.get_pixbuf()
    if picture and (size := _size_to_show(picture.get_width(), picture.get_height())):
        # glycin scales drawings only.
        return picture.scale_simple(*size, GdkPixbuf.InterpType.BILINEAR)
    return picture


def _prepare(loader: GdkPixbuf.PixbufLoader, width: int, height: int) -> None:
    # A small file can claim to be a picture that fills the memory.
    if width * height > 40_000_000:
        # Now, before memory is allocated for it: the loader would go on.
        os._exit(1)
    if size := _size_to_show(width, height):
        loader.set_size(*size)


def _size_to_show(width: int, height: int) -> tuple[int, int] | None:
    """Return the smaller size of a picture that is too large to be shown as it is."""
    share = 1600 / max(width, height)
    return (max(1, round(width * share)), max(1, round(height * share))) if share < 1 else None


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    # gdk-pixbuf 2.44 can decode with glycin, which starts other programs in a sandbox of its own.
    # That cannot be done in ours. It does without for its own program of this name, which expects
    # to be in a sandbox, too.
    GLib.set_prgname("gdk-pixbuf-thumbnailer")
    # There it keeps the picture in a file. In our sandbox, only this folder can be written to.
    os.environ["TMPDIR"] = "/run"
    picture = decode(sys.stdin.buffer.read())
    if picture is None:
        return 1
    size = (picture.get_width(), picture.get_height(), picture.get_rowstride())
    sys.stdout.buffer.write(b"%d %d %d %d\n" % (*size, picture.get_n_channels()))
    sys.stdout.buffer.write(picture.read_pixel_bytes().get_data() or b"")
    return 0


if __name__ == "__main__":
    sys.exit(main())
