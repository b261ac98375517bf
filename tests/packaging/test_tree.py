# SPDX-License-Identifier: GPL-3.0-or-later

import ast
import configparser
import os
import re
import subprocess
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

from support.timing import PATIENCE

import ollmsandbox

TREE = Path(__file__).resolve().parents[2]
APP_ID = "io.github.ollmsandbox.OllmSandbox"
MADE = {".git", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__"}
SUFFIXES = {".py", ".sh", ".in", ".ui", ".css", ".svg", ".xml", ".yaml", ".yml", ".toml"}
MADE_AT_THE_TOP = {
    ".flatpak-builder",
    ".test-on",
    ".venv",
    "build",
    "dist",
    "ollmsandbox.egg-info",
}
SPDX = "SPDX-License-Identifier: "


def written_files() -> Iterator[Path]:
    """Yield every file that is not generated, with or without git."""
    for folder, names, files in os.walk(TREE):
        here = Path(folder)
        made = MADE | MADE_AT_THE_TOP if here == TREE else MADE
        if here == TREE / "flatpak":
            made = MADE | {"sources"}
        names[:] = [name for name in names if name not in made]
        yield from (here / name for name in files)


def is_source(path: Path) -> bool:
    if path.suffix in SUFFIXES or path.name in {"meson.build", "meson_options.txt"}:
        return True
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def test_every_source_file_names_its_licence() -> None:
    sources = [path for path in written_files() if is_source(path)]
    assert len(sources) > 20
    without = [
        str(path.relative_to(TREE))
        for path in sources
        if SPDX not in "".join(path.read_text().splitlines(keepends=True)[:5])
    ]
    assert without == []


def test_every_script_can_be_started() -> None:
    scripts = [path for path in written_files() if path.read_bytes()[:2] == b"#!"]
    assert [str(path) for path in scripts if not os.access(path, os.X_OK)] == []


def test_the_version_is_written_in_one_place() -> None:
    pyproject = tomllib.loads((TREE / "pyproject.toml").read_text())
    assert "version" not in pyproject["project"]
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {
        "attr": "ollmsandbox.__version__"
    }
    # The line as meson reads it.
    line = f'\n__version__ = "{ollmsandbox.__version__}"\n'
    assert line in (TREE / "ollmsandbox/__init__.py").read_text()
    assert "'ollmsandbox/__init__.py'" in (TREE / "meson.build").read_text()


def test_the_desktop_file_is_the_one_that_the_metainfo_launches() -> None:
    desktop = configparser.ConfigParser(interpolation=None)
    desktop.optionxform = str  # type: ignore[assignment,method-assign]
    desktop.read(TREE / f"data/{APP_ID}.desktop.in")
    entry = desktop["Desktop Entry"]
    assert entry["Icon"] == APP_ID
    metainfo = ElementTree.parse(TREE / f"data/{APP_ID}.metainfo.xml.in")
    assert metainfo.findtext("id") == APP_ID
    assert metainfo.findtext("launchable") == f"{APP_ID}.desktop"
    assert metainfo.findtext("provides/binary") == entry["Exec"].split()[0]
    for icon in (f"scalable/apps/{APP_ID}.svg", f"symbolic/apps/{APP_ID}-symbolic.svg"):
        assert (TREE / "data/icons/hicolor" / icon).is_file()


def test_every_system_package_has_a_name_for_each_package_manager() -> None:
    rows = [
        line.split()
        for line in (TREE / "build-aux/packages.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert {row[0] for row in rows} == {"run", "test"}
    assert [row for row in rows if len(row) != 5] == []
    cell = re.compile(r"-|[A-Za-z0-9][A-Za-z0-9.+_-]*([,/][A-Za-z0-9][A-Za-z0-9.+_-]*)*")
    assert [row for row in rows if not all(cell.fullmatch(name) for name in row[1:])] == []
    assert any(row[1] == "bubblewrap" for row in rows)


def run_from(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TREE / "build-aux/run", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_the_program_starts_from_any_folder_and_only_it_is_heard(tmp_path: Path) -> None:
    # The first one may set up what has changed since.
    run_from(TREE, "--version")
    result = run_from(tmp_path, "--version")
    assert result.returncode == 0
    assert ollmsandbox.__version__ in result.stdout
    assert result.stderr == ""


def test_code_in_the_current_folder_is_not_loaded(tmp_path: Path) -> None:
    for name in ("ollmsandbox.py", "argparse.py", "sitecustomize.py", "gi.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('code of the project was loaded')\n")
    result = subprocess.run(
        [TREE / "build-aux/run", "--version"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": str(tmp_path / "json.py")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert ollmsandbox.__version__ in result.stdout


def test_the_page_for_users_in_trouble_has_each_cause_and_remedy() -> None:
    page = " ".join((TREE / "docs/troubleshooting.md").read_text(encoding="utf-8").split())
    source = (TREE / "ollmsandbox/sandbox/probe/remedies.py").read_text()
    sentences = [
        str(ast.literal_eval(call.args[0]))
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "_"
    ]
    assert len(sentences) > 10
    for sentence in sentences:
        parts = re.split(r"\{\w+\}", sentence)
        assert all(part.strip(" ()") in page for part in parts), sentence
