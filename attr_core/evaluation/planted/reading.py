"""What a made-up model sees of a prompt: the question, the chunks in their places, what was said earlier."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from attr_core.evaluation.planted.facts import Asked, Fact, asked_in, facts_in
from attr_core.types import Message, Prompt

__all__ = ["NOTICE", "Seen", "see"]

NOTICE = "Updated notice: "
"""What a chunk begins with that some models trust more than others."""

_LABEL = re.compile(r"\[\d+\][ \t]*")
_QUESTION = "Question:"
_HEADINGS = frozenset({"", "Context:"})


@dataclass(frozen=True, slots=True)
class Seen:
    """A prompt as it was read.

    ``slots`` are the chunks, empty where only a label is left; ``earlier`` are memory and turns; ``failed`` is what a
    tool said of its failure.
    """

    asked: tuple[Asked, ...]
    slots: tuple[str, ...]
    earlier: tuple[str, ...]
    failed: str | None

    @property
    def chunks(self) -> tuple[str, ...]:
        """The slots in which something stands."""
        return tuple(slot for slot in self.slots if slot)

    def stated(self, asked: Asked) -> tuple[Fact, ...]:
        """What the chunks state of the matter, in order."""
        return tuple(fact for slot in self.slots for fact in facts_in(slot) if fact.asked == asked)


def see(prompt: Prompt) -> Seen:
    """Read a prompt as a model would: nothing but its text."""
    messages = prompt.messages
    last = max((n for n, one in enumerate(messages) if one.role == "user"), default=-1)
    slots, earlier, failed = [], [], None
    for number, message in enumerate(messages):
        if message.role == "tool":
            if message.content.startswith("Error"):
                failed = message.content
            else:
                slots += list(_slots(message.content))
        elif number != last and facts_in(message.content):
            earlier.append(message.content)
    body, question = _halves(messages[last]) if last >= 0 else ("", "")
    return Seen(asked_in(question), (*slots, *_slots(body)), tuple(earlier), failed)


def _halves(message: Message) -> tuple[str, str]:
    body, found, question = message.content.rpartition(_QUESTION)
    return (body, question) if found else ("", message.content)


def _slots(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        if line.strip() not in _HEADINGS:
            yield _LABEL.sub("", line, count=1).strip()
