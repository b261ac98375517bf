# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that other programs act on later are marked, and those that git would run are held."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml
from support.cli_inline import cli_here
from support.escape.copy_back import in_each, of_each, review, settle
from support.person import Person

from ollmsandbox.project.change import Flag, Type
from ollmsandbox.project.held import risky_files
from ollmsandbox.project.held.risky import is_plain_folder, is_plain_name, risk_of
from ollmsandbox.project.held.risky_files import KINDS, read_names
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.text.visible import visible_path
from ollmsandbox.tools.model_text import changes_text
from ollmsandbox.ui.changes.model import load


def changed(
    person: Person, command: str, mode: Mode = Mode.AUTO
) -> dict[str, tuple[set[str], str]]:
    """Flags and state of each change."""
    report = settle(person, command, mode)
    assert not report.errors, report.errors
    return {
        item.change.path: ({flag.value for flag in item.change.flags}, item.state.value)
        for item in report.changes
    }


def held(person: Person, command: str) -> set[str]:
    """Return the held changes of a command, all of which must be marked as risky."""
    found = changed(person, command)
    for path, (flags, state) in found.items():
        assert ("held" in flags) == (state == "pending"), path
        # What is deleted with most of the repository is held, whatever it is.
        is_repository = path.endswith(".git") or ".git/" in path
        assert "held" not in flags or "runs-later" in flags or is_repository, path
    return {path for path, (_, state) in found.items() if state == "pending"}


def make_checkout(person: Person, folder: Path) -> Path:
    """Make a repository. What a hook of it does shows in the home folder."""
    folder.mkdir(parents=True, exist_ok=True)
    template = "/usr/share/git-core/templates"
    person.run_outside(["git", "init", "-q", f"--template={template}", str(folder)], check=True)
    hooks = folder / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "post-checkout.sample").write_text(f"#!/bin/sh\ntouch {person.home}/planted\n")
    (hooks / "post-checkout.sample").chmod(0o755)
    return folder


@pytest.fixture
def checkout(person: Person) -> Path:
    return make_checkout(person, person.project)


def checkouts(person: Person, number: int) -> list[Path]:
    return [make_checkout(person, person.project / str(n)) for n in range(number)]


def use_git(person: Person, folder: Path | None = None) -> bool:
    """Do what users do all the time. True if a planted file was run."""
    mark = person.home / "planted"
    mark.unlink(missing_ok=True)
    identity = "-c user.name=a -c user.email=a@b"
    person.run_outside(
        f"git {identity} status; git {identity} commit -q --allow-empty -m x;"
        f"git {identity} checkout -q -B other; git stash list",
        cwd=folder or person.project,
    )
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


Planted = dict[str, tuple[Path, set[str]]]

# Once a part of a repository is deleted that git itself never removes, all deletions are held.
DELETING = ("a repository as a link", "a file in place of the repository")


@pytest.fixture(params=[[n for n in PLANTS if n not in DELETING], DELETING], ids=["most", "rest"])
def planted(person: Person, request: pytest.FixtureRequest) -> Planted:
    """The repository of each attack, and what is held in it."""
    names = request.param
    folders = checkouts(person, len(names))
    waiting = of_each(names, held(person, in_each(PLANTS[name] for name in names)))
    assert all(waiting.values()), waiting
    return {name: (folder, waiting[name]) for name, folder in zip(names, folders, strict=True)}


def run_by_git(person: Person, planted: Planted) -> list[str]:
    return [name for name, (folder, _) in planted.items() if use_git(person, folder)]


@pytest.mark.ordinary
def test_git_is_made_to_run_something(person: Person, planted: Planted) -> None:
    assert run_by_git(person, planted) == []
    # The next command has it all the same.
    for folder, waiting in planted.values():
        # Unless the repository itself went, with all that was in it.
        if ".git/hooks" in " ".join(waiting) and ".git" not in waiting:
            names = " ".join(f"{folder.name}/{path}" for path in sorted(waiting))
            assert person.run(f"ls -d {names}").stdout.text.split() == names.split()
    cli_here(person, "changes")
    assert cli_here(person, "discard").returncode == 0
    assert run_by_git(person, planted) == []
    # What was discarded does not come back with the rest.
    assert "Traceback" not in cli_here(person, "apply").stderr
    assert run_by_git(person, planted) == []


