# SPDX-License-Identifier: GPL-3.0-or-later
"""Load profiles from YAML files: the built-in ones, and the user's own, which add to them."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import N_
from ...errors import OllmSandboxError, ProfileError, SandboxError
from ...files.atomic import write_atomically
from ..seccomp import find_call
from .agent import AgentRules, agent_from_json, read_agent
from .devices import is_forbidden
from .profile import DEFAULT_PROFILE, CommandRules, FolderTemplate, Limits, Profile, join

if TYPE_CHECKING:
    from ...config.yaml_reader import Value

BUILT_IN = Path(__file__).with_name("builtin")
# Those of whole agents, which are not offered for commands.
AGENTS_BUILT_IN = BUILT_IN / "agents"

_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_SIZES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_TIMES = {"": 1, "s": 1, "min": 60, "h": 3600}
_Version = tuple[str, int, int, int]
_LISTS_OF_VARIABLES = ("drop", "harmless", "keep", "with_network")
_NO_TEMPLATE = N_("{path} is not a folder such as ~/.cargo or ${{CARGO_HOME:-~/.cargo}}.")


def profile_names(user_folder: Path) -> list[str]:
    """Return the names of the profiles for commands, built-in ones and the user's."""
    return sorted({f.stem for folder in (BUILT_IN, user_folder) for f in folder.glob("*.yaml")})


def read_profile(name: str, user_folder: Path, cache: Path | None = None) -> Profile:
    """Return a built-in profile with the additions of the user's file, or one of the user's own.

    With a cache folder, the YAML is only read again after one of the files has changed: reading it
    takes as long as starting a sandbox.
    """
    if not re.fullmatch(_NAME, name):
        raise ProfileError(
            N_("{name} is not a valid profile name."),
            N_("Use lowercase letters, digits, - and _."),
            name=repr(name),
        )
    # All of the user's files: one may extend another.
    folders = (BUILT_IN, AGENTS_BUILT_IN, user_folder)
    files = [file for folder in folders for file in _files(str(folder))]
    if not any(file.endswith(f"/{name}.yaml") for file in files):
        raise ProfileError(
            N_("There is no profile {name}."),
            N_("Choose one of: {choice}."),
            name=repr(name),
            choice=", ".join(profile_names(user_folder)),
        )
    # Several machines may share the home folder, and a profile can be valid on only one of them.
    machine = (os.uname().machine, os.sysconf("SC_PHYS_PAGES"), 0, 0)
    files.append(__file__)
    versions = (machine, *map(_version, files))
    return _load(name, user_folder, cache, versions)


def _files(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name[-5:] == ".yaml"]
    except OSError:
        return []


def _version(file: str) -> _Version:
    try:
        found = os.stat(file)
    except OSError:
        return (file, 0, 0, 0)
    return (file, found.st_mtime_ns, found.st_size, found.st_ino)


