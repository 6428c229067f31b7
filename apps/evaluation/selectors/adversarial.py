"""Adversarial rounds: how far people are with them, and how often the model was fooled."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from django.db.models import Q, QuerySet

from apps.common.errors import DomainError, Missing
from apps.evaluation.models import AdversarialRound, Verdict
from apps.evaluation.selectors.outputs import Output, askable, outputs_of
from apps.evaluation.selectors.verdicts import (
    AGAINST,
    baseline_answers,
    prompt_key,
    verdicts_of,
)
from apps.labeling.models import Choice, Comparison, Decision
from apps.labeling.texts import fingerprint, messages_from
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run, Sample
from apps.training.selectors import checkpoint_for_use
from measures.estimate import Interval
from measures.intervals import wilson
from measures.messages import Messages

MOST_PAIRS = 500
MOST_JUDGED = 1_000  # samples looked at for a round
_SETTLED = (Decision.Outcome.ACCEPTED, Decision.Outcome.ADJUDICATED)


@dataclass(frozen=True, slots=True)
class RoundPair:
    """One pair of a round: the answer that the model scored high, beside the other one."""

    comparison: Comparison
    prompt: Messages
    high: Messages
    low: Messages
    high_score: float | None
    low_score: float | None
    winner: str  # high, low, tie, both_bad; "" while undecided
    votes: str  # "1 for the high-scoring one, 4 against"

    @property
    def is_fooled(self) -> bool:
        """People prefer the answer that the model likes less."""
        return self.winner == "low"


@dataclass(frozen=True, slots=True)
class RoundCounts:
    """n: pairs asked; voted: with any vote; decided; out: left the queue; fooled: of the decided
    ones, where people prefer the lower-scoring answer, with Wilson's interval."""

    n: int
    voted: int
    decided: int
    out: int
    fooled: int
    share: Interval

    @property
    def is_done(self) -> bool:
        return self.decided + self.out >= self.n


def rounds_of(checkpoint: Checkpoint) -> QuerySet[AdversarialRound]:
    """Newest first."""
    rows = AdversarialRound.objects.filter(checkpoint=checkpoint)
    return rows.select_related("source", "created_by").order_by("-created_at", "-pk")


def round_get(*, checkpoint: Checkpoint, round_id: str) -> AdversarialRound:
    """`Missing` for one that is not of this model."""
    found = rounds_of(checkpoint).filter(pk=round_id).first()
    if found is None:
        raise Missing("There is no such adversarial round of this model.", field="round")
    return found


def pairs_chosen(outputs: Sequence[Output]) -> list[Output]:
    """Outputs that the model prefers to the other answer, the ones it scores highest first: where
    people disagree with it there, a policy would be rewarded for it. An output whose other answer
    is missing, empty, the same, or scores as high can teach nothing of the kind."""
    found = [
        output
        for output in askable(list(outputs))
        if output.other.strip()
        and output.other_score is not None
        and output.score > output.other_score
        and answer_key(output.response) != answer_key(output.other)
    ]
    return sorted(found, key=lambda output: (-output.score, output.line))


def outputs_to_ask(checkpoint: Checkpoint, outputs: Sequence[Output]) -> list[Output]:
    """Answers for a round of this model: first those that it rewards and a person called bad, then
    those of the assessment that it prefers to the other answer."""
    return [*judged_bad(checkpoint), *pairs_chosen(outputs)]


def judged_bad(checkpoint: Checkpoint) -> list[Output]:
    """Samples of runs that this model rewarded, over the median reward of what the run kept, on
    which somebody's verdict is bad, unsafe or wrong reward, and beside which there is a baseline's
    answer; the highest rewards first."""
    given = Q(inputs__role="reward", inputs__checkpoint=checkpoint)
    runs = Run.objects.filter(given, project=checkpoint.project_id)
    against = Verdict.objects.filter(sample__run__in=runs, value__in=AGAINST)
    rows = Sample.objects.filter(pk__in=against.values("sample"), reward__isnull=False)
    found = list(rows.select_related("run")[:MOST_JUDGED])
    said = verdicts_of("sample", [row.pk for row in found])
    kept = []
    for run in {row.run for row in found}:
        own = [row for row in found if row.run_id == run.pk]
        beside, middle = baseline_answers(run, own), _median(run.pk)
        kept += [
            _as_output(row, beside[row.pk])
            for row in own
            if any(one.value in AGAINST for one in said.get(row.pk, []))
            and (row.reward or 0.0) > middle
            and row.pk in beside
            and prompt_key(row.prompt)
            and answer_key(row.response) != answer_key(beside[row.pk])
        ]
    return sorted(kept, key=lambda one: (-one.score, one.sample or 0))


