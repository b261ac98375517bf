# SPDX-License-Identifier: GPL-3.0-or-later
"""Web pages as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.timing import assert_linear
from support.tools import FUZZED

from ollmsandbox.tools.web.html import html_to_text

pytestmark = pytest.mark.ordinary

PAGE = """<!DOCTYPE html>
<html><head><title>A  page</title><style>p { color: red }</style>
<script>if (a < b) { document.write("</p>") }</script></head>
<body class=x><!-- <p>not this</p> -->
<h1>Top</h1><p>Some   <b>bold</b> text &amp; &lt;more&gt;<br>next line</p>
<p>See <a href="/doc?a=1&amp;b=2">the docs</a> or <a href='#top'>up</a>.</p>
<ul><li>one</li><li>two<ul><li>inner</li></ul></li></ul>
<ol><li>first<li>second</ol>
<pre>def f():
    return 1
</pre><p>Use <code>f()</code>.</p>
<table><tr><th>Name</th><th>Size</th></tr><tr><td>a</td><td><p>1</p></td></tr></table>
<img src=x alt="A cat"><noscript>Enable it</noscript>
</body></html>"""


def test_a_page_is_readable() -> None:
    assert html_to_text(PAGE, "https://example.com/x/") == (
        "A page\n\n# Top\n\nSome bold text & <more>\nnext line\n\n"
        "See [the docs](https://example.com/doc?a=1&b=2) or up.\n\n"
        "- one\n- two\n\n  - inner\n\n1. first\n2. second\n\n"
        "```\ndef f():\n    return 1\n```\n\nUse `f()`.\n\n"
        "Name | Size\na | 1\n\n[image: A cat]"
    )


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("plain < text & more", "plain < text & more"),
        ("<p>a<p>b", "a\n\nb"),
        ("<head><title>T</title><p>body", "T\n\nbody"),
        ("a<script>x", "a"),
        ("a<!-- x", "a"),
        ("a<b", "a"),
        ("a &#x41;&#65;&nbsp;b", "a AA b"),
        ("<a href='http://[bad'>x</a>", "[x](http://[bad)"),
        ("<a href='javascript:x()'>x</a>", "x"),
        ("<a href=https://x.example/>https://x.example/</a>", "https://x.example/"),
        ('<p title="a > b">x</p>', "x"),
        ("<SCRIPT>x</SCRIPT >y", "y"),
        ("<base href='https://b.example/d/'><a href=e>x</a>", "[x](https://b.example/d/e)"),
    ],
)
def test_fragments(page: str, text: str) -> None:
    assert html_to_text(page, "https://example.com/") == text


@pytest.mark.parametrize(
    "pieces",
    [
        *(["<!"], ["<a '"], ["</"], ['<x y="'], ["<!--"], ["<title>"], ["&#"], ["<?"]),
        *(["<a href=x>", "y", "</a>"], ["<ul><li>"], ["<table><tr><td>"], ["<pre>"], ["<svg>"]),
        *(["<b>", "</x>"], ["<div>", "</p>"], ["<a href=x>y"], ["<ol>", "<li>x"]),
    ],
    ids="".join,
)
def test_reading_a_hostile_page_takes_linear_time(pieces: list[str]) -> None:
    def read(count: int) -> None:
        html_to_text("".join(piece * count for piece in pieces), "https://example.com/")

    assert_linear(read, (1 << 13) // sum(map(len, pieces)))


def test_a_page_that_is_nested_too_deeply_is_read_in_part() -> None:
    text = html_to_text("first" + "<b>x" * 1000 + "last")
    assert text.startswith("firstxxx")
    assert "last" not in text
    assert text.endswith("nested too deeply to be read.]")


def test_deep_lists_do_not_make_the_text_much_longer_than_the_page() -> None:
    page = "<ul>" * 400 + "<li>x" * 10_000
    assert len(html_to_text(page)) < 10 * len(page)


PIECES = [*"<>ap ='\"&;#\nx", "</", "pre", "!--", "-->"]


@FUZZED
@given(some.lists(some.sampled_from(PIECES) | some.text(max_size=5), max_size=60))
def test_no_page_raises_an_exception(pieces: list[str]) -> None:
    html_to_text("".join(pieces), "https://example.com/")
