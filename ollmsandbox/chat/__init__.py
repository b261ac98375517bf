# SPDX-License-Identifier: GPL-3.0-or-later
"""Talking to a model."""
