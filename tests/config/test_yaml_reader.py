# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML files of the user: values are text, and every error names the line and the key."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ollmsandbox.config.yaml_reader import Value, YamlSource, parse_yaml, read_yaml
from ollmsandbox.errors import OllmSandboxError

pytestmark = pytest.mark.ordinary


class MistakeError(OllmSandboxError):
    pass


def parsed(text: str) -> Value:
    found = parse_yaml(text, YamlSource(MistakeError))
    assert found is not None
    return found


def value(text: str) -> Value:
    return parsed(f"key: {text}").mapping()["key"]


@pytest.mark.parametrize("text", ["", "---", "~", "# a comment\n"])
def test_an_empty_file_has_no_value(text: str) -> None:
    assert parse_yaml(text, YamlSource(MistakeError)) is None


@pytest.mark.parametrize("text", ["true", "3.20", "no", "2001-01-01", "0x10"])
def test_a_value_is_text_whatever_yaml_takes_it_for(text: str) -> None:
    assert value(text).text() == text


def test_an_error_names_the_line_and_the_keys_that_lead_to_it() -> None:
    inner = parsed("outer:\n  other: 1\n  inner: [a]\n").mapping()["outer"].mapping()["inner"]
    with pytest.raises(MistakeError, match=r"^line 3, key outer\.inner: expected text"):
        inner.text()
    with pytest.raises(MistakeError, match="line 3, key b: the key occurs twice"):
        parsed("b: 1\na: 1\nb: 2").mapping()


@pytest.mark.parametrize(
    ("text", "kind", "read"),
    [
        *((text, "text", Value.text) for text in ("", "[a]", "{a: b}")),
        *((text, "a list", Value.items) for text in ("", "a", "{a: b}")),
        *((text, "keys", Value.mapping) for text in ("", "a", "[a]")),
    ],
)
def test_a_value_of_another_kind_is_an_error(
    text: str, kind: str, read: Callable[[Value], object]
) -> None:
    with pytest.raises(MistakeError, match=f"line 1, key key: expected {kind}"):
        read(value(text))


def test_a_key_that_is_a_list_is_an_error() -> None:
    with pytest.raises(MistakeError, match="line 1: expected text"):
        parsed("? [a, b]\n: c").mapping()


def test_an_error_names_the_file_and_has_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("[")
    with pytest.raises(MistakeError) as caught:
        read_yaml(YamlSource(MistakeError, file, "Do it again."))
    assert caught.value.message.startswith(f"{file}, line ")
    assert caught.value.remedy == "Do it again."


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (Path.mkdir, "line 1: not a regular file"),
        (os.mkfifo, "line 1: not a regular file"),
        (lambda file: file.write_bytes(b"#" * (5 << 20)), "line 1: the file is too large"),
        (lambda file: file.write_bytes(b"a: 1\n# \xff\n"), "line 2: not valid UTF-8"),
    ],
    ids=["folder", "pipe", "large", "bytes"],
)
def test_what_cannot_be_the_text_of_a_file_is_refused(
    tmp_path: Path, make: Callable[[Path], object], complaint: str
) -> None:
    make(tmp_path / "x.yaml")
    with pytest.raises(MistakeError, match=complaint):
        read_yaml(YamlSource(MistakeError, tmp_path / "x.yaml"))


def test_braces_of_the_user_are_not_taken_for_fields() -> None:
    with pytest.raises(MistakeError, match=r"\{why\}\.\{0\}"):
        parsed("'{why}': {'{0}': []}").mapping()["{why}"].mapping()["{0}"].text()


def test_a_misspelt_key_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(MistakeError, match=r"line 2, key coluor: .*did you mean 'colour'"):
        parsed("size: 1\ncoluor: red").mapping(("size", "colour"))


@pytest.mark.parametrize("text", ["0", "1e3", "11", "-1", "none", "nan", "1 s", "1_0", "[]"])
def test_what_is_not_a_number_in_the_range_is_an_error(text: str) -> None:
    with pytest.raises(MistakeError, match="line 1, key key"):
        value(text).number(1, 10)


def test_a_quantity_has_a_unit_or_is_none() -> None:
    units = {"s": 1, "min": 60}
    assert value("1.5 min").quantity(units) == 90
    assert value("2S").quantity(units) == 2
    assert value("none").quantity(units) is None
    for wrong in ("5", "5 h", "0 s", "min", "-1 s", "9" * 400 + " s"):
        with pytest.raises(MistakeError, match="s, min"):
            value(wrong).quantity(units)


@pytest.mark.parametrize("form", ["[", "{a: ", "- ", "? "])
def test_endless_nesting_is_an_error_and_does_not_crash(form: str) -> None:
    with pytest.raises(MistakeError, match="line 1"):
        parse_yaml(form * 200_000, YamlSource(MistakeError))


@pytest.mark.parametrize(
    "text", ["a: \0", "a: \ud800", "&a [*a]: b", "a: *b", "a: b\n---\nc: d", "a:\n\tb"]
)
def test_text_that_is_not_yaml_is_an_error(text: str) -> None:
    with pytest.raises(MistakeError, match="line "):
        parsed(text).mapping()
