"""Files a user hands over -> traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attr_core.errors import InputError
from attr_core.types import Message, Trace

SHAPE = 'a list of messages that ends with the answer, or {"messages": [...], "response": "...", "documents": [...]}'


def read_messages(path: Path) -> Trace:
    """The trace of one call that a JSON file describes.

    The file holds a list of messages whose last is the assistant's answer, or an object with ``messages`` and, where
    known, ``response``, ``documents``, ``query``, ``model``, ``tools`` and ``reference``.

    Raises
    ------
    InputError
        The file cannot be read, is not JSON, or has another shape.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except RecursionError as error:
        raise InputError(f"{path} is nested too deeply; give {SHAPE}") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}); give {SHAPE}") from error
    record: dict[str, Any] = {"messages": data} if isinstance(data, list) else data
    if not isinstance(record, dict) or not isinstance(record.get("messages"), list):
        raise InputError(f"{path} has another shape; give {SHAPE}")
    messages, response = list(record["messages"]), record.get("response")
    if response is None and messages and isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant":
        response = Message.parse(messages.pop()).content
    if not isinstance(response, str) or not response.strip():
        raise InputError(f"{path} holds no answer; give {SHAPE}")
    known = {key: record[key] for key in ("documents", "query", "model", "tools", "reference") if record.get(key)}
    return Trace.from_messages(messages, response, **known)
