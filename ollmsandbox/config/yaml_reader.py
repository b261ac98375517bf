# SPDX-License-Identifier: GPL-3.0-or-later
"""Read YAML files that users edit. Every error names the file, the line and the key.

The values are read from YAML's nodes, which know their lines, and always as text: in
`command: true`, true is a program.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import N_
from ..errors import OllmSandboxError, sentence

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, ScalarNode, SequenceNode

_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([A-Za-z%]*)")
_DEEPEST = 100
_LARGEST = 4 << 20


@dataclass(frozen=True)
class YamlSource:
    """The class of the errors, and the file they name, if the caller does not name it itself."""

    error: type[OllmSandboxError]
    file: Path | None = None
    remedy: str = ""

    def fail(self, line: int, key: str, why: str, /, **fields: object) -> OllmSandboxError:
        if self.file is None:
            text = N_("line {line}, key {key}: {why}") if key else N_("line {line}: {why}")
        elif key:
            text = N_("{file}, line {line}, key {key}: {why}")
        else:
            text = N_("{file}, line {line}: {why}")
        why = sentence(why, **fields)
        return self.error(text, self.remedy, file=self.file, line=line, key=key, why=why)


@dataclass(frozen=True)
class Value:
    """A part of the file, and the keys that lead to it, as in `limits.time`."""

    source: YamlSource
    node: MappingNode | ScalarNode | SequenceNode
    key: str = ""

    @property
    def is_null(self) -> bool:
        return self.node.id == "scalar" and self.node.tag.endswith(":null")

    def fail(self, why: str, /, **fields: object) -> OllmSandboxError:
        """Return the error to raise. `why` continues after a colon."""
        return self.source.fail(int(self.node.start_mark.line) + 1, self.key, why, **fields)

    def mapping(self, known: Sequence[str] = ()) -> dict[str, Value]:
        """Return the values by key. Only the known keys are allowed, if any are given."""
        if self.node.id != "mapping":
            raise self.fail(N_("expected keys with values."))
        entries: dict[str, Value] = {}
        for key_node, value_node in self.node.value:
            name = Value(self.source, key_node, self.key).text()
            key = f"{self.key}.{name}" if self.key else name
            if known and name not in known:
                raise Value(self.source, key_node, key).unknown(name, known)
            if name in entries:
                raise Value(self.source, key_node, key).fail(N_("the key occurs twice."))
            entries[name] = Value(self.source, value_node, key)
        return entries

    def items(self) -> list[Value]:
        if self.node.id != "sequence":
            raise self.fail(N_("expected a list."))
        return [Value(self.source, node, self.key) for node in self.node.value]

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def text(self) -> str:
        if self.node.id != "scalar" or self.is_null:
            raise self.fail(N_("expected text."))
        return str(self.node.value)

    def choice(self, *names: str) -> str:
        text = self.text()
        if text not in names:
            expected = N_("expected one of {names}; found {found}.")
            raise self.fail(expected, names=", ".join(names), found=repr(text))
        return text

    def number(self, least: int, most: int) -> float:
        number = self._quantity({"": 1})
        if number is None or not least <= number <= most:
            expected = N_("expected a number from {least} to {most}; found {found}.")
            raise self.fail(expected, least=least, most=most, found=repr(self.text()))
        return number

    def quantity(self, units: Mapping[str, int]) -> float | None:
        """Return a number above 0 times its unit, or None for the word `none`."""
        text = self.text()
        if text == "none":
            return None
        number = self._quantity(units)
        if not number:
            names = ", ".join(unit for unit in units if unit)
            expected = N_("expected a number, or none; found {found}.")
            if names:
                # Translators: {units} are such as "s, min, h".
                expected = N_("expected a number with {units}, or none; found {found}.")
            raise self.fail(expected, units=names, found=repr(text))
        return number

    def _quantity(self, units: Mapping[str, int]) -> float | None:
        found = _QUANTITY.fullmatch(self.text())
        factor = units.get(found[2].lower()) if found else None
        return float(found[1]) * factor if found and factor else None

    def missing(self, name: str) -> OllmSandboxError:
        return self.fail(N_("the key {name} is missing."), name=name)

    def unknown(self, name: str, known: Sequence[str]) -> OllmSandboxError:
        near = difflib.get_close_matches(name, known, 1)
        if near:
            return self.fail(N_("unknown key; did you mean {name}?"), name=repr(near[0]))
        return self.fail(N_("unknown key; use one of {names}."), names=", ".join(known))


def parse_yaml(text: str, source: YamlSource) -> Value | None:
    """Return the file's content, or None if it is empty. Raise the source's error."""
    import yaml  # takes 25 ms, and most users have no such files when the window opens

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # Composing nodes recurses in C, which would overflow the stack; listing events does not.
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise source.fail(line, "", N_("lists or keys are nested too deeply."))
        node = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise source.fail(line, "", N_("{problem}."), problem=error.problem) from error
    except (yaml.YAMLError, ValueError) as error:
        raise source.fail(1, "", N_("not valid YAML: {why}."), why=str(error)) from error
    if node is None:
        return None
    assert isinstance(node, yaml.MappingNode | yaml.ScalarNode | yaml.SequenceNode)
    found = Value(source, node)
    return None if found.is_null else found


def read_yaml(source: YamlSource) -> Value | None:
    """Parse the source's file. A missing file raises FileNotFoundError."""
    assert source.file is not None
    try:
        text = read_text(source.file, source)
    except FileNotFoundError:
        raise
    except OSError as error:
        what = N_("{file} cannot be read: {why}.")
        raise source.error(what, source.remedy, file=source.file, why=error.strerror) from error
    return parse_yaml(text, source)


def read_text(file: Path, source: YamlSource) -> str:
    """Return the text of a file that a user may have edited or replaced. Raise OSError, or the
    source's error if the content cannot be the text of a YAML file."""
    # O_NONBLOCK: do not wait for a writer if it is a pipe.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise source.fail(1, "", N_("not a regular file."))
        with open(descriptor, "rb", closefd=False) as opened:
            data = opened.read(_LARGEST + 1)
    finally:
        os.close(descriptor)
    if len(data) > _LARGEST:
        raise source.fail(1, "", N_("the file is too large."))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise source.fail(line, "", N_("not valid UTF-8.")) from error
