"""The segments of one target in a terminal: a line each, or two where one cannot hold a readable piece of text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attr_core.attribution import Attribution
from attr_core.reports._together import alike_name
from attr_core.reports._words import cropped, signed, source_name, visible
from attr_core.results import Verdict

_STYLES = {
    Verdict.DRIVES: "bold green",
    Verdict.HELPFUL: "bold green",
    Verdict.SUPPORTS: "bold green",
    Verdict.OPPOSES: "bold red",
    Verdict.HARMFUL: "bold red",
    Verdict.UNDERMINES: "bold red",
    Verdict.NO_EFFECT: "dim",
    Verdict.UNDETERMINED: "yellow",
}

_NUMBERS = ("effect", "interval", "drop")

GAP = 2
"""Blanks beside a column."""

SOURCE_WIDTH = 22
ORIGIN_WIDTH = 40
"""Columns for a segment's name, and for its name with where it came from."""

LEAST_TEXT = 28
"""Columns of a segment's text below which it is given a line of its own."""

TEXT_INDENT = 8
"""Blanks before it there."""

TEXT_WIDTH = 400
"""Characters of a segment's text handed to the table, which cuts them to its width."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The ``top`` segments of a target, and all that drive or oppose it, from the largest effect down.

    Of those that were removed as one, the first stands for all.

    ``origins`` says of segments, by id, where they came from. All targets of an attribution are laid out alike.
    """

    attribution: Attribution
    target: int
    top: int
    origins: Mapping[str, str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown, room = list(self._shown()), options.max_width - self._most_used()
        if room >= LEAST_TEXT:
            table = self._table(has_source=True, expand=True)
            table.add_column("text", ratio=1, no_wrap=True, overflow="ellipsis")
            for column in shown:
                table.add_row(*self._cells(column), self._source(column), Text(self._text(column)))
            yield table
            return
        for place, column in enumerate(shown):
            table = self._table(has_source=room >= 0, show_header=place == 0)
            table.add_row(*self._cells(column), *([self._source(column)] if room >= 0 else []))
            yield table
            text = Text(no_wrap=True, overflow="ellipsis")
            if room < 0:
                text.append(f"{self._named(column)}: ", style="cyan")
            yield Padding(text.append(self._text(column)), (0, 0, 0, TEXT_INDENT))

    def _table(self, *, has_source: bool, expand: bool = False, show_header: bool = True) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim", expand=expand, show_header=show_header)
        for heading, width in self._figures():
            justify: Literal["left", "right"] = "right" if heading in _NUMBERS else "left"
            table.add_column(heading, justify=justify, width=width, no_wrap=True)
        if has_source:
            table.add_column("source", min_width=self._widest(), no_wrap=True)
        return table

    def _most_used(self) -> int:
        """Columns that no text can have beside the segment's name, in the widest table of the attribution."""
        rows = (replace(self, target=row) for row in range(len(self.attribution.targets)))
        return max(sum(width + GAP for _, width in row._figures()) for row in rows) + self._widest() + GAP

    def _widest(self) -> int:
        names = (self._source(column).cell_len for column in range(len(self.attribution.segments)))
        return max([len("source"), *names])

    def _shown(self) -> Iterator[int]:
        later = {column for columns in self.attribution.tied for column in columns[1:]}
        ranking = [column for column in self.attribution.ranking(self.target) if column not in later]
        for place, column in enumerate(ranking):
            if place < self.top or self._verdict(column) not in (Verdict.NO_EFFECT, Verdict.UNDETERMINED):
                yield column

    def _figures(self) -> list[tuple[str, int]]:
        """Heading and width of each column before the segment's name."""
        figures = [("effect", 7), ("interval", 14), ("drop", 7), ("verdict", 12)]
        if not self._is_sampled():
            figures.pop(1)
        return [*figures, *([] if self._direct() is None else [("given earlier", 18)])]

    def _cells(self, column: int) -> list[str | Text]:
        attribution, verdict, direct = self.attribution, self._verdict(column), self._direct()
        cells: list[str | Text] = [signed(attribution.effects[self.target, column])]
        if self._is_sampled():
            cells.append(_interval(attribution.low[self.target, column], attribution.high[self.target, column]))
        cells += [signed(attribution.drops[self.target, column]), Text(verdict.value, style=_STYLES[verdict])]
        if direct is not None:
            ways = {route.segment: route.claim for route in attribution.routes if route.target == self.target}
            way = f" by way [{ways[column] + 1}]" if column in ways else ""
            cells.append(Text(signed(attribution.effects[direct, column]) + way))
        return cells

    def _source(self, column: int) -> Text:
        """The segment's name; beside where it came from without its group, where there is no room for that."""
        segment = self.attribution.segments[column]
        origin = " ".join(filter(None, (alike_name(self.attribution, column), self.origins.get(segment.id, ""))))
        name, width = source_name(segment, origin), SOURCE_WIDTH
        if origin:
            width = max(ORIGIN_WIDTH - cell_len(origin) - 1, 8)
            name = name if cell_len(name) <= width else source_name(replace(segment, group_id=None), origin)
        return Text(f"{cropped(name, width)} {origin}".rstrip())

    def _named(self, column: int) -> str:
        segment = self.attribution.segments[column]
        origin = " ".join(filter(None, (alike_name(self.attribution, column), self.origins.get(segment.id, ""))))
        return f"{cropped(source_name(segment, origin), ORIGIN_WIDTH)} {origin}".rstrip()

    def _text(self, column: int) -> str:
        return visible(self.attribution.segments[column].text[:TEXT_WIDTH])

    def _verdict(self, column: int) -> Verdict:
        return Verdict(str(self.attribution.verdicts[self.target, column]))

    def _is_sampled(self) -> bool:
        return bool(np.isfinite(self.attribution.low[self.target]).any())

    def _direct(self) -> int | None:
        is_total = self.attribution.targets[self.target].reading == "total"
        return self.attribution.direct_row(self.target) if is_total else None


def _interval(low: float, high: float) -> str:
    return "–" if math.isnan(low) or math.isnan(high) else f"{low:+.1f} to {high:+.1f}"
