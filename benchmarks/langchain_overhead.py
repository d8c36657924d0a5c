"""What the callback handler adds to a run of a chain that retrieves 20 documents of 2 kB, in the thread that runs it.

The retriever and the model answer at once, so that what is timed is LangChain and the handler. Runs without a handler,
with one that does nothing and with attrkit's take turns, so that a busy machine slows all alike; a figure is that of
attrkit's runs less the median of the others. *Paced* runs leave 10 ms to the thread that stores; *back to back* they
share the interpreter with it.

    python benchmarks/langchain_overhead.py [RUNS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from attr_langchain import AttributionCallbackHandler

GOAL_MILLISECONDS = 1.0
PAUSE_SECONDS = 0.010
DOCUMENTS = [
    Document(f"{i} " + "The fair opened in 1911. " * 80, id=f"d{i}", metadata={"source": f"{i}.md", "page": i})
    for i in range(20)
]


class Ready(BaseRetriever):
    """Gives the documents at once."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return list(DOCUMENTS)


def main() -> None:
    n_runs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    chain = _chain()
    print(f"{n_runs} runs each; goal: median at most {GOAL_MILLISECONDS:.0f} ms\n")
    print(f"{'':58}  median      p99")
    with tempfile.TemporaryDirectory() as folder:
        for pause, rhythm in ((PAUSE_SECONDS, "paced"), (0.0, "back to back")):
            with AttributionCallbackHandler(store=Path(folder) / "runs.db") as handler:
                over_none, over_idle = _overhead(chain, handler, n_runs, pause)
                assert handler.flush(60), "every run was to be stored"
            _report(f"over no handler, {rhythm}", over_none)
            _report(f"over a handler that does nothing, {rhythm}", over_idle)


def _chain() -> Any:
    prompt = ChatPromptTemplate.from_messages([("system", "Answer from:\n{context}"), ("human", "{question}")])
    joined = RunnableLambda(lambda documents: "\n\n".join(document.page_content for document in documents))
    model = FakeListChatModel(responses=["In 1911."])
    return {"context": Ready() | joined, "question": RunnablePassthrough()} | prompt | model | StrOutputParser()


def _overhead(chain: Any, handler: Any, n_runs: int, pause: float) -> tuple[list[float], list[float]]:
    """Milliseconds per run over the median run without a handler, and with one that does nothing."""
    cases: list[tuple[list[Any], list[float]]] = [([], []), ([BaseCallbackHandler()], []), ([handler], [])]
    for i in range(n_runs + 10):
        for callbacks, times in cases[i % 3 :] + cases[: i % 3]:  # each comes first as often as the others
            times.append(_milliseconds(chain, callbacks))
            if pause:
                time.sleep(pause)
        if not pause and i % 500 == 499:
            handler.flush(60)  # or the queue would be full
    none, idle, ours = (times[10:] for _, times in cases)
    over_none, over_idle = statistics.median(none), statistics.median(idle)
    return [t - over_none for t in ours], [t - over_idle for t in ours]


def _milliseconds(chain: Any, callbacks: list[Any]) -> float:
    started = time.perf_counter()
    chain.invoke("When did the fair open?", config={"callbacks": callbacks})
    return 1000 * (time.perf_counter() - started)


def _report(label: str, overheads: list[float]) -> None:
    p99 = statistics.quantiles(overheads, n=100)[98]
    print(f"{label:58}  {statistics.median(overheads):5.2f} ms  {p99:5.2f} ms")


if __name__ == "__main__":
    main()
