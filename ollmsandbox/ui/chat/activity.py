# SPDX-License-Identifier: GPL-3.0-or-later
"""The last line of the chat while the model is at work: what it does, and for how long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gi.repository import GLib, Gtk

from ...i18n import _
from ..widgets.labels import decorative_icon
from ..widgets.scheduling import Timer
from ..widgets.signals import SignalHandlers

if TYPE_CHECKING:
    from ..sessions.open_session import OpenSession

# Milliseconds between two looks at the clock.
_TICK = 500


class ActivityLine(Gtk.Box):
    """Hidden while there is nothing to wait for. The second it shows is text, so it is there even
    if nothing may move."""

    def __init__(self) -> None:
        super().__init__(spacing=9, visible=False, accessible_role=Gtk.AccessibleRole.STATUS)
        self.add_css_class("activity")
        self._session: OpenSession | None = None
        self._handlers = SignalHandlers()
        self._clock = Timer(self._on_tick)
        self._spinner = Gtk.Spinner()
        self._still = decorative_icon("content-loading-symbolic")
        self._label = Gtk.Label(xalign=0, css_classes=["dim-label", "numeric"])
        for widget in (self._spinner, self._still, self._label):
            self.append(widget)

    def show_session(self, session: OpenSession | None) -> None:
        self._handlers.disconnect()
        self._session = session
        if session is not None:
            for name in ("activity-changed", "state-changed"):
                self._handlers.connect(session, name, self._update)
        self._update()

    def _update(self, *_args: object) -> None:
        session = self._session
        activity = session.activity if session is not None else None
        moves = self.get_settings().get_property("gtk-enable-animations")
        self._spinner.set_visible(moves)
        self._spinner.set_spinning(moves and activity is not None)
        self._still.set_visible(not moves)
        if activity is not None:
            # Without the seconds, or a screen reader would read them one after the other.
            self.update_property([Gtk.AccessibleProperty.LABEL], [_(activity.value)])
            self._show_seconds()
        self.set_visible(activity is not None)
        if session is not None and session.is_busy:
            self._clock.start(_TICK)
        else:
            self._clock.stop()

    def _show_seconds(self) -> None:
        session = self._session
        if session is not None and session.activity is not None:
            seconds = int(time.monotonic() - session.asked_at)
            text = _(session.activity.value)
            # Translators: what the model does, and for how many seconds.
            timed = _("{activity} {seconds} s").format(activity=text, seconds=seconds)
            self._label.set_label(timed if seconds else text)

    def _on_tick(self) -> bool:
        session = self._session
        if session is not None and time.monotonic() - session.heard_at > 2:
            session.note_silence()
        self._show_seconds()
        return GLib.SOURCE_CONTINUE
