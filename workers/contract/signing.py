"""Who may speak for an attempt: whoever holds its secret, which came with its job.

The broker carries the messages of all runs and every worker reads and writes it, so a name in a
message proves nothing. Standard library only.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

SIGNATURE = "signature"  # the key of a batch that holds it


def attempt_secret(key: str, *, run: str, attempt: int) -> str:
    """The secret of one attempt, derived from a `key` that only the web side has: nothing is
    stored, and the secret of one attempt says nothing of another's."""
    name = f"concord.attempt:{run}:{attempt}"
    return hmac.new(key.encode(), name.encode(), hashlib.sha256).hexdigest()


def signed(batch: Mapping[str, Any], secret: str) -> dict[str, Any]:
    """`batch` with its signature; as it is for a job that came without a secret."""
    return dict(batch) | ({SIGNATURE: _signature(batch, secret)} if secret else {})


def is_signed(batch: Mapping[str, Any], secret: str) -> bool:
    """Whether `batch` came from who holds `secret`, and is what was sent."""
    given = batch.get(SIGNATURE)
    if not isinstance(given, str):
        return False
    try:
        expected = _signature(batch, secret)
    except (TypeError, ValueError, RecursionError):
        return False
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _signature(batch: Mapping[str, Any], secret: str) -> str:
    """HMAC-SHA256 over everything in the batch, run and attempt included. The JSON of Python reads
    back the number it wrote, so both sides write the same text."""
    said = {name: value for name, value in batch.items() if name != SIGNATURE}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
