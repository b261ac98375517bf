# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel reports about processes, whatever they call themselves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ollmsandbox.sandbox.process import read_stat, read_status, usage_below

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
