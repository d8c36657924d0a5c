"""How an agent's run of many mixed segments reads in a terminal."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from attr_core.api import attribute
from attr_core.attribution import Attribution
from attr_core.reports.compact import compact
from attr_core.reports.terminal import render_attribution
from attr_core.results import Pair, RedundancyGroup
from attr_core.testing import AdditiveEngine
from attr_core.types import Document, Generation, Message, TargetKind, ToolCall, Trace

QUESTION = "I go on Saturday: when did the festival open, when is the last train back, and where do I eat?"
OPENED = "The Aldemoor Lantern Festival opened in 1911 on the mill pond, with forty paper lanterns."
LAST_TRAIN = "Saturday, from Aldemoor Halt: 19:05, 20:50, 22:40 (last)."
OLD_TRAIN = "In the old timetable the last train from Aldemoor Halt left at 21:15."
VEGETARIAN = "The user eats no meat and no fish."
MILL = "Mill House, Aldemoor: vegetarian kitchen, open until 23:00, tables by the pond."
ANSWER = "The festival opened in 1911. The last train back leaves at 22:40. Eat at Mill House, which is vegetarian."

FOUND = (
    ("lantern", OPENED),
    ("parade", "The Corvath Torch Parade opened in 1937 and ends at the town gate."),
    ("fees", "Visitors to the Aldemoor market pay four silver marks at the gate."),
    ("guild", "The lamp makers of Aldemoor formed a guild and keep a hall near the bridge."),
    ("pond", "The mill pond of Aldemoor freezes in most winters."),
    ("lamps", "Paper lanterns are made from birch paper and willow."),
    ("bridge", "The bridge at Aldemoor was rebuilt after the flood."),
    ("choir", "A choir sings on the bridge when the lanterns are lit."),
    ("old-rail", OLD_TRAIN),
    ("rooms", "Rooms in Aldemoor are booked out months before the festival."),
)
MEMORIES = (
    VEGETARIAN,
    "The user lives in Corvath.",
    "The user travels by train and owns no car.",
    "The user prefers short answers.",
    "The user was in Dunmere last spring.",
    "The user's sister is called Ilse.",
)
TURNS = (
    ("user", "Is it far from Corvath to Aldemoor?"),
    ("assistant", "About an hour by train."),
    ("user", "And is there a festival?"),
    ("assistant", "Yes, the Aldemoor Lantern Festival, every autumn."),
    ("user", "I would like to see the lanterns on the water."),
    ("assistant", "They are lit at dusk."),
)
OUTPUTS = {
    "timetable": ({"station": "Aldemoor Halt", "day": "Saturday"}, LAST_TRAIN),
    "restaurants": ({"place": "Aldemoor"}, MILL),
    "weather": ({"place": "Aldemoor", "day": "Saturday"}, "Saturday: dry, 9 degrees, light wind from the east."),
    "currency": ({"amount": 4}, "4 silver marks are 3.20 crowns."),
    "distance": ({"from": "Corvath", "to": "Aldemoor"}, "Corvath to Aldemoor: 48 km by rail."),
    "events": ({"day": "Saturday"}, "Saturday: market 09:00, choir 18:30, lanterns 19:45."),
    "tickets": ({"event": "lanterns"}, "Tickets for the lanterns: 120 left at 6 crowns."),
    "lockers": ({"station": "Aldemoor Halt"}, "No lockers at Aldemoor Halt."),
    "holidays": ({"day": "Saturday"}, "Saturday is no public holiday in Aldemoor."),
}


def agent_trace(*, hostile: str = "") -> Trace:
    """A system message, memory, earlier turns, a search that brings documents, and nine tools; three steps."""
    opening = (
        Message("system", "You plan trips. Use the tools, then answer in three short sentences."),
        *(Message("system", text, metadata={"memory": True}) for text in MEMORIES),
        *(Message(role, text) for role, text in TURNS),
        Message("user", QUESTION),
    )
    documents = tuple(Document(name, text, metadata={"source": f"{name}.md"}) for name, text in FOUND)
    listing = "\n\n".join(f"[{n}] {document.text}" for n, document in enumerate(documents, start=1))
    search = ToolCall(
        "call_search", f"search{hostile}", {"query": "Aldemoor Lantern Festival"}, listing, documents=documents
    )
    tools = [ToolCall(f"call_{name}", name, arguments, output) for name, (arguments, output) in OUTPUTS.items()]
    asked = replace(search, output=None, documents=())
    told = [replace(call, output=None) for call in tools]
    after_search = (
        *opening,
        Message("assistant", "", tool_calls=(asked,)),
        Message("tool", listing, tool_call_id="call_search"),
    )
    at_the_end = (
        *after_search,
        Message("assistant", "I will look up the rest.", tool_calls=tuple(told)),
        *(Message("tool", call.output or "", tool_call_id=call.id) for call in tools),
    )
    return Trace(
        query=QUESTION,
        generations=(
            Generation(opening, None, id="gen_1", tool_calls=(asked,)),
            Generation(after_search, "I will look up the rest.", id="gen_2", tool_calls=tuple(told)),
            Generation(at_the_end, ANSWER, id="gen_3"),
        ),
        answer=ANSWER,
        id="tr_agent",
        tool_calls=(search, *tools),
        framework="test",
    )


def engine(**weights: dict[str, float]) -> AdditiveEngine:
    facts = {
        "1911": {OPENED: 9.0, FOUND[1][1]: -4.0},
        "22:40": {LAST_TRAIN: 9.0, OLD_TRAIN: -3.0},
        "Mill": {MILL: 6.0, VEGETARIAN: 3.0},
        **weights,
    }
    return AdditiveEngine(facts, bias=-4.0, answer=ANSWER)


def shown(attribution: Attribution, trace: Trace | None, *, width: int = 120) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(render_attribution(attribution, trace))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


@pytest.fixture(scope="module")
def answered() -> Attribution:
    return attribute(agent_trace(), engine=engine(), db=":memory:")


def overview(text: str) -> list[str]:
    """The lines of the causes, each claim's on one line."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("causes"))
    told = " ".join(line[10:].strip() for line in lines[start : lines.index("", start)])
    return [f"[{part.strip()}" for part in told.split("[")[1:]]


