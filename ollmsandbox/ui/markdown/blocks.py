# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the widgets of a Markdown block in steps, so that a long table never blocks the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gi.repository import Gtk, Pango

from ..widgets.boxes import vbox
from ..widgets.labels import add_classes, set_accessible_name, without_hyphens, wrap_label
from ..widgets.scroller import NestedScroller
from . import parse
from .code_block import CodeBlock
from .inline import Inline, Spans, markup, plain
from .picture import ProjectPicture

Add = Callable[[Gtk.Widget], None]
# Called with the label and the address; returns True if it handled the click.
OpenLink = Callable[[Gtk.Label, str], bool | None]

# Characters. A label lays out its whole text again at each width.
LONGEST_LABEL = 4000
# Characters. To find its minimum width, a label breaks its text after each letter, which takes ten
# times as long as layout. So longer labels get a fixed minimum.
_NARROWEST = 12
_SPACING = 12
_ALIGN = {
    parse.Alignment.LEFT: (0.0, Gtk.Justification.LEFT),
    parse.Alignment.CENTER: (0.5, Gtk.Justification.CENTER),
    parse.Alignment.RIGHT: (1.0, Gtk.Justification.RIGHT),
}
# Characters. Cells have a fixed width, and a table that is too wide scrolls: a grid that can shrink
# would ask for the height of its narrowest form.
_WIDEST_CELL = 40


def build(
    block: parse.Block, add: Add, open_link: OpenLink, depth: int = 0, project: str = ""
) -> Iterator[None]:
    """Build a block. With a `project`, show the pictures in it that a paragraph names."""
    match block:
        case parse.Paragraph():
            yield from _paragraph(block.spans, add, open_link)
            for span in block.spans if project else ():
                if span.picture:
                    add(ProjectPicture(project, span.picture, span.text))
        case parse.Heading():
            add(_heading(block, open_link))
        case parse.Code():
            add(CodeBlock(block.language, block.text))
        case parse.HorizontalRule():
            add(Gtk.Separator())
        case parse.Quote():
            box = vbox(spacing=_SPACING)
            box.add_css_class("quote")
            _read_like(box, _first_words(block.blocks))
            add(box)
            for inner in block.blocks:
                yield from build(inner, box.append, open_link, depth, project)
        case parse.ListBlock():
            yield from _list(block, add, open_link, depth, project)
        case parse.TableBlock():
            yield from _table(block, add, open_link)
    yield


def _label(
    spans: Spans,
    open_link: OpenLink,
    role: Gtk.AccessibleRole = Gtk.AccessibleRole.LABEL,
) -> Gtk.Label:
    label = Gtk.Label(accessible_role=role, selectable=True, xalign=0)
    wrap_label(label, plain(spans))
    # A path or command that wraps must not gain a hyphen.
    without_hyphens(label)
    label.set_markup(markup(spans))
    if sum(len(span.text) for span in spans) > 2 * _NARROWEST:
        label.set_width_chars(_NARROWEST)
    label.connect("activate-link", open_link)
    _read_like(label, spans)
    return label


def _read_like(widget: Gtk.Widget, spans: Spans) -> None:
    """Have a widget begin at the side where its text begins, as it does while it is written."""
    found = Pango.find_base_dir(plain(spans), -1)
    if found is not Pango.Direction.NEUTRAL:
        is_mirrored = found in (Pango.Direction.RTL, Pango.Direction.WEAK_RTL)
        direction = Gtk.TextDirection.RTL if is_mirrored else Gtk.TextDirection.LTR
        if widget.get_direction() is not direction:
            widget.set_direction(direction)


def _heading(block: parse.Heading, open_link: OpenLink) -> Gtk.Label:
    label = _label(block.spans, open_link, Gtk.AccessibleRole.HEADING)
    label.update_property([Gtk.AccessibleProperty.LEVEL], [block.level])
    add_classes(label, "heading", f"h{block.level}")
    return label


def _paragraph(spans: Spans, add: Add, open_link: OpenLink) -> Iterator[None]:
    pieces = list(_pieces(spans))
    if len(pieces) > 1:
        box = vbox()
        add(box)
        add = box.append
    for piece in pieces:
        add(_label(piece, open_link))
        yield


