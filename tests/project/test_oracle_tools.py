# SPDX-License-Identifier: GPL-3.0-or-later
"""Real tools do the same in the sandbox as without it. Each command is a run on top of the one
before."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from support.oracle import (
    SAME_COMMITS,
    Aside,
    Ran,
    apply_what_waits,
    assert_nothing_is_left,
    assert_same,
    comparable,
    run_plain,
    run_sandboxed,
)
from support.person import Person

_REPOSITORY = "git init -q -b main . && git add -A && git commit -q -m first"
_BRANCHED = (
    f"{_REPOSITORY} && git checkout -q -b topic && echo topic >> src/b.txt && git commit -qam topic"
    " && git checkout -q main && echo main >> src/a.txt && git commit -qam main"
)
_PYTHON = "/usr/bin/python3"
# Beside the sources, where commands do not put it by themselves.
_COMPILE = (
    f"env -u PYTHONPYCACHEPREFIX {_PYTHON} -m compileall -q --invalidation-mode checked-hash py"
)

SCRIPTS: dict[str, tuple[str, ...]] = {
    # --- git ---
    "git init": ("git init -q -b main .",),
    "git commit": (_REPOSITORY, "echo more >> src/a.txt && git commit -qam second"),
    "git branch and checkout": (
        _REPOSITORY,
        "git checkout -q -b topic && git rm -q src/b.txt && git commit -qm gone",
        "git checkout -q main",
        "git branch -D topic",
    ),
    "git merge": (_BRANCHED, "git merge -q -m merged topic"),
    "git merge with a conflict": (
        _REPOSITORY,
        "git checkout -q -b topic && echo 1 > src/a.txt && git commit -qam 1",
        "git checkout -q main && echo 2 > src/a.txt && git commit -qam 2",
        "git merge -q topic",
        "git merge --abort",
    ),
    "git rebase": (_BRANCHED, "git checkout -q topic && git rebase -q main"),
    "git gc": (_BRANCHED, "git gc -q --prune=now"),
    "git worktree": (_REPOSITORY, "git worktree add -q -b other tree/other", "ls tree/other"),
    "git stash": (_REPOSITORY, "echo x >> src/a.txt && git stash -q", "git stash pop -q"),
    # Not of a folder: git does not copy where an overlay refuses to rename.
    "git mv and rm": (_REPOSITORY, "git mv src/a.txt moved && git rm -q src/b.txt", "git status"),
    "git clean": (_REPOSITORY, "touch junk src/junk && mkdir -p out/x", "git clean -q -fdx"),
    # Removed again: in the sandbox of an ordinary user, git packs the objects of the copy.
    "git clone": (_REPOSITORY, "git clone -q . copy", "rm -rf copy"),
    "git apply": (_REPOSITORY, "echo x >> src/a.txt && git diff > d && git apply -R d"),
    "git config": ("git init -q . && git config user.name B", "git config --unset user.name"),
    # --- archives ---
    "tar x": ("tar cf all.tar src bin && rm -rf src bin", "tar xf all.tar && rm all.tar"),
    "tar x over what is there": ("tar cf all.tar src bin", "tar xf all.tar", "tar xpf all.tar"),
    "tar x with modes": (
        "chmod 751 src && chmod 640 src/a.txt && tar czf all.tgz src && chmod -R 777 src",
        "tar xpzf all.tgz",
    ),
    "zip": ("zip -qr all.zip src bin && rm -rf src", "unzip -qo all.zip -d out", "rm all.zip"),
    "gzip": ("gzip -n src/a.txt src/b.txt", "gunzip src/a.txt.gz"),
    "xz and bzip2": ("xz src/a.txt && bzip2 src/b.txt", "unxz src/a.txt.xz && bunzip2 src/*.bz2"),
    # --- builds ---
    "make": ("make", "touch src/main.c && make", "make clean", "make -j2 && bin/run"),
    "make has nothing to do": ("make", "make"),
    "compileall": (
        _COMPILE,
        "echo 'x = 2' > py/m.py",
        _COMPILE,
    ),
    "venv": (f"{_PYTHON} -m venv --without-pip env", "env/bin/python -c 'print(1)'", "rm -rf env"),
    "pip": (
        f"{_PYTHON} -m pip install -q --no-index --no-compile --no-cache-dir"
        " --disable-pip-version-check --target site ./thing-1-py3-none-any.whl",
        f"PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=site {_PYTHON} -c 'import thing; print(thing.x)'",
    ),
    # --- editing ---
    "sed": ("sed -i s/one/two/ src/*.txt", "sed -i.bak s/two/three/ src/a.txt"),
    "patch": ("patch -p0 < fix.patch", "patch -R -p0 < fix.patch"),
    "perl": ("perl -pi -e 's/one/1/' src/a.txt", "perl -pi.orig -e 's/1/one/' src/a.txt"),
    "ed": (r"printf '1d\nw\nq\n' | ed -s src/a.txt",),
    "saved as editors do": (
        "t=$(mktemp -p src) && echo saved > $t && chmod 644 $t && mv $t src/a.txt",
        "t=$(mktemp -p src) && echo again > $t && mv -f $t src/a.txt",
    ),
    "awk and sort": ("awk '{print NR}' src/a.txt > t && mv t link", "sort -ro link link"),
    "split": ("split -b 10 src/main.c part.", "cat part.* > joined && rm part.*"),
    "sqlite": (
        "sqlite3 db 'create table t(x); insert into t values (1)'",
        "sqlite3 db 'pragma journal_mode=wal; insert into t values (2)'",
        "sqlite3 db 'delete from t; vacuum'",
    ),
    "sqlite with its log left": (
        f"""{_PYTHON} -c '
