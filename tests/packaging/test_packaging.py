# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from support.timing import PATIENCE

import ollmsandbox

pytestmark = pytest.mark.ordinary

TREE = Path(__file__).resolve().parents[2]
APP_ID = "io.github.ollmsandbox.OllmSandbox"
SHELLS = ("bash", "zsh", "fish")


def helper(name: str) -> ModuleType:
    """A module of build-aux, which is no package."""
    sys.path.insert(0, str(TREE / "build-aux"))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(TREE / "build-aux"))


def all_commands() -> list[tuple[tuple[str, ...], object]]:
    return list(helper("parsers").program().below())


def desktop_file() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(TREE / f"data/{APP_ID}.desktop.in")
    return found


def metainfo() -> ElementTree.Element:
    made = helper("releases").main(
        TREE / f"data/{APP_ID}.metainfo.xml.in", TREE / "NEWS.md", APP_ID
    )
    return ElementTree.fromstring(made)


# --- the command line ---------------------------------------------------------------------------


def test_the_manual_names_every_command_and_every_option() -> None:
    page = helper("manual").main(TREE / "data/ollmsandbox.1.in").replace("\\-", "-")
    parts = re.split(r"^\.SS ", page, flags=re.MULTILINE)
    parts[-1] = parts[-1].split("\n.SH ")[0]
    sections = {part.splitlines()[0]: part for part in parts[1:]}
    missing = []
    for path, command in all_commands():
        section = sections.get(path[0], "") if path else parts[0]
        words = [flag for option in command.options for flag in option.flags]  # type: ignore[attr-defined]
        if path and not command.commands:  # type: ignore[attr-defined]
            words.append(f"\\fBollmsandbox {' '.join(path)}\\fR")
        # Said once, of all commands.
        missing += [
            (path, word)
            for word in words
            if word not in section and not (path and word in ("-h", "--help"))
        ]
    assert len(sections) > 10
    assert missing == []


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completions_know_every_command_and_every_option(shell: str) -> None:
    text = "\n".join(helper("completions").SHELLS[shell](helper("parsers").program()))
    missing = []
    for path, command in all_commands():
        for option in command.options:  # type: ignore[attr-defined]
            missing += [(path, flag) for flag in option.flags if not _offers(shell, text, flag)]
        missing += [(path, word) for word in path if not re.search(rf"\b{word}\b", text)]
    assert missing == []


def _offers(shell: str, text: str, flag: str) -> bool:
    if shell != "fish":
        return re.search(rf"{flag}\b", text) is not None
    name = f"-l {flag[2:]} " if flag.startswith("--") else f"-s {flag[1:]} "
    return name in text


def complete(tmp_path: Path, *words: str) -> list[str]:
    """Return bash's completions of the last word."""
    script = tmp_path / "completions"
    script.write_text("\n".join(helper("completions").bash(helper("parsers").program())))
    ask = '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ollmsandbox 2>/dev/null; '
    ask += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", ask, str(script), "ollmsandbox", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    return done.stdout.split()


def test_bash_completes_commands_options_values_and_folders(tmp_path: Path) -> None:
    (tmp_path / "projects").mkdir()
    (tmp_path / "plain-file").touch()
    assert complete(tmp_path, "hist") == ["history"]
    assert complete(tmp_path, "sessions", "ex") == ["export"]
    assert complete(tmp_path, "run", "--net") == ["--network"]
    assert complete(tmp_path, "run", "--apply", "") == ["auto", "review", "never"]
    assert complete(tmp_path, "run", "--project", "p") == ["projects"]
    assert complete(tmp_path, "run", "--working-dir", "pl") == ["playground"]
    assert complete(tmp_path, "playground", "") == ["path", "size", "clear"]
    assert "bash" in complete(tmp_path, "run", "--", "bas")


# --- the desktop --------------------------------------------------------------------------------


def test_the_desktop_file_opens_folders_and_offers_actions_that_there_are() -> None:
    desktop = desktop_file()
    entry = desktop["Desktop Entry"]
    assert entry["MimeType"] == "inode/directory;"
    assert entry["DBusActivatable"] == "true"
    assert entry["Exec"].split() == ["ollmsandbox", "%F"]
    actions = [name for name in entry["Actions"].split(";") if name]
    assert actions
    application = (TREE / "ollmsandbox/ui/application.py").read_text()
    for name in actions:
        # The application's own, which the desktop can call; the window has one of that name too.
        assert f'"{name}"' in application
        assert f'"{name}"' in (TREE / "ollmsandbox/ui/window/window.py").read_text()
        action = desktop[f"Desktop Action {name}"]
        assert action["Exec"] == f"gapplication action {APP_ID} {name}"


def test_the_metainfo_has_the_releases_of_the_news() -> None:
    found = metainfo()
    news = re.findall(r"^## (\S+) \((\S+)\)$", (TREE / "NEWS.md").read_text(), re.MULTILINE)
    releases = found.findall("releases/release")
    assert [release.get("version") for release in releases] == [version for version, _ in news]
    assert releases[0].get("version") == ollmsandbox.__version__
    assert releases[0].find("description/ul/li") is not None
    for release, (_, date) in zip(releases, news, strict=True):
        assert (release.get("type") == "development") == (date == "unreleased")
    text = "".join(releases[0].itertext())
    assert "`" not in text


def test_every_screenshot_is_there() -> None:
    shown = [image.text or "" for image in metainfo().findall("screenshots/screenshot/image")]
    assert shown
    folder = "data/screenshots/"
    assert all(f"/{folder}" in address for address in shown)
    names = [address.rpartition("/")[2] for address in shown]
    assert [name for name in names if not (TREE / folder / name).is_file()] == []


