# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to change what a run left, after it was settled: by a descriptor that it sent to another
run, through a socket in a playground that they share."""

from __future__ import annotations

import asyncio
import os

import pytest
from support.changes import states
from support.escape.attack import python
from support.escape.copy_back import review
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.project.change import Report, State
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.sandbox.process import Result
from ollmsandbox.sandbox.spec import Mode, RunSpec

_HOLD = """
    import pathlib, socket, time
    playground = pathlib.Path.home() / 'playground'
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(playground / 'socket'))
    server.listen()
    connection, _ = server.accept()
    _, [held], _, _ = socket.recv_fds(connection, 1, 1)
    while not (playground / 'go').exists():
        time.sleep(0.01)
    try:
        {act}
        print('done')
    except OSError as error:
        print('refused', error)
    """
_SEND = """
    import pathlib, socket, time
    path = '{path}'
    if {is_folder}:
        os.makedirs(path, exist_ok=True)
        open(path + '/file', 'w').write('shown')
        held = os.open(path, os.O_RDONLY)
    else:
        os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o755)
        os.write(held, b'shown')
    name = pathlib.Path.home() / 'playground' / 'socket'
    while True:
        try:
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(name))
            break
        except OSError:
            time.sleep(0.01)
    socket.send_fds(client, [b'1'], [held])
    """
_WRITE = "os.pwrite(held, b'EVIL!', 0)"
_CREATE = (
    "os.write(os.open('evil', os.O_WRONLY | os.O_CREAT, 0o755, dir_fd=held), b'EVIL!');"
    " os.write(os.open('file', os.O_WRONLY | os.O_TRUNC, dir_fd=held), b'EVIL!')"
)


def attack(person: Person, path: str, act: str, mode: Mode) -> Report:
    """Let one run send a descriptor to another one, which uses it after the first was settled."""
    project = os.path.realpath(person.project)
    person.share_playground()
    recorder = Recorder(RunSpec(project, mode=mode), person.paths)
    holder = person.bubble(keeper=Recorder(RunSpec(project, mode=mode), person.paths))
    sender = person.bubble(keeper=recorder)

    async def both() -> tuple[Result, Result]:
        waiting = asyncio.ensure_future(holder.exec(python(_HOLD.replace("{act}", act))))
        is_folder = str(act is _CREATE)
        send = _SEND.replace("{path}", path).replace("{is_folder}", is_folder)
        first = await sender.exec(python(send))
        (person.playground / "go").touch()
        return first, await waiting

    first, second = loop.run(both())
    assert first.exit_code == 0, first.stderr.text
    # It may be refused, because the folder is gone.
    assert second.stdout.text.startswith(("done", "refused")), second.stderr.text
    assert recorder.report is not None
    return recorder.report


def test_an_applied_file(person: Person) -> None:
    (person.project / "file").write_text("old")
    report = attack(person, "file", _WRITE, Mode.AUTO)
    assert states(report) == {"file": State.APPLIED}
    assert (person.project / "file").read_text() == "shown"


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", "folder/file"])
def test_a_pending_file(person: Person, path: str) -> None:
    (person.project / ".git").mkdir()
    (person.project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    mode = Mode.AUTO if path.startswith(".git") else Mode.REVIEW
    report = attack(person, path, _WRITE, mode)
    assert states(report)[path] is State.PENDING
    review(person, "apply", report.run_id)
    assert (person.project / path).read_text() == "shown"


def test_a_pending_folder(person: Person) -> None:
    report = attack(person, "folder", _CREATE, Mode.REVIEW)
    assert person.run("ls folder; cat folder/file").stdout.text == "file\nshown"
    review(person, "apply", report.run_id)
    assert [path.name for path in (person.project / "folder").iterdir()] == ["file"]
    assert (person.project / "folder/file").read_text() == "shown"
