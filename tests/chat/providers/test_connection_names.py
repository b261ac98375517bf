# SPDX-License-Identifier: GPL-3.0-or-later
"""Renaming a connection keeps its key and its place, and never replaces another one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.person import Person
from support.provider import KEY, ask, said
from support.servers.http import Replay, delta, finish, sse

from ollmsandbox import loop
from ollmsandbox.chat.providers.base import ProviderError
from ollmsandbox.chat.providers.connections import ConnectionStore
from ollmsandbox.chat.providers.connections_file import Connection, ServerKind

pytestmark = pytest.mark.anybody

HOME = Connection("home", ServerKind.OLLAMA, "http://localhost:11434", "qwen3:8b")
WORK = Connection("work", ServerKind.OPENAI, "https://ai.example/v1")


@pytest.fixture
def store(person: Person) -> ConnectionStore:
    made = ConnectionStore(person.paths, person.environ)
    for connection in (HOME, WORK):
        loop.run(made.put(connection, key=KEY))
    return made


@pytest.mark.parametrize("before", ["", "home"])
def test_a_name_that_is_taken_is_refused(store: ConnectionStore, before: str) -> None:
    other = Connection("work", ServerKind.OPENAI, "https://elsewhere.example/v1")
    with pytest.raises(ProviderError, match="work already exists"):
        loop.run(store.change(before, other))
    assert [c.name for c in store.all()] == ["home", "work"]
    assert store.find("work").address == WORK.address


def test_a_new_one_is_added(store: ConnectionStore) -> None:
    loop.run(store.change("", replace(HOME, name="third"), key="sk-3"))
    assert [c.name for c in store.all()] == ["home", "work", "third"]
    default = store.default()
    assert default is not None
    assert default.name == "home"


def test_under_a_new_name_it_keeps_its_key_its_place_and_being_the_default(
    store: ConnectionStore, person: Person
) -> None:
    fine = sse(delta(content="ok"), finish())
    with Replay({"/v1/chat/completions": fine}) as server:
        store.use("work", "big")
        there = replace(store.find("work"), name="office", address=server.address)
        changed = loop.run(store.change("work", there))
        assert [c.name for c in store.all()] == ["home", "office"]
        assert store.default() == changed
        assert changed.model == "big"
        assert said(ask(store.server(store.find("office")).model("m"))) == "ok"
        assert [seen.headers.get("authorization") for seen in server.seen] == [f"Bearer {KEY}"]
    # The old name has none any more.
    assert "work:" not in (person.paths.config / "keys.yaml").read_text()


def test_a_key_typed_with_the_new_name_is_the_one(store: ConnectionStore, person: Person) -> None:
    loop.run(store.change("work", replace(store.find("work"), name="office"), key="sk-new"))
    kept = (person.paths.config / "keys.yaml").read_text()
    assert "office: sk-new" in kept
    assert "work:" not in kept


def test_a_connection_removed_by_another_program_is_saved_again(store: ConnectionStore) -> None:
    known = store.find("work")
    loop.run(store.remove("work"))
    changed = loop.run(store.change("work", replace(known, name="office")))
    assert [c.name for c in store.all()] == ["home", "office"]
    assert changed.key.value == "none"
