# SPDX-License-Identifier: GPL-3.0-or-later
"""What all tests of conversations share."""

from __future__ import annotations

import pytest

from ollmsandbox.chat.providers import client


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once, as often as ever."""
    monkeypatch.setattr(client, "RETRY_DELAYS", (0.001,) * len(client.RETRY_DELAYS))
