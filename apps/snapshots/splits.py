"""The files a dataset is split into, by name: what each is for and who may read it."""

from collections.abc import Mapping
from typing import Any

TRAIN, SMOKE, DEV, PUBLIC_TEST = "train", "smoke", "dev", "public_test"
PRIVATE_TEST, HUMAN_AUDIT = "private_test", "human_audit"
HELDOUT_GROUPS, HELDOUT_ANNOTATORS = "heldout_groups", "heldout_annotators"
# Drawn by hash, in this order, which is part of the assignment; the two hold-outs are chosen by
# name and by annotator.
DRAWN_SPLITS = (TRAIN, SMOKE, DEV, PUBLIC_TEST, PRIVATE_TEST, HUMAN_AUDIT)
SPLITS = (*DRAWN_SPLITS, HELDOUT_GROUPS, HELDOUT_ANNOTATORS)
# Kept in a tree of their own, which no run is given: what nobody sees nobody tunes on.
PRIVATE_SPLITS = frozenset({PRIVATE_TEST, HUMAN_AUDIT})
DEFAULT_SHARES: Mapping[str, float] = {
    TRAIN: 0.8,
    SMOKE: 0.01,
    DEV: 0.09,
    PUBLIC_TEST: 0.06,
    PRIVATE_TEST: 0.02,
    HUMAN_AUDIT: 0.02,
}


def in_order(by_split: Mapping[str, Any]) -> dict[str, Any]:
    """The same, training first: what comes back from the database has lost its order."""
    return {name: by_split[name] for name in SPLITS if name in by_split}


def public(by_split: Mapping[str, Any]) -> dict[str, Any]:
    """Without the private ones, in order."""
    return {k: v for k, v in in_order(by_split).items() if k not in PRIVATE_SPLITS}
