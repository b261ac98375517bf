# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from gi.repository import GObject, Gtk
from support.person import Person
from support.screen import Screen, spin_until

from ollmsandbox.project.change import Change, Kind, Recorded, State, Type
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.ui.changes.model import (
    ChangeList,
    FileItem,
    IgnoredItem,
    RunData,
    RunItem,
    are_same,
)
from ollmsandbox.ui.changes.view import ChangesView
from ollmsandbox.ui.settings import Settings

_MANY = 5000


@dataclass
class Mirror:
    """A copy of the list, made from its signals alone."""

    model: ChangeList
    names: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model.connect("items-changed", self._changed)

    def _changed(self, model: ChangeList, place: int, removed: int, added: int) -> None:
        new = [name(model.get_item(one)) for one in range(place, place + added)]
        self.names[place : place + removed] = new
        self.steps.append(removed + added)


def name(item: GObject.Object | None) -> str:
    if isinstance(item, RunItem):
        return f"{item.data.id} {'open' if item.is_open else 'closed'}"
    if isinstance(item, IgnoredItem):
        return f"ignored {'open' if item.is_open else 'closed'}"
    assert isinstance(item, FileItem)
    return item.recorded.change.path


def run(id_: str, files: int) -> RunData:
    changes = (Recorded(n, Change("/p", f"{id_}/{n}", Kind.ADDED, Type.FILE)) for n in range(files))
    return RunData(id_, "true", 0.0, tuple(changes))


def expected(runs: Collection[RunData], open_runs: Collection[str]) -> list[str]:
    names = []
    for one in runs:
        is_open = one.id in open_runs
        names.append(f"{one.id} {'open' if is_open else 'closed'}")
        names += [item.change.path for item in one.items if is_open]
    return names


def grown(model: ChangeList) -> int:
    """Let the list grow to its end; return the number of pieces."""
    pieces = 0
    while model.grow():
        pieces += 1
    return pieces


def shown(runs: list[RunData], open_runs: Collection[str] = ()) -> tuple[ChangeList, Mirror]:
    """Return a list that has grown to its end, and its mirror."""
    model = ChangeList()
    seen = Mirror(model)
    model.show(runs, set(open_runs))
    grown(model)
    return model, seen


def test_all_that_is_open_comes_in_its_order() -> None:
    runs = [run("a", 3), run("b", 30), run("c", _MANY), run("d", 4)]
    model, seen = shown(runs, {"b", "c"})
    assert seen.names == expected(runs, {"b", "c"})
    assert model.get_n_items() == 4 + 30 + _MANY
    assert model.get_item(model.get_n_items()) is None
    assert model.place_of("d") == 3 + 30 + _MANY
    assert model.place_of("e") is None


def test_rows_come_and_go_a_few_at_a_time() -> None:
    model, seen = shown([run("a", _MANY), run("b", 1)], {"a"})
    # All but one step are of so few that their rows are made in no time.
    assert sorted(seen.steps)[-2] <= 20
    seen.steps.clear()
    model.fold(0)
    grown(model)
    assert seen.names == ["a closed", "b closed"]
    assert sorted(seen.steps)[-2] <= 20
    model.fold(1)
    grown(model)
    assert seen.names == ["a closed", "b open", "b/0"]


def test_only_files_with_visible_rows_become_items(screen: Screen) -> None:
    bound: list[FileItem | RunItem] = []
    model = ChangeList()
    factory = Gtk.SignalListItemFactory()

    def bind(_factory: Gtk.SignalListItemFactory, row: Gtk.ListItem) -> None:
        item = row.get_item()
        assert isinstance(item, FileItem | RunItem)
        bound.append(item)
        row.set_child(Gtk.Label(label=name(item)))

    factory.connect("bind", bind)
    view = Gtk.ListView(model=Gtk.NoSelection.new(model), factory=factory)
    screen.show(Gtk.ScrolledWindow(child=view), 400, 300)
    model.show([run("a", _MANY)], {"a"})
    grown(model)
    spin_until(lambda: bound)
    assert len(bound) < 1000
    # An item that is referenced stays the same.
    assert model.get_item(1) is next(one for one in bound if isinstance(one, FileItem))


def test_a_view_that_left_the_screen_asks_for_nothing(screen: Screen, person: Person) -> None:
    manager = ProjectManager(person.paths)
    view = ChangesView(manager, Settings(person.paths), lambda _text: None)
    window = screen.show(view)
    model = view.list_view.get_model()
    assert isinstance(model, Gtk.NoSelection)
    assert model.get_model() is view._list
    window.destroy()
    # Freed together, the list may be empty before the view is: GTK aborts then.
    assert view.list_view.get_model() is None
    manager.close()


def test_a_long_list_becomes_short_before_it_is_replaced() -> None:
    runs = [run("a", 30), run("b", _MANY), run("c", 2)]
    model, seen = shown(runs, {"a", "b"})
    seen.steps.clear()
    while model.shrink():
        pass
    assert seen.names == expected(runs, {"a", "b"})[: model.get_n_items()]
    assert model.get_n_items() < 20
    assert sorted(seen.steps)[-2] <= 20


def test_runs_are_compared_with_their_changes_and_their_ignored_files() -> None:
    runs = [run("a", 3), run("b", 2)]
    assert are_same(runs, [run("a", 3), run("b", 2)])
    assert not are_same(runs, [run("a", 3)])
    assert not are_same(runs, [run("a", 3), run("b", 3)])
    undone = tuple(item._replace(state=State.UNDONE) for item in runs[1].items)
    assert not are_same(runs, [runs[0], replace(runs[1], items=undone)])
    assert not are_same(runs, [runs[0], replace(runs[1], said="something")])
    ignoring = [replace(one, ignored=runs[1].items) for one in runs]
    assert are_same(ignoring, [replace(one) for one in ignoring])
    assert not are_same(ignoring, [replace(one, ignored=undone) for one in runs])
    assert not are_same(ignoring, runs)


def test_ignored_files_come_last_and_open_on_their_own() -> None:
    ignored = run("x", 30).items
    runs = [replace(run("a", 2), ignored=ignored), run("b", 1)]
    model, seen = shown(runs, {"a"})
    assert seen.names == ["a open", "a/0", "a/1", "ignored closed", "b closed"]
    place = model.place_of_ignored("a")
    assert place == 3
    model.fold(place)
    grown(model)
    inner = [item.change.path for item in ignored]
    assert seen.names == ["a open", "a/0", "a/1", "ignored open", *inner, "b closed"]
    assert model.place_of_file("a", ignored[5].number) is not None
    model.fold(place)
    grown(model)
    assert seen.names == ["a open", "a/0", "a/1", "ignored closed", "b closed"]
    model.fold(0)
    grown(model)
    assert seen.names == ["a closed", "b closed"]
    # Alone, they have no row between.
    _model, seen = shown([replace(run("a", 0), ignored=ignored[:2])], {"a"})
    assert seen.names == ["a open", "x/0", "x/1"]
