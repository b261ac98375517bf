# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox sessions`"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from ...chat.storage.export import as_json, as_markdown, spent_words
from ...chat.storage.history import History
from ...chat.storage.stored import SessionInfo
from ...engine.session_lock import SessionLock
from ...errors import OllmSandboxError
from ...paths import Paths
from ...project.projects import ProjectManager
from ...project.short_list import counted
from ...text.ansi import harmless
from ...text.visible import visible_line
from ..streams import print_notices


def sessions(given: argparse.Namespace) -> int:
    manager = ProjectManager(Paths.from_environ(os.environ))
    history = History(manager)
    try:
        if given.action in ("list", "search"):
            return _list(history, given)
        if given.action in ("show", "export"):
            return _write(history, given)
        if given.action == "rename":
            history.rename(_find(history, given.session).id, given.title)
            return 0
        return _delete(history, given.session)
    finally:
        print_notices(*manager.store.notices)
        manager.close()


def _find(history: History, name: str) -> SessionInfo:
    if not name:
        raise OllmSandboxError(
            "The session's id is empty.", "`ollmsandbox sessions list` shows all ids."
        )
    return history.find(name)


def _list(history: History, given: argparse.Namespace) -> int:
    words = " ".join(given.words) if given.action == "search" else ""
    found = history.sessions(given.project, words, given.limit)
    if given.json:
        print(json.dumps([asdict(info) for info in found]))
        return 0
    for info in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.updated_at))
        print(f"{info.id}  {when}  {visible_line(info.title)}")
        about = [part for part in (info.project, info.model) if part] + spent_words(info.spent)
        print(f"    {visible_line(', '.join(about))}")
    if not found:
        print("No session matches." if words else "There are no sessions yet.")
    return 0


def _write(history: History, given: argparse.Namespace) -> int:
    found = _find(history, given.session).id
    is_export = given.action == "export"
    make = as_json if given.json else as_markdown
    text = make(history, found, with_pictures=is_export)
    if is_export and given.output is not None:
        try:
            # "x": never overwrite a file.
            with Path(given.output).open("x", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except OSError as error:
            raise OllmSandboxError(f"{given.output}: {error.strerror}.") from error
    else:
        # The text may contain a command's output.
        sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)
    return 0


def _delete(history: History, names: list[str]) -> int:
    chosen = [_find(history, name) for name in names]
    for info in chosen:
        lock = SessionLock(history.manager.paths, info.id)
        try:
            history.delete(info.id)
        finally:
            lock.release()
    print(f"{counted(len(chosen), 'session')} deleted.")
    return 0