# What it says


def test_thirty_and_more_mixed_segments_are_attributed_end_to_end(answered: Attribution) -> None:
    assert len(answered.segments) >= 30
    assert {segment.kind.value for segment in answered.segments} == {
        *("system", "memory", "user_turn", "assistant_turn", "retrieved", "tool_output"),
    }
    pivots = {answered.targets[row].text: row for row in answered.rows(TargetKind.PIVOT)}
    leading = {text: answered.segments[answered.ranking(row)[0]].text for text, row in pivots.items()}
    assert leading == {"1911": OPENED, "22:40": LAST_TRAIN, "Mill House": MILL}


def test_the_head_says_what_was_asked_of_what_it_was_made_and_which_step_it_is(answered: Attribution) -> None:
    lines = shown(answered, agent_trace()).splitlines()
    assert lines[1:4] == [
        f"question  {QUESTION}",
        "context   33 segments: 10 retrieved, 9 tool_output, 6 memory, 4 assistant_turn, 3 user_turn, 1 system",
        "step 3 of 3: the answer",
    ]
    assert lines[4].startswith(
        "answer    [1] The festival opened in «1911». [2] The last train back leaves at «22:40». [3]"
    )


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_overview_says_where_each_cause_came_from(answered: Attribution, width: int) -> None:
    assert overview(shown(answered, agent_trace(), width=width)) == [
        "[1] «1911» from lantern (from tool `search`, step 1), against parade (from tool `search`, step 1)",
        "[2] «22:40» from m17 (from tool `timetable`, step 2), against old-rail (from tool `search`, step 1)",
        "[3] «Mill House» from m18 (from tool `restaurants`, step 2), m1 (memory)",
    ]


def test_a_wide_terminal_has_one_line_a_segment(answered: Attribution) -> None:
    lines = shown(answered, agent_trace(), width=160).splitlines()
    here = next(n for n, line in enumerate(lines) if line.startswith("  «22:40»  "))
    assert lines[here + 1].split() == ["effect", "interval", "drop", "verdict", "given", "earlier", "source", "text"]
    assert lines[here + 2].split()[:7] == ["+9.00", "+9.0", "to", "+9.0", "+9.00", "drives", "+9.00"]
    assert " m17 from tool `timetable`, step 2  " in lines[here + 2]
    assert f"  {LAST_TRAIN[:40]}" in lines[here + 2]


