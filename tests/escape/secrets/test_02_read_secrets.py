# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to read keys, tokens and histories."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest
from support.escape.attack import (
    IS_ROOT,
    one_by_one,
    python,
    run_while,
    said_by_each,
)
from support.escape.reading import SECRET, put_secret, read_all, read_each
from support.person import Person, cli_argv

from ollmsandbox.errors import ProjectError
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.sandbox.plan.caches import find_caches
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.probe.probe import Capabilities
from ollmsandbox.sandbox.profile.file import read_profile
from ollmsandbox.sandbox.profile.profile import Profile

PROFILE = read_profile("standard", Path("/nonexistent"))
MASKS = PROFILE.masks
HOME_MASKS = [mask[2:] for mask in MASKS if mask.startswith("~/")]
SYSTEM_MASKS = [mask for mask in MASKS if mask.startswith("/") and "*" not in mask]


@pytest.fixture(params=[None, OverlayMethod.NONE], ids=["layers", "pieces"])
def found(person: Person, request: pytest.FixtureRequest) -> Capabilities:
    """The machine's capabilities, and lesser ones: both must hide the same."""
    here = person.capabilities()
    return here if request.param is None else here._replace(overlay=request.param)


# Names that hold secrets: all in one test, because hundreds of processes take long to start.


def test_reading(person: Person) -> None:
    attacks = {}
    for name in HOME_MASKS:
        put_secret(person.home / name / "file")
        file, around = shlex.quote(f"{name}/file"), shlex.quote(os.path.dirname(name))
        # The shell itself reads and lists.
        attacks[name] = f"read -r line <~/{file}; echo $line; cd ~/{around} && printf '%s\\n' .* *"
    read = read_each(person, attacks)
    for name in HOME_MASKS:
        assert SECRET not in read.inside[name], name
        assert os.path.basename(name) not in read.inside[name].splitlines(), name
        said = read.outside[name].splitlines()
        assert {SECRET, os.path.basename(name)} <= set(said), name


def test_reading_what_a_variable_moved(person: Person) -> None:
    attacks = {}
    for number, variable in enumerate(PROFILE.mask_variables):
        first, second, third = (person.home / f"{number}" / name for name in ("a", "b c", "d"))
        for file in (first / "file", second, third):
            put_secret(file)
        name = variable.lower() if variable.startswith("NPM_") else variable
        person.environ[name] = f"{first}:{second}:~/{number}/d"
        attacks[variable] = f"cat {first}/file '{second}' {third}; ls {first.parent}"
    for variable, usual in PROFILE.moved_folders:
        folder = person.home / "moved" / variable
        person.environ[variable] = str(folder)
        inner = [mask[len(usual) + 1 :] for mask in MASKS if mask.startswith(f"{usual}/")]
        for name in inner:
            put_secret(folder / name / "file")
        files = shlex.join(f"{folder}/{name}/file" for name in inner)
        attacks[variable] = f"cat {files}"
    read = read_each(person, attacks)
    assert {variable: text for variable, text in read.inside.items() if text} == {}
    assert [variable for variable, text in read.outside.items() if SECRET not in text] == []


@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_searching_the_whole_home_folder(person: Person, found: Capabilities, profile: str) -> None:
    # Files this time; a name may be either.
    for name in HOME_MASKS:
        put_secret(person.home / name)
    (person.home / "readme").write_text("not a secret\n")
    attack = read_all("~").replace("'~'", "~")
    assert person.run(attack, capabilities=found, profile=profile).stdout.text == "not a secret\n"
    assert person.run_outside(attack).stdout.count(SECRET) == len(HOME_MASKS)


@pytest.mark.parametrize("there", [True, False], ids=["there", "not there"])
def test_listing_what_is_hidden(person: Person, found: Capabilities, there: bool) -> None:
    folders = (".", ".config", ".cargo", ".local/share", ".var")
    for folder in folders if there else ():
        (person.home / folder).mkdir(parents=True, exist_ok=True)
    attacks = {folder: f"ls -a ~/{folder}" for folder in folders}
    for folder, listed in read_each(person, attacks, capabilities=found).inside.items():
        hidden = {os.path.basename(n) for n in HOME_MASKS if (os.path.dirname(n) or ".") == folder}
        assert hidden
        assert not hidden & set(listed.splitlines()), folder


