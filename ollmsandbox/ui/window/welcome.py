# SPDX-License-Identifier: GPL-3.0-or-later
"""The first page: what the sandbox can do on this computer, and how to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gi.repository import Adw, Gtk

from ...i18n import _
from ..resources import template
from ..widgets.labels import decorative_icon, name_buttons, set_accessible_name, with_code
from ..widgets.signals import signals
from ..widgets.weak import weakly

if TYPE_CHECKING:
    from ...sandbox.probe.probe import Capabilities, Finding


@Gtk.Template(filename=template("window/welcome"))
class Welcome(Adw.Bin):
    __gtype_name__ = "OllmWelcome"

    __gsignals__ = signals(
        {
            "take-tour": (),
            "open-project": (),
            "connect-model": (),
        }
    )

    checks: Gtk.ListBox = Gtk.Template.Child()
    verdict: Gtk.Label = Gtk.Template.Child()
    tour_button: Gtk.Button = Gtk.Template.Child()
    project_button: Gtk.Button = Gtk.Template.Child()
    model_button: Gtk.Button = Gtk.Template.Child()

    def __init__(self) -> None:
        super().__init__()
        name_buttons(self)
        set_accessible_name(self.checks, _("What this computer can do"))
        self.tour_button.connect("clicked", weakly(self._on_tour))
        self.project_button.connect("clicked", weakly(self._on_project))
        self.model_button.connect("clicked", weakly(self._on_model))
        self.show_capabilities(None)

    def focus(self) -> None:
        self.tour_button.grab_focus()

    def show_capabilities(self, found: Capabilities | None) -> None:
        """Show what the probe found; None while it runs."""
        while (row := self.checks.get_row_at_index(0)) is not None:
            self.checks.remove(row)
        for name in ("success", "warning"):
            self.verdict.remove_css_class(name)
        if found is None:
            self.verdict.set_label(_("Checking what this computer can do…"))
            # What it almost always finds, so that nothing moves when it has.
            for text in _guarantees():
                self.checks.append(_row(text, "", ok=None))
            return
        if found.can_wrap:
            self.verdict.set_label(_("Commands are sandboxed here."))
            self.verdict.add_css_class("success")
        else:
            # In a Flatpak, there may be an inner sandbox.
            self.verdict.set_label(
                _("In a Flatpak, you will be asked before each command runs.")
                if found.surroundings == "flatpak"
                else _(
                    "Commands cannot be sandboxed here. You will be asked before each command runs."
                )
            )
            self.verdict.add_css_class("warning")
        if found.can_wrap:
            for text in _guarantees():
                self.checks.append(_row(text, "", ok=True))
        for finding in found.findings:
            # Skip what the sandbox can do without.
            if not finding.ok and (finding.needed or not found.can_wrap):
                self.checks.append(_missing_row(found.translated(finding)))

    def _on_tour(self, _button: Gtk.Button) -> None:
        self.emit("take-tour")

    def _on_project(self, _button: Gtk.Button) -> None:
        self.emit("open-project")

    def _on_model(self, _button: Gtk.Button) -> None:
        self.emit("connect-model")


def _guarantees() -> tuple[str, ...]:
    return (
        _("Commands cannot change files outside the project"),
        _("You can undo every change"),
        _("Keys and passwords are hidden"),
        _("Network access needs your permission every time"),
    )


def _missing_row(finding: Finding) -> Gtk.ListBoxRow:
    """Return a row for something missing: its title is the cause, not the failed check."""
    return _row(finding.cause or finding.title, finding.remedy, ok=False)


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
        mark = decorative_icon("object-select-symbolic" if ok else "dialog-warning-symbolic")
        mark.add_css_class("success" if ok else "warning")
    row.add_prefix(mark)
    return row
