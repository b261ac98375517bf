# SPDX-License-Identifier: GPL-3.0-or-later
"""What bwrap reports reaches everybody who waits for it."""

from __future__ import annotations

import os
import threading
import time

import pytest
from support.timing import PATIENCE

from ollmsandbox.sandbox.status import BwrapStatus

pytestmark = pytest.mark.ordinary


def test_a_start_that_somebody_else_has_read_is_not_missed() -> None:
    reader, writer = os.pipe()
    status = BwrapStatus()
    status.listen(reader)
    never, other = os.pipe()
    waiting = threading.Thread(target=status.wait_for_start, args=(never, PATIENCE))
    waiting.start()
    os.write(writer, b'{"child-pid": 42}\n')
    status.read()
    waiting.join(PATIENCE / 2)
    assert not waiting.is_alive()
    assert status.begun
    for descriptor in (reader, writer, never, other):
        os.close(descriptor)


@pytest.mark.parametrize("ends", ["report", "bwrap"])
def test_a_sandbox_that_ends_before_it_has_begun_is_not_waited_for(ends: str) -> None:
    """Another process may keep the pipe of the reports open."""
    reader, writer = os.pipe()
    bwrap, alive = os.pipe()
    status = BwrapStatus()
    status.listen(reader)
    os.close(writer if ends == "report" else alive)
    began = time.monotonic()
    status.wait_for_start(bwrap, PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2
    assert not status.begun
    for descriptor in (reader, bwrap, alive if ends == "report" else writer):
        os.close(descriptor)


def test_a_sandbox_that_reports_nothing_is_given_up() -> None:
    reader, writer = os.pipe()
    bwrap, alive = os.pipe()
    status = BwrapStatus()
    status.listen(reader)
    status.wait_for_start(bwrap, 0.05)
    assert not status.begun
    status.close()
    assert not status.read()
    for descriptor in (reader, writer, bwrap, alive):
        os.close(descriptor)
