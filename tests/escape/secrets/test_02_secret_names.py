# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to read secrets that real tools keep in variables and in files of the home folder."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.bubble import with_profile
from support.escape.attack import folder_elsewhere
from support.escape.reading import SECRET, put_secret, read_all
from support.person import Person
from support.profile import load

from ollmsandbox.sandbox.profile.file import read_profile

# --- variables -----------------------------------------------------------------------------------

NAMES = [
    "JWT", "AUTH_JWT", "SUPABASE_JWT", "GOOGLE_CREDS", "DB_CREDS", "GCP_CREDS_JSON",
    "AZURE_CREDS", "REGISTRY_CRED", "DATADOG_APPKEY", "DD_APP_KEY", "ALGOLIA_ADMINKEY",
    "STRIPEKEY", "ENCRYPTIONKEY", "MASTERKEY", "SSHKEY", "DEPLOYKEY", "LICENSEKEY",
    "SIGNINGKEY", "ANSIBLE_VAULT_KEYFILE", "ANDROID_KEYSTORE_BASE64", "AWS_KEY_PROD",
    "OPENAI_KEY2", "MAPBOX_KEYS", "GPG_SIGNING_KEYDATA", "WALLET_MNEMONIC",
    "SEEDPHRASE", "PWORD", "MYDBPW", "SSH_PRIV", "ED25519_PRIVATE", "HTTPAUTH_BASIC", "FERNET",
    "MY_JWE",
    "SEED_PHRASE_BACKUP", "AZURE_STORAGE_SAS", "BLOB_SAS_URL", "SASTOKEN", "SESSION_COOKIE",
    "COOKIES", "COOKIEJAR", "JENKINS_COOKIE", "PHPSESSID", "JSESSIONID", "CSRF_STATE",
    "ROOT_PASSW", "DB_PASSWORT", "PASSWORT", "MYSQL_ROOT_PASSWD", "DBPWD", "ORACLE_PWD",
    "USERPWD", "KEYCHAIN_PASSCODE", "SMTP_PASS_FILE", "LDAP_BIND_PW", "GITHUB_OAUTH",
    "OAUTH2_BOT", "HTTP_AUTHORIZATION", "AUTH_BASIC", "BEARER_FOR_API", "TWINE_AUTH", "PAT",
    "ADO_PAT_FULL", "YUBIKEY_PIN", "LOGIN_OTP", "TOTP_SHARED", "LND_MACAROON", "PASSWORD_SALT",
    "HMAC_SHARED", "WIFI_PSK", "APPLE_CERT_P12", "TLS_PEM", "ID_RSA_CONTENT", "SENTRY_DSN",
    "DSN", "MSSQL_CONNSTR", "REDIS_CONN_STR", "MONGO_DATABASE_URI", "KUBE_CONFIG_DATA",
    "NPM_TOKENS", "TKN_CI", "SLACK_WEBHOOK_URL",
]  # fmt: skip
# What builds, shells and people need.
NEEDED = [
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "LANGUAGE", "TZ", "TERM", "SHELL", "EDITOR",
    "PWD", "SHLVL", "JAVA_HOME", "CARGO_HOME", "GOPATH", "GOPRIVATE", "GOFLAGS", "NODE_OPTIONS",
    "NODE_ENV", "SSH_TTY", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_DIRS",
    "XDG_CURRENT_DESKTOP", "KEYBOARD", "KEYBOARD_LAYOUT", "PYTHONPATH", "PYTHONHASHSEED",
    "VIRTUAL_ENV", "CONDA_PREFIX", "RUSTFLAGS", "RUSTUP_HOME", "CC", "CFLAGS", "LDFLAGS",
    "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "MAKEFLAGS", "MAVEN_OPTS", "GRADLE_OPTS",
    "npm_config_registry", "PIP_INDEX_URL", "UV_CACHE_DIR", "http_proxy", "no_proxy",
    "SSL_CERT_FILE", "GIT_AUTHOR_NAME", "GIT_COMMITTER_EMAIL", "GEM_HOME", "BUNDLE_PATH",
    "DOTNET_ROOT", "TOKENIZERS_PARALLELISM", "CI", "SOURCE_DATE_EPOCH", "DEBIAN_FRONTEND",
    "LS_COLORS", "NVM_DIR", "PYENV_ROOT", "ANDROID_HOME", "HF_HOME",
]  # fmt: skip
# By chance, like a secret; not needed with the network.
BY_CHANCE = [
    "MONKEY", "SPIDERMONKEY", "HOTKEYS", "HOTKEY", "TURKEY", "COMPASS", "TOKENIZER",
    "PASSENGER", "KEYWORDS",
]  # fmt: skip


