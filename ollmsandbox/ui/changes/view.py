# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of a project's changes: by run, newest first, with pending ones on top."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from gi.repository import Adw, Gdk, GLib, GObject, Gtk

from ...i18n import _, ngettext
from ..resources import template
from ..widgets.dialogs import confirm
from ..widgets.focus import contains_focus, focus_around, window_around
from ..widgets.keyboard import on_key
from ..widgets.labels import children_of, set_class
from ..widgets.readable import ignored_files, number
from ..widgets.scheduling import LazyModule
from ..widgets.signals import forward, signals
from ..widgets.tasks import LatestOnly, Tasks, as_task
from ..widgets.weak import weakly
from ..widgets.work_bar import WorkBar, disable_unless_focused
from ..widgets.wrap_box import WrapBox
from .model import ChangeList, FileItem, FoldItem, RunData, RunItem, RunSearch, are_same, load
from .rows import FileRow, FoldRow, IgnoredRow, LineCounts, RunRow
from .text import along_text, busy_text, empty_text, result_text

if TYPE_CHECKING:
    from ...project.change import Recorded, Report
    from ...project.projects import ProjectManager
    from ...project.review import Review
    from ..settings import Settings
    from . import actions
    from .actions import ActionResult
    from .page import ChangePage, FilesPage
else:
    actions = LazyModule("ollmsandbox.ui.changes.actions")


R = TypeVar("R", FileRow, FoldRow)
T = TypeVar("T")


class RunFocus:
    """Gives the row of a run, or the one of its files that git ignores, the keyboard focus.

    The list may make the row anew several times, before and after it got the focus. So a request
    lasts until the user presses a key or a button, or the run is no longer listed.
    """

    def __init__(self) -> None:
        # Which run's row, of which class, and whether the first of its buttons gets it.
        self._request: tuple[str, type[FoldRow], bool] | None = None

    def request(self, run_id: str, kind: type[FoldRow] = RunRow, *, verbs: bool = False) -> None:
        """Give the focus to the row of this run, each time that the list makes it."""
        self._request = (run_id, kind, verbs)

    def forget(self, *_args: object) -> bool:
        self._request = None
        return Gdk.EVENT_PROPAGATE

    def forget_missing(self, listed: Collection[str]) -> None:
        """Drop the request for a run that is not listed, lest it gets the focus later."""
        if self._request is not None and self._request[0] not in listed:
            self._request = None

    def forget_on_input(self, window: Gtk.Window) -> None:
        """Drop the request when the user presses a key or a button of the mouse in the window."""
        on_key(window, self.forget, phase=Gtk.PropagationPhase.CAPTURE)
        clicks = Gtk.GestureClick(propagation_phase=Gtk.PropagationPhase.CAPTURE, button=0)
        clicks.connect("pressed", weakly(self.forget))
        window.add_controller(clicks)

    def watch(self, row: FoldRow) -> None:
        """Give a new row the focus once it is on the screen, if that was requested."""
        if self._request is not None and self._request[:2] == (row.item.data.id, type(row)):
            row.connect("map", weakly(self._on_map), self._request)

    def _on_map(self, row: FoldRow, request: tuple[str, type[FoldRow], bool]) -> None:
        # Later: the list is being laid out, and would scroll meanwhile.
        GLib.timeout_add(0, weakly(self._focus), row, request)

    def _focus(self, row: FoldRow, request: tuple[str, type[FoldRow], bool]) -> bool:
        if self._request is request and row.get_mapped():
            row.focus(verbs=request[2])
        return GLib.SOURCE_REMOVE


def focus_file(view: Gtk.ListView, changes: ChangeList, run_id: str, number: int) -> None:
    """Scroll to a file, and focus the widget that GTK puts around its row."""
    place = changes.place_of_file(run_id, number)
    if place is None:
        return
    view.activate_action("list.scroll-to-item", GLib.Variant.new_uint32(place))

    def focus() -> bool:
        for row in rows_of(view, FileRow):
            around = row.get_parent()
            is_it = (row.item.run.id, row.item.recorded.number) == (run_id, number)
            if is_it and around is not None and view.get_mapped():
                around.grab_focus()
        return GLib.SOURCE_REMOVE

    GLib.timeout_add(0, focus)


