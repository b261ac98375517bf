# SPDX-License-Identifier: GPL-3.0-or-later
"""HTML taken apart in time that grows with its length, whatever is in it. (The parser of the
standard library takes minutes for two megabytes of `<!`.)"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

# What is in these is not markup, up to their own end.
_RAW = frozenset(("script", "style", "textarea", "title", "xmp", "noembed"))
_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]{0,40})")
_REST = re.compile(r"""[^>"']*+(?:(?:"[^"]*+"|'[^']*+')[^>"']*+)*+>""")
_ATTRIBUTE = re.compile(
    r"""([^\s"'>/=]{1,60})\s{0,20}(?:=\s{0,20}(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]*+)))?"""
)
# No character has such a number; Python refuses to read very long ones.
_NO_CHARACTER = re.compile(r"&#[xX]?[0-9a-fA-F]{9,};?")
# How often a tag may have no end before its quotes are not looked at any more.
_PATIENCE = 20
_MOST_ATTRIBUTES = 4096


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Start:
    tag: str
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class End:
    tag: str


def tokens(page: str) -> Iterator[Text | Start | End]:
    at, failed = 0, 0
    while at < len(page):
        mark = page.find("<", at)
        if mark < 0:
            mark = len(page)
        if mark > at:
            yield Text(_characters(page[at:mark]))
        if mark == len(page):
            return
        if page.startswith(("<!", "<?"), mark):
            at = _after(page, "-->" if page.startswith("<!--", mark) else ">", mark)
            continue
        tag = _TAG.match(page, mark)
        if tag is None:
            yield Text("<")
            at = mark + 1
            continue
        rest = _REST.match(page, tag.end()) if failed < _PATIENCE else None
        failed += rest is None
        at = rest.end() if rest else _after(page, ">", tag.end())
        name = tag[2].lower()
        if tag[1]:
            yield End(name)
            continue
        yield Start(name, _attributes(page[tag.end() : min(at, tag.end() + _MOST_ATTRIBUTES)]))
        if name in _RAW:
            end = _find_end(page, name, at)
            if name in ("title", "textarea"):
                yield Text(_characters(page[at:end]))
            at = end
            if end == len(page):
                yield End(name)


def _after(page: str, end: str, start: int) -> int:
    found = page.find(end, start)
    return len(page) if found < 0 else found + len(end)


def _find_end(page: str, name: str, start: int) -> int:
    found = re.compile(f"</{name}", re.IGNORECASE).search(page, start)
    return found.start() if found else len(page)


def _attributes(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text):
        value = next((group for group in match.groups()[1:] if group is not None), "")
        found.setdefault(match[1].lower(), _characters(value))
    return found


def _characters(text: str) -> str:
    return html.unescape(_NO_CHARACTER.sub("\ufffd", text)) if "&" in text else text
