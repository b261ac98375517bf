# SPDX-License-Identifier: GPL-3.0-or-later
"""A project's folder, and what a scan of it recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.person import Person

from ollmsandbox import loop
from ollmsandbox.database.tables import FileRecord, Project
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.records.file_records import found_files
from ollmsandbox.project.records.folder import Folder


@contextmanager
def opened(person: Person) -> Iterator[Folder]:
    manager = ProjectManager(person.paths)
    yield Folder(str(person.project), manager)
    manager.close()


def project_of(folder: Folder) -> Project:
    return folder.manager.add_project(folder.path)


def scan(folder: Folder) -> None:
    loop.run(folder.scan())


def records_for(manager: ProjectManager, project: Project, paths: Sequence[str]) -> dict[str, int]:
    """Return the ids of the records of these files, which are made as a run makes them."""
    names = list(dict.fromkeys(paths))
    with manager.store.transaction():
        ids, _ = manager.numbers_for(project, names)
        manager.record_backups(project, [(ids[name], name, None, False, None) for name in names])
    return ids


def found(folder: Folder) -> set[str]:
    """Return the files that the last scan found."""
    return set(found_files(folder.manager.paths.scan_cache(folder.path)).files)


def recorded(folder: Folder) -> set[str]:
    """Return the recorded paths, relative to the project."""
    project = project_of(folder)
    # What another test left running may just have opened its own database.
    with folder.manager.store.translated_errors():
        records = FileRecord.select().where(FileRecord.project == project.id)
        return {os.path.relpath(record.path, folder.path) for record in records}


def write(project: Path, *names: str, text: str = "") -> None:
    for name in names:
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def make(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
