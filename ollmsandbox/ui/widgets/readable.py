# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers and dates as the user's locale writes them."""

from __future__ import annotations

import locale
import time
from datetime import date

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


def days_ago(at: float) -> int:
    """Return how many days ago a time was, by the clock on the wall."""
    today, then = (date(*time.localtime(moment)[:3]) for moment in (None, at))
    return (today - then).days


def day_and_time(at: float, *, with_time: bool = True) -> str:
    """Return a time as "Today, 14:02", "Yesterday, 14:02", "3 March" or "3 March 2024"."""
    then = time.localtime(at)
    if (ago := days_ago(at)) == 0:
        day = _("Today")
    elif ago == 1:
        day = _("Yesterday")
    else:
        is_this_year = then.tm_year == time.localtime().tm_year
        # Translators: a date. %-d is the day of the month, %B the name of the month.
        form = _("%-d %B") if is_this_year else _("%-d %B %Y")
        found = GLib.DateTime.new_from_unix_local(int(at))
        day = (found.format(form) if found else None) or ""
        with_time = with_time and is_this_year
    clock = time.strftime("%H:%M", then)
    return _("{day}, {time}").format(day=day, time=clock) if with_time else day
