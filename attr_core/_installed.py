"""Which packages are installed, and which of them attrkit's extras ask for."""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from attr_core import __version__

NOT_FOR_USERS = frozenset({"all", "dev"})
_NAME = re.compile(r"\s*([A-Za-z0-9._-]+)\s*([^;]*)")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


@dataclass(frozen=True, slots=True)
class Extra:
    """What ``attrkit[name]`` brings: ``missing`` packages, and ``outdated`` ones with what is found and asked for."""

    name: str
    packages: tuple[str, ...]
    missing: tuple[str, ...]
    outdated: Mapping[str, str] = field(default_factory=dict)

    @property
    def remedy(self) -> str | None:
        """The command that brings what is missing or outdated, if anything is."""
        if self.missing:
            return f'pip install "attrkit[{self.name}]"'
        return f'pip install --upgrade "attrkit[{self.name}]"' if self.outdated else None


def versions() -> dict[str, str | None]:
    """Python, attrkit and everything that it can use -> version, ``None`` where it is not installed."""
    base, by_extra = _requirements()
    names = dict.fromkeys([*base, *(name for asked in by_extra.values() for name in asked)])
    return {
        "python": platform.python_version(),
        "attrkit": __version__,
        **{name: _version(name) for name in names},
    }


def extras() -> list[Extra]:
    """attrkit's extras and what of them is here."""
    _, by_extra = _requirements()
    return [_extra(name, asked) for name, asked in by_extra.items()]


def _extra(name: str, asked: Mapping[str, str]) -> Extra:
    found = {package: _version(package) for package in asked}
    return Extra(
        name=name,
        packages=tuple(asked),
        missing=tuple(package for package, version in found.items() if version is None),
        outdated={
            package: f"{version}, not {asked[package]}"
            for package, version in found.items()
            if version is not None and not _fits(version, asked[package])
        },
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _fits(version: str, wanted: str) -> bool:
    try:
        from packaging.specifiers import SpecifierSet  # what brings most extras brings it too
    except ImportError:
        return True
    return SpecifierSet(wanted).contains(version, prereleases=True)


def _requirements() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Package -> version asked for, of the base install and of each extra."""
    try:
        listed = metadata.requires("attrkit") or []
    except metadata.PackageNotFoundError:
        listed = list(_of_the_checkout())
    base: dict[str, str] = {}
    by_extra: dict[str, dict[str, str]] = {}
    for line in listed:
        match, extra = _NAME.match(line), _EXTRA.search(line)
        if match is None or match[1] == "attrkit" or (extra and extra[1] in NOT_FOR_USERS):
            continue
        (base if extra is None else by_extra.setdefault(extra[1], {}))[match[1]] = match[2].strip()
    return base, by_extra


def _of_the_checkout() -> Iterable[str]:
    project = Path(__file__).parents[1] / "pyproject.toml"
    if not project.is_file():
        return
    listed = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    yield from listed["dependencies"]
    for extra, asked in listed["optional-dependencies"].items():
        yield from (f'{requirement} ; extra == "{extra}"' for requirement in asked)
