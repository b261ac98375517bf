# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ollmsandbox.ui.markdown.inline import Inline, InlineStyle, markup, plain
from ollmsandbox.ui.markdown.parse import (
    MAX_DEPTH,
    Alignment,
    Block,
    Code,
    Heading,
    HorizontalRule,
    ListBlock,
    ListItem,
    Paragraph,
    Quote,
    TableBlock,
    parse_markdown,
)
from ollmsandbox.ui.markdown.stream import LONG, Splitter


def words(text: str) -> Paragraph:
    return Paragraph((Inline(text),))


def spans(text: str) -> tuple[Inline, ...]:
    (block,) = parse_markdown(text)
    assert isinstance(block, Paragraph)
    return block.spans


def streamed(text: str, sizes: list[int]) -> list[Block]:
    splitter = Splitter()
    found: list[Block] = []
    at = 0
    for size in [*sizes, len(text) or 1]:
        splitter.feed(text[at : at + size])
        at += size
        while blocks := splitter.take():
            found += blocks
    while splitter.tail:
        found += splitter.finish()
    return found


def test_each_kind_of_block() -> None:
    text = """\
# Title

A paragraph
on two lines.

Under
-----

> quoted

```py title=x
print(1)
```

***

    indented
"""
    assert parse_markdown(text) == (
        Heading(1, (Inline("Title"),)),
        words("A paragraph\non two lines."),
        Heading(2, (Inline("Under"),)),
        Quote((words("quoted"),)),
        Code("py", "print(1)"),
        HorizontalRule(),
        Code("", "indented"),
    )


def test_lists_with_numbers_tasks_and_lists_inside() -> None:
    (numbered, tasks) = parse_markdown(
        "3. three\n4. four\n   - inner\n\n<!-- -->\n\n- [ ] open\n- [x] done\n"
    )[::2]
    inner = ListBlock((ListItem((words("inner"),)),))
    assert numbered == ListBlock(
        (ListItem((words("three"),)), ListItem((words("four"), inner))), ordered=True, start=3
    )
    assert tasks == ListBlock(
        (ListItem((words("open"),), done=False), ListItem((words("done"),), done=True))
    )


def test_a_list_may_begin_with_0_and_with_space_between_its_items() -> None:
    (block,) = parse_markdown("0. a\n\n1. b\n")
    assert isinstance(block, ListBlock)
    assert (block.start, block.loose) == (0, True)


def test_a_table_with_alignments_and_missing_cells() -> None:
    assert parse_markdown("|a|b|c|\n|-|:-:|-:|\n|1|`2`|\n") == (
        TableBlock(
            ((Inline("a"),), (Inline("b"),), (Inline("c"),)),
            (((Inline("1"),), (Inline("2", InlineStyle.CODE),), ()),),
            (Alignment.LEFT, Alignment.CENTER, Alignment.RIGHT),
        ),
    )


def test_styles_within_each_other() -> None:
    assert spans("a **b *c*** ~~d~~ `<e>`") == (
        Inline("a "),
        Inline("b ", InlineStyle.BOLD),
        Inline("c", InlineStyle.BOLD | InlineStyle.ITALIC),
        Inline(" "),
        Inline("d", InlineStyle.STRIKE),
        Inline(" "),
        Inline("<e>", InlineStyle.CODE),
    )


def test_html_is_text() -> None:
    text = "<b onclick='x'>bold</b> &lt; <script>alert(1)</script>"
    assert plain(spans(text)) == text.replace("&lt;", "<")
    assert parse_markdown("<div>\n**x**\n</div>") == (
        Paragraph((Inline("<div>\n"), Inline("x", InlineStyle.BOLD), Inline("\n</div>"))),
    )


def test_a_line_break_in_a_table_is_one() -> None:
    (table,) = parse_markdown("|a|\n|-|\n|x<br>y `<br>`|\n")
    assert isinstance(table, TableBlock)
    assert plain(table.rows[0][0]) == "x\ny <br>"


def test_markup_of_the_writer_is_not_markup_of_the_label() -> None:
    text = markup(spans("</span> & \"<a href='x'>\" **<b>**"))
    assert text == ("&lt;/span&gt; &amp; &quot;&lt;a href=&#x27;x&#x27;&gt;&quot; <b>&lt;b&gt;</b>")


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        (
            "see https://example.org/a_(b).",
            "https://example.org/a_(b)",
            "https://example.org/a_(b)",
        ),
        ("(http://example.org)", "http://example.org", "http://example.org"),
        ("<https://example.org>", "https://example.org", "https://example.org"),
        ("mailto:a@example.org!", "mailto:a@example.org", "mailto:a@example.org"),
        ("[here](https://example.org/x)", "https://example.org/x", "here"),
        ("![a *cat*](https://example.org/c.png)", "https://example.org/c.png", "a cat"),
    ],
)
def test_addresses_become_links(text: str, address: str, shown: str) -> None:
    linked = [span for span in spans(text) if span.link]
    assert [(span.text, span.link) for span in linked] == [(shown, address)]
    assert not any(InlineStyle.NOTE in span.style for span in spans(text))


