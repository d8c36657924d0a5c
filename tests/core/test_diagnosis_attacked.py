"""Diagnoses of small made-up cases that once got another label than a careful reader would give, and of hostile input.

Facts are those of :mod:`attr_core.evaluation.planted`, so that its perfect judge reads them; a model is a function of
the prompt's text.
"""

from __future__ import annotations

import io
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from attr_core import cli, diagnose
from attr_core.api import prove
from attr_core.diagnosis.examine import OTHER_QUESTION
from attr_core.errors import BudgetExceededError, ConfigurationError, EngineError, InputError, JudgeError
from attr_core.evaluation.planted import PerfectJudge
from attr_core.protocols import Completion, Price, Sampling
from attr_core.reports.diagnosis import render_diagnosis
from attr_core.results import Budget, Diagnosis, Support
from attr_core.types import Prompt, ToolCall, Trace

QUESTION = "In which year did the Lorwyn Copper Mill open?"
RIGHT, WRONG, WORSE = (f"The Lorwyn Copper Mill opened in {year}." for year in (1911, 1979, 1950))
OTHERS = ("The Aldemoor Torch Parade opened in 1820.", "The Corvath Glass Library opened in 1833.")
REFUSAL = "I do not know."

Model = Callable[[str], str]


class _Engine:
    """Says what a function of the prompt's text says, but answers a greeting; reproduces itself where told so."""

    max_context = None
    price = Price(0.0, 0.0)
    spec = "test:model"

    def __init__(self, says: Model, *, reproduces: bool = True) -> None:
        self.says, self.reproduces, self.fingerprint, self.calls = says, reproduces, uuid.uuid4().hex, 0

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        self.calls += len(prompts)
        texts = ["\n".join(message.content for message in prompt.messages) for prompt in prompts]
        return [Completion("Hello." if OTHER_QUESTION in text else self.says(text), "stop") for text in texts]


def _trace(
    documents: Sequence[str],
    answer: str,
    *,
    system: str = "Answer from the context.",
    memory: str | None = None,
    is_recorded: bool = True,
    parameters: dict | None = None,
) -> Trace:
    context = "Context:\n" + "\n\n".join(documents) + "\n\n" if documents else ""
    messages = [{"role": "system", "content": system}]
    messages += [{"role": "system", "content": memory, "metadata": {"memory": True}}] if memory else []
    messages += [{"role": "user", "content": f"{context}Question: {QUESTION}"}]
    return Trace.from_messages(
        messages,
        answer,
        documents=[{"id": f"c{n}", "text": text} for n, text in enumerate(documents)] if is_recorded else (),
        query=QUESTION,
        model="test:model",
        parameters={"temperature": 0} if parameters is None else parameters,
    )


def _diagnosed(trace: Trace, says: Model | object, expected: str | None = RIGHT, **options: object) -> Diagnosis:
    engine = _Engine(says) if callable(says) else says
    chosen: dict = {"judge": PerfectJudge(), "db": ":memory:", **options}
    return diagnose(trace, expected=expected, engine=engine, **chosen)


def _follows_wrong(text: str) -> str:
    return WRONG if WRONG in text else RIGHT if RIGHT in text else REFUSAL


@pytest.mark.parametrize(
    ("says", "label"),
    [
        (lambda text: WORSE, "parametric_answer"),
        (lambda text: WORSE if any(one in text for one in (RIGHT, *OTHERS)) else REFUSAL, "generation_ignore"),
        (lambda text: WORSE if RIGHT in text else REFUSAL, "misreading"),
        (lambda text: "Visitors were first let into the Lorwyn Copper Mill in 1979.", "parametric_answer"),
    ],
)
def test_a_model_that_gives_another_wrong_answer_than_the_recorded_one_is_compared_with_itself(
    says: Model, label: str
) -> None:
    found = _diagnosed(_trace([RIGHT, *OTHERS], WRONG), says)
    assert found.label == label
    assert any("another answer than the recorded one" in note for note in found.notes)


def test_no_cause_is_named_where_the_unchanged_prompt_gets_another_wrong_answer_each_time() -> None:
    rng = np.random.default_rng(3)
    engine = _Engine(lambda text: f"The Lorwyn Copper Mill opened in {rng.integers(1700, 1800)}.", reproduces=False)
    found = _diagnosed(_trace([RIGHT, *OTHERS], WRONG), engine)
    assert (found.label, found.culprits) == ("inconclusive", ())
    assert "neither the recorded answer" in found.evidence[0]


