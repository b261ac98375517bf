# SPDX-License-Identifier: GPL-3.0-or-later
"""The D-Bus interface with which `ollmsandbox mcp` shows its session in the window, and asks there.

The window answers only the program that asked, and runs nothing for it. No method answers a
question. Commands in a sandbox cannot reach the session bus.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from .request import Fact, PermissionRequest

# The development build has a name of its own.
NAMES = ("io.github.ollmsandbox.OllmSandbox", "io.github.ollmsandbox.OllmSandbox.Devel")
PATH = "/io/github/ollmsandbox/OllmSandbox/Agents"
INTERFACE = "io.github.ollmsandbox.OllmSandbox.Agents"
# Follow: a session, its agent and its project. Tell: an event of it, as `agent --json` prints it.
# Ask: returns an answer, or "" if nobody gave one. Withdraw: a question that is no longer needed.
# Stop: the user stops a call.
XML = f"""\
<node><interface name="{INTERFACE}">
  <method name="Follow">
    <arg name="session" type="s" direction="in"/>
    <arg name="agent" type="s" direction="in"/>
    <arg name="project" type="s" direction="in"/>
  </method>
  <method name="Tell">
    <arg name="session" type="s" direction="in"/>
    <arg name="event" type="s" direction="in"/>
  </method>
  <method name="Ask">
    <arg name="session" type="s" direction="in"/>
    <arg name="request" type="s" direction="in"/>
    <arg name="answer" type="s" direction="out"/>
  </method>
  <method name="Withdraw">
    <arg name="session" type="s" direction="in"/>
    <arg name="request" type="s" direction="in"/>
  </method>
  <signal name="Stop">
    <arg name="session" type="s"/>
    <arg name="call" type="s"/>
  </signal>
</interface></node>
"""


class BusError(Exception):
    """The other program may not do that. It is told in English; no user sees it."""


def request_to_json(request: PermissionRequest) -> str:
    return json.dumps(asdict(request))


def request_from_json(text: str) -> PermissionRequest:
    """Return what `request_to_json` made into text, or raise an error."""
    try:
        given = json.loads(text)
        given["facts"] = tuple(Fact(**fact) for fact in given["facts"])
        given["sees"] = tuple(given["sees"])
        request = PermissionRequest(**given)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BusError("The question is malformed.") from error
    kinds = {"str": str, "bool": bool}
    parts: list[PermissionRequest | Fact] = [request, *request.facts]
    for part in parts:
        for field in fields(part):
            kind = kinds.get(str(field.type))
            if kind is not None and not isinstance(getattr(part, field.name), kind):
                raise BusError("The question is malformed.")
    if not all(isinstance(sentence, str) for sentence in request.sees):
        raise BusError("The question is malformed.")
    return request
