# SPDX-License-Identifier: GPL-3.0-or-later
"""Download files from a mirror, with redirects checked and errors explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import requests

from ... import N_
from ...errors import NetError, RootfsError, Sentence
from ...net.addresses import Address
from ...net.http import CancellableSockets, Request, open_response, read_pieces
from ...text.ansi import harmless

FLAVOR = "alpine-minirootfs"
# Seconds to connect, and between two pieces of an answer.
_PATIENCE = 10.0
_REDIRECTS = 5
OTHER_MIRROR = N_("To use another mirror: ollmsandbox settings rootfs-mirror ADDRESS")


class UnreachableError(RootfsError):
    """The mirror did not respond, or the connection broke."""

    def __init__(self, url: str, message: str = N_("{host} cannot be reached.")) -> None:
        super().__init__(
            message,
            N_(
                "Check your connection and try again; the download continues where it stopped. "
                "{other_mirror}\n"
                "Without a network, download {name} from alpinelinux.org/downloads on another "
                "computer: ollmsandbox rootfs install --from FILE --tier 0"
            ),
            host=urlsplit(url).hostname,
            other_mirror=Sentence(OTHER_MIRROR),
            name=FLAVOR,
        )


class MissingError(RootfsError):
    """The mirror has no such file."""


def without_password(url: str) -> str:
    """Return an address that may be shown, and that commands may read."""
    found = urlsplit(url)
    return found._replace(netloc=found.netloc.rpartition("@")[2]).geturl()


@contextmanager
def get(
    url: str, headers: Mapping[str, str] | None = None, sockets: CancellableSockets | None = None
) -> Iterator[requests.Response]:
    """Yield the mirror's response, after redirects. Raise a RootfsError with a remedy if there is
    none, or if it is an error."""
    with ExitStack() as stack:
        answer = _follow(stack, url, headers or {}, sockets)
        # 416: the file has no more bytes than we have.
        if not answer.ok and answer.status_code != 416:
            status = f"{answer.status_code} {harmless(answer.reason or '')}".strip()
            kind = MissingError if answer.status_code == 404 else RootfsError
            raise kind(
                N_("{address} returned {status}."),
                N_("Try again later. {other_mirror}"),
                address=without_password(url),
                status=status[:80],
                other_mirror=Sentence(OTHER_MIRROR),
            )
        yield answer


def pieces(answer: requests.Response, url: str) -> Iterator[bytes]:
    """Yield the body as it is on the server: the checksum is of that, and nothing can grow."""
    try:
        yield from read_pieces(_request(url), answer)
    except NetError as error:
        raise UnreachableError(url, error.message) from error


def fetch(url: str, sockets: CancellableSockets | None = None) -> bytes:
    with get(url, sockets=sockets) as answer:
        content = b""
        for piece in pieces(answer, url):
            content += piece
            if len(content) > 1 << 16:
                raise RootfsError(
                    N_("{address} is too large."), OTHER_MIRROR, address=without_password(url)
                )
        return content


def _follow(
    stack: ExitStack, url: str, headers: Mapping[str, str], sockets: CancellableSockets | None
) -> requests.Response:
    """Follow redirects one by one, and check each: an insecure one could lead anywhere."""
    here = url
    for _ in range(_REDIRECTS):
        try:
            answer = stack.enter_context(open_response(_request(here, headers), sockets))
        except NetError as error:
            raise UnreachableError(here, error.message) from error
        if not answer.is_redirect:
            return answer
        answer.close()
        try:
            here = _redirect(here, answer.headers["Location"])
        except NetError as error:
            raise RootfsError(error.message, OTHER_MIRROR) from error
    raise RootfsError(
        N_("{address} redirects too often."), OTHER_MIRROR, address=without_password(url)
    )


def _redirect(url: str, location: str) -> str:
    here = Address.parse(without_password(url))
    there = here.redirect(location, stay_secure=True)
    # The user's name and password for the mirror are for no other server.
    if (there.scheme, there.target) != (here.scheme, here.target):
        return there.text
    return urlsplit(there.text)._replace(netloc=urlsplit(url).netloc).geturl()


def _request(url: str, headers: Mapping[str, str] | None = None) -> Request:
    return Request(
        "GET", url, headers=headers or {}, connect_timeout=_PATIENCE, idle_timeout=_PATIENCE
    )
