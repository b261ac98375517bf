# SPDX-License-Identifier: GPL-3.0-or-later
"""How the window speaks of the Alpine system."""

from __future__ import annotations

from gettext import gettext as _
from gettext import ngettext

from gi.repository import GLib

from ..sandbox.rootfs.install import Step
from ..sandbox.rootfs.packages import Tier
from ..sandbox.rootfs.rootfs import Status


def tier_words(tier: Tier) -> str:
    title = (
        _("Base only"),
        _("With Bash and Python"),
        _("With Git, Node and others besides"),
    )[tier.number]
    return _("{title}, about {size}").format(title=title, size=GLib.format_size(tier.size))


def step_words(step: Step) -> str:
    return {
        Step.WAIT: _("Waiting for another program that installs it"),
        Step.LOOK: _("Looking for the newest version"),
        Step.FETCH: _("Fetching"),
        Step.UNPACK: _("Unpacking"),
        Step.PACKAGES: _("Installing packages"),
        Step.FINISH: _("Putting it into place"),
        Step.DONE: _("Done"),
    }[step]


def status_words(status: Status) -> str:
    if status.installed is None:
        return _("Not installed")
    words = [status.installed.title, GLib.format_size(status.size)]
    if status.others:
        count = len(status.others)
        words.append(ngettext("{} older one still in use", "{} older ones still in use", count))
        words[-1] = words[-1].format(count)
    return ", ".join(words)