@pytest.mark.ordinary
@pytest.mark.parametrize("network", [False, True])
def test_names_of_secrets(network: bool) -> None:
    profile = read_profile("standard", Path("/nowhere"))
    kept = profile.environment(dict.fromkeys([*NAMES, *NEEDED, *BY_CHANCE], "x"), network=network)
    assert [name for name in NAMES if name in kept] == []
    assert [name for name in NEEDED if name not in kept] == []
    assert [name for name in BY_CHANCE if name in kept] == ([] if network else BY_CHANCE)


def variables(person: Person, **options: object) -> dict[str, str]:
    show = ["/usr/bin/python3", "-c", "import os; print(ascii(dict(os.environ)))"]
    found: dict[str, str] = ast.literal_eval(person.run(show, **options).stdout.text)
    return found


def test_a_command_with_the_network_gets_no_other_variables(person: Person) -> None:
    given = {"CUSTOMER": SECRET, "MY_OWN": SECRET, "NICKNAME": SECRET, "MY_SDK": str(person.home)}
    person.environ |= {**given, "GOFLAGS": "-mod=mod", "MONKEY": f"ghp_{'a1B2c3' * 6}"}
    without, with_it = variables(person), variables(person, network=True)
    # The name is harmless, but the value is not.
    assert "MONKEY" not in without
    assert {name: without.get(name) for name in given} == given
    assert not given.keys() & with_it.keys()
    assert with_it["GOFLAGS"] == "-mod=mod"
    # Unless the user's profile says otherwise.
    with_profile(
        person,
        "environment: {with_network: ['MY_O*'], keep: [NICKNAME]}\nhome_with_network: [$MY_SDK]\n",
    )
    allowed = variables(person, network=True, profile="mine")
    assert given.keys() & allowed.keys() == {"MY_OWN", "NICKNAME", "MY_SDK"}


# --- places --------------------------------------------------------------------------------------

PLACES = [
    ".acme.sh/account.key", ".config/letsencrypt/key.pem", ".lego/accounts/key",
    ".sigstore/root.json", ".cosign/cosign.key", ".nsc/nats/creds",
    ".config/kdeconnect/privateKey.pem", ".config/chezmoi/key.txt", ".config/bws/config",
    ".local/share/authenticator/accounts", ".config/otpclient/db.enc", ".awsvault/keys/x",
    ".saml2aws", ".granted/config", ".okta/okta.yaml", ".aws-sso/config.yaml",
    ".rancher/cli2.json", ".config/ocm/ocm.json", ".passwd-s3fs",
    ".config/exoscale/exoscale.toml", ".cdsapirc", ".clasprc.json",
    ".config/earthengine/credentials", ".config/copr", ".wakatime.cfg",
    ".config/exercism/user.json", ".transifexrc", ".config/dvc/config", "clearml.conf",
    ".lightning/credentials.json", ".runpod/config.toml", ".actrc", ".python-gitlab.cfg",
    ".openai/key", ".config/anthropic/key", ".config/fabric/.env", ".config/mcp/servers.json",
    ".config/pgcli/history", ".usqlpass", ".dbtools/connections",
    ".config/obs-studio/basic/profiles/x/service.json", ".config/spotifyd/spotifyd.conf",
    ".config/legendary/user.json", ".local/share/Steam/config/loginusers.vdf",
    ".minecraft/launcher_accounts.json", ".twurlrc", ".config/obsidian/x", ".taskrc",
    ".local/state/warp-terminal/x", ".cache/dagshub/tokens",
]  # fmt: skip
# What tools leave in the folders that all of them share.
TRACES = [
    ".cache/gh/log", ".cache/aws/x", ".cache/some-browser/cookies", ".cache/telegram/x",
    ".cache/notes", ".cache/keyring-x", ".local/state/gh/x", ".local/state/wireplumber/x",
    ".local/state/some-chat/log", ".cache/.hidden", ".cache/token",
]  # fmt: skip


