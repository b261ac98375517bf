# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the releases of NEWS.md into the metainfo: `releases.py METAINFO NEWS ID` prints it.

A section of NEWS begins with `## 1.2.3 (2027-01-31)`, or `(unreleased)`; then come paragraphs and
lists with dashes.
"""

from __future__ import annotations

import datetime
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

_PLACE = "<releases/>"
_BASE_ID = "io.github.ollmsandbox.OllmSandbox"
_TITLE = re.compile(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", re.MULTILINE)


def main(metainfo: Path, news: Path, application_id: str) -> str:
    text = metainfo.read_text(encoding="utf-8")
    if text.count(_PLACE) != 1:
        sys.exit(f"{metainfo} has to have {_PLACE} once")
    made = releases(news.read_text(encoding="utf-8"), today())
    ElementTree.indent(made, level=1)
    text = text.replace(_PLACE, ElementTree.tostring(made, encoding="unicode"))
    return re.sub(rf"\b{re.escape(_BASE_ID)}\b", application_id, text)


def releases(news: str, unreleased_on: str) -> ElementTree.Element:
    found = ElementTree.Element("releases")
    parts = _TITLE.split(news)[1:]
    if not parts:
        sys.exit("NEWS has no section that begins with `## VERSION (DATE)`")
    for version, date, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        release = ElementTree.SubElement(found, "release", version=version)
        is_out = date != "unreleased"
        release.set("date", date if is_out else unreleased_on)
        release.set("type", "stable" if is_out else "development")
        # Notes of a release stay in the language they were written in.
        description = ElementTree.SubElement(release, "description", translate="no")
        for block in re.split(r"\n\s*\n", body.strip()):
            _add_block(description, block)
    return found


def _add_block(description: ElementTree.Element, block: str) -> None:
    if block.startswith("- "):
        points = ElementTree.SubElement(description, "ul")
        for point in re.split(r"^- ", block, flags=re.MULTILINE)[1:]:
            ElementTree.SubElement(points, "li").text = _plain(point)
    elif not block.startswith("#"):
        ElementTree.SubElement(description, "p").text = _plain(block)


def _plain(markdown: str) -> str:
    """Without marks: the metainfo knows none of Markdown's."""
    text = re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", " ".join(markdown.split()))
    return text.replace("`", "").replace("**", "")


def today() -> str:
    """Packagers set the time, so that two builds of one source are the same."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.datetime.now(datetime.UTC)
    if epoch:
        moment = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC)
    return moment.date().isoformat()


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]), end="")
