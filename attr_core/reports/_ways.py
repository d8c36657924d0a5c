"""What drove a carried text where it was written, in a line a segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from attr_core.attribution import Attribution
from attr_core.carried import Way
from attr_core.reports._words import listed, segment_name, source_name

MAX_SOURCES = 3
"""Most segments named for one text."""


def way_lines(attribution: Attribution, ways: Iterable[Way], row: int) -> Iterator[str]:
    """``step1 was written in step 1, where lantern (festivals.md) drives it``."""
    of_row = [way for way in ways if way.target == row]
    for (column, steps), group in groupby(of_row, key=lambda way: (way.column, way.steps)):
        held = list(group)
        name, last = segment_name(attribution.segments[column]), steps[-1]
        path = f"{name} was written in step {steps[0]}" + "".join(f", by way of step {step}" for step in steps[1:])
        sources = [source_name(way.segment) for way in held if way.segment is not None]
        if sources:
            yield f"{path}, where {listed(sources, MAX_SOURCES)} drive{'s' if len(sources) == 1 else ''} it"
        elif held[0].is_known:
            yield f"{path}, where nothing in particular drives it"
        else:
            yield f"{path}: to see what drives it there, attrkit inspect {attribution.trace_id} --step {last}"
