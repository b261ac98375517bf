# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the JSON that servers and models send, and look into data of any shape."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from ...text.visible import replace_surrogates

# Levels of lists and objects inside each other. What is deeper cannot be copied and stored.
_DEEPEST = 100


def read_json(text: str) -> object:
    """Parse JSON. Replace lone surrogates, which cannot be stored or shown, and numbers that JSON
    does not have, such as NaN. Raise ValueError."""
    try:
        found: object = json.loads(text, parse_constant=lambda _name: None, parse_float=_finite)
        if text.count("{") + text.count("[") > _DEEPEST:
            _check_depth(found)
        return _without_surrogates(found) if "\\u" in text else found
    except RecursionError as error:
        raise ValueError("too deep") from error


def _check_depth(found: object) -> None:
    level = [found]
    for _ in range(_DEEPEST + 1):
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict | list):
                inner += item.values() if isinstance(item, dict) else item
        level = inner
    if level:
        raise ValueError("too deep")


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def read_object(text: str) -> Mapping[str, object]:
    """Parse a JSON object; return an empty one for anything else."""
    try:
        found = read_json(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _without_surrogates(found: object) -> object:
    if isinstance(found, str):
        return replace_surrogates(found)
    if isinstance(found, list):
        return [_without_surrogates(item) for item in found]
    if isinstance(found, dict):
        return {
            replace_surrogates(str(key)): _without_surrogates(value) for key, value in found.items()
        }
    return found


# For looking into data of any shape.


def inside(found: object, *keys: str) -> object:
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def text_value(found: object) -> str:
    return found if isinstance(found, str) else ""


def list_value(found: object) -> list[object]:
    return found if isinstance(found, list) else []


def number_value(found: object) -> int | None:
    """Return a whole number that is not negative, such as a number of tokens."""
    if isinstance(found, bool) or not isinstance(found, int):
        return None
    return found if 0 <= found < 1 << 53 else None


def read_arguments(given: object) -> Mapping[str, object] | str:
    """Return the object. It may be encoded as JSON once or twice; anything else stays as it is."""
    for _ in range(2):
        if isinstance(given, Mapping):
            return given
        if given is None or (isinstance(given, str) and not given.strip()):
            return {}
        if not isinstance(given, str):
            return json.dumps(given)
        try:
            found = read_json(given)
        except ValueError:
            return given
        if not isinstance(found, Mapping | str):
            return given
        given = found
    return given if isinstance(given, Mapping) else str(given)
