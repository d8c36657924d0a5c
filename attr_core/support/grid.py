"""Cause beside support: for each claim and segment, whether it drove the claim and whether it bears it out.

Neither says anything of the other. A segment can bear a claim out that the model took from elsewhere: when the answer
cites it all the same, that is a *post-rationalised* citation, correct but not faithful (Wallat, Heuss, de Rijke and
Anand, Correctness is not Faithfulness in RAG Attributions, ICTIR 2025, arXiv:2412.18004). And a segment can drive a
claim that it does not state.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attr_core._text.views import Span
from attr_core.attribution import Attribution
from attr_core.errors import InputError
from attr_core.results import FloatArray, MaskArray, Support, SupportVerdict, Verdict, freeze_arrays
from attr_core.support._sentences import supporting_sentence
from attr_core.support.citations import Citations
from attr_core.support.matrix import Judged
from attr_core.types import Claim, Segment, TargetKind

__all__ = ["Cell", "Grid", "grid"]


class Cell(StrEnum):
    """Cause and support of one claim by one segment.

    ``undetermined`` where the judge or the measurement did not decide, or where there was none.
    """

    USED_AND_SUPPORTED = "used and supported"
    SUPPORTED_NOT_USED = "supported but not used"
    USED_NOT_SUPPORTED = "used but not supported"
    NEITHER = "neither"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Cause, support and citation; arrays are ``(n_claims, n_segments)``.

    ``used`` and ``support`` make the ``cells``: ``used`` is 1 where the segment drives the claim or a pivot of it, or
    is one of a group that does together; 0 where it has no effect on any of these, or opposes them; NaN where that was
    not determined or not measured. ``support`` holds values of :class:`~attr_core.results.SupportVerdict`; a claim is
    supported where a segment ``entails`` it. ``kind`` is ``evidence`` where no judge has spoken.

    ``effects``, ``low`` and ``high`` are in ``unit``, those of the row on which the segment counts most: ``words`` are
    the claim or the pivot of it that was measured there; NaN and empty where none was. ``sentences`` are where the
    segment says what shares most with the claim, ``None`` where nothing is shared.
    """

    claims: tuple[Claim, ...]
    segments: tuple[Segment, ...]
    cells: NDArray[np.str_]
    used: FloatArray
    support: NDArray[np.str_]
    cited: MaskArray
    effects: FloatArray
    low: FloatArray
    high: FloatArray
    words: tuple[tuple[str, ...], ...]
    sentences: tuple[tuple[Span | None, ...], ...]
    unit: str = ""
    kind: str = "judged"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_arrays(self)

    @property
    def post_hoc(self) -> MaskArray:
        """Citations that bear the claim out and had no part in it; never where that was not measured."""
        return np.asarray(self.cited & (self.support == SupportVerdict.ENTAILS.value) & (self.used == 0))

    def rows(self) -> Iterator[dict[str, Any]]:
        """One plain dict per claim and segment; what was not determined or measured is ``None``."""
        post_hoc = self.post_hoc
        for row, claim in enumerate(self.claims):
            for column, segment in enumerate(self.segments):
                used = self.used[row, column]
                yield {
                    "claim": claim.text,
                    "claim_index": row,
                    "span": [claim.start, claim.end],
                    "segment": segment.id,
                    "used": None if math.isnan(used) else bool(used),
                    "support": str(self.support[row, column]),
                    "cell": str(self.cells[row, column]),
                    "cited": bool(self.cited[row, column]),
                    "post_hoc": bool(post_hoc[row, column]),
                    "sentence": self.sentences[row][column],
                    "effect": _finite(self.effects[row, column]),
                    "low": _finite(self.low[row, column]),
                    "high": _finite(self.high[row, column]),
                    "words": self.words[row][column] or None,
                }

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        rows = ({**row, "sentence": row["sentence"] and list(row["sentence"])} for row in self.rows())
        return {"unit": self.unit, "kind": self.kind, "rows": list(rows), "notes": list(self.notes)}


def grid(judged: Judged | Support, attribution: Attribution | None = None, cited: Citations | None = None) -> Grid:
    """Put what drove each claim beside what bears it out, and what the answer cites.

    Claims of the two are matched by their span, so that several claims taken out of one sentence share its cause;
    segments by id. Of a claim's rows the total reading counts, where there is one.
    Cost: no calls.

    Parameters
    ----------
    judged : Judged or Support
        A bare ``Support`` is of the attribution's own claims and segments.
    attribution : Attribution, optional
        Without one nothing was measured: every cell is ``undetermined``.
    cited : Citations, optional
        Of the same claims and segments as ``judged``.

    Raises
    ------
    InputError
        A bare ``Support`` is given without an attribution or has another shape, or a citation is of a claim or segment
        that there is not.

    References
    ----------
    Wallat et al., Correctness is not Faithfulness in RAG Attributions, ICTIR 2025, doi:10.1145/3731120.3744592: up to
    57 % of citations lacked faithfulness. They find that out by adversarial insertions into documents; here each
    segment's effect on the claim is measured.
    """
    claims, segments, support = _judged(judged, attribution)
    shape = (len(claims), len(segments))
    used, effects, low, high = (np.full(shape, np.nan) for _ in range(4))
    words = [[""] * len(segments) for _ in claims]
    if attribution is not None:
        columns = {segment.id: column for column, segment in enumerate(attribution.segments)}
        for row, claim in enumerate(claims):
            rows = _rows_of(attribution, claim)
            for column, segment in enumerate(segments):
                if rows and (source := columns.get(segment.id)) is not None:
                    used[row, column] = _is_used(attribution, rows, source)
                    at = _strongest(attribution, rows, source)
                    if at is not None:
                        effects[row, column] = attribution.effects[at, source]
                        low[row, column], high[row, column] = attribution.low[at, source], attribution.high[at, source]
                        words[row][column] = attribution.targets[at].text
    return Grid(
        claims=claims,
        segments=segments,
        cells=_cells(used, support.verdicts),
        used=used,
        support=support.verdicts,
        cited=_cited(cited, claims, len(segments)),
        effects=effects,
        low=low,
        high=high,
        words=tuple(map(tuple, words)),
        sentences=_sentences(claims, segments),
        unit="" if attribution is None else attribution.unit,
        kind=support.kind,
        notes=() if cited is None else cited.notes,
    )