@pytest.mark.ordinary
def test_git_would_run_it_after_approval(person: Person, planted: Planted) -> None:
    # Else the test above would prove nothing.
    cli_here(person, "changes")
    done = cli_here(person, "apply")
    assert done.returncode == 0, done.stdout
    assert run_by_git(person, planted) == list(planted)


def write(place: str) -> str:
    return f"mkdir -p '{os.path.dirname(place) or '.'}'; echo evil >'{place}'"


def test_hooks_of_modules_and_worktrees(person: Person, checkout: Path) -> None:
    places = [
        ".git/modules/m/hooks/post-commit", ".git/modules/m/config", ".git/modules/a/b/c/config",
        ".git/modules/a/b/hooks/x", ".git/modules/m/modules/n/o/config", ".git/worktrees/w/gitdir",
        ".git/worktrees/w/config.worktree", ".git/worktrees/w/commondir", "sub/.git",
        "deep/er/.git/hooks/pre-push", "x.git/y/.git/config", ".git/objects/aa/bb",
        ".git/remotes/origin", ".git/rebase-merge/git-rebase-todo", ".hg/hgrc", "s/.hg/sharedpath",
        ".git/sequencer/opts", ".git/index", ".git/modules/m/index",
        ".git/refs/heads/x", ".git/logs/HEAD", ".git/modules/m/HEAD",
        # Git has no files there of its own.
        ".GIT/index", ".GIT/other", ".GIT/hooks/pre-commit", ".Git/Config", ".Git/HOOKS/POST-push",
        ".Git/hooks/x", ".git./config", ".g\u200cit/config", "GIT~1/config", ".git/hooks/a/b",
    ]  # fmt: skip
    # Git writes this one anew.
    left_out = [".git/MERGE_RR"]
    found = held(person, "; ".join(map(write, [*places, *left_out])))
    # A folder in that of the hooks may be run as a whole.
    assert found == {*places, ".git/hooks/a"}
    assert not any((checkout / place).exists() for place in [*places, *left_out])
    harmless = [".git/hooks/x.sample", "config", "hooks/x", "src/config", "modules/m/config",
                ".gitignore", "a.github", ".git/COMMIT_EDITMSG"]  # fmt: skip
    assert held(person, "; ".join(map(write, harmless))) == set()
    assert all((checkout / place).read_text() == "evil\n" for place in harmless)


INSIDE = (
    ".git/hooks",
    ".git/modules",
    ".git/modules/a/b",
    ".git/info",
    ".git",
    "x/.git",
    ".hg",
)


def test_links_inside_a_repository(person: Person) -> None:
    for number in range(len(INSIDE)):
        (person.project / str(number)).mkdir()
    attack = [f'mkdir -p "$(dirname {link})" h; ln -s "$PWD/h" {link}' for link in INSIDE]
    waiting = of_each(INSIDE, held(person, in_each(attack)))
    assert waiting == {link: {link} for link in INSIDE}
    for number, link in enumerate(INSIDE):
        assert not os.path.lexists(person.project / str(number) / link)


def test_a_worktree_made_by_git_itself(person: Person, checkout: Path) -> None:
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
    plant = f"{HOOK} >.git/hooks/post-commit; echo 'gitdir: ../g' >>wt/.git"
    waiting = held(person, f"{commit}; git worktree add -q wt; {plant}")
    assert waiting == {"wt/.git", ".git/hooks/post-commit"}


@pytest.mark.ordinary
@pytest.mark.parametrize("name", ["evil", "docs/evil", "x.git", "logs"])
def test_a_bare_repository_with_any_name(person: Person, name: str) -> None:
    # git takes every folder with a HEAD, objects and refs for a repository.
    plant = (
        f"git init -q --bare {name}; git -C {name} config core.fsmonitor 'touch ~/planted;false'"
    )
    plant += f"; git -C {name} config core.bare false; git -C {name} config core.worktree ."
    assert f"{name}/HEAD" in held(person, plant)
    assert not use_git(person, person.project / name)
    cli_here(person, "changes")
    assert cli_here(person, "apply").returncode == 0
    assert use_git(person, person.project / name)
    # Now it is one, and what leads git in it waits.
    attack = f"echo x >>{name}/config; {HOOK} >{name}/hooks/post-commit; echo x >{name}/note"
    assert held(person, attack) == {
        f"{name}/{path}" for path in ("config", "hooks/post-commit", "note")
    }
    attack = f"cd {name}; git update-ref refs/heads/x HEAD; echo ref: refs/heads/y >HEAD"
    assert held(person, attack) == set()


