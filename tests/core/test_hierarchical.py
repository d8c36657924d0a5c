"""Groups first, then the segments of those that matter: right at whatever resolution, within the masks announced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attr_core.errors import ConfigurationError
from attr_core.estimators import Banzhaf, DebiasedLasso, Hierarchical, LeaveOneOut, PathGradients, Screened
from attr_core.prompt import candidates
from attr_core.protocols import ScoringEngine
from attr_core.results import Estimate, FloatArray, MaskArray
from attr_core.segmenter import segment_trace
from attr_core.testing import AdditiveEngine, GameValue, ScreenedGame
from attr_core.types import Document, Generation, Location, Message, Segment, SegmentKind, Target, TargetKind, Trace
from attr_core.values import ResponseLogOdds
from attr_core.verdicts import margins

Groups = tuple[tuple[int, ...], ...]


def documents(n_documents: int, size: int) -> Groups:
    return tuple(tuple(range(first * size, (first + 1) * size)) for first in range(n_documents))


def weights_of(n_segments: int, large: dict[int, float]) -> np.ndarray:
    weights = np.zeros(n_segments)
    weights[list(large)] = list(large.values())
    return weights


def additive(weights: np.ndarray, groups: Groups) -> GameValue:
    return GameValue(lambda mask: [float(weights @ mask) - 2.0], len(weights), groups=groups)


def resolved(estimate: Estimate, weights: np.ndarray) -> np.ndarray:
    """What each column's effect is: its weight, or the sum over those that it is tied to."""
    sums = weights.copy()
    for columns in estimate.tied:
        sums[list(columns)] = weights[list(columns)].sum()
    return sums


@st.composite
def grouped_weights(draw: st.DrawFn) -> tuple[np.ndarray, Groups]:
    weights = draw(st.lists(st.sampled_from([0.0, 0.0, 0.1, -0.3, 2.0, -4.0, 9.0]), min_size=1, max_size=30))
    labels = draw(st.lists(st.integers(0, 6), min_size=len(weights), max_size=len(weights)))
    groups = [tuple(n for n, label in enumerate(labels) if label == one) for one in dict.fromkeys(labels)]
    return np.array(weights), tuple(groups)


@given(grouped_weights(), st.integers(34, 80))
@settings(max_examples=80)
def test_an_additive_game_is_right_at_whatever_resolution_and_within_the_budget(
    case: tuple[np.ndarray, Groups], max_masks: int
) -> None:
    weights, groups = case
    game = additive(weights, groups)
    estimator = Hierarchical(LeaveOneOut(), max_masks=max_masks)
    found = estimator.estimate(game)
    np.testing.assert_allclose(found.effects[0], resolved(found, weights), atol=1e-9)
    assert found.n_masks == len(set(game.measured)) <= estimator.n_masks(len(weights)) == max_masks
    assert set(found.tied) <= set(groups)
    delta = margins(found.effects, floor=1.0)[0]
    left = max((abs(found.effects[0, columns[0]]) for columns in found.tied), default=0.0)
    assert found.partial == (left > delta)


@given(grouped_weights())
@settings(max_examples=15)
def test_so_it_is_with_the_estimator_that_is_chosen_by_default(case: tuple[np.ndarray, Groups]) -> None:
    weights, groups = case
    found = Hierarchical().estimate(additive(weights, groups))
    # What LASSO leaves of a large effect is sampled, so the tolerance goes by how much there is.
    np.testing.assert_allclose(found.effects[0], resolved(found, weights), atol=0.02 * np.abs(weights).sum() + 0.01)
    assert not found.partial


def test_only_the_group_that_matters_is_drilled_and_the_others_are_tied() -> None:
    weights = weights_of(24, {7: 6.0, 8: -2.0, 12: 0.2, 13: 0.3})
    found = Hierarchical().estimate(additive(weights, documents(8, 3)))
    np.testing.assert_allclose(found.effects[0], resolved(found, weights), atol=0.05)
    assert found.tied == tuple(group for group in documents(8, 3) if group != (6, 7, 8))
    assert found.drops[0, 7] == pytest.approx(6.0)
    assert np.isnan(np.delete(found.drops[0], [6, 7, 8])).all(), "no segment of the others was deleted alone"
    assert not found.partial