import os, sqlite3
c = sqlite3.connect("db")
c.execute("pragma journal_mode=wal")
c.execute("create table t(x)")
c.execute("insert into t values (1)")
c.commit()
os._exit(0)'""",
        "sqlite3 db 'select x from t; insert into t values (2)'",
    ),
    # --- files and folders ---
    "cp": ("cp -a src copy && cp -al src linked", "rm -rf src && cp -a copy src"),
    "rsync": (
        "rsync -a src/ copy/ && echo more >> src/a.txt",
        "rm src/b.txt && rsync -a --delete --checksum src/ copy/",
        "rsync -a --inplace --remove-source-files src/ moved/",
    ),
    "mv of folders": ("mv src new", "mkdir deep && mv new deep/src", "mv deep/src ."),
    "mv over and back": ("mv src/a.txt src/b.txt", "mv bin src/ && mv src/bin/run.sh ."),
    "rm and recreate": ("rm -rf src && mkdir src && echo > src/a.txt", "rm -rf src && > src"),
    "folders made anew": ("mkdir -p n/m/o && touch n/m/o/x n/m/y", "rm -r n && mkdir -p n/m/o"),
    "all names of a file": ("sed -i s/1/2/ pair/one pair/two && rm pair/three", "rm -r pair"),
    "a folder becomes a link": ("mv src real && ln -s real src", "rm src && mv real src"),
    "ln": ("ln src/a.txt hard && ln -s src soft && ln -s /nowhere out", "ln -sfn bin soft"),
    "chmod": ("chmod -R go-rwx .", "chmod -R a+rX src && chmod a-w src && chmod 000 bin/run.sh"),
    "a read-only tree": ("chmod -R a-w src", "chmod -R u+w src && rm -rf src"),
    "touch": ("touch -d 2001-01-01 src/a.txt src/new", "touch -r src/a.txt src/b.txt"),
    "find": ("find . -name '*.txt' -delete", "find . -type d -empty -delete"),
    "truncate": ("truncate -s 3 src/a.txt && truncate -s 1M big", "truncate -s 0 big"),
    "dd": ("dd if=/dev/zero of=sparse bs=1 count=1 seek=5M status=none", "rm sparse"),
    "install": ("install -d -m 750 out/deep && install -m 711 bin/run.sh out/deep/run",),
    "redirections": ("for i in 1 2; do echo $i >> log; done; > src/a.txt", "cat log >> src/a.txt"),
    "odd names": (
        r"""mkdir -p -- '-d' 'a b' && echo 1 > "$(printf 'new\nline')" && echo 2 > '-d/*' """,
        r"""mv -- '-d' 'a b/' && rm -- "$(printf 'new\nline')" """,
    ),
    "an empty tree": ("find . -mindepth 1 -delete", "mkdir -p a/b/c"),
    "a failing script": ("echo half > src/a.txt; false", "rm src/b.txt; exit 7"),
}  # fmt: skip


def _fill(project: Path) -> None:
    """A small project of everything."""
    files = {
        "src/a.txt": "one\ntwo\nthree\n",
        "src/b.txt": "one\n",
        "src/main.c": '#include <stdio.h>\nint main(void) { puts("hi"); return 0; }\n',
        "bin/run.sh": "#!/bin/sh\necho run\n",
        "py/m.py": "x = 1\n",
        "Makefile": (
            "bin/run: main.o\n\tcc -o $@ main.o\nmain.o: src/main.c\n\tcc -c -o $@ $<\n"
            "clean:\n\trm -f main.o bin/run\n"
        ),
        "fix.patch": "--- src/a.txt\n+++ src/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",
    }
    for name, text in files.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    (project / "bin/run.sh").chmod(0o755)
    (project / "link").symlink_to("src/a.txt")
    (project / "empty").mkdir()
    (project / "pair").mkdir()
    (project / "pair/one").write_text("1\n")
    for name in ("two", "three"):
        (project / "pair" / name).hardlink_to(project / "pair/one")
    with zipfile.ZipFile(project / "thing-1-py3-none-any.whl", "w") as wheel:
        about = "thing-1.dist-info"
        wheel.writestr("thing.py", "x = 'thing'\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1\n")
        kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{about}/WHEEL", kind)
        names = ("thing.py", f"{about}/METADATA", f"{about}/WHEEL", f"{about}/RECORD")
        wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in names))


# Every second one as root, the others as an ordinary user: together they try them all.
@pytest.mark.parametrize("name", list(SCRIPTS)[os.getuid() == 0 :: 2])
def test_a_tool_does_what_it_does_without_a_sandbox(person: Person, name: str) -> None:
    person.environ.update(SAME_COMMITS)
    _fill(person.project)
    aside = Aside(person)
    plain: list[Ran] = [run_plain(person, command) for command in SCRIPTS[name]]
    expected = comparable(person)
    aside.bring_back()
    inside = [run_sandboxed(person, command) for command in SCRIPTS[name]]
    apply_what_waits(person)
    assert inside == plain
    assert_same(expected, comparable(person))
    assert_nothing_is_left(person)
