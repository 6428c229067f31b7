"""Short identifiers: easy to read aloud, to copy and to find in a log."""

import secrets

# No vowels (no words by accident), no 0/1/l/o (no misreading).
_ALPHABET = "23456789bcdfghjkmnpqrstvwxz"
LENGTH = 10  # 27**10 ≈ 2·10¹⁴: a million ids collide with probability 0.002


def short_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(LENGTH))
