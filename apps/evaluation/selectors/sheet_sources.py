"""The answers that a run left for an audit sheet: a policy's, beside its baseline's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.accounts.models import Project
from apps.common.errors import Conflict, DomainError
from apps.evaluation.selectors.outputs import lines_kept, number_in, parsed, text_in
from apps.labeling.texts import fingerprint, messages_from
from apps.training.models import Checkpoint, Run, RunInput
from apps.training.selectors import checkpoint_for_use
from apps.training.selectors.results import samples_chosen, samples_of
from measures.messages import Messages

AUDITABLE = (
    Run.Kind.EVALUATE,
    Run.Kind.ASSESS,
    Run.Kind.PPO,
    Run.Kind.GRPO,
    Run.Kind.DPO,
    Run.Kind.KTO,
)
_ASKS = (Run.Kind.EVALUATE, Run.Kind.ASSESS)  # they ask a policy that another run trained
_MOST_SAMPLES = 500


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer of the policy; `baseline` is the baseline's to the same prompt, "" where there is
    none. `bucket` is high, low or random where the run chose it, "" where all were kept."""

    prompt: Messages
    response: str
    reward: float | None
    baseline: str
    baseline_reward: float | None
    bucket: str


@dataclass(frozen=True, slots=True)
class SheetSource:
    """What a sheet is drawn from: one answer a prompt. `is_whole`: all answers of the run and not
    only the chosen ones."""

    policy: Checkpoint
    baseline: Checkpoint | None
    answers: list[Answered]
    is_whole: bool


def auditable_runs(project: Project, *, limit: int = 100) -> list[Run]:
    """Finished runs that a sheet can be drawn from, newest first."""
    rows = Run.objects.filter(project=project, kind__in=AUDITABLE, state=Run.State.FINISHED)
    return list(rows.filter(archived_at=None, about=None).order_by("-created_at")[:limit])


def sheet_source(run: Run) -> SheetSource:
    """`Conflict` where the run has not finished or left nothing to judge, `DomainError` (field run)
    where it asked no policy, or its file is not as expected."""
    if run.kind not in AUDITABLE:
        raise DomainError(
            f"A {run.get_kind_display()} run leaves no answers of a policy. Take an evaluation of "
            "it, or its PPO, GRPO, DPO or KTO run.",
            code="not_auditable",
            field="run",
        )
    if run.state != Run.State.FINISHED:
        raise Conflict(
            f"The run is {run.get_state_display()}; its answers are there once it has finished.",
            code="not_finished",
            field="run",
        )
    policy = _model(run, "policy") if run.kind in _ASKS else checkpoint_for_use(run)
    if policy is None:
        raise DomainError("This run has no policy to audit.", code="no_policy", field="run")
    found = _once_a_prompt(_from_file(run) or _from_samples(run))
    if not found:
        raise Conflict(
            "This run kept no answers. Evaluate the policy against its baseline: an evaluation "
            "keeps every answer of both.",
            code="no_answers",
            field="run",
        )
    is_whole = not any(one.bucket for one in found)
    return SheetSource(policy, _model(run, "sft"), found, is_whole)


def _model(run: Run, role: str) -> Checkpoint | None:
    row = RunInput.objects.filter(run=run, role=role).select_related("checkpoint__run").first()
    if row is None:
        return None
    return row.checkpoint or (checkpoint_for_use(row.upstream) if row.upstream else None)


def _once_a_prompt(answers: list[Answered]) -> list[Answered]:
    """The first answer to each prompt: several draws of one prompt hang together."""
    return list({fingerprint(one.prompt): one for one in reversed(answers)}.values())[::-1]


def _from_file(run: Run) -> list[Answered]:
    name, lines = lines_kept(run) or ("", [])
    return [parsed(number, line, name, _answered) for number, line in lines]


def _answered(_number: int, row: Mapping[str, Any]) -> Answered:
    """A line of outputs.jsonl (evaluate, assess) or audit.jsonl (PPO, GRPO), which name the same
    things differently."""
    bucket = row.get("bucket") or ""
    if bucket not in ("", "high", "low", "random"):
        raise ValueError(f"bucket is {bucket!r}")
    return Answered(
        prompt=messages_from(row.get("prompt"), role="user"),
        response=text_in(row, "response"),
        reward=number_in(row, "score", "reward"),
        baseline=text_in(row, "other_response", "baseline"),
        baseline_reward=number_in(row, "other_score", "baseline_reward"),
        bucket=bucket,
    )


def _from_samples(run: Run) -> list[Answered]:
    """What the run kept at its last step, of answers that were not chosen for being bad."""
    chosen = samples_chosen(run, bucket="random")
    last = chosen.rows[0][0] if chosen.rows else None
    kept = samples_of([row for row in chosen.rows if row[0] == last][:_MOST_SAMPLES])
    return [
        Answered(
            prompt=one.sample.prompt,
            response=one.sample.response,
            reward=one.sample.reward,
            baseline=one.sample.baseline,
            baseline_reward=None,
            bucket="",
        )
        for one in kept
        if one.sample is not None
    ]
