"""Contexts with planted causes: invented facts among others of the same kind, so that nothing can be known beforehand.

A context is made of documents of a few segments each. What was planted is known: the segments that a right answer needs
(each inner set is one cause, all of whose segments it needs; any one set will do), and the words that carry it.

usage: python benchmarks/contexts.py [KIND] [--segments 20] [--tokens 500] [--seed 0]    prints one
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from attr_core.types import Document, Message, Trace

Kind = Literal["single", "duplicate", "paraphrase", "two-hop", "contradiction", "position", "placebo", "known"]
KINDS: tuple[Kind, ...] = get_args(Kind)

TOKENS_A_SENTENCE = 19
"""Of SmolLM2's tokenizer, on these sentences; only for choosing how many to write."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST = _words("Mira Tomas Ilse Oren Petra Calder Juno Bram Selka Davin Ansel Ruta Corin Maeve Tobin Vera")
LAST = _words("Thorne Hallow Vex Marsh Quill Danner Rook Estevar Pell Winmark Aldous Brandt Sorrel Tarn")
PLACES = _words(
    "Aldemoor Bellhaven Corvath Dunmere Eastlin Farrow Gildern Harrowick Islemoor Jaspen Kestrel Lorwyn Marrowfen "
    "Northolt Osterwick Pellam Quarrow Ristone Saltmere Thornby Ulverton Vandry Westmarch Yarrowdale Zeldane"
)
THINGS = (
    *("Lantern Festival", "Torch Parade", "Clock Museum", "River Market", "Glass Library", "Harbor Tower"),
    *("Stone Theatre", "Copper Mill", "Rope Bridge", "Salt Works", "Bell Foundry", "Tide Gauge"),
)
TRADES = ("sculptor", "engineer", "botanist", "printer", "mason", "chemist", "surveyor", "weaver")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
KNOWN = (
    ("What is the capital of France?", "The capital of France is Paris.", "Paris"),
    ("What is the capital of Japan?", "The capital of Japan is Tokyo.", "Tokyo"),
    ("What is the capital of Italy?", "The capital of Italy is Rome.", "Rome"),
    ("How many days are there in a week?", "There are seven days in a week.", "seven"),
    ("What is the chemical symbol of water?", "The chemical symbol of water is H2O.", "H2O"),
    ("Who wrote Romeo and Juliet?", "Romeo and Juliet was written by William Shakespeare.", "William Shakespeare"),
    ("Which planet is closest to the Sun?", "Mercury is the planet closest to the Sun.", "Mercury"),
    ("What is the largest ocean on Earth?", "The largest ocean on Earth is the Pacific Ocean.", "Pacific"),
    ("In which country is the city of Berlin?", "Berlin is a city in Germany.", "Germany"),
    ("What is the capital of Spain?", "The capital of Spain is Madrid.", "Madrid"),
)


@dataclass(frozen=True)
class Context:
    """A question over documents, what was planted, and an answer that the planted facts give.

    ``segments`` are documents for attrkit, one per segment, ``metadata["group_id"]`` the document each belongs to.
    ``phrases`` are the words of ``answer`` that carry the planted facts, ``causes`` the alternatives for each of them.
    """

    kind: Kind
    seed: int
    question: str
    segments: tuple[Document, ...]
    answer: str
    phrases: tuple[str, ...]
    causes: tuple[tuple[frozenset[str], ...], ...]
    rivals: frozenset[str] = frozenset()
    placebos: frozenset[str] = frozenset()

    @property
    def messages(self) -> list[Message]:
        """The prompt: a short instruction, the segments line by line, and the question."""
        content = "Context:\n" + "\n".join(one.text for one in self.segments) + f"\n\nQuestion: {self.question}"
        return [Message("system", "Answer in one short sentence, using only the context."), Message("user", content)]

    def trace(self, answer: str | None = None) -> Trace:
        """A recorded run with that answer; by default the planted one."""
        return Trace.from_messages(self.messages, self.answer if answer is None else answer, documents=self.segments)


