# SPDX-License-Identifier: GPL-3.0-or-later
"""The web_fetch tool: returns a web page as text, once the user has allowed its host."""

from __future__ import annotations

import asyncio
import codecs
import re
from dataclasses import dataclass, field

from ... import N_
from ...errors import Sentence, in_lines
from ...net.addresses import (
    Address,
    Resolver,
    proxy_for,
    public_addresses,
    refuse_private_name,
    resolve,
)
from ...net.http import Exchange, Request, ca_bundle
from ...text.ansi import escape_line, harmless
from .. import questions
from ..base import Outcome, RequestBase, ToolError, Watcher
from ..context import ToolContext
from ..parameters import DeclaredTool, parameter
from .html import html_to_text

_SECONDS = 30.0
_REDIRECTS = 5
_MOST = 2 << 20
_SHOWN = 40_000
# urllib3 decodes these; it is never asked to, but some servers compress anyway.
_COMPRESSED = ("", "identity", "gzip", "x-gzip", "deflate")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_TEXT = re.compile(
    r"text/|[\w.+/-]*(?:json|xml|javascript|yaml|toml|x-sh|sql|csv)\b", re.IGNORECASE
)
# Not every codec of Python: some take hours for a page, others do not produce text.
_CHARSETS = re.compile(
    r"ascii|utf-?(8|16|32)\b.*|iso8859-.+|iso2022_.+|cp[0-9]+|koi8-.|mac-.+|gb.+|big5.*|"
    r"shift_jis.*|euc_.+|tis-620|hz"
)
_HTML = re.compile(r"text/html|application/xhtml", re.IGNORECASE)


@dataclass(frozen=True)
class FetchedPage:
    """A response, with the first part of its body if that is text."""

    status: int
    reason: str
    kind: str
    location: str
    body: bytes
    # The body was longer than `_MOST`.
    is_cut: bool
    size: int | None


@dataclass(frozen=True)
class FetchParameters:
    url: str = parameter("The address of the page: http or https.", longest=8192)
    offset: int = parameter(
        "The number of characters to skip at the beginning, to continue reading a long page.",
        default=0,
    )


class WebFetch(DeclaredTool[FetchParameters]):
    name = "web_fetch"
    declared = FetchParameters
    can_write = False
    description = (
        "Fetch a web page and return it as text (HTML is converted; JSON and text come as they "
        "are). The user is asked for each new host. Pages of this machine and of private networks "
        "are not fetched."
    )

    def __init__(self, context: ToolContext, resolver: Resolver = resolve) -> None:
        super().__init__(context)
        self._resolver = resolver

    def request(self, given: FetchParameters, call_id: str) -> FetchRequest:
        address = Address.parse(given.url)
        return FetchRequest(self._context, self._resolver, address, given.offset, call_id)