def test_a_group_is_drilled_where_its_interval_reaches_beyond_the_margin_though_its_effect_does_not() -> None:
    game = linear_game(weights_of(60, {5: 12.0, 33: 1.8}), documents(10, 6), noise=2.0)
    whole = GameValue(lambda rows: game.game(np.repeat(rows, 6)), 10)
    first = DebiasedLasso().estimate(whole)
    delta = margins(first.effects, floor=game.floor)[0]
    assert first.effects[0, 5] < delta < first.high[0, 5]
    found = Hierarchical(DebiasedLasso()).estimate(game)
    assert not {column for columns in found.tied for column in columns} & set(range(30, 36))


@pytest.mark.parametrize(
    "groups", [documents(1, 9), documents(3, 3), documents(9, 1), ((8, 0, 4), (1, 5, 7), (6, 2, 3))]
)
def test_where_every_group_matters_all_segments_stand_alone(groups: Groups) -> None:
    weights = np.array([5.0, 0.0, 0.0, -6.0, 0.0, 2.0, 4.0, 0.0, 0.0])
    found = Hierarchical().estimate(additive(weights, groups))
    np.testing.assert_allclose(found.effects[0], weights, atol=0.05)
    assert found.tied == ()


@pytest.mark.parametrize("groups", [documents(1, 12), documents(2, 6), documents(4, 3)])
def test_where_no_group_matters_one_look_is_enough(groups: Groups) -> None:
    weights = np.full(12, 0.05)
    game = additive(weights, groups)
    found = Hierarchical().estimate(game)
    assert found.tied == groups
    assert len(set(game.measured)) == 2 ** len(groups)
    np.testing.assert_allclose(found.effects[0], 0.05 * len(groups[0]))
    assert not found.partial


def test_one_of_two_groups_matters() -> None:
    weights = weights_of(16, {3: 8.0})
    found = Hierarchical().estimate(additive(weights, documents(2, 8)))
    np.testing.assert_allclose(found.effects[0], weights, atol=0.05)
    assert found.tied == (tuple(range(8, 16)),)


@pytest.mark.parametrize("groups", [(), documents(20, 1)])
def test_without_groups_of_several_it_is_the_inner_estimator(groups: Groups) -> None:
    weights = weights_of(20, {4: 5.0, 11: -3.0})
    found = Hierarchical().estimate(additive(weights, groups), seed=5)
    flat = DebiasedLasso().estimate(additive(weights, ()), seed=5)
    for name in ("effects", "low", "high", "drops"):
        np.testing.assert_array_equal(getattr(found, name), getattr(flat, name))
    assert (found.tied, found.partial, found.dof) == ((), False, flat.dof)


def test_a_few_segments_are_enumerated_at_once_whatever_their_groups() -> None:
    game = additive(weights_of(6, {2: 0.1}), documents(2, 3))
    found = Hierarchical().estimate(game)
    assert found.exact
    assert found.tied == ()
    assert len(set(game.measured)) == Hierarchical().n_masks(6) == 64


def test_a_few_more_segments_than_that_go_by_their_groups_and_are_still_enumerated() -> None:
    game = additive(weights_of(8, {2: 3.0}), documents(4, 2))
    found = Hierarchical().estimate(game)
    assert found.exact
    assert found.tied == ((0, 1), (4, 5), (6, 7))
    assert len(set(game.measured)) == 32, "of the five players; those of the four groups are among them"


def test_a_group_that_matters_only_beside_its_rivals_segments_is_drilled_next() -> None:
    """Ten segments of 2 nats make a group of 20, beside which one of 3 looks like nothing; beside each it does not."""
    weights = np.concatenate([np.full(10, 2.0), weights_of(10, {0: 3.0}), np.zeros(10)])
    found = Hierarchical(LeaveOneOut()).estimate(additive(weights, documents(3, 10)))
    assert found.tied == (tuple(range(20, 30)),)
    np.testing.assert_allclose(found.effects[0], weights, atol=1e-9)


