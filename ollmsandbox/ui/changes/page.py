# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of one changed file: its diff, and buttons to apply, undo or discard it; and of several
files below each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

from gi.repository import Adw, Gtk

from ...i18n import _, ngettext
from ...project.change import PENDING_STATES, Kind, Recorded, State, Type
from ...project.projects import ProjectManager
from ...text.diff import HunkState
from ...text.visible import visible_line, visible_path
from ..diff.images import ImagePair
from ..diff.model import DiffSection
from ..diff.view import DiffView
from ..resources import template
from ..settings import Settings
from ..widgets.actions import Action, ActionButton
from ..widgets.boxes import hbox, set_margins, vbox
from ..widgets.labels import (
    decorative_icon,
    file_markup,
    set_accessible_name,
    show_ellipsized_as_tooltip,
    show_text,
    wrapped,
)
from ..widgets.readable import ignored_files, number
from ..widgets.signals import forward, signals
from ..widgets.tasks import Tasks
from ..widgets.weak import weakly
from ..widgets.work_bar import WorkBar
from ..widgets.wrap_box import WrapBox
from .actions import ShownChange, Side, act_on_hunks, look
from .model import RunData, load_runs
from .text import file_actions, hunk_text, note_text, page_text, pill_label
from .versions import EarlierVersions

# Of more files, the list shows each one by itself.
_MOST_FILES = 40


