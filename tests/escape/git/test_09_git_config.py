# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the project that git's configuration makes git run: they are held, as hooks in their
usual place are."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.escape.copy_back import in_each, of_each, review, settle
from support.person import Person

from ollmsandbox.project.change import Flag, State, Type
from ollmsandbox.project.held.git.targets import GitTargets

pytestmark = pytest.mark.ordinary

HOOK = "tools/hooks/pre-commit"


def git(person: Person, *words: str, folder: Path | None = None) -> None:
    said = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    person.run_outside(["git", *said, *words], cwd=folder or person.project, check=True)


def write(file: Path, words: str = "#!/bin/sh\n") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(words)
    file.chmod(0o755)


@pytest.fixture
def checkout(person: Person) -> Path:
    git(person, "init", "-q")
    write(person.project / HOOK)
    write(person.project / "tools" / "build")
    return person.project


def held(person: Person, command: str) -> set[str]:
    report = settle(person, command)
    assert not report.errors
    for item in report.changes:
        assert (item.state is State.PENDING) == item.is_held, item
        is_marked = Flag.LATER in item.change.flags or item.change.type is Type.FOLDER
        assert is_marked or not item.is_held, item
    return {item.change.path for item in report.changes if item.is_held}


def test_a_hook_in_a_folder_that_the_config_names(person: Person, checkout: Path) -> None:
    git(person, "config", "core.hooksPath", "tools/hooks")
    mark = person.home / "planted"
    attack = f"echo 'touch {mark}' >>{HOOK}; echo x >>tools/build; echo x >new; touch tools/x"
    report = settle(person, attack)
    found = {item.change.path: item.state for item in report.changes}
    assert found.pop(HOOK) is State.PENDING
    assert set(found.values()) == {State.APPLIED}
    git(person, "commit", "--allow-empty", "-m", "x")
    assert not mark.exists()
    # Once the user says so, it is as they said.
    review(person, "apply", report.run_id, HOOK)
    git(person, "commit", "--allow-empty", "-m", "x")
    assert mark.exists()


@pytest.mark.parametrize(
    "setting",
    [
        "[core]\n\thooksPath = tools/hooks\n",
        "[core] hookspath=tools/hooks",
        '[Core]\n  HOOKSPATH = "tools/hooks" ; here\n',
        '[core]\n# none\nbare = false\n[x "y]"]\na = b\n[core]\nhooksPath = tools/ho\\\noks # or\n',
        "[core]\nhooksPath = ./tools/../tools/hooks/\n",
        "[core]\nhooksPath = PROJECT/tools/hooks\n",
        "[core]\nhooksPath = Tools/Hooks\n",
        "[core]\nhooksPath = linked\n",
        '[include]\npath = ../tools/settings\n[include]\npath = "../more"\n',
        '[includeIf "gitdir:~/"]\npath = PROJECT/more\n',
        '[filter "x"]\nclean = sh tools/hooks/pre-commit %f\n',
        '[diff "x"]\ntextconv = ./tools/hooks/pre-commit\n',
        "[core]\nfsmonitor = tools/hooks/pre-commit --now\n",
        "[credential]\nhelper = !tools/hooks/pre-commit get\n",
        '[credential]\nhelper = "!f() { tools/hooks/pre-commit; }; f"\n',
        '\N{BYTE ORDER MARK}[core]\nsshCommand = "ssh -x;tools/hooks/pre-commit"\n',
    ],
)
def test_each_way_to_say_so(person: Person, checkout: Path, setting: str) -> None:
    (checkout / "linked").symlink_to("tools/hooks")
    (checkout / "more").write_text("[core]\nhooksPath = tools/hooks\n")
    (checkout / ".git" / "config").write_text(setting.replace("PROJECT", str(checkout)))
    led = GitTargets.of(str(checkout))
    assert led.covers(HOOK)
    assert led.is_near("tools/hooks/")
    assert not led.covers("tools/build")
    assert not led.is_near("src/")
    if "more" in setting:
        assert led.covers("more")


