# SPDX-License-Identifier: GPL-3.0-or-later
"""web_fetch against real servers on this machine."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest
from support.person import Person
from support.servers.http import Replay, Reply, Stall
from support.timing import PATIENCE, wait_for
from support.tools import Agent

from ollmsandbox.errors import NetError
from ollmsandbox.net import addresses
from ollmsandbox.net.addresses import Address, Resolver
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.tools.base import Outcome
from ollmsandbox.tools.web import web_fetch
from ollmsandbox.tools.web.web_fetch import WebFetch

pytestmark = pytest.mark.ordinary


class Site(Replay):
    """A server with pages."""

    def put(self, path: str, body: bytes | str, kind: str = "text/plain", **headers: str) -> None:
        data = body if isinstance(body, bytes) else body.encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Content-Type": kind, "Content-Length": str(len(data)), **named}
        self.set(path, Reply([data], headers=sent, chunked=False))

    def redirect(self, path: str, to: str) -> None:
        self.set(path, Reply((), 302, {"Location": to}))

    def url(self, path: str = "/", host: str = "site.example") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site({}) as made:
        yield made


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


def test_an_encoding_that_is_no_text_encoding_is_not_used(agent: Agent, site: Site) -> None:
    """Decoding two megabytes of punycode would take hours."""
    for name in ("punycode", "idna", "unicode_escape", "undefined"):
        site.put("/", b"-" + b"a" * (1 << 20), f"text/plain; charset={name}")
        assert fetch(agent, site.url()).text.endswith("a" * 1000)


def test_a_refused_address_asks_nothing(agent: Agent, site: Site) -> None:
    agent.tool_context.allow_private = False
    for host in ("127.0.0.1", "[::1]", "192.168.1.1", "localhost", "a.localhost"):
        outcome = fetch(agent, f"http://{host}:{site.port}/")
        assert "private network" in outcome.text
    assert agent.asked == []
    assert site.seen == []


def test_a_packed_page_is_unpacked_in_part(agent: Agent, site: Site) -> None:
    site.put("/", gzip.compress(b"packed" + b"x" * (20 << 20)), Content_Encoding="gzip")
    text = fetch(agent, site.url()).text
    assert "packedxxx" in text
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
    site.set("/", Reply([b"x" * 65536] * 10_000, headers={"Content-Type": "text/plain"}))
    assert "Only the first" in fetch(agent, site.url()).text


def test_an_error_of_the_server_is_reported_with_its_text(agent: Agent, site: Site) -> None:
    site.set("/", Reply([b"try later"], 503, {"Content-Type": "text/plain"}))
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
    assert len(site.seen) == 2
    for seen in site.seen:
        assert seen.headers["user-agent"].startswith("ollmsandbox/")
        assert seen.headers["host"] == f"site.example:{site.port}"
        assert {"authorization", "cookie"}.isdisjoint(seen.headers)


# --- asking ------------------------------------------------------------------------------------


def test_a_host_is_asked_for_and_remembered(agent: Agent, site: Site) -> None:
    site.put("/a?x=1", "1")
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
    assert site.seen == []


def test_a_redirect_to_another_host_asks_again(agent: Agent, site: Site) -> None:
    site.redirect("/a", site.url("/b", host="other.example"))
    site.put("/b", "there")

    def only_the_first(request: PermissionRequest) -> Answer:
        return Answer.ALLOW if "site" in request.target_path else Answer.DENY

    agent.asker.answer = only_the_first
    assert "other.example" in fetch(agent, site.url("/a")).text
    assert site.paths() == ["/a"]
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
    assert len(site.seen) == 6


# --- private addresses -------------------------------------------------------------------------


def test_this_machine_is_not_fetched(person: Person, site: Site) -> None:
    agent = Agent(person)
    agent.asker.answer = Answer.ALLOW
    outcome = fetch(agent, site.url())
    assert not outcome.ok
    assert "private network" in outcome.text
    assert site.seen == []


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
    assert site.paths() == ["/a"]


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
    assert site.seen == []

    def unknown(_host: str, _port: int) -> Sequence[str]:
        raise OSError("only the proxy knows")

    site.put("http://far.example/", "by proxy")
    assert fetch(agent, "http://far.example/", unknown).text.endswith("by proxy")


# --- failing and stopping ----------------------------------------------------------------------


def test_failures_are_reported(agent: Agent, site: Site) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = f"http://site.example:{taken.getsockname()[1]}/"
        assert "No server is running" in fetch(agent, closed).text
    with socket.create_server(("127.0.0.1", 0)) as plain:
        threading.Thread(target=lambda: plain.accept()[0].sendall(b"no TLS")).start()
        address = f"https://site.example:{plain.getsockname()[1]}/"
        assert "secure connection" in fetch(agent, address).text
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    site.set("/", Reply([head, b"zz\r\n"], raw=True))
    outcome = fetch(agent, site.url())
    assert not outcome.ok
    assert "was lost" in outcome.text


def test_a_server_that_stalls_is_left(
    agent: Agent, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.set("/", Reply([b"x", Stall()], headers={"Content-Type": "text/plain"}))
    with monkeypatch.context() as patched:
        patched.setattr(web_fetch, "_SECONDS", 0.5)
        assert "took too long" in fetch(agent, site.url()).text
    wait_for(lambda: site.hung_up == 1)
    # As soon as it is stopped.
    request = WebFetch(agent.tool_context, here).read({"url": site.url()})
    agent.stop(request, lambda: len(site.seen) == 2)
    wait_for(lambda: site.hung_up == 2)


def test_a_name_lookup_that_hangs_blocks_nothing(agent: Agent) -> None:
    looking, go_on = threading.Event(), threading.Event()

    def hangs(_host: str, _port: int) -> Sequence[str]:
        looking.set()
        go_on.wait(PATIENCE)
        return ["127.0.0.1"]

    request = WebFetch(agent.tool_context, hangs).read({"url": "http://slow.example/"})
    agent.stop(request, looking.is_set)
    assert not go_on.is_set()
    go_on.set()


def test_web_fetch_needs_no_project(agent: Agent, site: Site) -> None:
    site.put("/", "x")
    agent.tool_context.project = None
    assert fetch(agent, site.url()).ok


def test_an_invalid_address_is_refused_at_once(agent: Agent) -> None:
    for bad in ("file:///etc/passwd", "http://me:secret@site.example/", ""):
        with pytest.raises(NetError):
            WebFetch(agent.tool_context).read({"url": bad})