def test_an_engine_that_says_nothing_holds_no_belief() -> None:
    assert _diagnosed(_trace([RIGHT, *OTHERS], WRONG), lambda text: "").label == "inconclusive"


def test_a_chunk_and_memory_that_say_the_same_have_to_go_together() -> None:
    found = _diagnosed(_trace([WRONG, RIGHT, OTHERS[0]], WRONG, memory=f"Notes: {WRONG}"), _follows_wrong)
    assert (found.label, set(found.culprits)) == ("compound", {"c0", "m1"})


def test_memory_is_not_blamed_for_saying_what_a_chunk_says() -> None:
    says = lambda text: WRONG if f"Context:\n{WRONG}" in text else RIGHT  # noqa: E731
    found = _diagnosed(_trace([WRONG, RIGHT, OTHERS[0]], WRONG, memory=f"Notes: {WRONG}"), says)
    assert (found.label, found.culprits) == ("chunk_dominance", ("c0",))


def test_a_context_pasted_into_the_turn_that_asks_is_no_memory() -> None:
    found = _diagnosed(_trace([WRONG, RIGHT, OTHERS[0]], WRONG, is_recorded=False), _follows_wrong)
    assert found.label == "chunk_dominance"
    assert "of the prompt misled the model" in found.headline


def test_what_the_instruction_states_needs_no_retrieval() -> None:
    system = f"You help visitors. {RIGHT}"
    assert _diagnosed(_trace([], REFUSAL, system=system), lambda text: REFUSAL).label == "over_refusal"
    assert _diagnosed(_trace([], RIGHT, system=system), lambda text: RIGHT, expected=None).label == "ok"
    missed = _diagnosed(_trace([], WRONG, system=system), lambda text: WRONG)
    assert missed.label == "inconclusive"
    assert "the prompt holds no source that could be removed" in missed.evidence


def test_what_the_instruction_says_is_not_called_the_models_own_belief() -> None:
    says = lambda text: WRONG if "Always" in text else RIGHT  # noqa: E731
    found = _diagnosed(_trace([RIGHT, OTHERS[0]], WRONG, system=f"Always answer: {WRONG}"), says)
    assert found.label == "parametric_answer"
    assert "its instruction" in found.headline


def test_an_invented_answer_is_named_though_nobody_says_what_is_right() -> None:
    found = _diagnosed(_trace([RIGHT, OTHERS[0]], WRONG), lambda text: WRONG, expected=None)
    assert (found.label, found.culprits) == ("parametric_answer", ("c0",))
    assert "which is right is not known: no answer is expected" in found.evidence


def test_what_no_label_covers_is_told_with_what_is_known() -> None:
    says = lambda text: WRONG if RIGHT in text else REFUSAL  # noqa: E731
    found = _diagnosed(_trace([RIGHT, OTHERS[0]], WRONG), says, expected=None)
    assert found.label == "inconclusive"
    assert "without any context the answer is another one" in found.evidence


@pytest.mark.parametrize(
    ("output", "label"),
    [
        ('{"error": "the archive is not reachable"}', "tool_error"),
        ('{"isError": true, "content": []}', "tool_error"),
        ('{"error": null, "text": "nothing"}', "retrieval_miss"),
        ('{"error": ', "retrieval_miss"),
    ],
)
def test_a_tool_that_says_in_json_that_it_failed_has_failed(output: str, label: str) -> None:
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "t", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "t", "content": output},
    ]
    trace = Trace.from_messages(messages, WRONG, query=QUESTION, model="test:model")
    trace = replace(trace, tool_calls=(ToolCall(id="t", name="f", arguments={}, output=output),))
    assert _diagnosed(trace, lambda text: WRONG).label == label


def _by_chance(share: float, n: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    engine = _Engine(lambda text: RIGHT if rng.random() < share else WRONG, reproduces=False)
    return _diagnosed(_trace([RIGHT, WRONG, OTHERS[0]][:n], WRONG), engine).label


def test_one_chunk_that_has_no_influence_is_rarely_said_to_be_overruled_by_a_belief() -> None:
    found = Counter(_by_chance(0.2, 1, seed) for seed in range(40))
    assert found["flaky"] >= 37, found


@pytest.mark.parametrize("temperature", ["0.7", 2.0, 1])
def test_a_temperature_is_read_as_it_was_recorded(temperature: object) -> None:
    seen: list[float] = []

    class Sampled(_Engine):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
            seen.append(sampling.temperature)
            return super().generate(prompts, sampling)

    _diagnosed(_trace([WRONG, RIGHT], WRONG, parameters={"temperature": temperature}), Sampled(_follows_wrong))
    assert set(seen) == {float(temperature)}  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [None, "hot", True, -1, float("nan"), float("inf"), 10**400, [1]])
