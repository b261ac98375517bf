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
from markdown_it.tree import SyntaxTreeNode

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
    lines = text.split("\n")
    nodes = SyntaxTreeNode(_parser().parse(text)).children
    return [(node.map[0] if node.map else 0, one) for node in nodes for one in _block(node, lines)]


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
        found: list[Token] = []
        if len(token.content) > MAX_STYLED:
            found.append(Token("text", "", 0, content=token.content))
        else:
            state.md.inline.parse(token.content, state.md, state.env, found)
        token.meta["spans"] = spans_of(found)


def _block(node: SyntaxTreeNode, lines: Sequence[str], depth: int = 0) -> list[Block]:
    """Return the block of a node, if there is something to show."""
    if depth >= MAX_DEPTH and node.nester_tokens is not None and node.type != "paragraph":
        first, last = node.map or (0, 0)
        return [Paragraph((Inline("\n".join(lines[first:last]).strip()),))]
    match node.type:
        case "paragraph":
            return [Paragraph(_spans(node))]
        case "heading":
            return [Heading(int(node.tag[1:]), _spans(node))]
        case "fence" | "code_block":
            words = node.info.split(maxsplit=1)
            return [Code(words[0] if words else "", node.content.removesuffix("\n"))]
        case "hr":
            return [HorizontalRule()]
        case "blockquote":
            return [Quote(_inner(node, lines, depth + 1))]
        case "bullet_list" | "ordered_list":
            return [_list(node, lines, depth + 1)]
        case "table":
            return [_table(node)]
        case _:
            return [Paragraph((Inline(node.content),))] if node.content else []


def _inner(node: SyntaxTreeNode, lines: Sequence[str], depth: int) -> tuple[Block, ...]:
    return tuple(block for child in node.children for block in _block(child, lines, depth))


def _spans(node: SyntaxTreeNode) -> Spans:
    return tuple(span for child in node.children for span in child.meta["spans"])


def _list(node: SyntaxTreeNode, lines: Sequence[str], depth: int) -> ListBlock:
    firsts = [item.children[0] for item in node.children if item.children]
    loose = any(first.type == "paragraph" and not first.hidden for first in firsts)
    start = int(node.attrs.get("start") or 0) if node.attrs else 1
    items = tuple(_task(_inner(item, lines, depth)) for item in node.children)
    return ListBlock(items, node.type == "ordered_list", start, loose)


def _table(node: SyntaxTreeNode) -> TableBlock:
    rows = [row.children for part in node.children for row in part.children]
    header, *others = (tuple(map(_spans, cells)) for cells in rows)
    styles = (str(cell.attrs.get("style") or "").rpartition(":")[2] for cell in rows[0])
    alignments = tuple(Alignment(style) if style else Alignment.LEFT for style in styles)
    return TableBlock(header, tuple(others), alignments)


def _task(blocks: tuple[Block, ...]) -> ListItem:
    first = blocks[0] if blocks else None
    if isinstance(first, Paragraph) and first.spans and (found := _TASK.match(first.spans[0].text)):
        begin = first.spans[0]
        rest = (replace(begin, text=begin.text[found.end() :]), *first.spans[1:])
        spans = tuple(span for span in rest if span.text)
        return ListItem((Paragraph(spans), *blocks[1:]), found.group(1) != " ")
    return ListItem(blocks)
