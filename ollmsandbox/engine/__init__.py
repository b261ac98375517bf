# SPDX-License-Identifier: GPL-3.0-or-later
"""What every front end calls: prepare a run, execute it, settle its changes; move a project."""
