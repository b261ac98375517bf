# SPDX-License-Identifier: GPL-3.0-or-later
"""web_fetch: a web page as text, once the person has allowed its host."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from gettext import gettext as _
from gettext import pgettext

from ... import N_
from ...errors import OllmSandboxError, Sentence
from ...permission.request import Fact, Verdict
from ...text.ansi import escape_line, harmless
from .. import questions
from ..base import Outcome, RequestBase, Tool, ToolError, Watcher
from ..context import ToolContext
from ..parameters import Parameters, parameter
from .addresses import Address, Resolver, check_name, proxy_for, public_addresses, resolve
from .fetching import MOST, Answer, Fetch, in_thread
from .html import html_to_text

NAME = "web_fetch"

_SECONDS = 30.0
_REDIRECTS = 5
_SHOWN = 40_000
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_TEXT = re.compile(
    r"text/|[\w.+/-]*(?:json|xml|javascript|yaml|toml|x-sh|sql|csv)\b", re.IGNORECASE
)
# Of all that Python calls an encoding: some take hours for a page, others are no text.
_CHARSETS = re.compile(
    r"ascii|utf-?(8|16|32)\b.*|iso8859-.+|iso2022_.+|cp[0-9]+|koi8-.|mac-.+|gb.+|big5.*|"
    r"shift_jis.*|euc_.+|tis-620|hz"
)
_HTML = re.compile(r"text/html|application/xhtml", re.IGNORECASE)


@dataclass(frozen=True)
class Given:
    url: str = parameter("The address of the page: http or https.", longest=8192)
    offset: int = parameter(
        "How many characters of the text to leave out at the beginning, to read on in a long page.",
        default=0,
    )


class WebFetch(Tool):
    name = NAME
    description = (
        "Fetch a web page and return it as text (HTML is converted; JSON and text come as they "
        "are). The user is asked for each new host. Pages of this machine and of private networks "
        "are not fetched."
    )

    def __init__(self, context: ToolContext, resolver: Resolver = resolve) -> None:
        self._context = context
        self._resolver = resolver
        self._parameters = Parameters(NAME, Given)

    @property
    def parameters(self) -> Mapping[str, object]:
        return self._parameters.schema()

    def read(self, arguments: Mapping[str, object] | str, call_id: str = "") -> FetchRequest:
        given = self._parameters.read(arguments)
        address = Address.parse(given.url)
        return FetchRequest(self._context, self._resolver, address, given.offset, call_id)


@dataclass
class FetchRequest(RequestBase):
    context: ToolContext
    resolver: Resolver
    address: Address
    offset: int
    call_id: str
    _verdict: Verdict | None = None
    _allowed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.permission_question = f"Fetch a web page from {self.address.target}?"
        self.permission_target_path = self.address.target

    def describe(self) -> str:
        return escape_line(self.address.text)

    @property
    def is_independent(self) -> bool:
        return True

    async def execute(self, watcher: Watcher) -> Outcome:
        try:
            text = await self._follow(watcher)
            return Outcome(text, ok=True, verdict=self._verdict)
        except (OllmSandboxError, OSError) as error:
            return Outcome(str(error), ok=False, verdict=self._verdict)

    async def _follow(self, watcher: Watcher) -> str:
        address, came_from = self.address, ""
        left = _SECONDS
        clock = asyncio.get_running_loop().time
        for _turn in range(_REDIRECTS + 1):
            await self._ask(watcher, address, came_from)
            began = clock()
            answer = await self._fetch(address, left)
            left -= clock() - began
            if not answer.location:
                return await self._told(address, answer)
            came_from = address.host
            address = address.leads_to(answer.location)
        raise ToolError(
            N_("ERROR: The address leads on more than {number} times."), number=_REDIRECTS
        )

    async def _ask(self, watcher: Watcher, address: Address, came_from: str) -> None:
        if address.target in self._allowed:
            return
        if not self.context.allow_private:
            check_name(address)
        # Translators: names a line of the card: "host   example.org"
        facts = [Fact(pgettext("permission card", "host"), address.target)]
        if came_from:
            # Translators: names a line of the card, the host whose page leads to this one.
            facts.append(Fact(pgettext("permission card", "led here by"), came_from))
        request = questions.make_request(
            self.context,
            NAME,
            N_("Fetch a web page from {host}?"),
            address.text,
            host=address.target,
            target=address.target,
            network=True,
            facts=facts,
            sees=[_("Only this page is fetched. The host learns the address that is asked for.")],
            call_id=self.call_id,
        )
        self._verdict = await questions.ask(self.context, watcher, request)
        if not self._verdict.allowed:
            raise ToolError(questions.denial(self._verdict, f"Fetching from {address.target}"))
        self._allowed.add(address.target)

    async def _fetch(self, address: Address, seconds: float) -> Answer:
        context = self.context
        proxy = proxy_for(address, context.environ)
        late = ToolError(N_("ERROR: {host} took too long."), host=address.host)
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        try:
            async with asyncio.timeout(seconds):
                numbers = await in_thread(
                    lambda: public_addresses(
                        address,
                        self.resolver,
                        allow_private=context.allow_private,
                        may_be_unknown=bool(proxy),
                    )
                )
        except TimeoutError as error:
            raise late from error
        bundle = context.environ.get("REQUESTS_CA_BUNDLE") or context.environ.get("CURL_CA_BUNDLE")
        fetch = Fetch(address, numbers, proxy=proxy, verify=bundle or True)
        if until <= clock():
            raise late
        return await fetch.run(until - clock(), _is_text)

    async def _told(self, address: Address, answer: Answer) -> str:
        text = await in_thread(lambda: _as_text(answer, address))
        part = text[self.offset : self.offset + _SHOWN]
        lines = [escape_line(address.text)]
        if answer.status >= 400:
            lines.append(f"The server answered {answer.status} {escape_line(answer.reason[:80])}.")
        if answer.is_cut:
            lines.append(f"Only the first {MOST:,} bytes of the page were read.")
        if len(part) < len(text):
            last = self.offset + len(part)
            more = f" Read on with offset={last}." if last < len(text) else ""
            lines.append(f"Characters {self.offset:,} to {last:,} of {len(text):,}.{more}")
        body = "\n".join([*lines, "", part or "The page has no text."])
        if answer.status >= 400:
            raise ToolError(N_("ERROR: {what}"), what=body)
        return body


def _is_text(kind: str) -> bool:
    """Who says nothing about it mostly sends text; what it is shows when it is read."""
    start = kind.strip()[:200]
    return not start or _TEXT.match(start) is not None


def _as_text(answer: Answer, address: Address) -> str:
    body = answer.body
    is_wide = body.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not _is_text(answer.kind) or (b"\0" in body and not is_wide):
        kind = escape_line(answer.kind.partition(";")[0].strip()[:80]) or Sentence(
            N_("of unknown type")
        )
        size = Sentence(N_("of unknown size"))
        if answer.size is not None:
            size = Sentence(N_("{number:,} bytes"), number=answer.size)
        raise ToolError(
            N_("ERROR: {address} is not text: {kind}, {size}."),
            N_("To download a file, use run_command with `network`."),
            address=address.text,
            kind=kind,
            size=size,
        )
    text = body.decode(_charset(answer), "replace")
    is_html = _HTML.match(answer.kind.strip()) or (
        not answer.kind.strip() and re.match(r"\s*<(!doctype html|html)", text, re.IGNORECASE)
    )
    if is_html:
        text = html_to_text(text, address.text)
    return harmless(text.removeprefix("\ufeff"))


def _charset(answer: Answer) -> str:
    if answer.body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    head = answer.body[:2048].decode("latin-1")
    named = _CHARSET.search(answer.kind) or (_CHARSET.search(head) if "<" in head else None)
    if named is not None:
        try:
            found = codecs.lookup(named[1]).name
        except LookupError:
            return "utf-8"
        return found if _CHARSETS.fullmatch(found) else "utf-8"
    return "utf-8"
