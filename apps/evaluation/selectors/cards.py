"""What a model's card says of how the model was judged and which stages named it."""

from datetime import UTC, datetime
from typing import Any

from django.urls import reverse

from apps.common.registry import CardLine
from apps.evaluation.models import ModelReview, StageChange
from apps.evaluation.selectors.evidence import Evidence, evidence_of
from apps.evaluation.selectors.outside import outside_of, result_words
from apps.training.models import Checkpoint
from apps.training.services.kinds import POLICIES, REWARDS

_JUDGED, _STAGES, _REVIEWS = "How it was judged", "Stages that named it", "What people decided"
_ELSEWHERE = "Measured elsewhere"
_WORDS = {
    "green": "holds",
    "red": "does not hold",
    "missing": "not measured",
    "noted": "for information",
}


def card_lines(checkpoint: Checkpoint) -> list[CardLine]:
    """Of a policy its evidence and its stages; of a reward model its reviews."""
    kind = checkpoint.run.kind
    if kind in POLICIES:
        evidence = [one for one in evidence_of(checkpoint) if one.name != "outside"]
        return [
            *map(_evidence_line, evidence),
            *_outside_lines(checkpoint),
            *_stage_lines(checkpoint),
        ]
    return _review_lines(checkpoint) if kind in REWARDS else []


def _evidence_line(one: Evidence) -> CardLine:
    return CardLine(
        part=_JUDGED,
        name=one.label,
        words=f"{_WORDS[one.verdict]}: {one.says}",
        source=str(one.facts.get("sha256") or one.facts.get("source") or ""),
        path=one.url,
        result=_result(one),
    )


def _result(one: Evidence) -> dict[str, Any] | None:
    """For programs that read evaluation results of cards: the win rate, where there is one."""
    facts = one.facts
    if one.name != "evaluation" or facts.get("value") is None:
        return None
    return {
        "metric": "win_rate",
        "value": facts["value"],
        "dataset": facts.get("prompts") or "prompts",
        "dataset_type": "prompts",
        "dataset_sha256": facts.get("prompts_sha256") or "",
    }


def _outside_lines(checkpoint: Checkpoint) -> list[CardLine]:
    """Results of other programs, each by its own protocol; for programs the first metric."""
    path = reverse("evaluation:outside_results", args=[checkpoint.project.slug, checkpoint.pk])
    return [
        CardLine(
            part=_ELSEWHERE,
            name=f"{row.task} ({row.get_program_display()})",
            words=result_words(row),
            source=row.protocol_sha256,
            path=path,
            result={
                "metric": row.metrics[0]["name"],
                "value": row.metrics[0]["value"],
                "dataset": row.task,
                "dataset_type": row.program,
                "dataset_sha256": row.protocol_sha256,
            },
        )
        for row in outside_of(checkpoint)
    ]


def _stage_lines(checkpoint: Checkpoint) -> list[CardLine]:
    rows = StageChange.objects.filter(checkpoint=checkpoint).select_related("request", "project")
    return [
        CardLine(
            part=_STAGES,
            name=f"{row.get_stage_display()}, {_moment(row.at)}",
            words=f"{row.get_cause_display()} by {row.by_name}, asked by "
            f"{row.request.requested_name}, {row.share} % of the traffic"
            + (f": {row.reason}" if row.reason else ""),
            source=row.request.evidence_sha256,
            path=reverse("evaluation:promotion", args=[row.project.slug, row.request_id]),
        )
        for row in rows.order_by("at", "pk")
    ]


def _review_lines(checkpoint: Checkpoint) -> list[CardLine]:
    rows = ModelReview.objects.filter(checkpoint=checkpoint).defer("state")
    return [
        CardLine(
            part=_REVIEWS,
            name=f"{row.get_status_display()}, {_moment(row.at)}",
            words=f"by {row.by_name}" + (f": {row.reason}" if row.reason else ""),
            source=row.state_sha256,
            path=reverse(
                "evaluation:review", args=[checkpoint.project.slug, checkpoint.pk, row.pk]
            ),
        )
        for row in rows.order_by("at", "pk")
    ]


def _moment(at: datetime) -> str:
    """The same for every reader: a card has a hash."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
