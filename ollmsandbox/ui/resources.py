# SPDX-License-Identifier: GPL-3.0-or-later
"""Find templates, the style sheet, icons and settings schemas."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_TREE = _PACKAGE.parent


def template(name: str) -> str:
    """Return a template's path, for `@Gtk.Template(filename=template("markdown/code_block"))`."""
    return str(_data("ui") / f"{name}.ui")


def stylesheet() -> str:
    return str(_data("style.css"))


def icons() -> list[Path]:
    """Return folders with icons, besides those where every program looks: a checkout is not
    installed, and the desktop may not know a user's own prefix."""
    places = (_data("icons"), _TREE.parent / "icons")
    return [place for place in places if (place / "hicolor").is_dir()]


def schemas() -> list[Path]:
    """Return folders with compiled settings schemas, this program's own first."""
    places = (
        _PACKAGE / "data",
        _TREE / "build" / "data",
        _TREE.parent / "glib-2.0" / "schemas",
    )
    return [place for place in places if (place / "gschemas.compiled").is_file()]


def _data(name: str) -> Path:
    # meson puts them beside the package's folder, pip into it; a checkout keeps them in data/.
    for place in (_PACKAGE / "data" / name, _TREE / name):
        if place.exists():
            return place
    return _TREE / "data" / name
