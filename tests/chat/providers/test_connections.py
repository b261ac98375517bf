# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections are stored in a file that users can edit; their keys are not."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from dataclasses import replace

import pytest
from support.person import Person
from support.provider import KEY, ask, said
from support.servers.http import Replay, Stall, delta, document, finish, ndjson, sse, stream
from support.servers.strict import ollama_faults, openai_faults
from support.timing import PATIENCE, until

from ollmsandbox import loop
from ollmsandbox.chat.providers.base import (
    Effort,
    ModelInfo,
    Price,
    ProviderError,
    Usage,
    ollama_root,
    openai_root,
)
from ollmsandbox.chat.providers.connections import ConnectionStore
from ollmsandbox.chat.providers.connections_file import TOUR, Connection, ServerKind
from ollmsandbox.chat.providers.discover import FoundServer, find_servers
from ollmsandbox.chat.providers.keys import KeyStorage
from ollmsandbox.chat.providers.tour import NAME
from ollmsandbox.files.locks import locked
from ollmsandbox.net.addresses import is_loopback

pytestmark = pytest.mark.anybody

HOME = Connection("home", ServerKind.OLLAMA, "localhost:11434", "qwen3:8b")
WORK = Connection("Work EU", ServerKind.OPENAI, "https://ai.example")


def store_of(person: Person) -> ConnectionStore:
    return ConnectionStore(person.paths, person.environ)


def put(store: ConnectionStore, connection: Connection, key: str | None = None) -> Connection:
    return loop.run(store.put(connection, key=key))


def test_saved_connections_are_there_for_the_next_program(person: Person) -> None:
    store = store_of(person)
    assert store.all() == []
    assert store.default() is None
    put(store, HOME)
    put(store, WORK)
    again = store_of(person)
    assert again.all() == [
        replace(HOME, address="http://localhost:11434"),
        replace(WORK, address="https://ai.example/v1"),
    ]
    assert again.find("home").model == "qwen3:8b"
    with pytest.raises(ProviderError, match=r"no connection called 'nowhere'(?s:.)*home"):
        again.find("nowhere")


def test_the_default_and_its_model_are_remembered(person: Person) -> None:
    store = store_of(person)
    put(store, HOME)
    only = store.default()
    assert only is not None
    assert only.name == "home"
    # A second one does not take the first one's place, nor leave nothing chosen.
    put(store, WORK)
    assert store.default() == only
    store.use(WORK.name, "big")
    chosen = store_of(person).default()
    assert chosen is not None
    assert (chosen.name, chosen.model) == (WORK.name, "big")
    store.use("tour")
    assert store.default() == TOUR
    store.use("home")
    loop.run(store.remove("home"))
    left = store.default()
    assert left is not None
    assert left.name == WORK.name


def test_putting_one_again_changes_it_in_its_place(person: Person) -> None:
    store = store_of(person)
    put(store, HOME)
    put(store, WORK)
    put(store, replace(HOME, address="http://box:1", room=8192, idle=20.5))
    assert [c.name for c in store_of(person).all()] == ["home", WORK.name]
    changed = store_of(person).find("home")
    assert (changed.address, changed.room, changed.idle) == ("http://box:1", 8192, 20.5)


def test_the_files_are_private_and_the_settings_have_no_key(person: Person) -> None:
    store = store_of(person)
    found = put(store, WORK, KEY)
    assert found.key is KeyStorage.FILE
    for file in person.paths.config.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0 or file.stat().st_size == 0
    settings = (person.paths.config / "connections.yaml").read_text()
    assert KEY not in settings
    assert KEY not in repr(found) + repr(store.all())
    assert KEY in (person.paths.config / "keys.yaml").read_text()


def test_the_key_goes_with_every_request_until_it_is_removed(person: Person) -> None:
    fine = sse(delta(content="ok"), finish())
    with Replay({"/v1/chat/completions": fine}) as server:
        store = store_of(person)
        found = put(store, Connection("w", ServerKind.OPENAI, server.address), KEY)
        assert said(ask(store.server(found).model("m"))) == "ok"
        # Without one given, it stays.
        found = put(store, replace(found, model="other"))
        assert said(ask(store_of(person).server(store.find("w")).model("m"))) == "ok"
        found = put(store, found, "")
        assert said(ask(store.server(found).model("m"))) == "ok"
        keys = [seen.headers.get("authorization") for seen in server.seen]
    assert keys == [f"Bearer {KEY}", f"Bearer {KEY}", None]
    assert KEY not in (person.paths.config / "keys.yaml").read_text()


