# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=sh disable=SC2154
#
# ollmsandbox_ready LEVEL: has the set-up of that level (run or test) been done, for this place,
# this interpreter and these files? This is on the way of every start, so it costs one process.
# It reads $ollmsandbox_tree. The names are long because a variable that the person has exported
# under the same name would reach the program changed.

ollmsandbox_ready() {
    [ -x "$ollmsandbox_tree/.venv/bin/python" ] || return 1
    [ -f "$ollmsandbox_tree/build/ollmsandbox" ] || return 1
    [ -f "$ollmsandbox_tree/build/.ready-$1" ] || return 1
    {
        IFS= read -r ollmsandbox_place
        IFS= read -r ollmsandbox_python
    } <"$ollmsandbox_tree/build/.ready-$1"
    [ "$ollmsandbox_place" = "# tree: $ollmsandbox_tree" ] || return 1
    [ -z "${PYTHON-}" ] || [ "$ollmsandbox_python" = "# PYTHON: $PYTHON" ] || return 1
    (cd "$ollmsandbox_tree" && exec sha256sum --status --check "build/.ready-$1")
}