def test_an_interval_that_stays_wide_beside_a_smaller_margin_is_no_reason_to_drill_again() -> None:
    game = linear_game(np.concatenate([np.full(10, 2.0), np.zeros(30)]), documents(4, 10), noise=2.5)
    found = Hierarchical(DebiasedLasso()).estimate(game)
    assert found.tied == documents(4, 10)[1:]
    delta = margins(found.effects, floor=game.floor)[0]
    assert np.abs(found.effects[0, 10:]).max() < delta < found.high[0, 10:].max()
    assert not found.partial, "nothing was left out for the budget's sake"


def test_what_pulls_both_ways_as_much_does_not_matter_as_a_group() -> None:
    found = Hierarchical().estimate(additive(weights_of(12, {0: 5.0, 1: -5.0, 9: 4.0}), documents(4, 3)))
    assert (0, 1, 2) in found.tied
    np.testing.assert_allclose(found.effects[0, :3], 0, atol=1e-9)


def test_a_group_that_matters_to_any_target_is_drilled() -> None:
    weights = np.stack([weights_of(12, {1: 9.0}), weights_of(12, {10: -3.0})])
    game = GameValue(lambda mask: list(weights @ mask), 12, n_targets=2, groups=documents(4, 3))
    found = Hierarchical().estimate(game)
    assert found.tied == ((3, 4, 5), (6, 7, 8))
    np.testing.assert_allclose(found.effects, weights, atol=0.05)


def test_where_the_budget_is_small_the_largest_groups_are_drilled_and_the_rest_says_so() -> None:
    weights = weights_of(40, {0: 3.0, 11: -9.0, 22: 6.0, 33: 2.5})
    game = additive(weights, documents(4, 10))
    estimator = Hierarchical(max_masks=85)
    found = estimator.estimate(game)
    assert found.partial
    assert found.tied == (tuple(range(30, 40)),)
    np.testing.assert_allclose(found.effects[0], resolved(found, weights), atol=0.2)
    assert len(set(game.measured)) <= estimator.n_masks(40) == 85


def test_where_not_even_one_group_can_be_drilled_all_stay_groups() -> None:
    weights = weights_of(60, {5: 6.0})
    found = Hierarchical(max_masks=40).estimate(additive(weights, documents(30, 2)))
    assert found.partial
    assert found.tied == documents(30, 2)
    assert found.n_masks <= 40


def test_the_first_look_leaves_masks_for_the_second() -> None:
    """Each target has leaders of its own, whose single drops would take what drilling needs."""
    weights = np.zeros((20, 40))
    weights[np.arange(20), 2 * np.arange(20)] = 0.3
    weights[0, 6] = 6.0
    game = GameValue(lambda mask: list(weights @ mask), 40, n_targets=20, groups=documents(20, 2))
    found = Hierarchical(max_masks=140).estimate(game)
    assert found.tied == tuple(group for group in documents(20, 2) if group != (6, 7))
    assert not found.partial


def test_permuting_segments_and_their_groups_permutes_effects() -> None:
    order = np.random.default_rng(2).permutation(18)
    weights = weights_of(18, {2: 6.0, 9: -3.0, 10: 0.1})
    groups = documents(6, 3)
    place = np.argsort(order)
    moved = tuple(tuple(int(place[column]) for column in group) for group in groups)
    found, again = (
        Hierarchical().estimate(additive(weights, groups)),
        Hierarchical().estimate(additive(weights[order], moved)),
    )
    np.testing.assert_allclose(again.effects[0], found.effects[0, order], atol=0.1)
    assert {tuple(sorted(order[list(one)].tolist())) for one in again.tied} == set(found.tied)


class LinearGame(ScreenedGame):
    """Weights, and terms of pairs; so many segments that gradients must be known and not enumerated."""

    __slots__ = ("pair_terms", "weights")

    def gradients(self, gates: FloatArray) -> FloatArray:
        self.n_gates += len(gates)
        slopes = np.tile(self.weights, (len(gates), 1))
        for (first, second), term in self.pair_terms.items():
            slopes[:, first] += term * gates[:, second]
            slopes[:, second] += term * gates[:, first]
        return slopes[:, None, :]