def test_reading_secrets_of_real_tools(person: Person) -> None:
    for name in (*PLACES, *TRACES):
        put_secret(person.home / name)
    readable = f"cd ~; grep -rl '{SECRET}' . 2>/dev/null | sort; true"
    outside = person.run_outside(readable).stdout.split()
    assert {f"./{name}" for name in (*PLACES, *TRACES)} <= set(outside)
    seen = person.run(readable).stdout.text.split()
    assert [name for name in PLACES if f"./{name}" in seen] == []
    assert person.run(readable, network=True).stdout.text == ""


def test_a_command_with_the_network_has_the_caches_of_tools(person: Person) -> None:
    for name in (".cache/pip/x", ".cache/uv/x", ".cache/go-build/x", ".local/state/pnpm/x"):
        (person.home / name).parent.mkdir(parents=True)
        (person.home / name).write_text("seen\n")
    put_secret(person.home / ".cache/notes/x")
    read = "cat ~/.cache/*/x ~/.local/state/*/x; echo new >~/.cache/notes; cat ~/.cache/notes"
    assert person.run(read, network=True).stdout.text == "seen\n" * 4 + "new\n"
    # What it wrote is there for the next one.
    assert person.run("cat ~/.cache/notes", network=True).stdout.text == "new\n"


def test_a_cache_that_the_profile_names_is_seen_with_the_network(person: Person) -> None:
    for name in ("mine", "also", "third", "other"):
        put_secret(person.home / f".cache/{name}/x")
    with_profile(
        person,
        "names_with_network: {~/.cache: [mine]}\nshow: [~/.cache/also/x]\n"
        "home_with_network: [~/.cache/third]\n",
    )
    read = "cd ~/.cache; echo */x"
    names = person.run(read, network=True, profile="mine").stdout.text.split()
    assert set(names) == {"mine/x", "also/x", "third/x"}


def test_a_cache_elsewhere_shows_no_more_with_the_network(person: Person) -> None:
    with folder_elsewhere(person.home / "elsewhere") as folder:
        for name in ("pip", "notes"):
            put_secret(folder / f"cache/{name}/x")
        person.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        names = person.run(f"cd {folder}/cache; echo */x", network=True).stdout.text.split()
        assert names == ["pip/x"]
        assert SECRET in person.run_outside(read_all(folder)).stdout


def test_a_project_in_such_a_folder_is_seen_with_the_network(person: Person) -> None:
    project = person.home / ".cache/my-work/project"
    project.mkdir(parents=True)
    put_secret(project / "file")
    put_secret(person.home / ".cache/my-work/beside")
    result = person.run("cat file; ls ..", network=True, project=project)
    assert SECRET in result.stdout.text


@pytest.mark.ordinary
def test_mistakes_in_a_profile_are_reported(tmp_path: Path) -> None:
    for text, wrong in (
        ("names_with_network: {cache: [x]}", "'cache' is not a folder"),
        ("names_with_network: {~/.cache: [a/b]}", "'a/b' is not the name of a file"),
    ):
        with pytest.raises(Exception, match=wrong):
            load(tmp_path, text)
