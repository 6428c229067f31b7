"""What rounds measured, side by side."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from django.core.cache import cache
from django.db.models import Count, Q

from apps.common.errors import DomainError
from apps.common.numbers import is_number
from apps.evaluation.selectors.head_to_head import PeopleRate, people_rates
from apps.evaluation.selectors.outputs import Output, outputs_of, prompt_facts
from apps.evaluation.selectors.protocols import protocol_of_run
from apps.labeling.models import Choice, Vote
from apps.loop.models import Round, RoundStep
from apps.loop.selectors import batch_of
from apps.loop.selectors.labeling import generation_of
from apps.snapshots.recipe import DEV, HELDOUT_ANNOTATORS, HELDOUT_GROUPS, PUBLIC_TEST
from apps.training.models import Run
from measures.accuracy import pair_credit
from measures.estimate import Interval
from measures.intervals import mean_interval, paired_difference, wilson
from measures.rounds import pair_agreement

_HELD_OUT = (HELDOUT_GROUPS, HELDOUT_ANNOTATORS, PUBLIC_TEST, DEV)  # the first that there is
_CACHED_S = 24 * 3600  # of what two finished runs say, which never changes


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its 95 % interval, None where it has none; n: pairs, prompts or votes; of: the
    split, the first characters of the protocol's hash, or whom a policy is compared with."""

    value: float
    low: float | None
    high: float | None
    n: int | None
    of: str = ""


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """accuracy: of the reward model on rows it never learned from; new_people: on votes of people
    it never met. win_rate: of the policy against its baseline, by the judge; by_people: by people,
    in the newest head-to-head of it that has ended. kl: nats from the baseline per answer; length
    and baseline_length: mean tokens.

    agreement: of two votes on one of the pairs that the round generated; equal: of those votes,
    for neither answer; simulated: of those votes.

    before: the newest earlier round measured under the same protocol, with its win rate; change:
    the difference, paired by prompts. None where there is none, and nothing is compared."""

    accuracy: Rate | None = None
    new_people: Rate | None = None
    win_rate: Rate | None = None
    by_people: Rate | None = None
    kl: float | None = None
    length: float | None = None
    baseline_length: float | None = None
    agreement: Rate | None = None
    equal: Rate | None = None
    simulated: int = 0
    before: tuple[int, Rate] | None = None
    change: Rate | None = None


def figures_by_round(
    rows: list[Round], shown: Collection[int] | None = None
) -> dict[int, RoundFigures]:
    """{number: figures} of rounds of one pipeline, of all or those `shown`; each is compared with
    those among `rows`."""
    steps: dict[str, dict[str, RoundStep]] = {row.pk: {} for row in rows}
    found = RoundStep.objects.filter(round__in=rows, key__in=("reward", "policy", "evaluate"))
    for step in found.filter(state=RoundStep.State.DONE).select_related("run"):
        steps[step.round_id][step.key] = step
    rates = people_rates(rows[0].project) if rows else {}
    figures: dict[int, RoundFigures] = {}
    newest: dict[str, tuple[int, Rate, Run]] = {}  # by protocol
    for row in sorted(rows, key=lambda one: one.number):
        runs = {key: step.run for key, step in steps[row.pk].items() if step.run is not None}
        evaluation = runs.get("evaluate")
        win, protocol = _win_rate(evaluation)
        before = newest.get(protocol) if win and protocol else None
        if win and protocol and evaluation:
            newest[protocol] = (row.number, win, evaluation)
        if shown is not None and row.number not in shown:
            continue
        figures[row.number] = RoundFigures(
            accuracy=_accuracy(runs.get("reward"), _HELD_OUT),
            new_people=_accuracy(runs.get("reward"), (HELDOUT_ANNOTATORS,)),
            win_rate=win,
            by_people=_by_people(runs.get("policy"), rates),
            **_behaviour(evaluation),
            **_votes(row),
            before=before and before[:2],
            change=_change(evaluation, before[2]) if before and evaluation else None,
        )
    return figures


def _accuracy(run: Run | None, names: tuple[str, ...]) -> Rate | None:
    splits = run.summary.get("splits") if run else None
    if not isinstance(splits, dict):
        return None
    for name in names:
        report = splits.get(name)
        if isinstance(report, dict) and (rate := _rate(report.get("accuracy"), name)):
            return rate
    return None


