# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that show and settle recorded runs: paths, JSON, pending and interrupted runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.cli_inline import cli_here
from support.person import Person

from ollmsandbox.project.jobs import ProjectJobs

pytestmark = pytest.mark.ordinary

KEYS = ["run_id", "project", "command", "apply", "started", "exit_code"]
KEYS += ["changes", "conflicts", "skipped"]


def _json(person: Person, *arguments: str) -> Any:
    return json.loads(cli_here(person, *arguments, "--json").stdout)


def test_a_path_may_come_after_an_option(person: Person) -> None:
    run = person.cli_run("echo >a; echo >b")["run_id"]
    done = cli_here(person, "undo", run, "--json", "a")
    assert [change["path"] for change in json.loads(done.stdout)["changes"]] == ["a"]
    done = cli_here(person, "undo", run, "a", "--unknown", "b")
    assert done.returncode == 2
    assert done.stderr.endswith("unrecognized arguments: --unknown\n")


def test_every_document_has_the_same_keys_and_each_change_its_run(person: Person) -> None:
    none = _json(person, "changes")
    assert (list(none), none["run_id"], none["changes"]) == (KEYS, None, [])
    assert none["project"] == str(person.project)
    first = person.cli_run("echo >a", "--apply", "review")["run_id"]
    second = person.cli_run("echo >b", "--apply", "review")["run_id"]
    document = _json(person, "changes", first)
    assert list(document) == KEYS
    assert [change["run_id"] for change in document["changes"]] == [first]
    document = _json(person, "apply", "--all")
    assert list(document) == KEYS
    assert document["run_id"] is None
    found = {change["path"]: change["run_id"] for change in document["changes"]}
    assert found == {"a": first, "b": second}
    assert list(_json(person, "undo")) == KEYS


def test_applying_the_last_run_mentions_earlier_pending_ones(person: Person) -> None:
    person.cli_run("echo >a", "--apply", "review")
    person.cli_run("echo >b")
    for action in ("apply", "discard"):
        said = cli_here(person, action).stdout
        assert "1 earlier run has pending changes" in said
        assert f"`{action} --all`" in said
    assert cli_here(person, "undo").stdout == "1 change undone.\n"
    assert "already undone" in cli_here(person, "undo").stdout


def test_pending_changes_are_marked_among_applied_ones(person: Person) -> None:
    run = str(person.cli_run("echo >a; echo >b; ln -s /etc c", "--apply", "review")["run_id"])
    assert "pending]" not in cli_here(person, "changes", run).stdout
    assert cli_here(person, "apply", run, "a").returncode == 0
    for which in (run, "--all"):
        shown = cli_here(person, "changes", which).stdout
        assert "b [pending]\n" in shown
        assert "c -> /etc [pending; leads out of the project]\n" in shown
        assert "a\n" in shown


def test_undo_says_that_changes_are_pending(person: Person) -> None:
    run = str(person.cli_run("echo >a", "--apply", "review")["run_id"])
    done = cli_here(person, "undo", run)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "0 changes undone.",
        "Its pending changes are not in the project yet. To drop them:",
        f"  ollmsandbox discard {run}",
    ]


def test_both_versions_of_what_is_no_edit_cannot_be_kept(person: Person) -> None:
    (person.project / "edited").write_text("old\n")
    command = "mkdir sub; echo new >sub/added; echo theirs >edited"
    run = str(person.cli_run(command, "--apply", "review")["run_id"])
    added = person.project / "sub" / "added"
    added.parent.mkdir()
    added.write_text("mine\n")
    done = cli_here(person, "apply", run, "sub/added")
    assert (done.returncode, "--both" in done.stdout) == (1, False)
    done = cli_here(person, "apply", "--both", run, "sub/added")
    assert done.returncode == 125
    assert f"Both versions of {added} cannot be kept, because" in done.stderr
    (person.project / "edited").write_text("mine\n")
    assert "add --both" in cli_here(person, "apply", run, "edited").stdout
    # The folder, and everything.
    for paths in ([], ["sub"]):
        done = cli_here(person, "apply", "--both", run, *paths)
        assert (done.returncode, "--both" in done.stdout) == (1, False)
        assert "sub/added [conflict" in done.stdout
    assert (person.project / "edited").read_text() == "mine\ntheirs\n"
    assert added.read_text() == "mine\n"


def test_a_run_of_another_project_says_which(person: Person) -> None:
    run = person.cli_run("echo >a")["run_id"]
    assert f", in {person.project})" not in cli_here(person, "changes", run).stdout
    other = person.home / "other"
    other.mkdir()
    assert f", in {person.project})" in person.cli("changes", run, cwd=other).stdout
    assert str(person.project) in cli_here(person, "history", "--all").stdout


