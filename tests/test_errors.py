# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors are English for programs, logs and models, and can be translated for users."""

from __future__ import annotations

import ast
import copy
import functools
import json
import pickle
import re
import string
from collections import ChainMap
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.person import ROOT

from ollmsandbox.chat.providers.base import ProviderError
from ollmsandbox.errors import OllmSandboxError, Sentence, WorkingDirError, in_lines, sentence

pytestmark = pytest.mark.anybody

PACKAGE = ROOT / "ollmsandbox"
# Errors in a call go to the model that made it.
OF_CALLS = ("parameters.py", "edits.py")
GERMAN = {
    "{path} is gone.": "{path} ist weg.",
    "Put it back: {path}": "Stell es zurück: {path}",
    "{file}: {why}": "{file} (Grund: {why})",
    "": "Project-Id-Version: what gettext answers to nothing",
}
HOSTILE = "/a{path}{0}{}%s"


def say(text: str) -> str:
    return GERMAN.get(text, text)


def gone() -> OllmSandboxError:
    return OllmSandboxError("{path} is gone.", "Put it back: {path}", path=HOSTILE)


# --- what it is ---------------------------------------------------------------------------------


def test_an_error_is_english_and_can_be_translated() -> None:
    error = gone()
    assert (error.message, error.remedy) == (f"{HOSTILE} is gone.", f"Put it back: {HOSTILE}")
    assert str(error) == f"{error}" == f"{HOSTILE} is gone.\nPut it back: {HOSTILE}"
    told = str(error)
    assert isinstance(told, Sentence)
    assert told.translated(say) == f"{HOSTILE} ist weg.\nStell es zurück: {HOSTILE}"


def test_a_sentence_in_a_field_is_translated_with_it() -> None:
    inner = Sentence("{path} is gone.", path=HOSTILE)
    outer = Sentence("{file}: {why}", file="{why}", why=inner)
    assert outer == f"{{why}}: {HOSTILE} is gone."
    assert outer.translated(say) == f"{{why}} (Grund: {HOSTILE} ist weg.)"


def test_without_fields_braces_are_braces() -> None:
    for text in ("{path} is gone.", "{", "}{0}", "{{}}"):
        assert str(OllmSandboxError(text)) == text
        assert Sentence(text).translated(str) == text


def test_nothing_is_nothing_in_any_language() -> None:
    assert Sentence("").translated(say) == ""
    assert in_lines("", "").translated(say) == ""
    assert OllmSandboxError("Text").remedy.translated(say) == ""


def test_the_words_of_another_error_are_taken_as_they_are() -> None:
    error = gone()
    again = OllmSandboxError(error.message, error.remedy, path="of no use")
    assert str(again) == str(error)
    assert again.message.translated(say) == f"{HOSTILE} ist weg."
    assert sentence(error.message, path="of no use") is error.message


def test_a_copy_is_the_same_error() -> None:
    try:
        raise ProviderError(
            "{path} is gone.", "Put it back: {path}", can_retry=True, path=HOSTILE
        ) from ValueError("because")
    except ProviderError as caught:
        error = caught
    for made in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert (type(made), str(made), made.can_retry) == (ProviderError, str(error), True)
        assert made.message.translated(say) == f"{HOSTILE} ist weg."
    assert isinstance(error.__cause__, ValueError)
    lost = pickle.loads(pickle.dumps(WorkingDirError("/a{b}")))
    assert str(lost) == "ERROR: Working directory does not exist: /a{b}"


def test_to_programs_it_is_a_text() -> None:
    told = gone().message
    assert json.loads(json.dumps([told])) == [f"{HOSTILE} is gone."]
    assert repr(told) == repr(f"{HOSTILE} is gone.")


# --- what is said -------------------------------------------------------------------------------


def files() -> list[Path]:
    """Return the files below the command line, which is English, and the window, which
    translates."""
    fronts = ("cli", "ui")
    return [f for f in PACKAGE.rglob("*.py") if f.relative_to(PACKAGE).parts[0] not in fronts]


@functools.cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def family() -> frozenset[str]:
    """The names of all our errors whose first words are a message."""
    known = {"OllmSandboxError"}
    # Their words are their own, and marked where they are.
    own = {"WorkingDirError", "UnreachableError", "UnsavedError"}
    classes = [
        node for file in files() for node in ast.walk(tree(file)) if isinstance(node, ast.ClassDef)
    ]
    while more := {c.name for c in classes if {_name(b) for b in c.bases} & known} - known:
        known |= more
    return frozenset({*(known - own), "Sentence"})


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


