"""What an API token may be used for. A token never allows more than its person's role does."""

import hashlib

SCOPES: dict[str, str] = {
    "read": "read what the person may read",
    "label": "ask for comparisons and vote",
    "write": "create projects, import, freeze snapshots",
    "train": "start, stop and cancel runs",
    "approve": "approve, reject and retire reward models",
    "admin": "change people and roles",
}
DEFAULT_SCOPES = ("read",)


# What a token looks like and how it is recognised without being kept.

TOKEN_PREFIX = "ccd_"  # noqa: S105 - lets secret scanners recognise a leaked token


def token_sha256(token: str) -> str:
    """Tokens are 256 random bits: a plain hash cannot be guessed back, and is found by index."""
    return hashlib.sha256(token.encode()).hexdigest()
