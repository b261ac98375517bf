# SPDX-License-Identifier: GPL-3.0-or-later
"""The GTK application: one instance, its actions with their keys, and notifications. Widgets have
more keys of their own (widgets/keyboard.py)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from gi.repository import Adw, Gdk, Gio, GLib, Gtk

from ..errors import OllmSandboxError
from ..i18n import _
from ..loop import run_application
from ..paths import Paths
from .permission.asker import WindowAsker
from .permission.text import notification_text
from .resources import icons, stylesheet
from .settings import SCHEMA, Settings
from .window.agents import AgentService
from .window.garbage import keep_smooth
from .window.startup import after_first_frame
from .window.window import Window

if TYPE_CHECKING:
    from ..chat.sessions import SessionFactory
    from ..permission.request import PermissionRequest
    from ..tools.base import UserQuestion
    from .models.choice import ModelChoice
    from .sessions.sessions import Sessions
    from .window.controller import WindowController

# A development build can be installed beside a release, and looks different.
DEVELOPMENT = f"{SCHEMA}.Devel"

_SHORTCUTS = {
    "app.quit": ["<Control>q"],
    "win.new-session": ["<Control>n"],
    "win.open-project": ["<Control>o"],
    "win.preferences": ["<Control>comma"],
    "win.show-help-overlay": ["<Control>question"],
    "win.toggle-side-pane": ["F9"],
    "win.toggle-changes": ["<Control><Shift>c"],
    "win.back": ["<Alt>Left"],
    "win.stop": ["<Control>period"],
    "win.compose": ["<Control>l"],
    "win.next-question": ["<Control>j"],
    "window.close": ["<Control>w"],
}


class Application(Adw.Application):
    def __init__(self, environ: Mapping[str, str], application_id: str = SCHEMA) -> None:
        """Raise if files cannot be stored or are missing: what GLib calls later cannot say so."""
        paths = Paths.from_environ(environ)
        settings = Settings(paths)
        super().__init__(application_id=application_id, flags=Gio.ApplicationFlags.HANDLES_OPEN)
        self._environ = environ
        self._paths = paths
        self.settings = settings
        self._is_development = application_id == DEVELOPMENT
        self.window: Window | None = None
        self._controller: WindowController | None = None
        # Requests that came while the last window was closing.
        self._requests: list[Callable[[WindowController], object] | None] = []
        # Whether a signal has asked the program to end.
        self._is_leaving = False
        self.asker = WindowAsker()
        self._agents: AgentService | None = None

    # --- made when needed, after the first frame -------------------------------------------------

    @cached_property
    def factory(self) -> SessionFactory:
        from ..chat.sessions import SessionFactory

        return SessionFactory(self._paths, self._environ, self.asker, _, questions=self.asker)

    @cached_property
    def choice(self) -> ModelChoice:
        from .models.choice import ModelChoice

        return ModelChoice(self.factory.connections)

    @cached_property
    def sessions(self) -> Sessions:
        from .sessions.sessions import Sessions

        return Sessions(self.factory, self.choice, self.settings)

    @property
    def controller(self) -> WindowController:
        """The controller of the window, made when it is first needed."""
        if self._controller is None:
            from .window.controller import WindowController

            assert self.window is not None
            self._controller = WindowController(self.window, self.sessions, self.choice, self.asker)
        return self._controller

    # --- for GTK ---------------------------------------------------------------------------------

    def do_dbus_register(self, bus: Gio.DBusConnection, path: str) -> bool:
        """Serve other agents, before they can see that the window is there."""
        self._agents = AgentService(bus, lambda: self.sessions, self.asker, self._on_agent_gone)
        return bool(Adw.Application.do_dbus_register(self, bus, path))

    def do_dbus_unregister(self, bus: Gio.DBusConnection, path: str) -> None:
        self._close_agents()
        Adw.Application.do_dbus_unregister(self, bus, path)

    def _close_agents(self) -> None:
        if self._agents is not None:
            self._agents.close()
            self._agents = None

    def _on_agent_gone(self, session_id: str) -> None:
        if self.window is not None:
            self.controller.show_ended(session_id)

    def do_startup(self) -> None:
        Adw.Application.do_startup(self)
        # After which a busy thread lets the window run. A frame needs the interpreter hundreds of
        # times, and would wait 5 ms each time by default. Measured while a thread reads 20,000
        # changes: the slowest frame took 170 to 200 ms with 0.3 ms, 60 to 100 ms with this.
        sys.setswitchinterval(0.00003)
        # Notifications carry it. GLib takes it once in a process.
        if GLib.get_application_name() != "OLLM Sandbox":
            GLib.set_application_name("OLLM Sandbox")
        Gtk.Window.set_default_icon_name(DEVELOPMENT if self._is_development else SCHEMA)
        settings = Gtk.Settings.get_default()
        assert settings is not None
        # Moving the focus through messages must not select their text.
        settings.set_property("gtk-label-select-on-focus", False)
        display = Gdk.Display.get_default()
        assert display is not None
        provider = Gtk.CssProvider()
        provider.load_from_path(stylesheet())
        Gtk.StyleContext.add_provider_for_display(
            display, provider, Gtk.STYLE_PROVIDER_PRIORITY_APPLICATION
        )
        for folder in icons():
            Gtk.IconTheme.get_for_display(display).add_search_path(str(folder))
        for name, takes, callback in (
            ("quit", None, self._on_quit),
            ("show-question", "(ss)", self._on_show_question),
            ("show-session", "s", self._on_show_session),
            # The desktop offers these, too, before there is a window.
            ("new-session", None, self._on_window_action),
            ("preferences", None, self._on_window_action),
        ):
            action = Gio.SimpleAction.new(name, GLib.VariantType.new(takes) if takes else None)
            action.connect("activate", callback)
            self.add_action(action)
        for action_name, keys in _SHORTCUTS.items():
            self.set_accels_for_action(action_name, keys)
        self.asker.connect("asked", lambda _asker, request: self._announce(request))
        self.asker.connect(
            "settled", lambda _asker, request: self.withdraw_notification(request.id)
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, number, self._on_signal, number)

    def do_activate(self) -> None:
        self._with_window()

    def do_open(self, files: Sequence[Gio.File], _count: int, _hint: str) -> None:
        self._with_window(lambda controller: _open(controller, files))

    def do_shutdown(self) -> None:
        self.factory.close()
        Adw.Application.do_shutdown(self)

    def _present(self) -> None:
        if self.window is None:
            self.window = Window(self, self.settings, lambda name: self.controller.act(name))
            self.window.connect("close-request", self._on_close_request)
            self.window.connect("closed", self._on_closed)
            if self._is_development:
                self.window.add_css_class("devel")
            # Everything else can wait for the first frame.
            after_first_frame(self.window, partial(self._begin, self.window))
        self.window.present()

    def _begin(self, window: Window) -> None:
        # It may have been closed before its first frame, and another one opened.
        if self.window is window:
            self.controller.begin()

    def _with_window(self, request: Callable[[WindowController], object] | None = None) -> None:
        """Handle a request in the window, or in a new one when the window has closed."""
        if self._is_leaving:
            return
        if self._controller is None or not self._controller.is_closing:
            self._present()
            if request is not None:
                request(self.controller)
            return
        if not self._requests:
            self.hold()
        self._requests.append(request)

    def _on_close_request(self, _window: Window) -> bool:
        self.controller.close()
        return True

    def _on_closed(self, _window: Window) -> None:
        self.window = self._controller = None
        requests, self._requests = self._requests, []
        for request in requests:
            self._with_window(request)
        if requests:
            self.release()
        else:
            self._close_agents()
            self.quit()

    def _on_quit(self, *_args: object) -> None:
        if self.window is None:
            self.quit()
        else:
            # The window asks first if something would be interrupted.
            self.window.close()

    def _on_signal(self, number: int) -> bool:
        """End the program without questions, in order if that does not take long."""
        from .window.closing import exit_in_time  # not needed for the first frame

        self._is_leaving = True
        exit_in_time(self._paths, number)
        if self._requests:
            self._requests = []
            self.release()
        if self.window is not None:
            self.controller.close_at_once()
        else:
            self.quit()
        return GLib.SOURCE_CONTINUE

    def _announce(self, request: PermissionRequest | UserQuestion) -> None:
        """Notify the user of a question that is not in view."""
        if not self.settings.get_boolean("notifications"):
            return
        if self._controller is not None and self._controller.shows_question(request):
            return
        title, body = notification_text(request)
        notification = Gio.Notification.new(title)
        notification.set_body(body)
        notification.set_priority(Gio.NotificationPriority.HIGH)
        target = GLib.Variant("(ss)", (request.session_id, request.call_id))
        notification.set_default_action_and_target("app.show-question", target)
        notification.add_button_with_target(_("Show Question"), "app.show-question", target)
        self.send_notification(request.id, notification)

    def count_frames(self) -> int:
        """Return how many frames the window has drawn."""
        clock = self.window.get_frame_clock() if self.window is not None else None
        return clock.get_frame_counter() if clock is not None else 0

    def _on_window_action(self, action: Gio.SimpleAction, _target: None) -> None:
        name = action.get_name()
        self._with_window(lambda controller: controller.act(name))

    def _on_show_session(self, _action: Gio.SimpleAction, target: GLib.Variant) -> None:
        self._with_window(lambda controller: controller.show_session(target.get_string()))

    def _on_show_question(self, _action: Gio.SimpleAction, target: GLib.Variant) -> None:
        self._with_window(lambda controller: controller.show_question(*target.unpack()))


def _open(controller: WindowController, files: Sequence[Gio.File]) -> None:
    for file in files:
        path = file.get_path()
        if path is None or not os.path.isdir(path):
            name = file.get_parse_name()
            controller.tell(_("{} is not a folder").format(name))
        else:
            controller.open_project(path)


def main(arguments: Sequence[str], application_id: str = "") -> int:
    """Run the window; `arguments` begin with the program's name."""
    if not Gtk.init_check() or Gdk.Display.get_default() is None:
        print("ollmsandbox: There is no display to open a window on.", file=sys.stderr)
        print("Use a sub-command (`ollmsandbox --help`), or build-aux/run.", file=sys.stderr)
        return 1
    try:
        application = Application(dict(os.environ), application_id or SCHEMA)
        keep_smooth(application.count_frames)
        return run_application(application, arguments)
    except OllmSandboxError as error:
        print(f"ollmsandbox: {error}", file=sys.stderr)
        return 1