BARE = "mkdir -p {0}/objects {0}/refs; " + (
    "printf '[core]\\nrepositoryformatversion = 0\\nworktree = ..\\n"
    "fsmonitor = touch ~/planted; false\\n' >{0}/config"
)
HEAD = "echo ref: refs/heads/x >"
# Each in several commands, none of which makes a repository by itself.
BECOMES_REPOSITORY = {
    "a folder in place of HEAD first": [
        f"{BARE}; mkdir {{0}}/HEAD", f"rmdir {{0}}/HEAD; {HEAD}{{0}}/HEAD"
    ],
    "HEAD last": [BARE, f"{HEAD}{{0}}/HEAD"],
    "HEAD as a link": [BARE, f"{HEAD}{{0}}/refs/x; ln -s refs/x {{0}}/HEAD"],
    "the folders last": [
        f"mkdir -p {{0}}; {HEAD}{{0}}/HEAD", f"{BARE}"
    ],
    "all at once": [f"{BARE}; {HEAD}{{0}}/HEAD"],
    "from elsewhere": [BARE.format("o"), f"{HEAD}o/HEAD; mkdir -p {{0}}; rmdir {{0}}; mv o {{0}}"],
}  # fmt: skip


@pytest.mark.ordinary
@pytest.mark.parametrize(
    ("folder", "mode"),
    [("docs", Mode.AUTO), ("docs", Mode.REVIEW), (".git/any", Mode.AUTO), (".git/refs", Mode.AUTO)],
)
def test_a_plain_folder_becomes_a_repository(person: Person, folder: str, mode: Mode) -> None:
    """By one command, or by several."""
    ways = list(BECOMES_REPOSITORY.values())
    place = f"{folder}/sub"
    checkouts(person, len(ways))
    reports = []
    for step in range(2):
        each = [way[step].format(place) if step < len(way) else "true" for way in ways]
        reports.append(settle(person, in_each(each), mode))
    if mode is Mode.REVIEW:
        # The user applies what has no mark.
        for report in reports:
            found = [item for item in report.changes if item.change.type is not Type.FOLDER]
            review(
                person,
                "apply",
                report.run_id,
                *(item.change.path for item in found if not item.is_held),
            )
    places = {name: person.project / f"{n}/{place}" for n, name in enumerate(BECOMES_REPOSITORY)}
    for name, there in places.items():
        there.mkdir(parents=True, exist_ok=True)
        assert not use_git(person, there), name
    for report in reports:
        review(person, "apply", report.run_id)
    for name, there in places.items():
        assert use_git(person, there), name


def test_what_git_itself_writes_needs_no_approval(person: Person, checkout: Path) -> None:
    said = "-c user.name=a -c user.email=a@b"
    work = (
        f"git {said} commit -q --allow-empty -m x; git worktree add -q w; git init -q inner;"
        "git update-ref refs/remotes/o/x HEAD;"
        "git symbolic-ref refs/remotes/o/HEAD refs/remotes/o/x; git branch objects; git gc -q"
    )
    assert held(person, work) == set()


def test_a_repository_is_deleted(person: Person, checkout: Path) -> None:
    found = changed(person, "rm -rf .git; touch file")
    assert found["file"][1] == "applied"
    assert found[".git/config"][1] == found[".git"][1] == "pending"
    assert "conflict" not in {state for _, state in found.values()}
    cli_here(person, "changes")
    assert cli_here(person, "apply").returncode == 0
    assert not (checkout / ".git").exists()
    assert cli_here(person, "undo").returncode == 0
    assert (checkout / ".git" / "config").exists()


