# SPDX-License-Identifier: GPL-3.0-or-later
"""Frozen dataclasses that cost nothing to define.

The library writes the source of three methods for each class and compiles it whenever the program
starts, which is a tenth of the time that a short command takes. Here they are the same for all. To
who checks types, and to `replace` and `asdict`, they are dataclasses.
"""

from __future__ import annotations

__all__ = ["record"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen: bool):
        if not frozen:
            raise TypeError("what may change is a dataclass")
        return _record


_NOTHING = object()


class _Fields:
    """What the library looks for; made by it when it is first looked for."""

    def __get__(self, _record: object, owner: type) -> dict[str, object]:
        from dataclasses import make_dataclass

        given = [
            (name, kind, vars(owner)[name]) if name in vars(owner) else (name, kind)
            for name, kind in owner.__annotations__.items()
        ]
        fields: dict[str, object] = vars(make_dataclass(owner.__name__, given))[
            "__dataclass_fields__"
        ]
        type.__setattr__(owner, "__dataclass_fields__", fields)
        return fields


def _record(kind: type) -> type:
    names = tuple(kind.__annotations__)
    known = frozenset(names)
    # In this order: what has no value of its own comes first.
    defaults = {name: vars(kind).get(name, _NOTHING) for name in names}

    def init(self: object, *given: object, **named: object) -> None:
        values = {**defaults, **dict(zip(names, given, strict=False)), **named}
        missing = [name for name in names if values[name] is _NOTHING]
        twice = named.keys() & set(names[: len(given)])
        if missing or twice or len(given) > len(names) or not named.keys() <= known:
            wrong = [*missing, *twice, *(named.keys() - known)]
            raise TypeError(f"{kind.__name__} takes {', '.join(names)}; wrong: {wrong or 'many'}")
        vars(self).update(values)

    def values_of(self: object) -> tuple[object, ...]:
        values = vars(self)
        return tuple([values[name] for name in names])

    def equal(self: object, other: object) -> object:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values_of(self) == values_of(other)

    def hash_(self: object) -> int:
        return hash(values_of(self))

    def represent(self: object) -> str:
        shown = ", ".join(f"{name}={vars(self)[name]!r}" for name in names)
        return f"{kind.__qualname__}({shown})"

    methods = {
        "__init__": init,
        "__eq__": equal,
        "__hash__": hash_,
        "__repr__": represent,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__match_args__": names,
        "__dataclass_fields__": _Fields(),
    }
    for name, method in methods.items():
        setattr(kind, name, method)
    return kind


def _refuse(_record: object, name: str, *_value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"{name} cannot be changed")
