"""A run over an evaluation set as one HTML file that needs nothing else: what went wrong, how often, and where."""

from __future__ import annotations

from typing import Any

from attr_core.reports._html.document import asset, policy_of, template
from attr_core.reports._html.set_page import set_page_of

__all__ = ["html_set_report"]


def html_set_report(run: Any) -> str:
    """A page of one run, in one file that loads nothing and runs no script.

    Counts per label, means with their coverage, slices by tag, the sources that hurt most answers, what the failures of
    each label share, and the rows: those that failed and those whose answer is wrong in full, worst first, and the rest
    in a line each. Every text of a row, model or document is escaped; the page's policy lets nothing be fetched and no
    style but its own apply. Costs no calls.

    Parameters
    ----------
    run : EvaluationRun
        As :func:`attr_core.evaluation.results.open_run` gives it; also one that is not finished, or has no rows yet.

    Returns
    -------
    str
        The document, below 2 MB for 1,000 rows of ordinary texts. Long texts are cut, and the page says so; so is the
        list of rows beyond some thousands. Write it as UTF-8.

    Examples
    --------
    >>> from attr_core.evaluation.results import EvaluationRun, RowResult
    >>> row = RowResult("r<1>", 0, "failed", error="TimeoutError: the index is away")
    >>> "r&lt;1&gt;" in html_set_report(EvaluationRun("ev_1", "nightly", 1, (row,)))
    True
    """
    style = asset("page.css") + asset("set.css")
    page = template("set.html")
    return page.render(style=style, policy=policy_of(style), **set_page_of(run))
