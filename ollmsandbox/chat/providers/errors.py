# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns what a model server answers into errors that tell the user what to do."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

from ... import N_
from ...errors import Sentence
from ...net.addresses import server_of
from ...net.http import connection_lost, seconds
from ...text.visible import printable_line
from .base import MOST_RETRIES, ProviderError, RefusedError, TooLongError
from .json_reader import inside, number_value, read_object

# Errors that may be over in a moment; from 520 on, those of servers in front of the model's.
_OVERLOADED = frozenset((429, 503, 529))
_TEMPORARY = frozenset((408, 409, 500, 502, 504, *range(520, 530))) | _OVERLOADED
# Characters of a server's words: to be examined, and to be shown from their beginning and end. The
# error of a template is at the end, behind a part of the template.
_MOST_READ = 8000
_MOST_SHOWN, _END = 300, 120

# Each server says it in its own words, and some change them with each version.
_WHAT = r"(context|tokens?|prompt|input|conversation)"
_HOW = r"(too (long|large|big|many)|exceed|overflow|maximum|limit|window|length|larger|longer|only)"
_TOO_LONG = re.compile(
    rf"\b{_WHAT}\b.{{0,80}}\b{_HOW}|\b{_HOW}.{{0,80}}\b{_WHAT}\b"
    r"|context_length_exceeded|exceed_context_size|reduce the length",
    re.IGNORECASE | re.DOTALL,
)
# Says that the wanted answer is too long, not the conversation.
_ANSWER_TOO_LONG = re.compile(r"max_(completion_|output_)?tokens|completion tokens", re.IGNORECASE)
_NO_TOOLS = (
    "does not support tools",
    "does not support tool",
    "enable-auto-tool-choice",
    "tools param requires --jinja",
    "support tool use",
    "does not support function calling",
)


def answer_lost(url: str, *, was_understood: bool) -> ProviderError:
    """Return the error for an answer that has no end."""
    if not was_understood:
        return not_a_model_server(url)
    return ProviderError.from_net(connection_lost(url))


def from_status(
    status: int, headers: Mapping[str, str], body: str, url: str, model: str = ""
) -> ProviderError:
    """Return the error for an HTTP status. The key must already be masked in `body`."""
    said = server_message(body)
    error = _known(said, model, status) or _by_status(
        status, headers, body, url, model, _quoted(said)
    )
    error.said = said
    return error


def _by_status(
    status: int, headers: Mapping[str, str], body: str, url: str, model: str, said: str
) -> ProviderError:
    # Translators: follows another sentence, hence the space.
    says = Sentence(N_(" It says: {said}"), said=said) if said else ""
    where = server_of(url)
    if status in (401, 403):
        text = N_("{where} does not accept the key.{says}")
        return RefusedError(text, N_("Check the API key."), where=where, says=says)
    if status == 404:
        if model and said and "model" in said.lower():
            text = N_("{where} has no model {model}.{says}")
            remedy = N_("Download the model first, or choose another one.")
            return ProviderError(text, remedy, where=where, model=repr(model), says=says)
        text = N_("{where} does not support this request.{says}")
        remedy = N_("Check the address and the server type.")
        return ProviderError(text, remedy, where=where, says=says)
    wait = _retry_after(headers)
    # If it asks to wait longer than two minutes, the user decides instead.
    retries = MOST_RETRIES if status in _TEMPORARY and (wait or 0) <= 120 else 0
    if status in _OVERLOADED:
        return ProviderError(
            N_("{where} is overloaded ({status}).{says}"),
            # Translators: {wait} is a time, such as "5 seconds".
            N_("Try again in {wait}.") if wait else N_("Try again in a moment."),
            can_retry=True,
            retries=retries,
            again_after=wait,
            where=where,
            status=status,
            says=says,
            wait=seconds(wait or 0),
        )
    if 300 <= status < 400:
        # Translators: in place of an address: "… redirects to another address."
        target = _short(headers.get("location", "")) or Sentence(N_("another address"))
        text = N_("{where} redirects to {target}. Redirects are not followed.")
        remedy = N_("If that address is right, use it instead.")
        return ProviderError(text, remedy, where=where, target=target)
    if status in _TEMPORARY or status >= 500:
        return ProviderError(
            N_("{where} failed ({status}).{says}"),
            N_("See the server's log for details."),
            can_retry=True,
            # Local servers also say 500 to what will never work, such as a template that fails.
            retries=min(retries, 3) if status == 500 else retries,
            again_after=wait,
            where=where,
            status=status,
            says=says,
        )
    if _is_page(headers, body):
        return not_a_model_server(url)
    text = N_("{where} refused the request ({status}).{says}")
    return ProviderError(text, where=where, status=status, says=says)


def from_message(body: str, url: str, model: str = "") -> ProviderError:
    """Return the error for a message that the server sent in place of an answer, or within one. The
    key must already be masked in it."""
    said = server_message(body)
    error = _known(said, model, 400) or ProviderError(
        N_("{where} failed: {said}"),
        N_("See the server's log for details."),
        can_retry=True,
        retries=MOST_RETRIES if _code(body) in _TEMPORARY - {500} else 0,
        where=server_of(url),
        said=_quoted(said) or Sentence(N_("no reason given")),
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
        return "" if _is_page({}, body) else printable_line(body[:_MOST_READ])
    if isinstance(found, list) and found:
        found = found[0]
    for key in ("error", "detail", "message"):
        while isinstance(found, dict) and key in found:
            found = found[key]
    if isinstance(found, list) and found:
        found = found[0]
    if isinstance(found, dict):
        found = found.get("message") or found.get("msg") or ""
    return printable_line(found[:_MOST_READ]) if isinstance(found, str) else ""


def _code(body: str) -> int | None:
    """Return the status that a server names in an error, for example because another one that it
    asked is overloaded."""
    found = read_object(body)
    codes = (inside(found, "error", "code"), inside(found, "error", "status"), found.get("code"))
    return next((code for code in map(number_value, codes) if code is not None), None)


def _known(said: str, model: str, status: int) -> ProviderError | None:
    # Not what follows: it may be a part of the template.
    start = said[:_MOST_SHOWN]
    lower = start.lower()
    if any(words in lower for words in _NO_TOOLS):
        return ProviderError(
            N_("The server does not let {model} call tools. It says: {said}"),
            N_("Choose a model that supports tools, or enable them in the server."),
            # Translators: in place of a model's name.
            model=model or Sentence(N_("this model")),
            said=_quoted(said),
        )
    if status == 413 or (
        status in (400, 413, 422, 500)
        and _TOO_LONG.search(start)
        and ("context" in lower or not _ANSWER_TOO_LONG.search(start))
    ):
        return TooLongError(
            N_("The conversation is too long for {model}. Its server says: {said}"),
            N_("Start a new session, or give the model a larger context."),
            # Translators: in place of a model's name.
            model=model or Sentence(N_("this model")),
            said=_quoted(said) or str(status),
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


def _quoted(said: str) -> str:
    """Return a server's words as the end of a sentence: another one may follow."""
    short = _short(said)
    return short if not short or short.endswith((*".!?…:)\"'", "。")) else f"{short}."


def _short(text: str) -> str:
    plain = printable_line(text)
    if len(plain) <= _MOST_SHOWN:
        return plain
    return f"{plain[: _MOST_SHOWN - _END]}…{plain[-_END:]}"
