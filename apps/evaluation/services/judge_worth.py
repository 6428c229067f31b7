"""What a judge is worth here: measured on a human sample, chosen among prompts, and used to decide
which pairs people see first.

A prompt that was written after figures had been seen, or chosen by them, is measured on the part
of the sample that was kept apart. That part is read once for each figure, and every reading counts.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np
from django.db import transaction

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.models import short_id
from apps.evaluation.models import Judge, JudgeMeasurement, JudgeRun, JudgeVersion
from apps.evaluation.selectors.judges import (
    HEAD_TO_HEAD,
    Judged,
    Part,
    Scope,
    certify_looks,
    is_shaped,
    judged,
    pairs_are_units,
    sampled_tasks,
    scope_check,
    tasks_in,
)
from apps.evaluation.services.judges import MOST_PAIRS, pairs_ask, version_make
from apps.labeling.models import Task
from apps.labeling.services.batches import pairs_order
from measures import judging
from measures.intervals import wilson
from measures.ppi import JudgedVotes, PpiResult, ppi_estimate
from workers.contract.reasons import in_words, reason_words

log = logging.getLogger(__name__)
SHARE = 0.5  # of the prompts, whose votes are the human sample
MOST_PROMPTS = 6  # tried at once
Purpose = JudgeRun.Purpose
LONGER, FIRST = "longer", "first_system"
_AHEAD = 100.0  # priority of the pair of which the judge is least sure


def judge_measure(
    *,
    version: JudgeVersion,
    scope: Scope,
    share: float = SHARE,
    attacked: int = 0,
    most: int = MOST_PAIRS,
    user: User | None,
    queue: str = "cpu",
) -> JudgeRun | JudgeMeasurement:
    """Have the judge asked about the pairs of a scope that it has not judged, then measure it; at
    once where it has judged them all. share: of the prompts, drawn by their hash, whose votes are
    the human sample; most: pairs that it is asked about now. `DomainError` names the field."""
    if not 0 < share <= 1:
        raise DomainError("Over 0, and at most 1.", code="bad_share", field="share")
    asked = pairs_ask(
        version=version,
        scope=scope,
        purpose=Purpose.MEASURE,
        wanted={"measure": share},
        user=user,
        attacked=attacked,
        most=most,
        queue=queue,
    )
    return asked or measurement_make(version=version, scope=scope, share=share, by=user)


@transaction.atomic
def measurement_make(
    *, version: JudgeVersion, scope: Scope, share: float, by: User | None, part: str = ""
) -> JudgeMeasurement:
    """Its figures by the verdicts and votes there are; part: that which counts, unless given."""
    part = part or (Part.CERTIFY if is_shaped(version) else Part.ALL)
    Judge.objects.select_for_update(no_key=True).get(pk=version.judge_id)  # looks count in line
    found = judged(version=version, scope=scope)
    figures = figures_of(found, version=version, scope=scope, share=share, part=part)
    sample = found.only(_sample(found, share, part))
    look = certify_looks(version.judge, scope) + 1 if part == Part.CERTIFY else 1
    return JudgeMeasurement.objects.create(
        version=version,
        scope=scope.to_json(),
        part=part,
        share=share,
        look=look,
        n_pairs=len(sample),
        n_votes=len(sample.score),
        n_simulated=int(sample.simulated.sum()),
        figures=figures,
        refused=str(figures.get("refused", "")),
        by=by,
    )


def _sample(found: Judged, share: float, part: str) -> np.ndarray:
    rows: np.ndarray = found.sampled(share) & found.part(part) & found.voted & found.measuring
    return rows


def figures_of(
    found: Judged, *, version: JudgeVersion, scope: Scope, share: float, part: str
) -> dict[str, Any]:
    """All that a page says of a judge, as JSON. `refused`: why nothing can be said."""
    sample = _sample(found, share, part)
    here = found.only(sample)
    told = judging.worth(as_judged(here), order_free=version.reads_answers_alone)
    made: dict[str, Any] = {
        "n_judged": len(found),
        "n_awaited": int((found.sampled(share) & found.measuring & ~found.voted).sum()),
        "estimand": FIRST if scope.kind == HEAD_TO_HEAD else LONGER,
        "by_pair": pairs_are_units(project=version.judge.project, scope=scope),
    }
    if told.undefined:
        return made | {"refused": reason_words(told.undefined)}
    calibrated = _calibrated(found, sample, share, part)
    estimate = ppi_of(found, scope=scope, share=share, part=part)
    return made | plain_figures(
        {
            "n_unreadable": told.n_unreadable,
            "n_abstained": told.n_abstained,
            "agreement": told.agreement,
            "people": told.people,
            "ceiling": told.ceiling,
            "flips": told.flips,
            "position": told.position,
            "length": told.length,
            "family": told.family,
            "temperature": calibrated.temperature,
            "calibration": calibrated.calibration,
            "biases": judging.named(told),
            "ppi": estimate,
            "all_votes": _all_votes(found, scope),
            "more": {
                "one": estimate.more(1),
                "hundred": estimate.more(100),
                "half": estimate.votes_needed(estimate.half / 2) if estimate.half else None,
            },
            "attacks": attacks_of(version),
        }
    )


def as_judged(found: Judged) -> judging.Judged:
    return judging.Judged(
        first=found.first,
        second=found.second,
        length_a=found.length_a,
        length_b=found.length_b,
        family_a=found.own_a,
        family_b=found.own_b,
        prompt=found.prompt,
        pair=found.pair,
        score=found.score,
        person=found.person,
    )


def _calibrated(found: Judged, sample: np.ndarray, share: float, part: str) -> judging.Worth:
    """Temperature from the pairs for tuning (of the part kept apart: also those for choosing), and
    how well it is calibrated on the rest."""
    if part == Part.CERTIFY:
        rows = _sample(found, share, Part.ALL)
        tuning = found.part(Part.TUNE, Part.CHOOSE)
    else:
        rows, tuning = sample, found.part(Part.TUNE)
    return judging.worth(as_judged(found.only(rows)), tune=tuning[rows])


def oriented(found: Judged, scope: Scope) -> Judged:
    """The pairs with the first system, or the longer answer, as A; without equal lengths."""
    if scope.kind == HEAD_TO_HEAD:
        return found
    kept = found.only(found.length_a != found.length_b)
    turn = kept.length_b > kept.length_a
    turned = turn[kept.pair]
    return Judged(
        task=kept.task,
        prompt=kept.prompt,
        key=kept.key,
        first=np.where(turn, kept.second, kept.first),
        second=np.where(turn, kept.first, kept.second),
        preference=np.where(turn, 1 - kept.preference, kept.preference),
        length_a=np.maximum(kept.length_a, kept.length_b),
        length_b=np.minimum(kept.length_a, kept.length_b),
        own_a=np.where(turn, kept.own_b, kept.own_a),
        own_b=np.where(turn, kept.own_a, kept.own_b),
        decided=kept.decided,
        measuring=kept.measuring,
        drawn_from=kept.drawn_from,
        spoiled=kept.spoiled,
        pair=kept.pair,
        score=np.where(turned, 1 - kept.score, kept.score),
        person=kept.person,
        simulated=kept.simulated,
    )


def ppi_of(found: Judged, *, scope: Scope, share: float = 1.0, part: str = Part.ALL) -> PpiResult:
    """The estimand by votes alone, by votes and verdicts, by verdicts alone. Votes outside the
    sample are not looked at, nor are those on pairs that a judge moved in the queue, which stay
    among the pairs without votes; pairs that shaped the prompt take no part at all."""
    measured = oriented(found.only(found.drawn_from), scope)
    if part != Part.ALL:
        counted = measured.voted & measured.measuring
        measured = measured.only(measured.part(part) | ~counted)
    in_sample = measured.sampled(share) & measured.measuring
    kept = in_sample[measured.pair]
    return ppi_estimate(
        JudgedVotes(
            verdict=measured.preference,
            prompt=measured.prompt,
            score=measured.score[kept],
            pair=measured.pair[kept],
            person=measured.person[kept],
        )
    )


def _all_votes(found: Judged, scope: Scope) -> Any:
    """People's interval by every vote there is: what the others can be held against."""
    return ppi_of(found.only(found.voted), scope=scope).people