@dataclass(frozen=True)
class _Place:
    """A call, and what is assigned to names in the function around it."""

    call: ast.Call
    given: Mapping[str, Sequence[ast.expr]]


def places(
    node: ast.AST, names: Container[str], given: Mapping[str, Sequence[ast.expr]]
) -> Iterator[_Place]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and _name(child.func) in names:
            yield _Place(child, given)
        inner = given
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = ChainMap(assigned(child), given)  # type: ignore[arg-type]
        yield from places(child, names, inner)


def assigned(node: ast.AST) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for inside in ast.walk(node):
        if isinstance(inside, ast.Assign):
            for target in inside.targets:
                for name, value in _pairs(target, inside.value):
                    found.setdefault(name, []).append(value)
    return found


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if not isinstance(target, ast.Tuple):
        yield _name(target), value
    elif isinstance(value, ast.Tuple):
        yield from zip(map(_name, target.elts), value.elts, strict=True)
    else:
        yield from ((_name(part), value) for part in target.elts)


def is_marked(node: ast.expr, given: Mapping[str, Sequence[ast.expr]]) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            # Placeholders and punctuation need no translation.
            return not re.search(r"[A-Za-z]", re.sub(r"\{\w*\}", "", text))
        case ast.Call(func=ast.Name(id="N_"), args=[ast.Constant(value=str())]):
            return True
        case ast.Call(
            func=ast.Name(id="Sentence" | "in_lines" | "sentence" | "_cannot" | "_why_never")
        ):
            return True  # looked at by itself
        case ast.Call(func=ast.Attribute(attr="why_not" | "denial")):
            # They return sentences, and texts for a model.
            return True
        case ast.Subscript(value=ast.Name() as table):
            return is_marked(table, given)
        case ast.Dict(values=values):
            return all(is_marked(value, given) for value in values)
        case ast.IfExp(body=body, orelse=other):
            return is_marked(body, given) and is_marked(other, given)
        case ast.Attribute():
            return True  # another error's words, or those of a record
        case ast.Name(id=name):
            # One that is handed in is looked at where it is made.
            return all(is_marked(value, given) for value in given.get(name, ()))
    return False


@functools.cache
def said(names: frozenset[str]) -> list[tuple[str, _Place]]:
    """Return the places where sentences are made."""
    found = []
    constants = {file: _constants(file) for file in files()}
    shared = {name: v for own in constants.values() for name, v in own.items() if name[0] != "_"}
    for file in files():
        if file.name not in ("errors.py", *OF_CALLS):
            for place in places(tree(file), names, {**shared, **constants[file]}):
                found.append((f"{file.relative_to(PACKAGE)}:{place.call.lineno}", place))
    return found


def _constants(file: Path) -> dict[str, list[ast.expr]]:
    return {name: values for name, values in assigned(tree(file)).items() if name.isupper()}


def test_every_sentence_of_an_error_is_marked_for_translation() -> None:
    assert {
        "ProviderError",
        "RootfsError",
        "ConnectionsFileError",
        "PortalError",
        "Sentence",
    } <= family()
    found = [
        f"{where}: {ast.unparse(argument)}"
        for where, place in said(family())
        for argument in place.call.args[:2]
        if not is_marked(argument, place.given)
    ]
    assert found == []


def test_what_is_wrong_in_a_file_is_marked_for_translation() -> None:
    """`fail` of the YAML reader adds the line and the key; the text is its last argument."""
    found = [(where, p) for where, p in said(("fail",)) if p.call.args]
    assert [where for where, p in found if not is_marked(p.call.args[-1], p.given)] == []
    assert len(found) > 25


def test_every_field_of_an_error_s_sentence_is_given() -> None:
    checked = 0
    for where, place in said(family()):
        given = {keyword.arg for keyword in place.call.keywords}
        for argument in place.call.args:
            if isinstance(argument, ast.Call) and _name(argument.func) == "N_":
                text = str(ast.literal_eval(argument.args[0]))
                fields = {name for _, name, _, _ in string.Formatter().parse(text) if name}
                assert fields <= given, f"{where}: {text}"
                checked += 1
    assert checked > 200
