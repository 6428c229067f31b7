"""Rows of a `datasets.Dataset`, or of any iterable, as a file that can be imported."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time
from importlib import import_module
from pathlib import Path
from typing import Any

# A `datasets.Dataset`, a `DatasetDict` or another mapping of split to rows, rows, or a name.
Source = Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Mapping[str, Any]]] | str


def extra(module: str, name: str, instead: str) -> Any:
    """The module, which comes with the extra `name`; else an error that says how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} is not installed: pip install 'concord[{name}]', or {instead}"
        ) from error


def write_rows(source: Source, file: Path, *, splits: Mapping[str, str] | None = None) -> int:
    """Writes JSON Lines to `file`; how many rows. splits: which splits to take, and what each is
    called here (train, dev, public_test); all of them by their own names where it is left out.

    Raises `ValueError` for what cannot be sent, with the row and its column.
    """
    n = 0
    with file.open("w", encoding="utf-8") as lines:
        for n, row in enumerate(_rows(source, splits), start=1):
            lines.write(_line(n, row) + "\n")
    if not n:
        raise ValueError("rows: there are none")
    return n


def _rows(given: Source, splits: Mapping[str, str] | None) -> Iterator[Mapping[str, Any]]:
    source: Any = given
    if isinstance(source, str):
        source = extra("datasets", "hf", "give the rows themselves.").load_dataset(source)
    if not isinstance(source, Mapping):
        if splits:
            raise ValueError("splits: these rows have none; give a mapping of split to rows")
        yield from source
        return
    wanted = splits or {name: name for name in source}
    if unknown := [name for name in wanted if name not in source]:
        there = ", ".join(map(str, source))
        raise ValueError(f"splits: there is no split '{unknown[0]}'; there are {there}")
    for name, called in wanted.items():
        for row in source[name]:
            yield {**row, "split": called}


def _line(number: int, row: Mapping[str, Any]) -> str:
    if not isinstance(row, Mapping):
        raise ValueError(f"rows: row {number} is of type {type(row).__name__}, not a mapping")
    try:
        return json.dumps(row, default=_plain, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError):
        for column, value in row.items():
            try:
                json.dumps(value, default=_plain, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"rows: row {number}, column '{column}': {error}; change or remove it"
                ) from error
        raise


def _plain(value: Any) -> Any:
    """Dates and numpy's values as JSON has them."""
    if isinstance(value, date | time):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a value of type {type(value).__name__} cannot be sent as JSON")
