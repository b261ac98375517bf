# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel reports about processes, whatever they call themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from ollmsandbox.sandbox.process import Running, Sinks, Stop, read_stat, read_status, usage_below

pytestmark = pytest.mark.ordinary

# PR_SET_NAME
_RENAME = "import ctypes, sys; ctypes.CDLL(None).prctl(15, {name}); print(flush=True); input()"


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a) R 1 (b", b"a\nPPid:\t1"], ids=repr)
def test_the_name_of_a_process_hides_nothing(name: bytes) -> None:
    script = _RENAME.format(name=name)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = read_status(process.pid, "PPid", "RssAnon")
        assert found["PPid"] == [os.getpid()]
        assert found["RssAnon"][0] > 0
        assert read_stat(process.pid)[1] == str(os.getpid())
        assert usage_below(process.pid) is not None
        process.communicate(b"\n")


def test_a_process_that_has_ended_has_no_numbers() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert read_status(process.pid, "PPid") == {}
    with pytest.raises(OSError):
        read_stat(process.pid)


@pytest.mark.parametrize("late", [Stop.DISK, None])
def test_a_command_that_ends_by_itself_has_exceeded_no_limit(late: Stop | None) -> None:
    """Even if what watches the limits says so a moment later, or fails."""
    ended, theirs = os.pipe()
    nothing, writer = os.pipe()
    other = os.dup(nothing)
    os.close(writer)
    killed: list[bool] = []

    def watch(over: threading.Event) -> Stop:
        over.wait()
        if late is None:
            raise OSError("it is gone")
        return late

    with Running(
        stdout=nothing,
        stderr=other,
        ended=ended,
        kill=lambda: killed.append(True),
        capture=1,
        sinks=Sinks(),
    ) as running:
        os.close(theirs)
        running.wait(watch)
        running.drain()
    assert not killed
    assert running.result(0).exit_code == 0
    for descriptor in (ended, nothing, other):
        os.close(descriptor)
