# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables: projects, approved roots, records of files, runs."""

from __future__ import annotations

import os

import pytest
from support.folder import make, records_for
from support.person import Person

from ollmsandbox.database.tables import ChangeRow, FileRecord, Project, Run
from ollmsandbox.errors import OllmSandboxError, ProjectError
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.write_file import write_file
from ollmsandbox.sandbox.spec import RunSpec

pytestmark = pytest.mark.ordinary

NOT_UTF_8 = os.fsdecode(b"/caf\xe9/\xff\n'\"")


def make_run(project: Project, run_id: str, started_at: float = 0) -> Run:
    return Run.create(
        id=run_id, project=project, command="x", mode="auto", state="done", started_at=started_at
    )


# --- projects ----------------------------------------------------------------------------------


def test_nothing_is_opened_before_it_is_needed(person: Person) -> None:
    ProjectManager(person.paths).close()
    assert not person.paths.data.exists()


def test_a_project_is_added_once(manager: ProjectManager, person: Person) -> None:
    link = person.home / "link"
    link.symlink_to(person.project)
    first = manager.add_project(person.project)
    second = manager.add_project(f"{link}/../project/")
    assert (first.id, first.path, first.name) == (second.id, str(person.project), "project")
    assert [project.id for project in manager.projects()] == [first.id]
    found = manager.find_project(link)
    assert found is not None
    assert found.id == first.id
    assert manager.find_project(person.home) is None


def test_a_project_may_have_any_name(manager: ProjectManager, person: Person) -> None:
    folder = os.path.join(person.home, os.fsdecode(b"caf\xe9\n"))
    os.mkdir(folder)
    project = manager.add_project(folder)
    assert manager.projects()[0].path == folder
    assert project.name.encode()
    run = make_run(project, "1")
    Run.update(command=f"ls {folder}").where(Run.id == run.id).execute()
    assert manager.run("1").command.startswith("ls ")


def test_only_a_folder_can_be_a_project(manager: ProjectManager, person: Person) -> None:
    with pytest.raises(ProjectError, match="does not exist"):
        manager.add_project(person.home / "nothing")
    (person.home / "file").touch()
    with pytest.raises(ProjectError, match="not a folder"):
        manager.add_project(person.home / "file")
    assert manager.projects() == []


