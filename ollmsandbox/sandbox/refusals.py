# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognise in a command's output what the sandbox has refused it, and say what to do.

Other causes can lead to the same words. So a sentence states only what is true of the sandbox in
any case, and leaves it open whether the command needed it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator

from .. import N_
from ..errors import Sentence
from .plan.mounts import AllowedHome, BoundFolder, HiddenPath, MaskedFolder
from .plan.plan import Plan
from .process import Result

# Characters at the end of each stream: programs say last why they gave up.
_SEARCHED = 1 << 16
# The same of a command that succeeded. The status of `npm install | tail` is that of `tail`.
_SEARCHED_OF_SUCCESS = 400
# What programs say, in lower case, if a host has no address.
_NO_ADDRESS = (
    *("could not resolve host", "couldn't resolve host", "unable to resolve host"),
    *("temporary failure in name resolution", "temporary failure resolving"),
    *("name or service not known", "name does not resolve", "no address associated with hostname"),
    *("bad address '", "getaddrinfo e", "getaddrinfo:", "getaddrinfo failed"),
    *("failed to lookup address", "unknownhostexception", "no servers could be reached"),
)
# Many programs say these in English in any language.
_ENGLISH = {
    errno.ENETUNREACH: "network is unreachable",
    errno.EROFS: "read-only file system",
    errno.EOVERFLOW: "value too large for defined data type",
    errno.ENOENT: "no such file or directory",
    errno.EACCES: "permission denied",
}
NETWORK_OFF = Sentence(
    N_("The command had no network access. If it needs it, run it again with network access.")
)
_READ_ONLY = Sentence(
    N_(
        "Outside the project, the playground and /tmp, most folders are read-only for commands. "
        "To let them change another one, use `ollmsandbox roots add`."
    )
)
_HIDDEN = N_("{path} is hidden from commands. To show it to them, add it to `show` in the profile.")
_HOME_IN_PARTS = Sentence(
    N_(
        "With network access, commands see only parts of the home folder. To show them more, add "
        "it to `home_with_network` in the profile, or run the command without the network."
    )
)
_OTHER_GROUP = Sentence(
    N_(
        "Sandboxed commands cannot change files of a group other than your primary one (the "
        "kernel reports this as a value too large). Change their group with chgrp."
    )
)


def find_refusals(plan: Plan, result: Result) -> tuple[Sentence, ...]:
    """Return what to say about a command that ran with this plan and ended like this."""
    if not result.stdout.total and not result.stderr.total:
        return ()
    return tuple(_find(plan, result))


def misses_network(result: Result) -> bool:
    """Return whether a command's output says that it did not reach a host."""
    output = _end_of(result)
    return any(words in output for words in _NO_ADDRESS) or _says(output, errno.ENETUNREACH)


def _find(plan: Plan, result: Result) -> Iterator[Sentence]:
    if not plan.network and misses_network(result):
        yield NETWORK_OFF
    if result.exit_code == 0:
        return
    output = _end_of(result)
    if _says(output, errno.EROFS):
        yield _READ_ONLY
    if _says(output, errno.EOVERFLOW):
        # An overlay cannot copy up a file whose group has no number inside.
        yield _OTHER_GROUP
    missing = [line for line in output.split("\n") if _says(line, errno.ENOENT, errno.EACCES)]
    for path in _hidden(plan) if missing else ():
        name = re.compile(re.escape(path.lower()) + r"(?![\w.-])")
        # Whether it exists or not: that is hidden, too.
        if any(map(name.search, missing)):
            yield Sentence(_HIDDEN, path=path)
    for home in _homes_in_parts(plan):
        if any(f"{home.lower()}/" in line for line in missing):
            yield _HOME_IN_PARTS


def _homes_in_parts(plan: Plan) -> Iterator[str]:
    for mount in plan.mounts:
        if isinstance(mount, AllowedHome):
            yield mount.base.spec.folder
        elif isinstance(mount, BoundFolder) and mount.allowed is not None:
            yield mount.folder


def _hidden(plan: Plan) -> Iterator[str]:
    for mount in plan.mounts:
        if isinstance(mount, HiddenPath):
            yield mount.path
        elif isinstance(mount, BoundFolder):
            yield from (f"{mount.folder}/{name}" for name in mount.hidden)
        elif isinstance(mount, MaskedFolder):
            yield from (f"{mount.spec.folder}/{name}" for name in mount.spec.hidden)


def _end_of(result: Result) -> str:
    searched = _SEARCHED if result.exit_code else _SEARCHED_OF_SUCCESS
    return "\n".join(s.text[-searched:] for s in (result.stdout, result.stderr)).lower()


def _says(output: str, *errors: int) -> bool:
    # The window has set a locale, and its commands have the same.
    return any(_ENGLISH[e] in output or os.strerror(e).lower() in output for e in errors)
