"""The HTML report in a real browser: quiet, closed to the network, within its width, and worked by keyboard."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import QUESTION, TEXTS, attribution_of, diagnosis_of, run

from attr_core.evaluation.results import EvaluationRun, RowResult
from attr_core.reports.html import html_report
from attr_core.reports.set_html import html_set_report

pytestmark = pytest.mark.browser

SIZES = [(width, scheme) for width in (1280, 400) for scheme in ("light", "dark")]

ATTACK = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"

CONTRAST = """() => {
  const parse = (color) => {
    const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)];
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const faint = [];
  for (const node of document.querySelectorAll("body *")) {
    const hasText = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!hasText || !node.getClientRects().length || node.closest("script, style, .skip")) continue;
    const chain = [];
    for (let at = node; at; at = at.parentElement) chain.unshift(parse(getComputedStyle(at).backgroundColor));
    const back = chain.reduce((below, layer) => over(layer, below), [255, 255, 255]);
    const front = over(parse(getComputedStyle(node).color), back);
    const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const told = `${node.tagName}.${node.className}: ${node.textContent.slice(0, 40)}`;
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${told}`);
  }
  return faint;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium: the machine's own, else the one that Playwright brought."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    own = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with playwright.sync_playwright() as running:
        if own is None and not Path(running.chromium.executable_path).exists():
            pytest.skip("no Chromium is installed: install the system's package, or run `playwright install chromium`")
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0  # Chromium's sandbox refuses root
        started = running.chromium.launch(executable_path=own, args=["--no-sandbox"] if is_root else [])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a report; what the page logs or asks for is kept on it, and must be nothing at the end."""
    contexts, complaints = [], []

    def open_page(page_text: str, *, width: int = 1280, scheme: str = "light", script: bool = True) -> Any:
        path = tmp_path / "report.html"
        path.write_text(page_text, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=script
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda asked: asked.url.split("#")[0] == path.as_uri() or complaints.append(asked.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def _report() -> str:
    trace = run()
    return html_report(trace, attribution_of(trace), diagnosis_of(trace))


def _hostile() -> str:
    """Texts that attack, and words that no line can hold."""
    long = "x" * 3_000
    answer = f"{ATTACK} {long} 1911. Mira Pell led it until 1934."
    trace = run(
        [f"{ATTACK} {long} {text}" for text in TEXTS],
        answer=answer,
        ids=[f"{ATTACK}{long}{n}" for n in range(len(TEXTS))],
        question=ATTACK + long,
    )
    diagnosis = diagnosis_of(trace)
    scores = tuple({**score, "reason": long} for score in diagnosis.scores)
    diagnosis = replace(diagnosis, headline=ATTACK + long, evidence=(long,), judge=long, scores=scores)
    return html_report(trace, attribution_of(trace, method=long, warnings=(ATTACK + long,)), diagnosis)


def _open_all(page: Any) -> None:
    page.evaluate(
        "document.querySelectorAll('details').forEach((one) => { one.removeAttribute('name'); one.open = true; })"
    )


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_the_page_is_quiet_and_as_wide_as_its_window(opened: Any, width: int, scheme: str) -> None:
    page = opened(_report(), width=width, scheme=scheme)
    _keep(page, f"report-{width}-{scheme}")
    _open_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("width", [1280, 400])
def test_hostile_texts_stay_text_and_long_words_wrap(opened: Any, width: int) -> None:
    page = opened(_hostile(), width=width)
    _open_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "owned" not in page.title().split("<script>")[0]
    assert page.locator("script").count() == 1
    assert page.locator("img").count() == 0
    assert ATTACK in page.locator("p.answer").inner_text()
    assert ATTACK in page.locator("#s1").inner_text()


def _set(text: str) -> str:
    """Of an evaluation: a row that failed, one that is wrong, and one that is fine."""
    wrong = replace(diagnosis_of(run()), headline=text, evidence=(text,), fixes=(text,))
    hurt = {"id": text, "group": text, "kind": "retrieved", "text": text, "tokens": 9, "helped": None, "idle": True}
    told = {"query": text, "answer": text, "tags": (text,), "segments": ({**hurt, "hurt": "proved"},)}
    rows = (
        RowResult(f"a {text}", 0, "failed", error=text),
        *(RowResult(f"{n} {text}", n, "done", diagnosis=wrong, **told) for n in (1, 2)),
        RowResult(f"b {text}", 3, "done", diagnosis=replace(wrong, label="ok", outcome="right")),
    )
    return html_set_report(EvaluationRun("ev_1", text, 5, rows, {"app": text}, is_finished=False))


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_the_report_of_a_set_is_quiet_and_as_wide_as_its_window(opened: Any, width: int, scheme: str) -> None:
    page = opened(_set("Rows of the archive"), width=width, scheme=scheme)
    _keep(page, f"set-{width}-{scheme}")
    assert page.evaluate(CONTRAST) == []
    page = opened(_set(f"{ATTACK} {'x' * 3_000}"), width=width, scheme=scheme)
    _open_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("script, img").count() == 0
    page.locator("#sources a").first.press("Enter")
    assert page.evaluate("document.querySelector(':target').className") == "sample"


def test_a_claim_is_reached_and_opened_by_keyboard(opened: Any) -> None:
    page = opened(_report())
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "a2":
            break
    claim = page.locator("#a2")
    assert page.evaluate("document.activeElement.id") == "a2"
    assert claim.get_attribute("role") == "button"
    assert (claim.get_attribute("aria-expanded"), claim.get_attribute("aria-controls")) == ("false", "c2")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "focus is seen"
    page.keyboard.press("Enter")
    assert page.locator("#c2").get_attribute("open") is not None
    assert page.locator("#c1").get_attribute("open") is None
    page.wait_for_function("document.getElementById('a2').getAttribute('aria-expanded') === 'true'")
    assert page.evaluate("document.activeElement.parentElement.id") == "c2"
    assert "drives" in page.locator("#c2").inner_text()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "a2"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    assert page.locator("#c1").get_attribute("open") is not None


def test_a_click_on_a_claim_shows_its_panel_and_on_a_segment_its_text(opened: Any) -> None:
    page = opened(_report(), width=400)
    page.locator("#a2").click()
    assert page.locator("#c2 ul.evidence").is_visible()
    page.locator("#c2 a", has_text="c3").first.click()
    page.locator("#s3 p.text").wait_for(state="visible")
    page.locator("table.heat thead a").first.click()
    assert page.locator("#c1").get_attribute("open") is not None


def test_without_javascript_everything_can_be_read(opened: Any) -> None:
    page = opened(_report(), script=False)
    assert page.locator("#c1 table.causes").first.is_visible()
    page.locator("#c2 summary").click()
    assert page.locator("#c2 table.causes").first.is_visible()
    page.locator("#s2 summary").click()
    assert page.locator("#s2 p.text").inner_text() == TEXTS[1]
    assert QUESTION in page.locator("#answer").inner_text()


def _keep(page: Any, name: str) -> None:
    """A picture for people to look at, where a folder for them is named."""
    if folder := os.environ.get("ATTRKIT_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)
