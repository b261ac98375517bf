# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io

import cairo
from gi.repository import Gtk, GtkSource
from support.person import Person
from support.screen import Screen, all_of, draw_frames
from support.window import buttons, finish, in_project, press, says, wait_until


def test_all_lines_of_a_long_diff_have_their_colour(screen: Screen, person: Person) -> None:
    (person.project / "long").write_text("a\n" * 50)
    with in_project(person) as (window, session):
        finish(session.conversation.run("rm long"))
        wait_until(lambda: says(window.chat.turn, "1 file changed") and buttons(window.chat.turn))
        press(window.chat.turn, "Review")
        wait_until(lambda: window.changes.several is not None)
        several = window.changes.several
        assert several is not None

        def long_views() -> list[GtkSource.View]:
            found = all_of(several, GtkSource.View)
            return [v for v in found if v.get_mapped() and v.get_buffer().get_line_count() > 50]

        wait_until(long_views)
        [view] = long_views()
        # Until everything has come to rest.
        draw_frames(window, 60)
        renderer = window.get_renderer()
        assert renderer is not None
        snapshot = Gtk.Snapshot()
        Gtk.WidgetPaintable.new(view).snapshot(snapshot, view.get_width(), view.get_height())
        node = snapshot.to_node()
        assert node is not None
        png = renderer.render_texture(node, None).save_to_png_bytes().get_data()
        picture = cairo.ImageSurface.create_from_png(io.BytesIO(png or b""))
        data, stride = picture.get_data(), picture.get_stride()
        side = 4 * (picture.get_width() - 60)

        def ground(number: int) -> bytes:
            place = view.get_buffer().get_iter_at_line(number)[1]
            top, height = view.get_line_yrange(place)
            start = (top + height // 2) * stride + side
            return bytes(data[start : start + 4])

        assert {ground(number) for number in range(1, 51)} == {ground(1)} != {ground(0)}
