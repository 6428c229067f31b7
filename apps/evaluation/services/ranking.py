"""Sending a policy's outputs to people, who grade them without seeing what the model thinks."""

import random
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import DomainError
from apps.evaluation.models import OutputRanking, RankedOutput
from apps.evaluation.selectors.outputs import (
    Output,
    askable,
    models_of,
    outputs_of,
    prompt_facts,
    require_assessment_of,
)
from apps.labeling.models import RatingTask
from apps.labeling.services.ratings import ratings_import
from apps.labeling.texts import fingerprint
from apps.training.models import Checkpoint, Run
from measures.trust.people import LEAST_GRADES

MOST_OUTPUTS = 100  # what SPEC D11's interval is about: at n = 100, r = 0.7 is 0.58–0.79
OVERLAP = 3
MOST_OVERLAP = 20
SCALE = {"min": 1, "max": 7, "min_label": "bad", "max_label": "good"}


@transaction.atomic
def outputs_send(
    *, checkpoint: Checkpoint, assessment: Run, user: User, overlap: int = OVERLAP
) -> tuple[OutputRanking, bool]:
    """Put up to 100 outputs of an assessment into the queue of rating tasks; (ranking, is new).

    One task an output, graded from 1 to 7 by `overlap` people, in an order that has nothing to do
    with the scores, which no annotator is shown. Once per model and assessment: the second call
    returns what the first one made. Raises `DomainError` or `Conflict`, and then nothing is sent.
    """
    require_assessment_of(checkpoint, assessment)
    if not LEAST_GRADES <= overlap <= MOST_OVERLAP:
        raise DomainError(
            f"From {LEAST_GRADES} to {MOST_OVERLAP} grades per output.", field="overlap"
        )
    ranking, created = OutputRanking.objects.get_or_create(
        checkpoint=checkpoint,
        assessment=assessment,
        defaults={"project": checkpoint.project, "overlap": overlap, "created_by": user},
    )
    if not created:
        return ranking, False
    outputs = outputs_chosen(outputs_of(assessment), seed=ranking.pk)
    if not outputs:
        raise DomainError("Every answer in this assessment is empty.", code="no_outputs")
    policy, _ = models_of(assessment)
    facts = prompt_facts(assessment)
    rows = []
    for place, output in enumerate(outputs):
        row: dict[str, Any] = {
            "id": task_id(ranking, place),
            "prompt": output.prompt,
            "responses": [{"text": output.response, "model": policy}],
            "scale": SCALE,
            "overlap": overlap,
        }
        rows.append(row | facts.get(fingerprint(output.prompt), {}))
    ratings_import(project=checkpoint.project, rows=rows)
    tasks = dict(
        RatingTask.objects.filter(
            project=checkpoint.project, external_id__in=[row["id"] for row in rows]
        ).values_list("external_id", "pk")
    )
    RankedOutput.objects.bulk_create(
        RankedOutput(ranking=ranking, task_id=tasks[row["id"]], score=output.score)
        for row, output in zip(rows, outputs, strict=True)
    )
    audit_record(
        action="outputs.sent",
        actor=user,
        project=checkpoint.project,
        subject=checkpoint.pk,
        details={"assessment": assessment.pk, "outputs": len(outputs), "overlap": overlap},
    )
    return ranking, True


def outputs_chosen(outputs: list[Output], *, seed: str) -> list[Output]:
    """At most 100 that can be asked about, drawn and shuffled by the seed: the file may be sorted
    by score, and its order must tell nobody anything."""
    found = askable(outputs)
    drawn = random.Random(seed)  # an order, not a secret
    return drawn.sample(found, min(len(found), MOST_OUTPUTS))


def task_id(ranking: OutputRanking, place: int) -> str:
    return f"ranking-{ranking.pk}-{place + 1}"