def linear_game(
    weights: np.ndarray, groups: Groups, *, pairs: dict[tuple[int, int], float] | None = None, noise: float = 0.0
) -> LinearGame:
    terms = pairs or {}
    errors: dict[bytes, float] = {}
    rng = np.random.default_rng(0)

    def value(mask: MaskArray) -> list[float]:
        error = errors.setdefault(mask.tobytes(), rng.normal(0, noise))
        joint = sum(term for (first, second), term in terms.items() if mask[first] and mask[second])
        return [float(weights @ mask) + joint + error]

    game = LinearGame(value, len(weights), groups=groups)
    game.weights, game.pair_terms = weights, terms
    return game


def large_game(seed: int) -> tuple[LinearGame, set[int], np.ndarray]:
    """200 segments in 20 documents: four matter, two of which share what they say; the others hardly do."""
    rng = np.random.default_rng(seed)
    planted = [int(10 * document + rng.integers(10)) for document in rng.choice(20, 4, replace=False)]
    weights = rng.normal(0, 0.05, 200)
    weights[planted] = [9.0, 6.0, -5.0, 4.0]
    truth = weights.copy()
    truth[planted[:2]] -= 1.5
    shared = {(planted[0], planted[1]): -3.0}
    return linear_game(weights, documents(20, 10), pairs=shared, noise=0.7), set(planted), truth


def named(found: Estimate) -> set[int]:
    """Columns whose interval lies beyond the margin."""
    delta = margins(found.effects, floor=1.0)[:, None]
    return set(np.flatnonzero(((found.low > delta) | (found.high < -delta))[0]).tolist())


def tokens(game: ScreenedGame) -> int:
    return int(game.prices(np.array(sorted(set(game.measured)))).sum())


def test_of_200_segments_in_20_documents_the_right_ones_are_found_with_half_the_masks() -> None:
    covered: list[bool] = []
    for seed in range(5):
        game, planted, truth = large_game(seed)
        found = Hierarchical(DebiasedLasso()).estimate(game, seed=seed)
        assert named(found) == planted
        assert not found.partial
        assert not planted & {column for columns in found.tied for column in columns}
        assert len(found.tied) >= 13, "most documents are left as they are"
        same = resolved(found, truth)
        covered += ((found.low[0] <= same) & (same <= found.high[0])).tolist()
        flat, _, _ = large_game(seed)
        DebiasedLasso().estimate(flat, seed=seed)
        assert len(set(game.measured)) <= 0.55 * len(set(flat.measured))
        assert tokens(game) <= 0.55 * tokens(flat)
        assert found.n_masks == len(set(game.measured)) <= Hierarchical().n_masks(200) == 448
    assert np.mean(covered) >= 0.9


def test_of_200_segments_the_right_ones_are_found_by_hiding_with_a_handful_of_deletions() -> None:
    for seed in range(5):
        game, planted, _ = large_game(seed)
        found = Hierarchical().estimate(game, seed=seed)
        assert named(found) == planted
        assert not found.partial
        assert found.n_masks == len(set(game.measured)) + len(set(game.hid)) <= 448
        assert len(set(game.measured)) <= 12
        assert found.agreement is not None
        assert found.agreement[0] > 0.99


def test_the_budget_holds_where_hiding_says_little_about_deleting() -> None:
    weights = weights_of(40, {0: 6.0, 15: -4.0})
    game = linear_game(weights, documents(10, 4))
    rng = np.random.default_rng(1)
    game.hidden_game = lambda mask: [float(-weights @ mask + rng.normal(0, 3))]
    for max_masks in (34, 100, 151, 200, 384, 700):
        game.measured.clear()
        game.hid.clear()
        estimator = Hierarchical(max_masks=max_masks)
        found = estimator.estimate(game)
        assert found.n_masks == len(set(game.measured)) + len(set(game.hid)) <= estimator.n_masks(40) == max_masks


def test_groups_are_looked_into_where_hiding_leaves_it_open_whether_they_matter() -> None:
    game = linear_game(weights_of(40, {0: 6.0}), documents(10, 4))
    rng = np.random.default_rng(1)
    game.hidden_game = lambda mask: [float(6.0 * mask[20] + rng.normal(0, 3))]
    found = Hierarchical().estimate(game)
    assert found.agreement is not None
    assert found.tied == ()
    assert np.isfinite(found.error).all(), "the first look left enough to delete what the last one has to"


