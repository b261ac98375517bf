# SPDX-License-Identifier: GPL-3.0-or-later
"""Every front end calls this: prepare a run, execute it, settle its changes; move a project."""
