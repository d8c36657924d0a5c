"""Steps -> a trace, and what the record lacked."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from attr_core._plain import plain
from attr_core.errors import InputError
from attr_core.importing.steps import Step, documents_in, looks_like_documents
from attr_core.types import Document, Generation, Message, Retrieval, ToolCall, Trace

__all__ = ["Run", "assemble", "stable_id"]

_EARLIEST = datetime.min.replace(tzinfo=UTC)
HIDDEN = "__REDACTED__"
"""What OpenInference writes in the place of what was to be hidden."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an application as another tool recorded it, and what that tool knows of the whole."""

    id: str
    steps: tuple[Step, ...]
    source: str
    query: str | None = None
    answer: str | None = None
    session: str | None = None
    tags: tuple[str, ...] = ()


def assemble(run: Run) -> tuple[Trace, tuple[str, ...]]:
    """The trace of a run and notes on what its record lacks; the same record gives the same trace, ids included.

    Raises
    ------
    InputError
        It holds no model call, or none whose prompt was recorded.
    """
    steps = [_as_retrieval(step, run.steps) for step in _in_order(run.steps)]
    calls = [step for step in steps if step.kind == "llm"]
    if not calls:
        kinds = ", ".join(sorted({step.kind for step in steps})) or "nothing"
        raise InputError(f"it holds no model call (only {kinds}); nothing can be attributed")
    with_prompts = [step for step in calls if step.messages and not _is_hidden(step)]
    if not with_prompts:
        raise InputError("no prompt of a model call was recorded, or all are hidden; export them with their inputs")
    answered = [step for step in calls if step.response is not None and step.response.content]
    if answered and answered[-1] not in with_prompts:
        raise InputError("the prompt of the model call that answered was not recorded, or is hidden; export it too")
    generations = tuple(_generation(step, run) for step in with_prompts)
    roots = _roots(steps)
    trace = Trace(
        id=stable_id("tr", run.source, run.id),
        query=run.query or _first_text(roots, "text_in", skip="llm"),
        generations=generations,
        answer=_answer(run, roots, generations),
        retrievals=tuple(_retrievals(steps, run)),
        tool_calls=tuple(_tool_call(step, generations, run) for step in steps if step.kind == "tool"),
        tags=run.tags,
        framework=run.source,
        run_id=run.id,
        session_id=run.session,
        status="error" if (error := next((step.error for step in roots if step.error), None)) else "ok",
        error=error,
        started=min((step.started for step in steps if step.started), default=None),
        finished=max((step.finished for step in steps if step.finished), default=None),
    )
    notes = tuple(dict.fromkeys(_notes(trace, steps, calls, len(roots))))
    return replace(trace, metadata={"imported": {"from": run.source, "notes": list(notes)}}), notes


