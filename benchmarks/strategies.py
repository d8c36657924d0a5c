"""Which strategy names the planted source: the judge's verdicts alone, what they support, a contrast, or likelihood?

Contexts and answers are those of ``benchmarks/truth.py`` whose planted words are known to depend on their source. Each
strategy names segments:

* support: those that the judge says entail a claim, from one table.
* faithfulness: those that CounterfactualFaithfulness says support a claim, alone or together, and redundancy groups.
* contrast: those that oppose another answer, the recorded one with another year or town in it (ReferenceContrast).
* likelihood: those that drive the planted words, and redundancy groups.

Precision is the share of the named that were planted, over contexts where any was named; recall the share of the
planted that were named. Without ``--judge`` the judge goes by exact words, so that it is right about the planted facts
by construction, and what is measured is the strategy. One record per context can be kept with ``--out``.

usage: python benchmarks/strategies.py [--contexts 20] [--first 100] [--engine SPEC] [--judge SPEC] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contexts import PLACES, Context
from truth import RESULTS, Truth, truths

from attr_core.algorithms import CounterfactualFaithfulness, ReferenceAlgorithm
from attr_core.api import attribute
from attr_core.attribution import Attribution
from attr_core.claims import split_claims
from attr_core.engines import load_engine
from attr_core.judge import load_judge
from attr_core.results import Cost, Support, SupportVerdict
from attr_core.types import Claim, Segment, TargetKind

_NAME = re.compile(r"(?<!^)(?<![.?!] )\b[A-Z]\w+")
_YEAR = re.compile(r"\b1[89]\d\d\b|\b20\d\d\b")


@dataclass(frozen=True)
class Named:
    """What one strategy named in one context, and what it took."""

    context: int
    kind: str
    strategy: str
    planted: list[int]
    named: list[int]
    judge_calls: int
    model_calls: int
    seconds: float


class ExactWords:
    """A judge that goes by the words that were planted: all of them, or none."""

    def __init__(self, context: Context) -> None:
        self._phrases = context.phrases
        self._names = tuple(_NAME.findall(context.question))
        self._is_two_hop = context.kind == "two-hop"
        self.calls = 0

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        self.calls += 1
        rows = [[self._verdict(claim.text, segment.text).value for segment in segments] for claim in claims]
        shape = (len(claims), len(segments))
        return Support(np.array(rows).reshape(shape), np.full(shape, "exact words"), cost=Cost(calls=1))

    def _verdict(self, claim: str, text: str) -> SupportVerdict:
        said = [phrase for phrase in self._phrases if phrase in claim]
        sentences = re.split(r"(?<=[.!?])\s+", text)
        if not said:
            return SupportVerdict.NEUTRAL
        if self._is_two_hop:
            founded = any("was founded by" in one and self._is_named(one) for one in sentences)
            born = any(f"was born in the town of {said[0]}" in one for one in sentences)
            return SupportVerdict.ENTAILS if founded and born else SupportVerdict.NEUTRAL
        about = [one for one in sentences if self._is_named(one)]
        if any(all(phrase in one for phrase in said) for one in about):
            return SupportVerdict.ENTAILS
        rivals = any("opened in" in one and _YEAR.search(one) for one in about)
        return SupportVerdict.CONTRADICTS if rivals else SupportVerdict.NEUTRAL

    def _is_named(self, sentence: str) -> bool:
        return all(name in sentence for name in self._names)


def compare(truth: Truth, engine: Any, judge_spec: str | None) -> list[Named]:
    """All strategies on one context."""
    planted = sorted({one for alternatives in truth.causes for cause in alternatives for one in cause})

    def judge() -> Any:
        return ExactWords(truth.context) if judge_spec is None else load_judge(judge_spec)

    ways: dict[str, Callable[[], tuple[set[int], int, int]]] = {
        "support": lambda: _support(truth, judge()),
        "faithfulness": lambda: _faithfulness(truth, judge()),
        "contrast": lambda: _contrast(truth, engine),
        "likelihood": lambda: _likelihood(truth, engine),
    }
    found = []
    for name, way in ways.items():
        started = time.perf_counter()
        named, judge_calls, model_calls = way()
        seconds = round(time.perf_counter() - started, 2)
        found.append(
            Named(
                truth.number,
                truth.context.kind,
                name,
                planted,
                sorted(named),
                judge_calls=judge_calls,
                model_calls=model_calls,
                seconds=seconds,
            )
        )
    return found


def _support(truth: Truth, judge: Any) -> tuple[set[int], int, int]:
    support = judge.judge(split_claims(truth.answer), truth.segments, question=truth.context.question)
    entails = (support.verdicts == SupportVerdict.ENTAILS).any(axis=0)
    return set(np.flatnonzero(entails).tolist()), support.cost.calls, 0


def _faithfulness(truth: Truth, judge: Any) -> tuple[set[int], int, int]:
    asked = CounterfactualFaithfulness(judge, repeats=1)
    found = attribute(truth.context.trace(truth.answer), algorithm=asked, db=":memory:")
    return _of_rows(found, found.rows(TargetKind.CLAIM), "supports"), found.cost.calls, 0


def _contrast(truth: Truth, engine: Any) -> tuple[set[int], int, int]:
    asked = ReferenceAlgorithm(instead=foil(truth.context, truth.answer))
    found = _measured(truth, engine, algorithm=asked)
    return _of_rows(found, found.rows(TargetKind.REFERENCE), "opposes"), 0, found.cost.calls


def _likelihood(truth: Truth, engine: Any) -> tuple[set[int], int, int]:
    found = _measured(truth, engine, spans=truth.context.phrases, totals=False)
    return _of_rows(found, found.rows(TargetKind.SPAN), "drives"), 0, found.cost.calls


def _measured(truth: Truth, engine: Any, **options: Any) -> Attribution:
    if hasattr(engine, "release"):
        engine.release()
    recorded = truth.context.trace(truth.answer)
    return attribute(recorded, engine=engine, regenerations=False, db=":memory:", **options)


def _of_rows(found: Attribution, rows: Sequence[int], verdict: str) -> set[int]:
    """Columns with that verdict on one of the rows, and members of groups there."""
    named = {column for row in rows for column in np.flatnonzero(found.verdicts[row] == verdict).tolist()}
    return named | {member for group in found.groups if group.target in rows for member in group.members}


def foil(context: Context, answer: str) -> str:
    """The answer with another year or place in the stead of each planted one."""
    for phrase in context.phrases:
        if _YEAR.fullmatch(phrase):
            other = str(int(phrase) + (13 if int(phrase) < 1990 else -13))
        else:
            other = next(place for place in PLACES if place not in phrase and place not in answer)
        answer = answer.replace(phrase, other)
    return answer


def table(records: Sequence[Named]) -> str:
    """A line a strategy."""
    heads = ("precision", "recall", "none", "judge", "model", "seconds")
    lines = [f"{'strategy':13s} " + " ".join(f"{head:>9s}" for head in heads)]
    for name in dict.fromkeys(one.strategy for one in records):
        mine = [one for one in records if one.strategy == name]
        right = [len(set(one.named) & set(one.planted)) for one in mine]
        precise = [hit / len(one.named) for hit, one in zip(right, mine, strict=True) if one.named]
        recall = float(np.mean([hit / len(one.planted) for hit, one in zip(right, mine, strict=True)]))
        precision = f"{np.mean(precise):.2f}" if precise else "n/a"
        spent = [float(np.mean([getattr(one, what) for one in mine])) for what in ("judge_calls", "model_calls")]
        seconds = float(np.mean([one.seconds for one in mine]))
        figures = (f"{recall:.2f}", f"{len(mine) - len(precise)}", *(f"{one:.1f}" for one in (*spent, seconds)))
        lines.append(f"{name:13s} " + " ".join(f"{figure:>9s}" for figure in (precision, *figures)))
    return "\n".join(lines)


def main() -> None:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=20)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--engine", default=None)
    parser.add_argument("--judge", default=None, help="by default exact words, which needs no model")
    parser.add_argument("--truth", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=None, help="a file of JSON lines")
    options = parser.parse_args()
    engine = load_engine(options.engine)
    records: list[Named] = []
    for truth in truths(engine, options.truth, n_contexts=options.contexts, n_masks=0, first=options.first):
        new = compare(truth, engine, options.judge)
        records += new
        for one in new:
            told = f"planted {one.planted} named {one.named}"
            print(f"{one.context:3d} {one.kind:13s} {one.strategy:13s} {told}", flush=True)
        if options.out is not None:
            with options.out.open("a") as file:
                file.writelines(json.dumps(asdict(one)) + "\n" for one in new)
    judge = options.judge or "exact words"
    print(f"\n{len(records) // 4} contexts; engine {engine.spec}; judge {judge}; calls are means a context\n")
    print(table(records))


if __name__ == "__main__":
    main()