ACTED_ON = {
    "runs-on-opening": (
        ".envrc", "a/b/.envrc", ".mise.toml", ".vscode/tasks.json", ".VSCODE/settings.json",
        "other/.vscode", ".idea/workspace.xml", ".nvim.lua", ".dir-locals.el", "sub/.bashrc",
        ".profile", ".zshenv", ".claude/settings.json", ".cursor/mcp.json", ".mcp.json",
        ".devcontainer/devcontainer.json", ".github/copilot-instructions.md", "x.desktop",
        ".envrc.local", ".envrc.private", ".local.vimrc", ".vimrc.local", ".ideavimrc",
        "project.godot", "game/export_presets.cfg", "x.uproject", ".shadowenv.d/1.lisp",
        "analysis_options.yaml", ".fvmrc", "omnisharp.json", "ProjectSettings/a.asset",
        "AGENT.md", ".lapce/run.toml",
    ),
    "runs-with-a-tool": (
        ".gitattributes", ".husky/pre-commit", ".npmrc", ".Rprofile", ".bazelrc", ".mvn/jvm.config",
        ".venv/lib/python3/site-packages/x.pth", "sitecustomize.py", "gradle/wrapper/x.jar",
        ".cargo/config.toml", ".yarnrc.yml", ".pylintrc", "eslint.config.mjs", ".gdbinit",
        ".lfsconfig", ".venv/bin/python", "venv/bin/activate", ".release-it.json", ".gitlint",
        ".puppeteerrc.cjs", "cspell.json", "a.pyc", "pkg/__pycache__/b.cpython-311.pyc",
        # Each is loaded in place of its source.
        "pkg/utils.abi3.so", "lib/Foo.pmc", "x.zwc", "init.elc",
        ".RData", "env/bin/activate", ".mc.menu", ".phpcs.xml", ".cspell.js", "CVS/Root",
    ),
    "runs-in-a-build": (
        "package.json", "Makefile", "sub/CMakeLists.txt", "setup.py", "build.rs", "conftest.py",
        "vite.config.ts", ".github/workflows/ci.yml", ".gitlab-ci.yml", "Dockerfile", "x.mk",
        "tsconfig.json", "web/tsconfig.app.json", "jsconfig.json", "Doxyfile", "mkdocs.yml",
        "book.toml", "_plugins/x.rb", "dvc.yaml", "Snakefile", "tauri.conf.json", "buf.gen.yaml",
        ".config/nextest.toml", ".config/dotnet-tools.json", "melos.yaml", "sqlc.yaml",
        ".gn", "docs/.vitepress/config.ts", "db/schema.prisma", "hardhat.config.js", "cliff.toml",
        ".ddev/config.yaml", "config.ru", "Kconfig", "project.json", "DEPS",
    ),
    "": (".editorconfig", ".nvmrc", "src/main.c", "README.md", "node_modules/x/package.json",
         "bin/tool.txt", "node_modules/x/tsconfig.json", "config/nextest.toml",
         "workflows/ci.yml", "mvn", "pth"),
}  # fmt: skip


def test_files_that_other_programs_act_on_are_marked_by_kind(person: Person) -> None:
    made = [
        f"mkdir -p \"$(dirname '{path}')\"; echo x >'{path}'"
        for paths in ACTED_ON.values()
        for path in paths
    ]
    found = changed(person, "; ".join(made))
    for kind, paths in ACTED_ON.items():
        for path in paths:
            assert found[path] == ({kind} - {""}, "applied"), path


LINKS = {
    "in one command": ["mkdir conf; echo x >conf/tasks.json; ln -s conf .vscode"],
    "in two commands": ["mkdir conf; ln -s conf .vscode", "echo x >conf/tasks.json"],
    "the link later": [
        "mkdir conf; echo y >conf/tasks.json",
        "ln -s conf .vscode; echo x >>conf/tasks.json",
    ],
    "by two links": ["mkdir conf; ln -s conf a; ln -s ./a .vscode", "echo x >conf/tasks.json"],
    "by a link on the way": [
        "mkdir -p d/conf; ln -s d e; ln -s e/conf .vscode",
        "echo x >d/conf/tasks.json",
    ],
    "by a whole path": ['mkdir conf; ln -s "$PWD/conf" .vscode', "echo x >conf/tasks.json"],
    "a single file": ["mkdir conf; ln -s conf/tasks.json .envrc", "echo x >conf/tasks.json"],
    "deeper": ["mkdir -p a/conf; ln -s conf a/.vscode; echo x >a/conf/tasks.json"],
}  # fmt: skip