def stable_id(prefix: str, source: str, *names: str) -> str:
    """An id that follows from the source's own."""
    digest = hashlib.sha256(json.dumps([source, *names]).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{prefix}_{digest[:16]}"


def _in_order(steps: Sequence[Step]) -> list[Step]:
    """By when they began; those without a time after the one that stands before them in the file."""
    moments, last = [], _EARLIEST
    for step in steps:
        last = step.started or last
        moments.append(last)
    order = sorted(range(len(steps)), key=lambda n: (moments[n], n))
    return [steps[n] for n in order]


def _roots(steps: Sequence[Step]) -> list[Step]:
    known = {step.id for step in steps}
    return [step for step in steps if step.parent is None or step.parent not in known] or list(steps[:1])


def _as_retrieval(step: Step, steps: Sequence[Step]) -> Step:
    """A tool or plain span that gave documents, as the retrieval that it is; one that holds others only repeats."""
    if step.kind not in ("tool", "other") or any(other.parent == step.id for other in steps):
        return step
    found, lost = step.documents, step.lost
    if not found and looks_like_documents(step.value_out):
        found, lost = documents_in(step.value_out)
    if not found:
        return step
    kind = "a tool" if step.kind == "tool" else "no retrieval"
    told = f"step {step.name or step.id!r} is recorded as {kind} and gave documents: read as a retrieval"
    return replace(step, kind="retriever", documents=found, lost=lost, notes=(*step.notes, told))


def _is_hidden(step: Step) -> bool:
    return all(message.content in (HIDDEN, "") and not message.tool_calls for message in step.messages)


def _generation(step: Step, run: Run) -> Generation:
    said = step.response
    return Generation(
        messages=step.messages,
        response=said.content or None if said is not None and said.content != HIDDEN else None,
        id=stable_id("gen", run.source, run.id, step.id),
        tools=step.tools,
        tool_calls=said.tool_calls if said is not None else (),
        finish_reason=step.finish_reason,
        model=step.model,
        parameters=step.parameters,
        usage=step.usage,
        error=step.error,
    )


def _answer(run: Run, roots: Sequence[Step], generations: Sequence[Generation]) -> str | None:
    """What the application gave back where that is a text, else what the model that answered said."""
    said = run.answer or _first_text(roots, "text_out", skip="llm")
    if said is not None:
        return said
    return next((one.response for one in reversed(generations) if one.response), None)


def _first_text(steps: Sequence[Step], which: Literal["text_in", "text_out"], *, skip: str) -> str | None:
    texts = (getattr(step, which) for step in steps if step.kind != skip)
    return next((text for text in texts if text and text != HIDDEN), None)


def _retrievals(steps: Sequence[Step], run: Run) -> Iterator[Retrieval]:
    """Each document once: rerankers hand on what was retrieved before them."""
    seen: set[tuple[str, str]] = set()
    n_named: Counter[str] = Counter()
    for step in steps:
        if step.kind != "retriever":
            continue
        new = [one for one in step.documents if (one.id, one.text) not in seen and one.text != HIDDEN]
        seen.update((one.id, one.text) for one in new)
        if new:
            documents = tuple(_told_apart(one, n_named) for one in new)
            yield Retrieval(step.text_in, documents, id=stable_id("ret", run.source, run.id, step.id), name=step.name)


def _told_apart(document: Document, n_named: Counter[str]) -> Document:
    """With an id of its own, where a tool gave one id to several chunks of a run."""
    n_named[document.id] += 1
    n = n_named[document.id]
    return document if n == 1 else replace(document, id=f"{document.id}#{n}")


def _tool_call(step: Step, generations: Sequence[Generation], run: Run) -> ToolCall:
    asked = {call.id: one.id for one in generations for call in one.tool_calls if call.id}
    output = step.value_out
    if output is not None and not isinstance(output, str):
        output = json.dumps(plain(output), ensure_ascii=False)
    name = step.call_id or stable_id("call", run.source, run.id, step.id)
    return ToolCall(
        id=name,
        name=step.name or "tool",
        arguments=plain(step.arguments),
        output=output,
        error=step.error,
        generation_id=asked.get(name),
    )


def _notes(trace: Trace, steps: Sequence[Step], calls: Sequence[Step], n_roots: int) -> Iterator[str]:
    for step in steps:
        yield from step.notes
    if missing := len(calls) - len(trace.generations):
        yield f"{missing} model {_calls(missing)} without a recorded prompt left out"
    target = trace.target_generation
    if not target.written:
        yield "no answer of a model was recorded: nothing can be attributed or diagnosed"
    if target.model is None:
        yield "the model that answered was not recorded"
    if "temperature" not in target.parameters:
        yield "the temperature was not recorded"
    if trace.query is None:
        yield "the question was not recorded apart from the prompt: the last user turn is taken as it"
    if not trace.retrievals and not trace.tool_calls:
        yield "no retrieval was recorded: the prompt's texts are known by their messages only"
    if lost := sum(step.lost for step in steps):
        yield f"{lost} retrieved documents have no text in the record and were left out"
    if trace.started is None:
        yield "no time was recorded"
    if n_roots > 1:
        yield f"{n_roots} steps have no parent in the record: parts of the run may be missing"
    if any(_is_cut(message) for one in trace.generations for message in one.messages):
        yield "some messages hold parts that are no text: a bracketed note stands for each"


def _calls(n: int) -> str:
    return "call was" if n == 1 else "calls were"


def _is_cut(message: Message) -> bool:
    return any(note in message.content for note in ("[image_url]", "[input_image]"))
