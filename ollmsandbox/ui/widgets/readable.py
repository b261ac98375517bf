# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers and dates as the user's locale writes them."""

from __future__ import annotations

import locale
import time

from gi.repository import GLib

from ...i18n import _, ngettext


def number(count: int) -> str:
    """Return a number with its thousands separated."""
    if abs(count) < 1000:
        return str(count)
    # The C locale separates nothing.
    has_separator = bool(locale.localeconv()["thousands_sep"])
    return locale.format_string("%d", count, grouping=True) if has_separator else f"{count:,}"


def line_counts(added: int, removed: int) -> str:
    """Return the numbers of changed lines, without zeros."""
    # The sign is before the number in right-to-left languages, too.
    mark = "\N{LEFT-TO-RIGHT MARK}"
    counts = (("+", added), ("\N{MINUS SIGN}", removed))
    return " ".join(f"{mark}{sign}{number(count)}" for sign, count in counts if count)


def money(cost: float) -> str:
    """Return a price; those of single answers are small."""
    return locale.format_string("%.4f", cost, grouping=True)


def more_characters(count: int) -> str:
    """Return what follows a text that is cut off."""
    text = ngettext("… {} more character", "… {} more characters", count)
    return text.format(number(count))


def ignored_files(count: int) -> str:
    text = ngettext("{} file that git ignores", "{} files that git ignores", count)
    return text.format(number(count))


def is_today(at: float) -> bool:
    """Return whether a time is on this day, by the clock on the wall."""
    return time.localtime(at)[:3] == time.localtime()[:3]


def is_yesterday(at: float) -> bool:
    noon = time.mktime((*time.localtime()[:3], 12, 0, 0, 0, 0, -1))
    return time.localtime(at)[:3] == time.localtime(noon - 86400)[:3]


def day_and_time(at: float, *, with_time: bool = True) -> str:
    """Return a time as "Today, 14:02", "Yesterday, 14:02", "3 March" or "3 March 2024"."""
    then = time.localtime(at)
    if is_today(at):
        day = _("Today")
    elif is_yesterday(at):
        day = _("Yesterday")
    else:
        day = _day(at)
        with_time = with_time and then.tm_year == time.localtime().tm_year
    clock = time.strftime("%H:%M", then)
    return _("{day}, {time}").format(day=day, time=clock) if with_time else day


def _day(at: float) -> str:
    is_this_year = time.localtime(at).tm_year == time.localtime().tm_year
    # Translators: a date. %-d is the day of the month, %B the name of the month.
    form = _("%-d %B") if is_this_year else _("%-d %B %Y")
    date = GLib.DateTime.new_from_unix_local(int(at))
    return (date.format(form) if date else None) or ""
