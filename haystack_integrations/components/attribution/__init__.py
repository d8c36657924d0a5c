"""The pipeline component. It is defined here, and not in ``attr_haystack``, since Haystack loads YAML from here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from haystack import component, default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, Document
from haystack.utils import Secret, deserialize_callable

from attr_core.algorithms import Algorithm
from attr_core.collector import INLINE_SECONDS, Collector, Mode, Strategy
from attr_core.protocols import Engine, Judge
from attr_core.results import Budget
from attr_core.store import Store
from attr_haystack.attributing import Given, attributed
from attr_haystack.settings import budget_text, collector_for, load, serializable

__all__ = ["AttributionComponent"]


@component
class AttributionComponent:
    """Says in a pipeline which piece of the context caused which claim of the model's replies.

    Connect what the chat generator was sent (``messages``, or the ``prompt`` of a text) and what it answered
    (``replies``), and the retriever's ``documents``; they are found in the messages. With an engine it measures before
    the pipeline goes on (``mode="inline"``) and puts out what it found; in mode ``deferred`` a thread of its own does,
    and in mode ``capture``, the default without an engine, the run is only stored. Then the trace's id is put out.

    What goes in is never changed: ``replies`` and ``documents`` come out as copies, under the same ids, with what was
    found in ``meta["attrkit"]``. Where it cannot be measured the run goes on, and ``attribution["error"]`` says why.

    Parameters
    ----------
    engine : str, Secret or Engine, optional
        What measures: ``"hf:MODEL"``, a ``Secret`` that holds such a spec, or a loaded engine (then the pipeline cannot
        be written to YAML). Without one nothing is ever spent in this process.
    mode : {"inline", "deferred", "capture"}, optional
        By default ``inline`` where an engine is given, or a judge alone is asked, else ``capture``.
    algorithm : str or algorithm, default "likelihood"
    store : path, Secret or Store, optional
        By default ``ATTRKIT_DB``, else ``~/.attrkit/attrkit.db``.
    sample_rate : float, default 1.0
        Share of the runs that are attributed; all are stored.
    redact : callable, optional
        Text -> text, applied before anything is stored or attributed. To YAML it goes by its import path.
    budget, budget_per_day : Budget or str, optional
        Caps for one run, and for all runs of a UTC day in this database, such as ``"calls=64,usd=0.50"``.
    time_limit : float
        Seconds that ``inline`` mode may hold the pipeline up.
    diagnose : bool, default False
        Also say which failure each answer is, what proves it and what to do: see ``docs/diagnosis.md``. It runs prompts
        again on ``engine``, for what the attribution leaves of ``budget``.
    judge : str, Secret, Judge, callable or object, optional
        Who judges, such as ``"litellm:MODEL"``; see :func:`attr_core.judge.load_judge` for more, and for the default.
    strategy : {"cause", "support"}, default "cause"
        ``support`` asks the judge alone: no engine is needed, and nothing is attributed.
    **options
        Further ones of :func:`attr_core.attribute`: ``estimator``, ``granularity``, ``totals``, ...

    Raises
    ------
    ConfigurationError
        See :class:`attr_core.collector.Collector`; an engine, store or option that cannot be written to YAML, in
        ``to_dict``.

    Examples
    --------
    >>> from attr_core.testing import AdditiveEngine
    >>> from haystack.dataclasses import ChatMessage, Document
    >>> engine = AdditiveEngine({"1911": {"It opened in 1911.": 6.0}})
    >>> found = AttributionComponent(engine, store=Store(":memory:")).run(
    ...     messages=[ChatMessage.from_user("It opened in 1911.\\n\\nWhen did it open?")],
    ...     replies=[ChatMessage.from_assistant("In 1911.")],
    ...     documents=[Document(id="d1", content="It opened in 1911.")],
    ... )
    >>> found["documents"][0].meta["attrkit"]["verdict"], found["attribution"]["claims"][0]["targets"][0]["text"]
    ('drives', '1911')
    """

    def __init__(
        self,
        engine: str | Secret | Engine | None = None,
        *,
        mode: Mode | None = None,
        algorithm: str | Algorithm = "likelihood",
        store: str | os.PathLike[str] | Secret | Store | None = None,
        sample_rate: float = 1.0,
        redact: Callable[[str], str] | None = None,
        budget: str | Budget | None = None,
        budget_per_day: str | Budget | None = None,
        time_limit: float = INLINE_SECONDS,
        diagnose: bool = False,
        judge: str | Secret | Judge | Any | None = None,
        strategy: Strategy = "cause",
        **options: Any,
    ) -> None:
        self.engine = engine
        asks_judge_alone = diagnose and strategy == "support"
        self.mode: Mode = mode or ("capture" if engine is None and not asks_judge_alone else "inline")
        self.algorithm = algorithm
        self.store = store
        self.sample_rate = sample_rate
        self.redact = redact
        self.budget = budget_text(budget)
        self.budget_per_day = budget_text(budget_per_day)
        self.time_limit = time_limit
        self.diagnose = diagnose
        self.judge = judge
        self.strategy: Strategy = strategy
        self.options = options
        self._collector: Collector | None = None
        if not any(isinstance(value, Secret) for value in (engine, store, judge)):  # those are looked up when it is run
            self._collector = collector_for(self)

    @property
    def collector(self) -> Collector:
        """Stores and attributes; its ``result(ID)`` and ``diagnosis(ID)`` wait for what mode ``deferred`` finds."""
        if self._collector is None:
            self._collector = collector_for(self)
        return self._collector

    def warm_up(self) -> None:
        """Load what is to measure or judge inline, so that a wrong name is told before the first question."""
        if self.collector.mode == "inline":
            load(self)

    def close(self) -> None:
        """Wait until what ran is stored and attributed."""
        if self._collector is not None:
            self._collector.flush()

    def to_dict(self) -> dict[str, Any]:
        """The component for YAML: primitives and ``Secret`` only."""
        return default_to_dict(self, **serializable(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AttributionComponent:
        """The component that :meth:`to_dict` wrote."""
        parameters = dict(data.get("init_parameters", {}))
        if isinstance(parameters.get("redact"), str):
            parameters["redact"] = deserialize_callable(parameters["redact"])
        loaded: AttributionComponent = default_from_dict(cls, {**data, "init_parameters": parameters})
        return loaded

    @component.output_types(replies=list[ChatMessage], attribution=dict[str, Any], documents=list[Document])
    def run(
        self,
        replies: list[ChatMessage],
        messages: list[ChatMessage] | None = None,
        prompt: str | None = None,
        documents: list[Document] | None = None,
        query: str | None = None,
    ) -> dict[str, Any]:
        """Attribute replies to what their model was sent; never raises.

        Parameters
        ----------
        replies : list of ChatMessage
            What the model answered. Several are attributed one by one, each at its own cost.
        messages : list of ChatMessage, optional
            What it was sent. An agent's messages can be given as they are, with the reply at their end.
        prompt : str, optional
            The same, as a text.
        documents : list of Document, optional
            What was retrieved.
        query : str, optional
            What the user asked; by default the last user turn.

        Returns
        -------
        dict
            ``replies``, copies with ``meta["attrkit"]``; ``attribution``, plain JSON, of the first reply: claims with
            their causes in mode ``inline`` (see :func:`attr_core.reports.compact.compact`), and the ``diagnosis``
            where one is asked for, else the ``trace_id``;
            ``documents``, copies with ``meta["attrkit"]``: the strongest ``effect`` on any target of the first reply,
            in ``unit``, its ``verdict`` and ``target``, and how the document was ``located`` in the messages.
        """
        return attributed(self.collector, Given(replies, messages, prompt, documents or [], query))

    @component.output_types(replies=list[ChatMessage], attribution=dict[str, Any], documents=list[Document])
    async def run_async(
        self,
        replies: list[ChatMessage],
        messages: list[ChatMessage] | None = None,
        prompt: str | None = None,
        documents: list[Document] | None = None,
        query: str | None = None,
    ) -> dict[str, Any]:
        """:meth:`run` in a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.run, replies, messages, prompt, documents, query)
