"""How every benchmark reports: a table for people, then one JSON line for machines."""

import contextlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path


def print_report(
    title: str, rows: Sequence[Mapping[str, object]], summary: Mapping[str, object]
) -> None:
    """Print a table of rows and, as the last line, the summary as one JSON object.

    rows: one mapping per line; the columns are the keys in order of first appearance. summary: the
    figures, with their units in the names or beside them, and the ratio to the named alternative.
    "benchmark" (the title) and "machine" are added. Nothing may be printed afterwards.
    """
    print_table(title, rows)
    print()
    print(json.dumps({"benchmark": title, **summary, "machine": machine()}, ensure_ascii=False))


def print_table(title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """A table before the last one; "none" where it has no rows."""
    print(f"\n{title}\n")
    for line in _table(rows) if rows else ["none"]:
        print(line)


def versions(*libraries: str) -> dict[str, str]:
    """Installed versions of these distributions, for the summary."""
    return {library: metadata.version(library) for library in libraries}


def machine() -> dict[str, object]:
    """What a figure depends on besides the code, the load of the last 1, 5 and 15 minutes among it.
    No host name, no path."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cores": usable,
        "load_average": [round(one, 2) for one in os.getloadavg()],
        "threads": os.environ.get("OMP_NUM_THREADS", "not limited"),
        "processor": _processor(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _table(rows: Sequence[Mapping[str, object]]) -> list[str]:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns, *([_cell(row.get(column, "")) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
