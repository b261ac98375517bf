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
from ..errors import OllmSandboxError, Sentence
from ..files.atomic import write_atomically
from ..files.locks import FileLock
from ..paths import Paths, is_inside, make_folder
from . import rules_file
from .request import Answer
from .rules import Key, Rule, Target, What
from .rules_file import RuleFileError

_LARGEST = 4 << 20
_PATIENCE = 10.0

_Signature = tuple[int, int, int, int]


@dataclass(frozen=True)
class _Loaded:
    signature: _Signature | None
    text: str = ""
    rules: tuple[Rule, ...] = ()
    # There is a file, but what is in it is not known: it must not be written over.
    trouble: str = ""


class RuleStore:
    """All its calls may block, and may come from any thread."""

    def __init__(self, paths: Paths, *, at_rest: float = 0.3) -> None:
        self.file = paths.config / "permissions.yaml"
        self._loaded: _Loaded | None = None
        self._mutex = threading.RLock()
        # A file is broken if it has been so for some time: an editor may be saving it just now.
        self._at_rest = at_rest
        self._is_alone = False
        self._notices: deque[str] = deque()

    def take_notices(self) -> list[str]:
        """What the person should hear, once. Never blocks."""
        return [self._notices.popleft() for _ in range(len(self._notices))]

    def rules(self) -> tuple[Rule, ...]:
        with self._mutex:
            return self._load().rules

    def check(self) -> None:
        """Raises if there is a file, but what is in it is not known."""
        with self._mutex:
            if trouble := self._load().trouble:
                raise OllmSandboxError(trouble)

    def find(self, key: Key) -> Answer | None:
        """Where rules contradict each other, the one that forbids holds."""
        answers = {rule.answer for rule in self.rules() if rule.key == key}
        if Answer.DENY_ALWAYS in answers:
            return Answer.DENY_ALWAYS
        return Answer.ALLOW_ALWAYS if answers else None

    def add(self, rule: Rule) -> None:
        """Instead of all that was said of the same before."""
        if rule.answer not in (Answer.ALLOW_ALWAYS, Answer.DENY_ALWAYS):
            raise ValueError(f"not an answer that is kept: {rule.answer}")
        if rule.answer not in rule.key.allowed_answers:
            raise ValueError(f"not a request that may be allowed unseen: {rule.key}")
        with self._mutex, self._alone():
            before = self._load().rules
            if rule in before and all(r == rule or r.key != rule.key for r in before):
                return
            self._write([r for r in before if r.key == rule.key], [rule])

    def remove(self, chosen: Collection[Rule]) -> int:
        """How many there were of them."""
        with self._mutex, self._alone():
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
        if loaded.trouble:
            raise OllmSandboxError(loaded.trouble)
        left = [*(rule for rule in loaded.rules if rule not in gone), *new]
        target = Path(os.path.realpath(self.file))  # may be kept elsewhere, and be linked
        try:
            text = rules_file.edited(loaded.text, gone, new) if loaded.text.strip() else None
            if text is None:
                text = self._written(left)
                self._keep_comments(loaded.text)
            write_atomically(target, text, durably=True)
        except OSError as error:
            raise _cannot(N_("{file} cannot be written: {why}."), self.file, error) from error
        except UnicodeEncodeError as error:
            raise OllmSandboxError(
                N_("{file} cannot hold a name that is not valid UTF-8."), file=self.file
            ) from error
        self._loaded = None

    def _written(self, rules: list[Rule]) -> str:
        text = rules_file.written(rules)
        # What would be refused at the next start must not take all other rules with it.
        try:
            if [entry.rule for entry in rules_file.parse(text)] == rules:
                return text
        except RuleFileError as error:
            raise OllmSandboxError(
                N_("{file} cannot hold this rule: {why}"), file=self.file, why=str(error)
            ) from error
        raise OllmSandboxError(N_("{file} cannot hold this rule."), file=self.file)

    def _keep_comments(self, text: str) -> None:
        if not any(line.lstrip().startswith("#") or " #" in line for line in text.splitlines()):
            return
        if all(line in rules_file.HEADER for line in text.splitlines() if "#" in line):
            return
        kept = self._free_name("before")
        write_atomically(kept, text)
        text = N_("{file} was laid out anew. As it was, with your comments, it is {kept}.")
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
                # Made by an editor, perhaps; what is in it is nobody else's business.
                os.chmod(self.file, stat.S_IMODE(found.st_mode) & 0o700)
                found = os.stat(self.file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino

    def _read(self, signature: _Signature | None) -> _Loaded:
        try:
            text, entries = self._parsed()
        except FileNotFoundError:
            return _Loaded(None)
        except OSError as error:
            trouble = _cannot(N_("{file} cannot be read: {why}."), self.file, error)
            return self._in_trouble(trouble.message, signature)
        except RuleFileError as first:
            return self._doubt(first, signature)
        return _Loaded(signature, text, entries)

    def _in_trouble(self, trouble: Sentence, signature: _Signature | None) -> _Loaded:
        self._notices.append(Sentence(N_("{trouble} No rule in it holds."), trouble=trouble))
        return _Loaded(signature, trouble=trouble)

    def _doubt(self, first: RuleFileError, signature: _Signature | None) -> _Loaded:
        time.sleep(self._at_rest)
        if self._signature() != signature:
            return self._read(self._signature())
        try:
            aside = self._set_aside(signature)
        except (OSError, OllmSandboxError) as error:
            text = N_("{file}, {mistake} ({why})")
            trouble = Sentence(text, file=self.file, mistake=str(first), why=str(error))
            return self._in_trouble(trouble, signature)
        if aside is None:
            return self._read(self._signature())
        # Translators: {mistake} is such as "line 3: it is not UTF-8 text."
        text = N_(
            "{file}, {mistake} It was set aside as {aside}, and none of its rules holds: mend it "
            "there and rename it."
        )
        self._notices.append(Sentence(text, file=self.file, mistake=str(first), aside=aside))
        return _Loaded(None)

    def _set_aside(self, signature: _Signature | None) -> Path | None:
        """None if another program has done so, or it has been mended."""
        with self._alone():
            if self._signature() != signature:
                return None
            aside = self._free_name("broken")
            os.rename(self.file, aside)
            return aside

    def _parsed(self) -> tuple[str, tuple[Rule, ...]]:
        # Not one that waits for somebody to write to it.
        descriptor = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise RuleFileError(N_("line 1: it is not a file."))
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(_LARGEST + 1)
        finally:
            os.close(descriptor)
        if len(data) > _LARGEST:
            raise RuleFileError(N_("line 1: it is too large."))
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise RuleFileError(N_("line {line}: it is not UTF-8 text."), line=line) from error
        return text, tuple(entry.rule for entry in rules_file.parse(text))

    def _free_name(self, why: str) -> Path:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        name, number = self.file.with_name(f"permissions-{why}-{stamp}.yaml"), 1
        while os.path.lexists(name):
            number += 1
            name = self.file.with_name(f"permissions-{why}-{stamp}-{number}.yaml")
        return name

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """No other program changes the file meanwhile, and with the mutex no other thread."""
        if self._is_alone:
            yield
            return
        lock = self.file.with_name(".permissions.lock")
        make_folder(lock.parent)
        try:
            held = FileLock(lock, timeout=_PATIENCE)
        except BlockingIOError:
            raise OllmSandboxError(
                N_("Another program has held {file} for too long."), file=self.file
            ) from None
        except OSError as error:
            raise _cannot(N_("{file} cannot be opened: {why}."), lock, error) from error
        with held:
            self._is_alone = True
            try:
                yield
            finally:
                self._is_alone = False


def _cannot(text: str, file: Path, error: OSError) -> OllmSandboxError:
    """The text is marked for translation, and names the file and why."""
    return OllmSandboxError(text, file=file, why=error.strerror)


def _moved(rule: Rule, old: str, new: str) -> Rule:
    return replace(
        rule, key=replace(rule.key, project=new, what=_moved_what(rule.key.what, old, new))
    )


def _moved_what(what: What, old: str, new: str) -> What:
    if isinstance(what, Target):
        return Target(_moved_path(what.name, old, new))
    return replace(what, folder=_moved_path(what.folder, old, new))


def _moved_path(path: str, old: str, new: str) -> str:
    """Return the new name of a path in the old folder; anything else stays as it is."""
    return new + path[len(old) :] if is_inside(path, old) else path
