# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import socket
import urllib.request
from pathlib import Path

import pytest
from gi.repository import Gtk
from support.chat import Chat, done, shown
from support.screen import Screen, all_of
from support.window import finish, running_loop, wait_until

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.sandbox.bubble import Bubble
from ollmsandbox.sandbox.spec import RunSpec
from ollmsandbox.ui.chat import links
from ollmsandbox.ui.chat.tool_card import ToolCard

SERVER = (
    "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler); "
    "open('port', 'w').write(str(s.server_port)); s.serve_forever()"
)


def offers(card: ToolCard) -> list[str]:
    return [button.get_label() or "" for button in all_of(card.ports_box, Gtk.Button)]


def test_a_click_opens_a_port(
    screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without network access, and not before the click."""
    chat = Chat()
    entry = chat.call("serve")
    card = shown(screen, entry)
    opened: list[str] = []

    async def show(_window: Gtk.Window, address: str) -> None:
        opened.append(address)

    # The user's browser.
    monkeypatch.setattr(links, "show_address", show)

    def open_port(_card: ToolCard, which: object, port: int) -> None:
        assert which is entry
        finish(links.open_port(Gtk.Window(), entry, port))

    card.connect("open-port", open_port)
    with running_loop():
        bubble = Bubble(RunSpec(str(tmp_path), timeout=100))
        running = asyncio.ensure_future(
            bubble.exec(["python3", "-c", SERVER]), loop=asyncio.get_event_loop()
        )
        wait_until(bubble.ports.listening)
        [port] = bubble.ports.listening()
        chat.start(entry, ports=bubble.ports)
        wait_until(lambda: offers(card) == [f"Open http://localhost:{port}"])
        assert card.ports_box.get_mapped()
        assert socket.socket().connect_ex(("127.0.0.1", port)) != 0
        [button] = all_of(card.ports_box, Gtk.Button)
        assert button.get_focusable()
        button.emit("clicked")
        [url] = opened
        [published] = bubble.ports.published
        assert url == published.url
        page = finish(asyncio.to_thread(urllib.request.urlopen, f"{url}/port", timeout=60))
        assert int(page.read()) == port
        bubble.stop()
        finish(asyncio.wait_for(running, 60))
        chat.end(entry, done())
        assert not card.ports_box.get_visible()
    assert socket.socket().connect_ex(("127.0.0.1", published.host_port)) != 0


def test_a_link_that_no_program_opens_is_reported(screen: Screen) -> None:
    address = "x-nobody-opens-this://there"
    window = screen.show(Gtk.Label(label="a chat"))
    with running_loop(), pytest.raises(OllmSandboxError) as caught:
        finish(links.show_address(window, address))
    assert str(caught.value).startswith(f"Cannot open {address}: ")
