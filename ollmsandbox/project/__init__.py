# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened to files: projects, their records, the changes of each run, and their undoing."""

# The seconds of a day.
DAILY = 86400
