# SPDX-License-Identifier: GPL-3.0-or-later
"""A short way to declare signals: `__gsignals__ = signals({"grew": (str,)})`."""

from __future__ import annotations

from collections.abc import Mapping

from gi.repository import GObject

Signals = dict[str, tuple[GObject.SignalFlags, None, tuple[type, ...]]]


def signals(declared: Mapping[str, tuple[type, ...]]) -> Signals:
    return {
        name: (GObject.SignalFlags.RUN_FIRST, None, arguments)
        for name, arguments in declared.items()
    }
