# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts are reached through the proxy of the user's environment, which gets their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.servers.world import in_world

from ollmsandbox.sandbox.network.proxy import Proxy

pytestmark = pytest.mark.ordinary


def test_the_proxy_gets_the_name(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        from itertools import product
        from urllib.parse import unquote
        ways = list(product(("http", "socks5", "socks5h"), ("", "me:p%40ss")))
        for port, (scheme, login) in enumerate(ways, 3128):
            # A name that only the proxy knows.
            asked_for = serve_proxy(port, {"far.example.com": (PUBLIC, 80)}, unquote(login))
            proxy = f"{scheme}://{login and login + '@'}127.0.0.1:{port}"
            environ = {"http_proxy": proxy, "NO_PROXY": "www.example.org"}
            hosts = ["far.example.com", "unknown.example.com", "www.example.org"]
            done = run("curl -sS http://far.example.com/; curl -sS http://unknown.example.com/; "
                       "curl -sS http://www.example.org/; curl -sS http://other.example.org/; "
                       "env | grep -i proxy",
                       hosts, environ=environ)
            assert "hello from 203.0.113.5 as far.example.com" in done.out, (proxy, done)
            assert "hello from 203.0.113.5 as www.example.org" in done.out, (proxy, done)
            # Neither the one that is not to be used for it, nor what is not allowed.
            names = [("far.example.com", 80), ("unknown.example.com", 80)]
            assert asked_for == names, (proxy, asked_for)
            assert done.uses["unknown.example.com"] == (True, "PROXY"), (proxy, done)
            assert done.uses["other.example.org"] == (False, ""), (proxy, done)
            assert "p@ss" not in done.out and "127.0.0.1" not in done.out, (proxy, done)
        """,
    )


def test_a_wrong_password_and_a_proxy_that_is_not_there(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        asked_for = serve_proxy(3128, {"www.example.org": (PUBLIC, 80)}, "me:right")
        fetch = "curl -sS -m 20 http://www.example.org/"
        for proxy in ("http://me:wrong@127.0.0.1:3128", "socks5://me:wrong@127.0.0.1:3128",
                      "http://127.0.0.1:3128", "socks5://127.0.0.1:3128", "http://127.0.0.1:9",
                      "https://127.0.0.1:3128", "ftp://127.0.0.1:3128", "http://nowhere.invalid:1"):
            done = run(fetch, ["www.example.org"], environ={"all_proxy": proxy})
            assert "hello" not in done.out, (proxy, done)
            assert done.uses["www.example.org"] == (True, "PROXY"), (proxy, done)
        """,
    )


def test_the_question_names_the_proxy(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        serve_proxy(3128, {"www.example.org": (PUBLIC, 80)}, "me:secret")
        os.environ["http_proxy"] = "http://me:secret@127.0.0.1:3128"
        screen = at_terminal(
            ["run", "--network", "-c", "curl -sS http://www.example.org/; echo END"],
            "www.example.org, port 80, through your proxy 127.0.0.1:3128. Allow it? [y/N] ",
            "y\\n",
        )
        assert "hello from 203.0.113.5" in screen and "secret" not in screen, screen
        """,
    )


def test_which_proxy_is_for_a_host() -> None:
    environ = {
        "HTTPS_PROXY": "proxy.example:3128",
        "http_proxy": "http://[::1]:8080/",
        "ALL_PROXY": "socks5h://u:p@socks.example",
        "no_proxy": "localhost,.inside.example",
    }
    assert Proxy.find("example.org", 443, environ) == Proxy("http", "proxy.example", 3128)
    assert Proxy.find("example.org", 80, environ) == Proxy("http", "::1", 8080)
    assert Proxy.find("example.org", 22, environ) == Proxy(
        "socks5h", "socks.example", 1080, "u", "p"
    )
    assert Proxy.find("a.inside.example", 443, environ) is None
    assert str(Proxy.find("example.org", 22, environ)) == "socks.example:1080"