def test_removing_a_connection_removes_its_key(person: Person) -> None:
    store = store_of(person)
    put(store, WORK, KEY)
    loop.run(store.remove(WORK.name))
    assert store.all() == []
    assert KEY not in (person.paths.config / "keys.yaml").read_text()
    # The tour is always there.
    with pytest.raises(ProviderError, match="tour cannot be removed"):
        loop.run(store.remove("tour"))
    server = store.server(store.find("tour"))
    assert [model.name for model in loop.run(server.models())] == [NAME]


@pytest.mark.parametrize("way", ["removed", "renamed"])
def test_a_change_is_finished_after_its_task_is_cancelled(person: Person, way: str) -> None:
    """The dialog is closed while another program has the file."""
    store = store_of(person)
    put(store, WORK, KEY)
    keys = person.paths.config / "keys.yaml"
    assert "Work EU" in keys.read_text()

    async def leave() -> None:
        with locked(person.paths.config / "connections.yaml"):
            work = (
                store.remove("Work EU")
                if way == "removed"
                else store.put(replace(WORK, name="office"), before="Work EU")
            )
            begun: asyncio.Future[object] = asyncio.ensure_future(work)
            await asyncio.wait({begun}, timeout=0.1)
            begun.cancel()
            await asyncio.wait({begun})
            assert begun.cancelled()
        await until(lambda: "Work EU" not in keys.read_text())

    loop.run(leave())
    assert [one.name for one in store.all()] == ([] if way == "removed" else ["office"])


def test_a_keyring_that_is_gone_does_not_stand_in_the_way(person: Person) -> None:
    file = person.paths.config / "connections.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("connections:\n  w: {kind: openai, address: x.example, key: keyring}")
    store = store_of(person)
    with pytest.raises(ProviderError, match="keyring does not respond"):
        ask(store.server(store.find("w")).model("m"))
    assert put(store, store.find("w"), KEY).key is KeyStorage.FILE
    still, unencrypted = store.take_notices()
    assert "The old key of w could not be removed" in still
    assert "unencrypted" in unencrypted
    assert KEY not in still + unencrypted
    loop.run(store.remove("w"))
    assert store.all() == []
    assert store.take_notices() == []


def test_a_broken_key_file_is_reported_without_its_content(person: Person) -> None:
    store = store_of(person)
    found = put(store, WORK, KEY)
    (person.paths.config / "keys.yaml").write_text(f"a: [{KEY}")
    with pytest.raises(ProviderError, match=r"Cannot read .*keys\.yaml") as caught:
        ask(store.server(found).model("m"))
    assert KEY not in f"{caught.value!r} {caught.value.__cause__} {caught.value.__context__}"


@pytest.mark.parametrize("name", ["", " x", "tour", "a\nb", "a/b", "x" * 65, "-x"])
def test_names_that_cannot_be(person: Person, name: str) -> None:
    with pytest.raises(ProviderError, match="is not a valid name"):
        put(store_of(person), replace(HOME, name=name))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("default: [", "line "),
        ("connections:\n  a:\n    kind: olama\n    address: x", "line 3, key connections.a.kind"),
        ("connections:\n  a:\n    kind: ollama", "key connections.a: the key address is"),
        ("connections:\n  a:\n    kind: openai\n    address: ftp://x", "line 4"),
        ("connections:\n  a: {kind: openai, address: x, secret: y}", "connections.a.secret"),
        ("connections:\n  a: {kind: openai, address: x, room: lots}", "connections.a.room"),
        ("connections:\n  a: {kind: openai, address: x, idle: -1}", "connections.a.idle"),
        ("connections:\n  a: {kind: openai, address: x, key: abc}", "connections.a.key"),
        ("connections:\n  a: 1\n  a: 2", "twice"),
        ("colour: red", "key colour: unknown key"),
        ("default: gone", "there is no connection 'gone'"),
        ("- a", "line 1"),
        ("\t", "line 1"),
    ],
)
def test_a_broken_file_is_set_aside_and_reported(person: Person, text: str, words: str) -> None:
    file = person.paths.config / "connections.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    store = store_of(person)
    assert store.all() == []
    (notice,) = store.take_notices()
    assert str(file) in notice
    assert words in notice
    (aside,) = file.parent.glob("connections-broken-*.yaml")
    assert aside.read_text() == text
    assert aside.name in notice
    put(store, HOME)
    assert [c.name for c in store.all()] == ["home"]
    assert store.take_notices() == []


