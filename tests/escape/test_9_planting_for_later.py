# SPDX-License-Identifier: GPL-3.0-or-later
"""What one command leaves behind must not run outside, or lift a mask, when the next one starts."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cli_here import cli_here
from conftest import ROOT, Person, make_person

from ollmsandbox.errors import OllmSandboxError, ProfileError, ProjectError
from ollmsandbox.project.recorder import Mode, Recorder

LIBRARY = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) {
    FILE *file = fopen(getenv("MARK") ? getenv("MARK") : "MARK_PATH", "w");
    if (file) fclose(file);
}
"""


@pytest.fixture
def library(person: Person) -> tuple[Path, Path]:
    """A library that tells when it is loaded, under the name of one that bwrap needs."""
    folder, mark = person.project / "lib", person.home / "loaded"
    folder.mkdir()
    source = folder / "l.c"
    source.write_text(LIBRARY.replace("MARK_PATH", str(mark)))
    made = folder / "libselinux.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    return made, mark


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"])
def test_a_library_for_the_program_that_makes_the_sandbox(
    person: Person, library: tuple[Path, Path], variable: str
) -> None:
    made, mark = library
    person.environ[variable] = str(made.parent if variable.endswith("PATH") else made)
    outside = person.run_outside("bwrap --version")
    assert mark.exists() or variable != "LD_PRELOAD", outside.stderr
    mark.unlink(missing_ok=True)
    assert person.run("true").exit_code == 0
    assert not mark.exists()


def test_the_person_s_own_library_path_is_there_for_the_command(person: Person) -> None:
    person.environ["LD_LIBRARY_PATH"] = "/opt/lib"
    assert person.run('echo "$LD_LIBRARY_PATH"').stdout.text == "/opt/lib\n"


