# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sandbox refused a command is reported, as far as the command's output shows it."""

from __future__ import annotations

import os
import shlex

import pytest
from support.bubble import with_profile
from support.person import Person
from support.tools import Agent

pytestmark = pytest.mark.ordinary

NETWORK = "The command had no network access."
READ_ONLY = "most folders are read-only for commands."

_CONNECT = "python3 -c 'import socket; socket.create_connection((\"{host}\", 9))'"


def remarks(person: Person, command: str, **options: object) -> str:
    return "\n".join(person.run(command, **options).remarks)


@pytest.mark.parametrize(
    "command",
    [
        # By name, by number, and where the shell hides the status.
        _CONNECT.format(host="host.invalid"),
        _CONNECT.format(host="192.0.2.1"),
        f"{_CONNECT.format(host='host.invalid')} 2>&1 | tail -n 1",
        "git clone https://host.invalid/x",
        # Of programs that may not be installed here.
        "echo 'npm error reason: getaddrinfo EAI_AGAIN registry.example.org'; false",
        "echo \"wget: bad address 'example.org'\" >&2; false",
        "echo 'ssh: Could not resolve hostname example.org' >&2; false",
    ],
)
def test_a_command_that_needs_the_network_gets_to_know_that_it_is_off(
    shared_person: Person, command: str
) -> None:
    assert NETWORK in remarks(shared_person, command)


@pytest.mark.parametrize(
    "command",
    [
        *("true", "false", "echo network", _CONNECT.format(host="127.0.0.1")),
        # Those that succeeded were refused nothing.
        *("touch /usr/x; true", "cat ~/.ssh/config || echo none"),
        "echo 'could not resolve host'; seq 1000",
    ],
)
def test_nothing_is_mentioned_otherwise(shared_person: Person, command: str) -> None:
    assert remarks(shared_person, command) == ""


def test_the_network_is_not_mentioned_where_it_is_on(shared_person: Person) -> None:
    command = _CONNECT.format(host="host.invalid")
    assert remarks(shared_person, command, network=True) == ""


@pytest.mark.parametrize(
    "command", ["touch /usr/x", "touch ~/x", "mkdir /x", 'python3 -c \'open("/etc/x", "w")\'']
)
def test_a_read_only_folder_is_explained(shared_person: Person, command: str) -> None:
    assert READ_ONLY in remarks(shared_person, command)


INTO_LINK = (
    *("touch link/a", "echo x > sub/../link/a", 'python3 -c \'open("link/sub/a b", "w")\''),
    "mkdir $PWD/link/new",
    # Programs that do not print the path by which they came there.
    *("cd link && touch a", "(cd 'link';echo x > sub/a)", "git init link"),
)


def test_a_link_that_leads_to_a_read_only_folder_is_named(person: Person) -> None:
    other = person.home / "other folder"
    (other / "sub").mkdir(parents=True)
    (person.project / "sub").mkdir()
    (person.project / "link").symlink_to(other)
    said = f"ollmsandbox: {person.project}/link leads to {other}, outside the project"
    for command in INTO_LINK:
        done = person.cli("run", "-c", command)
        assert done.stderr.splitlines()[-1].startswith(said), command
    assert person.cli("roots", "add", str(other)).returncode == 0
    for command in INTO_LINK:
        assert person.cli("run", "-c", command).returncode == 0, command


def test_a_link_that_is_not_in_the_way_is_not_named(person: Person) -> None:
    other = person.home / "other"
    other.mkdir()
    (other / "a").touch()
    (person.project / "link").symlink_to(other)
    (person.project / "sub").mkdir()
    # A file cannot be opened to commands.
    (person.project / "sub/file").symlink_to(other / "a")
    shell = "ls link; /bin/sh -c 'cd /etc && echo x > /etc/x'"
    for command in ("cp link/a /etc", shell, "echo x > sub/file"):
        said = remarks(person, command)
        assert READ_ONLY in said, command
        assert "leads to" not in said, command


def test_only_hidden_names_are_called_hidden_whether_they_exist_or_not(person: Person) -> None:
    missing = remarks(person, "cat ~/.ssh/config")
    assert missing.startswith(f"{person.home}/.ssh is hidden")
    (person.home / ".ssh").mkdir()
    assert remarks(person, "cat ~/.ssh/config") == missing
    (person.home / ".ssh/config").touch()
    assert remarks(person, "cat ~/.ssh/config") == missing
    for command in ("cat ~/.sshx", "cat ~/.ssh.old/x", "echo ~/.ssh/config"):
        assert remarks(person, command) == ""


def test_a_file_that_is_not_visible_with_the_network(person: Person) -> None:
    (person.home / "letter").write_text("x")
    for name in ("letter", "missing"):
        result = person.run(f"cat ~/{name}", network=True)
        [said] = [str(sentence) for sentence in result.refusals]
        assert "With network access" in said
    assert person.run("cat missing", network=True).refusals == ()


def test_a_hidden_file_of_the_project_is_named(person: Person) -> None:
    with_profile(person, f"masks: [{person.project}/secret]", "standard")
    (person.project / "secret").mkdir()
    said = remarks(person, "cat $PWD/secret/x")
    assert said.startswith(f"{person.project}/secret is hidden")


def test_a_file_of_another_user_or_of_another_group(person: Person) -> None:
    for name, is_own in (("own", True), ("a file", False)):
        file = person.project / name
        if is_own or os.getuid() == 0:
            file.touch()
            os.chown(file, os.getuid() if is_own else 64321, -1)
        else:
            file.symlink_to("/etc/passwd")
        # As the kernel says it where the file has no number inside.
        says = "sed: couldn't open file {}: Value too large for defined data type"
        command = shlex.join(["echo", says.format(shlex.quote(name))])
        said = remarks(person, f"{command}; false")
        if is_own:
            assert "Change their group with chgrp." in said
        else:
            assert said.startswith("a file belongs to another user, and")
            assert said.endswith(": cp 'a file' 'a file'.new && mv 'a file'.new 'a file'")


def test_the_model_and_the_command_line_say_the_same(agent: Agent) -> None:
    command = "touch /usr/x"
    sentence = agent.run(command).text.splitlines()[-1]
    assert READ_ONLY in sentence
    done = agent.person.cli("run", "-c", command)
    assert done.stderr.splitlines()[-1] == f"ollmsandbox: {sentence}"
    assert agent.person.cli_run(command)["notices"] == [sentence]
