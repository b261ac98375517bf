# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to reach another project or the user through the layers of caches."""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bubble import by, each_overlay, each_way, with_profile
from support.escape.attack import folder_elsewhere, papers, python
from support.person import Person

from ollmsandbox.sandbox.caches import all_caches, clear_caches, measure_caches
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.process import Result


@pytest.fixture
def outside(person: Person) -> Iterator[Path]:
    """A folder of the user that no command may change."""
    with folder_elsewhere(person.home / "papers") as folder:
        yield papers(folder)


def other_project(person: Person) -> Path:
    project = person.home / "other"
    project.mkdir(exist_ok=True)
    return project


def ok(result: Result) -> str:
    assert (result.exit_code, result.stderr.text) == (0, "")
    return result.stdout.text


@each_way
def test_a_poisoned_cache_reaches_no_other_project_and_not_the_user(
    person: Person, way: OverlayMethod
) -> None:
    tool = person.home / ".cargo/bin/tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho good\n")
    tool.chmod(0o755)
    found = by(person, way)
    attack = "printf '#!/bin/sh\\necho evil\\n' | tee ~/.cargo/bin/tool ~/.m2/tool"
    person.run(attack, capabilities=found)
    use = "~/.cargo/bin/tool; ls ~/.m2/"
    victim = person.run(use, capabilities=found, project=other_project(person))
    assert ok(victim) == "good\n"
    assert not (person.home / ".m2").exists()
    assert person.run_outside("~/.cargo/bin/tool").stdout == "good\n"
    # The attack itself works, without the sandbox.
    person.run_outside(attack)
    assert person.run_outside("~/.cargo/bin/tool").stdout == "evil\n"


@each_overlay
def test_a_program_in_a_cache_is_not_run_outside(person: Person, way: OverlayMethod) -> None:
    """Not even one that the program itself looks for by its name."""
    person.environ["PATH"] = f"{person.home}/.cargo/bin:{person.environ['PATH']}"
    (person.home / ".cargo/bin").mkdir(parents=True)
    found = by(person, way)
    names = ("bwrap", "sh", "systemd-run", "git", "python3")
    fake = f"#!/bin/bash\ntouch {shlex.quote(str(person.home / 'escaped'))}\n"
    for name in names:
        plant = f"printf %s {shlex.quote(fake)} >~/.cargo/bin/{name}; chmod +x ~/.cargo/bin/{name}"
        ok(person.run(["/bin/bash", "-c", plant], capabilities=found))
    planted = person.run(["/bin/ls", f"{person.home}/.cargo/bin"], capabilities=found)
    assert len(ok(planted).split()) == len(names)
    assert person.cli("doctor").returncode == 0
    assert not (person.home / "escaped").exists()


@each_overlay
@pytest.mark.parametrize("target", ["{outside}", "/oldroot{outside}", "/newroot{outside}"])
def test_a_link_where_the_next_run_mounts_a_cache(
    person: Person, way: OverlayMethod, target: str, outside: Path
) -> None:
    """One run may write to the folder around it, the next has a variable that names the link."""
    (person.home / ".cache/pip").mkdir(parents=True)
    found = by(person, way)
    link = shlex.quote(target.format(outside=outside))
    ok(person.run(f"rm -r ~/.cache/pip; ln -s {link} ~/.cache/pip", capabilities=found))
    person.environ["PIP_CACHE_DIR"] = str(person.home / ".cache/pip")
    with_profile(person, "environment: {set: {XDG_CACHE_HOME: /x}}\n")
    attack = "echo evil >~/.cache/pip/file; echo evil >~/.cache/pip/new"
    person.run(attack, capabilities=found, profile="mine")
    assert (outside / "file").read_text() == "mine\n"
    assert [entry.name for entry in outside.iterdir()] == ["file"]


@each_way
def test_links_in_place_of_folders_that_the_program_creates(
    person: Person, way: OverlayMethod, outside: Path
) -> None:
    found = by(person, way)
    link = f"cd /run/caches; for f in .[!.]* *; do rm -rf $f; ln -s {outside}/$f $f; done"
    person.run(link, capabilities=found)
    person.run("mkdir -p ~/.m2/a; echo evil >~/.m2/file", capabilities=found)
    assert [entry.name for entry in outside.iterdir()] == ["file"]
    assert measure_caches(person.paths)[1] < 1 << 20
    assert clear_caches(person.paths)
    assert (outside / "file").read_text() == "mine\n"
    assert ok(person.run("mkdir -p ~/.m2/a; ls ~/.m2/", capabilities=found)) == "a\n"


