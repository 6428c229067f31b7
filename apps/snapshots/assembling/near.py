"""Which texts are nearly the same, so that no split tests on what another one trains on."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from apps.snapshots.assembling.material import Pair
from measures.duplicates import near_duplicates

# Key of a text → the key that its family of near-duplicates goes by; texts alone are left out.
Families = Mapping[str, str]

# Somebody who tries recipes looks at the same texts again and again.
_found: dict[tuple[str, float], Families] = {}
_MOST_FOUND = 8


def families_of(pairs: Sequence[Pair], texts: Mapping[str, str], similarity: float) -> Families:
    """Families among the prompts and among the answers of `pairs`.

    texts: by key; a key without one is alike to nothing.
    """
    prompts = {pair.prompt for pair in pairs}
    answers = {key for pair in pairs for key in (pair.a, pair.b)}
    return {**_families(prompts, texts, similarity), **_families(answers, texts, similarity)}


def _families(keys: Iterable[str], texts: Mapping[str, str], similarity: float) -> Families:
    ordered = sorted(key for key in keys if key in texts)
    digest = hashlib.sha256()
    for key in ordered:
        digest.update(f"{key}\0{texts[key]}\0".encode("utf-8", "surrogatepass"))
    name = (digest.hexdigest(), similarity)
    found = _found.get(name)
    if found is None:
        family = near_duplicates([texts[key] for key in ordered], threshold=similarity).family
        found = {k: ordered[n] for k, n in zip(ordered, family, strict=True) if ordered[n] != k}
        while len(_found) >= _MOST_FOUND:
            _found.pop(next(iter(_found)), None)
        _found[name] = found
    return found
