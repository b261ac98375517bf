# SPDX-License-Identifier: GPL-3.0-or-later
"""The text field for a message or a `!command`."""

from __future__ import annotations

import os
import shlex

from gi.repository import Adw, Gdk, Gio, GLib, GObject, Gtk, Pango

from ...i18n import _
from ...sandbox.spec import Mode
from ...tools.base import Picture
from ..diff.images import MOST_BYTES, DecodedPicture
from ..resources import template
from ..settings import Settings
from ..widgets.boxes import hbox, icon_button
from ..widgets.keyboard import on_key
from ..widgets.labels import has_long_word, set_accessible_name, set_class
from ..widgets.signals import forward, signals
from ..widgets.weak import weakly
from .completion import FileCompletion

_ENTER = (Gdk.KEY_Return, Gdk.KEY_KP_Enter, Gdk.KEY_ISO_Enter)
# In the order in which they are asked for.
_PICTURES = ("image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp", "image/tiff")
_HELD = Gdk.ModifierType.CONTROL_MASK | Gdk.ModifierType.SHIFT_MASK | Gdk.ModifierType.ALT_MASK
# Pixels of an attached picture, and characters of its name.
_SIZE, _NAME = 40, 16


class PictureChips(Gtk.FlowBox):
    """The pictures that go with the next message, above the text field."""

    __gtype_name__ = "OllmPictureChips"

    # One was added or removed.
    __gsignals__ = signals({"changed": ()})

    def __init__(self) -> None:
        super().__init__()
        # Not as arguments: in a template, the widget exists already, and they would be ignored.
        self.set_selection_mode(Gtk.SelectionMode.NONE)
        self.set_column_spacing(6)
        self.set_row_spacing(6)
        self.set_max_children_per_line(20)
        self.add_css_class("picture-chips")
        set_accessible_name(self, _("Attached pictures"))
        # In their order.
        self._chips: list[tuple[Picture, Gtk.FlowBoxChild]] = []

    @property
    def attached(self) -> tuple[Picture, ...]:
        return tuple(picture for picture, _chip in self._chips)

    @attached.setter
    def attached(self, attached: tuple[Picture, ...]) -> None:
        if attached == self.attached:
            return
        for picture, chip in tuple(self._chips):
            if not any(one is picture for one in attached):
                self._chips.remove((picture, chip))
                self.remove(chip)
        # Those that stay are not decoded again.
        for place, picture in enumerate(attached):
            if place >= len(self._chips) or self._chips[place][0] is not picture:
                chip = Gtk.FlowBoxChild(child=self._chip(picture), focusable=False)
                set_accessible_name(chip, picture.name)
                self._chips.insert(place, (picture, chip))
                self.insert(chip, place)
        self.set_visible(bool(attached))
        self.emit("changed")

    def _chip(self, picture: Picture) -> Gtk.Widget:
        name = picture.name
        words = _("Remove {name}").format(name=name)
        button = icon_button("window-close-symbolic", words, "flat", "circular", "chip-button")
        button.connect("clicked", weakly(self._on_remove), picture)
        # It has its place before it is decoded. The chip has a name, so the picture needs none.
        place = Adw.Bin(
            child=DecodedPicture(picture.data, "", _SIZE, _SIZE),
            width_request=_SIZE,
            height_request=_SIZE,
            valign=Gtk.Align.CENTER,
        )
        label = Gtk.Label(
            label=name,
            ellipsize=Pango.EllipsizeMode.MIDDLE,
            max_width_chars=_NAME,
            xalign=0,
            css_classes=["caption"],
        )
        start = Gtk.Align.START
        chip = hbox(place, label, button, spacing=6, tooltip_text=name, halign=start)
        chip.add_css_class("picture-chip")
        return chip

    def _on_remove(self, _button: Gtk.Button, picture: Picture) -> None:
        self.attached = tuple(one for one in self.attached if one is not picture)


