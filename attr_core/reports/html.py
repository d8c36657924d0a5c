"""One run as one HTML file that needs nothing else: the answer, what caused it and bears it out, and the proof."""

from __future__ import annotations

from collections.abc import Sequence

from attr_core.attribution import Attribution
from attr_core.errors import InputError
from attr_core.reports._html.document import asset, policy_of, template
from attr_core.reports._html.page import page_of
from attr_core.results import Diagnosis
from attr_core.types import Trace

__all__ = ["html_report"]


def html_report(
    trace: Trace,
    attribution: Attribution | None = None,
    diagnosis: Diagnosis | None = None,
    *,
    others: Sequence[Attribution] = (),
) -> str:
    """A page of one run, in one file that loads nothing.

    It is read by mouse, keyboard or screen reader, wide or narrow, light or dark, with or without JavaScript. Every
    text of a model, document or server is escaped; the page's policy lets nothing be fetched and no script or style run
    but its own two, which it names by their hash. Costs no calls.

    Parameters
    ----------
    trace : Trace
    attribution : Attribution, optional
        What caused the claims; without it nothing is said of causes.
    diagnosis : Diagnosis, optional
        Which failure the answer is, and whether the context bears it out.
    others : sequence of Attribution
        Of other steps of the run, for what drove the texts that came from there.

    Returns
    -------
    str
        The document. Of long contexts each segment's text is cut where it would make the page large, and the page says
        how much is left out. Write it as UTF-8.

    Raises
    ------
    InputError
        The attribution or diagnosis is of another trace, or the two are of different model calls.

    Examples
    --------
    >>> trace = Trace.from_messages([{"role": "user", "content": "When did it open?"}], "In <1911>.")
    >>> "In &lt;1911&gt;." in html_report(trace)
    True
    """
    for name, found in (("attribution", attribution), ("diagnosis", diagnosis)):
        if found is not None and found.trace_id != trace.id:
            raise InputError(f"the {name} is of trace {found.trace_id}, not of {trace.id}; give the trace it is of")
    if attribution is not None and diagnosis is not None and attribution.generation_id != diagnosis.generation_id:
        raise InputError(
            f"the attribution is of model call {attribution.generation_id}, the diagnosis of "
            f"{diagnosis.generation_id}; give two of one call, or one of them"
        )
    style, script = asset("page.css"), asset("page.js")
    return template("page.html").render(
        style=style, script=script, policy=policy_of(style, script), **page_of(trace, attribution, diagnosis, others)
    )