@lru_cache(maxsize=16)
def _load(
    name: str, user_folder: Path, cache: Path | None, versions: tuple[_Version, ...]
) -> Profile:
    kept = cache / f"profile-{name}.json" if cache is not None else None
    if kept is not None:
        try:
            document = json.loads(kept.read_text(encoding="utf-8"))
            if document["versions"] == [list(version) for version in versions]:
                return _from_json(document["profile"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not cached, or by another version of the program: read the YAML

    profile = _read(name, user_folder)
    if kept is not None:
        with contextlib.suppress(OllmSandboxError, OSError):  # then the YAML is read next time, too
            document = {"versions": versions, "profile": profile._asdict()}
            write_atomically(kept, json.dumps(document, default=tuple))
    return profile


def _from_json(given: dict[str, Any]) -> Profile:
    values: dict[str, Any] = {name: _frozen(value) for name, value in given.items()}
    commands = tuple(CommandRules(*rules) for rules in values["commands"])
    agent = values["agent"] and agent_from_json(values["agent"])
    own = {"limits": Limits(*given["limits"]), "commands": commands, "agent": agent}
    return Profile(**{**values, **own})


def _frozen(value: object) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _read(name: str, user_folder: Path, extended_by: tuple[str, ...] = ()) -> Profile:
    built_in, own = _built_in(name), user_folder / f"{name}.yaml"
    # A user's profile extends `standard` unless it says otherwise: forgetting a line must not
    # result in a profile that masks nothing.
    base = None if built_in.exists() else DEFAULT_PROFILE
    profile = Profile(name)
    for file in filter(Path.exists, (built_in, own)):
        profile = _with_file(
            profile, file, user_folder, (*extended_by, name), base if file == own else None
        )
    return profile._replace(name=name)


def _built_in(name: str) -> Path:
    """Return the file of the built-in profile with this name. It need not exist."""
    own = AGENTS_BUILT_IN / f"{name}.yaml"
    return own if own.exists() else BUILT_IN / f"{name}.yaml"


def _with_file(
    profile: Profile,
    file: Path,
    user_folder: Path,
    extended_by: tuple[str, ...],
    base: str | None,
) -> Profile:
    """Return the profile with a file's values, on top of the profile that the file extends."""
    # Not at the top: with the cache, most commands do without it, and it takes 20 ms to load.
    from ...config.yaml_reader import YamlSource, read_yaml

    root = read_yaml(YamlSource(ProfileError, file))
    entries = root.mapping(("extends", *_LISTS, *_VALUES, *_PARTS)) if root else {}
    is_own = not file.is_relative_to(BUILT_IN)
    if "extends" in entries:
        base = _base(entries.pop("extends"), extended_by, is_own=is_own)
    if base is not None:
        profile = _read(base, user_folder, extended_by)
    profile = _with_entries(profile, entries)
    if "limits" in entries and "memory" in entries["limits"].mapping():
        is_limited = profile.limits.memory is not None
        profile = profile._replace(own_memory_limit=is_own and is_limited)
    # A built-in profile names calls that only some kinds of machines have.
    if is_own and "deny_syscalls" in entries:
        for item in entries["deny_syscalls"].items():
            _check_call(item)
    return profile


def _base(value: Value, extended_by: tuple[str, ...], *, is_own: bool) -> str:
    name = value.text()
    if name in extended_by:
        raise value.fail(N_("a profile cannot extend itself."))
    if not _built_in(name).exists():
        raise value.fail(N_("there is no built-in profile {name}."), name=repr(name))
    if is_own and extended_by[-1] == DEFAULT_PROFILE:
        raise value.fail(N_("{name} extends this profile."), name=repr(name))
    return name


def _with_entries(profile: Profile, entries: Mapping[str, Value]) -> Profile:
    for key, value in entries.items():
        if key in _PARTS:
            profile = _PARTS[key](profile, value)
        elif key in _VALUES:
            field, read = _VALUES[key]
            profile = profile._replace(**{field: read(value)})
        else:
            joined = join(getattr(profile, key), _LISTS[key](value))
            profile = profile._replace(**{key: joined})
    return profile


def _with_names(profile: Profile, value: Value) -> Profile:
    listed = dict(profile.names_with_network)
    for folder, names in value.mapping().items():
        if FolderTemplate.of(folder) is None:
            raise names.fail(_NO_TEMPLATE, path=repr(folder))
        listed[folder] = join(listed.get(folder, ()), _names(names))
    return profile._replace(names_with_network=tuple(listed.items()))


def _with_agent(profile: Profile, value: Value) -> Profile:
    agent = read_agent(value, profile.agent or AgentRules())
    for folder in agent.folders:
        if FolderTemplate.of(folder.folder) is None:
            raise value.fail(_NO_TEMPLATE, path=repr(folder.folder))
    return profile._replace(agent=agent)


def _with_environment(profile: Profile, value: Value) -> Profile:
    lists = {name: f"environment_{name}" for name in (*_LISTS_OF_VARIABLES, "set")}
    for name, entry in value.mapping(tuple(lists)).items():
        added = _variables(entry) if name == "set" else entry.texts()
        joined = join(getattr(profile, lists[name]), added)
        profile = profile._replace(**{lists[name]: joined})
    return profile


def _with_limits(profile: Profile, value: Value) -> Profile:
    limits = profile.limits
    entries = value.mapping(tuple(_UNITS))
    for key, entry in entries.items():
        amount = entry.quantity(_UNITS[key]())
        if amount is not None and key not in ("time", "max_time"):
            amount = int(amount)
        limits = limits._replace(**{key: amount})
    if "max_time" not in entries and "time" in entries:
        # Whoever sets a limit means it: a model may not exceed it.
        limits = limits._replace(max_time=limits.time)
    elif limits.max_time is not None:
        limits = limits._replace(time=min(limits.time or limits.max_time, limits.max_time))
    return profile._replace(limits=limits)


# A command with one of these never matches a rule.
_NOT_IN_WORDS = frozenset(";&|<>()$`")


def _memory_sizes() -> dict[str, int]:
    """Return the units of sizes, and % of the machine's memory."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {**_SIZES, "%": max(1, total // 100)}


_UNITS: dict[str, Callable[[], dict[str, int]]] = {
    "time": lambda: _TIMES,
    "max_time": lambda: _TIMES,
    "processes": lambda: {"": 1},
    "disk": lambda: _SIZES,
    "free": lambda: _SIZES,
    "memory": _memory_sizes,
    "tmp": _memory_sizes,
}


def _paths(value: Value) -> tuple[str, ...]:
    for item in value.items():
        _check_path(item)
    return value.texts()


def _check_path(item: Value) -> None:
    text = item.text()
    if text in ("~", "/", "//"):
        raise item.fail(N_("{path} cannot be named as a whole."), path=repr(text))
    is_normal = text == os.path.normpath(text)
    if not is_normal or not text.startswith(("/", "~/")):
        raise item.fail(N_("{path} is not an absolute path or below ~/."), path=repr(text))


def _check_variable(name: str, value: Value) -> None:
    if not re.fullmatch(_VARIABLE, name):
        raise value.fail(N_("{name} is not a valid variable name."), name=repr(name))


def _names(value: Value) -> tuple[str, ...]:
    for item in value.items():
        if "/" in item.text() or item.text() in ("", ".", ".."):
            raise item.fail(N_("{name} is not the name of a file."), name=repr(item.text()))
    return value.texts()


def _templates(value: Value) -> tuple[str, ...]:
    for item in value.items():
        if FolderTemplate.of(item.text()) is None:
            raise item.fail(_NO_TEMPLATE, path=repr(item.text()))
    return value.texts()


def _paths_in_run(value: Value) -> tuple[str, ...]:
    paths = _paths(value)
    for item in value.items():
        if not item.text().startswith("/run/"):
            raise item.fail(N_("{path} is not below /run."), path=repr(item.text()))
    return paths


def _device_paths(value: Value) -> tuple[str, ...]:
    for item in value.items():
        path = item.text()
        if path != os.path.normpath(path) or not path.startswith("/dev/"):
            raise item.fail(N_("{path} is not below /dev."), path=repr(path))
        if is_forbidden(path):
            text = N_(
                "{path} leads to disks, memory, terminals or input, or every sandbox has its own."
            )
            raise item.fail(text, path=repr(path))
    return value.texts()


def _moved_folders(value: Value) -> tuple[tuple[str, str], ...]:
    for folder in value.mapping().values():
        _check_path(folder)
    return _variables(value)


def _variables(value: Value) -> tuple[tuple[str, str], ...]:
    given = value.mapping()
    for name, text in given.items():
        _check_variable(name, text)
    return tuple((name, text.text()) for name, text in given.items())


def _secret_values(value: Value) -> tuple[tuple[str, str], ...]:
    for texts, entry in value.mapping().items():
        pattern = entry.text()
        try:
            re.compile(pattern)
        except re.error as error:
            raise entry.fail(
                N_("{pattern} is not a pattern: {reason}."), pattern=pattern, reason=error
            ) from error
        if texts != texts.lower() or not all(texts.split("|")):
            raise entry.fail(N_("{text} is not text in lower case."), text=repr(texts))
    return tuple((texts, pattern.text()) for texts, pattern in value.mapping().items())


def _commands(value: Value) -> tuple[CommandRules, ...]:
    return tuple(_rules(words, given) for words, given in value.mapping().items())


def _rules(words: str, value: Value) -> CommandRules:
    if not words.split():
        raise value.fail(N_("expected the first words of a command."))
    if not _NOT_IN_WORDS.isdisjoint(words):
        text = N_("{command} is more than words, so no command would match it.")
        raise value.fail(text, command=repr(words))
    entries = value.mapping(("environment", "limits", "caches", "devices"))
    own = _with_entries(Profile(""), entries)
    names = set(entries["limits"].mapping()) if "limits" in entries else set()
    if "time" in names:
        names.add("max_time")
    limits = tuple((n, limit) for n, limit in own.limits._asdict().items() if n in names)
    lists = (getattr(own, name) for name in CommandRules.lists())
    return CommandRules(tuple(words.split()), limits, *lists)


def _skills(value: Value) -> str:
    _check_path(value)
    return value.text()


# The keys whose lists are added to those of the profile below.
_LISTS: dict[str, Callable[[Value], tuple[object, ...]]] = {
    "masks": _paths,
    "show": _paths,
    "mask_variables": lambda value: value.texts(),
    "moved_folders": _moved_folders,
    "secret_values": _secret_values,
    "deny_syscalls": lambda value: value.texts(),
    "run": _paths_in_run,
    "caches": _templates,
    "caches_if_present": _templates,
    "home_with_network": _templates,
    "masks_in_other_projects": _names,
    "show_in_other_projects": _names,
    "devices": _device_paths,
    "commands": _commands,
    "extra_ro_binds": _paths,
}
# Those that replace what the profile below has, with the name of the value.
_VALUES: dict[str, tuple[str, Callable[[Value], object]]] = {
    "description": ("description", lambda value: value.text()),
    "unix_sockets": ("unix_sockets", lambda value: value.choice("allow", "deny") == "allow"),
    "playground": (
        "shared_playground",
        lambda value: value.choice("separate", "shared") == "shared",
    ),
    "skills": ("skills", _skills),
}
# Those with parts of their own.
_PARTS: dict[str, Callable[[Profile, Value], Profile]] = {
    "environment": _with_environment,
    "limits": _with_limits,
    "names_with_network": _with_names,
    "agent": _with_agent,
}


def _check_call(item: Value) -> None:
    name = item.text()
    try:
        number = find_call(name)
    except LookupError as error:
        raise item.fail(N_("{name} is not a system call."), name=repr(name)) from error
    except SandboxError:
        # Without libseccomp no filter can be made, and nothing runs that needs one.
        return
    if number is None:
        raise item.fail(N_("this kind of machine has no system call {name}."), name=repr(name))