PLANTED = {
    "link": "ln -s {outside} {place}/x; ln -s {outside}/file {place}/y",
    "hard link": "ln {outside}/file {place}/x; cp {outside}/file {place}/y; ln {place}/y {place}/z",
    "pipe": "mkfifo {place}/x",
    "socket": "cd {place}; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
    "whiteout": "mknod {place}/x c 0 0; rm -rf {top}/old",
    "device": "mknod {place}/x b 8 0",
    "no permissions": "mkdir -p {place}/x/y; touch {place}/x/y/f; chmod 0 {place}/x/y {place}/x",
    "setuid": "cp /bin/true {place}/x; chmod 6777 {place}/x",
    "odd names": "touch {place}/$'a\\nb' {place}/$'\\xff' {place}/-rf",
    "attributes": (
        "python3 -c 'import os; os.mkdir(\"{place}/x\")\n"
        'for n in ("opaque", "redirect", "origin", "metacopy", "whiteout"):\n'
        "    try: os.setxattr(\"{place}/x\", \"user.overlay.\" + n, b\"y\")\n"
        "    except OSError: pass'"
    ),
    "deep": python(
        """
        os.chdir(os.environ["PLACE"])
        for number in range(3000):
            os.mkdir("d"); os.chdir("d")
        """
    ),
}  # fmt: skip


@each_overlay
@pytest.mark.parametrize("name", [".npm", ".m2"], ids=["layer", "plain"])
def test_what_is_planted_in_a_cache_does_no_harm(
    person: Person, way: OverlayMethod, name: str, outside: Path
) -> None:
    """It is measured, mounted again, merged with other layers, and cleared."""
    (person.home / ".npm/old").mkdir(parents=True)
    (person.home / ".npm/old/file").write_text("")
    found = by(person, way)
    top = person.home / name
    plants = []
    for number, (attack, plant) in enumerate(PLANTED.items()):
        place = top / f"place{number}"
        if attack != "deep":
            plant = plant.format(place=place, outside=outside, top=top)
        plants.append(f"(mkdir -p {place}; export PLACE={shlex.quote(str(place))}; {plant}\n)")
    before = sorted(os.listdir(person.home / ".npm"))
    for number in range(2):
        command = ["bash", "-c", "\n".join([*plants, f"touch {top}/{number}"])]
        person.run(command, capabilities=found)
    seen = ok(person.run(f"ls {top}/", capabilities=found)).splitlines()
    assert {"0", "1", *(f"place{number}" for number in range(len(PLANTED)))} <= set(seen)
    assert "old" not in seen
    assert sum(caches.measure()[0] for caches in all_caches(person.paths)) >= 2
    assert clear_caches(person.paths)
    assert measure_caches(person.paths) == (0, 0)
    assert sorted(os.listdir(person.home / ".npm")) == before
    assert [entry.name for entry in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "mine\n"
    ok(person.run(f"touch {top}/2", capabilities=found))


def test_a_project_cannot_reach_the_layers_themselves(person: Person) -> None:
    (person.home / ".npm").mkdir()
    # A name that no other test on this machine uses.
    name = uuid.uuid4().hex
    ok(person.run(f"touch ~/.npm/{name}"))
    search = f"find / -path /proc -prune -o -name {name} -print 2>/dev/null"
    assert person.run(search).stdout.text.splitlines() == [f"{person.home}/.npm/{name}"]
    assert person.run(search, project=other_project(person)).stdout.text == ""
    write = "mkdir -p ~/.cache/ollmchat/caches/x; echo x >~/.cache/ollmchat/caches/x/project"
    person.run(write, project=other_project(person))
    assert all(caches.folder.name != "x" for caches in all_caches(person.paths))


def test_a_folder_of_caches_without_any_rights_stops_nothing(person: Person) -> None:
    ok(person.run("chmod 0 /run/caches"))
    assert ok(person.run("touch /run/caches/x; echo here")) == "here\n"
    ok(person.run("chmod 0 /run/caches"))
    assert clear_caches(person.paths)
    assert measure_caches(person.paths) == (0, 0)
