"""A small file of prompts to write to: lines, CSV with a column `prompt`, or JSON Lines."""

import csv
import io
import json
from typing import Any

from apps.common.errors import DomainError

MOST_BYTES = 5_000_000
COLUMNS = ("prompt", "topic", "language", "licence", "group", "id")


def lines_read(text: str) -> list[dict[str, Any]]:
    """A prompt a line; empty lines are none."""
    return [{"prompt": line.strip()} for line in text.splitlines() if line.strip()]


def prompts_read(name: str, content: bytes) -> list[dict[str, Any]]:
    """Rows of `COLUMNS`; other columns are left out. `DomainError` names `file`, and the row."""
    if len(content) > MOST_BYTES:
        raise DomainError(
            f"The file is larger than {MOST_BYTES // 1_000_000} MB; import it, and ask for answers "
            "to prompts of the project.",
            field="file",
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DomainError("The file is not UTF-8 text.", field="file") from None
    ending = name.lower().rpartition(".")[2]
    if ending in ("jsonl", "ndjson", "json"):
        return [_object(number, line) for number, line in _numbered(text)]
    if ending in ("csv", "tsv"):
        return _table(text, "\t" if ending == "tsv" else ",")
    return lines_read(text)


def _numbered(text: str) -> list[tuple[int, str]]:
    return [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise DomainError(f"Line {number} is no JSON.", field="file", row=number) from None
    if not isinstance(found, dict) or "prompt" not in found:
        raise DomainError(f"Line {number} is no object with a prompt.", field="file", row=number)
    return {name: found[name] for name in COLUMNS if name in found}


def _table(text: str, delimiter: str) -> list[dict[str, Any]]:
    try:
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        if "prompt" not in (rows.fieldnames or ()):
            raise DomainError("The file has no column “prompt”.", field="file")
        return [
            {name: row[name] for name in COLUMNS if row.get(name) is not None}
            for row in rows
            if (row.get("prompt") or "").strip()
        ]
    except csv.Error as error:
        raise DomainError(f"The file is no such table: {error}.", field="file") from None
