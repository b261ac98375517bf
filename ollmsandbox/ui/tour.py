# SPDX-License-Identifier: GPL-3.0-or-later
"""The tour: a sample project, and a scripted model that works on it."""

from __future__ import annotations

import asyncio

from ..chat.providers.connections import TOUR
from ..chat.providers.tour import make_sample
from ..paths import Paths
from .open_session import OpenSession
from .sessions import Sessions


async def begin_tour(paths: Paths, sessions: Sessions) -> OpenSession:
    folder = await asyncio.to_thread(_sample, paths)
    session = await sessions.new(folder)
    sessions.use_model(session, TOUR.name, TOUR.model)
    return session


def _sample(paths: Paths) -> str:
    """A new one each time: what was done to the last one may be worth a look."""
    number = 1
    folder = paths.home / "OLLM Sandbox Tour"
    while folder.exists():
        number += 1
        folder = paths.home / f"OLLM Sandbox Tour {number}"
    make_sample(folder)
    return str(folder)
