# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens sessions, new or stored, for every front end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from .. import N_
from ..project.projects import ProjectManager
from .providers.base import Model, ProviderError
from .providers.connections import ConnectionStore
from .providers.connections_file import TOUR, Connection
from .storage.history import History, new_session_id

if TYPE_CHECKING:
    from ..paths import Paths
    from ..permission.request import Asker
    from ..permission.store import RuleStore
    from ..tools.context import QuestionAsker, ToolContext, ToolPreferences
    from .conversation import Conversation, TurnLimits
    from .storage.writer import SessionWriter

# The last calls of a stored session, from which the folders are known that it had entered.
_MOST_CALLS = 500


class ChosenModel(NamedTuple):
    connection: Connection
    model: Model


class SessionFactory:
    """Opens any number of sessions for one front end."""

    def __init__(
        self,
        paths: Paths,
        environ: Mapping[str, str],
        asker: Asker,
        say: Callable[[str], str] = str,
        questions: QuestionAsker | None = None,
    ) -> None:
        """`say` translates texts; the command line does not. `questions` passes the model's
        questions to the user."""
        self.paths = paths
        self.environ = environ
        self.manager = ProjectManager(paths)
        self.history = History(self.manager)
        self.connections = ConnectionStore(paths, environ, say=say)
        self._asker = asker
        self._questions = questions

    @cached_property
    def rules(self) -> RuleStore:
        from ..permission.store import RuleStore  # not needed before a session is open

        return RuleStore(self.paths)

    async def choose(self, connection: str = "", model_name: str = "") -> ChosenModel | None:
        """Return the named model, or else the default; None if there is no connection."""
        found = self.connections.find(connection) if connection else self.connections.default()
        if found is None:
            return None
        server = self.connections.server(found)
        name = model_name or found.model
        if not name:
            models = await server.models()
            if not models:
                raise ProviderError(
                    N_("{server} has no model."),
                    N_("Download a model there first, or use another server."),
                    server=found.name,
                )
            name = models[0].name
        return ChosenModel(found, server.model(name))

    async def open(
        self,
        project: str | None,
        *,
        session_id: str | None = None,
        connection: str = "",
        model_name: str = "",
        preferences: ToolPreferences | None = None,
        allow_private: bool = False,
        limits: TurnLimits | None = None,
        with_model: bool = True,
    ) -> Conversation:
        """Open a new session, or a stored one with its project, and its model unless another one
        is named. The session has no model if none can be used."""
        id_ = session_id or new_session_id()
        await asyncio.to_thread(_load)
        from ..tools import all_tools
        from .conversation import STANDARD_LIMITS, Conversation
        from .instructions import ProjectInstructions
        from .prompt import system_prompt
        from .storage.writer import SessionWriter
        from .user_actions import UserActions

        writer = await asyncio.to_thread(SessionWriter, self.history, id_)
        try:
            stored, told = None, ""
            if session_id is not None:
                stored = await asyncio.to_thread(self.history.load, session_id)
                told = await asyncio.to_thread(self.history.told, session_id)
                project = project or stored.info.project or None
                known = [TOUR, *await asyncio.to_thread(self.connections.all)]
                if not connection and stored.info.connection in [c.name for c in known]:
                    connection = stored.info.connection
                    model_name = model_name or stored.info.model
            chosen = await self.choose(connection, model_name) if with_model else None
        except BaseException:
            await writer.close()
            raise
        writer.set_session(project or "", chosen.connection.name if chosen else "", stored)
        tool_context = self.tool_context(writer, project, preferences, allow_private=allow_private)
        instructions = ProjectInstructions(tool_context)
        messages = stored.messages if stored else []
        for call in [call for message in messages for call in message.calls][-_MOST_CALLS:]:
            instructions.enter(call)

        def notices() -> list[str]:
            return [*tool_context.permissions.take_notices(), *self.connections.take_notices()]

        return Conversation(
            model=chosen.model if chosen else None,
            tools=all_tools(tool_context),
            writer=writer,
            limits=limits or STANDARD_LIMITS,
            prompt=partial(system_prompt, tool_context, instructions),
            messages=messages,
            tool_context=tool_context,
            notices=notices,
            user_actions=UserActions(self.history, writer.session_id, told),
            instructions=instructions,
        )

    def tool_context(
        self,
        writer: SessionWriter,
        project: str | None,
        preferences: ToolPreferences | None,
        *,
        allow_private: bool = False,
    ) -> ToolContext:
        """Return what the tools of a session work with."""
        from ..permission.provider import Provider
        from ..tools.context import ToolContext

        context = ToolContext(
            project=os.path.realpath(project) if project else None,
            paths=self.paths,
            environ=self.environ,
            permissions=Provider(self._asker, self.rules, writer),
            allow_private=allow_private,
            session_id=writer.session_id,
            questions=self._questions,
        )
        if preferences is not None:
            context.use_preferences(preferences)
        return context

    def close(self) -> None:
        """Close the database. Close all sessions first."""
        self.manager.close()


def _load() -> None:
    """Import what a session needs, in a thread: it takes long and must not delay the window."""
    from ..permission import provider  # noqa: F401
    from ..tools import context  # noqa: F401
    from ..tools.web import web_fetch  # noqa: F401
    from . import conversation, prompt  # noqa: F401
    from .providers import ollama, openai  # noqa: F401
    from .storage import writer  # noqa: F401
