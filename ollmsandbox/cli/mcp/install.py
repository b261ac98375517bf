# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox mcp install` and `uninstall`: our lines in the settings of another agent."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import OllmSandboxError
from ...files.atomic import write_atomically
from ...sandbox.profile.profile import FolderTemplate
from ...text.ansi import escape_line
from ..arguments import default_project
from ..commands.playground import confirmed
from .settings_text import (
    SettingsError,
    add_to_json,
    add_to_toml,
    remove_from_json,
    remove_from_toml,
)

CLIENTS = Path(__file__).with_name("clients.yaml")
_NAME = "ollmsandbox"
_LARGEST = 16 << 20


class ClientFormat(NamedTuple):
    """Where an agent keeps its servers, and in which form."""

    title: str
    format: str
    user: list[str]
    project: list[str]
    section: str
    entry: dict[str, object]

    def with_entry(self, text: str, program: str) -> str:
        add = add_to_toml if self.format == "toml" else add_to_json
        return add(text, self.section, _NAME, _filled(self.entry, program))

    def without_entry(self, text: str) -> str:
        remove = remove_from_toml if self.format == "toml" else remove_from_json
        return remove(text, self.section, _NAME) if text.strip() else text


def read_formats() -> Mapping[str, ClientFormat]:
    import yaml

    found = yaml.safe_load(CLIENTS.read_text(encoding="utf-8"))
    return {name: ClientFormat(**fields) for name, fields in found.items()}


def change_client(given: argparse.Namespace) -> int:
    """Add our server to an agent's settings, or remove it, after showing the change."""
    formats = read_formats()
    client = formats.get(given.client)
    if client is None:
        raise OllmSandboxError(
            f"There is no agent {escape_line(given.client)!r}.",
            f"Use one of: {', '.join(formats)}.",
        )
    is_project = given.scope == "project"
    file = _file(client, is_project=is_project)
    old = _read(file)
    try:
        if given.action == "install":
            # A project's settings are shared: its program is found on each computer's PATH.
            new = client.with_entry(old, _NAME if is_project else _program())
        else:
            new = client.without_entry(old)
    except SettingsError as error:
        raise _by_hand(client, file, given.action) from error
    if new == old:
        done = "has" if given.action == "install" else "does not have"
        print(f"{client.title} already {done} the tools of the sandbox: {escape_line(str(file))}")
        return 0
    _show(file, old, new)
    if not given.yes and not confirmed(f"Change {escape_line(str(file))}?"):
        return 1
    # Others may have written to it meanwhile.
    if _read(file) != old:
        raise OllmSandboxError(f"{file} has just been changed.", "Try again.")
    if _is_empty(new):
        file.unlink()
    else:
        _write(file, new, mode=0o644 if is_project else 0o600)
    word = "has" if given.action == "install" else "no longer has"
    print(f"{client.title} {word} the tools of the sandbox. Start it again to use that.")
    if is_project and given.action == "install" and shutil.which(_NAME) is None:
        link = shlex.join(["ln", "-s", _program(), f"{os.environ['HOME']}/.local/bin/{_NAME}"])
        print(
            f"{_NAME} is not on your PATH, where {client.title} looks for it. For example: {link}"
        )
    return 0


def _file(client: ClientFormat, *, is_project: bool) -> Path:
    if is_project:
        folder = Path(default_project(os.environ))
        found = _first(folder, client.project)
        # A command may have made a link there, to a file that is not the project's.
        if found.resolve() != folder.resolve() / found.relative_to(folder):
            raise OllmSandboxError(f"{found} leads through a link.", "Change the file by hand.")
        return found
    # Users keep settings elsewhere, and link to them.
    return _first(Path("/"), [_expand(text) for text in client.user]).resolve()


def _expand(text: str) -> str:
    template = FolderTemplate.of(text)
    assert template is not None, text
    return template.expand(os.environ.get(template.variable, ""), os.environ["HOME"])


def _first(folder: Path, names: list[str]) -> Path:
    files = [folder / name for name in names]
    return next((file for file in files if file.exists()), files[0])


def _read(file: Path) -> str:
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            raise OllmSandboxError(f"{file} is not a file.")
        if found.st_size > _LARGEST:
            raise OllmSandboxError(f"{file} is too large.")
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise OllmSandboxError(f"{file} is not text.") from error


def _write(file: Path, text: str, mode: int) -> None:
    """Write the file. `mode` is for a new one."""
    mode = file.stat().st_mode & 0o777 if file.exists() else mode
    write_atomically(file, text)
    file.chmod(mode)


def _is_empty(text: str) -> bool:
    return text.split() in ([], ["{}"], ["{", "}"])


def _show(file: Path, old: str, new: str) -> None:
    name = escape_line(str(file))
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, n=2, lineterm="")
    for line in lines:
        print("\t".join(map(escape_line, line.split("\t"))))
    sys.stdout.flush()


def _by_hand(client: ClientFormat, file: Path, action: str) -> OllmSandboxError:
    lines = client.with_entry("", _program())
    what = "Add these lines to it yourself" if action == "install" else "Remove these lines from it"
    return OllmSandboxError(f"{file} cannot be changed safely.", f"{what}:\n{lines}")


def _program() -> str:
    """Return the path of this program: an editor may have another PATH than a terminal."""
    return shutil.which(_NAME) or os.path.abspath(sys.argv[0])


def _filled(value: object, program: str) -> dict[str, object]:
    def fill(part: object) -> object:
        if isinstance(part, list):
            return [fill(one) for one in part]
        return program if part == "PROGRAM" else part

    assert isinstance(value, dict)
    return {name: fill(part) for name, part in value.items()}
