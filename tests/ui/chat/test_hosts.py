# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

from gi.repository import Gtk
from support.chat import Chat, result, shown
from support.person import Person
from support.screen import Screen, all_of
from support.servers.world import in_world
from support.window import dialog, in_project, press, says, wait_until

from ollmsandbox.chat.messages import ToolCall
from ollmsandbox.chat.storage.stored import CallRecord, record_from_json, record_to_json
from ollmsandbox.sandbox.network.hosts import HostUse
from ollmsandbox.sandbox.network.lists import load_host_lists
from ollmsandbox.tools.base import Outcome
from ollmsandbox.ui.sessions.entries import CallEntry
from ollmsandbox.ui.sessions.folding import is_quiet

REFUSED = HostUse("evil.example", 443, allowed=False)
ALLOWED = HostUse("www.example", 443, allowed=True, sent=81, received=10_200)
OUTCOME = Outcome("", ok=True, result=result(0), hosts=(REFUSED, ALLOWED))


def test_the_card_lists_hosts_with_what_was_sent_and_received(screen: Screen, chat: Chat) -> None:
    entry = chat.call("curl https://www.example")
    card = shown(screen, entry)
    chat.start(entry)
    assert not card.hosts_box.get_visible()
    chat.end(entry, OUTCOME)
    # It is in sight, although it changed nothing.
    assert not is_quiet(entry)
    assert card.hosts.get_label() == "1 host allowed, 1 host refused"
    assert card.save_button.get_visible() and not card.host_list.get_visible()
    card.open()
    lines = card.host_list.get_label().split("\n")
    assert lines == ["evil.example: refused", "www.example: 81 B sent, 10 kB received"]
    card.open(is_open=False)
    assert not card.host_list.get_visible()
    # Refused ones alone cannot be saved.
    refused = chat.call("curl https://evil.example")
    chat.end(refused, Outcome("", ok=True, result=result(0), hosts=(REFUSED,)))
    card = shown(screen, refused)
    assert card.hosts.get_label() == "1 host refused"
    assert not card.save_button.get_visible()


def test_a_stored_call_shows_its_hosts(screen: Screen) -> None:
    record = record_from_json(record_to_json(CallRecord.of(OUTCOME, "curl")))
    entry = CallEntry.stored(ToolCall("1", "run_command", {"command": "curl"}), "", record)
    assert entry.hosts == (REFUSED, ALLOWED)
    assert shown(screen, entry).hosts.get_label() == "1 host allowed, 1 host refused"


def test_hosts_are_saved_as_a_list(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, _session):
        entry = Chat().call("curl https://www.example")
        entry.end(OUTCOME)
        window.chat.emit("save-hosts", entry)
        asked = dialog()
        assert says(asked, "www.example") and not says(asked, "evil.example")
        (field,) = all_of(asked, Gtk.Entry)
        for name, is_good in (("", False), ("My List", False), ("web", True)):
            field.set_text(name)
            assert asked.get_response_enabled("confirm") is is_good
        press(asked, "Save")
        wait_until(lambda: load_host_lists(person.paths.config))
        (hosts,) = load_host_lists(person.paths.config)["web"]
        assert str(hosts) == "www.example"
        wait_until(lambda: says(window.toasts, "Saved as @web"))


def test_a_running_command_asks_about_hosts(screen: Screen, tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        # Programs of other tests have the same names on the bus.
        os.environ.pop("DBUS_SESSION_BUS_ADDRESS", None)
        import ollmsandbox.ui
        from support.person import make_person
        from support.scripted import ScriptedModel, call
        from support.window import cards, in_project, wait_until
        from ollmsandbox.permission.request import Answer

        fetch = "curl -sS http://intra.example.org/; curl -sS http://other.example.org/"
        (Path.cwd() / "person").mkdir()
        with in_project(make_person(Path.cwd() / "person")) as (window, session):
            window.chat.set_can_send("")
            window._settings.set("session-hosts", value=True)

            def question(text):
                wait_until(lambda: any(
                    card.open_question and text in card.open_question.question.get_label()
                    for card in cards(window)
                ))
                return [card.open_question for card in cards(window)][-1]

            def press(text, answer):
                card = question(text)
                wait_until(lambda: window.get_focus() is card.button_for(Answer.DENY))
                button = card.button_for(answer)
                wait_until(lambda: button.get_sensitive() and card.is_at_rest)
                button.emit("clicked")
                wait_until(lambda: card.get_root() is None)

            for is_known in (False, True):
                session.conversation.use_model(
                    ScriptedModel([call(command=fetch, network=True, id=str(is_known))])
                )
                window.chat.composer.text = "go"
                window.chat.composer.send_button.emit("clicked")
                press("Run command with network access?", Answer.ALLOW)
                if not is_known:
                    press("Let the command reach intra.example.org?", Answer.ALLOW_SESSION)
                    press("intra.example.org in your private network?", Answer.ALLOW_SESSION)
                question("other.example.org?")
                session.emit("state-changed")
                wait_until(
                    lambda: window.badge.label.get_label() == "Sandboxed, allowed hosts only"
                )
                press("Let the command reach other.example.org?", Answer.DENY)
                wait_until(lambda: not session.is_busy)
                wait_until(lambda: window.badge.label.get_label() == "Sandboxed, no network")
                card = cards(window)[-1]
                assert card.hosts.get_label() == "1 host allowed, 1 host refused"
                (end,) = [use for use in card.entry.hosts if use.allowed]
                assert (end.host, end.received > 0) == ("intra.example.org", True)
        """,
    )
