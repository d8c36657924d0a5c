"""Judges: verdicts on claims by segments, from a model that reads both or, without one, evidence from likelihoods.

Nothing that costs money judges unless it is named.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from attr_core.engines import load_engine
from attr_core.engines.local_models import default_model
from attr_core.judge._callables import engine_of
from attr_core.judge.decompose import decompose_claims
from attr_core.judge.likelihood import LikelihoodJudge
from attr_core.judge.llm import LLMJudge
from attr_core.judge.streaming import Caused, Finished, Token, Verdicts, ajudge_stream, judge_stream
from attr_core.protocols import Engine, Judge

__all__ = [
    "JUDGE_VARIABLE",
    "Caused",
    "Finished",
    "LLMJudge",
    "LikelihoodJudge",
    "Token",
    "Verdicts",
    "ajudge_stream",
    "decompose_claims",
    "judge_stream",
    "load_judge",
]

JUDGE_VARIABLE = "ATTRKIT_JUDGE"

_LIKELIHOOD = "likelihood"


def load_judge(
    spec: str | Judge | Any | None = None,
    *,
    download: bool = False,
    meter: Callable[[Engine], Engine] | None = None,
    **options: Any,
) -> Judge:
    """The judge that a spec names.

    Parameters
    ----------
    spec : str, Judge, Engine, callable or object, optional
        ``hf:MODEL``, ``litellm:MODEL`` or ``server:URL#MODEL`` judge by reading (:class:`LLMJudge`),
        ``likelihood:hf:MODEL`` by likelihoods (:class:`LikelihoodJudge`), ``likelihood`` by those of the default local
        model. A judge is returned as it is; what else :class:`LLMJudge` takes is made one. Default: the environment
        variable ``ATTRKIT_JUDGE``, else ``likelihood``: its results say that no judge has spoken.
    download : bool, default False
        Whether the default local model may be downloaded where none is installed.
    meter : callable, optional
        What becomes of the engine before the judge gets it: a :class:`~attr_core.metering.MeteredEngine` with cache and
        caps. By default every judge has one of its own without either.
    **options
        For the judge that is made.

    Raises
    ------
    ConfigurationError
        The spec is malformed, or what is given cannot judge.
    MissingCapabilityError
        The engine does not generate, or for likelihoods does not score.
    ModelNotFoundError, MissingDependencyError
        As for :func:`attr_core.engines.load_engine`.

    Examples
    --------
    >>> load_judge(lambda prompt, system: "neutral")
    LLMJudge(CallableEngine('callable:<lambda>'))
    >>> load_judge("mistery:model")
    Traceback (most recent call last):
    attr_core.errors.ConfigurationError: engine 'mistery:model' has no known prefix; write hf:MODEL, litellm:MODEL, ...
    """
    if spec is None:
        spec = os.environ.get(JUDGE_VARIABLE, "").strip() or _LIKELIHOOD
    if isinstance(spec, Judge):
        return spec
    meter = meter or (lambda engine: engine)
    prefix, _, name = spec.strip().partition(":") if isinstance(spec, str) else ("", "", "")
    if prefix == _LIKELIHOOD:
        options.pop("repeats", None)  # the same prompt has the same likelihood
        return LikelihoodJudge(meter(load_engine(name or default_model(), download=download)), **options)
    return LLMJudge(meter(engine_of(spec.strip() if isinstance(spec, str) else spec, by="LLMJudge")), **options)