def test_a_pair_and_a_repeated_header_are_told_in_columns_of_segments() -> None:
    """Two facts are needed together; every document begins with the same header, and together these matter."""
    groups = documents(8, 4)
    headers = tuple(group[0] for group in groups)
    weights = weights_of(32, {9: 3.0, 22: 3.0} | dict.fromkeys(headers, 0.01))
    game = linear_game(weights, groups, pairs={(9, 22): 8.0})
    game.alike = (headers,)
    found = Hierarchical(Screened()).estimate(game)
    assert {(pair.first, pair.second) for pair in found.pairs} == {(9, 22)}
    assert [pair.effect for pair in found.pairs] == pytest.approx([8.0], abs=0.5)
    assert found.tied == tuple(group for group in groups if not {9, 22} & set(group))


def test_headers_of_drilled_documents_stay_tied_while_they_do_not_matter() -> None:
    groups = documents(4, 4)
    weights = weights_of(16, {1: 5.0, 6: 5.0, 11: 5.0})
    game = linear_game(weights, groups)
    game.alike = ((0, 4, 8, 12),)
    found = Hierarchical().estimate(game)
    assert found.tied == ((0, 4, 8), (12, 13, 14, 15))
    np.testing.assert_allclose(found.effects[0], weights, atol=0.1)


def test_copies_in_two_drilled_documents_are_a_redundancy_group() -> None:
    groups = documents(8, 4)

    def either(mask: MaskArray) -> list[float]:
        return [9.0 * float(mask[5] or mask[18])]

    game = linear_game(np.zeros(32), groups)
    game.game = either
    game.alike = ((5, 18),)
    game.weights = weights_of(32, {5: 9.0, 18: 9.0})
    game.pair_terms = {(5, 18): -9.0}
    found = Hierarchical().estimate(game)
    assert [group.members for group in found.groups] == [(5, 18)]
    np.testing.assert_allclose(found.effects[0, [5, 18]], 4.5, atol=0.3)


def test_path_gradients_of_a_group_are_the_sum_over_its_segments() -> None:
    weights = weights_of(12, {1: 6.0, 4: 0.2, 5: 0.3})
    found = Hierarchical(PathGradients()).estimate(linear_game(weights, documents(4, 3)))
    np.testing.assert_allclose(found.effects[0], resolved(found, weights), atol=1e-9)
    assert len(found.tied) == 3
    assert not found.decisive


@pytest.mark.parametrize("sizes", [(12, 4, 4), (12, 12)])
def test_a_document_that_never_fits_the_window_is_drilled_since_its_segments_may(sizes: tuple[int, ...]) -> None:
    ends = np.cumsum(sizes)
    groups = tuple(tuple(range(int(end) - size, int(end))) for end, size in zip(ends, sizes, strict=True))
    game = additive(weights_of(int(ends[-1]), {3: 6.0}), groups)
    game.max_kept = 10
    found = Hierarchical().estimate(game)
    assert max(sum(mask) for mask in game.measured) <= 10
    assert found.effects[0, 3] == pytest.approx(6.0, abs=0.5)
    assert not {column for columns in found.tied for column in columns} & set(range(12))


def test_the_masks_read_for_pivots_are_measured_in_any_case() -> None:
    for inner in (None, DebiasedLasso(), Banzhaf()):
        game = additive(weights_of(24, {7: 6.0}), documents(8, 3))
        estimator = Hierarchical(inner)
        masks = estimator.ablations(game, seed=3)
        assert estimator.fidelity == "exact"
        assert len(masks)
        estimator.estimate(game, seed=3)
        assert {tuple(mask) for mask in masks.tolist()} <= set(game.measured)


def test_masks_that_are_hidden_are_read_for_pivots_only_where_that_is_known_beforehand() -> None:
    game = linear_game(weights_of(24, {7: 6.0}), documents(8, 3))
    assert len(Hierarchical().ablations(game)) == 0
    asked = Hierarchical(Screened())
    masks = asked.ablations(game)
    asked.estimate(game)
    assert asked.fidelity == "hidden"
    assert {tuple(mask) for mask in masks.tolist()} <= set(game.hid)