def _median(run: str) -> float:
    """Of the rewards that the run's samples carry, without those that are no number."""
    rewards = Sample.objects.filter(run=run, reward__isnull=False).values_list("reward", flat=True)
    finite = [value for value in rewards if value is not None and math.isfinite(value)]
    return median(finite) if finite else math.inf


def _as_output(row: Sample, other: str) -> Output:
    model = checkpoint_for_use(row.run)
    baseline = row.run.inputs.filter(role="sft").first()
    return Output(
        line=0,
        prompt=messages_from(row.prompt, role="user"),
        response=row.response,
        score=row.reward or 0.0,
        other=other,
        sample=row.pk,
        model=model.pk if model else row.run_id,
        other_model=(baseline.checkpoint_id if baseline else "") or "",
    )


def answer_key(text: str) -> str:
    """What the stored answer with this text is known by."""
    return fingerprint(messages_from(text, role="assistant"))


def pair_id(round_: AdversarialRound, output: Output) -> str:
    """The comparison's own id: the round, and the line of the file with the scores, or the sample
    that a person judged."""
    if output.sample is not None:
        return f"{round_.batch}-sample-{output.sample}"
    return f"{round_.batch}-{output.line}"


def high_is_a(external_id: str) -> bool:
    """Whether the high-scoring answer stands as A, drawn by the id: always in one place, it would
    tell whoever looks at the data which one it is."""
    return bool(hashlib.sha256(external_id.encode()).digest()[0] & 1)


def round_pairs(
    round_: AdversarialRound, source: Sequence[Output] | None = None
) -> list[RoundPair]:
    """Every pair of the round, in the order of the scores; scores are None where the file with
    them cannot be read any more."""
    known = [] if source is None else [*judged_bad(round_.checkpoint), *source]
    scores = {pair_id(round_, one): one for one in known}
    rows = (
        Comparison.objects.filter(project=round_.project_id, batch=round_.batch)
        .select_related("prompt", "response_a", "response_b", "decision")
        .order_by("pk")
    )
    pairs = [_pair(row, scores.get(row.external_id)) for row in rows]
    return sorted(pairs, key=lambda pair: -(pair.high_score or 0.0))


def outputs_readable(run: Run) -> tuple[list[Output], str]:
    """(the run's outputs, "") or ([], why they cannot be read)."""
    try:
        return outputs_of(run), ""
    except DomainError as error:
        return [], error.message


def _pair(row: Comparison, output: Output | None) -> RoundPair:
    a_is_high = high_is_a(row.external_id)
    high, low = (row.response_a, row.response_b) if a_is_high else (row.response_b, row.response_a)
    decision = getattr(row, "decision", None)
    winner, votes = "", ""
    if decision is not None:
        n_high, n_low = decision.n_a, decision.n_b
        if not a_is_high:
            n_high, n_low = n_low, n_high
        votes = f"{n_high} for it, {n_low} against"
        if others := decision.n_tie + decision.n_both_bad:
            votes += f", {others} neither"
        if decision.outcome in _SETTLED:
            winner = _side(decision.winner, a_is_high)
    return RoundPair(
        comparison=row,
        prompt=row.prompt.messages,
        high=high.messages,
        low=low.messages,
        high_score=output.score if output else None,
        low_score=output.other_score if output else None,
        winner=winner,
        votes=votes,
    )


def _side(winner: str, a_is_high: bool) -> str:
    if winner not in (Choice.A, Choice.B):
        return str(winner)
    return "high" if (winner == Choice.A) == a_is_high else "low"


def round_counts(pairs: Sequence[RoundPair]) -> RoundCounts:
    """Ties and "both are bad" are decided and not fooled: people did not prefer the other one."""
    state = Comparison.State
    decided = sum(bool(pair.winner) for pair in pairs)
    fooled = sum(pair.is_fooled for pair in pairs)
    return RoundCounts(
        n=len(pairs),
        voted=sum(pair.comparison.n_votes > 0 for pair in pairs),
        decided=decided,
        out=sum(
            not pair.winner and pair.comparison.state in (state.DROPPED, state.CONTESTED)
            for pair in pairs
        ),
        fooled=fooled,
        share=wilson(fooled, decided),
    )


def datasets_of(round_: AdversarialRound) -> list[Snapshot]:
    """Hard pairs that were frozen of this round, newest first, with those under way."""
    rows = Snapshot.objects.filter(
        project=round_.project_id, recipe__filters__batches=[round_.batch]
    )
    made = rows.exclude(state=Snapshot.State.FAILED).order_by("-created_at")
    return [row for row in made if row.recipe["filters"].get("comparisons")]
