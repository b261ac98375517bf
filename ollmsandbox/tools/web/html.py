# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts a web page to text that a model can read, with headings, links, lists, code and tables.

lxml calls the renderer for each tag while it parses, so no tree is built. (The parser of the
standard library takes minutes for two megabytes of `<!`.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urljoin

from lxml import etree

_DROPPED = frozenset(
    ("script", "style", "noscript", "template", "svg", "canvas", "iframe", "object")
)
_BLOCKS = frozenset(
    (
        *("p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "form"),
        *("blockquote", "figure", "figcaption", "ul", "ol", "dl", "dt", "dd", "table", "address"),
        *("fieldset", "details", "summary", "hr", "h1", "h2", "h3", "h4", "h5", "h6"),
    )
)
_CODE = ("code", "kbd", "samp")
# As in browsers. libxml2 goes through all open elements at an end tag without a start tag: without
# a limit, a page of both would take quadratic time.
_DEEPEST = 512
_CHUNK = 1 << 14
_SPACES = re.compile(r"[ \t\r\n\f\u00a0]+")
_EMPTY_LINES = re.compile(r"\n{3,}")


def html_to_text(page: str, address: str = "") -> str:
    """Return the text of a page. Links become absolute, relative to the page's own address."""
    renderer = _Renderer(address)
    parser = etree.HTMLParser(target=renderer, encoding="utf-8")
    try:
        # A page of nothing has no root element, which would be an error.
        data = b"<html>" + page.replace("\0", "\ufffd").encode("utf-8", "replace")
        # In chunks, because an error in the renderer ends the parsing only at the end of one.
        for start in range(0, len(data), _CHUNK):
            parser.feed(data[start : start + _CHUNK])
        parser.close()
    except _TooDeepError:
        renderer.add_note("[The rest of the page is nested too deeply to be read.]")
    return renderer.text()


class _TooDeepError(Exception):
    pass


class _Renderer:
    """A parser target: lxml closes every element that it has opened, in the right order."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._parts: list[str] = []
        self._title: list[str] = []
        self._has_title = False
        self._in_title = False
        self._depth = 0
        # How many elements of each kind are open.
        self._dropped = 0
        self._preformatted = 0
        # For each open list the number of its next item, or None if its items have bullets.
        self._lists: list[int | None] = []
        # For each open link and table row, where its text begins in the parts.
        self._links: list[tuple[str, int]] = []
        self._rows: list[int] = []

    def text(self) -> str:
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        text = _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip("\n")
        title = _SPACES.sub(" ", "".join(self._title)).strip()
        return f"{title}\n\n{text}".strip() if title else text

    def add_note(self, note: str) -> None:
        self._parts.append(f"\n\n{note}")

    # Called by lxml.

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _TooDeepError
        if tag == "title":
            self._in_title, self._has_title = not self._has_title, True
        elif tag == "base":
            self._address = _join(self._address, attributes.get("href", ""))
        self._dropped += tag in _DROPPED
        if not self._dropped:
            self._open(tag, attributes)

    def end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "title":
            self._in_title = False
        if not self._dropped:
            self._close(tag)
        self._dropped -= tag in _DROPPED

    def data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._dropped:
            self._add(data if self._preformatted else _SPACES.sub(" ", data))

    def close(self) -> None:
        pass

    def _open(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag in _BLOCKS or tag == "pre":
            self._begin_block()
        match tag:
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._parts.append("#" * int(tag[1]) + " ")
            case "br":
                self._parts.append("\n")
            case "hr":
                self._parts.append("---\n\n")
            case "pre":
                self._parts.append("```\n")
                self._preformatted += 1
            case "a":
                self._links.append((attributes.get("href", ""), len(self._parts)))
            case "img" if attributes.get("alt"):
                self._add(f"[image: {attributes['alt']}]")
            case "ul" | "ol":
                self._lists.append(1 if tag == "ol" else None)
            case "li":
                self._begin_item()
            case "tr":
                self._begin_line()
                self._rows.append(len(self._parts))
            case "td" | "th" if self._rows and len(self._parts) > self._rows[-1]:
                self._parts.append(" | ")
            case _ if tag in _CODE and not self._preformatted:
                self._parts.append("`")

    def _close(self, tag: str) -> None:
        match tag:
            case "pre":
                self._preformatted -= 1
                self._begin_line()
                self._parts.append("```\n\n")
            case "a":
                self._end_link(*self._links.pop())
            case "ul" | "ol":
                self._lists.pop()
            case "tr":
                self._rows.pop()
                self._begin_line()
            case _ if tag in _CODE and not self._preformatted:
                self._parts.append("`")
        if tag in _BLOCKS and tag != "hr":
            self._begin_block()

    def _end_link(self, href: str, start: int) -> None:
        words = "".join(self._parts[start:]).strip()
        target = _join(self._address, href)
        is_web = target.startswith(("http://", "https://"))
        if words and is_web and not href.startswith("#") and words != target and "\n" not in words:
            self._parts[start:] = [f"[{words}]({target})"]

    def _begin_item(self) -> None:
        self._begin_line()
        mark = "- "
        if self._lists and (number := self._lists[-1]) is not None:
            mark = f"{number}. "
            self._lists[-1] = number + 1
        # The text must not grow much larger than the page.
        depth = min(max(0, len(self._lists) - 1), 10)
        self._parts.append("  " * depth + mark)

    def _add(self, text: str) -> None:
        if text.startswith(" ") and not self._preformatted and self._ends_with("\n", " ", ""):
            text = text.lstrip(" ")
        if text:
            self._parts.append(text)

    def _ends_with(self, *ends: str) -> bool:
        return not self._parts or self._parts[-1][-1:] in ends

    def _begin_line(self) -> None:
        if not self._ends_with("\n"):
            self._parts.append("\n")

    def _begin_block(self) -> None:
        # A cell stays on the line of its row.
        if self._parts and not self._rows:
            self._begin_line()
            if self._parts[-1] != "\n\n":
                self._parts.append("\n")


def _join(base: str, href: str) -> str:
    """Resolve a link. Many on the web are broken: such a one stays as it is."""
    try:
        return urljoin(base, href.strip())
    except ValueError:
        return href
