# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognise in a command's output what the sandbox has refused it, and say what to do.

Other causes can lead to the same words. So a sentence states only what is true of the sandbox in
any case, and leaves it open whether the command needed it.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Container, Iterator, Sequence

from .. import N_
from ..errors import Sentence
from ..paths import is_inside
from ..text.ansi import escape_line
from .plan import mounts
from .plan.plan import Plan
from .process import Result

# Characters at the end of each stream: programs say last why they gave up.
_SEARCHED = 1 << 16
# The same of a command that succeeded. The status of `npm install | tail` is that of `tail`.
_SEARCHED_OF_SUCCESS = 400
# Characters at the beginning of a command: it goes elsewhere first. The window waits meanwhile.
_SEARCHED_OF_COMMAND = 4096
# What programs say, in lower case, if a host has no address.
_NO_ADDRESS = (
    *("could not resolve host", "couldn't resolve host", "unable to resolve host"),
    *("temporary failure in name resolution", "temporary failure resolving"),
    *("name or service not known", "name does not resolve", "no address associated with hostname"),
    *("bad address '", "getaddrinfo e", "getaddrinfo:", "getaddrinfo failed"),
    *("failed to lookup address", "unknownhostexception", "no servers could be reached"),
)
# What builds say, in lower case, if there is no compiler: setuptools and Meson, CMake, Cargo, npm.
_COMPILES = ("gcc", "cmake_c_compiler", "cmake_cxx_compiler", "linker `cc`", "not found: make")
# Many programs say these in English in any language.
_ENGLISH = {
    errno.ENETUNREACH: "network is unreachable",
    errno.EROFS: "read-only file system",
    errno.EOVERFLOW: "value too large for defined data type",
    errno.ENOENT: "no such file or directory",
    errno.EACCES: "permission denied",
}
# Paths in an error message: in quotes, or between blanks.
_WORDS = re.compile(
    r"(?<=['\u2018])[^'\u2019]+(?=['\u2019])|(?<=[\"\u201c])[^\"\u201d]+(?=[\"\u201d])"
    r"|[^\s'\"\u2018\u2019\u201c\u201d]+"
)
# Between the words of a command line, and of command lines in it: `bash -c 'cd link; make'`.
_OPERATORS = re.compile(r"[;&|()<>'\"]")
# A command that hides its errors: `2>/dev/null`, `&>/dev/null`, `>/dev/null 2>&1`.
_HIDES_ERRORS = re.compile(r"(2|&)>>?\s*\S|>&\s*/")
NETWORK_OFF = Sentence(
    N_("The command had no network access. If it needs it, run it again with network access.")
)
_READ_ONLY = Sentence(
    N_(
        "Outside the project, the playground and /tmp, most folders are read-only for commands. "
        "To open another one to them, use `ollmsandbox roots add`, or “Opened Folders” in the "
        "project's menu."
    )
)
_LEADS_OUT = N_(
    "{link} leads to {folder}, outside the project, which commands cannot change. To open it to "
    "them, use `ollmsandbox roots add`, or “Opened Folders” in the project's menu."
)
_LEADS_OUT_OF_ALPINE = N_(
    "{link} leads to {folder}, outside the project, which commands in Alpine do not see. To open "
    "it to them, use `ollmsandbox roots add`; to let them only read it, add it to "
    "`extra_ro_binds` in the profile."
)
_OPENED = N_("{folder} is open to commands now. Run the command again.")
_NO_COMPILER = Sentence(
    N_(
        "This Alpine has no C compiler, which some Python packages need. To add one: ollmsandbox "
        "rootfs install --tier 3"
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
_OTHER_OWNER = N_(
    "{file} belongs to another user, and sandboxed commands cannot change it (the kernel reports "
    "this as a value too large). Ask its owner to give it to you, or make a copy of it yours: "
    "{command}"
)


def find_refusals(
    plan: Plan, argv: Sequence[str], result: Result, opened: Container[str] = ()
) -> tuple[Sentence, ...]:
    """Return what to say about a command that ran with this plan and ended like this. `opened` are
    folders that the user has opened to commands since."""
    if not result.exit_code and not result.stdout.total and not result.stderr.total:
        return ()
    return tuple(_find(plan, argv, result, opened))


def misses_network(result: Result) -> bool:
    """Return whether a command's output says that it did not reach a host."""
    output = _end_of(result)
    return any(words in output for words in _NO_ADDRESS) or _says(output, errno.ENETUNREACH)


def links_in_the_way(plan: Plan, argv: Sequence[str], result: Result) -> list[tuple[str, str]]:
    """Return the links of the project, each with the folder outside that it leads to, through which
    the command could not write."""
    roots = [m.folder for m in plan.mounts if isinstance(m, mounts.OverlaidFolder)]
    if not result.exit_code or plan.project not in roots or _rootfs(plan):
        return []
    errors = list(_lines(result, errno.EROFS))
    text = "\n".join(argv)[:_SEARCHED_OF_COMMAND]
    hides_errors = not result.stderr.total and _HIDES_ERRORS.search(text) is not None
    if not errors and not hides_errors:
        return []
    named = _ways_out(plan, [*_WORDS.findall(text), *_OPERATORS.sub(" ", text).split()])
    # Whether they were in the way is unknown then. The user can say.
    found = {} if errors else named
    for error in errors:
        paths = [word for word in _WORDS.findall(error) if "/" in word]
        printed = _ways_out(plan, paths)
        # Some programs print where a link leads. After `cd` through a link, most print only a name.
        has_whole = any(path.startswith("/") and not _is_program(path) for path in paths)
        found |= printed or {
            link: folder for link, folder in named.items() if not has_whole or f"{folder}/" in error
        }
    return [(link, folder) for link, folder in found.items() if not is_inside(folder, *roots)]


def _links_out_of_alpine(plan: Plan, result: Result) -> dict[str, str]:
    """Return the links that lead nowhere in Alpine, each with the folder of the host that it leads
    to. Whether the command wanted to read or to write there is unknown."""
    if not _rootfs(plan):
        return {}
    seen = [
        m.folder for m in plan.mounts if isinstance(m, mounts.OverlaidFolder | mounts.ReadOnlyBind)
    ]
    words = [word for line in _lines(result, errno.ENOENT) for word in _WORDS.findall(line)]
    found = _ways_out(plan, words)
    return {link: folder for link, folder in found.items() if not is_inside(folder, *seen)}


def _files_of_others(plan: Plan, result: Result) -> list[str]:
    """Return the files of other users that the command could not change, as it named them."""
    words = {word for line in _lines(result, errno.EOVERFLOW) for word in _WORDS.findall(line)}
    found = []
    for name in sorted(word.rstrip(":") for word in words):
        whole = os.path.normpath(os.path.join(plan.working_dir, name))
        for root in (mount for mount in plan.mounts if isinstance(mount, mounts.OverlaidFolder)):
            shown = root.shown or root.folder
            file = root.folder + whole[len(shown) :]
            if is_inside(whole, shown) and os.path.isfile(file):
                found += [name] if os.stat(file).st_uid != os.getuid() else []
    return found


def _lines(result: Result, error: int) -> Iterator[str]:
    """Yield the lines of output that report this error."""
    for stream in (result.stdout, result.stderr):
        for line in stream.text[-_SEARCHED:].split("\n"):
            if _says(line.lower(), error):
                yield line


def _ways_out(plan: Plan, words: Sequence[str]) -> dict[str, str]:
    """Return the links by which paths among these words leave the project, and where each leads."""
    names = dict.fromkeys(word.rstrip(":") for word in words)
    return dict(way for name in names if (way := _way_out(plan, name)) is not None)


def _is_program(word: str) -> bool:
    """Return whether an error message with this path may mean the program that prints it."""
    path = word.rstrip(":")
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _way_out(plan: Plan, path: str) -> tuple[str, str] | None:
    """Return the link by which a path leaves the project, and the folder that it leads to."""
    here = plan.project
    roots = [m for m in plan.mounts if isinstance(m, mounts.OverlaidFolder) and m.folder == here]
    # In Alpine, it is elsewhere.
    seen_as = next((root.shown for root in roots if root.shown), here)
    whole = os.path.normpath(os.path.join(plan.working_dir, path))
    if not is_inside(whole, seen_as):
        return None
    for name in whole[len(seen_as) + 1 :].split("/"):
        here = f"{here}/{name}"
        if os.path.islink(here) and not is_inside(real := os.path.realpath(here), plan.project):
            return (here, real) if os.path.isdir(real) else None
    return None


def _find(
    plan: Plan, argv: Sequence[str], result: Result, opened: Container[str]
) -> Iterator[Sentence]:
    if not plan.network and misses_network(result):
        yield NETWORK_OFF
    if result.exit_code == 0:
        return
    output = _end_of(result)
    links = links_in_the_way(plan, argv, result)
    for link, folder in links:
        text = _OPENED if folder in opened else _LEADS_OUT
        yield Sentence(text, link=escape_line(link), folder=escape_line(folder))
    if not links and _says(output, errno.EROFS):
        yield _READ_ONLY
    for link, folder in _links_out_of_alpine(plan, result).items():
        yield Sentence(_LEADS_OUT_OF_ALPINE, link=escape_line(link), folder=escape_line(folder))
    if _says(output, errno.EOVERFLOW):
        # An overlay cannot copy up a file whose owner or group has no number inside.
        others = _files_of_others(plan, result)
        for file in others:
            path = shlex.quote(file)
            command = f"cp {path} {path}.new && mv {path}.new {path}"
            yield Sentence(_OTHER_OWNER, file=escape_line(file), command=escape_line(command))
        if not others:
            yield _OTHER_GROUP
    lacks_compiler = (
        not os.path.lexists(f"{system.folder}/usr/bin/gcc") for system in _rootfs(plan)
    )
    if any(words in output for words in _COMPILES) and any(lacks_compiler):
        yield _NO_COMPILER
    lines = output.split("\n")
    missing = "\n".join(line for line in lines if _says(line, errno.ENOENT, errno.EACCES))
    for path in _hidden(plan) if missing else ():
        name = path.lower()
        # Whether it exists or not: that is hidden, too. To compile a pattern takes 70 µs, and there
        # are hundreds of paths.
        if name in missing and re.search(re.escape(name) + r"(?![\w.-])", missing):
            yield Sentence(_HIDDEN, path=path)
    for home in _homes_in_parts(plan):
        if f"{home.lower()}/" in missing:
            yield _HOME_IN_PARTS


def _rootfs(plan: Plan) -> list[mounts.RootfsSystem]:
    return [mount for mount in plan.mounts if isinstance(mount, mounts.RootfsSystem)]


def _homes_in_parts(plan: Plan) -> Iterator[str]:
    for mount in plan.mounts:
        if isinstance(mount, mounts.AllowedHome):
            yield mount.base.spec.folder
        elif isinstance(mount, mounts.BoundFolder) and mount.allowed is not None:
            yield mount.folder


def _hidden(plan: Plan) -> Iterator[str]:
    for mount in plan.mounts:
        if isinstance(mount, mounts.HiddenPath):
            yield mount.path
        elif isinstance(mount, mounts.BoundFolder):
            yield from (f"{mount.folder}/{name}" for name in mount.hidden)
        elif isinstance(mount, mounts.MaskedFolder):
            yield from (f"{mount.spec.folder}/{name}" for name in mount.spec.hidden)


def _end_of(result: Result) -> str:
    searched = _SEARCHED if result.exit_code else _SEARCHED_OF_SUCCESS
    return "\n".join(s.text[-searched:] for s in (result.stdout, result.stderr)).lower()


def _says(output: str, *errors: int) -> bool:
    # The window has set a locale, and its commands have the same.
    return any(_ENGLISH[e] in output or os.strerror(e).lower() in output for e in errors)
