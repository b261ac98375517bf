# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in the Alpine root file system: paths, writable folders, environment."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.bubble import with_profile
from support.person import Person
from support.rootfs import VERSION, install

from ollmsandbox import loop
from ollmsandbox.errors import RootfsError, WorkingDirError
from ollmsandbox.project.change import State
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.plan import plan
from ollmsandbox.sandbox.plan.host import Host
from ollmsandbox.sandbox.plan.mounts import ReadOnlyBind
from ollmsandbox.sandbox.process import Result
from ollmsandbox.sandbox.rootfs import paths
from ollmsandbox.sandbox.rootfs.paths import PathMap, find_working_dir_inside, folder_in
from ollmsandbox.sandbox.rootfs.store import Installed
from ollmsandbox.sandbox.spec import Mode, RunSpec


def run(person: Person, alpine: Installed, command: str | list[str], **options: object) -> str:
    result = person.run(command, rootfs=alpine, **options)
    assert result.exit_code == 0, result.stderr.text
    return result.stdout.text


def approve(manager: ProjectManager, person: Person, folder: Path) -> None:
    """Let the project's commands change another folder."""
    manager.approve_root(manager.add_project(str(person.project)), str(folder))


def test_a_write_in_the_workspace_is_applied_and_can_be_undone(
    person: Person, alpine: Installed, review: Review
) -> None:
    (person.project / "old").write_text("before")
    recorder = Recorder(RunSpec(str(person.project)), person.paths)
    command = "echo new >/workspace/a/b || mkdir a && echo new >a/b; echo after >old"
    run(person, alpine, command, keeper=recorder)
    assert (person.project / "a/b").read_text() == "new\n"
    assert (person.project / "old").read_text() == "after\n"
    assert recorder.report is not None
    paths = {item.change.path: item.change.root for item in recorder.report.changes}
    assert paths == dict.fromkeys(("a", "a/b", "old"), str(person.project))
    review.undo(review.manager.run(recorder.report.run_id))
    assert (person.project / "old").read_text() == "before"
    assert not (person.project / "a").exists()


def test_pending_changes_are_seen_by_the_next_command(person: Person, alpine: Installed) -> None:
    keeper = Recorder(RunSpec(str(person.project), mode=Mode.REVIEW), person.paths)
    run(person, alpine, "echo waits >file", keeper=keeper)
    assert keeper.report is not None
    assert [item.state for item in keeper.report.changes] == [State.PENDING]
    assert not (person.project / "file").exists()
    assert run(person, alpine, "cat /workspace/file") == "waits\n"
    # In whichever system it runs.
    assert person.run("cat file").stdout.text == "waits\n"


def test_the_system_itself_cannot_be_written(person: Person, alpine: Installed) -> None:
    before = sorted(os.listdir(alpine.folder))
    paths = ("/root/x", "/etc/x", "/x", "/usr/bin/x", "/workspace/../x", "/run/../etc/passwd")
    command = "\n".join(f"echo evil >{path}" for path in paths)
    result = person.run(command, rootfs=alpine)
    assert result.stderr.text.count("Read-only file system") == len(paths)
    # Files in temporary folders are gone afterwards.
    folders = "/tmp /var/tmp /dev/shm"
    assert run(person, alpine, f"for f in {folders}; do echo x >$f/x; cat $f/x; done") == "x\n" * 3
    assert run(person, alpine, f"find {folders} -mindepth 1") == ""
    assert not os.path.exists(f"{alpine.folder}/tmp/x")
    assert sorted(os.listdir(alpine.folder)) == before


def test_the_environment_has_the_listed_variables_and_none_of_the_user(
    person: Person, alpine: Installed
) -> None:
    person.environ |= {"EDITOR": "vi", "MY_TOKEN": "secret", "http_proxy": "http://p.example"}
    found = dict(line.split("=", 1) for line in run(person, alpine, "env").splitlines())
    assert found.pop("SHLVL", "") in ("", "0", "1")
    assert found.pop("_", "/bin/env").endswith("env")
    # For clones, and against cleaning up in the background.
    git = {name: found.pop(name) for name in [*found] if name.startswith("GIT_CONFIG_")}
    settings = {value for name, value in git.items() if "_VALUE_" in name}
    cloned = {value for value in settings if value.startswith("/")}
    assert "/run/caches" in cloned
    assert cloned <= {"/run/caches", "/workspace", "/playground"}
    assert settings - cloned == {"0", "false", "never"}
    caches = {name for name, value in found.items() if value.startswith("/run/caches/")}
    assert {"XDG_CACHE_HOME", "npm_config_cache", "CARGO_HOME", "GOPATH"} <= caches
    assert {name: value for name, value in found.items() if name not in caches} == {
        "HOME": "/workspace",
        "PATH": "/usr/bin:/bin:/usr/local/bin:/workspace/.packages/bin:/usr/sbin:/sbin",
        "PIP_TARGET": "/workspace/.packages",
        "PYTHONPATH": "/workspace/.packages",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "GIT_OPTIONAL_LOCKS": "0",
        "RUSTUP_PERMIT_COPY_RENAME": "1",
        "PWD": "/workspace",
    }
    with_network = run(person, alpine, "env", network=True)
    assert "http_proxy=http://p.example\n" in with_network
    assert "secret" not in with_network


