# SPDX-License-Identifier: GPL-3.0-or-later
"""The preferences row with the model for new sessions."""

from __future__ import annotations

import asyncio

from gi.repository import Adw, GLib, Gtk

from ...chat.providers.connections import ConnectionStore
from ...chat.providers.connections_file import Connection, ServerKind
from ...errors import OllmSandboxError
from ...i18n import _, localized
from ..widgets.signals import signals
from ..widgets.tasks import Tasks
from ..widgets.weak import weakly
from .chooser import shown_model


class DefaultModelRow(Adw.ComboRow):
    __gtype_name__ = "OllmDefaultModelRow"

    __gsignals__ = signals({"chosen": ()})

    def __init__(self, store: ConnectionStore, tasks: Tasks) -> None:
        super().__init__(title=_("Model for New Sessions"), visible=False)
        self.set_subtitle_lines(0)
        self._store = store
        self._tasks = tasks
        self._connection: Connection | None = None
        self._names: list[str] = []
        self._is_filling = False
        self.connect("notify::selected", weakly(self._on_selected))

    async def show_models(self, connection: Connection | None) -> None:
        """Ask the connection's server for its models, and list them."""
        self._connection = connection
        self.set_visible(connection is not None)
        if connection is None:
            return
        kept = [connection.model] if connection.model else []
        self._fill(kept, _("Connecting…"))
        try:
            models = await self._store.server(connection).models()
            names, note = [model.name for model in models], ""
        except OllmSandboxError as error:
            names, note = kept, localized(error.message)
        # The user may have chosen another connection meanwhile.
        if self._connection is connection:
            gone = [name for name in kept if name not in names]
            self._fill([*gone, *names], note or ("" if names else _("No models")))

    def _fill(self, names: list[str], note: str) -> None:
        self._is_filling = True
        try:
            self._names = names
            # Below the title there is room for a long name. Set first: newer versions of libadwaita
            # only show it there for selections that are made later.
            self.set_use_subtitle(not note)
            self.set_model(Gtk.StringList.new([shown_model(name) for name in names]))
            self.set_sensitive(bool(names))
            chosen = self._connection.model if self._connection else ""
            # Without a saved choice, use the first one.
            self.set_selected(names.index(chosen) if chosen in names else 0)
            if note:
                self.set_subtitle(GLib.markup_escape_text(note))
        finally:
            self._is_filling = False

    def _on_selected(self, *_args: object) -> None:
        connection, selected = self._connection, self.get_selected()
        if self._is_filling or connection is None or selected >= len(self._names):
            return
        model = None if connection.kind is ServerKind.TOUR else self._names[selected]

        async def use() -> None:
            await asyncio.to_thread(self._store.use, connection.name, model)
            self.emit("chosen")

        self._tasks.start(use())
