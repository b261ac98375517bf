# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that git's hooks run: what a hook names, and what the managers of hooks read.

Hooks are read as text, not as a shell would read them. So a file may count as run that is not.
`risky.py` decides what is held.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import re
import stat
from collections.abc import Iterator

SHELL_WORDS = re.compile(r"[\s;|&(){}<>\"'`$!=,]+")
_SCRIPTS = (
    ".awk", ".bash", ".cjs", ".fish", ".js", ".ksh", ".lua", ".mjs", ".php", ".pl", ".ps1", ".py",
    ".rb", ".sh", ".tcl", ".ts", ".zsh",
)  # fmt: skip
# What comes after a program that reads a script, and after a change of the folder.
_AFTER_PROGRAM = re.compile(
    r"(?:^|[\s;|&(\"'`/])(?:source|\.|env|exec|[a-z]*sh|[gmn]?awk|perl|ruby|node|deno|bun|lua|php"
    r"|python[\d.]*|tclsh|Rscript)\s+(?:-\S+\s+)*[\"']?([^\s;|&()\"'`]+)"
)
_AFTER_CD = re.compile(r"\b(?:cd|pushd)\s+[\"']?([^\s;|&()\"'`]+)")
_MODULE = re.compile(r"-m\s*([\w.]+)")
_SETTINGS = re.compile(r"(?!.*lock)(?!package\.json).*\.(?:ya?ml|toml|jsonc?|pkl)")
_MOST_MATCHES = 200
# Paths of the system's own programs and files, not of the project's.
_SYSTEM = re.compile(r"/(?:bin|dev|etc|lib\w*|proc|sbin|sys|tmp|usr|var)/")


def _with(stem: str, *endings: str) -> tuple[str, ...]:
    return tuple(f"{stem}.{ending}" for ending in endings)


_JS = ("js", "cjs", "mjs", "ts", "cts", "mts")
# By a word in the hooks that they install: the files that hook managers obey, and their folders of
# scripts. Sources: typicode.github.io/husky, pre-commit.com, github.com/j178/prek,
# lefthook.dev/configuration, github.com/sds/overcommit, github.com/toplenboren/simple-git-hooks,
# github.com/lint-staged/lint-staged, github.com/usmanyunusov/nano-staged, commitlint.js.org,
# docs.captainhook.info, github.com/phpro/grumphp, github.com/rhysd/cargo-husky,
# github.com/swellaby/rusty-hook, hk.jdx.dev, docs.cocogitto.io.
HOOK_MANAGERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "husky": ((*_with(".huskyrc", "json", "yaml", "yml", *_JS), ".huskyrc", "husky.config.js"),
              (".husky",)),
    "pre[-_]commit (?:run|hook)|pre_commit": ((".pre-commit-config.yaml",
                                               ".pre-commit-config.yml"), ()),
    "prek": ((".pre-commit-config.yaml", ".pre-commit-config.yml", "prek.toml"), ()),
    "(?:call_)?lefthook": (
        tuple(
            f"{place}lefthook{local}.{ending}"
            for place in ("", ".", ".config/")
            for local in ("", "-local")
            for ending in ("yml", "yaml", "toml", "json", "jsonc")
        ),
        (".lefthook", ".lefthook-local"),
    ),
    "[oO]vercommit": ((".overcommit.yml", ".local-overcommit.yml"), (".git-hooks",)),
    "simple-git-hooks": ((*_with(".simple-git-hooks", "json", *_JS),
                          *_with("simple-git-hooks", "json", *_JS)), ()),
    "lint-staged": ((*_with(".lintstagedrc", "json", "yaml", "yml", *_JS), ".lintstagedrc",
                     *_with("lint-staged.config", *_JS), "package.yaml"), ()),
    "nano-staged": ((*_with(".nano-staged", "json", *_JS), "nano-staged.json",
                     ".nanostagedrc"), ()),
    "commitlint": ((*_with(".commitlintrc", "json", "yaml", "yml", *_JS), ".commitlintrc",
                    *_with("commitlint.config", *_JS)), ()),
    "captainhook": (("captainhook.json", "captainhook.config.json"), ()),
    "grumphp": ((*_with("grumphp", "yml", "yaml"), "grumphp.yml.dist", "grumphp.yaml.dist"), ()),
    "cargo-husky": ((), (".cargo-husky",)),
    "rusty-hook": ((".rusty-hook.toml", "rusty-hook.toml"), ()),
    "hk": (("hk.pkl", ".hk.pkl", "hk.local.pkl", ".config/hk.pkl"), ()),
    "cog": (("cog.toml",), ()),
}  # fmt: skip
_MANIFEST_KEYS = (
    "husky",
    "lint-staged",
    "simple-git-hooks",
    "gitHooks",
    "nano-staged",
    "commitlint",
)

