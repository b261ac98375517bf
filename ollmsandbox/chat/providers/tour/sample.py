# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates the sample project of the tour, with a bug and a test that fails because of it."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

from .... import N_
from ....errors import ProjectError
from ....paths import Paths

# The tour recognises its project by this line of the README, and touches no other.
MARK = "This is the sample project of the OLLM Sandbox tour."
WRONG = "prices[item] for item in basket)"
RIGHT = "prices[item] * number for item, number in basket.items())"

# What the tour tries to write to the home folder.
LEFT = "The tour was here."

_NAME = "OLLM Sandbox Tour"
_FILES = {
    "README.md": f"""\
# Corner shop

{MARK}
Nothing in it matters: look around, change it, delete it.

- `basket.py` adds up what is in a basket
- `prices.csv` says what things cost, in cents
- `test_basket.py` tests it: `python3 -m unittest`
""",
    "basket.py": f'''\
"""What is in a basket, and what it costs."""

import csv


def read_prices(path):
    with open(path, newline="", encoding="utf-8") as file:
        return {{row["item"]: int(row["cents"]) for row in csv.DictReader(file)}}


def total(basket, prices):
    """The price of everything in the basket, in cents. A basket is {{item: how many}}."""
    return sum({WRONG}
''',
    "test_basket.py": """\
import unittest
from pathlib import Path

from basket import read_prices, total

PRICES = read_prices(Path(__file__).with_name("prices.csv"))


class TotalTest(unittest.TestCase):
    def test_an_empty_basket_costs_nothing(self):
        self.assertEqual(total({}, PRICES), 0)

    def test_one_of_each(self):
        self.assertEqual(total({"apple": 1, "bread": 1}, PRICES), 290)

    def test_three_apples_cost_three_times_as_much(self):
        self.assertEqual(total({"apple": 3}, PRICES), 120)


if __name__ == "__main__":
    unittest.main()
""",
    "prices.csv": "item,cents\napple,40\nbread,250\nmilk,110\n",
    "old-notes.txt": "Ask Sam about the summer prices. (Done, 2019.)\n",
}


def unused_folder(paths: Paths) -> Path:
    """Return a new folder each time: the tour needs the bug again, and the user may want to look at
    the last one. It is beside the program's data, not among the user's own folders."""
    names = (f"{_NAME} {number}" if number > 1 else _NAME for number in count(1))
    around = paths.data.parent
    return next(around / name for name in names if not (around / name).exists())


def is_sample(folder: Path) -> bool:
    try:
        return folder.name.startswith(_NAME) and MARK in (folder / "README.md").read_text("utf-8")
    except (OSError, ValueError):
        return False


def remove_sample(folder: Path, paths: Paths) -> None:
    """Delete a sample project, and what the tour wrote to the home folder without a sandbox. Any
    other folder is left alone."""
    written = paths.home / "ollm-tour.txt"
    try:
        if is_sample(folder):
            shutil.rmtree(folder)
        if written.is_file() and written.read_text("utf-8").strip() == LEFT:
            written.unlink()
    except (OSError, ValueError) as error:
        raise ProjectError(
            N_("Cannot delete {folder}: {why}."), folder=folder, why=str(error)
        ) from error


def make_sample(folder: Path) -> Path:
    """Create the project in a folder that is new or empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ProjectError(
                N_("{folder} is not empty."),
                N_("The sample project needs a folder of its own."),
                folder=folder,
            )
        for name, text in _FILES.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ProjectError(
            N_("The sample project cannot be made in {folder}: {why}."),
            folder=folder,
            why=error.strerror,
        ) from error
    return folder
