# SPDX-License-Identifier: GPL-3.0-or-later
"""Reviewing changes on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from support.cli_inline import cli_here
from support.person import Person

from ollmsandbox.cli.changes import diff_lines
from ollmsandbox.database.tables import FileRecord
from ollmsandbox.project import backups
from ollmsandbox.project.index import add_unchanged_run, read_changes
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.review import Review
from ollmsandbox.project.run import RunInfo, read_run
from ollmsandbox.project.settings import KEEP_DAYS, KEEP_MIB
from ollmsandbox.sandbox.network.hosts import HostUse

pytestmark = pytest.mark.ordinary


def run(person: Person, command: str, *options: str) -> dict[str, Any]:
    document = person.cli_run(command, *options)
    assert document["errors"] == []
    return document


def shown(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(c["kind"], c["path"], c["state"]) for c in document["changes"]]


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_deletions_and_replacements_come_before_the_rest(person: Person) -> None:
    for name in ("gone", "becomes-a-folder", "changed"):
        (person.project / name).write_text(name)
    command = "echo new > added; echo more >> changed; rm gone; rm becomes-a-folder;"
    document = run(person, f"{command} mkdir becomes-a-folder; mkfifo pipe")
    assert shown(document) == [
        ("deleted", "gone", "applied"),
        ("replaced", "becomes-a-folder", "applied"),
        ("modified", "changed", "applied"),
        ("added", "added", "applied"),
    ]
    (_, _, changed, added) = document["changes"]
    assert (changed["mode"], changed["target"], changed["flags"]) == ("0644", None, [])
    assert added["type"] == "file"
    assert document["skipped"] == [{"path": "pipe", "what": "a pipe"}]


def test_all_deletions_are_listed_and_of_many_additions_the_first(person: Person) -> None:
    for number in range(50):
        (person.project / f"old{number}").touch()
    done = person.cli("run", "-c", "rm old*; for i in $(seq 70); do echo > new$i; done")
    assert done.stdout == ""
    assert done.stderr.count("deleted") == 50
    assert done.stderr.count("  added ") == 40
    run = json.loads(person.cli("changes", "--json").stdout)["run_id"]
    last = done.stderr.splitlines()[-1]
    assert last.startswith("30 more")
    assert f"ollmsandbox changes {run}" in last
    assert person.cli("changes").stdout.count("  added ") == 70
    assert person.cli("run", "--quiet", "-c", "touch new").stderr == ""


def test_a_run_that_changes_nothing_leaves_nothing(person: Person) -> None:
    person.has_database = False
    (person.project / "file").write_text("same")
    document = run(person, "cat file > /tmp/copy; cat /tmp/copy > file; touch file")
    assert document["changes"] == []
    assert not person.paths.database.exists()
    assert not list(person.paths.cache.glob("overlay-*"))
    assert json.loads(person.cli("history", "--json").stdout) == []


def test_a_dry_run_is_reported_and_dropped(person: Person) -> None:
    document = run(person, "echo new > file", "--apply", "never")
    assert shown(document) == [("added", "file", "discarded")]
    assert files(person.project) == {}
    assert cli_here(person, "changes").returncode == 125


def test_undo_and_redo_of_a_run_and_of_single_files(person: Person) -> None:
    (person.project / "sub").mkdir()
    (person.project / "sub" / "one").write_text("old")
    (person.project / "two").write_text("old")
    before = files(person.project)
    first = run(person, "echo new > sub/one; rm two; echo new > three")
    after = files(person.project)

    assert person.cli("undo").stdout == "3 changes undone.\n"
    assert files(person.project) == before
    assert cli_here(person, "apply").stdout == "3 changes applied.\n"
    assert files(person.project) == after

    done = cli_here(person, "undo", first["run_id"], "sub")
    assert done.stdout == "1 change undone.\n"
    assert files(person.project) == {"sub/one": "old", "three": "new\n"}
    # From inside a folder a path counts from there.
    below = person.cli("apply", first["run_id"], "one", cwd=person.project / "sub")
    assert below.stdout == "1 change applied.\n"
    assert files(person.project) == after


def test_all_pending_changes_are_shown_discarded_and_applied_at_once(person: Person) -> None:
    run(person, "echo 0 > undone")
    assert cli_here(person, "undo").returncode == 0
    for number in (1, 2, 3):
        run(person, f"echo {number} > file{number}; echo {number} >> all", "--apply", "review")
    assert len(json.loads(cli_here(person, "changes", "--all", "--json").stdout)) == 3
    assert cli_here(person, "apply", "--all").returncode == 0
    assert files(person.project) == {
        "all": "1\n2\n3\n",
        "file1": "1\n",
        "file2": "2\n",
        "file3": "3\n",
    }
    run(person, "rm all", "--apply", "review")
    assert cli_here(person, "discard", "--all").stdout == "1 change discarded.\n"
    assert cli_here(person, "apply", "--all").stdout == "0 changes applied.\n"
    assert "all" in files(person.project)
    assert json.loads(cli_here(person, "changes", "--all", "--json").stdout) == []
    assert cli_here(person, "apply", "2026", "--all").returncode == 125


def test_one_deletion_in_a_deleted_folder_can_be_undone(person: Person) -> None:
    (person.project / "folder" / "deep").mkdir(parents=True)
    (person.project / "folder" / "deep").chmod(0o750)
    for name in ("a", "b", "deep/c", "deep/d"):
        (person.project / "folder" / name).write_text(name)
    run_id = run(person, "rm -r folder", "--apply", "review")["run_id"]
    assert cli_here(person, "discard", run_id, "folder/deep/c").returncode == 0
    seen = run(person, "find folder -type f; stat -c %a folder/deep")
    assert seen["stdout"] == "folder/deep/c\n750\n"
    done = cli_here(person, "apply", run_id)
    # The folders around it cannot go.
    assert done.returncode == 0, done.stdout
    assert files(person.project) == {"folder/deep/c": "deep/c"}


def test_a_diff_shows_text_names_the_rest_and_does_nothing_to_a_terminal(person: Person) -> None:
    (person.project / "text").write_text("one\ftwo\n")
    run(
        person,
        "echo three >> text; printf '\\033[31mred' > evil; printf '\\0\\1' > binary; mkdir f",
    )
    done = cli_here(person, "changes", "--diff")
    assert "--- a/text\n+++ b/text\n@@ -1 +1,2 @@\n one\\x0ctwo\n+three\n" in done.stdout
    assert "Not text: 0 bytes before, 2 bytes after" in done.stdout
    assert "added f (folder)" in done.stdout
    assert "\x1b" not in done.stdout
    assert "+\\x1b[31mred\n\\ No newline at end of file" in done.stdout
    assert json.loads(cli_here(person, "changes", "--diff", "--json").stdout)["diff"] == done.stdout


def test_a_line_that_looks_like_a_file_name_is_red(person: Person, review: Review) -> None:
    (person.project / "query").write_text("-- a comment\nselect\n")
    run(person, "echo select > query")
    [last] = review.manager.runs()
    items = read_changes(review.manager, last)
    lines = list(diff_lines(items, review, last, colour=True))
    assert lines[1:] == [
        "\x1b[1m--- a/query\x1b[0m\n",
        "\x1b[1m+++ b/query\x1b[0m\n",
        "\x1b[36m@@ -1,2 +1 @@\x1b[0m\n",
        "\x1b[31m--- a comment\x1b[0m\n",
        " select\n",
    ]


def test_a_diff_is_a_patch_from_the_old_files_to_the_new_ones(person: Person) -> None:
    old = {
        "text": "".join(f"line {number}\n" for number in range(40)),
        "without newline": "a\nb",
        "with newline": "a\nb\n",
        "deleted": "gone\n",
    }
    tools = {"patch": "patch -s -p1", "git": "git apply -p1"}
    copies = [person.home / name for name in tools]
    for folder in (person.project, *copies):
        folder.mkdir(exist_ok=True)
        for name, text in old.items():
            (folder / name).write_text(text)
    run(
        person,
        "sed -i -e 2d -e 's/line 20/other/' -e '38a more' text; rm deleted; echo new > added;"
        "echo c >> 'without newline'; printf 'a\nb' > 'with newline'",
    )
    diff = cli_here(person, "changes", "--diff").stdout
    assert sorted(files(person.project)) == ["added", "text", "with newline", "without newline"]
    for copy in copies:
        subprocess.run(tools[copy.name].split(), cwd=copy, input=diff, text=True, check=True)
        assert files(copy) == files(person.project), copy.name


def test_a_version_that_is_gone_is_no_success(person: Person) -> None:
    (person.project / "file").write_text("old")
    run(person, "echo new > file")
    for kept in person.paths.runs.glob("*/base/*"):
        kept.unlink()
    done = cli_here(person, "undo")
    assert (done.returncode, "no longer exists" in done.stdout) == (1, True)
    assert (person.project / "file").read_text() == "new\n"


def test_risky_files_are_marked_and_git_hooks_are_held(person: Person) -> None:
    document = run(
        person,
        "mkdir -p .git/hooks .vscode; echo '#!/bin/sh' > .git/hooks/pre-commit; echo > .envrc;"
        "echo > .vscode/tasks.json; echo > tool; chmod +x tool; ln -s / out",
    )
    flags = {c["path"]: (c["flags"], c["state"]) for c in document["changes"]}
    assert flags[".git/hooks/pre-commit"] == (["runs-later", "held"], "pending")
    assert flags[".envrc"] == (["runs-on-opening"], "applied")
    assert flags[".vscode/tasks.json"] == (["runs-on-opening"], "applied")
    assert flags["tool"] == (["executable"], "applied")
    assert flags["out"] == (["leaves-project"], "applied")
    assert not (person.project / ".git" / "hooks" / "pre-commit").exists()
    done = cli_here(person, "changes")
    assert "needs approval" in done.stdout
    assert cli_here(person, "apply").stdout == "1 change applied.\n"
    assert (person.project / ".git" / "hooks" / "pre-commit").exists()


def test_a_linked_folder_is_written_only_after_approval(person: Person) -> None:
    outside = person.home / "outside"
    outside.mkdir()
    (person.project / "link").symlink_to(outside)
    command = "echo new > link/file"
    assert "Read-only file system" in run(person, command)["stderr"]
    assert "(linked, but commands cannot change it)" in cli_here(person, "roots", "list").stdout

    assert cli_here(person, "roots", "add", str(outside)).returncode == 0
    document = run(person, command)
    assert shown(document) == [("added", f"{outside}/file", "applied")]
    assert files(outside) == {"file": "new\n"}
    assert cli_here(person, "undo").returncode == 0
    assert files(outside) == {}

    assert cli_here(person, "roots", "remove", str(outside)).returncode == 0
    assert "Read-only file system" in run(person, command)["stderr"]
    done = cli_here(person, "roots", "add", str(person.home))
    assert done.returncode == 125
    assert "cannot be given access" in done.stderr


def test_a_hidden_folder_is_refused_when_it_is_to_be_opened(person: Person) -> None:
    keys = person.home / ".ssh" / "keys"
    keys.mkdir(parents=True)
    for folder in (keys, keys.parent):
        done = cli_here(person, "roots", "add", str(folder))
        assert done.returncode == 125
        assert f"they may not see {keys.parent}" in done.stderr
    assert str(keys.parent) not in cli_here(person, "roots", "list").stdout
    assert run(person, "echo > file")["exit_code"] == 0


def test_each_changed_file_has_a_record_and_a_backup_of_the_day(person: Person) -> None:
    for name in ("changed", "gone"):
        (person.project / name).write_text("first")
    run(person, "echo second > changed; rm gone; echo > new")
    run(person, "echo third > changed")
    manager = ProjectManager(person.paths)
    assert manager.store.notices == []
    records = {os.path.basename(record.path): record for record in FileRecord.select()}
    assert set(records) == {"changed", "gone", "new"}
    day = time.strftime("%y-%m-%d")
    for name in ("changed", "gone"):
        copy = Path(str(records[name].last_approved_copy_path))
        assert copy == person.paths.backups / f"{records[name].id}-{day}-{name}"
        assert copy.read_text() == "first"
    assert records["new"].last_approved_copy_path is None
    assert [name for name, record in records.items() if record.is_deleted] == ["gone"]


def test_old_runs_are_removed_unless_they_are_pending(person: Person) -> None:
    (person.project / "file").write_text("first")
    old = run(person, "echo second > file")["run_id"]
    waits = run(person, "echo third > file", "--apply", "review")["run_id"]
    manager = ProjectManager(person.paths)
    assert backups.cleanup_old_runs(manager, now=time.time() + 29 * 86400) == []
    assert backups.cleanup_old_runs(manager, now=time.time() + 31 * 86400) == [old]
    assert not (person.paths.runs / old).exists()
    assert [found.id for found in manager.runs()] == [waits]


def test_the_oldest_of_too_many_versions_are_removed(person: Person) -> None:
    (person.project / "file").write_bytes(b"x" * (3 << 20))
    first = run(person, "head -c 3145728 /dev/urandom > file")["run_id"]
    second = run(person, "head -c 3145728 /dev/urandom > file")["run_id"]
    manager = ProjectManager(person.paths)
    KEEP_MIB.write(manager, "4")
    assert backups.cleanup_old_runs(manager, now=time.time()) == [first]
    assert (person.paths.runs / second).exists()
    assert KEEP_DAYS.read(manager) == 30


def test_a_run_that_only_reached_hosts_does_not_end_the_last_undo(person: Person) -> None:
    (person.project / "file").write_bytes(b"x" * (3 << 20))
    changed = run(person, "head -c 3145728 /dev/urandom > file")["run_id"]
    reached = HostUse("www.example.org", 443, allowed=True)
    info = RunInfo.of(str(person.project), [str(person.project)], {"command": "curl"})
    # Later than the other one.
    add_unchanged_run(person.paths, "20990101-000000-00000000", info, 0, [reached])
    manager = ProjectManager(person.paths)
    KEEP_MIB.write(manager, "1")
    assert backups.cleanup_old_runs(manager, now=time.time()) == []
    assert [found.id for found in manager.runs(only_changed=True)] == [changed]
    (known,) = read_run(person.paths, manager.runs()[0].id).hosts
    assert known == reached
    removed = backups.cleanup_old_runs(manager, now=time.time() + 31 * 86400)
    assert len(removed) == 2 and manager.runs() == []


def test_cleaning_is_done_by_a_run_once_a_day(person: Person) -> None:
    # There is nothing to clean before the first one.
    person.has_database = False
    run(person, "echo > file")
    stale = person.paths.backups / "1-20-01-01-file"
    stale.parent.mkdir(exist_ok=True)
    stale.touch()
    # Foreign files do no harm.
    (person.paths.backups / "somebody's file").touch()
    (person.paths.backups / "1-20-01-01-folder").mkdir()
    (person.paths.cache / "overlay-link").symlink_to("/etc")
    run(person, "true")
    assert len(list(person.paths.backups.iterdir())) == 2
    assert not stale.exists()
    stale.touch()
    run(person, "true")
    assert stale.exists()
    yesterday = time.time() - 90000
    os.utime(person.paths.cache / "cleaned", (yesterday, yesterday))
    run(person, "true")
    assert not stale.exists()


def test_settings_are_shown_set_and_refused(person: Person) -> None:
    assert "keep-runs-days = 30" in cli_here(person, "settings").stdout
    assert cli_here(person, "settings", "keep-runs-days", "7").returncode == 0
    assert cli_here(person, "settings", "keep-runs-days").stdout == "7\n"
    for bad in ("-1", "x", "1e3", ""):
        assert cli_here(person, "settings", "keep-runs-days", "--", bad).returncode == 125
    assert "There is no setting" in cli_here(person, "settings", "colour").stderr


@pytest.mark.parametrize("command", ["changes", "apply", "discard", "undo"])
def test_an_unknown_run_or_path_is_named(person: Person, command: str) -> None:
    done = cli_here(person, command)
    assert done.returncode == 125
    run_id = run(person, "echo > file")["run_id"]
    done = cli_here(person, command, "2099")
    assert (done.returncode, "There is no run 2099" in done.stderr) == (125, True)
    done = cli_here(person, command, "file")
    assert (done.returncode, "file is not " in done.stderr) == (125, True)
    if command != "changes":
        assert f"Name the run first: {run_id} file" in done.stderr
        done = cli_here(person, command, run_id, "other")
        assert (done.returncode, "did not change" in done.stderr) == (125, True)


def test_the_history_lists_runs_with_their_states(person: Person) -> None:
    run(person, "echo > one; exit 3")
    run(person, "echo > two; echo > three", "--apply", "review")
    found = json.loads(cli_here(person, "history", "--json").stdout)
    assert [(item["apply"], item["exit_code"], item["states"]) for item in found] == [
        ("review", 0, {"pending": 2}),
        ("auto", 3, {"applied": 1}),
    ]
    text = cli_here(person, "history").stdout
    assert "echo > one; exit 3" in text
    assert "2 pending" in text
    # It counts what is in the project.
    assert cli_here(person, "apply").returncode == 0
    (person.project / "two").unlink()
    (person.project / "three").write_text("by hand\n")
    [last, _] = json.loads(cli_here(person, "history", "--json").stdout)
    assert last["states"] == {"edited": 1, "undone": 1}
    assert "  1 edited, 1 undone\n" in cli_here(person, "history").stdout


def test_changes_of_other_runs_are_shown_before_they_go_along(person: Person) -> None:
    first, second = (person.cli_run(f"echo {n} >f", "--apply", "review") for n in (1, 2))
    done = person.cli("apply", second["run_id"])
    assert done.returncode == 0
    assert "This also applies changes of earlier runs to the same files:" in done.stderr
    assert first["run_id"] in done.stderr
    assert done.stdout == "2 changes applied.\n"
    assert (person.project / "f").read_text() == "2\n"
    third, fourth = (person.cli_run(f"echo {n} >g", "--apply", "review") for n in (3, 4))
    done = person.cli("discard", "--json", third["run_id"])
    assert "This also discards changes of later runs" in done.stderr
    found = {(one["run_id"], one["state"]) for one in json.loads(done.stdout)["changes"]}
    assert found == {(third["run_id"], "discarded"), (fourth["run_id"], "discarded")}


def test_what_the_user_removed_can_be_applied_again(person: Person) -> None:
    command = "mkdir -p made/inner empty; echo x >made/inner/x; ln -s made link"
    run_id = run(person, command)["run_id"]
    for removed in ("rm -r made empty link", "rm -r made", "rm link", "rmdir empty"):
        subprocess.run(removed, shell=True, cwd=person.project, check=True)
        assert cli_here(person, "apply", run_id).returncode == 0
        assert (person.project / "link/inner/x").read_text() == "x\n"
        assert (person.project / "empty").is_dir()
    assert cli_here(person, "undo", run_id).returncode == 0
    assert not any(person.project.iterdir())