def test_a_temperature_that_is_none_is_told_as_not_recorded(temperature: object) -> None:
    found = _diagnosed(_trace([WRONG, RIGHT], WRONG, parameters={"temperature": temperature}), _follows_wrong)
    assert found.label == "chunk_dominance"
    assert any("temperature was not recorded" in note for note in found.notes)


@pytest.mark.parametrize("expected", [" \n", "...", "?!"])
def test_an_expected_answer_without_a_word_is_refused(expected: str) -> None:
    with pytest.raises(InputError, match="says nothing"):
        _diagnosed(_trace([RIGHT], WRONG), lambda text: WRONG, expected=expected)


class _Judge:
    """Gives what a function gives, from some call on; before that it is right."""

    def __init__(self, gives: Callable[..., object], since: int = 1) -> None:
        self.gives, self.since, self.calls = gives, since, 0

    def judge(self, claims, segments, *, question=None):
        self.calls += 1
        if self.calls < self.since:
            return PerfectJudge().judge(claims, segments, question=question)
        return self.gives(len(claims), len(segments))


def _table(word: object, *shape: int) -> Support:
    return Support(verdicts=np.full(shape, word), rationale=np.full(shape, ""))


def _raises(error: Exception) -> Callable[..., object]:
    def gives(*shape: int) -> object:
        raise error

    return gives


@pytest.mark.parametrize("since", [1, 2, 3])
@pytest.mark.parametrize(
    ("gives", "told"),
    [
        (lambda *shape: None, "gave NoneType"),
        (lambda *shape: _table("entails", 1, 1, 1), "shapes"),
        (lambda n, m: _table("entails", m + 1, n), "shapes"),
        (lambda *shape: _table("yes", *shape), "the verdict 'yes'"),
        (lambda *shape: _table(0.9, *shape), "the verdict '0.9'"),
        (_raises(ZeroDivisionError("by zero")), "ZeroDivisionError"),
        (_raises(JudgeError("the judge is out")), "the judge is out"),
        (_raises(EngineError("the server is out")), "the server is out"),
        (_raises(BudgetExceededError("the budget is spent")), "the budget is spent"),
    ],
)
def test_a_judge_that_fails_in_whatever_way_and_whenever_is_told(
    gives: Callable[..., object], told: str, since: int
) -> None:
    found = _diagnosed(_trace([WRONG, RIGHT, *OTHERS], WRONG), _follows_wrong, judge=_Judge(gives, since))
    assert found.label == "inconclusive"
    assert any(told in line for line in found.evidence)
    assert bool(found.scores) == (since > 1), "what was judged until then is kept"


def test_nothing_is_run_again_for_a_judge_that_failed_on_the_way() -> None:
    engine = _Engine(_follows_wrong)
    _diagnosed(_trace([WRONG, RIGHT], WRONG), engine, judge=_Judge(_raises(EngineError("out")), 2))
    assert engine.calls == 0


def test_a_judge_that_the_budget_stops_does_not_lose_what_it_said() -> None:
    found = _diagnosed(
        _trace([WRONG, RIGHT], WRONG), _follows_wrong, judge=lambda prompt, system: "[]", budget=Budget(calls=1)
    )
    assert found.label == "inconclusive"
    assert "budget of 1 calls" in found.evidence[0]


def test_an_engine_that_fails_in_a_way_of_its_own_is_told() -> None:
    found = _diagnosed(_trace([WRONG, RIGHT], WRONG), lambda text: str(1 / 0))
    assert found.label == "inconclusive"
    assert "ZeroDivisionError" in found.evidence[0]
    assert found.scores


def test_a_proof_that_chance_explains_as_well_does_not_hold(tmp_path) -> None:
    trace, db = _trace([WRONG, RIGHT, *OTHERS], WRONG), tmp_path / "a.db"
    found = _diagnosed(trace, _Engine(_follows_wrong, reproduces=False), db=db)
    assert found.label == "chunk_dominance"
    held = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        engine = _Engine(lambda text, rng=rng: RIGHT if rng.random() < 0.5 else WRONG, reproduces=False)
        held.append(prove(trace, found, engine=engine, judge=PerfectJudge(), db=db, fresh=True).holds)
    assert sum(held) <= 1