def test_a_pipe_in_the_place_of_the_file_is_set_aside(person: Person) -> None:
    file = person.paths.config / "connections.yaml"
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    store = store_of(person)
    put(store, HOME)
    assert [c.name for c in store.all()] == ["home"]
    assert "not a regular file" in store.take_notices()[0]


def test_a_file_by_hand(person: Person) -> None:
    file = person.paths.config / "connections.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(
        "# mine\ndefault: box\nconnections:\n  box:\n    kind: ollama\n    address: box\n"
        "    model: 4\n    idle: 30\n"
    )
    box = store_of(person).default()
    assert box == Connection("box", ServerKind.OLLAMA, "http://box:11434", "4", idle=30)


def test_two_programs_that_add_at_once_both_succeed(person: Person) -> None:
    def add(number: int) -> None:
        connection = Connection(f"c{number}", ServerKind.OPENAI, "x")
        asyncio.run(store_of(person).put(connection))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {c.name for c in store_of(person).all()} == {f"c{number}" for number in range(12)}


@pytest.mark.parametrize(
    ("text", "ollama", "openai"),
    [
        ("localhost", "http://localhost:11434", "http://localhost/v1"),
        ("localhost:9", "http://localhost:9", "http://localhost:9/v1"),
        (" http://a.b/ ", "http://a.b", "http://a.b/v1"),
        ("https://a.b/v1/", "https://a.b", "https://a.b/v1"),
        ("https://a.b/api", "https://a.b", "https://a.b/api"),
        ("https://a.b/x/openai/", "https://a.b/x/openai", "https://a.b/x/openai"),
        ("https://a.b/api/v4", "https://a.b/api/v4", "https://a.b/api/v4"),
        ("a.b/v1/chat/completions", "http://a.b:11434/v1/chat/completions", "http://a.b/v1"),
        ("[::1]:80", "http://[::1]:80", "http://[::1]:80/v1"),
    ],
)
def test_addresses_are_understood_as_people_type_them(text: str, ollama: str, openai: str) -> None:
    assert (ollama_root(text), openai_root(text)) == (ollama, openai)


@pytest.mark.parametrize(
    "text",
    [
        *("", "http://", "file:///etc/passwd", "a b", "http://x:y", "http://x:99999"),
        *("http://[::1", "http://me:pw@host", "javascript://x", "http://a\tb", "http://%00"),
        "http://a\nb",
    ],
)
def test_an_invalid_address_is_refused(text: str) -> None:
    for root in (ollama_root, openai_root):
        with pytest.raises(ProviderError) as caught:
            root(text)
        assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "root"),
    [
        (" r.openai.azure.com", "https://r.openai.azure.com/openai/v1"),
        ("r.openai.azure.us/openai/v1", "https://r.openai.azure.us/openai/v1"),
        (
            "https://r.services.ai.azure.com/models/chat/completions?api-version=2024-05",
            "https://r.services.ai.azure.com/models?api-version=2024-05",
        ),
        (
            "https://r.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2024-10",
            "https://r.openai.azure.com/openai/deployments/gpt?api-version=2024-10",
        ),
        ("https://r.openai.azure.com/openai/v1/", "https://r.openai.azure.com/openai/v1"),
        ("https://a.b?version=3", "https://a.b/v1?version=3"),
    ],
)
def test_a_query_belongs_to_the_address(text: str, root: str) -> None:
    assert openai_root(text) == root
    assert openai_root(root) == root
    with pytest.raises(ProviderError):
        ollama_root("https://a.b?version=3")


