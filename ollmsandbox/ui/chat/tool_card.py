# SPDX-License-Identifier: GPL-3.0-or-later
"""A tool call in the chat: open while it runs, one quiet line when it is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gi.repository import Gdk, GLib, Gtk

from ...i18n import _
from ...sandbox.process import Stop
from ...text.visible import visible, visible_line, visible_path
from ...tools.ask import NAME as ASK
from ...tools.todo import NAME as PLAN
from ..permission.card import ChatPermission
from ..resources import template
from ..sessions import tool_text as words
from ..sessions.entries import CallEntry, Stage
from ..sessions.folding import is_quiet
from ..terminal.graph import UsageWatch
from ..terminal.view import TerminalView
from ..widgets.keyboard import add_shortcut, on_key
from ..widgets.labels import (
    describe,
    file_markup,
    in_sentences,
    one_line,
    set_accessible_name,
    set_class,
    set_expanded,
    show_code,
    show_ellipsized_as_tooltip,
    show_text,
    without_hyphens,
)
from ..widgets.readable import line_counts
from ..widgets.scheduling import Timer
from ..widgets.signals import SignalHandlers, forward, signals
from ..widgets.weak import weakly
from ..widgets.wrap_box import WrapBox
from .question import QuestionCard
from .todo import TodoList

if TYPE_CHECKING:
    from ...sandbox.network.publish import CommandPorts

# Lines of output that are in view at once, without a search.
_IN_VIEW = 12
# Seconds that a command runs before its use of the processor and of memory is shown.
GRAPH_AFTER = 10.0
_LONG = 60


async def _watch_ports(ports: CommandPorts, show: Callable[[Sequence[int]], object]) -> None:
    """Show the ports that a command listens on, until it has ended. A thread looks them up: the
    kernel goes through the connections of the whole computer."""
    while not ports.is_closed:
        show(await asyncio.to_thread(ports.listening))
        await asyncio.sleep(1)


@Gtk.Template(filename=template("chat/tool_card"))
class ToolCard(Gtk.Box):
    __gtype_name__ = "OllmToolCard"

    __gsignals__ = signals(
        {
            "answer": (str, object),
            "stop-call": (object,),
            "show-changes": (str,),
            "open-output": (object,),
            "save-hosts": (object,),
            "open-port": (object, int),
            "open-terminal": (object,),
        }
    )

    header_box: Gtk.Box = Gtk.Template.Child()
    header: Gtk.Button = Gtk.Template.Child()
    marks: Gtk.Stack = Gtk.Template.Child()
    mark: Gtk.Image = Gtk.Template.Child()
    spinner: Gtk.Spinner = Gtk.Template.Child()
    heading: WrapBox = Gtk.Template.Child()
    title: Gtk.Label = Gtk.Template.Child()
    status: Gtk.Label = Gtk.Template.Child()
    arrow: Gtk.Image = Gtk.Template.Child()
    stop_button: Gtk.Button = Gtk.Template.Child()
    question_place: Gtk.Box = Gtk.Template.Child()
    detail: Gtk.Box = Gtk.Template.Child()
    whole: Gtk.Label = Gtk.Template.Child()
    diff_box: Gtk.Box = Gtk.Template.Child()
    output_place = Gtk.Template.Child()
    input: Gtk.Entry = Gtk.Template.Child()
    screen_box: WrapBox = Gtk.Template.Child()
    terminal_button: Gtk.Button = Gtk.Template.Child()
    note: Gtk.Label = Gtk.Template.Child()
    output_tools: Gtk.Box = Gtk.Template.Child()
    usage_place = Gtk.Template.Child()
    find_button: Gtk.Button = Gtk.Template.Child()
    copy_button: Gtk.Button = Gtk.Template.Child()
    ports_box: WrapBox = Gtk.Template.Child()
    show_button: Gtk.Button = Gtk.Template.Child()
    changes_box: Gtk.Box = Gtk.Template.Child()
    changes: Gtk.Label = Gtk.Template.Child()
    ignored: Gtk.Label = Gtk.Template.Child()
    hosts_box: Gtk.Box = Gtk.Template.Child()
    hosts: Gtk.Label = Gtk.Template.Child()
    host_list: Gtk.Label = Gtk.Template.Child()
    save_button: Gtk.Button = Gtk.Template.Child()

    def __init__(self, entry: CallEntry, project: str | None) -> None:
        super().__init__()
        self.entry = entry
        self._project = project
        # The permission question that is open.
        self.question: ChatPermission | None = None
        self._user_question: QuestionCard | None = None
        self._has_list = False
        self.output: TerminalView | None = None
        self.usage: UsageWatch | None = None
        self._stage: Stage | None = None
        self._clock = Timer(self._on_tick)
        self._ports: list[tuple[int, str]] = []
        self._ports_watch: asyncio.Task[None] | None = None
        self._has_diff = False
        self.title.set_label(words.title(entry))
        whole = visible(entry.description)
        self.whole.set_label(words.bounded(whole))
        without_hyphens(self.whole, self.changes, self.hosts, self.host_list)
        if entry.call.name in (PLAN, ASK):
            # These are not code.
            self.title.remove_css_class("monospace")
            self.whole.remove_css_class("monospace")
        show_ellipsized_as_tooltip(self.title)
        # Commands and paths are written from left to right everywhere.
        self.whole.set_direction(Gtk.TextDirection.LTR)
        # The title shows only the beginning of these.
        self._is_long = ("\n" in whole or len(whole) > _LONG) and not entry.steps
        self.whole.set_visible(self._is_long)
        # Not through the template, which would keep the whole card alive.
        for button, method in (
            (self.header, self._on_header),
            (self.find_button, self._on_find),
            (self.copy_button, self._on_copy),
            (self.show_button, self._on_show),
        ):
            button.connect("clicked", weakly(method))
        forward(self.stop_button, "clicked", self, "stop-call", entry)
        forward(self.save_button, "clicked", self, "save-hosts", entry)
        forward(self.terminal_button, "clicked", self, "open-terminal", entry)
        self.input.connect("activate", weakly(self._on_input))
        on_key(self.input, self._on_input_key)
        add_shortcut(self, "<Control>f", self._on_find)
        handlers = SignalHandlers(self)
        handlers.connect(entry, "changed", self._on_changed)
        handlers.connect(entry, "output", self._on_output)
        self.connect("unrealize", weakly(self._end_clock))
        self._on_changed(entry)

    @property
    def open_question(self) -> ChatPermission | QuestionCard | None:
        """The question of either kind that is still to be answered."""
        if self._user_question is not None and self._user_question.is_open:
            return self._user_question
        return self.question

    @property
    def is_open(self) -> bool:
        return self.detail.get_visible()

    def open(self, *, is_open: bool = True) -> None:
        if is_open:
            self._fill()
        self.detail.set_visible(is_open)
        # A long command is shown completely below.
        self.title.set_visible(not (is_open and self._is_long))
        # The output has the same diff.
        self.diff_box.set_visible(self._has_diff and not is_open)
        self.arrow.set_from_icon_name("pan-down-symbolic" if is_open else "pan-end-symbolic")
        set_expanded(self.header, is_open)
        self._show_hosts()

    # --- the state of the call -------------------------------------------------------------------

    def _on_changed(self, entry: CallEntry) -> None:
        self._show_status()
        self._show_question()
        self._show_user_question()
        if entry.stage is not self._stage:
            self._stage = entry.stage
            self._show_stage()
        elif entry.stage is Stage.RUNNING:
            # It has a process by now.
            self._begin_clock()
        self._show_changes()
        self._show_hosts()
        self._show_input()

    def _show_input(self) -> None:
        """Offer a line of input to a command that runs in a terminal, once it may wait for one."""
        entry, terminal = self.entry, self.entry.terminal
        lasts = time.time() - entry.began_at >= 0.5
        self.input.set_visible(terminal is not None and lasts and not entry.fills_screen)
        if terminal is not None:
            self.input.set_visibility(terminal.echoes())
        self.screen_box.set_visible(entry.fills_screen)
        self._show_note()

    def _show_stage(self) -> None:
        entry = self.entry
        is_running = entry.stage is Stage.RUNNING
        # The question shows the command already, in larger type.
        self.header_box.set_visible(entry.stage is not Stage.ASKING)
        self.whole.set_visible(self._is_long and entry.stage is not Stage.ASKING)
        self.stop_button.set_visible(is_running)
        self.marks.set_visible_child_name("busy" if is_running else "icon")
        self.spinner.set_spinning(is_running)
        icon, colour = words.mark(entry)
        self.mark.set_from_icon_name(icon)
        for name in ("success", "dim-label"):
            set_class(self.mark, name, name == colour)
        if is_running:
            self.open(is_open=entry.is_open is not False)
            self._begin_clock()
        elif entry.stage is Stage.DONE:
            self._end_clock()
            self._show_ports(())
            if self.input.get_focus_child() is not None:
                # The line of input goes; GTK would give the focus to nothing.
                self.header.grab_focus()
            if not entry.printed:
                # What it drew on the whole screen is no text.
                self.output = None
                self.output_place.set_child(None)
            if self.usage is not None:
                self.usage.graph.set_visible(False)
            if self.output is not None:
                self.output.finish()
            self._show_note()
            self._show_diff()
            if entry.stop is Stop.PERSON:
                # Stay open or closed: the user who stopped it was looking at it.
                entry.is_open = self.is_open if entry.is_open is None else entry.is_open
            failed = not words.succeeded(entry) and not words.is_denied(entry)
            has_more = bool(entry.printed or entry.shown_text.strip() or words.remarks(entry))
            opens = (failed or entry.own) and has_more
            self.open(is_open=opens if entry.is_open is None else entry.is_open)
        self._show_whether_quiet()

    def _show_status(self) -> None:
        entry = self.entry
        parts = [words.status(entry)]
        if entry.stage is Stage.RUNNING:
            parts.append(words.clock(time.time() - entry.began_at))
        elif (diff := words.edit_diff(entry)) is not None:
            parts.append(line_counts(diff.count("+"), diff.count("-")))
        elif entry.record is not None and entry.record.duration is not None:
            parts.append(words.duration(entry.record.duration))
        # The mark shows that it succeeded; a screen reader says it.
        is_plain = entry.stage is Stage.DONE and words.succeeded(entry)
        shown = [words.tool(entry), *(parts[1:] if is_plain else parts)]
        self.status.set_label(" · ".join(filter(None, shown)))
        text = " · ".join(filter(None, [words.tool(entry), *parts]))
        name = _("{call}. {status}").format(call=words.title(entry), status=text)
        set_accessible_name(self.header, name)

    def _show_diff(self) -> None:
        """Show a small edit line by line, and name the file as the list of changes does."""
        diff = words.edit_diff(self.entry)
        if diff is None:
            return
        self.title.set_markup(file_markup(visible_path(self.entry.description)))
        if len(diff.lines) > 8 or self._has_diff:
            return
        self._has_diff = True
        width = len(str(max(number for number, _sign, _text in diff.lines)))
        for number, sign, text in diff.lines:
            style = "added" if sign == "+" else "removed"
            line = one_line(f"{number:>{width}} {sign} {visible_line(text)}", "monospace", style)
            line.set_direction(Gtk.TextDirection.LTR)
            self.diff_box.append(line)

    def _show_question(self) -> None:
        """Show the question that is open: an answer can be seen from what happens then."""
        asked = self.entry.request if self.entry.stage is Stage.ASKING else None
        if self.question is not None and self.question.request is not asked:
            self.question_place.remove(self.question)
            self.question = None
        if self.question is None and asked is not None:
            self.question = ChatPermission(asked)
            forward(self.question, "answered", self, "answer", asked.id)
            self.question_place.append(self.question)

    def _show_user_question(self) -> None:
        entry = self.entry
        if entry.question is None:
            # Nobody answered it.
            if self._user_question is not None:
                self.question_place.remove(self._user_question)
                self._user_question = None
            return
        if self._user_question is None:
            self._user_question = QuestionCard(entry.question)
            forward(self._user_question, "replied", self, "answer", entry.question.id)
            self.question_place.append(self._user_question)
        if entry.reply_text is not None and self._user_question.is_open:
            self._user_question.show_answer(entry.reply_text)

    def _show_changes(self) -> None:
        entry = self.entry
        text, ignored = "", words.ignored(entry)
        if entry.stage is Stage.RUNNING:
            text = words.live_changes(entry.changed_count, entry.last_changed, self._project)
        show_text(self.changes, text)
        show_text(self.ignored, ignored)
        self.changes_box.set_visible(bool(text or ignored))
        self.show_button.set_visible(words.has_changes(entry))
        describe(self.show_button, words.title(entry))

    def _show_hosts(self) -> None:
        uses = self.entry.hosts
        self.hosts_box.set_visible(bool(uses))
        if not uses:
            return
        text = words.hosts_summary(uses)
        self.hosts.set_label(text)
        self.save_button.set_visible(any(use.allowed for use in uses))
        describe(self.save_button, in_sentences(words.title(self.entry), text))
        if self.is_open:
            self.host_list.set_label("\n".join(words.host_lines(uses, most=8)))
        self.host_list.set_visible(self.is_open)

    # --- output ----------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Add the output when the card is opened for the first time."""
        entry = self.entry
        self._show_note()
        if self.output is not None or self._has_list or words.printed_nothing(entry):
            return
        if (steps := entry.steps) and entry.stage is Stage.DONE and words.succeeded(entry):
            self._has_list = True
            self.output_place.set_child(TodoList(steps))
            return
        kept = entry.kept_output()
        if not kept and entry.stage is Stage.DONE:
            kept = entry.shown_text.encode("utf-8", "replace")
        self.output = TerminalView()
        forward(self.output, "open-all", self, "open-output", entry)
        self.output_place.set_child(self.output)
        self._show_note()
        if kept:
            self.output.feed(kept)
        if entry.stage is Stage.DONE:
            self.output.finish()

    def _show_note(self) -> None:
        entry = self.entry
        is_drawn = entry.record is not None and entry.record.filled_screen
        nothing = _("No output") if words.printed_nothing(entry) and not is_drawn else ""
        text = "\n".join(filter(None, [nothing or entry.output_note, *words.remarks(entry)]))
        show_code(self.note, text)
        self.note.set_visible(bool(text))
        has_output = words.has_output(entry)
        self.output_place.set_visible(has_output)
        has_text = has_output and self.output is not None
        self.copy_button.set_visible(has_text)
        printed = entry.shown_text if entry.stage is Stage.DONE else ""
        has_more = printed.count("\n") > _IN_VIEW or len(printed) > _IN_VIEW * _LONG
        self.find_button.set_visible(has_text and has_more)
        has_graph = self.usage is not None and self.usage.graph.get_visible()
        self.output_tools.set_visible(has_text or has_graph or words.has_changes(entry))

    def _on_output(self, entry: CallEntry, data: bytes) -> None:
        if self.output is not None:
            self.output.feed(data)
            self.output.open_all.set_visible(entry.output_file is not None)
        if not self.output_place.get_visible():
            self._show_note()

    def _show_ports(self, listening: Sequence[int]) -> None:
        """Offer the ports that the running command listens on."""
        published = self.entry.ports.published if self.entry.ports is not None else []
        urls = {one.port: one.url for one in published}
        found = [(port, urls.get(port, f"http://localhost:{port}")) for port in listening[:3]]
        if found == self._ports:
            return
        self._ports = found
        self.ports_box.clear()
        for port, url in found:
            # Translators: a button; {url} is an address such as http://localhost:3000
            button = Gtk.Button(label=_("Open {url}").format(url=url))
            button.set_tooltip_text(
                _("Programs on this computer can connect to it until the command ends")
            )
            forward(button, "clicked", self, "open-port", self.entry, port)
            self.ports_box.add_group([button])
        self.ports_box.set_visible(bool(found))

    def _begin_clock(self) -> None:
        self._clock.start(200)
        if self._ports_watch is None and self.entry.ports is not None:
            work = _watch_ports(self.entry.ports, weakly(self._show_ports))
            self._ports_watch = asyncio.get_event_loop().create_task(work)
        has_lasted = time.time() - self.entry.began_at >= GRAPH_AFTER
        if self.usage is None and self.entry.pid > 0 and has_lasted:
            self.usage = UsageWatch(self.entry.pid)
            self.usage_place.set_child(self.usage.graph)

    def _on_tick(self) -> bool:
        self._begin_clock()
        self._show_status()
        self._show_changes()
        self._show_input()
        return GLib.SOURCE_CONTINUE

    def _end_clock(self, *_args: object) -> None:
        self._clock.stop()
        if self._ports_watch is not None:
            self._ports_watch.cancel()
            self._ports_watch = None
        if self.usage is not None:
            self.usage.stop()

    # --- the user's actions ----------------------------------------------------------------------

    def _on_header(self, _button: Gtk.Button) -> None:
        # Cards that are made for this call later look the same.
        self.entry.is_open = not self.is_open
        self.open(is_open=self.entry.is_open)
        self._show_whether_quiet()

    def _show_whether_quiet(self) -> None:
        set_class(self, "quiet", is_quiet(self.entry))

    def _on_find(self, *_args: object) -> bool:
        if self.output is None or not self.is_open:
            return Gdk.EVENT_PROPAGATE
        self.output.find()
        return Gdk.EVENT_STOP

    def _on_copy(self, _button: Gtk.Button) -> None:
        if self.output is not None:
            self.output.copy_all()

    def _on_input(self, field: Gtk.Entry) -> None:
        if (terminal := self.entry.terminal) is not None:
            terminal.send(f"{field.get_text()}\n".encode())
            field.set_text("")

    def _on_input_key(
        self, _keys: Gtk.EventControllerKey, key: int, _code: int, state: Gdk.ModifierType
    ) -> bool:
        """Pass on Ctrl+C and Ctrl+D, unless there is something to copy or to send."""
        terminal = self.entry.terminal
        sent = {Gdk.KEY_c: b"\x03", Gdk.KEY_d: b"\x04"}.get(key)
        is_free = not self.input.get_selection_bounds()
        if terminal is None or sent is None or not state & Gdk.ModifierType.CONTROL_MASK:
            return Gdk.EVENT_PROPAGATE
        if key == Gdk.KEY_c and not is_free:
            return Gdk.EVENT_PROPAGATE
        terminal.send(sent)
        return Gdk.EVENT_STOP

    def _on_show(self, _button: Gtk.Button) -> None:
        self.emit("show-changes", self.entry.run_id)
