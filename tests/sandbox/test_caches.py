# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands write to caches: to a layer of the project's own, above what the user has."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bubble import by, command_beside, each_overlay, each_way, in_mounts, with_profile
from support.escape.attack import folder_elsewhere
from support.person import Person
from support.servers import registry
from support.timing import wait_for

from ollmsandbox import loop
from ollmsandbox.errors import SandboxError
from ollmsandbox.files import trees
from ollmsandbox.files.locks import FileLock
from ollmsandbox.paths import Paths
from ollmsandbox.sandbox.caches import (
    CacheLayers,
    LayerPart,
    all_caches,
    clear_caches,
    measure_caches,
    remove_old_caches,
)
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.process import Result, Stop

pytestmark = pytest.mark.ordinary


@pytest.fixture
def elsewhere(person: Person) -> Iterator[Path]:
    """A folder outside the home folder, where the user can create one."""
    with folder_elsewhere(person.home / "elsewhere") as folder:
        yield folder


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return everything in the home folder but what is ours."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if "ollmchat" not in name and not name.startswith((".local", ".cache", "project")):
            kind = path.lstat().st_mode
            found[name] = (kind, path.read_bytes() if stat.S_ISREG(kind) else b"")
    return found


def other_project(person: Person) -> Path:
    project = person.home / "other"
    project.mkdir()
    return project


def ok(result: Result) -> str:
    assert (result.exit_code, result.stderr.text) == (0, "")
    return result.stdout.text


def layers(paths: Paths) -> list[Path]:
    """Return the layers of the only project."""
    (caches,) = all_caches(paths)
    return sorted(entry for entry in caches.folder.iterdir() if entry.name.isdecimal())


@each_overlay
def test_what_the_user_has_cached_is_used_and_never_changed(
    person: Person, way: OverlayMethod
) -> None:
    npm, registry = person.home / ".npm", person.home / ".cargo/registry"
    for folder in (npm, registry):
        folder.mkdir(parents=True)
    (npm / "package").write_text("of the user\n")
    (npm / "old").write_text("")
    (registry / "crate").write_text("1")
    other = other_project(person)
    before = snapshot(person.home)
    found = by(person, way)
    write = "cat ~/.npm/package; echo mine >~/.npm/package; rm ~/.npm/old"
    write += "; mv ~/.cargo/registry/crate ~/.cargo/x"
    assert ok(person.run(write, capabilities=found)) == "of the user\n"
    assert ok(person.run("cat ~/.npm/package; ls ~/.npm ~/.cargo", capabilities=found)) == (
        f"mine\n{person.home}/.cargo:\nregistry\nx\n\n{person.home}/.npm:\npackage\n"
    )
    elsewhere = person.run("cat ~/.npm/package", capabilities=found, project=other)
    assert ok(elsewhere) == "of the user\n"
    assert snapshot(person.home) == before


@each_way
def test_caches_that_the_user_does_not_have_are_there(person: Person, way: OverlayMethod) -> None:
    found = by(person, way)
    names = (".npm", ".cargo", "go/pkg", ".m2", ".local/share/pnpm", ".local/state")
    write = "; ".join(f"mkdir -p ~/{name}/a && echo {name} >~/{name}/a/b" for name in names)
    ok(person.run(write, capabilities=found))
    read = "cat " + " ".join(f"~/{name}/a/b" for name in names)
    assert ok(person.run(read, capabilities=found)).split() == list(names)
    assert person.run(read, capabilities=found, project=other_project(person)).exit_code == 1
    assert snapshot(person.home) == {"other": (stat.S_IFDIR | 0o755, b"")}


@each_overlay
def test_the_usual_cache_folder_is_writable_and_hides_the_programs_own(
    person: Person, way: OverlayMethod
) -> None:
    """The layers are inside the very folder that is below them."""
    (person.home / ".cache/pip").mkdir(parents=True)
    (person.home / ".cache/pip/wheel").write_text("here\n")
    found = by(person, way)
    write = "cd ~/.cache; mkdir new; echo x >pip/wheel2; head -c 1M /dev/zero >new/big"
    ok(person.run(f"{write}; chmod 300 new", capabilities=found))
    seen = person.run("ls -A ~/.cache ~/.cache/pip; cat ~/.cache/ollmchat/*", capabilities=found)
    home = f"{person.home}/.cache"
    assert seen.stdout.text == f"{home}:\nnew\npip\n\n{home}/pip:\nwheel\nwheel2\n"
    assert "No such file" in seen.stderr.text
    assert not (person.home / ".cache/new").exists()
    # What is in a folder that cannot be read counts as well.
    assert measure_caches(person.paths)[1] >= 1 << 20


