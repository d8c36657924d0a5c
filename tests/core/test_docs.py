"""The documents' code blocks print what the documents show; the table of diagnoses has every label in its order."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from attr_core.diagnosis import Label

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["judging.md", "methods.md"])
def test_code_prints_what_stands_below_it(name: str) -> None:
    blocks = BLOCK.findall((DOCS / name).read_text(encoding="utf-8"))
    shared: dict[str, object] = {"__name__": name}
    for (language, code), (_, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language == "python":
            printed = StringIO()
            with redirect_stdout(printed):
                exec(compile(code, name, "exec"), shared)  # noqa: S102
            assert printed.getvalue() == shown


def test_the_table_of_diagnoses_has_every_label_in_the_order_of_the_decision() -> None:
    text = (DOCS / "diagnosis.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [label.value for label in Label]
