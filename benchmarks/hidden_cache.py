"""What do 64 hidden-cache masks cost against 64 exact ablations, how well do they agree, and what memory do they take?

Contexts of invented facts, answered by the measuring model. Exact ablations and hidden masks take turns, eight at a
time, so that a busy machine slows both alike; the hidden side includes forwarding the prompt. Values are log-odds of
the answer. Memory is what the process takes beyond the loaded weights at its peak, from Linux, for one long prompt.

usage: python benchmarks/hidden_cache.py [--sizes 500 2000] [--contexts 2] [--masks 64] [--memory 8000] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from planted_facts import Fact, invent
from scipy.stats import spearmanr

from attr_core.engines.huggingface import HIDDEN_MEMORY, HuggingFaceEngine
from attr_core.engines.local_models import default_model
from attr_core.prompt import ablations
from attr_core.protocols import Sampling, TokenScores
from attr_core.reading import log_odds
from attr_core.results import FloatArray
from attr_core.types import Generation, Location, Message, Segment, SegmentKind

AT_ONCE = 8


@dataclass(frozen=True)
class Outcome:
    """One context; ``*_ratio`` are hidden over exact, ``pearson`` and ``spearman`` between the two sides' values."""

    size: int
    seed: int
    tokens: int
    tail: int
    n_segments: int
    n_masks: int
    exact_tokens: int
    hidden_tokens: int
    tokens_ratio: float
    wall_ratio: float
    cpu_ratio: float
    exact_seconds: float
    spearman: float
    pearson: float
    answer: str


@dataclass(frozen=True)
class Memory:
    """Megabytes beyond the weights: what is held afterwards, the peak, and what the engine was told to keep to."""

    tokens: int
    n_masks: int
    held: float
    peak: float
    budget: float


def context(engine: HuggingFaceEngine, *, seed: int, n_tokens: int) -> tuple[Generation, list[Segment]]:
    """A question about the first of as many facts as fill the prompt, and a segment for each of their chunks."""
    facts: list[Fact] = []
    prompt, segments = write(facts)
    while len(engine.render(prompt.prompt).token_ids) < n_tokens:
        facts.append(invent(10_000 * seed + len(facts)))
        prompt, segments = write(facts)
    return prompt, segments


def write(facts: list[Fact]) -> tuple[Generation, list[Segment]]:
    """The prompt over these facts, without an answer."""
    content, segments = "Context:\n", []
    for number, fact in enumerate(facts):
        for document in fact.documents:
            place = Location(1, len(content), len(content) + len(document.text))
            segments.append(Segment(f"{number}.{document.id}", SegmentKind.RETRIEVED, document.text, (place,)))
            content += document.text + "\n"
    question = facts[0].question if facts else ""
    messages = (Message("system", "Answer in one short sentence."), Message("user", f"{content}\nQuestion: {question}"))
    return Generation(messages, None), segments


def compare(engine: HuggingFaceEngine, *, seed: int, n_tokens: int, n_masks: int) -> Outcome:
    """Both sides on the same masks of one context."""
    generation, segments = context(engine, seed=seed, n_tokens=n_tokens)
    answer = engine.generate([generation.prompt], Sampling(max_tokens=40))[0].text
    size = engine.tail_size(generation.prompt, segments, answer)
    masks = np.random.default_rng(seed).random((n_masks, len(segments))) < 0.5
    engine.release()
    exact, hidden = Side(), Side()
    for first in range(0, n_masks, AT_ONCE):
        some = masks[first : first + AT_ONCE]
        exact.run(lambda some=some: engine.score(ablations(generation, segments, some), answer))
        hidden.run(lambda some=some: engine.score_hidden(generation.prompt, segments, some, answer))
    return Outcome(
        size=n_tokens,
        seed=seed,
        tokens=size.prefix + size.tail,
        tail=size.tail,
        n_segments=len(segments),
        n_masks=n_masks,
        exact_tokens=exact.tokens,
        hidden_tokens=hidden.tokens,
        tokens_ratio=round(hidden.tokens / exact.tokens, 3),
        wall_ratio=round(hidden.wall / exact.wall, 3),
        cpu_ratio=round(hidden.cpu / exact.cpu, 3),
        exact_seconds=round(exact.wall, 1),
        spearman=round(float(spearmanr(exact.values, hidden.values).statistic), 3),
        pearson=round(float(np.corrcoef(exact.values, hidden.values)[0, 1]), 3),
        answer=answer,
    )


class Side:
    """What one way of measuring gave and took."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.tokens = 0
        self.wall = self.cpu = 0.0

    def run(self, measure: Callable[[], list[TokenScores]]) -> None:
        """Measure and add it up."""
        wall, cpu = time.perf_counter(), time.process_time()
        scores = measure()
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        self.tokens += sum(score.tokens_in for score in scores)
        self.values += values_of(scores).tolist()


def values_of(scores: list[TokenScores]) -> FloatArray:
    """Log-odds of the whole answer."""
    return log_odds(np.array([score.logprobs.sum() for score in scores]))


def peak_memory(engine: HuggingFaceEngine, *, n_tokens: int, n_masks: int, budget: int) -> Memory:
    """One prompt of this length; the answer is given, not made, as making it takes memory of its own."""
    generation, segments = context(engine, seed=99, n_tokens=n_tokens - 60)
    answer = "It opened in 1902, and the keeper is a retired botanist."
    size = engine.tail_size(generation.prompt, segments, answer)
    engine.release()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident("VmRSS")
    masks = np.random.default_rng(0).random((n_masks, len(segments))) < 0.5
    engine.score_hidden(generation.prompt, segments, masks, answer)
    peak = resident("VmHWM") - before
    held = resident("VmRSS") - before
    return Memory(size.prefix + size.tail, n_masks, round(held / 1e6), round(peak / 1e6), round(budget / 1e6))


def resident(name: str) -> int:
    """Bytes of this process's memory, now or at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def main() -> None:
    """Print one line a context, the medians per size, and the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[500, 2000])
    parser.add_argument("--contexts", type=int, default=2)
    parser.add_argument("--masks", type=int, default=64)
    parser.add_argument("--memory", type=int, default=8000, help="tokens of the prompt; 0 leaves it out")
    parser.add_argument("--budget", type=int, default=HIDDEN_MEMORY, help="bytes that hidden masks may take")
    parser.add_argument("--model", default=(default_model() or "").removeprefix("hf:"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    engine = HuggingFaceEngine(options.model, hidden_memory=options.budget)
    engine.generate([Generation((Message("user", "Hi"),), None).prompt], Sampling(max_tokens=1))  # loads the weights
    memory = None
    if options.memory and sys.platform == "linux":
        # Before all else, so that nothing is left over that it could use unseen.
        memory = peak_memory(engine, n_tokens=options.memory, n_masks=options.masks, budget=options.budget)
        print(memory, flush=True)
    found = []
    for size in options.sizes:
        for seed in range(options.contexts):
            found.append(compare(engine, seed=seed, n_tokens=size, n_masks=options.masks))
            if not options.json:
                print(found[-1], flush=True)
    summary = {
        size: {
            name: float(np.median([getattr(one, name) for one in some]))
            for name in ("tokens_ratio", "wall_ratio", "cpu_ratio", "spearman", "pearson")
        }
        for size in options.sizes
        if (some := [one for one in found if one.size == size])
    }
    result = {"summary": summary, "memory": memory and asdict(memory), "outcomes": [asdict(one) for one in found]}
    print(json.dumps(result) if options.json else summary)


if __name__ == "__main__":
    main()
