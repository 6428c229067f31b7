"""A judge's verdicts beside people's votes: on a head-to-head, and on a regression suite by
category. The votes say what the judge is off by, so the estimate stays theirs and is narrower."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from apps.evaluation.models import HeadToHead, JudgeVersion
from apps.evaluation.selectors.head_to_head import plan_of
from apps.evaluation.selectors.judges import HEAD_TO_HEAD, Judged, Scope, judged
from apps.evaluation.services.judge_worth import ppi_of
from apps.labeling.models import Prompt
from apps.labeling.texts import fingerprint
from apps.snapshots.recipe import PRIVATE_SPLITS
from apps.snapshots.storage import artifact_store
from apps.training.models import Run
from measures.estimate import Interval
from measures.head_to_head import Stopping, sequence_factor
from measures.model_ranking import LEAST_PROMPTS
from measures.ppi import PpiResult
from workers.artifacts import ArtifactError


@dataclass(frozen=True, slots=True)
class Beside:
    """What votes and verdicts say together. held: an interval as the plan allows it to be looked
    at, prompts answered alike counted as ½; estimate: without that, of one look."""

    version: JudgeVersion
    estimate: PpiResult
    held: Interval | None
    n_verdicts: int


def versions_beside(found: HeadToHead) -> list[JudgeVersion]:
    """Versions with verdicts on its pairs, newest first."""
    rows = JudgeVersion.objects.filter(
        runs__scope=Scope(HEAD_TO_HEAD, found.pk).to_json(), runs__taken_at__isnull=False
    )
    return list(rows.select_related("judge__project", "model__run").distinct().order_by("-pk"))


def beside_people(found: HeadToHead) -> list[Beside]:
    scope = Scope(HEAD_TO_HEAD, found.pk)
    return [
        _beside(found, version, judged(version=version, scope=scope))
        for version in versions_beside(found)
        if version.changed_at is None
    ]


def _beside(found: HeadToHead, version: JudgeVersion, rows: Judged) -> Beside:
    estimate = ppi_of(rows, scope=Scope(HEAD_TO_HEAD, found.pk))
    return Beside(version, estimate, held_interval(found, estimate), len(rows))


def held_interval(found: HeadToHead, estimate: PpiResult) -> Interval | None:
    """The interval of votes and verdicts that holds as often as the plan lets one look: the half
    width of one look, by `sequence_factor` over the normal quantile, as for votes alone."""
    both = estimate.ppi
    if both.value is None or estimate.half is None:
        return None
    plan, half = plan_of(found), estimate.half
    if plan.stopping == Stopping.ANY_TIME:
        factor = sequence_factor(estimate.n_prompts, plan.prompts, plan.alpha)
        half *= factor / NormalDist().inv_cdf(0.975)
    asked = plan.prompts / (plan.prompts + plan.alike)
    value = 0.5 + asked * (both.value - 0.5)
    low, high = max(value - asked * half, 0.0), min(value + asked * half, 1.0)
    return Interval(value=value, low=low, high=high, n=both.n, n_clusters=both.n_clusters)


def by_category(run: Run) -> list[dict[str, Any]]:
    """Of an evaluation on a regression suite: for each head-to-head on its answers and each judge
    beside it, how often people prefer the policy, over all and in each category with enough votes.
    """
    categories = _categories(run)
    found = []
    for one in HeadToHead.objects.filter(source=run, more_names=[]).select_related("pairs"):
        for version in versions_beside(one):
            if version.changed_at is not None:
                continue
            rows = judged(version=version, scope=Scope(HEAD_TO_HEAD, one.pk))
            found.append({"head_to_head": one, "version": version, "rows": _rows(rows, categories)})
    return found


def _rows(rows: Judged, categories: Mapping[str, str]) -> list[dict[str, Any]]:
    scope = Scope(HEAD_TO_HEAD)
    prompts = Prompt.objects.in_bulk(set(rows.prompt.tolist()))
    names = [categories.get(fingerprint(prompts[key].messages), "") for key in rows.prompt.tolist()]
    told = [("All", rows)]
    told += [
        (name, rows.only(np.array([one == name for one in names], dtype=bool)))
        for name in sorted(set(names) - {""})
    ]
    made = []
    for name, part in told:
        estimate = ppi_of(part, scope=scope)
        made.append(
            {
                "name": name,
                "n": len(part),
                "votes": estimate.n_votes,
                "people": estimate.people,
                "both": estimate.ppi,
                "judge": estimate.judge,
                "enough": estimate.n_prompts >= LEAST_PROMPTS,
            }
        )
    return made


def _categories(run: Run) -> dict[str, str]:
    """{fingerprint of a prompt: category of its check}; empty where the file is gone."""
    row = run.inputs.filter(role="prompts", snapshot__isnull=False).first()
    if row is None or row.snapshot is None:
        return {}
    found = {}
    for split in row.snapshot.counts.get("rows", {}):
        if split in PRIVATE_SPLITS:
            continue
        try:
            for one in artifact_store().lines(f"{row.snapshot.uri}/{split}.jsonl"):
                check = one.get("check")
                if one.get("prompt") and isinstance(check, Mapping) and check.get("category"):
                    found[fingerprint(one["prompt"])] = str(check["category"])
        except (ArtifactError, OSError, ValueError):
            continue
    return found
