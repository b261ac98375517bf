# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox shell`"""

from __future__ import annotations

import argparse
import os

from .run import run_in_sandbox

_TITLE = "ollmsandbox shell"
# Decided inside, where the user's shell may not exist. The prompt is set after the user's own files
# were read, which set it too, and again before each prompt, for programs that set it there. /tmp is
# empty at first.
_START = r"""
mark='(sandbox) ' rc=/tmp/.ollmsandbox
for shell in "$1" bash sh; do
    [ -n "$shell" ] && command -v -- "$shell" >/dev/null || continue
    mkdir -p "$rc"
    case ${shell##*/} in
    bash)
        cat >"$rc/bashrc" <<'END'
[ -f ~/.bashrc ] && . ~/.bashrc
__mark() { [[ $PS1 == "(sandbox) "* ]] || PS1="(sandbox) $PS1"; }
__mark
PROMPT_COMMAND+=(__mark)
END
        exec "$shell" --rcfile "$rc/bashrc" ;;
    zsh)
        echo '[ -f "$OWN_ZDOTDIR/.zshenv" ] && . "$OWN_ZDOTDIR/.zshenv"' >"$rc/.zshenv"
        cat >"$rc/.zshrc" <<'END'
ZDOTDIR=$OWN_ZDOTDIR; unset OWN_ZDOTDIR
[ -f "$ZDOTDIR/.zshrc" ] && . "$ZDOTDIR/.zshrc"
__mark() { [[ $PS1 == "(sandbox) "* ]] || PS1="(sandbox) $PS1" }
precmd_functions+=(__mark)
END
        OWN_ZDOTDIR=${ZDOTDIR:-$HOME} ZDOTDIR=$rc exec "$shell" ;;
    fish)
        exec "$shell" -C 'functions -c fish_prompt __unmarked_prompt
function fish_prompt; echo -n "(sandbox) "; __unmarked_prompt; end' ;;
    *) PS1="$mark\$ " exec "$shell" ;;
    esac
done
"""


def shell(given: argparse.Namespace) -> int:
    given.title = _TITLE
    given.command = ["/bin/sh", "-c", _START, "sh", os.environ.get("SHELL", "")]
    return run_in_sandbox(given)