def test_the_program_s_own_code(person: Person) -> None:
    # As in a checkout of it, where `build-aux/run` is used on the checkout itself.
    package = person.project / "ollmsandbox"
    shutil.copytree(ROOT / "ollmsandbox", package)
    (person.project / "build-aux").mkdir()
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    code += "from ollmsandbox.__main__ import main; sys.exit(main())"
    attack = """
    for place in ollmsandbox ollmsandbox/sandbox/starter.py build-aux; do
        touch $place/x; echo evil >>$place; mv $place away; rm -rf $place
    done 2>/dev/null
    touch mine && echo fine
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(person.project), "run", "-c", attack],
        cwd=person.project,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr
    for file in (ROOT / "ollmsandbox").rglob("*.py"):
        copied = package / file.relative_to(ROOT / "ollmsandbox")
        assert copied.read_bytes() == file.read_bytes()
    assert list((person.project / "build-aux").iterdir()) == []


@pytest.mark.parametrize("mark", ["pyvenv.cfg", ".git", "package.json"])
def test_a_sandbox_program_in_another_project(person: Person, mark: str) -> None:
    # An environment of that project may be active still.
    other = person.home / "other"
    (other / "bin").mkdir(parents=True)
    (other / mark).touch()
    planted = other / "bin" / "bwrap"
    planted.write_text(f"#!/bin/sh\ntouch {person.home}/ran\n")
    planted.chmod(0o755)
    person.environ["PATH"] = f"{other}/bin:{person.environ['PATH']}"
    assert person.run("echo walled in").stdout.text == "walled in\n"
    assert person.cli("doctor").returncode == 0
    assert not (person.home / "ran").exists()


def test_renaming_the_folder_around_what_is_hidden_in_the_project(person: Person) -> None:
    secret = person.project / "private" / "deep" / "key"
    secret.parent.mkdir(parents=True)
    secret.write_text("secret")
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "mine.yaml").write_text(f"masks: ['{secret}']\n")
    for attack in ("mv private/deep p; mv private p", "cat p/key p/deep/key private/deep/key"):
        result = person.run(attack, profile="mine")
        assert "secret" not in result.stdout.text
    assert secret.read_text() == "secret"


def test_a_mask_at_the_top_of_the_file_system_is_one(person: Person) -> None:
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "mine.yaml").write_text("masks: [/opt]\n")
    assert person.run("ls -A /opt", profile="mine").stdout.text == ""


def test_a_mask_around_the_home_folder_is_refused(person: Person) -> None:
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "mine.yaml").write_text(f"masks: ['{person.home.parent}']\n")
    with pytest.raises(ProfileError, match="home folder"):
        person.run("true", profile="mine")


def test_a_layer_that_was_cleared_away_is_made_again(person: Person) -> None:
    (person.home / ".ssh").mkdir()
    (person.home / ".ssh" / "key").write_text("secret")
    person.run("true")
    for layer in (person.paths.runtime / "layers").iterdir():
        (layer / "top" / ".ssh").unlink(missing_ok=True)
    # Another program: each looks at a layer once.
    assert "secret" not in person.cli("run", "--", "cat", f"{person.home}/.ssh/key").stdout


def test_secrets_stay_hidden_where_their_folder_was_moved(person: Person) -> None:
    moved = person.home / "moved"
    (moved / "gh").mkdir(parents=True)
    (moved / "gh" / "hosts.yml").write_text("secret")
    (person.home / "kube").write_text("secret")
    person.environ["XDG_CONFIG_HOME"] = str(moved)
    person.environ["KUBECONFIG"] = str(person.home / "kube")
    assert "secret" not in person.run("cat ~/moved/gh/hosts.yml ~/kube").stdout.text


def test_the_playground_is_cleared_while_a_command_swaps_folders_for_links(
    person: Person,
) -> None:
    precious = person.home / "precious"
    precious.mkdir()
    for number in range(50):
        (precious / f"{number}").touch()
    swap = f"""
    import os
    os.chdir(os.path.expanduser('~/playground'))
    while True:
        try:
            os.makedirs('a/b')
            os.rename('a', 'c')
            os.symlink('{precious}', 'a')
            os.unlink('a')
        except OSError:
            pass
    """
    code = "\n".join(line[4:] for line in swap.splitlines())
    with subprocess.Popen(
        [sys.executable, "-c", code.replace("~/playground", str(person.playground))],
        env=person.environ,
    ) as swapping:
        person.playground.mkdir(parents=True, exist_ok=True)
        try:
            for _ in range(8):
                person.cli("playground", "clear")
        finally:
            swapping.kill()
    assert len(list(precious.iterdir())) == 50


@pytest.mark.parametrize("folder", ["/etc", "/usr/lib", "/boot", "/home", "/var", "/opt", "/srv"])
def test_a_folder_of_the_system_as_a_project(person: Person, folder: str) -> None:
    with pytest.raises(ProjectError, match=r"system|home|does not exist"):
        person.run("true", project=folder)


if os.getuid() == 0:

    def test_root_in_another_user_s_home_folder(person: Person) -> None:
        os.chown(person.home, 12345, 12345)
        with pytest.raises(OllmSandboxError, match="another user"):
            person.run("true")
        os.chown(person.home, 0, 0)


def test_a_second_person_s_files_are_told_apart(tmp_path: Path) -> None:
    # Equal homes share their layers; those with other modes or masks do not.
    one, two = make_person(tmp_path / "one"), make_person(tmp_path / "two")
    two.home.chmod(0o700)
    for person in (one, two):
        mode = stat.S_IMODE(person.home.stat().st_mode)
        assert person.run("stat -c %a ~").stdout.text == f"{mode:o}\n"


def changed(
    person: Person, command: str, mode: Mode = Mode.AUTO
) -> dict[str, tuple[set[str], str]]:
    """Flags and state of each change."""
    recorder = Recorder(str(person.project), person.paths, mode=mode, command=command)
    person.run(command, keeper=recorder)
    report = recorder.report
    if report is None:
        return {}
    assert not report.errors, report.errors
    return {
        item.change.path: ({flag.value for flag in item.change.flags}, item.state.value)
        for item in report.changes
    }


def held(person: Person, command: str) -> set[str]:
    """What a command changed and waits for a yes. All of that is marked as what acts later."""
    found = changed(person, command)
    for path, (flags, state) in found.items():
        assert ("held" in flags) == (state == "pending"), path
        assert "held" not in flags or "runs-later" in flags or path.endswith(".git"), path
    return {path for path, (_, state) in found.items() if state == "pending"}


@pytest.fixture
def checkout(person: Person) -> Path:
    """The project, with a repository in it. What a hook does shows in the home folder."""
    subprocess.run(
        ["git", "init", "-q", "--template=/usr/share/git-core/templates", person.project],
        env=person.environ,
        check=True,
    )
    hooks = person.project / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "post-checkout.sample").write_text(f"#!/bin/sh\ntouch {person.home}/planted\n")
    (hooks / "post-checkout.sample").chmod(0o755)
    return person.project


def use_git(person: Person, folder: Path | None = None) -> bool:
    """What a person does without a thought. True if something planted was run."""
    mark = person.home / "planted"
    mark.unlink(missing_ok=True)
    identity = "-c user.name=a -c user.email=a@b"
    subprocess.run(
        ["sh", "-c", f"git {identity} status; git {identity} commit -q --allow-empty -m x;"
         f"git {identity} checkout -q -B other; git stash list"],
        cwd=folder or person.project, env=person.environ, capture_output=True, check=False,
    )  # fmt: skip
    return mark.exists()


HOOK = "printf '#!/bin/sh\\ntouch ~/planted\\n'"
PLANTS = {
    "a hook": f"{HOOK} >.git/hooks/post-commit; chmod +x .git/hooks/post-commit",
    "a renamed sample": "mv .git/hooks/post-checkout.sample .git/hooks/post-checkout",
    "a copied sample": "cp -p .git/hooks/post-checkout.sample .git/hooks/post-checkout",
    "a hard link": "ln .git/hooks/post-checkout.sample .git/hooks/post-checkout",
    "a link": "ln -s post-checkout.sample .git/hooks/post-checkout",
    "a folder of hooks that was prepared elsewhere":
        f"mkdir h; {HOOK} >h/post-commit; chmod +x h/post-commit; rm -r .git/hooks;"
        "mv h .git/hooks",
    "hooks as a link": f"mkdir h; {HOOK} >h/post-commit; chmod +x h/post-commit; rm -r .git/hooks;"
        "ln -s ../h .git/hooks",
    "a repository that was prepared elsewhere":
        f"cp -r .git g; {HOOK} >g/hooks/post-commit; chmod +x g/hooks/*; rm -r .git; mv g .git",
    "a repository as a link": f"cp -r .git g; {HOOK} >g/hooks/post-commit; chmod +x g/hooks/*;"
        "rm -r .git; ln -s g .git",
    "a file in place of the repository": f"cp -r .git g; {HOOK} >g/hooks/post-commit;"
        "chmod +x g/hooks/*; rm -r .git; echo 'gitdir: g' >.git",
    "a program in the config": "git config core.fsmonitor 'touch ~/planted; false'",
    "a folder for hooks in the config": f"mkdir h; {HOOK} >h/post-commit; chmod +x h/*;"
        "git config core.hooksPath h",
    "a config that takes in another": "printf '[core]\\nfsmonitor = touch ~/planted; false' >c;"
        "printf '[include]\\npath = ../c' >>.git/config",
    "a config for the worktree": "git config extensions.worktreeConfig true;"
        "git config --worktree core.fsmonitor 'touch ~/planted; false'",
    "another folder's config": "cp -r .git g; git --git-dir=g config core.fsmonitor"
        " 'touch ~/planted; false'; echo ../g >.git/commondir",
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
def test_git_is_made_to_run_something(person: Person, checkout: Path, plant: str) -> None:
    waiting = held(person, PLANTS[plant])
    assert waiting
    assert not use_git(person)
    # The next command has it all the same.
    shown = person.run(f"ls -d {' '.join(waiting)} 2>&1").stdout.text
    assert shown.split() == sorted(waiting) or ".git/hooks" not in " ".join(waiting)
    assert cli_here(person, "discard").returncode == 0
    assert not use_git(person)
    # What was discarded does not come back with the rest.
    assert "Traceback" not in cli_here(person, "apply").stderr
    assert not use_git(person)


@pytest.mark.parametrize("plant", PLANTS)
def test_git_would_run_it_once_the_person_said_yes(
    person: Person, checkout: Path, plant: str
) -> None:
    # Else the test above would prove nothing.
    assert held(person, PLANTS[plant])
    done = cli_here(person, "apply")
    assert done.returncode == 0, done.stdout
    assert use_git(person)


def write(place: str) -> str:
    return f"mkdir -p '{os.path.dirname(place) or '.'}'; echo evil >'{place}'"


def test_hooks_of_modules_and_worktrees(person: Person, checkout: Path) -> None:
    places = [
        ".git/modules/m/hooks/post-commit", ".git/modules/m/config", ".git/modules/a/b/c/config",
        ".git/modules/a/b/hooks/x", ".git/modules/m/modules/n/o/config", ".git/worktrees/w/gitdir",
        ".git/worktrees/w/config.worktree", ".git/worktrees/w/commondir", "sub/.git",
        "deep/er/.git/hooks/pre-push", "x.git/hooks/update", "x.git/config", "x.git/y/.git/config",
        ".git/remotes/origin", ".git/rebase-merge/git-rebase-todo", ".hg/hgrc", "s/.hg/sharedpath",
        ".Git/hooks/x", ".git./config", ".g\u200cit/config", "GIT~1/config", ".git/hooks/a/b",
    ]  # fmt: skip
    assert held(person, "; ".join(map(write, places))) == set(places)
    assert not any((checkout / place).exists() for place in places)
    harmless = [".git/index", ".git/refs/heads/x", ".git/logs/HEAD", ".git/hooks/x.sample",
                "config", "hooks/x", "src/config", "modules/m/config", ".git/objects/aa/bb",
                ".gitignore", "a.github", ".git/modules/m/HEAD"]  # fmt: skip
    assert held(person, "; ".join(map(write, harmless))) == set()
    assert all((checkout / place).read_text() == "evil\n" for place in harmless)


@pytest.mark.parametrize(
    "link", [".git/hooks", ".git/modules", ".git/modules/a/b", ".git/info", ".git", "x/.git", ".hg"]
)
def test_links_inside_a_repository(person: Person, link: str) -> None:
    assert held(person, f'mkdir -p "$(dirname {link})" h; ln -s "$PWD/h" {link}') == {link}
    assert not os.path.lexists(person.project / link)


def test_a_worktree_made_by_git_itself(person: Person, checkout: Path) -> None:
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
    waiting = held(person, f"{commit}; git worktree add -q wt; {HOOK} >.git/hooks/post-commit")
    assert {"wt/.git", ".git/worktrees/wt/gitdir", ".git/hooks/post-commit"} <= waiting
    assert person.run("git -C wt status --short").exit_code == 0


@pytest.mark.parametrize("name", ["evil", "docs/evil", "x.git", "logs"])
def test_a_bare_repository_with_any_name(person: Person, name: str) -> None:
    # git takes every folder with a HEAD, objects and refs for a repository.
    plant = (
        f"git init -q --bare {name}; git -C {name} config core.fsmonitor 'touch ~/planted;false'"
    )
    plant += f"; git -C {name} config core.bare false; git -C {name} config core.worktree ."
    assert f"{name}/HEAD" in held(person, plant)
    assert not use_git(person, person.project / name)
    assert cli_here(person, "apply").returncode == 0
    assert use_git(person, person.project / name)
    # Now it is one, and what leads git in it waits.
    attack = f"echo x >>{name}/config; {HOOK} >{name}/hooks/post-commit; echo x >{name}/note"
    assert held(person, attack) == {f"{name}/config", f"{name}/hooks/post-commit"}
    attack = f"cd {name}; git update-ref refs/heads/x HEAD; echo ref: refs/heads/y >HEAD"
    assert held(person, attack) == set()


def test_a_repository_is_deleted(person: Person, checkout: Path) -> None:
    found = changed(person, "rm -rf .git; touch file")
    assert found["file"][1] == "applied"
    assert found[".git/config"][1] == found[".git"][1] == "pending"
    assert "conflict" not in {state for _, state in found.values()}
    assert cli_here(person, "apply").returncode == 0
    assert not (checkout / ".git").exists()
    assert cli_here(person, "undo").returncode == 0
    assert (checkout / ".git" / "config").exists()


ACTED_ON = (
    ".envrc", ".vscode/tasks.json", ".idea/workspace.xml", ".github/workflows/ci.yml",
    ".gitlab-ci.yml", "sub/.bashrc", ".profile", ".zshenv", ".husky/pre-commit", ".npmrc",
    ".claude/settings.json", ".cursor/mcp.json", ".mcp.json", ".VSCODE/settings.json",
    ".gitattributes", "a/b/.envrc", ".devcontainer/devcontainer.json", "other/.vscode",
)  # fmt: skip


def test_files_that_other_programs_act_on_are_marked(person: Person) -> None:
    made = [f"mkdir -p \"$(dirname '{path}')\"; echo x >'{path}'" for path in ACTED_ON]
    found = changed(person, "; ".join([*made, "touch plain"]))
    for path in ACTED_ON:
        assert found[path] == ({"runs-later"}, "applied"), path
    assert found["plain"] == (set(), "applied")


@pytest.mark.parametrize("path", [".envrc", ".vscode/tasks.json"])
def test_a_person_is_told_of_what_acts_later(person: Person, path: str) -> None:
    (person.project / path).parent.mkdir(exist_ok=True)
    (person.project / path).write_text("x\n")
    done = person.cli("run", "-c", f"echo y >'{path}'")
    assert "acts later, outside the sandbox" in done.stderr


def test_what_can_be_run_is_marked(person: Person) -> None:
    for name in ("tool", "was"):
        (person.project / name).write_text("old\n")
    (person.project / "was").chmod(0o755)
    found = changed(person, "echo x >new; chmod +x new tool; echo x >was; mv tool moved; touch no")
    marked = {path for path, (flags, _) in found.items() if "executable" in flags}
    assert marked == {"new", "moved"}
    assert "can be run" in cli_here(person, "changes").stdout


OUTSIDE = (
    *("~", "~/other", "/etc", "..", "../other", "a/../../other", "sub/../../x"),
    "/proc/self/cwd/..",
)


def test_links_that_lead_outside_are_marked(person: Person) -> None:
    made = [f"ln -s {target} sub/../link{n}" for n, target in enumerate(OUTSIDE)]
    found = changed(person, f"mkdir sub; ln -s sub/x fine; {'; '.join(made)}")
    for number, target in enumerate(OUTSIDE):
        assert found[f"link{number}"] == ({"leaves-project"}, "applied"), target
    assert found["fine"] == (set(), "applied")
    shown = cli_here(person, "changes").stdout
    assert shown.count("leads out of the project") == len(OUTSIDE)


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.REVIEW], ids=lambda mode: str(mode.value))
def test_a_link_made_by_a_command_opens_nothing_to_the_next(person: Person, mode: Mode) -> None:
    other = person.home / "other"
    other.mkdir()
    (other / "file").write_text("mine\n")
    changed(person, f"ln -s {other} link; ln -s {person.home} home", mode)
    for _ in range(2):
        attack = "echo evil >link/file; echo evil >link/new; echo evil >home/new; rm -r link/file"
        assert changed(person, attack, mode) == {}
        assert [path.name for path in other.iterdir()] == ["file"]
    assert (other / "file").read_text() == "mine\n"
    assert not (person.home / "new").exists()


def test_an_agreed_folder_that_became_a_link(person: Person) -> None:
    # What was agreed to is that folder, not where its name leads later.
    for name in ("agreed", "precious"):
        (person.home / name).mkdir()
    (person.project / "link").symlink_to(person.home / "agreed")
    done = person.cli("roots", "add", str(person.home / "agreed"))
    assert done.returncode == 0, done.stderr
    assert changed(person, "echo fine >link/file")
    assert (person.home / "agreed" / "file").read_text() == "fine\n"
    shutil.rmtree(person.home / "agreed")
    (person.home / "agreed").symlink_to(person.home / "precious")
    assert changed(person, "echo evil >link/file") == {}
    assert "Traceback" not in cli_here(person, "undo").stderr
    assert list((person.home / "precious").iterdir()) == []
