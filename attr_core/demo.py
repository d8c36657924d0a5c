"""The demonstration: an invented fact, so that no model can know it, and three chunks that try to mislead."""

from __future__ import annotations

from attr_core.types import Document

__all__ = ["DOCUMENTS", "QUESTION"]

QUESTION = "In which year did the Aldemoor Lantern Festival open?"

DOCUMENTS = (
    Document(
        "fees", "Visitors to the Aldemoor market pay four silver marks at the gate.", metadata={"source": "fees.md"}
    ),
    Document(
        "lantern",
        "The Aldemoor Lantern Festival opened in 1911.",
        metadata={"source": "festivals.md"},
    ),
    Document("torch", "The Corvath Torch Parade opened in 1937.", metadata={"source": "festivals.md"}),
    Document("guild", "The lamp makers of Aldemoor formed a guild.", metadata={"source": "guilds.md"}),
)
"""The second chunk holds the answer; the third names another year for another event."""
