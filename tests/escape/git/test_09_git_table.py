# SPDX-License-Identifier: GPL-3.0-or-later
"""Attacks through the files of a git repository: the user's own git would run something, push
somewhere else, or show other content for the same commit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.escape.copy_back import in_each, of_each, settle
from support.escape.repositories import COMMIT, copies, git, held, is_planted, make_checkout
from support.person import Person

from ollmsandbox.project.change import Kind

pytestmark = pytest.mark.ordinary

HARM = "#!/bin/sh\\ntouch ~/planted\\n"


def attack(person: Person, command: str) -> set[str]:
    report = settle(person, command)
    for item in report.changes:
        # Each says what git would do, except where too much is deleted.
        is_git = ".git/" in item.change.path and item.change.kind is not Kind.DELETED
        assert not (item.is_held and is_git) or item.note is not None, item
    return held(report)


@pytest.fixture
def checkout(person: Person) -> Path:
    return make_checkout(person, person.project)


def attack_each(person: Person, commands: Mapping[str, str]) -> dict[str, set[str]]:
    """Run each command in its folder, all in one sandbox; return what is held in each."""
    harmless = f"echo x >new; git add new; {COMMIT} -m x"
    waiting = attack(person, in_each([*commands.values(), harmless]))
    found = of_each([*commands, "harmless"], waiting)
    assert found.pop("harmless") == set()
    return found


# --- where a push leads ---

EVIL = f"""
git init -q --bare DIR; mkdir -p DIR/hooks; printf '{HARM}' >DIR/hooks/pre-receive
chmod +x DIR/hooks/pre-receive
"""
ADDRESSES = {
    "the playground": ("~/playground/evil", "$(realpath ~/playground/evil)"),
    "its path outside": ("~/playground/evil", "OUTSIDE/evil"),
    "a link in the project": ("~/playground/evil", "$PWD/link/evil"),
    "a link by file": ("~/playground/evil", "file://$PWD/link/evil"),
    "a relative path": ("evil", "../evil"),
    "the current folder": ("evil", "/proc/self/cwd/../evil"),
    "by the thread": ("evil", "/proc/thread-self/cwd/../evil"),
    "the project": ("evil", "$PWD/evil"),
    "the project by file": ("evil", "file://$PWD/evil"),
    "encoded": ("evil", "file://$(echo $PWD | sed 's,/p,/%70,')/evil"),
    "dots": ("evil", "$PWD/x/../evil"),
    "a repository that is not there yet": ("evil", "HOME/soon/evil"),
    "a program": ("evil", "ext::sh -c touch% ~/planted"),
}


@pytest.mark.parametrize("key", ["url", "pushurl"])
def test_a_push_to_a_repository_of_the_command_s(person: Person, key: str) -> None:
    outside, soon = person.playground, person.home / "soon"
    folders = copies(person, ADDRESSES)
    commands = {}
    for name, (place, address) in ADDRESSES.items():
        address = address.replace("OUTSIDE", str(outside)).replace("HOME", str(person.home))
        make = EVIL.replace("DIR", place).replace("\n", "; ").strip("; ")
        command = f"{make}; ln -s {outside} link; git init -q -b main sub; cd sub;"
        command += f"{COMMIT} --allow-empty -m x; "
        command += f'printf \'[remote "origin"]\\n\\t{key} = %s\\n\' "{address}" >>.git/config'
        commands[name] = command.replace("$PWD", str(folders[name]))
    waiting = attack_each(person, commands)
    soon.mkdir()
    (soon / "evil").symlink_to(outside / "evil")
    for name in ADDRESSES:
        assert "sub/.git/config" in waiting[name], name
        push = "git -c protocol.ext.allow=always push origin main"
        git(person, push, folders[name] / "sub")
        assert not is_planted(person), name


SETTINGS = (
    "remote set-url --add origin ssh://example.com/evil",
    "remote set-url --push origin ssh://example.com/evil",
    "remote set-url origin ssh://example.com/evil",
    "remote add evil ssh://example.com/evil",
    "config url.ssh://example.com/.insteadOf ssh://example.org/",
    "config url.ssh://example.com/.pushInsteadOf ssh://example.org/",
    "config branch.main.remote ssh://example.com/evil",
    "config branch.main.pushRemote ssh://example.com/evil",
    "config remote.pushDefault ssh://example.com/evil",
    "config remote.origin.receivepack 'touch ~/planted;'",
    "config push.default matching",
)


def test_a_second_address_of_a_remote(person: Person) -> None:
    prepare = "git remote add origin ssh://example.org/mine; git config branch.main.remote origin"
    folders = copies(person, SETTINGS, prepare)
    before = {name: (folder / ".git/config").read_text() for name, folder in folders.items()}
    waiting = attack_each(person, {name: f"git {name}" for name in SETTINGS})
    assert waiting == {name: {".git/config"} for name in SETTINGS}
    for name, folder in folders.items():
        assert (folder / ".git/config").read_text() == before[name]


# --- a worktree that the same command adds ---


@pytest.mark.parametrize("how", ["hooksPath", "an installed hook", "a link to a script"])
def test_hooks_of_a_worktree_that_the_command_adds(
    person: Person, checkout: Path, how: str
) -> None:
    script, start = "tools/hooks/pre-commit", ""
    if how == "hooksPath":
        git(person, "git config core.hooksPath tools/hooks")
    else:
        script = "tools/check"
        start = "exec tools/check" if how == "an installed hook" else "sh ./tools/check"
        git(person, f"mkdir -p .git/hooks; printf '#!/bin/sh\\n{start}\\n' >.git/hooks/pre-commit;"
                    "chmod +x .git/hooks/pre-commit")  # fmt: skip
    plant = f"mkdir -p wt/tools/hooks; printf '{HARM}' >wt/{script}; chmod +x wt/{script}"
    assert attack(person, f"git worktree add -q wt other; {plant}") == {f"wt/{script}"}
    git(person, "echo x >new; git add new; git commit -m x", checkout / "wt")
    assert not is_planted(person)


# --- a commit that carries a held hook ---


@pytest.mark.parametrize("with_commit", [True, False])
def test_a_held_hook_that_a_commit_carries(
    person: Person, checkout: Path, with_commit: bool
) -> None:
    hook = checkout / "tools/hooks/pre-commit"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    git(person, "git config core.hooksPath tools/hooks; git add .; git commit -qm hook")
    plant = "printf 'touch ~/planted\\n' >>tools/hooks/pre-commit"
    report = settle(person, f"{plant}; {COMMIT} -am x --no-verify" if with_commit else plant)
    (item,) = [item for item in report.changes if item.is_held]
    assert item.change.path == "tools/hooks/pre-commit"
    assert item.note is not None
    assert ("git's index" in item.note.sentence) is with_commit
    assert ("git's index" in person.cli("changes").stdout) is with_commit


# --- the same commit, other content ---

LOOSE = """
import hashlib, os, subprocess, sys, zlib
def git(*words):
    return subprocess.run(["git", *words], capture_output=True, text=True).stdout.strip()
