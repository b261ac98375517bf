# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells versions, and reads pytest's reports, for build-aux/test.

report.py versions          in one line, those of Python and of what the window is made with
report.py counts FOLDER     in one line, what all reports in it counted
report.py failed FOLDER     what failed in them, and at the very end its names
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

_COUNTED = ("tests", "failures", "errors", "skipped")
# The end of a report says what was wrong; a whole one may have thousands of lines.
_LINES = 60


def reports(folder: Path) -> Iterator[tuple[Path, ElementTree.Element | None]]:
    """Each report; nothing for one that is not whole, because the tests were cut off."""
    for file in sorted(folder.rglob("*.xml")):
        try:
            yield file, ElementTree.parse(file).getroot()
        except ElementTree.ParseError:
            yield file, None


def counts(folder: Path) -> str:
    found = dict.fromkeys(_COUNTED, 0)
    for _file, report in reports(folder):
        for suite in report.iter("testsuite") if report is not None else ():
            for name in _COUNTED:
                found[name] += int(suite.get(name, "0"))
    bad = found["failures"] + found["errors"]
    parts = [f"{found['tests'] - bad - found['skipped']} passed"]
    parts += [f"{bad} failed"] if bad else []
    parts += [f"{found['skipped']} skipped"] if found["skipped"] else []
    return ", ".join(parts)


def failed(folder: Path) -> Iterator[tuple[str, str]]:
    """Names and reports."""
    for file, report in reports(folder):
        # The folder around is the step's.
        step = file.relative_to(folder).parts[0]
        if report is None:
            yield f"{step}: {file.stem}", "It was cut off."
            continue
        for case in report.iter("testcase"):
            for outcome in (*case.findall("failure"), *case.findall("error")):
                place = case.get("classname", "").replace(".", "/")
                yield f"{step}: {place}.py::{case.get('name')}", outcome.text or ""


def versions() -> str:
    """What is missing or does not work is said in its place: the tests tell the rest."""
    told = [f"Python {platform.python_version()}"]
    for name, version in (("PyGObject", _pygobject), ("GTK", _gtk), ("libadwaita", _libadwaita)):
        try:
            told.append(f"{name} {version()}")
        except (ImportError, ValueError, AttributeError) as error:
            told.append(f"no {name} ({error})")
    return ", ".join(told)


def _pygobject() -> str:
    import gi

    return gi.__version__


def _gtk() -> str:
    import gi

    gi.require_version("Gtk", "4.0")
    from gi.repository import Gtk

    return f"{Gtk.get_major_version()}.{Gtk.get_minor_version()}.{Gtk.get_micro_version()}"


def _libadwaita() -> str:
    import gi

    gi.require_version("Adw", "1")
    from gi.repository import Adw

    return Adw.VERSION_S


def main() -> None:
    if sys.argv[1] == "versions":
        print(f"versions  {versions()}")
        return
    action, folder = sys.argv[1], Path(sys.argv[2])
    if action == "counts":
        print(counts(folder))
        return
    found = list(failed(folder))
    for name, text in found:
        print(f"\n--- {name}")
        print("\n".join(text.splitlines()[-_LINES:]))
    if found:
        print(f"\n=== failed tests: {len(found)}")
        print("\n".join(name for name, _text in found))


if __name__ == "__main__":
    main()
