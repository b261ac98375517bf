# SPDX-License-Identifier: GPL-3.0-or-later
"""The preferences page about changes, questions, the sandbox, saved answers and opened folders."""

from __future__ import annotations

import asyncio
import os

from gi.repository import Adw, GLib, Gtk

from ...chat.sessions import SessionFactory
from ...errors import OllmSandboxError
from ...i18n import _, localized, ngettext
from ...permission.request import Answer
from ...permission.rules import Rule, Target
from ...sandbox.profile.file import profile_names, read_profile
from ...sandbox.profile.profile import Limits
from ...text.visible import visible_line
from ..settings import LIMITS, LimitSetting, Settings
from ..widgets.boxes import set_margins
from ..widgets.labels import set_accessible_name
from ..widgets.long_text import LongText
from ..widgets.readable import number
from ..widgets.scroller import NestedScroller
from ..widgets.tasks import Tasks, as_task
from ..widgets.weak import weakly
from . import rows
from .folders import FoldersGroup


class LimitsRow(Adw.ExpanderRow):
    """Limits that replace those of the profile."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(title=_("Advanced"), subtitle=_("Limits for each command"))
        self._settings = settings
        self._of_profile: Limits | None = Limits()
        self._rows: list[tuple[LimitSetting, Adw.ActionRow]] = []
        titles = {
            "time": _("Time (Seconds)"),
            "memory": _("Memory (MiB)"),
            "processes": _("Processes"),
            "disk": _("Disk Space Used (MiB)"),
            "free": _("Disk Space Left Free (MiB)"),
            "tmp": _("Temporary Files (MiB)"),
        }
        for setting in LIMITS:
            row, spin = rows.spin_button(titles[setting.name], setting.most, setting.step)
            # It shows a word, too. What else is no number is not taken.
            spin.set_numeric(False)
            spin.set_update_policy(Gtk.SpinButtonUpdatePolicy.IF_VALID)
            spin.connect("output", _show_default)
            spin.set_value(setting.chosen(settings))
            spin.connect("value-changed", weakly(self._on_value), setting)
            self._rows.append((setting, row))
            self.add_row(row)

    def show_profile(self, limits: Limits | None) -> None:
        """Show the limits of the profile; None if it cannot be read."""
        self._of_profile = limits
        self._describe()

    def _on_value(self, spin: Gtk.SpinButton, setting: LimitSetting) -> None:
        value = spin.get_value_as_int()
        if (fitting := setting.fitting(value)) != value:
            spin.set_value(fitting)
            return
        self._settings.set(setting.key, value)
        self._describe()

    def _describe(self) -> None:
        for setting, row in self._rows:
            chosen = setting.chosen(self._settings)
            if chosen:
                text = _("The minimum") if chosen == setting.least else ""
            elif self._of_profile is None:
                text = _("The profile cannot be read")
            elif (limit := getattr(self._of_profile, setting.name)) is None:
                text = _("No limit")
            else:
                # Translators: {} is a number. Its unit is in the title of the row.
                text = _("Default: {}").format(number(round(limit / setting.unit)))
            row.set_subtitle(text)


def _show_default(spin: Gtk.SpinButton) -> bool:
    """Show a word instead of 0, which stands for the limit of the profile."""
    if spin.get_value_as_int() == 0:
        spin.set_text(_("Default"))
        return True
    return False


class SafetyPage(Adw.PreferencesPage):
    def __init__(self, factory: SessionFactory, settings: Settings, tasks: Tasks) -> None:
        super().__init__(title=_("Safety"), icon_name="security-high-symbolic")
        self._paths = factory.paths
        self._store = factory.rules
        self._settings = settings
        self._tasks = tasks
        self._hidden: tuple[str, ...] = ()
        self.add(self._review())
        self.add(self._sandbox())
        self._show_profile()
        self._rules = rows.RowGroup(_("Saved Answers"), _("Remove an answer to be asked again."))
        self.add(self._rules)
        self.folders = FoldersGroup(factory.manager, tasks)
        self.add(self.folders)
        tasks.start(self._list_rules())

    def _review(self) -> Adw.PreferencesGroup:
        group = Adw.PreferencesGroup(
            title=_("Changes and Questions"),
            description=_("Either way, changes can be undone."),
        )
        group.add(
            rows.choice(
                self._settings,
                "apply-mode",
                _("When a Command Changes Files"),
                (("auto", _("Apply right away")), ("review", _("Ask me first"))),
            )
        )
        rows.add_switches(
            group,
            self._settings,
            (
                "ask-every-command",
                _("Ask Before Every Command"),
                _("Even when it is sandboxed and offline"),
            ),
            (
                "session-hosts",
                _("Offer to Allow a Host for the Session"),
                _("If off, you are asked about a host each time a command tries to reach it"),
            ),
        )
        return group

    def _sandbox(self) -> Adw.PreferencesGroup:
        group = Adw.PreferencesGroup(
            title=_("Sandbox"), description=_("What commands can see and use")
        )
        names = profile_names(self._paths.profiles)
        # The user's own are called like their files.
        known = {"standard": _("Standard"), "strict": _("Strict")}
        profile = rows.choice(
            self._settings,
            "profile",
            _("Profile"),
            [(name, known.get(name) or visible_line(name)) for name in names],
        )
        profile.connect("notify::selected", weakly(self._show_profile))
        group.add(profile)
        title = _("Hidden Files and Folders")
        self._masks = Adw.ExpanderRow(title=title)
        self._masks.connect("notify::expanded", weakly(self._list_masks))
        self._mask_list = NestedScroller()
        self._mask_list.set_min_content_height(240)
        set_margins(self._mask_list, 12)
        self._mask_row = Gtk.ListBoxRow(child=self._mask_list, activatable=False)
        set_accessible_name(self._mask_row, title)
        self._masks.add_row(self._mask_row)
        group.add(self._masks)
        self._limits = LimitsRow(self._settings)
        group.add(self._limits)
        return group

    def _show_profile(self, *_args: object) -> None:
        name = self._settings.get_string("profile")
        self._hidden, limits = (), None
        try:
            profile = read_profile(name, self._paths.profiles, self._paths.cache)
            self._hidden, limits = tuple(profile.hidden), profile.limits
            count = len(self._hidden)
            text = ngettext("{} path", "{} paths", count).format(count)
        except OllmSandboxError as error:
            text = visible_line(localized(error.message))
        self._masks.set_subtitle(GLib.markup_escape_text(text))
        self._list_masks()
        self._limits.show_profile(limits)

    def _list_masks(self, *_args: object) -> None:
        """List them only when the user looks at them: there are many."""
        self._mask_row.set_visible(bool(self._hidden))
        if self._masks.get_expanded():
            # One text, because hundreds of rows would stop the window for a second.
            text = LongText("\n".join(map(visible_line, self._hidden)))
            set_accessible_name(text, self._masks.get_title())
            self._mask_list.set_child(text)

    async def _list_rules(self) -> None:
        found = await asyncio.to_thread(self._store.rules)
        nothing = rows.action(_("No saved answers"))
        self._rules.show_rows([self._rule_row(rule) for rule in found] or [nothing])

    def _rule_row(self, rule: Rule) -> Adw.ActionRow:
        row = rows.action(*_text(rule))
        words = _("Remove Answer")
        row.add_suffix(rows.icon_suffix("user-trash-symbolic", words, self._forget, rule))
        return row

    @as_task
    async def _forget(self, rule: Rule) -> None:
        await asyncio.to_thread(self._store.remove, [rule])
        await self._list_rules()


def _text(rule: Rule) -> tuple[str, str]:
    what = rule.key.what
    text = what.name if isinstance(what, Target) else what.text
    verdict = _("Allowed") if rule.answer is Answer.ALLOW_ALWAYS else _("Denied")
    project = os.path.basename(rule.key.project) or _("no project")
    return visible_line(text), f"{verdict} · {rule.key.tool} · {visible_line(project)}"
