# SPDX-License-Identifier: GPL-3.0-or-later
"""A block of code in the chat, with syntax colours and a button to copy it."""

from __future__ import annotations

from functools import cache

from gi.repository import GLib, Gtk, GtkSource

from ...i18n import _
from ..diff.colours import set_scheme
from ..resources import template
from ..widgets.scheduling import Timer
from ..widgets.scroller import NestedScroller
from ..widgets.signals import SignalHandlers, follow_theme
from ..widgets.weak import weakly

# Lines. More of them scroll inside, or they would push the conversation away.
MOST_LINES = 30
# Characters. Pango lays out a line as a whole, which takes seconds for a minified file.
LONGEST_LINE = 4000

# Names that people write after ```, where GtkSourceView's name and the file extensions differ.
_ALIASES = {
    **dict.fromkeys(("bash", "console", "shell", "shell-session", "terminal", "zsh"), "sh"),
    **dict.fromkeys(("javascript", "node"), "js"),
    **dict.fromkeys(("py", "python"), "python3"),
    "c#": "c-sharp",
    "dockerfile": "docker",
    "golang": "go",
    "jsonc": "json",
    "objective-c": "objc",
}

GtkSource.init()


@Gtk.Template(filename=template("markdown/code_block"))
class CodeBlock(Gtk.Box):
    __gtype_name__ = "OllmCodeBlock"

    name_label: Gtk.Label = Gtk.Template.Child()
    copied_label: Gtk.Label = Gtk.Template.Child()
    copy_button: Gtk.Button = Gtk.Template.Child()
    scroller: NestedScroller = Gtk.Template.Child()
    view: GtkSource.View = Gtk.Template.Child()

    def __init__(self, language: str = "", text: str = "") -> None:
        super().__init__()
        self.text = ""
        self._line = 0  # the length of the last line
        self._copied = Timer(self._show_copied)
        self._buffer = GtkSource.Buffer(highlight_matching_brackets=False)
        self._last_line = self._buffer.create_mark(
            None, self._buffer.get_start_iter(), left_gravity=True
        )
        self.view.set_buffer(self._buffer)
        self.language = found = find_language(language)
        name = found.get_name() if found else language or _("Code")
        if found and found.get_id() == "sh":
            name = _("Shell")
        self.name_label.set_label(name)
        self.view.update_property([Gtk.AccessibleProperty.LABEL], [name])
        follow_theme(SignalHandlers(self), self._recolour)
        self.copy_button.connect("clicked", weakly(self._copy))
        self.connect("map", weakly(self._mapped))
        self.connect("unmap", weakly(self._unmapped))
        if text:
            self.add_text(text)

    def add_text(self, piece: str, *, follow: bool = False) -> None:
        """Add text that is still being written."""
        if not piece:
            return
        self.text += piece
        # Highlighting more takes too long.
        if len(self.text) > 300_000:
            self._buffer.set_highlight_syntax(False)
        self._buffer.insert(self._buffer.get_end_iter(), self._shortened(piece))
        self._fit()
        if follow and self._buffer.get_line_count() > MOST_LINES:
            start = self._buffer.get_end_iter()
            start.set_line_offset(0)
            self._buffer.move_mark(self._last_line, start)
            self.view.scroll_mark_onscreen(self._last_line)

    def _shortened(self, piece: str) -> str:
        lines = piece.split("\n")
        for number, line in enumerate(lines):
            before = 0 if number else self._line
            self._line = before + len(line)
            if self._line > LONGEST_LINE:
                mark = "…" if before <= LONGEST_LINE else ""
                lines[number] = line[: max(0, LONGEST_LINE - before)] + mark
        return "\n".join(lines)

    def _fit(self) -> None:
        """Set the height for all lines, up to a limit. A text view knows its height only after it
        was shown, and what is below would jump."""
        lines = self._buffer.get_line_count()
        line_height = self.view.create_pango_layout("0").get_pixel_size()[1]
        height = min(lines, MOST_LINES) * line_height
        margins = self.view.get_top_margin() + self.view.get_bottom_margin()
        if lines <= MOST_LINES:
            self.view.set_size_request(-1, height + margins)
            return
        if self.scroller.get_policy()[1] is Gtk.PolicyType.NEVER:
            self.scroller.set_policy(Gtk.PolicyType.AUTOMATIC, Gtk.PolicyType.AUTOMATIC)
            self.scroller.set_max_content_height(height)
            self.scroller.set_min_content_height(height)

    def _copy(self, _button: Gtk.Button) -> None:
        self.get_clipboard().set(self.text)
        self._copied.restart(2000)
        self._show_copied()

    def _show_copied(self) -> None:
        copied = self._copied.is_running
        self.copied_label.set_opacity(1 if copied else 0)
        self.copy_button.set_icon_name("object-select-symbolic" if copied else "edit-copy-symbolic")
        label = _("Copied") if copied else _("Copy code")
        self.copy_button.update_property([Gtk.AccessibleProperty.LABEL], [label])

    def _mapped(self, _widget: Gtk.Widget) -> None:
        self._fit()
        if self._buffer.get_language() is not self.language:
            # Loading a language may take longer than a frame.
            GLib.timeout_add(1, weakly(self._colour))

    def _unmapped(self, _widget: Gtk.Widget) -> None:
        self._copied.stop()
        self._show_copied()

    def _colour(self) -> bool:
        if self.language is not None:
            _keep(self.language)
        self._buffer.set_language(self.language)
        return GLib.SOURCE_REMOVE

    def _recolour(self, *_args: object) -> None:
        set_scheme(self._buffer)


def find_language(written: str) -> GtkSource.Language | None:
    """Find a language by its name, an alias or a file extension."""
    name = written.strip().lower().strip("{}.")
    if not name:
        return None
    manager = GtkSource.LanguageManager.get_default()
    return manager.get_language(_ALIASES.get(name, name)) or manager.guess_language(
        f"file.{name}", None
    )


@cache
def _keep(language: GtkSource.Language) -> GtkSource.Buffer:
    """Keep a buffer of this language: GtkSourceView forgets a language with its last buffer, and
    takes long to load it again. Rows of a chat come and go."""
    return GtkSource.Buffer(language=language)


def warm_up() -> None:
    """Load the usual languages, one whenever the main loop is idle, so that the first code in a
    chat does not have to wait."""
    # Not those that embed others, like Markdown: they take too long.
    names = iter(("sh", "python3", "diff", "json", "js"))

    def one_more() -> bool:
        if language := find_language(next(names, "")):
            _keep(language)
        return language is not None

    GLib.timeout_add(200, one_more)
