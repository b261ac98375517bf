# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to read secrets from variables, the memory of processes and temporary files."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest
from support.escape.attack import python
from support.escape.reading import SECRET, put_secret
from support.person import Person, make_person

VARIABLES = [
    "GITHUB_TOKEN", "GH_TOKEN", "NPM_TOKEN", "npm_config_token_value", "CI_JOB_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "openai_api_key", "OLLAMA_APIKEY",
    "HF_TOKEN", "DATABASE_URL", "STAGING_DATABASE_URL", "SENTRY_DSN", "PGPASSWORD", "MYSQL_PWD",
    "SSHPASS", "RESTIC_PASSWORD", "BORG_PASSPHRASE", "TF_VAR_admin_pass", "AZURE_DEVOPS_PAT",
    "AZURE_STORAGE_CONNECTION_STRING", "DOCKER_AUTH_CONFIG", "REDISCLI_AUTH", "BW_SESSION",
    "OP_SESSION_my", "VAULT_TOKEN", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO",
    "GIT_ASKPASS", "SUDO_ASKPASS", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XAUTHORITY",
    "KUBE_PRIVATE_KEY_DATA", "LD_PRELOAD_SECRET", "DB_PSWD", "GITHUB_OTP", "APP_CRED",
    "WIFI_PSK", "PSK", "JKS",
]  # fmt: skip


def test_variables_with_secrets(tmp_path: Path) -> None:
    secrets = {name: f"{SECRET} of {name}." for name in VARIABLES}
    person = make_person(tmp_path, secrets)
    attack = "env; cat /proc/self/environ /proc/[0-9]*/environ /proc/[0-9]*/cmdline"
    inside, outside = person.run(attack).stdout.text, person.run_outside("env").stdout
    assert "HOME=" in inside
    assert SECRET not in inside
    for name in VARIABLES:
        assert f"{name}=" not in inside, name
        assert f"{name}={SECRET} of {name}.\n" in outside, name


# In parts: what is one piece here is taken for a real secret by those who search repositories.
LONG = "a1B2c3D4e5F6g7H8i9J0" * 4
HEX = "0123456789abcdef" * 4
VALUES = {
    "GitHub": f"ghp_{LONG[:36]}",
    "GitHub's new tokens": f"github_pat_{LONG}",
    "a GitHub app": f"ghs_{LONG[:36]}",
    "GitLab": f"glpat-{LONG[:20]}",
    "OpenAI": f"sk-{LONG[:48]}",
    "OpenAI's projects": f"sk-proj-{LONG}",
    "Anthropic": f"sk-ant-api03-{LONG}",
    "Hugging Face": f"hf_{LONG[:34]}",
    "Groq": f"gsk_{LONG[:52]}",
    "Slack": f"xoxb-123456789012-{LONG[:24]}",
    "Slack's browser": f"xoxc-123456789012-{LONG[:24]}",
    "AWS": "AKIA" + "ABCDEFGH01234567",
    "AWS for a session": "ASIA" + "ABCDEFGH01234567",
    "Google": f"AIza{LONG[:35]}",
    "Google OAuth": f"ya29.{LONG}",
    "npm": f"npm_{LONG[:36]}",
    "PyPI": f"pypi-AgEIcHlwaS5vcmc{LONG}",
    "RubyGems": f"rubygems_{HEX[:48]}",
    "Docker": f"dckr_pat_{LONG[:27]}",
    "DigitalOcean": f"dop_v1_{HEX}",
    "Databricks": f"dapi{HEX[:32]}",
    "Vault": f"hvs.{LONG[:24]}",
    "Terraform": f"{LONG[:14]}.atlasv1.{LONG[:60]}",
    "Stripe": f"sk_live_{LONG[:24]}",
    "SendGrid": f"SG.{LONG[:22]}.{LONG[:43]}",
    "Shopify": f"shpat_{HEX[:32]}",
    "Atlassian": f"ATATT3xFfGF0{LONG}",
    "Linear": f"lin_api_{LONG[:40]}",
    "Sentry": f"sntrys_{LONG}",
    "Telegram": f"123456789:AA{LONG[:33]}",
    "a JSON Web Token": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{LONG[:43]}",
    "a key": "-----BEGIN OPENSSH " + f"PRIVATE KEY-----\n{LONG}\n",
    "a key of OpenPGP": "-----BEGIN PGP " + f"PRIVATE KEY BLOCK-----\n{LONG}\n",
    "a key in base64": f"LS0tLS1CRUdJTi{LONG}",
    "a key of age": f"AGE-SECRET-KEY-1{LONG[:58].upper()}",
    "a JSON document": '{"user": "me", "password": "hunter22"}',
    "a service account": '{"type": "service_account", "private_key": "xyz"}',
    "settings": "host=db.example user=me password=hunter22 dbname=x",
    "settings with a short name": '{"user": "me", "pass": "hunter22"}',
    "settings in YAML": "user: me, pass: hunter22",
    "a password for openssl": "openssl rsa -passin pass:hunter22",
    "a password for ssh": "sshpass -p hunter22 ssh host.example",
    "a password for MySQL": "mysql -u root -phunter22",
    "the words of .netrc": "machine host.example login me password hunter22",
    "a user for curl without a blank": "curl -ume:hunter22 https://host.example",
    "settings of ADO": "Server=db;User Id=me;Password=hunter22;",
    "an Azure account": f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={LONG}==",
    "an Azure bus": f"Endpoint=sb://x.example/;SharedAccessKeyName=n;SharedAccessKey={LONG[:43]}=",
    "Java's settings": "-Xmx1g -Djavax.net.ssl.keyStorePassword=hunter22",
    "a login": "postgres://me:hunter22@db.example/x",
    "a login without a name": "redis://:hunter22@cache.example:6379/0",
    "a login without a scheme": "me:hunter22@tcp(db.example:3306)/x",
    "a login without a path": "me:hunter22@db.example",
    "a token as a user": f"https://{LONG[:40]}@git.example/x.git",
    "Sentry's address": f"https://{HEX[:32]}@o1.ingest.sentry.io/2",
    "a list with a login": "https://one.example,https://me:hunter22@two.example",
    "a header": f"Authorization: Bearer {LONG[:40]}",
    "a basic header": "Basic bWU6aHVudGVyMjI=",
    "Slack's webhook": "https://hooks.slack.com/services/" + f"T00000000/B00000000/{LONG[:24]}",
    "Discord's webhook": f"https://discord.com/api/webhooks/123456789012345678/{LONG[:68]}",
    "Teams' webhook": f"https://x.webhook.office.com/webhookb2/{HEX[:36]}/IncomingWebhook/{HEX}",
    "a Telegram bot": f"https://api.telegram.org/bot123456789:{LONG[:35]}/sendMessage",
    "a signed address of S3": f"https://b.s3.example/k?X-Amz-Expires=60&X-Amz-Signature={HEX}",
    "a signed address of Azure": f"https://a.blob.example/c?sv=2024-01-01&sig={LONG[:43]}%3D",
    "an address with a token": f"https://api.example/v1?access_token={LONG[:20]}",
    "an option": f"--url https://x.example --token {LONG[:12]}",
    "an option of one dash": "-Dx=1 -password hunter22",
    "an option in quotes": "run --api-key 'abcdef123'",
    "an option of a program": "/usr/bin/curl --oauth2-token abcdef123",
    "an authorization": f"Authorization: {LONG[:12]}",
    "a header in quotes": f"-H 'Authorization: token {LONG[:12]}'",
    "a header of another name": "X-Api-Key: abcdef123",
    "GitLab's header": "PRIVATE-TOKEN: abcdef123",
    "a cookie": "Cookie: sid=abcdef123",
    "a login for curl": "-s -u me:hunter22 -L",
    "a login for curl, longer": "--user=me:hunter22",
    "an address": "--index-url https://me:hunter22@pypi.example/simple",
    "AWS's secret": "xK9/vQ2mT7+pLbW4sYd8" + "HnJ6cF3zR1aE5uGoIq0w",
    "random letters": "Zk3" + "Qp9vT2mXr7LbW4sYd8HnJ6cF",
    "random, in base64": "q83vEjRWeJCr" + "ze8SNFZ4kA1bC2dE3f==",
}