@each_overlay
def test_the_rest_of_the_home_folder_stays_read_only(person: Person, way: OverlayMethod) -> None:
    (person.home / ".npm").mkdir()
    (person.home / "go/src/mine").mkdir(parents=True)
    attempts = ("~/x", "~/.bashrc", "~/.local/x", "~/.local/share/x", "~/go/x", "~/go/src/mine/x")
    command = "\n".join(f"echo x >{path}" for path in attempts)
    result = person.run(f"{command}\nmv ~/.npm ~/.npm2", capabilities=by(person, way))
    assert result.stderr.text.count("Read-only file system") >= len(attempts)
    assert result.exit_code != 0


@each_overlay
@pytest.mark.parametrize(
    "environ",
    [
        {"CARGO_HOME": "{home}/tools/cargo", "GOPATH": "{home}/go1:{home}/other"},
        {"npm_config_cache": "{elsewhere}/npm", "CARGO_HOME": "{elsewhere}/cargo"},
        {"XDG_CACHE_HOME": "{elsewhere}"},
    ],
    ids=lambda environ: "-".join(environ),
)
def test_a_variable_moves_a_cache(
    person: Person, way: OverlayMethod, environ: dict[str, str], elsewhere: Path
) -> None:
    moved = {n: v.format(home=person.home, elsewhere=elsewhere) for n, v in environ.items()}
    person.environ.update(moved)
    found = by(person, way)
    for name, value in moved.items():
        place = Path(value.partition(":")[0]) / ("pkg" if name == "GOPATH" else "")
        place.mkdir(parents=True, exist_ok=True)
        (place / "old").write_text("before\n")
        ok(person.run(f"cat {place}/old; echo new >{place}/new", capabilities=found))
        read = person.run(f"cat {place}/old {place}/new", capabilities=found)
        assert ok(read) == "before\nnew\n"
        assert not (place / "new").exists()


# Variables that move caches, each with a value that is no folder or cannot be one.
NO_FOLDERS = {
    "CARGO_HOME": "{home}/.profile/x", "RUSTUP_HOME": "{home}/.profile",
    "GOPATH": "{home}/a/../b", "GRADLE_USER_HOME": "{home}/../x", "NUGET_PACKAGES": "/{home}/x",
    "BUN_INSTALL": "relative", "OPAMROOT": "{home}/" + 300 * "n",
    "PUB_CACHE": "{home}/" + 300 * "n/", "MIX_HOME": "{home}/\n", "HEX_HOME": "{home}/loop/x",
    "CONAN_HOME": "{home}/closed/x", "NVM_DIR": "/proc/self/x", "npm_config_cache": "/dev/null/x",
}  # fmt: skip


@each_way
def test_a_variable_that_names_no_folder_does_not_stop_a_command(
    person: Person, way: OverlayMethod
) -> None:
    (person.home / ".profile").touch()
    (person.home / "loop").symlink_to("loop")
    (person.home / "closed").mkdir(mode=0)
    person.environ |= {n: value.format(home=person.home) for n, value in NO_FOLDERS.items()}
    assert ok(person.run("echo done", capabilities=by(person, way))) == "done\n"


@each_overlay
def test_a_cache_that_is_a_link_to_another_disk(
    person: Person, way: OverlayMethod, elsewhere: Path
) -> None:
    (elsewhere / "old").write_text("before\n")
    (person.home / ".cache").symlink_to(elsewhere)
    found = by(person, way)
    ok(person.run("echo new >~/.cache/new", capabilities=found))
    seen = person.run("ls -A ~/.cache/; cat ~/.cache/new ~/.cache/old", capabilities=found)
    assert ok(seen) == "new\nold\nnew\nbefore\n"
    assert not (elsewhere / "new").exists()


@each_overlay
def test_a_project_inside_a_cache_is_recorded_as_usual(person: Person, way: OverlayMethod) -> None:
    project = person.home / ".cargo/registry/src/mine"
    project.mkdir(parents=True)
    ok(person.run("echo x >file", project=project, capabilities=by(person, way)))
    assert (project / "file").read_text() == "x\n"
    outside = person.run("echo x >~/.cargo/x", project=project, capabilities=by(person, way))
    assert "Read-only file system" in outside.stderr.text


