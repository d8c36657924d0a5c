"""An application, a judge and rows that tests of evaluation share; other processes import this module too."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attr_core.protocols import Prompt
from attr_core.results import Support
from attr_core.testing import ScriptedEngine
from attr_core.types import Claim, Segment

N_ROWS = 6
_PART = re.compile(r"^(Claim|Segment) (\d+):\n<(data\d+)>\n(.*?)\n</\3>", re.DOTALL | re.MULTILINE)


def rows(n: int = N_ROWS) -> list[dict[str, object]]:
    """Questions of which every third is answered wrongly."""
    return [
        {
            "id": f"r{i}",
            "query": f"When did fair {i} open?",
            "expected_answer": f"Fair {i} opened in {1900 + i}.",
            "tags": ["odd" if i % 2 else "even"],
        }
        for i in range(n)
    ]


def app(query: str) -> tuple[str, list[dict[str, object]]]:
    """The answer and two chunks; every third answer follows the wrong one."""
    number = int(re.findall(r"\d+", query)[0])
    right, wrong = f"Fair {number} opened in {1900 + number}.", f"Fair {number} opened in {1800 + number}."
    note("app", query)
    chunks = [
        {"id": f"a{number}", "text": right, "metadata": {"source": "archive.md"}},
        {"id": f"b{number}", "text": wrong, "metadata": {"source": "rumours.md"}},
    ]
    return (wrong if number % 3 == 0 else right), chunks


def failing_app(query: str) -> object:
    """As ``app``, but the second row raises."""
    if "fair 1 " in query:
        raise RuntimeError("the index is away")
    return app(query)


def verdicts(prompt: Prompt) -> str:
    """What a judge says that reads years: the same year entails, another one of the same fair contradicts."""
    found = _PART.findall(prompt.messages[-1].content)
    claims = [(number, text) for kind, number, _, text in found if kind == "Claim"]
    segments = [(number, text) for kind, number, _, text in found if kind == "Segment"]
    note("judge", "|".join(text for _, text in claims))
    told = [
        {"claim": int(c), "segment": int(s), "verdict": _verdict(claim, segment), "why": "by its year"}
        for c, claim in claims
        for s, segment in segments
    ]
    return json.dumps({"verdicts": told})


def judge() -> ScriptedEngine:
    """The same one in every process, so that what it said is found in the cache."""
    return ScriptedEngine(verdicts, spec="test:judge", fingerprint="test:judge:1")


def note(who: str, what: str) -> None:
    """Write a call down where the environment names a file; be slow, or die, where it says so."""
    if not (path := os.environ.get("EVALUATION_CALLS")):
        return
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps([who, what]) + "\n")
    if who == os.environ.get("EVALUATION_DIES_IN") and len(calls(path, who)) == int(os.environ["EVALUATION_DIES_AT"]):
        os.environ["EVALUATION_DIES_IN"] = ""
        if os.environ.get("EVALUATION_DIES_OF") == "interrupt":
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(float(os.environ.get("EVALUATION_SECONDS", "0")))


def calls(path: str | Path, who: str) -> list[str]:
    """What was written down of one of them."""
    lines = Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []
    return [what for one, what in map(json.loads, lines) if one == who]


def _verdict(claim: str, segment: str) -> str:
    if claim.startswith("The text states something"):
        return "entails" if re.search(r"opened in \d{4}", segment) else "neutral"
    years = [re.findall(r"opened in (\d{4})", text) for text in (claim, segment)]
    if not all(years):
        return "neutral"
    return "entails" if years[0] == years[1] else "contradicts"


def run_named(db: str) -> None:
    """A run over the rows, one at a time; in a process of its own, for tests that kill it."""
    from attr_core.evaluation.runner import Evaluation

    Evaluation(app, rows(), judge=judge(), db=db, concurrency=1, name="killed").run()


@dataclass
class YearJudge:
    """The same verdicts without a model, for processes that share no cache; kills its first process where told to."""

    dies_at: str = ""

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        _die_once(self.dies_at)
        table = [[_verdict(claim.text, segment.text) for segment in segments] for claim in claims]
        shape = (len(claims), len(segments))
        return Support(np.array(table, dtype=np.str_).reshape(shape), np.full(shape, "by its year"), judge="years")


@dataclass
class DyingApp:
    """Answers as ``app``, and kills the first process that asks it for the fifth row."""

    dies_at: str

    def __call__(self, query: str) -> object:
        if "fair 4 " in query:
            _die_once(self.dies_at)
        return app(query)


@dataclass
class CountedApp:
    """Answers as ``app``, and writes every question down."""

    path: str

    def __call__(self, query: str) -> object:
        with Path(self.path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(["app", query]) + "\n")
        return app(query)


def deadly_app(query: str) -> object:
    """Kills every process that asks it for the second row."""
    if "fair 1 " in query:
        os.kill(os.getpid(), signal.SIGKILL)
    return app(query)


def _die_once(marker: str) -> None:
    if marker and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
