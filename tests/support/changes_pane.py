# SPDX-License-Identifier: GPL-3.0-or-later
"""The pane of changes in a window, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gi.repository import Adw
from support.person import Person
from support.screen import all_of
from support.window import finish, running_loop, wait_until

from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.sandbox.spec import Mode, RunSpec
from ollmsandbox.ui.changes.page import ChangePage
from ollmsandbox.ui.changes.rows import RunRow
from ollmsandbox.ui.changes.view import ChangesView
from ollmsandbox.ui.diff.view import DiffView
from ollmsandbox.ui.settings import Settings

LONG = "".join(f"line {number}\n" for number in range(40))


@dataclass
class Pane:
    view: ChangesView
    manager: ProjectManager
    window: Adw.Window
    person: Person
    told: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def run(
        self, command: str, mode: Mode = Mode.AUTO, session: str = "", project: Path | None = None
    ) -> None:
        folder = project or self.person.project
        spec = RunSpec(str(folder), mode=mode, command=command, session_id=session, call_id="1")
        keeper = Recorder(spec, self.person.paths)
        done = finish(self.person.bubble(project=folder, keeper=keeper).exec(command))
        assert done.exit_code == 0

    def show(self) -> None:
        self.view.show_project(str(self.person.project))
        # They are made before the page that they are on is to be seen.
        wait_until(lambda: any(row.get_mapped() for row in all_of(self.view, RunRow)))

    def show_run(self, command: str, mode: Mode = Mode.AUTO) -> None:
        """Run a command, and show what it changed."""
        self.run(command, mode)
        self.show()

    def wait_idle(self) -> None:
        wait_until(lambda: len(asyncio.all_tasks()) == 1)

    def open(self, name: str) -> ChangePage:
        wait_until(lambda: self._place(name) is not None)
        place = self._place(name)
        assert place is not None
        self.view.list_view.emit("activate", place)
        wait_until(lambda: self.view.page is not None and self.view.page.place.get_child())
        assert self.view.page is not None
        return self.view.page

    def two_parts(self, mode: Mode = Mode.AUTO) -> tuple[Path, ChangePage, DiffView]:
        """Change a text at two places, far from each other, and open its page."""
        file = self.person.project / "text"
        file.write_text(LONG)
        command = "sed -i -e 's/line 3$/changed 3/' -e 's/line 33/changed 33/' text"
        self.show_run(command, mode)
        page = self.open("text")
        return file, page, loaded(page)

    def _place(self, name: str) -> int | None:
        for place, item in enumerate(self.view.items):
            recorded = getattr(item, "recorded", None)
            if recorded is not None and recorded.change.path == name:
                return place
        return None


def loaded(page: ChangePage) -> DiffView:
    """Return the compared texts once they are loaded."""
    wait_until(lambda: page.diff is not None and page.diff.is_loaded)
    assert page.diff is not None
    return page.diff


@contextmanager
def changes_pane(person: Person) -> Iterator[Pane]:
    with running_loop():
        told: list[str] = []
        counts: list[int] = []
        manager = ProjectManager(person.paths)
        view = ChangesView(manager, Settings(person.paths), told.append)
        view.connect("count-changed", lambda _view, count: counts.append(count))
        window = Adw.Window(content=view)
        window.set_default_size(560, 700)
        window.present()
        pane = Pane(view, manager, window, person, told, counts)
        yield pane
        window.destroy()
        pane.wait_idle()
        manager.close()
