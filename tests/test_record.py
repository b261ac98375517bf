# SPDX-License-Identifier: GPL-3.0-or-later
"""Records keep what their class names, and refuse anything else."""

from __future__ import annotations

import pytest

from ollmsandbox.record import Record


class Point(Record):
    x: int
    y: int = 0

    def total(self) -> int:
        return self.x + self.y


class Named(Point):
    name: str = ""


def test_values_are_kept_compared_hashed_unpacked_and_replaced() -> None:
    point = Point(1, y=2)
    x, y = point
    assert (x, y, point.total(), Point(1).y) == (1, 2, 3, 0)
    assert point == Point(1, 2) != Point(2, 1)
    assert {point: 1}[Point(y=2, x=1)] == 1
    assert point._replace(y=5) == Point(1, 5)
    assert Named(1, 2, "a")._asdict() == {"x": 1, "y": 2, "name": "a"}
    assert Named(1, 2) != point
    assert repr(point) == "Point({'x': 1, 'y': 2})"


def test_missing_and_unknown_values_are_refused() -> None:
    for values, named in (((), {}), ((1, 2, 3), {}), ((1,), {"z": 1}), ((), {"y": 1})):
        with pytest.raises(TypeError, match="Point has these values: x, y"):
            Point(*values, **named)
    with pytest.raises(TypeError):
        Point(1)._replace(z=2)
