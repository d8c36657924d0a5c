"""What is said of a label: a headline that a user would repeat, and what to do about it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from attr_core.diagnosis.facts import Facts
from attr_core.diagnosis.table import Finding, Label
from attr_core.types import Segment

__all__ = ["FIXES", "headline", "named"]

MAX_NAMED = 3

FIXES: Mapping[Label, tuple[str, ...]] = {
    Label.INCONCLUSIVE: (
        "see what failed under evidence; name a judge (--judge) and an engine that can answer again (--engine)",
    ),
    Label.FLAKY: ("lower the temperature, or take the majority of several answers",),
    Label.TOOL_ERROR: ("repair the tool, or let the application retry it and say when it failed",),
    Label.CORRECT_ABSTENTION: ("nothing about the model: add the document, or retrieve it",),
    Label.OVER_REFUSAL: ("soften the instruction to decline; ask for a quotation before the answer",),
    Label.OK: (),
    Label.RETRIEVAL_MISS: ("retrieve more, search by words and by meaning, rewrite the query, or add the document",),
    Label.DROPPED_FROM_PROMPT: ("look at what cuts the context: token limits, filters, removal of duplicates",),
    Label.CONTEXT_CONFLICT: ("say which source or date takes precedence, or have the answer name both",),
    Label.CHUNK_DOMINANCE: ("re-rank or drop that source",),
    Label.DISTRACTION: ("pass fewer chunks, or re-rank and cut by relevance",),
    Label.MEMORY_OVERRIDE: ("expire or correct that memory; put retrieved facts behind it, and say that they win",),
    Label.PARAMETRIC_ANSWER: ("ask for answers from the context only, with a quotation, or use another model",),
    Label.GENERATION_IGNORE: ("ask for a quotation of the context; shorten it; move it next to the question",),
    Label.MISREADING: ("cut chunks so that a fact stands alone, or use a stronger model",),
    Label.POSITION: ("put the most relevant chunk first or last, or pass fewer",),
    Label.COMPOUND: ("drop or correct all of these sources; removing one does not help",),
    Label.INSTRUCTION_INJECTION: (
        "quarantine that source; mark retrieved text as data, and filter instructions in it",
    ),
    Label.INCOMPLETE_ANSWER: ("split the question, or ask for every part of it",),
}
"""What to do about each label; the first is what to try first."""


def headline(finding: Finding, facts: Facts) -> str:
    """One sentence on what happened."""
    pasted = {facts.sources[column].id for column in facts.current}
    who = named([facts.sources[column] for column in finding.columns], pasted)
    right = "the answer is right" if facts.has_expected else "the answer no longer says so"
    is_one = len(finding.columns) == 1
    without = f"without {'it' if is_one else 'them'} {right}"
    verb = "" if is_one else "together "
    told = {
        Label.INCONCLUSIVE: f"nothing can be said for sure: {'; '.join(finding.evidence[:1])}",
        Label.FLAKY: "the failure comes and goes: the unchanged prompt, run again, also gives a right answer",
        Label.TOOL_ERROR: f"a tool failed, and the answer with it: {'; '.join(finding.evidence[:1])}",
        Label.CORRECT_ABSTENTION: "the model declined, and rightly so: the context does not hold the answer",
        Label.OVER_REFUSAL: f"the model declined although {who or 'the context'} holds the answer",
        Label.OK: f"the answer is right{f', and {who} says so' if who else ''}"
        if facts.has_expected
        else "every claim of the answer is supported by the context; whether it is right was not asked",
        Label.RETRIEVAL_MISS: "what the answer needs was not retrieved",
        Label.DROPPED_FROM_PROMPT: "what the answer needs was retrieved, and never reached the prompt: "
        + ", ".join(document.id for document in facts.dropped[:MAX_NAMED]),
        Label.CONTEXT_CONFLICT: f"the sources contradict each other: {who}",
        Label.CHUNK_DOMINANCE: f"{who} {verb}misled the model: {without}",
        Label.DISTRACTION: f"{who} have nothing to do with the question and distracted the model: {without}",
        Label.MEMORY_OVERRIDE: f"{who} overrode what was retrieved: {without}",
        Label.PARAMETRIC_ANSWER: _own_words(facts, who),
        Label.GENERATION_IGNORE: f"the model ignored {who or 'the context'}, which holds the right answer",
        Label.MISREADING: f"the model misread {who or 'the context'}, which holds the right answer",
        Label.POSITION: f"the right answer stands in {who or 'the context'}, but in a place that the model overlooks",
        Label.COMPOUND: f"{who} {verb}misled the model: only without all of them {right}",
        Label.INSTRUCTION_INJECTION: f"{who} gave the model orders that it followed: {without}",
        Label.INCOMPLETE_ANSWER: f"the answer leaves out a part of what {who or 'the context'} says",
    }
    return told[finding.label]


def _own_words(facts: Facts, who: str) -> str:
    if facts.said_by_instruction:
        return f"the model said what its instruction says, although {who or 'the context'} says otherwise"
    if facts.has_expected or who:
        return f"the model held on to its own belief although {who or 'the context'} says otherwise"
    return "the model said what no segment states, and says it without any context too"


def named(segments: Sequence[Segment], pasted: Collection[str] = ()) -> str:
    """The first few segments as a user knows them: what they are, their document or id, and its source.

    ``pasted`` are ids of those that stand in the turn with the question and are no known document.
    """
    texts = [f"part {one.id} of the prompt" if one.id in pasted else _name(one) for one in segments[:MAX_NAMED]]
    more = len(segments) - len(texts)
    return (
        ", ".join(texts[:-1])
        + (" and " if len(texts) > 1 and not more else ", " if len(texts) > 1 else "")
        + (texts[-1] + (f" and {more} more" if more else "") if texts else "")
    )


def _name(segment: Segment) -> str:
    kind = {"retrieved": "chunk", "tool_output": "tool output", "memory": "memory"}.get(segment.kind, "turn")
    name = segment.documents[0] if segment.documents else segment.id
    source = segment.group_id
    return f"{kind} {name}" + (f" of {source}" if source and source != name else "")