def test_runs_of_a_moved_project_are_pointed_out(person: Person) -> None:
    person.cli_run("echo >a", "--apply", "review")
    moved = person.project.rename(person.home / "moved")
    for command in ("history", "changes"):
        done = person.cli(command, cwd=moved)
        assert "project move" in done.stdout + done.stderr
        assert str(person.project) in done.stdout + done.stderr


def test_an_interrupted_run_is_reported_and_so_is_its_recovery(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = person.cli_run("echo >a; echo >b")["run_id"]

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ProjectJobs, "_perform", interrupt)
        done = cli_here(person, "undo")
    assert done.returncode == 130
    done = cli_here(person, "history")
    assert f"2 changes (run {run})" in done.stderr
    assert list(person.project.iterdir()) == []


def test_a_diff_shows_what_was_there_before_of_any_type(person: Person) -> None:
    folder = person.project / "folder"
    folder.mkdir()
    (folder / "inner").write_text("inner\n")
    (person.project / "file").write_text("text\n")
    for name in ("gone", "turned"):
        (person.project / name).symlink_to("first")
    run = person.cli_run(
        "rm -r folder; echo new >folder; rm file; ln -s /etc file; rm gone; ln -sfn second turned;"
        "echo '#!/bin/sh' >tool; chmod +x tool"
    )["run_id"]
    before = cli_here(person, "changes", "--diff").stdout
    assert "== replaced folder (was a folder), applied\n--- /dev/null\n+++ b/folder\n" in before
    assert "== replaced file -> /etc (was a file), applied; leads out of the project\n" in before
    assert "--- a/file\n+++ /dev/null\n@@ -1 +0,0 @@\n-text\n" in before
    assert "== deleted gone -> first, applied\n" in before
    assert "== modified turned -> second (led to first), applied\n" in before
    assert "== added tool, applied; executable\n" in before
    assert "not available" not in before
    assert cli_here(person, "undo", run).returncode == 0
    assert cli_here(person, "changes", "--diff").stdout == before.replace("applied", "undone")


def test_undo_since_lists_what_it_takes_back_and_does_it(person: Person) -> None:
    (person.project / "file").write_text("0\n")
    first = person.cli_run("echo 1 > file")["run_id"]
    second = person.cli_run("echo 2 > file; echo new > new")["run_id"]
    person.cli_run("echo pending > waits", "--apply", "review")
    done = person.cli("undo", "--since", second)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "ollmsandbox: This takes back:"
    assert [line for line in ("file", "new", "waits") if f" {line}" not in done.stderr] == []
    assert done.stdout.splitlines() == ["1 change discarded.", "2 changes undone."]
    assert (person.project / "file").read_text() == "1\n"
    assert not (person.project / "new").exists()
    assert person.cli("undo", "--since", first).stdout == "1 change undone.\n"
    assert (person.project / "file").read_text() == "0\n"
    assert person.cli("undo", "--since", first).stdout == "0 changes undone.\n"


def test_undo_since_leaves_and_names_a_file_that_has_changed(person: Person) -> None:
    file = person.project / "file"
    file.write_text("0\n")
    first = person.cli_run("echo 1 > file; echo > new")["run_id"]
    file.write_text("mine\n")
    done = person.cli("undo", "--since", first, "--json")
    assert done.returncode == 1
    states = {c["path"]: c["state"] for c in json.loads(done.stdout)["changes"]}
    assert states == {"file": "conflict", "new": "undone"}
    done = person.cli("undo", "--since", first)
    assert f"ollmsandbox undo {first} PATH" in done.stdout
    assert file.read_text() == "mine\n"
    assert person.cli("undo", first, "file").returncode == 0
    assert file.read_text() == "0\n"


def test_undo_since_stands_alone(person: Person) -> None:
    first = person.cli_run("echo > new")["run_id"]
    for more in ([first], ["--later"]):
        done = person.cli("undo", "--since", first, *more)
        assert done.returncode == 125
        assert "stands alone" in done.stderr
    assert (person.project / "new").exists()
    assert "There is no run" in person.cli("undo", "--since", "").stderr


def test_undo_does_not_offer_to_overwrite_a_folder(person: Person) -> None:
    first = person.cli_run("mkdir new; echo > new/file")["run_id"]
    (person.project / "new/mine").write_text("mine\n")
    for words in (("--since", first), (first,)):
        done = person.cli("undo", *words)
        assert done.returncode == 1
        assert "new/" in done.stdout
        assert "overwrite" not in done.stdout
    assert (person.project / "new/mine").read_text() == "mine\n"
