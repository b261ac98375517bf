# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox connections`"""

from __future__ import annotations

import json

import pytest
from support.cli_inline import cli_here
from support.person import Person
from support.provider import KEY
from support.servers.http import Replay, document

pytestmark = pytest.mark.ordinary

EVIL = document({"data": [{"id": "m\x1b[2J"}]})
LISTED = document({"data": [{"id": "m1", "max_model_len": 4096}, {"id": "m2"}]})
TAGS = document({"models": [{"name": "qwen3:8b"}]})


def test_add_list_default_and_remove(person: Person) -> None:
    with Replay({"/v1/models": LISTED}) as server:
        done = cli_here(person, "connections", "add", "box", server.address, "--model", "m1")
    assert (done.returncode, done.stdout) == (0, f"box: openai, {server.address}/v1\n")
    done = cli_here(person, "connections", "add", "home", "localhost", "--kind", "ollama", "--json")
    assert json.loads(done.stdout)["address"] == "http://localhost:11434"
    cli_here(person, "connections", "default", "home", "qwen3:8b")
    listed = cli_here(person, "connections", "list").stdout
    assert listed == (
        f"  box   openai  {server.address}/v1  (m1)\n"
        "* home  ollama  http://localhost:11434  (qwen3:8b)\n"
    )
    found = json.loads(cli_here(person, "connections", "list", "--json").stdout)
    assert found["default"] == "home"
    assert [one["name"] for one in found["connections"]] == ["box", "home"]
    assert cli_here(person, "connections", "remove", "home").returncode == 0
    assert "home" not in cli_here(person, "connections", "list").stdout
    done = cli_here(person, "connections", "remove", "home")
    assert done.returncode == 125
    assert "'home'" in done.stderr


def test_the_key_is_read_from_standard_input_and_shown_nowhere(person: Person) -> None:
    with Replay({"/v1/models": LISTED}) as server:
        done = cli_here(
            person,
            *("connections", "add", "box", server.address, "--key-from-stdin", "--json"),
            input=f"{KEY}\n",
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["key"] == "file"
        test = cli_here(person, "connections", "test", "box")
        keys = {seen.headers.get("authorization") for seen in server.seen if "v1" in seen.path}
    assert keys == {f"Bearer {KEY}"}
    assert test.stdout.splitlines()[1:] == ["  m1  (4,096 tokens)", "  m2"]
    shown = done.stdout + done.stderr + test.stdout + test.stderr
    assert KEY not in shown + cli_here(person, "connections", "list").stdout
    done = cli_here(person, "connections", "add", "x", "x", "--kind", "openai", "--key-from-stdin")
    assert "no key" in done.stderr


def test_a_server_is_tested(person: Person) -> None:
    with Replay({"/api/tags": TAGS, "/api/show": document({})}) as server:
        cli_here(person, "connections", "add", "box", server.address)
        found = json.loads(cli_here(person, "connections", "test", "--json").stdout)
    assert found["name"] == "box"
    assert found["models"][0]["name"] == "qwen3:8b"
    done = cli_here(person, "connections", "test", "box")
    assert done.returncode == 125
    assert "start the server" in done.stderr
    done = cli_here(person, "connections", "add", "y", server.address)
    assert "--kind ollama or --kind openai" in done.stderr


def test_names_of_models_do_not_affect_the_terminal(person: Person) -> None:
    with Replay({"/v1/models": EVIL}) as server:
        cli_here(person, "connections", "add", "box", server.address, "--kind", "openai")
        assert "m⟨ESC⟩[2J" in cli_here(person, "connections", "test").stdout


def test_an_unwritable_file_is_reported(person: Person) -> None:
    config = person.paths.config
    for name in (".keys.lock", ".connections.lock"):
        (config / name).mkdir(parents=True)
        add = ("connections", "add", "box", "localhost", "--kind", "ollama", "--key-from-stdin")
        done = cli_here(person, *add, input=KEY)
        assert done.returncode == 125
        assert str(config / name) in done.stderr
        (config / name).rmdir()


def test_a_broken_file_is_reported(person: Person) -> None:
    file = person.paths.config / "connections.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("connections: 7")
    done = person.cli("connections", "list")
    assert done.returncode == 0
    assert "line 1, key connections" in done.stderr
    assert "There are no connections yet" in done.stdout


def test_find_answers(person: Person) -> None:
    """Whatever runs on this machine."""
    found = json.loads(cli_here(person, "connections", "find", "--json").stdout)
    assert isinstance(found["servers"], list)


def test_settings_are_stored_kept_listed_and_reset(person: Person) -> None:
    add = ("connections", "add", "box", "http://a.b/x", "--kind", "openai", "--json")
    done = cli_here(
        person,
        *(*add, "--model", "m1", "--seeing", "gpt-5", "--header", "X-Team: secret-7"),
        *("--context", "16384", "--effort", "low", "--temperature", "0.3"),
        *("--price", "2.5", "10", "--idle-timeout", "60"),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["address"] == "http://a.b/x"
    assert (document["context"], document["effort"]) == (16384, "low")
    assert (document["temperature"], document["price"]) == (0.3, [2.5, 10.0])
    assert document["seeing"] == ["gpt-5"]
    assert (document["idle_timeout"], document["headers"]) == (60.0, ["X-Team"])
    assert "secret" not in done.stdout
    # What is not given stays as it is.
    assert cli_here(person, *add, "--context", "8000").returncode == 0
    assert cli_here(person, *add, "--context", "3").returncode == 2
    assert cli_here(person, *add, "--header", "X Y: 1").returncode == 125
    assert cli_here(person, "connections", "list").stdout == (
        "* box  openai  http://a.b/x  (m1, context 8,000, effort low, temperature 0.3, idle 60 s, "
        "price 2.5 and 10, seeing gpt-5, header X-Team)\n"
    )
    again = json.loads(cli_here(person, *add, "--effort", "default").stdout)
    assert (again["context"], again["effort"]) == (8000, None)
    assert cli_here(person, *add, "--reset", "--answer", "500").returncode == 0
    listed = cli_here(person, "connections", "list").stdout
    assert listed == "* box  openai  http://a.b/x  (m1, answer 500)\n"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--temperature", "9"), ("--temperature", "nan"), ("--context", "5")),
        *(("--header", "bad"), ("--header", ": b"), ("--idle-timeout", "0.5"), ("--answer", "x")),
    ],
)
def test_a_wrong_setting_is_named(person: Person, option: str, value: str) -> None:
    add = ("connections", "add", "box", "http://a.b", "--kind", "openai")
    done = cli_here(person, *add, option, value)
    assert done.returncode == 2
    assert f"argument {option}: {value!r} is not " in done.stderr
