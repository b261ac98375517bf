# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a run: it goes from a front end to the sandbox unchanged."""

from __future__ import annotations

from enum import Enum

from ..record import Record
from .profile.profile import DEFAULT_PROFILE, Limits


class Mode(Enum):
    """Whether the changes of a run are applied at once, after a review, or never."""

    AUTO = "auto"
    REVIEW = "review"
    NEVER = "never"


class AgentOptions(Record):
    """How a whole agent runs, if the profile is that of one."""

    # Whether only our tools may change the project.
    tools: bool = False
    # The model of the connection that the agent uses in place of its own; None if it uses its own.
    model: str | None = None


class RunSpec(Record):
    """The description of a run. The executed command may be longer than the one in the history."""

    project: str
    # The text that the history shows.
    command: str = ""
    # As the user or the model wrote it; None is the project.
    working_dir: str | None = None
    network: bool = False
    # Whether the network is only for hosts that the user allows: these, and those they are asked
    # about.
    by_host: bool = False
    hosts: tuple[str, ...] = ()
    # Whether the command may use the user's ssh-agent, to log in at these hosts.
    ssh_agent: bool = False
    # Ports of the command that can be reached on this computer while it runs.
    publish: tuple[int, ...] = ()
    mode: Mode = Mode.AUTO
    profile: str = DEFAULT_PROFILE
    # The user's limits, which replace those of the profile.
    limits: Limits = Limits()
    # Seconds, which replace those of the limits.
    timeout: float | None = None
    # Whether the command runs in Alpine; None is what the project uses.
    use_rootfs: bool | None = None
    agent: AgentOptions = AgentOptions()
    session_id: str = ""
    call_id: str = ""
    # The number of bytes to keep of the output, at its beginning and at its end.
    capture: int = 1 << 20
