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
from ..arguments import add_agent_arguments
from .command import agent


def tour(given: argparse.Namespace) -> int:
    unused = unused_folder(Paths.from_environ(os.environ))
    folder = make_sample(Path(given.project) if given.project else unused)
    if not given.json:
        print(f"ollmsandbox: The sample project is in {folder}.", file=sys.stderr)
    words = ["Show me around.", f"--connection={TOUR.name}", f"--project={folder}"]
    words += ["--json"] * given.json + ["--yes-to-nothing"] * given.yes_to_nothing
    parser = argparse.ArgumentParser()
    add_agent_arguments(parser)
    return agent(parser.parse_args(words))
