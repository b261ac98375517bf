# SPDX-License-Identifier: GPL-3.0-or-later
"""The saved rules, in permissions.yaml."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import replace

from .. import N_
from ..config.settings_file import SettingsFile
from ..errors import OllmSandboxError, Sentence
from ..files.atomic import write_atomically
from ..files.broken import free_name
from ..paths import Paths, is_inside
from .request import Answer
from .rules import Key, Rule, Target
from .rules_file import HEADER, SOURCE, RuleFileError, parse_rules, written

Rules = tuple[Rule, ...]


class RuleStore:
    """Reads and writes the rules. All methods may block, and any thread may call them."""

    def __init__(self, paths: Paths) -> None:
        self.file = paths.config / "permissions.yaml"
        self._settings = SettingsFile[Rules](self.file, SOURCE, parse_rules, ())

    def take_notices(self) -> list[str]:
        return self._settings.take_notices()

    def rules(self) -> Rules:
        """Return the rules; none if the file cannot be read."""
        self._keep_private()
        try:
            return self._settings.read()
        except OllmSandboxError as error:
            text = N_("{trouble} Its rules do not apply.")
            self._settings.notices.append(Sentence(text, trouble=error.message))
            return ()

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
        with self._settings.changing() as before:
            after = (*(r for r in before if r.key != rule.key), rule)
            if set(after) != set(before):
                self._write(before, after)

    def remove(self, chosen: Collection[Rule]) -> int:
        """Remove rules, and return how many of them there were."""
        with self._settings.changing() as before:
            left = tuple(rule for rule in before if rule not in chosen)
            if len(left) < len(before):
                self._write(before, left)
            return len(before) - len(left)

    @contextlib.contextmanager
    def move_project(self, old: str, new: str) -> Iterator[None]:
        """Give a project's rules its new path; both paths have their links resolved.

        Copy the rules first, and remove the old ones when the block has succeeded, so that no
        rule that denies is ever missing. Raise if there is a file that cannot be read.
        """
        before = [rule for rule in self._settings.read() if rule.key.project == old]
        for rule in sorted(before, key=lambda rule: rule.answer.allows):
            moved = _moved(rule, old, new)
            # Adding a rule that allows would replace one that denies the same at the new path.
            if not rule.answer.allows or self.find(moved.key) is not Answer.DENY_ALWAYS:
                self.add(moved)
        yield
        self.remove(before)

    def _write(self, before: Rules, after: Rules) -> None:
        try:
            text = written(after)
            # Never write a file that would be set aside as broken, with all other rules.
            is_right = parse_rules(text) == after
        except UnicodeEncodeError as error:
            raise OllmSandboxError(
                N_("Cannot save a name that is not valid UTF-8 in {file}."), file=self.file
            ) from error
        except RuleFileError as error:
            raise OllmSandboxError(
                N_("Cannot save this rule in {file}: {why}"), file=self.file, why=str(error)
            ) from error
        if not is_right:
            raise OllmSandboxError(N_("Cannot save this rule in {file}."), file=self.file)
        self._keep_comments(before)
        self._settings.write(text)

    def _keep_comments(self, before: Rules) -> None:
        """Keep a copy of the file if the user has written comments into it."""
        with contextlib.suppress(FileNotFoundError):
            text = self.file.read_text(encoding="utf-8")
            if "#" in text.removeprefix(HEADER) and text != written(before):
                kept = free_name(self.file, "before")
                write_atomically(kept, text)
                notice = N_("{file} was rewritten. The old file with your comments is {kept}.")
                self._settings.notices.append(Sentence(notice, file=self.file, kept=kept))

    def _keep_private(self) -> None:
        """Keep others from reading the file: an editor may have created it."""
        with contextlib.suppress(OSError):
            found = os.stat(self.file)
            is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
            if is_own and found.st_mode & 0o077:
                os.chmod(self.file, stat.S_IMODE(found.st_mode) & 0o700)


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
