# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile: which files, variables and system calls a command gets, and its limits.

file.py reads profiles from YAML files.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from os.path import normpath
from typing import TypeVar

from ...record import Record
from .agent import AgentRules

DEFAULT_PROFILE = "standard"

T = TypeVar("T")

_TEMPLATE = re.compile(
    r"(?:\$\{(?P<variable>\w+):-(?P<default>[~/][^{}$]*)\}|\$(?P<moved>\w+))(?P<rest>/[^{}$]+)?"
    r"|(?P<plain>~?/[^{}$]+)"
)


class Limits(Record):
    """None means no limit. Sizes are bytes, times are seconds."""

    time: float | None = None
    # What a model may ask for. `time` is what a command gets otherwise.
    max_time: float | None = None
    processes: int | None = None
    disk: int | None = None
    free: int | None = None
    memory: int | None = None
    tmp: int | None = None

    def time_for(self, wanted: float) -> float:
        """Return the seconds that a command gets for which a model wants this many."""
        return wanted if self.max_time is None else min(wanted, self.max_time)


_NO_LIMITS = Limits()


class CommandRules(Record):
    """An addition to the profile, for commands that begin with these words. Whoever writes one
    chooses its words, so this is no boundary."""

    words: tuple[str, ...]
    # Only those that are set: None removes a limit.
    limits: tuple[tuple[str, float | None], ...] = ()
    environment_drop: tuple[str, ...] = ()
    environment_harmless: tuple[str, ...] = ()
    environment_keep: tuple[str, ...] = ()
    environment_with_network: tuple[str, ...] = ()
    environment_set: tuple[tuple[str, str], ...] = ()
    caches: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @classmethod
    def lists(cls) -> tuple[str, ...]:
        """Return the names of the profile's lists that rules add to."""
        return tuple(cls._fields)[2:]

    def match(self, words: Sequence[str]) -> bool:
        first, *rest = self.words
        if not words or list(words[1 : len(self.words)]) != rest:
            return False
        # `make` is also /usr/bin/make.
        return first in (words[0], words[0].rpartition("/")[2])


class Profile(Record):
    """The files, variables, system calls and limits of a command."""

    name: str
    description: str = ""
    masks: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    mask_variables: tuple[str, ...] = ()
    # Variables that move a folder, and its usual place.
    moved_folders: tuple[tuple[str, str], ...] = ()
    environment_drop: tuple[str, ...] = ()
    # Names that match a pattern of `environment_drop` by chance.
    environment_harmless: tuple[str, ...] = ()
    environment_keep: tuple[str, ...] = ()
    # All that a command with the network gets, unless it is dropped.
    environment_with_network: tuple[str, ...] = ()
    environment_set: tuple[tuple[str, str], ...] = ()
    # Texts, separated by |, of which a value has one, and the pattern of a secret.
    secret_values: tuple[tuple[str, str], ...] = ()
    limits: Limits = _NO_LIMITS
    unix_sockets: bool = True
    # Runs at the same time see each other's files, sockets and pipes in the playground.
    shared_playground: bool = False
    deny_syscalls: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    # Folders that get a writable layer for each project, such as `${CARGO_HOME:-~/.cargo}`: those
    # that are there in any case, and those that are only if the user has them.
    caches: tuple[str, ...] = ()
    caches_if_present: tuple[str, ...] = ()
    # Names in other projects that commands do not see, and exceptions.
    masks_in_other_projects: tuple[str, ...] = ()
    show_in_other_projects: tuple[str, ...] = ()
    # The paths in the home folder that a command with the network sees, besides caches and `show`.
    home_with_network: tuple[str, ...] = ()
    # Caches of all programs together, and the names in each that such a command sees.
    names_with_network: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # Devices of this computer that commands can use.
    devices: tuple[str, ...] = ()
    commands: tuple[CommandRules, ...] = ()
    # What commands in Alpine see of this computer besides, read-only and at its own path; and the
    # folder that they see as /skills.
    extra_ro_binds: tuple[str, ...] = ()
    skills: str = ""
    # The user set a memory limit: only then is a control group worth its cost.
    own_memory_limit: bool = False
    # For a whole agent that runs in the sandbox.
    agent: AgentRules | None = None

    @property
    def hidden(self) -> tuple[str, ...]:
        return _without(self.masks, self.show)

    def for_command(self, words: Sequence[str]) -> Profile:
        """Return the profile for a command with these words; longer rules replace shorter ones."""
        matching = [rules for rules in self.commands if rules.match(words)]
        profile = self
        for rules in sorted(matching, key=lambda rules: len(rules.words)):
            profile = profile._with_rules(rules)
        return profile

    def _with_rules(self, rules: CommandRules) -> Profile:
        given = dict(rules.limits)
        limits = self.limits._replace(**given)
        if limits.max_time is not None:
            limits = limits._replace(time=min(limits.time or limits.max_time, limits.max_time))
        lists = {name: join(getattr(self, name), getattr(rules, name)) for name in rules.lists()}
        own_memory = given.get("memory", self.own_memory_limit or None) is not None
        joined = self._replace(**lists)
        return joined._replace(limits=limits, own_memory_limit=own_memory)

    def with_limits(self, own: Limits) -> Profile:
        """Return the profile with the user's limits in place of its own."""
        given = {name: value for name, value in own._asdict().items() if value is not None}
        if own.time is not None:
            # A model must not get more than the user has chosen.
            given.setdefault("max_time", own.time)
        if not given:
            return self
        return self._replace(
            limits=self.limits._replace(**given),
            own_memory_limit=self.own_memory_limit or own.memory is not None,
        )

    def with_time(self, seconds: float | None) -> Profile:
        """Return the profile with this time limit, or with its own for None."""
        return self if seconds is None else self._replace(limits=self.limits._replace(time=seconds))

    def environment(self, inherited: Mapping[str, str], *, network: bool = False) -> dict[str, str]:
        always = _any_of(self.environment_keep)
        rules = self.environment_drop, self.environment_keep, self.environment_harmless
        kept = {
            name: value
            for name, value in inherited.items()
            if not _drops(name, *rules)
            and (name in always or not _is_secret(value, self.secret_values))
        }
        if network and self.environment_with_network:
            # Also those that say where the folders are that such a command sees.
            own = (folder.folder for folder in self.agent.folders) if self.agent else ()
            templates = (*self.caches, *self.caches_if_present, *self.home_with_network, *own)
            moving = {found.variable for found in map(FolderTemplate.of, templates) if found}
            listed = _any_of(self.environment_with_network)
            kept = {
                name: value
                for name, value in kept.items()
                if name in always or name in moving or name in listed
            }
        kept.update(self.environment_set)
        return kept


