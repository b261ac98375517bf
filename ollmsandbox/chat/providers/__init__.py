# SPDX-License-Identifier: GPL-3.0-or-later
"""Where models come from."""
