# SPDX-License-Identifier: GPL-3.0-or-later
"""InnerRunner: in a Flatpak, a command in a tighter sandbox that the Flatpak portal starts.

There it has the programs of the Flatpak, the project, the playground, and the network only if that
was asked for. What it changes is changed at once, so every command asks here too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from .. import N_
from ..errors import Sentence, WorkingDirError
from ..paths import make_folder
from . import inner_supervisor as far
from .host import below
from .inner_process import InnerProcess
from .plain import Ask, PlainRunner
from .portal import Flags, Portal, PortalError
from .profile import Profile

# Folders that a file chooser opened for the Flatpak. They have another name outside, and the portal
# leaves out, without a word, what it does not find under the same one.
_CHOSEN = "/run/flatpak/doc"
# What is said from inside, where no translation is.
SAID = (
    N_("The project cannot be written in it."),
    N_("The program's own files would be open in it."),
    N_("The network would be open in it."),
)


class NotHandedOnError(PortalError):
    """The project is not in a tight sandbox. It is in one that is not."""


class InnerRunner(PlainRunner):
    """Before the person is asked, the sandbox is there and was looked at from inside: what they
    are told of is what the command runs in. Where it cannot be had, PortalError says why, and
    nobody was asked.

    One that is not `tight` is as the Flatpak's own, but for the network."""

    question = "Run command in the Flatpak's inner sandbox"

    def __init__(
        self,
        project: str | os.PathLike[str],
        *,
        ask: Ask,
        network: bool = False,
        tight: bool = True,
        working_dir: str | None = None,
        profile: Profile | None = None,
        timeout: float | None = None,
        environ: Mapping[str, str] | None = None,
        capture: int = 1 << 20,
    ) -> None:
        super().__init__(
            project,
            ask=ask,
            working_dir=working_dir,
            profile=profile,
            timeout=timeout,
            environ=environ,
            capture=capture,
        )
        self._network = network
        self._tight = tight
        self._sandbox: InnerProcess | None = None

    async def try_out(self) -> None:
        """Whether it can be had, as before a command. Nobody is asked, and nothing runs."""
        try:
            await self._prepare(self._folder())
        finally:
            self._put_away()

    async def _prepare(self, folder: str) -> None:
        written, expected = await asyncio.to_thread(self._expect, folder)
        flags = Flags.WATCH_BUS | Flags.EXPOSE_PROCESSES
        if self._tight:
            flags |= Flags.SANDBOX
        if not self._network:
            flags |= Flags.NO_NETWORK
        self._sandbox = InnerProcess(await Portal.connect(self._environ))
        answer = await self._sandbox.begin(flags, written if self._tight else [], expected)
        if answer == far.NO_START:
            raise WorkingDirError(self._working_dir or folder)
        if answer != far.READY:
            why = answer.decode("ascii")
            if answer == far.NO_PROJECT and below(self.project, _CHOSEN):
                why = N_("A folder from the file chooser cannot be handed on to it.")
            # Translators: {why} is a sentence, such as "The project cannot be written in it."
            text = N_("The Flatpak's inner sandbox cannot be used. {why}")
            kind = NotHandedOnError if answer == far.NO_PROJECT else PortalError
            raise kind(text, why=Sentence(why))

    def _expect(self, folder: str) -> tuple[list[bytes], bytes]:
        playground = os.path.realpath(make_folder(self._paths.playground))
        written = [os.fsencode(self.project), os.fsencode(playground)]
        foreign = 0 if self._network else os.stat("/proc/self/ns/net").st_ino
        hidden = [os.fsencode(self._paths.data)] if self._tight else []
        return written, far.pack_expected(written, hidden, os.fsencode(folder), foreign)

    async def _start(self, argv: Sequence[str], folder: str) -> InnerProcess:
        assert self._sandbox is not None
        environment = self._profile.environment(self._environ)
        await self._sandbox.send(far.pack_order(argv, folder, environment))
        return self._sandbox

    def _put_away(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None
