# SPDX-License-Identifier: GPL-3.0-or-later
"""References and callbacks that do not keep their object alive.

A widget whose own bound method is connected to a child's signal holds itself: PyGObject cannot see
the way through the C side, so neither is ever freed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from inspect import ismethod
from typing import ParamSpec, TypeVar

from gi.repository import GObject

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


def weak_reference(thing: A) -> Callable[[], A | None]:
    """Return a function that returns `thing` while it exists, and None afterwards.

    From PyGObject 3.56 on, the Python object around a GObject is freed as soon as Python does not
    use it, and another one is made when it is needed again. The attributes, `==` and the hash stay
    the same; its id does not, and a reference of Python's own is dead although the GObject lives.
    One of these must not be freed by another thread than the one that frees the GObject.
    """
    if isinstance(thing, GObject.Object):
        # PyGObject's stubs say that it takes an argument and returns nothing.
        return thing.weak_ref()  # type: ignore[call-arg, return-value]
    return weakref.ref(thing)


def weakly(method: Callable[P, R]) -> Callable[P, R | None]:
    """Return a callback that calls `method` while its object exists, and else does nothing."""
    assert ismethod(method)
    owner, function = weak_reference(method.__self__), method.__func__

    def call(*arguments: P.args, **options: P.kwargs) -> R | None:
        alive = owner()
        return None if alive is None else function(alive, *arguments, **options)

    return call
