# SPDX-License-Identifier: GPL-3.0-or-later
"""Many attempts to read something, all in one sandbox, and the same attempts without it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.escape.attack import one_by_one, said_by_each
from support.person import Person

SECRET = "correct horse battery staple"
# More than all that is read together.
CAPTURE = 10 << 20


def put_secret(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{SECRET}\n")
    return path


@dataclass(frozen=True)
class Read:
    """What was read for each name, inside and outside the sandbox."""

    inside: dict[str, str]
    outside: dict[str, str]


def read_each(person: Person, attacks: Mapping[str, str], **options: object) -> Read:
    attack = one_by_one(attacks.values())
    inside = said_by_each(attacks, person.run(attack, capture=CAPTURE, **options).stdout.text)
    return Read(inside, said_by_each(attacks, person.run_outside(attack).stdout))


def read_all(*folders: object) -> str:
    """Return shell text that prints everything readable in these folders, following links."""
    names = shlex.join(str(folder) for folder in folders)
    return f"find -L {names} -type f -exec cat {{}} + 2>/dev/null; true"
