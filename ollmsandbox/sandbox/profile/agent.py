# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a profile about a whole agent that runs in the sandbox, such as Claude Code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ... import N_
from ...record import Record

if TYPE_CHECKING:
    from ...config.yaml_reader import Value

_PLACEHOLDER = r"\$(URL|MODEL|BRIDGE|FOLDER)\b"


class SettingsFolder(Record):
    """A folder with an agent's settings. It gets a layer for each run, which is dropped but for
    what is named here."""

    # As in `FolderTemplate`.
    folder: str
    # JSON files, and the keys in them whose values go back to the user's file if the
    # agent changed them: "tokens.access" is a key in an object, and "*" any key. What follows "="
    # are the only values of it; objects without one of them do not go back.
    login: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # Names in it that later runs in the same project see again, and the user's own folder never.
    # What that has under these names is hidden.
    history: tuple[str, ...] = ()
    # Files that the agent has elsewhere: their names in this folder, and their paths.
    copies: tuple[tuple[str, str], ...] = ()


class AgentSetup(Record):
    """What an agent is given for one purpose."""

    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    # Objects in JSON that are added to files in its first folder.
    files: tuple[tuple[str, str], ...] = ()

    def filled(self, values: Mapping[str, str]) -> AgentSetup:
        """Return it with the placeholders $URL, $MODEL, $BRIDGE and $FOLDER replaced."""

        def fill(text: str) -> str:
            return re.sub(_PLACEHOLDER, lambda found: values.get(found[1], ""), text)

        return AgentSetup(
            tuple(map(fill, self.arguments)),
            tuple((name, fill(text)) for name, text in self.environment),
            tuple((name, fill(text)) for name, text in self.files),
        )

    def __or__(self, other: AgentSetup) -> AgentSetup:
        return AgentSetup(
            self.arguments + other.arguments,
            self.environment + other.environment,
            self.files + other.files,
        )


class AgentRules(Record):
    """An agent: how it is started, where its settings are, and what it may reach."""

    title: str = ""
    # The program.
    command: str = ""
    folders: tuple[SettingsFolder, ...] = ()
    # Where its model is.
    hosts: tuple[str, ...] = ()
    # Variables that it gets although they may contain a key.
    variables: tuple[str, ...] = ()
    always: AgentSetup = AgentSetup()
    # For our tools, and for one of our connections. None if the agent has no way to use them.
    tools: AgentSetup | None = None
    connection: AgentSetup | None = None
    # Whether the user's login is hidden, because a connection takes its place.
    hides_login: bool = False


def read_agent(value: Value, before: AgentRules) -> AgentRules:
    """Return the agent with what the file says: lists are added to, other values replaced."""
    entries = value.mapping(
        (*_LISTS, "title", "command", "folders", "always", "tools", "connection")
    )
    made = before
    if "title" in entries:
        made = made._replace(title=entries["title"].text())
    if "command" in entries:
        made = made._replace(command=entries["command"].text())
    for name in _LISTS:
        if name in entries:
            known: tuple[str, ...] = getattr(made, name)
            joined = tuple(dict.fromkeys(known + entries[name].texts()))
            made = made._replace(**{name: joined})
    for name in ("always", "tools", "connection"):
        if name in entries:
            made = made._replace(**{name: _read_setup(entries[name])})
    if "folders" in entries:
        folders = {folder.folder: folder for folder in made.folders}
        for path, given in entries["folders"].mapping().items():
            folders[path] = _read_folder(path, given)
        made = made._replace(folders=tuple(folders.values()))
    return made


_LISTS = ("hosts", "variables")


def _read_setup(value: Value) -> AgentSetup:
    entries = value.mapping(("arguments", "environment", "files"))
    return AgentSetup(
        entries["arguments"].texts() if "arguments" in entries else (),
        _pairs(entries.get("environment")),
        _pairs(entries.get("files")),
    )


def _read_folder(path: str, value: Value) -> SettingsFolder:
    entries = value.mapping(("login", "history", "copies"))
    login = entries["login"].mapping() if "login" in entries else {}
    for name, keys in login.items():
        if {"", ".", ".."}.intersection(name.split("/")):
            raise keys.fail(N_("{name} is not the name of a file."), name=repr(name))
    return SettingsFolder(
        path,
        tuple((name, keys.texts()) for name, keys in login.items()),
        entries["history"].texts() if "history" in entries else (),
        _pairs(entries.get("copies")),
    )


def _pairs(value: Value | None) -> tuple[tuple[str, str], ...]:
    return tuple((name, text.text()) for name, text in value.mapping().items()) if value else ()


def agent_from_json(given: tuple[object, ...]) -> AgentRules:
    """Return what was stored as JSON, with lists already made tuples."""
    made = AgentRules(*given)  # type: ignore[arg-type]
    return made._replace(
        folders=tuple(SettingsFolder(*folder) for folder in made.folders),
        always=AgentSetup(*made.always),
        tools=AgentSetup(*made.tools) if made.tools is not None else None,
        connection=AgentSetup(*made.connection) if made.connection is not None else None,
    )
