"""The whole set: so many samples of each label, the same for the same seed."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from attr_core.errors import ConfigurationError
from attr_core.evaluation.planted._recipes import RECIPES, Planting
from attr_core.evaluation.planted.facts import facts_in, sentence
from attr_core.evaluation.planted.samples import LABELS, PlantedSample
from attr_core.evaluation.planted.scenes import Scene
from attr_core.segmenter import segment_trace
from attr_core.types import Segment, Trace

__all__ = ["planted"]

_IN_VALUES_ONLY = 0.25
"""Share of the expected answers that are a value only ("1911")."""


def planted(labels: Sequence[str] = LABELS, *, per_label: int = 10, seed: int = 0) -> tuple[PlantedSample, ...]:
    """Runs with planted failures, each with the truth about it and the model that fails so.

    Nobody can know any of the facts, and what is true of a sample was planted: its label, the documents that are right
    and wrong, what makes the answer wrong, and what repairs it. Cost: no model is called.

    Parameters
    ----------
    labels : sequence of str
        Which failures; by default all, in the order of :data:`~attr_core.evaluation.planted.samples.LABELS`.
    per_label : int
        Variants of a label take turns.
    seed : int

    Returns
    -------
    tuple of PlantedSample
        ``per_label`` of each label; a sample depends on its label, its number and the seed only. Nothing in its trace
        tells the label: neither ids nor the model's name.

    Raises
    ------
    ConfigurationError
        No such label.

    Examples
    --------
    >>> sample = planted(["chunk_dominance"], per_label=1)[0]
    >>> sample.model.generate([sample.trace.target_generation.prompt])[0].text == sample.trace.answer
    True
    """
    if unknown := [label for label in labels if label not in RECIPES]:
        raise ConfigurationError(f"label {unknown[0]!r} does not exist; use {', '.join(LABELS)}")
    return tuple(_sample(label, number, seed) for label in labels for number in range(per_label))


def _sample(label: str, number: int, seed: int) -> PlantedSample:
    rng = random.Random(f"{seed}|{label}|{number}")  # noqa: S311
    made = RECIPES[label](number, rng)
    name = f"{label}-{seed}-{number}"
    trace = made.scene.trace(f"{zlib.crc32(name.encode()):08x}", made.world, made.model)
    expected = made.expected or (_expected(made, rng) if made.is_known else None)
    ids = _segment_ids(trace, made.scene)
    decided = {one.id for one in (*made.right, *made.wrong)}
    return PlantedSample(
        id=name,
        label=label,
        variant=made.variant,
        trace=replace(trace, reference=expected),
        expected=expected,
        asked=made.world.asked,
        truth=tuple(map(made.world.true, made.world.asked)),
        model=made.model,
        right=tuple(one.id for one in made.right),
        wrong=tuple(one.id for one in made.wrong),
        irrelevant=tuple(one.id for one in trace.documents if one.id not in decided),
        culprits=tuple(frozenset(_culprit(one, ids) for one in cause) for cause in made.culprits),
        repairs=tuple(_repair(one, ids) for one in made.repairs),
        notes=made.notes,
    )


def _expected(made: Planting, rng: random.Random) -> str:
    world = made.world
    if len(world.asked) == 1 and rng.random() < _IN_VALUES_ONLY:
        return world.true(world.asked[0])
    return " ".join(sentence(asked, world.true(asked)) for asked in world.asked)


def _segment_ids(trace: Trace, scene: Scene) -> dict[str, str]:
    """What recipes and documents call a piece -> the id of its segment."""
    segments = segment_trace(trace).segments
    ids = {name: one.id for one in segments for name in one.documents}
    texts = {"memory": scene.memory, "output": scene.output, "error": scene.error and f"Error: {scene.error}"}
    texts["turn"] = next((text for _, text in scene.turns if facts_in(text)), None)
    return ids | {name: _holding(text, segments) for name, text in texts.items() if text}


def _holding(text: str, segments: Sequence[Segment]) -> str:
    return next(one.id for one in segments if text in one.text)


def _culprit(name: str, ids: dict[str, str]) -> str:
    return ids[name] if name in {"memory", "output", "error", "turn"} else name


def _repair(repair: Any, ids: dict[str, str]) -> dict[str, Any]:
    """With documents named by the segments that they are."""
    return {
        kind: list(dict.fromkeys(ids[name] for name in named)) if kind in {"remove", "order"} else dict(named)
        for kind, named in repair.items()
    }
