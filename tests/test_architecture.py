# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports point one way and never in a circle, only the window knows Gtk, and names are unique."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.person import ROOT

pytestmark = pytest.mark.anybody

PACKAGE = ROOT / "ollmsandbox"

# Each level may import those below it, and itself where `WITHIN` says so.
LEVELS = (
    {"__main__"},
    {"ui", "cli"},
    {"chat"},
    {"tools"},
    {"engine"},
    {"permission", "project", "sandbox"},
    {"config", "database", "net", "text"},
    {"files"},
    {"i18n", "loop", "paths"},
    {"errors", "record"},
    {"__init__"},
)
# Modules of neighbours on one level that may be imported: `project` reads what an overlay made, and
# has git index packs in a sandbox, and records what a spec describes and which hosts were reached.
WITHIN = {"project": {"sandbox.isolated", "sandbox.network", "sandbox.overlay", "sandbox.spec"}}
# All that may be imported from gi.repository outside the window.
WITHOUT_WIDGETS = {"GLib", "Gio", "GObject", "Secret"}
# Run by themselves, in a bare interpreter.
ALONE = (
    "sandbox/starter/server.py",
    "sandbox/starter/child.py",
    "sandbox/starter/sockets.py",
    "sandbox/unsandboxed/child.py",
    "sandbox/flatpak/child.py",
)
# Names that several modules define. Do not add any: put the object into the name instead.
SHARED_NAMES = {"main", "in_words", "resolve", "run"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(file: Path) -> str:
    """Return the dotted name by which a file is imported."""
    return ".".join(("ollmsandbox", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


@cache
def imported(file: Path) -> list[tuple[str, ...]]:
    """Return every import as a dotted path from the top, wherever in the file it is."""
    found: list[tuple[str, ...]] = []
    around = ("ollmsandbox", *file.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = around[: len(around) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            found += [(*base, alias.name) for alias in node.names]
    return found


def graph() -> dict[str, set[str]]:
    """Return, for each of our modules, those of ours that it imports."""
    names = {name_of(file) for file in modules()}
    found: dict[str, set[str]] = {}
    for file in modules():
        name = name_of(file)
        paths = [(".".join(path), ".".join(path[:-1])) for path in imported(file)]
        targets = {whole if whole in names else around for whole, around in paths}
        found[name] = (targets & names) - {name, "ollmsandbox"}
    return found


def allowed() -> Mapping[str, set[str]]:
    parts: dict[str, set[str]] = {}
    for place, level in enumerate(LEVELS):
        below = set().union(*LEVELS[place + 1 :])
        for part in level:
            parts[part] = below | {part}
    return parts


def test_imports_point_one_way() -> None:
    may_import = allowed()
    upwards = []
    used: set[tuple[str, str]] = set()
    for file in modules():
        part = part_of(file)
        for path in imported(file):
            if path[0] != "ollmsandbox" or path[1] in may_import[part] | {"__version__", "N_"}:
                continue
            if (module := ".".join(path[1:3])) in WITHIN.get(part, set()):
                used.add((part, module))
            else:
                upwards.append((name_of(file), ".".join(path)))
    assert upwards == []
    assert used == {(part, module) for part, found in WITHIN.items() for module in found}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for type checking count, too: they only hide a circle."""
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_folders_import_each_other_in_a_circle() -> None:
    """Modules in the folder around them do not count."""
    folders: dict[str, set[str]] = {}
    packages = {name_of(file) for file in modules() if file.name == "__init__.py"}
    for name, targets in graph().items():
        for target in targets:
            ours, theirs = (
                (one if one in packages else one.rpartition(".")[0]).split(".")
                for one in (name, target)
            )
            shared = next(
                (n for n, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
                None,
            )
            if shared is not None:
                one, other = (".".join(path[: shared + 1]) for path in (ours, theirs))
                folders.setdefault(one, set()).add(other)
    try:
        TopologicalSorter(folders).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_only_the_window_imports_widgets() -> None:
    found = {
        (name_of(file), path[-1])
        for file in modules()
        for path in imported(file)
        if path[:2] == ("gi", "repository") and part_of(file) != "ui"
    }
    assert {(name, imports) for name, imports in found if imports not in WITHOUT_WIDGETS} == set()


@pytest.mark.parametrize("name", ALONE)
def test_standalone_programs_import_only_the_standard_library(name: str) -> None:
    for path in imported(PACKAGE / name):
        # Or each other.
        whole, around = f"{'/'.join(path[1:])}.py", f"{'/'.join(path[1:-1])}.py"
        assert path[0] in sys.stdlib_module_names or whole in ALONE or around in ALONE


def test_no_folder_has_too_many_files() -> None:
    for folder in {file.parent for file in (*modules(), *(ROOT / "tests").rglob("*.py"))}:
        assert len(list(folder.glob("*.py"))) <= 30, folder


def test_public_functions_and_classes_have_unique_names() -> None:
    """A name in a stack trace or a search leads to one place."""
    places: dict[str, list[str]] = {}
    for file in modules():
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                places.setdefault(node.name, []).append(name_of(file))
    shared = {name: found for name, found in places.items() if len(found) > 1 and name[0] != "_"}
    assert {name: found for name, found in shared.items() if name not in SHARED_NAMES} == {}


def loaded_by(*names: str) -> set[str]:
    """Return the modules that are loaded after these were imported."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        f"import {', '.join(names)};"
        "print('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(ROOT)], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_run_loads_nothing_it_does_not_need() -> None:
    """Start-up is paid for at every command."""
    package = "ollmsandbox"
    loaded = loaded_by(f"{package}.cli.commands.run", f"{package}.engine.run", f"{package}.loop")
    for heavy in ("gi.repository.Gtk", "requests", "peewee", "pyseccomp", "markdown_it", "yaml"):
        assert heavy not in loaded
    assert not [name for name in loaded if name.startswith(("ollmsandbox.chat", "ollmsandbox.ui"))]
    assert "ollmsandbox.project.change" not in loaded
    # To create a dataclass takes 1 ms.
    ours = [file for file in modules() if name_of(file) in loaded]
    assert not [name_of(file) for file in ours if ("dataclasses", "dataclass") in imported(file)]
    # The arguments of every command are known without it.
    slow = {"requests", "yaml", "gi"}
    assert slow.isdisjoint(loaded_by(f"{package}.cli.commands.connections"))
    # The process that starts sandboxes is started before this.
    assert "asyncio" not in loaded_by(f"{package}.cli.main", f"{package}.sandbox.starter.client")


def test_the_first_frame_loads_nothing_it_does_not_need() -> None:
    """All of this took more than half of the time until then."""
    loaded = loaded_by("ollmsandbox.ui.application")
    for later in (
        *("requests", "markdown_it", "yaml", "peewee", "chat.sessions", "tools.context"),
        *("chat.conversation", "chat.events", "ui.chat.view", "ui.changes.view"),
        *("engine.run", "permission.store", "project.review", "project.state"),
        *("project.scan", "sandbox.probe.probe", "sandbox.plan.mounts", "sandbox.overlay"),
        *("chat.providers.tour.model", "ui.chat.row", "ui.chat.group", "ui.window.maintenance"),
    ):
        assert {later, f"ollmsandbox.{later}"}.isdisjoint(loaded), later
