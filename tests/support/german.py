# SPDX-License-Identifier: GPL-3.0-or-later
"""Print, as JSON, what the window shows a user with a German locale, and what models and records
get meanwhile. It is a program of its own because a process has one language. Its arguments are the
folder of the translations and a home folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from support.person import Person, make_person
from support.tools import Agent

from ollmsandbox import loop
from ollmsandbox.i18n import set_language
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.project.reasons import Note, Reason
from ollmsandbox.sandbox.plan.mounts import PROJECT, UnrecordedFolder
from ollmsandbox.sandbox.probe.probe import cache_file, probe
from ollmsandbox.sandbox.spec import RunSpec
from ollmsandbox.ui.badge.project import find_state, sections_of
from ollmsandbox.ui.changes.text import note_text
from ollmsandbox.ui.permission.text import duration_text, question_text


def card(request: PermissionRequest) -> dict[str, object]:
    return {
        "question": question_text(request),
        "facts": {fact.label: fact.value for fact in request.facts},
        "sees": request.sees,
        "lasting": duration_text(request),
    }


def told(person: Person) -> dict[str, object]:
    (person.home / ".ssh").mkdir()
    agent = Agent(person, ask_every_command=True)
    outcomes = [agent.run("true", network=True), agent.run("true | cat")]
    agent.asker.answer = Answer.ALLOW
    outcomes.append(agent.run("touch made"))
    outside = Agent(person, environ={"FLATPAK_ID": "some.program"})
    outcomes += [outside.run("true"), outside.read("made"), outside.write("made", content="x")]
    asked = [*agent.asked, *outside.asked]
    [(_pid, plan)] = agent.looking.starts
    assert plan is not None
    unrecorded = UnrecordedFolder("/elsewhere", PROJECT, "/workspace")
    in_flatpak = {**person.environ, "FLATPAK_ID": "some.program"}
    state = loop.run(find_state(RunSpec(str(person.project)), person.paths, in_flatpak))
    found = probe(person.paths, {**person.environ, "PATH": "/nowhere"}, fresh=True)
    return {
        "cards": [card(request) for request in asked],
        "recorded": [request.question for request in asked],
        "model": [outcome.text for outcome in outcomes],
        "badge": {section.title: list(section.sentences) for section in sections_of(plan)},
        "badge in a Flatpak": {item.title: list(item.sentences) for item in state.sections},
        "unrecorded": [unrecorded.describe(), unrecorded.notice()],
        "missing": [found.translated(miss)._asdict() for miss in found.missing],
        "kept": [miss._asdict() for miss in found.missing],
        "kept file": cache_file(person.paths, person.environ).read_text(encoding="utf-8"),
        "notes": [
            note_text(Note(Reason.CHANGED)),
            note_text(Note(Reason.SYSTEM_ERROR, {"error": "Kein Platz mehr"})),
        ],
    }


if __name__ == "__main__":
    set_language(sys.argv[1])
    print(json.dumps(told(make_person(Path(sys.argv[2])))))
