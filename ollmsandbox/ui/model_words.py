# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of models, as they are shown."""

from __future__ import annotations

from gettext import gettext as _

from ..chat.providers.connections_file import TOUR


def is_tour(name: str) -> bool:
    return name == TOUR.model


def shown_model(name: str) -> str:
    """Models have names of their own. Only the tour's is a description, in the person's words."""
    return _(name) if name == TOUR.model else name
