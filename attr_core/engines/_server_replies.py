"""What a server answers to a chat, as a completion."""

from __future__ import annotations

from typing import Any

from attr_core.engines._server_http import Malformed
from attr_core.engines.batches import completion_of
from attr_core.errors import InputError
from attr_core.protocols import Completion
from attr_core.types import Generation, Message


def completion_of_reply(answer: Any) -> Completion:
    """The first choice of a chat completion: its text, its tool calls behind it, and the tokens it took.

    Raises
    ------
    Malformed
        There is none.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    raw = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(raw, dict):
        raise Malformed("/v1/chat/completions answered no message")
    try:
        message = Message.parse({"role": "assistant", "content": raw.get("content"), "tool_calls": _calls(raw)})
    except (InputError, TypeError, AttributeError, KeyError) as error:
        raise Malformed("/v1/chat/completions answered a message that is none") from error
    told = answer.get("usage")
    usage = {key: told[key] for key in _COUNTS if type(told.get(key)) is int} if isinstance(told, dict) else {}
    reason = choice.get("finish_reason") if isinstance(choice, dict) else None
    return completion_of(
        Generation(
            messages=(),
            response=message.content,
            tool_calls=message.tool_calls,
            finish_reason=reason if isinstance(reason, str) else None,
            usage=usage,
        )
    )


_COUNTS = ("prompt_tokens", "completion_tokens")


def _calls(raw: dict[str, Any]) -> list[Any]:
    calls = raw.get("tool_calls")
    return calls if isinstance(calls, list) else []
