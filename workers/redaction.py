"""Text without what is secret, before anybody else may read it."""

import re
from collections.abc import Mapping
from functools import lru_cache

_SECRET_NAMES = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|KEY$|KEY_")
_LEAST_SECRET = 8  # characters; a shorter value would be found in ordinary words
_SECRET_TEXTS = (
    (re.compile(r"\b(hf_|sk-|ghp_|AKIA|whsec_)[A-Za-z0-9_+/=-]{8,}"), "[secret]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 [secret]"),
    (re.compile(r"(\w+://[^\s/:@]*):[^\s/@]+@"), r"\1:[secret]@"),
)


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    """By its name; `…_FILE` is a path, and errors about the file have to name it."""
    upper = name.upper()
    return bool(_SECRET_NAMES.search(upper)) and not upper.endswith("_FILE")


def redacted(text: str, environment: Mapping[str, str]) -> str:
    """`text` without values of variables that are secret by their names, and without what looks
    like a token or a password in an address."""
    for name, value in environment.items():
        if len(value) >= _LEAST_SECRET and _is_secret(name):
            text = text.replace(value, "[secret]")
    for pattern, instead in _SECRET_TEXTS:
        text = pattern.sub(instead, text)
    return text
