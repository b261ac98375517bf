# SPDX-License-Identifier: GPL-3.0-or-later
"""Web pages as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.tools import FUZZED

from ollmsandbox.tools.web.html import html_to_text

pytestmark = pytest.mark.anybody

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
        ("a &#x41;&#65;&nbsp;b&#99999999999999;", "a AA b\ufffd"),
        ("<a href='http://[bad'>x</a>", "[x](http://[bad)"),
        ("<a href='javascript:x()'>x</a>", "x"),
        ("<a href=https://x.example/>https://x.example/</a>", "https://x.example/"),
        ('<p title="a > b">x</p>', "x"),
        ("<SCRIPT>x</SCRIPT >y", "y"),
        ("<base href='https://b.example/d/'><a href=e>x</a>", "[x](https://b.example/d/e)"),
    ],
)
def test_small_things(page: str, text: str) -> None:
    assert html_to_text(page, "https://example.com/") == text


@pytest.mark.parametrize("piece", ["<!", "<a '", "</", '<x y="', "<!--", "<title>", "&#", "<?"])
def test_a_hostile_page_takes_no_longer_than_any(piece: str) -> None:
    # In quadratic time this would take hours, not a moment.
    html_to_text(piece * 60_000)


def test_nested_links_and_lists_do_not_run_away() -> None:
    html_to_text("<a href=x>" * 5000 + "y" + "</a>" * 5000)
    html_to_text("<ul><li>" * 5000)
    html_to_text("<table><tr><td>" * 5000)


PIECES = [
    "<",
    ">",
    "</",
    "a",
    "p",
    "pre",
    " ",
    "=",
    "'",
    '"',
    "&",
    ";",
    "#",
    "!--",
    "-->",
    "\n",
    "x",
]


@FUZZED
@given(some.lists(some.sampled_from(PIECES) | some.text(max_size=5), max_size=60))
def test_anything_can_be_read(pieces: list[str]) -> None:
    html_to_text("".join(pieces), "https://example.com/")