@pytest.mark.parametrize(
    "setting",
    [
        "[core]\nhooksPath = a\0b\n",
        "[include]\npath = config\n" * 10,
        "[a" + 100_000 * " ",
        "[include]\npath = /proc/self/pagemap\n[include]\npath = /proc/kmsg\n",
        "[include]\npath = /dev/zero\n[include]\npath = ../pipe\n",
        "[core]\n" + "".join(f"editor = ./{n}\n" for n in range(2_000)),
    ],
    ids=["no text", "includes itself", "spaces", "made up", "endless", "many"],
)
def test_hostile_config_is_read_quickly(tmp_path: Path, setting: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(setting)
    led = GitTargets.of(str(tmp_path))
    assert not any(led.covers(f"src/{number}") for number in range(5_000))


@pytest.mark.parametrize(
    "setting",
    [
        "[core]\n" + "".join(f"editor = ./{n}\n" for n in range(6_000)),
        "#" + (1 << 20) * " ",
        "".join(f"[include]\npath = ../more/{n}\n" for n in range(501)),
    ],
    ids=["many programs", "long", "many files"],
)
def test_an_overlong_config_holds_everything(tmp_path: Path, setting: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(setting)
    (tmp_path / "more").mkdir()
    for number in range(501):
        (tmp_path / "more" / str(number)).write_text("[core]\n")
    led = GitTargets.of(str(tmp_path))
    assert led.covers("src/file")
    assert led.is_near("src/")


def test_many_folders_that_look_like_repositories(person: Person, checkout: Path) -> None:
    """Each of them is examined; those that are not repositories do not hide the others."""
    git(person, "config", "core.hooksPath", "tools/hooks")
    git(person, "init", "-q", "z/deep")
    git(person, "config", "core.hooksPath", "hooks", folder=checkout / "z" / "deep")
    hook = "z/deep/hooks/pre-commit"
    write(checkout / hook)
    assert held(person, "for n in $(seq 110); do mkdir -p a/$n/.git; done") == set()
    attack = "for n in $(seq 110); do echo x >a/$n/x; done; "
    attack += f"for f in {HOOK} {hook}; do echo x >>$f; done"
    assert held(person, attack) == {HOOK, hook}


def test_a_folder_that_looks_like_the_repository_around(person: Person) -> None:
    git(person, "init", "-q", folder=person.home)
    git(person, "config", "core.hooksPath", "project/tools/hooks", folder=person.home)
    write(person.project / HOOK)
    assert held(person, "mkdir .git") == set()
    assert held(person, f"echo x >>{HOOK}") == {HOOK}


HOOKS_PATH = "git config core.hooksPath"
MAKE_INDEX = "git add .; git commit -qm 1; for n in 2 3; do git commit -qm $n --allow-empty; done; "
CACHE = f".git/rr-cache/{'12345' * 8}"
# In a repository with a script and a hook: what the user has, what a command does, what is held.
LED: dict[str, tuple[str, str, set[str]]] = {
    "config that is included": (
        "git config include.path ../shared/gitconfig; mkdir shared; echo '[a]' >shared/gitconfig",
        "echo '[core]\nhooksPath = evil' >>shared/gitconfig; echo x >shared/other",
        {"shared/gitconfig"},
    ),
    "a hook that is a link to a script": (
        "mkdir -p .git/hooks; ln -s ../../tools/build .git/hooks/pre-commit",
        "echo x >>tools/build; echo x >tools/other",
        {"tools/build"},
    ),
    "a new hook": (
        f"{HOOKS_PATH} not-there/yet",
        "mkdir -p not-there/yet; echo x >not-there/yet/pre-push; echo x >not-there/x",
        {"not-there/yet/pre-push"},
    ),
    "a repository in the project": (
        "git init -q inner; git -C inner config core.hooksPath my/hooks; mkdir -p my/hooks "
        "inner/my/hooks; touch my/hooks/pre-commit inner/my/hooks/pre-commit",
        "for f in inner/my/hooks/pre-commit my/hooks/pre-commit; do echo x >>$f; done",
        {"inner/my/hooks/pre-commit"},
    ),
    "hooks beside a repository": (
        "git init -q sub; git -C sub config core.hooksPath ..",
        "for f in pre-commit other; do echo x >$f; chmod +x $f; done",
        {"pre-commit"},
    ),
    "hooks beside a repository, by the whole path": (
        'git init -q sub; git -C sub config core.hooksPath "$PWD"',
        "for f in pre-commit other; do echo x >$f; chmod +x $f; done",
        {"pre-commit"},
    ),
    "a folder of hooks beside a repository": (
        "git init -q sub; git -C sub config core.hooksPath ../hooks",
        "mkdir hooks; for f in hooks/pre-commit other; do echo x >$f; chmod +x $f; done",
        {"hooks/pre-commit"},
    ),
    "config that is a folder": ("rm .git/config; mkdir .git/config", f"echo x >>{HOOK}", set()),
    "config that is a pipe": ("rm .git/config; mkfifo .git/config", f"echo x >>{HOOK}", set()),
    "config that is a link to itself": (
        "rm .git/config; ln -s config .git/config", f"echo x >>{HOOK}", set()
    ),
    "a script that nobody has written": (
        "echo '[ -f scripts/local ] && . scripts/local' >.git/hooks/pre-commit;"
        "chmod +x .git/hooks/pre-commit",
        "mkdir scripts bin; echo evil >scripts/local; echo x >scripts/other; echo x >bin/sh",
        {"scripts/local"},
    ),
    "a script that may not be there": (
        "echo 'source scripts/local || true' >.git/hooks/pre-commit; chmod +x .git/hooks/*",
        "mkdir scripts bin; echo evil >scripts/local; echo x >scripts/other; echo x >bin/sh",
        {"scripts/local"},
    ),
    "links on the way": (
        "mkdir -p impl scripts v1 v2; touch impl/check impl/evil v1/pre-push v2/pre-push;"
        "ln -s ../impl/check scripts/pre-commit; ln -s ../../scripts/pre-commit .git/hooks/;"
        f"ln -s v1 current; ln -s current githooks; {HOOKS_PATH} githooks;"
        "echo >one; echo >two; ln -s one middle; ln -s middle inc; git config include.path ../inc",
        "ln -sf ../impl/evil scripts/pre-commit; ln -sfn v2 current; ln -sf two middle",
        {"scripts/pre-commit", "current", "middle"},
    ),
    "links in a folder beside the hooks": (
        f"mkdir -p .git/hooks/pre-commit.d impl l/d; {HOOKS_PATH} githooks; ln -s tools/h githooks;"
        "mkdir -p tools/h/x.d; touch impl/check impl/deep; ln -s ../../impl/check tools/h/pre-push;"
        "ln -s ../../../impl/deep tools/h/x.d/a;"
        "ln -s ../../../tools/build .git/hooks/pre-commit.d/",
        "echo x >>tools/build; echo x >>impl/check; echo x >>impl/deep; echo x >tools/other;"
        "mkdir .git/hooks/new.d",
        {"tools/build", "impl/check", "impl/deep", ".git/hooks/new.d"},
    ),
    "hooks of git-flow, a pager in an alias": (
        "git config gitflow.path.hooks flow; git config alias.l '-c core.pager=al/pager log';"
        "mkdir flow al; touch flow/x al/pager",
        "echo x >>flow/x; echo x >>al/pager; echo x >al/other",
        {"flow/x", "al/pager"},
    ),
    "what Mercurial includes": (
        "mkdir .hg; echo '%include ../shared.rc' >.hg/hgrc; touch shared.rc",
        "echo '[hooks]' >>shared.rc; echo x >other",
        {"shared.rc"},
    ),
    "modules that a hook imports": (
        "echo 'exec \"$INSTALL_PYTHON\" -mpre_commit hook-impl' >.git/hooks/pre-commit; mkdir src",
        "for f in argparse.py json.abi3.so other.py src/json.py token.json; do echo x >$f; done;"
        "mkdir yaml; echo x >yaml/__init__.py",
        {"argparse.py", "json.abi3.so", "yaml/__init__.py"},
    ),
    "a repository made of logs": (
        "mkdir src; git add .; git commit -qm 1",
        "I=$(git rev-parse HEAD); R=.git/worktrees/w/logs/refs/heads/x; mkdir -p $R/hooks;"
        "echo $I $I x >$R/HEAD; echo \"$I $I x/../../../../../../../../src/.git\" >$R/gitdir;"
        "echo \"$I $I ;touch ~/planted\" >$R/hooks/pre-commit; chmod +x $R/hooks/pre-commit;"
        "echo \"gitdir: ../$R\" >src/.git",
        {"src/.git", ".git/worktrees/w/logs/refs/heads/x/hooks/pre-commit"},
    ),
    "a worktree around what is there": (
        "mkdir src; echo x >src/file; git add .; git commit -qm 1",
        "git worktree add -q --detach --no-checkout t; mv t/.git src; rmdir t;"
        "echo $PWD/src/.git >.git/worktrees/t/gitdir;"
        "echo 'gitdir: ../.git/worktrees/t' >src/.git",
        {"src/.git"},
    ),
    # Git does not join the lines, so we must not, either.
    "a comment that seems to hide the next line": (
        "printf '[core]\n# \\\\\n\thooksPath = tools/hooks\n' >>.git/config",
        f"echo x >>{HOOK}",
        {HOOK},
    ),
    "a value that seems to hide the next line": (
        "printf '[core]\n\tbare = false ; \\\\\n\thooksPath = tools/hooks\n' >>.git/config",
        f"echo x >>{HOOK}",
        {HOOK},
    ),
    # `git commit` writes known resolutions to the files in the list.
    "conflicts that are resolved in other files": (
        "true",
        f"mkdir -p {CACHE}; cp .git/config {CACHE}/preimage; cp .git/config {CACHE}/postimage;"
        f"echo '[core]\npager = evil' >>{CACHE}/postimage;"
        f"printf '{'12345' * 8}.-1\\t.git/config\\0' >.git/MERGE_RR",
        set(),
    ),
    "a cherry-pick that continues with a program": (
        MAKE_INDEX,
        "mkdir .git/sequencer git-merge-x; git rev-parse HEAD >.git/sequencer/head;"
        "for n in 0 1; do echo pick $(git rev-parse HEAD~$n) x; done >.git/sequencer/todo;"
        "printf '[options]\nstrategy = x/y\n' >.git/sequencer/opts; echo x >git-merge-x/y",
        {".git/sequencer/opts"},
    ),
    "a repository behind a link": (
        "rm -r .git; ln -s /elsewhere/a link", "echo 'gitdir: link/.git/modules/x' >.git", {".git"}
    ),
    "a repository behind a new link": (
        "rm -r .git",
        "ln -s /elsewhere/a link; echo 'gitdir: link/../.git/modules/x' >.git",
        {".git"},
    ),
    "a repository that is not there": (
        "rm -r .git", "echo 'gitdir: d/.git/modules/x' >.git", {".git"}
    ),
}  # fmt: skip


def test_what_the_config_of_a_repository_leads_to(person: Person) -> None:
    git(person, "config", "--global", "user.name", "me", folder=person.home)
    git(person, "config", "--global", "user.email", "me@example.org", folder=person.home)
    for number, (prepare, _, _) in enumerate(LED.values()):
        folder = person.project / str(number)
        git(person, "init", "-q", str(folder))
        write(folder / HOOK)
        write(folder / "tools" / "build")
        assert person.run_outside(f"mkdir -p .git/hooks; {prepare}", cwd=folder).returncode == 0
    configs = {folder: (folder / ".git/config") for folder in person.project.iterdir()}
    before = {f: file.read_text() for f, file in configs.items() if file.is_file()}
    found = of_each(LED, held(person, in_each(attack for _, attack, _ in LED.values())))
    assert found == {name: waiting for name, (_, _, waiting) in LED.items()}
    for folder, text in before.items():
        person.run_outside("git commit -q --allow-empty -m x", cwd=folder)
        assert (folder / ".git/config").read_text() == text


@pytest.fixture
def deep(person: Person) -> Path:
    """The project is no repository, but far inside of it is one that has its hooks elsewhere."""
    inner = person.project / "libs/c/one"
    inner.mkdir(parents=True)
    git(person, "init", "-q", folder=inner)
    git(person, "config", "core.hooksPath", "../../../tools/hooks", folder=inner)
    write(person.project / HOOK)
    write(person.project / "tools/update")
    return person.project


def test_a_repository_deep_in_the_project_is_led_elsewhere(person: Person, deep: Path) -> None:
    others = "echo x >>tools/update; echo x >new; ln -s new link; mkdir src; echo x >src/update"
    assert held(person, f"echo x >>{HOOK}; {others}; chmod 755 src/update") == {HOOK}
    assert held(person, "ln -s ../../new tools/hooks/post-merge") == {"tools/hooks/post-merge"}
    assert held(person, "printf x >tools/hooks/update; chmod 755 tools/hooks/update") == {
        "tools/hooks/update"
    }


def test_a_link_in_the_way_to_hooks_of_a_repository_deep_in_the_project(
    person: Person, deep: Path
) -> None:
    assert held(person, "mv tools moved; ln -s moved tools") >= {"tools", HOOK}


@pytest.mark.parametrize("limit", ["_MOST_FOLDERS", "_MOST_NAMES", "_MOST_FOUND"])
def test_with_too_many_folders_every_file_named_like_a_hook_is_held(
    person: Person, deep: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"ollmsandbox.project.held.git.targets.{limit}", 0)
    command = "echo x >>tools/update; echo x >new; ln -s new link; echo x >run; chmod 755 run"
    assert held(person, command) == {"tools/update"}


def test_a_worktree_of_a_repository_elsewhere(person: Person) -> None:
    origin = person.home / "origin"
    origin.mkdir()
    git(person, "init", "-q", folder=origin)
    git(person, "commit", "--allow-empty", "-m", "x", folder=origin)
    git(person, "config", "core.hooksPath", "tools/hooks", folder=origin)
    person.project.rmdir()
    git(person, "worktree", "add", "-q", str(person.project), folder=origin)
    write(person.project / HOOK)
    assert held(person, f"echo x >>{HOOK}") == {HOOK}


def test_a_project_that_is_a_part_of_a_repository(person: Person) -> None:
    git(person, "init", "-q", folder=person.home)
    git(person, "config", "core.hooksPath", "project/tools/hooks", folder=person.home)
    write(person.project / HOOK)
    assert held(person, f"echo x >>{HOOK}; echo x >other") == {HOOK}


def test_a_link_in_the_way_to_the_hooks(person: Person, checkout: Path) -> None:
    git(person, "config", "core.hooksPath", "tools/hooks")
    assert "tools" in held(person, "mv tools other; ln -s other tools")


def test_hooks_that_are_deleted(person: Person, checkout: Path) -> None:
    git(person, "config", "core.hooksPath", "tools/hooks")
    assert held(person, "rm -r tools/hooks") == {"tools/hooks", HOOK}


@pytest.mark.parametrize("setting", [".", "./", "PROJECT"])
def test_hooks_in_the_project_folder_itself(person: Person, checkout: Path, setting: str) -> None:
    git(person, "config", "core.hooksPath", setting.replace("PROJECT", str(checkout)))
    attack = "for f in pre-commit build tools/pre-commit .git/update; do echo x >$f; done"
    # The last one runs in the repository's own folder.
    assert held(person, attack) == {"pre-commit", ".git/update"}
    # And nothing else of it is.
    said = "-c user.name=me -c user.email=me@example.org"
    assert held(person, f"git {said} commit -q --allow-empty -m x && touch committed") == set()
    assert (checkout / "committed").exists()


def states_of(person: Person, command: str) -> dict[str, str]:
    """Settle as the command line does, which knows the user's own configuration."""
    changes = person.cli_run(command)["changes"]
    return {change["path"]: change["state"] for change in changes}


def test_the_user_s_own_config(person: Person, checkout: Path) -> None:
    git(person, "config", "--global", "core.hooksPath", "tools/hooks")
    attack = f"echo x >>{HOOK}; echo x >>tools/build"
    assert states_of(person, attack) == {HOOK: "pending", "tools/build": "applied"}


def test_the_user_s_own_config_is_a_part_of_the_project(person: Person, checkout: Path) -> None:
    write(checkout / "dot" / "gitconfig", "[alias]\nx = log\n")
    (person.home / ".config" / "git").mkdir(parents=True)
    (person.home / ".config" / "git" / "config").symlink_to(checkout / "dot" / "gitconfig")
    attack = "echo '[core]\nhooksPath = /tmp' >>dot/gitconfig; echo x >dot/other"
    assert states_of(person, attack) == {"dot/gitconfig": "pending", "dot/other": "applied"}


def test_the_user_s_own_config_leads_to_what_is_no_repository(person: Person) -> None:
    git(person, "config", "--global", "core.hooksPath", str(person.project / "hooks"))
    git(person, "config", "--global", "include.path", str(person.project / "more"))
    write(person.project / "hooks" / "pre-commit")
    write(person.project / "more", "")
    attack = "echo x >>hooks/pre-commit; echo '[a]' >>more; echo x >other"
    found = states_of(person, attack)
    assert found == {"hooks/pre-commit": "pending", "more": "pending", "other": "applied"}


def test_the_user_s_own_hooks_run_what_is_in_a_new_repository(person: Person) -> None:
    write(person.home / "hooks/pre-commit", "#!/bin/sh\n[ -x .local/check ] && .local/check\n")
    git(person, "config", "--global", "core.hooksPath", "~/hooks")
    (person.project / "sub").mkdir()
    attack = "cd sub; git init -q; mkdir .local; echo x >.local/check; echo x >other"
    found = states_of(person, f"{attack}; chmod +x .local/check")
    assert (found["sub/.local/check"], found["sub/other"]) == ("pending", "applied")


def test_the_config_leads_to_a_linked_folder(person: Person, checkout: Path) -> None:
    linked, named = person.home / "shared", person.home / "linked" / ".vscode"
    for hook in ("hooks/pre-commit", "check", "monitor"):
        write(linked / hook)
    named.mkdir(parents=True)
    git(person, "config", "core.hooksPath", str(linked / "hooks"))
    git(person, "config", "core.fsmonitor", str(linked / "monitor"))
    git(person, "init", "-q", "inner")
    git(person, "config", "core.hooksPath", "husky", folder=checkout / "inner")
    (checkout / "inner/husky").symlink_to(named)
    write(checkout / ".git/hooks/post-commit", f"#!/bin/sh\n{linked}/check\n")
    for folder in (linked, named):
        assert person.cli("roots", "add", str(folder)).returncode == 0
    files = " ".join(f"{linked}/{name}" for name in ("hooks/pre-commit", "check", "monitor", "x"))
    document = person.cli_run(
        f"for f in {files}; do echo x >>$f; done; echo {{}} >{named}/tasks.json; "
        f"echo x >{named}/pre-push"
    )
    found = {change["path"]: change for change in document["changes"]}
    states = {os.path.basename(path): change["state"] for path, change in found.items()}
    assert states == {
        "pre-commit": "pending", "check": "pending", "monitor": "pending", "x": "applied",
        "tasks.json": "applied", "pre-push": "pending",
    }  # fmt: skip
    (marked,) = (change for path, change in found.items() if path.endswith("tasks.json"))
    assert marked["flags"] == ["runs-on-opening"]


@pytest.mark.parametrize("kind", ["scripts", "patterns", "words", "modules", "settings"])
def test_what_settles_for_ever(person: Person, checkout: Path, kind: str) -> None:
    """What a command leaves is judged in seconds; each of these took minutes, or hours."""
    write(checkout / ".git/hooks/pre-commit", "#!/bin/sh\nexec pre-commit run\n")
    attack = {
        "scripts": "s = {'exec': 's0', **{f's{i}': f's{i+1}' for i in range(20_000)}}",
        "patterns": "s = {'exec': ' '.join('./*/*/*/*/*%d' % i for i in range(500))}",
        "words": "s = {'exec': 'python' * 99_000 + ' sh ' + '$a' * 99_000}",
        "modules": "s = {}; os.makedirs('.git/modules' + '/a' * 1_000 + '/refs/heads/x/y')",
        "settings": "s = {}; os.makedirs('n/.git'); open('n/.git/config', 'w').write("
        "'[core]\\nbare = false\\n' + ''.join(f'[branch \"b{i}\"]\\nremote = o\\n' "
        "for i in range(2_000)))",
    }[kind]
    write(checkout / "attack.py", f"import json, os\n{attack}\n")
    for folder in ("a", "b", "c", "d"):
        for inner in ("a", "b", "c", "d"):
            (checkout / folder / inner / "a/b").mkdir(parents=True)
    script = "json.dump({'scripts': s}, open('package.json', 'w'))"
    with (checkout / "attack.py").open("a") as file:
        file.write(script)
    began = time.process_time()
    held(person, "python3 attack.py; rm attack.py")
    held(person, "echo x >new")
    assert time.process_time() - began < 20


def test_the_user_s_own_config_counts_for_each_repository(person: Person, checkout: Path) -> None:
    git(person, "config", "--global", "core.hooksPath", "my/hooks")
    git(person, "init", "-q", "inner")
    for folder in (checkout, checkout / "inner"):
        write(folder / "my" / "hooks" / "pre-commit")
    hooks = [f"{folder}my/hooks/pre-commit" for folder in ("", "inner/")]
    attack = "for f in my inner/my; do echo x >>$f/hooks/pre-commit; done"
    assert states_of(person, attack) == dict.fromkeys(hooks, "pending")


# What a manager's own installer leaves in the repository, what it then runs, and other files.
MANAGERS = {
    "husky": (".husky/_/pre-commit", 'sh "$(dirname "$0")/../pre-commit"', ".husky/pre-commit"),
    "pre-commit": ("", "exec python3 -m pre_commit hook-impl", ".pre-commit-config.yaml"),
    "lefthook": ("", "call_lefthook run pre-commit", "lefthook.yml"),
    "lefthook's scripts": ("", "call_lefthook run pre-commit", ".lefthook/pre-commit/check.sh"),
    "overcommit": ("", "require 'overcommit'", ".git-hooks/pre_commit/mine.rb"),
    "simple-git-hooks": ("", "npx simple-git-hooks", ".simple-git-hooks.json"),
    "lint-staged": ("", "npx lint-staged", ".lintstagedrc.json"),
    "a script that the hook names": ("", "exec tools/build check", "tools/build"),
    "a script by the way to the repository": (
        "",
        'exec "$(git rev-parse --show-toplevel)/tools/build"',
        "tools/build",
    ),
    "a script by the way from the hook": (
        "",
        '. "$(dirname "$0")/../../tools/common"',
        "tools/common",
    ),
    "a script without a folder": ("", "python3 check.py", "check.py"),
    "a script after a variable": ("", "ROOT=$PWD; $ROOT/tools/check", "tools/check"),
    "a script after cd": ("", "(cd tools && ./check)", "tools/check"),
    "a script after several cd": ("", "cd tools\ncd deep\nsh check.sh", "tools/deep/check.sh"),
    "a script in a folder in one of the same name": (
        "",
        'T=tools; cd "$T/$T" && sh check.sh',
        "tools/tools/check.sh",
    ),
    "a script in the home folder": ("", '. "$HOME/project/HERE/tools/mine"', "tools/mine"),
    "a script in a loop": ("", 'for f in a b\ndo\n  sh "ci/$f.sh"\ndone', "ci/a.sh"),
    "a script by a pattern": ("", "for s in tools/ch*; do $s; done", "tools/check"),
    "a script of a program": ("", "command -v awk && awk -f checks /dev/null", "checks"),
    "a module": ("", "python3 -m pkg.check", "pkg/check/__main__.py"),
    "a module after a comment": ("", "# All is taken from git,\nimport own", "own.py"),
    "a module after another": ("", "import os as o, \\\n  own", "own.py"),
    "a module after another of a package": ("", "from pkg import a as b, own", "pkg/own.py"),
}


def test_what_a_hook_manager_runs(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(person.home))
    for number, (hook, text, runs) in enumerate(MANAGERS.values()):
        folder = person.project / str(number)
        git(person, "init", "-q", str(folder))
        text = text.replace("HERE", str(number))
        write(folder / (hook or ".git/hooks/pre-commit"), f"#!/bin/sh\n{text}\n")
        if hook:
            git(person, "config", "core.hooksPath", os.path.dirname(hook), folder=folder)
        write(folder / runs)
        write(folder / "src" / os.path.basename(runs))
    scripts = {name: runs for name, (_, _, runs) in MANAGERS.items()}
    attack = in_each(
        f"echo x >>{runs}; echo x >>src/$(basename {runs})" for runs in scripts.values()
    )
    found = of_each(MANAGERS, held(person, attack))
    assert found == {name: {runs} for name, runs in scripts.items()}


# The hook, the settings of its manager, and the script that these name.
SETTINGS = {
    "pre-commit": (
        "python3 -m pre_commit hook-impl",
        ".pre-commit-config.yaml",
        "repos: [{repo: local, hooks: [{id: check, entry: tools/check, language: script}]}]",
    ),
    "pre-commit with other settings": (
        "python3 -m pre_commit hook-impl --config=.checks.yaml",
        ".checks.yaml",
        "repos: [{repo: local, hooks: [{id: check, entry: tools/check, language: script}]}]",
    ),
    "lefthook": (
        "call_lefthook run pre-commit",
        "lefthook.yml",
        "pre-commit:\n  commands:\n    check:\n      run: ./tools/check {files}\n",
    ),
    "lefthook with its scripts elsewhere": (
        "call_lefthook run pre-commit",
        "lefthook.yml",
        "source_dir: own/ci\npre-commit:\n  scripts:\n    check: {runner: bash}\n",
    ),
    "overcommit with its plugins elsewhere": (
        "require 'overcommit'",
        ".overcommit.yml",
        "plugin_directory: 'own/ci'\n",
    ),
    "lint-staged": (
        "npx lint-staged",
        "package.json",
        '{"main": "tools/other", "lint-staged": {"*.c": "tools/check"}}',
    ),
    "pre-commit by its own hook": (
        'exec "$INSTALL_PYTHON" -mpre_commit "${ARGS[@]}"',
        ".pre-commit-config.yaml",
        "repos: [{repo: local, hooks: [{id: check, entry: tools/check, language: script}]}]",
    ),
    "scripts with letters that no path has": (
        "npx simple-git-hooks",
        "package.json",
        '{"simple-git-hooks": {"pre-commit": "npm run a"},'
        ' "scripts": {"a": "node tools/check \\u0000/x \\ud800/*"}}',
    ),
    "a script of the manifest": (
        "npx simple-git-hooks",
        "package.json",
        '{"simple-git-hooks": {"pre-commit": "npm run a"},'
        ' "scripts": {"a": "npm run b", "b": "node tools/check", "c": "node tools/other"}}',
    ),
}


def test_scripts_that_the_settings_of_a_hook_manager_name(person: Person) -> None:
    for number, (hook, file, text) in enumerate(SETTINGS.values()):
        folder = person.project / str(number)
        git(person, "init", "-q", str(folder))
        write(folder / ".git/hooks/pre-commit", f"#!/bin/sh\n{hook}\n")
        write(folder / file, text)
        for name in ("check", "other"):
            write(folder / "tools" / name)
        (folder / "own/ci").mkdir(parents=True)
        (folder / "own/ci/check.rb").touch()
    attack = in_each("for f in tools/* own/ci/*; do echo evil >>$f; done" for _ in SETTINGS)
    found = of_each(SETTINGS, held(person, attack))
    elsewhere = {"own/ci/check.rb"}
    assert found == {
        name: elsewhere if "elsewhere" in name else {"tools/check"} for name in SETTINGS
    }


def test_settings_of_hook_managers_in_a_manifest(person: Person, checkout: Path) -> None:
    manifest = checkout / "package.json"
    manifest.write_text('{"name": "x", "lint-staged": {"*": "lint"}}')
    attack = """sed 's/"lint"/"evil"/' package.json >p; mv p package.json"""
    assert held(person, attack) == set()
    write(checkout / ".git/hooks/pre-commit", "#!/bin/sh\nnpx lint-staged\n")
    harmless = """sed 's/"x"/"y"/' package.json >p; mv p package.json"""
    assert held(person, harmless) == set()
    assert held(person, attack.replace("lint", "evil").replace("/evil/", "/x/")) <= {"package.json"}
    attack = """sed 's/evil/worse/' package.json >p; mv p package.json"""
    assert held(person, attack) == {"package.json"}


VALUES = (
    # What is named without a folder is looked for in PATH.
    "[gpg]\nprogram = build\n",
    "[new]\nkeyOfGitIn2030 = tools/build\n",
    "[alias]\ncheck = !tools/build\n",
    "[core]\nattributesFile = tools/build\n",
    "[init]\ntemplateDir = FOLDER/tools\n",
)


def test_any_value_that_names_a_file_of_the_project(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{person.project}/0/tools:{os.environ['PATH']}")
    for number, setting in enumerate(VALUES):
        folder = person.project / str(number)
        git(person, "init", "-q", str(folder))
        write(folder / "tools/build")
        with (folder / ".git/config").open("a") as config:
            config.write(setting.replace("FOLDER", str(folder)))
            config.write(f"[safe]\ndirectory = {folder}\n")
    attack = in_each("echo x >>tools/build; mkdir src; echo x >src/build" for _ in VALUES)
    found = of_each(VALUES, held(person, attack))
    assert found == {setting: {"tools/build"} for setting in VALUES}


def test_values_that_only_look_like_files_of_the_project(person: Person, checkout: Path) -> None:
    settings = """
    [init]\ndefaultBranch = main\n[core]\nautocrlf = input\npager = less -F\n
    [push]\ndefault = current\n[alias]\nco = checkout main\n[gitflow "prefix"]\nrelease = release/
    [user]\nname = src\n[branch "main"]\nremote = src\nmerge = refs/heads/main
    """
    with (checkout / ".git" / "config").open("a") as config:
        config.write(settings)
    for name in ("main", "input/x", "current/x", "release/x", "src/x", "refs/heads/x"):
        write(checkout / name)
    assert held(person, "for f in main */x refs/heads/x; do echo x >>$f; done") == set()


def test_other_version_control(person: Person) -> None:
    write(person.project / ".hg" / "hgrc", "[hooks]\ncommit = ./check\n[extensions]\nx=./ext.py\n")
    for name in ("check", "ext.py", "other"):
        write(person.project / name)
    attack = "for f in check ext.py other; do echo x >>$f; done;"
    places = (".sl/config", ".jj/repo/config.toml", "_darcs/prefs/defaults", ".pijul/config",
              "a/.jj/workspace-config.toml", ".hg/hgrc")  # fmt: skip
    attack += "; ".join(f"mkdir -p $(dirname {place}); echo x >>{place}" for place in places)
    assert held(person, attack) == {"check", "ext.py", *places}


@pytest.mark.parametrize("settled", ["together", "one after the other"])
def test_hooks_of_a_new_repository_where_the_user_has_all_hooks(
    person: Person, settled: str
) -> None:
    git(person, "config", "--global", "core.hooksPath", ".githooks", folder=person.home)
    hook = "mkdir -p sub/.githooks; echo x >sub/.githooks/pre-commit; echo x >sub/.githooks/x; "
    make = "git init -q sub"
    if settled == "together":
        found = states_of(person, f"{make}; {hook}")
    else:
        found = states_of(person, hook)
        states_of(person, make)
    assert found["sub/.githooks/pre-commit"] == "pending"
    # In a repository that there is, all files in the folder are held.
    assert found["sub/.githooks/x"] == ("pending" if settled == "together" else "applied")
    linked = states_of(person, "mkdir a b; echo x >a/pre-commit; ln -s ../a b/.githooks")
    assert linked["b/.githooks"] == "pending"


# Writes an index with these paths, all with the content of one file: version, paths.
INDEX = """
import hashlib, struct, subprocess, sys
version, *paths = sys.argv[1:]
said = subprocess.run(["git", "hash-object", "-w", "evil"], capture_output=True, check=True).stdout
data = b"DIRC" + struct.pack(">II", int(version), len(paths))
before = b""
for path in sorted(map(str.encode, paths)):
    head = struct.pack(">24xI12x20sH", 0o100755, bytes.fromhex(said.decode()), len(path))
    if version == "4":
        entry = head + bytes([len(before)]) + path + b"\\0"
    else:
        entry = head + path
        entry += b"\\0" * (8 - len(entry) % 8)
    before = path
    data += entry
open(".git/index", "wb").write(data + hashlib.sha1(data).digest())
"""


def test_paths_in_the_index(person: Person) -> None:
    """`git checkout .` writes to all of them."""
    paths = (".git/hooks/post-checkout", "../outside", "a/../../outside", "sub/.GIT/config")
    cases = [(version, path) for version in (2, 4) for path in paths]
    write(person.home / "index.py", INDEX.replace("\\\\", "\\"))
    for number in range(len(cases)):
        folder = person.project / str(number)
        git(person, "init", "-q", str(folder))
        write(folder / "tools/build")
        git(person, "add", ".", folder=folder)
        git(person, "commit", "-qm", "x", folder=folder)
        write(folder / "evil", f"#!/bin/sh\ntouch {person.home}/planted\n")
    attack = in_each(f"python3 ~/index.py {version} {path} tools/build" for version, path in cases)
    assert held(person, attack) == {f"{number}/.git/index" for number in range(len(cases))}
    for number, (_, path) in enumerate(cases):
        folder = person.project / str(number)
        git(person, "checkout", ".", folder=folder)
        assert not (folder / path).exists(), path


def test_an_ordinary_index_needs_no_approval(person: Person, checkout: Path) -> None:
    (checkout / ".gitignore").write_text("*.o\n")
    name = "n" * 200
    folder = f"{name}/{name}/..git"
    work = f"mkdir -p {folder}; for n in $(seq 50); do echo $n >{folder}/$n; done"
    for how in ("add .", "add -N new", "update-index --index-version 4", "rm -rq --cached tools"):
        assert held(person, f"{work}; echo x >new; git {how}") == set()
    assert held(person, "rm .git/index") == set()
    assert held(person, "git add . && git update-index --split-index") > {".git/index"}


def test_a_resolution_that_is_a_secret(person: Person, checkout: Path) -> None:
    """`git commit` copies the files in the list to where the next command can read them."""
    write(person.home / ".ssh" / "id_ed25519", "secret")
    cache = f".git/rr-cache/{'12345' * 8}"
    attack = f"ln -s {person.home}/.ssh/id_ed25519 key; mkdir -p {cache}; echo x >{cache}/preimage;"
    attack += f"printf '{'12345' * 8}\\tkey\\0' >.git/MERGE_RR"
    assert held(person, attack) == set()
    git(person, "commit", "--allow-empty", "-m", "x")
    assert not (checkout / cache / "postimage").exists()


def test_the_worktree_of_a_module_behind_a_link(person: Person, checkout: Path) -> None:
    (checkout / "link").symlink_to("/elsewhere/a")
    for name, way, found in (
        ("sub", "sub", set()),
        ("other", "link/../other", {".git/modules/other/config"}),  # and what it leads to
    ):
        module = f".git/modules/{name}"
        attack = f"mkdir -p {module} {name}; echo 'gitdir: ../{module}' >{name}/.git; "
        attack += f"echo 'ref: refs/heads/main' >{module}/HEAD; "
        attack += f"printf '[core]\\nworktree = ../../../{way}\\n' >{module}/config"
        assert held(person, attack) == found