@dataclass
class FetchRequest(RequestBase):
    context: ToolContext
    resolver: Resolver
    address: Address
    offset: int
    call_id: str
    _allowed: set[str] = field(default_factory=set)

    def describe(self) -> str:
        return escape_line(self.address.text)

    async def perform(self, watcher: Watcher) -> Outcome:
        text = await self._follow(watcher)
        return Outcome(text, ok=True, verdict=self.verdict)

    async def _follow(self, watcher: Watcher) -> str:
        """Fetch the page, following redirects. The time the user takes to answer is not counted."""
        address, came_from = self.address, ""
        left = _SECONDS
        clock = asyncio.get_running_loop().time
        for _redirect in range(_REDIRECTS + 1):
            await self._ask(watcher, address, came_from)
            began = clock()
            try:
                async with asyncio.timeout(left):
                    page = await self._fetch(address)
            except TimeoutError as error:
                raise ToolError(N_("{host} took too long."), host=address.host) from error
            left -= clock() - began
            if not page.location:
                return await self._answer(address, page)
            came_from = address.host
            address = address.redirect(page.location)
        raise ToolError(N_("The page redirects more than {number} times."), number=_REDIRECTS)

    async def _ask(self, watcher: Watcher, address: Address, came_from: str) -> None:
        if address.target in self._allowed:
            return
        if not self.context.allow_private:
            refuse_private_name(address)
        request = questions.page_question(
            self.context, address.text, address.target, came_from, self.call_id
        )
        what = f"Fetching from {address.target}"
        await questions.ask_or_end(self.context, watcher, self, request, what)
        self._allowed.add(address.target)

    async def _fetch(self, address: Address) -> FetchedPage:
        context = self.context
        proxy = proxy_for(address, context.environ)
        request = Request(
            "GET",
            address.text,
            headers={"Accept": "text/html,text/plain,application/json;q=0.9,*/*;q=0.5"},
            proxy=proxy,
            ca_bundle=ca_bundle(context.environ),
            lookup=lambda: public_addresses(
                address,
                self.resolver,
                allow_private=context.allow_private,
                may_be_unknown=bool(proxy),
            ),
        )
        async with Exchange(request) as answer:
            headers = answer.headers
            kind = headers.get("content-type", "")
            length = headers.get("content-length", "")
            size = int(length) if re.fullmatch("[0-9]{1,18}", length) else None
            location = headers.get("location", "") if 300 <= answer.status < 400 else ""
            body = b""
            if not location and _is_text(kind):
                compression = headers.get("content-encoding", "").strip().lower()
                if compression not in _COMPRESSED:
                    raise ToolError(
                        N_("The page is compressed in an unknown way: {kind}."),
                        kind=compression[:20],
                    )
                body = await answer.read_all(_MOST + 1)
            is_cut = len(body) > _MOST
            return FetchedPage(
                answer.status, answer.reason, kind, location, body[:_MOST], is_cut=is_cut, size=size
            )

    async def _answer(self, address: Address, page: FetchedPage) -> str:
        text = await asyncio.to_thread(_as_text, page, address)
        part = text[self.offset : self.offset + _SHOWN]
        lines = [escape_line(address.text)]
        if page.status >= 400:
            lines.append(f"The server answered {page.status} {escape_line(page.reason[:80])}.")
        if page.is_cut:
            lines.append(f"Only the first {_MOST:,} bytes of the page were read.")
        if len(part) < len(text):
            last = self.offset + len(part)
            more = f" Read on with offset={last}." if last < len(text) else ""
            lines.append(f"Characters {self.offset:,} to {last:,} of {len(text):,}.{more}")
        body = "\n".join([*lines, "", part or "The page has no text."])
        if page.status >= 400:
            raise ToolError(in_lines(body))
        return body


def _is_text(kind: str) -> bool:
    """Tell whether a content type is text. A missing one mostly is; the body shows it."""
    start = kind.strip()[:200]
    return not start or _TEXT.match(start) is not None


def _as_text(page: FetchedPage, address: Address) -> str:
    body = page.body
    is_wide = body.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not _is_text(page.kind) or (b"\0" in body and not is_wide):
        kind = escape_line(page.kind.partition(";")[0].strip()[:80]) or Sentence(
            N_("of unknown type")
        )
        size = Sentence(N_("of unknown size"))
        if page.size is not None:
            size = Sentence(N_("{number:,} bytes"), number=page.size)
        raise ToolError(
            N_("{address} is not text: {kind}, {size}."),
            N_("To download a file, use run_command with `network`."),
            address=address.text,
            kind=kind,
            size=size,
        )
    text = body.decode(_charset(page), "replace")
    is_html = _HTML.match(page.kind.strip()) or (
        not page.kind.strip() and re.match(r"\s*<(!doctype html|html)", text, re.IGNORECASE)
    )
    if is_html:
        text = html_to_text(text, address.text)
    return harmless(text.removeprefix("\ufeff"))


def _charset(page: FetchedPage) -> str:
    if page.body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    head = page.body[:2048].decode("latin-1")
    named = _CHARSET.search(page.kind) or (_CHARSET.search(head) if "<" in head else None)
    if named is not None:
        try:
            found = codecs.lookup(named[1]).name
        except LookupError:
            return "utf-8"
        return found if _CHARSETS.fullmatch(found) else "utf-8"
    return "utf-8"
