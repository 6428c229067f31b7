"""How large a JSON setting may be that is stored, shown, and copied into messages."""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from apps.common.errors import Unprocessable


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """Bytes as UTF-8, names and values counted together, and lists or objects inside each other."""

    bytes: int = 256_000
    values: int = 5_000
    depth: int = 20


SETTINGS = JsonLimits()


def json_check(value: Any, *, field: str, limits: JsonLimits = SETTINGS) -> None:
    """Raises `Unprocessable` (too_deep, too_many_values, too_large) for what exceeds the limits.

    Looks level by level, so that no depth of nesting can exhaust the stack, and counts before it
    writes anything out.
    """
    level, count = [value], 1
    for _ in range(limits.depth + 1):
        level = [part for item in level for part in _parts(item)]
        count += len(level)
        if count > limits.values:
            raise Unprocessable(
                f"Holds more than {limits.values:,} names and values.",
                code="too_many_values",
                field=field,
            )
    if level:
        raise Unprocessable(
            f"Lists and objects lie more than {limits.depth} deep in each other.",
            code="too_deep",
            field=field,
        )
    size = len(json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace"))
    if size > limits.bytes:
        raise Unprocessable(
            f"Is {size:,} bytes of JSON, more than {limits.bytes:,}.", code="too_large", field=field
        )


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return list(value) if isinstance(value, list | tuple) else []


# Any decoded JSON, made fit for PostgreSQL's text and jsonb.

# NUL has no place in PostgreSQL's text; half a surrogate pair has no UTF-8. Models produce both.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(value: Any) -> Any:
    """`value` with what cannot be stored replaced: characters by U+FFFD, NaN and infinities by
    the words of the contract."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value