def _win_rate(run: Run | None) -> tuple[Rate | None, str]:
    judge = run.summary.get("judge") if run else None
    if run is None or not isinstance(judge, dict):
        return None, ""
    protocol = protocol_of_run(run)
    sha256 = protocol.sha256 if protocol else ""
    return _rate(judge.get("win_rate"), sha256[:12]), sha256


def _by_people(policy: Run | None, rates: Mapping[str, list[PeopleRate]]) -> Rate | None:
    newest = next(iter(rates.get(policy.pk, [])), None) if policy else None
    if newest is None or newest.value is None:
        return None
    return Rate(newest.value, newest.low, newest.high, newest.n, newest.opponent)


def _behaviour(run: Run | None) -> dict[str, Any]:
    """Of both sides of an evaluation."""
    sides: dict[str, Any] = {
        side: run.summary.get(side) if run else None for side in ("policy", "sft")
    }
    policy, sft = (one if isinstance(one, dict) else {} for one in sides.values())
    found = {
        "kl": policy.get("kl"),
        "length": policy.get("response_length"),
        "baseline_length": sft.get("response_length"),
    }
    return {name: value if is_number(value) else None for name, value in found.items()}


def _votes(row: Round) -> dict[str, Any]:
    """How people voted on the pairs that the round generated."""
    run = generation_of(row)
    if run is None:
        return {}
    votes = Vote.objects.filter(
        project=row.project_id, is_current=True, comparison__batch=batch_of(run)
    )
    per_pair = votes.values("comparison").order_by("comparison")
    counts = list(
        per_pair.annotate(
            a=Count("pk", filter=Q(choice=Choice.A)),
            tie=Count("pk", filter=Q(choice=Choice.TIE)),
            b=Count("pk", filter=Q(choice=Choice.B)),
            bad=Count("pk", filter=Q(choice=Choice.BOTH_BAD)),
        ).values_list("a", "b", "tie", "bad")
    )
    if not counts:
        return {}
    table = np.asarray(counts)
    shares = pair_agreement(table)
    known = shares[~np.isnan(shares)]
    n = int(table.sum())
    return {
        "agreement": _of_interval(mean_interval(known)) if len(known) else None,
        "equal": _of_interval(wilson(int(table[:, 2:].sum()), n)) if n else None,
        "simulated": votes.filter(source=Vote.Source.SIMULATED).count(),
    }


def _change(run: Run, before: Run) -> Rate | None:
    """Of the judge's win rate, paired by prompts. None where one of the runs kept no answers with
    the judge's scores, or they were asked nothing in common."""
    key = f"loop-change:{before.pk}:{run.pk}"
    kept: dict[str, Any] | None = cache.get(key)
    if kept is None:
        found = _paired(run, before)
        kept = asdict(found) if found is not None else {}
        cache.set(key, kept, _CACHED_S)
    return Rate(**kept) if kept else None


def _paired(run: Run, before: Run) -> Rate | None:
    try:
        now, then = (_credits(outputs_of(one)) for one in (run, before))
    except DomainError:
        return None
    both = sorted(set(now) & set(then))
    if not both:
        return None
    groups = {key: facts.get("group", "") for key, facts in prompt_facts(run).items()}
    found = paired_difference(
        [now[key] for key in both],
        [then[key] for key in both],
        clusters=[groups.get(key) or key for key in both],
    )
    return _of_interval(found)


def _credits(outputs: list[Output]) -> dict[str, float]:
    """{prompt: mean of 1 where the judge prefers the policy's answer, ½ where neither}."""
    found: dict[str, list[float]] = {}
    for one in outputs:
        if one.judge_score is not None and one.other_judge_score is not None:
            credit = pair_credit([one.judge_score - one.other_judge_score])
            found.setdefault(one.question[0], []).append(float(credit[0]))
    return {key: float(np.mean(values)) for key, values in found.items()}


def _of_interval(found: Interval) -> Rate | None:
    if found.value is None:
        return None
    return Rate(found.value, found.low, found.high, found.n)


def _rate(found: Any, of: str) -> Rate | None:
    if not isinstance(found, dict) or not is_number(found.get("value")):
        return None
    return Rate(found["value"], found.get("low"), found.get("high"), found.get("n"), of)
