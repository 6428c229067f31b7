import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.common.sandbox import Limits
from apps.labeling.services import imports
from tests.labeling.pairs import ben

__all__ = ["ben", "inline_parsing"]


@pytest.fixture
def inline_parsing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Parsing inside the test's own process: a child for each small file would only cost time.

    What crosses the border is JSON here too. `test_hostile_files.py` and
    `tests/common/test_sandbox.py` have the real border.
    """

    def parsed(function: str, limits: Limits, **arguments: Any) -> Iterator[Any]:
        module, _, name = function.partition(":")
        found = getattr(importlib.import_module(module), name)
        for value in found(scratch=str(tmp_path), **json.loads(json.dumps(arguments))):
            yield json.loads(json.dumps(value))

    monkeypatch.setattr(imports, "sandboxed", parsed)
