"""A policy's answers with their scores, as an assessment of a reward model left them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import Q

from apps.common.errors import Conflict, DomainError
from apps.common.numbers import is_number
from apps.labeling.texts import BadMessages, fingerprint, messages_from
from apps.snapshots.recipe import PRIVATE_SPLITS
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Checkpoint, Run
from measures.messages import Messages
from workers.artifacts import ArtifactError

FILE = "outputs.jsonl"
# Announced by its name when it was saved, and by its purpose when it was complete.
IS_FILE = Q(name=FILE) | Q(purpose="audit")
_LARGEST = 32_000_000  # bytes; the file holds about 100 answers
_FIELDS = ("prompt", "response", "score")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Output:
    """One answer of the policy. `line` counts from 1 in the file; `other` is another model's
    answer to the same prompt, "" where there is none. Scores are in the reward model's own unit.

    One that a person judged bad among a run's samples has no line: `sample` names it, and `model`
    and `other_model` are the checkpoints that answered."""

    line: int
    prompt: Messages
    response: str
    score: float
    disagreement: float | None = None
    other: str = ""
    other_score: float | None = None
    judge_score: float | None = None
    other_judge_score: float | None = None
    sample: int | None = None
    model: str = ""
    other_model: str = ""

    @property
    def question(self) -> tuple[str, str]:
        """What two outputs share that ask people the same."""
        return fingerprint(self.prompt), self.response.strip()


def outputs_of(assessment: Run) -> list[Output]:
    """Every answer in the run's file, in its order.

    `Conflict` (no_outputs) when the run left none or the file is gone; `DomainError` (bad_outputs)
    naming the first line that is not as expected.
    """
    kept = lines_kept(assessment)
    if kept is None:
        raise Conflict(
            "This assessment kept no answers of a policy. Assess the model with a policy and "
            "prompts: then there is something for people to judge.",
            code="no_outputs",
        )
    name, lines = kept
    return [parsed(number, line, name, _output) for number, line in lines]


def lines_kept(run: Run) -> tuple[str, list[tuple[int, str]]] | None:
    """(name of the run's file of answers, its lines by their number from 1 without empty ones);
    None where it left none. `Conflict` (no_outputs) when it is too large or gone, `DomainError`
    (bad_outputs) when it is not UTF-8."""
    rows = Artifact.objects.filter(IS_FILE, run=run).order_by("-attempt", "-size_bytes", "-seq")
    row = rows.first()
    if row is None:
        return None
    if row.size_bytes > _LARGEST:
        raise Conflict(f"{row.name} is larger than {_LARGEST // 10**6} MB.", code="no_outputs")
    try:
        text = artifact_store().read_bytes(row.uri, sha256=row.sha256).decode("utf-8")
    except (ArtifactError, OSError) as error:
        raise Conflict(f"The file of answers cannot be read: {error}.", code="no_outputs") from None
    except UnicodeDecodeError:
        raise DomainError(f"{row.name} is not UTF-8 text.", code="bad_outputs") from None
    lines = enumerate(text.split("\n"), start=1)
    return row.name, [(number, line) for number, line in lines if line.strip()]


def parsed(number: int, line: str, name: str, build: Callable[[int, Mapping[str, Any]], T]) -> T:
    """What `build` makes of a line's object; `DomainError` (bad_outputs) naming the line where it
    is no object or `build` raises a ValueError or `BadMessages`."""
    try:
        row = json.loads(line)
        if not isinstance(row, Mapping):
            raise ValueError("it is not an object")
        return build(number, row)
    except (ValueError, BadMessages) as error:
        reason = "it is not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
        raise DomainError(
            f"Line {number} of {name} is not as expected: {reason}.", code="bad_outputs", row=number
        ) from None


def _output(number: int, row: Mapping[str, Any]) -> Output:
    if missing := [name for name in _FIELDS if row.get(name) is None]:
        raise ValueError(f"{missing[0]} is missing")
    return Output(
        line=number,
        prompt=messages_from(row["prompt"], role="user"),
        response=text_in(row, "response"),
        score=number_in(row, "score"),
        disagreement=number_in(row, "disagreement"),
        other=text_in(row, "other_response"),
        other_score=number_in(row, "other_score"),
        judge_score=number_in(row, "judge_score"),
        other_judge_score=number_in(row, "other_judge_score"),
    )


def text_in(row: Mapping[str, Any], *names: str) -> str:
    """The first of these fields that is there, "" where none is."""
    name = _first(row, names)
    value = row.get(name, "") if name else ""
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    if "\x00" in value:
        raise ValueError(f"{name} holds a NUL character, which no database text can hold")
    return value


def number_in(row: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that is there as a float, None where none is."""
    name = _first(row, names)
    if not name:
        return None
    value = row[name]
    if not is_number(value):
        raise ValueError(f"{name} is not a finite number")
    return float(value)


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((name for name in names if row.get(name) is not None), "")


def askable(outputs: list[Output]) -> list[Output]:
    """Those that people can be asked about: no empty answer, no question twice."""
    found: dict[tuple[str, str], Output] = {}
    for output in outputs:
        if output.response.strip():
            found.setdefault(output.question, output)
    return list(found.values())


def models_of(assessment: Run) -> tuple[str, str]:
    """(id of the checkpoint that answered, id of that of the other answers), "" where unnamed.
    Without a policy the answers are those of the SFT model, and there are no others."""
    rows = dict(
        assessment.inputs.filter(checkpoint__isnull=False).values_list("role", "checkpoint_id")
    )
    if policy := rows.get("policy", ""):
        return policy, rows.get("sft", "")
    return rows.get("sft", ""), ""


def prompt_facts(assessment: Run) -> dict[str, dict[str, str]]:
    """{fingerprint of a prompt: its group, source and licence} of the run's prompts, so that
    splits keep together what belongs together. Empty where the file is gone."""
    row = assessment.inputs.filter(role="prompts", snapshot__isnull=False).first()
    if row is None or row.snapshot is None:
        return {}
    splits = [name for name in row.snapshot.counts.get("rows", {}) if name not in PRIVATE_SPLITS]
    found: dict[str, dict[str, str]] = {}
    for split in splits:
        try:
            rows = list(artifact_store().lines(f"{row.snapshot.uri}/{split}.jsonl"))
        except (ArtifactError, OSError, ValueError):
            continue
        for one in rows:
            if one.get("prompt"):
                facts = {name: str(one.get(name) or "") for name in ("group", "source", "licence")}
                found[fingerprint(one["prompt"])] = facts
    return found


def require_assessment_of(checkpoint: Checkpoint, run: Run) -> None:
    """`DomainError` unless `run` is a finished assessment of this very model."""
    ours = run.kind == Run.Kind.ASSESS and run.project_id == checkpoint.project_id
    if not ours or not run.inputs.filter(role="reward", checkpoint=checkpoint).exists():
        raise DomainError(
            "This run is no assessment of this model.", code="other_model", field="assessment"
        )
    if run.state != Run.State.FINISHED:
        raise Conflict(
            f"The assessment is {run.get_state_display()}; its answers are there once it has "
            "finished.",
            code="not_finished",
            field="assessment",
        )
