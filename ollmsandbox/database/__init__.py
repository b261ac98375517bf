# SPDX-License-Identifier: GPL-3.0-or-later
"""The database that projects, sessions and permissions share: its tables and its connection."""
