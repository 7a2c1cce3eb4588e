"""The examples of docs/training.md do what they say, run one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/training.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_the_examples_on_training_run(cluster: Any) -> None:
    text = PAGE.read_text()
    scope: dict[str, Any] = {"__name__": "training"}
    found = list(BLOCK.finditer(text))
    assert len(found) >= 4
    for block in found:
        # As many empty lines before it as the page has, so that errors name the page's line.
        code = "\n" * text.count("\n", 0, block.start(1)) + block.group(1)
        exec(compile(code, str(PAGE), "exec"), scope)
