# SPDX-License-Identifier: GPL-3.0-or-later
"""Plays the tour in the real window and takes its pictures. See `screenshots` beside this."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import ollmsandbox.ui  # noqa: F401  isort: skip  names the versions of what comes now
from gi.repository import Gdk, GdkPixbuf, GLib, Graphene, Gtk

from ollmsandbox.chat.providers.connections_file import TOUR
from ollmsandbox.chat.providers.tour.model import TourModel
from ollmsandbox.chat.providers.tour.sample import make_sample
from ollmsandbox.loop import run_application
from ollmsandbox.permission.request import Answer
from ollmsandbox.ui.application import Application
from ollmsandbox.ui.changes.model import RunItem
from ollmsandbox.ui.sessions.entries import CallEntry, Stage
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window

WIDE, NARROW = (1100, 750), (360, 640)
# Seconds: until what moves has come to rest.
REST = 1.5
PATIENCE = 60.0

CHECK = r"""
for name in an_empty_basket one_of_each several_of_one a_price_that_is_missing rounding; do
    i=0; while [ $i -lt 60000 ]; do i=$((i + 1)); done
    printf '\033[32mok\033[0m       %s\n' "$name"
done
printf '\033[1mchecking every basket of last year\033[0m\n'
n=0
while [ $n -lt 900 ]; do
    n=$((n + 1)); i=0; while [ $i -lt 9000 ]; do i=$((i + 1)); done
    printf '\r%d of 900 baskets, \033[32m%d right\033[0m' $n $n
done
"""


class Photographer:
    def __init__(self, window: Window, folder: Path, scheme: str) -> None:
        self._window = window
        self._folder = folder
        self._scheme = scheme

    async def take(self, name: str) -> None:
        await self._take(WIDE, f"{name}-{self._scheme}")
        await self._take(NARROW, f"{name}-{self._scheme}-narrow")

    async def _take(self, size: tuple[int, int], name: str) -> None:
        window = self._window

        def has_size() -> bool:
            # Again: the least width depends on what is folded, which depends on the width.
            window.set_default_size(*size)
            return (window.get_width(), window.get_height()) == size

        await until(has_size, f"{size}")
        await asyncio.sleep(REST)
        texture = await self._painted(size)
        loader = GdkPixbuf.PixbufLoader()
        loader.write_bytes(texture.save_to_png_bytes())
        loader.close()
        pixbuf = loader.get_pixbuf()
        assert pixbuf is not None
        pixbuf.savev(str(self._folder / f"{name}.png"), "png", ["compression"], ["9"])

    async def _painted(self, size: tuple[int, int]) -> Gdk.Texture:
        """In a frame in which it was laid out. A paintable draws whenever something changes, before
        all has its place even, of which GTK warns: so there is one for that moment only."""
        window = self._window
        surface, renderer = window.get_surface(), window.get_renderer()
        assert surface is not None and renderer is not None
        clock = surface.get_frame_clock()
        area = Graphene.Rect().init(0, 0, *size)
        laid_out: set[int] = set()
        painted: list[Gdk.Texture] = []

        def note(*_args: object) -> None:
            laid_out.add(clock.get_frame_counter())

        def paint(_clock: Gdk.FrameClock) -> None:
            if clock.get_frame_counter() not in laid_out or painted:
                return
            snapshot = Gtk.Snapshot()
            Gtk.WidgetPaintable.new(window).snapshot(snapshot, *size)
            if (node := snapshot.to_node()) is not None:
                painted.append(renderer.render_texture(node, area))

        def drawn() -> bool:
            if not painted:
                window.queue_resize()
            return bool(painted)

        handlers = (
            (surface, surface.connect("layout", note)),
            (clock, clock.connect("paint", paint)),
        )
        try:
            await until(drawn, "drawn")
        finally:
            for source, handler in handlers:
                source.disconnect(handler)
        return painted[0]


async def until(condition: Callable[[], object], what: str) -> None:
    end = GLib.get_monotonic_time() + PATIENCE * 1e6
    while not condition():
        if GLib.get_monotonic_time() > end:
            raise TimeoutError(f"not {what}")
        await asyncio.sleep(0.05)


def calls(session: OpenSession) -> list[CallEntry]:
    return [entry for entry in session if isinstance(entry, CallEntry)]


def dress(window: Window) -> None:
    """As on a desktop of GNOME: one button, and no frame, which is drawn where nobody draws a
    shadow."""
    settings = Gtk.Settings.get_default()
    assert settings is not None
    settings.props.gtk_decoration_layout = ":close"
    plain = Gtk.CssProvider()
    rule = b"window.solid-csd { padding: 0; box-shadow: none; border: none; }"
    plain.load_from_data(rule)  # type: ignore[no-untyped-call]
    Gtk.StyleContext.add_provider_for_display(
        window.get_display(), plain, Gtk.STYLE_PROVIDER_PRIORITY_USER
    )


async def play(application: Application, folder: Path, scheme: str) -> None:
    window = application.window
    assert window is not None
    dress(window)
    picture = Photographer(window, folder, scheme)
    await until(lambda: window.is_ready, "ready")
    await picture.take("first-start")

    project = Path(os.environ["HOME"]) / "basket"
    make_sample(project)
    # Nobody is here to go on after each idea.
    TourModel.stops = ()
    (project / "check.sh").write_text(CHECK, encoding="utf-8")
    application.controller.open_project(str(project))
    await until(lambda: window.chat.session is not None, "a session")
    session = window.chat.session
    assert session is not None
    application.controller.model_chooser.emit("chosen", TOUR.name, TOUR.model)
    talk = asyncio.ensure_future(session.conversation.say("The tests fail. Can you fix it?"))
    await until(session.asking, "a question")
    await picture.take("permission")
    asked = session.asking()[0].request
    assert asked is not None
    application.asker.answer(asked.id, Answer.DENY)
    await talk

    # It looks like a session with any other model.
    window.chat.tour.set_visible(False)
    window.flap.set_reveal_flap(True)
    await until(lambda: len(window.changes.items) > 1, "changes")
    await picture.take("history")
    await open_file(window, "basket.py")
    await picture.take("review")

    window.flap.set_reveal_flap(False)
    running = asyncio.ensure_future(session.conversation.run("sh check.sh"))
    await until(lambda: calls(session)[-1].stage is Stage.RUNNING, "a running command")
    await until(lambda: b"of 900" in calls(session)[-1].kept_output(), "output")
    await asyncio.sleep(2)
    await picture.take("running")
    await session.conversation.stop()
    await running
    application.controller.close_at_once()


async def open_file(window: Window, name: str) -> None:
    view = window.changes

    def place() -> int | None:
        for at, item in enumerate(view.items):
            recorded = getattr(item, "recorded", None)
            if recorded is not None and recorded.change.path == name:
                return at
        return None

    for item in view.items:
        if isinstance(item, RunItem) and place() is None:
            view.select_run(item.data.id)
            await asyncio.sleep(REST)
    await until(lambda: place() is not None, f"{name} in the list")
    view.list_view.emit("activate", place())
    await until(lambda: view.page is not None and view.page.place.get_child(), "its page")


def main() -> int:
    folder, scheme = Path(sys.argv[1]), sys.argv[2]
    application = Application(dict(os.environ))

    async def guarded() -> None:
        try:
            await play(application, folder, scheme)
        finally:
            # Closed in order it is gone by now.
            application.quit()

    kept: list[asyncio.Task[None]] = []
    application.connect_after(
        "activate", lambda _app: kept.append(asyncio.ensure_future(guarded()))
    )
    run_application(application, sys.argv[:1])
    # Tells what went wrong.
    kept[0].result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
