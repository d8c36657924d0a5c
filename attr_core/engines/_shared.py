"""Which prompts of a batch begin alike, and whether forwarding that beginning once pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from attr_core.engines._tokens import n_alike

LEAST_SHARED = 1 / 8
"""Share of a prompt's and the continuation's tokens that must be held for it to leave its batch."""

LEAST_SAVED = 1 / 8
"""Share of the tokens that holding another prompt must save: chunks that are kept run up to a tenth slower."""

Row = Sequence[int]


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a batch is forwarded: ``hold`` first, if it names a row; then ``packs``, passes over what rows have after the
    ``shared`` tokens that are held; all other rows in padded batches.
    """

    hold: int | None = None
    shared: Mapping[int, int] = field(default_factory=dict)
    packs: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """What the two ways are compared by.

    Attributes
    ----------
    n_continuation : int
        Tokens that follow each row.
    max_tokens : int
        Most tokens of one pass on what is held, if it takes more than one row.
    pass_tokens : int
        How many tokens take as long as a pass costs beside its tokens.
    padded : callable
        The batches that rows of given lengths, continuation included, make without sharing, as indices.
    fits : callable
        Whether a pass of ``n_tokens`` that reads off ``n_rows`` rows is possible with ``n_held`` tokens held.
    """

    n_continuation: int
    max_tokens: int
    pass_tokens: int
    padded: Callable[[Sequence[int]], Sequence[Sequence[int]]]
    fits: Callable[[int, int, int], bool]


def share(rows: Sequence[Row], held: Row, terms: Terms, *, is_wanted: bool = True) -> Sharing:
    """The cheapest of: no sharing, continuing what is ``held``, and holding one of the rows first.

    What would be forgotten of ``held`` counts as to be forwarded again if ``is_wanted``.
    """
    alike = [n_alike(held, row) for row in rows]
    best, cost = Sharing(), _cost_padded(rows, range(len(rows)), terms)
    if any(alike):
        other = _sharing(rows, alike, None, len(held), terms)
        other_cost = _cost(rows, other, terms)
        if other_cost < cost:
            best, cost = other, other_cost
    if (found := _most_alike(rows, alike, held if is_wanted else ())) is None:
        return best
    kept, alike_kept = found
    n_new = len(rows[kept]) - 1 - alike[kept]
    if n_new <= 0:
        return best  # it is held
    other = _sharing(rows, alike_kept, kept, len(rows[kept]) - 1, terms)
    forgotten = len(held) - alike[kept] if is_wanted else 0
    other_cost = _cost(rows, other, terms) + n_new + terms.pass_tokens * -(-n_new // terms.max_tokens) + forgotten
    return other if other.shared and other_cost <= (1 - LEAST_SAVED) * cost else best


def forwarded(batches: Sequence[Sequence[Row]], terms: Terms, *, held: Row = ()) -> list[int]:
    """Tokens that go through the model for each batch of rows, one after the other, with ``held`` held at first."""
    is_wanted, found = bool(held), []
    for rows in batches:
        whole = sum(len(row) + terms.n_continuation for row in rows)
        sharing = share(rows, held, terms, is_wanted=is_wanted) if held or len(rows) > 1 else Sharing()
        is_wanted = bool(sharing.shared)
        n_new = 0
        if sharing.hold is not None:
            n_new = len(rows[sharing.hold]) - 1 - n_alike(held, rows[sharing.hold][:-1])
            held = rows[sharing.hold][:-1]
        found.append(whole - sum(sharing.shared.values()) + n_new)
    return found


def _most_alike(rows: Sequence[Row], alike_held: Sequence[int], held: Row) -> tuple[int, list[int]] | None:
    """The row whose holding saves most against forwarding each row whole, and how many tokens each shares with it."""

    def saved(one: tuple[int, list[int]]) -> tuple[int, int]:
        kept, alike = one
        forgotten = max(0, len(held) - alike_held[kept])
        # Among equals the longest misses least, and is what most later prompts share.
        return sum(alike) - len(rows[kept]) + alike_held[kept] - forgotten, len(rows[kept])

    best = max(_alike(rows), key=saved)
    return best if saved(best)[0] > 0 else None


def _alike(rows: Sequence[Row]) -> Iterator[tuple[int, list[int]]]:
    """For each row, how many of its first tokens each row shares with it."""
    order = sorted(range(len(rows)), key=lambda n: list(rows[n]))
    # In this order two rows share what all neighbours between them share.
    steps = [n_alike(rows[one], rows[other]) for one, other in pairwise(order)]
    for place, kept in enumerate(order):
        alike = [0] * len(rows)
        alike[kept] = least = len(rows[kept])
        for row, step in zip(order[place + 1 :], steps[place:], strict=True):
            alike[row] = least = min(least, step)
        least = len(rows[kept])
        for row, step in zip(reversed(order[:place]), reversed(steps[:place]), strict=True):
            alike[row] = least = min(least, step)
        yield kept, alike


def _sharing(rows: Sequence[Row], alike: Sequence[int], hold: int | None, n_held: int, terms: Terms) -> Sharing:
    """The rows that share enough, packed; none if what is to be held does not fit."""
    # A row's last token is read off, so it is never among those held.
    shared = {n: min(alike[n], len(row) - 1, n_held) for n, row in enumerate(rows)}
    shared = {n: s for n, s in shared.items() if s >= LEAST_SHARED * (len(rows[n]) + terms.n_continuation)}
    if not shared or (len(shared) == 1 and hold is not None):
        return Sharing()
    n_fed = {n: len(rows[n]) - s + terms.n_continuation - 1 for n, s in shared.items()}
    n_fed = {n: n_tokens for n, n_tokens in n_fed.items() if terms.fits(n_tokens, 1, n_held)}
    packs: list[list[int]] = []
    total = 0
    for n in sorted(n_fed, key=n_fed.__getitem__):
        total += n_fed[n]
        if packs and total <= terms.max_tokens and terms.fits(total, len(packs[-1]) + 1, n_held):
            packs[-1].append(n)
        else:
            packs.append([n])
            total = n_fed[n]
    return Sharing(hold if packs else None, {n: shared[n] for n in n_fed}, packs)


def _cost(rows: Sequence[Row], sharing: Sharing, terms: Terms) -> int:
    """Tokens that take as long as the packs and the padded batches do."""
    rests = sum(len(rows[n]) - shared + terms.n_continuation for n, shared in sharing.shared.items())
    others = [n for n in range(len(rows)) if n not in sharing.shared]
    return rests + terms.pass_tokens * len(sharing.packs) + _cost_padded(rows, others, terms)


def _cost_padded(rows: Sequence[Row], places: Sequence[int], terms: Terms) -> int:
    lengths = [len(rows[n]) + terms.n_continuation for n in places]
    made = terms.padded(lengths)
    return sum(len(batch) * max(lengths[n] for n in batch) + terms.pass_tokens for batch in made)


def is_position_fixed(config: Any) -> bool:
    """Whether a token's position means the same in a pass of any length; some rotary embeddings turn by the longest."""
    text = config.get_text_config()
    stated = [getattr(text, name, None) for name in ("rope_parameters", "rope_scaling")]
    return not any("longrope" in str(one) or "dynamic" in str(one) for one in stated)
