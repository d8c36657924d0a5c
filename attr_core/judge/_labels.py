"""A file of claims that people judged -> rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attr_core.errors import DatasetError
from attr_core.results import SupportVerdict

_NAMES = {
    SupportVerdict.ENTAILS: "entails, entailed, entailment, supports, supported, support",
    SupportVerdict.CONTRADICTS: "contradicts, contradicted, contradiction, refutes, refuted, refute",
    SupportVerdict.NEUTRAL: "neutral, not enough info, not enough information, nei",
}
_LABELS = {name: verdict for verdict, names in _NAMES.items() for name in names.split(", ")}
_ALLOWED = "entails, contradicts or neutral (supported, refuted or not enough info will do)"
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """A claim, a segment's text, and what a person says that the segment says of it; ``line`` counts from 1."""

    claim: str
    segment: str
    label: SupportVerdict
    question: str | None = None
    line: int = 0


def read_labels(path: Path) -> tuple[LabelledRow, ...]:
    """The rows of a file, a JSON object a line, in order; what stands there twice is two rows.

    A row has ``claim``, ``segment`` and ``label``, perhaps ``question``; other keys are passed over, and so are blank
    lines and a byte order mark.

    Raises
    ------
    DatasetError
        The file cannot be read or holds no rows, or a row cannot be used; the message names its line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from error
    # Not splitlines: U+2028 and the like may stand in a text.
    lines = enumerate(text.replace("\r\n", "\n").split("\n"), start=1)
    rows = tuple(_row(line, number, path) for number, line in lines if line.strip(" \t\r\ufeff"))
    if not rows:
        raise DatasetError(f'{path} holds no rows; give lines such as {{"claim": …, "segment": …, "label": "entails"}}')
    return rows


def _row(line: str, number: int, path: Path) -> LabelledRow:
    where = f"{path}, line {number}"
    try:
        record = json.loads(line.strip("\ufeff"))
    except (ValueError, RecursionError) as error:
        told = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DatasetError(f"{where} is not JSON ({told}); write one object a line") from error
    if not isinstance(record, dict):
        raise DatasetError(f"{where} is {type(record).__name__}, no object; give claim, segment and label")
    question = record.get("question")
    if question is not None and not isinstance(question, str):
        raise DatasetError(f"{where} has question {_shown(question)}; give text, or leave it out")
    return LabelledRow(
        _text(record, "claim", where), _text(record, "segment", where), _label(record, where), question or None, number
    )


def _text(record: dict[str, Any], key: str, where: str) -> str:
    if key not in record:
        raise DatasetError(f"{where} has no {key}; give claim, segment and label")
    value = record[key]
    if not isinstance(value, str) or not value.strip():
        raise DatasetError(f"{where} has {key} {_shown(value)}; give text that is not blank")
    return value


def _label(record: dict[str, Any], where: str) -> SupportVerdict:
    if "label" not in record:
        raise DatasetError(f"{where} has no label; give {_ALLOWED}")
    value = record["label"]
    name = " ".join(value.casefold().replace("_", " ").replace("-", " ").split()) if isinstance(value, str) else ""
    if name not in _LABELS:
        raise DatasetError(f"{where} has label {_shown(value)}; give {_ALLOWED}")
    return _LABELS[name]


def _shown(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= _SHOWN else told[: _SHOWN - 1] + "…"
