# SPDX-License-Identifier: GPL-3.0-or-later
"""A method as a callback that does not keep its object alive.

A widget whose own bound method is connected to a child's signal holds itself: PyGObject cannot see
the way through the C side, so neither is ever freed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


def weakly(method: Callable[P, R]) -> Callable[P, R | None]:
    """Calls `method` while its object is there, and does nothing afterwards."""
    weak = weakref.WeakMethod(method)

    def call(*arguments: P.args, **options: P.kwargs) -> R | None:
        alive = weak()
        return None if alive is None else alive(*arguments, **options)

    return call


def weakly_with(method: Callable[[A], R], argument: A) -> Callable[[], R | None]:
    """The same with what it is to be called with."""
    call = weakly(method)
    return lambda: call(argument)
