"""Sending a policy's outputs to people, who grade them without seeing what the model thinks."""

import random
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.models import short_id
from apps.evaluation.models import AdversarialRound, HeadToHead, OutputRanking, RankedOutput
from apps.evaluation.selectors.adversarial import (
    MOST_PAIRS,
    answer_key,
    high_is_a,
    outputs_to_ask,
    pair_id,
    round_pairs,
)
from apps.evaluation.selectors.outputs import (
    Output,
    askable,
    models_of,
    outputs_of,
    prompt_facts,
    require_assessment_of,
)
from apps.labeling.models import Comparison, Response, Task
from apps.labeling.services import comparisons_import
from apps.labeling.services.task_rows import tasks_import
from apps.labeling.texts import fingerprint
from apps.snapshots.dispatch import freeze_send
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import TRAIN, RecipeFilters, SnapshotRecipe
from apps.snapshots.selectors.snapshots import recipe_default
from apps.snapshots.services.drafts import draft_make
from apps.snapshots.services.freezing import is_looked_at_once, snapshot_preview
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
    """Put up to 100 outputs of an assessment into the queue of tasks; (ranking, is new).

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
    tasks_import(project=checkpoint.project, rows=rows)
    tasks = dict(
        Task.objects.filter(
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


# Adversarial rounds: high-scoring answers of a policy go to people, and what fooled the model
# becomes training pairs (SPEC D8).


N_PAIRS = 50
# Before what is drawn at random, and out of the random stratum, on which agreement is computed:
# these pairs are picked for being hard.
PRIORITY = 1.0


@transaction.atomic
def round_open(
    *, checkpoint: Checkpoint, source: Run, user: User, n_pairs: int = N_PAIRS
) -> tuple[AdversarialRound, bool]:
    """Ask people about the answers that the model likes best; (round, is new).

    source: a finished assessment of the model that kept a policy's answers with another answer to
    the same prompt and both scores. What people called bad of the answers that this model rewards,
    then the answers that beat the other one by the model and score highest, become comparisons of
    the batch "adversarial <id>", each with its origin; a pair that the project has asked before is
    not asked again. Once per model and source: the second call returns what the first one made.
    Raises `DomainError` or `Conflict`, and then nothing is asked.
    """
    require_assessment_of(checkpoint, source)
    if not 1 <= n_pairs <= MOST_PAIRS:
        raise DomainError(f"From 1 to {MOST_PAIRS} pairs.", field="n_pairs")
    key = short_id()
    round_, created = AdversarialRound.objects.get_or_create(
        checkpoint=checkpoint,
        source=source,
        defaults={
            "id": key,
            "project": checkpoint.project,
            "batch": f"adversarial {key}",
            "n_pairs": n_pairs,
            "created_by": user,
        },
    )
    if not created:
        return round_, False
    rows = _rows(round_, n_pairs)
    report = comparisons_import(
        project=checkpoint.project, rows=rows, batch=round_.batch, on_error="skip"
    )
    if not report.n_created:
        raise DomainError(
            "None of the answers can be compared: " + report.problems[0].message + ".",
            code="no_pairs",
            field="source",
        )
    round_.n_pairs = report.n_created
    round_.save(update_fields=["n_pairs", "updated_at"])
    audit_record(
        action="adversarial.opened",
        actor=user,
        project=checkpoint.project,
        subject=checkpoint.pk,
        details={"round": round_.pk, "source": source.pk, "pairs": report.n_created},
    )
    return round_, True


def _rows(round_: AdversarialRound, n_pairs: int) -> list[dict[str, Any]]:
    """Rows for `comparisons_import`, at most `n_pairs`, the highest scores first."""
    source = round_.source
    found = outputs_to_ask(round_.checkpoint, outputs_of(source))
    if not found:
        raise DomainError(
            "The model prefers none of these answers to another one of the same prompt, so there "
            "is nothing to ask. Assess it with a policy and the SFT model beside it.",
            code="no_pairs",
            field="source",
        )
    known = _asked_before(round_, found)
    fresh = [output for output in found if _question(output) not in known][:n_pairs]
    if not fresh:
        raise Conflict(
            "People were asked about every one of these pairs before.", code="asked_before"
        )
    policy, other = models_of(source)
    facts = prompt_facts(source)
    return [
        _row(pair_id(round_, output), output, output.model or policy, output.other_model or other)
        | facts.get(fingerprint(output.prompt), {})
        for output in fresh
    ]


def _row(name: str, output: Output, policy: str, other: str) -> dict[str, Any]:
    high, low = ("a", "b") if high_is_a(name) else ("b", "a")
    return {
        "id": name,
        "prompt": output.prompt,
        f"response_{high}": output.response,
        f"response_{low}": output.other,
        "origin": Response.Origin.MODEL.value,
        f"origin_ref_{high}": policy,
        f"origin_ref_{low}": other,
        "stratum": Comparison.Stratum.PRIORITY.value,
        "priority": PRIORITY,
    }


def _question(output: Output) -> tuple[str, frozenset[str]]:
    answers = frozenset((answer_key(output.response), answer_key(output.other)))
    return fingerprint(output.prompt), answers


def _asked_before(
    round_: AdversarialRound, outputs: list[Output]
) -> set[tuple[str, frozenset[str]]]:
    prompts = {fingerprint(output.prompt) for output in outputs}
    rows = Comparison.objects.filter(project=round_.project, prompt__text_hash__in=prompts)
    columns = ("prompt__text_hash", "response_a__text_hash", "response_b__text_hash")
    return {(prompt, frozenset((a, b))) for prompt, a, b in rows.values_list(*columns)}


def hard_pairs_freeze(*, round_: AdversarialRound, user: User) -> tuple[Snapshot, bool]:
    """Have the pairs frozen in which people preferred the lower-scoring answer; (dataset, whether
    a worker was told at once).

    The dataset holds exactly these, decided by the project's own rule, for a reward run's input
    `hard`. Its splits are drawn by the project's seed and shares, so that a group which tests other
    datasets trains in none; nobody is held out of so few votes. The same pairs are frozen once: a
    second call returns the dataset there is. `Conflict` where people agreed with the model
    throughout, `DomainError` where the splits would leave nothing to train on.
    """
    with transaction.atomic():
        AdversarialRound.objects.select_for_update().get(pk=round_.pk)
        fooled = [pair.comparison.pk for pair in round_pairs(round_) if pair.is_fooled]
        if not fooled:
            raise Conflict(
                "There is no decided pair in which people preferred the lower-scoring answer.",
                code="no_hard_pairs",
            )
        recipe = hard_recipe(round_, fooled)
        known = Snapshot.objects.filter(project=round_.project, recipe=recipe.to_json())
        made = known.filter(state__in=(Snapshot.State.DRAFT, Snapshot.State.FROZEN)).first()
        if made is not None:
            return made, True
        if is_looked_at_once(round_.project) and not (
            snapshot_preview(project=round_.project, recipe=recipe).lines.get(TRAIN)
        ):
            raise DomainError(
                f"The project's splits put none of the {len(fooled)} pairs into training. Wait for "
                "more of them.",
                code="empty_snapshot",
            )
        made = draft_make(
            project=round_.project,
            name=f"Hard pairs of round {round_.pk} ({len(fooled)})",
            kind=Snapshot.Kind.PREFERENCES,
            recipe=recipe.to_json(),
            user=user,
            queued=True,
        )
    return made, freeze_send(made.pk)  # after the commit: a worker is faster than one


def hard_recipe(round_: AdversarialRound, comparisons: list[int]) -> SnapshotRecipe:
    default = recipe_default(project=round_.project)
    filters = RecipeFilters(
        batches=(round_.batch,),
        comparisons=tuple(sorted(comparisons)),
        left_out=default.filters.left_out,
    )
    return replace(default, filters=filters, heldout_annotators=0.0)


def run_uses(run: Run) -> list[str]:
    """What people did with the models of a run that would be lost if it were deleted."""
    graded = OutputRanking.objects.filter(Q(checkpoint__run=run) | Q(assessment=run)).count()
    rounds = AdversarialRound.objects.filter(Q(checkpoint__run=run) | Q(source=run)).count()
    compared = HeadToHead.objects.filter(
        Q(source=run) | Q(first__run=run) | Q(second__run=run)
    ).count()
    found = [f"people grade outputs of it ({graded})"] if graded else []
    found += [f"people compare answers of it ({compared})"] if compared else []
    return found + ([f"it is part of adversarial rounds ({rounds})"] if rounds else [])
