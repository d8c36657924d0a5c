"""The HTML report: whatever a run's texts are they stay text, and every number on the page is the data's."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import ANSWER, TEXTS, attribution_of, diagnosis_of, run

from attr_core import attribute, diagnose
from attr_core.errors import InputError
from attr_core.evaluation.planted import PerfectJudge, planted
from attr_core.reports.html import html_report
from attr_core.results import Diagnosis
from attr_core.types import Claim, TargetKind

_VOID = frozenset({"meta", "link", "br", "img", "input", "hr", "base"})


@dataclass
class _Node:
    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list[_Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def classes(self) -> list[str]:
        return (self.attributes.get("class") or "").split()

    def all(self, tag: str = "", name: str = "") -> Iterator[_Node]:
        for child in self.children:
            if isinstance(child, _Node):
                if (not tag or child.tag == tag) and (not name or name in child.classes):
                    yield child
                yield from child.all(tag, name)

    def one(self, identifier: str) -> _Node:
        return next(node for node in self.all() if node.attributes.get("id") == identifier)


class _Tree(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = _Node("")
        self.open = [self.root]
        self.feed(page)
        self.close()
        assert len(self.open) == 1, f"<{self.open[-1].tag}> is not closed"

    def handle_starttag(self, tag, attributes) -> None:
        assert len({name for name, _ in attributes}) == len(attributes)
        node = _Node(tag, dict(attributes))
        self.open[-1].children.append(node)
        if tag not in _VOID:
            self.open.append(node)

    def handle_startendtag(self, tag, attributes) -> None:
        self.open[-1].children.append(_Node(tag, dict(attributes)))

    def handle_endtag(self, tag) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data) -> None:
        self.open[-1].children.append(data)


def _parsed(page: str) -> _Node:
    page.encode()
    return _Tree(page).root


def _shape(root: _Node) -> Counter:
    """Every element with the names of its attributes."""
    return Counter((node.tag, *sorted(node.attributes)) for node in root.all())


def _full(text: str) -> str:
    """A report in which every text that a run can bring is, or holds, ``text``."""
    answer = f"{text} 1911. Mira Pell led it until 1934."
    texts = [text + other for other in TEXTS]
    trace = run(texts, answer=answer, ids=[f"{text}{n}" for n in range(len(texts))], question=text)
    trace = replace(trace, framework=text, tags=(text,), reference=text)
    first, last = (0, answer.index("1911.") + 5), (answer.index("Mira"), len(answer))
    claims = tuple(Claim(n, *span, answer[slice(*span)]) for n, span in enumerate((first, last)))
    made = attribution_of(trace)
    targets = []
    for target in made.targets:
        start, end = first if target.claim == 0 else last if target.claim == 1 else (0, len(answer))
        if target.kind is TargetKind.PIVOT:
            start = answer.index("1911")
            end = start + 4
        targets.append(replace(target, start=start, end=end, text=answer[start:end]))
    offsets = np.array([first, last])
    attribution = replace(
        made,
        claims=claims,
        targets=tuple(targets),
        token_offsets=offsets,
        token_full=np.array([0.0, -1.0]),
        token_closed_book=np.array([-1.5, -1.0]),
        measured_on=text,
        answered_by=text,
        method=text,
        versions={text: text},
        warnings=(text,),
        regenerated=tuple(replace(one, text=text) for one in made.regenerated),
    )
    return html_report(trace, attribution, _hostile_diagnosis(diagnosis_of(trace), text, claims))


def _hostile_diagnosis(made: Diagnosis, text: str, claims: tuple[Claim, ...]) -> Diagnosis:
    names = list(dict.fromkeys(row["segment"] for row in made.grid["rows"]))
    rows = []
    for claim in claims:
        for place, name in enumerate(names):
            row = made.grid["rows"][min(claim.index, 1) * len(names) + place]
            rows.append({**row, "claim": claim.text, "claim_index": claim.index, "segment": name, "words": text})
    said = [{"text": text, "outcome": text, "runs": 5}]
    return replace(
        made,
        label=text,
        headline=text,
        secondary=(text,),
        evidence=(text,),
        fixes=(text,),
        outcome=text,
        expected=text,
        culprits=(names[0], text),
        proof={**made.proof, "changed": {**made.proof["changed"], "said": said}},
        scores=tuple({**one, "name": text, "what": text, "reason": text} for one in made.scores),
        grid={**made.grid, "rows": rows, "notes": [text]},
        conflicts=({"first": text, "second": names[1], "how": "matrix", "why": text},),
        judge=text,
        notes=(text,),
        versions={text: text},
    )


HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7*7 }}{% raw %}",
    "<!--<script>",
    "&lt;b&gt;&amp;",
    "]]><x>",
    "</title></textarea></details>",
    "a\u2028b\u2029c",
    "\x00nul\x1b[31m",
    "\u202egnp.exe\u2066",
    "\ud800lone",
    "javascript:alert(1)//",
]


@pytest.fixture(scope="module")
def tame() -> Counter:
    return _shape(_parsed(_full("tame")))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_anywhere_in_a_run_adds_no_element_and_no_attribute(text: str, tame: Counter) -> None:
    root = _parsed(_full(text))
    assert _shape(root) == tame
    assert _seen(text) in root.text


@settings(max_examples=15)
@given(st.text(st.characters(codec=None), max_size=40))
def test_no_text_changes_what_the_page_is_made_of(tame: Counter, text: str) -> None:
    assert _shape(_parsed(_full(f"x{text}x"))) == tame


def _seen(text: str) -> str:
    return re.sub("[\u2028\u2029]", " ", re.sub("[\x00\x1b\u202e\u2066\ud800]", "\ufffd", text))


def test_the_page_allows_its_own_style_and_script_alone_and_names_nothing_outside() -> None:
    root = _parsed(_full("tame"))
    policy = next(n.attributes["content"] for n in root.all("meta") if "http-equiv" in n.attributes)
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (node,) = root.all(tag)
        digest = base64.b64encode(hashlib.sha256(node.text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
        assert not re.search(r"url\(|https?:|@import", node.text)
    for node in root.all():
        assert "src" not in node.attributes
        assert "style" not in node.attributes
        assert not any(name.startswith("on") for name in node.attributes)
        assert (node.attributes.get("href") or "#").startswith("#")


def test_ids_are_unique_and_every_link_leads_somewhere() -> None:
    root = _parsed(_full("tame"))
    names = [node.attributes["id"] for node in root.all() if "id" in node.attributes]
    assert len(names) == len(set(names))
    for node in root.all("a"):
        assert node.attributes["href"][1:] in names
    for node in root.all():
        for name in (node.attributes.get("aria-labelledby") or "").split():
            assert name in names


def test_every_number_in_the_tables_of_causes_is_the_attributions() -> None:
    trace = run()
    attribution = attribution_of(trace)
    root = _parsed(html_report(trace, attribution, diagnosis_of(trace)))
    shown = {"c1": (0, 1), "c2": (3,)}
    for identifier, rows in shown.items():
        tables = list(root.one(identifier).all("table", "causes"))
        assert len(tables) == len(rows)
        for table, row in zip(tables, rows, strict=True):
            seen = set()
            for line in list(table.all("tr"))[1:]:
                column = int(next(line.all("a")).attributes["href"][2:]) - 1
                cells = [cell.text.strip() for cell in line.all("td")]
                low, high = attribution.low[row, column], attribution.high[row, column]
                interval = "" if math.isnan(low) else f"{low:+.2f} to {high:+.2f}"
                wanted = [
                    _signed(attribution.effects[row, column]),
                    interval,
                    _signed(attribution.drops[row, column]),
                    *([_direct(attribution, column)] if row == 3 else []),
                    str(attribution.verdicts[row, column]),
                ]
                assert cells == wanted
                seen.add(column)
            weighty = np.flatnonzero(np.isin(attribution.verdicts[row], ["drives", "opposes"]))
            assert set(weighty.tolist()) <= seen
            assert f"δ {attribution.delta[row]:.2f} nats" in root.one(identifier).text


def _direct(attribution, column: int) -> str:
    return _signed(attribution.effects[2, column]) + (", by way of claim 1" if column == 2 else "")


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.2f}"


def test_the_heat_map_has_the_effect_where_the_segment_counts_most() -> None:
    trace = run()
    attribution = attribution_of(trace)
    heat = next(_parsed(html_report(trace, attribution, diagnosis_of(trace))).all("table", "heat"))
    lines = list(heat.all("tr"))[1:]
    assert len(lines) == len(attribution.segments)
    for column, line in enumerate(lines):
        for cell, rows in zip(line.all("td"), ([0, 1], [3]), strict=True):
            known = [row for row in rows if not math.isnan(attribution.effects[row, column])]
            driven = [row for row in known if attribution.verdicts[row, column] == "drives"] or known
            best = max(driven, key=lambda row: abs(attribution.effects[row, column]), default=rows[0])
            effect, delta = attribution.effects[best, column], attribution.delta[best]
            assert cell.text == _signed(effect)
            steps = 0 if math.isnan(effect) else min(int(abs(effect) / delta), 4)
            assert [name for name in cell.classes if name != "u"] == (
                [f"{'p' if effect > 0 else 'n'}{steps}"] if steps else []
            )
    marks = [(column, icon.attributes["aria-label"]) for column, line in enumerate(lines) for icon in line.all("i")]
    assert marks == [(0, "entails"), (1, "contradicts"), (2, "entails"), (3, "entails"), (5, "entails"), (5, "cited")]


def test_words_are_tinted_by_what_the_context_adds_and_say_how_much() -> None:
    trace = run()
    root = _parsed(html_report(trace, attribution_of(trace)))
    answer = next(root.all("p", "answer"))
    assert answer.text == "The Lantern Fair opened in 1911.1 Mira Pell led it until 1934.2"
    tinted = {
        node.text: (node.classes[0], node.attributes["title"]) for node in answer.all() if "title" in node.attributes
    }
    assert tinted == {
        "opened": ("x1", "-0.75 nats"),
        "1911": ("w4", "+8.75 nats"),
        ".": ("w4", "+8.75 nats"),
        "1934.": ("w3", "+2.25 nats"),
    }
    (pivot,) = answer.all("strong")
    assert pivot.text == "1911"


def test_a_words_tint_adds_up_its_tokens_and_is_left_out_where_one_was_not_measured() -> None:
    trace = run(answer="Corvath opened.")
    made = attribution_of(trace)
    cut = {
        "token_offsets": np.array([[0, 3], [3, 7], [7, 14], [14, 15]]),
        "token_full": np.array([-0.1, -0.2, -0.3, -0.1]),
        "token_closed_book": np.array([-1.1, -2.2, math.nan, -0.1]),
    }
    page = html_report(trace, replace(made, **cut))
    answer = next(_parsed(page).all("p", "answer"))
    titles = {node.text: node.attributes["title"] for node in answer.all() if "title" in node.attributes}
    assert titles == {"Corvath": "+3.00 nats"}
    assert "No words are tinted" not in page
    assert "No words are tinted" in html_report(
        trace, replace(made, token_offsets=np.zeros((0, 2), int), token_full=np.zeros(0), token_closed_book=np.zeros(0))
    )


def test_the_diagnosis_is_told_whole() -> None:
    trace = run()
    diagnosis = diagnosis_of(trace)
    root = _parsed(html_report(trace, attribution_of(trace), diagnosis))
    lead = " ".join(root.one("diagnosis").text.split())
    for told in (
        *(diagnosis.label, diagnosis.headline, *diagnosis.evidence, *diagnosis.fixes, *diagnosis.secondary),
        *(
            "outcome wrong",
            "confidence 0.99",
            "p = 0.0003 if the change made no difference",
            "right in 5 of 5 runs",
            "right in 0 of 10 runs",
        ),
        *("The Lantern Fair opened in 1907.", "in 10 runs", "without c1"),
    ):
        assert told in lead
    metrics = [[cell.text for cell in line.children] for line in list(root.one("metrics").all("tr"))[1:]]
    assert metrics == [
        ["faithfulness", "0.50", "", "2 of 2 claims", ""],
        ["context relevance", "N/A", "", "0 of 6 segments", "the judge gave no verdict"],
    ]
    measured = root.one("measured").text
    for told in (
        "128 model calls, 12 from the cache",
        "price unknown",
        "89 model calls",
        "USD 0.0125",
        "23 on hf:small",
    ):
        assert told in measured
    assert "c1 and c2 contradict each other two years for one fair" in " ".join(root.text.split())
    assert "deleting all takes 8.50 nats, their single drops add up to 2.25" in " ".join(root.text.split())


def test_support_stands_beside_cause_with_the_sentence_marked() -> None:
    trace = run()
    root = _parsed(html_report(trace, attribution_of(trace), diagnosis_of(trace)))
    items = list(next(root.one("c2").all("ul", "evidence")).all("li"))
    told = [" ".join(next(item.all("p")).text.split()) for item in items]
    assert told == [
        "c3 used and supported entails",
        "c4 used and supported entails",
        "c6 supported but not used entails cited after the fact",
    ]
    assert next(items[0].all("mark")).text == TEXTS[2]
    assert "3 other segments have no part in it" in root.one("c2").text


@pytest.mark.parametrize(("has_attribution", "has_diagnosis"), [(True, False), (False, True), (False, False)])
def test_a_report_is_written_of_what_there_is(has_attribution: bool, has_diagnosis: bool) -> None:
    trace = run()
    page = html_report(
        trace, attribution_of(trace) if has_attribution else None, diagnosis_of(trace) if has_diagnosis else None
    )
    root = _parsed(page)
    assert "The Lantern Fair opened in 1911." in root.one("answer").text
    assert len(list(root.one("context").all("details"))) == len(TEXTS)
    assert ("support not judged" in root.text) == (has_attribution and not has_diagnosis)
    assert ("Nothing was measured of this run" in root.text) == (not has_attribution and not has_diagnosis)
    if has_diagnosis:
        assert [a.attributes["id"] for a in next(root.all("p", "answer")).all("a")] == ["a1", "a2"]
        assert "+9.16" in next(root.all("table", "heat")).text


def test_claims_in_the_judges_own_words_are_listed_though_they_stand_nowhere() -> None:
    trace = run()
    diagnosis = diagnosis_of(trace)
    rows = [{**row, "claim": f"The judge's words {row['claim_index']}."} for row in diagnosis.grid["rows"]]
    root = _parsed(html_report(trace, attribution_of(trace), replace(diagnosis, grid={**diagnosis.grid, "rows": rows})))
    assert "The judge's words 1." in root.one("c4").text
    assert "The judge's words for a part of the answer." in root.one("c4").text


def test_statements_that_the_judge_read_out_of_a_sentence_stand_with_that_sentence() -> None:
    trace = run()
    diagnosis, attribution = diagnosis_of(trace), attribution_of(trace)
    spans = [(claim.start, claim.end) for claim in attribution.claims]
    rows = [
        {**row, "claim": f"Statement {number}.", "claim_index": number, "span": list(spans[row["claim_index"]])}
        for number in range(4)
        for row in diagnosis.grid["rows"]
        if row["claim_index"] == number // 2
    ]
    diagnosis = replace(diagnosis, grid={**diagnosis.grid, "rows": rows})
    for found in (attribution, None):
        root = _parsed(html_report(trace, found, diagnosis))
        panels = [node for node in root.one("claims").all("details") if node.attributes.get("name") == "claim"]
        assert [panel.attributes["id"] for panel in panels] == ["c1", "c2"]
        for panel, names in zip(panels, (("0", "1"), ("2", "3")), strict=True):
            assert all(f"of “Statement {name}.”" in panel.text for name in names)


def test_confidence_in_some_runs_of_a_model_is_no_certainty() -> None:
    trace = run()
    diagnosis = diagnosis_of(trace, confidence=0.9999)
    sure = replace(diagnosis, proof={**diagnosis.proof, "reproducible": True})
    for found, told in ((diagnosis, "> 0.99"), (sure, "1.00")):
        assert f"confidence {told}" in _parsed(html_report(trace, None, found)).one("diagnosis").text
        assert told in _parsed(found._repr_html_()).text


def test_fifty_segments_and_ten_claims_stay_under_300_kilobytes() -> None:
    texts = [f"Segment {n} says that fair {n} opened in {1800 + n}. " + "It has a long hall. " * 60 for n in range(50)]
    trace = run(texts, answer=" ".join(f"Fair {n} opened in {1800 + n}." for n in range(10)))
    page = html_report(trace, attribution_of(trace), diagnosis_of(trace))
    assert len(page.encode()) < 300_000
    assert len(list(next(_parsed(page).all("table", "heat")).all("td"))) == 500


def test_a_text_of_200_000_characters_is_cut_and_the_page_says_by_how_much() -> None:
    long = "x" * 200_000
    trace = run([*TEXTS[:4], long])
    page = html_report(trace, attribution_of(trace), diagnosis_of(trace))
    assert len(page.encode()) < 300_000
    assert "and 180,000 more characters, not shown" in page
    answer = run(answer=f"{long} 1911. {ANSWER}")
    assert long in html_report(answer, attribution_of(answer), diagnosis_of(answer)), "an answer is never cut"


def test_results_of_another_run_or_of_two_model_calls_are_refused() -> None:
    trace = run()
    with pytest.raises(InputError, match="the attribution is of trace tr_2, not of tr_1"):
        html_report(trace, attribution_of(trace, trace_id="tr_2"))
    with pytest.raises(InputError, match="of model call gen_1, the diagnosis of gen_2"):
        html_report(trace, attribution_of(trace), diagnosis_of(trace, generation_id="gen_2"))


def test_segments_that_the_diagnosis_cut_in_another_way_are_told() -> None:
    trace = run()
    diagnosis = diagnosis_of(trace)
    rows = [*diagnosis.grid["rows"], {**diagnosis.grid["rows"][0], "segment": "c1.2"}]
    page = html_report(trace, attribution_of(trace), replace(diagnosis, grid={**diagnosis.grid, "rows": rows}))
    assert "cut the context in another way: 1 of its segments are not shown" in page


@pytest.mark.parametrize("label", ["chunk_dominance", "tool_error"])
def test_planted_failures_are_reported_as_they_were_measured(label: str) -> None:
    sample = planted(labels=(label,), per_label=1)[0]
    found = attribute(sample.trace, engine=sample.model, db=":memory:")
    judged = diagnose(sample.trace, engine=sample.model, judge=PerfectJudge(), expected=sample.expected, db=":memory:")
    root = _parsed(html_report(sample.trace, found, judged))
    assert judged.label in next(root.one("diagnosis").all("span", "label")).text
    assert len(list(root.one("context").all("details"))) == len(found.segments)
    assert len(list(root.one("claims").all("details", "panel"))) >= len(found.claims)


def test_a_notebook_shows_a_diagnosis_small_and_escaped() -> None:
    diagnosis = diagnosis_of(run(), headline="<script>x</script>", answer="a<b", notes=("<i>",))
    shown = diagnosis._repr_html_()
    root = _parsed(shown)
    assert {node.tag for node in root.all()} == {"p", "table", "caption", "tbody", "tr", "th", "td"}
    assert "chunk_dominance: <script>x</script>" in root.text
    assert "0.99" in root.text
    assert len(shown) < 2_000
