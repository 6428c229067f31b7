"""What a project has found out, as files: a row a comparison, or a row a vote.

Rows are read in pieces by id, so a file of any length takes the memory of one piece. What changes
while a file is sent is in it as it was when its piece was read.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
from django.db.models import Model, QuerySet

from apps.accounts.identity import names_under
from apps.accounts.models import Project
from apps.common.errors import DomainError
from apps.common.row_files import MEDIA, ROW_FORMATS, Export, Row, json_lines, rows_content
from apps.labeling.formats.written_logs import WRITERS, Written
from apps.labeling.models import Comparison, DecideBy, Decision, RunAnswer, Task, Vote
from apps.labeling.personal_data import scrubbed
from apps.labeling.selectors import settings_get
from apps.labeling.selectors.finding import Wanted, comparisons_matching
from apps.labeling.selectors.steps import JudgedRun, judged_runs
from measures.messages import Messages
from measures.messages import said as words
from measures.runs import steps_of

_PART = 1_000
_LISTS = pa.list_(pa.string())
_RESULT_COLUMNS = pa.schema(
    dict.fromkeys(
        (
            "external_id",
            "prompt",
            "response_a",
            "response_b",
            "model_a",
            "model_b",
            "outcome",
            "state",
        ),
        pa.string(),
    )
    | dict.fromkeys(("votes_a", "votes_b", "votes_tie", "votes_both_bad"), pa.int64())
    | dict.fromkeys(("share", "posterior"), pa.float64())
    | dict.fromkeys(
        (
            "decided_by",
            "reason",
            "queue",
            "slice",
            "gold",
            "group",
            "topic",
            "language",
            "source",
            "licence",
            "metadata",
        ),
        pa.string(),
    )
    | {"inclusion_probability": pa.float64(), "comparison": pa.int64()}
)
_VOTE_COLUMNS = pa.schema(
    {"external_id": pa.string(), "comparison": pa.int64(), "vote": pa.int64()}
    | dict.fromkeys(("annotator", "choice", "left_is"), pa.string())
    | {"strength": pa.int64(), "criteria": pa.string(), "reasons": _LISTS, "rationale": pa.string()}
    | {"flags": _LISTS, "improvement": pa.string(), "active_ms": pa.int64(), "wall_ms": pa.int64()}
    | {"cast_at": pa.string(), "guideline_version": pa.int64(), "is_current": pa.bool_()}
    | {"revision": pa.int64(), "purpose": pa.string(), "source": pa.string()}
    | {"remarks_licence": pa.string(), "runs": pa.string()}
)
_RESULT_TEXTS = ("prompt", "response_a", "response_b", "metadata")
_VOTE_TEXTS = ("rationale", "improvement")
# What people wrote or judged beside their choice, where no licence lets it out.
_NO_REMARKS: Row = {"criteria": "{}", "reasons": [], "rationale": "", "improvement": ""}

Rows = TypeVar("Rows", bound=Model)


def results_export(
    *, project: Project, form: str, wanted: Wanted, only: Sequence[int] = (), scrub: bool = False
) -> Export:
    """A row a comparison with its decision. only: ids; none of them, and no filter, is all. scrub:
    without what looks like personal data in texts."""
    found = comparisons_matching(project=project, wanted=wanted).select_related(
        "prompt", "decision", "response_a", "response_b"
    )
    if only:
        found = found.filter(pk__in=only)
    rows = (_scrubbed(_result(one), _RESULT_TEXTS, scrub) for one in _in_pieces(found))
    return _export(project, "results", form, _RESULT_COLUMNS, rows)


def votes_export(
    *,
    project: Project,
    form: str,
    wanted: Wanted,
    with_names: bool,
    remarks: bool = True,
    scrub: bool = False,
    is_last: bool = False,
) -> Export:
    """A row a vote, revisions and repeats too; `is_current` and `purpose` tell which ones count.

    Without names annotators have pseudonyms of this project's votes, which no dataset shares.
    remarks: what people wrote and their criteria, if the project names a licence for it; is_last:
    the project's own copy before it is deleted, which needs none. scrub: without what looks like
    personal data in texts.
    """
    licence = settings_get(project=project).remarks_licence if remarks else ""
    name_of = names_under(f"votes:{project.pk}")
    found = Vote.objects.filter(project=project).select_related(
        "comparison", "annotator", "slot", "guideline", "improvement"
    )
    if wanted:
        kept = comparisons_matching(project=project, wanted=wanted).values("pk")
        found = found.filter(comparison__in=kept)
    rows = (
        _scrubbed(
            _vote(vote, "" if with_names else name_of(vote.annotator_id))
            | ({} if licence or is_last else _NO_REMARKS)
            | {"remarks_licence": licence, "runs": runs},
            _VOTE_TEXTS,
            scrub,
        )
        for vote, runs in _with_runs(_in_pieces(found))
    )
    return _export(project, "votes", form, _VOTE_COLUMNS, rows)


def _with_runs(votes: Iterator[Vote]) -> Iterator[tuple[Vote, str]]:
    """Each vote with what it says of its runs of agents, as JSON; "" where it says nothing."""
    while part := list(islice(votes, _PART)):
        found = RunAnswer.objects.in_bulk([vote.pk for vote in part])
        for vote in part:
            yield vote, json.dumps(runs_said(found[vote.pk])) if vote.pk in found else ""


def runs_said(stored: RunAnswer) -> dict[str, Any]:
    names = ("outcome", "first_error", "steps", "unopened")
    return {name: getattr(stored, name) for name in names}


def trajectories_export(*, project: Project, wanted: Wanted, form: str = "atif") -> Export:
    """The runs of agents among these comparisons, a line each; form: of `written_logs.WRITERS`.
    What is Concord's own (comparison, side, decision) stands beside it. `DomainError` for another
    form."""
    if form not in WRITERS:
        raise DomainError(f"The format is one of {', '.join(WRITERS)}.", field="format")
    write = WRITERS[form][1]
    runs = Task.objects.filter(project=project, of_agents=True, kind=Task.Kind.PAIR).values("pk")
    found = comparisons_matching(project=project, wanted=wanted).filter(pk__in=runs)
    found = found.select_related("prompt", "decision", "response_a", "response_b")
    rows = (write(run) for one in _in_pieces(found) for run in _trajectories(one))
    name = "trajectories" if form == "atif" else f"trajectories-{form}"
    return Export(f"{project.slug}-{name}.jsonl", MEDIA["jsonl"], json_lines(rows))


def steps_export(*, project: Project, wanted: Wanted) -> Export:
    """The runs whose first wrong step people told, a line each, as TRL's stepwise type: each turn
    with who it is of, and whether it is right. It is imported as a dataset of steps."""
    found = comparisons_matching(project=project, wanted=wanted)
    rows = (_judged_steps(one) for one in judged_runs(project, found))
    return Export(f"{project.slug}-steps.jsonl", MEDIA["jsonl"], json_lines(rows))


def _judged_steps(run: JudgedRun) -> Row:
    prompt = run.comparison.prompt
    return {
        "prompt": run.asked,
        "completions": [words(turn) for turn in run.turns],
        "roles": [turn["role"] for turn in run.turns],
        "labels": list(run.labels),
        "id": f"{run.comparison.pk}-{run.side}",
        "group": prompt.group_key,
        "source": run.response.model_name or prompt.source,
        "licence": prompt.licence,
        "metadata": {"answers": len(run.votes), "agreeing": run.n_agreeing},
    }


def _trajectories(comparison: Comparison) -> Iterator[Written]:
    decision = getattr(comparison, "decision", None) or Decision()
    asked = comparison.prompt.messages
    for side, response in (("a", comparison.response_a), ("b", comparison.response_b)):
        known = response.metadata.get("trajectory") or {}
        about = {
            "comparison": comparison.pk,
            "external_id": comparison.external_id,
            "side": side,
            "winner": decision.winner,
            "first_step": len(steps_of(asked)) + 1,
        }
        yield Written(
            [*asked, *response.messages],
            agent=str(known.get("agent") or response.model_name or "unknown"),
            version=str(known.get("version") or "unknown"),
            model=response.model_name,
            tools=comparison.prompt.tools or (),
            session=str(known.get("session") or f"{comparison.pk}-{side}"),
            concord=about,
        )


def _export(
    project: Project, name: str, form: str, schema: pa.Schema, rows: Iterator[Row]
) -> Export:
    if form not in ROW_FORMATS:
        raise DomainError(f"The format is one of {', '.join(ROW_FORMATS)}.", field="format")
    file = f"{project.slug}-{name}.{form}"
    return Export(file, MEDIA[form], rows_content(rows, schema, form))


def _in_pieces(found: QuerySet[Rows]) -> Iterator[Rows]:
    last = 0
    while part := list(found.filter(pk__gt=last).order_by("pk")[:_PART]):
        yield from part
        last = part[-1].pk


def _result(comparison: Comparison) -> Row:
    prompt = comparison.prompt
    decision = getattr(comparison, "decision", None) or Decision()
    return {
        "external_id": comparison.external_id,
        "prompt": _text(prompt.messages, "user"),
        "response_a": _text(comparison.response_a.messages, "assistant"),
        "response_b": _text(comparison.response_b.messages, "assistant"),
        "model_a": comparison.response_a.model_name,
        "model_b": comparison.response_b.model_name,
        "outcome": decision.winner,
        "state": comparison.state,
        "votes_a": decision.n_a,
        "votes_b": decision.n_b,
        "votes_tie": decision.n_tie,
        "votes_both_bad": decision.n_both_bad,
        "share": decision.share if decision.winner else None,
        "posterior": _posterior(decision),
        "decided_by": _decided_by(decision),
        "reason": decision.reason,
        "queue": comparison.stratum,
        "slice": comparison.slice,
        "gold": comparison.gold,
        "group": prompt.group_key,
        "topic": prompt.topic,
        "language": prompt.language,
        "source": prompt.source,
        "licence": prompt.licence,
        "metadata": json.dumps(comparison.own_columns, ensure_ascii=False),
        "inclusion_probability": comparison.inclusion_probability,
        "comparison": comparison.pk,
    }


def _decided_by(decision: Decision) -> str:
    if decision.outcome == Decision.Outcome.ADJUDICATED:
        return "ruling"
    return decision.decided_by if decision.winner else ""


def _posterior(decision: Decision) -> float | None:
    """Of the outcome, where a model of the voters decides."""
    shares = decision.by_choice
    if not decision.winner or shares is None or _decided_by(decision) in ("ruling", DecideBy.VOTES):
        return None
    return shares[decision.winner]


def _scrubbed(row: Row, names: Sequence[str], scrub: bool) -> Row:
    return row | {name: scrubbed(row[name] or "")[0] for name in names} if scrub else row


def _vote(vote: Vote, called: str) -> Row:
    return {
        "external_id": vote.comparison.external_id,
        "comparison": vote.comparison_id,
        "vote": vote.pk,
        "annotator": called or vote.annotator.username,
        "choice": vote.choice,
        "left_is": vote.left_is,
        "strength": vote.strength,
        "criteria": json.dumps(vote.criteria, ensure_ascii=False),
        "reasons": vote.reasons,
        "rationale": vote.rationale,
        "flags": vote.flags,
        "improvement": _text(vote.improvement.messages, "assistant") if vote.improvement else "",
        "active_ms": vote.active_ms,
        "wall_ms": vote.wall_ms,
        "cast_at": vote.cast_at.isoformat(),
        "guideline_version": vote.guideline.version if vote.guideline else None,
        "is_current": vote.is_current,
        "revision": vote.revision,
        "purpose": vote.slot.kind,
        "source": vote.source,
    }


def _text(messages: Messages, role: str) -> str:
    """One plain message is its text; a conversation is JSON, which an import reads back."""
    if len(messages) == 1 and messages[0]["role"] == role and len(messages[0]) == 2:
        return messages[0]["content"]
    return json.dumps(messages, ensure_ascii=False)