@each_overlay
def test_a_deleted_folder_stays_deleted_when_it_is_created_again(
    person: Person, way: OverlayMethod
) -> None:
    (person.home / ".npm/a").mkdir(parents=True)
    (person.home / ".npm/a/old").write_text("")
    found = by(person, way)
    ok(person.run("rm -r ~/.npm/a; mkdir ~/.npm/a; touch ~/.npm/a/1", capabilities=found))
    ok(person.run("touch ~/.npm/a/2", capabilities=found))
    assert ok(person.run("ls ~/.npm/a", capabilities=found)) == "1\n2\n"
    ok(person.run("rm -r ~/.npm/a; touch ~/.npm/a", capabilities=found))
    assert ok(person.run("stat -c %F ~/.npm/a", capabilities=found)) == "regular empty file\n"


@pytest.mark.parametrize("is_there", [True, False])
@each_overlay
def test_git_clones_a_repository_of_an_earlier_command(
    person: Person, way: OverlayMethod, is_there: bool
) -> None:
    if is_there:
        (person.home / ".cache").mkdir()
    found = by(person, way)
    commit = "git -c user.name=a -c user.email=b commit -q --allow-empty -m first"
    ok(person.run(f"git init -q ~/.cache/a && cd ~/.cache/a && {commit}", capabilities=found))
    clone = "git clone -q --local ~/.cache/a b 2>/dev/null && git -C b log --format=%s"
    assert ok(person.run(clone, capabilities=found)) == "first\n"


@each_overlay
def test_commands_at_the_same_time_do_not_disturb_each_other(
    person: Person, way: OverlayMethod
) -> None:
    """Each sees what was there when it began, and what all of them wrote is kept."""
    found = by(person, way)
    (person.home / ".npm").mkdir()
    ok(person.run("echo first >~/.npm/0", capabilities=found))
    person.share_playground()
    flag = "~/playground/go"
    waiting = f"touch ~/playground/$1; until [ -e {flag} ]; do sleep 0.02; done; ls ~/.npm"
    write = f"echo $1 >~/.npm/$1; echo $1 >~/.npm/shared; {waiting}"

    async def all_at_once() -> list[Result]:
        bubbles = [person.bubble(capabilities=found) for _ in range(3)]
        commands = [["sh", "-c", write, "sh", str(n)] for n in (1, 2)]
        commands.append(["sh", "-c", waiting, "sh", "3"])
        runs = [
            asyncio.ensure_future(one.exec(command))
            for one, command in zip(bubbles, commands, strict=True)
        ]
        while not all((person.playground / str(n)).exists() for n in (1, 2, 3)):
            assert not all(run.done() for run in runs)
            await asyncio.sleep(0.02)
        # A whole run while the others have its layers mounted.
        await person.bubble(capabilities=found).exec("echo 4 >~/.npm/4; echo new >~/.npm/0")
        (person.playground / "go").touch()
        return list(await asyncio.gather(*runs))

    said = [ok(result).split() for result in loop.run(all_at_once())]
    assert said == [["0", "1", "shared"], ["0", "2", "shared"], ["0"]]
    seen = ok(person.run("cd ~/.npm; ls; cat 0 1 2 4; cat shared", capabilities=found)).split()
    assert seen[:5] == ["0", "1", "2", "4", "shared"]
    assert seen[5:9] == ["new", "1", "2", "4"]
    assert seen[9] in ("1", "2")
    # All are merged as soon as a command writes and no other uses them.
    ok(person.run("echo 5 >~/.npm/5", capabilities=found))
    assert [layer.name for layer in layers(person.paths)] == ["1"]


def test_nothing_is_kept_of_a_program_that_was_killed(person: Person) -> None:
    (person.home / ".npm").mkdir()
    person.share_playground()
    started = person.start("run", "-c", "echo x >~/.npm/x; touch ~/playground/ready; sleep 600")
    wait_for((person.playground / "ready").exists)
    os.kill(started.pid, 9)
    started.wait()
    (caches,) = all_caches(person.paths)
    assert [entry.name[:5] for entry in caches.folder.glob("live-*")] == ["live-"]
    assert ok(person.run("ls ~/.npm")) == ""
    assert list(caches.folder.glob("live-*")) == []


