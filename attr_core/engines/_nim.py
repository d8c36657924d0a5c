"""NVIDIA's hosted endpoints: a model that they list may still not be served to a key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from attr_core._optional import require
from attr_core.engines._litellm_errors import RequestFailed
from attr_core.engines._requests import Failure
from attr_core.errors import ModelNotFoundError

_PREFIX = "nvidia_nim/"
_BASE = "https://integrate.api.nvidia.com/v1"
_PATIENCE = 10.0


def explained(failed: RequestFailed, error: Exception, model: str, options: Mapping[str, Any]) -> RequestFailed:
    """The failure as it is, save that of a model of NVIDIA's that is not found: then it says whether it is listed."""
    if getattr(error, "status_code", None) != 404 or not model.startswith(_PREFIX):
        return failed
    name = model.removeprefix(_PREFIX)
    listed = _listed(options)
    hopeless = Failure(passing=False, hopeless=True)
    if listed is None:
        return failed
    if name not in listed:
        text, remedy = f"{name} is not among the {len(listed)} models listed there", "see build.nvidia.com for its name"
    else:
        text = f"{name} is listed there but not served to this key (404)"
        remedy = (
            "it may be retired, of another kind or not free: see its page on build.nvidia.com, take another model,"
            " or host it yourself and pass api_base"
        )
    return RequestFailed(text, failure=hopeless, remedy=remedy, kind=ModelNotFoundError)


def _listed(options: Mapping[str, Any]) -> frozenset[str] | None:
    """Names of the models that the endpoint lists; ``None`` where it does not say."""
    base = str(options.get("api_base") or os.environ.get("NVIDIA_NIM_API_BASE") or _BASE).rstrip("/")
    key = options.get("api_key") or os.environ.get("NVIDIA_NIM_API_KEY", "")
    httpx = require("httpx", extra="litellm")
    try:
        answer = httpx.get(f"{base}/models", headers={"Authorization": f"Bearer {key}"}, timeout=_PATIENCE)
        return frozenset(str(model["id"]) for model in answer.raise_for_status().json()["data"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None
