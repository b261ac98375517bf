# SPDX-License-Identifier: GPL-3.0-or-later
"""A link that no program can open is reported."""

from __future__ import annotations

import pytest
from gi.repository import Gtk
from support.screen import Screen
from support.window import finish, running_loop

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.ui.chat.links import show_address

pytestmark = pytest.mark.anybody


def test_a_link_that_no_program_opens_is_reported(screen: Screen) -> None:
    address = "x-nobody-opens-this://there"
    window = screen.show(Gtk.Label(label="a chat"))
    with running_loop(), pytest.raises(OllmSandboxError) as caught:
        finish(show_address(window, address))
    assert str(caught.value).startswith(f"Cannot open {address}: ")
