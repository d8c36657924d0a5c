"""What ``with_logging`` adds to a call, in the thread that makes it.

The function that is wrapped answers at once, so that what is timed is the recording alone: reading the request and the
answer, and queueing the trace. Bare and logged calls take turns, so that a busy machine slows both alike; a figure is
that of the logged calls less the median of the bare ones. *Paced* calls leave 10 ms to the thread that stores, less
than any model takes; *back to back* the caller shares the interpreter with it, and its p99 is that wait.

    python benchmarks/logging_overhead.py [CALLS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attr_core import flush_logging, with_logging

GOAL_MILLISECONDS = 1.0
PAUSE_SECONDS = 0.010
ANSWER = {
    "model": "m",
    "choices": [{"message": {"role": "assistant", "content": "In 1911."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 900, "completion_tokens": 5, "total_tokens": 905},
}
CHUNKS = [{"model": "m", "choices": [{"index": 0, "delta": {"content": f"word{i} "}}]} for i in range(200)]
QUESTION = {"role": "user", "content": "When did the fair open?"}
DOCUMENTS = [
    {"id": f"d{i}", "text": f"{i} " + "The fair opened in 1911. " * 80, "metadata": {"source": f"{i}.md", "page": i}}
    for i in range(20)
]
CONTEXT = {"role": "system", "content": "Answer from these:\n\n" + "\n\n".join(str(d["text"]) for d in DOCUMENTS)}
CASES: dict[str, dict[str, Any]] = {
    "2 short messages": {"messages": [{"role": "system", "content": "Be brief."}, QUESTION], "temperature": 0},
    "20 documents of 2 kB": {"messages": [CONTEXT, QUESTION], "temperature": 0, "documents": DOCUMENTS},
}


def main() -> None:
    n_calls = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"{n_calls} calls each; goal: median at most {GOAL_MILLISECONDS:.0f} ms\n")
    print(f"{'':52}  median      p99")
    with tempfile.TemporaryDirectory() as folder:
        for label, options in CASES.items():
            for redact, how in ((None, ""), (_redact, ", redacted")):
                logged = with_logging(_complete, db=Path(folder) / "calls.db", redact=redact)
                for pause, rhythm in ((PAUSE_SECONDS, "paced"), (0.0, "back to back")):
                    _report(f"{label}{how}, {rhythm}", _overhead(logged, options, n_calls, pause))
        logged = with_logging(_stream, db=Path(folder) / "calls.db")
        _report("a stream's chunk, of 200", _overhead_of_chunks(logged, max(10, n_calls // 20)))
        assert flush_logging(60), "every call was to be stored"


def _complete(model: str, messages: list[Any], temperature: float = 1.0, documents: Any = None) -> dict[str, Any]:
    return dict(ANSWER)


def _stream(model: str, messages: list[Any]) -> Iterator[Any]:
    yield from CHUNKS


def _redact(text: str) -> str:
    return text.replace("1911", "[year]")


def _overhead(logged: Callable[..., Any], options: dict[str, Any], n_calls: int, pause: float) -> list[float]:
    """Milliseconds over the median bare call, per logged call."""
    bare, recorded = [], []
    for i in range(n_calls + 10):
        bare.append(_milliseconds(_complete, options))
        recorded.append(_milliseconds(logged, options))
        if pause:
            time.sleep(pause)
        elif i % 500 == 499:
            flush_logging(60)  # or the queue would be full
    usual = statistics.median(bare)
    return [value - usual for value in recorded[10:]]


def _overhead_of_chunks(logged: Callable[..., Any], n_streams: int) -> list[float]:
    bare, recorded = [], []
    for _ in range(n_streams):
        for call, times in ((_stream, bare), (logged, recorded)):
            stream = call("m", [QUESTION])
            for _ in CHUNKS:
                start = time.perf_counter()
                next(stream)
                times.append((time.perf_counter() - start) * 1000)
            for _ in stream:
                raise AssertionError("there is no further chunk")
    usual = statistics.median(bare)
    return [value - usual for value in recorded]


def _milliseconds(call: Callable[..., Any], options: dict[str, Any]) -> float:
    start = time.perf_counter()
    call("m", **options)
    return (time.perf_counter() - start) * 1000


def _report(label: str, values: list[float]) -> None:
    p99 = statistics.quantiles(values, n=100)[98]
    print(f"{label:52} {statistics.median(values):7.3f}  {p99:7.3f}  ms")


if __name__ == "__main__":
    main()
