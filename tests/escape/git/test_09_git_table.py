# SPDX-License-Identifier: GPL-3.0-or-later
"""Attacks through the files of a git repository: the user's own git would run something, push
somewhere else, or show other content for the same commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.escape.copy_back import settle
from support.person import Person

from ollmsandbox.project.change import Kind, Report, State

pytestmark = pytest.mark.anybody

HARM = "#!/bin/sh\\ntouch ~/planted\\n"
COMMIT = "git -c user.name=me -c user.email=me@example.org commit -q"


def git(person: Person, command: str, folder: Path | None = None) -> str:
    """Run commands as the user does, without a sandbox; their failures are part of the story."""
    environ = person.environ | {"GIT_EDITOR": "true"}
    return person.run_outside(command, cwd=folder or person.project, env=environ).stdout


def held(report: Report) -> set[str]:
    assert not report.errors
    for item in report.changes:
        assert (item.state is State.PENDING) == item.is_held, item
    return {item.change.path for item in report.changes if item.is_held}


def attack(person: Person, command: str) -> set[str]:
    report = settle(person, command)
    for item in report.changes:
        # Each says what git would do, except where too much is deleted.
        is_git = ".git/" in item.change.path and item.change.kind is not Kind.DELETED
        assert not (item.is_held and is_git) or item.note is not None, item
    return held(report)


def is_planted(person: Person) -> bool:
    return (person.home / "planted").exists()


@pytest.fixture
def checkout(person: Person) -> Path:
    """A repository with two commits; its objects are loose."""
    (person.home / ".gitconfig").write_text("[user]\nname = me\nemail = me@example.org\n")
    git(
        person,
        "git init -q -b main; echo right >file; mkdir tools; echo x >tools/x; git add .;"
        "git commit -qm first; echo more >>file; git commit -qam second; git branch other HEAD~1",
    )
    assert git(person, "git log --format=%s") == "second\nfirst\n"
    return person.project


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


@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize("key", ["url", "pushurl"])
def test_a_push_to_a_repository_of_the_command_s(person: Person, name: str, key: str) -> None:
    place, address = ADDRESSES[name]
    outside = person.playground
    address = address.replace("OUTSIDE", str(outside)).replace("HOME", str(person.home))
    make = EVIL.replace("DIR", place).replace("\n", "; ").strip("; ")
    command = f"{make}; ln -s {outside} link; git init -q -b main sub; cd sub;"
    command += f"{COMMIT} --allow-empty -m x; "
    command += f'printf \'[remote "origin"]\\n\\t{key} = %s\\n\' "{address}" >>.git/config'
    waiting = attack(person, command.replace("$PWD", str(person.project)))
    assert "sub/.git/config" in waiting
    soon = person.home / "soon"
    soon.mkdir()
    if (outside / "evil").exists():
        (soon / "evil").symlink_to(outside / "evil")
    git(person, "git -c protocol.ext.allow=always push origin main", person.project / "sub")
    assert not is_planted(person)


@pytest.mark.parametrize(
    "setting",
    [
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
    ],
)
def test_a_second_address_of_a_remote(person: Person, checkout: Path, setting: str) -> None:
    git(
        person, "git remote add origin ssh://example.org/mine; git config branch.main.remote origin"
    )
    before = (checkout / ".git/config").read_text()
    assert attack(person, f"git {setting}") == {".git/config"}
    assert (checkout / ".git/config").read_text() == before


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
    "a file that unpacks for ever": "os.unlink(path(blob)); z = zlib.compressobj(9);"
        "f = open(path(blob), 'wb'); [f.write(z.compress(bytes(1 << 24))) for n in range(40)];"
        "f.write(z.flush())",
}  # fmt: skip


@pytest.mark.parametrize("name", OBJECTS)
def test_loose_objects(
    person: Person, checkout: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (person.home / "x.py").write_text(LOOSE + OBJECTS[name])
    before = git(person, "git log -p --all")
    waiting = attack(person, f"python3 {person.home}/x.py")
    assert waiting and all(path.startswith(".git/objects/") for path in waiting)
    assert git(person, "git log -p --all") == before
    assert "right" in git(person, "git show HEAD:file")
    assert git(person, "git fsck 2>&1; echo $?").endswith("0\n")


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


@pytest.mark.parametrize("name", PACKS)
def test_packs(person: Person, checkout: Path, name: str) -> None:
    (person.home / "x.py").write_text(PACK + PACKS[name])
    attack(person, f"python3 {person.home}/x.py")
    assert git(person, "git show HEAD:file") == "right\nmore\n"
    assert git(person, "git fsck --full 2>&1; echo $?").endswith("0\n")
    settle(person, "rm -f .git/objects/pack/*.pack; touch done")
    assert git(person, "git show HEAD:file") == "right\nmore\n"


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


@pytest.mark.parametrize("name", REPLACED)
def test_content_is_replaced(person: Person, checkout: Path, name: str) -> None:
    before = git(person, "git log -p")
    waiting = attack(person, REPLACED[name])
    assert waiting or name == "a commit-graph"
    assert git(person, "git log -p") == before
    wrong = "M file" if "wrong" in REPLACED[name] else ""
    assert wrong in git(person, "git status --porcelain")


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


@pytest.mark.parametrize("name", INDEXES)
def test_a_changed_file_is_hidden(person: Person, checkout: Path, name: str) -> None:
    # The change time and the inode cannot be foretold for certain; here they need not be.
    git(person, "git config core.checkStat minimal; git config core.trustctime false")
    end = 'open(".git/index", "wb").write(data + hashlib.sha1(data).digest())'
    (person.home / "x.py").write_text(f"{INDEX}{INDEXES[name]}\n{end}\n")
    attack(person, f"python3 {person.home}/x.py")
    assert (checkout / "file").read_text() == "WRONG\nMORE\n"
    assert "file" in git(person, "git status --porcelain")
    assert "WRONG" in git(person, "git diff HEAD")
    changes = git(person, "git diff; git diff --cached")
    assert "WRONG" in changes


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


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_a_rebase(person: Person, checkout: Path, name: str) -> None:
    stop = "git checkout -q other; echo clash >file; git commit -qam clash; echo y >y; git add y;"
    git(person, f"{stop} git commit -qm y; git rebase main")
    assert (checkout / STEP_LIST).exists()
    assert attack(person, STEPS[name])
    (checkout / "file").write_text("both\n")
    git(person, "git add file; PATH=$PWD/bin:$PATH git rebase --continue")
    assert not is_planted(person)
    assert git(person, "git log --format=%s") == "y\nclash\nsecond\nfirst\n"


@pytest.mark.parametrize(
    "state",
    [
        "mkdir .git/sequencer; echo 'exec touch ~/planted' >.git/sequencer/todo",
        "mkdir .git/sequencer; printf '[options]\\n\\tgpg-sign = x\\n' >.git/sequencer/opts",
        "mkdir .git/sequencer; printf '[options]\\n\\tstrategy = x/y\\n' >.git/sequencer/opts",
        "mkdir .git/rebase-apply; echo \"'--directory=..'\" >.git/rebase-apply/apply-opt",
        "mkdir .git/rebase-merge; echo 'exec touch ~/planted' >.git/rebase-merge/git-rebase-todo",
        "echo \"'; touch ~/planted; '\" >.git/BISECT_NAMES",
        "echo '--exec=x' >.git/BISECT_START",
        "echo '$(touch ~/planted)' >.git/BISECT_LOG",
        "echo x >.git/BISECT_RUN",
    ],
)
def test_state_that_git_would_follow(person: Person, checkout: Path, state: str) -> None:
    assert attack(person, state)


# --- what an installed hook runs ---

HOOKS = {
    "the folder above": ('cd "$(dirname "$0")/.."; sh ./check', "tools/hooks", "tools/check"),
    "the folder above, by its name": ('. "${0%/*}/../lib/c"', "tools/hooks", "tools/lib/c"),
    "a variable": ('DIR=tools/checks; "$DIR"/run', "", "tools/checks/run"),
    "a variable in braces": ("D=tools\\nsh ${D}/checks/run", "", "tools/checks/run"),
    "two variables": ('D=tools N=run; sh "$D/$N"', "", "tools/run"),
    "run-parts": ("run-parts tools/checks", "", "tools/checks/10-lint"),
    "PATH": ("PATH=$PWD/bin:$PATH; lint", "", "bin/lint"),
    "PATH, exported": ('export PATH="$(git rev-parse --show-toplevel)/bin:$PATH"\\nlint', "",
        "bin/lint"),
    "find": ("find tools/checks -name '*.sh' -exec sh {} \\\\;", "", "tools/checks/deep/a.sh"),
    "find of anything": ("find tools/checks -type f | xargs -n1 sh", "", "tools/checks/a"),
    "a loop": ("for f in tools/checks/*; do sh $f; done", "", "tools/checks/a"),
    "a value that a variable has without one": ('sh "${DIR:-tools}/run"', "", "tools/run"),
    "a folder to enter": ("cd tools/checks && for f in *; do . ./$f; done", "", "tools/checks/a"),
}  # fmt: skip


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("name", HOOKS)
def test_what_a_hook_runs(person: Person, checkout: Path, name: str, is_new: bool) -> None:
    text, path, script = HOOKS[name]
    folder = checkout / (path or ".git/hooks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pre-commit").write_text(
        f"#!/bin/sh\n{text}\n".replace("\\n", "\n").replace("\\\\", "\\")
    )
    (folder / "pre-commit").chmod(0o755)
    (checkout / script).parent.mkdir(parents=True, exist_ok=True)
    if path:
        git(person, f"git config core.hooksPath {path}")
    if not is_new:
        (checkout / script).write_text("#!/bin/sh\n")
        (checkout / script).chmod(0o755)
    plant = f"printf '#!/bin/sh\\ntouch ~/planted\\n' >{script}; chmod +x {script}; mkdir src;"
    assert attack(person, f"{plant} echo x >src/main.c; echo x >new") == {script}
    git(person, "git add new; git commit -m x")
    assert not is_planted(person)
    # The attack would work.
    git(person, plant + "git commit --allow-empty -m x")
    assert is_planted(person)


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
def test_data_that_cannot_be_judged(person: Person, checkout: Path, name: str) -> None:
    before = git(person, "git log -p; git status --porcelain")
    for place in PLACES:
        file = f"'.git/{place}'"
        if name == "a sparse file":
            make = f"rm -f {file}; truncate -s 20G {file}"
        else:
            make = f"rm -f {file}; {DATA[name]} >{file}"
        waiting = attack(person, f'mkdir -p "$(dirname {file})"; {make}; true')
        assert f".git/{place}" in waiting, place
        person.cli("changes")
        assert person.cli("discard").returncode == 0
    assert git(person, "git log -p; git status --porcelain") == before


@pytest.mark.parametrize("kind", ["ln -sf /etc/passwd", "mkfifo", "mkdir"])
def test_other_kinds_of_files(person: Person, checkout: Path, kind: str) -> None:
    before = git(person, "git log -p; git status --porcelain")
    make = "; ".join(
        f"mkdir -p \"$(dirname '.git/{place}')\"; rm -rf '.git/{place}'; {kind} '.git/{place}'"
        for place in PLACES
    )
    attack(person, make)
    assert git(person, "git log -p; git status --porcelain") == before