def attacks_of(version: JudgeVersion) -> list[dict[str, Any]]:
    """What each shipped attack did in the newest run that tried them, with its interval."""
    rows = version.runs.filter(run__summary__has_key="attacks").order_by("-created_at")
    for row in rows.select_related("run")[:20]:
        told = row.run.summary["attacks"]
        if not isinstance(told, Mapping) or not told:
            continue
        found = []
        for name, counts in sorted(told.items()):
            n, moved = int(counts.get("n", 0)), int(counts.get("moved", 0))
            bounds = wilson(moved, n)
            found.append(
                {"name": name, "n": n, "moved": moved, "low": bounds.low, "high": bounds.high}
            )
        return found
    return []


def plain_figures(values: Any) -> Any:
    """JSON types; a reason stands in words, and a number that is none as null."""
    if is_dataclass(values) and not isinstance(values, type):
        return plain_figures(in_words(asdict(values)))
    if isinstance(values, Mapping):
        return {str(name): plain_figures(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [plain_figures(value) for value in values]
    if isinstance(values, np.generic):
        return plain_figures(values.item())
    if isinstance(values, float) and not math.isfinite(values):
        return None
    return values


# --- choosing a prompt ---


def judge_tune(
    *,
    version: JudgeVersion,
    prompts: Sequence[Mapping[str, str]],
    scope: Scope,
    share: float,
    user: User,
) -> str:
    """Try prompts: each is a version, asked about the parts for tuning and choosing; the best on
    the part for choosing is then asked about the part that is kept apart, once. Returns the key of
    the trial. `DomainError` names the prompt."""
    if version.reads_answers_alone:
        raise Conflict("A reward model has no prompt.", code="no_prompt")
    if not 2 <= len(prompts) <= MOST_PROMPTS:
        raise DomainError(f"Give 2 to {MOST_PROMPTS} prompts.", field="prompts")
    if not 0 < share <= 1:
        raise DomainError("Over 0, and at most 1.", code="bad_share", field="share")
    judge = version.judge
    scope_check(project=judge.project, scope=scope)
    ids = sampled_tasks(
        project=judge.project, scope=scope, share=share, parts=(Part.TUNE, Part.CHOOSE)
    )
    if len(ids) < 2 * judging.LEAST_PAIRS:
        raise DomainError(
            f"The sample has {len(ids)} pairs with votes to tune and choose on; "
            f"{2 * judging.LEAST_PAIRS} are the fewest.",
            code="too_few_pairs",
            field="scope",
        )
    key = short_id()
    with transaction.atomic():
        made = []
        for number, given in enumerate(prompts, start=1):
            try:
                tried = version_make(
                    judge=judge,
                    model=version.model,
                    config={**version.config, **given},
                    user=user,
                    note=f"trial {key}, prompt {number}",
                    fingerprint=version.fingerprint,
                )
            except DomainError as error:
                raise DomainError(
                    f"Prompt {number}: {error.message}", code=error.code, field="prompts"
                ) from None
            made.append(tried)
        if len({one.pk for one in made}) < len(made):
            raise DomainError("Two of the prompts are the same.", field="prompts")
        wanted = {"trial": key, "versions": [one.pk for one in made], "share": share}
        for tried in made:
            asked = pairs_ask(
                version=tried,
                scope=scope,
                purpose=Purpose.TUNE,
                wanted=wanted,
                user=user,
                only=ids,
            )
            if asked is None:  # it was asked about these before
                _trial_measure(tried, scope, share, user)
    trial_follow(wanted=wanted, scope=scope, by=user)
    audit_record(
        action="judge.tuned",
        actor=user,
        project=judge.project,
        subject=str(judge.pk),
        details={"name": judge.name, "prompts": len(made), "trial": key},
    )
    return key


def trial_taken(asked: JudgeRun) -> None:
    """After a run of a trial: figures of its version, and what follows from them."""
    if asked.taken_at is not None:
        share = float(asked.wanted["share"])
        _trial_measure(asked.version, Scope.of(asked.scope), share, asked.by)
    trial_follow(wanted=asked.wanted, scope=Scope.of(asked.scope), by=asked.by)


def _trial_measure(version: JudgeVersion, scope: Scope, share: float, by: User | None) -> None:
    for part in (Part.TUNE, Part.CHOOSE):
        measurement_make(version=version, scope=scope, share=share, by=by, part=part)


@transaction.atomic
def trial_follow(
    *, wanted: Mapping[str, Any], scope: Scope, by: User | None
) -> JudgeVersion | None:
    """Once all versions of a trial have their figures, ask the best about the part kept apart. The
    version chosen by this call; None as long as none is, or after it was."""
    key, share = wanted["trial"], float(wanted["share"])
    versions = list(
        JudgeVersion.objects.filter(pk__in=wanted["versions"])
        .select_related("judge__project", "model__run")
        .order_by("number")
    )
    Judge.objects.select_for_update(no_key=True).get(pk=versions[0].judge_id)
    runs = JudgeRun.objects.filter(purpose=Purpose.TUNE, wanted__trial=key)
    if runs.filter(taken_at__isnull=True, problem="").exists():
        return None
    chosen = best_of_trial(versions, scope)
    if chosen is None:
        return None
    if chosen.measurements.filter(part=Part.CERTIFY, scope=scope.to_json()).exists():
        return None
    if JudgeRun.objects.filter(wanted__certify=key).exists():
        return None
    project = chosen.judge.project
    only = sampled_tasks(project=project, scope=scope, share=share, parts=(Part.CERTIFY,))
    asked = pairs_ask(
        version=chosen,
        scope=scope,
        purpose=Purpose.CERTIFY,
        wanted={"certify": key, "share": share},
        user=by,
        only=only,
    )
    if asked is None:
        measurement_make(version=chosen, scope=scope, share=share, by=by, part=Part.CERTIFY)
    return chosen


def best_of_trial(versions: Sequence[JudgeVersion], scope: Scope) -> JudgeVersion | None:
    """The version that agrees most with people on the part for choosing; of equal ones the first
    tried. None where none has figures."""
    best: tuple[float, JudgeVersion] | None = None
    for version in versions:
        rows = version.measurements.filter(part=Part.CHOOSE, scope=scope.to_json(), refused="")
        found = rows.order_by("-pk").first()
        value = (found.figures.get("agreement") or {}).get("value") if found else None
        if value is not None and (best is None or value > best[0]):
            best = value, version
    return best[1] if best else None


# --- which pairs people see first ---


@transaction.atomic
def pairs_presort(
    *, version: JudgeVersion, scope: Scope, measuring: float, user: User
) -> tuple[int, int]:
    """Open pairs without a vote of which the judge is least sure go first. A share `measuring` of
    them, drawn by hash, keeps its random order and measures; the others were chosen by a model and
    only train. (pairs moved ahead, pairs that measure). Nobody is shown a verdict."""
    if scope.kind == HEAD_TO_HEAD:
        raise Conflict(
            "The pairs of a head-to-head keep their random order: it would say nothing else.",
            code="random_order",
            field="scope",
        )
    if not 0 < measuring < 1:
        raise DomainError("Between 0 and 1.", code="bad_share", field="measuring")
    project: Project = version.judge.project
    scope_check(project=project, scope=scope)
    open_ones = tasks_in(project=project, scope=scope).filter(
        state=Task.State.OPEN, n_votes=0, slice=""
    )
    rows = version.verdicts.filter(task__in=open_ones.values("pk"))
    unsure = {
        task: 1 - 2 * abs(preference - 0.5)
        for task, preference in rows.values_list("task_id", "preference")
    }
    if not unsure:
        raise Conflict(
            "No open pair without a vote has a verdict of this version: ask it first.",
            code="no_verdicts",
            field="scope",
        )
    moved, kept = pairs_order(
        project=project,
        priorities={task: _AHEAD * value for task, value in unsure.items()},
        measuring=measuring,
        salt=f"{version.pk}",
    )
    audit_record(
        action="judge.presorted",
        actor=user,
        project=project,
        subject=str(version.judge_id),
        details={"name": version.judge.name, "moved": moved, "measuring": kept},
    )
    return moved, kept
