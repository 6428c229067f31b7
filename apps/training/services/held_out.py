"""What measures is held out from what is trained: judges from rewards and their votes, evaluation
prompts from training."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from django.core.cache import cache
from django.db.models import QuerySet

from apps.common.errors import DomainError, Unprocessable
from apps.common.registry import JudgeStanding, judge_standing
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.prompts import (
    Keys,
    held_out_prompts,
    held_out_splits,
    training_prompts,
)
from apps.snapshots.selectors.snapshots import shared_training_rows, training_votes, voters
from apps.training.models import Artifact, Run, RunInput
from apps.training.services.kinds import OPTIMISED, REWARDED, Input

_DAY_S = 86_400
_GIVEN_UP = (Run.State.FAILED, Run.State.CANCELLED)
_LEARNED_FROM = ("data", "hard", "prompts")  # what a run's own rows come as
_CONTINUED = ("base",)  # whose votes a reward model has seen
_POLICY_FROM = ("base", "sft", "policy")  # whose prompts a policy has seen
POLICY_LINEAGE = (*_POLICY_FROM, "reward")  # and of the reward model it was trained against


def held_out_judges(project_id: str) -> set[str]:
    """Reward runs whose model judges some run of the project; verdicts on pairs judge no run. One
    that a policy was optimised against is held out no longer, whatever it judged since."""
    rows = RunInput.objects.filter(run__project_id=project_id).exclude(run__kind=Run.Kind.JUDGE)
    judges = _models(rows.filter(role="judge").exclude(run__state__in=_GIVEN_UP))
    if not judges:
        return judges
    return judges - _models(rows.filter(role="reward", run__kind__in=OPTIMISED))


def judge_check(*, project_id: str, kind: str, inputs: Mapping[str, Input]) -> None:
    """Raises `DomainError`: `judge_as_reward` where the reward would be a held-out judge (a policy
    trained on it would be judged by what it was trained on), `judge_not_held_out` where the judge
    learned from votes that the reward model learned from."""
    reward, judge = _run_of(inputs.get("reward")), _run_of(inputs.get("judge"))
    if kind in REWARDED and reward in held_out_judges(project_id):
        raise DomainError(
            "This reward model is the held-out judge of other runs: a policy trained on it "
            "could not be judged by it. Choose one that learned from other people.",
            code="judge_as_reward",
            field="inputs.reward",
        )
    if reward is None or judge is None:
        return
    of_reward, of_judge = learned_from(reward), learned_from(judge)
    if asked := _shared_prompts(of_reward, of_judge):
        raise DomainError(
            f"The judge and the reward model learned from the same {asked:,} "
            f"prompt{'s' if asked > 1 else ''}, labelled elsewhere, so it would confirm the "
            "reward's mistakes. Import the file twice, one half of its prompts for each.",
            code="judge_not_held_out",
            field="inputs.judge",
        )
    if shared := shared_training_rows(of_reward, of_judge):
        raise DomainError(
            f"The judge and the reward model learned from the same votes on {shared:,} "
            f"comparison{'s' if shared > 1 else ''}, so it would confirm the reward's mistakes. "
            "Choose a judge that learned from other votes.",
            code="judge_not_held_out",
            field="inputs.judge",
        )


@dataclass(frozen=True, slots=True)
class JudgePeople:
    """Of `n` people behind a judge's training rows, `shared` are behind the reward model's too;
    that one has `of_reward`. Where either has nobody, its rows were labelled elsewhere."""

    shared: int
    n: int
    of_reward: int

    @property
    def known(self) -> bool:
        return bool(self.n and self.of_reward)

    @property
    def independent(self) -> bool:
        """Whether what it says counts as a second opinion: a gate asks for no less."""
        return self.known and not self.shared


def judge_of(run: Run) -> JudgeStanding | None:
    """What is known of the judge of an evaluation; None where it has none."""
    if run.kind != Run.Kind.EVALUATE:
        return None
    link = (
        run.inputs.filter(role="judge", checkpoint__isnull=False)
        .select_related("checkpoint__run", "checkpoint__project")
        .first()
    )
    return judge_standing(link.checkpoint) if link is not None else None


def judge_people(run: Run) -> JudgePeople | None:
    """None for a run without both a reward model and a judge. Looked up once a day: neither inputs
    nor votes behind a frozen dataset change."""
    found = cache.get_or_set(f"training:judge_people:{run.pk}", lambda: _people(run), _DAY_S)
    return JudgePeople(*found) if found else None


def _people(run: Run) -> tuple[int, ...]:
    rows = RunInput.objects.filter(run=run)
    reward, judge = (_models(rows.filter(role=role)) for role in ("reward", "judge"))
    if not reward or not judge:
        return ()
    of_reward, of_judge = (
        voters(training_votes(learned_from(one.pop()))) for one in (reward, judge)
    )
    return len(of_reward & of_judge), len(of_judge), len(of_reward)


def prompts_check(*, kind: str, inputs: Mapping[str, Input]) -> None:
    """Raises `Unprocessable` on `inputs.prompts`: `no_held_out_prompts` where a policy would be
    evaluated on what it trains on, `prompts_overlap` where the run trains on prompts that another
    of its inputs holds out, or holds out prompts that one of its policies learned from."""
    prompts = inputs.get("prompts")
    if kind not in REWARDED or not isinstance(prompts, Snapshot):
        return
    held_out = held_out_prompts(prompts)
    if not held_out_splits(prompts):
        raise _refused(
            f"'{prompts.name}' holds no prompts out, so the policy would be evaluated on prompts "
            "that it trains on. Import it again, which holds a share of its groups out, or freeze "
            "it again with a split.",
            code="no_held_out_prompts",
        )
    trained = training_prompts(prompts)
    if len(trained) and not len(held_out):
        raise _refused(
            f"Every prompt that '{prompts.name}' holds out stands among its training rows too, so "
            "the policy would be evaluated on prompts that it trains on. Choose a dataset that is "
            "split by prompt.",
            code="no_held_out_prompts",
        )
    if kind in OPTIMISED:
        others = {role: one for role, one in inputs.items() if isinstance(one, Snapshot)}
        for role in _MEASURED_ON & others.keys():
            _refuse_shared(trained, held_out_prompts(others[role]), prompts, others[role], _TRAINED)
    learned = {
        name
        for role in ("policy", "sft")
        if (run := _run_of(inputs.get(role))) is not None
        for name in learned_from(run, through=_POLICY_FROM)
    }
    for other in Snapshot.objects.filter(pk__in=learned - {prompts.pk}).order_by("created_at"):
        _refuse_shared(held_out, training_prompts(other), prompts, other, _HELD_OUT)


# Inputs with held-out prompts of their own. Canary pairs are not among them: the reward is asked
# for its opinion of them, and no policy answers their prompts.
_MEASURED_ON = {"reward_data", "demonstrations"}
_TRAINED = "'{prompts}' trains on {n:,} prompt{s} that '{other}' holds out"
_HELD_OUT = "'{prompts}' holds out {n:,} prompt{s} that the policy learned from in '{other}'"


def _refuse_shared(one: Keys, other: Keys, prompts: Snapshot, of: Snapshot, words: str) -> None:
    n = len(np.intersect1d(one, other, assume_unique=True))
    if n:
        said = words.format(prompts=prompts.name, other=of.name, n=n, s="s" if n > 1 else "")
        raise _refused(
            f"{said}, so figures on {'them' if n > 1 else 'it'} would be too good. Choose prompts "
            "without them, or import the dataset again with those rows left out.",
            code="prompts_overlap",
        )


def _refused(message: str, *, code: str) -> Unprocessable:
    return Unprocessable(message, code=code, field="inputs.prompts")


def _shared_prompts(first: set[str], second: set[str]) -> int:
    """Prompts in the training rows of both groups of snapshots, of those without votes behind."""
    elsewhere = Snapshot.objects.filter(pk__in=first | second, recipe__imported=True)
    asked = {one.pk: set(training_prompts(one).tolist()) for one in elsewhere}
    return len(
        set().union(*(asked[pk] for pk in first & asked.keys()))
        & set().union(*(asked[pk] for pk in second & asked.keys()))
    )


def runs_behind(run_id: str, *, through: Collection[str] = _CONTINUED) -> set[str]:
    """The run, and those whose models it continues from, or was trained against, over any number
    of runs in between: its inputs of the roles `through`."""
    seen: set[str] = set()
    waiting = {run_id}
    while waiting:
        seen |= waiting
        waiting = _models(RunInput.objects.filter(run__in=waiting, role__in=through)) - seen
    return seen


def learned_from(run_id: str, *, through: Collection[str] = _CONTINUED) -> set[str]:
    """Snapshots whose training rows a model has seen, those of the models it continues from
    (inputs of the roles `through`) included."""
    behind = runs_behind(run_id, through=through)
    return set(training_inputs(behind).values_list("snapshot_id", flat=True))


def training_inputs(runs: Collection[str]) -> QuerySet[RunInput]:
    """The datasets whose training rows these runs learned from."""
    return RunInput.objects.filter(
        run__in=runs, role__in=_LEARNED_FROM, snapshot__isnull=False
    ).select_related("snapshot")


def _run_of(given: Input | None) -> str | None:
    """The run whose model is given."""
    if given is None or isinstance(given, Snapshot | Artifact):
        return None
    return given.pk if isinstance(given, Run) else given.run_id


def _models(rows: QuerySet[RunInput]) -> set[str]:
    pairs = rows.values_list("upstream_id", "checkpoint__run_id")
    return {one for pair in pairs for one in pair if one}
