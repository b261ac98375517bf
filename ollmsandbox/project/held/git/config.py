# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads git's configuration, and finds settings that are not in the table.

The reader is strict: what it does not fully understand does not cross. It need not understand
everything that git does, but must never read anything differently.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple
from urllib.parse import unquote

from ....files.dirfd import folders_above
from ....paths import is_inside
from ...roots import is_git_folder
from ..risky import normalised
from .folders import folder_around
from .table import NAME, NEW_SETTINGS, SETTINGS, UNTRUSTED
from .view import View, read_disk

# Possessive, as everything that a blank may be part of: otherwise a command could write a line for
# which the search takes hours.
_SPACE = "[ \t]*+"
_EMPTY = re.compile(rf"{_SPACE}(?:[#;].*)?")
_SECTION = re.compile(rf'{_SPACE}\[([a-zA-Z0-9-]+)(?:[ \t]+"([^"\\]*)")?\]{_SPACE}')
# A tab between the words of a value is read differently by different versions of git.
_SETTING = re.compile(
    rf"{_SPACE}([a-zA-Z][a-zA-Z0-9-]*+){_SPACE}="
    rf'{_SPACE}(?:"((?:[^"\\]|\\["\\nt])*+)"|((?:[^"\\#;\t]|\\["\\nt])*+)){_SPACE}(?:[#;].*)?'
)
_ESCAPES = {'\\"': '"', "\\\\": "\\", "\\n": "\n", "\\t": "\t"}
_IDENTITY = re.compile(rb"(?im)^\s*\[(?:user|include|includeif)[\s\]]")
_SHORT = re.compile(r"[\w./*-]{1,80}")
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f\ufeff]")

# A host that began with a dash would be an option for ssh. "::" names a program to run.
_SCP = re.compile(r"[A-Za-z0-9_][\w.-]*@([A-Za-z0-9][\w.-]*):[\w./~+-]+", re.ASCII)
_URL = re.compile(
    r"(?:https?|ssh|git)://(?:[\w.~%:+-]+@)?([A-Za-z0-9][\w.-]*|\[[0-9a-fA-F:.]+\])(?::\d+)?"
    r"(?:/[^\s\"'\\]*)?",
    re.ASCII,
)
_FILE = re.compile(r"(?:file://)?(/[^:\"'\\]*)")
_HOSTS = "/etc/hosts"
_THIS_COMPUTER = re.compile(r"(?:.+\.)?(?:localhost|localdomain|ip6-localhost|ip6-loopback)")


class GitSetting(NamedTuple):
    """One line of a configuration."""

    section: str
    subsection: str | None
    key: str
    value: str

    @property
    def name(self) -> str:
        """Return its name in the table."""
        return f"{self.section}.{'' if self.subsection is None else '*.'}{self.key}"


def read_config(data: bytes) -> list[GitSetting] | None:
    """Return the settings as git reads them, or None for anything out of the ordinary."""
    try:
        text = data.decode() if len(data) <= 1 << 16 else "\0"
    except UnicodeDecodeError:
        return None
    if _CONTROL.search(text):
        return None
    section: tuple[str, str | None] | None = None
    settings = []
    for line in text.split("\n"):
        if _EMPTY.fullmatch(line):
            continue
        if found := _SECTION.fullmatch(line):
            section = found[1].lower(), found[2]
        elif section and (found := _SETTING.fullmatch(line)):
            quoted, plain = found[2], found[3]
            value = plain.rstrip(" ") if quoted is None else quoted
            value = re.sub(r"\\.", lambda escape: _ESCAPES[escape[0]], value)
            settings.append(GitSetting(*section, found[1].lower(), value))
        else:
            return None
    return settings


def own_config() -> tuple[str, ...]:
    """Return the system's and the user's configuration files, which apply to every repository."""
    home = os.path.expanduser("~")
    settings = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    named = os.environ.get("GIT_CONFIG_GLOBAL")
    own = (named,) if named else (f"{settings}/git/config", f"{home}/.gitconfig")
    return ("/etc/gitconfig", *own)


def _may_have_identity() -> bool:
    """Return whether the user's own configuration sets a name, or leads to a file that may."""
    for file in own_config():
        # A link leads to a folder of dotfiles.
        data = read_disk(os.path.realpath(file))
        if data is None or _IDENTITY.search(data):
            return True
    return False