def test_a_variable_whose_value_is_a_secret(person: Person) -> None:
    names = {f"PLAIN_{number}": value for number, value in enumerate(VALUES.values())}
    attack = "env; cat /proc/[0-9]*/environ"
    for environ, expected in (({}, []), ({"keep": '["PLAIN_*"]'}, list(names))):
        person.environ.update(names)
        for key, value in environ.items():
            profile = person.paths.profiles / "standard.yaml"
            profile.parent.mkdir(parents=True)
            profile.write_text(f"environment: {{{key}: {value}}}\n")
        said = person.run(attack).stdout.text.splitlines()
        assert [name for name in names if any(f"{name}=" in line for line in said)] == expected


# What programs, shells, desktops and CI systems set, and commands need.
HARMLESS = {
    "PATH": "/home/me/sk-toolbox-0123456789abcdef/bin:/opt/python@3.12/bin:/usr/local/bin:/usr/bin",
    "LANG": "en_GB.UTF-8",
    "LS_COLORS": "rs=0:di=01;34:ln=01;36:*.tar=01;31:*.key=01;31:*.pem=00;36:*.token=01",
    "LESSOPEN": "| /usr/bin/lesspipe %s",
    "PS1": r"\[\e]0;\u@\h: \w\a\]${debian_chroot:+($debian_chroot)}\u@\h:\w\$ ",
    "PROMPT_COMMAND": 'printf "\\033]0;%s@%s:%s" "${USER}" "${HOSTNAME%%.*}" "${PWD/#$HOME/~}"',
    "SHELL_FUNCTION": '() {  local token=$1 password="$2";  curl -H "X-Token: $token" "$3"\n}',
    "XMODIFIERS": "@im=ibus",
    "XDG_DATA_DIRS": "/usr/local/share:/usr/share:/var/lib/snapd/desktop",
    "XDG_CURRENT_DESKTOP": "ubuntu:GNOME",
    "EDITOR": "vim",
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "http_proxy": "http://proxy.example:3128",
    "no_proxy": "localhost,127.0.0.1,.example",
    "DEBUGINFOD_URLS": "https://debuginfod.ubuntu.com https://debuginfod.example",
    "PIP_INDEX_URL": "https://pypi.example/simple/",
    "GOPROXY": "https://proxy.golang.org,direct",
    "GOFLAGS": "-mod=mod -tags=integration",
    "GOPRIVATE": "git.example/*",
    "RUSTFLAGS": "-C target-cpu=native -C link-arg=-fuse-ld=lld",
    "CFLAGS": "-O2 -g -fstack-protector-strong -DKEY_LENGTH=32 -DTOKEN_MAX=80",
    "MAVEN_OPTS": "-Xmx2g -Djava.awt.headless=true",
    "NODE_OPTIONS": "--max-old-space-size=4096",
    "npm_config_registry": "https://registry.example/",
    "npm_package_dependencies_react": "npm:react@18.2.0",
    "npm_config_user_agent": "npm/10.2.4 node/v20.11.0 linux x64 workspaces/false",
    "IMAGE": f"python:3.12@sha256:{HEX}",
    "REPOSITORY": "git@github.com:someone/some-long-project-name.git",
    "REMOTE": "ssh://git@github.com/someone/project.git",
    "AZURE_REPOSITORY": "https://company@dev.azure.com/company/project/_git/x",
    "CONTACT": "mailto:me@example.org",
    "GIT_AUTHOR_EMAIL": "me.and.my.longer.name@example.org",
    "GIT_AUTHOR_NAME": "Me: Myself",
    "GITHUB_SHA": HEX[:40],
    "GITHUB_REF": "refs/heads/feature/token-refresh",
    "GITHUB_RUN_ID": "12345678901",
    "CI_COMMIT_MESSAGE": "auth: rotate the token when the password changes, see ?key and hooks/",
    "BUILD_ID": "5f2d6c1e-8f4b-4e0f-9a55-2f1f6c0a7b11",
    "SOURCE_DATE_EPOCH": "1700000000",
    "PYTEST_ADDOPTS": "-q --maxfail=1 -k 'not sk-learn and basic authentication'",
    "JAVA_HOME": "/usr/lib/jvm/java-21-openjdk-amd64",
    "CMAKE_PREFIX_PATH": "/opt/qt;/opt/boost",
    "WEBSITE": "https://example.org/docs/webhooks?page=2",
    "DATABASE": "postgres://localhost:5432/test",
    "REDIS_URL": "redis://localhost:6379/0",
    "KEYBOARD_LAYOUT": "de",
    "LIBGL_DRIVERS": "pk-fallback",
    "NIX_PATH": "nixpkgs=/nix/store/0123456789abcdfghijklmnpqrsvwxyz-source",
    "VERSION": "asia-1.2.3.4567890abcdef.at.gh_pages",
    "PLAIN_0": "--max-token 4096 --key 12",
    "PLAIN_1": "--password --quiet --no-token --secret -v",
    "PLAIN_2": "-u 1000:1000 --user 0:0",
    "PLAIN_3": "python -u script.py",
    "PLAIN_4": "--token $TOKEN --password ${PASSWORD}",
    "PLAIN_5": "MyVeryLongProjectName2024Release",
    "PLAIN_6": "LinuxDesktopEnvironmentForEverybody",
    "PLAIN_7": "x86_64-unknown-linux-gnu",
    "PLAIN_8": "0123456789abcdef" * 2,
    "PLAIN_9": "authorization: rotate the cookie when the token changes",
    "PLAIN_10": "/opt/sk-toolbox-0123456789abcdef/bin:/usr/bin",
    "PLAIN_11": "<Ctrl><Shift>K",
}


