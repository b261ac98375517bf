# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that act later, outside of any sandbox: by name."""

from __future__ import annotations

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
        ".mise.toml", "mise.toml", ".autoenv", ".env.zsh", ".devcontainer.json",
    )
)  # fmt: skip
_FOLDERS = frozenset(
    (
        ".vscode", ".idea", ".fleet", ".zed", ".devcontainer", ".github", ".gitea", ".forgejo",
        ".circleci", ".buildkite", ".woodpecker", ".husky", ".githooks", ".direnv", ".cargo",
    )
)  # fmt: skip
_GIT_FOLDERS = frozenset(("hooks", "modules", "worktrees"))
_GIT_FILES = frozenset(("config", "config.worktree", "commondir", "gitdir"))


def acts_later(path: str) -> bool:
    """Whether a program of the person's may run it, or do what it says, without being asked."""
    # A file system may not care about upper and lower case.
    parts = path.casefold().split("/")
    return parts[-1] in _NAMES or not _FOLDERS.isdisjoint(parts[:-1]) or waits_for_yes(path)


def waits_for_yes(path: str) -> bool:
    """git runs its hooks and what its config names, whatever the command was: these are not put
    into a project before the person said so."""
    parts = path.casefold().split("/")
    for position, part in enumerate(parts):
        if part != ".git" and not part.endswith(".git"):
            continue
        inner = parts[position + 1 :]
        if not inner:
            # A file or a link in its place leads git to another folder.
            return True
        # Of the repository itself, of one of its modules or worktrees, of a bare repository.
        while len(inner) > 2 and inner[0] in ("modules", "worktrees"):
            inner = inner[2:]
        if inner[0] in _GIT_FILES and len(inner) == 1:
            return True
        if inner[0] == "hooks" and len(inner) > 1 and not inner[-1].endswith(".sample"):
            return True
    return False