def test_caches_are_kept_apart_from_the_project_and_from_those_of_the_user(
    person: Person, alpine: Installed
) -> None:
    (person.home / ".npm").mkdir()
    (person.home / ".npm/of-the-user").write_text("")
    run(person, alpine, "echo x >$npm_config_cache/new; mkdir $XDG_CACHE_HOME/pip $GOPATH/pkg")
    assert run(person, alpine, "ls $npm_config_cache $XDG_CACHE_HOME") == (
        "/run/caches/.cache:\npip\n\n/run/caches/.npm:\nnew\n"
    )
    assert os.listdir(person.project) == []
    assert os.listdir(person.home / ".npm") == ["of-the-user"]
    # The host's programs have other caches.
    assert person.run("ls -A ~/go/ ~/.npm").stdout.text == (
        f"{person.home}/.npm:\nof-the-user\n\n{person.home}/go/:\nbin\npkg\n"
    )


def test_packages_that_are_installed_into_the_project_are_found_by_the_next_command(
    person: Person, alpine: Installed
) -> None:
    write = 'mkdir -p "$PIP_TARGET/bin"; echo "word = 42" >"$PIP_TARGET/kept.py"'
    program = "echo 'echo from bin' >.packages/bin/kept; chmod +x .packages/bin/kept"
    run(person, alpine, f"{write}; {program}")
    use = "python3 -c 'import kept; print(kept.word)'; kept"
    assert run(person, alpine, use) == "42\nfrom bin\n"
    assert (person.project / ".packages/kept.py").exists()


def test_bash_runs_in_the_alpine_system(person: Person, alpine: Installed) -> None:
    command = "cat /etc/alpine-release; a=(1 2 3); echo ${a[2]} $0; ls -d /home/* /srv/*"
    user = "root" if os.getuid() == 0 else "user"
    found = run(person, alpine, f"({command}; id -un; id -gn) 2>/dev/null")
    assert found == f"{VERSION}\n3 /bin/bash\n{user}\n{user}\n"
    assert run(person, alpine, ["printf", "%s|", "a b", "c"]) == "a b|c|"
    assert person.run(["no-such-program"], rootfs=alpine).exit_code == 127


def test_the_playground_is_beside_the_project(person: Person, alpine: Installed) -> None:
    assert run(person, alpine, "pwd; echo x >y", working_dir="playground") == "/playground\n"
    assert (person.playground / "y").read_text() == "x\n"
    assert not (person.project / "playground").exists()


def test_a_working_folder_is_found_by_its_name_here_and_by_its_name_there(
    person: Person, alpine: Installed
) -> None:
    (person.project / "src/deep").mkdir(parents=True)
    (person.project / "way").symlink_to("src")
    (person.project / "programs").symlink_to("/usr/bin")
    (person.playground / "in").mkdir(parents=True)
    home = person.home
    wanted = {
        "src": "/workspace/src",
        "way/deep": "/workspace/src/deep",
        "programs": "/usr/bin",
        "/workspace/programs": "/usr/bin",
        str(person.project / "src"): "/workspace/src",
        "/workspace": "/workspace",
        "/workspace/src/deep/..": "/workspace/src",
        "~/project/src": "/workspace/src",
        "/playground/in": "/playground/in",
        f"{home}/playground/in": "/playground/in",
        "~/playground": "/playground",
        "/usr/bin": "/usr/bin",
        "/tmp": "/tmp",
        "/": "/",
    }
    for given, found in wanted.items():
        plan = person.bubble(rootfs=alpine, working_dir=given).plan
        assert (given, plan.working_dir) == (given, found)
    assert run(person, alpine, "pwd; echo $PWD", working_dir="src") == "/workspace/src\n" * 2


def test_a_working_folder_that_is_not_there_is_an_error(person: Person, alpine: Installed) -> None:
    (person.project / "out").symlink_to(person.home)
    for given in (
        *("nowhere", "out", "/workspace/nowhere", "/playground/nowhere", str(person.home)),
        *("/home/somebody", "/tmp/x", "/workspace/../home/nobody", "/etc/passwd", "a\0b"),
        "/proc/self",
    ):
        with pytest.raises(WorkingDirError, match="does not exist"):
            person.bubble(rootfs=alpine, working_dir=given).plan  # noqa: B018


def test_without_the_network_there_is_no_resolver_and_no_way_out(
    person: Person, alpine: Installed
) -> None:
    with _server() as port:
        ask = f"cat /etc/resolv.conf; exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3"
        off: Result = person.run(ask, rootfs=alpine)
        assert off.exit_code != 0
        assert "hello" not in off.stdout.text
        assert "nameserver" not in off.stdout.text
        on = person.run(ask, rootfs=alpine, network=True)
        assert "hello" in on.stdout.text
    resolver = ReadOnlyBind(Host().resolver, "/etc/resolv.conf").args()
    plans = {n: person.bubble(rootfs=alpine, network=n).plan for n in (True, False)}
    assert resolver in [mount.args() for mount in plans[True].mounts]
    assert resolver not in [mount.args() for mount in plans[False].mounts]


