"""The command line with engines that cost money: it says what, asks, caps, and keeps what was paid for."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attr_core import cli, engines
from attr_core.protocols import Completion, Price, Sampling
from attr_core.store import Store
from attr_core.types import Prompt, Trace

FACT = "The Aldemoor fair opened in 1911."
ANSWER = "It opened in 1911."
LINES = "\n\n".join([FACT, "Fees are four silver marks.", "The river is cold."])
MESSAGES = [{"role": "user", "content": f"{LINES}\n\nWhen did it open?"}]
INSPECT = ("inspect", "last", "--engine", "litellm:paid", "--algorithm", "similarity", "--metric", "overlap")


class Paid:
    spec = fingerprint = "litellm:paid"
    max_context = None
    price: Price | None = Price(1e-4, 1e-3)
    calls = 0
    stop_at: int | None = None

    def count_tokens(self, prompt: Prompt) -> int:
        return sum(len(message.content.split()) + 4 for message in prompt.messages)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        found = []
        for prompt in prompts:
            self.calls += 1
            if self.calls == self.stop_at:
                raise KeyboardInterrupt
            says = ANSWER if FACT in prompt.messages[0].content else "Nobody knows."
            found.append(Completion(says, "stop", self.count_tokens(prompt), 4))
        return found


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Paid:
    engine = Paid()
    monkeypatch.setitem(engines._loaded, "litellm:paid", engine)  # type: ignore[misc]
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "attrkit.db"))
    with Store() as store:
        store.save(Trace.from_messages(MESSAGES, ANSWER, model="paid"))
    return engine


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli._run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_nothing_is_sent_before_somebody_agrees(capsys: pytest.CaptureFixture[str], paid: Paid) -> None:
    code, _, err = run(capsys, *INSPECT)
    assert (code, paid.calls) == (2, 0)
    assert "litellm:paid may cost money" in err
    assert "about USD 0." in err
    assert "--yes" in err


def test_a_no_at_the_prompt_sends_nothing_and_a_yes_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, paid: Paid
) -> None:
    import typer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    asked: list[str] = []

    def says(answer: bool) -> Any:
        def confirm(question: str, **_: Any) -> bool:
            asked.append(question)
            if not answer:
                raise typer.Abort
            return True

        return confirm

    monkeypatch.setattr(typer, "confirm", says(False))
    assert run(capsys, *INSPECT)[0] == 130
    assert paid.calls == 0
    monkeypatch.setattr(typer, "confirm", says(True))
    code, out, _ = run(capsys, *INSPECT)
    assert code == 0
    assert "drives" in out
    assert "USD 0." in out
    assert "at most" in asked[0]


def test_yes_does_not_ask_and_a_second_look_costs_nothing(capsys: pytest.CaptureFixture[str], paid: Paid) -> None:
    assert run(capsys, *INSPECT, "--yes")[0] == 0
    calls = paid.calls
    code, out, _ = run(capsys, *INSPECT[:-1], "numeric", "--yes", "--json")
    assert (code, paid.calls) == (0, calls)
    assert json.loads(out)["cost"]["usd"] == 0


def test_a_dry_run_prints_calls_tokens_and_money_and_makes_no_call(
    capsys: pytest.CaptureFixture[str], paid: Paid
) -> None:
    code, out, _ = run(capsys, *INSPECT, "--dry-run")
    assert (code, paid.calls) == (0, 0)
    for line in ("answers generated under ablations: 8 calls", "expected: ", "at most:  ", "USD 0."):
        assert line in out
    plan = json.loads(run(capsys, *INSPECT, "--dry-run", "--json")[1])
    assert 0 < plan["usd"] <= plan["maximum"]["usd"]
    paid.price = None
    out = run(capsys, *INSPECT, "--dry-run")[1]
    assert "USD price unknown" in out


def test_a_budget_in_usd_is_held_or_refused(capsys: pytest.CaptureFixture[str], paid: Paid) -> None:
    code, _, err = run(capsys, *INSPECT, "--yes", "--budget", "usd=0.0001")
    assert (code, paid.calls) == (2, 0)
    assert "the budget allows USD 0.0001" in err
    assert len(err.splitlines()) == 1


def test_ctrl_c_shows_what_is_known_and_the_next_run_goes_on(capsys: pytest.CaptureFixture[str], paid: Paid) -> None:
    lines = "\n\n".join([FACT, *(f"Filler sentence number {n}." for n in range(9))])
    with Store() as store:
        store.save(Trace.from_messages([{"role": "user", "content": f"{lines}\n\nWhen did it open?"}], ANSWER))
    paid.stop_at = 40
    code, out, err = run(capsys, *INSPECT, "--yes")
    assert code == 130
    assert "PARTIAL" in out
    assert "interrupted; what was measured is kept" in err
    made = paid.calls
    paid.stop_at = None
    code, out, _ = run(capsys, *INSPECT, "--yes")
    assert code == 0
    assert "PARTIAL" not in out
    assert "from the cache" in out
    assert paid.calls - made < made + 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--metric", "vibes", "--algorithm", "similarity"), "choose embedding, overlap, numeric"),
        (("--metric", "overlap"), "add --algorithm similarity"),
        (("--algorithm", "likelihood"), "or --algorithm similarity"),
        (("--engine", "server:http://127.0.0.1:9#m"), "127.0.0.1:9"),
        (("--engine", "litellm:"), "names no model; write litellm:MODEL"),
        (("--budget", "usd=much"), "is not a number"),
        (("--embed", "st:no-such-model", "--algorithm", "similarity"), "no-such-model"),
    ],
    ids=str,
)
def test_bad_input_is_one_line_that_says_how_to_mend_it_and_costs_nothing(
    capsys: pytest.CaptureFixture[str], paid: Paid, arguments: tuple[str, ...], message: str
) -> None:
    base = ["inspect", "last", *(() if "--engine" in arguments else ("--engine", "litellm:paid"))]
    code, _, err = run(capsys, *base, *arguments)
    assert (code, paid.calls) == (2, 0), err
    assert message in err
    assert len(err.splitlines()) == 1


def test_capabilities_are_printed_for_kinds_without_loading_anything(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "capabilities")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert {"hf:MODEL", "litellm:MODEL", "server:URL#MODEL", "st:MODEL"} <= rows.keys()
    assert rows["hf:MODEL"].rstrip().endswith("likelihood, reference, similarity")
    assert rows["litellm:MODEL"].rstrip().endswith("similarity")
    assert rows["st:MODEL"].rstrip().endswith("none")


def test_capabilities_of_an_engine_say_what_answers(capsys: pytest.CaptureFixture[str], paid: Paid) -> None:
    code, out, _ = run(capsys, "capabilities", "--engine", "litellm:paid", "--json")
    assert (code, paid.calls) == (0, 0)
    assert json.loads(out) == [
        {"engine": "litellm:paid", "offers": ["generate"], "algorithms": ["similarity"], "reasons": {}}
    ]
    run(capsys, "capabilities", "--engine", "litellm:paid", "--probe")
    assert paid.calls == 1


def test_the_placebo_check_is_part_of_what_is_asked_and_of_the_plan(
    capsys: pytest.CaptureFixture[str], paid: Paid
) -> None:
    alone, both = (run(capsys, *INSPECT, *more)[2] for more in ((), ("--placebo",)))
    n_alone, n_both = (int(err.split("about ")[1].split()[0].replace(",", "")) for err in (alone, both))
    assert n_both > 3 * n_alone
    assert json.loads(run(capsys, *INSPECT, "--placebo", "--dry-run", "--json")[1])["placebo"]["calls"] > 0
    assert paid.calls == 0


def test_a_finished_result_is_shown_though_the_placebo_check_is_interrupted(
    capsys: pytest.CaptureFixture[str], paid: Paid
) -> None:
    run(capsys, *INSPECT, "--yes")
    paid.stop_at = paid.calls + 20
    code, out, _ = run(capsys, *INSPECT, "--yes", "--placebo")
    assert code == 130
    assert "drives" in out
    assert "PARTIAL" not in out
