"""Tokens pass whatever the judge does; claims are judged as they are finished; the end is that of judging the whole."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attr_core.claims import split_claims
from attr_core.errors import ConfigurationError, EngineError, InputError
from attr_core.judge import LikelihoodJudge, LLMJudge
from attr_core.judge._cutting import ClaimCutter
from attr_core.judge.streaming import Caused, Event, Finished, Token, Verdicts, ajudge_stream, judge_stream
from attr_core.results import Cost, Support, SupportVerdict
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Claim, Segment, SegmentKind

VERDICTS = ("entails", "contradicts", "neutral")
SEGMENTS = tuple(Segment(f"c{n}", SegmentKind.RETRIEVED, text, ()) for n, text in enumerate(("Fair.", "Mill.", "Sea.")))
ANSWER = "The fair opened in 1911. Dr. Smith paid 3.5 dollars. It closed in 1920. Nobody knows why it did."
LAST = "Nobody knows why it did."
WAIT = 30.0
"""Seconds after which a test has hung; none waits so long."""


def verdict(claim: str, segment: str) -> str:
    return VERDICTS[(sum(map(ord, claim)) + len(segment) + ord(segment[0])) % 3]


@dataclass
class TableJudge:
    """Says what ``verdict`` says, after ``before``; ``asked`` keeps the claims of each call."""

    before: Callable[[Sequence[Claim]], None] = lambda claims: None
    asked: list[list[str]] = field(default_factory=list)
    questions: list[str | None] = field(default_factory=list)

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        self.asked.append([claim.text for claim in claims])
        self.questions.append(question)
        self.before(claims)
        shape = (len(claims), len(segments))
        table = [[verdict(claim.text, segment.text) for segment in segments] for claim in claims]
        why = [[f"{claim.text} {segment.id}" for segment in segments] for claim in claims]
        verdicts = np.array(table, dtype=np.str_).reshape(shape)
        return Support(
            verdicts, np.array(why, dtype=np.str_).reshape(shape), cost=Cost(1), repeated=np.stack([verdicts] * 2)
        )


def words(text: str) -> list[str]:
    return [f"{word} " for word in text.split(" ")[:-1]] + text.split(" ")[-1:]


def streamed(tokens: Iterable[str], judge: Any, **options: Any) -> list[Event]:
    return list(judge_stream(tokens, segments=SEGMENTS, judge=judge, **options))


async def _awaited(tokens: Iterable[str]) -> AsyncIterator[str]:
    for token in tokens:
        await asyncio.sleep(0)
        yield token


def astreamed(tokens: Iterable[str], judge: Any, **options: Any) -> list[Event]:
    async def collect() -> list[Event]:
        return [event async for event in ajudge_stream(_awaited(tokens), segments=SEGMENTS, judge=judge, **options)]

    return asyncio.run(collect())


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "attrkit-judge-stream"]


def check_no_thread_is_left() -> None:
    for thread in threads():  # one that the judge was just answering ends by itself
        thread.join(WAIT)
    assert threads() == []


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    check_no_thread_is_left()


def check_finished(events: Sequence[Event], text: str, judge: Any) -> Finished:
    """The last event is what judging the whole gives, and every claim was told with the same verdicts."""
    last = events[-1]
    assert isinstance(last, Finished)
    claims = split_claims(text)
    whole = judge.judge(claims, SEGMENTS)
    assert last.claims == claims
    assert last.support.verdicts.tolist() == whole.verdicts.tolist()
    assert last.support.rationale.tolist() == whole.rationale.tolist()
    if whole.repeated is not None and last.support.repeated is not None:
        assert last.support.repeated.tolist() == whole.repeated.tolist()
    told = {event.claim: event for event in events if isinstance(event, Verdicts)}
    assert set(told) == set(claims) | set(last.withdrawn)
    assert [told[claim].verdicts.tolist() for claim in claims] == whole.verdicts.tolist()
    return last


@pytest.mark.parametrize("stream", [streamed, astreamed])
def test_the_end_equals_judging_the_whole_answer_and_all_tokens_pass(stream: Any) -> None:
    judge = TableJudge()
    events = stream(words(ANSWER), judge, question="When did it open?")
    assert [event.text for event in events if isinstance(event, Token)] == words(ANSWER)
    assert set(judge.questions) == {"When did it open?"}
    n_calls = len(judge.asked)
    last = check_finished(events, ANSWER, TableJudge())
    assert last.withdrawn == ()
    assert last.support.cost.calls == n_calls
    assert list(chain.from_iterable(judge.asked)) == [claim.text for claim in last.claims]


def test_every_token_passes_while_the_judge_is_blocked() -> None:
    entered, go = threading.Event(), threading.Event()

    def block(claims: Sequence[Claim]) -> None:
        entered.set()
        assert go.wait(WAIT)

    def source() -> Iterator[str]:
        for number, token in enumerate(words(ANSWER)):
            if number == 12:  # the first claims are at the judge, who does not answer
                assert entered.wait(WAIT)
            yield token

    judge = TableJudge(block)
    stream = judge_stream(source(), segments=SEGMENTS, judge=judge)
    passed = [next(stream) for _ in words(ANSWER)]
    assert [event.text for event in passed if isinstance(event, Token)] == words(ANSWER)
    assert not go.is_set()
    go.set()
    check_finished([*passed, *stream], ANSWER, TableJudge())


def test_what_waited_while_the_judge_was_busy_is_judged_in_one_call() -> None:
    entered, go = threading.Event(), threading.Event()

    def block(claims: Sequence[Claim]) -> None:
        entered.set()
        assert go.wait(WAIT)

    def source() -> Iterator[str]:
        yield "One is red. Two is "
        assert entered.wait(WAIT)
        yield from ("red. Three is red. ", "Four is red. ", "Five is red. Six")
        go.set()

    judge = TableJudge(block)
    streamed(source(), judge, language="en")
    texts = [f"{number} is red." for number in ("One", "Two", "Three", "Four", "Five")] + ["Six"]
    assert judge.asked[0] == texts[:1]
    assert list(chain.from_iterable(judge.asked)) == texts
    assert len(judge.asked) <= 3


@pytest.mark.parametrize("stream", [streamed, astreamed])
def test_verdicts_come_while_the_rest_arrives(stream: Any) -> None:
    judged = threading.Event()

    def cause(claim: Claim, text: str) -> None:
        judged.set()  # causes come after verdicts

    def source() -> Iterator[str]:
        yield "The fair opened in 1911. It "
        assert judged.wait(WAIT)
        yield from ("closed ", "in 1920.")

    events = stream(source(), TableJudge(), cause=cause)
    order = [type(event) for event in events]
    assert order.index(Verdicts) < max(n for n, kind in enumerate(order) if kind is Token)
    first = next(event for event in events if isinstance(event, Verdicts))
    assert first.claim.text == "The fair opened in 1911."
    assert first.verdicts.tolist() == [verdict(first.claim.text, segment.text) for segment in SEGMENTS]


@pytest.mark.parametrize("stream", [streamed, astreamed])
def test_a_judge_that_fails_leaves_its_claims_undetermined_with_the_reason_and_never_raises(stream: Any) -> None:
    def fail(claims: Sequence[Claim]) -> None:
        if any("1911" in claim.text for claim in claims):
            raise EngineError("the endpoint is down; start it")

    *_, last = events = stream(["The fair opened in 1911. ", ANSWER[25:]], TableJudge(fail))
    assert [event.text for event in events if isinstance(event, Token)] == ["The fair opened in 1911. ", ANSWER[25:]]
    failed = [
        number for number, row in enumerate(last.support.verdicts.tolist()) if set(row) == {SupportVerdict.UNDETERMINED}
    ]
    assert 0 in failed
    assert all("the endpoint is down" in why for why in last.support.rationale[0])
    for number, claim in enumerate(last.claims):
        expected = [verdict(claim.text, segment.text) for segment in SEGMENTS]
        assert number in failed or last.support.verdicts[number].tolist() == expected


def test_a_judge_that_always_fails_gives_a_whole_table_of_undetermined() -> None:
    def fail(claims: Sequence[Claim]) -> None:
        raise KeyboardInterrupt

    last = streamed(words(ANSWER), TableJudge(fail))[-1]
    assert isinstance(last, Finished)
    assert last.support.verdicts.shape == (4, 3)
    assert set(last.support.verdicts.flat) == {"undetermined"}
    assert all("KeyboardInterrupt" in why for why in last.support.rationale.flat)


def test_a_table_of_another_shape_is_no_verdict() -> None:
    class Narrow(TableJudge):
        def judge(self, claims: Any, segments: Any, *, question: str | None = None) -> Support:
            return super().judge(claims, segments[:1])

    last = streamed(words(ANSWER), Narrow())[-1]
    assert isinstance(last, Finished)
    assert set(last.support.verdicts.flat) == {"undetermined"}


@pytest.mark.parametrize("stream", [streamed, astreamed])
def test_what_the_source_raises_reaches_the_consumer_unchanged_after_what_is_known(stream: Any) -> None:
    failure, judged, seen = RuntimeError("the model broke off"), threading.Event(), list[Event]()

    def source() -> Iterator[str]:
        yield "The fair opened in 1911. It "
        assert judged.wait(WAIT)
        raise failure

    def cause(claim: Claim, text: str) -> None:
        judged.set()

    async def collect() -> None:
        async for event in ajudge_stream(_awaited(source()), segments=SEGMENTS, judge=TableJudge(), cause=cause):
            seen.append(event)

    def collect_here() -> None:
        for event in judge_stream(source(), segments=SEGMENTS, judge=TableJudge(), cause=cause):
            seen.append(event)

    with pytest.raises(RuntimeError) as caught:
        collect_here() if stream is streamed else asyncio.run(collect())
    assert caught.value is failure
    assert [type(event) for event in seen[:2]] == [Token, Verdicts]
    assert not any(isinstance(event, Finished) for event in seen)


def test_breaking_off_ends_the_thread() -> None:
    for n_events in (0, 1, 3, 8):
        stream = judge_stream(words(ANSWER), segments=SEGMENTS, judge=TableJudge())
        for _ in range(n_events):
            next(stream)
        assert len(threads()) == min(n_events, 1)
        stream.close()
        check_no_thread_is_left()


def test_a_stream_that_is_dropped_ends_its_thread() -> None:
    for event in judge_stream(words(ANSWER), segments=SEGMENTS, judge=TableJudge()):
        assert isinstance(event, Token)
        break
    check_no_thread_is_left()


def test_breaking_off_while_nothing_is_judged_ends_the_thread_before_it_returns() -> None:
    stream = judge_stream(["The fair ", "opened"], segments=SEGMENTS, judge=TableJudge())
    next(stream)
    assert len(threads()) == 1
    stream.close()
    assert threads() == []


def test_breaking_off_does_not_wait_for_a_judge_that_is_busy_and_asks_it_nothing_more() -> None:
    entered, go = threading.Event(), threading.Event()

    def block(claims: Sequence[Claim]) -> None:
        entered.set()
        assert go.wait(WAIT)

    judge = TableJudge(block)
    stream = judge_stream(["One is red. Two is red. ", "Three"], segments=SEGMENTS, judge=judge, language="en")
    next(stream)
    assert entered.wait(WAIT)
    stream.close()  # returns though the judge does not
    assert not go.is_set()
    go.set()
    for thread in threads():
        thread.join(WAIT)
    assert len(judge.asked) == 1


def test_an_async_stream_that_is_closed_or_cancelled_ends_its_thread() -> None:
    async def close() -> None:
        stream = ajudge_stream(_awaited(words(ANSWER)), segments=SEGMENTS, judge=TableJudge())
        await anext(stream)
        await stream.aclose()
        check_no_thread_is_left()

    async def cancel() -> None:
        async def never() -> AsyncIterator[str]:
            yield "One is red. Two "
            await asyncio.Event().wait()

        async def consume() -> None:
            async for _ in ajudge_stream(never(), segments=SEGMENTS, judge=TableJudge()):
                started.set()

        started = asyncio.Event()
        task = asyncio.create_task(consume())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        check_no_thread_is_left()

    asyncio.run(close())
    asyncio.run(cancel())


def test_an_async_stream_leaves_the_loop_free_while_the_judge_is_blocked() -> None:
    go, ticks = threading.Event(), 0

    def block(claims: Sequence[Claim]) -> None:
        assert go.wait(WAIT)

    async def tick() -> None:
        nonlocal ticks
        for _ in range(50):
            await asyncio.sleep(0)
            ticks += 1
        go.set()

    async def run() -> None:
        ticking = asyncio.create_task(tick())
        async for event in ajudge_stream(_awaited([ANSWER]), segments=SEGMENTS, judge=TableJudge(block)):
            assert not isinstance(event, Finished) or ticks == 50
        await ticking

    asyncio.run(run())


@pytest.mark.parametrize("stream", [streamed, astreamed])
def test_causes_are_told_once_for_each_claim_with_the_text_so_far(stream: Any) -> None:
    def cause(claim: Claim, text: str) -> str:
        assert text[claim.start : claim.end] == claim.text
        if claim.index == 1:
            raise EngineError("no model")
        return claim.text.upper()

    events = stream(words(ANSWER), TableJudge(), cause=cause)
    caused = [event for event in events if isinstance(event, Caused)]
    assert [event.claim for event in caused] == list(split_claims(ANSWER))
    assert [event.result for event in caused] == [
        None if claim.index == 1 else claim.text.upper() for claim in split_claims(ANSWER)
    ]
    assert "no model" in (caused[1].reason or "")
    for event in caused:
        assert [type(e) for e in events if getattr(e, "claim", None) == event.claim] == [Verdicts, Caused]


def test_a_claim_that_turns_out_otherwise_at_the_end_is_judged_again_and_told_to_be_withdrawn() -> None:
    told = threading.Event()
    text = "It was in Ghent. And then | a | b |\n|---|---|---|\n| 1 | 2 | 3 |"  # its first line is a table's

    def source() -> Iterator[str]:
        yield text[:26]
        assert told.wait(WAIT)
        yield text[26:]

    judge = TableJudge(lambda claims: told.set())
    events = streamed(source(), judge)
    last = check_finished(events, text, TableJudge())
    assert [claim.text for claim in last.withdrawn] == ["It was in Ghent."]
    assert [claim.text for claim in last.claims] == [text]


def test_a_splitter_that_breaks_on_a_part_of_the_answer_does_not_stop_its_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def panic(cutter: ClaimCutter, text: str) -> list[Claim]:
        raise BaseException("panicked")

    monkeypatch.setattr(ClaimCutter, "cut", panic)
    judge = TableJudge()
    check_finished(streamed(words(ANSWER), judge), ANSWER, TableJudge())
    assert len(judge.asked) == 1


def test_an_answer_of_nothing_finishes_without_claims_or_calls() -> None:
    for tokens in ([], [""], [" ", "\n"]):
        judge = TableJudge()
        last = streamed(tokens, judge)[-1]
        assert isinstance(last, Finished)
        assert (last.claims, last.support.verdicts.shape, judge.asked) == ((), (0, 3), [])


def test_what_is_no_judge_or_no_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="str cannot judge"):
        judge_stream([], segments=SEGMENTS, judge="hf:model")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cannot judge"):
        ajudge_stream(_awaited([]), segments=SEGMENTS, judge=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a token is NoneType"):
        streamed(["One", None], TableJudge())  # type: ignore[list-item]


def test_the_judge_sees_the_context_variables_of_the_consumer() -> None:
    variable, seen = contextvars.ContextVar("variable", default="unset"), list[str]()
    variable.set("set")
    streamed(words(ANSWER), TableJudge(lambda claims: seen.append(variable.get())))
    assert set(seen) == {"set"}


def test_evidence_of_a_likelihood_judge_is_put_together_as_it_is() -> None:
    engine = AdditiveEngine({"1911": {"Fair.": 6.0}, "1920": {"Mill.": 3.0}}, bias=-5.0)
    last = streamed(words(ANSWER), LikelihoodJudge(engine))[-1]
    whole = LikelihoodJudge(engine).judge(split_claims(ANSWER), SEGMENTS)
    assert isinstance(last, Finished)
    assert (last.support.kind, last.support.notes, last.support.judge) == ("evidence", whole.notes, whole.judge)
    assert last.support.evidence is not None
    assert whole.evidence is not None
    np.testing.assert_allclose(last.support.evidence, whole.evidence)
    assert last.support.verdicts.tolist() == whole.verdicts.tolist()


def test_a_reading_judge_streams_too() -> None:
    answer = '{"claim": 1, "segment": 1, "verdict": "entails", "why": "so"}'
    judge = LLMJudge(ScriptedEngine(reply=answer), max_cells=1)
    last = list(judge_stream(words(ANSWER), segments=SEGMENTS[:1], judge=judge))[-1]
    assert isinstance(last, Finished)
    assert last.support.verdicts.tolist() == [["entails"]] * 4
    assert (last.support.cost.calls, last.support.judge) == (4, "test:scripted")


TEXTS = [
    ANSWER,
    "Dr. Smith met Mrs. Jones at 5 p.m. on Monday. The U.S. Army bought it, i.e. for $3.50. Mr. J. Doe Jr. agrees.",
    'He said "I go. Then I return." She left (it was late. Really.) at noon. “So. It” was. It closed. [1, 2] End here.',
    "# Fair\n\n## Dates\nIt opened in 1911. It closed.\n\n**Place:**\n\nGhent. It has:\n- a roof. Red.\n1. lawn\n\nEnd",
    "See.\n\n| Year | Event |\n|------|:-----:|\n| 1911 | It opened. It shone. |\nThen more. Red | blue. Then no.",
    "Run it.\n```py\nx = 1. \n\n# Not a heading.\n```\nDone. It is. 😀 It was.\n\n---\n\nMore of it. And more.",
    "今天很好。我们去公园吧！好吗？他说「是的。好」然后走了。行。",
    "それは赤い。これはペンです。1911年に開いた。",
    "안녕하세요. 좋아요. 그는 갔다. 끝.",
    "Es kam am 3. Mai an. Dann ging er. Die Halle ist z. B. groß, d. h. hoch. Frau Dr. Weiß kam. Ende.",
    "M. Dupont est là. Mme. Roy aussi, avec MM. Vex. Il part. Fin.",
]


def cut_in(pieces: Iterable[str], language: str | None = None) -> list[Claim]:
    cutter, text, found = ClaimCutter(language), "", list[Claim]()
    for piece in pieces:
        text += piece
        found += cutter.cut(text)
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_a_claim_cut_early_is_one_of_the_whole_text_at_every_length(text: str) -> None:
    early, whole = cut_in(text), split_claims(text)
    assert tuple(early) == whole[: len(early)]


@pytest.mark.parametrize("text", [text for text in TEXTS if text.isascii()])
def test_all_claims_but_the_last_are_finished_before_the_end(text: str) -> None:
    assert len(cut_in(words(text), "en")) >= len(split_claims(text, language="en")) - 2


@pytest.mark.parametrize(
    ("arrived", "finished"),
    [
        ("He paid 3.", []),
        ("He paid 3.5 dollars. Then", []),
        ("He paid 3.5 dollars. Then ", ["He paid 3.5 dollars."]),
        ("He met Dr. Smith there", []),
        ('He said "go. Now it ', []),
        ("It (so. Now it ", []),
        ("It is red. [1, ", []),
        ("今天很好。我", ["今天很好。"]),
        ("It is.\n**Title. More of it ", ["It is."]),
        ("It is.\n\n- a roof\n- a door ", ["It is.", "- a roof"]),
    ],
)
def test_a_claim_is_finished_as_soon_as_its_end_is_sure_and_no_sooner(arrived: str, finished: list[str]) -> None:
    assert [claim.text for claim in cut_in(arrived, "en")] == finished


FRAGMENTS = st.sampled_from(
    (
        *("Dr. ", "U.S. ", "B.", " ", "\n", "\n\n", ". ", "! ", "。", "**", "[1]", '"', "(", ")", "- ", "1. ", "# "),
        *(
            "```\n",
            "| a |\n",
            "|-|\n",
            "😀",
            "今天",
            "\u2028",
            "\xa0",
            "(It is. So.) ",
            "He went. ",
            "And then ",
            "3.5 ",
        ),
        *("M. Dupont est là. ", "C. Es ", "| a | b |\n|---|---|\n| 1. | 2! |\n", "```py\nx. y\n\nz\n```\n", "\ud800"),
    )
)


@settings(max_examples=60)
@given(st.lists(FRAGMENTS, max_size=14))
@example(["It is. And then ", "| a | b |\n", "|-|-|\n"])
def test_however_the_text_is_cut_into_tokens_the_end_is_that_of_the_whole(pieces: list[str]) -> None:
    text = "".join(pieces)
    events = streamed(pieces, TableJudge())
    assert "".join(event.text for event in events if isinstance(event, Token)) == text
    if text.strip():
        check_finished(events, text, TableJudge())


@settings(max_examples=40)
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
def test_any_chunking_gives_the_claims_of_the_whole(text: str, random: Any) -> None:
    places = sorted(random.sample(range(len(text)), random.randint(0, 12)))
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    last = check_finished(streamed(pieces, TableJudge()), text, TableJudge())
    assert last.withdrawn == ()


def test_a_long_answer_is_cut_in_little_time_for_each_token() -> None:
    text = ("The fair opened in 1911 and closed in 1920. Dr. Smith said so. " * 5 + "\n\n") * 20
    assert len(cut_in(words(text), "en")) >= 199
