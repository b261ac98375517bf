# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings in `rootfs.yaml`: the mirror and version of Alpine, and what to install."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import yaml

from ... import N_
from ...config.yaml_reader import YamlSource, read_yaml
from ...errors import RootfsError
from ...files.atomic import write_atomically

FILE = "rootfs.yaml"


@dataclass(frozen=True)
class RootfsSettings:
    mirror: str = "https://dl-cdn.alpinelinux.org/alpine"
    branch: str = "latest-stable"
    # "" for the newest of the branch.
    version: str = ""
    tier: int = 1

    def with_value(self, name: str, text: str) -> RootfsSettings:
        """Return the settings with one changed, or raise if the text is not valid for it."""
        if name not in SETTINGS:
            raise RootfsError(
                N_("There is no setting {name} in {file}."),
                N_("Use one of {names}."),
                name=repr(name),
                file=FILE,
                names=", ".join(SETTINGS),
            )
        setting = SETTINGS[name]
        if not re.fullmatch(setting.pattern, text):
            # Translators: {name} is a setting: mirror, branch, version or tier.
            why = N_("{value} is not a valid {name}.")
            raise RootfsError(why, setting.what, value=repr(text), name=name)
        if name == "mirror":
            return replace(self, mirror=text.rstrip("/"))
        if name == "branch":
            return replace(self, branch=text)
        return replace(self, tier=int(text)) if name == "tier" else replace(self, version=text)


class _Setting(NamedTuple):
    pattern: str
    what: str


SETTINGS = {
    "mirror": _Setting(
        r"https?://[^\s?#]+", N_("The address of a mirror, such as https://host/alpine.")
    ),
    "branch": _Setting(
        r"latest-stable|edge|v[0-9]+\.[0-9]+",
        N_("latest-stable, edge, or a branch such as v3.22."),
    ),
    "version": _Setting(
        r"(?:[0-9]+\.[0-9]+(\.[0-9]+)*([_a-z0-9]*)|20[0-9]{6})?",
        N_('A version such as 3.22.1, or "" for the newest.'),
    ),
    "tier": _Setting(
        "[0123]",
        N_("0: base only, 1: required packages, 2: recommended packages, 3: also compilers."),
    ),
}


def load_rootfs_settings(config: Path) -> RootfsSettings:
    source = YamlSource(RootfsError, config / FILE, N_("Correct the file or remove it."))
    try:
        root = read_yaml(source)
    except FileNotFoundError:
        return RootfsSettings()
    settings = RootfsSettings()
    for name, value in root.mapping(tuple(SETTINGS)).items() if root else ():
        try:
            settings = settings.with_value(name, "" if value.is_null else value.text())
        except RootfsError as error:
            raise RootfsError(value.fail(error.message).message, error.remedy) from error
    return settings


def save_rootfs_settings(config: Path, settings: RootfsSettings) -> None:
    write_atomically(config / FILE, yaml.safe_dump(asdict(settings), sort_keys=False))
