# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures that the user attaches to a message, before they are sent."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gi.repository import Gio

from ...text.visible import visible_line
from ...tools.base import LARGEST_PICTURE, Picture
from ..diff.images import MOST_BYTES, read_picture

# The formats that servers accept.
_KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")


def is_picture_file(path: str) -> bool:
    kind, _is_uncertain = Gio.content_type_guess(os.path.basename(path), None)
    return kind.startswith("image/")


def read_attachment(path: str, environ: Mapping[str, str]) -> Picture | None:
    """Return the picture in a file; None if it is none or unreadable. May run on any thread."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError:
        return None
    return decode_attachment(data, visible_line(os.path.basename(path)), environ)


def decode_attachment(data: bytes, name: str, environ: Mapping[str, str]) -> Picture | None:
    """Return the picture; None if it is none. One that is too large for servers, or in a format
    that they do not know, becomes a PNG of at most 1600 pixels. May run on any thread."""
    texture = read_picture(data, environ)
    if texture is None:
        return None
    kind, _is_uncertain = Gio.content_type_guess(None, data[:64])
    if kind not in _KINDS or len(data) > LARGEST_PICTURE:
        kind, data = "image/png", texture.save_to_png_bytes().get_data() or b""
    return Picture(kind, data, name) if len(data) <= LARGEST_PICTURE else None
