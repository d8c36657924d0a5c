"""Traces that other tools recorded -> ours: the bad answer has usually happened already.

Each format has a module that reads its records as :class:`~attr_core.importing.steps.Step`; what a run is made of is
then put together in one place. What a record lacks is told in notes, never invented.
"""

from attr_core.importing.files import FORMATS, Imported, ImportedTrace, read_traces

__all__ = ["FORMATS", "Imported", "ImportedTrace", "read_traces"]