def test_harmless_variables_are_passed_on(person: Person) -> None:
    person.environ.update(HARMLESS)
    # Without a shell, which changes some itself.
    show = ["/usr/bin/python3", "-c", "import os; print(ascii(dict(os.environ)))"]
    found = ast.literal_eval(person.run(show).stdout.text)
    assert {name: found.get(name) for name in HARMLESS} == HARMLESS


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


def test_the_environment_and_the_arguments_of_processes_outside(person: Person) -> None:
    argv = ["/usr/bin/python3", "-c", "import time; time.sleep(60)", f"{SECRET} 1"]
    with subprocess.Popen(argv, env={"PLAIN": f"{SECRET} 2"}) as victim:
        try:
            attack = f"cat /proc/{victim.pid}/environ; cat /proc/[0-9]*/environ /proc/*/cmdline"
            assert SECRET not in person.run(attack).stdout.text
            outside = person.run_outside(attack).stdout
            assert f"{SECRET} 1" in outside and f"{SECRET} 2" in outside
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
    files = [Path(f, f"secret-{os.getpid()}") for f in ("/tmp", "/var/tmp", "/dev/shm")]
    attack = f"cat {' '.join(map(str, files))}"
    try:
        for file in files:
            put_secret(file)
        assert person.run(attack).stdout.text == ""
        assert person.run_outside(attack).stdout.count(SECRET) == len(files)
    finally:
        for file in files:
            file.unlink()
