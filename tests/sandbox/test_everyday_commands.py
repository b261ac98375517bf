# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 - a command in one line is easier to read
"""Everyday commands do the same in the sandbox as in the user's own shell: the same status, the
same output, and the same files afterwards: for root with an empty home folder, for an ordinary user
with a filled one.

The commands of a group run one after the other in one sandbox, each in a copy of the same project:
that is the work of a few runs instead of hundreds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from support.escape.attack import IS_ROOT
from support.oracle import Ran, apply_what_waits, differences, run_plain, run_sandboxed, snapshot
from support.oracle_steps import Seen
from support.person import Person, make_person
from support.servers import registry

pytestmark = pytest.mark.ordinary

PYTHON = "/usr/bin/python3"
# Those that a small system lacks.
PROGRAMS = (
    *("git", "gcc", "make", "node", "perl", "sqlite3", "jq", "bc", "file", "curl", "ed", "patch"),
    *("rsync", "zip", "unzip", "npm", "npx", "cargo", "go", "ccache"),
)
_UNTIL_IT_LISTENS = "for i in {1..600}; do [ -s port ] && break; sleep .05; done"


def _with_registry(command: str) -> str:
    """Return a command in which $R is the address of a registry on loopback."""
    start = f"{PYTHON} registry.py > port & {_UNTIL_IT_LISTENS}; R=http://127.0.0.1:$(cat port)"
    return f"{start}\n( {command} ); s=$?; kill %1; wait; rm port; exit $s"


_NPM = "--silent --no-audit --no-fund --no-update-notifier"
# println is built in: with packages of its library, Go would compile these first.
_GO = "export GOPROXY=file://$PWD/modules GOSUMDB=off GOFLAGS=-mod=mod GOTOOLCHAIN=local"
_PIP = "-q --isolated --disable-pip-version-check --no-input"

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "inspection": {
        "ls": "ls -la --time-style=+%Y src && ls -1aF",
        "ls in detail": "ls -lR --time-style=+%Y deep | head -n 40",
        "find": "find . -name '*.c' -o -name '*.py' | sort",
        "find by type and size": "find . -path ./.git -prune -o -type f -size -2k -print | sort",
        "find and run": "find src -name '*.h' -exec wc -l {} +",
        "find and xargs": "find . -name '*.py' -print0 | sort -z | xargs -0 -n 1 basename",
        "grep": "grep -rn --include='*.py' 'def ' . | sort",
        "sed prints lines": "sed -n '2,3p' notes.txt",
        "awk": "awk -F, 'NR > 1 { sum += $2 } END { print sum }' data.csv",
        "sort and uniq": "cut -d, -f3 data.csv | sort | uniq -c | sort -rn",
        "diff": "diff -u notes.txt other.txt",
        "stat": "stat -c '%n %s %A %F' * .hidden",
        "file": "file -b src/main.c binary.bin link script.sh",
        "du": "du --apparent-size -b src/main.c binary.bin",
        "sha256sum": "sha256sum notes.txt src/* && md5sum binary.bin",
        "readlink": "readlink -f link && realpath deep/../src && pwd -P",
        "jq": "jq -r '.scripts | keys[]' package.json",
        "which": "command -v make; type -t cd; which python3",
        "environment": "echo $HOME $USER $LC_ALL; umask; uname -sm",
        "a missing file": "cat nothing-here; echo $?",
        "a missing program": "no-such-program --help",
        "a program that may not run": "./notes.txt",
    },
    "shell": {
        "all output to a file": "make no-such-target &> log; echo $? $(wc -l < log)",
        "pipefail": "set -o pipefail; false | true; echo $?",
        "braces": "echo {1..3} {a,b}{x,y}; mkdir -p made/{one,two}/sub && ls -R made",
        "process substitution": "diff <(sort notes.txt) <(sort other.txt); echo $?",
        "output to a process": "echo out | tee >(tr a-z A-Z > upper) > /dev/null; sleep .2; cat upper",
        "source": "source ./settings.sh && echo $SETTING",
        "pushd": "pushd src > /dev/null && pwd && popd > /dev/null && pwd",
        "a here-document": "cat > made.txt <<EOF\nhome is $HOME\nEOF\ncat made.txt",
        "a here-string": "tr a-z A-Z <<< 'shout'",
        "a trap": "trap 'echo bye' EXIT; echo hello; exit 4",
        "globs": "shopt -s globstar nullglob; echo **/*.py | tr ' ' '\\n' | sort; echo no*match",
        "background jobs": "sleep 30 & sleep 31 & kill %1; wait %1; jobs -r | wc -l; kill %2; wait; echo done",
        "wait for a job": "(sleep .1; exit 7) & wait $!; echo $?",
        "timeout": "timeout .2 sleep 30; echo $?",
        "a signal": "bash -c 'kill -TERM $$'; echo $?",
        "a script": "./script.sh one 'two three'",
        "time": "time -p true 2> took; grep -c real took",
        "xargs in parallel": "seq 8 | xargs -P 4 -n 2 sh -c 'echo $(($1 + $2))' sh | sort -n",
        "arithmetic": "echo 'scale=3; 22 / 7' | bc; echo $((16#ff)) $((7 % 4))",
        "temporary files": "t=$(mktemp) && echo x > $t && cat $t && rm $t && mktemp -d -p . work.XXXX"
        " | wc -c; rmdir work.*",
        "a named pipe": "mkfifo pipe; (echo through > pipe &); cat pipe; rm pipe",
        "descriptors": "exec 3> three; echo a >&3; echo b >&3; exec 3>&-; cat three",
    },
    "editing": {
        "sed in place": "sed -i 's/beta/BETA/' notes.txt && cat notes.txt",
        "sed keeps a copy": "sed -i.bak '/gamma/d' notes.txt; ls notes*",
        "perl in place": "perl -pi -e 's/alpha/ALPHA/' notes.txt",
        "patch": "diff -u notes.txt other.txt > p; patch notes.txt p && cmp notes.txt other.txt",
        "append": "echo last >> notes.txt; printf 'no newline' >> notes.txt; tail -c 12 notes.txt",
        "ed": "printf '1d\\nw\\nq\\n' | ed -s notes.txt; cat notes.txt",
        "move and copy": "mv notes.txt moved.txt && cp -r src copy && cp -p moved.txt copy/",
        "move a folder": "mv deep elsewhere && mkdir -p x/y && mv elsewhere x/y/ && ls x/y",
        "delete": "rm -rf deep src/util.* && ls src",
        "links": "ln -s src/main.c main && ln notes.txt hard && echo more >> hard && tail -n1 notes.txt",
        "modes": "chmod 600 notes.txt && chmod +x src/main.c && stat -c %a notes.txt src/main.c",
        "names with spaces": "mv 'with space.txt' $'new\\tname' && touch -- -dash 'quo\"te' ü; ls -1",
        "archives": "tar czf a.tgz src && rm -r src && tar xzf a.tgz && ls src && rm a.tgz",
        "zip": "zip -qrX a.zip src && unzip -l a.zip | grep -c src; rm a.zip",
        "sqlite": "sqlite3 db 'create table t(x); insert into t values(1); select * from t'; rm db",
        "tee and dd": "seq 5 | tee five | dd bs=1 count=3 status=none; truncate -s 4 five; cat five",
        "a large file": "head -c 3000000 /dev/zero > zeros && split -b 1000000 zeros z. && ls z.*",
        "rsync": "rsync -a --delete src/ copy/ && rsync -ai src/ copy/",
        "jq writes": "jq '.version = \"2\"' package.json > t && mv t package.json && cat package.json",
        "install": "install -D -m 755 script.sh out/bin/tool && out/bin/tool x",
    },
    "c": {
        "compile and run": "gcc -Wall -O2 -o sum src/main.c src/util.c && ./sum 2 3",
        "make": "make -s && ./app 4 5 && make -s clean && ls",
        "make in parallel": "make -s -j4 app && make -q app; echo $?",
        "a compiler error": "echo 'int main(){ return x; }' > bad.c; gcc bad.c 2> err; echo $?"
        "; grep -c error err",
        "a library": "gcc -c src/util.c && ar rcD libutil.a util.o && gcc src/main.c -L. -lutil -o l"
        " && ./l 1 1",
        "a shared library": "gcc -shared -fPIC -o libu.so src/util.c && gcc src/main.c -L. -lu -o s"
        " && LD_LIBRARY_PATH=. ./s 2 2",
        "a crash": "echo 'int main(){ *(volatile int *)0 = 1; }' > c.c && gcc c.c -o c && ./c; echo $?",
    },
    "python": {
        "one line": f"{PYTHON} -c 'print(sum(range(10)))'",
        "tests": f"{PYTHON} -m unittest discover -s tests -t . 2>&1 | sed 's/in [0-9.]*s/in X/'",
        "an exception": f"{PYTHON} -c 'import pkg.calc as c; c.divide(1, 0)'; echo $?",
        "a script that writes": f"{PYTHON} - <<'EOF'\nimport json, pathlib\n"
        "pathlib.Path('out.json').write_text(json.dumps({'a': [1, 2]}))\nEOF\ncat out.json",
        "processes": f"{PYTHON} -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'",
        "a subprocess": f"{PYTHON} -c 'import subprocess as s; print(s.run([\"ls\", \"src\"], "
        "capture_output=True, text=True).stdout)'",
        "a virtual environment": f"{PYTHON} -m venv --without-pip env && env/bin/python -c "
        "'import sys; print(sys.prefix != sys.base_prefix)' && rm -rf env",
        "compile": f"{PYTHON} -m compileall -q pkg && {PYTHON} -c 'import pkg'",
        "temporary folders": f"{PYTHON} -c 'import tempfile, os; d = tempfile.mkdtemp(); "
        "print(os.listdir(d)); os.rmdir(d)'",
        "the user's own packages": f"{PYTHON} -c 'import own_module; print(own_module.NAME)'",
        "a database": f"{PYTHON} -c 'import sqlite3 as s; c = s.connect(\"d.db\"); c.execute("
        "\"create table t(x)\"); c.commit(); print(c.execute(\"select count(*) from t\").fetchone())'"
        "; rm d.db",
    },
    "node": {
        "one line": "node -e 'console.log([1, 2, 3].map(x => x * 2).join())'",
        "a program": "node app.js 2 3",
        "an exception": "node -e 'throw new Error(\"no\")'; echo $?",
        "files": "node -e 'const f = require(\"fs\"); f.mkdirSync(\"n/m\", {recursive: true}); "
        "f.writeFileSync(\"n/m/x\", \"y\"); f.rmSync(\"deep\", {recursive: true}); "
        "console.log(f.readdirSync(\".\").length)'",
        "a child process": "node -e 'console.log(require(\"child_process\").execSync(\"ls src\")+\"\")'",
        "a worker": "node -e 'const w = require(\"worker_threads\"); if (w.isMainThread) new w.Worker("
        "process.argv[1] || \"require(`worker_threads`).parentPort.postMessage(5)\", {eval: true})"
        ".on(\"message\", console.log)'",
        "a syntax check": "node --check app.js; echo 'let let' > bad.js; node --check bad.js; echo $?",
    },
    "git": {
        "status": "git status --short --branch; echo x >> notes.txt; touch new; git status --short",
        "diff": "echo x >> notes.txt; git diff --stat; git diff | head -n 20",
        "commit": "echo x >> notes.txt && git commit -qam more && git log --format=%H -1",
        "add and reset": "touch a b && git add -A && git reset -q b && git status --short",
        "a branch": "git switch -qc topic && echo t > t && git add t && git commit -qm t"
        " && git switch -q main && git merge -q --no-edit topic && git log --oneline | wc -l",
        "a merge conflict": "git merge feature; git status --short; git merge --abort; git status -s",
        "rebase": "git rebase -q feature; git rebase --abort; git log --format=%s -1",
        "stash": "echo x >> notes.txt; git stash -q && git status --short; git stash pop -q; git status -s",
        "move a file": "git mv notes.txt moved.txt && git status --short",
        "move a folder with mv": "mv deep shallow && git add -A && git status --short",
        "remove": "git rm -rq deep && git status --short | head -n 1",
        "clean": "mkdir junk && touch junk/x y.o && git clean -fdxq && ls",
        "clone a folder": "git clone -q . copy && cd copy && git log --oneline | wc -l && ls",
        "clone, commit and push": "git clone -q --bare . ../bare.git && git clone -q ../bare.git c && cd c"
        " && echo x > x && git add x && git commit -qm x && git push -q && git -C ../../bare.git log -1"
        " --format=%s; rm -rf ../../bare.git",
        "clone by address": "git clone -q file://$PWD copy && git -C copy status --short",
        "a new repository": "mkdir r && cd r && git init -q -b main && git commit -q --allow-empty -m 0"
        " && git rev-parse HEAD",
        "worktree": "git worktree add -q -b other ../tree && ls ../tree && git worktree remove ../tree",
        "the user's settings": "git config user.name; git config alias.st; git check-ignore x.swp",
        "grep": "git grep -n 'def ' -- '*.py'; git ls-files | wc -l",
        "archive and bundle": "git archive HEAD src | tar t; git bundle create -q b main && git bundle"
        " list-heads b",
        "apply a patch": "echo x >> notes.txt && git diff > p && git checkout -q . && git apply p"
        " && git am --abort; git diff --stat",
        "bisect": "git bisect start -q HEAD HEAD~1 > /dev/null; git bisect reset -q; git status -sb",
        "gc": "git gc -q --prune=now && git fsck --no-progress && git log --oneline | wc -l",
        "a hook": "mkdir h && printf '#!/bin/sh\\necho hook ran\\n' > h/pre-commit && chmod +x h/*"
        " && git -c core.hooksPath=h commit -q --allow-empty -m x 2>&1",
    },
    "servers": {
        "a server and its client": f"{PYTHON} -u server.py > port & {_UNTIL_IT_LISTENS}"
        "; curl -sS http://127.0.0.1:$(cat port)/; kill %1; wait %1; echo $?; rm port",
        "a server in node": f"node server.js > port & {_UNTIL_IT_LISTENS}"
        "; curl -sS http://127.0.0.1:$(cat port)/; kill %1; wait; rm port",
        "a connection of bash": f"{PYTHON} -u server.py > port & {_UNTIL_IT_LISTENS}"
        "; exec 3<> /dev/tcp/127.0.0.1/$(cat port); printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3"
        "; tail -n 1 <&3; kill %1; rm port",
        "a Unix socket": f"{PYTHON} -c 'import socket as s, os; a = s.socket(s.AF_UNIX); "
        "a.bind(\"sock\"); a.listen(); b = s.socket(s.AF_UNIX); b.connect(\"sock\"); "
        "a.accept()[0].sendall(b\"hi\"); print(b.recv(2)); os.unlink(\"sock\")'",
        "nobody listens": "curl -sS http://127.0.0.1:9/; echo $?",
    },
    "npm": {
        "npm install and ci": _with_registry(f"npm install {_NPM} --registry $R thing"
        " && node -p 'require(\"thing\")()' && rm -r node_modules"
        f" && npm ci {_NPM} --registry $R && node_modules/.bin/thing x"
        " && rm -r node_modules package-lock.json && kill %1;"
        f" npm install {_NPM} --no-package-lock --offline --registry $R thing && ls node_modules"),
        "npx": _with_registry(f"npx {_NPM} --yes --registry $R thing one two"),
        "npm run": "npm run --silent x",
    },
    "pip": {
        "pip install": _with_registry(f"{PYTHON} -m venv --without-pip env && {PYTHON} -m pip --python env/bin/python"
        f" install {_PIP} --index-url $R/simple thing && env/bin/thing && rm -r env"),
    },
    "cargo": {
        "cargo build and run": "cd rust && cargo build -q && cargo run -q && rm -r target && cat Cargo.lock",
        "cargo test": "cd rust && cargo test -q | grep -c '1 passed' && rm -r target",
        "a compiler error of cargo": "cd rust && echo 'fn' > src/main.rs; cargo build -q; echo $?; rm -r target",
    },
    "go": {
        "go build and run": f"cd go && {_GO}; go build -o app . && ./app 2>&1 && rm app && cat go.sum",
        "go vet": f"cd go && {_GO}; go vet . && go list -m all && rm go.sum",
    },
    "ccache": {
        "ccache": "ccache gcc -c src/util.c && rm util.o && ccache gcc -c src/util.c && nm util.o | cut -c18-",
    },
}  # fmt: skip
HAVE_TO_WORK = ("npm", "pip", "cargo", "go", "ccache")
# What is not the same each time: numbers of inodes and times, and whether git packs its objects; and
# what is left out, because git makes it again.
UNSTABLE = re.compile(
    r"\.pyc$|(^|/)__pycache__$|node_modules/\.package-lock\.json$|(^|/)\.git/(worktrees/[^/]+/)?index$|(^|/)\.git/(objects(/|$)|info(/refs)?$)"
)

_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z", "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.org", "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_TEMPLATE_DIR": "", "GIT_EDITOR": "true", "LC_ALL": "C.UTF-8",
    # As in the sandbox: `git status` leaves the index alone.
    "GIT_OPTIONAL_LOCKS": "0",
}  # fmt: skip

_FILES = {
    "notes.txt": "alpha\nbeta\ngamma\ndelta\n",
    "other.txt": "alpha\nbeta two\ngamma\ndelta\nepsilon\n",
    "data.csv": "name,number,kind\na,1,x\nb,2,y\nc,3,x\n",
    "with space.txt": "space\n",
    ".hidden": "hidden\n",
    ".gitignore": "*.o\n__pycache__/\n",
    "settings.sh": "SETTING=sourced\n",
    "deep/a/b/c/leaf.txt": "leaf\n",
    "src/main.c": '#include <stdio.h>\n#include <stdlib.h>\n#include "util.h"\n'
    "int main(int n, char **v)\n"
    '{ printf("%d\\n", add(atoi(v[1]), n > 2 ? atoi(v[2]) : 0)); return 0; }\n',
    "src/util.c": '#include "util.h"\nint add(int a, int b) { return a + b; }\n',
    "src/util.h": "#pragma once\nint add(int a, int b);\n",
    "Makefile": "app: main.o util.o\n\t$(CC) -o $@ $^\n%.o: src/%.c src/util.h\n\t$(CC) -c $<\n"
    "clean:\n\trm -f app *.o\n",
    "pkg/__init__.py": "",
    "pkg/__main__.py": "import sys\nfrom pkg.calc import add\nprint(add(*map(int, sys.argv[1:])))\n",
    "pkg/calc.py": "def add(a, b):\n    return a + b\n\n\ndef divide(a, b):\n    return a / b\n",
    "tests/__init__.py": "",
    "tests/test_calc.py": "import unittest\nfrom pkg.calc import add\n\n\n"
    "class TestAdd(unittest.TestCase):\n    def test_add(self):\n"
    "        self.assertEqual(add(1, 2), 3)\n",
    "package.json": '{"name": "sample", "version": "1", "scripts": {"x": "echo run"}}\n',
    "app.js": "const { add } = require('./lib/math');\n"
    "console.log(add(...process.argv.slice(2).map(Number)));\n",
    "lib/math.js": "exports.add = (a, b) => a + b;\n",
    "server.js": "const s = require('http').createServer((q, r) => r.end('from node\\n'));\n"
    "s.listen(0, '127.0.0.1', () => console.log(s.address().port));\n",
    "server.py": "import http.server\n\n\nclass Handler(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n        self.send_response(200)\n        self.end_headers()\n"
    "        self.wfile.write(b'from python\\n')\n\n"
    "    def log_message(self, *words):\n        pass\n\n\n"
    "s = http.server.HTTPServer(('127.0.0.1', 0), Handler)\nprint(s.server_port)\n"
    "s.serve_forever()\n",
    "registry.py": Path(registry.__file__).read_text(),
    "rust/Cargo.toml": '[package]\nname = "user"\nversion = "0.1.0"\nedition = "2021"\n'
    '[dependencies]\nthing = "1"\n',
    "rust/src/main.rs": 'fn main() { println!("{}", thing::text()); }\n'
    '#[test]\nfn works() { assert_eq!(thing::text(), "thing of rust"); }\n',
    "rust/.cargo/config.toml": '[source.crates-io]\nreplace-with = "here"\n'
    '[source.here]\nlocal-registry = "crates"\n',
    "go/go.mod": "module user\n\ngo 1.19\n\nrequire example.org/thing v1.0.0\n",
    "go/main.go": 'package main\n\nimport "example.org/thing"\n\nfunc main() { println(thing.Text()) }\n',
    "script.sh": '#!/bin/bash\nset -euo pipefail\nprintf "%s\\n" "$#" "$@"\n',
}  # fmt: skip
_REPOSITORY = """
git init -q -b main . && git add -A && git commit -q -m first && git tag v1
git switch -qc feature && echo feature > notes.txt && git commit -qam feature
git switch -q main && echo main > notes.txt.new && cat notes.txt >> notes.txt.new
mv notes.txt.new notes.txt && git commit -qam second
"""


@pytest.mark.parametrize("group", COMMANDS)
def test_commands_do_the_same_in_the_sandbox(tmp_path: Path, group: str) -> None:
    # The set-up installs them.
    assert not [name for name in PROGRAMS if shutil.which(name) is None]
    person = make_person(tmp_path, _ENVIRONMENT)
    person.environ["PATH"] = f"{person.home}/.local/bin:/usr/local/bin:/usr/bin:/bin"
    if not IS_ROOT:
        _fill_home(person)
    _make_sample(tmp_path / "sample", person)
    # First: what it writes to caches does not reach the home folder.
    sandboxed = _run(person, group, run_sandboxed)
    plain = _run(person, group, run_plain)
    wrong = []
    for number, name in enumerate(COMMANDS[group]):
        assert {"stdout", "status"} <= plain[str(number)].keys()
        if found := differences(plain[str(number)], sandboxed[str(number)]):
            errors = (person.project / str(number) / "stderr").read_text()
            wrong.append("\n".join([f"{name}:", *found, errors]))
        elif group in HAVE_TO_WORK:
            # Two failures would be the same, too.
            assert (person.project / str(number) / "status").read_text() == "0\n", name
    assert not wrong, "\n".join(wrong)


def _run(person: Person, group: str, run: Callable[[Person, str], Ran]) -> Mapping[str, Seen]:
    """Run the commands of a group in a new project; return what is there afterwards, by the number
    of the command, without what no two runs have in common."""
    person.project.rename(tempfile.mkdtemp(dir=person.home.parent))
    # Most files are git's own.
    left_out = None if group == "git" else shutil.ignore_patterns(".git")
    for number in range(len(COMMANDS[group])):
        work = person.project / str(number) / "work"
        shutil.copytree(person.home.parent / "sample", work, symlinks=True, ignore=left_out)
    ran = run(person, _script(COMMANDS[group].values()))
    assert ran.exit_code == 0, ran
    apply_what_waits(person)
    found: dict[str, Seen] = {}
    for path, entry in snapshot(person.project).items():
        case, _, rest = path.partition("/")
        if rest != "stderr" and not UNSTABLE.search(rest):
            found.setdefault(case, {})[rest] = entry
    return found


def _script(commands: Iterable[str]) -> str:
    """Return shell text that runs each command in a subshell of its own."""
    lines = []
    for number, command in enumerate(commands):
        lines.append(f"(cd {number}/work || exit\n{command}\n) >{number}/stdout 2>{number}/stderr")
        lines.append(f"echo $? >{number}/status")
    return "\n".join(lines)


def _make_sample(folder: Path, person: Person) -> None:
    for name, text in _FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "binary.bin").write_bytes(bytes(range(0, 256, 8)))
    (folder / "script.sh").chmod(0o755)
    _make_crate(folder / "rust/crates")
    _make_module(folder / "go/modules/example.org/thing/@v")
    (folder / "link").symlink_to("notes.txt")
    subprocess.run(["bash", "-ec", _REPOSITORY], cwd=folder, env=person.environ, check=True)
    for path in folder.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)


def _make_crate(crates: Path) -> None:
    """Create a registry for cargo in a folder."""
    manifest = '[package]\nname = "thing"\nversion = "1.0.0"\nedition = "2021"\n'
    source = 'pub fn text() -> &\'static str { "thing of rust" }\n'
    crate = registry.tarball({"thing-1.0.0/Cargo.toml": manifest, "thing-1.0.0/src/lib.rs": source})
    (crates / "index/th/in").mkdir(parents=True)
    (crates / "thing-1.0.0.crate").write_bytes(crate)
    known = {"name": "thing", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False}
    known["cksum"] = hashlib.sha256(crate).hexdigest()
    (crates / "index/th/in/thing").write_text(json.dumps(known) + "\n")


def _make_module(folder: Path) -> None:
    """Create what a proxy has of a Go module, in a folder."""
    folder.mkdir(parents=True)
    manifest = "module example.org/thing\n\ngo 1.19\n"
    source = 'package thing\n\nfunc Text() string { return "thing of go" }\n'
    (folder / "list").write_text("v1.0.0\n")
    (folder / "v1.0.0.info").write_text('{"Version": "v1.0.0", "Time": "2024-01-01T00:00:00Z"}')
    (folder / "v1.0.0.mod").write_text(manifest)
    with zipfile.ZipFile(folder / "v1.0.0.zip", "w") as archive:
        for name, text in (("go.mod", manifest), ("thing.go", source)):
            archive.writestr(f"example.org/thing@v1.0.0/{name}", text)


def _fill_home(person: Person) -> None:
    """Fill the home folder with what a developer has there."""
    version = subprocess.run(
        [PYTHON, "-c", "import site; print(site.getusersitepackages())"],
        env=person.environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    files = {
        ".bashrc": "echo bashrc was read\nalias ls=false\n",
        ".profile": "echo profile was read\n",
        ".bash_history": "secret\n",
        ".gitconfig": "[user]\n\tname = Filled\n\temail = f@example.org\n[alias]\n\tst = status\n"
        "[init]\n\tdefaultBranch = other\n[advice]\n\tdetachedHead = false\n",
        ".config/git/ignore": "*.swp\n",
        ".ssh/id_ed25519": "secret\n",
        ".aws/credentials": "secret\n",
        ".vimrc": "set number\n",
        ".inputrc": "set bell-style none\n",
        ".cache/pip/old": "cached\n",
        ".local/share/thing/state": "state\n",
        ".local/bin/own-tool": "#!/bin/sh\necho own tool\n",
        f"{os.path.relpath(version, person.home)}/own_module.py": "NAME = 'own'\n",
        "Documents/letter.txt": "letter\n",
    }
    for name, text in files.items():
        (person.home / name).parent.mkdir(parents=True, exist_ok=True)
        (person.home / name).write_text(text)
    (person.home / ".local/bin/own-tool").chmod(0o755)
