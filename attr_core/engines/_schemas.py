"""A sampling's schema as the OpenAI protocol has it."""

from __future__ import annotations

import json
from typing import Any

from attr_core.errors import ConfigurationError


def schema_format(schema: str) -> dict[str, Any]:
    """``response_format`` that makes a server keep to the schema.

    Raises
    ------
    ConfigurationError
        It is no JSON object.

    Examples
    --------
    >>> schema_format('{"type": "object"}')["json_schema"]["schema"]
    {'type': 'object'}
    """
    try:
        read = json.loads(schema)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise ConfigurationError(f"the schema {schema[:60]!r} is no JSON object; give a JSON schema as text")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": read, "strict": True}}
