"""What is true of planted contexts: the values of hundreds of random subsets, by exact deletion and by hiding.

Estimators are judged against these. Contexts are short (at most 500 tokens), of 10 to 50 segments, every fourth with
boilerplate in each of its documents, and answered by the measuring model; only those are kept in which the planted
words stand in the answer, and no longer do when their source is deleted. One file per context, so a run can be stopped
and resumed, and one with more masks adds to what is there.

usage: python benchmarks/truth.py [--contexts 60] [--masks 320] [--first 100] [--engine SPEC] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import inspect
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from contexts import KINDS, Context, Kind, make
from peers import inside

from attr_core.engines import load_engine
from attr_core.engines._tokens import n_alike
from attr_core.estimators import ContextCite
from attr_core.prompt import ablate, ablations, candidates
from attr_core.protocols import Sampling, TokenScores
from attr_core.reading import log_odds, tokens_of
from attr_core.results import FloatArray, MaskArray
from attr_core.segmenter import segment_trace
from attr_core.types import Generation, Prompt, Segment, Target, TargetKind

SHAPES = ((10, 150), (20, 220), (36, 280), (14, 180), (26, 240), (46, 340))
"""Segments, and about how many tokens."""

AT_ONCE = 320
"""Masks that are lost when a run is stopped."""

HIDDEN = 64
"""Masks that are measured by hiding too."""

ASKED: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind != "known")
RESULTS = Path(__file__).parent / "results" / "truth"


@dataclass(frozen=True, eq=False)
class Truth:
    """Of one context; ``exact`` ``(n_masks, n_targets)`` are log-odds under ``masks`` of the targets.

    ``hidden`` are those of the first ``HIDDEN`` masks or more.

    The first target is the response, the others are the planted phrases. Masks are drawn as ContextCite draws them.
    """

    number: int
    context: Context
    answer: str
    generation: Generation
    segments: tuple[Segment, ...]
    targets: tuple[Target, ...]
    n_tokens: int
    exact: FloatArray = field(repr=False)
    hidden: FloatArray = field(repr=False)

    @property
    def masks(self) -> MaskArray:
        """``(n_masks, n_segments)``."""
        return ContextCite(len(self.exact)).masks(len(self.segments))

    @property
    def causes(self) -> list[list[set[int]]]:
        """Columns that were planted: for each phrase the alternatives."""
        column = {document: n for n, segment in enumerate(self.segments) for document in segment.documents}
        return [[{column[one] for one in cause} for cause in alternatives] for alternatives in self.context.causes]


def numbered(number: int) -> Context:
    """The context of that number."""
    n_segments, n_tokens = SHAPES[number % len(SHAPES)]
    return make(
        ASKED[number % len(ASKED)],
        seed=number,
        n_segments=n_segments,
        n_tokens=n_tokens,
        boilerplate=number % 4 == 3,
        position=(0.0, 0.5, 1.0)[number % 3] if ASKED[number % len(ASKED)] == "position" else None,
    )


def targets_of(context: Context, answer: str) -> tuple[Target, ...]:
    """The response and the planted phrases in it."""
    spans = [(answer.index(phrase), phrase) for phrase in context.phrases]
    phrases = [Target(TargetKind.SPAN, start, start + len(phrase), phrase, 0) for start, phrase in spans]
    return (Target(TargetKind.RESPONSE, 0, len(answer), answer), *phrases)


def truths(engine: Any, folder: Path, *, n_contexts: int, n_masks: int, first: int = 0) -> Iterator[Truth]:
    """Contexts from number ``first`` on that pass the gate, each with that many masks, measured or from ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    found, number = 0, first
    while found < n_contexts:
        truth = _truth(engine, number, folder / f"{number:03d}.npz", n_masks)
        number += 1
        if truth is not None:
            found += 1
            yield truth


def _truth(engine: Any, number: int, path: Path, n_masks: int) -> Truth | None:
    """``None`` where the context does not pass the gate."""
    context = numbered(number)
    if path.exists():
        with np.load(path) as kept:
            answer, passes = str(kept["answer"]), bool(kept["passes"])
            exact, hidden = kept["exact"].astype(float), kept["hidden"].astype(float)
    else:
        answer, exact, hidden = _answer(engine, context), np.zeros((0, 0)), np.zeros((0, 0))
        passes = _passes(engine, context, answer)
        _keep(path, answer, passes, exact, hidden)
    if not passes:
        return None
    generation = segment_trace(context.trace(answer))
    segments = candidates(generation.segments)
    while len(exact) < n_masks:
        rows = ContextCite(len(exact) + AT_ONCE).masks(len(segments))[len(exact) : n_masks]
        targets = targets_of(context, answer)
        if len(hidden) < HIDDEN:
            screened = engine.score_hidden(generation.prompt, segments, rows, answer)
            hidden = np.concatenate([hidden.reshape(-1, len(targets)), _read(screened, targets)])
        scored = chained(engine, ablations(generation, segments, rows), answer)
        exact = np.concatenate([exact.reshape(-1, len(targets)), _read(scored, targets)])
        _keep(path, answer, passes, exact, hidden)
    n_tokens = len(engine.render(generation.prompt).token_ids)
    targets = targets_of(context, answer)
    return Truth(number, context, answer, generation, tuple(segments), targets, n_tokens, exact, hidden)


