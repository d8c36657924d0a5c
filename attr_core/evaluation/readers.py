"""Files, data frames, data sets and lists -> records: where each stands, and its columns."""

from __future__ import annotations

import ast
import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attr_core.errors import DatasetError

__all__ = ["Record", "listed", "plain_value", "records_of"]

Record = tuple[str, Mapping[str, Any]]
"""Where it stands (``file.jsonl:3``), and column -> value."""

_LISTS_OF_ROWS = ("results", "rows", "data", "samples", "examples", "test_cases")
_BOM = "\ufeff"


def records_of(dataset: Any) -> list[Record]:
    """Every record of a set, in order; columns whose value is ``None`` or NaN are left out of theirs.

    Parameters
    ----------
    dataset : path, iterable of dicts, mapping of columns, pandas.DataFrame or datasets.Dataset
        A path ends with ``.jsonl``, ``.json`` or ``.csv`` (``.tsv``). A mapping has a list for each column.

    Raises
    ------
    DatasetError
        It cannot be read or holds no rows, or one of them is no row.
    """
    if isinstance(dataset, str | Path):
        found, name = _file(Path(dataset)), str(dataset)
    elif callable(to_dicts := getattr(dataset, "to_dicts", None)):  # polars
        found, name = _numbered(to_dicts(), "row"), "the data frame"
    elif callable(to_dict := getattr(dataset, "to_dict", None)) and hasattr(dataset, "columns"):
        found, name = _numbered(to_dict("records"), "row"), "the data frame"
    elif isinstance(dataset, Mapping):
        found, name = _columnar(dataset, "the mapping"), "the mapping"
    elif isinstance(dataset, Iterable):
        found, name = _numbered(dataset, "row"), "the data set"
    else:
        raise DatasetError(f"a data set of {type(dataset).__name__} cannot be read; give a path, a list of dicts, ...")
    rows: list[Record] = [
        (where, {key: value for key, value in row.items() if not _is_nothing(value)}) for where, row in found
    ]
    if not rows:
        raise DatasetError(f"{name} holds no rows")
    return rows


def plain_value(value: Any) -> Any:
    """A value with the arrays and scalars of other libraries as Python's."""
    if callable(to_list := getattr(value, "tolist", None)):
        value = to_list()
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    return [plain_value(item) for item in value] if isinstance(value, list | tuple) else value


def listed(text: str) -> Any:
    """A list that was written as text, as tables hold it (JSON, or Python's own); else the text."""
    bare = text.strip()
    if not (bare.startswith("[") and bare.endswith("]")):
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(bare)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list):
            return found
    return text


def _file(path: Path) -> Iterator[Record]:
    readers = {".jsonl": _json_lines, ".ndjson": _json_lines, ".json": _json, ".csv": _table, ".tsv": _table}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(f"{path} ends with none of {', '.join(readers)}; rename it, or pass its rows")
    try:
        text = path.read_bytes().decode("utf-8").removeprefix(_BOM)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from error
    return reader(path, text)


def _json_lines(path: Path, text: str) -> Iterator[Record]:
    # Not splitlines: U+2028 and the like may stand in a text.
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip(" \t\r" + _BOM)
        if bare:
            where = f"{path}:{number}"
            yield where, _row(_loaded(bare, where, "write one object a line"), where)


def _json(path: Path, text: str) -> Iterator[Record]:
    data = _loaded(text, str(path), "write a list of objects")
    if isinstance(data, dict):
        rows = next((data[key] for key in _LISTS_OF_ROWS if _is_rows(data.get(key))), None)
        if rows is None:
            return _columnar(data, str(path))
        data = rows
    if not isinstance(data, list):
        raise DatasetError(f"{path} holds {_kind(data)}, no list of rows; write a list of objects")
    return _numbered(data, f"{path}: row")


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _table(path: Path, text: str) -> Iterator[Record]:
    csv.field_size_limit(2**31 - 1)
    reader = csv.DictReader(
        io.StringIO(text, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True
    )
    try:
        names = [(name or "").strip() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        if twice := {name for name in names if names.count(name) > 1}:
            raise DatasetError(f"{path} has column {min(twice)!r} twice; rename one")
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if None in row:
                raise DatasetError(f"{where} has more cells than the header has columns; quote cells with commas")
            if any(cell and cell.strip() for cell in row.values()):
                yield where, {name: cell for name, cell in row.items() if cell and cell.strip()}
    except csv.Error as error:
        raise DatasetError(f"{path}:{reader.line_num} is no CSV ({error}); quote cells with commas") from error


def _columnar(columns: Mapping[Any, Any], name: str) -> Iterator[Record]:
    values = {str(key): plain_value(value) for key, value in columns.items()}
    lengths = {len(value) for value in values.values() if isinstance(value, list)}
    if len(lengths) != 1 or not all(isinstance(value, list) for value in values.values()):
        seen = ", ".join(list(values)[:12]) or "none"
        raise DatasetError(f"{name} is no table: its fields are {seen}; give a list for each column, all as long")
    return _numbered(
        ({key: value[row] for key, value in values.items()} for row in range(lengths.pop())), f"{name}: row"
    )


def _numbered(rows: Iterable[Any], name: str) -> Iterator[Record]:
    for number, row in enumerate(rows, start=1):
        yield f"{name} {number}", _row(row, f"{name} {number}")


def _row(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DatasetError(f"{where} is {_kind(value)}, no row; give an object such as {{'query': …}}")
    return {str(key): plain_value(item) for key, item in value.items()}


def _loaded(text: str, where: str, remedy: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise DatasetError(f"{where} is nested too deeply; {remedy}") from None
    except ValueError as error:
        raise DatasetError(f"{where} is not JSON ({error}); {remedy}") from error


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
