# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides which of a command's changes to git repositories cross without a question.

`table.py` lists it, file by file and setting by setting; everything else is held. `judge.py`
applies the table.
"""
