# SPDX-License-Identifier: GPL-3.0-or-later
"""On a disk without a free byte, changes can still be listed and undone."""

from __future__ import annotations

from support.bubble import in_mounts
from support.person import Person, cli_argv

# What the program keeps, on a small disk of its own, which is then filled.
SMALL = (
    'cp -a "$1" "$1.kept"; mount -t tmpfs -o size=100m none "$1"; cp -a "$1.kept/." "$1";'
    'rm "$1/reserve"'
)
FILL = """
folder=$1; shift
"$@" history >/dev/null || exit
test -e "$folder/reserve" || exit
cat /dev/zero >"$folder/fill" 2>/dev/null
"$@" history --json && "$@" changes && "$@" undo && "$@" history --json
"""


def test_on_a_full_disk_changes_are_listed_and_undone(person: Person) -> None:
    file = person.project / "file"
    file.write_text("old\n")
    assert person.cli("run", "-c", "echo new >file").returncode == 0
    data = person.paths.data
    done = person.run_outside(
        [*in_mounts(SMALL, data), "sh", "-c", FILL, "sh", str(data), *cli_argv()]
    )
    assert done.returncode == 0 and "(run " in done.stderr, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert '"applied": 1' in first
    assert '"undone": 1' in last
    assert file.read_text() == "old\n"


def test_room_is_set_aside_again_once_there_is_some(person: Person) -> None:
    assert person.cli("run", "-c", "echo new >file").returncode == 0
    reserve = person.paths.data / "reserve"
    assert reserve.stat().st_blocks * 512 >= 256 << 10
    reserve.unlink()
    assert person.cli("history").returncode == 0
    assert reserve.stat().st_blocks * 512 >= 256 << 10
