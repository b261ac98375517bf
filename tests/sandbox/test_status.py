# SPDX-License-Identifier: GPL-3.0-or-later
"""What bwrap reports reaches everybody who waits for it."""

from __future__ import annotations

import asyncio
import os

import pytest

from ollmsandbox import loop
from ollmsandbox.sandbox.status import BwrapStatus

pytestmark = pytest.mark.ordinary


def test_a_start_that_somebody_else_has_read_is_not_missed() -> None:
    async def wait() -> None:
        reader, writer = os.pipe()
        status = BwrapStatus()
        status.listen(reader)
        waiting = asyncio.ensure_future(status.wait_for_start())
        await asyncio.sleep(0)
        os.write(writer, b'{"child-pid": 42}\n')
        status.read()
        await waiting
        assert status.begun
        os.close(writer)
        os.close(reader)

    loop.run(wait())


def test_a_sandbox_that_ends_before_it_has_begun_is_not_waited_for() -> None:
    async def wait() -> None:
        reader, writer = os.pipe()
        status = BwrapStatus()
        status.listen(reader)
        os.close(writer)
        await status.wait_for_start()
        assert not status.begun
        os.close(reader)

    loop.run(wait())
