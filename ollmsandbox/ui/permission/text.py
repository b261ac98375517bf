# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts on a permission card."""

from __future__ import annotations

import time

from ...i18n import _
from ...permission.request import Answer, Fact, PermissionRequest, Source, Verdict
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
    """Return the label of a button, with its mnemonic."""
    if answer is Answer.ALLOW and request.is_once_only:
        return _("_Allow Once")
    return {
        Answer.DENY_ALWAYS: _("Deny Al_ways"),
        Answer.DENY: _("_Deny"),
        Answer.ALLOW: _("_Allow"),
        Answer.ALLOW_SESSION: _("Allow for This _Session"),
        Answer.ALLOW_PROJECT: _("Allow for This _Project"),
        Answer.ALLOW_ALWAYS: _("Allow A_lways"),
    }[answer]


def duration_text(request: PermissionRequest) -> str:
    """Describe how long each answer lasts."""
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
    if request.is_once_only:
        return _("You will be asked every time.")
    if request.why_not_remembered:
        return request.why_not_remembered
    return _(
        "“Allow” and “Deny” apply to this time only. The other answers apply to this exact "
        "request in this project."
    )


def verdict_text(verdict: Verdict) -> str:
    """Describe the answer in one line."""
    at = time.strftime("%H:%M", time.localtime(verdict.at))
    if verdict.source is Source.NOBODY:
        return _("No answer: denied, {}").format(at)
    by_rule = verdict.source in (Source.SAVED, Source.SESSION)
    if by_rule:
        said = {
            (Source.SESSION, True): _("Allowed for this session, {}"),
            (Source.SESSION, False): _("Denied for this session, {}"),
            (Source.SAVED, True): _("Always allowed, {}"),
            (Source.SAVED, False): _("Always denied, {}"),
        }[verdict.source, verdict.allowed]
        return said.format(at)
    return {
        Answer.DENY_ALWAYS: _("Denied, now and always, {}"),
        Answer.DENY: _("Denied, {}"),
        Answer.ALLOW: _("Allowed once, {}"),
        Answer.ALLOW_SESSION: _("Allowed for this session, {}"),
        Answer.ALLOW_PROJECT: _("Allowed for this project, {}"),
        Answer.ALLOW_ALWAYS: _("Allowed, now and always, {}"),
    }[verdict.answer].format(at)


def withdrawn_text() -> str:
    """Describe a question that was withdrawn."""
    return _("No answer: did not run")


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