@Gtk.Template(filename=template("chat/composer"))
class Composer(Gtk.Box):
    __gtype_name__ = "OllmComposer"

    __gsignals__ = signals(
        {
            # A message to the model, or a !command.
            "send": (str,),
            # Find out whether the model can see pictures, and call `show_sight`.
            "look-at-model": (),
            # The user says whether the model sees pictures.
            "set-seeing": (bool,),
            # The paths of files that were dropped.
            "dropped": (object,),
            # The content of a picture.
            "pasted": (object,),
        }
    )

    view: Gtk.TextView = Gtk.Template.Child()
    frame: Gtk.ScrolledWindow = Gtk.Template.Child()
    placeholder: Gtk.Label = Gtk.Template.Child()
    attach_button: Gtk.MenuButton = Gtk.Template.Child()
    chips: PictureChips = Gtk.Template.Child()
    buttons: Gtk.Box = Gtk.Template.Child()
    send_button: Gtk.Button = Gtk.Template.Child()
    stop_button: Gtk.Button = Gtk.Template.Child()
    # For the button that chooses a model.
    model_place: Adw.Bin = Gtk.Template.Child()
    mode_button: Gtk.MenuButton = Gtk.Template.Child()
    context_place: Adw.Bin = Gtk.Template.Child()

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._why_not = ""
        self._history: list[str] = []
        # Where in the history it is; its length stands for what is being written.
        self._place = 0
        self._unsent = ""
        # An input method is composing a character: Enter belongs to it.
        self._is_composing = False
        self._buffer = self.view.get_buffer()
        # Not through the template, which would keep the whole composer alive.
        self.send_button.connect("clicked", weakly(self._on_send))
        self.chips.connect("changed", weakly(self._refresh))
        self.view.connect("paste-clipboard", weakly(self._on_paste))
        self.completion = FileCompletion(self.view, self.buttons)
        self.completion.connect("chosen", weakly(self._on_completed))
        # The controller adds those that ask for files or for pictures.
        self.actions = actions = Gio.SimpleActionGroup()
        actions.add_action(settings.create_action("apply-mode"))
        self._seeing = Gio.SimpleAction.new_stateful("seeing", None, GLib.Variant("b", False))
        self._seeing.connect("activate", weakly(self._on_seeing))
        actions.add_action(self._seeing)
        self._attach_menu = Gio.Menu()
        self.attach_button.set_menu_model(self._attach_menu)
        # The button itself says that it is active only since GTK 4.10.
        popover = self.attach_button.get_popover()
        assert popover is not None
        forward(popover, "show", self, "look-at-model")
        self.show_sight(sees=False)
        self.insert_action_group("composer", actions)
        # The settings outlive the composer.
        settings.connect("changed::apply-mode", weakly(self._show_mode))
        self._show_mode()
        self._buffer.connect("changed", weakly(self._refresh))
        on_key(self.view, self._on_key, phase=Gtk.PropagationPhase.CAPTURE)
        self.view.connect("preedit-changed", weakly(self._on_preedit))
        drop = Gtk.DropTarget.new(Gdk.FileList, Gdk.DragAction.COPY)
        drop.set_propagation_phase(Gtk.PropagationPhase.CAPTURE)
        drop.connect("drop", weakly(self._on_drop))
        self.add_controller(drop)

    @property
    def text(self) -> str:
        start, end = self._buffer.get_bounds()
        return self._buffer.get_text(start, end, False)

    @text.setter
    def text(self, text: str) -> None:
        self._buffer.set_text(text)
        self._buffer.place_cursor(self._buffer.get_end_iter())

    @property
    def draft(self) -> str:
        """The unsent text, also while an older message from the history is shown."""
        is_leafing = self._place < len(self._history) and self.text == self._history[self._place]
        return self._unsent if is_leafing else self.text

    @property
    def is_untouched(self) -> bool:
        """Whether there is no unsent text, neither shown, composed nor behind the history."""
        hidden = self._unsent if self._place < len(self._history) else ""
        return not (self.text or self._is_composing or hidden)

    @property
    def attached(self) -> tuple[Picture, ...]:
        return self.chips.attached

    @attached.setter
    def attached(self, attached: tuple[Picture, ...]) -> None:
        self.chips.attached = attached

    def take_pictures(self) -> tuple[Picture, ...]:
        """Return the pictures that go with a message, and remove them here."""
        taken, self.attached = self.attached, ()
        return taken

    def show_sight(self, *, sees: bool, is_known: bool = True) -> None:
        """Say in the menu what becomes of a picture. Unless it is known whether the model sees it,
        the user can say so there."""
        path = _("_Picture as Path (Model Cannot See It)…") if is_known else _("_Picture as Path…")
        self._attach_menu.remove_all()
        self._attach_menu.append(_("_Picture…") if sees else path, "composer.attach-pictures")
        self._attach_menu.append(_("Path of a _File…"), "composer.attach")
        self._seeing.set_state(GLib.Variant("b", sees))
        if not is_known:
            self._attach_menu.append(_("Model _Sees Pictures"), "composer.seeing")

    def set_history(self, texts: list[str]) -> None:
        """Set the messages that were sent before, the oldest first."""
        self._history = texts
        self._place = len(self._history)
        self._unsent = ""

    def set_can_send(self, why_not: str) -> None:
        """Disable sending messages unless `why_not` is empty; commands still work."""
        self._why_not = why_not
        self._refresh()

    def set_busy(self, busy: bool) -> None:
        had_focus = self.stop_button.has_focus()
        self.stop_button.set_visible(busy)
        self._refresh()
        if had_focus and not busy:
            # The button it was on is gone.
            self.focus()

    def focus(self) -> None:
        self.view.grab_focus()

    def insert(self, text: str) -> None:
        """Insert a text at the cursor."""
        self._buffer.insert_at_cursor(text)

    def add_paths(self, paths: list[str]) -> None:
        if not paths:
            return
        words = " ".join(_quoted(path) for path in paths)
        self._buffer.delete_selection(False, True)
        place = self._buffer.get_iter_at_mark(self._buffer.get_insert())
        before = place.copy()
        gap = before.backward_char() and not before.get_char().isspace()
        after = "" if place.get_char().isspace() else " "
        self.insert(f"{' ' if gap else ''}{words}{after}")
        self.focus()

    @property
    def _can_send(self) -> bool:
        text = self.text.strip()
        if text.startswith("!"):
            return bool(text[1:].strip())
        return bool(text or self.attached) and not self._why_not

    def _send(self) -> None:
        if not self._can_send:
            return
        text = self.text.strip()
        if text and (not self._history or self._history[-1] != text):
            self._history.append(text)
        self._place = len(self._history)
        self._unsent = ""
        self.text = ""
        self.emit("send", text)

    def _refresh(self, *_args: object) -> None:
        self.placeholder.set_visible(not self._buffer.get_char_count())
        self.send_button.set_sensitive(self._can_send)
        text = self.text
        wraps = Gtk.WrapMode.CHAR if has_long_word(text) else Gtk.WrapMode.WORD_CHAR
        self.view.set_wrap_mode(wraps)
        set_class(self.view, "monospace", text.lstrip().startswith("!"))

    def _on_preedit(self, _view: Gtk.TextView, text: str) -> None:
        self._is_composing = bool(text)

    def _on_key(
        self, _keys: Gtk.EventControllerKey, key: int, _code: int, state: Gdk.ModifierType
    ) -> bool:
        if self._is_composing:
            return False
        held = state & _HELD
        if not held and self.completion.take_key(key):
            return True
        if key in _ENTER:
            with_enter = self._settings.get_boolean("send-with-enter")
            sends = bool(held & Gdk.ModifierType.CONTROL_MASK) or (with_enter and not held)
            if sends:
                self._send()
            return sends
        if held:
            return False
        if key in (Gdk.KEY_Up, Gdk.KEY_KP_Up):
            return self._on_edge_line(first=True) and self._leaf(-1)
        if key in (Gdk.KEY_Down, Gdk.KEY_KP_Down):
            return self._on_edge_line(first=False) and self._leaf(1)
        return False

    def _on_edge_line(self, *, first: bool) -> bool:
        """Return whether the cursor is on the first or last line, as wrapped on screen."""
        place = self._buffer.get_iter_at_mark(self._buffer.get_insert())
        if first:
            return not self.view.backward_display_line(place)
        return place.get_line() == self._buffer.get_line_count() - 1 and (
            not self.view.forward_display_line(place) or place.is_end()
        )

    def _leaf(self, step: int) -> bool:
        place = self._place + step
        if not 0 <= place <= len(self._history):
            return False
        if self._place == len(self._history):
            self._unsent = self.text
        self._place = place
        self.text = self._unsent if place == len(self._history) else self._history[place]
        return True

    def _on_drop(self, _target: Gtk.DropTarget, files: Gdk.FileList, _x: float, _y: float) -> bool:
        paths = [file.get_path() for file in files.get_files()]
        shown = [path for path in paths if path]
        # After the drop is over: the view has a handler of its own for text.
        GLib.timeout_add(0, weakly(self._tell_dropped), shown)
        return bool(shown)

    def _tell_dropped(self, paths: list[str]) -> bool:
        self.emit("dropped", paths)
        return GLib.SOURCE_REMOVE

    def _on_paste(self, view: Gtk.TextView) -> None:
        """Take a picture from the clipboard, as the bytes that another program put there."""
        clipboard = self.get_clipboard()
        formats = clipboard.get_formats()
        kinds = [kind for kind in _PICTURES if formats.contain_mime_type(kind)]
        # With text beside it, the picture shows that text.
        if kinds and not formats.contain_gtype(GObject.TYPE_STRING):
            GObject.signal_stop_emission_by_name(view, "paste-clipboard")
            clipboard.read_async(kinds[:1], GLib.PRIORITY_DEFAULT, None, weakly(self._on_clipboard))

    def _on_clipboard(self, clipboard: Gdk.Clipboard, result: Gio.AsyncResult) -> None:
        try:
            stream, _kind = clipboard.read_finish(result)
        except GLib.Error:
            return  # it has changed meanwhile
        if stream is not None:
            flags = Gio.OutputStreamSpliceFlags
            both = flags.CLOSE_SOURCE | flags.CLOSE_TARGET
            sink, done = Gio.MemoryOutputStream.new_resizable(), weakly(self._on_pasted)
            sink.splice_async(stream, both, GLib.PRIORITY_DEFAULT, None, done)

    def _on_pasted(self, sink: Gio.MemoryOutputStream, result: Gio.AsyncResult) -> None:
        try:
            size = sink.splice_finish(result)
        except GLib.Error:
            return  # the other program has ended
        if size <= MOST_BYTES:
            self.emit("pasted", sink.steal_as_bytes().get_data() or b"")

    def _on_send(self, _button: Gtk.Button) -> None:
        self._send()
        self.focus()

    def _on_seeing(self, action: Gio.SimpleAction, _target: GLib.Variant | None) -> None:
        self.emit("set-seeing", not action.props.state.get_boolean())

    def _on_completed(self, _completion: FileCompletion, path: str) -> None:
        self.add_paths([path])

    def _show_mode(self, *_args: object) -> None:
        mode = self._settings.get_string("apply-mode")
        words = _("Review First") if mode == Mode.REVIEW.value else _("Apply Right Away")
        self.mode_button.set_label(words)
        name = _("When a command changes files: {}").format(words)
        set_accessible_name(self.mode_button, name)
        # The button inside has the focus, and would be named after its label alone.
        inner = self.mode_button.get_first_child()
        assert inner is not None
        set_accessible_name(inner, name)


def _quoted(path: str) -> str:
    """Quote a path for any shell. A file name need not be UTF-8, but this text must be."""
    try:
        path.encode()
    except UnicodeEncodeError:
        spelled = "".join(f"\\{byte:03o}" for byte in os.fsencode(path))
        return f"\"$(printf '{spelled}')\""
    return shlex.quote(path)
