"""The callback handler: what LangChain says about its runs, passed on to the recorder.

Every method is a host's call into attrkit: it converts what is live into data of our own, notes it, and never raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Self
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from attr_core._plain import plain
from attr_core.algorithms import Algorithm
from attr_core.attribution import Attribution
from attr_core.capture import MAX_AGE, MAX_RUNS, Complaints, RunRecorder, guarded
from attr_core.collector import INLINE_SECONDS, Collector, Mode, Strategy
from attr_core.middleware import SavesTraces
from attr_core.protocols import Engine, Judge
from attr_core.results import Budget, Diagnosis
from attr_core.store import Store
from attr_core.types import ATTRKIT_KEY, Retrieval, ToolCall, Trace
from attr_core.worker import WorkerStats
from attr_langchain.convert import texts_in, to_answer, to_document, to_generation, to_text_generation, to_tool_result
from attr_langchain.feedback import Client, send_diagnosis, send_feedback
from attr_langchain.payloads import about, answer_in, documents_in, status_of, texts_out

__all__ = ["AttributionCallbackHandler"]


class AttributionCallbackHandler(BaseCallbackHandler):
    """Records every run of a chain, graph or agent, and says what caused its answer.

    ``chain.invoke(question, config={"callbacks": [handler]})``, or once for all by
    ``chain.with_config(callbacks=[handler])``. One handler serves any number of chains, threads and event loops.

    Without an engine it captures: each root run becomes a trace in the database, for ``attrkit inspect`` and
    ``attrkit worker``. With one it also attributes, in a thread of its own (``mode="deferred"``) or before the run
    returns (``mode="inline"``, for notebooks and tests). Messages of the model carry ``{"trace_id": ...}`` in
    ``response_metadata["attrkit"]`` at once, in ``inline`` mode with the compact result; of a stream, the first chunk
    does. Nothing else of the application's data is touched, and no exception of attrkit's reaches it.

    Parameters
    ----------
    mode : {"capture", "deferred", "inline"}, optional
        By default ``deferred`` where an engine is given, else ``capture``.
    engine : str or Engine, optional
        What measures: ``"hf:MODEL"``, or a loaded engine. Without one nothing is ever spent in this process.
    algorithm : str or algorithm, default "likelihood"
    store : path, Store or object with ``save(trace)``, optional
        By default ``ATTRKIT_DB``, else ``~/.attrkit/attrkit.db``.
    sample_rate : float, default 1.0
        Share of the runs that are attributed; all are stored.
    redact : callable, optional
        Text -> text, applied before anything is stored or attributed, in the thread of the run.
    stamp : bool, default True
        Leave the key ``attrkit`` in the messages' ``response_metadata``.
    budget, budget_per_day : Budget
        Caps for one run, and for all runs of a UTC day in this database.
    time_limit : float
        Seconds that ``inline`` mode may hold a run up.
    langsmith : langsmith.Client, optional
        Also send each result, and each diagnosis, as feedback to the run of the same id. Only this, and a hosted
        engine or judge that is named, use the network.
    queue_limit, executor
        As for :class:`attr_core.collector.Collector`.
    max_runs, max_age
        When an open run is stored without its end: how many may be open, and for how many seconds without an event.
    diagnose : bool, default False
        Also say which failure each answer is, what proves it and what to do: see ``docs/diagnosis.md``. It runs prompts
        again on ``engine``, for what the attribution leaves of ``budget``.
    judge : str, Judge, callable or object, optional
        Who judges, such as ``"litellm:MODEL"``; see :func:`attr_core.judge.load_judge` for more, and for the default.
    strategy : {"cause", "support"}, default "cause"
        ``support`` asks the judge alone: no engine is needed, and nothing is attributed.
    **options
        Further ones of :func:`attr_core.attribute`: ``estimator``, ``granularity``, ``totals``, ...

    Raises
    ------
    ConfigurationError
        See :class:`attr_core.collector.Collector`.
    """

    raise_error = False

    def __init__(
        self,
        *,
        mode: Mode | None = None,
        engine: str | Engine | None = None,
        algorithm: str | Algorithm = "likelihood",
        store: str | os.PathLike[str] | Store | SavesTraces | None = None,
        sample_rate: float = 1.0,
        redact: Callable[[str], str] | None = None,
        stamp: bool = True,
        budget: Budget = Budget(),
        budget_per_day: Budget = Budget(),
        time_limit: float = INLINE_SECONDS,
        langsmith: Client | None = None,
        queue_limit: int = 256,
        executor: Executor | None = None,
        max_runs: int = MAX_RUNS,
        max_age: float = MAX_AGE,
        diagnose: bool = False,
        judge: str | Judge | Any | None = None,
        strategy: Strategy = "cause",
        **options: Any,
    ) -> None:
        self.collector = Collector(
            mode=mode,
            engine=engine,
            algorithm=algorithm,
            store=store,
            sample_rate=sample_rate,
            redact=redact,
            budget=budget,
            budget_per_day=budget_per_day,
            time_limit=time_limit,
            queue_limit=queue_limit,
            executor=executor,
            diagnose=diagnose,
            judge=judge,
            strategy=strategy,
            **options,
        )
        self.recorder = RunRecorder(self.collector.deliver, framework="langchain", max_runs=max_runs, max_age=max_age)
        # In an event loop capture is cheap enough to run where it is called; an inline attribution is not.
        self.run_inline = self.collector.mode != "inline"
        self._is_stamping = stamp
        if langsmith is not None:
            self.collector.on_result(lambda trace, result: send_feedback(langsmith, trace, result))
            self.collector.on_diagnosis(lambda trace, diagnosis: send_diagnosis(langsmith, trace, diagnosis))

    # --- what users call ---------------------------------------------------------------------------------------------

    def result(self, run: UUID | str | None = None, *, timeout: float | None = None) -> Attribution | None:
        """The attribution of a run, by its run id or trace id; see :meth:`attr_core.collector.Collector.result`."""
        return self.collector.result(run, timeout=timeout)

    def last(self, *, timeout: float | None = None) -> Attribution | None:
        """The attribution of the run that ended last; ``None`` where it was only captured."""
        return self.collector.result(timeout=timeout)

    async def aresult(self, run: UUID | str | None = None, *, timeout: float | None = None) -> Attribution | None:
        """:meth:`result` for callers that run an event loop."""
        return await self.collector.aresult(run, timeout=timeout)

    def diagnosis(self, run: UUID | str | None = None, *, timeout: float | None = None) -> Diagnosis | None:
        """The diagnosis of a run, as :meth:`result` gives the attribution; ``None`` where it was not diagnosed."""
        return self.collector.diagnosis(run, timeout=timeout)

    async def adiagnosis(self, run: UUID | str | None = None, *, timeout: float | None = None) -> Diagnosis | None:
        """:meth:`diagnosis` for callers that run an event loop."""
        return await self.collector.adiagnosis(run, timeout=timeout)

    def trace(self, run: UUID | str | None = None) -> Trace:
        """A run as it was recorded, by its run id or trace id; by default the one that ended last."""
        return self.collector.trace(run)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the runs that ended are stored and, where they are to be, attributed; whether all are."""
        return self.collector.flush(timeout)

    def close(self, timeout: float | None = None) -> bool:
        """Flush and attribute nothing more; further runs are still stored."""
        return self.collector.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def stats(self) -> WorkerStats:
        """How many runs were attributed, failed, dropped, postponed, and wait."""
        return self.collector.stats

    @property
    def complaints(self) -> Complaints:
        """What has been warned of."""
        return self.collector.complaints

    # An application may copy its configuration, the handler in it included.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    # --- what LangChain calls ----------------------------------------------------------------------------------------

    @guarded
    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **told: Any,
    ) -> None:
        """A runnable begins: a chain, a graph, a node, a prompt, a parser, a function."""
        documents = documents_in(inputs)
        self.recorder.begin(run_id, parent_run_id, about=lambda: about(inputs, told), formats=bool(documents))
        if told.get("run_type") == "prompt":
            self.recorder.add_variables(run_id, texts_in(inputs))

    @guarded
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **told: Any) -> None:
        """It ended; of a root under ``stream``, ``inputs`` are what went in."""
        late: dict[str, Any] = {}
        if self.recorder.is_root(run_id):
            late["output"] = answer_in(outputs)
            if "inputs" in told:
                root = about(told["inputs"], {})
                late.update(query=root.query, given=root.given)
        self.recorder.finish(
            run_id, documents=self._new(run_id, documents_in(outputs)), contexts=texts_out(outputs), **late
        )

    @guarded
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **told: Any) -> None:
        """It failed, was cancelled, or a graph was interrupted to ask somebody."""
        self.recorder.fail(run_id, error, status=status_of(error))

    @guarded
    def on_chat_model_start(
        self,
        serialized: dict[str, Any] | None,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **told: Any,
    ) -> None:
        """A chat model is called, with the messages as they are finally sent."""
        self.recorder.begin(
            run_id,
            parent_run_id,
            lambda: to_generation(
                messages[0],
                invocation_params=told.get("invocation_params"),
                metadata=told.get("metadata"),
            ),
            about=lambda: about(messages[0], told),
        )

    @guarded
    def on_llm_start(
        self,
        serialized: dict[str, Any] | None,
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **told: Any,
    ) -> None:
        """A text model is called."""
        self.recorder.begin(
            run_id,
            parent_run_id,
            lambda: to_text_generation(
                prompts[0],
                invocation_params=told.get("invocation_params"),
                metadata=told.get("metadata"),
            ),
            about=lambda: about(prompts[0], told),
        )

    @guarded
    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **told: Any) -> None:
        """A stream goes on: its first chunk carries the trace's id, so that their sum does."""
        if chunk is not None and (trace_id := self.recorder.first_time(run_id)) is not None:
            self._leave(getattr(chunk, "message", None), trace_id)

    @guarded
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **told: Any) -> None:
        """A model answered."""
        if (trace_id := self.recorder.trace_id(run_id)) is not None:
            for generation in response.generations[0] if response.generations else ():
                self._leave(getattr(generation, "message", None), trace_id)
        self.recorder.finish(run_id, **to_answer(response))

    @guarded
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **told: Any) -> None:
        """A model failed, or its stream was let go of; what had come by then is kept."""
        response = told.get("response")
        partial = to_answer(response) if isinstance(response, LLMResult) and any(response.generations) else {}
        self.recorder.fail(run_id, error, status=status_of(error), **partial)

    @guarded
    def on_retriever_start(
        self,
        serialized: dict[str, Any] | None,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **told: Any,
    ) -> None:
        """A retriever is asked."""
        self.recorder.begin(
            run_id,
            parent_run_id,
            lambda: Retrieval(query=str(query), documents=(), name=told.get("name")),
            about=lambda: about(query, told),
        )

    @guarded
    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **told: Any) -> None:
        """It gave documents."""
        found = tuple(to_document(document, position) for position, document in enumerate(documents))
        self.recorder.finish(run_id, documents=found)

    @guarded
    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **told: Any) -> None:
        """It failed."""
        self.recorder.fail(run_id, error)

    @guarded
    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        **told: Any,
    ) -> None:
        """A tool is called."""
        name = (serialized or {}).get("name") or told.get("name") or "tool"
        self.recorder.begin(
            run_id,
            parent_run_id,
            lambda: ToolCall(
                id=str(told.get("tool_call_id") or run_id),
                name=str(name),
                arguments=input_str if inputs is None else plain(inputs),
            ),
            about=lambda: about(inputs if inputs is not None else input_str, told),
        )

    @guarded
    def on_tool_end(self, output: Any, *, run_id: UUID, **told: Any) -> None:
        """It gave something."""
        text, error, documents = to_tool_result(output)
        found: dict[str, Any] = {} if error is None else {"error": error}
        if isinstance(asked := getattr(output, "tool_call_id", None), str) and asked:
            found["id"] = asked
        self.recorder.finish(run_id, output=text, documents=documents, **found)

    @guarded
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **told: Any) -> None:
        """It failed."""
        self.recorder.fail(run_id, error, status=status_of(error))

    # --- what is done with it ----------------------------------------------------------------------------------------

    def _new(self, run_id: UUID, documents: Sequence[Document]) -> tuple[Any, ...]:
        """Documents that no retriever of this run gave: a function of the application fetched them."""
        return tuple(
            to_document(document, position)
            for position, document in enumerate(documents)
            if self.recorder.is_new(run_id, document.page_content)
        )

    def _leave(self, message: Any, trace_id: str) -> None:
        if not self._is_stamping or not isinstance(message, BaseMessage):
            return
        # A dict of its own: a cache or a checkpoint may share the one that is there.
        message.response_metadata = {**message.response_metadata, ATTRKIT_KEY: self.collector.stamp(trace_id)}
