# SPDX-License-Identifier: GPL-3.0-or-later
"""What went wrong between us and a server, in sentences for the person who has to act on it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from ... import N_
from ...errors import Sentence
from ...net.addresses import server_of
from ...net.http import connection_lost, seconds
from .base import NoToolsError, ProviderError, RefusedError, TooLongError

# A server that asks for more patience than this gets none: the person is told instead.
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
    """`body` must be masked already."""
    where = server_of(url)
    said = server_words(body)
    # Translators: stands after another sentence, hence the space.
    says = Sentence(N_(" It says: {said}"), said=said) if said else ""
    if known := _known(said, model):
        return known
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
                N_("Choose another model, or fetch it first."),
                where=where,
                model=repr(model),
                says=says,
            )
        return ProviderError(
            N_("{where} answers, but not to this.{says}"),
            N_("Check the address, and whether the kind of server is right."),
            where=where,
            says=says,
        )
    if status in (429, 503):
        wait = _retry_after(headers)
        again = 1.0 if wait is None else wait
        return ProviderError(
            N_("{where} has too much to do ({status}).{says}"),
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
        # Translators: in place of an address: "… sends us to elsewhere, …"
        target = _short(headers.get("location", "")) or Sentence(N_("elsewhere"))
        return ProviderError(
            N_("{where} sends us to {target}, where nothing is sent without you."),
            N_("Use that address if it is right."),
            where=where,
            target=target,
        )
    if status >= 500:
        return ProviderError(
            N_("{where} failed ({status}).{says}"),
            N_("Its log may say more."),
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


def from_words(words: str, url: str, model: str = "") -> ProviderError:
    """An error in the middle of an answer, or in place of one."""
    said = _short(words) or Sentence(N_("it does not say why"))
    return _known(said, model) or ProviderError(
        N_("{where} failed: {said}"),
        N_("Its log may say more."),
        can_retry=True,
        where=server_of(url),
        said=said,
    )


def not_a_model_server(url: str) -> ProviderError:
    return ProviderError(
        N_("What answers at {where} is not a model server of this kind."),
        N_("Check the address and the kind of server."),
        where=server_of(url),
    )


def server_words(body: str) -> str:
    """What servers say is wrong, each in its own way."""
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
            N_("{model} cannot call tools as its server runs it. It says: {said}"),
            N_("Choose a model with tools, or start its server with them."),
            # Translators: in place of a model's name, at the beginning of a sentence.
            model=model or Sentence(N_("This model")),
            said=said,
        )
    if any(words in lower for words in _TOO_LONG):
        return TooLongError(
            N_("The conversation is longer than {model} can take. Its server says: {said}"),
            N_("Begin a new session, or give the model more room."),
            # Translators: in place of a model's name.
            model=model or Sentence(N_("the model")),
            said=said,
        )
    return None


def _is_page(headers: Mapping[str, str], body: str) -> bool:
    start = body.lstrip()[:15].lower()
    return "text/html" in headers.get("content-type", "") or start.startswith(("<!doctype", "<htm"))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds; the other form, a date, is for machines that are down for long."""
    try:
        wait = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return wait if math.isfinite(wait) and wait >= 0 else None


def _short(text: str) -> str:
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= _MOST_SHOWN else f"{plain[:_MOST_SHOWN]}…"