def path(id): return f".git/objects/{id[:2]}/{id[2:]}"
def write(id, data, kind=b"blob"):
    place = path(id)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.exists(place): os.unlink(place)
    open(place, "wb").write(zlib.compress(kind + b" %d\\0" % len(data) + data))
blob = git("rev-parse", "HEAD:file")
"""
OBJECTS = {
    "a replaced object": "write(blob, b'wrong\\n')",
    "a replaced object of the same size": "write(blob, b'wrong\\nmore\\n')",
    "a new object with another name": "write('ab' * 20, b'wrong\\n')",
    "an empty object": "os.unlink(path(blob)); open(path(blob), 'w')",
    "no data": "os.unlink(path(blob)); open(path(blob), 'w').write('x')",
    "more after the end": "data = open(path(blob), 'rb').read(); os.unlink(path(blob));"
        "open(path(blob), 'wb').write(data + b'x')",
    "a link": "os.unlink(path(blob)); f = open('evil', 'wb');"
        "f.write(zlib.compress(b'blob 6\\0wrong\\n')); os.symlink('../../../evil', path(blob))",
    "a hard link": "write('ab' * 20, b'x'); os.link(path('ab' * 20), 'evil')",
    "a replaced commit": "write(git('rev-parse', 'HEAD~1'), git('cat-file', '-p', 'HEAD~1')"
        ".replace('first', 'wrong').encode(), b'commit')",
}  # fmt: skip
BOMB = """
os.unlink(path(blob))
z = zlib.compressobj(1)
with open(path(blob), "wb") as file:
    for _ in range(16):
        file.write(z.compress(bytes(1 << 24)))
    file.write(z.flush())
