"""The planted-failure set as files that others can load and cite: rows as JSON lines, and a card beside them.

A row has the columns of an evaluation set (``id``, ``query``, ``expected_answer``, ``expected_chunks``, ``tags``,
``answer``, ``contexts``) and, under ``planted``, the whole sample (:mod:`~attr_core.evaluation.planted.records`): the
run's messages, what was planted, what repairs it, and the model that fails so. ``docs/bench-set.md`` is the datasheet.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from attr_core import __version__
from attr_core.errors import ConfigurationError, DatasetError
from attr_core.evaluation.planted.planting import planted
from attr_core.evaluation.planted.records import SCHEMA, from_dict, to_dict
from attr_core.evaluation.planted.samples import LABELS, PlantedSample
from attr_core.segmenter import segment_trace, unlocated

__all__ = ["CARD_SCHEMA", "LICENCE", "SET_VERSION", "BenchSet", "card_path", "read_set", "write_set"]

CARD_SCHEMA: Final = "attrkit.planted-set/1"
SET_VERSION: Final = "1.0"
"""Raised whenever the same seed gives another set."""

LICENCE: Final = "CC-BY-4.0"
CANARY: Final = "attrkit:planted-failures:7b1c8f0a-2f3e-4a57-9d0e-5c61e9a3d2b4"
"""Stands in the card, so that who gathers training data can leave the set out, and who finds it knows."""

_CITATION: Final = "The attrkit developers. attrkit planted failures, version {version}, seed {seed}."


@dataclass(frozen=True, slots=True)
class BenchSet:
    """The samples of a file, and its card; the card is empty where none stood beside it."""

    samples: tuple[PlantedSample, ...]
    card: Mapping[str, Any]


def write_set(
    path: str | Path, *, labels: Sequence[str] = LABELS, per_label: int = 10, seed: int = 0
) -> Mapping[str, Any]:
    """Write the set as JSON lines, and its card as ``NAME.card.json`` beside it; gives the card.

    The same labels, numbers, seed and version give the same bytes. Cost: no model is called.

    Raises
    ------
    ConfigurationError
        No such label, nothing to write, the name does not end with ``.jsonl``, or it cannot be written.
    """
    target = Path(path)
    if target.suffix != ".jsonl":
        raise ConfigurationError(f"{target} does not end with .jsonl; name the set so")
    if per_label < 1 or not labels:
        raise ConfigurationError(f"{per_label} samples of {len(labels)} labels are no set; ask for at least 1 of each")
    samples = planted(tuple(dict.fromkeys(labels)), per_label=per_label, seed=seed)
    rows = "".join(_line(_row(sample)) + "\n" for sample in samples).encode()
    card = _card(samples, rows, per_label=per_label, seed=seed)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(rows)
        card_path(target).write_bytes((json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror or error}") from error
    return card


def read_set(path: str | Path) -> BenchSet:
    """Read what :func:`write_set` wrote; the card, where there is one, is held against the rows.

    Raises
    ------
    DatasetError
        The file cannot be read, a line is no sample (the message names it), or the rows are not those of the card.
    """
    source = Path(path)
    data = _bytes(source)
    card = _read_card(card_path(source), data)
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{source} is not UTF-8 text; write the set again") from error
    samples = tuple(_sample(f"{source}:{n}", line) for n, line in enumerate(lines, start=1) if line.strip())
    if not samples:
        raise DatasetError(f"{source} holds no sample; write it with attrkit bench-set -o {source}")
    if twice := [name for name, n in Counter(one.id for one in samples).items() if n > 1]:
        raise DatasetError(f"{source} has sample {twice[0]!r} twice; leave one out")
    return BenchSet(samples, card)


def card_path(path: str | Path) -> Path:
    """Where the card of a set stands: ``set.jsonl`` has ``set.card.json``."""
    return Path(path).with_suffix(".card.json")


def _row(sample: PlantedSample) -> dict[str, Any]:
    trace = sample.trace
    generation = segment_trace(trace)
    lost = {one.id for one in unlocated(trace.documents, generation.segments)}
    contexts = [{"id": one.id, "text": one.text} for one in trace.documents if one.id not in lost]
    return {
        "id": sample.id,
        "query": trace.query,
        "expected_answer": sample.expected,
        "expected_chunks": list(sample.right),
        "tags": [sample.label, sample.variant],
        "answer": generation.written,
        "contexts": contexts,
        "planted": to_dict(sample),
    }


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(", ", ": "))


def _card(samples: Sequence[PlantedSample], rows: bytes, *, per_label: int, seed: int) -> dict[str, Any]:
    return {
        "schema": CARD_SCHEMA,
        "name": "attrkit planted failures",
        "version": SET_VERSION,
        "samples": SCHEMA,
        "seed": seed,
        "per_label": per_label,
        "labels": dict(Counter(one.label for one in samples)),
        "n_samples": len(samples),
        "sha256": hashlib.sha256(rows).hexdigest(),
        "licence": LICENCE,
        "citation": _CITATION.format(version=SET_VERSION, seed=seed),
        "generator": f"attrkit {__version__}",
        "documentation": "docs/bench-set.md",
        "canary": CANARY,
    }


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error


def _read_card(path: Path, rows: bytes) -> Mapping[str, Any]:
    if not path.exists():
        return {}
    try:
        card = json.loads(_bytes(path))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not JSON; write the set again, or remove the card") from error
    if not isinstance(card, dict) or card.get("schema") != CARD_SCHEMA:
        found = card.get("schema") if isinstance(card, dict) else None
        raise DatasetError(f"{path} has the schema {found!r}; this version reads {CARD_SCHEMA}")
    if card.get("sha256") != hashlib.sha256(rows).hexdigest():
        raise DatasetError(f"{path} is of other rows (sha256 differs); write the set again, or remove the card")
    return card


def _sample(where: str, line: str) -> PlantedSample:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where} is not JSON; write the set again") from error
    if not isinstance(row, dict) or not isinstance(row.get("planted"), dict):
        seen = ", ".join(map(str, list(row)[:12])) if isinstance(row, dict) else type(row).__name__
        raise DatasetError(f"{where} holds no planted sample (its fields are {seen or 'none'}); write the set again")
    try:
        return from_dict(row["planted"])
    except (AttributeError, DatasetError, ConfigurationError) as error:
        raise DatasetError(f"{where}: {error}") from error
