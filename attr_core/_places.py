"""Where segments stand in a prompt: what of a mask or a row of gates decides a measurement on its cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import SegmentationError
from attr_core.results import MaskArray
from attr_core.types import Segment

__all__ = ["check_columns", "hidden_places", "places"]


def check_columns(rows: NDArray[Any], segments: Sequence[Segment]) -> None:
    if rows.ndim != 2 or rows.shape[1] != len(segments):
        raise SegmentationError(f"masks or gates of shape {rows.shape} do not fit {len(segments)} segments")


def hidden_places(segments: Sequence[Segment], masks: MaskArray) -> list[dict[str, Any]]:
    """What each mask hides, and where the tail begins: all that decides the scores, however the rest is cut."""
    where = [places(segment) for segment in segments]
    last = max(((message, end) for spans in where for message, _, end in spans), default=None)
    hidden = [{place for n in np.flatnonzero(~mask) for place in where[n]} for mask in masks]
    return [{"hidden": sorted(one), "last": last} for one in hidden]


def places(segment: Segment) -> list[tuple[int, int, int]]:
    return [(location.message, location.start, location.end) for location in segment.locations]