def test_a_terminal_of_120_columns_has_the_text_beneath(answered: Attribution) -> None:
    lines = shown(answered, agent_trace(), width=120).splitlines()
    assert max(map(len, lines)) <= 120
    here = next(n for n, line in enumerate(lines) if line.startswith("  «22:40»  "))
    assert lines[here + 1].split() == ["effect", "interval", "drop", "verdict", "given", "earlier", "source"]
    assert lines[here + 2].endswith(" m17 from tool `timetable`, step 2")
    assert lines[here + 3] == " " * 12 + LAST_TRAIN
    assert any(line.endswith(" drives        lantern from tool `search`, step 1") for line in lines)


def test_a_narrow_terminal_has_the_source_beneath_too(answered: Attribution) -> None:
    lines = shown(answered, agent_trace(), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    here = next(n for n, line in enumerate(lines) if line.startswith("  «Mill House»  "))
    assert lines[here + 2].split() == ["+6.02", "+6.0", "to", "+6.0", "+6.00", "drives", "+6.02"]
    assert lines[here + 3] == " " * 12 + "m18 from tool `restaurants`, step 2: Mill House, Aldemoor: vegetari…"
    assert lines[here + 5] == " " * 12 + f"m1 memory: {VEGETARIAN}"


def test_what_an_earlier_step_wrote_and_what_memory_holds_are_named(answered: Attribution) -> None:
    wrote = attribute(agent_trace(), engine=engine(**{"1911": {"I will look up the rest.": 9.0}}), db=":memory:")
    text = shown(wrote, agent_trace())
    assert overview(text)[0] == "[1] «1911» from m16 (assistant_turn, from step 2)"
    assert "m16 assistant_turn from step 2\n            I will look up the rest." in text


def test_a_step_of_tool_calls_shows_each_value_with_its_cause() -> None:
    found = attribute(agent_trace(), engine=engine(Aldemoor={TURNS[3][1]: 9.0}), db=":memory:", step=2)
    lines = shown(found, agent_trace()).splitlines()
    text = "\n".join(lines)
    assert 'step 2 of 3: the model wrote a text and called timetable(station="Aldemoor Halt", day="Saturday"),' in text
    assert "and 6 more" in text
    assert "wrote     [1] I will look up the rest." in lines
    call = '{"arguments": {"day": "«Saturday»", "station": "«Aldemoor Halt»"}, "name": "«timetable»"}'
    assert f"          [2] Tool call: {call}" in lines
    told = (
        "tool «timetable», day «Saturday» from none in particular · station «Aldemoor Halt» from m10 (assistant_turn)"
    )
    assert overview(text)[1] == f"[2] {told}"
    here = next(n for n, line in enumerate(lines) if line.startswith("  station «Aldemoor Halt»  "))
    assert "m10 assistant_turn" in "".join(lines[here : here + 4])
    assert lines[next(n for n, line in enumerate(lines) if line.startswith("  day «Saturday»  ")) + 1] == (
        "    no segment has an effect beyond δ"
    )


def test_a_dozen_causes_are_cropped_in_the_overview_and_all_in_the_table() -> None:
    weights = {text: 2.0 for _, text in FOUND} | dict.fromkeys(MEMORIES[:2], 3.0)
    found = attribute(agent_trace(), engine=engine(**{"1911": weights}), db=":memory:")
    text = shown(found, agent_trace())
    [first, *_] = overview(text)
    assert first == "[1] «1911» from m1, m2 (memory), parade, choir, fees (from tool `search`, step 1) and 7 more"
    lines = text.splitlines()
    here = lines.index("[1] The festival opened in «1911».")
    end = next(n for n in range(here, len(lines)) if lines[n].startswith("  the claim as a whole"))
    assert sum(" drives " in line for line in lines[here:end]) == 12


# What it does with less


def test_few_segments_need_no_line_and_a_single_step_no_number() -> None:
    messages = [{"role": "user", "content": f"{OPENED}\n\nWhen did it open?"}]
    trace = Trace.from_messages(messages, "In 1911.")
    text = shown(attribute(trace, engine=AdditiveEngine({"1911": {OPENED: 9.0}}), db=":memory:"), trace)
    assert "context   " not in text
    assert "step " not in text
    assert "from tool" not in text
    assert "answer    [1] In «1911»." in text


def test_without_the_trace_the_rest_is_shown(answered: Attribution) -> None:
    text = shown(Attribution.from_dict(json.loads(json.dumps(answered.to_dict()))), None)
    assert "context   33 segments: 10 retrieved" in text
    assert "step 3" not in text
    assert "from tool" not in text
    assert overview(text)[1] == "[2] «22:40» from m17 (tool_output), against old-rail"
    called = attribute(agent_trace(), engine=engine(), db=":memory:", step=1)
    assert shown(called, None).splitlines()[2].startswith("wrote     [1] Tool call:")


def test_a_trace_of_another_run_explains_nothing(answered: Attribution) -> None:
    other = Trace.from_messages([{"role": "user", "content": "Hello?"}], "Hello.")
    assert "from tool" not in shown(answered, other)


def test_hostile_names_are_inert_and_leave_the_rest_its_room() -> None:
    trace = agent_trace(hostile="\x1b[2J\u202e[bold]" + "x" * 300)
    found = attribute(trace, engine=engine(), db=":memory:")
    for width in (80, 120):
        text = shown(found, trace, width=width)
        assert not set(text) & {"\x1b", "\u202e"}
        assert max(map(len, text.splitlines())) <= width
        assert "from tool `search\ufffd[2J\ufffd[bold]xxxxxx…`, step 1" in text
    first = shown(attribute(trace, engine=engine(), db=":memory:", step=1), trace)
    assert "step 1 of 3: the model called search\ufffd[2J\ufffd[bold]xxxxxx…(query=" in first


# What acts together


def together(attribution: Attribution, **names: str) -> Attribution:
    """As if a screen had found a group, pairs and a header on the first pivot; ``names`` renames segments."""
    row = attribution.rows(TargetKind.PIVOT)[0]
    ids = [segment.id for segment in attribution.segments]
    segments = tuple(replace(segment, id=names.get(segment.id, segment.id)) for segment in attribution.segments)
    lantern, parade, fees, guild = (ids.index(name) for name in ("lantern", "parade", "fees", "guild"))
    header = [column for column in range(len(ids)) if ids[column] in ("pond", "lamps", "bridge", "choir")]
    effects = attribution.effects.copy()
    effects[:, header] = effects[:, header[:1]]
    return replace(
        attribution,
        segments=segments,
        effects=effects,
        groups=(RedundancyGroup((lantern, parade), row, 8.37, 0.51),),
        pairs=(Pair(row, lantern, parade, -6.97), Pair(row, fees, guild, 2.46), Pair(row, lantern, fees, -3.21)),
        tied=(tuple(header),),
        resolution=tuple("group" if column in header else "individual" for column in range(len(ids))),
        agreement=np.array([0.913] + [1.0] * (len(attribution.targets) - 1)),
    )


def test_a_group_is_one_line_and_its_own_pairs_are_not_told_again(answered: Attribution) -> None:
    lines = [line.strip() for line in shown(together(answered), agent_trace(), width=160).splitlines()]
    said = [line for line in lines if "without the other" in line or "act together" in line]
    assert said == [
        "lantern, parade each do without the other: deleting all takes 8.4 nats, their single drops add up to 0.5",
        "fees and guild act together (+2.5 nats): each counts for more with the other",
        "lantern and fees act together (-3.2 nats): each counts for less with the other",
    ]
    assert not [line for line in shown(answered, agent_trace()).splitlines() if "act together" in line]


def test_a_group_of_many_is_cropped_and_reads_as_many(answered: Attribution) -> None:
    row = answered.rows(TargetKind.PIVOT)[0]
    many = replace(answered, groups=(RedundancyGroup(tuple(range(9)), row, 8.0, 0.0),))
    assert " and 3 more each do without the others: deleting all takes 8.0 nats" in shown(many, None, width=200)


def test_segments_removed_as_one_have_one_line_that_says_how_many(answered: Attribution) -> None:
    # Those that drive are always shown, so let the header drive.
    tied = together(answered)
    [header] = tied.tied
    verdicts, effects = tied.verdicts.copy(), tied.effects.copy()
    verdicts[:, list(header)], effects[:, list(header)] = "drives", 5.0
    text = shown(replace(tied, verdicts=verdicts, effects=effects), agent_trace(), width=160)
    lines = text.splitlines()
    here = next(n for n, line in enumerate(lines) if line.startswith("  «1911»  "))
    end = next(n for n in range(here, len(lines)) if lines[n].startswith("  the claim as a whole"))
    named = [line for line in lines[here:end] if " alike " in line]
    assert len(named) == 1
    assert f"{tied.segments[header[0]].id} +3 alike from tool `search`, step 1" in named[0]
    for column in header[1:]:
        assert not any(f" {tied.segments[column].id} " in line for line in lines[here:end])


def test_what_hiding_stands_for_is_said_at_the_foot(answered: Attribution) -> None:
    assert "hiding stands for deleting by 91% to 100%" in " ".join(shown(together(answered), None).split())
    worst = replace(answered, agreement=np.full(len(answered.targets), -3.0))
    assert "hiding stands for deleting by 0%" in " ".join(shown(worst, None).split())
    unknown = replace(answered, agreement=np.full(len(answered.targets), np.nan))
    assert "hiding stands" not in shown(unknown, None)


def test_hostile_segment_names_are_inert_in_lines_of_groups_and_pairs(answered: Attribution) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07\u202e[bold red]x[/]\r\n" + "y" * 20
    names = {name: f"{name}{hostile}" for name in ("lantern", "parade", "fees", "guild", "pond")}
    found = together(answered, **names)
    for width in (80, 160):
        text = shown(found, agent_trace(), width=width)
        assert not set(text) & {"\x1b", "\x07", "\u202e", "\r"}
        assert max(map(len, text.splitlines())) <= width
        flat = " ".join(text.split())
        assert "[bold red]x[/]" in flat, "markup is text"
        assert "each do without the other: deleting all takes 8.4 nats" in flat
        assert "act together (+2.5 nats)" in flat


def test_groups_pairs_and_resolution_are_in_compact_json_pandas_and_the_full_dictionary(answered: Attribution) -> None:
    pytest.importorskip("pandas")
    found = together(answered)
    row = found.groups[0].target
    ids = [segment.id for segment in found.segments]
    brief = json.loads(json.dumps(compact(found), allow_nan=False))
    target = next(t for claim in brief["claims"] for t in claim["targets"] if t["text"] == found.targets[row].text)
    assert target["groups"] == [{"segments": ["lantern", "parade"], "joint_drop": 8.37, "summed_drops": 0.51}]
    assert [(pair["segments"], pair["effect"]) for pair in target["pairs"]] == [
        (["lantern", "parade"], -6.97),
        (["fees", "guild"], 2.46),
        (["lantern", "fees"], -3.21),
    ]
    assert {cause["resolution"] for cause in target["causes"]} == {"individual"}
    others = [t for claim in brief["claims"] for t in claim["targets"] if t is not target]
    assert not any("groups" in other or "pairs" in other for other in others)
    frame = found.to_pandas()
    grouped = set(frame.loc[frame["resolution"] == "group", "segment"])
    assert grouped == {ids[column] for column in found.tied[0]}
    back = Attribution.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert (back.groups, back.pairs, back.tied, back.resolution) == (
        found.groups,
        found.pairs,
        found.tied,
        found.resolution,
    )
    np.testing.assert_array_equal(back.agreement, found.agreement)
    assert shown(back, None) == shown(found, None)


def test_what_is_predicted_counts_a_header_once_and_pairs_on_their_target(answered: Attribution) -> None:
    found = together(answered)
    [header], row, n = found.tied, found.groups[0].target, len(found.segments)
    kept, removed, without_header = np.ones(n, dtype=bool), np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    without_header[list(header)] = False
    values = found.predicted(np.array([kept, without_header, removed]))
    assert values.shape == (3, len(found.targets))
    np.testing.assert_allclose(values[0] - values[1], found.effects[:, header[0]], atol=1e-9)
    once = [column for column in range(n) if column not in header[1:]]
    np.testing.assert_allclose(values[0] - values[2], found.effects[:, once].sum(axis=1), atol=1e-9)
    first, second = found.pairs[1].first, found.pairs[1].second
    three = np.ones((3, n), dtype=bool)
    three[0, first] = three[1, second] = three[2, [first, second]] = False
    one, other, both = values[0] - found.predicted(three)
    expected = np.where(np.arange(len(found.targets)) == row, found.pairs[1].effect, 0.0)
    np.testing.assert_allclose(one + other - both, expected, atol=1e-9)
