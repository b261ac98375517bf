# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles as files: the built-in ones, and the person's own that add to them.

From YAML to a profile, with every mistake named by file, line and key.

Profiles as files: the built-in ones, and the person's own that add to them.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import yaml

from ... import N_
from ...errors import OllmSandboxError, ProfileError, SandboxError, sentence
from ...files.atomic import write_atomically
from .. import seccomp
from .profile import Limits, Profile

T = TypeVar("T")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%]*)")
_SIZES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_TIMES = {"": 1, "s": 1, "min": 60, "h": 3600}


def read(name: str, user_folder: Path, on_the_way: tuple[str, ...] = ()) -> Profile:
    """A built-in profile with what the person's file of that name adds, or one of their own."""
    on_the_way = (*on_the_way, name)
    built_in, own = BUILT_IN / f"{name}.yaml", user_folder / f"{name}.yaml"
    profile = Profile(name)
    if built_in.exists():
        profile = _File(built_in, user_folder, on_the_way).added_to(profile)
    if own.exists():
        # A profile of the person's own stands on `standard` unless it says otherwise: one that
        # forgets to mask anything must not be the result of forgetting a line.
        base = None if built_in.exists() else DEFAULT
        profile = _File(own, user_folder, on_the_way).added_to(profile, default_base=base)
    return replace(profile, name=name)


