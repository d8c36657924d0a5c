"""Is the chunk that holds an invented fact found to drive it, and are the others left alone?

Each context holds one supporting chunk and three distractors, one of which names another year for another event. Only
facts that the model states with the context and not without it are counted. The target is the year, by name.

usage: python benchmarks/planted_facts.py [--facts 20] [--engine SPEC] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from attr_core.api import attribute, explain
from attr_core.attribution import Attribution
from attr_core.engines import load_engine
from attr_core.protocols import Engine
from attr_core.results import Cost
from attr_core.store import Store
from attr_core.types import Document, TargetKind

PLACES = [
    "Aldemoor",
    "Bellhaven",
    "Corvath",
    "Dunmere",
    "Eastlin",
    "Farrow",
    "Gildern",
    "Harrowick",
    "Islemoor",
    "Jaspen",
    "Kestrel",
    "Lorwyn",
    "Marrowfen",
    "Northolt",
    "Osterwick",
    "Pellam",
    "Quarrow",
    "Ristone",
    "Saltmere",
    "Thornby",
]
THINGS = ("Lantern Festival", "Torch Parade", "Clock Museum", "River Market", "Glass Library", "Stone Theatre")
TRADES = ("sculptor", "engineer", "botanist", "printer")


@dataclass(frozen=True)
class Fact:
    """A question, its chunks and the year that only the supporting one gives."""

    seed: int
    question: str
    year: str
    documents: tuple[Document, ...]


@dataclass(frozen=True)
class Outcome:
    """What the attribution of one fact's year says."""

    seed: int
    answer: str
    first: str
    effects: dict[str, float]
    verdicts: dict[str, str]
    is_pivot: bool
    calls: int
    seconds: float


def invent(seed: int) -> Fact:
    """An invented fact with three distractors, in random order."""
    rng = random.Random(seed)  # noqa: S311
    (place, other), (thing, event) = rng.sample(PLACES, 2), rng.sample(THINGS, 2)
    year, rival = rng.sample(range(1850, 2005), 2)
    documents = [
        Document("support", f"The {place} {thing} opened in {year}."),
        Document("rival", f"The {other} {event} opened in {rival}."),
        Document("fee", f"Visitors to the {place} {thing} pay {rng.randint(2, 40)} silver marks at the gate."),
        Document("keeper", f"The keeper of the {place} {thing} is a retired {rng.choice(TRADES)}."),
    ]
    rng.shuffle(documents)
    return Fact(seed, f"In which year did the {place} {thing} open?", str(year), tuple(documents))


def outcomes(engine: Engine, n_facts: int, *, most_seeds: int = 200) -> Iterator[Outcome]:
    """Attribute the first ``n_facts`` seeded facts that the model needs the context for."""
    found = 0
    with TemporaryDirectory() as folder:
        db = Path(folder) / "facts.db"
        for seed in range(most_seeds):
            if found == n_facts:
                return
            fact = invent(seed)
            answered = explain(fact.question, fact.documents, engine=engine, db=db)
            if fact.year in answered.response and fact.year not in (answered.closed_book_answer or ""):
                found += 1
                with Store(db) as store:
                    trace = store.get(answered.trace_id)
                named = attribute(trace, engine=engine, db=db, spans=[fact.year])
                yield _outcome(fact, named, answered.cost)


def _outcome(fact: Fact, attribution: Attribution, cost: Cost) -> Outcome:
    [row] = attribution.rows(TargetKind.SPAN)
    names = [segment.id for segment in attribution.segments]
    return Outcome(
        seed=fact.seed,
        answer=attribution.response,
        first=names[attribution.ranking(row)[0]],
        effects={name: round(float(effect), 2) for name, effect in zip(names, attribution.effects[row], strict=True)},
        verdicts={name: str(verdict) for name, verdict in zip(names, attribution.verdicts[row], strict=True)},
        is_pivot=any(fact.year in attribution.targets[r].text for r in attribution.rows(TargetKind.PIVOT)),
        calls=cost.calls,
        seconds=round(cost.seconds, 1),
    )


def summary(found: list[Outcome]) -> dict[str, float]:
    """Shares over the facts and counts over their distractors."""
    right = [one.first == "support" and one.verdicts["support"] == "drives" for one in found]
    distractors = [one.verdicts[name] for one in found for name in ("rival", "fee", "keeper")]
    return {
        "facts": len(found),
        "support first and drives": sum(right),
        "year among the pivots": sum(one.is_pivot for one in found),
        "distractors": len(distractors),
        "distractors that read drives": distractors.count("drives"),
    }


def main() -> None:
    """Print one line a fact and the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=int, default=20)
    parser.add_argument("--engine", default=None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: list[Outcome] = []
    for one in outcomes(load_engine(options.engine), options.facts):
        found.append(one)
        if not options.json:
            print(f"{one.seed:3d} first {one.first:8s} {one.verdicts} {one.effects} {one.seconds} s | {one.answer!r}")
            sys.stdout.flush()
    result = summary(found)
    print(json.dumps({"summary": result, "outcomes": [asdict(one) for one in found]}) if options.json else result)


if __name__ == "__main__":
    main()
