"""How the demo's round ends: people compare the policy with its baseline, somebody asks that it is
promoted, others decide, and its card says all of it. Judges are measured beside people. Then a
pipeline is made of the round, and people vote on some of the pairs that it generated, until the
next round starts by itself.

The people are simulated, and their votes are marked so: they show how a comparison goes, and no
gate counts them. Everything is done through the services that people's pages call, and each step
looks at what is there, so what was stopped anywhere continues.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from django.urls import reverse
from numpy.typing import NDArray

from apps.accounts.models import Project, User
from apps.common.errors import Conflict, DomainError
from apps.common.numbers import share
from apps.evaluation.models import HeadToHead, PromotionDecision, PromotionRequest, Stage
from apps.evaluation.models.promotion import LONGEST_REASON
from apps.evaluation.screens.head_to_head import said
from apps.evaluation.selectors.evidence import gate_kept
from apps.evaluation.selectors.head_to_head import progress_of, result_now, tasks_of
from apps.evaluation.selectors.outputs import models_of
from apps.evaluation.selectors.promotion import decision_of, stage_now
from apps.evaluation.services.head_to_head import Asked, head_to_head_look, head_to_head_open
from apps.evaluation.services.promoting import (
    WORDS,
    promotion_approve,
    promotion_override,
    promotion_reject,
    promotion_request,
)
from apps.labeling.models import Comparison, Guideline, Task, Vote
from apps.labeling.services import Lease, slot_lease_next, slot_skip, vote_cast
from apps.labeling.services.eligibility import guideline_acknowledge
from apps.labeling.services.import_votes import imported_people, imported_people_make
from apps.loop import selectors
from apps.loop.demo import PEOPLE, Say, alone, stage_timed
from apps.loop.demo_judges import judges_ask
from apps.loop.models import Pipeline
from apps.loop.recipe import Rules
from apps.loop.selectors.pipelines import fresh_pairs, steps_of, version_now
from apps.loop.selectors.rules import rules_of
from apps.loop.services import fresh_pairs_queue
from apps.loop.services.pipelines import StepChange, pipeline_change, pipeline_make
from apps.training.models import Checkpoint, Run
from measures.head_to_head import Stopping
from measures.simulated_people import middle_of, prefers_first

log = logging.getLogger(__name__)
NAME = "PPO against SFT, by simulated people"
FIRST, SECOND = "PPO", "SFT"
SIMULATED = tuple(f"Simulated person {n:02}" for n in range(1, 31))
VOTES_EACH = 5
PIPELINE = "Arguments, round by round"
FRESH_PAIRS = 5  # at which the next round starts by itself
# As in `make bench B=evaluation`: how much prompts and people differ, in logits.
OF_PROMPTS, OF_PEOPLE = 1.0, 0.7
SKIPPED = 0.04  # of the pairs that somebody gets
STAGES = (Stage.PRODUCTION, Stage.STAGING, Stage.CANDIDATE)  # asked for in this order
ASKED_BECAUSE = "The demo's round has ended with this policy."
OVERRIDDEN_BECAUSE = (
    "Its closed lines are known and stay on the record. As a candidate it serves nobody; the next "
    "round is compared with it."
)


def round_end(*, runs: Mapping[str, Run], say: Say) -> bool:
    """Do what is left to do after a round's evaluations, in the order of the list above. False
    where one of them has not finished. runs: of one round, by their stage.

    Raises `DomainError` where the votes do not come to an end.
    """
    evaluation = runs["evaluate"]
    for run in [runs[stage] for stage in ("evaluate", "suite") if stage in runs]:
        run.refresh_from_db()
        if run.state != Run.State.FINISHED:
            return False
    with alone(say):
        found = User.objects.filter(username__in=[username for username, _, _ in PEOPLE])
        people = {user.username: user for user in found}
        if not _is_over(evaluation):
            with stage_timed(evaluation.project, "people and gate", say, "asking simulated people"):
                _compared(evaluation, people["emil"], say)
                _promoted(_model_of(evaluation), people, say)
        judges_ask(runs, _head_to_head(evaluation), people["emil"], say)
        generation = runs.get("generate")
        if generation is not None:
            generation.refresh_from_db()
            if generation.state != Run.State.FINISHED:
                return False
            _next_round(evaluation, generation, people["emil"], say)
    return True


def round_end_try(*, run_id: str) -> None:
    """`round_end` of the round that a run belongs to, where nobody waits for the answer: what goes
    wrong is logged, and the next start of the demo tries again."""
    runs = selectors.round_of(Run.objects.select_related("project").get(pk=run_id))
    if "evaluate" not in runs:
        return
    try:
        round_end(runs=runs, say=log.info)
    except DomainError:
        log.exception("the end of the round of run %s waits", run_id)


def _is_over(evaluation: Run) -> bool:
    return any(
        decision is not None and decision.kind in _LET_THROUGH
        for request in _requests(evaluation)
        if (decision := decision_of(request))
    )


_LET_THROUGH = (PromotionDecision.Kind.APPROVED, PromotionDecision.Kind.OVERRIDDEN)


def _model_of(evaluation: Run) -> Checkpoint:
    return Checkpoint.objects.select_related("project").get(pk=models_of(evaluation)[0])


# The people.


def _compared(evaluation: Run, emil: User, say: Say) -> None:
    """A head-to-head of the evaluation's answers, with the votes of simulated people."""
    found = _head_to_head(evaluation)
    if found is None:
        try:
            found = head_to_head_open(
                project=evaluation.project,
                user=emil,
                source=evaluation,
                asked=Asked(
                    name=NAME,
                    first_name=FIRST,
                    second_name=SECOND,
                    people=len(SIMULATED),
                    votes_each=VOTES_EACH,
                    # They all vote within seconds, and nobody looks in between.
                    stopping=Stopping.AT_THE_END,
                ),
            )
        except DomainError as error:  # answers that are all alike, or too few of them
            say(f"people: nobody is asked. {error.message}")
            return
    if found.ended_at is None:
        people = _simulated_people(evaluation.project)
        _vote(found, people, _share_by_judge(evaluation))
        head_to_head_look(head_to_head=found, by=emil)
        found.refresh_from_db()
        if found.ended_at is None:
            raise DomainError(
                "The head-to-head of the simulated people waits for votes: another person holds a "
                "pair, or another head-to-head was in their queue. Start the demo again.",
                code="votes_missing",
            )
    say(f"people: {_told(found)['says']}")


