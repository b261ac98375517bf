# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts on a permission card, beside the question, which `tools/questions.py` words."""

from __future__ import annotations

import os

from ...i18n import _
from ...permission.request import REACH_HOST, RUN_COMMAND, Answer, Fact, PermissionRequest
from ...text.visible import visible_line, visible_words
from ...tools.base import UserQuestion


def question_text(request: PermissionRequest) -> str:
    """Return the question in one line, in the user's language, without the subject."""
    return visible_words(request.heading or request.translated or request.question)


def spoken_question(request: PermissionRequest, longest: int = 500) -> str:
    """Return the question with the command, of which a long one is cut."""
    if not request.heading:
        return question_text(request)
    return visible_words(request.translated).format(command=_cut(request.subject, longest))


def fact_text(fact: Fact) -> tuple[str, str]:
    show = visible_words if fact.is_wording else visible_line
    return visible_words(fact.label), show(fact.value)


def button_label(answer: Answer, request: PermissionRequest) -> str:
    """Return the label of a button, with its mnemonic; the lasting answers name their scope."""
    # Translators: these are buttons; {} is "this command", or the name of a host or file.
    label = {
        Answer.DENY_ALWAYS: _("Always Deny {} in This Project"),
        Answer.DENY: _("_Deny"),
        Answer.ALLOW: _("_Allow Once"),
        Answer.ALLOW_SESSION: _("Allow {} in This Session"),
        Answer.ALLOW_PROJECT: _("Allow for This _Project"),
        Answer.ALLOW_ALWAYS: _("Always Allow {} in This Project"),
    }[answer]
    return label.format(_scope(request))


def _scope(request: PermissionRequest) -> str:
    """Name what a rule for this request would be for."""
    if request.tool == RUN_COMMAND:
        # Translators: stands in "Allow {} in This Session"
        return _("This Command")
    return _cut(os.path.basename(request.target_path) or request.target_path, 40)


def duration_text(request: PermissionRequest) -> str:
    if not request.sandboxed:
        return _(
            "This command is not sandboxed: it can do anything you can. You will be asked "
            "every time."
        )
    if request.for_project:
        return _(
            "Allowing it opens the folder to every command of this project. To close it again, "
            "use “Opened Folders” in the project's menu."
        )
    if request.tool == REACH_HOST:
        return _("The connection waits. “Allow Once” is for this host and this command.")
    if request.is_once_only:
        return _("You will be asked every time.")
    return request.why_not_remembered or _("Both answers are for this time only.")


def notification_text(asked: PermissionRequest | UserQuestion) -> tuple[str, str]:
    """Return a title and a body, in which a long command or question is cut."""
    if isinstance(asked, UserQuestion):
        return _("The agent asks you"), _cut(asked.text, 120)
    if asked.heading:
        return _("Permission Needed"), spoken_question(asked, 120)
    return question_text(asked), _cut(asked.subject, 120)


def _cut(subject: str, longest: int) -> str:
    shown = visible_line(subject)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
