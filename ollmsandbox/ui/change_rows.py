# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of the list of changes: a run, and below it the files it changed."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Gtk, Pango

from ..permission.visible import visible_line
from ..project.apply import State
from ..project.changes import Kind
from . import change_words as words
from .change_items import FileItem, RunItem

Act = Callable[[str, RunItem], None]
_COLOURS = {Kind.ADDED: "success", Kind.DELETED: "error", Kind.REPLACED: "warning"}


class RunRow(Gtk.Box):
    __gtype_name__ = "OllmRunRow"

    def __init__(self, item: RunItem, act: Act) -> None:
        super().__init__(orientation=Gtk.Orientation.VERTICAL, spacing=3)
        for side in ("top", "bottom"):
            getattr(self, f"set_margin_{side}")(6)
        run = item.data
        top = Gtk.Box(spacing=6)
        arrow = "pan-down-symbolic" if item.is_open else "pan-end-symbolic"
        top.append(Gtk.Image.new_from_icon_name(arrow))
        text = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, hexpand=True)
        command = _line(visible_line(run.command))
        command.add_css_class("monospace")
        about = _line(words.run_about(run))
        about.add_css_class("caption")
        about.add_css_class("warning" if run.waiting else "dim-label")
        text.append(command)
        text.append(about)
        top.append(text)
        states = {one.state for one in run.items} - {State.CONFLICT}
        buttons = Gtk.Box(spacing=6, valign=Gtk.Align.CENTER)
        verbs = words.verbs(states)
        for name, label in verbs:
            button = Gtk.Button(label=label)
            button.add_css_class("small-button")
            if name == "apply":
                button.add_css_class("suggested-action")
            button.connect("clicked", lambda _button, name=name: act(name, item))
            button.update_property(
                [Gtk.AccessibleProperty.LABEL], [f"{label}: {visible_line(run.command)}"]
            )
            buttons.append(button)
        self.append(top)
        # Several beside the command would leave nothing of it to read.
        if len(verbs) > 1:
            buttons.set_halign(Gtk.Align.END)
            self.append(buttons)
        else:
            top.append(buttons)
        self.set_tooltip_text(visible_line(run.command)[:500])


class FileRow(Gtk.Box):
    __gtype_name__ = "OllmFileRow"

    def __init__(self, item: FileItem) -> None:
        super().__init__(spacing=9, margin_start=18)
        self.item = item
        for side in ("top", "bottom"):
            getattr(self, f"set_margin_{side}")(3)
        recorded = item.recorded
        icon = Gtk.Image.new_from_icon_name(words.icon(recorded))
        colour = _COLOURS.get(recorded.change.kind)
        if colour:
            icon.add_css_class(colour)
        self.append(icon)
        folder, _slash, name = visible_line(recorded.change.path).rpartition("/")
        text = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, hexpand=True)
        title = _line(name or ".")
        text.append(title)
        below = _line(" · ".join(filter(None, (folder, words.about(recorded)))))
        below.add_css_class("caption")
        waits = recorded.state in (State.CONFLICT, State.FAILED) or words.marks(recorded)
        below.add_css_class("warning" if waits else "dim-label")
        text.append(below)
        self.append(text)
        self._added = _count("success")
        self._removed = _count("error")
        for label in (self._added, self._removed):
            self.append(label)
        self.append(Gtk.Image.new_from_icon_name("go-next-symbolic"))
        self.set_tooltip_text(visible_line(recorded.change.path))

    def show_lines(self, added: int, removed: int) -> None:
        for label, sign, number in (
            (self._added, "+", added),
            (self._removed, "\N{MINUS SIGN}", removed),
        ):
            label.set_label(f"{sign}{number}")
            label.set_visible(number > 0)


def _count(colour: str) -> Gtk.Label:
    return Gtk.Label(visible=False, css_classes=["caption", "numeric", colour])


def _line(text: str) -> Gtk.Label:
    return Gtk.Label(label=text, xalign=0, ellipsize=Pango.EllipsizeMode.END)
