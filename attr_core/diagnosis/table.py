"""The decision table: facts -> labels, in the order in which they are decided. ``docs/diagnosis.md`` is its prose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from attr_core.diagnosis.facts import UNTRUSTED, Facts, Need, Trials
from attr_core.outcomes import Outcome

__all__ = ["Finding", "Label", "findings"]


class Label(StrEnum):
    """What went wrong, or that nothing did; in the order in which they are decided."""

    INCONCLUSIVE = "inconclusive"
    FLAKY = "flaky"
    TOOL_ERROR = "tool_error"
    CORRECT_ABSTENTION = "correct_abstention"
    OVER_REFUSAL = "over_refusal"
    OK = "ok"
    RETRIEVAL_MISS = "retrieval_miss"
    DROPPED_FROM_PROMPT = "dropped_from_prompt"
    CONTEXT_CONFLICT = "context_conflict"
    CHUNK_DOMINANCE = "chunk_dominance"
    DISTRACTION = "distraction"
    MEMORY_OVERRIDE = "memory_override"
    PARAMETRIC_ANSWER = "parametric_answer"
    GENERATION_IGNORE = "generation_ignore"
    MISREADING = "misreading"
    POSITION = "position"
    COMPOUND = "compound"
    INSTRUCTION_INJECTION = "instruction_injection"
    INCOMPLETE_ANSWER = "incomplete_answer"


@dataclass(frozen=True, slots=True)
class Finding:
    """A label that applies, the columns it is about, the runs that prove it, and what was seen, in words."""

    label: Label
    columns: tuple[int, ...] = ()
    proof: Trials | None = None
    evidence: tuple[str, ...] = ()


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Every label that applies, in order; never none: what no rule covers is ``inconclusive``."""
    found = tuple(finding for rule in _RULES if (finding := rule(facts)) is not None)
    return found or (Finding(Label.INCONCLUSIVE, evidence=tuple(_uncovered(facts))),)


def _inconclusive(facts: Facts) -> Finding | None:
    """What is asked for could not be measured, or chance would explain it as well."""
    told = list(facts.trouble)
    if facts.outcome is Outcome.UNDETERMINED:
        told += () if told else ("the judge did not say whether the answer is right",)
    elif facts.outcome is not Outcome.RIGHT and not facts.tool_errors:
        told += _unsure(facts)
    return Finding(Label.INCONCLUSIVE, evidence=tuple(told)) if told else None


def _unsure(facts: Facts) -> Iterator[str]:
    if facts.need is Need.UNKNOWN and facts.has_expected:
        yield "the judge did not say whether the context holds what is needed"
    unchanged = facts.unchanged
    if unchanged is None:
        return
    if facts.is_answered_by_other and unchanged.repairs:
        yield "the measuring model answers the unchanged prompt rightly: measure on the model that answered"
    elif unchanged.n == 0:
        yield "the judge did not say what answers to the unchanged prompt amount to"
    elif facts.unproved and facts.repair is None and not unchanged.n_repaired:
        yield "some changes repaired the answer in some runs, but not more often than chance would explain"
    elif _is_unrepaired(facts) and not unchanged.stays and not unchanged.n_repaired:
        yield "the unchanged prompt, run again, gets neither the recorded answer nor one other wrong one each time"


def _flaky(facts: Facts) -> Finding | None:
    """The unchanged prompt repairs itself, and no change does so more often."""
    runs = facts.unchanged
    if runs is None or not runs.n_repaired or (facts.is_answered_by_other and runs.repairs):
        return None
    if facts.outcome is Outcome.RIGHT:  # with a claim too many, which comes and goes
        return None
    if facts.repair is not None or facts.reordered is not None:
        return None
    told = f"the unchanged prompt, run again, was repaired in {runs.n_repaired} of {runs.n} runs"
    return Finding(Label.FLAKY, proof=runs, evidence=(told,))


def _tool_error(facts: Facts) -> Finding | None:
    if not facts.tool_errors or facts.outcome is Outcome.RIGHT:
        return None
    told = tuple(f"tool {call.name!r} failed: {call.error or call.output}" for call in facts.tool_errors)
    return Finding(Label.TOOL_ERROR, proof=facts.unchanged, evidence=told)


def _correct_abstention(facts: Facts) -> Finding | None:
    if facts.outcome is not Outcome.REFUSED or facts.need not in (Need.MISSING, Need.DROPPED):
        return None
    what = "what is expected" if facts.has_expected else "anything that helps to answer"
    return Finding(Label.CORRECT_ABSTENTION, evidence=(f"the answer declines, and no segment states {what}",))


def _over_refusal(facts: Facts) -> Finding | None:
    if facts.outcome is not Outcome.REFUSED or facts.need is not Need.THERE:
        return None
    told = ["the answer declines, though the context states what is needed"]
    return Finding(Label.OVER_REFUSAL, facts.right or facts.culprits, facts.repair, tuple(told))