ROUTES = [
    "../.ssh/id_rsa",
    "/proc/self/root{home}/.ssh/id_rsa",
    "/proc/1/root{home}/.ssh/id_rsa",
    "/proc/self/cwd/../.ssh/id_rsa",
    "/proc/1/cwd/../.ssh/id_rsa",
    "link/id_rsa",
    "{home}/./.ssh/../.ssh//id_rsa",
    "/dev/fd/9/.ssh/id_rsa",
]


def test_reading_by_another_route(person: Person, found: Capabilities) -> None:
    put_secret(person.home / ".ssh" / "id_rsa")
    (person.project / "link").symlink_to("../.ssh")
    attacks = {
        route: f"exec 9< ..; cat {route.format(home=person.home)} || echo none" for route in ROUTES
    }
    read = read_each(person, attacks, capabilities=found)
    for route in ROUTES:
        assert read.inside[route] == "none\n", route
        if "/1/" not in route:
            assert SECRET in read.outside[route], route


def test_reading_secrets_of_the_machine(person: Person) -> None:
    names = [name for name in SYSTEM_MASKS if os.path.exists(name)]
    attack = one_by_one(f"cat {name} || ls {name}/*" for name in names)
    said = said_by_each(names, person.run(attack).stdout.text)
    assert said == dict.fromkeys(names, "")


if IS_ROOT:

    def test_reading_password_hashes_as_root(person: Person) -> None:
        assert person.run_outside("cat /etc/shadow").returncode == 0
        for route in ("/etc/shadow", "/proc/1/root/etc/shadow", "/etc/../etc/shadow"):
            assert person.run(f"cat {route}").exit_code == 1

    def test_reading_what_only_another_user_may(person: Person, elsewhere: Path) -> None:
        secret = put_secret(elsewhere / "file")
        secret.chmod(0o600)
        os.chown(secret, 65534, 65534)
        attack = f"cat {secret}"
        assert person.run(attack).stdout.text == ""
        assert SECRET in person.run_outside(attack).stdout


# Names that lead elsewhere.


LINKED = {
    "in the home folder": {".ssh": "dotfiles/ssh"},
    "in the project": {".ssh": "project/dotfiles/ssh"},
    "elsewhere": {".ssh": "ELSEWHERE/ssh"},
    "a link to a link": {".ssh": "dotfiles/ssh", "dotfiles": "vault"},
    "the folder around": {".config": "dotfiles/config"},
    "the folder around, elsewhere": {".config": "ELSEWHERE/config"},
}


@pytest.mark.parametrize("name", LINKED)
def test_a_hidden_name_is_behind_a_link(
    person: Person, found: Capabilities, elsewhere: Path, name: str
) -> None:
    for link, target in reversed(LINKED[name].items()):
        target = target.replace("ELSEWHERE", str(elsewhere))
        folder = person.home / target
        folder.mkdir(parents=True, exist_ok=True)
        (person.home / link).symlink_to(target)
    put_secret(person.home / (".ssh/id_rsa" if ".ssh" in LINKED[name] else ".config/gh/hosts.yml"))
    attack = read_all(f"{person.home}/.ssh", folder, person.home, elsewhere)
    assert SECRET not in person.run(attack, capabilities=found).stdout.text
    assert SECRET in person.run_outside(attack).stdout


def test_the_home_folder_itself_is_a_link(person: Person, found: Capabilities) -> None:
    put_secret(person.home / ".ssh" / "id_rsa")
    link = person.home.parent / "link"
    link.symlink_to(person.home)
    person.environ["HOME"] = str(link)
    attack = read_all(link, person.home)
    assert SECRET not in person.run(attack, capabilities=found).stdout.text
    assert SECRET in person.run_outside(attack).stdout


@pytest.mark.parametrize(
    ("what", "option"),
    [
        ("$HOME/..", ""),
        *((what, "--network=all") for what in ("$HOME/..", "$HOME", "$HOME/Documents")),
    ],
)
def test_a_second_mount_of_the_home_folder(person: Person, what: str, option: str) -> None:
    # As on systems where /home is a part of a file system that is mounted as a whole, too.
    secret = ".ssh/id_rsa" if not option else "Documents/letter"
    put_secret(person.home / secret)
    second = next(folder for folder in ("/mnt", "/media", "/srv") if os.path.isdir(folder))
    attack = f"{read_all(second)}; cat ~/.ssh/id_rsa"
    inside = cli_argv("run", *option.split(), "-c", f"{attack}; echo ran")
    for argv, reads in ((["sh", "-c", attack], True), (inside, False)):
        script = f'mount --bind "{what}" {second} && exec "$@"'
        done = person.run_outside(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", *argv]
        )
        assert reads or done.stdout.endswith("ran\n"), done.stderr
        assert (SECRET in done.stdout) is reads, done.stderr


