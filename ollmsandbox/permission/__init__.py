# SPDX-License-Identifier: GPL-3.0-or-later
"""Who said yes: questions, answers, rules."""
