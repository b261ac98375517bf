# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to read secrets from variables, the memory of processes and temporary files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.escape.attack import python
from support.escape.reading import SECRET, Read, put_secret
from support.person import Person, make_person

VARIABLES = [
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "NPM_TOKEN",
    "npm_config_token_value",
    "CI_JOB_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_API_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "openai_api_key",
    "OLLAMA_APIKEY",
    "HF_TOKEN",
    "DATABASE_URL",
    "STAGING_DATABASE_URL",
    "SENTRY_DSN",
    "PGPASSWORD",
    "MYSQL_PWD",
    "SSHPASS",
    "RESTIC_PASSWORD",
    "BORG_PASSPHRASE",
    "TF_VAR_admin_pass",
    "AZURE_DEVOPS_PAT",
    "AZURE_STORAGE_CONNECTION_STRING",
    "DOCKER_AUTH_CONFIG",
    "REDISCLI_AUTH",
    "BW_SESSION",
    "OP_SESSION_my",
    "VAULT_TOKEN",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "GIT_ASKPASS",
    "SUDO_ASKPASS",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "XAUTHORITY",
    "KUBE_PRIVATE_KEY_DATA",
    "LD_PRELOAD_SECRET",
]


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Read:
    secrets = {name: f"{SECRET} of {name}." for name in VARIABLES}
    person = make_person(tmp_path_factory.mktemp("variables"), secrets)
    attack = "env; cat /proc/self/environ /proc/[0-9]*/environ /proc/[0-9]*/cmdline"
    inside, outside = person.run(attack).stdout.text, person.run_outside("env").stdout
    return Read(dict.fromkeys(VARIABLES, inside), dict.fromkeys(VARIABLES, outside))


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_with_a_secret(variables: Read, name: str) -> None:
    assert "HOME=" in variables.inside[name]
    assert f"{SECRET} of {name}." not in variables.inside[name]
    assert f"{name}=" not in variables.inside[name]
    assert f"{name}={SECRET} of {name}.\n" in variables.outside[name]


EVERY_PROCESS = python("""
    secret = bytes(reversed(b'elpats yrettab esroh tcerroc'))
    print(os.listdir('/proc/1'))
    for pid in set(filter(str.isdigit, os.listdir('/proc'))) - {'1'}:
        for name in ('environ', 'cmdline'):
            with open(f'/proc/{pid}/{name}', 'rb') as file:
                print(pid, name, file.read())
        if pid == str(os.getpid()):
            continue
        for line in open(f'/proc/{pid}/maps'):
            start, end = (int(number, 16) for number in line.split()[0].split('-'))
            with open(f'/proc/{pid}/mem', 'rb', 0) as file:
                try:
                    file.seek(start)
                    content = file.read(end - start)
                except (OSError, OverflowError):
                    continue
                print(pid, line.split()[-1], secret in content)
    print('done')
    """)


@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_the_environment_and_memory_of_every_process_inside(person: Person, profile: str) -> None:
    person.environ["GITHUB_TOKEN"] = SECRET
    result = person.run(EVERY_PROCESS, profile=profile)
    assert result.stdout.text.endswith("done\n"), result.stderr.text
    assert result.stdout.text.startswith("[]\n")
    assert " environ b'" in result.stdout.text
    assert SECRET not in result.stdout.text
    assert not any(line.endswith(" True") for line in result.stdout.text.splitlines())


def test_the_environment_of_the_command_line(person: Person) -> None:
    environ = {**person.environ, "GITHUB_TOKEN": SECRET, "SSH_AUTH_SOCK": SECRET}
    done = person.cli("run", "-c", EVERY_PROCESS, env=environ)
    assert done.stdout.endswith("done\n"), done.stderr
    assert SECRET not in done.stdout
    assert not any(line.endswith(" True") for line in done.stdout.splitlines())


def test_the_environment_of_processes_outside(person: Person) -> None:
    with subprocess.Popen(["sleep", "60"], env={"PLAIN": SECRET}) as victim:
        try:
            attack = f"cat /proc/{victim.pid}/environ; cat /proc/[0-9]*/environ"
            assert SECRET not in person.run(attack).stdout.text
            assert SECRET in person.run_outside(attack).stdout
        finally:
            victim.kill()


def test_the_arguments_of_processes_outside(person: Person) -> None:
    argv = ["/usr/bin/python3", "-c", "import time; time.sleep(60)", SECRET]
    with subprocess.Popen(argv) as victim:
        try:
            attack = "cat /proc/[0-9]*/cmdline"
            assert SECRET not in person.run(attack).stdout.text
            assert SECRET in person.run_outside(attack).stdout
        finally:
            victim.kill()


def test_a_socket_named_in_the_environment_is_not_passed_on(person: Person) -> None:
    names = {
        "DISPLAY": ":0",
        "WAYLAND_DISPLAY": "wayland-0",
        "DOCKER_HOST": "unix:///run/docker.sock",
        "NOTIFY_SOCKET": "/run/systemd/notify",
        "TMUX": "/tmp/tmux-0/default,1,0",
        "NVIM": "/run/user/0/nvim.0",
        "SWAYSOCK": "/run/user/0/sway.sock",
    }
    person.environ.update(names)
    seen = {line.partition("=")[0] for line in person.run("env").stdout.text.splitlines()}
    assert not seen & set(names)


def test_temporary_files_of_other_programs(person: Person) -> None:
    folders = [f for f in ("/tmp", "/var/tmp", "/dev/shm") if os.path.isdir(f)]
    for folder in folders:
        file = Path(folder, f"secret-{os.getpid()}")
        try:
            put_secret(file)
            assert person.run(f"cat {file}").stdout.text == ""
            assert SECRET in person.run_outside(f"cat {file}").stdout
        finally:
            file.unlink()