# The shortest secret.
_SHORTEST = 8
# Random letters and digits: nearly every second one is of another kind than the one before it. In
# names of people's making, few are. Hashes, in lower case, are no secrets.
_RANDOM = r"[A-Za-z0-9+/_-]{24,}={0,2}"
_CHANGES = r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]"
_RANDOM_SHARE = 0.4


@lru_cache(maxsize=1024)
def _is_secret(value: str, patterns: tuple[tuple[str, str], ...]) -> bool:
    """Return whether a variable's value contains something that looks like a secret. `patterns` are
    the profile's: to compile all takes 10 ms, and most variables contain none of their texts."""
    # Paths, also several, contain all kinds of names. With options, it is a command.
    is_path = value.startswith(("/", "~/", "./", "../")) and " -" not in value
    if len(value) < _SHORTEST or is_path:
        return False
    lower = value.lower()
    if lower != value and re.fullmatch(_RANDOM, value):
        changes = len(re.findall(_CHANGES, value))
        if changes > _RANDOM_SHARE * len(value):
            return True
    return any(
        re.search(pattern, value)
        for texts, pattern in patterns
        if any(text in lower for text in texts.split("|"))
    )


# Cached: every command has the same profile and the same variables.
@lru_cache(maxsize=16)
def _without(masks: tuple[str, ...], show: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(mask for mask in masks if mask not in show)


@lru_cache(maxsize=1024)
def _drops(
    name: str, drop: tuple[str, ...], keep: tuple[str, ...], harmless: tuple[str, ...]
) -> bool:
    return name in _any_of(drop) and name not in _any_of(keep) and name not in _any_of(harmless)


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name matches one of some shell patterns that ignore case."""
    return name in _any_of(patterns)


def join(one: tuple[T, ...], two: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(one + two))


class FolderTemplate(Record):
    """A folder that a variable may move: `~/.npm`, `$GOMODCACHE`, `${GOPATH:-~/go}/pkg`."""

    variable: str
    # Its place without the variable, or "" if it has none.
    default: str
    rest: str

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, text: str) -> FolderTemplate | None:
        """Return None if the text is not a template."""
        found = _TEMPLATE.fullmatch(text)
        if found is None:
            return None
        variable = found["variable"] or found["moved"] or ""
        made = cls(variable, found["default"] or found["plain"] or "", found["rest"] or "")
        names = f"{made.default}{made.rest}".split("/")[1:]
        return None if {"", ".", ".."}.intersection(names) else made

    def expand(self, value: str, home: str) -> str:
        """Return the folder's path with this value of the variable, or "" if it has none."""
        # Go's variable may name several folders, and the first one counts.
        moved = value.partition(":")[0].rstrip("/")
        if moved.startswith("/") and moved == normpath(moved) and moved[:2] != "//":
            return moved + self.rest
        if self.default.startswith("~"):
            return home + self.default[1:] + self.rest
        return self.default and self.default + self.rest


class _Names:
    """A set of shell patterns that ignore case.

    Nearly all have their stars at the ends. Compiling a hundred of them into a regular expression
    takes longer than building the rest of a plan.
    """

    def __init__(self, patterns: tuple[str, ...]) -> None:
        plain: dict[tuple[bool, bool], list[str]] = {}
        self._others: list[str] = []
        for pattern in map(str.casefold, patterns):
            core = pattern.strip("*")
            if any(sign in core for sign in "*?["):
                self._others.append(pattern)
            else:
                ends = pattern.startswith("*"), pattern.endswith("*")
                plain.setdefault(ends, []).append(core)
        self._whole = frozenset(plain.get((False, False), ()))
        self._first = tuple(plain.get((False, True), ()))
        self._last = tuple(plain.get((True, False), ()))
        self._inside = tuple(plain.get((True, True), ()))

    def __contains__(self, given: str) -> bool:
        name = given.casefold()
        if name in self._whole or name.startswith(self._first) or name.endswith(self._last):
            return True
        if any(part in name for part in self._inside):
            return True
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._others)


@lru_cache(maxsize=32)
def _any_of(patterns: tuple[str, ...]) -> _Names:
    return _Names(patterns)