def test_the_project_used_last_comes_first(manager: ProjectManager, person: Person) -> None:
    folders = [person.home / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    a, b, c = [manager.add_project(folder) for folder in folders]
    assert [project.name for project in manager.projects()] == ["c", "b", "a"]
    manager.add_project(a.path)
    manager.add_project(b.path)
    assert [project.id for project in manager.projects()] == [b.id, a.id, c.id]


def test_a_removed_project_is_opened_again(manager: ProjectManager, person: Person) -> None:
    project = manager.add_project(person.project)
    manager.approve_root(project, make(person.home / "linked"))
    records_for(manager, project, ["/a"])
    report = write_file(person.paths, RunSpec(project.path), f"{project.path}/a", b"text")
    manager.list_project(project, is_listed=False)
    assert manager.projects() == []
    assert manager.projects(with_removed=True) == [project]
    assert manager.add_project(person.project) == project
    assert manager.projects() == [project]
    assert len(manager.approved_roots(project)) == 1
    [run] = manager.runs(project)
    assert run.id == report.run_id
    assert [item.change.path for item in read_changes(manager, run)] == ["a"]


def test_an_agreement_is_kept_until_it_is_revoked(manager: ProjectManager, person: Person) -> None:
    project = manager.add_project(person.project)
    linked, gone, swapped = (make(person.home / name) for name in ("linked", "gone", "swapped"))
    (person.project / "link").symlink_to(linked)
    for folder in (person.project / "link", linked, gone, swapped):
        manager.approve_root(project, folder)
    assert set(manager.approved_roots(project)) == {str(linked), str(gone), str(swapped)}
    # Also when the folder is gone or a link.
    gone.rmdir()
    swapped.rmdir()
    swapped.symlink_to("/usr")
    for folder in (person.project / "link", gone, swapped):
        manager.revoke(project, folder)
    assert manager.approved_roots(project) == []


@pytest.mark.parametrize("folder", ["/", "..", ".", "../.local/share", "../.cache/ollmchat/in"])
def test_no_wide_folder_is_approved(manager: ProjectManager, person: Person, folder: str) -> None:
    project = manager.add_project(person.project)
    make(person.paths.cache / "in")
    with pytest.raises(ProjectError, match="cannot be given access"):
        manager.approve_root(project, person.project / folder)


# --- records -----------------------------------------------------------------------------------


def test_records_of_any_path_are_made_once(manager: ProjectManager, person: Person) -> None:
    project = manager.add_project(person.project)
    first = records_for(manager, project, ["/a", NOT_UTF_8, "/a"])
    assert set(first) == {"/a", NOT_UTF_8}
    assert all(number > 0 for number in first.values())
    second = records_for(manager, project, [NOT_UTF_8, "/b"])
    assert second[NOT_UTF_8] == first[NOT_UTF_8]
    assert {record.path for record in FileRecord.select()} == {"/a", "/b", NOT_UTF_8}
    assert records_for(manager, project, []) == {}


def test_numbers_are_known_before_records(manager: ProjectManager, person: Person) -> None:
    project = manager.add_project(person.project)
    old = records_for(manager, project, ["/old"])["/old"]
    with manager.store.transaction():
        numbers, last = manager.numbers_for(project, ["/old", "/new", NOT_UTF_8])
        manager.record_backups(
            project,
            [(number, path, f"/copy{path}", True, None) for path, number in numbers.items()],
        )
    assert numbers["/old"] == last == old
    assert all(record.is_deleted for record in FileRecord.select())
    assert records_for(manager, project, ["/old", "/new", NOT_UTF_8]) == numbers
    assert records_for(manager, project, ["/next"])["/next"] > max(numbers.values())


def test_deletion_and_copies_are_noted_in_bulk(manager: ProjectManager, person: Person) -> None:
    project, other = manager.add_project(person.project), manager.add_project(person.home)
    paths = [f"/{number}" for number in range(1500)]
    ids = records_for(manager, project, paths)
    records_for(manager, other, paths)
    manager.mark_deleted(project, paths[:1200], deleted=True)
    manager.mark_deleted(project, paths[:100], deleted=False)
    deleted = FileRecord.select().where(FileRecord.is_deleted)
    assert {record.path for record in deleted} == set(paths[100:1200])
    assert {record.project_id for record in deleted} == {project.id}

    copies = [(ids[path], f"/copy{NOT_UTF_8}{path}") for path in paths]
    rows = list(zip(paths, copies, strict=True))
    manager.record_backups(
        project, [(number, path, copy, False, None) for path, (number, copy) in rows]
    )
    # A file without a new backup keeps the one it has.
    manager.record_backups(
        project, [(number, path, None, False, None) for path, (number, _) in rows]
    )
    kept = FileRecord.select().where(FileRecord.last_approved_copy_path.is_null(False))
    assert [(record.id, record.last_approved_copy_path) for record in kept] == copies


# --- runs --------------------------------------------------------------------------------------


def test_runs_come_newest_first(manager: ProjectManager, person: Person) -> None:
    one, two = manager.add_project(person.project), manager.add_project(person.home)
    assert manager.last_run(one) is None
    for number, project in enumerate([one, two, one, one]):
        make_run(project, f"run-{number}", started_at=number)
    assert [run.id for run in manager.runs(one, 10)] == ["run-3", "run-2", "run-0"]
    assert [run.id for run in manager.runs(None, 2)] == ["run-3", "run-2"]


def test_the_last_run_changed_something(manager: ProjectManager, person: Person) -> None:
    project = manager.add_project(person.project)
    make_run(project, "run-0", started_at=0)
    assert manager.last_run(project) is None
    ChangeRow.create(run="run-0", number=0, root="/p", path="a", kind="added", state="applied")
    make_run(project, "run-1", started_at=1)
    assert [run.id for run in manager.runs(project)] == ["run-1", "run-0"]
    assert [run.id for run in manager.runs(project, only_changed=True)] == ["run-0"]
    last = manager.last_run(project)
    assert last is not None and last.id == "run-0"


def test_a_run_is_found_by_its_beginning(manager: ProjectManager, person: Person) -> None:
    project = manager.add_project(person.project)
    for run_id in ("20240101-abc", "20240101-abd", "20240102-abc", "20240102", "a%b"):
        make_run(project, run_id)
    assert manager.run("20240101-abc").id == "20240101-abc"
    assert manager.run("20240101-abd"[:-1] + "d").id == "20240101-abd"
    assert manager.run("20240102").id == "20240102"
    assert manager.run("a").id == "a%b"
    with pytest.raises(OllmSandboxError, match="begin with 2024") as told:
        manager.run("20240101")
    assert "20240101-abc" in told.value.remedy
    for unknown in ("2025", "%", "", "20240101-abcd", "\udcff"):
        with pytest.raises(OllmSandboxError, match="no run") as told:
            manager.run(unknown)
        assert "history" in told.value.remedy