def find_hostile_setting(
    new: bytes, old: bytes, path: str, view: View, *, is_new: bool
) -> str | None:
    """Return the first setting that may not cross, by its whole name; None if there is none, and ""
    if it cannot be told. `is_new` is for the configuration of a repository that is not one yet."""
    settings, known = read_config(new), read_config(b"" if is_new else old)
    if settings is None or known is None:
        return ""
    compared = _Compared(settings, known, path, view, is_new=is_new)
    found = next(compared.hostile(), None)
    if found is None:
        return None
    # A long name, or one with blanks, could look like a text of ours.
    parts = [p if p is None or _SHORT.fullmatch(p) else "..." for p in found[:3]]
    return ".".join(part for part in parts if part is not None)


class _Compared:
    def __init__(
        self,
        settings: Sequence[GitSetting],
        known: Sequence[GitSetting],
        path: str,
        view: View,
        *,
        is_new: bool,
    ) -> None:
        self.settings, self.known = settings, known
        self.path = path
        self.view = view
        self.is_new = is_new
        # There may be thousands of lines, so each is looked for in a set.
        self._new, self._old = set(settings), set(known)
        remotes = self.settings if is_new else self.known
        self._remotes = {s.subsection for s in remotes if s.name == "remote.*.url"}
        self._of_branches = {(s.key, s.value) for s in known if s.section == "branch"}
        self._names = {s.name for s in known}
        self._places = {s[:3] for s in known}

    def hostile(self) -> Iterator[GitSetting]:
        if not self.is_new:
            # In the same order: what is included, and what comes twice, depends on it.
            pairs = zip_longest(*(filter(_is_fixed, some) for some in (self.settings, self.known)))
            yield from (mine or theirs for mine, theirs in pairs if mine != theirs)
        # A submodule's address that is gone could come back as another one.
        stays = (s for s in self.known if s.section in ("user", "submodule"))
        yield from (s for s in stays if s not in self._new)
        # The next push would go to both.
        addresses = [s for s in self.settings if s.name == "remote.*.url"]
        yield from addresses[1:] if self.is_new else ()
        for setting in self.settings:
            if setting not in self._old and not self._is_harmless(setting):
                yield setting

    def _is_harmless(self, setting: GitSetting) -> bool:
        name, value = setting.name, setting.value
        if setting.subsection is not None and not NAME.fullmatch(setting.subsection):
            return False
        if name == "branch.*.remote":
            return value == "." or value in self._remotes
        # A branch that was renamed keeps its settings.
        is_branch = setting.section == "branch" and setting.subsection is not None
        if is_branch and (setting.key, value) in self._of_branches:
            return True
        is_user = setting.section == "user"
        if is_user and (name in self._names or (not self.is_new and _may_have_identity())):
            return False
        if name == "submodule.*.url":
            return setting[:3] not in self._places and is_harmless_address(value, self.view)
        if self.is_new and name == "remote.*.url":
            return is_harmless_address(value, self.view)
        if self.is_new and name == "core.worktree":
            return _is_module(value, os.path.dirname(self.path), self.view)
        allowed = (NEW_SETTINGS if self.is_new else SETTINGS).get(name)
        return allowed is not None and re.fullmatch(allowed, value) is not None


def _is_fixed(setting: GitSetting) -> bool:
    """Return whether a setting of an existing repository has to stay as it is."""
    is_free = setting.section in ("branch", "submodule") and setting.subsection is not None
    return not is_free and setting.name not in SETTINGS


def is_harmless_address(address: str, view: View) -> bool:
    """Return whether a push there runs nothing that a command has left."""
    if "::" in address or re.search("%[01]", address) or _CONTROL.search(address):
        return False
    if found := _SCP.fullmatch(address) or _URL.fullmatch(address):
        return not _is_this_computer(found[1])
    if not (found := _FILE.fullmatch(address)):
        return False
    path = unquote(found[1]) if address.startswith("file:") else found[1]
    path = path.rstrip("/")
    # Git may resolve links, and what is below /proc, to something else than we do.
    if os.path.realpath(path) != path or is_inside(path, *view.roots, *view.own, *UNTRUSTED):
        return False
    return is_git_folder(path) or (
        is_git_folder(f"{path}/.git") and os.path.realpath(f"{path}/.git") == f"{path}/.git"
    )


