# SPDX-License-Identifier: GPL-3.0-or-later
"""The address of a server, as people type it and as it is used."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from ... import N_
from .base import ProviderError

# Some servers have their interface elsewhere than below /v1.
_HAS_VERSION = re.compile(r"/(v[0-9]+[a-z0-9]*|openai)$")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def ollama_root(text: str) -> str:
    root = _clean(text, default_port=11434)
    return re.sub(r"/(api|v1)$", "", root)


def openai_root(text: str) -> str:
    root = _clean(text)
    root = re.sub(r"/(chat/completions|models)$", "", root)
    return root if _HAS_VERSION.search(urlsplit(root).path) else f"{root}/v1"


def is_loopback(address: str) -> bool:
    """Whether it is this machine, whatever a proxy setting says."""
    host = (urlsplit(address).hostname or "").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback or ip.is_unspecified)


def _clean(text: str, default_port: int | None = None) -> str:
    text = text.strip()
    if not text.isprintable():
        # What is parsed would be another text: tabs and line ends are left out there.
        raise _wrong(text)
    has_scheme = _SCHEME.match(text) is not None
    try:
        parts = urlsplit(text if has_scheme else f"http://{text}")
        port = parts.port
    except ValueError as error:
        raise _wrong(text) from error
    if parts.username is not None or parts.password is not None:
        # It would be shown wherever the address is.
        raise ProviderError(
            N_("An address cannot hold a name and password."),
            N_("Give the key on its own instead."),
        )
    if parts.scheme not in ("http", "https") or not _is_host(parts) or parts.query:
        raise _wrong(text)
    if port is None and not has_scheme:
        port = default_port
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    where = f"{host}:{port}" if port is not None else f"{host}"
    return f"{parts.scheme}://{where}{parts.path}".rstrip("/")


def _is_host(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    return bool(host) and host.isprintable() and not set(host) & set(" \\\"'<>`{}|^%")


def _wrong(text: str) -> ProviderError:
    return ProviderError(
        N_("{text} is not the address of a server."),
        N_("It looks like http://localhost:11434."),
        text=repr(text[:200]),
    )