# Secrets in a folder that the user opened to commands.


def approve_roots(person: Person, *folders: Path) -> None:
    manager = ProjectManager(person.paths)
    try:
        for folder in folders:
            (person.project / folder.name).symlink_to(folder)
            manager.approve_root(manager.add_project(person.project), folder)
    finally:
        manager.close()


def test_reading_secrets_in_a_folder_that_was_agreed_to(
    person: Person, found: Capabilities
) -> None:
    cargo = person.home / ".cargo"
    secret = put_secret(cargo / "credentials.toml")
    (cargo / "config.toml").write_text("not a secret\n")
    approve_roots(person, cargo)
    # As it is, under another name, and through the link.
    attack = f"{read_all(cargo, '.')}; mv ~/.cargo a; cp -a ~/.cargo/. b; cat a/* b/* 2>&1; true"
    result = person.run(attack, capabilities=found)
    assert "not a secret" in result.stdout.text
    assert SECRET not in result.stdout.text
    assert secret.read_text() == f"{SECRET}\n"
    assert person.run_outside(read_all(cargo, ".")).stdout.count(SECRET) == 2


def test_replacing_secrets_in_a_folder_that_was_agreed_to(person: Person) -> None:
    keys = put_secret(person.home / "work" / "keys" / "id_rsa").parent
    approve_roots(person, keys.parent)
    person.environ["GNUPGHOME"] = str(keys)
    attack = "cd ~/work; rm -rf keys; mv keys other; mkdir keys; echo mine >keys/id_rsa; cat */*"
    assert person.run(attack).stdout.text == ""
    assert [path.name for path in keys.parent.iterdir()] == ["keys"]
    assert (keys / "id_rsa").read_text() == f"{SECRET}\n"


def test_agreeing_to_a_folder_that_is_hidden_opens_nothing(
    person: Person, found: Capabilities
) -> None:
    put_secret(person.home / ".ssh" / "keys" / "id_rsa")
    approve_roots(person, person.home / ".ssh" / "keys")
    with pytest.raises(ProjectError, match=r"\.ssh, which is hidden"):
        person.run(read_all(person.home / ".ssh"), capabilities=found)


# Secrets that come, or move, while a command runs.

WATCH = """
    def look():
        for folder, folders, files in os.walk(os.environ['HOME']):
            for name in files:
                if name != 'go':
                    try:
                        print(open(f'{folder}/{name}', errors='replace').read())
                    except OSError:
                        pass
    look()
    print('ready', flush=True)
    go = os.environ['HOME'] + '/playground/go'
    while not os.path.exists(go):
        look()
        for name in ('/.ssh/id_rsa', '/.config/gh/hosts.yml', '/.netrc'):
            try:
                print(open(os.environ['HOME'] + name).read())
            except OSError:
                pass
    look()
    """


@pytest.mark.parametrize("around", [True, False], ids=["in a folder", "with its folder"])
def test_secrets_are_created_while_a_command_runs(
    person: Person, found: Capabilities, around: bool
) -> None:
    names = (".ssh/id_rsa", ".config/gh/hosts.yml", ".netrc")
    secrets = [person.home / name for name in names]
    for secret in secrets if around else ():
        secret.parent.mkdir(parents=True, exist_ok=True)

    def create() -> None:
        for secret in secrets:
            put_secret(secret).write_text(f"{SECRET} {secret.name}")

    result = run_while(person, python(WATCH), create, capabilities=found)
    assert (result.stdout.text, result.stderr.text) == ("ready\n", "")
    (person.home / "playground").mkdir()
    (person.home / "playground" / "go").touch()
    said = person.run_outside(python(WATCH)).stdout
    for secret in secrets:
        assert f"{SECRET} {secret.name}" in said