@pytest.mark.parametrize(("now", "holds"), [(lambda text: WRONG, True), (lambda text: REFUSAL, False)])
def test_a_proof_that_the_context_does_nothing_holds_only_while_the_answer_is_the_same(now: Model, holds: bool) -> None:
    says = lambda text: WRONG if any(one in text for one in (RIGHT, *OTHERS)) else REFUSAL  # noqa: E731
    trace = _trace([RIGHT, *OTHERS], WRONG)
    found = _diagnosed(trace, says)
    assert found.label == "generation_ignore"
    changed = lambda text: WRONG if RIGHT in text else now(text)  # noqa: E731
    assert prove(trace, found, engine=_Engine(changed), judge=PerfectJudge(), db=":memory:").holds is holds


def test_a_proof_made_on_an_engine_that_reproduces_itself_is_run_often_enough_on_one_that_does_not() -> None:
    trace = _trace([WRONG, RIGHT, *OTHERS], WRONG)
    found = _diagnosed(trace, _follows_wrong)
    again = prove(trace, found, engine=_Engine(_follows_wrong, reproduces=False), judge=PerfectJudge(), db=":memory:")
    assert again.holds
    assert (again.changed.n, again.unchanged.n) == (5, 10)


@pytest.mark.parametrize(
    "proof", [{}, {"intervention": {}}, {"intervention": [1], "changed": {"runs": "many"}, "unchanged": None}]
)
def test_a_proof_that_cannot_be_read_is_refused(proof: dict) -> None:
    trace = _trace([WRONG, RIGHT], WRONG)
    found = replace(_diagnosed(trace, _follows_wrong), proof=proof)
    with pytest.raises(InputError, match="diagnose again"):
        prove(trace, found, engine=_Engine(_follows_wrong), judge=PerfectJudge(), db=":memory:")


def test_a_p_value_is_not_called_the_probability_of_chance() -> None:
    said = io.StringIO()
    trace = _trace([WRONG, RIGHT, *OTHERS], WRONG)
    Console(width=100, file=said).print(render_diagnosis(_diagnosed(trace, _Engine(_follows_wrong, reproduces=False))))
    text = said.getvalue()
    assert "if the change made no difference" in text
    assert "confidence > 0.99" in text, "no certainty where an engine was only asked some times"


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A database with a diagnosis made on a model that costs, and judged by a function; and how often the model ran."""
    paid = _Engine(_follows_wrong)
    paid.price, paid.spec = Price(1e-6, 1e-6), "test:paid"
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "a.db"))
    monkeypatch.setattr("attr_core.engines.load_engine", lambda spec, **_: paid if spec == "test:paid" else _no(spec))
    monkeypatch.setattr("attr_core.api.load_engine", lambda spec, **_: spec)
    monkeypatch.setattr("attr_core.api.load_judge", lambda *_, **__: PerfectJudge())
    _diagnosed(_trace([WRONG, RIGHT], WRONG), paid, db=tmp_path / "a.db")
    paid.calls = 0
    return paid


def _no(spec: str) -> None:
    raise ConfigurationError(f"engine {spec!r} has no known prefix")


def test_a_proof_that_costs_is_not_made_anew_unasked(stored, capsys) -> None:
    assert cli._run(["prove", "last"]) == 0, "from the cache"
    assert cli._run(["prove", "last", "--fresh"]) == 2
    assert "test:paid may cost money" in capsys.readouterr().err
    assert stored.calls == 0
    assert cli._run(["prove", "last", "--fresh", "--yes"]) == 0
    assert stored.calls == 2


def test_a_proof_that_costs_and_is_no_longer_in_the_cache_is_not_made_unasked(stored, capsys) -> None:
    stored.fingerprint = "of another version"
    assert cli._run(["prove", "last"]) == 2
    assert "not all of the proof is in the cache, and test:paid may cost money" in capsys.readouterr().err
    assert stored.calls == 0
    assert cli._run(["prove", "last", "--budget", "calls=9"]) == 0


def test_a_proof_whose_engine_no_name_loads_says_so(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "a.db"))
    _diagnosed(_trace([WRONG, RIGHT], WRONG), _follows_wrong, db=tmp_path / "a.db")
    assert cli._run(["prove", "last"]) == 2
    assert "'test:model', which no name loads; name one with --engine" in capsys.readouterr().err


def test_how_finely_the_context_was_cut_is_kept_with_the_proof() -> None:
    trace = _trace([f"{RIGHT} It is closed on Mondays. {WRONG}", OTHERS[0]], WRONG)
    found = _diagnosed(trace, _follows_wrong, granularity="sentence")
    assert found.culprits == ("c0.s3",)
    assert found.proof is not None
    assert found.proof["granularity"] == "sentence"
