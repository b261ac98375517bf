# SPDX-License-Identifier: GPL-3.0-or-later
"""Projects, the records of their files, and the changes of each run, which can be undone."""

# The seconds of a day.
DAILY = 86400