@pytest.mark.parametrize(
    ("hidden", "secret"), [(".ssh", "id_rsa"), (".config", "gh/hosts.yml"), (".netrc", "")]
)
def test_what_is_hidden_is_replaced_while_a_command_runs(
    person: Person, found: Capabilities, hidden: str, secret: str
) -> None:
    """A file as editors and tools save it: a new one takes the old one's name."""
    place, new = person.home / hidden, person.home.parent / "new"
    put_secret(place / secret)

    def replace() -> None:
        for _ in range(20):
            put_secret(new / secret)
            if secret:
                shutil.rmtree(place)
            new.rename(place)

    result = run_while(person, python(WATCH), replace, capabilities=found)
    assert (result.stdout.text, result.stderr.text) == ("ready\n", "")


def test_nothing_is_created_outside_for_what_is_hidden(person: Person, found: Capabilities) -> None:
    (person.home / ".config").mkdir()
    person.run("ls -aR ~ > /dev/null; mkdir ~/.ssh ~/.config/gh", capabilities=found)
    names = {path.name for path in person.home.iterdir()}
    assert names - {"project", ".cache", ".local"} == {".config"}
    assert list((person.home / ".config").iterdir()) == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("npm_config_cache", "{home}"),
        *(("CARGO_HOME", value) for value in ("{home}", "{above}", "{play}", "/", "/tmp", "/run")),
        *(("CARGO_HOME", value) for value in ("/var", "/proc", "/dev", "/etc", "/home")),
    ],
)
def test_a_cache_around_what_is_hidden(person: Person, variable: str, value: str) -> None:
    """A cache is mounted after the masks: a second view of the home folder would have none."""
    put_secret(person.home / ".ssh/id_rsa")
    with tempfile.NamedTemporaryFile("w", dir="/var/tmp") as outside:
        outside.write(SECRET)
        outside.flush()
        places = {"home": person.home, "above": person.home.parent, "play": person.playground}
        person.environ[variable] = value.format(**places)
        done = person.run(f"cat ~/.ssh/id_rsa {person.home}/.ssh/id_rsa {outside.name}; echo ran")
    assert done.stdout.text == "ran\n"


def test_a_cache_directly_below_the_root_is_looked_at_like_others() -> None:
    """Its path must not begin with two slashes, which is equal to nothing."""
    profile = Profile("any", caches=("${CARGO_HOME:-~/.cargo}",))
    found = find_caches(profile, {"CARGO_HOME": "/tmp"}, "/home/somebody")
    assert found.existing == ("/tmp",)


# Secrets of other projects.


def test_secrets_of_other_projects(person: Person, found: Capabilities, elsewhere: Path) -> None:
    beside, far, apart = person.home / "beside", person.home / "far/away", elsewhere / "apart"
    names = (".env", ".env.local", ".env.production", ".envrc", ".env.new\nline")
    folders = (person.home, beside, far, apart)
    secrets = [put_secret(folder / name) for folder in folders for name in names]
    for folder in (*folders, person.project):
        (folder / ".env.example").write_text("not a secret\n")
    (person.project / ".env").write_text("of the project\n")
    for other in (far, apart):
        # Known since a command ran there.
        person.run("true", project=other, capabilities=found)
    attack = f"cat .env; cat {shlex.join(map(str, secrets))}; cat ~/.env.example ~/*/.env.example"
    said = person.run(attack, capabilities=found).stdout.text
    assert said == "of the project\n" + "not a secret\n" * 3
    assert person.run_outside(attack).stdout.count(SECRET) == len(secrets)
    # In its own project, it is visible.
    assert SECRET in person.run("cat .env", project=far, capabilities=found).stdout.text


def test_a_secret_of_another_project_is_created_while_a_command_runs(
    person: Person, found: Capabilities
) -> None:
    (person.home / "beside").mkdir()

    def create() -> None:
        put_secret(person.home / "beside/.env")

    result = run_while(person, python(WATCH), create, capabilities=found)
    assert (result.stdout.text, result.stderr.text) == ("ready\n", "")


# With the network: what a command cannot read it cannot send.

PRIVATE = (
    "letter",
    "Documents/letter",
    "other/.env",
    ".unknown/letter",
    ".config/unknown/letter",
    ".local/share/unknown/letter",
    ".bashrc",
)


