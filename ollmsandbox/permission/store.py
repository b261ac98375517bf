# SPDX-License-Identifier: GPL-3.0-or-later
"""The saved rules, in permissions.yaml.

Users may edit the file at any time, and several programs may use it at once.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .. import N_
from ..config.yaml_reader import read_text
from ..errors import OllmSandboxError, Sentence
from ..files.atomic import write_atomically
from ..files.broken import free_name, set_aside
from ..files.locks import locked
from ..paths import Paths, is_inside
from .request import Answer
from .rules import Key, Rule, Target
from .rules_file import HEADER, SOURCE, RuleFileError, edited, parse_rules, written

_TIMEOUT = 10.0

_Signature = tuple[int, int, int, int]


@dataclass(frozen=True)
class _Loaded:
    signature: _Signature | None
    text: str = ""
    rules: tuple[Rule, ...] = ()
    # Why the file could not be read, and must not be overwritten; "" if it was read.
    error: str = ""


class RuleStore:
    """Reads and writes the rules. All methods may block, and any thread may call them."""

    def __init__(self, paths: Paths, *, at_rest: float = 0.3) -> None:
        self.file = paths.config / "permissions.yaml"
        self._loaded: _Loaded | None = None
        self._mutex = threading.RLock()
        # Seconds to wait before a file counts as broken: an editor may be saving it.
        self._at_rest = at_rest
        self._is_locked = False
        self._notices: deque[str] = deque()

    def take_notices(self) -> list[str]:
        """Return new messages for the user, each of them once. Never block."""
        return [self._notices.popleft() for _ in range(len(self._notices))]

    def rules(self) -> tuple[Rule, ...]:
        with self._mutex:
            return self._load().rules

    def check(self) -> None:
        """Raise if there is a file that cannot be read."""
        with self._mutex:
            if error := self._load().error:
                raise OllmSandboxError(error)

    def find(self, key: Key) -> Answer | None:
        """Return the saved answer; if rules contradict each other, deny."""
        answers = {rule.answer for rule in self.rules() if rule.key == key}
        if Answer.DENY_ALWAYS in answers:
            return Answer.DENY_ALWAYS
        return Answer.ALLOW_ALWAYS if answers else None

    def add(self, rule: Rule) -> None:
        """Save a rule in place of all earlier ones with the same key."""
        if rule.answer not in (Answer.ALLOW_ALWAYS, Answer.DENY_ALWAYS):
            raise ValueError(f"not an answer that can be saved: {rule.answer}")
        if rule.answer not in rule.key.allowed_answers:
            raise ValueError(f"not an answer that this key allows: {rule.key}")
        with self._mutex, self._lock():
            before = self._load().rules
            if rule in before and all(r == rule or r.key != rule.key for r in before):
                return
            self._write([r for r in before if r.key == rule.key], [rule])

    def remove(self, chosen: Collection[Rule]) -> int:
        """Remove rules, and return how many of them there were."""
        with self._mutex, self._lock():
            gone = [rule for rule in self._load().rules if rule in chosen]
            if gone:
                self._write(gone, [])
            return len(gone)

    @contextlib.contextmanager
    def move_project(self, old: str, new: str) -> Iterator[None]:
        """Give a project's rules its new path; both paths have their links resolved.

        Copy the rules first, and remove the old ones when the block has succeeded, so that no
        rule that denies is ever missing.
        """
        self.check()
        before = [rule for rule in self.rules() if rule.key.project == old]
        for rule in sorted(before, key=lambda rule: rule.answer.allows):
            moved = _moved(rule, old, new)
            # Adding a rule that allows would replace one that denies the same at the new path.
            if not rule.answer.allows or self.find(moved.key) is not Answer.DENY_ALWAYS:
                self.add(moved)
        yield
        self.remove(before)

    def _write(self, gone: Collection[Rule], new: list[Rule]) -> None:
        loaded = self._load()
        if loaded.error:
            raise OllmSandboxError(loaded.error)
        left = [*(rule for rule in loaded.rules if rule not in gone), *new]
        target = Path(os.path.realpath(self.file))  # it may be a link
        try:
            text = edited(loaded.text, gone, new) if loaded.text.strip() else None
            if text is None:
                text = self._written(left)
                self._keep_comments(loaded.text)
            write_atomically(target, text, durably=True)
        except OSError as error:
            raise _failure(N_("Cannot write {file}: {why}."), self.file, error) from error
        except UnicodeEncodeError as error:
            raise OllmSandboxError(
                N_("Cannot save a name that is not valid UTF-8 in {file}."), file=self.file
            ) from error
        self._loaded = None

    def _written(self, rules: list[Rule]) -> str:
        text = written(rules)
        # Never write a file that would be set aside as broken, with all other rules.
        try:
            if [entry.rule for entry in parse_rules(text)] == rules:
                return text
        except RuleFileError as error:
            raise OllmSandboxError(
                N_("Cannot save this rule in {file}: {why}"), file=self.file, why=str(error)
            ) from error
        raise OllmSandboxError(N_("Cannot save this rule in {file}."), file=self.file)

    def _keep_comments(self, text: str) -> None:
        if not any(line.lstrip().startswith("#") or " #" in line for line in text.splitlines()):
            return
        if all(line in HEADER for line in text.splitlines() if "#" in line):
            return
        kept = free_name(self.file, "before")
        write_atomically(kept, text)
        text = N_("{file} was rewritten. The old file with your comments is {kept}.")
        self._notices.append(Sentence(text, file=self.file, kept=kept))

    def _load(self) -> _Loaded:
        signature = self._signature()
        if self._loaded is None or self._loaded.signature != signature:
            self._loaded = self._read(signature)
        return self._loaded

    def _signature(self) -> _Signature | None:
        try:
            found = os.stat(self.file)
            is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
            if is_own and found.st_mode & 0o077:
                # An editor may have created it. Keep it private.
                os.chmod(self.file, stat.S_IMODE(found.st_mode) & 0o700)
                found = os.stat(self.file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino

    def _read(self, signature: _Signature | None) -> _Loaded:
        try:
            text = read_text(self.file, SOURCE)
            rules = tuple(entry.rule for entry in parse_rules(text))
        except FileNotFoundError:
            return _Loaded(None)
        except OSError as error:
            failure = _failure(N_("Cannot read {file}: {why}."), self.file, error)
            return self._unreadable(failure.message, signature)
        except RuleFileError as first:
            return self._handle_broken(first, signature)
        return _Loaded(signature, text, rules)

    def _unreadable(self, why: Sentence, signature: _Signature | None) -> _Loaded:
        self._notices.append(Sentence(N_("{trouble} Its rules do not apply."), trouble=why))
        return _Loaded(signature, error=why)

    def _handle_broken(self, first: RuleFileError, signature: _Signature | None) -> _Loaded:
        time.sleep(self._at_rest)
        if self._signature() != signature:
            return self._read(self._signature())
        try:
            aside = self._set_aside(signature)
        except (OSError, OllmSandboxError) as error:
            text = N_("{file}, {mistake} ({why})")
            failure = Sentence(text, file=self.file, mistake=str(first), why=str(error))
            return self._unreadable(failure, signature)
        if aside is None:
            return self._read(self._signature())
        # Translators: {mistake} is such as "line 3: not valid UTF-8."
        text = N_(
            "{file}, {mistake} It was renamed to {aside}, and its rules do not apply. Fix it and "
            "rename it back."
        )
        self._notices.append(Sentence(text, file=self.file, mistake=str(first), aside=aside))
        return _Loaded(None)

    def _set_aside(self, signature: _Signature | None) -> Path | None:
        """Rename the broken file; return None if it has changed in the meantime."""
        with self._lock():
            if self._signature() != signature:
                return None
            return set_aside(self.file)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep other programs from changing the file; the mutex keeps other threads from it."""
        if self._is_locked:
            yield
            return
        with locked(self.file, timeout=_TIMEOUT):
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False


def _failure(text: str, file: Path, error: OSError) -> OllmSandboxError:
    """Return an error. The text is marked for translation, with {file} and {why}."""
    return OllmSandboxError(text, file=file, why=error.strerror)


def _moved(rule: Rule, old: str, new: str) -> Rule:
    what = rule.key.what
    if isinstance(what, Target):
        what = Target(_moved_path(what.name, old, new))
    else:
        what = replace(what, folder=_moved_path(what.folder, old, new))
    return replace(rule, key=replace(rule.key, project=new, what=what))


def _moved_path(path: str, old: str, new: str) -> str:
    """Return the new name of a path in the old folder; anything else stays as it is."""
    return new + path[len(old) :] if is_inside(path, old) else path
