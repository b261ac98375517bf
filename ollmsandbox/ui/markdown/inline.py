# SPDX-License-Identifier: GPL-3.0-or-later
"""Styled text and links. The only place where text becomes Pango markup, escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Flag, auto
from html import escape
from itertools import groupby
from urllib.parse import unquote, urlsplit

from markdown_it.common.normalize_url import normalizeLink
from markdown_it.token import Token

from ...i18n import _
from ...text.visible import replace_unshowable


class InlineStyle(Flag):
    PLAIN = 0
    BOLD = auto()
    ITALIC = auto()
    STRIKE = auto()
    CODE = auto()
    # Added by the program, not by the writer: where a link really goes.
    NOTE = auto()


@dataclass(frozen=True)
class Inline:
    text: str
    style: InlineStyle = InlineStyle.PLAIN
    link: str = ""
    # Of a picture that is no address: the path of a file.
    picture: str = ""


Spans = tuple[Inline, ...]

_ADDRESS = re.compile(r"(?:https?://|mailto:)[^\s<>\"`\\|{}^]+", re.IGNORECASE)
_SCHEMES = ("http", "https", "mailto")
_LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
# Ends a sentence rather than an address.
_TRAILING = ".,;:!?'*_~"
_LIKE_A_HOST = re.compile(r"(?:[\w-]+\.)+[^\W\d_]{2,}")
_STYLES = {"strong": InlineStyle.BOLD, "em": InlineStyle.ITALIC, "s": InlineStyle.STRIKE}
_TAGS = (
    (InlineStyle.BOLD, "b"),
    (InlineStyle.ITALIC, "i"),
    (InlineStyle.STRIKE, "s"),
    (InlineStyle.CODE, "tt"),
)


def plain(spans: Iterable[Inline]) -> str:
    return "".join(span.text for span in spans)


def markup(spans: Iterable[Inline]) -> str:
    """Return Pango markup for a label. The tooltip of a link is its address."""
    return "".join(_markup(span) for span in spans)


def spans_of(tokens: Sequence[Token]) -> Spans:
    return tuple(_joined(_walk(tokens)))


def _walk(tokens: Sequence[Token]) -> Iterator[Inline]:
    style = InlineStyle.PLAIN
    link: Token | None = None
    inside: list[Inline] = []
    for token in tokens:
        kind = token.type
        name, _between, edge = kind.rpartition("_")
        if name in _STYLES:
            style = style | _STYLES[name] if edge == "open" else style & ~_STYLES[name]
            continue
        if kind == "link_open":
            link, inside = token, []
            continue
        if kind == "link_close":
            yield from _linked(inside, str(link.attrGet("href") or "") if link else "")
            link = None
            continue
        found = list(_leaf(token, style, addresses=link is None))
        if link is None:
            yield from found
        else:
            inside += found


def _leaf(token: Token, style: InlineStyle, *, addresses: bool) -> Iterator[Inline]:
    if token.type in ("softbreak", "hardbreak"):
        # In a chat, a line break in the source is a line break.
        yield Inline("\n", style)
    elif token.type == "code_inline":
        yield Inline(token.content, style | InlineStyle.CODE)
    elif token.type == "image":
        address = str(token.attrGet("src") or "")
        name = plain(spans_of(token.children or ())) or _("image")
        # Nothing is fetched: the request for a picture would tell its server that the text was
        # read.
        is_file = bool(address) and not _scheme(address) and not address.startswith("//")
        path = unquote(address) if is_file else ""
        yield from _linked([Inline(name, style, picture=path)], address)
    elif token.content:
        text = _LINE_BREAK.sub("\n", token.content)
        yield from _with_addresses(text, style) if addresses else (Inline(text, style),)


def _with_addresses(text: str, style: InlineStyle) -> Iterator[Inline]:
    done = 0
    for match in _ADDRESS.finditer(text):
        address = _trimmed(match.group())
        if not _can_be_opened(address):
            continue
        yield Inline(text[done : match.start()], style)
        yield from _linked([Inline(address, style)], normalizeLink(address))
        done = match.start() + len(address)
    yield Inline(text[done:], style)


def _trimmed(address: str) -> str:
    while address:
        last = address[-1]
        if last in _TRAILING or (last in ")]" and address.count(last) > address.count(_OPEN[last])):
            address = address[:-1]
        else:
            break
    return address


_OPEN = {")": "(", "]": "["}


def _linked(inside: Sequence[Inline], address: str) -> Iterator[Inline]:
    """Return the text of a link, followed by its address if the text could mislead, or if the
    program does not open such addresses."""
    words = plain(inside)
    if not _can_be_opened(address):
        yield from inside
        if address and not address.startswith("data:") and address != words:
            yield Inline(f" ({replace_unshowable(address)})", InlineStyle.NOTE)
        return
    if not words.strip():
        inside = [Inline(address)]
        words = address
    yield from (replace(span, link=address) for span in inside)
    place = host(address)
    if _misleads(words, address, place):
        yield Inline(f" ({place})", InlineStyle.NOTE)


def host(address: str) -> str:
    """Return the host or mailbox that an address leads to."""
    try:
        parts = urlsplit(address)
        return (parts.path if parts.scheme == "mailto" else parts.hostname) or address
    except ValueError:  # for example http://[
        return address


def _can_be_opened(address: str) -> bool:
    return _scheme(address) in _SCHEMES and bool(address.partition(":")[2].strip("/"))


def _scheme(address: str) -> str:
    return address.partition(":")[0].lower() if ":" in address else ""


def _misleads(words: str, address: str, place: str) -> bool:
    if _scheme(address) != "mailto" and "@" in address.partition("//")[2].partition("/")[0]:
        return True
    named = _LIKE_A_HOST.search(words.lower())
    if named is None:
        return "://" in words and host(words.strip()) != place
    if _scheme(address) == "mailto":
        return place.lower() not in words.lower()
    return named.group().removeprefix("www.") != place.removeprefix("www.")


def _joined(spans: Iterable[Inline]) -> Iterator[Inline]:
    """Join neighbours of the same style."""
    written = (span for span in spans if span.text)
    for look, alike in groupby(written, lambda span: (span.style, span.link, span.picture)):
        yield Inline(plain(alike), *look)


def _markup(span: Inline) -> str:
    text = escape(span.text)
    for style, tag in _TAGS:
        if style in span.style:
            text = f"<{tag}>{text}</{tag}>"
    if InlineStyle.NOTE in span.style:
        text = f'<span alpha="60%">{text}</span>'
    if span.link:
        # The tooltip is parsed as markup once more.
        tip = escape(escape(span.link))
        text = f'<a href="{escape(span.link)}" title="{tip}">{text}</a>'
    return text
