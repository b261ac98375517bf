# SPDX-License-Identifier: GPL-3.0-or-later
"""web_fetch against real servers on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from support.person import Person
from support.timing import PATIENCE
from support.tools import Agent

from ollmsandbox import loop
from ollmsandbox.net import addresses
from ollmsandbox.net.addresses import Address, Resolver
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.tools.base import Outcome, ToolError
from ollmsandbox.tools.web import web_fetch
from ollmsandbox.tools.web.web_fetch import WebFetch

pytestmark = pytest.mark.anybody

Page = tuple[int, dict[str, str], bytes]


class Site:
    """A server with pages; remembers what it was asked for."""

    def __init__(self) -> None:
        self.pages: dict[str, Page | Callable[[BaseHTTPRequestHandler], None]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.path, dict(self.headers)))
                page = site.pages.get(self.path.partition("?")[0], (404, {}, b"not here"))
                if callable(page):
                    page(self)
                    return
                status, headers, body = page
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def put(self, path: str, body: bytes | str, kind: str = "text/plain", **headers: str) -> None:
        data = body if isinstance(body, bytes) else body.encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = (200, {"Content-Type": kind, **named}, data)

    def redirect(self, path: str, to: str) -> None:
        self.pages[path] = (302, {"Location": to}, b"")

    def url(self, path: str = "/", host: str = "site.example") -> str:
        return f"http://{host}:{self.port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def here(_host: str, _port: int) -> Sequence[str]:
    """Every name is this machine."""
    return ["127.0.0.1"]


@pytest.fixture
def agent(person: Person) -> Agent:
    made = Agent(person, allow_private=True)
    made.asker.answer = Answer.ALLOW
    return made


def fetch(agent: Agent, url: str, resolver: Resolver = here, **given: object) -> Outcome:
    return agent.call(WebFetch(agent.tool_context, resolver), url=url, **given)


def test_a_page_comes_as_text(agent: Agent, site: Site) -> None:
    site.put("/", "<title>T</title><p>Hello <a href=/x>there</a>", "text/html; charset=utf-8")
    outcome = fetch(agent, site.url())
    assert outcome.ok
    assert outcome.text == f"{site.url()}\n\nT\n\nHello [there]({site.url('/x')})"


def test_text_and_json_come_as_they_are(agent: Agent, site: Site) -> None:
    site.put("/a", "<b>no markup</b>", "text/plain")
    site.put("/b", '{"a": [1]}', "application/vnd.api+json")
    assert fetch(agent, site.url("/a")).text.endswith("<b>no markup</b>")
    assert fetch(agent, site.url("/b")).text.endswith('{"a": [1]}')


def test_other_alphabets_are_read(agent: Agent, site: Site) -> None:
    site.put("/a", "größe".encode("latin-1"), "text/plain; charset=iso-8859-1")
    site.put("/b", "<meta charset='windows-1251'><p>мир".encode("cp1251"), "text/html")
    site.put("/c", "größe\xff".encode("latin-1"), "text/plain; charset=rot13")
    assert fetch(agent, site.url("/a")).text.endswith("größe")
    assert fetch(agent, site.url("/b")).text.endswith("мир")
    assert fetch(agent, site.url("/c")).text.endswith("gr\ufffd\ufffde\ufffd")


@pytest.mark.parametrize("name", ["punycode", "idna", "unicode_escape", "undefined"])
def test_an_encoding_that_is_no_text_encoding_is_not_used(
    agent: Agent, site: Site, name: str
) -> None:
    """Decoding two megabytes of punycode would take hours."""
    site.put("/", b"-" + b"a" * (1 << 20), f"text/plain; charset={name}")
    assert fetch(agent, site.url()).text.endswith("a" * 1000)


def test_a_refused_address_asks_nothing(agent: Agent, site: Site) -> None:
    agent.tool_context.allow_private = False
    for host in ("127.0.0.1", "[::1]", "192.168.1.1", "localhost", "a.localhost"):
        outcome = fetch(agent, f"http://{host}:{site.port}/")
        assert "private network" in outcome.text
    assert agent.asked == []
    assert site.asked == []


def test_a_packed_page_is_unpacked(agent: Agent, site: Site) -> None:
    site.put("/", gzip.compress(b"packed"), Content_Encoding="gzip")
    assert fetch(agent, site.url()).text.endswith("packed")


def test_a_bomb_does_not_go_off(agent: Agent, site: Site) -> None:
    site.put("/", gzip.compress(b"x" * (20 << 20)), Content_Encoding="gzip")
    text = fetch(agent, site.url()).text
    assert "Only the first 2,097,152 bytes" in text
    assert len(text) < 41_000


def test_binary_is_refused_by_type_and_size(agent: Agent, site: Site) -> None:
    site.put("/a", b"\x89PNG" * 100, "image/png")
    site.put("/b", b"a\0b", "text/plain")
    outcome = fetch(agent, site.url("/a"))
    assert not outcome.ok
    assert "not text: image/png, 400 bytes" in outcome.text
    assert "not text" in fetch(agent, site.url("/b")).text


def test_a_long_page_is_read_in_parts(agent: Agent, site: Site) -> None:
    site.put("/", "".join(f"{number:07}\n" for number in range(10_000)))
    text = fetch(agent, site.url()).text
    assert "offset=40000" in text
    text = fetch(agent, site.url(), offset=40_000).text
    assert "\n\n0005000\n" in text
    assert text.endswith("0009999\n")


def test_an_endless_page_is_cut(agent: Agent, site: Site) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65536)
        except OSError:
            return

    site.pages["/"] = endless
    assert "Only the first" in fetch(agent, site.url()).text


def test_an_error_of_the_server_is_reported_with_its_text(agent: Agent, site: Site) -> None:
    site.pages["/"] = (503, {"Content-Type": "text/plain"}, b"try later")
    outcome = fetch(agent, site.url())
    assert not outcome.ok
    assert "503" in outcome.text
    assert "try later" in outcome.text


def test_the_request_has_a_user_agent_and_nothing_personal(person: Person, site: Site) -> None:
    (person.home / ".netrc").write_text("machine site.example login me password SECRET\n")
    agent = Agent(person, allow_private=True)
    agent.asker.answer = Answer.ALLOW
    site.put("/", "x", Set_Cookie="a=b")
    site.put("/again", "x")
    site.redirect("/again", "/")
    fetch(agent, site.url("/again"))
    for _path, headers in site.asked:
        assert headers["User-Agent"].startswith("ollmsandbox/")
        assert headers["Host"] == f"site.example:{site.port}"
        assert "Authorization" not in headers
        assert "Cookie" not in headers


# --- asking ------------------------------------------------------------------------------------


def test_a_host_is_asked_for_and_remembered(agent: Agent, site: Site) -> None:
    site.put("/a", "1")
    site.put("/b", "2")
    agent.asker.answer = Answer.ALLOW_SESSION
    assert fetch(agent, site.url("/a?x=1")).ok
    assert fetch(agent, site.url("/b")).ok
    [request] = agent.asked
    assert request.subject == site.url("/a?x=1")
    assert request.target_path == f"site.example:{site.port}"
    assert not request.one_time_only
    assert fetch(agent, site.url("/b", host="other.example")).ok
    assert len(agent.asked) == 2


def test_a_denied_host_is_not_connected_to(agent: Agent, site: Site) -> None:
    agent.asker.answer = Answer.DENY

    def resolver(_host: str, _port: int) -> Sequence[str]:
        raise AssertionError("looked up before it was allowed")

    outcome = fetch(agent, site.url(), resolver)
    assert not outcome.ok
    assert "was denied" in outcome.text
    assert site.asked == []


def test_a_redirect_to_another_host_asks_again(agent: Agent, site: Site) -> None:
    site.redirect("/a", site.url("/b", host="other.example"))
    site.put("/b", "there")

    def only_the_first(request: PermissionRequest) -> Answer:
        return Answer.ALLOW if "site" in request.target_path else Answer.DENY

    agent.asker.answer = only_the_first
    assert "other.example" in fetch(agent, site.url("/a")).text
    assert [path for path, _ in site.asked] == ["/a"]
    agent.asker.answer = Answer.ALLOW
    assert fetch(agent, site.url("/a")).text.endswith("there")
    facts = {fact.label: fact.value for fact in agent.asked[-1].facts}
    assert facts["Redirected by"] == "site.example"


def test_a_redirect_on_the_same_host_does_not_ask(agent: Agent, site: Site) -> None:
    site.redirect("/a", "/b")
    site.redirect("/b", "c")
    site.put("/c", "there")
    assert fetch(agent, site.url("/a")).text.endswith("there")
    assert len(agent.asked) == 1


def test_redirects_come_to_an_end(agent: Agent, site: Site) -> None:
    site.redirect("/a", "/a")
    assert "redirects more than 5 times" in fetch(agent, site.url("/a")).text
    assert len(site.asked) == 6


# --- private addresses -------------------------------------------------------------------------


def test_this_machine_is_not_fetched(person: Person, site: Site) -> None:
    agent = Agent(person)
    agent.asker.answer = Answer.ALLOW
    outcome = fetch(agent, site.url())
    assert not outcome.ok
    assert "private network" in outcome.text
    assert site.asked == []


def test_a_redirect_to_this_machine_is_not_followed(
    agent: Agent, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.redirect("/a", site.url("/b", host="inside.example"))
    look_up = addresses.public_addresses

    def first_is_far_away(address: Address, resolver: Resolver, **options: bool) -> list[str]:
        options["allow_private"] = address.host == "site.example"
        return look_up(address, resolver, **options)

    monkeypatch.setattr(web_fetch, "public_addresses", first_is_far_away)
    assert "private network" in fetch(agent, site.url("/a")).text
    assert [path for path, _ in site.asked] == ["/a"]


def test_a_name_is_looked_up_once_and_that_address_is_used(agent: Agent, site: Site) -> None:
    site.put("/", "x")
    looked_up: list[str] = []

    def once(host: str, _port: int) -> Sequence[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    # No other look-up could find this name.
    assert fetch(agent, site.url(host="rebinding.invalid"), once).ok
    assert looked_up == ["rebinding.invalid"]


def test_the_next_address_is_tried(agent: Agent, site: Site) -> None:
    site.put("/", "x")
    with socket.socket() as taken:
        # Nobody listens there.
        taken.bind(("127.0.0.2", site.port))
        assert fetch(agent, site.url(), lambda *_: ["127.0.0.2", "127.0.0.1"]).ok


def test_through_a_proxy_private_names_are_refused_too(person: Person, site: Site) -> None:
    proxy = {"http_proxy": f"http://127.0.0.1:{site.port}"}
    agent = Agent(person, environ=proxy)
    agent.asker.answer = Answer.ALLOW
    assert "private network" in fetch(agent, "http://inside.example/", here).text
    assert "private network" in fetch(agent, "http://10.0.0.1/", lambda h, _: [h]).text
    assert site.asked == []

    def unknown(_host: str, _port: int) -> Sequence[str]:
        raise OSError("only the proxy knows")

    site.pages["http://far.example/"] = (200, {"Content-Type": "text/plain"}, b"by proxy")
    assert fetch(agent, "http://far.example/", unknown).text.endswith("by proxy")


# --- failing and stopping ----------------------------------------------------------------------


def test_failures_are_reported(agent: Agent, site: Site) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = f"http://site.example:{taken.getsockname()[1]}/"
        assert "No server is running" in fetch(agent, closed).text
    site.put("/", "x")
    assert "secure connection" in fetch(agent, f"https://site.example:{site.port}/").text


def test_an_answer_that_breaks_off_is_an_error(agent: Agent, site: Site) -> None:
    def broken(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")
        handler.wfile.write(b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")

    site.pages["/"] = broken
    outcome = fetch(agent, site.url())
    assert not outcome.ok
    assert "was lost" in outcome.text


def stalls(reached: threading.Event, over: threading.Event) -> Callable[..., None]:
    def stall(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nx")
        reached.set()
        # Until the other side has gone.
        with contextlib.suppress(OSError):
            handler.rfile.read()
        over.set()

    return stall


def test_a_server_that_stalls_is_left(
    agent: Agent, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_fetch, "_SECONDS", 0.5)
    site.pages["/"] = stalls(threading.Event(), threading.Event())
    assert "took too long" in fetch(agent, site.url()).text


def test_stopping_it_closes_the_connection(agent: Agent, site: Site) -> None:
    reached, over = threading.Event(), threading.Event()
    site.pages["/"] = stalls(reached, over)
    request = WebFetch(agent.tool_context, here).read({"url": site.url()})

    async def run() -> None:
        task = asyncio.ensure_future(request.execute(agent.looking))
        await asyncio.to_thread(reached.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(run())
    assert over.wait(PATIENCE)


def test_a_name_lookup_that_hangs_blocks_nothing(agent: Agent) -> None:
    looking, go_on = threading.Event(), threading.Event()

    def hangs(_host: str, _port: int) -> Sequence[str]:
        looking.set()
        go_on.wait(PATIENCE)
        return ["127.0.0.1"]

    request = WebFetch(agent.tool_context, hangs).read({"url": "http://slow.example/"})

    async def run() -> None:
        task = asyncio.ensure_future(request.execute(agent.looking))
        await asyncio.to_thread(looking.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(run())
    assert not go_on.is_set()
    go_on.set()


def test_web_fetch_needs_no_project(person: Person, site: Site) -> None:
    site.put("/", "x")
    agent = Agent(person, project=None, allow_private=True)
    agent.asker.answer = Answer.ALLOW
    assert fetch(agent, site.url()).ok


def test_an_invalid_address_is_refused_at_once(agent: Agent) -> None:
    for bad in ("file:///etc/passwd", "http://me:secret@site.example/", ""):
        with pytest.raises(ToolError):
            WebFetch(agent.tool_context).read({"url": bad})
