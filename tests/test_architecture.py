# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports point one way, and only the window knows Gtk."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.person import ROOT

pytestmark = pytest.mark.anybody

PACKAGE = ROOT / "ollmsandbox"

# What each part may import of ours. Everything may import `errors`, the version, and the mark for
# translators.
ALLOWED = {
    "errors": set(),
    "paths": {"errors"},
    "loop": {"errors"},
    "trees": {"errors"},
    "sandbox": {"errors", "paths", "trees", "loop"},
    "project": {"errors", "paths", "trees", "loop", "sandbox"},
    "permission": {"errors", "paths", "trees", "loop", "sandbox"},
    "tools": {"errors", "paths", "trees", "loop", "sandbox", "project", "permission"},
    "chat": {"errors", "paths", "trees", "loop", "sandbox", "project", "permission", "tools"},
    "ui": {"errors", "paths", "trees", "loop", "sandbox", "project", "permission", "tools", "chat"},
    "cli": {
        "errors",
        "paths",
        "trees",
        "loop",
        "sandbox",
        "project",
        "permission",
        "tools",
        "chat",
    },
    "mcp_server": {"errors", "paths", "trees", "loop", "sandbox", "project", "permission", "tools"},
    "__main__": {"cli", "ui", "mcp_server"},
    "__init__": set(),
}
FRONTS = {"ui", "cli", "mcp_server", "__main__"}
WIDGETS = {"Gtk", "Gdk", "Adw", "GtkSource"}
# Run by themselves, in a bare interpreter.
ALONE = (
    "sandbox/starter.py",
    "sandbox/becoming.py",
    "sandbox/supervisor.py",
    "sandbox/inner_supervisor.py",
)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(file: Path) -> str:
    first = file.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported(file: Path) -> Iterator[tuple[str, ...]]:
    """Every import as a dotted path from the top, whether at the top of a file or inside."""
    around = ("ollmsandbox", *file.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = around[: len(around) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:
                yield (*base, alias.name)


@pytest.mark.parametrize("file", modules(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_one_way(file: Path) -> None:
    part = part_of(file)
    allowed = ALLOWED[part] | {part, "__version__", "N_"}
    ours = {path[1] for path in imported(file) if path[0] == "ollmsandbox" and len(path) > 1}
    assert ours <= allowed, f"{part} imports {ours - allowed}"


@pytest.mark.parametrize("file", modules(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_only_the_window_imports_widgets(file: Path) -> None:
    if part_of(file) != "ui":
        found = {name for path in imported(file) for name in path} & WIDGETS
        assert not found


@pytest.mark.parametrize("name", ALONE)
def test_what_runs_by_itself_imports_only_the_standard_library(name: str) -> None:
    for path in imported(PACKAGE / name):
        # Or each other.
        assert path[0] in sys.stdlib_module_names or f"{'/'.join(path[1:3])}.py" in ALONE


def test_the_sandbox_and_the_project_do_not_know_each_other() -> None:
    for file in modules():
        if part_of(file) == "sandbox":
            assert not [path for path in imported(file) if path[:2] == ("ollmsandbox", "project")]


def test_nothing_below_the_fronts_imports_a_front() -> None:
    for part, allowed in ALLOWED.items():
        if part not in FRONTS:
            assert not allowed & FRONTS


def test_every_part_has_a_rule() -> None:
    assert {part_of(file) for file in modules()} <= set(ALLOWED)


def test_run_loads_nothing_it_does_not_need() -> None:
    """Start-up is paid for at every command."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import ollmsandbox.cli.commands.run, ollmsandbox.sandbox.bubble, ollmsandbox.loop;"
        "print('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(ROOT)], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    for heavy in ("gi.repository.Gtk", "requests", "peewee", "pyseccomp", "markdown_it"):
        assert heavy not in loaded
    assert not [name for name in loaded if name.startswith(("ollmsandbox.chat", "ollmsandbox.ui"))]
    assert "ollmsandbox.cli.main" not in loaded
