"""Which claims and segments are asked about together: rectangles of cells that fit one call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

Cell = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Every cell of some claims (rows) and some segments (columns)."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def cells(self) -> list[Cell]:
        """Row by row."""
        return [(row, column) for row in self.rows for column in self.columns]

    def halves(self) -> tuple[Rectangle, Rectangle]:
        """Cut across the longer side."""
        if len(self.columns) >= len(self.rows):
            half = len(self.columns) // 2
            return Rectangle(self.rows, self.columns[:half]), Rectangle(self.rows, self.columns[half:])
        half = len(self.rows) // 2
        return Rectangle(self.rows[:half], self.columns), Rectangle(self.rows[half:], self.columns)


def rectangles(
    cells: Iterable[Cell], *, most: int, fits: Callable[[Rectangle], bool]
) -> tuple[list[Rectangle], list[Cell]]:
    """The cells as rectangles of at most ``most`` that fit, in order, and the cells that do not fit even alone.

    Rows that miss the same columns are asked together, so that what was never asked is cut as little as may be.
    """
    columns_of: dict[int, list[int]] = defaultdict(list)
    for row, column in sorted(cells):
        columns_of[row].append(column)
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for row, columns in columns_of.items():
        alike[tuple(columns)].append(row)
    found: list[Rectangle] = []
    too_large: list[Cell] = []
    waiting = [part for columns, rows in alike.items() for part in _cut(rows, columns, most)]
    while waiting:
        first = waiting.pop(0)
        if fits(first):
            found.append(first)
        elif len(first.cells) > 1:
            waiting[:0] = first.halves()
        else:
            too_large += first.cells
    return found, too_large


def _cut(rows: Sequence[int], columns: Sequence[int], most: int) -> Iterator[Rectangle]:
    """As many rows together as may be: a segment is long, and is sent anew with each group of claims."""
    for some_rows in _even(rows, most):
        for some_columns in _even(columns, max(1, most // len(some_rows))):
            yield Rectangle(tuple(some_rows), tuple(some_columns))


def _even(items: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """In as few parts as may be, of like length."""
    n_parts = -(-len(items) // most)
    bounds = [len(items) * part // n_parts for part in range(n_parts + 1)]
    return (items[start:end] for start, end in pairwise(bounds))
