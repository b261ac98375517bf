# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox` opens the window; with a sub-command it is the command line."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence


def main(application_id: str = "", translations: str = "") -> int:
    """Run the window or the command line. The launcher passes its id and its translations."""
    arguments = sys.argv[1:]
    if wants_window(arguments, os.environ):
        # Modules are loaded now, and stay: see ui/window/garbage.py.
        gc.disable()
        from .i18n import set_language

        # First: modules may translate texts when they are imported.
        set_language(translations)
        from .ui.application import main as window

        return window(sys.argv, application_id)
    # Loading the modules for a command makes fewer objects than that, and all of them stay: looking
    # for garbage meanwhile takes 4 % of the time of `run -- true`.
    gc.set_threshold(100_000)
    from .cli.main import main as command_line

    return command_line(arguments)


def wants_window(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Without a display, no argument shows the help."""
    if not arguments:
        backend = environ.get("GDK_BACKEND", "")
        return bool(
            environ.get("WAYLAND_DISPLAY") or environ.get("DISPLAY") or backend == "broadway"
        )
    # A folder, as a file manager names it: with a slash, so that none is taken for a sub-command.
    return arguments[0] == "--gapplication-service" or all(
        argument in (".", "..") or "/" in argument for argument in arguments
    )


if __name__ == "__main__":
    sys.exit(main())