def test_azure_gets_its_key_and_its_version_with_each_request(person: Person) -> None:
    path = "/openai/deployments/gpt"
    fine = sse(delta(content="ok"), finish())
    listed = document({"data": [{"id": "gpt-4o-2024-08-06"}]})
    routes = {
        f"{path}/chat/completions?api-version=1": fine,
        "/openai/models?api-version=1": listed,
    }
    with Replay(routes) as server:
        store = store_of(person)
        address = f"{server.address}{path}/chat/completions?api-version=1"
        found = put(store, Connection("azure", ServerKind.OPENAI, address), KEY)
        models = loop.run(store.server(found).models())
        assert [model.name for model in models] == ["gpt"]
        model = store.server(found).model("gpt")
        assert loop.run(model.context_length()) is None
        assert said(ask(model)) == "ok"
        assert all(seen.headers["api-key"] == KEY for seen in server.seen)
        assert not any("authorization" in seen.headers for seen in server.seen)


SET = Connection(
    "set",
    ServerKind.OPENAI,
    "http://a.b/v1",
    room=16384,
    answer=2048,
    effort=Effort.LOW,
    temperature=0.2,
    headers=(("X-Title", "OLLM Sandbox"), ("X-Team", "7")),
    price=Price(2.0, 10.0),
    seeing=("gpt-5", "7"),
    connect=3.0,
    idle=90.0,
)


def test_settings_go_with_each_request(person: Person) -> None:
    used = {"choices": [], "usage": {"prompt_tokens": 1_000_000, "completion_tokens": 100_000}}
    refused = document({"error": {"message": "Use 'max_completion_tokens' instead."}}, 400)
    fine = sse(delta(content="ok"), finish(), used)
    with Replay({"/v1/chat/completions": [refused, fine]}) as server:
        store = store_of(person)
        found = put(store, replace(SET, address=f"{server.address}/v1"))
        assert found == store_of(person).find("set") == replace(SET, address=found.address)
        model = store.server(found).model("m")
        assert loop.run(model.context_length()) == 16384
        assert model.longest_answer == 2048
        pieces = ask(model)
        assert [p.cost for p in pieces if isinstance(p, Usage)] == [3.0]
        said = [seen.json for seen in server.seen if seen.path.endswith("completions")]
        assert said[0]["max_tokens"] == 2048
        last = server.seen[-1]
        assert last.json["max_completion_tokens"] == 2048
        assert "max_tokens" not in last.json
        assert (last.json["reasoning_effort"], last.json["temperature"]) == ("low", 0.2)
        assert (last.headers["x-title"], last.headers["x-team"]) == ("OLLM Sandbox", "7")
        assert not openai_faults(last.json)


def test_settings_go_with_each_request_to_ollama(person: Person) -> None:
    show = document({"model_info": {"x.context_length": 131072}})
    fine = ndjson({"message": {"content": "ok"}, "done": True})
    with Replay({"/api/show": show, "/api/chat": fine}) as server:
        store = store_of(person)
        wanted = replace(SET, kind=ServerKind.OLLAMA, address=server.address)
        ask(store.server(put(store, wanted)).model("m"))
        ask(store.server(put(store, replace(wanted, effort=Effort.NONE))).model("m"))
        first, second = [seen.json for seen in server.seen if seen.path == "/api/chat"]
        assert first["options"] == {"num_ctx": 16384, "num_predict": 2048, "temperature": 0.2}
        assert (first["think"], second["think"]) == ("low", False)
        assert not ollama_faults(first)


@pytest.mark.parametrize("header", [("X Y", "1"), ("", "1"), ("X", "1\r\nY: 2"), ("X", "ü")])
def test_a_header_that_is_none_is_refused(person: Person, header: tuple[str, str]) -> None:
    with pytest.raises(ProviderError, match="not a valid header"):
        put(store_of(person), replace(SET, headers=(header,)))


def test_this_machine_is_known_by_all_its_names() -> None:
    for mine in ("localhost", "127.0.0.1", "127.9.9.9", "[::1]", "a.localhost", "0.0.0.0"):
        assert is_loopback(f"http://{mine}:1")
    assert is_loopback("http://[::ffff:127.0.0.1]")
    for other in ("10.0.0.1", "example.org", "localhost.example.org", "[fe80::1]"):
        assert not is_loopback(f"http://{other}:1")


