# SPDX-License-Identifier: GPL-3.0-or-later
"""A tool call in the chat: open while it runs, one quiet line when it is done."""

from __future__ import annotations

import time

from gi.repository import Gdk, GLib, Gtk, Pango

from ...i18n import _, localized
from ...permission.request import Answer
from ...project.change import Report
from ...text.visible import visible, visible_line
from ...tools.ask import NAME as ASK
from ...tools.todo import NAME as PLAN
from ..permission.card import ChatPermission
from ..resources import template
from ..sessions import tool_text as words
from ..sessions.entries import CallEntry, Stage
from ..sessions.folding import is_quiet
from ..terminal.graph import UsageWatch
from ..terminal.view import TerminalView
from ..widgets.labels import (
    describe,
    in_sentences,
    set_class,
    show_ellipsized_as_tooltip,
    without_hyphens,
)
from ..widgets.signals import signals
from ..widgets.weak import weakly
from ..widgets.wrap_box import WrapBox
from .question import QuestionCard
from .todo import TodoList

_MOST_LISTED = 8
# Changed lines of an edit that are shown without a click.
_SMALL_DIFF = 8
_TICK = 200
_LONG = 60
_MOST_PORTS = 3


@Gtk.Template(filename=template("chat/tool_card"))
class ToolCard(Gtk.Box):
    __gtype_name__ = "OllmToolCard"

    __gsignals__ = signals(
        {
            "answered": (str, object),
            "replied": (str, str),
            "stop": (),
            "show-changes": (str,),
            "undo": (str,),
            "open-output": (object,),
            "save-hosts": (object,),
            "open-port": (object, int),
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
    note: Gtk.Label = Gtk.Template.Child()
    output_tools: Gtk.Box = Gtk.Template.Child()
    usage_place = Gtk.Template.Child()
    find_button: Gtk.Button = Gtk.Template.Child()
    copy_button: Gtk.Button = Gtk.Template.Child()
    ports_box: WrapBox = Gtk.Template.Child()
    changes_box: Gtk.Box = Gtk.Template.Child()
    changes_row: WrapBox = Gtk.Template.Child()
    changes: Gtk.Label = Gtk.Template.Child()
    undo_button: Gtk.Button = Gtk.Template.Child()
    show_button: Gtk.Button = Gtk.Template.Child()
    change_list: Gtk.Label = Gtk.Template.Child()
    ignored: Gtk.Label = Gtk.Template.Child()
    hosts_box: Gtk.Box = Gtk.Template.Child()
    hosts: Gtk.Label = Gtk.Template.Child()
    host_list: Gtk.Label = Gtk.Template.Child()
    save_button: Gtk.Button = Gtk.Template.Child()

    def __init__(self, entry: CallEntry, project: str | None) -> None:
        super().__init__()
        self.entry = entry
        self._project = project
        self._questions: list[ChatPermission] = []
        self._user_question: QuestionCard | None = None
        self._has_list = False
        self.output: TerminalView | None = None
        self.usage: UsageWatch | None = None
        self._stage: Stage | None = None
        # The report whose changes are listed.
        self._listed: Report | None = None
        self._clock = 0
        self._ports: list[tuple[int, str]] = []
        self._ports_seen_at = 0.0
        self._has_diff = False
        self.title.set_label(words.title(entry))
        whole = visible(entry.description)
        self.whole.set_label(words.bounded(whole))
        without_hyphens(self.whole, self.changes, self.change_list, self.hosts, self.host_list)
        if entry.call.name in (PLAN, ASK):
            # These are not code.
            self.title.remove_css_class("monospace")
            self.whole.remove_css_class("monospace")
        show_ellipsized_as_tooltip(self.title, self.status)
        # Commands and paths are written from left to right everywhere.
        for label in (self.whole, self.change_list):
            label.set_direction(Gtk.TextDirection.LTR)
        # The title shows only the beginning of these.
        self._is_long = ("\n" in whole or len(whole) > _LONG) and not entry.steps
        self.whole.set_visible(self._is_long)
        # Not through the template, which would keep the whole card alive.
        for button, method in (
            (self.header, self._on_header),
            (self.stop_button, self._on_stop),
            (self.find_button, self._on_find),
            (self.copy_button, self._on_copy),
            (self.undo_button, self._on_undo),
            (self.show_button, self._on_show),
            (self.save_button, self._on_save),
        ):
            button.connect("clicked", weakly(method))
        find = weakly(self._on_find)
        keys = Gtk.ShortcutController()
        keys.add_shortcut(
            Gtk.Shortcut.new(
                Gtk.ShortcutTrigger.parse_string("<Control>f"),
                Gtk.CallbackAction.new(lambda *_: bool(find())),
            )
        )
        self.add_controller(keys)
        self._handlers = [
            entry.connect("changed", weakly(self._on_changed)),
            entry.connect("output", weakly(self._on_output)),
        ]
        self._on_changed(entry)

    def forget(self) -> None:
        """Disconnect from the call, which outlives the card."""
        self._end_clock()
        for handler in self._handlers:
            self.entry.disconnect(handler)
        self._handlers = []

    @property
    def question(self) -> ChatPermission | None:
        """The open permission question, or the last one."""
        return self._questions[-1] if self._questions else None

    @property
    def has_question(self) -> bool:
        """Whether it shows a question, open or answered."""
        return self._user_question is not None or bool(self._questions)

    @property
    def open_question(self) -> ChatPermission | QuestionCard | None:
        """The question of either kind that is still to be answered."""
        for card in (self._user_question, self.question):
            if card is not None and card.is_open:
                return card
        return None

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
        # An integer: this state has a third value, so GTK does not take a boolean.
        self.header.update_state([Gtk.AccessibleState.EXPANDED], [int(is_open)])
        self._list_changes()
        self._show_hosts()

    # --- the state of the call -------------------------------------------------------------------

    def _on_changed(self, entry: CallEntry) -> None:
        self._show_status()
        self._show_questions()
        self._show_user_question()
        if entry.is_replaced and entry.is_open is None and self.is_open:
            self.open(is_open=False)
        if entry.stage is not self._stage:
            self._stage = entry.stage
            self._show_stage()
        elif entry.stage is Stage.RUNNING:
            # It has a process by now.
            self._begin_clock()
        self._show_changes()
        self._show_hosts()

    def _show_stage(self) -> None:
        entry = self.entry
        is_running = entry.stage is Stage.RUNNING
        # The question shows the command already, in larger type.
        self.header_box.set_visible(entry.stage is not Stage.ASKING)
        self.whole.set_visible(self._is_long and entry.stage is not Stage.ASKING)
        self.stop_button.set_visible(is_running)
        self.marks.set_visible_child_name("busy" if is_running else "icon")
        self.spinner.set_spinning(is_running)
        self._show_mark()
        if is_running:
            self.open(is_open=entry.is_open is not False)
            self._begin_clock()
        elif entry.stage is Stage.DONE:
            self._end_clock()
            self._show_ports()
            if self.usage is not None:
                self.usage.graph.set_visible(self.usage.graph.has_curve)
            if self.output is not None:
                self.output.finish()
            self._show_note()
            self._show_diff()
            if words.is_stopped(entry):
                # Stay open or closed: the user who stopped it was looking at it.
                entry.is_open = self.is_open if entry.is_open is None else entry.is_open
            fresh = entry.outcome is not None
            failed = fresh and not words.succeeded(entry) and not words.is_denied(entry)
            is_plan = bool(entry.steps) and words.succeeded(entry) and not entry.is_replaced
            self.open(is_open=failed or is_plan if entry.is_open is None else entry.is_open)
        self._show_whether_quiet()

    def _show_status(self) -> None:
        entry = self.entry
        parts = [words.tool(entry), words.status(entry)]
        if entry.stage is Stage.RUNNING:
            parts.append(words.clock(time.time() - entry.began_at))
        elif (diff := words.edit_diff(entry)) is not None:
            parts = [words.line_counts(diff)]
        elif (took := words.call_duration(entry)) is not None:
            parts.append(words.duration(took))
        text = " · ".join(filter(None, parts))
        self.status.set_label(text)
        name = _("{call}. {status}").format(call=words.title(entry), status=text)
        self.header.update_property([Gtk.AccessibleProperty.LABEL], [name])

    def _show_mark(self) -> None:
        icon, colour = words.mark(self.entry)
        for name in ("success", "dim-label"):
            self.mark.remove_css_class(name)
        self.mark.set_from_icon_name(icon)
        if colour:
            self.mark.add_css_class(colour)

    def _show_diff(self) -> None:
        """Show a small edit line by line, and name the file as the list of changes does."""
        diff = words.edit_diff(self.entry)
        if diff is None:
            return
        self.title.set_markup(words.file_markup(self.entry.description))
        if len(diff.lines) > _SMALL_DIFF or self._has_diff:
            return
        self._has_diff = True
        width = len(str(max(number for number, _sign, _text in diff.lines)))
        for number, sign, text in diff.lines:
            line = Gtk.Label(xalign=0, ellipsize=Pango.EllipsizeMode.END)
            line.set_label(f"{number:>{width}} {sign} {visible_line(text)}")
            line.set_direction(Gtk.TextDirection.LTR)
            line.add_css_class("monospace")
            line.add_css_class("added" if sign == "+" else "removed")
            self.diff_box.append(line)

    def _show_questions(self) -> None:
        for asked, card in zip(self.entry.asked, self._questions, strict=False):
            if card.is_open and asked.verdict is not None:
                card.show_verdict(asked.verdict)
            elif card.is_open and asked.is_over:
                card.show_over()
        # Earlier questions stay; a new question gets a new card.
        for asked in self.entry.asked[len(self._questions) :]:
            card = ChatPermission(asked.request)
            card.connect("answered", weakly(self._on_answered))
            if asked.verdict is not None:
                card.show_verdict(asked.verdict)
            elif asked.is_over:
                card.show_over()
            self._questions.append(card)
            self.question_place.append(card)

    def _show_user_question(self) -> None:
        entry = self.entry
        if entry.question is None:
            return
        if self._user_question is None:
            self._user_question = QuestionCard(entry.question)
            self._user_question.connect("replied", weakly(self._on_replied))
            self.question_place.append(self._user_question)
        if entry.stage is not Stage.ASKING and self._user_question.is_open:
            self._user_question.show_answer(entry.reply_text)

    def _show_changes(self) -> None:
        entry = self.entry
        if entry.report is not None:
            text = words.changed(entry.report, entry.states)
            self.undo_button.set_visible(words.can_undo(entry))
        elif entry.record is not None or entry.is_interrupted:
            text = words.stored_changes(entry)
            self.undo_button.set_visible(words.can_undo(entry))
        else:
            text = words.live_changes(entry.changed_count, entry.last_changed, self._project)
            self.undo_button.set_visible(False)
        # Keep the button, so that no other moves under the pointer.
        self.undo_button.set_label(_("Undone") if entry.is_undone else _("Undo"))
        self.undo_button.set_sensitive(not entry.is_undone)
        self.show_button.set_visible(bool(entry.run_id))
        self.changes.set_label(text)
        self.changes_row.set_visible(bool(text))
        ignored = words.ignored(entry)
        self.ignored.set_label(ignored)
        self.ignored.set_visible(bool(ignored))
        self.changes_box.set_visible(bool(text or ignored))
        for button in (self.undo_button, self.show_button):
            describe(button, in_sentences(words.title(entry), text))
        self._list_changes()

    def _list_changes(self) -> None:
        report = self.entry.report
        # Only when it is seen, and once: with 100,000 changes, this takes 0.3 s.
        if self.is_open and report is not self._listed:
            self._listed = report
            listed = words.change_lines(report, _MOST_LISTED) if report else []
            self.change_list.set_label("\n".join(listed))
        self.change_list.set_visible(bool(self.change_list.get_label()) and self.is_open)

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
            self.host_list.set_label("\n".join(words.host_lines(uses, _MOST_LISTED)))
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
        text = entry.stored_text or (localized(entry.outcome.text) if entry.outcome else "")
        if not kept and entry.stage is Stage.DONE:
            kept = text.encode("utf-8", "replace")
        self.output = TerminalView()
        self.output.connect("open-all", weakly(self._on_open_all))
        self.output_place.set_child(self.output)
        self.output_tools.set_visible(True)
        if kept:
            self.output.feed(kept)
        if entry.stage is Stage.DONE:
            self.output.finish()

    def _show_note(self) -> None:
        nothing = _("No output") if words.printed_nothing(self.entry) else ""
        notes = [nothing or self.entry.output_note, *words.remarks(self.entry)]
        text = "\n".join(filter(None, notes))
        self.note.set_label(text)
        self.note.set_visible(bool(text))
        self.output_place.set_visible(not nothing)
        self.output_tools.set_visible(self.output is not None and not nothing)

    def _on_output(self, entry: CallEntry, data: bytes) -> None:
        if self.output is not None:
            self.output.feed(data)
            self.output.open_all.set_visible(entry.output_file is not None)

    def _show_ports(self) -> None:
        """Offer the ports that the running command listens on."""
        ports, is_running = self.entry.ports, self.entry.stage is Stage.RUNNING
        found: list[tuple[int, str]] = []
        if ports is not None and is_running:
            urls = {one.port: one.url for one in ports.published}
            listening = ports.listening()[:_MOST_PORTS]
            found = [(port, urls.get(port, f"http://localhost:{port}")) for port in listening]
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
            button.connect("clicked", weakly(self._on_open_port), port)
            self.ports_box.add_group([button])
        self.ports_box.set_visible(bool(found))

    def _begin_clock(self) -> None:
        if not self._clock:
            self._clock = GLib.timeout_add(_TICK, weakly(self._on_tick))
        if self.usage is None and self.entry.pid > 0:
            self.usage = UsageWatch(self.entry.pid)
            self.usage_place.set_child(self.usage.graph)

    def _on_tick(self) -> bool:
        self._show_status()
        self._show_changes()
        if (now := time.monotonic()) > self._ports_seen_at + 1:
            self._ports_seen_at = now
            self._show_ports()
        return GLib.SOURCE_CONTINUE

    def _end_clock(self) -> None:
        if self._clock:
            GLib.source_remove(self._clock)
            self._clock = 0
        if self.usage is not None:
            self.usage.stop()

    # --- the user's actions ----------------------------------------------------------------------

    def _on_answered(self, card: ChatPermission, answer: Answer) -> None:
        self.emit("answered", card.request.id, answer)

    def _on_replied(self, card: QuestionCard, text: str) -> None:
        self.emit("replied", card.shown.id, text)

    def _on_open_all(self, _view: TerminalView) -> None:
        self.emit("open-output", self.entry)

    def _on_header(self, _button: Gtk.Button) -> None:
        # Cards that are made for this call later look the same.
        self.entry.is_open = not self.is_open
        self.open(is_open=self.entry.is_open)
        self._show_whether_quiet()

    def _show_whether_quiet(self) -> None:
        set_class(self, "quiet", is_quiet(self.entry))

    def _on_stop(self, _button: Gtk.Button) -> None:
        self.emit("stop")

    def _on_open_port(self, _button: Gtk.Button, port: int) -> None:
        self.emit("open-port", self.entry, port)

    def _on_find(self, *_args: object) -> bool:
        if self.output is None or not self.is_open:
            return Gdk.EVENT_PROPAGATE
        self.output.find()
        return Gdk.EVENT_STOP

    def _on_copy(self, _button: Gtk.Button) -> None:
        if self.output is not None:
            self.output.copy_all()

    def _on_undo(self, _button: Gtk.Button) -> None:
        self.emit("undo", self.entry.run_id)

    def _on_show(self, _button: Gtk.Button) -> None:
        self.emit("show-changes", self.entry.run_id)

    def _on_save(self, _button: Gtk.Button) -> None:
        self.emit("save-hosts", self.entry)