class _File:
    """One YAML file, read through its nodes so that every complaint can name its line."""

    def __init__(self, path: Path, user_folder: Path, on_the_way: tuple[str, ...]) -> None:
        self._path = path
        self._user_folder = user_folder
        self._on_the_way = on_the_way
        try:
            text = path.read_text(encoding="utf-8")
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            self._root: yaml.Node | None = yaml.compose(text, Loader=loader)
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(
                N_("{file} cannot be read: {why}."), file=path, why=str(error)
            ) from error
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ProfileError(
                N_("{file}, line {line}: {problem}."), file=path, line=line, problem=error.problem
            ) from error
        except yaml.YAMLError as error:
            raise ProfileError(
                N_("{file} is not YAML: {why}."), file=path, why=str(error)
            ) from error

    def added_to(self, profile: Profile, default_base: str | None = None) -> Profile:
        # `---` alone is a document too: nothing.
        empty = self._root is None or self._root.tag.endswith(":null")
        entries = {} if empty else self._mapping(self._root, "")
        base = default_base
        if "extends" in entries:
            base = self._base(entries.pop("extends"))
        if base is not None:
            profile = read(base, self._user_folder, self._on_the_way)
        for key, node in entries.items():
            profile = self._known(_KEYS, key, node, "")(self, profile, node)
        return profile

    def _base(self, node: yaml.Node) -> str:
        name = self._text(node, "extends")
        if name in self._on_the_way:
            raise self._wrong(node, "extends", N_("a profile cannot extend itself."))
        if not (BUILT_IN / f"{name}.yaml").exists():
            raise self._wrong(
                node, "extends", N_("there is no built-in profile {name}."), name=repr(name)
            )
        if self._path.parent != BUILT_IN and self._path.stem == DEFAULT:
            raise self._wrong(node, "extends", N_("{name} stands on this one."), name=repr(name))
        return name

    def _description(self, profile: Profile, node: yaml.Node) -> Profile:
        return replace(profile, description=self._text(node, "description"))

    def _masks(self, profile: Profile, node: yaml.Node) -> Profile:
        return replace(profile, masks=_join(profile.masks, self._paths(node, "masks")))

    def _show(self, profile: Profile, node: yaml.Node) -> Profile:
        return replace(profile, show=_join(profile.show, self._paths(node, "show")))

    def _mask_variables(self, profile: Profile, node: yaml.Node) -> Profile:
        names = self._texts(node, "mask_variables")
        return replace(profile, mask_variables=_join(profile.mask_variables, names))

    def _run(self, profile: Profile, node: yaml.Node) -> Profile:
        paths = self._paths(node, "run")
        for item, path in zip(node.value, paths, strict=True):
            if not path.startswith("/run/"):
                raise self._wrong(item, "run", N_("{path} is not below /run."), path=repr(path))
        return replace(profile, run=_join(profile.run, paths))

    def _unix_sockets(self, profile: Profile, node: yaml.Node) -> Profile:
        value = self._text(node, "unix_sockets")
        if value not in ("allow", "deny"):
            raise self._wrong(
                node,
                "unix_sockets",
                N_("expected allow or deny, found {found}."),
                found=repr(value),
            )
        return replace(profile, unix_sockets=value == "allow")

    def _deny_syscalls(self, profile: Profile, node: yaml.Node) -> Profile:
        names = self._texts(node, "deny_syscalls")
        # A built-in profile names calls that only some kinds of machines have.
        if self._path.parent != BUILT_IN:
            for item, name in zip(node.value, names, strict=True):
                self._check_call(item, name)
        return replace(profile, deny_syscalls=_join(profile.deny_syscalls, names))

    def _check_call(self, node: yaml.Node, name: str) -> None:
        try:
            number = seccomp.find_call(name)
        except LookupError as error:
            why = N_("{name} is not a system call's name.")
            raise self._wrong(node, "deny_syscalls", why, name=repr(name)) from error
        except SandboxError:
            # No libseccomp: no filter will be made, and nothing run that needs one.
            return
        if number is None:
            why = N_("this kind of machine has no system call {name}.")
            raise self._wrong(node, "deny_syscalls", why, name=repr(name))

    def _environment(self, profile: Profile, node: yaml.Node) -> Profile:
        for key, value in self._mapping(node, "environment").items():
            where = f"environment.{key}"
            if key == "drop":
                drop = _join(profile.environment_drop, self._texts(value, where))
                profile = replace(profile, environment_drop=drop)
            elif key == "keep":
                keep = _join(profile.environment_keep, self._texts(value, where))
                profile = replace(profile, environment_keep=keep)
            elif key == "set":
                given = self._mapping(value, where)
                for name, text in given.items():
                    if not _VARIABLE.fullmatch(name):
                        raise self._wrong(
                            text, where, N_("{name} is not a variable's name."), name=repr(name)
                        )
                added = tuple((n, self._text(t, f"{where}.{n}")) for n, t in given.items())
                fixed = _join(profile.environment_set, added)
                profile = replace(profile, environment_set=fixed)
            else:
                raise self._unknown(value, where, ("drop", "keep", "set"))
        return profile

    def _limits(self, profile: Profile, node: yaml.Node) -> Profile:
        limits = profile.limits
        own_memory = profile.own_memory_limit
        for key, value in self._mapping(node, "limits").items():
            where = f"limits.{key}"
            if key == "time":
                limits = replace(limits, time=self._quantity(value, where, _TIMES))
            elif key == "processes":
                limits = replace(limits, processes=self._size(value, where, {"": 1}))
            elif key == "disk":
                limits = replace(limits, disk=self._size(value, where, _SIZES))
            elif key == "free":
                limits = replace(limits, free=self._size(value, where, _SIZES))
            elif key == "memory":
                limits = replace(limits, memory=self._size(value, where, _of_memory()))
                own_memory = self._path.parent != BUILT_IN and limits.memory is not None
            elif key == "tmp":
                limits = replace(limits, tmp=self._size(value, where, _of_memory()))
            else:
                raise self._unknown(value, where, tuple(Limits.__dataclass_fields__))
        return replace(profile, limits=limits, own_memory_limit=own_memory)

    # What YAML gives, as what we want.

    def _mapping(self, node: yaml.Node | None, where: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self._wrong(node, where, N_("expected keys with values."))
        entries: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            key = self._text(key_node, where)
            if key in entries:
                raise self._wrong(key_node, where, N_("{name} stands here twice."), name=repr(key))
            entries[key] = value_node
        return entries

    def _texts(self, node: yaml.Node, where: str) -> tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise self._wrong(node, where, N_("expected a list."))
        return tuple(self._text(item, where) for item in node.value)

    def _paths(self, node: yaml.Node, where: str) -> tuple[str, ...]:
        texts = self._texts(node, where)
        for item, text in zip(node.value, texts, strict=True):
            plain = text == os.path.normpath(text) and text not in ("~", "/")
            if not plain or not text.startswith(("/", "~/")):
                raise self._wrong(
                    item, where, N_("{path} is not a full path or one below ~/."), path=repr(text)
                )
        return texts

    def _text(self, node: yaml.Node, where: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null"):
            raise self._wrong(node, where, N_("expected a text."))
        return str(node.value)

    def _size(self, node: yaml.Node, where: str, units: dict[str, int]) -> int | None:
        value = self._quantity(node, where, units)
        return None if value is None else int(value)

    def _quantity(self, node: yaml.Node, where: str, units: dict[str, int]) -> float | None:
        text = self._text(node, where)
        if text == "none":
            return None
        found = _QUANTITY.fullmatch(text)
        unit = found[2].lower() if found else ""
        if not found or unit not in units or float(found[1]) <= 0:
            known = ", ".join(unit for unit in units if unit)
            wanted = N_("expected a number, or none; found {found}.")
            if known:
                # Translators: {units} are such as "s, min, h".
                wanted = N_("expected a number with {units}, or none; found {found}.")
            raise self._wrong(node, where, wanted, units=known, found=repr(text))
        return float(found[1]) * units[unit]

    def _known(self, keys: dict[str, _Reader], key: str, node: yaml.Node, where: str) -> _Reader:
        if key not in keys:
            raise self._unknown(node, where + key, ("extends", *keys))
        return keys[key]

    def _unknown(self, node: yaml.Node, where: str, known: tuple[str, ...]) -> ProfileError:
        near = difflib.get_close_matches(where.rpartition(".")[2], known, 1)
        if near:
            why = N_("there is no such key; did you mean {name}?")
            return self._wrong(node, where, why, name=repr(near[0]))
        why = N_("there is no such key; known are {names}.")
        return self._wrong(node, where, why, names=", ".join(known))

    def _wrong(
        self, node: yaml.Node | None, where: str, why: str, **fields: object
    ) -> ProfileError:
        line = node.start_mark.line + 1 if node is not None else 1
        return ProfileError(
            N_("{file}, line {line}, key {key}: {why}")
            if where
            else N_("{file}, line {line}: {why}"),
            file=self._path,
            line=line,
            key=where,
            why=sentence(why, **fields),
        )


_Reader = Callable[[_File, Profile, yaml.Node], Profile]
_KEYS: dict[str, _Reader] = {
    "description": _File._description,
    "masks": _File._masks,
    "show": _File._show,
    "mask_variables": _File._mask_variables,
    "environment": _File._environment,
    "limits": _File._limits,
    "unix_sockets": _File._unix_sockets,
    "deny_syscalls": _File._deny_syscalls,
    "run": _File._run,
}


def _of_memory() -> dict[str, int]:
    """The units of sizes, and % of the machine's memory."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {**_SIZES, "%": max(1, total // 100)}


def _join(one: tuple[T, ...], two: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(one + two))


BUILT_IN = Path(__file__).with_name("builtin")
DEFAULT = "standard"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_Version = tuple[str, int, int, int]


def available(user_folder: Path) -> list[str]:
    """The names a person may choose."""
    return sorted({f.stem for folder in (BUILT_IN, user_folder) for f in folder.glob("*.yaml")})


def load(name: str, user_folder: Path, cache: Path | None = None) -> Profile:
    """A built-in profile with what the person's file of that name adds, or one of their own.

    With a cache folder the YAML is only read again when one of the files is another one than
    before: reading it takes as long as starting a sandbox.
    """
    if not _NAME.fullmatch(name):
        raise ProfileError(
            N_("{name} is not a profile name."),
            N_("Use small letters, digits, - and _."),
            name=repr(name),
        )
    # All of the person's: one may stand on another.
    files = [*_files(str(BUILT_IN)), *_files(str(user_folder))]
    if not any(file.endswith(f"/{name}.yaml") for file in files):
        choice = ", ".join(available(user_folder))
        raise ProfileError(
            N_("There is no profile {name}."),
            N_("Choose one of: {choice}."),
            name=repr(name),
            choice=choice,
        )
    # The home folder may be one of several machines': a profile can be a mistake on one of them.
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
            pass  # never kept, or not by this version of the program: it is read anew

    profile = read(name, user_folder)
    if kept is not None:
        with contextlib.suppress(OllmSandboxError, OSError):  # then it is read again next time
            write_atomically(kept, json.dumps({"versions": versions, "profile": asdict(profile)}))
    return profile


def _from_json(given: dict[str, object]) -> Profile:
    values = {name: _frozen(value) for name, value in given.items()}
    limits = given["limits"]
    if not isinstance(limits, dict):
        raise TypeError
    values["limits"] = Limits(**limits)
    return Profile(**values)  # type: ignore[arg-type]


def _frozen(value: object) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
