# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.folder import found, write
from support.person import Person
from support.screen import Screen
from support.timing import PATIENCE
from support.window import in_project, running_loop, wait_until

from ollmsandbox.errors import ProjectError
from ollmsandbox.files import ignore
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.records import folder as folder_module
from ollmsandbox.project.records.file_records import scan_project
from ollmsandbox.project.records.folder import Folder
from ollmsandbox.ui.window import project_scan
from ollmsandbox.ui.window.project_scan import ProjectScan


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_scan, "_REST", 0)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def scan(folder: Folder, told: list[str]) -> Iterator[ProjectScan]:
    with running_loop():
        scan = ProjectScan(folder.manager, told.append)
        yield scan
        scan.end()


def test_a_project_that_is_opened_in_the_window_is_scanned(screen: Screen, person: Person) -> None:
    write(person.project, "a", "b/c")
    with in_project(person):
        manager = ProjectManager(person.paths)
        wait_until(lambda: found(Folder(str(person.project), manager)) >= {"a", "b/c"})
        manager.close()


def test_it_runs_in_a_thread_of_its_own(
    folder: Folder, person: Person, scan: ProjectScan, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    run = scan_project

    def running(*given: Any) -> None:
        threads.append(threading.get_ident())
        run(*given)

    monkeypatch.setattr(folder_module, "scan_project", running)
    write(person.project, "a")
    scan.show_project(folder.path)
    # Another session of the same project.
    scan.show_project(folder.path)
    wait_until(lambda: found(folder) == {"a"})
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


@pytest.mark.parametrize("leave", [ProjectScan.end, lambda scan: scan.show_project(None)])
def test_a_scan_ends_with_its_project_or_window(
    folder: Folder,
    person: Person,
    scan: ProjectScan,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
    leave: object,
) -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    read, run = ignore.read_ignore_file, scan_project

    def wait_and_read(file: str) -> ignore.IgnoreRules | None:
        began.set()
        go_on.wait(PATIENCE)
        return read(file)

    def running(*given: Any) -> None:
        try:
            run(*given)
        finally:
            ended.set()

    monkeypatch.setattr(ignore, "read_ignore_file", wait_and_read)
    monkeypatch.setattr(folder_module, "scan_project", running)
    write(person.project, ".gitignore", "a")
    scan.show_project(folder.path)
    wait_until(began.is_set)
    assert callable(leave)
    leave(scan)
    wait_until(lambda: scan.is_idle)
    go_on.set()
    wait_until(ended.is_set)
    assert found(folder) == set()
    assert not told


def test_an_error_is_reported_once(
    folder: Folder, scan: ProjectScan, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is missing is left to the chat to report.
    scan.show_project(f"{folder.path}/gone")
    wait_until(lambda: scan.is_idle)
    assert not told
    failures: list[str] = []

    def fail(*_given: Any) -> None:
        failures.append("failed")
        raise ProjectError("It cannot be read.")

    monkeypatch.setattr(folder_module, "scan_project", fail)
    for _ in range(2):
        scan.show_project(folder.path)
        wait_until(lambda: scan.is_idle)
        scan.show_project(None)
    assert len(failures) == 2
    assert told == ["It cannot be read."]
