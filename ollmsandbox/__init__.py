# SPDX-License-Identifier: GPL-3.0-or-later
"""OLLM Sandbox: let an agent run commands on a real project without fear."""

__version__ = "0.2.0"

# Marks a text for the translators. It stays English, and is translated where it is shown.
N_ = str
