"""What a token looks like and how it is recognised without being kept."""

import hashlib

TOKEN_PREFIX = "ccd_"  # noqa: S105 - lets secret scanners recognise a leaked token


def token_sha256(token: str) -> str:
    """Tokens are 256 random bits: a plain hash cannot be guessed back, and is found by index."""
    return hashlib.sha256(token.encode()).hexdigest()
