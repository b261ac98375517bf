# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of hosts that the user has named, in `hosts.yaml`: `@python` stands for the hosts of the
list `python`. A list saves typing. It is never an answer to a question."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ... import N_
from ...config.yaml_reader import YamlSource, read_yaml
from ...errors import SandboxError
from ...files.atomic import write_atomically
from .hosts import HostRule, HostUse, parse_hosts

FILE = "hosts.yaml"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_MOST_HOSTS = 200
_HEADER = """\
# Your lists of hosts: `ollmsandbox run --host @NAME` allows the hosts of one. You can edit this
# file; the program rewrites it when you save or remove a list there.
"""

HostLists = Mapping[str, tuple[HostRule, ...]]


class HostListError(SandboxError):
    """A list of hosts does not exist, or the file has a mistake."""


def load_host_lists(config: Path) -> HostLists:
    """Return the user's lists by name."""
    source = YamlSource(HostListError, config / FILE, N_("Correct the file or remove it."))
    try:
        root = read_yaml(source)
    except FileNotFoundError:
        return {}
    found: dict[str, tuple[HostRule, ...]] = {}
    for name, value in root.mapping().items() if root else ():
        try:
            check_list_name(name)
            found[name] = _checked(parse_hosts(value.texts()))
        except HostListError:
            raise
        except SandboxError as error:
            raise HostListError(value.fail(error.message).message, error.remedy) from error
    return found


def save_host_list(config: Path, name: str, hosts: Iterable[HostRule]) -> None:
    check_list_name(name)
    _write(config, {**load_host_lists(config), name: _checked(tuple(hosts))})


def remove_host_list(config: Path, name: str) -> None:
    lists = load_host_lists(config)
    if name not in lists:
        raise _unknown(name, lists)
    _write(config, {other: hosts for other, hosts in lists.items() if other != name})


def is_list_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_list_name(name: str) -> None:
    if not is_list_name(name):
        raise SandboxError(
            N_("{name} is not a name for a list of hosts."),
            N_("Use up to 40 lowercase letters, digits, hyphens, underscores or periods."),
            name=repr(name[:80]),
        )


class NamedHosts:
    """The hosts that a command needs, as the user or the model named them: singly, or by lists."""

    def __init__(self, texts: Iterable[str], config: Path) -> None:
        """Raise SandboxError if one of the texts is no host and no list."""
        self._texts = tuple(text.strip() for text in texts)
        is_needed = any(text.startswith("@") for text in self._texts)
        self._lists = load_host_lists(config) if is_needed else {}
        self.rules = tuple(dict.fromkeys(rule for text in self._texts for rule in self._of(text)))

    def _of(self, text: str) -> tuple[HostRule, ...]:
        if not text.startswith("@"):
            return (HostRule.parse(text),)
        if text[1:] not in self._lists:
            raise _unknown(text[1:], self._lists)
        return self._lists[text[1:]]

    @property
    def texts(self) -> tuple[str, ...]:
        """The hosts, without lists."""
        return tuple(map(str, self.rules))

    def __str__(self) -> str:
        """Return all hosts, with those of a list behind its name."""
        shown = []
        for text in dict.fromkeys(self._texts):
            hosts = ", ".join(map(str, self._of(text)))
            shown.append(f"{text} ({hosts})" if text.startswith("@") else hosts)
        return ", ".join(shown)


def hosts_for_list(uses: Iterable[HostUse]) -> tuple[HostRule, ...]:
    """Return the hosts that a run was allowed to reach, as a list would name them."""
    return tuple(dict.fromkeys(use.rule for use in uses if use.allowed))


def _checked(hosts: tuple[HostRule, ...]) -> tuple[HostRule, ...]:
    if not hosts:
        raise SandboxError(N_("A list needs a host."))
    if len(hosts) > _MOST_HOSTS:
        text = N_("A list can have at most {number} hosts.")
        raise SandboxError(text, number=_MOST_HOSTS)
    return hosts


def _unknown(name: str, lists: HostLists) -> HostListError:
    text = N_("You have no list of hosts named {name}.")
    if lists:
        return HostListError(
            text, N_("Your lists: {names}."), name=repr(name[:80]), names=", ".join(lists)
        )
    return HostListError(
        text,
        N_("Save one with `ollmsandbox hosts save NAME RUN`, or write it to {file}."),
        name=repr(name[:80]),
        file=FILE,
    )


def _write(config: Path, lists: HostLists) -> None:
    import yaml  # takes 25 ms, and `run --host` does not need it

    document = {name: list(map(str, hosts)) for name, hosts in lists.items()}
    body = yaml.safe_dump(document, sort_keys=False) if document else ""
    write_atomically(config / FILE, _HEADER + body)
