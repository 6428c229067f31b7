"""Any decoded JSON, made fit for PostgreSQL's text and jsonb."""

import math
import re
from typing import Any

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
