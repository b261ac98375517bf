# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that act later, outside of any sandbox: by name."""

from __future__ import annotations

import os
import unicodedata
from functools import lru_cache

_NAMES = frozenset(
    (
        ".envrc", ".direnv", ".git", ".gitattributes", ".gitmodules", ".gitlab-ci.yml",
        ".travis.yml", ".drone.yml", ".woodpecker.yml", "jenkinsfile", "azure-pipelines.yml",
        "bitbucket-pipelines.yml", ".pre-commit-config.yaml", ".lefthook.yml", "lefthook.yml",
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv",
        ".zprofile", ".zlogin", ".zlogout", ".login", ".cshrc", ".tcshrc", ".kshrc", ".inputrc",
        ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".emacs", ".dir-locals.el", ".gdbinit",
        ".lldbinit", ".tmux.conf", ".editorconfig-hooks", ".npmrc", ".yarnrc", ".yarnrc.yml",
        "sitecustomize.py", "usercustomize.py", ".pythonstartup", ".rvmrc", ".ruby-version-hook",
        ".mise.toml", "mise.toml", ".autoenv", ".env.zsh", ".devcontainer.json", ".gitconfig",
        ".hgrc", ".bash_aliases", "config.fish", ".xprofile", ".xinitrc", ".xsessionrc",
        ".mcp.json", ".aider.conf.yml",
    )
)  # fmt: skip
_FOLDERS = frozenset(
    (
        ".vscode", ".idea", ".fleet", ".zed", ".devcontainer", ".github", ".gitea", ".forgejo",
        ".circleci", ".buildkite", ".woodpecker", ".husky", ".githooks", ".direnv", ".cargo",
        ".claude", ".cursor", ".gemini", ".codex", ".opencode", ".ssh",
    )
)  # fmt: skip
# What git does without being told: config names programs, and the others name another folder whose
# config counts.
_GIT_FILES = frozenset(("config", "config.worktree", "commondir", "gitdir"))
# Of the same kind, as folders; in the last one are commands that run when a rebase goes on.
_REBASE = "rebase-merge"
_GIT_FOLDERS = frozenset(("hooks", "remotes", "branches", _REBASE))
_GIT_INNER = frozenset(("modules", "worktrees"))
_OTHERS = {
    ".hg": frozenset(("hgrc", "hgrc-not-shared", "sharedpath")),
    ".jj": frozenset(("config.toml", "repo")),
}

_ALL = frozenset().union(
    _NAMES, _FOLDERS, _GIT_FILES, _GIT_FOLDERS, _GIT_INNER, _OTHERS, *_OTHERS.values()
) | {"head", "git~1"}


@lru_cache(maxsize=4096)
def is_plain_folder(folder: str) -> bool:
    """Whether what is in it is surely none of all these, as most files are, if its name is not."""
    return all(map(is_plain_name, _parts(folder)))


def is_plain_name(name: str) -> bool:
    """Quicker to tell than what the others are."""
    if not name.isascii() or name.endswith((".", " ")):
        return False
    name = name.lower()
    return name not in _ALL and not name.endswith(".git")


def acts_later(path: str) -> bool:
    """Whether a program of the person's may run it, or do what it says, without being asked."""
    parts = _parts(path)
    # Of a file or a link: what has a folder's name stands in its place.
    return parts[-1] in _NAMES or not _FOLDERS.isdisjoint(parts)


def waits_for_yes(root: str, path: str, *, is_link: bool = False, is_deleted: bool = False) -> bool:
    """git runs its hooks and what its config names, whatever the command was: these are not put
    into a project before the person said so. Not asked of folders."""
    parts = _parts(path)
    leading = _leading(parts)
    for position, part in enumerate(parts):
        if part.endswith(".git") or part == "git~1":
            # Anything in its place leads git to another folder, as a link in there does.
            if position + 1 in leading or position + 1 == len(parts):
                # That a rebase is over is nothing to ask about.
                return not (is_deleted and _REBASE in parts)
            if is_link and not is_deleted:
                return True
        elif part in _OTHERS and (position + 1 == len(parts) or parts[-1] in _OTHERS[part]):
            return True
    names = path.split("/")
    if names[-1] == "HEAD" and ".git" not in parts:
        # It makes a repository of a folder of any name, whose config counts for who is in it.
        return not is_deleted and not os.path.lexists(f"{root}/{path}")
    return any(os.path.lexists("/".join((root, *names[:at], "HEAD"))) for at in leading)


def _leading(parts: list[str]) -> set[int]:
    """Where what follows leads git, if the folder around that is a repository."""
    last = len(parts) - 1
    found = {
        at
        for at, part in enumerate(parts)
        if (part in _GIT_FILES and at == last)
        or (part in _GIT_FOLDERS and not parts[-1].endswith(".sample"))
    }
    # A repository in a repository; its name may have slashes in it.
    furthest = max(found, default=-1)
    for at, part in enumerate(parts):
        if part in _GIT_INNER and (at + 2 > last or at + 2 <= furthest):
            found.add(at)
    return found


def spelled(path: str) -> str:
    """The same for all that a file system may take for the same."""
    return "/".join(_parts(path))


def _parts(path: str) -> list[str]:
    # A file system may not care about upper and lower case, about characters that nobody sees, or
    # about dots and spaces at the end.
    plain = path.casefold()
    if not plain.isascii():
        plain = "".join(c for c in plain if unicodedata.category(c) != "Cf")
    parts = plain.split("/")
    return [part.rstrip(". ") for part in parts]
