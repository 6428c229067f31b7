"""The prompt that two whole conversations, or two whole texts, have in common."""

from typing import Any

from apps.labeling.formats.records import BadValue


def split_common(a: Any, b: Any, *, where: str) -> tuple[Any, Any, Any]:
    """(prompt, rest of a, rest of b). Raises BadValue on `where`.

    Turns are compared whole, as in `trl.data_utils.extract_prompt`. For texts TRL cuts at the first
    character that differs; we go back to the last white space before it, so that no word is torn
    ("Yes, because" and "Yes, but" share "Yes, ", not "Yes, b").
    """
    if isinstance(a, str) and isinstance(b, str):
        return _texts(a, b, where)
    if isinstance(a, list) and isinstance(b, list):
        return _turns(a, b, where)
    raise BadValue(where, "one of the two is a text and the other a list of messages")


def _turns(a: list[Any], b: list[Any], where: str) -> tuple[Any, Any, Any]:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    if n == 0:
        raise BadValue("prompt", "the two conversations share no beginning that could be a prompt")
    # A conversation that only continues the other would leave nothing to compare.
    if n == len(a) or n == len(b):
        raise BadValue(where, "one of the two conversations is the beginning of the other")
    return a[:n], a[n:], b[n:]


def _texts(a: str, b: str, where: str) -> tuple[str, str, str]:
    if a.strip().startswith(b.strip()) or b.strip().startswith(a.strip()):
        raise BadValue(where, "one of the two texts is the beginning of the other")
    n = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    while n > 0 and not a[n - 1].isspace():
        n -= 1
    prompt, rest_a, rest_b = a[:n].strip(), a[n:].strip(), b[n:].strip()
    if not prompt:
        raise BadValue("prompt", "the two texts share no beginning that could be a prompt")
    return prompt, rest_a, rest_b