@pytest.mark.parametrize(
    "text",
    ["ftp://x.org", "file:///etc/passwd", "javascript:alert(1)", "www.example.org", "http://"],
)
def test_nothing_else_becomes_a_link(text: str) -> None:
    for form in (text, f"[{text}]({text})", f"![x]({text})", f"<{text}>"):
        assert not any(span.link for block in parse_markdown(form) for span in block.spans)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("[https://bank.example](https://evil.example/x)", " (evil.example)"),
        ("[bank.example](https://evil.example)", " (evil.example)"),
        ("[the **bank.example**](https://evil.example)", " (evil.example)"),
        ("https://bank.example@evil.example/", " (evil.example)"),
        ("[a@bank.example](mailto:b@evil.example)", " (b@evil.example)"),
        ("https://b\u0430nk.example/", " (xn--bnk-6cd.example)"),  # a Cyrillic letter
        ("[parser.py](src/parser.py)", " (src/parser.py)"),
        ("![chart](./out.png)", " (./out.png)"),
    ],
)
def test_a_link_that_may_mislead_shows_where_it_goes(text: str, note: str) -> None:
    assert spans(text)[-1] == Inline(note, InlineStyle.NOTE)


def test_the_tooltip_of_a_link_is_its_address() -> None:
    (link,) = ElementTree.fromstring(f"<x>{markup(spans('[a](http://x.org/?a=1&b=<2>)'))}</x>")
    # Once for the attribute, once more because Gtk takes a tooltip for markup.
    assert link.attrib == {
        "href": "http://x.org/?a=1&b=%3C2%3E",
        "title": "http://x.org/?a=1&amp;b=%3C2%3E",
    }


def test_unprintable_characters_are_replaced() -> None:
    assert parse_markdown("a\x00b\x1b[31m\ud800") == (words("a\ufffdb\ufffd[31m\ufffd"),)


@pytest.mark.parametrize("mark", ["> ", "- ", "1. ", ">- "])
def test_deep_nesting_is_kept_as_plain_text(mark: str) -> None:
    (block,) = parse_markdown(mark * 500 + "the end")
    depth = 0
    while isinstance(block, (Quote, ListBlock)):
        depth += 1
        inside = block.items[0].blocks if isinstance(block, ListBlock) else block.blocks
        (block,) = inside
    assert depth == MAX_DEPTH
    assert isinstance(block, Paragraph)
    assert plain(block.spans).endswith("the end")


FRAGMENTS = [
    *("a", " ", "  ", "    ", "\n", "\n\n", "\r\n", "\r", "\t", "word word\n", "# ", "## b\n"),
    *("- ", "* x\n", "+ ", "1. ", "2) y\n", "> ", "[ ] ", "---\n", "===\n", "***\n"),
    *("```", "```py\n", "~~~\n", "````\n", "  ```\n", "|", "|a|b|\n", "|-|-|\n"),
    *("*", "**", "_", "`", "[", "](", ")", "<", ">", "&amp;", "\\", "http://x.y"),
]
documents = st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join) | st.text(max_size=200)


# What looks like a beginning and is none: in a fence that is indented, in a list.
@example("  ```\na\n\nb\n\nc\n  ```\nd\n", [1] * 40)
@example("Such as:\n- a\n\n- b\n\n  c\n\nd\n", [1] * 40)
@example("- a\n\n  ```\n  b\n\n  c\n  ```\n\nd\n\n# e\nf", [1] * 40)
@settings(max_examples=150, deadline=None)
@given(documents, st.lists(st.integers(1, 12), max_size=40))
def test_a_text_in_pieces_gives_the_blocks_of_the_whole(text: str, sizes: list[int]) -> None:
    assert tuple(streamed(text, sizes)) == parse_markdown(text)


@settings(max_examples=200, deadline=None)
@given(documents)
def test_every_text_has_valid_markup(text: str) -> None:
    for block in parse_markdown(text):
        if isinstance(block, (Paragraph, Heading)):
            # Pango's parser takes XML.
            ElementTree.fromstring(f"<x>{markup(block.spans)}</x>")


def test_blocks_are_finished_while_the_rest_is_still_coming() -> None:
    splitter = Splitter()
    splitter.feed("# One\n\nSome words\n\n- more")
    assert splitter.take() == (Heading(1, (Inline("One"),)),)
    assert splitter.take() == ()
    splitter.feed(" words\n")
    assert splitter.take() == (words("Some words"),)
    splitter.feed("\nThe")
    assert splitter.take() == (ListBlock((ListItem((words("more words"),)),)),)
    assert splitter.take() == ()
    assert splitter.tail == "The"


def test_code_that_is_still_being_written_is_known_as_such() -> None:
    splitter = Splitter()
    splitter.feed("Look:\n```py\nprint(\n\n# no")
    assert splitter.open_code() is None
    assert splitter.take() == (words("Look:"),)
    assert splitter.take() == ()
    assert splitter.open_code() == ("py", "print(\n\n# no")
    splitter.feed(" heading\n```\n")
    assert splitter.take() == (Code("py", "print(\n\n# no heading"),)
    assert splitter.open_code() is None


@pytest.mark.parametrize("line", ["- an *item* of a list\n", "|a|b|\n", "word ", "x", "[", "> q\n"])
def test_an_endless_block_is_cut(line: str) -> None:
    splitter = Splitter()
    splitter.feed(line * (6 * LONG // len(line)))
    count = 0
    while splitter.take():
        count += 1
    assert count >= 2
    assert len(splitter.tail) <= 3 * LONG


@pytest.mark.parametrize("part", ["[", "*a ", "![[", "`a``", "> ", "<a", "[a](b", "\\", "&", "|\n"])
def test_repeated_markup_of_any_kind_is_parsed(part: str) -> None:
    started = time.process_time()
    splitter = Splitter()
    splitter.feed(part * (20_000 // len(part)))
    while splitter.take():
        pass
    while splitter.tail:
        splitter.finish()
    # Not a matter of speed: what grows with the square would take hours.
    assert time.process_time() - started < 300