def _is_this_computer(host: str) -> bool:
    name = host.strip("[]").rstrip(".").casefold()
    # With any domain: `.local` is answered by the computer itself.
    own = socket.gethostname().casefold().partition(".")[0]
    if _THIS_COMPUTER.fullmatch(name) or name.partition(".")[0] == own:
        return True
    return any(map(_is_own_address, (name, *_addresses_in_hosts(name))))


def _is_own_address(name: str) -> bool:
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address | None = None
    with contextlib.suppress(ValueError):
        ip = ipaddress.ip_address(name)
    with contextlib.suppress(OSError):
        # Also as one number, in hexadecimal, or with parts left out.
        ip = ipaddress.IPv4Address(socket.inet_aton(name))
    if ip is None:
        return ":" in name
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if ip.is_loopback or ip.is_unspecified or int(ip) >> 24 == 0:
        return True
    # Nobody can listen at an address of another computer.
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as trial, contextlib.suppress(OSError):
        trial.bind((str(ip), 0))
        return True
    return False


def _addresses_in_hosts(name: str) -> list[str]:
    """Return the addresses that this computer's own list has for a name."""
    try:
        with open(_HOSTS, encoding="utf-8", errors="replace") as file:
            lines = [line.partition("#")[0].casefold().split() for line in file]
    except OSError:
        return []
    return [line[0] for line in lines if name in line[1:]]


def _bases(worktree: str, view: View) -> Iterator[str]:
    """Yield the repositories that a folder's own may be in: those around it, which no link can
    replace, and a root that is one."""
    for folder in (worktree, *folders_above(worktree)):
        if view.split(folder):
            yield f"{folder}/.git"
    yield from filter(is_git_folder, view.roots)


def leads_to_module(target: str, worktree: str, view: View) -> bool:
    """Return whether the `.git` file of a worktree or a submodule leads to a repository that leads
    back."""
    place = os.path.normpath(os.path.join(worktree, target))
    if os.path.normpath(target) != target:
        return False  # a ".." after a name leads elsewhere if the name is a link
    if not any(_is_part(place, base, view) for base in _bases(worktree, view)):
        return False
    back = os.fsdecode(view.read(f"{place}/gitdir") or b"").removesuffix("\n")
    if back:
        found = os.path.normpath(os.path.join(place, back))
        return os.path.normpath(back) == back and found == f"{worktree}/.git"
    settings = read_config(view.read(f"{place}/config") or b"") or ()
    values = [s.value for s in settings if s.name == "core.worktree"]
    return [os.path.normpath(os.path.join(place, value)) for value in values] == [worktree]


def _is_part(folder: str, base: str, view: View) -> bool:
    """Return whether a folder is that of a worktree or a submodule of a repository."""
    if not folder.startswith(f"{base}/"):
        return False
    found = folder_around(base, f"{folder[len(base) + 1 :]}/HEAD", view)
    return found is not None and found.path == folder


def leads_to_worktree(target: str, folder: str, view: View) -> bool:
    """Return whether the `gitdir` of a linked worktree leads to one in the roots."""
    place = os.path.normpath(os.path.join(folder, target))
    found = view.split(place)
    if found is None or os.path.normpath(target) != target:
        return False
    *way, last = normalised(found[1]).split("/")
    return last == ".git" == os.path.basename(place) and ".git" not in way


def _is_module(worktree: str, folder: str, view: View) -> bool:
    """Return whether this is the worktree of the submodule that the configuration is for. Git
    writes files there, so it must be a folder of a root that leads back."""
    place = os.path.normpath(os.path.join(folder, worktree))
    found = view.split(place)
    if found is None or not found[1] or os.path.normpath(worktree) != worktree:
        return False
    if ".git" in normalised(found[1]).split("/") or not worktree.startswith("../"):
        return False
    pointer = os.fsdecode(view.read(f"{place}/.git") or b"").removesuffix("\n")
    back = os.path.normpath(os.path.join(place, pointer.removeprefix("gitdir: ")))
    return pointer.startswith("gitdir: ") and back == folder
