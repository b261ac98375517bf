# SPDX-License-Identifier: GPL-3.0-or-later
"""Byte-compiles the package that `meson install` has just put in place: `compile.py FOLDER`."""

import compileall
import os
import sys

folder = sys.argv[1]
staging = os.environ.get("DESTDIR", "")
# Tracebacks name the file where it will be, not where a packager collected it.
compiled = compileall.compile_dir(staging + folder, ddir=folder, quiet=1)
sys.exit(0 if compiled else 1)