def test_caches_in_a_home_folder_with_something_mounted_in_it(person: Person) -> None:
    """An ordinary user's home folder cannot get an overlay then, but single caches can."""
    mounted = person.home / "mounted"
    for folder in (mounted, person.home / ".npm", person.home / ".cargo"):
        folder.mkdir()
    (person.home / ".npm/old").write_text("before\n")
    (person.home / ".cargo/credentials").write_text("secret\n")
    around = in_mounts('mount -t tmpfs t "$1"', mounted)
    write = "echo x >~/.npm/x; echo y >~/.m2/y; echo z >~/.cache/z; ls -A ~/.cargo"
    first = command_beside(person, around, write)
    assert (first.returncode, first.stdout, first.stderr) == (0, "", "")
    read = "cat ~/.npm/old ~/.npm/x ~/.m2/y ~/.cache/z"
    second = command_beside(person, around, read)
    assert (second.stdout, second.stderr) == ("before\nx\ny\nz\n", "")
    assert not (person.home / ".npm/x").exists()


def test_the_disk_limit_counts_caches(person: Person) -> None:
    (person.home / ".npm").mkdir()
    with_profile(person, "limits: {disk: 16 MiB}")
    for place in ("~/.npm", "~/.m2"):
        result = person.run(f"head -c 64M /dev/zero >{place}/big; sleep 60", profile="mine")
        assert result.stop is Stop.DISK


# --- layers, without a command -----------------------------------------------------------------


