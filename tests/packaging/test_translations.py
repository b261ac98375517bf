# SPDX-License-Identifier: GPL-3.0-or-later
"""The window uses the user's language; models, records and the command line get English."""

from __future__ import annotations

import ast
import json
import os
import re
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ollmsandbox.sandbox.flatpak.child import NO_START
from ollmsandbox.sandbox.flatpak.runner import SAID
from ollmsandbox.text.visible import visible_line, visible_words
from ollmsandbox.ui.changes import note_words

pytestmark = pytest.mark.anybody

TREE = Path(__file__).resolve().parents[2]
LANGUAGES = ("de", "es", "fr", "zh_CN")
# As po/meson.build has it.
KEYWORDS = ("--keyword=_", "--keyword=N_", "--keyword=pgettext:1c,2")


def run(*words: str | Path, **environ: str) -> str:
    done = subprocess.run(
        words,
        cwd=TREE,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("locales")
    file = folder / "de/LC_MESSAGES/ollmsandbox.mo"
    file.parent.mkdir(parents=True)
    run("msgfmt", "--output-file", file, TREE / "po/de.po")
    return folder


@pytest.fixture(scope="module")
def german(locales: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("person")
    said = run(
        sys.executable,
        TREE / "tests/support/german.py",
        locales,
        home,
        LANGUAGE="de",
        LC_ALL="C.UTF-8",
        PYTHONPATH=f"{TREE}:{TREE / 'tests'}",
    )
    found: dict[str, Any] = json.loads(said)
    return found


# --- what a user reads ------------------------------------------------------------------------


def test_a_card_asks_in_the_user_s_language(german: dict[str, Any]) -> None:
    card = german["cards"][0]
    assert card["question"] == "Befehl mit Netzwerkzugriff ausführen?"
    assert card["facts"] == {
        "Ordner": "~/project",
        "Netzwerk": "An, für diesen Befehl",
        "Beschreibbar": "~/project, Spielwiese",
        "Nachfrage": "Jedes Mal",
    }
    assert "Das Netzwerk ist an." in card["sees"]
    assert [text for text in card["sees"] if re.search(r"\b(can|cannot|is|the)\b", text)] == []


def test_a_card_explains_in_the_user_s_language_why_an_answer_cannot_be_saved(
    german: dict[str, Any],
) -> None:
    card = german["cards"][1]
    assert card["facts"]["Netzwerk"] == "Aus"
    assert card["lasting"] == (
        "Ihre Antwort lässt sich nicht speichern, denn der Befehl führt mehrere Befehle aus."
    )


def test_a_card_explains_a_missing_sandbox_in_the_user_s_language(german: dict[str, Any]) -> None:
    cards = german["cards"][3:]
    assert [card["question"] for card in cards] == [
        "Befehl ohne Sandbox ausführen?",
        "Datei ohne Sandbox lesen?",
        "Datei ohne Sandbox ändern?",
    ]
    for card in cards:
        meaning, cause, *_portal = card["sees"]
        assert meaning.startswith("Dies läuft ohne Sandbox: ")
        assert cause.startswith("Dieses Programm läuft in einem Flatpak")
    assert cards[0]["sees"][2:] == ["Es gibt keinen Sitzungsbus und damit kein Flatpak-Portal."]
    assert cards[0]["facts"]["Beschreibbar"] == "Alles, was Sie schreiben können"


def test_the_badge_sorts_its_sentences_in_any_language(german: dict[str, Any]) -> None:
    badge = german["badge"]
    assert list(badge) == [
        "Beschreibbar",
        "Alles andere",
        "Verborgen",
        "Netzwerk",
        "Grenzen eines Befehls",
    ]
    assert any("/project (das Projekt) ist beschreibbar" in text for text in badge["Beschreibbar"])
    assert any("(die Spielwiese) ist beschreibbar." in text for text in badge["Beschreibbar"])
    assert any("/.ssh" in text for text in badge["Verborgen"])
    assert "Das System ist schreibgeschützt." in badge["Alles andere"]
    assert badge["Netzwerk"] == ["Das Netzwerk ist aus."]


def test_the_badge_explains_a_flatpak_in_the_user_s_language(german: dict[str, Any]) -> None:
    told = german["badge in a Flatpak"]
    assert told.pop("Grenzen eines Befehls")[0] == "10 Minuten"
    assert told == {
        "Fragt jedes Mal": [
            "In einem Flatpak fragt jeder Befehl, bevor er läuft.",
            "Ein Ja gilt nur für diesen einen Befehl.",
        ],
        "Ohne Sandbox": [
            "Ein Befehl kann alles, was dieses Flatpak darf.",
            "Es gibt keinen Sitzungsbus und damit kein Flatpak-Portal.",
        ],
        "Netzwerk": ["Es ist offen und lässt sich hier nicht abschalten."],
    }


def test_missing_parts_are_reported_in_the_user_s_language(german: dict[str, Any]) -> None:
    [miss] = german["missing"]
    assert miss["title"] == "Bubblewrap ist installiert"
    assert miss["cause"] == "Bubblewrap ist nicht installiert."
    assert "nstallieren" in miss["remedy"]


def test_notes_of_changes_are_in_the_user_s_language(german: dict[str, Any]) -> None:
    assert german["notes"] == [
        "Es wurde inzwischen geändert.",
        "Auch eine spätere Ausführung hat es geändert: some-run.",
        "Kein Platz mehr.",
    ]


# --- what others get ----------------------------------------------------------------------------


def test_a_model_gets_english(german: dict[str, Any]) -> None:
    denied, piped, ran, plain, read, edited = german["model"]
    assert denied.startswith("ERROR: The command with network was denied by the user.")
    for text in (piped, plain, read, edited):
        assert "was denied by the user. Nothing was done." in text
    assert ran == "The command printed nothing.\nChanges: 1 added.\n  added made"
    described, notice = german["unrecorded"]
    assert described.startswith(
        "/elsewhere (das Projekt, sichtbar als /workspace) ist schreibgeschützt"
    )
    assert notice == (
        "/elsewhere (the project, visible as /workspace) is read-only: "
        "changes cannot be recorded here."
    )


def test_what_is_recorded_is_english(german: dict[str, Any]) -> None:
    assert german["recorded"] == [
        "Run command with network access?",
        "Run command?",
        "Run command?",
        "Run command without a sandbox?",
        "Read a file without a sandbox?",
        "Change a file without a sandbox?",
    ]
    [miss] = german["kept"]
    assert (miss["title"], miss["cause"]) == (
        "Bubblewrap is installed",
        "bubblewrap is not installed.",
    )
    assert '"A sandbox starts"' in german["kept file"]


def test_the_command_line_stays_english(locales: Path, tmp_path: Path) -> None:
    main = "import sys; from ollmsandbox.__main__ import main; main('', sys.argv.pop(1))"
    said = run(
        sys.executable,
        *("-c", main, locales, "doctor"),
        LANGUAGE="de",
        LC_ALL="C.UTF-8",
        HOME=str(tmp_path),
        PATH="/nowhere",
    )
    assert "Bubblewrap is installed" in said
    assert "bubblewrap is not installed." in said
    assert "nstallier" not in said


# --- the translations themselves ----------------------------------------------------------------


def entries(file: Path | str) -> Iterator[dict[str, str]]:
    """Of a .po file, each as `msgid`, `msgstr[0]` and so on, with its places and flags."""
    text = run("msgcat", "--no-wrap", file) if isinstance(file, Path) else file
    for block in text.split("\n\n"):
        found = dict(re.findall(r'^(msg[a-z_]+(?:\[\d\])?) "(.*)"$', block, re.MULTILINE))
        found["places"] = " ".join(re.findall(r"^#: (.*)$", block, re.MULTILINE))
        found["flags"] = " ".join(re.findall(r"^#, (.*)$", block, re.MULTILINE))
        if found.get("msgid") or '\n"' in block:
            # What has line breaks is written over several lines whatever one says.
            found["msgid"] = found["msgid"] or block.partition("msgid ")[2].partition("msgstr")[0]
            yield found


def placeholders(text: str) -> list[tuple[str, str | None]]:
    parts = string.Formatter().parse(text.replace("\\n", "\n"))
    return sorted((name, spec) for _text, name, spec, _conversion in parts if name is not None)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_translation_has_the_placeholders_of_its_text(language: str) -> None:
    checked = 0
    for entry in entries(TREE / f"po/{language}.po"):
        wanted = placeholders(entry["msgid"])
        for key, text in entry.items():
            if key.startswith("msgstr") and text and wanted:
                assert placeholders(text) == wanted, text
                checked += 1
        # The checker of gettext knows neither those without a name nor formats.
        if wanted and all(name and not spec for name, spec in wanted):
            assert "python-brace-format" in entry["flags"], entry["msgid"]
    assert checked > 80


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_mark_of_a_language_is_taken_for_a_trick_on_a_card(language: str) -> None:
    engine = re.compile(r"ollmsandbox/(permission|sandbox|tools)/")
    checked = [
        entry for entry in entries(TREE / f"po/{language}.po") if engine.search(entry["places"])
    ]
    assert len(checked) > 100
    for entry in checked:
        # Beside a path it is shown with the same care.
        show = visible_line if entry["msgid"].startswith("{folder}, ") else visible_words
        assert show(entry["msgstr"]) == entry["msgstr"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated(language: str, texts: list[str]) -> None:
    file = TREE / f"po/{language}.po"
    assert run("msgattrib", "--untranslated", file) == ""
    assert run("msgattrib", "--only-fuzzy", file) == ""
    known = {_name(entry) for entry in entries(file)}
    assert [text for text in texts if text not in known] == []
    assert len(texts) > 400


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """All that there are to translate."""
    files = ("--files-from=po/POTFILES", f"--directory={TREE}", "--from-code=UTF-8")
    made = run("xgettext", *files, *KEYWORDS, "--no-wrap", "--output=-")
    return [_name(entry) for entry in entries(made)]


def _name(entry: dict[str, str]) -> str:
    return f"{entry.get('msgctxt', '')}|{entry['msgid']}"


def test_every_note_of_a_change_is_known_to_the_window() -> None:
    known = {*note_words.WHOLE}
    found = set()
    for file in TREE.glob("ollmsandbox/project/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ConflictError":
                found |= {ast.literal_eval(argument) for argument in node.args}
    assert len(found) > 5
    assert found - known == set()


def test_all_messages_from_inside_a_flatpak_s_sandbox_are_translated() -> None:
    text = (TREE / "ollmsandbox/sandbox/flatpak/child.py").read_text()
    said = set(re.findall(r'b"([A-Z][^"]+\.)"', text))
    assert said == {*SAID, NO_START.decode()}
