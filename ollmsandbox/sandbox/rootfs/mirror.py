# SPDX-License-Identifier: GPL-3.0-or-later
"""Download files from a mirror, with redirects checked and errors explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
) -> Iterator[tuple[requests.Response, Iterator[bytes]]]:
    """Yield the mirror's response, after redirects, and its body as it is on the server: the
    checksum is of that, and nothing can grow. Raise a RootfsError with a remedy if there is none,
    or if it is an error."""
    here = url
    # Each redirect is checked: an insecure one could lead anywhere.
    for _ in range(_REDIRECTS):
        request = Request(
            "GET", here, headers=headers or {}, connect_timeout=_PATIENCE, idle_timeout=_PATIENCE
        )
        try:
            with open_response(request, sockets) as answer:
                if not answer.is_redirect:
                    _check(answer, url)
                    yield answer, read_pieces(request, answer)
                    return
        except NetError as error:
            raise UnreachableError(here, error.message) from error
        try:
            here = _redirect(here, answer.headers["Location"])
        except NetError as error:
            raise RootfsError(error.message, OTHER_MIRROR) from error
    raise RootfsError(
        N_("{address} redirects too often."), OTHER_MIRROR, address=without_password(url)
    )


def _check(answer: requests.Response, url: str) -> None:
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


def fetch(url: str, sockets: CancellableSockets | None = None) -> bytes:
    with get(url, sockets=sockets) as (_answer, pieces):
        content = b""
        for piece in pieces:
            content += piece
            if len(content) > 1 << 16:
                raise RootfsError(
                    N_("{address} is too large."), OTHER_MIRROR, address=without_password(url)
                )
        return content


def _redirect(url: str, location: str) -> str:
    here = Address.parse(without_password(url))
    there = here.redirect(location, stay_secure=True)
    # The user's name and password for the mirror are for no other server.
    if (there.scheme, there.target) != (here.scheme, here.target):
        return there.text
    return urlsplit(there.text)._replace(netloc=urlsplit(url).netloc).geturl()