def _ok(facts: Facts) -> Finding | None:
    if facts.outcome is not Outcome.RIGHT or _is_injected(facts):
        return None
    told = ["the answer states what is expected" if facts.has_expected else "every claim is stated by some segment"]
    if facts.at_issue:
        told.append(f"{len(facts.at_issue)} further claims are stated by no segment")
    return Finding(Label.OK, facts.right, evidence=tuple(told))


def _retrieval_miss(facts: Facts) -> Finding | None:
    if facts.need is not Need.MISSING or facts.outcome is Outcome.RIGHT:
        return None
    what = "what is expected" if facts.has_expected else "anything that helps to answer"
    return Finding(
        Label.RETRIEVAL_MISS, evidence=(f"no segment of the prompt and no retrieved document states {what}",)
    )


def _dropped_from_prompt(facts: Facts) -> Finding | None:
    if facts.need is not Need.DROPPED or facts.outcome is Outcome.RIGHT:
        return None
    named = ", ".join(document.id for document in facts.dropped)
    return Finding(Label.DROPPED_FROM_PROMPT, evidence=(f"retrieved, but not in the prompt: {named}",))


def _context_conflict(facts: Facts) -> Finding | None:
    """Segments contradict each other, and the answer follows neither side alone, or nobody knows which is right."""
    pairs = [
        pair for pair in facts.conflicts if pair.claim is None or facts.has_expected or pair.claim in facts.at_issue
    ]
    if not pairs or not _is_wrong(facts):
        return None
    columns = tuple(sorted({column for pair in pairs for column in (pair.first, pair.second)}))
    sides = (facts.without_right, facts.without_wrong)
    told = f"{len(pairs)} pairs of segments contradict each other"
    if not facts.has_expected:
        return Finding(Label.CONTEXT_CONFLICT, columns, facts.repair, (told, "which side is right is not known"))
    if any(one is None or one.stays for one in sides) or not sides[1] or not sides[1].repairs or not _is_steady(facts):
        return None
    trusted = facts.kinds([column for column in columns if column not in facts.current]) - UNTRUSTED
    if not set(facts.culprits) <= set(facts.wrong) or trusted:
        return None
    return Finding(
        Label.CONTEXT_CONFLICT,
        columns,
        facts.repair or facts.without_wrong,
        (told, "the answer becomes another one without either side"),
    )


def _chunk_dominance(facts: Facts) -> Finding | None:
    """One unit, retrieved or from a tool, without which the answer is right."""
    if not _is_single(facts) or not facts.are_given(facts.culprits) or _is_injected(facts):
        return None
    return Finding(Label.CHUNK_DOMINANCE, facts.culprits, facts.repair, _without(facts))


def _distraction(facts: Facts) -> Finding | None:
    """Only removing several repairs, and they have nothing to do with the matter."""
    if not _is_misled(facts) or facts.of_units < 2 or facts.reordered is not None:
        return None
    if set(facts.culprits) & set(facts.wrong):
        return None
    return Finding(Label.DISTRACTION, facts.culprits, facts.repair, _without(facts))


def _memory_override(facts: Facts) -> Finding | None:
    if not _is_misled(facts) or not facts.culprits or not facts.are_remembered(facts.culprits):
        return None
    return Finding(Label.MEMORY_OVERRIDE, facts.culprits, facts.repair, _without(facts))


def _parametric_answer(facts: Facts) -> Finding | None:
    """Right context is there, nothing repairs, and the model says the same without any context."""
    if not (_is_unrepaired(facts) or _is_unsupported(facts)) or facts.nothing is None or not facts.nothing.stays:
        return None
    told = ["without any context the answer is the same"]
    told += ["the instruction states what the answer says"] if facts.said_by_instruction else []
    told += [] if facts.has_expected else ["which is right is not known: no answer is expected"]
    return Finding(Label.PARAMETRIC_ANSWER, facts.right or facts.against, facts.nothing, tuple(told))


def _generation_ignore(facts: Facts) -> Finding | None:
    """Right context is there and does not matter, and it is not what the model says without context either."""
    if not _is_unrepaired(facts) or facts.without_right is None or not facts.without_right.stays:
        return None
    if facts.nothing is not None and facts.nothing.stays:
        return None
    told = "without the segments that state the right answer, the answer is the same"
    return Finding(Label.GENERATION_IGNORE, facts.right, facts.without_right, (told,))


def _misreading(facts: Facts) -> Finding | None:
    """Right context matters, and the answer is wrong with it alone."""
    if not _is_unrepaired(facts) or not _is_steady(facts):
        return None
    if facts.without_right is None or facts.without_right.stays:
        return None
    if facts.outcome is not Outcome.WRONG or (facts.only_right is not None and facts.only_right.repairs):
        return None
    told = ["without the segments that state the right answer, the answer is another one"]
    told += ["with these alone it is still wrong"] if facts.only_right else []
    return Finding(Label.MISREADING, facts.right, facts.without_right, tuple(told))