@pytest.mark.ordinary
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, Mode.AUTO) for name in LINKS),
        *((name, Mode.REVIEW) for name in ("in one command", "in two commands", "by two links")),
    ],
)
def test_a_risky_file_under_another_name_is_marked(person: Person, name: str, mode: Mode) -> None:
    for command in LINKS[name]:
        found = changed(person, command, mode)
    marked = [path for path, (flags, _) in found.items() if "runs-on-opening" in flags]
    assert [path for path in marked if path.endswith("conf/tasks.json")]


IN_PLACES = (
    (".venv", "bin/activate", "runs-with-a-tool"),
    ("gradle", "wrapper/gradle-wrapper.properties", "runs-with-a-tool"),
    (".github", "workflows/ci.yml", "runs-in-a-build"),
    (".config", "nextest.toml", "runs-in-a-build"),
    ("sub/.config", "nextest.toml", "runs-in-a-build"),
)


@pytest.mark.ordinary
def test_a_link_in_the_place_of_a_risky_file_s_folder(person: Person) -> None:
    for number in range(len(IN_PLACES)):
        (person.project / str(number) / "sub").mkdir(parents=True)
    each = [
        f'{write(f"tools/{path}")}; {write("tools/plain")}; ln -s "$PWD/tools" {link}'
        for link, path, _ in IN_PLACES
    ]
    found = changed(person, in_each(each))
    for number, (_, path, kind) in enumerate(IN_PLACES):
        assert found[f"{number}/tools/{path}"] == ({kind}, "applied")
        assert found[f"{number}/tools/plain"] == (set(), "applied")


@pytest.mark.ordinary
def test_links_that_lead_in_a_circle_or_away_mark_nothing(person: Person) -> None:
    found = changed(
        person,
        "ln -s .envrc .bashrc; ln -s .bashrc .envrc; ln -s ../.. .vscode; ln -s /usr .idea;"
        "mkdir src; echo x >src/main.c; ln -s src link",
    )
    assert found["src/main.c"] == (set(), "applied")


@pytest.mark.parametrize("name", ["risky_files.yaml", "git/hooks.yaml"])
def test_names_are_read_as_yaml_is(name: str) -> None:
    file = Path(risky_files.__file__).parent / name
    parsed = yaml.safe_load(file.read_text(encoding="utf-8"))
    for section, entries in read_names(file).items():
        names = {entry.source: entry.patterns.split() for entry in entries}
        assert names == {source: text.split() for source, text in parsed.pop(section).items()}
        assert len(names) == len(entries)
    assert not parsed


def test_every_risky_file_is_found_by_the_quick_check() -> None:
    for flag, group in KINDS:
        for pattern in " ".join(each.patterns for each in group).split():
            assert pattern == pattern.lower()
            assert "*" not in pattern[1:-1] and pattern.count("*") <= 1, pattern
            path = pattern.replace("*", "x") + ("y" if pattern.endswith("/") else "")
            assert risk_of(path) is not None, (flag, path)
            parts = path.split("/")
            assert not (is_plain_folder("/".join(parts[:-1])) and is_plain_name(parts[-1])), path
        assert all(each.source.startswith("https://") for each in group)


@pytest.mark.ordinary
def test_no_mark_is_lost_in_a_flood(person: Person, checkout: Path) -> None:
    attack = "for n in $(seq 600); do mkdir -p s/$n; echo x >s/$n/f; echo x >f$n;"
    attack += "printf x >x$n; chmod +x x$n; echo x >s/$n/package.json; done; echo x >.envrc;"
    attack += f"{HOOK} >.git/hooks/post-commit; mkdir w; echo x >w/.npmrc"
    report = settle(person, attack)
    marked = {".git/hooks/post-commit", ".envrc", "w/.npmrc"}
    lists = [
        changes_text(report, str(person.project)),
        cli_here(person, "changes").stdout,
    ]
    for text in lists:
        _before, heading, after = text.partition("Worth a second look:")
        assert heading
        first = after.split("\n")[1:4]
        assert all(any(path in line for line in first) for path in marked), first
    manager = ProjectManager(person.paths)
    try:
        items = load(manager, str(person.project), 5).runs[0].items
    finally:
        manager.close()
    assert {item.change.path for item in items[:3]} == marked


