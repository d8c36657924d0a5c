"""A file that another tool exported -> traces: which format it is, what could be read, and what could not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from attr_core.errors import ConfigurationError, InputError
from attr_core.importing import langfuse, langsmith, openinference
from attr_core.importing.assembly import assemble
from attr_core.types import Trace

__all__ = ["FORMATS", "Imported", "ImportedTrace", "read_traces"]

FORMATS: Mapping[str, ModuleType] = {one.SOURCE: one for one in (openinference, langsmith, langfuse)}
"""By name, in the order in which they are tried."""

MAX_KEYS_SHOWN = 12
_KNOWN = "OpenInference or OTLP JSON (resourceSpans), LangSmith runs (run_type), Langfuse observations (type, traceId)"


@dataclass(frozen=True, slots=True)
class ImportedTrace:
    """A trace, and what its record lacks."""

    trace: Trace
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file held: ``failed`` are (which one, why) of what could not be read."""

    format: str
    found: tuple[ImportedTrace, ...]
    failed: tuple[tuple[str, str], ...] = ()


def read_traces(path: str | Path, *, format: str | None = None) -> Imported:  # noqa: A002
    """Read traces that OpenInference, LangSmith or Langfuse recorded; asks nobody and stores nothing.

    The file is JSON or JSON lines. The same file gives the same traces, ids included: they follow from the source's.
    One trace that cannot be read is told in ``failed``, and the others are there.

    Parameters
    ----------
    path : path
    format : {"openinference", "langsmith", "langfuse"}, optional
        By default told by the records' keys.

    Raises
    ------
    InputError
        The file cannot be read, is no JSON, or is of no known format; the message names the keys that it holds.
    ConfigurationError
        No such format.
    """
    if format is not None and format not in FORMATS:
        raise ConfigurationError(f"format {format!r} is unknown; use {', '.join(FORMATS)}")
    records, failed = _records(Path(path))
    named = format or _format_of(records, Path(path))
    chosen = FORMATS[named]
    usable = []
    for number, record in enumerate(records, start=1):
        if isinstance(record, Mapping) and (format is not None or chosen.is_record(record)):
            usable.append(record)
        else:
            failed.append((f"record {number}", f"it is not of the format {named}; {_keys_of([record])}"))
    found = []
    for name, run in chosen.runs(usable):
        try:
            if isinstance(run, Exception):
                raise run
            found.append(ImportedTrace(*assemble(run)))
        except RecursionError:
            failed.append((f"trace {name}", "it is nested too deeply"))
        except Exception as error:  # whatever is odd about one, the others are read
            failed.append((f"trace {name}", _reason(error)))
    return Imported(named, tuple(found), tuple(failed))


def _reason(error: Exception) -> str:
    told = " ".join(str(error).split())[:300]
    return told if isinstance(error, InputError) else f"its record has an unexpected shape ({type(error).__name__})"


def _records(path: Path) -> tuple[list[Any], list[tuple[str, str]]]:
    """What the file holds as a list, and the lines that are no JSON."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; export the traces as JSON or JSON lines") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    if not text.strip():
        raise InputError(f"{path} is empty; export the traces as JSON or JSON lines")
    try:
        whole = json.loads(text)
        return (whole if isinstance(whole, list) else [whole]), []
    except RecursionError as error:
        raise InputError(f"{path} is nested too deeply to be read") from error
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        if len(lines) < 2:
            raise InputError(f"{path} is not JSON ({error}); export the traces as JSON or JSON lines") from error
    return _lines(path, lines)


def _lines(path: Path, lines: Sequence[tuple[int, str]]) -> tuple[list[Any], list[tuple[str, str]]]:
    records: list[Any] = []
    failed = []
    for number, line in lines:
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            failed.append((f"line {number}", "it is not JSON"))
    if not records:
        raise InputError(f"{path} holds no JSON; export the traces as JSON or JSON lines")
    return [one for record in records for one in (record if isinstance(record, list) else [record])], failed


def _format_of(records: Sequence[Any], path: Path) -> str:
    for name, module in FORMATS.items():
        if any(isinstance(record, Mapping) and module.is_record(record) for record in records):
            return name
    raise InputError(f"{path} is of no known format: {_keys_of(records)}; known are {_KNOWN}")


def _keys_of(records: Sequence[Any]) -> str:
    keys = list(dict.fromkeys(str(key)[:60] for one in records[:20] if isinstance(one, Mapping) for key in one))
    if not keys:
        return "its records are no objects"
    more = ", …" if len(keys) > MAX_KEYS_SHOWN else ""
    return f"the keys seen are {', '.join(keys[:MAX_KEYS_SHOWN])}{more}"