@contextmanager
def _server() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            taken, _address = listening.accept()
            with taken:
                taken.sendall(b"hello\n")

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


def test_names_that_the_profile_hides_are_hidden_in_the_project_too(
    person: Person, alpine: Installed
) -> None:
    (person.project / "keys").mkdir()
    (person.project / "keys/private").write_text("secret")
    (person.project / ".env").write_text("secret")
    with_profile(person, "masks: [~/project/keys, ~/project/.env]", "standard")
    result = person.run("cat keys/private .env; ls -a keys", rootfs=alpine)
    assert "secret" not in result.stdout.text
    assert (person.project / "keys/private").read_text() == "secret"


def test_an_agreed_folder_outside_keeps_its_path_and_is_recorded(
    person: Person, alpine: Installed, manager: ProjectManager
) -> None:
    other = person.home / "shared/library"
    other.mkdir(parents=True)
    (other / "file").write_text("before")
    (person.project / "lib").symlink_to(other)
    assert person.run("cat lib/file", rootfs=alpine).exit_code != 0
    approve(manager, person, other)
    keeper = Recorder(RunSpec(str(person.project)), person.paths)
    assert run(person, alpine, "cat lib/file; echo after >lib/file", keeper=keeper) == "before"
    assert (other / "file").read_text() == "after\n"
    assert keeper.report is not None
    changed = [(item.change.root, item.change.path) for item in keeper.report.changes]
    assert changed == [(str(other), "file")]


def test_the_program_itself_cannot_be_changed_in_an_agreed_folder_either(
    person: Person, alpine: Installed, manager: ProjectManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed program would run outside the next time."""
    other = person.home / "checkout"
    (other / "program").mkdir(parents=True)
    (other / "program/code").write_text("ours")
    monkeypatch.setattr(plan, "own_code", lambda: [str(other / "program")])
    approve(manager, person, other)
    result = person.run(f"echo evil >{other}/program/code; echo new >{other}/new", rootfs=alpine)
    assert "Read-only file system" in result.stderr.text
    assert (other / "program/code").read_text() == "ours"
    assert (other / "new").exists()


def test_a_root_file_system_removed_before_the_start_is_reported(
    person: Person, alpine: Installed
) -> None:
    mine = install(person, alpine)
    bubble = person.bubble(rootfs=mine)
    told = bubble.plan.describe()
    assert any(f"Alpine {VERSION}" in sentence for sentence in told)
    assert any(f"{person.project} (the project, visible as /workspace)" in s for s in told)
    os.rename(mine.folder, f"{mine.folder}-gone")
    with pytest.raises(RootfsError, match="was just removed"):
        loop.run(bubble.exec("true"))


@pytest.mark.ordinary
def test_paths_are_mapped_both_ways(person: Person) -> None:
    places = PathMap.of(person.paths, str(person.project), ["/srv/other"])
    for here, there in {
        str(person.project): "/workspace",
        f"{person.project}/a b/c": "/workspace/a b/c",
        f"{person.playground}/x": "/playground/x",
        "/srv/other/x": "/srv/other/x",
    }.items():
        assert places.to_inside(here) == there
        assert places.to_host(there) == here
    assert places.to_inside(f"{person.project}-2/x") is None
    assert places.to_host("/usr/bin") is None
    assert places.to_host("/workspaces") is None


def test_a_project_in_a_folder_of_the_same_name_keeps_its_own_path(
    person: Person, alpine: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users may work in /workspace/project anyway: the command line starts where they are."""
    monkeypatch.setattr(paths, "WORKSPACE", str(person.home))
    places = PathMap.of(person.paths, str(person.project))
    (person.project / "src").mkdir()
    assert places.to_host(f"{person.project}/src") == f"{person.project}/src"
    assert places.to_host(f"{person.home}/src") == f"{person.project}/src"
    for given in (f"{person.project}/src", f"{person.home}/src", "src"):
        found = find_working_dir_inside(given, places, person.paths, alpine.folder, ())
        assert (given, found) == (given, f"{person.home}/src")


@pytest.mark.ordinary
def test_a_link_of_the_system_is_followed_in_the_system(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "lib").symlink_to("/usr/lib")
    (tmp_path / "up").symlink_to("../../../usr")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "file").touch()
    assert folder_in(str(tmp_path), "/lib") == "/usr/lib"
    assert folder_in(str(tmp_path), "/up/lib/../lib") == "/usr/lib"
    assert folder_in(str(tmp_path), "/..") == "/"
    for nowhere in ("/round", "/file", "/nowhere", "/home"):
        assert folder_in(str(tmp_path), nowhere) is None
