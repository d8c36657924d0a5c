"""What the tracer adds to a pipeline run with 20 documents of 2 kB, in the thread that runs it.

The retriever and the model answer at once, so that what is timed is Haystack and attrkit. Runs with and without the
tracer take turns, so that a busy machine slows both alike; a figure is that of the former less the median of the
latter. 10 ms after each leave the thread that stores its time.

    python benchmarks/haystack_overhead.py [RUNS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from haystack import Document, Pipeline, component
from haystack.components.builders import PromptBuilder
from haystack.components.generators.chat import MockChatGenerator

from attr_haystack import AttributionTracer

PAUSE_SECONDS = 0.010
TEMPLATE = "{% for document in documents %}{{ document.content }}\n{% endfor %}{{ question }}"
DOCUMENTS = [
    Document(id=f"n{i}", content=f"{i} " + "The fair opened in 1911. " * 80, meta={"file_path": f"{i}.md", "page": i})
    for i in range(20)
]


@component
class Ready:
    """Finds all documents at once."""

    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, Any]:
        return {"documents": list(DOCUMENTS)}


def main() -> None:
    n_runs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    pipeline = Pipeline()
    pipeline.add_component("retriever", Ready())
    pipeline.add_component("prompt", PromptBuilder(TEMPLATE))
    pipeline.add_component("llm", MockChatGenerator("In 1911."))
    pipeline.connect("retriever.documents", "prompt.documents")
    pipeline.connect("prompt.prompt", "llm.messages")
    inputs = {"retriever": {"query": "When?"}, "prompt": {"question": "When?"}}
    with tempfile.TemporaryDirectory() as folder:
        without, added = _compared(lambda: pipeline.run(inputs), Path(folder) / "runs.db", n_runs)
    p99 = statistics.quantiles(added, n=100)[98]
    print(f"{n_runs} runs each; {without:.2f} ms without the tracer\n")
    print(f"{'':20} median       p99")
    print(f"{'added to a run':20} {statistics.median(added):6.2f} ms {p99:6.2f} ms")


def _compared(run: Callable[[], object], store: Path, n_runs: int) -> tuple[float, list[float]]:
    """Median milliseconds of a run without the tracer, and what each run with it took beyond."""
    tracer = AttributionTracer(store=store)
    without: list[float] = []
    with_it: list[float] = []
    for _ in range(n_runs + 10):
        without.append(_milliseconds(run))
        tracer.install()
        with_it.append(_milliseconds(run))
        tracer.uninstall()
        time.sleep(PAUSE_SECONDS)
    assert tracer.flush(60), "every run was to be stored"
    median = statistics.median(without[10:])
    return median, [value - median for value in with_it[10:]]


def _milliseconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - started)


if __name__ == "__main__":
    main()
