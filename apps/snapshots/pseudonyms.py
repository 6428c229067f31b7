"""What a dataset calls the people behind its votes: a name that says nothing outside of it.

`person-` and 12 hex digits of an HMAC of the person's id, under SECRET_KEY and the dataset's own
key: the same person has one name in all files and exports of a dataset and another in the next
dataset, so that two exports cannot be joined by it. The key is a hash of what the dataset is made
of, so freezing the same votes by the same recipe again gives the same files. Datasets frozen before
there were keys name the ids themselves, as their files do.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.utils.crypto import salted_hmac

NameOf = Callable[[int], str]
KEY = "pseudonyms"  # of a snapshot's counts
_SALT = "snapshots.pseudonyms"


def dataset_key(*, project: int, recipe: Mapping[str, Any], votes: Iterable[int]) -> str:
    """32 hex digits for a recipe over these votes."""
    made_of = json.dumps([project, recipe, sorted(votes)], sort_keys=True)
    return hashlib.sha256(made_of.encode()).hexdigest()[:32]


def names_under(key: str) -> NameOf:
    def name_of(person: int) -> str:
        digest = salted_hmac(_SALT, f"{key}:{person}", algorithm="sha256").hexdigest()
        return f"person-{digest[:12]}"

    return name_of


def names_in(counts: Mapping[str, Any]) -> NameOf:
    """The names that a frozen dataset with these counts uses."""
    return names_under(counts[KEY]) if KEY in counts else "person-{}".format
