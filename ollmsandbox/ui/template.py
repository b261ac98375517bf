# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the .ui files and the style sheet are: in the source tree, or beside the package."""

from __future__ import annotations

from pathlib import Path

_TREE = Path(__file__).resolve().parent.parent.parent


def template(name: str) -> str:
    """For `@Gtk.Template(filename=template("code_block"))`."""
    return str(_data("ui") / f"{name}.ui")


def stylesheet() -> str:
    return str(_data("style.css"))


def _data(name: str) -> Path:
    # Installed, the package's folder has its data as neighbours; a checkout keeps them in data/.
    installed = _TREE / name
    return installed if installed.exists() else _TREE / "data" / name
