# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to read or replace what the program keeps for itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.escape.reading import SECRET, put_secret, read_all
from support.person import Person

OWN = {
    "as usual": {},
    "moved within the home folder": {
        "XDG_DATA_HOME": "{home}/data",
        "XDG_CACHE_HOME": "{home}/a/cache",
        "XDG_CONFIG_HOME": "{home}/b",
    },
    "moved elsewhere": {
        "XDG_DATA_HOME": "{elsewhere}/data",
        "XDG_CACHE_HOME": "{elsewhere}/cache",
        "XDG_CONFIG_HOME": "{elsewhere}/config",
    },
}


@pytest.mark.parametrize("where", OWN)
def test_our_own_database_and_settings(person: Person, elsewhere: Path, where: str) -> None:
    for name, value in OWN[where].items():
        person.environ[name] = value.format(home=person.home, elsewhere=elsewhere)
    paths = person.paths
    for folder in paths.own:
        put_secret(folder / "kept")
    attack = read_all(*paths.own, person.home, elsewhere)
    assert SECRET not in person.run(attack).stdout.text
    assert person.run_outside(attack).stdout.count(SECRET) >= 3


@pytest.mark.parametrize("where", OWN)
def test_replacing_our_own_settings(person: Person, elsewhere: Path, where: str) -> None:
    for name, value in OWN[where].items():
        person.environ[name] = value.format(home=person.home, elsewhere=elsewhere)
    profile = person.paths.profiles / "standard.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text("unix_sockets: deny\n")
    attack = f"mkdir -p {profile.parent}; echo 'show: [~/.ssh]' > {profile}"
    person.run(attack)
    assert profile.read_text() == "unix_sockets: deny\n"
    person.run_outside(attack)
    assert profile.read_text() == "show: [~/.ssh]\n"


def test_files_of_the_running_program(person: Person) -> None:
    # Its layers lie there; through them one could see what is below.
    folders = "/dev/shm /tmp /var/tmp /run"
    attack = f"find {folders} -path {person.home} -prune -o -name 'ollmchat*' -print"
    assert person.run(attack).stdout.text == ""
