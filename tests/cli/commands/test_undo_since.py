# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox undo --since` goes back to before a run."""

from __future__ import annotations

import json

from support.person import Person


def test_it_lists_what_it_takes_back_and_does_it(person: Person) -> None:
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


def test_a_file_that_changed_since_is_left_and_named(person: Person) -> None:
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


def test_it_stands_alone(person: Person) -> None:
    first = person.cli_run("echo > new")["run_id"]
    for more in ([first], ["--later"]):
        done = person.cli("undo", "--since", first, *more)
        assert done.returncode == 125
        assert "stands alone" in done.stderr
    assert (person.project / "new").exists()
    assert "There is no run" in person.cli("undo", "--since", "").stderr


def test_it_does_not_offer_to_overwrite_a_folder(person: Person) -> None:
    first = person.cli_run("mkdir new; echo > new/file")["run_id"]
    (person.project / "new/mine").write_text("mine\n")
    for words in (("--since", first), (first,)):
        done = person.cli("undo", *words)
        assert done.returncode == 1
        assert "new/" in done.stdout
        assert "overwrite" not in done.stdout
    assert (person.project / "new/mine").read_text() == "mine\n"
