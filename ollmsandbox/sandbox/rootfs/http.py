# SPDX-License-Identifier: GPL-3.0-or-later
"""What a mirror answers: in pieces, from where it may come, and in words if it does not."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_auth_from_url
from urllib3.exceptions import HTTPError

from ... import N_
from ...errors import RootfsError, Sentence
from ...text.ansi import harmless

FLAVOR = "alpine-minirootfs"
# To connect, and between two pieces of an answer.
PATIENCE = (10.0, 10.0)
# From one address to the next.
_HOPS = 5
_PIECE = 1 << 16
_LARGEST_DOCUMENT = 1 << 16
OTHER_MIRROR = N_("Another mirror is set with: ollmsandbox settings rootfs-mirror ADDRESS")


class UnreachableError(RootfsError):
    """No answer, or one that broke off."""

    def __init__(self, url: str, message: str = N_("{host} cannot be reached.")) -> None:
        super().__init__(
            message,
            N_(
                "See whether this machine is online, and try again: what was fetched is kept. "
                "{other_mirror}\n"
                "Without a network, fetch the file elsewhere and name it: "
                "ollmsandbox rootfs install --from FILE --tier 0\n"
                "It is the {name} from alpinelinux.org/downloads."
            ),
            host=urlsplit(url).hostname,
            other_mirror=Sentence(OTHER_MIRROR),
            name=FLAVOR,
        )


class MissingError(RootfsError):
    """The mirror has no such file."""


def without_password(url: str) -> str:
    """As it may be shown, and written where commands can read it."""
    found = urlsplit(url)
    return found._replace(netloc=found.netloc.rpartition("@")[2]).geturl()


@contextmanager
def get(url: str, headers: Mapping[str, str] | None = None) -> Iterator[requests.Response]:
    """What can go wrong on the way is told in words, and what to do about it."""
    with requests.Session() as session, _ask(session, url, headers or {}) as answer:
        # 416: there is nothing after what we have.
        if not answer.ok and answer.status_code != 416:
            said = f"{answer.status_code} {harmless(answer.reason or '')}".strip()
            kind = MissingError if answer.status_code == 404 else RootfsError
            raise kind(
                N_("{address} answers {said}."),
                N_("Try again later. {other_mirror}"),
                address=without_password(url),
                said=said[:80],
                other_mirror=Sentence(OTHER_MIRROR),
            )
        yield answer


def pieces(answer: requests.Response, url: str) -> Iterator[bytes]:
    """As they are on the server: a checksum is of that, and nothing can swell on the way."""
    try:
        yield from answer.raw.stream(_PIECE, decode_content=False)
    except (HTTPError, http.client.HTTPException, OSError) as error:
        raise UnreachableError(url) from error


def fetch(url: str) -> bytes:
    """A small document."""
    with get(url) as answer:
        content = b""
        for piece in pieces(answer, url):
            content += piece
            if len(content) > _LARGEST_DOCUMENT:
                raise RootfsError(
                    N_("{address} is far too large."), OTHER_MIRROR, address=without_password(url)
                )
        return content


def _ask(session: requests.Session, url: str, headers: Mapping[str, str]) -> requests.Response:
    """Each address on the way is looked at: one that is not secure could lead anywhere."""
    here = url
    for _ in range(_HOPS):
        answer = _ask_once(session, here, {"Accept-Encoding": "identity", **headers})
        if not answer.is_redirect:
            return answer
        answer.close()
        there = urljoin(here, session.get_redirect_target(answer) or "")
        if urlsplit(there).scheme not in ("http", "https"):
            raise RootfsError(
                N_("{address} leads to what is no web address."),
                OTHER_MIRROR,
                address=without_password(url),
            )
        if here.startswith("https:") and not there.startswith("https:"):
            raise RootfsError(
                N_("{address} leads to an address that is not secure."),
                OTHER_MIRROR,
                address=without_password(url),
            )
        here = there
    raise RootfsError(
        N_("{address} leads from one address to the next."),
        OTHER_MIRROR,
        address=without_password(url),
    )


def _ask_once(session: requests.Session, url: str, headers: Mapping[str, str]) -> requests.Response:
    name, password = get_auth_from_url(url)
    # What ~/.netrc holds is for others: whoever leads us to their address would have it sent.
    known = HTTPBasicAuth(name, password) if name else _Nobody()
    try:
        return session.get(
            url, stream=True, timeout=PATIENCE, headers=headers, auth=known, allow_redirects=False
        )
    except requests.exceptions.SSLError as error:
        raise UnreachableError(
            url, N_("{host} cannot be reached: its certificate is not one to trust.")
        ) from error
    except requests.exceptions.ProxyError as error:
        raise UnreachableError(
            url, N_("{host} cannot be reached: the proxy does not lead there.")
        ) from error
    except requests.exceptions.Timeout as error:
        raise UnreachableError(url, N_("{host} cannot be reached: it does not answer.")) from error
    except (requests.RequestException, HTTPError, OSError, ValueError) as error:
        raise UnreachableError(url) from error


class _Nobody(AuthBase):
    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request
