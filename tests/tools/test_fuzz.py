# SPDX-License-Identifier: GPL-3.0-or-later
"""Random tool arguments end in an outcome or a ToolError."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.person import make_person
from support.tools import FUZZED, Agent, Looking

from ollmsandbox import loop
from ollmsandbox.text.diff import split_lines
from ollmsandbox.tools import all_tools
from ollmsandbox.tools.base import RequestBase, Tool, ToolError
from ollmsandbox.tools.files.edits import Document, difference, replace_text
from ollmsandbox.tools.files.searcher import PathRule
from ollmsandbox.tools.parameters import parse

pytestmark = pytest.mark.ordinary

JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=20),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5), inner),
    max_leaves=8,
)
NAMES = some.sampled_from(
    (
        *("command", "working_dir", "network", "path", "first_line", "line_count", "old_text"),
        *("new_text", "replace_all", "edits", "content", "url", "offset", "cmd", ""),
        *("pattern", "glob", "literal", "first_byte", "steps", "question", "choices"),
    )
)
ODD = some.sampled_from(
    (
        *("", " ", "\0", "\ud800", "..", "/", "~", "playground", "/proc/self/mem", "-n", "a\nb"),
        *("x" * 300, "/" * 5000, "http://[", "http://a@b/", "//x", "https://" + "a" * 300),
        *("$(id)", "\x1b[2J"),
    )
)
TOOLS = some.sampled_from(
    ("run_command", "read_file", "search", "edit_file", "write_file", "web_fetch", "plan", "ask")
)


@pytest.fixture(scope="module")
def tools() -> Iterator[dict[str, Tool]]:
    with tempfile.TemporaryDirectory() as folder:
        made = all_tools(Agent(make_person(Path(folder))).tool_context)
        yield {tool.name: tool for tool in made}


def test_every_tool_is_tried(tools: dict[str, Tool]) -> None:
    assert {*tools} == {*TOOLS.elements}  # type: ignore[attr-defined]


def read(tool: Tool, arguments: object) -> RequestBase | None:
    try:
        request = tool.read(arguments)  # type: ignore[arg-type]
    except ToolError as error:
        str(error).encode("utf-8")
        assert str(error)
        return None
    request.describe().encode("utf-8")
    assert "\n" not in request.describe()
    return request


@FUZZED
@given(which=TOOLS, arguments=some.dictionaries(NAMES, JSON | ODD, max_size=5))
def test_any_arguments_are_read_or_refused(
    tools: dict[str, Tool], which: str, arguments: dict[str, object]
) -> None:
    read(tools[which], arguments)
    read(tools[which], json.dumps(arguments))


@FUZZED
@given(which=TOOLS, text=some.text() | some.text(alphabet='{}[]":,0123456789truefalsn \\'))
def test_any_text_is_read_or_refused(tools: dict[str, Tool], which: str, text: str) -> None:
    read(tools[which], text)


@FUZZED
@given(some.dictionaries(some.text(max_size=5), JSON, max_size=3), some.data())
def test_broken_json_is_refused_with_a_sentence(
    arguments: dict[str, object], data: some.DataObject
) -> None:
    text = json.dumps(arguments)
    cut = text[: data.draw(some.integers(1, len(text) - 1))]
    with pytest.raises(ToolError, match="JSON"):
        parse(cut)


# Each of these starts a sandbox.
@settings(parent=FUZZED, max_examples=24)
@given(
    which=some.sampled_from(("read_file", "search", "edit_file", "write_file")),
    path=ODD | some.text(max_size=30),
    content=some.text(max_size=30),
    old=some.text(max_size=3),
)
def test_files_of_any_name_end_in_an_outcome(
    tools: dict[str, Tool], which: str, path: str, content: str, old: str
) -> None:
    arguments: dict[str, object] = {"path": path}
    if which == "edit_file":
        arguments |= {"edits": [{"old_text": old, "new_text": content}]}
    elif which == "write_file":
        arguments |= {"content": content}
    elif which == "search":
        arguments |= {"pattern": old, "glob": content}
    request = read(tools[which], arguments)
    if request is not None:
        outcome = loop.run(request.execute(Looking()))
        assert outcome.text
        outcome.text.encode("utf-8")


@FUZZED
@given(some.text(max_size=20) | some.text(alphabet="*?[]{}!/a,\\-^", max_size=12), some.text())
def test_any_pattern_of_names_matches_or_not(pattern: str, path: str) -> None:
    assert PathRule(pattern).matches(path) in (True, False)


TEXT = some.text(alphabet="ab \t\n\r\ufeffö", max_size=30)


@FUZZED
@given(TEXT, some.text(alphabet="ab\n\r", min_size=1, max_size=4), TEXT)
def test_a_replacement_is_exact_or_refused(text: str, old: str, new: str) -> None:
    try:
        done = replace_text(text, old, new, everywhere=False)
    except ToolError:
        assert text.count(old) != 1
    else:
        assert done == new.join(text.split(old))


@FUZZED
@given(TEXT)
def test_a_document_is_written_as_it_was_read(text: str) -> None:
    data = text.encode("utf-8")
    document = Document.decode(data)
    assert document.encode() == data
    assert document.with_text(document.text).encode() == data or document.text.startswith("\ufeff")


@FUZZED
@given(TEXT, TEXT)
def test_a_difference_tells_all_that_is_different(old: str, new: str) -> None:
    shown = difference(old, new)
    # As one line, as its end is a part of it.
    lines = shown.replace("\n\\ No newline at end of file", "$").split("\n")
    removed = [line[1:] for line in lines if line.startswith("-")]
    added = [line[1:] for line in lines if line.startswith("+")]
    rest_of_old, rest_of_new = (
        [line[:-1] if line.endswith("\n") else f"{line}$" for line in split_lines(text)]
        for text in (old, new)
    )
    for line in removed:
        rest_of_old.remove(line)
    for line in added:
        rest_of_new.remove(line)
    assert sorted(rest_of_old) == sorted(rest_of_new)
    assert (shown == "") == (old == new)
