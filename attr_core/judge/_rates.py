"""Shares and agreements with their intervals, and rates corrected for a judge's errors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attr_core.errors import ConfigurationError

LEVEL = 0.95
"""What intervals are to cover."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A value with its interval, of ``n`` rows; NaN where it is undefined, and ``reason`` says why."""

    value: float
    low: float
    high: float
    n: int
    reason: str | None = None


def undefined(reason: str, n: int = 0) -> Rate:
    """A rate that is not known."""
    return Rate(math.nan, math.nan, math.nan, n, reason)


def share(k: int, n: int, *, what: str = "row", level: float = LEVEL) -> Rate:
    """``k`` of ``n``, with Wilson's interval (Wilson 1927)."""
    if n == 0:
        return undefined(f"there is no {what}")
    interval = stats.binomtest(int(k), int(n)).proportion_ci(confidence_level=level, method="wilson")
    return Rate(k / n, float(interval.low), float(interval.high), int(n))


def cohens_kappa(table: NDArray[np.int64], *, level: float = LEVEL) -> Rate:
    """Cohen's kappa of a square table of counts, with the asymptotic interval of Fleiss, Cohen and Everitt (1969).

    Where all rows agree that interval has no width; its low end is then what Wilson's for the agreement leaves.
    """
    n = int(table.sum())
    if n == 0:
        return undefined("there is no row that both judged")
    p = table / n
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    agreed, by_chance = float(np.trace(p)), float(rows @ columns)
    if math.isclose(by_chance, 1.0):
        return undefined("both say the same of every row, so that chance alone agrees as well", n)
    kappa = (agreed - by_chance) / (1 - by_chance)
    if math.isclose(agreed, 1.0):
        low = (share(n, n, level=level).low - by_chance) / (1 - by_chance)
        return Rate(1.0, low, 1.0, n)
    both = rows[None, :] + columns[:, None]  # [i, j]: column i's share and row j's
    on = np.diag(p) * (1 - (rows + columns) * (1 - kappa)) ** 2
    off = p * both**2 * (1 - kappa) ** 2
    spread = float(on.sum() + off.sum() - np.diag(off).sum() - (kappa - by_chance * (1 - kappa)) ** 2)
    error = math.sqrt(max(spread, 0.0) / n) / (1 - by_chance)
    z = _z(level)
    return Rate(kappa, max(kappa - z * error, -1.0), min(kappa + z * error, 1.0), n)


def mcnemar(first_only: int, second_only: int) -> float:
    """Exact p-value that two judges are right equally often, from the rows that only one of them has right."""
    n = first_only + second_only
    return float(stats.binomtest(min(first_only, second_only), n, 0.5).pvalue) if n else 1.0


def corrected_rate(
    observed: float,
    sensitivity: float,
    specificity: float,
    *,
    n: int,
    n_sensitivity: int,
    n_specificity: int,
    level: float = LEVEL,
) -> Rate:
    """The rate that is likely behind one that a judge with known errors has observed.

    ``(observed + specificity - 1) / (sensitivity + specificity - 1)``, clipped to 0 and 1, with an interval that counts
    the uncertainty of all three.

    Parameters
    ----------
    observed : float
        Share of verdicts, such as ``entails``, among those that the judge gave.
    sensitivity, specificity : float
        Of the same verdict, from labelled rows.
    n, n_sensitivity, n_specificity : int
        Rows behind each of the three: verdicts observed, labels that are that verdict, and labels that are not.
    level : float, default 0.95

    Returns
    -------
    Rate
        NaN with the reason where sensitivity and specificity add up to no more than 1: then the judge's verdicts say
        nothing of the labels, or the opposite.

    Raises
    ------
    ConfigurationError
        A rate is not between 0 and 1, or a number of rows is not positive.

    References
    ----------
    Rogan and Gladen 1978, Am. J. Epidemiol. 107, 71-76, for the value. Lang and Reiczigel 2014, Prev. Vet. Med. 113,
    13-22, eq. 4, 6, 7, 16 and 17 for the interval.

    Examples
    --------
    >>> rate = corrected_rate(0.8, 0.9, 0.7, n=200, n_sensitivity=60, n_specificity=40)
    >>> round(rate.value, 4), round(rate.low, 2), round(rate.high, 2)
    (0.8333, 0.69, 1.0)
    """
    rates = {"observed": observed, "sensitivity": sensitivity, "specificity": specificity}
    for name, rate in rates.items():
        if not (math.isnan(rate) or 0 <= rate <= 1):
            raise ConfigurationError(f"{name} {rate} is no share; give a number from 0 to 1")
    if min(n, n_sensitivity, n_specificity) < 1 or not 0 < level < 1:
        raise ConfigurationError(
            f"{n=}, {n_sensitivity=}, {n_specificity=} must be positive and {level=} between 0 and 1; correct them"
        )
    if any(map(math.isnan, rates.values())):
        return undefined("the observed rate, the sensitivity or the specificity is not known", n)
    if sensitivity + specificity <= 1:
        return undefined("sensitivity and specificity add up to 1 or less: the verdicts tell nothing of the truth", n)
    value = (observed + specificity - 1) / (sensitivity + specificity - 1)
    low, high = _lang_reiczigel((observed, n), (sensitivity, n_sensitivity), (specificity, n_specificity), z=_z(level))
    return Rate(_clipped(value), low, high, n)


def _lang_reiczigel(
    observed: tuple[float, int], sensitivity: tuple[float, int], specificity: tuple[float, int], *, z: float
) -> tuple[float, float]:
    (p, n), (se, n_se), (sp, n_sp) = observed, sensitivity, specificity
    p, n_p = (n * p + z**2 / 2) / (n + z**2), n + z**2
    se, sp = (n_se * se + 1) / (n_se + 2), (n_sp * sp + 1) / (n_sp + 2)
    of_se, of_sp = se * (1 - se) / (n_se + 2), sp * (1 - sp) / (n_sp + 2)
    if se + sp <= 1:
        return 0.0, 1.0
    rate = (p + sp - 1) / (se + sp - 1)
    centre = rate + 2 * z**2 * (rate * of_se - (1 - rate) * of_sp)
    error = math.sqrt(p * (1 - p) / n_p + rate**2 * of_se + (1 - rate) ** 2 * of_sp) / (se + sp - 1)
    return _clipped(centre - z * error), _clipped(centre + z * error)


def _clipped(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _z(level: float) -> float:
    return float(stats.norm.ppf((1 + level) / 2))
