# SPDX-License-Identifier: GPL-3.0-or-later
"""A web page as text that a model can read: headings, links, lists, code and tables stay.

HTML taken apart in time that grows with its length, whatever is in it. (The parser of the
standard library takes minutes for two megabytes of `<!`.)

A web page as text that a model can read: headings, links, lists, code and tables stay.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin

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


_DROPPED = frozenset(
    ("script", "style", "noscript", "template", "svg", "canvas", "iframe", "object")
)
_BLOCKS = frozenset(
    (
        *("p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "form"),
        *("blockquote", "figure", "figcaption", "ul", "ol", "dl", "dt", "dd", "table", "address"),
        *("fieldset", "details", "summary", "hr"),
    )
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_DEEPEST = 200
_SPACES = re.compile(r"[ \t\r\n\f\u00a0]+")
_EMPTY = re.compile(r"\n{3,}")


def html_to_text(page: str, address: str = "") -> str:
    reader = _Reader(address)
    for token in tokens(page):
        match token:
            case Text(text):
                reader.add_text(text)
            case Start(tag, attributes):
                reader.start(tag, attributes)
            case End(tag):
                reader.end(tag)
    return reader.text()


class _Reader:
    def __init__(self, address: str) -> None:
        self._address = address
        self._parts: list[str] = []
        self._title: list[str] = []
        self._dropped: list[str] = []
        self._lists: list[int | None] = []
        self._links: list[tuple[str, int]] = []
        self._in_title = False
        self._in_code = 0
        # The cells of the row that is being read begin here.
        self._rows: list[int] = []

    def text(self) -> str:
        body = "".join(self._parts)
        lines = [line.rstrip() for line in body.split("\n")]
        title = _SPACES.sub(" ", "".join(self._title)).strip()
        text = _EMPTY.sub("\n\n", "\n".join(lines)).strip("\n")
        return f"{title}\n\n{text}".strip() if title else text

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "body":
            # Pages without an end of their head are common.
            self._dropped.clear()
        elif tag == "title" and not self._title:
            self._in_title = True
        elif tag == "base":
            self._address = urljoin_or(self._address, attributes.get("href", ""))
        if tag in _DROPPED:
            self._dropped.append(tag)
        elif not self._dropped:
            self._open(tag, attributes)

    def end(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if tag in _DROPPED:
            if tag in self._dropped:
                while self._dropped.pop() != tag:
                    continue
        elif not self._dropped:
            self._close(tag)

    def add_text(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._dropped:
            if self._in_code:
                self._parts.append(data)
            else:
                self._add(_SPACES.sub(" ", data))

    def _open(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag in _HEADINGS:
            self._block()
            self._parts.append(f"{_HEADINGS[tag]} ")
        elif tag == "br":
            self._parts.append("\n")
        elif tag == "pre":
            self._block()
            self._parts.append("```\n")
            self._in_code += 1
        elif tag in ("code", "kbd", "samp") and not self._in_code:
            self._parts.append("`")
        elif tag == "a":
            self._links.append((attributes.get("href", ""), len(self._parts)))
            del self._links[:-_DEEPEST]
        elif tag == "img":
            self._add(f"[image: {attributes['alt']}]" if attributes.get("alt") else "")
        elif tag == "li":
            self._item()
        elif tag == "tr":
            self._line()
            self._rows.append(len(self._parts))
            del self._rows[:-_DEEPEST]
        elif tag in ("td", "th") and self._rows and len(self._parts) > self._rows[-1]:
            self._parts.append(" | ")
        if tag in _BLOCKS:
            self._block()
        if tag in ("ul", "ol"):
            self._lists.append(1 if tag == "ol" else None)
            del self._lists[:-_DEEPEST]
        if tag == "hr":
            self._parts.append("---\n\n")

    def _close(self, tag: str) -> None:
        if tag == "pre" and self._in_code:
            self._in_code -= 1
            self._line()
            self._parts.append("```\n\n")
        elif tag in ("code", "kbd", "samp") and not self._in_code:
            self._parts.append("`")
        elif tag == "a" and self._links:
            self._link(*self._links.pop())
        elif tag in ("ul", "ol"):
            if self._lists:
                self._lists.pop()
            self._block()
        elif tag == "tr":
            if self._rows:
                self._rows.pop()
            self._line()
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._block()

    def _link(self, href: str, start: int) -> None:
        words = "".join(self._parts[start:]).strip()
        target = urljoin_or(self._address, href)
        is_web = target.startswith(("http://", "https://"))
        if words and is_web and not href.startswith("#") and words != target and "\n" not in words:
            del self._parts[start:]
            self._parts.append(f"[{words}]({target})")

    def _item(self) -> None:
        self._line()
        mark = "- "
        if self._lists and (number := self._lists[-1]) is not None:
            mark = f"{number}. "
            self._lists[-1] = number + 1
        self._parts.append("  " * max(0, len(self._lists) - 1) + mark)

    def _add(self, text: str) -> None:
        if text.startswith(" ") and self._ends_with("\n", " ", ""):
            text = text.lstrip(" ")
        if text:
            self._parts.append(text)

    def _ends_with(self, *ends: str) -> bool:
        return not self._parts or self._parts[-1][-1:] in ends

    def _line(self) -> None:
        if not self._ends_with("\n"):
            self._parts.append("\n")

    def _block(self) -> None:
        if not self._parts or self._rows:
            # A cell stays on its row.
            return
        self._line()
        if self._parts[-1] != "\n\n":
            self._parts.append("\n")


def urljoin_or(base: str, href: str) -> str:
    """Addresses on pages are often broken; such a link stays as it is."""
    try:
        return urljoin(base, href.strip())
    except ValueError:
        return href
