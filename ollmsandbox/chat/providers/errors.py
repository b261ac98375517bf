# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns what a model server answers into errors that tell the user what to do."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from ... import N_
from ...errors import Sentence
from ...net.addresses import server_of
from ...net.http import connection_lost, seconds
from ...text.visible import printable_line
from .base import NoToolsError, ProviderError, RefusedError, TooLongError

# If a server asks to wait longer than this, the user decides instead.
LONGEST_WAIT = 20.0
_MOST_SHOWN = 300

_TOO_LONG = (
    "exceed_context_size",
    "exceeds the available context",
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
    "input is too long",
    "exceeds context",
)
_NO_TOOLS = (
    "does not support tools",
    "does not support tool",
    "enable-auto-tool-choice",
    "tools param requires --jinja",
    "support tool use",
    "does not support function calling",
)


def answer_lost(url: str) -> ProviderError:
    return ProviderError.from_net(connection_lost(url))


def from_status(
    status: int, headers: Mapping[str, str], body: str, url: str, model: str = ""
) -> ProviderError:
    """Return the error for an HTTP status. The key must already be masked in `body`."""
    said = server_message(body)
    error = _known(said, model) or _by_status(status, headers, body, url, model, said)
    error.said = said
    return error


def _by_status(
    status: int, headers: Mapping[str, str], body: str, url: str, model: str, said: str
) -> ProviderError:
    where = server_of(url)
    # Translators: follows another sentence, hence the space.
    says = Sentence(N_(" It says: {said}"), said=said) if said else ""
    if status in (401, 403):
        return RefusedError(
            N_("{where} does not accept the key.{says}"),
            N_("Check the API key."),
            where=where,
            says=says,
        )
    if status == 404:
        if model and said and "model" in said.lower():
            return ProviderError(
                N_("{where} has no model {model}.{says}"),
                N_("Download the model first, or choose another one."),
                where=where,
                model=repr(model),
                says=says,
            )
        return ProviderError(
            N_("{where} does not support this request.{says}"),
            N_("Check the address and the server type."),
            where=where,
            says=says,
        )
    if status in (429, 503):
        wait = _retry_after(headers)
        again = 1.0 if wait is None else wait
        return ProviderError(
            N_("{where} is overloaded ({status}).{says}"),
            # Translators: {wait} is a time, such as "5 seconds".
            N_("Try again in {wait}.") if wait else N_("Try again in a moment."),
            can_retry=True,
            again_after=again if again <= LONGEST_WAIT else None,
            where=where,
            status=status,
            says=says,
            wait=seconds(wait or 0),
        )
    if 300 <= status < 400:
        # Translators: in place of an address: "… redirects to another address."
        target = _short(headers.get("location", "")) or Sentence(N_("another address"))
        return ProviderError(
            N_("{where} redirects to {target}. Redirects are not followed."),
            N_("If that address is right, use it instead."),
            where=where,
            target=target,
        )
    if status >= 500:
        return ProviderError(
            N_("{where} failed ({status}).{says}"),
            N_("See the server's log for details."),
            can_retry=True,
            where=where,
            status=status,
            says=says,
        )
    if _is_page(headers, body):
        return not_a_model_server(url)
    return ProviderError(
        N_("{where} refused the request ({status}).{says}"), where=where, status=status, says=says
    )


def from_message(words: str, url: str, model: str = "") -> ProviderError:
    """Return the error for a message that the server sent in place of an answer, or within one."""
    said = _short(words) or Sentence(N_("no reason given"))
    error = _known(said, model) or ProviderError(
        N_("{where} failed: {said}"),
        N_("See the server's log for details."),
        can_retry=True,
        where=server_of(url),
        said=said,
    )
    error.said = said
    return error


def not_a_model_server(url: str) -> ProviderError:
    return ProviderError(
        N_("{where} is not a model server of this type."),
        N_("Check the address and the server type."),
        where=server_of(url),
    )


def server_message(body: str) -> str:
    """Return the error message in a response; each kind of server has its own format."""
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        return "" if _is_page({}, body) else _short(body)
    if isinstance(found, list) and found:
        found = found[0]
    for key in ("error", "detail", "message"):
        while isinstance(found, dict) and key in found:
            found = found[key]
    if isinstance(found, list) and found:
        found = found[0]
    if isinstance(found, dict):
        found = found.get("message") or found.get("msg") or ""
    return _short(found) if isinstance(found, str) else ""


def _known(said: str, model: str) -> ProviderError | None:
    lower = said.lower()
    if any(words in lower for words in _NO_TOOLS):
        return NoToolsError(
            N_("The server does not let {model} call tools. It says: {said}"),
            N_("Choose a model that supports tools, or enable them in the server."),
            # Translators: in place of a model's name.
            model=model or Sentence(N_("this model")),
            said=said,
        )
    if any(words in lower for words in _TOO_LONG):
        return TooLongError(
            N_("The conversation is too long for {model}. Its server says: {said}"),
            N_("Start a new session, or give the model a larger context."),
            # Translators: in place of a model's name.
            model=model or Sentence(N_("this model")),
            said=said,
        )
    return None


def _is_page(headers: Mapping[str, str], body: str) -> bool:
    start = body.lstrip()[:15].lower()
    return "text/html" in headers.get("content-type", "") or start.startswith(("<!doctype", "<htm"))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait. A date, the other form, is for long outages."""
    try:
        wait = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return wait if math.isfinite(wait) and wait >= 0 else None


def _short(text: str) -> str:
    plain = printable_line(text)
    return plain if len(plain) <= _MOST_SHOWN else f"{plain[:_MOST_SHOWN]}…"
