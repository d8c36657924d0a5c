"""Measured values as bytes and back, exactly.

Bytes that are no such value raise ``KeyError``, ``TypeError`` or ``ValueError``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attr_core.protocols import Completion, GateScores, TokenScores
from attr_core.results import FloatArray


def write_scores(scores: TokenScores) -> bytes:
    """Token log-probabilities as bytes."""
    logprobs, offsets = _compact(scores.logprobs, "<f4", "<f8"), _compact(scores.offsets, "<i4", "<i8")
    return pack({"tokens_in": int(scores.tokens_in)}, [logprobs, offsets])


def read_scores(blob: bytes) -> TokenScores:
    """Token log-probabilities from bytes."""
    header, (logprobs, offsets) = _unpack(blob)
    if logprobs.dtype.kind != "f" or offsets.dtype.kind != "i" or offsets.shape != (*logprobs.shape, 2):
        raise ValueError("not token scores")
    return TokenScores(logprobs.astype(np.float64), offsets.astype(np.int64), header["tokens_in"])


def write_completion(completion: Completion) -> bytes:
    """A completion as bytes."""
    return pack(asdict(completion))


def read_completion(blob: bytes) -> Completion:
    """A completion from bytes."""
    header, _ = _unpack(blob)
    if not isinstance(header["text"], str):
        raise TypeError("not a completion")
    return Completion(**header)


def write_vector(vector: FloatArray) -> bytes:
    """An embedding as bytes."""
    return pack({}, [_compact(vector, "<f4", "<f8")])


def read_vector(blob: bytes) -> FloatArray:
    """An embedding ``(dim,)`` from bytes."""
    _, (vector,) = _unpack(blob)
    if vector.dtype.kind != "f" or vector.ndim != 1:
        raise ValueError("not a vector")
    return vector.astype(np.float64)


def write_gates(scores: GateScores) -> bytes:
    """Targets at one row of gates as bytes."""
    arrays = [_compact(scores.log_odds, "<f4", "<f8"), _compact(scores.gradients, "<f4", "<f8")]
    return pack({"tokens_in": int(scores.tokens_in)}, arrays)


def read_gates(blob: bytes) -> GateScores:
    """Targets at one row of gates from bytes."""
    header, (log_odds, gradients) = _unpack(blob)
    is_float = {log_odds.dtype.kind, gradients.dtype.kind} == {"f"}
    if not is_float or gradients.ndim != 2 or gradients.shape[:1] != log_odds.shape:
        raise ValueError("not targets at gates")
    return GateScores(log_odds.astype(np.float64), gradients.astype(np.float64), header["tokens_in"])


def pack(header: Mapping[str, Any], arrays: Iterable[NDArray[Any]] = ()) -> bytes:
    """A header as JSON and arrays behind it."""
    arrays = list(arrays)
    layout = [[array.dtype.newbyteorder("<").str, list(array.shape)] for array in arrays]
    head = json.dumps({**header, "arrays": layout}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    bodies = (np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes() for array in arrays)
    return b"".join([head, b"\n", *bodies])


def _unpack(blob: bytes) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    head, _, body = blob.partition(b"\n")
    header, arrays, start = json.loads(head.decode("utf-8", "surrogatepass")), [], 0
    for name, shape in header.pop("arrays"):
        dtype = np.dtype(name)
        end = start + dtype.itemsize * math.prod(shape)
        arrays.append(np.frombuffer(body[start:end], dtype=dtype).reshape(shape))  # ValueError where bytes are missing
        start = end
    if start != len(body):
        raise ValueError("bytes are left over")
    return header, arrays


def _compact(array: Any, small: str, large: str) -> NDArray[Any]:
    """The array in the smaller type where that loses nothing."""
    wide = np.asarray(array, dtype=large)
    with np.errstate(over="ignore"):
        narrow = wide.astype(small)
    same = narrow.astype(large).tobytes() == wide.tobytes()  # bitwise: NaN and -0.0 too
    return narrow if same else wide