@dataclass(slots=True)
class _Topic:
    """What the documents of one thing say."""

    place: str
    thing: str
    who: str
    year: int
    town: str
    fee: int
    sentences: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.place} {self.thing}"


def make(
    kind: Kind = "single",
    *,
    seed: int = 0,
    n_segments: int = 20,
    n_tokens: int = 500,
    n_claims: int = 1,
    boilerplate: bool = False,
    position: float | None = None,
) -> Context:
    """One context, the same for the same arguments.

    Parameters
    ----------
    kind : str
        What is planted; see ``KINDS``.
    seed, n_segments : int
    n_tokens : int
        About how long the context is.
    n_claims : {1, 3}
        Sentences of the planted answer.
    boilerplate : bool
        Whether every document begins with a segment that is the same but for a weekday.
    position : float, optional
        Where the first planted segment stands, from 0 to 1; by default anywhere.
    """
    rng = random.Random(f"{kind} {seed} {n_segments} {n_tokens} {n_claims} {boilerplate}")  # noqa: S311
    per_segment = max(1, round(n_tokens / TOKENS_A_SENTENCE / n_segments))
    per_document = 4 if n_segments >= 12 else 2
    n_documents = -(-n_segments // per_document)
    names = rng.sample([(place, thing) for place in PLACES for thing in THINGS], n_documents)
    years = rng.sample(range(1820, 2010), n_documents)
    topics = [
        _Topic(place, thing, _person(rng), year, rng.choice(PLACES), rng.randint(2, 90))
        for (place, thing), year in zip(names, years, strict=True)
    ]
    segments: list[Document] = []
    for number, topic in enumerate(topics):
        lines = _facts(topic, rng) if n_tokens >= TOKENS_A_SENTENCE * n_segments else _short_facts(topic, rng)
        n_here = min(per_document, n_segments - len(segments))
        for part in range(n_here):
            if boilerplate and part == 0 and n_here > 1:
                text = f"Archive notice: checked by the county office on a {rng.choice(DAYS)}."
            else:
                take = [lines.pop(0) if lines else _filler(topic, rng) for _ in range(per_segment)]
                text = " ".join(take)
            segments.append(Document(f"{number}.{part}", text, metadata={"group_id": f"doc-{number}"}))
    return _planted(kind, seed, topics, segments, rng, n_claims=n_claims, position=position)


def _person(rng: random.Random) -> str:
    return f"{rng.choice(FIRST)} {rng.choice(LAST)}"


def _facts(topic: _Topic, rng: random.Random) -> list[str]:
    found = [
        f"{topic.who} worked as a {rng.choice(TRADES)} before moving to {topic.place}.",
        f"Visitors to the {topic.name} pay a fee of {topic.fee} silver marks at the gate.",
        f"The {topic.name} keeps a collection of {rng.randint(20, 900)} drawings.",
        f"The roof of the {topic.name} was repaired after a storm in {topic.year + rng.randint(3, 40)}.",
    ]
    rng.shuffle(found)
    return found


def _short_facts(topic: _Topic, rng: random.Random) -> list[str]:
    found = [
        f"{topic.name}: {topic.fee} marks.",
        f"{topic.thing}: {rng.randint(20, 900)} drawings.",
        f"{_person(rng)}, {rng.choice(TRADES)}.",
        f"{topic.place} floods often.",
    ]
    rng.shuffle(found)
    return found


def _filler(topic: _Topic, rng: random.Random) -> str:
    return rng.choice(
        (
            f"A committee of {rng.randint(3, 15)} members met every {rng.choice(DAYS)} to review the plans.",
            f"{_person(rng)}, a {rng.choice(TRADES)}, gave {rng.randint(2, 90)} lectures there.",
            f"In spring the path to the {topic.thing} is closed for {rng.randint(2, 20)} days.",
            f"The eastern hall holds {rng.randint(40, 700)} seats and a small workshop.",
            f"A {rng.choice(TRADES)} named {_person(rng)} looked after the garden of {topic.place}.",
            f"Guests from {rng.choice(PLACES)} arrive by boat in the first week of the season.",
        )
    )


def _planted(
    kind: Kind,
    seed: int,
    topics: Sequence[_Topic],
    segments: list[Document],
    rng: random.Random,
    *,
    n_claims: int,
    position: float | None,
) -> Context:
    """Put the facts into segments that can take them: any but boilerplate."""
    free = [n for n, one in enumerate(segments) if not one.text.startswith("Archive notice")]
    places = rng.sample(free, min(len(free), 4))
    if position is not None:
        places[0] = min((n for n in free if n not in places[1:]), key=lambda n: abs(n - position * (len(segments) - 1)))
    topic = rng.choice(topics)
    opened = f"The {topic.name} opened in {topic.year}."

    def plant(which: int, sentence: str) -> str:
        old = segments[places[which]]
        others = old.text.split(". ")[1:]
        text = ". ".join([sentence.rstrip("."), *others]) if others else sentence
        segments[places[which]] = Document(old.id, text, metadata=old.metadata)
        return old.id

    def context(
        question: str, answer: str, phrases: Sequence[str], causes: Sequence[Sequence[set[str]]], **more: frozenset[str]
    ) -> Context:
        frozen = tuple(tuple(frozenset(one) for one in alternatives) for alternatives in causes)
        return Context(kind, seed, question, tuple(segments), answer, tuple(phrases), frozen, **more)

    question, year = f"In which year did the {topic.name} open?", str(topic.year)
    if kind == "known":
        asked, answer, phrase = KNOWN[seed % len(KNOWN)]
        return context(asked, answer, [phrase], [[]])
    if kind == "two-hop":
        first = plant(0, f"The {topic.name} was founded by {topic.who}.")
        second = plant(1, f"{topic.who} was born in the town of {topic.town}.")
        asked = f"In which town was the founder of the {topic.name} born?"
        answer = f"The founder of the {topic.name} was born in the town of {topic.town}."
        return context(asked, answer, [topic.town], [[{first, second}]])
    support = plant(0, opened)
    answer = f"The {topic.name} opened in {year}."
    causes: list[list[set[str]]] = [[{support}]]
    if kind == "duplicate":
        causes = [[{support}, {plant(1, f"As every guide says, the {topic.name} opened in {year}.")}]]
    elif kind == "paraphrase":
        causes = [
            [
                {support},
                {plant(1, f"It was in {year} that the {topic.thing} of {topic.place} first received visitors.")},
            ]
        ]
    elif kind == "contradiction":
        wrong = topic.year + rng.choice((-1, 1)) * rng.randint(5, 60)
        rival = plant(1, f"The {topic.name} opened in {wrong}.")
        return context(question, answer, [year], causes, rivals=frozenset({rival}))
    elif kind == "placebo":
        unrelated = frozenset(
            {
                plant(n, sentence)
                for n, sentence in (
                    (1, "Most clouds consist of tiny drops of water."),
                    (2, "A chess board has sixty-four squares."),
                )
            }
        )
        return context(question, answer, [year], causes, placebos=unrelated)
    if n_claims == 3:
        by, fee = (
            plant(2, f"The {topic.name} was founded by {topic.who}."),
            plant(3, f"A ticket to the {topic.name} costs {topic.fee} silver marks."),
        )
        question = f"When did the {topic.name} open, who founded it, and what does a ticket cost?"
        answer = (
            f"The {topic.name} opened in {year}. It was founded by {topic.who}. "
            f"A ticket costs {topic.fee} silver marks."
        )
        return context(question, answer, [year, topic.who, f"{topic.fee} silver marks"], [*causes, [{by}], [{fee}]])
    return context(question, answer, [year], causes)


def main() -> None:
    """Print one context."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=KINDS, default="single")
    parser.add_argument("--segments", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--claims", type=int, choices=(1, 3), default=1)
    parser.add_argument("--boilerplate", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    one = make(
        options.kind,
        seed=options.seed,
        n_segments=options.segments,
        n_tokens=options.tokens,
        n_claims=options.claims,
        boilerplate=options.boilerplate,
    )
    for segment in one.segments:
        print(f"{segment.id:>6} {segment.text}")
    print(one.question, "->", one.answer, one.phrases, one.causes)


if __name__ == "__main__":
    main()
