# SPDX-License-Identifier: GPL-3.0-or-later
"""The first page: what the sandbox can do on this computer, and how to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gi.repository import Adw, Gtk

from ...i18n import _
from ..resources import template
from ..widgets.labels import (
    decorative_icon,
    name_buttons,
    set_accessible_name,
    set_class,
    with_code,
)

if TYPE_CHECKING:
    from ...sandbox.probe.probe import Capabilities


@Gtk.Template(filename=template("window/welcome"))
class Welcome(Adw.Bin):
    __gtype_name__ = "OllmWelcome"

    checks: Gtk.ListBox = Gtk.Template.Child()
    verdict: Gtk.Label = Gtk.Template.Child()
    tour_button: Gtk.Button = Gtk.Template.Child()

    def __init__(self) -> None:
        super().__init__()
        name_buttons(self)
        set_accessible_name(self.checks, _("What this computer can do"))
        self.show_capabilities(None)

    def focus(self) -> None:
        self.tour_button.grab_focus()

    def show_capabilities(self, found: Capabilities | None) -> None:
        """Show what the probe found; None while it runs."""
        while (row := self.checks.get_row_at_index(0)) is not None:
            self.checks.remove(row)
        can_wrap = found is not None and found.can_wrap
        set_class(self.verdict, "success", can_wrap)
        set_class(self.verdict, "warning", found is not None and not can_wrap)
        if found is None:
            self.verdict.set_label(_("Checking what this computer can do…"))
            # What it almost always finds, so that nothing moves when it has.
            for text in _guarantees():
                self.checks.append(_row(text, "", ok=None))
            return
        if can_wrap:
            self.verdict.set_label(_("Commands are sandboxed here."))
            for text in _guarantees():
                self.checks.append(_row(text, "", ok=True))
        else:
            # In a Flatpak, there may be an inner sandbox.
            self.verdict.set_label(
                _("In a Flatpak, you will be asked before each command runs.")
                if found.surroundings == "flatpak"
                else _(
                    "Commands cannot be sandboxed here. You will be asked before each command runs."
                )
            )
        for finding in found.findings:
            # Skip what the sandbox can do without.
            if not finding.ok and (finding.needed or not can_wrap):
                said = found.translated(finding)
                # The title is the cause, not the failed check.
                self.checks.append(_row(said.cause or said.title, said.remedy, ok=False))


def _guarantees() -> tuple[str, ...]:
    return (
        _("Commands cannot change files outside the project"),
        _("You can undo every change"),
        _("Keys and passwords are hidden"),
        _("Network access needs your permission every time"),
    )


def _row(title: str, subtitle: str, *, ok: bool | None) -> Adw.ActionRow:
    """Return a row with a mark for what was found; None while that is not known."""
    row = Adw.ActionRow(title=with_code(title), subtitle=with_code(subtitle))
    row.set_title_lines(0)
    row.set_subtitle_lines(0)
    row.set_activatable(False)
    if ok is None:
        mark = decorative_icon("content-loading-symbolic")
        row.add_css_class("dim-label")
    else:
        icon = "object-select-symbolic" if ok else "dialog-warning-symbolic"
        mark = decorative_icon(icon, "success" if ok else "warning")
    row.add_prefix(mark)
    return row
