"""How often the longer answer won, among the training rows of a frozen dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from django.core.cache import cache

from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import TRAIN
from apps.snapshots.store import artifact_store
from measures.accuracy import pair_credit
from measures.estimate import Interval
from measures.intervals import dyadic_interval, mean_interval
from workers.artifacts import ArtifactError


def length_only(snapshot: Snapshot) -> Interval | None:
    """Accuracy of "the longer wins", lengths in words; None where the files are gone.

    A frozen dataset never changes, so it is computed once.
    """
    key = f"readiness-length:{snapshot.pk}:{snapshot.sha256}"
    found = cache.get(key)
    if found is None:
        try:
            found = asdict(_computed(snapshot))
        except ArtifactError:
            return None
        cache.set(key, found, timeout=None)
    return Interval(**found)


def _computed(snapshot: Snapshot) -> Interval:
    margins, first, second = [], [], []
    for row in artifact_store().lines(f"{snapshot.uri}/{TRAIN}.jsonl"):
        margins.append(_words(row["chosen"]) - _words(row["rejected"]))
        one, other = row.get("cluster_ids") or (row.get("cluster"), None)
        first.append(one)
        second.append(other)
    credit = pair_credit(np.array(margins, dtype=np.float64))
    if any(key is None for key in second):
        return mean_interval(credit, clusters=[str(key) for key in first])
    return dyadic_interval(credit, first, second)


def _words(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(message["content"].split()) for message in messages)
