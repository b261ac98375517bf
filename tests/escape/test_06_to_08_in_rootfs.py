# SPDX-License-Identifier: GPL-3.0-or-later
"""Attacks of rows 6 to 8 in the Alpine root file system, whose mounts differ."""

from __future__ import annotations

import os
import stat

from support.bubble import with_profile
from support.escape.attack import python, run_while
from support.person import Person

from ollmsandbox.project.change import Flag, Report
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.sandbox.rootfs.store import Installed
from ollmsandbox.sandbox.spec import RunSpec


def report_of(person: Person, alpine: Installed, command: str) -> Report:
    keeper = Recorder(RunSpec(str(person.project)), person.paths)
    result = person.run(command, rootfs=alpine, keeper=keeper)
    assert result.exit_code == 0, result.stderr.text
    assert keeper.report is not None
    return keeper.report


# --- 6: outliving the run ----------------------------------------------------------------------


def test_a_daemon_that_ignores_all_signals(person: Person, alpine: Installed) -> None:
    code = """
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open('/playground/alive', 'w').write('x')
            while True:
                time.sleep(0.01)
                os.utime('/playground/alive')
    while not os.path.exists('/playground/alive'):
        time.sleep(0.01)
    """
    person.share_playground()
    result = person.run(python(code), rootfs=alpine)
    assert result.exit_code == 0, result.stderr.text
    first = (person.playground / "alive").stat().st_mtime_ns
    # It would have touched it hundreds of times while another command starts and ends.
    person.run("sleep 0.2", rootfs=alpine)
    assert (person.playground / "alive").stat().st_mtime_ns == first


# --- 7: exhausting -----------------------------------------------------------------------------


def test_more_than_fits_into_tmp(person: Person, alpine: Installed) -> None:
    with_profile(person, "extends: standard\nlimits: {tmp: 1 MiB}\n", "small")
    result = person.run("dd if=/dev/zero of=/tmp/f bs=1M count=9", rootfs=alpine, profile="small")
    assert "No space left" in result.stderr.text


# --- 8: attacking the copy-back ----------------------------------------------------------------


def test_a_parent_that_becomes_a_link_while_the_command_runs(
    person: Person, alpine: Installed
) -> None:
    victim = person.home / "victim"
    victim.mkdir()
    (person.project / "folder").mkdir()

    def replace() -> None:
        (person.project / "folder").rmdir()
        (person.project / "folder").symlink_to(victim)

    script = "echo ready; while [ ! -e /playground/go ]; do sleep 0.02; done; echo x >folder/file"
    run_while(person, script, replace, rootfs=alpine)
    assert list(victim.iterdir()) == []


def test_special_files_setuid_bits_and_strange_names(person: Person, alpine: Installed) -> None:
    report = report_of(
        person,
        alpine,
        "mkfifo pipe; echo x >su; chmod 6755 su; echo x >\"$(printf 'a\\nb')\"; "
        "echo x >\"$(printf '\\377')\"",
    )
    assert [skip.path for skip in report.skipped] == ["pipe"]
    assert not (person.project / "pipe").exists()
    assert stat.S_IMODE((person.project / "su").stat().st_mode) == 0o755
    stripped = [item for item in report.changes if Flag.STRIPPED in item.change.flags]
    assert [item.change.path for item in stripped] == ["su"]
    assert (person.project / "a\nb").exists()
    assert b"\xff" in os.listdir(os.fsencode(person.project))


def test_attributes_of_overlays_that_the_command_sets_itself(
    person: Person, alpine: Installed
) -> None:
    (person.project / "folder").mkdir()
    (person.project / "folder/kept").write_text("kept")
    code = """
    for name in ('user.overlay.opaque', 'user.overlay.redirect', 'user.overlay.whiteout'):
        try: os.setxattr('/workspace/folder', name, b'y')
        except OSError: pass
    open('/workspace/folder/new', 'w').write('x')
    """
    report_of(person, alpine, python(code))
    assert sorted(os.listdir(person.project / "folder")) == ["kept", "new"]