def chained(engine: Any, prompts: Sequence[Prompt], answer: str) -> list[TokenScores]:
    """As ``engine.score``: in alphabetical order each prompt forwards only what the one before it did not begin with.

    Of hundreds of random subsets neighbours share the first eight segments or so.
    """
    import torch
    from transformers import DynamicCache

    model, _ = inside(engine)
    keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    ids, offsets = engine._model.tokens.encode_continuation(answer)
    rows = [list(engine.render(prompt).token_ids) for prompt in prompts]
    found: dict[int, TokenScores] = {}
    cache, held = DynamicCache(config=model.config), []
    for n in sorted(range(len(rows)), key=rows.__getitem__):
        shared = min(n_alike(held, rows[n]), len(rows[n]) - 1)
        if shared < len(held):
            cache.crop(shared - len(held))  # how many to forget, below 0
        sent = torch.tensor([rows[n][shared:] + list(ids)], device=model.device)
        with torch.inference_mode():
            out = model(sent, use_cache=True, **{keyword: cache}, logits_to_keep=len(ids) + 1)
            logprobs = torch.log_softmax(out.logits[0, :-1].float(), dim=-1)
        wanted = torch.tensor(ids, device=model.device)[:, None]
        found[n] = TokenScores(logprobs.gather(1, wanted)[:, 0].double().cpu().numpy(), offsets)
        cache.crop(-len(ids))
        held = rows[n]
    return [found[n] for n in range(len(rows))]


def _answer(engine: Any, context: Context) -> str:
    prompt = context.trace("?").target_generation.prompt
    return str(engine.generate([prompt], Sampling(max_tokens=40))[0].text)


def _keep(path: Path, answer: str, passes: bool, exact: FloatArray, hidden: FloatArray) -> None:
    new = path.with_suffix(".new.npz")
    single = {"exact": exact.astype(np.float32), "hidden": hidden.astype(np.float32)}
    np.savez_compressed(new, answer=answer, passes=passes, **single)
    new.replace(path)


def _passes(engine: Any, context: Context, answer: str) -> bool:
    """Whether the phrases stand in the answer, and do not when every alternative of their source is deleted."""
    if not all(phrase in answer for phrase in context.phrases):
        return False
    generation = segment_trace(context.trace(answer))
    segments = candidates(generation.segments)
    for phrase, alternatives in zip(context.phrases, context.causes, strict=True):
        gone = {min(cause) for cause in alternatives}
        mask = np.array([not gone & set(segment.documents) for segment in segments])
        again = engine.generate([ablate(generation, segments, mask)], Sampling(max_tokens=40))[0].text
        if phrase in again:
            return False
    return True


def _read(scores: Sequence[TokenScores], targets: Sequence[Target]) -> FloatArray:
    inside = [tokens_of(target, scores[0].offsets) for target in targets]
    return log_odds(np.array([[float(score.logprobs[i].sum()) for i in inside] for score in scores]))


def main() -> None:
    """Measure, and say of each context how long it took and how far hiding and deleting agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=60)
    parser.add_argument("--masks", type=int, default=320)
    parser.add_argument(
        "--first", type=int, default=100, help="number of the first context; below 100 constants were set"
    )
    parser.add_argument("--engine", default=None)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    started, engine = time.perf_counter(), load_engine(options.engine)
    for truth in truths(engine, options.out, n_contexts=options.contexts, n_masks=options.masks, first=options.first):
        both = len(truth.hidden)
        agree = [np.corrcoef(truth.exact[:both, t], truth.hidden[:, t])[0, 1] for t in range(len(truth.targets))]
        print(
            f"{truth.number:3d} {truth.context.kind:13s} n={len(truth.segments):2d} {truth.n_tokens} tokens, "
            f"hidden and exact correlate {', '.join(f'{r:.2f}' for r in agree)}, {time.perf_counter() - started:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
