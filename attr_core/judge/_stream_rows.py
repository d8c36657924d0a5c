"""Verdicts that came in parts, row by row -> one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attr_core.results import Cost, FloatArray, Support, SupportVerdict

_UNDETERMINED = SupportVerdict.UNDETERMINED.value


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """What all segments say of one claim: row ``index`` of ``support``, or why nobody has said it."""

    support: Support | None
    index: int = 0
    reason: str = ""

    def verdicts(self, n_segments: int) -> NDArray[np.str_]:
        """Of each segment, shape ``(n_segments,)``."""
        return np.full(n_segments, _UNDETERMINED) if self.support is None else self.support.verdicts[self.index]

    def rationale(self, n_segments: int) -> NDArray[np.str_]:
        """Of each segment, shape ``(n_segments,)``."""
        return np.full(n_segments, self.reason) if self.support is None else self.support.rationale[self.index]

    def evidence(self, n_segments: int) -> FloatArray | None:
        """In nats, shape ``(n_segments,)``; ``None`` where nothing was measured."""
        if self.support is None or self.support.evidence is None:
            return None
        return np.asarray(self.support.evidence[self.index], dtype=np.float64)


def table_of(
    rows: Sequence[Row], n_segments: int, *, given: Sequence[Support], judge: str | None, reads: bool
) -> Support:
    """The table of all rows; ``given`` is all that the judge gave, for its cost and notes."""
    shape = (len(rows), n_segments)
    nothing = np.full(n_segments, np.nan)
    evidence = [row.evidence(n_segments) for row in rows]
    is_evidence = any(one.kind == "evidence" for one in given) if given else not reads
    return Support(
        verdicts=np.array([row.verdicts(n_segments) for row in rows], dtype=np.str_).reshape(shape),
        rationale=np.array([row.rationale(n_segments) for row in rows], dtype=np.str_).reshape(shape),
        repeats=max((one.repeats for one in given), default=1),
        cost=sum((one.cost for one in given), Cost()),
        kind="evidence" if is_evidence else "judged",
        judge=next((one.judge for one in given if one.judge is not None), judge),
        repeated=_repeated(rows, n_segments, given),
        evidence=(
            None
            if all(one is None for one in evidence)
            else np.array([nothing if one is None else one for one in evidence], dtype=np.float64).reshape(shape)
        ),
        notes=tuple(dict.fromkeys(note for one in given for note in one.notes)),
    )


def _repeated(rows: Sequence[Row], n_segments: int, given: Sequence[Support]) -> NDArray[np.str_] | None:
    """Each repeat's verdicts, shape ``(repeats, n_claims, n_segments)``; ``None`` where the judge gave none."""
    kept = [one.repeated for one in given if one.repeated is not None]
    if not kept or len(kept) < len(given):
        return None
    repeats = max(len(one) for one in kept)
    table = np.full((repeats, len(rows), n_segments), _UNDETERMINED)
    for number, row in enumerate(rows):
        if row.support is not None and row.support.repeated is not None:
            said = row.support.repeated[:, row.index]
            table[: len(said), number] = said
    return table