@pytest.mark.ordinary
def test_no_mark_is_lost_in_a_flood_of_worse_ones(person: Person) -> None:
    attack = "for n in $(seq 600); do mkdir $n; echo x >$n/.envrc; done; mkdir w; echo x >w/.npmrc;"
    attack += "echo x >x; chmod 666 x; ln -s /etc link; mkdir zz; echo x >zz/.envrc; echo x >.envrc"
    report = settle(person, attack)
    text = changes_text(report, str(person.project))
    after = text.partition("Worth a second look:")[2].split("\n")
    assert ".envrc" in after[1].split()
    for name in ("w/.npmrc", "x", "link"):
        assert any(name in line.split() for line in after), name


IMITATIONS = (
    "x  [discarded]",
    "x [needs approval]", "x (12 files)", "x -> y", 'x" [applied]', "x\n  added y",
    "x ", " x", "x\\n", "x\u202edetailppa", "x\uff3bapplied\uff3d", "x\u201d [applied]", "x\u00a0y",
    "x \u00b7 Discarded", "\u0455x",
)  # fmt: skip


def test_a_name_cannot_imitate_a_mark(person: Person) -> None:
    for name in IMITATIONS:
        (person.playground / name).parent.mkdir(parents=True, exist_ok=True)
        (person.playground / name).write_text("x")
    report = settle(person, "cp ~/playground/* .")
    lines = changes_text(report, str(person.project)).splitlines()[1:]
    assert len(lines) == len(set(lines)) == len(IMITATIONS)
    for line in lines:
        name = line.removeprefix("  added ")
        assert name[0] == name[-1] == '"', line
        inner = name[1:-1].replace("\\\\", "").replace('\\"', "")
        assert '"' not in inner and inner.isprintable(), line
    # In the window, the status line is in front of the folder.
    assert "\u00b7" not in visible_path("x \u00b7 Discarded")
    assert visible_path("x  [discarded]") != "x  [discarded]"
    assert visible_path("x ").endswith("\N{MATHEMATICAL RIGHT ANGLE BRACKET}")


def test_rights_for_others_are_marked(person: Person) -> None:
    modes = {"secret": 0o600, "tool": 0o644, "closed": 0o644, "kept": 0o664}
    for name, mode in modes.items():
        (person.project / name).write_text("x\n")
        (person.project / name).chmod(mode)
    (person.project / "shared").mkdir()
    (person.project / "shared").chmod(0o1777)
    (person.project / "private").mkdir(mode=0o700)
    attack = """
    chmod 644 secret; chmod 755 tool private; chmod 600 closed; echo y >kept; chmod 777 shared
    echo x >new; echo x >open; chmod 666 open; mkdir everybody; chmod 777 everybody
    """
    report = settle(person, attack)
    found = {item.change.path for item in report.changes
             if Flag.SHARED in item.change.flags}  # fmt: skip
    assert found == {"secret", "private", "shared", "open", "everybody"}
    text = changes_text(report, str(person.project))
    for part in ("0600 → 0644", "0644 → 0755", "0644 → 0600", "1777 → 0777", "mode 0666"):
        assert part in text
    assert "0600 → 0644" in cli_here(person, "changes").stdout


def test_the_user_is_informed_of_risky_files(person: Person) -> None:
    (person.project / ".envrc").write_text("x\n")
    assert "can run code when" in person.cli("run", "-c", "echo y >.envrc").stderr


def test_executable_files_are_marked(person: Person) -> None:
    for name in ("tool", "was"):
        (person.project / name).write_text("old\n")
    (person.project / "was").chmod(0o755)
    found = changed(person, "echo x >new; chmod +x new tool; echo x >was; mv tool moved; touch no")
    marked = {path for path, (flags, _) in found.items() if "executable" in flags}
    assert marked == {"new", "moved"}
    assert "executable" in cli_here(person, "changes").stdout


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
