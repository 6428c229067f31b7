"""What `make lint` says of import cycles between single modules."""

from pathlib import Path

import pytest

from tests.import_graph import import_graph, module_cycle

UP = "from {} import name\n"
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {} import name\n"
INSIDE = "def call():\n    from {} import name\n"


@pytest.mark.parametrize("back", [UP, FOR_TYPES, INSIDE])
def test_a_cycle_of_modules_is_found_whatever_its_last_import_is_for(
    tmp_path: Path, back: str
) -> None:
    files = {name: tmp_path / f"{name}.py" for name in ("lower", "middle", "upper")}
    files["upper"].write_text(UP.format("middle"))
    files["middle"].write_text(UP.format("lower"))
    files["lower"].write_text("import math\n")
    assert module_cycle(import_graph(files, types=True)) == []
    files["lower"].write_text(back.format("upper"))
    assert set(module_cycle(import_graph(files, types=True))) == set(files)
