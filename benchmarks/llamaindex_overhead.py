"""What the instrumentation adds to a query that retrieves 20 nodes of 2 kB, in the thread that runs it, and to a token.

The index, the embedding and the model answer at once, so that what is timed is LlamaIndex and attrkit. Queries with and
without the instrumentation take turns, so that a busy machine slows both alike; a figure is that of the former less the
median of the latter. 10 ms after each leave the thread that stores its time.

    python benchmarks/llamaindex_overhead.py [QUERIES]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.schema import TextNode

from attr_llamaindex import instrument

PAUSE_SECONDS = 0.010
N_TOKENS = 500
NODES = [
    TextNode(text=f"{i} " + "The fair opened in 1911. " * 80, id_=f"n{i}", metadata={"source": f"{i}.md", "page": i})
    for i in range(20)
]


class Ready(CustomLLM):
    """Answers at once."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(context_window=100_000, model_name="ready")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text="In 1911.")

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        return (CompletionResponse(text="", delta="so ") for _ in range(N_TOKENS))


def main() -> None:
    n_queries = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    index = VectorStoreIndex(NODES, embed_model=MockEmbedding(embed_dim=8))
    engine = index.as_query_engine(llm=Ready(), similarity_top_k=20)
    streaming = index.as_query_engine(llm=Ready(), similarity_top_k=20, streaming=True)
    print(f"{n_queries} queries each\n")
    print(f"{'':40}   median       p99")
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "runs.db"
        _report("a query", _overhead(lambda: engine.query("When did the fair open?"), store, n_queries), "ms")
        pieces = _overhead(lambda: list(streaming.query("When?").response_gen), store, n_queries // 5)
        _report("a token of a stream", [1000 * value / N_TOKENS for value in pieces], "µs")


def _overhead(ask: Callable[[], object], store: Path, n_queries: int) -> list[float]:
    """Milliseconds per query over the median query without the instrumentation."""
    without: list[float] = []
    with_it: list[float] = []
    for _ in range(n_queries + 10):
        without.append(_milliseconds(ask))
        instrumentation = instrument(store=store)
        with_it.append(_milliseconds(ask))
        instrumentation.uninstrument()
        time.sleep(PAUSE_SECONDS)
    assert instrumentation.flush(60), "every query was to be stored"
    median = statistics.median(without[10:])
    return [value - median for value in with_it[10:]]


def _milliseconds(ask: Callable[[], object]) -> float:
    started = time.perf_counter()
    ask()
    return 1000 * (time.perf_counter() - started)


def _report(what: str, values: list[float], unit: str) -> None:
    p99 = statistics.quantiles(values, n=100)[98]
    print(f"{what:40} {statistics.median(values):6.2f} {unit} {p99:6.2f} {unit}")


if __name__ == "__main__":
    main()
