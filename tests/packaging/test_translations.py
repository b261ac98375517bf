# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

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
from support.timing import PATIENCE

from ollmsandbox.text.visible import visible_line, visible_words

pytestmark = pytest.mark.ordinary

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
        timeout=PATIENCE,
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


# --- what a user reads --------------------------------------------------------------------------

ENGLISH = re.compile(r"\b(the|can|cannot|is|are|not|of|this|you|with|command|file)\b", re.I)


def assert_german(*texts: str) -> None:
    for text in texts:
        without_paths = re.sub(r"[~/]\S*", "", text)
        assert text and not ENGLISH.search(without_paths), text


def assert_english(*texts: str) -> None:
    assert [text for text in texts if not ENGLISH.search(text)] == []


def test_the_window_is_in_the_user_s_language(german: dict[str, Any]) -> None:
    cards = german["cards"]
    assert len(cards) == 6
    for card in cards:
        assert_german(card["question"], *card["facts"], *card["facts"].values(), *card["sees"])
    assert_german(cards[1]["lasting"])
    badge = german["badge"]
    for title, sentences in [*badge.items(), *german["badge in a Flatpak"].items()]:
        assert_german(title, *sentences)
    # Each sentence is under its title in any language.
    writable, _rest, hidden, network, _limits = badge.values()
    assert any("/project" in text for text in writable)
    assert any("/.ssh" in text for text in hidden)
    assert len(network) == 2
    [miss] = german["missing"]
    described, _notice = german["unrecorded"]
    changed, other = german["notes"]
    assert_german(miss["title"], miss["cause"], miss["remedy"], described, changed)
    assert other == "Kein Platz mehr."


# --- what others get ----------------------------------------------------------------------------


def test_models_and_records_get_english(german: dict[str, Any]) -> None:
    assert len(german["model"]) == len(german["recorded"]) == 6
    _described, notice = german["unrecorded"]
    [miss] = german["kept"]
    assert_english(*german["model"], notice, *german["recorded"], miss["title"], miss["cause"])
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
    """Yield each entry of a .po file with its keys, places and flags."""
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
    # A translation may write numbers as its locale does: {size:n} for {size:,}.
    parts = string.Formatter().parse(text.replace("\\n", "\n").replace(":n}", ":,}"))
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
def test_no_punctuation_of_a_language_is_escaped_on_a_card(language: str) -> None:
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
    """Return all translatable texts."""
    files = ("--files-from=po/POTFILES", f"--directory={TREE}", "--from-code=UTF-8")
    made = run("xgettext", *files, *KEYWORDS, "--no-wrap", "--output=-")
    return [_name(entry) for entry in entries(made)]


def _name(entry: dict[str, str]) -> str:
    return f"{entry.get('msgctxt', '')}|{entry['msgid']}"