def _head_to_head(evaluation: Run) -> HeadToHead | None:
    rows = HeadToHead.objects.filter(source=evaluation, name=NAME).select_related("pairs")
    return rows.order_by("created_at").first()


def _share_by_judge(evaluation: Run) -> float:
    """The share of people who would prefer the policy, as the judge has it: the truth that the
    simulated people know through their tastes."""
    found = evaluation.summary.get("judge") or {}
    value = (found.get("people_win_rate") or {}).get("value")
    if value is None:
        raise DomainError("The evaluation had no judge.", code="no_judge")
    return float(value)


def _simulated_people(project: Project) -> Sequence[User]:
    """Made like people of an import, who cannot sign in; they have read the guidelines."""
    imported_people_make(project, SIMULATED)
    known = imported_people(project, SIMULATED)
    people = list(User.objects.filter(pk__in=known.values()).order_by("display_name"))
    newest = Guideline.objects.filter(project=project).order_by("-version").first()
    if newest is not None:
        for person in people:
            guideline_acknowledge(project=project, user=person, version=newest.version)
    return people


def _vote(found: HeadToHead, people: Sequence[User], win: float) -> None:
    """Each in turn answers or skips the pair that the queue hands out, until there is none left.
    What a person says of a pair does not hang on when they meet it."""
    tasks = tasks_of(found).order_by("pk").values_list("pk", flat=True)
    place = {task: n for n, task in enumerate(tasks)}
    prefers, skips = _tastes(len(place), len(people), win)
    kinds = (Task.Kind.BLIND,)
    asked = list(enumerate(people))
    while asked:
        asked = [
            (n, person)
            for n, person in asked
            if _answer_next(found.project, person, n, kinds, place, prefers, skips)
        ]


