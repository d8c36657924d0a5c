"""Rows of an evaluation set: a question, and what is known of it, in whatever field names it came."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attr_core.errors import DatasetError, InputError
from attr_core.evaluation.fields import FieldMap, map_fields, parse_choices
from attr_core.evaluation.planted.records import SCHEMA, from_dict
from attr_core.evaluation.readers import Record, listed, records_of
from attr_core.types import Document, Trace

__all__ = ["PLANTED", "EvaluationSet", "Row", "read_rows", "text_id"]

_QUERY_KEYS = ("query", "question", "user_input", "input", "prompt")
_ANSWER_KEYS = ("response", "answer", "output", "content", "text")
_EXPECTED_KEYS = ("expected_response", "expected_answer", "ground_truth", "reference")
_SHOWN = 60

PLANTED = FieldMap("planted", {"question": "query", "response": "answer", "expected": "expected_answer"})
"""How a set of planted failures is read: as the recorded runs that it is."""


@dataclass(frozen=True, slots=True)
class Row:
    """One question of a set.

    ``expected_chunks`` are ids or pieces of text, as :func:`attr_core.support.retrieval.retrieval_recall` takes them.
    ``answer`` and ``contexts`` are what was answered already, from what; ``contexts`` is ``None`` where that is not
    known, and empty where nothing was retrieved. ``trace`` is the recorded run that gave the answer; where there is
    none, its prompt is put together. ``trouble`` says why a row cannot be evaluated: it is then recorded as failed, and
    the others go on.
    """

    id: str
    query: str
    expected_answer: str | None = None
    expected_chunks: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    answer: str | None = None
    contexts: tuple[Document, ...] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    trace: Trace | None = None
    trouble: str = ""

    @property
    def digest(self) -> str:
        """Tells whether a row of this id is still the same."""
        contexts = None if self.contexts is None else [[one.id, one.text] for one in self.contexts]
        said = [self.query, self.expected_answer, self.expected_chunks, self.answer, contexts]
        return hashlib.sha256(json.dumps(said, default=str).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """Rows, and how their fields were read; ``note`` is to be told where names were not our own."""

    rows: tuple[Row, ...]
    fields: FieldMap
    source: str = "rows"

    @property
    def note(self) -> str | None:
        """How the fields were read, where that is not plain."""
        return None if self.fields.is_plain else str(self.fields)

    @property
    def has_answers(self) -> bool:
        """Whether every row that can be evaluated has an answer already."""
        return all(row.answer is not None for row in self.rows if not row.trouble)

    def selected(self, *, limit: int | None = None, tags: Sequence[str] = ()) -> EvaluationSet:
        """The rows that have one of the tags, at most so many.

        Raises
        ------
        DatasetError
            None is left.
        """
        chosen = [row for row in self.rows if not tags or set(tags) & set(row.tags)][:limit]
        if not chosen:
            known = ", ".join(sorted({tag for row in self.rows for tag in row.tags})) or "none"
            raise DatasetError(f"no row has tag {' or '.join(map(repr, tags))}; tags are: {known}")
        return replace(self, rows=tuple(chosen))


def read_rows(dataset: Any, *, fields: Iterable[str] | Mapping[str, str] = ()) -> EvaluationSet:
    """Read a set, its fields named as attrkit, RagLens, ragas, DeepEval, RAGChecker, Haystack, Phoenix, ... do.

    What each column is is settled once for the whole set and told in ``note``. A row without an id gets one made of its
    question and expected answer, so that the order of rows does not matter.

    Parameters
    ----------
    dataset : path, iterable of dicts or Row, mapping of columns, pandas.DataFrame, datasets.Dataset or EvaluationSet
        A path ends with ``.jsonl``, ``.json``, ``.csv`` or ``.tsv``.
    fields : iterable of str or mapping
        ``"query=question"``, ..., or column -> field: settles what a column is.

    Raises
    ------
    DatasetError
        It cannot be read or holds no rows, one of them is no row, or its columns are not clear.

    Examples
    --------
    >>> row = {"user_input": "When did it open?", "reference": "1911", "retrieved_contexts": ["In 1911."]}
    >>> found = read_rows([row])
    >>> found.rows[0].expected_answer, found.rows[0].contexts[0].text
    ('1911', 'In 1911.')
    >>> found.note
    'read as ragas rows: user_input -> query, reference -> expected_answer, retrieved_contexts -> contexts'
    """
    if isinstance(dataset, EvaluationSet):
        return dataset
    if isinstance(dataset, list | tuple) and dataset and all(isinstance(row, Row) for row in dataset):
        return EvaluationSet(_with_distinct_ids(dataset), map_fields(["query"]))
    records = records_of(dataset)
    if all(record.get("schema") == SCHEMA for _, record in records):
        return EvaluationSet(tuple(_planted(record) for _, record in records), PLANTED, str(dataset)[:_SHOWN])
    columns = list(dict.fromkeys(column for _, record in records for column in record))
    where = str(dataset) if isinstance(dataset, str) or hasattr(dataset, "suffix") else "the rows"
    settled = dict(fields) if isinstance(fields, Mapping) else parse_choices(fields)
    mapping = map_fields(columns, chosen=settled, where=where)
    rows = [_row(one, mapping) for one in records]
    return EvaluationSet(_with_distinct_ids(rows), mapping, where)


def _row(record: Record, mapping: FieldMap) -> Row:
    where, values = record
    more = [column for column, ours in mapping.columns.items() if ours == "metadata" != column]
    found = {
        ours: values[column] for column, ours in mapping.columns.items() if column in values and column not in more
    }
    own = found.pop("metadata", {})
    metadata = dict(own) if isinstance(own, Mapping) else {"metadata": own}
    metadata |= {column: values[column] for column in (*mapping.left, *more) if column in values}
    tags = tuple(_tags(found.get("tags")))
    query = _first(found.get("query"), _QUERY_KEYS)
    shown = query if isinstance(query, str) else ""
    try:
        row = Row(
            id="",
            query=_question(query),
            expected_answer=_text(_first(found.get("expected_answer"), _EXPECTED_KEYS), "expected_answer"),
            expected_chunks=_chunks(found.get("expected_chunks"), found.get("expected_chunk_ids")),
            tags=tags,
            answer=_text(_first(found.get("answer"), _ANSWER_KEYS), "answer"),
            contexts=_contexts(found.get("contexts"), found.get("context_ids")),
            metadata=metadata,
        )
    except InputError as error:
        row = Row(id="", query=shown, tags=tags, metadata=metadata, trouble=f"{where}: {error}")
    identifier = found.get("id")
    return replace(row, id=str(identifier) if identifier not in (None, "") else _made_id(row, where))


def _planted(record: Mapping[str, Any]) -> Row:
    """A run with a planted failure, as :mod:`attr_core.evaluation.planted.records` writes it; its label is its tag."""
    sample = from_dict(record)
    return Row(
        id=sample.id,
        query=sample.trace.query or "",
        expected_answer=sample.expected,
        expected_chunks=sample.right,
        tags=(sample.label,),
        answer=sample.trace.target_generation.written,
        contexts=sample.trace.documents,
        metadata={"variant": sample.variant},
        trace=sample.trace,
    )


def _first(value: Any, keys: Sequence[str]) -> Any:
    """A value, or what a mapping has under one of the keys (MLflow's ``inputs``, ``outputs``, ``expectations``)."""
    if not isinstance(value, Mapping):
        return value
    known = [key for key in keys if isinstance(value.get(key), str)]
    return value[known[0]] if len(known) == 1 else value


def _question(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list):
        raise InputError("the question is a list; conversations are not read yet, give the last question as text")
    raise InputError(f"the question is {_shown(value)}; give text that is not blank")


def _text(value: Any, name: str) -> str | None:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None or (isinstance(value, str) and (value.strip() or name == "answer")):
        return value
    if isinstance(value, str):
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(int(value)) if float(value).is_integer() else str(value)
    raise InputError(f"{name} is {_shown(value)}; give one text")


def _chunks(value: Any, ids: Any) -> tuple[str, ...]:
    found = _several(value)
    if found is None:
        found = _several(ids)
    texts = []
    for item in found or ():
        named = isinstance(item, Mapping) and item.get("id")
        text = named or (item if isinstance(item, str | int) else Document.parse(item).text)
        texts.append(str(text))
    return tuple(texts)


def _contexts(value: Any, ids: Any) -> tuple[Document, ...] | None:
    found = _several(value)
    if found is None:
        return None
    names = _several(ids) or ()
    if names and len(names) != len(found):
        raise InputError(f"{len(found)} contexts have {len(names)} ids; give one id for each")
    return tuple(_document(item, names[n] if names else None) for n, item in enumerate(found))


def _document(item: Any, name: Any) -> Document:
    """A document, with an id that is the same wherever that text stands: a position says nothing across rows."""
    if isinstance(item, Mapping) and "id" not in item and (named := item.get("doc_id")) is not None:
        item = {**item, "id": named}  # RAGChecker's
    parsed = Document.parse(item)
    has_own = isinstance(item, Document) or (isinstance(item, Mapping) and item.get("id") is not None)
    if name is not None:
        return replace(parsed, id=str(name))
    return parsed if has_own else replace(parsed, id=text_id(parsed.text))


def text_id(text: str) -> str:
    """An id for a text that has none."""
    return f"text_{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _several(value: Any) -> Sequence[Any] | None:
    """A list; one text or mapping is one item, and a list that a table holds as text is read."""
    if isinstance(value, str):
        value = listed(value)
    if value is None or isinstance(value, list | tuple):
        return value
    return [value]


def _tags(value: Any) -> Iterator[str]:
    found = listed(value) if isinstance(value, str) else value
    if isinstance(found, str):
        found = found.replace(";", ",").split(",")
    for tag in found if isinstance(found, list | tuple) else () if found is None else (found,):
        if str(tag).strip():
            yield str(tag).strip()


def _made_id(row: Row, where: str) -> str:
    said = json.dumps([row.query, row.expected_answer, where if row.trouble else ""])
    return f"q_{hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _with_distinct_ids(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Ids that stand twice are numbered; the given ones are kept."""
    found, seen = [], Counter[str]()
    rows = list(rows)
    given = {row.id for row in rows}
    for row in rows:
        seen[row.id] += 1
        identifier = row.id
        while seen[row.id] > 1 and identifier in given:
            identifier = f"{row.id}-{seen[row.id]}"
            seen[row.id] += identifier in given
        given.add(identifier)
        found.append(replace(row, id=identifier))
    return tuple(found)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
