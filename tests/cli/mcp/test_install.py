# SPDX-License-Identifier: GPL-3.0-or-later
"""Our lines in the settings of other agents: added and removed, and the rest stays as it is."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.person import Person

from ollmsandbox.cli.mcp.install import read_formats
from ollmsandbox.cli.mcp.settings_text import SettingsError, add_to_json, remove_from_json
from ollmsandbox.sandbox.profile.profile import FolderTemplate

pytestmark = pytest.mark.ordinary

FORMATS = read_formats()
# The settings of an agent that someone has used for a while, in its own form.
JSON = """\
{
  // How I like it.
  "theme": "dark", /* really */
  "SECTION": {
    "other": {"command": "npx", "args": ["-y", "other"]}, // mine
  },
  "last": [1, 2.5, null,],
}
"""
TOML = """\
# How I like it.
model = "big"

[SECTION.other]  # mine
command = "npx"
args = ["-y", "other"]

[profiles.work]
model = "small"
"""


def file_of(person: Person, client: str, scope: str) -> Path:
    known = FORMATS[client]
    if scope == "project":
        return person.project / known.project[0]
    template = FolderTemplate.of(known.user[0])
    assert template is not None
    return Path(template.expand("", str(person.home)))


def entry_in(file: Path, client: str) -> Any:
    known, text = FORMATS[client], file.read_text()
    found: Any = tomllib.loads(text) if known.format == "toml" else json.loads(text)
    return found[known.section].get("ollmsandbox")


def test_the_agents_that_are_known() -> None:
    assert set(FORMATS) == {
        *("claude", "codex", "gemini", "qwen", "kimi", "opencode", "cursor", "vscode", "zed")
    }


def test_settings_that_a_variable_has_moved_are_found(person: Person) -> None:
    person.environ["CODEX_HOME"] = f"{person.home}/elsewhere"
    assert person.cli("mcp", "install", "codex").returncode == 0
    assert entry_in(person.home / "elsewhere" / "config.toml", "codex")
    assert not (person.home / ".codex").exists()


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("client", FORMATS)
def test_a_new_file_is_made_and_removed_again(person: Person, client: str, scope: str) -> None:
    file = file_of(person, client, scope)
    done = person.cli("mcp", "install", client, f"--{scope}")
    assert done.returncode == 0, done.stderr
    entry = entry_in(file, client)
    # The change is shown first.
    assert "+" in done.stdout and "ollmsandbox" in done.stdout
    command = entry["command"]
    words = command if isinstance(command, list) else [command, *entry["args"]]
    assert words[1] == "mcp"
    assert words[0] == "ollmsandbox" if scope == "project" else words[0].startswith("/")
    again = person.cli("mcp", "install", client, f"--{scope}")
    assert again.returncode == 0 and "already" in again.stdout
    removed = person.cli("mcp", "uninstall", client, f"--{scope}")
    assert removed.returncode == 0 and not file.exists(), removed.stdout


@pytest.mark.parametrize("client", FORMATS)
def test_what_is_there_stays(person: Person, client: str) -> None:
    known, file = FORMATS[client], file_of(person, client, "user")
    text = (TOML if known.format == "toml" else JSON).replace("SECTION", known.section)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o640)
    assert person.cli("mcp", "install", client).returncode == 0
    installed = file.read_text()
    assert "ollmsandbox" in installed
    # Not a word of it is gone, and the comments are where they were.
    left = iter(installed.split())
    assert all(word in left for word in text.split())
    assert file.stat().st_mode & 0o777 == 0o640
    assert person.cli("mcp", "uninstall", client).returncode == 0
    assert file.read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{ }\n",
        '{"a": 1}',
        '{"a": 1,}',
        '{\n\t"a": {"ollmsandbox": 1}\n}\n',
        '{"servers": {}}',
        '{"servers": {"x": {"y": "}{,\\""}}}',
        '{"servers": {"x": 1,}, "b": 2}',
        '{"servers": {"ollmsandbox": {"old": true}, "z": 1}}',
        '// "servers": {\n{/* } */"servers": {// "x": 1\n}}',
        '{"a": 1 // , \n}',
        '{"a": 1, // , \n}',
    ],
)
def test_json_in_any_form_keeps_everything(text: str) -> None:
    added = add_to_json(text, "servers", "ollmsandbox", {"command": "x"})
    assert '"command": "x"' in added
    for comment in ('// "servers": {', "/* } */", '// "x": 1', "// ,"):
        assert added.count(comment) == text.count(comment)
    removed = remove_from_json(added, "servers", "ollmsandbox")
    assert '"command": "x"' not in removed
    # Nothing is left to remove.
    assert remove_from_json(removed, "servers", "ollmsandbox") == removed


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "{", '{"a" 1}', '{"a": 1 "b": 2}', "{'a': 1}", '{"servers": []}', "\ufeff{}"),
        *("{} {}", '{"a": ' * 100_000, '{"a": 1, "a": 2}'),
    ],
    ids=range(10),
)
def test_json_that_is_not_understood_is_left_alone(text: str) -> None:
    with pytest.raises(SettingsError):
        add_to_json(text, "servers", "ollmsandbox", {"command": "x"})


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("zed", '{"context_servers": "none"}'),
        ("codex", 'mcp_servers = {other = {command = "npx"}}\n'),
        ("codex", "model = \n"),
        ("codex", f"a = {'[' * 5000}{']' * 5000}\n"),
    ],
    ids=range(4),
)
def test_a_file_that_cannot_be_changed_safely_is_left_with_lines_to_paste(
    person: Person, client: str, text: str
) -> None:
    file = file_of(person, client, "user")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    done = person.cli("mcp", "install", client)
    assert done.returncode != 0 and file.read_text() == text
    assert FORMATS[client].section in done.stderr and "mcp" in done.stderr


def test_the_user_can_keep_settings_elsewhere(person: Person) -> None:
    real = person.home / "dotfiles/claude.json"
    real.parent.mkdir()
    real.write_text("{}\n")
    (person.home / ".claude.json").symlink_to(real)
    assert person.cli("mcp", "install", "claude").returncode == 0
    assert (person.home / ".claude.json").is_symlink() and "ollmsandbox" in real.read_text()


@pytest.mark.parametrize("name", [".cursor", ".cursor/mcp.json"])
def test_a_link_in_the_project_is_not_followed(person: Person, name: str) -> None:
    """A command may have made it, to have us write elsewhere."""
    other = person.home / "other"
    other.mkdir()
    (other / "mcp.json").write_text("{}\n")
    link = person.project / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(other if name == ".cursor" else other / "mcp.json")
    done = person.cli("mcp", "install", "cursor", "--project")
    assert done.returncode != 0 and "link" in done.stderr
    assert (other / "mcp.json").read_text() == "{}\n"


def test_a_pipe_is_not_waited_for(person: Person) -> None:
    os.mkfifo(person.project / ".mcp.json")
    done = person.cli("mcp", "install", "claude", "--project")
    assert done.returncode != 0 and "is not a file" in done.stderr


@pytest.mark.parametrize(("scope", "is_told"), [("project", True), ("user", False)])
def test_a_project_s_agent_needs_the_program_on_the_path(
    person: Person, scope: str, is_told: bool
) -> None:
    programs = person.home / "programs"
    programs.mkdir()
    (programs / "ollmsandbox").symlink_to("/bin/true")
    path = person.environ["PATH"]
    for folder, told in ((None, is_told), (programs, False)):
        person.environ["PATH"] = f"{folder}:{path}" if folder else path
        done = person.cli("mcp", "install", "claude", f"--{scope}")
        assert ("ollmsandbox is not on your PATH" in done.stdout) is told, done
        assert person.cli("mcp", "uninstall", "claude", f"--{scope}").returncode == 0


def test_an_unknown_agent_is_an_error_that_lists_the_known_ones(person: Person) -> None:
    done = person.cli("mcp", "install", "emacs")
    assert done.returncode != 0 and "claude, codex" in done.stderr
