"""Path gradients: all segments' effects from a few backward passes behind one cached prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from attr_core.errors import ConfigurationError
from attr_core.estimators._designs import check_whole_fits, screened
from attr_core.protocols import ValueFunction
from attr_core.results import Estimate, FloatArray, MaskArray

__all__ = ["GATES", "PathGradients", "equal_gates", "path_effects"]

GATES = (0.5, 0.06, 0.015)
"""Points of the path: the answer of small models starts to fall where a segment's attention is cut to a tenth."""


@dataclass(frozen=True, slots=True)
class PathGradients:
    """Aumann-Shapley values of the gated game: what each segment adds on the way from no attention to all of it.

    A gate on a segment scales the attention weight that its cached tokens receive from the question and the response.
    With all gates equal, the value falls from that of the full context to that of none; a segment's effect is the
    integral of the derivative by its own gate along that path, by the trapezoid rule over ``gates``. Effects are in the
    value's unit, positive when the segment supports the target; for a linear game they are its weights. Nothing is
    deleted and nothing sampled: there is no interval, so verdicts stay ``undetermined``: it ranks. Cost: the prompt
    once, and for each gate one forward pass of the tail and one backward pass per target (two forward ones each).

    Parameters
    ----------
    gates : tuple of float, default (0.5, 0.06, 0.015)
        In (0, 1], each once.

    Raises
    ------
    MissingCapabilityError
        From ``estimate``: the value function offers no gradients.
    ContextTooLongError
        From ``estimate``: the full prompt exceeds the model's window.

    References
    ----------
    Aumann and Shapley, Values of Non-Atomic Games, 1974; Sundararajan, Taly and Yan, Axiomatic Attribution for Deep
    Networks, ICML 2017 (arXiv:1703.01365), section 3, is the same path integral over a network's inputs. Ours is over
    attention to cached entries of the prompt, with three unevenly placed points.

    Examples
    --------
    >>> from attr_core.testing import ScreenedGame
    >>> PathGradients().estimate(ScreenedGame(lambda mask: [3.0 * mask[0] - mask[1]], n_segments=2)).effects.round(6)
    array([[ 3., -1.]])
    """

    gates: tuple[float, ...] = GATES

    name: ClassVar[str] = "PathGradients"
    estimand: ClassVar[str] = "aumann-shapley of attention gates"
    fidelity: ClassVar[Literal["exact", "hidden"]] = "hidden"

    def __post_init__(self) -> None:
        inside = all(0 < gate <= 1 for gate in self.gates)
        if not self.gates or not inside or len(set(self.gates)) < len(self.gates):
            raise ConfigurationError(f"gates {self.gates} make no path; give different ones, above 0 and at most 1")

    def n_masks(self, n_segments: int) -> int:
        """None: a gate is no mask."""
        return 0

    def ablations(self, value: ValueFunction, *, seed: int = 0) -> MaskArray:
        """None."""
        return np.zeros((0, value.n_segments), dtype=np.bool_)

    def estimate(self, value: ValueFunction, *, seed: int = 0) -> Estimate:
        """Differentiate at each gate; ``seed`` changes nothing."""
        screen = screened(value, by=self.name)
        check_whole_fits(value, by=self.name)
        gradients = screen.gradients(equal_gates(self.gates, value.n_segments))
        effects = path_effects(gradients, self.gates)
        unsampled = np.full_like(effects, np.nan)
        return Estimate(
            effects=effects,
            low=unsampled,
            high=unsampled,
            error=unsampled,
            drops=unsampled,
            exact=False,
            decisive=False,
            n_masks=0,
        )


def equal_gates(gates: tuple[float, ...], n_segments: int) -> FloatArray:
    """Rows of equal gates ``(n_gates, n_segments)``."""
    return np.repeat(np.array(gates)[:, None], n_segments, axis=1)


def path_effects(gradients: FloatArray, gates: tuple[float, ...]) -> FloatArray:
    """The integral over 0 to 1 of gradients along equal gates, ``(n_targets, n_segments)``.

    Constant below the smallest gate and above the largest, linear between.

    Parameters
    ----------
    gradients : array, shape (n_gates, n_targets, n_segments)
    gates : tuple of float, length n_gates
    """
    order = np.argsort(gates)
    points, slopes = np.array(gates)[order], gradients[order]
    inner = np.trapezoid(slopes, points, axis=0)
    return np.asarray(inner + slopes[0] * points[0] + slopes[-1] * (1 - points[-1]), dtype=np.float64)
