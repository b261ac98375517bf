# SPDX-License-Identifier: GPL-3.0-or-later
"""The chat of a session: its messages and calls, and the composer below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from gi.repository import Adw, GObject, Gtk, Pango

from ...chat.messages import Role
from ...i18n import _
from ...text.visible import visible_line
from ..sessions import tool_text
from ..sessions.entries import CallEntry, ChatEntry, MessageEntry, NoticeEntry, Stage, SummaryEntry
from ..sessions.folding import CallGroup, fold, group_text, is_quiet
from ..widgets.boxes import hbox, icon_button, text_button, vbox
from ..widgets.clamp import ClampedBin
from ..widgets.keyboard import add_shortcut
from ..widgets.labels import set_class, wrapped
from ..widgets.signals import SignalHandlers, forward, signals
from ..widgets.weak import weakly
from .activity import ActivityLine
from .bars import EditBar, MissingFolderBar, QuestionBar, QueueBar, Suggestions, TourBar, TurnBar
from .composer import Composer, PictureChips
from .context_ring import ContextRing
from .find import FindBar, FoundPlace
from .focus import QuestionFocus
from .message_list import MessageList
from .todo import TodoBar

if TYPE_CHECKING:
    from ...chat.storage.history import FoundLine
    from ...sandbox.probe.probe import Capabilities
    from ..sessions.open_session import OpenSession
    from ..settings import Settings
    from .group import CallGroupRow
    from .row import MessageRow, NoticeRow
    from .tool_card import ToolCard

# Characters of a message in the name of its row.
_NAMED = 80


class ChatView(Gtk.Box):
    __gsignals__ = signals(
        {
            # A message or a !command.
            "send": (str,),
            "retry": (),
            # Send the last message again, as it was or with this text and these pictures.
            "resend": (str, object),
            # Undo what changed in files since a message, by the time at which it was sent.
            "restore": (float,),
            "stop-call": (object,),
            # Of a request for a permission, or of a question of the model.
            "answer": (str, object),
            "show-changes": (str,),
            "open-link": (str,),
            "open-output": (object,),
            "save-hosts": (object,),
            "open-port": (object, int),
            "open-terminal": (object,),
        }
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(orientation=Gtk.Orientation.VERTICAL)
        self.session: OpenSession | None = None
        self._handlers = SignalHandlers()
        # Calls and messages that have not ended.
        self._watched: dict[ChatEntry, int] = {}
        self._add_messages()
        self._add_composer(settings)
        add_shortcut(self, "<Control>f", self.find)
        add_shortcut(self, "<Alt>Up", self._go_back)
        add_shortcut(self, "<Alt>Down", self._go_on)
        self._add_rows_around_composer()

    def _add_messages(self) -> None:
        self._empty = Adw.StatusPage(
            icon_name="user-available-symbolic",
            title=_("What should we work on?"),
            vexpand=True,
            # It scrolls, but has nothing to use: no stop for the keyboard.
            can_focus=False,
        )
        self._empty.add_css_class("compact")
        self.suggestions = Suggestions()
        self.suggestions.connect("chosen", weakly(self._on_suggested))
        empty = vbox(self._empty, self.suggestions)
        self.activity = ActivityLine()
        last = Adw.Bin(child=self.activity, css_classes=["chat-row"])
        self.activity.bind_property("visible", last, "visible", GObject.BindingFlags.SYNC_CREATE)
        self.column = MessageList(self._make_row, last, row_name, _may_wait_for_user)
        self.column.set_vexpand(True)
        self.column.connect("notify::at-end", weakly(self._on_scrolled))
        self.column.connect("scrolled", weakly(self._on_looked))
        self._to_end = icon_button("go-bottom-symbolic", _("Go to the End"), "circular", "osd")
        # In the middle: the buttons of cards are at the side.
        middle, end = Gtk.Align.CENTER, Gtk.Align.END
        self._to_end.set_properties(halign=middle, valign=end, margin_bottom=12, visible=False)
        self._to_end.connect("clicked", weakly(self.column.scroll_to_end))
        # The messages, and the button above them.
        self.messages = Gtk.Overlay(child=self.column)
        self.messages.add_overlay(self._to_end)
        self.find_bar = FindBar(weakly(self._all_entries), weakly(self._show_found))
        self.find_bar.connect("notify::search-mode-enabled", weakly(self._on_find_bar))
        self._found: tuple[ChatEntry, str, int] | None = None
        self._found_place: FoundPlace | None = None
        self._found_row: Gtk.Widget | None = None
        self.append(self.find_bar)
        self._pages = Gtk.Stack(vexpand=True)
        self._pages.add_named(empty, "empty")
        self._pages.add_named(self.messages, "chat")
        self.append(self._pages)

    def _add_composer(self, settings: Settings) -> None:
        self.waiting = QuestionBar()
        self.waiting.connect("show-question", weakly(self._on_show_question))
        self.missing = MissingFolderBar()
        self.turn = TurnBar()
        for bar in (self.waiting, self.missing, self.turn):
            self.append(ClampedBin(bar))
        self.composer = Composer(settings)
        self.composer.connect("send", weakly(self._on_send))
        self.composer.chips.connect("changed", weakly(self._on_attached))
        self.composer.view.get_buffer().connect("changed", weakly(self._on_typed))
        self._questions = QuestionFocus(self.column, self._pages, self.composer, weakly(self._card))

    def _add_rows_around_composer(self) -> None:
        self._why_not = wrapped("", "caption", "dim-label", hexpand=True)
        self.connect_button = text_button(self, _("Connect a _Model"), "win.connect-model")
        self.connect_button.add_css_class("small-button")
        self._without = hbox(self._why_not, self.connect_button, spacing=12, visible=False)
        self.queue = QueueBar()
        self.todo = TodoBar()
        self.tour = TourBar()
        self.tour.connect("next", weakly(self._on_tour_next))
        self.editing = EditBar()
        self.editing.connect("cancel", weakly(self._on_cancel_edit))
        self.editing.connect("restore", weakly(self._on_restore_edited))
        self.context = ContextRing()
        self.composer.context_place.set_child(self.context)
        below = vbox(
            self.todo,
            self.tour,
            self.editing,
            self.queue,
            self._without,
            self.composer,
            spacing=6,
            margin_top=6,
            margin_bottom=6,
        )
        self.append(ClampedBin(below))

    def show_capabilities(self, found: Capabilities) -> None:
        sandboxed = _("Commands run in a sandbox. You can undo what they change.")
        asking = _("You will be asked before each command runs. You cannot undo its changes.")
        self._empty.set_description(sandboxed if found.can_wrap else asking)

    def show(self, session: OpenSession | None) -> None:  # type: ignore[override]
        if session is self.session:
            return
        self._end_edit()
        self._forget()
        self.session = session
        self.activity.show_session(session)
        if session is None:
            # The window shows another page, and the rest is shown anew for the next session.
            self.composer.text = ""
            self.composer.attached = ()
            self.queue.show_messages(())
            return
        listen = self._handlers.connect
        listen(session, "entries-changed", self._on_entries)
        listen(session, "state-changed", self._on_state)
        listen(session, "spent", self.context.show_session)
        listen(session, "queue-changed", self._on_queue)
        listen(session, "tour-changed", self._on_tour)
        self._on_queue(session)
        self.column.set_items(fold(session))
        for entry in session:
            self._watch(entry)
        self.composer.set_history(_history(session))
        self.composer.text = session.draft
        self.composer.attached = session.attached
        # Another agent is talked to elsewhere.
        for part in (self.composer, self.connect_button):
            part.set_visible(not session.leader)
        self._on_state(session)
        self._show_whether_asking()
        self._show_page()
        self.column.scroll_to_end()
        self._on_scrolled()

    @property
    def terminal_size(self) -> tuple[int, int]:
        """The rows and columns of a terminal that is as wide as a card."""
        layout = self.create_pango_layout("0" * 100)
        layout.set_attributes(Pango.AttrList.from_string('0 -1 font-desc "Monospace"'))
        letter = layout.get_pixel_size()[0] / 100
        width = self.composer.get_width() - 50
        return 24, max(20, int(width / letter))

    def set_can_send(self, why_not: str) -> None:
        self.composer.set_can_send(why_not)
        # Keep the "!" together with the word after it.
        self._why_not.set_label(why_not.replace("!", "!\N{WORD JOINER}"))
        self._without.set_visible(bool(why_not))

    def _on_suggested(self, _suggestions: Suggestions, text: str) -> None:
        draft = self.composer.draft
        self.composer.text = f"{text}\n\n{draft}" if draft else text
        self.composer.focus()
        if not draft:
            # Without a model, it stays in the composer.
            self.composer.send_button.emit("clicked")

    def focus_composer(self, *_args: object) -> None:
        self.composer.focus()

    @property
    def focused_call(self) -> str:
        """The id of the call whose question has the keyboard focus, or ""."""
        entry = self._questions.focused
        return entry.call.id if entry is not None else ""

    def show_call(self, call_id: str) -> None:
        """Scroll to the card of a call, and focus its question if it has one."""
        entry = self.session.entry_of(call_id) if self.session else None
        if entry is None:
            return
        block = self._block_of(entry)
        self.column.scroll_to(block)
        if (group := self._group_row(block)) is not None:
            group.open()
        card = self._card(entry)
        if card is None:
            return
        # Scroll last: moving the focus scrolls, too, to where the card was before.
        if (question := card.open_question) is not None:
            question.take_focus()
            self.column.show_whole(entry)
        else:
            card.header.grab_focus()
            self.column.scroll_to(block)

    def go_to_line(self, found: FoundLine) -> None:
        """Scroll to the message or the call that has a line."""
        if found.call_id:
            self.show_call(found.call_id)
            return
        for entry in self.session or ():
            if isinstance(entry, MessageEntry) and entry.at == found.at:
                self._show_place(entry, found.word)
                return

    def _go_to(self, entry: ChatEntry) -> bool:
        """Go to a call, or several; return whether it is one."""
        if isinstance(entry, CallGroup):
            if not self.column.is_in_view(entry):
                self.column.scroll_to(entry)
            if (group := self._group_row(entry)) is not None:
                group.header.grab_focus()
        elif isinstance(entry, CallEntry):
            card = self._card(entry)
            if card is None or not self.column.is_in_view(entry):
                self.show_call(entry.call.id)
            elif (question := card.open_question) is not None:
                question.take_focus()
            else:
                card.header.grab_focus()
        return isinstance(entry, CallEntry | CallGroup)

    def _go_back(self) -> bool:
        """Go to the call before the focused one."""
        items, place = self._focused_place()
        return any(self._go_to(item) for item in reversed(items[:place]))

    def _go_on(self) -> None:
        """Go to the next call, or from the last one to the composer."""
        items, place = self._focused_place()
        if not any(self._go_to(item) for item in items[place + 1 :]):
            self.composer.focus()

    def _focused_place(self) -> tuple[list[ChatEntry], int]:
        items, focused = list(self.column.items), self.column.focused_item
        return items, len(items) if focused is None else items.index(focused)

    # --- finding -------------------------------------------------------------------------------

    def find(self) -> bool:
        """Open the search bar; return whether there is something to search."""
        if self.session is None or not self.session.entries:
            return False
        self.find_bar.find()
        return True

    def _on_find_bar(self, bar: FindBar, _property: GObject.ParamSpec) -> None:
        """Give the keyboard back: GTK would give it to the first message, and scroll there."""
        if not bar.get_search_mode() and bar.get_focus_child() is not None:
            self.composer.focus()

    def _all_entries(self) -> Iterable[ChatEntry]:
        """Return everything in the session; the column shows some of it folded."""
        return self.session or ()

    def _show_found(self, entry: ChatEntry | None, text: str, which: int) -> None:
        if self._found_row is not None:
            self._found_row.remove_css_class("found")
            self._found_row = self._found = None
        self._mark(None)
        if entry is None:
            return
        if (row := self._show_place(entry, text, which)) is not None:
            row.add_css_class("found")

    def _show_place(self, entry: ChatEntry, text: str, which: int = 0) -> Gtk.Widget | None:
        block = self._block_of(entry)
        if (group := self._group_row(block)) is not None:
            group.open()
        self._found = (block, text, which)
        self._mark(self.column.scroll_to(*self._found))
        self._found_row = self.column.row_of(block)
        return self._found_row

    def _mark(self, place: FoundPlace | None) -> None:
        if self._found_place is not None:
            self._found_place.unmark()
        self._found_place = place
        if place is not None:
            place.mark()

    def _on_settled(self, row: MessageRow) -> None:
        if self._found is not None and row.get_parent() is self._found_row:
            self._mark(self.column.scroll_to(*self._found))

    # --- rows ----------------------------------------------------------------------------------

    def _make_row(self, entry: ChatEntry) -> Gtk.Widget:
        content = self._make_content(entry)
        row = Adw.Bin(child=content, css_classes=["chat-row"])
        if isinstance(entry, CallEntry):
            set_class(row, "asks", entry.stage is Stage.ASKING)
        return row

    def _make_content(self, entry: ChatEntry) -> Gtk.Widget:
        # Imported here: the first frame needs no Markdown. See window/startup.py.
        from .row import MessageRow, NoticeRow, SummaryRow

        row: Gtk.Widget
        if isinstance(entry, CallGroup):
            from .group import CallGroupRow

            row = CallGroupRow(entry, self._make_content)
        elif isinstance(entry, MessageEntry):
            row = MessageRow(entry, self.session.project if self.session else None)
            forward(row, "open-link", self)
            forward(row, "restore", self, "restore", entry.at)
            forward(row, "retry", self, "resend", "", ())
            row.connect("edit", weakly(self._on_edit))
            row.connect("settled", weakly(self._on_settled))
        elif isinstance(entry, CallEntry):
            from .tool_card import ToolCard

            row = ToolCard(entry, self.session.project if self.session else None)
            for name in GObject.signal_list_names(ToolCard):
                forward(row, name, self)
        elif isinstance(entry, SummaryEntry):
            row = SummaryRow(entry)
        else:
            assert isinstance(entry, NoticeEntry)
            row = NoticeRow(entry)
            row.connect("retry", weakly(self._on_retry))
        return row

    def _forget(self) -> None:
        self._handlers.disconnect()
        for entry in tuple(self._watched):
            self._unwatch(entry)
        self._questions.forget()
        self.find_bar.set_search_mode(False)
        self.column.set_items([])

    def _on_typed(self, _buffer: Gtk.TextBuffer) -> None:
        if self.session is not None:
            self.session.draft = self.composer.draft

    def _watch(self, entry: ChatEntry) -> None:
        if isinstance(entry, CallEntry) and entry.stage is not Stage.DONE:
            self._watched[entry] = entry.connect("changed", weakly(self._on_call_changed))
            self._on_call_changed(entry)
        elif isinstance(entry, MessageEntry) and entry.is_growing:
            self._watched[entry] = entry.connect("changed", weakly(self._on_message_changed))

    def _unwatch(self, entry: ChatEntry) -> None:
        entry.disconnect(self._watched.pop(entry))

    def _on_message_changed(self, entry: MessageEntry) -> None:
        self.column.rename(entry)
        if not entry.is_growing:
            self._unwatch(entry)
            self._fold()

    def _show_page(self) -> None:
        filled = self.session is not None and bool(self.session.entries)
        self.suggestions.set_visible(bool(self.session and self.session.project))
        self._pages.set_visible_child_name("chat" if filled else "empty")

    # --- events ----------------------------------------------------------------------------------

    def _on_entries(self, _session: OpenSession, new: Sequence[ChatEntry]) -> None:
        self._fold()
        for entry in new:
            self._watch(entry)
        self._show_page()
        if any(_is_from_user(entry) for entry in new):
            self.column.scroll_to_end()

    def _fold(self) -> None:
        """Show the last turn, with quiet calls in groups. Nothing before it can change."""
        entries, items = self.session.entries if self.session else [], self.column.items
        first = next((n for n in reversed(range(len(entries))) if _is_from_user(entries[n])), 0)
        start = items.index(entries[first]) if first and entries[first] in items else 0
        before = list(items[start:])
        after = fold(entries[first:] if start else entries)
        focused = self.column.focused_item
        groups = [item for item in before if isinstance(item, CallGroup)]
        for place, block in enumerate(after):
            if not isinstance(block, CallGroup):
                continue
            calls = set(block.entries)
            known = next((one for one in groups if not calls.isdisjoint(one.entries)), None)
            if known is not None:
                # Its row stays, open or not.
                groups.remove(known)
                known.replace(block.entries)
                after[place] = known
        same = 0
        while same < min(len(before), len(after)) and before[same] is after[same]:
            same += 1
        rest = set(after[same:])
        for place in reversed(range(start + same, start + len(before))):
            if items[place] not in rest:
                self.column.remove_at(place)
        for place, block in enumerate(after[same:], start + same):
            if place >= len(self.column.items) or self.column.items[place] is not block:
                self.column.insert(place, block)
        if isinstance(focused, CallEntry) and focused not in rest:
            block = self._block_of(focused)
            if isinstance(block, CallGroup):
                self._go_to(block)

    def _block_of(self, entry: ChatEntry) -> ChatEntry:
        """Return the group that a call is folded into, or the call itself."""
        for block in reversed(self.column.items):
            if isinstance(block, CallGroup) and entry in block.entries:
                return block
        return entry

    def _group_row(self, block: ChatEntry) -> CallGroupRow | None:
        row = self.column.row_of(block) if isinstance(block, CallGroup) else None
        return cast("CallGroupRow", row.get_child()) if isinstance(row, Adw.Bin) else None

    def _on_call_changed(self, entry: CallEntry) -> None:
        if entry.stage is Stage.DONE:
            self._unwatch(entry)
        self._questions.note(entry)
        self._show_whether_asking()
        if (row := self.column.row_of(entry)) is not None:
            set_class(row, "asks", entry.stage is Stage.ASKING)
        self.column.rename(entry)
        if entry.steps and self.session is not None:
            self.todo.show_steps(self.session.steps, is_busy=self.session.is_busy)
        if is_quiet(entry):
            self._fold()
        self._on_scrolled()

    def _show_whether_asking(self) -> None:
        """Dim everything but the question while one is open."""
        asking = self.session.asking() if self.session is not None else []
        set_class(self.column, "has-question", bool(asking))

    def _card(self, entry: CallEntry) -> ToolCard | None:
        if (group := self._group_row(self._block_of(entry))) is not None:
            return cast("ToolCard | None", group.row_of(entry))
        row = self.column.row_of(entry)
        return cast("ToolCard", row.get_child()) if isinstance(row, Adw.Bin) else None

    def _on_state(self, session: OpenSession) -> None:
        if session.is_busy:
            self._end_edit()
        self.composer.set_busy(session.is_busy)
        self.context.show_session(session)
        self.todo.show_steps(session.steps, is_busy=session.is_busy)
        self._on_tour(session)

    def _on_tour(self, session: OpenSession) -> None:
        if session.tour_stop:
            from ...chat.providers.tour.model import TourModel

            self.tour.show_stop(session.tour_stop, len(TourModel.stops))
        elif session.is_tour_over:
            self.tour.show_end()
        else:
            self.tour.set_visible(False)

    def _on_tour_next(self, _bar: TourBar) -> None:
        if self.session is not None:
            self.session.continue_tour()
        self.composer.focus()

    def _on_looked(self, _column: MessageList) -> None:
        self._questions.look()
        self._on_scrolled()

    def _on_scrolled(self, *_args: object) -> None:
        hidden = self._unseen_questions()
        asking = self.session.asking() if self.session else []
        # It must not cover the buttons of a question.
        self._to_end.set_visible(not self.column.at_end and hidden == asking)
        is_below = any(not self.column.is_above(entry) for entry in hidden[:1])
        self.waiting.show_count(len(hidden), is_below=is_below)

    def _on_show_question(self, _bar: QuestionBar) -> None:
        hidden = self._unseen_questions()
        if hidden:
            self.show_call(hidden[0].call.id)

    def _unseen_questions(self) -> list[CallEntry]:
        asking = self.session.asking() if self.session is not None else []
        return [entry for entry in asking if not self.column.is_in_view(entry)]

    def _on_send(self, _composer: Composer, text: str) -> None:
        if self.editing.get_visible() and not text.startswith("!"):
            pictures = self.composer.take_pictures()
            self.editing.set_visible(False)
            # What was unsent before stays so.
            self.composer.text, self.composer.attached = self.editing.before
            self.emit("resend", text, pictures)
        else:
            self.emit("send", text)

    def _on_edit(self, row: MessageRow) -> None:
        if not self.editing.get_visible():
            self.editing.before = (self.composer.draft, self.composer.attached)
        self.editing.sent_at = row.entry.at
        self.editing.restore_button.set_visible(bool(self.session and self.session.project))
        self.editing.set_visible(True)
        self.composer.text = row.entry.text
        self.composer.attached = row.entry.pictures
        self.composer.focus()

    def _on_restore_edited(self, bar: EditBar) -> None:
        self.emit("restore", bar.sent_at)

    def _on_cancel_edit(self, _bar: EditBar) -> None:
        self._end_edit()
        self.composer.focus()

    def _end_edit(self) -> None:
        if self.editing.get_visible():
            self.editing.set_visible(False)
            self.composer.text, self.composer.attached = self.editing.before

    def _on_retry(self, _row: NoticeRow) -> None:
        goes_on = self.session is not None and self.session.conversation.owes_reply
        self.emit(*(("retry",) if goes_on else ("resend", "", ())))

    def _on_attached(self, chips: PictureChips) -> None:
        if self.session is not None:
            self.session.attached = chips.attached

    def _on_queue(self, session: OpenSession) -> None:
        self.queue.show_messages(session.conversation.queued)


def row_name(entry: ChatEntry) -> str:
    if isinstance(entry, CallGroup):
        return group_text(entry.calls)
    if isinstance(entry, CallEntry):
        return tool_text.title(entry)
    if isinstance(entry, MessageEntry):
        who = _("You") if entry.role is Role.USER else entry.model or _("Agent")
        # Translators: who said something, and how it begins.
        start = _start(entry.text)
        return _("{who}: {text}").format(who=who, text=start) if start else who
    assert isinstance(entry, NoticeEntry | SummaryEntry)
    return _start(entry.text)


def _start(text: str) -> str:
    # Markdown is for the eye.
    said = text[: 2 * _NAMED].replace("`", "").replace("**", "").lstrip("# ")
    line = " ".join(said[: _NAMED + 1].split())
    return visible_line(line if len(said) <= _NAMED else f"{line[: _NAMED - 1].rstrip()}…")


def _history(entries: Iterable[ChatEntry]) -> list[str]:
    """Return what the user typed in this session."""
    found = []
    for entry in entries:
        if isinstance(entry, MessageEntry) and entry.role is Role.USER:
            found.append(entry.text)
        elif isinstance(entry, CallEntry) and entry.own:
            found.append(f"!{entry.description}")
    return found


def _may_wait_for_user(entry: ChatEntry) -> bool:
    """Return whether a call asks, or is in a terminal, where it may wait for a line."""
    return isinstance(entry, CallEntry) and bool(entry.stage is Stage.ASKING or entry.terminal)


def _is_from_user(entry: ChatEntry) -> bool:
    """Return whether the user wrote it: a message, or a command of their own."""
    if isinstance(entry, MessageEntry):
        return entry.role is Role.USER
    return isinstance(entry, CallEntry) and entry.own
