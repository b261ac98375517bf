# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses Markdown into blocks, without widgets. HTML stays text; nothing in it becomes markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from ...text.visible import replace_unshowable
from .inline import Inline, Spans, spans_of

# Nesting. Nobody reads deeper levels, and each costs a widget inside a widget.
MAX_DEPTH = 8
# Characters. The time to find emphasis and links grows faster than the text, so longer ones are
# shown as they are.
MAX_STYLED = 8000


class Alignment(Enum):
    LEFT = "left"
    CENTER = "center"
    RIGHT = "right"


@dataclass(frozen=True)
class Paragraph:
    spans: Spans


@dataclass(frozen=True)
class Heading:
    level: int
    spans: Spans


@dataclass(frozen=True)
class Code:
    language: str
    text: str


@dataclass(frozen=True)
class HorizontalRule:
    pass


@dataclass(frozen=True)
class TableBlock:
    header: tuple[Spans, ...]
    rows: tuple[tuple[Spans, ...], ...]
    alignments: tuple[Alignment, ...]


@dataclass(frozen=True)
class Quote:
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class ListItem:
    blocks: tuple[Block, ...]
    # None: not a task.
    done: bool | None = None


@dataclass(frozen=True)
class ListBlock:
    items: tuple[ListItem, ...]
    ordered: bool = False
    start: int = 1
    # Whether there is space between the items.
    loose: bool = False


Block = Paragraph | Heading | Code | HorizontalRule | TableBlock | Quote | ListBlock

_TASK = re.compile(r"\[([ xX])\](?:\s+|$)")


def parse_markdown(text: str) -> tuple[Block, ...]:
    """Parse a whole text; see stream.py for text that is long or still grows."""
    return tuple(block for _, block in parse_lines(text))


def parse_lines(text: str) -> list[tuple[int, Block]]:
    """Return each block with the number of its first line."""
    text = replace_unshowable(text)
    return _Reader(_parser().parse(text), text.split("\n")).top()


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 3 * MAX_DEPTH})
    parser.enable(["table", "strikethrough"])
    # A link whose address is defined elsewhere could not be shown before that has arrived.
    parser.disable(["reference", "html_block", "html_inline"])
    parser.core.ruler.at("inline", _inline)
    return parser


def _inline(state: StateCore) -> None:
    for token in state.tokens:
        if token.type != "inline":
            continue
        token.children = []
        if len(token.content) > MAX_STYLED:
            token.children.append(Token("text", "", 0, content=token.content))
        else:
            state.md.inline.parse(token.content, state.md, state.env, token.children)


class _Reader:
    """Walks the flat list of tokens, in which containers have an opening and a closing token."""

    def __init__(self, tokens: Sequence[Token], lines: Sequence[str]) -> None:
        self._tokens = tokens
        self._lines = lines
        self._at = 0

    def top(self) -> list[tuple[int, Block]]:
        found: list[tuple[int, Block]] = []
        while self._at < len(self._tokens):
            where = self._tokens[self._at].map
            found += ((where[0] if where else 0, block) for block in self._block(0))
        return found

    def _until(self, closing: str, depth: int) -> tuple[Block, ...]:
        found: list[Block] = []
        while self._tokens[self._at].type != closing:
            found += self._block(depth)
        self._at += 1
        return tuple(found)

    def _block(self, depth: int) -> list[Block]:
        token = self._tokens[self._at]
        if depth >= MAX_DEPTH and token.nesting == 1 and token.type != "paragraph_open":
            return [self._as_written(token)]
        self._at += 1
        match token.type:
            case "paragraph_open":
                return [Paragraph(self._spans("paragraph_close"))]
            case "heading_open":
                return [Heading(int(token.tag[1:]), self._spans("heading_close"))]
            case "fence" | "code_block":
                words = token.info.split(maxsplit=1)
                return [Code(words[0] if words else "", token.content.removesuffix("\n"))]
            case "hr":
                return [HorizontalRule()]
            case "blockquote_open":
                return [Quote(self._until("blockquote_close", depth + 1))]
            case "bullet_list_open" | "ordered_list_open":
                return [self._list(token, depth + 1)]
            case "table_open":
                return [self._table()]
            case _:
                return [Paragraph((Inline(token.content),))] if token.content else []

    def _as_written(self, token: Token) -> Block:
        closing = token.type.removesuffix("_open") + "_close"
        while not (
            self._tokens[self._at].type == closing and self._tokens[self._at].level == token.level
        ):
            self._at += 1
        self._at += 1
        first, last = token.map or (0, 0)
        return Paragraph((Inline("\n".join(self._lines[first:last]).strip()),))

    def _spans(self, closing: str) -> Spans:
        spans: Spans = ()
        while (token := self._tokens[self._at]).type != closing:
            spans += spans_of(token.children or ())
            self._at += 1
        self._at += 1
        return spans

    def _list(self, opening: Token, depth: int) -> ListBlock:
        ordered = opening.type == "ordered_list_open"
        closing = opening.type.replace("open", "close")
        items: list[ListItem] = []
        loose = False
        while self._tokens[self._at].type != closing:
            self._at += 1  # list_item_open
            first = self._tokens[self._at]
            loose = loose or (first.type == "paragraph_open" and not first.hidden)
            items.append(_task(self._until("list_item_close", depth)))
        self._at += 1
        start = int(opening.attrGet("start") or 0) if opening.attrs else 1
        return ListBlock(tuple(items), ordered, start, loose)

    def _table(self) -> TableBlock:
        rows: list[tuple[Spans, ...]] = []
        cells: list[Spans] = []
        alignments: list[Alignment] = []
        while (token := self._tokens[self._at]).type != "table_close":
            self._at += 1
            if token.type == "tr_open":
                cells = []
            elif token.type in ("th_open", "td_open"):
                if token.type == "th_open":
                    alignments.append(_alignment(token))
                cells.append(self._spans(token.type.replace("open", "close")))
            elif token.type == "tr_close":
                rows.append(tuple(cells))
        self._at += 1
        return TableBlock(rows[0], tuple(rows[1:]), tuple(alignments))


def _alignment(token: Token) -> Alignment:
    name = str(token.attrGet("style") or "").rpartition(":")[2]
    return Alignment(name) if name else Alignment.LEFT


def _task(blocks: tuple[Block, ...]) -> ListItem:
    first = blocks[0] if blocks else None
    if isinstance(first, Paragraph) and first.spans and (found := _TASK.match(first.spans[0].text)):
        begin = first.spans[0]
        rest = (replace(begin, text=begin.text[found.end() :]), *first.spans[1:])
        spans = tuple(span for span in rest if span.text)
        return ListItem((Paragraph(spans), *blocks[1:]), found.group(1) != " ")
    return ListItem(blocks)
