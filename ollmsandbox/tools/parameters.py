# SPDX-License-Identifier: GPL-3.0-or-later
"""Parameters of a tool, declared once as the fields of a dataclass.

The JSON schema for the model and the checks of its arguments are derived from them.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import typing
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from .base import RequestBase, Tool, ToolError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from .context import ToolContext

    Given = TypeVar("Given", bound=DataclassInstance)
else:
    Given = TypeVar("Given")

Value = str | bool | int | tuple[object, ...]

_MOST_ITEMS = 100
_KINDS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer"}
_EXCERPT = 40
_DIGITS = re.compile(r"\s*-?[0-9]{1,18}\s*")


@dataclass(frozen=True)
class _About:
    description: str
    # The maximum length of a text in bytes of UTF-8, and the minimum of a number.
    longest: int
    smallest: int
    # The words that a text may be; any if empty.
    choices: tuple[str, ...]


def parameter(
    description: str,
    *,
    default: Value | None = None,
    may_be_absent: bool = False,
    longest: int = 1 << 16,
    smallest: int = 0,
    choices: tuple[str, ...] = (),
) -> typing.Any:  # noqa: ANN401 - like dataclasses.field, it takes the value's place
    """Declare a parameter. It is required unless it has a default or may be absent (None).

    A list is a tuple of texts, or of dataclasses whose fields are parameters, too.
    """
    about = {"about": _About(description, longest, smallest, choices)}
    if default is None and not may_be_absent:
        return dataclasses.field(metadata=about)
    return dataclasses.field(default=default, metadata=about)


class _Parameter:
    """One parameter: the kind of its value, or of each value in a list."""

    def __init__(self, field: dataclasses.Field[object], hint: type) -> None:
        self.name = field.name
        self.default = field.default
        self.is_required = field.default is dataclasses.MISSING
        self.is_list = typing.get_origin(hint) is tuple
        about = field.metadata["about"]
        assert isinstance(about, _About)
        self.about = about
        # For `str | None` and `tuple[str, ...]`, take the first.
        self._kind: type = next(iter(typing.get_args(hint)), hint)
        self._parts: Parameters[typing.Any] | None = None
        if dataclasses.is_dataclass(self._kind):
            self._parts = Parameters(f"Each of `{self.name}`", self._kind)

    def schema(self) -> dict[str, object]:
        if self._parts is not None:
            known = {**self._parts.schema()}
        else:
            known = {"type": _KINDS[self._kind]}
        if self.about.choices:
            known["enum"] = list(self.about.choices)
        if self.is_list:
            known = {"type": "array", "items": known}
        known["description"] = self.about.description
        if self.default not in (dataclasses.MISSING, None, "", ()):
            known["default"] = self.default
        return known

    def read(self, value: object) -> object:
        if not self.is_list:
            return self._one(self.name, value)
        items = enumerate(_items(self.name, value))
        return tuple(self._one(f"{self.name}[{number}]", item) for number, item in items)

    def _one(self, shown: str, value: object) -> object:
        """Return one value, which errors call `shown`."""
        if self._parts is not None:
            try:
                return self._parts.read(value)
            except ToolError as error:
                raise ToolError(f"`{shown}`: {error.message}", error.remedy) from error
        if self._kind is bool:
            return _flag(shown, value)
        if self._kind is int:
            return _number(shown, value, self.about.smallest)
        text, choices = _text(shown, value, self.about.longest), self.about.choices
        if choices and text not in choices:
            words = ", ".join(f'"{choice}"' for choice in choices)
            raise ToolError(f"`{shown}` must be one of {words}, not {_quoted(text)}.")
        return text


class Parameters(Generic[Given]):
    def __init__(self, tool: str, declared: type[Given]) -> None:
        self._tool = tool
        self._declared = declared
        hints = typing.get_type_hints(declared)
        self._all = {
            field.name: _Parameter(field, hints[field.name])
            for field in dataclasses.fields(declared)
        }

    def schema(self) -> Mapping[str, object]:
        return {
            "type": "object",
            "properties": {name: one.schema() for name, one in self._all.items()},
            "required": [name for name, one in self._all.items() if one.is_required],
            "additionalProperties": False,
        }

    def read(self, arguments: object) -> Given:
        """Return the arguments, or raise ToolError with a message that a model can act on."""
        given = parse(arguments) if isinstance(arguments, str) else arguments
        if not isinstance(given, Mapping):
            raise ToolError(f"The arguments must be a JSON object, not {_kind(given)}.")
        for name in given:
            if name not in self._all:
                raise ToolError(self._unknown(str(name)))
        values: dict[str, typing.Any] = {}
        for name, one in self._all.items():
            value = given.get(name)
            if value is not None:
                values[name] = one.read(value)
            elif one.is_required:
                raise ToolError(f"`{name}` is missing: {one.about.description}", self._takes())
        return self._declared(**values)

    def _takes(self) -> str:
        names = [n if one.is_required else f"{n} (optional)" for n, one in self._all.items()]
        return f"{self._tool} takes: {', '.join(names)}."

    def _unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name[:100], self._all, n=1)
        meant = f" Did you mean `{close[0]}`?" if close else ""
        return f"There is no parameter `{_shown(name)}`.{meant} {self._takes()}"


class DeclaredTool(Tool, Generic[Given]):
    """A tool of a session, whose parameters are declared as a dataclass."""

    declared: type[Given]

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._parameters = Parameters(self.name, self.declared)

    @property
    def parameters(self) -> Mapping[str, object]:
        return self._parameters.schema()

    def read(self, arguments: Mapping[str, object] | str, call_id: str = "") -> RequestBase:
        return self.request(self._parameters.read(arguments), call_id)

    @abstractmethod
    def request(self, given: Given, call_id: str) -> RequestBase:
        """Return the call, or raise ToolError."""


def parse(text: str) -> Mapping[str, object]:
    """Return the JSON object in the text that a model wrote."""
    if len(text) > 8 << 20:
        raise ToolError(f"The arguments are too large: {len(text):,} characters.")
    if not text.strip():
        return {}
    try:
        found: object = json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        start = max(0, error.pos - _EXCERPT)
        near = error.doc[start : error.pos + _EXCERPT // 2]
        raise ToolError(
            f"The arguments are not valid JSON: {error.msg} at character {error.pos}, "
            f"near {_shown(near)!r}.",
            "Send one JSON object with the parameters.",
        ) from error
    except (ValueError, RecursionError) as error:
        raise ToolError(
            "The arguments are not valid JSON: too deep, or a number too long.",
            "Send one JSON object with the parameters.",
        ) from error
    if not isinstance(found, dict):
        raise ToolError(f"The arguments must be a JSON object, not {_kind(found)}.")
    return found


def _flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else value
    if word in ("true", 1):
        return True
    if word in ("false", 0, ""):
        return False
    raise ToolError(f"`{name}` must be true or false, not {_quoted(value)}.")


def _number(name: str, value: object, smallest: int) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    is_whole |= isinstance(value, float) and value.is_integer()
    is_whole |= isinstance(value, str) and _DIGITS.fullmatch(value) is not None
    if not is_whole or not isinstance(value, int | float | str):
        raise ToolError(f"`{name}` must be a whole number, not {_quoted(value)}.")
    number = int(value)
    if number < smallest:
        raise ToolError(f"`{name}` must be {smallest} or more, not {_shown(str(number))}.")
    # No file or page is larger, and other programs could not handle the number.
    return min(number, 1 << 53)


def _text(name: str, value: object, longest: int) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ToolError(f"`{name}` must be text, not {_kind(value)}.")
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise ToolError(f"`{name}` contains invalid Unicode (a lone surrogate).") from error
    if size > longest:
        raise ToolError(f"`{name}` is too long: {size:,} bytes, and {longest:,} are allowed.")
    if "\0" in value:
        raise ToolError(f"`{name}` contains a NUL character, which is not allowed there.")
    return value


def _items(name: str, value: object) -> list[object]:
    if isinstance(value, str) and value.lstrip().startswith("["):
        # Some models encode a list once more.
        try:
            value = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            pass  # refused below
    if not isinstance(value, list | tuple):
        raise ToolError(f"`{name}` must be a list, not {_kind(value)}.")
    if len(value) > _MOST_ITEMS:
        raise ToolError(f"`{name}` is too long: {len(value):,}, and {_MOST_ITEMS} are allowed.")
    return list(value)


def _quoted(value: object) -> str:
    return f'"{_shown(value)}"' if isinstance(value, str) else _kind(value)


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list | tuple) else "an object"


def _shown(text: str) -> str:
    """Return a short excerpt without surrogates, which could not be encoded."""
    cut = text if len(text) <= 80 else f"{text[:80]}..."
    return cut.encode("utf-8", "replace").decode("utf-8")
