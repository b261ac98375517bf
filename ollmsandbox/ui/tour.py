# SPDX-License-Identifier: GPL-3.0-or-later
"""The tour: a sample project, and a scripted model that works on it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from ..chat.providers.connections_file import TOUR
from ..chat.providers.tour.sample import make_sample, unused_folder
from ..paths import Paths
from .sessions import Sessions

if TYPE_CHECKING:
    from .open_session import OpenSession


async def begin_tour(paths: Paths, sessions: Sessions) -> OpenSession:
    folder = await asyncio.to_thread(_sample, paths)
    session = await sessions.new(folder)
    sessions.use_model(session, TOUR.name, TOUR.model)
    return session


def _sample(paths: Paths) -> str:
    return str(make_sample(unused_folder(paths, os.environ)))