HOOKS = frozenset((
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "p4-changelist", "p4-post-changelist",
    "p4-pre-submit", "p4-prepare-changelist", "post-applypatch", "post-checkout", "post-commit",
    "post-index-change", "post-merge", "post-receive", "post-rewrite", "post-update",
    "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase",
    "pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout",
    "reference-transaction", "sendemail-validate", "update",
))  # fmt: skip


def scripts_in(text: str, worktree: str, folder: str) -> Iterator[str]:
    """Yield the files that a hook in the folder, or a hook manager's settings, may run."""
    folders = [worktree, folder]
    for found in _AFTER_CD.finditer(text):
        folders += [f for place in _ends(found[1]) if os.path.isdir(f := f"{worktree}/{place}")]
    for word in set(SHELL_WORDS.split(text)):
        for end in () if _SYSTEM.match(word) else _ends(word):
            for place in script_places(end, *folders):
                # It may be missing as yet: many hooks run a file only if there is one.
                if "/" in end or end.endswith(_SCRIPTS) or _is_program(place):
                    yield place
                if glob.has_magic(end):
                    matches = itertools.islice(glob.iglob(place), _MOST_MATCHES)
                    yield from filter(_is_program, matches)
    for found in _AFTER_PROGRAM.finditer(text):
        yield from (place for end in _ends(found[1]) for place in script_places(end, *folders))
    for found in _MODULE.finditer(text):
        module = f"{worktree}/{found[1].replace('.', '/')}"
        yield from (f"{module}.py", f"{module}/__init__.py", f"{module}/__main__.py")


def settings_in(text: str) -> list[str]:
    """Return the settings that a hook names, as in `--config=other.yaml`."""
    return [word for word in set(SHELL_WORDS.split(text)) if _SETTINGS.fullmatch(word)]


def _ends(word: str) -> list[str]:
    """Return the word, and what follows its first name: that may be a variable, as in
    "$ROOT/check.sh"."""
    _first, _slash, rest = word.partition("/")
    return [end for end in {word, rest} if end.strip("./")]


def script_places(word: str, *folders: str) -> Iterator[str]:
    """Yield where a word of a script may lead: a path can follow a variable or a command, as in
    "$(git rev-parse --show-toplevel)/check"."""
    relative = word.lstrip("/")
    if relative:
        yield from (os.path.join(folder, relative) for folder in folders)
    if relative != word:
        yield word


def _is_program(file: str) -> bool:
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and bool(found.st_mode & 0o111)


def manifest_commands(text: str, hook: str) -> str:
    """Return what a package.json says to hook managers, with the scripts that this, or the hook,
    names."""
    document = _json_object(text)
    commands = json.dumps([document.get(key) for key in _MANIFEST_KEYS])
    scripts = document.get("scripts")
    left = dict(scripts) if isinstance(scripts, dict) else {}
    while named := {n for n in left if re.search(rf"\b{re.escape(n)}\b", f"{hook}\n{commands}")}:
        commands += "".join(f"\n{left.pop(name)}" for name in sorted(named))
    return commands


def same_hook_settings(old: bytes, new: bytes) -> bool:
    """Return whether two versions of package.json say the same to hook managers."""
    before, after = (_json_object(os.fsdecode(data)) for data in (old, new))
    if (new and not after) or (old and not before):
        return old == new
    return all(before.get(key) == after.get(key) for key in _MANIFEST_KEYS)


def _json_object(text: str) -> dict[str, object]:
    """Return the object in a text; an empty one if there is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
