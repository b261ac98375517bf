# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognises, by their paths, files that can run code outside the sandbox."""

from __future__ import annotations

import os
import unicodedata

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
# Files that git obeys: config names programs to run, the others name a folder with another config.
_GIT_FILES = frozenset(("config", "config.worktree", "commondir", "gitdir"))
# Folders that git obeys; the last one has commands that run when a rebase continues.
_REBASE = "rebase-merge"
GIT_FOLDERS = frozenset(("hooks", "remotes", "branches", _REBASE))
_GIT_INNER = frozenset(("modules", "worktrees"))
_OTHERS = {
    ".hg": frozenset(("hgrc", "hgrc-not-shared", "sharedpath")),
    ".jj": frozenset(("config.toml", "repo")),
}

_ALL = frozenset().union(
    _NAMES, _FOLDERS, _GIT_FILES, GIT_FOLDERS, _GIT_INNER, _OTHERS, *_OTHERS.values()
) | {"head", "git~1"}


_plain_folders: dict[str, bool] = {}
_MOST_FOLDERS = 4096


def is_plain_folder(folder: str) -> bool:
    """Return whether no part of a folder's path is special: a quick check, true for most."""
    known = _plain_folders.get(folder)
    if known is None:
        # The folder around it was mostly asked for before: paths may have thousands of parts.
        around, _, name = folder.rstrip("/").rpartition("/")
        is_plain = _plain_folders.get(around)
        if is_plain is None:
            is_plain = all(map(is_plain_name, _parts(around)))
        known = is_plain and is_plain_name(_parts(name)[0])
        if len(_plain_folders) >= _MOST_FOLDERS:
            _plain_folders.clear()
        _plain_folders[folder.rstrip("/")] = _plain_folders[folder] = known
    return known


def is_plain_name(name: str) -> bool:
    """Return whether a name is certainly not special: a quick check, true for most."""
    if not name.isascii() or name.endswith((".", " ")):
        return False
    name = name.lower()
    return name not in _ALL and not name.endswith(".git")


def is_risky(path: str) -> bool:
    """Return whether one of the user's programs may run the file, or obey it, without asking."""
    parts = _parts(path)
    # A file or a link with the name of such a folder counts, too: it is in its place.
    return parts[-1] in _NAMES or not _FOLDERS.isdisjoint(parts)


def is_held(root: str, path: str, *, is_link: bool = False, is_deleted: bool = False) -> bool:
    """Return whether a change has to be approved because git would run it or obey it.

    Any git command runs hooks and what the configuration names. Not for folders themselves.
    """
    parts = _parts(path)
    leading = _leading(parts)
    for position, part in enumerate(parts):
        if part.endswith(".git") or part == "git~1":
            # A file or a link in place of the repository leads git to another folder.
            if position + 1 in leading or position + 1 == len(parts):
                # The end of a rebase needs no approval.
                return not (is_deleted and _REBASE in parts)
            if is_link and not is_deleted:
                return True
        elif part in _OTHERS and (position + 1 == len(parts) or parts[-1] in _OTHERS[part]):
            return True
    names = path.split("/")
    if names[-1] == "HEAD" and ".git" not in parts:
        # A HEAD file turns a folder of any name into a repository, and git obeys its config.
        return not is_deleted and not os.path.lexists(f"{root}/{path}")
    return any(os.path.lexists("/".join((root, *names[:at], "HEAD"))) for at in leading)


def _leading(parts: list[str]) -> set[int]:
    """Return the positions of parts that git obeys if the folder they are in is a repository."""
    last = len(parts) - 1
    found = {
        at
        for at, part in enumerate(parts)
        if (part in _GIT_FILES and at == last)
        or (part in GIT_FOLDERS and not parts[-1].endswith(".sample"))
    }
    # A repository in a repository; its name may have slashes in it.
    furthest = max(found, default=-1)
    for at, part in enumerate(parts):
        if part in _GIT_INNER and (at + 2 > last or at + 2 <= furthest):
            found.add(at)
    return found


def normalised(path: str) -> str:
    """Return one form for all paths that a file system may treat as the same."""
    return "/".join(_parts(path))


def _parts(path: str) -> list[str]:
    # A file system may ignore case, invisible characters, and dots and spaces at the end.
    plain = path.casefold()
    if not plain.isascii():
        plain = "".join(c for c in plain if unicodedata.category(c) != "Cf")
    parts = plain.split("/")
    return [part.rstrip(". ") for part in parts]