def test_what_cannot_be_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(ConfigurationError, match="give 34 or more"):
        Hierarchical(max_masks=20)
    game = additive(np.zeros(40), documents(20, 2))
    with pytest.raises(ConfigurationError, match="over 20 groups needs up to 86 masks, max_masks allows 50"):
        Hierarchical(DebiasedLasso(), max_masks=50).estimate(game)
    with pytest.raises(ConfigurationError, match="sample them"):
        Hierarchical(Banzhaf()).estimate(game)
    for wrong in (((0, 1), (1, 2)), ((0,), (1,)), ((0, 1), (2, 3)), ((0, 1, 2), ())):
        with pytest.raises(ConfigurationError, match="each of 3 segments once"):
            Hierarchical(LeaveOneOut()).estimate(GameValue(lambda mask: [0.0], 3, groups=wrong))
    assert not game.measured


def test_the_estimand_and_fidelity_are_those_of_the_inner_estimator() -> None:
    assert (Hierarchical().estimand, Hierarchical().fidelity) == ("banzhaf", "exact")
    inner = PathGradients()
    assert (Hierarchical(inner).estimand, Hierarchical(inner).fidelity) == (inner.estimand, inner.fidelity)


def piece(name: str, message: int, *, group: str | None = None, held: Sequence[str] = ()) -> Segment:
    place = (Location(message, 0, 1),)
    return Segment(name, SegmentKind.RETRIEVED, name, place, group_id=group, documents=tuple(held))


def test_columns_are_grouped_by_group_id_else_by_document_else_by_message() -> None:
    pieces = [
        piece("a1", 0, group="a"),
        piece("b1", 0, group="b"),
        piece("said", 1),
        piece("a2", 1, group="a"),
        piece("c1", 2, held=["c"]),
        piece("said too", 1),
        piece("c2", 3, held=["c", "d"]),
        piece("later", 2),
    ]
    generation = Generation(tuple(Message("user", "x") for _ in range(4)), "It is so.")
    value = ResponseLogOdds(AdditiveEngine({}), generation, segments=pieces, response="It is so.")
    assert value.groups == ((0, 3), (1,), (2, 5), (4, 6), (7,))


@dataclass(frozen=True)
class Page:
    """A document of four sentences, each a chunk of its own."""

    name: str
    lines: tuple[str, ...]

    @property
    def chunks(self) -> list[Document]:
        return [Document(f"{self.name}.{n}", line, metadata={"source": self.name}) for n, line in enumerate(self.lines)]


def page(place: str, thing: str, year: int, fee: int) -> Page:
    return Page(
        place.lower(),
        (
            f"{place} charges {fee} marks.",
            f"The {place} {thing} opened in {year}.",
            f"{place} lies {fee * 3} miles inland.",
            f"The {thing} seats {fee * 11}.",
        ),
    )


PAGES = (
    page("Corvath", "Torch Parade", 1937, 7),
    page("Dunmere", "Clock Museum", 1864, 12),
    page("Aldemoor", "Lantern Festival", 1911, 4),
    page("Farrow", "River Market", 1982, 31),
    page("Gildern", "Glass Library", 1899, 9),
)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_planted_document_is_drilled_on_a_real_model_and_its_sentence_drives_the_year(
    small_engine: ScoringEngine,
) -> None:
    chunks = [chunk for one in PAGES for chunk in one.chunks]
    question, answer = "In which year did the Aldemoor Lantern Festival open?", "The Lantern Festival opened in 1911."
    content = "Context:\n" + "\n".join(chunk.text for chunk in chunks) + f"\n\nQuestion: {question}"
    trace = Trace.from_messages([Message("user", content)], answer, documents=chunks)
    generation = segment_trace(trace, trace.target_generation)
    columns = tuple(one for one in candidates(generation.segments) if one.documents)
    start = answer.index("1911")
    year = Target(TargetKind.SPAN, start, start + 4, "1911")
    value = ResponseLogOdds(small_engine, generation, segments=columns, response=answer, targets=[year])
    assert value.groups == documents(5, 4)
    estimator = Hierarchical()
    found = estimator.estimate(value)
    names = [segment.id for segment in columns]
    planted = names.index("aldemoor.1")
    assert found.n_masks <= estimator.n_masks(20)
    assert not {column for group in found.tied for column in group} & set(range(8, 12))
    assert found.tied, "some document is left as it is"
    assert int(found.effects[0].argmax()) == planted
    assert found.low[0, planted] > margins(found.effects, floor=value.floor)[0]
