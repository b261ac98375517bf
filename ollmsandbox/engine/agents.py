# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole agent in the sandbox: what a profile's agent is given, besides what any command is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from .. import N_
from ..errors import SandboxError
from ..paths import Paths
from ..sandbox.profile.agent import AgentRules, AgentSetup
from ..sandbox.profile.profile import FolderTemplate, Profile, join
from ..sandbox.spec import RunSpec

# Names that exist only in a sandbox, each served by us.
TOOLS_HOST = "tools.ollmsandbox.internal"
MODEL_HOST = "model.ollmsandbox.internal"
# Connects an agent's MCP client with our tools, outside. Without quotes: it becomes part of JSON
# and TOML.
_BRIDGE = f"exec 3<>/dev/tcp/{TOOLS_HOST}/80; cat <&3 & cat >&3; kill $!"


def prepare_agent(
    profile: Profile, spec: RunSpec, paths: Paths, environ: Mapping[str, str]
) -> tuple[Profile, RunSpec]:
    """Return the profile and the spec of a run with all that its agent needs; those of other
    commands as they are. Raise if it cannot run."""
    agent = profile.agent
    if agent is None:
        if spec.agent.tools or spec.agent.model is not None:
            raise SandboxError(
                N_("--tools and --connection are for agents."),
                N_("Choose the profile of one, such as --profile claude."),
            )
        return profile, spec
    if spec.use_rootfs:
        raise SandboxError(
            N_("{agent} runs with this computer's programs, not in Alpine."),
            N_("Leave --rootfs out."),
            agent=agent.title,
        )
    setup, variables = agent.always, agent.variables
    if spec.agent.tools:
        setup |= _offered(agent, agent.tools, N_("{agent} cannot be given our tools."))
    if spec.agent.model is not None:
        text = N_("{agent} cannot be pointed at another model server.")
        setup |= _offered(agent, agent.connection, text)
        variables = ()
    template = FolderTemplate.of(agent.folders[0].folder) if agent.folders else None
    variable = environ.get(template.variable, "") if template is not None else ""
    values = {
        "URL": f"http://{MODEL_HOST}",
        "MODEL": spec.agent.model or "",
        "BRIDGE": _BRIDGE,
        # Its first folder of settings.
        "FOLDER": template.expand(variable, paths.real_home) if template is not None else "",
    }
    filled = setup.filled(values)
    agent = agent._replace(always=filled, hides_login=spec.agent.model is not None)
    profile = profile._replace(
        agent=agent,
        environment_keep=join(profile.environment_keep, variables),
        environment_set=join(profile.environment_set, filled.environment),
    )
    # It needs names, at least ours, and no more of the home folder than a command with network.
    is_whole = spec.network and not spec.by_host
    return profile, spec._replace(network=True, by_host=not is_whole, use_rootfs=False)


def _offered(agent: AgentRules, setup: AgentSetup | None, otherwise: str) -> AgentSetup:
    if setup is None:
        raise SandboxError(otherwise, agent=agent.title)
    return setup


def agent_command(
    agent: AgentRules | None, command: str | Sequence[str], environ: Mapping[str, str]
) -> str | list[str]:
    """Return the command with the arguments that the agent gets from us. Raise if the agent is not
    installed."""
    if isinstance(command, str):
        return command
    if agent is None or not command or os.path.basename(command[0]) != agent.command:
        return list(command)
    import shutil  # not for other commands, which have to start quickly

    if shutil.which(command[0], path=environ.get("PATH")) is None:
        raise SandboxError(
            N_("{command} is not installed, or not on your PATH."),
            N_("Install {agent}, and try again."),
            command=command[0],
            agent=agent.title,
        )
    return [command[0], *agent.always.arguments, *command[1:]]