def _answer_next(
    project: Project,
    person: User,
    n: int,
    kinds: Sequence[str],
    place: Mapping[int, int],
    prefers: NDArray[np.bool_],
    skips: NDArray[np.bool_],
) -> bool:
    """Answer or skip what the queue hands the person of this number. False where that is nothing of
    `place` ({task: its row in the other two}): it goes to others when the lease has run out."""
    lease = slot_lease_next(project=project, annotator=person, kinds=kinds)
    if not isinstance(lease, Lease) or lease.task not in place:
        return False
    pair = place[lease.task]
    if skips[pair, n]:
        slot_skip(slot=lease.slot, annotator=person, kinds=kinds)
    else:
        vote_cast(
            slot=lease.slot,
            annotator=person,
            idempotency_key=lease.key,
            source=Vote.Source.SIMULATED,
            lease_next=False,
            choice="a" if prefers[pair, n] else "b",
        )
    return True


def _tastes(pairs: int, people: int, win: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(whether the first system is preferred, whether the pair is skipped), [pairs, people]."""
    rng = np.random.default_rng(20161)
    pair, person = (places.ravel() for places in np.indices((pairs, people)))
    spread = {"of_prompts": OF_PROMPTS, "of_people": OF_PEOPLE}
    prefers = prefers_first(
        rng,
        prompt=pair,
        person=person,
        prompts=pairs,
        people=people,
        middle=middle_of(win, **spread),
        **spread,
    )
    return prefers.reshape(pairs, people), rng.random((pairs, people)) < SKIPPED


# The gate.


def _promoted(model: Checkpoint, people: Mapping[str, User], say: Say) -> None:
    """Emil asks for production; what the gate refuses he asks for one stage lower. Candidate, the
    last, two others override, each with their reason."""
    for stage in STAGES:
        request = (
            PromotionRequest.objects.filter(checkpoint=model, stage=stage).order_by("at").first()
        ) or promotion_request(
            project=model.project,
            checkpoint_id=model.pk,
            stage=stage,
            user=people["emil"],
            reason=ASKED_BECAUSE,
        )
        decision = decision_of(request) or _decided(request, people)
        said_of = "; ".join(gate["label"] for gate in _closed_lines(request))
        say(
            f"gate of {stage}: "
            + (f"closed by {said_of}" if said_of else "open")
            + f"; {WORDS[PromotionDecision.Kind(decision.kind)]} by {decision.decided_name}"
        )
        if decision.kind in _LET_THROUGH:
            return


def _decided(request: PromotionRequest, people: Mapping[str, User]) -> PromotionDecision:
    """Ada approves; where the gate refuses her, its words are the reason of a rejection."""
    named = stage_now(project=request.project, stage=request.stage)
    given: dict[str, Any] = {"project": request.project, "request_id": request.pk}
    seen = named.number if named else 0
    try:
        return promotion_approve(user=people["ada"], seen_change=seen, **given)
    except Conflict as refused:
        refusal = refused.message
    if (meanwhile := decision_of(request)) is not None:
        return meanwhile
    if request.stage != STAGES[-1] or request.is_open:
        return promotion_reject(user=people["ada"], reason=refusal[:LONGEST_REASON], **given)
    signed = set(request.signatures.values_list("by", flat=True))
    for name in ("rita", "ada"):
        if people[name].pk not in signed:
            promotion_override(
                user=people[name], seen_change=seen, reason=OVERRIDDEN_BECAUSE, **given
            )
    return PromotionDecision.objects.get(request=request)


# The next round.


def _next_round(evaluation: Run, generation: Run, emil: User, say: Say) -> None:
    """A pipeline of the round, whose next starts by itself at so many fresh pairs, and votes of
    simulated people on at most half of the pairs that the round generated; the rest is for people.
    """
    made = _pipeline_of(evaluation, emil)
    fresh_pairs_queue(run=generation)
    pairs = Comparison.objects.filter(
        project=evaluation.project, batch=selectors.batch_of(generation)
    )
    place = {pk: n for n, pk in enumerate(pairs.order_by("pk").values_list("pk", flat=True))}
    prefers, skips = _tastes(len(place), len(SIMULATED), 0.5)  # two draws of one policy

    def is_enough() -> bool:
        voted = pairs.exclude(state=Task.State.OPEN).count()
        return fresh_pairs(made) >= FRESH_PAIRS or 2 * voted >= len(place)

    if place and not is_enough():
        people = _simulated_people(evaluation.project)
        kinds = (Task.Kind.PAIR,)
        asked = list(enumerate(people))
        while asked and not is_enough():
            asked = [
                (n, person)
                for n, person in asked
                if _answer_next(evaluation.project, person, n, kinds, place, prefers, skips)
            ]
    say(
        f"rounds: {fresh_pairs(made)} of {FRESH_PAIRS} fresh pairs are accepted, at which round 2 "
        f"of the pipeline “{made}” starts while the site runs"
    )


def _pipeline_of(evaluation: Run, emil: User) -> Pipeline:
    """Made of the round's runs, which are its first round. The pairs for the next are labeled when
    it starts, so it generates none first."""
    found = Pipeline.objects.filter(project=evaluation.project, name=PIPELINE).first()
    if found is not None:
        return found
    made = pipeline_make(
        project=evaluation.project,
        run=evaluation,
        name=PIPELINE,
        user=emil,
        rules=Rules(trigger_pairs=FRESH_PAIRS),
        as_round=True,
    )
    version, off = version_now(made), StepChange(enabled=False)
    keys = {step.key for step in steps_of(version)} & {"generate", "label"}
    pipeline_change(
        pipeline=made,
        user=emil,
        seen_version=version.number,
        name=PIPELINE,
        rules=rules_of(version),
        steps=dict.fromkeys(keys, off),
    )
    return made


# Figures for the page and the report.


def round_end_figures(evaluation: Run) -> dict[str, Any] | None:
    """Plain JSON: the regression suite, the head-to-head, each answer of the gate, and where the
    card is; None before anybody asked for a promotion."""
    requests = _requests(evaluation)
    if not requests:
        return None
    suite = selectors.round_of(evaluation).get("suite")
    found, model = _head_to_head(evaluation), _model_of(evaluation)
    slug = evaluation.project.slug
    return {
        "evaluation": {"id": evaluation.pk, "name": evaluation.name},
        "suite": {"id": suite.pk} | _suite_told(suite) if suite else None,
        "head_to_head": _told(found) if found else None,
        "gate": [_answer(request) for request in requests],
        "model": {
            "id": model.pk,
            "name": f"{model.run.name}, step {model.step:,}",
            "url": reverse("training:model", args=[slug, model.pk]) + "?card#model-card",
        },
    }


def _requests(evaluation: Run) -> list[PromotionRequest]:
    """In the order in which they were asked."""
    rows = PromotionRequest.objects.filter(checkpoint_id=models_of(evaluation)[0])
    return list(rows.select_related("project").order_by("at"))


def _suite_told(suite: Run) -> dict[str, Any]:
    found = suite.summary.get("regression") or {}
    over_all = found.get("all") or {}
    names = ("checks", "standing", "margin", "worse")
    return {name: found.get(name) for name in names} | {
        name: over_all.get(name) for name in ("lost", "won")
    }


def _told(found: HeadToHead) -> dict[str, Any]:
    result, progress = result_now(found), progress_of(found)
    words, estimate = said(found, result, progress), result.estimate
    return {
        "id": found.pk,
        "name": found.name,
        "title": words.title,
        "says": f"{words.title}. {words.text}",
        "verdict": str(result.verdict),
        "value": estimate.value if estimate else None,
        "low": estimate.low if estimate else None,
        "high": estimate.high if estimate else None,
        "interval": f"{share(estimate.low)} to {share(estimate.high)}"
        if estimate and estimate.low is not None
        else "",
        "votes": result.n,
        "simulated": progress.n_simulated,
        "people": result.n_people,
        "prompts": result.n_prompts,
        "skips": progress.n_skips,
        "url": reverse("evaluation:head_to_head", args=[found.project.slug, found.pk]),
    }


def _answer(request: PromotionRequest) -> dict[str, Any]:
    decision = decision_of(request)
    return {
        "id": request.pk,
        "stage": request.stage,
        "asked_by": request.requested_name,
        "open": request.is_open,
        "closed_by": _closed_lines(request),
        "decision": WORDS[PromotionDecision.Kind(decision.kind)] if decision else None,
        "decided_by": [name for name in (decision.decided_name, decision.seconded_name) if name]
        if decision
        else [],
        "reason": decision.reason if decision else "",
        "url": reverse("evaluation:promotion", args=[request.project.slug, request.pk]),
    }


def _closed_lines(request: PromotionRequest) -> list[dict[str, str]]:
    """Of the kept evidence, what keeps the gate closed."""
    return [
        {"name": one.name, "label": one.label, "verdict": str(one.verdict), "says": one.says}
        for one in gate_kept(request.evidence).blocking
    ]