@Gtk.Template(filename=template("changes/page"))
class ChangePage(Gtk.Box):
    __gtype_name__ = "OllmChangePage"

    # "open": the full path of the file, for an editor.
    __gsignals__ = signals({"back": (), "act": (str,), "changed": (), "open": (object,)})

    back_button: Gtk.Button = Gtk.Template.Child()
    title_box: Gtk.Box = Gtk.Template.Child()
    path: Gtk.Label = Gtk.Template.Child()
    pill: Gtk.Label = Gtk.Template.Child()
    tools: Adw.Bin = Gtk.Template.Child()
    editor_button: Gtk.Button = Gtk.Template.Child()
    about: Gtk.Label = Gtk.Template.Child()
    conflict: Gtk.Label = Gtk.Template.Child()
    versions_button: Gtk.MenuButton = Gtk.Template.Child()
    verbs: WrapBox = Gtk.Template.Child()
    # The buttons of a conflict, below what they are about.
    choices: WrapBox = Gtk.Template.Child()
    sides: Gtk.Box = Gtk.Template.Child()
    theirs_button: Gtk.ToggleButton = Gtk.Template.Child()
    mine_button: Gtk.ToggleButton = Gtk.Template.Child()
    merged_button: Gtk.ToggleButton = Gtk.Template.Child()
    place: Adw.Bin = Gtk.Template.Child()

    def __init__(
        self,
        manager: ProjectManager,
        settings: Settings,
        run: RunData,
        recorded: Recorded,
        tasks: Tasks,
        progress: WorkBar,
        *,
        is_one_of_many: bool = False,
    ) -> None:
        """`is_one_of_many` files stand below each other, and what is around them scrolls."""
        super().__init__()
        self._is_one_of_many = is_one_of_many
        self.back_button.set_visible(not is_one_of_many)
        self._manager = manager
        self._settings = settings
        self.run = run
        self.recorded = recorded
        self._tasks = tasks
        self._progress = progress
        self._verb_buttons: list[ActionButton] = []
        self._shown: ShownChange | None = None
        self._texts: tuple[str, str] | None = None
        # What is compared if the file is in conflict.
        self._side = Side.THEIRS
        # The section that the user just acted on. It gets the focus again.
        self._part: int | None = None
        # The number of started look-ups.
        self._looks = 0
        show_ellipsized_as_tooltip(self.path)
        # Not through the template, which would keep the page alive for ever.
        forward(self.back_button, "clicked", self, "back")
        self.editor_button.connect("clicked", weakly(self._on_open))
        for side, button in (
            (Side.THEIRS, self.theirs_button),
            (Side.MINE, self.mine_button),
            (Side.MERGED, self.merged_button),
        ):
            button.connect("toggled", weakly(self._on_side), side)
            label = button.get_child()
            assert isinstance(label, Gtk.Label)
            set_accessible_name(button, label.get_label())
        self.diff: DiffView | None = None
        self._earlier = EarlierVersions(manager, run, recorded, tasks, progress)
        self._earlier.connect("restored", weakly(self._on_restored))
        self._earlier.connect("counted", weakly(self._on_counted))
        self.versions_button.set_popover(self._earlier)
        self._show_about()
        tasks.start(self.look())
        self._earlier.refresh()

    def set_busy(self, is_busy: bool) -> None:
        for button in self._verb_buttons:
            button.set_busy(is_busy)
        if self.diff is not None:
            self.diff.set_busy(is_busy)
        self._earlier.set_busy(is_busy)

    def focus(self) -> None:
        """Focus what does no harm: of a conflict, the button that keeps the user's edit."""
        safe = [button for button in self._verb_buttons if button.action.name == "keep"]
        if not (safe and safe[0].grab_focus()):
            self.back_button.grab_focus()

    async def look(self) -> None:
        """Read and show the current state. Only the result of the latest call counts."""
        self._looks += 1
        number = self._looks
        # Large files take a while. Later, the old content stays visible meanwhile.
        with self._progress.during(patience=200) if self._shown is None else nullcontext():
            shown = await asyncio.to_thread(look, self._manager, self.run, self.recorded.number)
        if number != self._looks:
            return
        try:
            self._show_found(shown)
        finally:
            self._part = None

    def _show_found(self, shown: ShownChange | None) -> None:
        if shown is None:
            self.emit("back")
            return
        before, self._shown = self._shown, shown
        if before is not None and before.content == shown.content:
            # Keep the scroll position.
            return
        self.recorded = shown.recorded
        self._show_about()
        self._show_versions(shown)

    def _show_about(self) -> None:
        item = self.recorded
        self.path.set_markup(file_markup(visible_path(item.change.path)))
        show_text(self.pill, pill_label(item))
        show_text(self.about, page_text(item))
        found = self._shown.conflict if self._shown else None
        self.conflict.set_visible(item.state is State.CONFLICT)
        if found is not None and not found.has_base:
            self.conflict.set_label(
                _(
                    "You also edited this file. Your version is unchanged. Below, lines with - "
                    "are yours, and lines with + are from the agent."
                )
            )
        actions = file_actions(item, found.edited_at if found else None)
        if actions == [button.action for button in self._verb_buttons]:
            return
        had_focus = any(button.has_focus() for button in self._verb_buttons)
        for button in self._verb_buttons:
            button.unparent()
        self._verb_buttons = []
        for action in actions:
            button = ActionButton(action, is_busy=self._progress.is_working)
            if action.name == "apply" and not item.is_held:
                button.add_css_class("suggested-action")
            button.connect("clicked", weakly(self._on_verb), action.name)
            self._verb_buttons.append(button)
        is_conflict = item.state is State.CONFLICT
        self.choices.set_visible(is_conflict)
        self.choices.clear()
        self.verbs.set_groups((self.title_box,))
        if is_conflict:
            for button in self._verb_buttons:
                self.choices.add_group([button])
        else:
            self.verbs.add_group(self._verb_buttons)
        if had_focus and (is_conflict or not self._verb_buttons[0].grab_focus()):
            self.focus()

    def _show_versions(self, shown: ShownChange) -> None:
        item = shown.recorded
        sides = shown.conflict.texts if shown.conflict else {}
        self.sides.set_visible(bool(sides))
        self.mine_button.set_visible(Side.MINE in sides)
        notes = [note_text(v.note) for v in (shown.before, shown.after) if v.note]
        texts = None
        had_focus = self.place.get_focus_child() is not None
        if item.change.type is not Type.FILE and item.change.kind is not Kind.REPLACED:
            self.place.set_child(_sentence(_what_it_is(item)))
        elif sides:
            texts = sides[self._side]
            self._show_diff(texts)
        elif notes:
            self.place.set_child(_sentence(notes[0]))
        elif (texts := shown.texts) is not None:
            self._show_diff(texts)
        else:
            self.place.set_child(ImagePair(shown.old_data, shown.new_data))
        self._texts = texts
        if texts is None:
            self.diff = None
            self.tools.set_child(None)
        there = item.state is State.APPLIED or item.change.kind is Kind.MODIFIED
        is_deleted = item.change.kind is Kind.DELETED
        self.editor_button.set_visible(texts is not None and there and not is_deleted)
        # The focused widget is gone; GTK would move the focus to an arbitrary one.
        if had_focus and self.place.get_focus_child() is None:
            self.focus()

    def _show_diff(self, texts: tuple[str, str]) -> None:
        if self.diff is not None and texts == self._texts:
            # The same text: keep the scroll position.
            self.diff.refresh_actions()
            return
        # Of one of many files, only a few hunks are shown at first.
        self.diff = diff = DiffView(*([12] if self._is_one_of_many else []))
        diff.is_whole = self._is_one_of_many
        # One row has all buttons.
        self.tools.set_child(diff.take_bar())
        diff.set_busy(self._progress.is_working)
        diff.set_section_actions(weakly(self._section_verbs))
        diff.connect("section-action", weakly(self._on_part))
        diff.prefers_two = self._settings.get_boolean("side-by-side")
        if self._part is not None:
            diff.connect("loaded", _go_to, self._part)
        self.place.set_child(diff)
        diff.show_texts(*texts, self.recorded.change.path)

    def _section_verbs(self, section: DiffSection) -> list[Action]:
        item = self.recorded
        is_conflict = item.state is State.CONFLICT
        if item.change.kind is not Kind.MODIFIED or (is_conflict and not self._shows_hunks):
            return []
        states = self._shown.hunk_states(section.group) if self._shown else set()
        undo, apply = Action("undo", _("Undo")), Action("apply", _("Apply"))
        discard = Action("discard", _("Discard"))
        is_pending = item.state in PENDING_STATES
        if HunkState.CHANGED in states:
            return [
                Action("", _("You also edited these lines") if is_conflict else _("Edited since"))
            ]
        if states == {HunkState.DISCARDED}:
            return [apply, discard._replace(is_done=True), Action("", _("Discarded"))]
        if (is_pending or item.state is State.DISCARDED) and states == {HunkState.PRESENT}:
            return [apply._replace(is_done=True), undo, Action("", _("Applied"))]
        if is_conflict:
            return [apply]
        if is_pending:
            return [apply, discard]
        if HunkState.UNDONE in states:
            return [undo._replace(is_done=True), Action("redo", _("Redo"))]
        return [undo] if item.state is State.APPLIED else []

    @property
    def _shows_hunks(self) -> bool:
        """Whether the sections are hunks of the command's change."""
        conflict = self._shown.conflict if self._shown else None
        return conflict is None or (conflict.has_base and self._side is Side.THEIRS)

    def _on_side(self, button: Gtk.ToggleButton, side: Side) -> None:
        if button.get_active() and self._shown is not None:
            self._side = side
            self._show_versions(self._shown)

    def _on_part(self, diff: DiffView, index: int, verb: str) -> None:
        shown = self._shown
        # Not at the same time: the position of the second hunk depends on the first.
        if shown is None or diff.diff is None or self._progress.is_working:
            return
        group = diff.diff.sections[index].group
        at_work = self._progress.working()

        async def work() -> None:
            with at_work:
                done = await asyncio.to_thread(
                    partial(act_on_hunks, self._manager, verb, shown, self.run, group)
                )
            self._tasks.tell(hunk_text(verb, list(done.problems)))
            self._part = index
            self.emit("changed")
            await self.look()

        self._tasks.start(work()).add_done_callback(lambda _task: at_work.close())

    def _on_verb(self, _button: Gtk.Button, verb: str) -> None:
        if not self._progress.is_working:
            self.emit("act", verb)

    def _on_restored(self, _versions: EarlierVersions) -> None:
        self.emit("changed")
        self._tasks.start(self.look())

    def _on_counted(self, _versions: EarlierVersions, count: int) -> None:
        self.versions_button.set_visible(count > 0)

    def _on_open(self, _button: Gtk.Button) -> None:
        change = self.recorded.change
        self.emit("open", f"{change.root}/{change.path}")