def rows_of(view: Gtk.ListView, kind: type[R]) -> Iterator[R]:
    for around in children_of(view):
        row = around.get_first_child()
        if isinstance(row, kind):
            yield row


def name_around(row: FoldRow | FileRow) -> None:
    """Name the widget that GTK puts around the row: that one gets the focus."""
    around = row.get_parent()
    assert around is not None
    around.update_property([Gtk.AccessibleProperty.LABEL], [row.name])


# Runs that are listed at first, and that "Show Older" adds.
_PIECE = 40
# Seconds between two steps of filling the list.
_PAUSE = 0.01
# Seconds until the changes are read. Several calls in a row read once, and a frame that is due
# comes first: the one that shows the pane took twice as long beside a thread that reads 20,000.
_REST = 0.02


@Gtk.Template(filename=template("changes/view"))
class ChangesView(Gtk.Box):
    __gtype_name__ = "OllmChangesView"

    __gsignals__ = signals(
        {
            # The number of pending changes.
            "count-changed": (int,),
            # After the user did something with changes; and several sentences about what could not
            # be done.
            "acted": (),
            "problems": (object,),
            # The full path of a file to open in an editor.
            "open-file": (object,),
        }
    )

    pages: Gtk.Stack = Gtk.Template.Child()
    filter: Gtk.SearchEntry = Gtk.Template.Child()
    scopes: Gtk.Box = Gtk.Template.Child()
    session_button: Gtk.ToggleButton = Gtk.Template.Child()
    project_button: Gtk.ToggleButton = Gtk.Template.Child()
    pending_box: WrapBox = Gtk.Template.Child()
    pending: Gtk.Label = Gtk.Template.Child()
    discard_all: Gtk.Button = Gtk.Template.Child()
    apply_all: Gtk.Button = Gtk.Template.Child()
    progress: WorkBar = Gtk.Template.Child()
    lists: Gtk.Stack = Gtk.Template.Child()
    list_view: Gtk.ListView = Gtk.Template.Child()
    empty: Adw.StatusPage = Gtk.Template.Child()
    older: Gtk.Button = Gtk.Template.Child()
    file_place: Adw.Bin = Gtk.Template.Child()

    def __init__(
        self, manager: ProjectManager, settings: Settings, tell: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._manager = manager
        self._settings = settings
        self._tell = tell
        self._tasks = Tasks(tell)
        self._counts = LineCounts(manager, self._tasks)
        self._project: str | None = None
        self._session = ""
        self._most = _PIECE
        self._wanted_run = ""
        # Runs that were selected from elsewhere. They may be older than what is listed.
        self._asked: set[str] = set()
        # Whether to fill the list once more although nothing changed, so that a run opens or gets
        # the focus, or because filling it was interrupted.
        self._is_stale = False
        # The run and the number of the file that had the focus before the list is filled.
        self._focused: tuple[str, int] | None = None
        self._run_focus = RunFocus()
        self._open_runs: set[str] = set()
        # Those whose files that git ignores are open.
        self._open_ignored: set[str] = set()
        self._seen: set[str] = set()
        # What is being done with changes, or was last.
        self._doing: tuple[str, ...] = ()
        self._loading: asyncio.Task[object] | None = None
        self._newest = LatestOnly()
        self._found = RunSearch()
        self._list = ChangeList()
        factory = Gtk.SignalListItemFactory()
        factory.connect("bind", weakly(self._on_bind))
        factory.connect("unbind", lambda _factory, item: item.set_child(None))
        # Set from the start, so that rows are added in steps even while the list is hidden.
        self.list_view.set_model(Gtk.NoSelection.new(self._list))
        self.list_view.connect("realize", weakly(self._on_realize))
        self.list_view.connect("unrealize", _leave)
        self.list_view.set_factory(factory)
        self.list_view.connect("activate", weakly(self._on_activate))
        self.list_view.connect("map", weakly(self._counts.look))
        scrolled = self.list_view.get_vadjustment()
        assert scrolled is not None
        for signal in ("value-changed", "changed"):
            scrolled.connect(signal, weakly(self._counts.look))
        self.filter.connect("search-changed", weakly(self._on_filter))
        self.session_button.connect("toggled", weakly(self._on_filter))
        self.pending_box.set_groups((self.pending,), (self.discard_all, self.apply_all))
        self.apply_all.connect("clicked", weakly(self._on_apply_all))
        self.discard_all.connect("clicked", weakly(self._on_discard_all))
        self.older.connect("clicked", weakly(self._on_older))
        self.progress.connect("working", weakly(self._on_working))
        # What is shown instead of the list: a file, or several.
        self.page: ChangePage | None = None
        self.several: FilesPage | None = None

    def show_project(self, project: str | None, session_id: str = "") -> None:
        """Show the changes of a session, and those of the whole project on request."""
        is_same = (project, session_id) == (self._project, self._session)
        self._project, self._session = project, session_id
        self.scopes.set_visible(bool(session_id))
        if not is_same:
            self.session_button.set_active(True)
            self._most = _PIECE
            self._asked, self._open_runs, self._seen = set(), set(), set()
            self._open_ignored = set()
            self.filter.set_text("")
            self.show_list()
        self.refresh()

    @property
    def items(self) -> list[GObject.Object]:
        return list(self._list)

    @property
    def count(self) -> int:
        return self._list.get_n_items()

    def refresh(self) -> None:
        """Read the changes again. Cancels a call that is still running."""
        if self._loading is not None:
            self._loading.cancel()
        self._loading = self._tasks.start(self._load())
        if (shown := self.page or self.several) is not None:
            self._tasks.start(shown.look())

    def focus(self) -> None:
        """Move the focus to where it was in this pane, or to its beginning."""
        if (shown := self.page or self.several) is not None:
            shown.focus()
        elif self.count:
            self.list_view.grab_focus()
        else:
            self.filter.grab_focus()

    def select_run(self, run_id: str) -> None:
        self._wanted_run = run_id
        self._asked.add(run_id)
        self._is_stale = True
        self._run_focus.request(run_id)
        self._open_runs.add(run_id)
        self.filter.set_text("")
        self.show_list()
        self.refresh()

    def show_list(self) -> None:
        self.pages.set_visible_child_name("list")
        self.file_place.set_child(None)
        self.page = self.several = None

    @property
    def is_list(self) -> bool:
        """Whether the list is shown, and not files."""
        return self.page is None and self.several is None

    # --- the list ------------------------------------------------------------------------------

    async def _load(self) -> None:
        await asyncio.sleep(_REST)
        before, project, text = self._found.runs, self._project, self.filter.get_text().strip()
        most, asked = self._most, tuple(self._asked)
        session = self._session if self.session_button.get_active() else ""

        def read() -> tuple[RunSearch, bool]:
            found = RunSearch()
            if project:
                found = load(self._manager, project, most, text, asked, session)
            return found, are_same(found.runs, before)

        found, is_same = await self._newest.run(read)
        runs = found.runs
        # Files that git ignores open only on request.
        worth_opening = [run for run in runs if run.items]
        if worth_opening and not self._seen and not self._open_runs:
            self._open_runs.add(worth_opening[0].id)
            is_same = False
        # Show pending changes without a click.
        self._open_runs |= {run.id for run in worth_opening if run.pending} - self._seen
        self._seen |= {run.id for run in worth_opening}
        self._found = found
        self._show_pending()
        self.older.set_visible(found.has_older)
        # If nothing changed, keep the list and its scroll position.
        file = None
        if not is_same or self._is_stale:
            # A newer call may interrupt this one while the list becomes shorter.
            self._is_stale = True
            # A run that the user asked for gets the focus, not the row that had it before.
            self._focused = None if self._wanted_run else self._focused_file() or self._focused
            # Further down, all rows that exist are below those that would stay.
            scrolled = self.list_view.get_vadjustment()
            if scrolled is None or scrolled.get_value() < scrolled.get_page_size():
                await _step_by_step(self._list.shrink)
            self._list.show(runs, self._open_runs, self._open_ignored)
            self._is_stale = False
            file, self._focused = self._focused, None
        await asyncio.sleep(_PAUSE)
        await _step_by_step(self._list.grow)
        if file is not None:
            focus_file(self.list_view, self._list, *file)
        icon, title, sentence = empty_text(is_filtered=bool(text), of_session=bool(session))
        self.empty.set_icon_name(icon)
        self.empty.set_title(title)
        self.empty.set_description(sentence)
        self.lists.set_visible_child_name("runs" if runs else "empty")
        self._go_to_wanted()
        self._run_focus.forget_missing({run.id for run in runs})

    def _focused_file(self) -> tuple[str, int] | None:
        """Return the run and number of the file whose row has the focus, before the list is made
        anew. For the row of a run, request that it gets the focus again."""
        focus = focus_around(self)
        if focus is None or not focus.is_ancestor(self.list_view):
            return None
        row = focus.get_ancestor(FoldRow)
        if isinstance(row, FoldRow):
            verbs = focus is not row.arrow
            self._run_focus.request(row.item.data.id, type(row), verbs=verbs)
        inner = focus.get_first_child()
        if isinstance(inner, FileRow):
            return inner.item.run.id, inner.item.recorded.number
        return None

    def do_root(self) -> None:
        Gtk.Box.do_root(self)
        self._run_focus.forget_on_input(window_around(self))

    def _on_realize(self, view: Gtk.ListView) -> None:
        if view.get_model() is None:
            view.set_model(Gtk.NoSelection.new(self._list))

    def leave_screen(self) -> None:
        """Release the list before the widget is destroyed."""
        _leave(self.list_view)

    def _go_to_wanted(self) -> None:
        wanted, self._wanted_run = self._wanted_run, ""
        place = self._list.place_of(wanted) if wanted else None
        if place is not None:
            target = GLib.Variant.new_uint32(place)
            self.list_view.activate_action("list.scroll-to-item", target)

    def _show_pending(self) -> None:
        # All of the project's, whatever is listed: the buttons are for all, too.
        count, ignored = self._found.pending, self._found.ignored
        self.pending_box.set_visible(count + ignored > 0)
        self._hold_all()
        # Whoever applies a held file has to look at it first.
        set_class(self.apply_all, "suggested-action", not self._found.has_held)
        text = ngettext("{} pending file", "{} pending files", count)
        text = text.format(number(count)) if count else ignored_files(ignored)
        self.pending.set_label(text)
        self.emit("count-changed", count)

    def _on_bind(self, _factory: Gtk.SignalListItemFactory, item: Gtk.ListItem) -> None:
        shown = item.get_item()
        row: FoldRow | FileRow
        if isinstance(shown, FoldItem):
            act, fold = weakly(self._act_on_run), weakly(self._fold)
            kind = RunRow if isinstance(shown, RunItem) else IgnoredRow
            row = kind(shown, act, fold)
            row.set_busy(self.progress.is_working)
            self._run_focus.watch(row)
        else:
            assert isinstance(shown, FileItem)
            row = FileRow(shown)
            self._counts.show(row)
        # Not now: newer versions of GTK bind a row before the widget around it has a parent, and
        # PyGObject would then take ownership of that widget and free it.
        row.connect("map", name_around)
        item.set_child(row)

    def _on_activate(self, _view: Gtk.ListView, place: int) -> None:
        item = self._list.get_item(place)
        if isinstance(item, FileItem):
            self._open_file(item)
        else:
            self._toggle(place)

    def _fold(self, item: FoldItem) -> None:
        run = item.data.id
        is_run = isinstance(item, RunItem)
        place = self._list.place_of(run) if is_run else self._list.place_of_ignored(run)
        if place is not None:
            self._run_focus.request(run, RunRow if is_run else IgnoredRow)
            self._toggle(place)

    def _toggle(self, place: int) -> None:
        self._list.fold(place)
        if self._loading is None or self._loading.done():
            self._loading = self._tasks.start(_step_by_step(self._list.grow))

    def _on_filter(self, _widget: Gtk.Widget) -> None:
        self._most = _PIECE
        self.refresh()

    def _on_older(self, _button: Gtk.Button) -> None:
        self._most += _PIECE
        # Scroll to where the list ended.
        self._wanted_run = self._found.runs[-1].id
        self.refresh()

    # --- one file --------------------------------------------------------------------------------

    def _open_file(self, item: FileItem) -> None:
        page = self._make_page(item.run, item.recorded, is_one_of_many=False)
        self.page, self.several = page, None
        self._show_page(page)

    def _make_page(
        self, run: RunData, recorded: Recorded, *, is_one_of_many: bool = True
    ) -> ChangePage:
        # Imported here because the diff and its colours are not needed for the first frame.
        from .page import ChangePage

        page = ChangePage(
            self._manager,
            self._settings,
            run,
            recorded,
            self._tasks,
            self.progress,
            is_one_of_many=is_one_of_many,
        )
        page.connect("act", weakly(self._on_page_act))
        page.connect("changed", weakly(self._on_page_changed))
        forward(page, "open", self, "open-file")
        return page

    def review_runs(self, run_ids: Sequence[str]) -> None:
        """Show all files of these runs, one below the other."""
        from .page import FilesPage

        self._asked.update(run_ids)
        page = FilesPage(self._manager, run_ids, self._tasks, self._make_page)
        self.page, self.several = None, page
        self._show_page(page)

    def _show_page(self, page: ChangePage | FilesPage) -> None:
        page.connect("back", weakly(self._on_back))
        self.file_place.set_child(page)
        self.pages.set_visible_child_name("file")
        page.focus()

    def _on_back(self, page: ChangePage | FilesPage) -> None:
        # A page that was already left may still find out that its change no longer exists.
        if page not in (self.page, self.several):
            return
        if contains_focus(page):
            self.leave_file()
        else:
            self.show_list()

    def leave_file(self, *_args: object) -> None:
        """Go back to the row that the user came from."""
        page = self.page
        self.show_list()
        self.focus()
        if page is not None:
            focus_file(self.list_view, self._list, page.run.id, page.recorded.number)

    def _on_page_changed(self, _page: ChangePage) -> None:
        self.refresh()
        self.emit("acted")

    def _on_page_act(self, page: ChangePage, verb: str) -> None:
        change = page.recorded.change
        self._act_on(page.run.id, verb, f"{change.root}/{change.path}")

    # --- verbs -----------------------------------------------------------------------------------

    def _act_on_run(self, verb: str, item: FoldItem) -> None:
        is_run = isinstance(item, RunItem)
        if self._act_on(item.data.id, verb, *(() if is_run else item.data.ignored_paths)):
            kind = RunRow if is_run else IgnoredRow
            self._run_focus.request(item.data.id, kind, verbs=True)

    def _on_working(self, _bar: WorkBar, is_working: bool) -> None:
        if (shown := self.page or self.several) is not None:
            shown.set_busy(is_working)
        for row in rows_of(self.list_view, FoldRow):
            row.set_busy(is_working)
        self._hold_all()

    def _hold_all(self) -> None:
        disable_unless_focused(self.discard_all, self.progress.is_working)
        disable_unless_focused(self.apply_all, self.progress.is_working)
        if not self._found.ready:
            # A conflict has to be decided file by file.
            self.apply_all.set_sensitive(False)

    def act_on_runs(self, verb: str, run_ids: Sequence[str]) -> None:
        """Act on several runs, given from the oldest to the newest."""

        def also(review: Review) -> list[Report]:
            along = (actions.also_affected(review, verb, run_id) for run_id in run_ids)
            return [one for each in along for one in each if one.run_id not in run_ids]

        # What became of them is told where the button is.
        self._start(
            verb,
            lambda review: actions.act_on_runs(review, verb, run_ids),
            *run_ids,
            also=also,
            tells=False,
        )

    def restore(self, project: str, session_id: str, since: float) -> None:
        """Take back what a session did since then, after showing which files that changes."""
        self._start(
            "restore",
            lambda review: actions.restore_since(review, project, session_id, since),
            session_id,
            also=lambda review: actions.to_restore_since(review, project, session_id, since),
        )

    def _act_on(self, run_id: str, verb: str, *paths: str) -> bool:
        """Act on files of a run; without paths, on all of them."""
        return self._start(
            verb,
            lambda review: actions.act_on_run(review, verb, run_id, paths),
            run_id,
            *paths,
            also=lambda review: actions.also_affected(review, verb, run_id, paths),
        )

    def _act_on_all(self, project: str, verb: str) -> bool:
        return self._start(verb, lambda review: actions.act_on_all(review, verb, project), project)

    def _start(
        self,
        verb: str,
        work: Callable[[Review], ActionResult],
        *target: str,
        also: Callable[[Review], list[Report]] = lambda _review: [],
        tells: bool = True,
    ) -> bool:
        """Do the work in a thread and show its progress. Report problems, and if it `tells` the
        result.

        Ask before, if changes of other runs are `also` affected. Return False if other work is
        going on.
        """
        wanted = (verb, *target)
        if self.progress.is_working:
            if wanted != self._doing:  # else it is a second click
                self._tell(busy_text())
            return False
        self._doing = wanted
        at_work = self.progress.working()

        def with_review(do: Callable[[Review], T]) -> T:
            from ...project.review import Review  # not needed for the first frame

            with closing(Review(self._manager.paths)) as review:
                return do(review)

        async def do() -> None:
            with at_work:
                affected = await asyncio.to_thread(with_review, also)
                if affected and not await self._may_go_on(verb, affected):
                    return
                done = await asyncio.to_thread(with_review, work)
            if len(done.problems) > 1:
                self.emit("problems", done.problems)
            elif tells or done.problems:
                self._tell(result_text(verb, done.count, list(done.problems)))
            self.refresh()
            self.emit("acted")
            if done.later and await self._may_go_on(verb, list(done.later)):
                run_id, *paths = target
                self._act_on(run_id, "undo-later", *paths)

        self._tasks.start(do()).add_done_callback(lambda _task: at_work.close())
        return True

    async def _may_go_on(self, verb: str, along: list[Report]) -> bool:
        style = Adw.ResponseAppearance
        return await confirm(
            window_around(self),
            *along_text(verb, along),
            style=style.SUGGESTED if verb in ("apply", "take", "redo") else style.DESTRUCTIVE,
        )

    def _on_apply_all(self, _button: Gtk.Button) -> None:
        self._act_on_all(self._project or "", "apply")

    @as_task
    async def _on_discard_all(self, _button: Gtk.Button) -> None:
        # The user may open another project before answering.
        project = self._project or ""
        heading = _("Discard All Pending Changes?")
        body = _("The project stays as it is. You can still apply discarded changes file by file.")
        if await confirm(window_around(self), heading, body, _("_Discard")):
            self._act_on_all(project, "discard")


def _leave(view: Gtk.ListView) -> None:
    """Take the model from the list view. When both are freed together, Python may empty the model
    first, and a view that then asks for its length crashes the program."""
    view.set_model(None)


async def _step_by_step(do: Callable[[], bool]) -> None:
    """Call a function until it has nothing to do, with pauses in which the window is drawn."""
    more = do()
    while more:
        await asyncio.sleep(_PAUSE)
        more = do()