def written(paths: Paths, project: str, files: dict[str, str], run_id: str) -> CacheLayers:
    """Return the layers after a run has written some files."""
    found = CacheLayers(paths.caches[0], project, run_id)
    found.open([LayerPart("home", 0o700)], ())
    for name, text in files.items():
        path = Path(found.upper("home"), name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return found


def finish(run: CacheLayers) -> None:
    run.keep()
    run.remove()


def test_layers_are_merged_name_by_name(person: Person) -> None:
    paths = person.paths
    first = written(paths, "/p", {"a/b/c": "1", "a/b/d": "1", "file": "1", "dir/x": "1"}, "1")
    finish(first)
    second = written(paths, "/p", {"a/b/c": "2", "file/x": "2", "dir": "2", "new/y": "2"}, "2")
    os.chmod(Path(second.upper("home"), "a/b"), 0o000)
    os.chmod(Path(second.upper("home"), "new"), 0o000)
    finish(second)
    (layer,) = layers(paths)
    home = layer / "home"
    assert stat.S_IMODE((home / "a/b").stat().st_mode) == 0
    assert stat.S_IMODE((home / "new").stat().st_mode) == 0
    for name in ("a/b", "new"):
        (home / name).chmod(0o700)
    found = {str(f.relative_to(home)): f.read_text() for f in home.rglob("*") if f.is_file()}
    assert found == {"a/b/c": "2", "a/b/d": "1", "file/x": "2", "dir": "2", "new/y": "2"}


def test_a_layer_that_is_in_use_is_not_changed(person: Person) -> None:
    paths = person.paths
    finish(written(paths, "/p", {"file": "1"}, "1"))
    user = written(paths, "/p", {}, "2")
    finish(written(paths, "/p", {"file": "2"}, "3"))
    finish(written(paths, "/p", {"other": "3"}, "4"))
    assert Path(user.mounted[0], "home/file").read_text() == "1"
    # What came after it is merged: there are never more layers than commands that use them.
    assert [layer.name for layer in layers(paths)] == ["1", "2"]
    assert not clear_caches(paths)
    assert [layer.name for layer in layers(paths)] == ["1"]
    user.remove()
    assert clear_caches(paths)
    assert layers(paths) == []
    assert measure_caches(paths) == (0, 0)


def test_a_layer_that_cannot_be_merged_is_dropped(person: Person) -> None:
    paths = person.paths
    finish(written(paths, "/p", {"name": "a file", "kept": "1"}, "1"))
    for number in ("2", "3"):
        run = written(paths, "/p", {"name/in a folder": "2", "other": number}, number)
        # There is no room for another attribute, which would hide the file below.
        for size in (900, 400, 100, 30, 10, 2, 0):
            with contextlib.suppress(OSError):
                for count in range(10_000):
                    os.setxattr(f"{run.upper('home')}/name", f"user.{size}.{count}", b"x" * size)
        finish(run)
    (layer,) = layers(paths)
    assert (layer / "home/kept").read_text() == "1"
    assert (layer / "home/name").read_text() == "a file"


def test_a_command_waits_for_caches_without_blocking_the_loop(person: Person) -> None:
    ok(person.run("true"))
    (caches,) = all_caches(person.paths)

    async def run_while_locked() -> Result:
        running = asyncio.ensure_future(person.bubble().exec("echo done"))
        with FileLock(caches.folder / "lock"):
            await asyncio.sleep(0.3)
            assert not running.done()
        return await running

    assert ok(loop.run(run_while_locked())) == "done\n"


def test_a_command_that_waits_for_caches_can_be_stopped(person: Person) -> None:
    ok(person.run("true"))
    (caches,) = all_caches(person.paths)
    bubble = person.bubble()
    bubble.stop()
    with FileLock(caches.folder / "lock"), pytest.raises(SandboxError, match="Stopped"):
        bubble.run("echo done")


def test_a_command_can_start_while_caches_are_being_cleared(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = person.paths
    finish(written(paths, "/p", {"file": "1"}, "1"))
    (caches,) = all_caches(paths)
    remove = trees.remove
    begun: list[CacheLayers] = []

    def begin_and_remove(name: str, dir_fd: int) -> None:
        if not begun:
            begun.append(written(paths, "/p", {"file": "2"}, "2"))
        remove(name, dir_fd)

    monkeypatch.setattr(trees, "remove", begin_and_remove)
    assert caches.clear()
    assert begun[0].mounted == ()
    finish(begun[0])
    assert [(layer / "home/file").read_text() for layer in layers(paths)] == ["2"]


def test_old_and_large_caches_are_removed(person: Person) -> None:
    paths = person.paths
    for number, project in enumerate(("/old", "/large", "/new")):
        size = 1 << 20 if project == "/large" else 1
        finish(written(paths, project, {"file": "x" * size}, str(number)))
    now = time.time()
    ages = {"/old": 100, "/large": 2, "/new": 1}
    for caches in all_caches(paths):
        os.utime(caches.folder, (now, now - ages[caches.project]))
    remove_old_caches(paths, unused=50, most=10 << 20)
    assert [c.project for c in all_caches(paths) if c.measure()[0]] == ["/new", "/large"]
    for caches in all_caches(paths):
        os.utime(caches.folder, (now, now - ages[caches.project]))
    remove_old_caches(paths, unused=50, most=1 << 19)
    assert [c.project for c in all_caches(paths) if c.measure()[0]] == ["/new"]


# --- real programs -----------------------------------------------------------------------------


def test_ccache_finds_what_an_earlier_command_compiled(person: Person) -> None:
    (person.project / "a.c").write_text("int main(void) { return 0; }\n")
    build = "rm -f a.o; ccache gcc -c a.c -o a.o && ccache --print-stats | grep cache_hit | sort"
    assert hits(person.run(build)) == 0
    assert hits(person.run(build)) == 1
    assert not (person.home / ".cache/ccache").exists()
    assert not (person.home / ".ccache").exists()


def hits(result: Result) -> int:
    assert result.exit_code == 0, result.stderr.text
    return sum(int(line.split()[1]) for line in result.stdout.text.splitlines())


# Where an address is the same each time, which pip keeps it by.
SERVER = """
import http.server, registry
http.server.HTTPServer(("127.0.0.1", 8123), registry.Handler).serve_forever()
"""


def test_pip_keeps_what_it_downloaded(person: Person) -> None:
    """From an index on loopback, which the command itself serves."""
    shutil.copy(registry.__file__, person.project / "registry.py")
    (person.project / "serve.py").write_text(SERVER)
    install = """
        /usr/bin/python3 serve.py 2>/dev/null &
        until (echo >/dev/tcp/127.0.0.1/8123) 2>/dev/null; do sleep 0.1; done
        /usr/bin/python3 -m pip --isolated download --no-deps --disable-pip-version-check -d out \\
            --trusted-host 127.0.0.1:8123 --index-url http://127.0.0.1:8123/simple thing
        kill $!; rm -r out
    """
    first = person.run(install)
    assert first.exit_code == 0, first.stderr.text + first.stdout.text
    second = person.run(install)
    assert "Using cached" in second.stdout.text
    assert not (person.home / ".cache/pip").exists()
