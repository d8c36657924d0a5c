"""An answer that is still arriving -> its tokens at once, and what a judge says of each claim that is finished."""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Sequence
from typing import Any

from attr_core.errors import ConfigurationError, InputError
from attr_core.judge._background import Background, Caused, Event, Finished, Token, Verdicts
from attr_core.protocols import Judge
from attr_core.types import Claim, Segment

__all__ = ["Caused", "Event", "Finished", "Token", "Verdicts", "ajudge_stream", "judge_stream"]


def judge_stream(
    tokens: Iterable[str],
    *,
    segments: Sequence[Segment],
    judge: Judge,
    question: str | None = None,
    cause: Callable[[Claim, str], Any] | None = None,
    language: str | None = None,
) -> Generator[Event, None, None]:
    """Every token of an answer as it comes and, in between, verdicts on the claims that are finished.

    A :class:`Token` is yielded as soon as the source gives it, whatever the judge is doing: judging runs in one thread
    beside. A claim is judged once the splitter would cut it alike whatever may follow; claims that wait are judged
    together in one call. :class:`Verdicts` that are ready are yielded with the next token. When the source ends, the
    other claims are judged and :class:`Finished` is yielded last: its table is that of
    ``judge.judge(split_claims(text), segments, question=question)``. A claim that turns out otherwise at the end (the
    language was taken for another, a line became a table's first) is judged again, and ``Finished.withdrawn`` has it.

    A judge that fails leaves its claims ``undetermined`` with the reason. What the source raises is raised as it is,
    after the verdicts known by then. Closing the generator ends the thread; a call of the judge that is under way is
    not waited for, and nothing is asked after it.
    Cost: what the judge takes for the same claims in one call or several.

    Parameters
    ----------
    tokens : iterable of str
        Pieces of any length; read in the consumer's thread, one when one is asked for.
    segments : sequence of Segment, length n_segments
        What the model was given.
    judge : Judge
        Used in another thread than the consumer's, one call at a time.
    question : str, optional
        What is being answered.
    cause : callable, optional
        ``(claim, text so far)`` -> anything, called in the same thread when no claim waits to be judged; what it gives
        is yielded as :class:`Caused`. With an engine that scores, an attribution of ``text[: claim.end]`` to the
        prompt.
    language : str, optional
        As for :func:`~attr_core.claims.split_claims`; where it is known, claims are finished sooner and more surely.

    Yields
    ------
    Token, Verdicts, Caused, Finished

    Raises
    ------
    ConfigurationError
        The judge is none.
    InputError
        A token is no text.

    Examples
    --------
    >>> from attr_core.results import SupportVerdict
    >>> from attr_core.testing import ScriptedJudge
    >>> from attr_core.types import Location, SegmentKind
    >>> fair = Segment("c0", SegmentKind.RETRIEVED, "The fair opened in 1911.", (Location(0, 0, 24),))
    >>> judge = ScriptedJudge({("It opened in 1911.", fair.text): SupportVerdict.ENTAILS})
    >>> *events, last = judge_stream(["It opened ", "in 1911."], segments=[fair], judge=judge)
    >>> [event.text for event in events if isinstance(event, Token)], last.support.verdicts.tolist()
    (['It opened ', 'in 1911.'], [['entails']])
    """
    _check(judge)
    return _stream(tokens, segments=segments, judge=judge, question=question, cause=cause, language=language)


def ajudge_stream(
    tokens: AsyncIterable[str],
    *,
    segments: Sequence[Segment],
    judge: Judge,
    question: str | None = None,
    cause: Callable[[Claim, str], Any] | None = None,
    language: str | None = None,
) -> AsyncGenerator[Event, None]:
    """As :func:`judge_stream`, for tokens that are awaited; the judge stays synchronous and blocks no loop.

    Raises
    ------
    ConfigurationError, InputError
        As for :func:`judge_stream`.
    """
    _check(judge)
    return _astream(tokens, segments=segments, judge=judge, question=question, cause=cause, language=language)


def _stream(tokens: Iterable[str], **job: Any) -> Generator[Event, None, None]:
    source, background = iter(tokens), Background(**job)
    failure: Exception | None = None
    background.start()
    try:
        while True:
            try:
                token = next(source)
            except StopIteration:
                break
            except Exception as error:
                failure = error
                break
            background.feed(_text(token))
            yield Token(token)
            yield from background.ready()
        if failure is not None:
            yield from background.ready()
            raise failure
        background.end()
        while True:
            event = background.next()
            yield event
            if isinstance(event, Finished):
                return
    finally:
        background.stop()


async def _astream(tokens: AsyncIterable[str], **job: Any) -> AsyncGenerator[Event, None]:
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(woken.set)

    source, background = aiter(tokens), Background(**job, wake=wake)
    failure: Exception | None = None
    background.start()
    try:
        while True:
            try:
                token = await anext(source)
            except StopAsyncIteration:
                break
            except Exception as error:
                failure = error
                break
            background.feed(_text(token))
            yield Token(token)
            for event in background.ready():
                yield event
        if failure is not None:
            for event in background.ready():
                yield event
            raise failure
        background.end()
        while True:
            woken.clear()
            try:
                event = background.next(block=False)
            except queue.Empty:
                await woken.wait()
                continue
            yield event
            if isinstance(event, Finished):
                return
    finally:
        background.stop()


def _check(judge: Any) -> None:
    if not isinstance(judge, Judge):
        raise ConfigurationError(f"{type(judge).__name__} cannot judge; give a judge, such as load_judge('hf:MODEL')")


def _text(token: Any) -> str:
    if not isinstance(token, str):
        raise InputError(f"a token is {type(token).__name__}, no text; give the text of each piece, '' where none is")
    return token