def test_servers_are_found_at_the_ports_named_and_nowhere_else() -> None:
    tags = document({"models": [{"name": "qwen3:8b"}]})
    listed = document({"data": [{"id": "m", "max_model_len": 99}]})
    with (
        Replay({"/api/tags": tags}) as one,
        Replay({"/v1/models": listed}) as two,
        Replay({"*": document([])}) as web,
    ):
        ports = {one.port: "A", two.port: "B", web.port: "C", 1: "D"}
        found = loop.run(find_servers(ports, patience=20))
    assert found == [
        FoundServer("A", ServerKind.OLLAMA, one.address, (ModelInfo("qwen3:8b"),)),
        FoundServer("B", ServerKind.OPENAI, f"{two.address}/v1", (ModelInfo("m", 99),)),
    ]


def test_a_server_that_stalls_is_skipped() -> None:
    with Replay({"*": stream([b"{", Stall()])}) as stuck:
        assert loop.run(find_servers({stuck.port: "A"}, patience=0.3)) == []


@pytest.mark.parametrize("what", ["put", "remove"])
def test_waiting_for_another_program_blocks_nothing_else(person: Person, what: str) -> None:
    store = store_of(person)
    put(store, HOME)
    is_held, may_let_go = threading.Event(), threading.Event()
    was_told: list[bool] = []

    def hold() -> None:
        with locked(person.paths.config / "connections.yaml"):
            is_held.set()
            was_told.append(may_let_go.wait(PATIENCE))

    async def change() -> None:
        work = store.put(WORK) if what == "put" else store.remove("home")
        changing = asyncio.ensure_future(work)
        for _turn in range(10):
            await asyncio.sleep(0)
        assert not changing.done()
        may_let_go.set()
        await changing

    other = threading.Thread(target=hold)
    other.start()
    assert is_held.wait(PATIENCE)
    loop.run(change())
    other.join()
    assert was_told == [True]
    names = [one.name for one in store.all()]
    assert names == (["home", "Work EU"] if what == "put" else [])


# --- names ---------------------------------------------------------------------------------------

OFFICE = Connection("work", ServerKind.OPENAI, "https://ai.example/v1")


@pytest.fixture
def both(person: Person) -> ConnectionStore:
    store = store_of(person)
    for connection in (HOME, OFFICE):
        put(store, connection, KEY)
    return store


@pytest.mark.parametrize("before", ["", "home"])
def test_a_name_that_is_taken_is_refused(both: ConnectionStore, before: str) -> None:
    other = Connection("work", ServerKind.OPENAI, "https://elsewhere.example/v1")
    with pytest.raises(ProviderError, match="work already exists"):
        loop.run(both.put(other, before=before))
    assert [c.name for c in both.all()] == ["home", "work"]
    assert both.find("work").address == OFFICE.address
    # Another one is added.
    loop.run(both.put(replace(other, name="third"), before="", key="sk-3"))
    assert [c.name for c in both.all()] == ["home", "work", "third"]


def test_a_renamed_one_keeps_its_key_and_its_place(both: ConnectionStore, person: Person) -> None:
    fine = sse(delta(content="ok"), finish())
    with Replay({"/v1/chat/completions": fine}) as server:
        both.use("work", "big")
        there = replace(both.find("work"), name="office", address=server.address)
        changed = loop.run(both.put(there, before="work"))
        assert [c.name for c in both.all()] == ["home", "office"]
        assert both.default() == changed
        assert changed.model == "big"
        assert said(ask(both.server(both.find("office")).model("m"))) == "ok"
        assert [seen.headers.get("authorization") for seen in server.seen] == [f"Bearer {KEY}"]
    # The old name has none any more.
    assert "work:" not in (person.paths.config / "keys.yaml").read_text()
    loop.run(both.put(replace(both.find("office"), name="work"), before="office", key="sk-new"))
    kept = (person.paths.config / "keys.yaml").read_text()
    assert "work: sk-new" in kept and "office:" not in kept


def test_a_connection_removed_by_another_program_is_saved_again(both: ConnectionStore) -> None:
    known = both.find("work")
    loop.run(both.remove("work"))
    changed = loop.run(both.put(replace(known, name="office"), before="work"))
    assert [c.name for c in both.all()] == ["home", "office"]
    assert changed.key.value == "none"
