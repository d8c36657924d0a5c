"""Other attribution packages, each run by its own code on the model that attrkit has loaded, and exact leave-one-out.

All see the same prompts: a peer is asked for a subset of the segments, and the text that attrkit would send for it is
put into the place where the package builds its own. So chat template, separators and tokens are the same for everyone,
and what is compared is which subsets a method measures and what it makes of them. Tokens are counted at the model, by
hooks, whatever a package says about itself.

Needs benchmarks/requirements.txt.

usage: python benchmarks/peers.py [KIND] [--segments 20] [--tokens 500] [--ablations 64 256] [--engine SPEC]
       python benchmarks/peers.py --agreement 3      the package's own run against its solver on attrkit's values
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from contexts import KINDS, make
from hidden_cache import resident, values_of
from scipy.stats import spearmanr

from attr_core.engines import load_engine
from attr_core.engines.huggingface import HuggingFaceEngine as Engine
from attr_core.estimators import ContextCite
from attr_core.prompt import ablate, ablations, candidates
from attr_core.results import FloatArray, MaskArray
from attr_core.segmenter import segment_trace
from attr_core.types import Generation, Segment

SHAPES = ((10, 300), (16, 400), (20, 500))
"""Segments and tokens of the contexts on which agreement is shown."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """What one method says of each segment, and what it took.

    ``effects`` ``(n_segments,)`` are nats, positive where the segment supports the answer. ``tokens`` are the positions
    that went through the model, a backward pass counting twice, and ``padding`` the empty ones beside them; ``calls``
    the rows of all batches, a backward pass again counting twice. ``peak_bytes`` is the process's peak memory beyond
    what it held before, which only Linux tells.
    """

    name: str
    effects: FloatArray = field(repr=False)
    tokens: int
    seconds: float
    calls: int
    peak_bytes: int | None
    padding: int = 0


def context_cite(
    engine: Engine,
    generation: Generation,
    segments: Sequence[Segment],
    answer: str,
    *,
    n_ablations: int = 64,
    seed: int = 0,
) -> Ranking:
    """context-cite 0.0.4's ``ContextCiter`` with its defaults, one row at a time, on the whole recorded answer.

    It takes its text from a partitioner, whose text stands for the whole rendered prompt, chat template and question
    included; the package's own templates add nothing. The answer is put where it keeps what it generated.
    The package draws row ``i`` with seed ``i`` and offers no other; here it is ``seed + i``, so runs that shall not
    share masks need seeds ``n_ablations`` apart. On a CUDA device it would run in half precision.

    Raises
    ------
    ValueError
        The package reads other tokens out of prompt and answer than attrkit sends.
    """
    package = _context_cite()
    model, tokenizer = inside(engine)
    tokenizer = copy.deepcopy(tokenizer)  # the package sets its padding token
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    base = package.context_partitioner.BaseContextPartitioner

    class Columns(base):
        num_sources = len(segments)

        def split_context(self) -> None:
            """Nothing to do: the columns are given."""

        def get_source(self, index: int) -> str:
            return segments[index].text

        def get_context(self, mask: MaskArray | None = None) -> str:
            return sent(engine, generation, segments, mask)

    def attribute() -> FloatArray:
        columns = Columns(sent(engine, generation, segments))
        given = {"partitioner": columns, "prompt_template": "{context}", "num_ablations": n_ablations}
        citer = package.ContextCiter(model, tokenizer, columns.context, "", **given)
        citer._cache["output"] = columns.context + answer
        if citer._response_ids != answer_ids(engine, answer) or citer.response != answer:
            raise ValueError(f"context-cite reads {citer.response!r} where {answer!r} was recorded")
        seeded = partial(package.utils.get_masks_and_logit_probs, base_seed=seed)
        with mock.patch.object(package.context_citer, "get_masks_and_logit_probs", seeded), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its autocast, which does nothing on a CPU
            return np.asarray(citer.get_attributions(verbose=False), dtype=np.float64)

    return metered(f"context-cite, {n_ablations} ablations", engine, attribute)


def context_cite_on(values: FloatArray, masks: MaskArray, *, n_tokens: int) -> FloatArray:
    """Effects ``(n_segments,)`` that context-cite's own solver, with its defaults, fits to measured values.

    Parameters
    ----------
    values : array, shape (n_masks,)
        Log-odds of one target in nats.
    masks : array of bool, shape (n_masks, n_segments)
        Drawn as the package draws them, for what it would have given; see ``ContextCite.masks``.
    n_tokens : int
        Tokens of the target.
    """
    weights, _ = _context_cite().solver.LassoRegression().fit(masks, values, n_tokens)
    return np.asarray(weights, dtype=np.float64)


def larpie(
    engine: Engine, generation: Generation, segments: Sequence[Segment], answer: str, *, seed: int = 0
) -> Ranking:
    """larpie 0.2.0's ``LikelihoodAlgorithm`` on its own ``HFEngine``, which is given the loaded model.

    The package joins what is kept of its segments by line breaks and sends that without a chat template. Here its
    segments are the columns' numbers, and its engine scores the prompt that attrkit would send for those kept. That is
    kinder to it than its users meet: the template, one unit for a segment that stands in several places, and a prompt
    that is never empty. Its tokenizer calls add special tokens, as the package does, before prompt and answer both
    where the model has them (SmolLM2 has none).
    """
    from larpie.algorithms.likelihood import LikelihoodAlgorithm
    from larpie.engines.hf_engine import HFEngine
    from larpie.segmenter import Segment as Unit

    class Sent(HFEngine):
        def score_continuation(self, context: str, continuation: str) -> float:
            kept = set(context.split("\n"))
            mask = np.array([str(column) in kept for column in range(len(segments))])
            score: float = super().score_continuation(sent(engine, generation, segments, mask), continuation)
            return score

    model, tokenizer = inside(engine)
    scorer = Sent(engine.spec, device=str(model.device))
    scorer._model, scorer._tokenizer = model, tokenizer  # what it would else load from its name
    units = [Unit(str(column), str(column), str(segment.kind)) for column, segment in enumerate(segments)]

    def attribute() -> FloatArray:
        found = LikelihoodAlgorithm(random_state=seed).run(scorer, units, answer)
        score = {one.segment_id: one.score for one in found}
        return np.array([score[unit.id] for unit in units])

    return metered("larpie", engine, attribute)


def leave_one_out(
    engine: Engine, generation: Generation, segments: Sequence[Segment], answer: str, *, reuse: bool = False
) -> Ranking:
    """What deleting each segment alone takes from the answer's log-odds, exactly.

    With ``reuse`` the engine is given all prompts at once, the full one first, and may keep what they begin with
    (AttriBoT's trick: only what follows the deleted segment is forwarded again). Without, it forwards every prompt
    whole: one call a prompt, with nothing held from the last one.
    """

    def attribute() -> FloatArray:
        n = len(segments)
        prompts = ablations(generation, segments, np.concatenate([np.ones((1, n), np.bool_), ~np.eye(n, dtype=bool)]))
        scores = []
        for some in [prompts] if reuse else [[one] for one in prompts]:
            engine.release()
            scores += engine.score(some, answer)
        values = values_of(scores)
        return np.asarray(values[0] - values[1:])

    return metered(f"leave-one-out, {'reuse' if reuse else 'whole prompts'}", engine, attribute)


def metered(name: str, engine: Engine, work: Callable[[], FloatArray]) -> Ranking:
    """Run it, which gives the effects, and count what goes through the model meanwhile.

    The weights must be loaded and warm.
    """
    model, _ = inside(engine)
    meter = _Meter()
    hooks = [model.register_forward_pre_hook(meter.before, with_kwargs=True), model.register_forward_hook(meter.after)]
    try:
        held = _forget_peak()
        started = time.perf_counter()
        effects = work()
        seconds = time.perf_counter() - started
        peak = None if held is None else resident("VmHWM") - held
    finally:
        for hook in hooks:
            hook.remove()
    return Ranking(name, effects, meter.tokens, seconds, meter.calls, peak, meter.padding)


class _Meter:
    """Counts rows and positions as they enter the model, and again twice for each time gradients come back."""

    def __init__(self) -> None:
        self.tokens = self.padding = self.calls = 0
        self._rows = self._positions = 0

    def before(self, _: Any, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        ids = args[0] if args else given.get("input_ids")
        n_rows, n_positions = (given["inputs_embeds"] if ids is None else ids).shape[:2]
        mask = given.get("attention_mask")
        # A mask of another form hides parts of a cache; there is no padding then.
        flat = mask is not None and getattr(mask, "ndim", 0) == 2
        empty = int((mask[:, -n_positions:] == 0).sum()) if flat else 0
        self._rows, self._positions = n_rows, n_rows * n_positions - empty
        self.calls += self._rows
        self.tokens += self._positions
        self.padding += empty

    def after(self, _module: Any, _args: Any, output: Any) -> None:
        if output.logits.requires_grad:
            rows, positions = self._rows, self._positions
            output.logits.register_hook(lambda _: self._back(rows, positions))

    def _back(self, rows: int, positions: int) -> None:
        self.calls += 2 * rows
        self.tokens += 2 * positions


def inside(engine: Engine) -> tuple[Any, Any]:
    """The engine's transformers model and tokenizer, loaded if need be; it has no public way to them."""
    return engine._model.forward.model, engine._model.tokenizer


def sent(engine: Engine, generation: Generation, segments: Sequence[Segment], mask: MaskArray | None = None) -> str:
    """The whole text that attrkit sends for a mask ``(n_segments,)``, by default all kept, chat template included."""
    return engine.render(generation.prompt if mask is None else ablate(generation, segments, mask)).text


def answer_ids(engine: Engine, answer: str) -> list[int]:
    """The tokens that attrkit scores."""
    ids, _ = engine._model.tokens.encode_continuation(answer)
    return ids


@cache
def _context_cite() -> Any:
    with mock.patch("nltk.download"):  # which it calls when imported, for a sentence splitter that is not used here
        import context_cite.context_citer
        import context_cite.context_partitioner
        import context_cite.solver
        import context_cite.utils
    context_cite.utils.tqdm = partial(context_cite.utils.tqdm, disable=True)
    return context_cite


def _forget_peak() -> int | None:
    """Bytes held now, after what earlier work left has gone back to the system and its peak has been forgotten."""
    if sys.platform != "linux":
        return None
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def agreement(engine: Engine, seed: int) -> str:
    """How far context-cite's own run and its solver on attrkit's values of its masks agree on one context."""
    n_segments, n_tokens = SHAPES[seed % len(SHAPES)]
    context = make("single", seed=seed, n_segments=n_segments, n_tokens=n_tokens)
    generation = segment_trace(context.trace())
    segments = candidates(generation.segments)
    own = context_cite(engine, generation, segments, context.answer).effects
    masks = ContextCite(64).masks(len(segments))
    values = values_of(engine.score(ablations(generation, segments, masks), context.answer))
    ours = context_cite_on(values, masks, n_tokens=len(answer_ids(engine, context.answer)))
    return (
        f"{len(segments)} segments, about {n_tokens} tokens: correlation {np.corrcoef(own, ours)[0, 1]:.8f}, largest "
        f"difference {np.abs(own - ours).max():.2g} nats where the largest effect is {np.abs(ours).max():.2f}"
    )


def main() -> None:
    """All peers once on one context, or agreement on a few."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=KINDS, default="single")
    parser.add_argument("--segments", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the context")
    parser.add_argument("--ablations", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--agreement", type=int, default=0, help="contexts; nothing else is then run")
    parser.add_argument("--engine", default=None)
    options = parser.parse_args()
    engine: Any = load_engine(options.engine)
    context = make(options.kind, seed=options.seed, n_segments=options.segments, n_tokens=options.tokens)
    generation = segment_trace(context.trace())
    segments = candidates(generation.segments)
    engine.score([generation.prompt], context.answer)  # warms up
    for seed in range(options.agreement):
        print(agreement(engine, seed), flush=True)
    if options.agreement:
        return
    _context_cite()  # so that its import is nobody's time
    planted = {one for alternatives in context.causes for cause in alternatives for one in cause}
    columns = [n for n, segment in enumerate(segments) if planted & set(segment.documents)]
    print(f"{context.question} -> {context.answer} {len(engine.render(generation.prompt).token_ids)} tokens")
    print(f"{'':32}{'tokens':>8}{'calls':>7}{'seconds':>9}{'peak MB':>9}  places of the planted, rank correlation")
    case = (engine, generation, segments, context.answer)
    runs: list[Callable[[], Ranking]] = [
        lambda: leave_one_out(*case),
        lambda: leave_one_out(*case, reuse=True),
        lambda: larpie(*case),
        *(lambda n=n: context_cite(*case, n_ablations=n) for n in options.ablations),
    ]
    first: FloatArray | None = None
    for run in runs:
        one = run()
        assert one.effects.shape == (len(segments),), one
        assert np.isfinite(one.effects).all(), one
        first = one.effects if first is None else first
        assert not one.name.endswith("reuse") or np.allclose(first, one.effects, atol=0.01), one  # exact either way
        places = [int((one.effects > one.effects[n]).sum()) + 1 for n in columns]
        peak = "-" if one.peak_bytes is None else f"{one.peak_bytes / 1e6:.0f}"
        print(
            f"{one.name:32}{one.tokens:8d}{one.calls:7d}{one.seconds:9.1f}{peak:>9}  {places}, "
            f"{spearmanr(first, one.effects).statistic:.2f} with leave-one-out",
            flush=True,
        )


if __name__ == "__main__":
    main()