def _position(facts: Facts) -> Finding | None:
    if facts.reordered is None or not _is_wrong(facts):
        return None
    return Finding(
        Label.POSITION, facts.right, facts.reordered, ("in another order the same segments repair the answer",)
    )


def _compound(facts: Facts) -> Finding | None:
    """Only removing several repairs, and they have to do with the matter."""
    if not _is_misled(facts) or facts.of_units < 2 or not set(facts.culprits) & set(facts.wrong):
        return None
    told = ["leaving any of them in does not"] if facts.is_smallest else []
    return Finding(Label.COMPOUND, facts.culprits, facts.repair, (*_without(facts), *told))


def _instruction_injection(facts: Facts) -> Finding | None:
    if not _is_injected(facts):
        return None
    told = "the answer comes to another question too: it is not the user's turn that drives it"
    return Finding(Label.INSTRUCTION_INJECTION, facts.culprits, facts.repair, (*_without(facts), told))


def _incomplete_answer(facts: Facts) -> Finding | None:
    if facts.outcome is not Outcome.INCOMPLETE:
        return None
    return Finding(
        Label.INCOMPLETE_ANSWER, facts.right, evidence=("a part of what is expected is missing in the answer",)
    )


def _is_wrong(facts: Facts) -> bool:
    return facts.outcome in (Outcome.WRONG, Outcome.INCOMPLETE, Outcome.REFUSED) or bool(facts.at_issue)


def _is_misled(facts: Facts) -> bool:
    """Something was removed, and the answer is repaired; a right one that says too much is none of that."""
    return facts.repair is not None and facts.outcome is not Outcome.RIGHT


def _is_single(facts: Facts) -> bool:
    return _is_misled(facts) and facts.of_units < 2 and bool(facts.culprits)


def _is_injected(facts: Facts) -> bool:
    """The answer comes to another question too, and no longer once the culprit is gone."""
    obeyed, otherwise = facts.other_question, facts.other_without
    if facts.repair is None or obeyed is None or not obeyed.stays:
        return False
    return otherwise is not None and not otherwise.stays


def _is_unrepaired(facts: Facts) -> bool:
    """The right context is all there, the answer is not right, and nothing that was tried repairs it."""
    if facts.repair is not None or facts.reordered is not None or facts.need is not Need.THERE:
        return False
    return facts.outcome is Outcome.WRONG and facts.has_expected


def _is_unsupported(facts: Facts) -> bool:
    """No answer is expected, the context helps to answer, and what it does not state stays whatever is removed."""
    if facts.has_expected or facts.repair is not None or facts.reordered is not None:
        return False
    return facts.outcome is Outcome.WRONG and facts.need is Need.THERE


def _is_steady(facts: Facts) -> bool:
    """Whether the unchanged prompt gets one answer, so that another one is a change's doing."""
    return facts.unchanged is None or facts.unchanged.stays


def _uncovered(facts: Facts) -> Iterator[str]:
    """What is known where no label applies."""
    yield "no label covers what was found"
    if facts.judged is not None and facts.at_issue:
        told = "are wrong" if facts.has_expected else "no segment states, or one contradicts"
        yield f"{len(facts.at_issue)} of {len(facts.judged.claims)} claims {told}"
    if facts.unchanged is not None and not facts.sources:
        yield "the prompt holds no source that could be removed"
    elif facts.unchanged is not None and facts.repair is None:
        yield "no change that was tried repairs the answer"
    if facts.nothing is not None:
        yield f"without any context the answer is {'the same' if facts.nothing.stays else 'another one'}"


def _without(facts: Facts) -> tuple[str, ...]:
    repair, unchanged = facts.repair, facts.unchanged
    if repair is None or unchanged is None:
        return ()
    right = "right" if facts.has_expected else "no longer what is at issue"
    who = _named(facts)
    told = f"{who} harmful: without, the answer is {right} in {repair.n_repaired} of {repair.n} runs"
    return (f"{told}, with the unchanged prompt in {unchanged.n_repaired} of {unchanged.n}",)


def _named(facts: Facts) -> str:
    names = [facts.sources[column].id for column in facts.culprits]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are together'}"


_RULES: tuple[Callable[[Facts], Finding | None], ...] = (
    _inconclusive,
    _flaky,
    _tool_error,
    _correct_abstention,
    _over_refusal,
    _ok,
    _retrieval_miss,
    _dropped_from_prompt,
    _context_conflict,
    _chunk_dominance,
    _distraction,
    _memory_override,
    _parametric_answer,
    _generation_ignore,
    _misreading,
    _position,
    _compound,
    _instruction_injection,
    _incomplete_answer,
)