# --- translations -------------------------------------------------------------------------------


def has_texts(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ui":
        return 'translatable="yes"' in text
    return bool(re.search(r"(?<![\w.])(?<!def )(N?_|n?p?gettext)\(", text))


def test_every_file_with_texts_is_translated() -> None:
    listed = [
        line
        for line in (TREE / "po/POTFILES").read_text().splitlines()
        if line[:1] not in ("", "#")
    ]
    files = [*TREE.glob("ollmsandbox/**/*.py"), *TREE.glob("data/ui/**/*.ui")]
    with_texts = {str(file.relative_to(TREE)) for file in files if has_texts(file)}
    assert len(with_texts) > 20
    in_code = {name for name in listed if name.startswith(("ollmsandbox/", "data/ui/"))}
    assert sorted(with_texts - in_code) == []
    assert sorted(in_code - with_texts) == []
    assert len(listed) == len(set(listed))
    assert {name for name in listed if name not in in_code} == {
        f"data/{APP_ID}.{kind}" for kind in ("desktop.in", "gschema.xml", "metainfo.xml.in")
    }


# --- Flatpak and pip ----------------------------------------------------------------------------


def manifest(name: str) -> Mapping[str, object]:
    found: Mapping[str, object] = yaml.safe_load((TREE / "flatpak" / f"{name}.yml").read_text())
    return found


@pytest.mark.parametrize("name", [APP_ID, f"{APP_ID}.Devel"])
def test_the_flatpak_may_little_and_downloads_nothing(name: str) -> None:
    found = manifest(name)
    assert found["id"] == name
    arguments = found["finish-args"]
    assert isinstance(arguments, list)
    forbidden = ("--filesystem", "--socket=session-bus", "--socket=system-bus", "--talk-name")
    assert [one for one in arguments if one.startswith((*forbidden, "--own-name"))] == []
    text = (TREE / "flatpak" / f"{name}.yml").read_text()
    assert "://" not in text
    assert ("-Dprofile=development" in text) == name.endswith(".Devel")


def test_the_flatpak_brings_what_the_runtime_has_not() -> None:
    text = (TREE / "flatpak/requirements.txt").read_text()
    pinned = set(
        re.findall(r"^(\S+)==\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", text, re.MULTILINE)
    )
    assert len(pinned) == len(re.findall("==", text))
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=]", name)[0].lower() for name in project["dependencies"]}
    assert wanted - pinned == {"pygobject", "pycairo"}


def test_the_debian_package_knows_every_requirement() -> None:
    text = (TREE / "build-aux/debian-package").read_text()
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"]:
        name, version = requirement.split(">=")
        assert re.search(rf"^(.* )?{name}:[\w-]+:{re.escape(version)}( |$)", text, re.MULTILINE)


# --- installing ---------------------------------------------------------------------------------


def test_a_staged_installation_runs(tmp_path: Path) -> None:
    build, stage, home = tmp_path / "build", tmp_path / "stage", tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    environ = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "DESTDIR": str(stage),
    }

    def run(*words: str | os.PathLike[str]) -> str:
        done = subprocess.run(
            words,
            cwd=project,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    python = f"-Dpython={sys.executable}"
    run("meson", "setup", build, TREE, "--prefix=/opt/thing", python, "-Dprofile=development")
    run("meson", "install", "-C", build)
    launcher = stage / "opt/thing/bin/ollmsandbox"
    assert ollmsandbox.__version__ in run(launcher, "--version")
    assert "from inside" in run(launcher, "run", "--", "echo", "from inside")
    share = stage / "opt/thing/share"
    expected = [
        f"applications/{APP_ID}.Devel.desktop",
        f"dbus-1/services/{APP_ID}.Devel.service",
        f"glib-2.0/schemas/{APP_ID}.gschema.xml",
        f"icons/hicolor/scalable/apps/{APP_ID}.Devel.svg",
        f"icons/hicolor/symbolic/apps/{APP_ID}.Devel-symbolic.svg",
        f"metainfo/{APP_ID}.Devel.metainfo.xml",
        "man/man1/ollmsandbox.1",
        "bash-completion/completions/ollmsandbox",
        "zsh/site-functions/_ollmsandbox",
        "fish/vendor_completions.d/ollmsandbox.fish",
        "ollmsandbox/style.css",
        "ollmsandbox/ui/window/window.ui",
    ]
    assert [name for name in expected if not (share / name).is_file()] == []
    service = (share / expected[1]).read_text()
    assert "Exec=/opt/thing/bin/ollmsandbox --gapplication-service" in service
    assert not list(share.rglob("*.po"))


def test_the_flatpak_is_not_tried_where_something_would_have_to_be_fetched(tmp_path: Path) -> None:
    def run(option: str) -> subprocess.CompletedProcess[str]:
        argv = [str(TREE / "flatpak/test-local"), option, str(tmp_path / "nothing")]
        return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)

    left_out, not_ready = run("--if-ready"), run("--ready")
    assert (left_out.returncode, left_out.stderr) == (0, "")
    assert re.fullmatch(r"test-local: left out, for .+\.\n", left_out.stdout)
    assert (not_ready.returncode, not_ready.stdout) == (1, "")
    assert re.fullmatch(r"test-local: not ready: .+\.\n", not_ready.stderr)
    assert not (tmp_path / "nothing").exists()
