# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to read secrets in folders that are writable caches."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bubble import by, each_overlay
from support.escape.attack import run_while
from support.escape.reading import SECRET, put_secret, read_all
from support.person import Person

from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.profile.file import read_profile

PROFILE = read_profile("standard", Path("/nonexistent"))
CACHES = (".cache", ".cargo", ".m2", ".gradle", ".composer", ".gem", ".local/state")
# Secrets in folders that are writable caches.
SECRETS = [
    mask[2:] for mask in PROFILE.masks if mask.startswith(tuple(f"~/{name}/" for name in CACHES))
]


@each_overlay
def test_a_secret_in_a_cache_stays_hidden(person: Person, way: OverlayMethod) -> None:
    assert ".cargo/credentials.toml" in SECRETS
    for name in SECRETS:
        put_secret(person.home / name)
    found = by(person, way)
    folders = " ".join(f"~/{name}" for name in CACHES)
    read = read_all("~").replace("'~'", "~")
    assert SECRET not in person.run(read, capabilities=found).stdout.text
    # Whatever is written around it.
    around = f"for folder in {folders}; do touch $folder/new; chmod 777 $folder; done"
    assert person.run(around, capabilities=found).exit_code == 0
    attacks = (
        "find . -depth -mindepth 1 -exec mv {} {}.moved ';'",
        "cp -a . ~/playground/copy; rm -rf ./* ./.[!.]*; cp -a ~/playground/copy/. .",
        "rm -rf ./* ./.[!.]*; mkdir -p huggingface; ls -A",
        "ln -f credentials.toml link; ln -s credentials.toml symbolic",
    )
    for attack in attacks:
        for name in CACHES:
            person.run(f"cd ~/{name} && {attack}", capabilities=found)
            assert SECRET not in person.run(read, capabilities=found).stdout.text
    assert person.run_outside(read).stdout.count(SECRET) >= len(SECRETS)


@each_overlay
def test_a_secret_that_appears_while_a_command_runs(person: Person, way: OverlayMethod) -> None:
    (person.home / ".cargo").mkdir()
    wait = "touch ~/.cargo/x; echo ready; until [ -e ~/playground/go ]; do sleep 0.02; done"
    attack = f"{wait}; cat ~/.cargo/credentials.toml ~/.m2/settings.xml"

    def change() -> None:
        put_secret(person.home / ".cargo/credentials.toml")
        put_secret(person.home / ".m2/settings.xml")

    result = run_while(person, attack, change, capabilities=by(person, way))
    assert SECRET not in result.stdout.text
    assert "No such file" in result.stderr.text


@each_overlay
@pytest.mark.parametrize("variable", ["CARGO_HOME", "GRADLE_USER_HOME"])
def test_a_secret_in_a_cache_that_a_variable_moves(
    person: Person, way: OverlayMethod, variable: str
) -> None:
    name = {"CARGO_HOME": "credentials.toml", "GRADLE_USER_HOME": "gradle.properties"}[variable]
    moved = person.home / "tools/moved"
    put_secret(moved / name)
    person.environ[variable] = str(moved)
    attack = f"touch {moved}/x; cat {moved}/{name}; ls -A {moved}"
    assert person.run(attack, capabilities=by(person, way)).stdout.text == "x\n"
    assert SECRET in person.run_outside(attack).stdout


@pytest.mark.parametrize("spelling", ["{home}/../home/moved", "{home}//moved", "/{home}/./moved/"])
def test_a_secret_in_a_cache_with_another_spelling(person: Person, spelling: str) -> None:
    put_secret(person.home / "moved/credentials.toml")
    person.environ["CARGO_HOME"] = spelling.format(home=person.home)
    assert SECRET not in person.run("cat ~/moved/*; cat $CARGO_HOME/*").stdout.text
    assert SECRET in person.run_outside("cat ~/moved/*").stdout
