# SPDX-License-Identifier: GPL-3.0-or-later
"""The page for users in trouble has all that the doctor says."""

from __future__ import annotations

import ast
import re

import pytest
from support.person import ROOT

pytestmark = pytest.mark.anybody

PAGE = " ".join((ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").split())


def _sentences() -> list[str]:
    source = (ROOT / "ollmsandbox" / "sandbox" / "probe" / "remedies.py").read_text()
    return [
        str(ast.literal_eval(call.args[0]))
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "_"
    ]


@pytest.mark.parametrize("sentence", _sentences())
def test_the_page_has_each_cause_and_remedy(sentence: str) -> None:
    parts = re.split(r"\{\w+\}", sentence)
    assert all(part.strip(" ()") in PAGE for part in parts), sentence