def _pieces(spans: Spans) -> Iterator[Spans]:
    """Cut a very long text into pieces for several labels, at spaces where possible."""
    piece: list[Inline] = []
    room = LONGEST_LABEL
    for span in spans:
        text = span.text
        while len(text) > room:
            end = max(text.rfind(" ", 0, room), text.rfind("\n", 0, room)) + 1 or room
            yield (*piece, replace(span, text=text[:end].rstrip("\n")))
            piece, room, text = [], LONGEST_LABEL, text[end:]
        piece.append(replace(span, text=text))
        room -= len(text)
    yield tuple(piece)


def _list(
    block: parse.ListBlock, add: Add, open_link: OpenLink, depth: int, project: str
) -> Iterator[None]:
    spacing = _SPACING if block.loose else 6
    grid = Gtk.Grid(row_spacing=spacing, column_spacing=8, accessible_role=Gtk.AccessibleRole.LIST)
    grid.add_css_class("list")
    words = _first_words(block.items[0].blocks) if block.items else ()
    _read_like(grid, words)
    add(grid)
    for row, item in enumerate(block.items):
        mark = f"{block.start + row}." if block.ordered else ("•", "◦", "-")[min(depth, 2)]
        mark_widget = _mark(item, mark)
        _read_like(mark_widget, words)
        grid.attach(mark_widget, 0, row, 1, 1)
        box = Gtk.Box(
            orientation=Gtk.Orientation.VERTICAL,
            spacing=spacing,
            hexpand=True,
            accessible_role=Gtk.AccessibleRole.LIST_ITEM,
        )
        if first := _first_words(item.blocks):
            set_accessible_name(box, plain(first)[:200])
        grid.attach(box, 1, row, 1, 1)
        for number, inner in enumerate(item.blocks):
            yield from build(inner, box.append, open_link, depth + 1, project)
            if not number and isinstance(label := box.get_first_child(), Gtk.Label):
                # Beside its mark, whatever it begins with.
                label.set_direction(grid.get_direction())


def _mark(item: parse.ListItem, mark: str) -> Gtk.Widget:
    if item.done is None:
        return Gtk.Label(label=mark, xalign=1, valign=Gtk.Align.START, css_classes=["list-mark"])
    # Shows a state, and cannot be changed.
    box = Gtk.CheckButton(
        active=item.done, can_target=False, focusable=False, valign=Gtk.Align.START
    )
    words = plain(_first_words(item.blocks))
    box.update_property([Gtk.AccessibleProperty.LABEL], [words])
    box.add_css_class("task-mark")
    return box


def _first_words(blocks: Sequence[parse.Block]) -> Spans:
    return next((block.spans for block in blocks if isinstance(block, parse.Paragraph)), ())


def _table(block: parse.TableBlock, add: Add, open_link: OpenLink) -> Iterator[None]:
    grid = Gtk.Grid(halign=Gtk.Align.START)
    grid.add_css_class("table")
    words = tuple(span for cell in block.header for span in cell)
    _read_like(grid, words)
    scroller = NestedScroller()
    scroller.set_child(grid)
    # GTK has put a viewport between them, which begins at a side as well.
    _read_like(scroller.get_child() or grid, words)
    scroller.set_policy(Gtk.PolicyType.AUTOMATIC, Gtk.PolicyType.NEVER)
    scroller.set_propagate_natural_height(True)
    add(scroller)
    for row, cells in enumerate((block.header, *block.rows)):
        for column, spans in enumerate(cells):
            label = _label(spans, open_link)
            xalign, justify = _ALIGN[block.alignments[column]]
            label.set_xalign(xalign)
            label.set_justify(justify)
            label.set_direction(grid.get_direction())
            if all(len(line) <= _WIDEST_CELL for line in plain(spans).split("\n")):
                label.set_wrap(False)
                label.set_width_chars(-1)
            else:
                label.set_width_chars(_WIDEST_CELL)
                label.set_max_width_chars(_WIDEST_CELL)
            label.add_css_class("cell")
            if row == 0:
                label.add_css_class("table-header")
            grid.attach(label, column, row, 1, 1)
        yield