def test_reading_the_home_folder_with_the_network(person: Person, found: Capabilities) -> None:
    for name in PRIVATE:
        put_secret(person.home / name)
    (person.home / ".gitconfig").write_text("[user]\nname = Me\n")
    put_secret(person.home / ".config/git/credentials")
    put_secret(person.home / ".cargo/credentials.toml")
    (person.project / "link").symlink_to("../Documents")
    routes = [
        *(f"{person.home}/{name}" for name in PRIVATE),
        *(f"../{name}" for name in PRIVATE),
        *(f"/proc/{pid}/root{person.home}/letter" for pid in ("self", "1", "thread-self")),
        *(f"/proc/{pid}/cwd/../letter" for pid in ("self", "1")),
        "/dev/fd/9/letter",
        "link/letter",
        f"{person.home}/.cargo/../letter",
        f"{person.home}/.cache/../letter",
    ]
    attacks = {route: f"exec 9< ..; cat {route}" for route in routes}
    attacks["everything"] = read_all(person.home)
    read = read_each(person, attacks, capabilities=found, network=True)
    assert {name: text for name, text in read.inside.items() if SECRET in text} == {}
    assert "name = Me" in read.inside["everything"]
    for route in routes:
        assert SECRET in read.outside[route] or "/1/" in route, route
    # Without the network it may read them.
    assert person.run("cat ../letter ../Documents/letter").stdout.text.count(SECRET) == 2


def test_listing_the_home_folder_with_the_network(person: Person, found: Capabilities) -> None:
    for name in PRIVATE:
        put_secret(person.home / name)
    (person.home / ".local/bin").mkdir()
    done = person.run("ls -A ~ ~/.local; touch ~/new", capabilities=found, network=True)
    listed = set(done.stdout.text.split())
    assert listed >= {"project", "playground", ".local", "bin"}
    assert not listed & {name.split("/")[0] for name in PRIVATE} - {".config", ".local"}
    assert "unknown" not in listed
    assert not (person.home / "new").exists()
    assert "new" not in listed
    assert "Read-only file system" in done.stderr.text


def test_a_file_appears_in_the_home_folder_while_a_command_has_the_network(
    person: Person, found: Capabilities
) -> None:
    def create() -> None:
        for name in PRIVATE:
            put_secret(person.home / name)

    result = run_while(person, python(WATCH), create, capabilities=found, network=True)
    assert (result.stdout.text, result.stderr.text) == ("ready\n", "")


@pytest.mark.parametrize("where", ["in the project", "above the project", "around"])
def test_a_link_of_the_project_widens_what_the_network_sees(
    person: Person, found: Capabilities, where: str
) -> None:
    """The user keeps settings in the project, and a command replaced them with a link."""
    put_secret(person.home / "Documents/git/letter")
    settings = person.project / "config"
    if where == "in the project":
        (person.home / ".config").mkdir()
        (person.home / ".config/git").symlink_to("../project/config")
        settings.symlink_to(person.home / "Documents/git")
    elif where == "above the project":
        (person.home / ".config").symlink_to("project/config")
        settings.symlink_to(person.home / "Documents")
    else:
        # A link of the user to all of the home folder opens nothing either.
        (person.home / ".config").mkdir()
        (person.home / ".config/git").symlink_to(person.home)
    attack = read_all(person.home, f"{person.home}/.config/git/.")
    assert SECRET not in person.run(attack, capabilities=found, network=True).stdout.text
    assert SECRET in person.run_outside(attack).stdout


def test_settings_behind_links_with_the_network(person: Person, found: Capabilities) -> None:
    """Many users keep them in a folder of their own."""
    (person.home / "dotfiles/config/git").mkdir(parents=True)
    (person.home / "dotfiles/gitconfig").write_text("[user]\nname = Me\n")
    (person.home / "dotfiles/config/git/ignore").write_text("*.orig\n")
    put_secret(person.home / "dotfiles/letter")
    (person.home / "second").symlink_to("dotfiles")
    (person.home / ".gitconfig").symlink_to("second/gitconfig")
    (person.home / ".config").symlink_to("dotfiles/config")
    done = person.run(
        "git config user.name; cat ~/.config/git/ignore; cat ~/dotfiles/letter ~/second/letter",
        capabilities=found,
        network=True,
    )
    assert done.stdout.text == "Me\n*.orig\n"


if IS_ROOT:

    def test_the_home_folder_on_record_with_the_network(
        person: Person, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """HOME may be another folder than the user's home."""
        put_secret(elsewhere / "letter")
        (elsewhere / ".gitconfig").write_text("not a secret\n")
        monkeypatch.setattr(
            "ollmsandbox.sandbox.plan.host_plan.home_on_record", lambda: str(elsewhere)
        )
        attack = read_all(elsewhere)
        assert person.run(attack, network=True).stdout.text == "not a secret\n"
        assert SECRET in person.run(attack).stdout.text