def _go_to(diff: DiffView, part: int) -> None:
    """Focus the section, once: more sections may be loaded later."""
    diff.disconnect_by_func(_go_to)
    diff.focus_change(part)


def _sentence(text: str) -> Gtk.Widget:
    label = wrapped(text, "dim-label", xalign=0.5, justify=Gtk.Justification.CENTER)
    set_margins(label, 18)
    return label


def _what_it_is(item: Recorded) -> str:
    change = item.change
    if change.type is Type.LINK:
        return _("Link to {}").format(visible_line(change.target or ""))
    if change.mode is not None and change.old_mode is not None:
        return _("Folder permissions changed from {old:04o} to {new:04o}.").format(
            old=change.old_mode & 0o7777, new=change.mode & 0o7777
        )
    return _("Folder")


class FilesPage(Gtk.Box):
    """All files that several runs changed: one below the other, each with its header."""

    __gsignals__ = signals({"back": ()})

    def __init__(
        self,
        manager: ProjectManager,
        run_ids: Sequence[str],
        tasks: Tasks,
        make_page: Callable[[RunData, Recorded], ChangePage],
    ) -> None:
        super().__init__(orientation=Gtk.Orientation.VERTICAL)
        self._manager = manager
        self._make_page = weakly(make_page)
        self.pages: list[ChangePage] = []
        # Not an Adw.ButtonContent: a screen reader would say its words twice.
        label = Gtk.Label(label=_("All Changes"), css_classes=["heading"])
        content = hbox(decorative_icon("go-previous-symbolic"), label, spacing=6)
        self._back = Gtk.Button(child=content, css_classes=["flat"], halign=Gtk.Align.START)
        set_accessible_name(self._back, _("All Changes"))
        self._back.set_margin_start(6)
        self._back.set_margin_top(6)
        forward(self._back, "clicked", self, "back")
        self._files = vbox(spacing=12, margin_bottom=12)
        self._scrolled = Gtk.ScrolledWindow(
            child=self._files, vexpand=True, hscrollbar_policy=Gtk.PolicyType.NEVER
        )
        set_accessible_name(self._scrolled, _("Changed files"))
        self.append(self._back)
        self.append(self._scrolled)
        tasks.start(self._load(tuple(run_ids)))

    def set_busy(self, is_busy: bool) -> None:
        for page in self.pages:
            page.set_busy(is_busy)

    def focus(self) -> None:
        self._back.grab_focus()

    async def look(self) -> None:
        for page in self.pages:
            await page.look()

    async def _load(self, run_ids: tuple[str, ...]) -> None:
        runs = await asyncio.to_thread(partial(load_runs, self._manager, run_ids))
        files = [(run, item) for run in runs for item in run.items]
        for run, item in files[:_MOST_FILES]:
            page = self._make_page(run, item)
            if page is None:  # the widget that makes them is gone
                return
            self.pages.append(page)
            self._files.append(page)
            # One after the other, so that the window is drawn meanwhile.
            await asyncio.sleep(0)
        left = len(files) - _MOST_FILES
        text = ngettext("{} more file is in the list.", "{} more files are in the list.", left)
        lines = [text.format(number(left))] if left > 0 else []
        ignored = {(item.change.root, item.change.path) for run in runs for item in run.ignored}
        for line in [*lines, ignored_files(len(ignored))] if ignored else lines:
            self._files.append(wrapped(line, "dim-label", margin_start=12))