def _judged(
    judged: Judged | Support, attribution: Attribution | None
) -> tuple[tuple[Claim, ...], tuple[Segment, ...], Support]:
    if isinstance(judged, Judged):
        return judged.claims, judged.segments, judged.support
    if attribution is None:
        raise InputError("a table of verdicts alone does not say what it is of; give the attribution, or a Judged")
    claims, segments = attribution.claims, attribution.segments
    if judged.verdicts.shape != (len(claims), len(segments)):
        raise InputError(
            f"the verdicts are {judged.verdicts.shape}, the attribution has {len(claims)} claims and {len(segments)} "
            "segments; judge these"
        )
    return claims, segments, judged


def _rows_of(attribution: Attribution, claim: Claim) -> list[int]:
    """Rows of the claims with that span, and of their pivots and values, each in its total reading if it has one."""
    same = {
        position for position, one in enumerate(attribution.claims) if (one.start, one.end) == (claim.start, claim.end)
    }
    found = []
    for row, target in enumerate(attribution.targets):
        is_part = target.kind in (TargetKind.CLAIM, TargetKind.PIVOT) or target.kind is TargetKind.SPAN
        is_whole = target.kind is TargetKind.RESPONSE and len(attribution.claims) == 1
        if (is_part and target.claim in same) or (is_whole and same):
            has_total = target.reading == "direct" and replace(target, reading="total") in attribution.targets
            found += [] if has_total else [row]
    return found


def _is_used(attribution: Attribution, rows: Sequence[int], column: int) -> float:
    """1, 0, or NaN where neither can be said."""
    verdicts = {str(attribution.verdicts[row, column]) for row in rows}
    in_group = any(group.target in rows and column in group.members for group in attribution.groups)
    if Verdict.DRIVES.value in verdicts or in_group:
        return 1.0
    return 0.0 if verdicts <= {Verdict.NO_EFFECT.value, Verdict.OPPOSES.value} else math.nan


def _strongest(attribution: Attribution, rows: Sequence[int], column: int) -> int | None:
    """The row that it drives, else the one on which its effect is largest either way."""
    measured = [row for row in rows if not math.isnan(attribution.effects[row, column])]
    driven = [row for row in measured if attribution.verdicts[row, column] == Verdict.DRIVES.value]
    return max(driven or measured, key=lambda row: abs(float(attribution.effects[row, column])), default=None)


def _cells(used: FloatArray, verdicts: NDArray[np.str_]) -> NDArray[np.str_]:
    is_supported = verdicts == SupportVerdict.ENTAILS.value
    is_open = np.isnan(used) | (verdicts == SupportVerdict.UNDETERMINED.value)
    cases = (
        (is_open, Cell.UNDETERMINED),
        ((used == 1) & is_supported, Cell.USED_AND_SUPPORTED),
        ((used == 0) & is_supported, Cell.SUPPORTED_NOT_USED),
        ((used == 1) & ~is_supported, Cell.USED_NOT_SUPPORTED),
    )
    return np.select([where for where, _ in cases], [cell.value for _, cell in cases], default=Cell.NEITHER.value)


def _cited(cited: Citations | None, claims: Sequence[Claim], n_segments: int) -> MaskArray:
    """What is cited for a sentence is cited for all claims that were taken out of it."""
    found = np.zeros((len(claims), n_segments), dtype=np.bool_)
    rows: dict[Span, list[int]] = defaultdict(list)
    for row, claim in enumerate(claims):
        rows[claim.start, claim.end].append(row)
    for one in cited.found if cited is not None else ():
        if any(not 0 <= column < n_segments for column in one.segments) or (one.claim or 0) >= len(claims):
            raise InputError(
                f"a citation is of claim {one.claim} and segments {one.segments}, of {len(claims)} and {n_segments}; "
                "read the citations with the claims and segments that were judged"
            )
        if one.claim is not None and one.segments:
            claim = claims[one.claim]
            found[np.ix_(rows[claim.start, claim.end], list(one.segments))] = True
    return found


def _sentences(claims: Sequence[Claim], segments: Sequence[Segment]) -> tuple[tuple[Span | None, ...], ...]:
    """Segment by segment, since a segment's sentences are kept for the next claim."""
    columns = [[supporting_sentence(claim.text, segment.text) for claim in claims] for segment in segments]
    return tuple(tuple(column[row] for column in columns) for row in range(len(claims)))


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