"""
SHOW = "git log -p; git status --porcelain"


def run_each(person: Person, codes: Mapping[str, str]) -> dict[str, str]:
    """Write each program to the home folder; return the commands that run them."""
    for number, code in enumerate(codes.values()):
        (person.home / f"{number}.py").write_text(code)
    return {name: f"python3 {person.home}/{n}.py" for n, name in enumerate(codes)}


def test_loose_objects(person: Person) -> None:
    folders = copies(person, OBJECTS)
    commands = run_each(person, {name: LOOSE + code for name, code in OBJECTS.items()})
    before = git(person, "git log -p --all", folders["a link"])
    for name, waiting in attack_each(person, commands).items():
        assert waiting and all(path.startswith(".git/objects/") for path in waiting), name
        assert git(person, "git log -p --all", folders[name]) == before, name
        assert "right" in git(person, "git show HEAD:file", folders[name]), name
        assert git(person, "git fsck 2>&1; echo $?", folders[name]).endswith("0\n"), name


def test_a_loose_object_that_unpacks_for_ever(person: Person, checkout: Path) -> None:
    (person.home / "x.py").write_text(LOOSE + BOMB)
    before = git(person, SHOW)
    waiting = attack(person, f"python3 {person.home}/x.py")
    assert waiting and all(path.startswith(".git/objects/") for path in waiting)
    assert git(person, SHOW) == before


PACK = """
import hashlib, os, shutil, struct, subprocess
def git(*words, **kind): return subprocess.run(["git", *words], capture_output=True, **kind).stdout
blob = bytes.fromhex(git("rev-parse", "HEAD:file").decode().strip())
open("/tmp/evil", "w").write("wrong\\n")
evil = git("hash-object", "-w", "/tmp/evil")
name = git("pack-objects", ".git/x", input=evil).decode().strip()
for end in ("pack", "idx"): shutil.move(f".git/x-{name}.{end}", f"/tmp/pack-{name}.{end}")
os.makedirs(".git/objects/pack", exist_ok=True)
data = open(f"/tmp/pack-{name}.idx", "rb").read()
at = 8 + 1024
first = blob[0]
fan = b"".join(struct.pack(">I", int(n >= first)) for n in range(256))
data = data[:8] + fan + blob + data[at + 20:-20]
data += hashlib.sha1(data).digest()
"""
COPY = """
pack = open(f"/tmp/pack-{name}.pack", "rb").read()
open(f".git/objects/pack/pack-{name}.pack", "wb").write(pack)
open(f".git/objects/pack/pack-{name}.idx", "wb").write(data)
"""
PACKS = {
    "an index that lies": COPY,
    "an index of a version that lies": COPY.replace("(data)", "(b'x' * 2000)"),
    "a pack that is none": COPY.replace("(pack)", "(b'PACK' + bytes(100))"),
    "a pack that is cut": COPY.replace("(pack)", "(pack[:-25])"),
    "an index that is a link":
        COPY + "x = f'.git/objects/pack/pack-{name}.idx'; os.rename(x, 'x'); "
        "os.symlink('../../../x', x)",
    "many packs": f"{COPY}\nopen('.git/objects/pack/multi-pack-index', 'wb').write(b'MIDX' * 99)",
    "other names": COPY.replace("pack-{name}", "evil"),
}  # fmt: skip


def test_packs(person: Person) -> None:
    folders = copies(person, PACKS)
    attack_each(person, run_each(person, {n: PACK + code for n, code in PACKS.items()}))
    for name in PACKS:
        assert git(person, "git show HEAD:file", folders[name]) == "right\nmore\n", name
        found = git(person, "git fsck --full 2>&1; echo $?", folders[name])
        assert found.endswith("0\n"), (name, found)
    settle(person, "rm -f */.git/objects/pack/*.pack; touch done")
    for name in PACKS:
        assert git(person, "git show HEAD:file", folders[name]) == "right\nmore\n", name


REPLACED = {
    "a replacement": "git replace HEAD~1 HEAD",
    "a replacement in packed-refs": "h=$(git rev-parse HEAD~1);"
        "echo $(git rev-parse HEAD) refs/replace/$h >>.git/packed-refs",
    "a reference that leads to one": "mkdir .git/refs/replace; cd .git/refs/replace;"
        "echo ref: refs/heads/main >$(git rev-parse HEAD~1)",
    "grafts": "git rev-parse HEAD >.git/info/grafts",
    "alternates": "mkdir -p alt .git/objects/info; echo $PWD/alt >.git/objects/info/alternates",
    "alternates by http": "mkdir -p .git/objects/info; echo x >.git/objects/info/http-alternates",
    "attributes": "echo '* -diff' >.git/info/attributes",
    "ignored files": "mkdir -p .git/info; echo '*' >>.git/info/exclude",
    "a sparse checkout": "mkdir -p .git/info; echo /x >.git/info/sparse-checkout",
    "assume-unchanged": "git update-index --assume-unchanged file; echo wrong >file",
    "skip-worktree": "git update-index --skip-worktree file; echo wrong >file",
    "a split index": "git -c core.splitIndex=true update-index --split-index; echo wrong >file",
    "HEAD as text": "echo 'ref: ../../evil' >.git/HEAD",
    "HEAD elsewhere": "echo 'ref: refs/replace/x' >.git/HEAD",
    "a reference of text": "echo 'gitdir: x' >.git/refs/heads/x",
    "shallow": "echo '../../x' >.git/shallow",
    "a commit-graph": "git commit-graph write; printf x >>.git/objects/info/commit-graph; exit 0",
    "objects that are deleted": "rm .git/objects/??/*",
    "one object": "rm $(git rev-parse HEAD~1 | sed 's,^..,.git/objects/&/,')",
    "the main reference folder": "rm -r .git/refs/heads",
}  # fmt: skip


# Once these are deleted, all other deletions are held, too.
ALONE = ("objects that are deleted", "the main reference folder")
TOGETHER = [name for name in REPLACED if name not in ALONE]


@pytest.mark.parametrize("names", [TOGETHER, *([name] for name in ALONE)], ids=["most", *ALONE])
def test_content_is_replaced(person: Person, names: list[str]) -> None:
    folders = copies(person, names)
    before = git(person, "git log -p", folders[names[0]])
    for name, waiting in attack_each(person, {name: REPLACED[name] for name in names}).items():
        assert waiting or name == "a commit-graph", name
        assert git(person, "git log -p", folders[name]) == before, name
        wrong = "M file" if "wrong" in REPLACED[name] else ""
        assert wrong in git(person, "git status --porcelain", folders[name]), name


INDEX = """
import hashlib, os, struct, subprocess
head = subprocess.run(["git", "rev-parse", "HEAD:file"], capture_output=True, text=True).stdout
old = open(".git/index", "rb").read()
tree = old[old.index(b"TREE"):-20]
open("file", "w").write("WRONG\\nMORE\\n")
os.utime("file", (1e9, 1e9))
subprocess.run(["git", "add", "file"])
data = open(".git/index", "rb").read()[:-20]
"""
INDEXES = {
    # The file differs, and the index says that it does not.
    "the right times": "at = data.index(b'file\\0') - 22;"
        "data = data[:at] + bytes.fromhex(head) + data[at + 20:]",
    # The index differs from HEAD, and the tree in it says that it does not.
    "a tree": "data = data[:data.index(b'TREE')] + tree if b'TREE' in data else data + tree",
    "both": "at = data.index(b'file\\0') - 22;"
        "data = data[:at] + bytes.fromhex(head) + data[at + 20:];"
        "data = data[:data.index(b'TREE')] + tree if b'TREE' in data else data + tree",
    "a cache of unknown files": "data += b'UNTR' + struct.pack('>I', 3) + b'xyz'",
}  # fmt: skip


def test_a_changed_file_is_hidden(person: Person) -> None:
    # The change time and the inode cannot be foretold for certain; here they need not be.
    prepare = "git config core.checkStat minimal; git config core.trustctime false"
    folders = copies(person, INDEXES, prepare)
    end = 'open(".git/index", "wb").write(data + hashlib.sha1(data).digest())'
    codes = {name: f"{INDEX}{code}\n{end}\n" for name, code in INDEXES.items()}
    attack_each(person, run_each(person, codes))
    for name in INDEXES:
        assert (folders[name] / "file").read_text() == "WRONG\nMORE\n", name
        assert "file" in git(person, "git status --porcelain", folders[name]), name
        assert "WRONG" in git(person, "git diff HEAD", folders[name]), name
        assert "WRONG" in git(person, "git diff; git diff --cached", folders[name]), name


# --- lists of steps ---

STEP_LIST = ".git/rebase-merge/git-rebase-todo"
STEPS = {
    "exec": f"echo 'exec touch ~/planted' >>{STEP_LIST}",
    "its short name": f"echo 'x touch ~/planted' >>{STEP_LIST}",
    "before the others": f"sed -i '1i exec touch ~/planted' {STEP_LIST}",
    "with blanks": f"printf '  exec   touch ~/planted\\n' >>{STEP_LIST}",
    "with a tab": f"printf '\\texec\\ttouch ~/planted\\n' >>{STEP_LIST}",
    "after a carriage return": f"printf 'noop\\r\\nexec touch ~/planted\\r\\n' >>{STEP_LIST}",
    "a strategy": "mkdir -p bin; printf '#!/bin/sh\\ntouch ~/planted\\n' >bin/git-merge-evil;"
        "chmod +x bin/git-merge-evil; echo ../../../../bin/evil >.git/rebase-merge/strategy",
    "options": "echo ' --gpg-sign=x' >.git/rebase-merge/strategy_opts",
    "signing": "echo '-S$(touch ~/planted)' >.git/rebase-merge/gpg_sign_opt",
    "the author": "echo 'GIT_AUTHOR_NAME=$(touch ~/planted)' >.git/rebase-merge/author-script",
    "a file that nobody knows": "echo x >.git/rebase-merge/evil",
    "a reference": f"echo 'update-ref refs/replace/x' >>{STEP_LIST}",
}  # fmt: skip


def test_steps_of_a_rebase(person: Person) -> None:
    stop = "git checkout -q other; echo clash >file; git commit -qam clash; echo y >y; git add y;"
    folders = copies(person, STEPS, f"{stop} git commit -qm y; git rebase main")
    assert (folders["exec"] / STEP_LIST).exists()
    waiting = attack_each(person, STEPS)
    for name in STEPS:
        assert waiting[name], name
        (folders[name] / "file").write_text("both\n")
        git(person, "git add file; PATH=$PWD/bin:$PATH git rebase --continue", folders[name])
        assert not is_planted(person), name
        said = git(person, "git log --format=%s", folders[name])
        assert said == "y\nclash\nsecond\nfirst\n", name


STATES = (
    "mkdir .git/sequencer; echo 'exec touch ~/planted' >.git/sequencer/todo",
    "mkdir .git/sequencer; printf '[options]\\n\\tgpg-sign = x\\n' >.git/sequencer/opts",
    "mkdir .git/sequencer; printf '[options]\\n\\tstrategy = x/y\\n' >.git/sequencer/opts",
    "mkdir .git/rebase-apply; echo \"'--directory=..'\" >.git/rebase-apply/apply-opt",
    "mkdir .git/rebase-merge; echo 'exec touch ~/planted' >.git/rebase-merge/git-rebase-todo",
    "echo \"'; touch ~/planted; '\" >.git/BISECT_NAMES",
    "echo '--exec=x' >.git/BISECT_START",
    "echo '$(touch ~/planted)' >.git/BISECT_LOG",
    "echo x >.git/BISECT_RUN",
)


def test_state_that_git_would_follow(person: Person) -> None:
    copies(person, STATES)
    waiting = attack_each(person, {state: state for state in STATES})
    assert [state for state in STATES if not waiting[state]] == []


# --- what an installed hook runs ---

HOOKS = {
    "the folder above": ('cd "$(dirname "$0")/.."; sh ./check', "tools/hooks", "tools/check"),
    "the folder above, by its name": ('. "${0%/*}/../lib/c"', "tools/hooks", "tools/lib/c"),
    "a variable": ('DIR=tools/checks; "$DIR"/run', "", "tools/checks/run"),
    "a variable in braces": ("D=tools\\nsh ${D}/checks/run", "", "tools/checks/run"),
    "two variables": ('D=tools N=run; sh "$D/$N"', "", "tools/run"),
    "variables in other lines": ('cd tools/checks\\nN=run\\nsh "$N"', "", "tools/checks/run"),
    "run-parts": ("run-parts tools/checks", "", "tools/checks/10-lint"),
    "a list of run-parts": ("cat $(run-parts --list tools/checks) | sh", "",
        "tools/checks/10-lint"),
    "xargs": ("ls tools/checks/* | xargs -n1 sh", "", "tools/checks/a"),
    "while": ("ls tools/checks | while read f; do sh tools/checks/$f; done", "", "tools/checks/a"),
    "PATH": ("PATH=$PWD/bin:$PATH; lint", "", "bin/lint"),
    "PATH, exported": ('export PATH="$(git rev-parse --show-toplevel)/bin:$PATH"\\nlint', "",
        "bin/lint"),
    "find": ("find tools/checks -name '*.sh' -exec sh {} \\\\;", "", "tools/checks/deep/a.sh"),
    "find of anything": ("find tools/checks -type f | xargs -n1 sh", "", "tools/checks/a"),
    "a loop": ("for f in tools/checks/*; do sh $f; done", "", "tools/checks/a"),
    "a loop over the whole path": ("for f in WORKTREE/tools/*; do sh $f; done", "", "tools/a"),
    "a value that a variable has without one": ('sh "${DIR:-tools}/run"', "", "tools/run"),
    "a folder to enter": ("cd tools/checks && for f in *; do . ./$f; done", "", "tools/checks/a"),
}  # fmt: skip
# What these run must be a program, or is held only if it is one.
PROGRAMS = ("a variable", "run-parts", "PATH", "PATH, exported")


@pytest.mark.parametrize("new", ["folder", "file", "content"])
def test_what_a_hook_runs(person: Person, new: str) -> None:
    folders, plants = copies(person, HOOKS), {}
    for name, (text, path, script) in HOOKS.items():
        hook = folders[name] / (path or ".git/hooks") / "pre-commit"
        hook.parent.mkdir(parents=True, exist_ok=True)
        text = text.replace("\\n", "\n").replace("\\\\", "\\")
        hook.write_text(f"#!/bin/sh\n{text}\n".replace("WORKTREE", str(folders[name])))
        hook.chmod(0o755)
        file = folders[name] / script
        if new != "folder":
            file.parent.mkdir(parents=True, exist_ok=True)
        if path:
            git(person, f"git config core.hooksPath {path}", folders[name])
        if new == "content":
            file.write_text("#!/bin/sh\n")
            file.chmod(0o755)
        chmod = f"chmod +x {script};" if name in PROGRAMS else ""
        plants[name] = (
            f"mkdir -p $(dirname {script}); printf '{HARM}' >{script}; {chmod} mkdir src;"
        )
    others = "echo x >src/main.c; echo x >new"
    waiting = attack_each(person, {n: f"{plant} {others}" for n, plant in plants.items()})
    assert waiting == {name: {script} for name, (_, _, script) in HOOKS.items()}
    for name, plant in plants.items():
        git(person, "git add new; git commit -m x", folders[name])
        assert not is_planted(person), name
        # The attack would work.
        git(person, f"{plant} git commit --allow-empty -m x", folders[name])
        assert is_planted(person), name


def test_a_hook_that_only_names_the_sources(person: Person, checkout: Path) -> None:
    (checkout / ".git/hooks").mkdir(exist_ok=True)
    (checkout / ".git/hooks/pre-commit").write_text(
        "#!/bin/sh\nruff check src tests\npytest tests\n"
    )
    for folder in ("src", "tests"):
        (checkout / folder).mkdir()
    assert attack(person, "echo x >src/a.py; echo x >tests/b.py; echo x >file") == set()


# --- data that cannot be judged ---

PLACES = (
    "HEAD", "index", "config", "packed-refs", "ORIG_HEAD", "FETCH_HEAD", "shallow",
    "refs/heads/x", "refs/heads/a b", "logs/HEAD", "objects/aa/" + "b" * 38, "rebase-merge/done",
    "objects/pack/pack-" + "a" * 40 + ".pack", "objects/pack/pack-" + "a" * 40 + ".idx", "gitdir",
    "commondir", "worktrees/x/gitdir", "worktrees/x/commondir", "worktrees/x/HEAD",
    "modules/m/HEAD", "modules/m/config", "modules/m/modules/n/HEAD", "sequencer/opts", "any",
)  # fmt: skip
DATA = {
    "nothing readable": "head -c 100000 /dev/urandom",
    "a sparse file": "",
    "lines": "yes exec | head -c 3000000",
    "blanks": "printf '%100000s' '['",
    "an index that says too much": r"printf 'DIRC\0\0\0\2\377\377\377\377'",
    "an index that ends": r"printf 'DIRC\0\0\0\4\0\0\0\1%62s\377\377\377\377\377\377\377\377'",
}


@pytest.mark.parametrize("name", DATA)
def test_data_that_cannot_be_judged(person: Person, name: str) -> None:
    copies(person, PLACES)
    show = in_each([SHOW] * len(PLACES))
    commands = {}
    for place in PLACES:
        file = f"'.git/{place}'"
        make = f"{DATA[name]} >{file}" if DATA[name] else f"truncate -s 20G {file}"
        commands[place] = f'mkdir -p "$(dirname {file})"; rm -f {file}; {make}; true'
    before = git(person, show)
    waiting = attack_each(person, commands)
    assert [place for place in PLACES if f".git/{place}" not in waiting[place]] == []
    person.cli("changes")
    assert person.cli("discard").returncode == 0
    assert git(person, show) == before


@pytest.mark.parametrize("kind", ["ln -sf /etc/passwd", "mkfifo", "mkdir"])
def test_other_kinds_of_files(person: Person, checkout: Path, kind: str) -> None:
    before = git(person, SHOW)
    make = "; ".join(
        f"mkdir -p \"$(dirname '.git/{place}')\"; rm -rf '.git/{place}'; {kind} '.git/{place}'"
        for place in PLACES
    )
    attack(person, make)
    assert git(person, SHOW) == before
