# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox`: with a sub-command it is the command line."""

from __future__ import annotations

import sys


def main() -> int:
    from .cli import main as command_line

    return command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
