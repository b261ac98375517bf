# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages from below the window are German for a user with a German locale. (The C library
translates .ui files, which stay English here.)"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.person import ROOT, Person
from support.screen import Screen, popover_of
from support.window import (
    card_that,
    controller_of,
    finish,
    press,
    program,
    says,
    session_of,
    wait_until,
    window_of,
)

from ollmsandbox.chat.providers.connections_file import Connection, ServerKind
from ollmsandbox.i18n import DOMAIN, load_translations
from ollmsandbox.ui.preferences.connection_dialog import ConnectionDialog
from ollmsandbox.ui.sessions import sessions
from ollmsandbox.ui.sessions.entries import Stage

NOBODY = Connection("mine", ServerKind.OLLAMA, "http://127.0.0.1:9")


@pytest.fixture(autouse=True)
def german(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    file = tmp_path / "locales/de/LC_MESSAGES" / f"{DOMAIN}.mo"
    file.parent.mkdir(parents=True)
    subprocess.run(["msgfmt", "--output-file", file, ROOT / "po/de.po"], check=True)
    monkeypatch.setenv("LANGUAGE", "de")
    load_translations(str(tmp_path / "locales"))
    yield
    load_translations("/nonexistent")


@pytest.mark.usefixtures("announced")
def test_errors_and_the_tour_are_german_for_the_user_and_english_for_the_model(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    with program(person) as application:
        window = window_of(application)
        # As if it had been recorded before such folders were refused.
        with monkeypatch.context() as patch:
            patch.setattr(sessions, "find_project", lambda folder, _paths: folder)
            controller_of(window).open_project(str(person.home))
            popover = popover_of(window.badge)
            wait_until(lambda: says(popover, "Ihren ganzen persönlichen Ordner"))
        talk = session_of(window).conversation
        outcome = finish(talk.run("true"))
        assert outcome.text.startswith(f"ERROR: {person.home} contains your whole home folder")
        card = card_that(window, lambda card: card.entry.stage is Stage.DONE)
        shown = card.output
        assert shown is not None
        wait_until(lambda: "Wählen Sie einen Ordner darin." in shown.text)
        told = f"FEHLER: {person.home} enthält Ihren ganzen persönlichen Ordner"
        assert shown.text.startswith(told)
        talk.use_model(application.factory.connections.server(NOBODY).model("tiny"))
        finish(talk.say("hello"))
        wait_until(lambda: says(window.chat, "Unter http://127.0.0.1:9 läuft kein Server."))
        dialog = ConnectionDialog(window, application.factory.connections, NOBODY)
        dialog.present()
        press(dialog, "Check")
        wait_until(lambda: says(dialog, "Unter http://127.0.0.1:9 läuft kein Server."))
        assert says(dialog, "starten Sie den Server")
        dialog.close()
        window.activate_action("win.take-tour", None)
        wait_until(lambda: says(window.chat, "Ich bin der Rundgang: ein Skript, keine KI."))
