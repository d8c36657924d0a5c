"""The numbers that a diagnosis depends on, each with its name."""

from __future__ import annotations

from dataclasses import dataclass

from attr_core.errors import ConfigurationError

__all__ = ["Thresholds"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How much is run again, and what is taken as proved.

    Parameters
    ----------
    n_unchanged : int, default 5
        Times that the unchanged prompt is run again first, where the engine does not reproduce itself.
    n_confirm : int, default 5
        Times that a change which repaired the answer once is run again, with as many of the unchanged prompt on top.
        What it did at first does not count: it was chosen for that.
    alpha : float, default 0.05
        Largest p-value, by Fisher's exact test against the unchanged prompt and by Bonferroni over the changes that
        were confirmed, at which a change is said to repair.
    max_singles : int, default 12
        Most segments (or groups that say the same) that are removed one by one.
    max_search : int, default 24
        Most further runs in the search for the smallest set of segments that repairs.
    alike : float, default 0.8
        Overlap of words from which an answer with the same names and numbers is the recorded one.
    """

    n_unchanged: int = 5
    n_confirm: int = 5
    alpha: float = 0.05
    max_singles: int = 12
    max_search: int = 24
    alike: float = 0.8

    def __post_init__(self) -> None:
        if min(self.n_unchanged, self.n_confirm, self.max_singles) < 1 or self.max_search < 0:
            raise ConfigurationError(
                f"{self} runs nothing again; give counts of at least 1, and max_search of 0 or more"
            )
        if not (0 < self.alpha < 1 and 0 < self.alike <= 1):
            raise ConfigurationError(f"{self} can prove nothing; give alpha between 0 and 1, and alike up to 1")
