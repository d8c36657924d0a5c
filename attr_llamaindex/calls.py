"""Calls of models: counted once, followed to their end.

What ties the spans of one call together is who makes which, never what they say: the same question asked twice is two
calls. A model around models (a router, one with fallbacks) is none; those that it asks are.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from attr_core.capture import Complaints, RunRecorder, guarded
from attr_core.types import Generation
from attr_llamaindex.convert import to_answer, to_generation
from attr_llamaindex.kinds import Kind
from attr_llamaindex.payloads import asked_of, is_stream
from attr_llamaindex.records import Call, Run, Span
from attr_llamaindex.streams import is_running

__all__ = ["Calls"]

_OWN = frozenset({Kind.TOOL, Kind.TOOL_STEP, Kind.QUERY, Kind.CHAT, Kind.WORKFLOW, Kind.RETRIEVER, Kind.SYNTHESIZER})
"""Whose calls are their own, not part of a call around them."""


class Calls:
    """The model calls that are open.

    Parameters
    ----------
    recorder : RunRecorder
    ended : callable
        Told the run whenever one of its calls has ended.
    """

    def __init__(self, recorder: RunRecorder, ended: Callable[[Run], None]) -> None:
        self._recorder = recorder
        self._ended = ended
        self._calls: dict[str, Call] = {}
        self._streams: dict[str, Call] = {}

    def __len__(self) -> int:
        return len(self._calls) + len(self._streams)

    @property
    def complaints(self) -> Complaints:
        return self._recorder.complaints

    def begin(self, span: Span, arguments: Mapping[str, Any]) -> Generation | None:
        """The generation that a span begins; ``None`` where it is part of a call that is under way."""
        around = self._around(span)
        if around is not None and around.instance is span.instance:
            span.call = around
            around.spans.append(span.id)
            self._calls[span.id] = around
            return None
        if around is not None:
            self._recorder.withdraw(around.id)
        asked, options = asked_of(arguments)
        generation = to_generation(
            asked if isinstance(asked, str | list | tuple) else str(asked),
            llm=span.instance,
            options=options,
            rendered=next((one.rendered for one in span.around() if one.rendered), {}),
        )
        tools = tuple(one.id for one in span.around() if one.kind in (Kind.TOOL, Kind.TOOL_STEP))
        span.call = Call(span.id, span.run, span.instance, generation.id, [span.id], tools)
        self._calls[span.id] = span.call
        span.run.last_generation = generation.id
        return generation

    def at_work(self) -> Call | None:
        """The call whose stream is being read further up in this very stack: what begins here is done by it."""
        streams = (call for call in reversed(list(self._streams.values())) if call.stream is not None)
        return next((call for call in streams if call.stream is not None and is_running(call.stream())), None)

    def leave(self, span: Span, result: Any) -> None:
        """A model's method has given something: its answer, or a stream that is yet to be read."""
        call = span.call
        if call is None or call.id != span.id:
            self._recorder.finish(span.id)
        elif not is_stream(result):
            self.end(call, to_answer(result))
        else:
            call.is_stream = True
            span.run.streams.append(call)
            self._streams[call.id] = call
            call.stream = weakref.ref(result, lambda _: self._let_go(call))

    def drop(self, span: Span, error: BaseException) -> None:
        """A model's method has failed."""
        if span.call is not None and span.call.id == span.id:
            self.fail(span.call, error)
        else:
            self._recorder.finish(span.id)  # the call that it is part of says what became of it

    def hear(self, span_id: str) -> None:
        """A model says that it is asked; where it makes several spans, the first one speaks for all."""
        call = self._calls.get(span_id)
        if call is not None and call.voice is None:
            call.voice = span_id

    def add_piece(self, span_id: str, response: Any) -> None:
        """A stream goes on."""
        call = self._calls.get(span_id)
        if call is not None and call.voice == span_id:
            call.last = response
            delta = getattr(response, "delta", None)
            if isinstance(delta, str):
                call.pieces.append(delta)

    def end_stream(self, span_id: str, response: Any) -> None:
        """A stream has come to its end."""
        if (call := self._stream(span_id)) is not None:
            last = call.last if response is None else response
            self.end(call, to_answer(last, "".join(call.pieces)))

    def fail_stream(self, span_id: str, error: BaseException) -> None:
        """A stream has failed, or was closed."""
        if (call := self._stream(span_id)) is not None:
            self.fail(call, error)

    def end(self, call: Call, found: dict[str, Any]) -> None:
        """A call has come to its end with an answer."""
        self.forget(call)
        text = found.get("response")
        call.run.last_text = text if isinstance(text, str) else call.run.last_text
        self._recorder.finish(call.id, output=text if call.id == call.run.id else None, **found)
        self._ended(call.run)

    def fail(self, call: Call, error: BaseException, *, text: str = "") -> None:
        """A call has failed; what had come by then is kept, ``text`` where the model itself did not tell."""
        self.forget(call)
        if call.voice is None and text:
            call.pieces.append(text)
        has_begun = bool(call.pieces) or call.last is not None
        partial = to_answer(call.last, "".join(call.pieces)) if has_begun else {}
        if isinstance(error, Exception):
            call.run.failed[call.generation_id] = call.tools
        self._recorder.fail(call.id, error, **partial)
        self._ended(call.run)

    def end_silent(self, run: Run, text: str) -> None:
        """End the streams of a run whose models tell nothing of them; ``text`` is what the last one gave."""
        silent = [call for call in run.streams if call.voice is None]
        for call in silent:
            self.end(call, to_answer(None, text) if call is silent[-1] else {})

    def forget(self, call: Call) -> None:
        """Keep nothing of a call any longer."""
        call.is_over = True
        for span_id in call.spans:
            self._calls.pop(span_id, None)
        if self._streams.pop(call.id, None) is not None:
            call.run.streams.remove(call)

    def _stream(self, span_id: str) -> Call | None:
        call = self._calls.get(span_id)
        return call if call is not None and call.voice == span_id and call.is_stream else None

    def _around(self, span: Span) -> Call | None:
        """The call that makes this one: by a method of a model, or by a stream of one that is at work here."""
        for one in span.around():
            if one.call is not None:
                return one.call
            if one.kind in _OWN:
                break
        call = self.at_work() if self._streams else None
        return call if call is not None and call.run is span.run else None

    @guarded
    def _let_go(self, call: Call) -> None:
        """A stream was collected. Of one without events, the reader of the response tells the end."""
        if not call.is_over and (call.voice is not None or not call.run.is_read):
            self.fail(call, GeneratorExit())
