"""A page as one file that loads nothing: its template, style and script, and the policy that lets only these run."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING

from attr_core.reports._html.inert import inert

if TYPE_CHECKING:
    import jinja2


def asset(name: str) -> str:
    """A file beside this one; with the line ends that a browser reads, since its hash is of these."""
    return _read(name).replace("\r\n", "\n")


def policy_of(style: str, script: str = "") -> str:
    """Nothing is fetched, and nothing runs but that style and script; without a script, none."""
    runs = f"script-src {_hash(script)}; " if script else ""
    return f"default-src 'none'; style-src {_hash(style)}; {runs}base-uri 'none'; form-action 'none'"


@functools.cache
def template(name: str) -> jinja2.Template:
    """A template beside this file, in which every value is escaped and made inert."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        finalize=inert,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["verbatim"] = _verbatim
    return environment.from_string(asset(name))


@functools.cache
def _read(name: str) -> str:
    return (files("attr_core.reports") / "_html" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _verbatim(text: str) -> str:
    """The page's own style or script, which no text of a run is part of."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704
