"""How texts, numbers and names are said in a terminal; what a model or document wrote is shown as inert text."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

from attr_core._segmenting.origins import position_of, producer
from attr_core.attribution import Attribution
from attr_core.types import Claim, Generation, Segment, SegmentKind, Target, ToolCall, Trace, call_text

_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")

MANY_SEGMENTS = 10
"""Beyond so many, what the context is made of is said in a line."""

MAX_CALLS = 3
"""Most tool calls of a step that are named."""

CALL_WIDTH = 80
TOOL_WIDTH = 24
QUOTE_WIDTH = 200

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(#\d+)?")
_CALL_BEGINS = call_text("", {}).partition("{}")[0]
_KEY = re.compile(r'"((?:[^"\\]|\\.)*)": "?$')
_KEY_REACH = 200


def visible(text: str) -> str:
    """``text`` on one line, with control characters, lone surrogates and bidi overrides replaced by U+FFFD."""
    flat = " ".join(text.split())
    return "".join(
        "\ufffd" if char in _BIDI_CONTROLS or unicodedata.category(char) in ("Cc", "Cs") else char for char in flat
    )


def cropped(text: str, width: int) -> str:
    """``text`` made visible, its end replaced by an ellipsis where it has more than ``width`` characters."""
    flat = visible(text)
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def quoted(text: str) -> str:
    """``text`` in quotes, cropped."""
    return f"“{cropped(text, QUOTE_WIDTH)}”"


def signed(value: float) -> str:
    """An effect."""
    return "–" if math.isnan(value) else f"{value:+.2f}"


def listed(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def source_name(segment: Segment, origin: str = "") -> str:
    """Id, group, and kind where it says more than ``origin`` and that it is a chunk."""
    named = segment.group_id if segment.group_id and segment.group_id != segment.id else None
    label = f"{segment_name(segment)} ({named})" if named else segment_name(segment)
    return visible(f"{label} {_kind(segment, origin)}".rstrip())


def segment_name(segment: Segment) -> str:
    """Its id; of a UUID, as frameworks name chunks, the first part."""
    return visible(segment.id.split("-", 1)[0] if _UUID.fullmatch(segment.id) else segment.id)


def place_name(segment: Segment, origin: str = "") -> str:
    """Kind and origin, as far as they say something: ``memory``, ``from tool `search`, step 1``."""
    return ", ".join(filter(None, (_kind(segment, origin), origin)))


def _kind(segment: Segment, origin: str) -> str:
    is_said = segment.kind is SegmentKind.TOOL_OUTPUT and origin.startswith("from tool")
    return "" if is_said or segment.kind is SegmentKind.RETRIEVED else segment.kind.value


def origins_of(attribution: Attribution, trace: Trace | None) -> dict[str, str]:
    """By segment id, where the text came from, as far as the trace explains it: ``from tool `search`, step 1``."""
    generation = _generation(attribution, trace)
    if trace is None or generation is None:
        return {}
    found = {}
    for segment in attribution.segments:
        if segment.origin and (told := producer(trace, generation, segment)):
            tool, step = told
            parts = [f"tool `{cropped(tool, TOOL_WIDTH)}`"] if tool else []
            found[segment.id] = "from " + ", ".join([*parts, *([f"step {step}"] if step else [])])
    return found


def made_of(segments: Sequence[Segment]) -> str:
    """``34 segments: 12 retrieved, 9 tool_output, ...``; empty where there are few."""
    if len(segments) <= MANY_SEGMENTS:
        return ""
    kinds = Counter(segment.kind.value for segment in segments)
    return f"{len(segments)} segments: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())


def step_shown(attribution: Attribution, trace: Trace | None) -> tuple[str, str] | None:
    """Which step of the run is shown, and what the model did there; ``None`` for a run of one, or an unknown one."""
    generation = _generation(attribution, trace)
    if trace is None or generation is None or len(trace.generations) < 2:
        return None
    name = f"step {position_of(trace, generation) + 1} of {len(trace.generations)}"
    if is_answer(attribution, trace) and not generation.tool_calls:
        return name, "the answer"
    did = ["wrote a text"] if generation.response and generation.response.strip() else []
    if generation.tool_calls:
        did.append(f"called {listed([_call(call) for call in generation.tool_calls], MAX_CALLS)}")
    return name, f"the model {' and '.join(did)}"


def is_answer(attribution: Attribution, trace: Trace | None) -> bool:
    """Whether what is explained is the run's answer, as it is unless the trace knows better."""
    generation = _generation(attribution, trace)
    if trace is None or generation is None:
        return not all(is_call(claim) for claim in attribution.claims)
    return generation.id == trace.target_generation.id and bool((generation.response or "").strip())


def is_call(claim: Claim) -> bool:
    """Whether the claim is a tool call."""
    return claim.text.startswith(_CALL_BEGINS)


def value_name(attribution: Attribution, value: Target) -> str:
    """What a value of a tool call is called there: the argument's key, or ``tool`` for the call's name."""
    claim = attribution.claims[value.claim or 0]
    if attribution.response[value.end : claim.end] == '"}':
        return "tool"
    before = attribution.response[max(claim.start, value.start - _KEY_REACH) : value.start]
    key = _KEY.search(before)
    return cropped(key[1], TOOL_WIDTH) if key else "value"


def _generation(attribution: Attribution, trace: Trace | None) -> Generation | None:
    generations = () if trace is None else trace.generations
    return next((one for one in generations if one.id == attribution.generation_id), None)


def _call(call: ToolCall) -> str:
    arguments = call.arguments
    if isinstance(arguments, Mapping):
        told = ", ".join(f"{key}={_value(value)}" for key, value in arguments.items())
    else:
        told = "" if arguments is None else _value(arguments)
    return f"{cropped(call.name, TOOL_WIDTH)}({cropped(told, CALL_WIDTH)})"


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
