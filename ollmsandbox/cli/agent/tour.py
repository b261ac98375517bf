# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox tour`"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ...chat.providers.connections_file import TOUR
from ...chat.providers.tour.sample import make_sample, unused_folder
from ...paths import Paths
from .command import agent


def tour(given: argparse.Namespace) -> int:
    unused = unused_folder(Paths.from_environ(os.environ))
    folder = make_sample(Path(given.project) if given.project else unused)
    if not given.json:
        print(f"ollmsandbox: The sample project is in {folder}.", file=sys.stderr)
    return agent(
        argparse.Namespace(
            text="Show me around.",
            model="",
            connection=TOUR.name,
            project=str(folder),
            session=None,
            go_on=False,
            apply="auto",
            profile=None,
            max_turns=50,
            max_minutes=None,
            max_tokens=None,
            allow_private=False,
            ask_every_command=False,
            yes_to_nothing=given.yes_to_nothing,
            json=given.json,
        )
    )
