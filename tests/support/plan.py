# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a run's plan, and find the folder it starts in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.person import Person

from ollmsandbox.errors import ProjectError
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.plan.plan import Plan


def plan_of(person: Person, way: OverlayMethod | None = None, **options: Any) -> Plan:
    found = person.capabilities()
    if way is not None:
        found = found._replace(overlay=way)
    return person.bubble(capabilities=found, **options).plan


def starts_in(person: Person, working_dir: str | None, **options: Any) -> str:
    """Return where a run starts, according to a real command and to the plan."""
    bubble = person.bubble(working_dir=working_dir, **options)
    planned = bubble.plan.working_dir
    result = person.run(["pwd", "-P"], working_dir=working_dir, **options)
    assert (result.exit_code, result.stderr.text) == (0, "")
    assert result.stdout.text == planned + "\n"
    assert bubble.plan.environment["PWD"] == planned
    return planned


def project_error(person: Person, folder: str | Path) -> str:
    with pytest.raises(ProjectError) as caught:
        person.run("touch ran", project=folder)
    return str(caught.value)
