"""What the API of labeling takes and gives."""

from dataclasses import asdict
from datetime import date, datetime
from typing import Any, Literal

from ninja import Field, Schema
from pydantic import ConfigDict

from apps.labeling.selectors import with_whole_results
from apps.labeling.services import Lease
from apps.labeling.services.kinds import KINDS

MOST_ROWS = 50_000  # of one import request; a longer file goes in several


class MessageOut(Schema):
    role: str
    content: str
    reasoning_content: str | None = Field(None, description="what a model wrote before it spoke")
    tool_calls: list[dict[str, Any]] | None = Field(
        None, description="{type, id, function: {name, arguments}} of an agent"
    )
    tool_call_id: str | None = Field(None, description="which call a tool's message answers")
    name: str | None = Field(None, description="of the tool")
    error: bool | None = Field(None, description="whether the tool failed")


class CriterionOut(Schema):
    key: str
    label: str
    definition: str = Field("", description="what it means; shown beside the row")


class AsksOut(Schema):
    """What the project asks besides A or B."""

    tie: bool
    both_bad: bool
    strength: bool
    rationale: bool = Field(description="reasons to choose from and a free text")
    require_rationale: bool = Field(description="a reason or a text with every vote")
    flags: bool
    improve: bool = Field(description="an improved version of the better answer is taken")
    require_criteria: bool
    reasons: list[str]
    criteria: list[CriterionOut]


class PairOut(Schema):
    """A pair in your hands. Nothing in it tells where an answer came from."""

    slot: int
    comparison: int
    key: str = Field(description="send it as idempotency_key with the vote")
    prompt: list[MessageOut]
    left: list[MessageOut]
    right: list[MessageOut]
    leased_until: datetime
    warning: str = Field(description="what may upset whoever reads it; empty: nothing known")
    asks: AsksOut


class NothingOut(Schema):
    code: str = Field(
        description="empty, paused, quota, consent, guideline, qualification, daily_cap, held, "
        "audits_done, yours_done or all_done"
    )
    message: str
    back_at: datetime | None = Field(None, description="for held: when the first comes back")


class ScaleOut(Schema):
    kind: str = Field(description="graded, or ranking: 1 is best, equal ranks are ties")
    low: int
    high: int
    low_label: str
    high_label: str


class TaskOut(Schema):
    """A task in your hands. Nothing in it tells where an answer came from."""

    slot: int
    task: int
    kind: str = Field(description="grade or rank")
    key: str = Field(description="send it as idempotency_key with the rating")
    prompt: list[MessageOut]
    responses: list[list[MessageOut]] = Field(description="rate them in this order")
    scale: ScaleOut
    leased_until: datetime


def task_out(got: Lease) -> dict[str, Any]:
    scale = asdict(got.scale) if got.scale else {}
    prompt, *responses = with_whole_results(got.project, got.prompt, *got.responses)
    return {
        "slot": got.slot,
        "task": got.task,
        "kind": got.kind,
        "key": got.key,
        "prompt": prompt,
        "responses": responses,
        "scale": scale | {"kind": KINDS[got.kind].old_name},
        "leased_until": got.leased_until,
    }


class NextOut(Schema):
    """A pair, a task of another kind where `kinds` asks for those, or the reason why there is
    neither."""

    pair: PairOut | None = None
    task: TaskOut | None = None
    nothing: NothingOut | None = None


class RunsIn(Schema):
    """What is said about two runs of agents: sides are left and right beside a `side`, a and b
    beside a `choice`; steps count from 1 in the whole run."""

    outcome: dict[str, dict[str, str]] | None = Field(
        None, description="{side: {success | side_effects | repetition: yes | no | unsure}}"
    )
    first_error: dict[str, int] | None = Field(
        None, description="{side: the first wrong step, 0 where none is}"
    )
    steps: dict[str, str] | None = Field(
        None, description='{"3-4": side or tie}: step 3 of the left run beside step 4 of the other'
    )
    unopened: dict[str, list[int]] | None = Field(
        None, description="{side: steps with folded parts that were never opened}"
    )


class VoteIn(Schema):
    """`side` as the pair was shown, or `choice` in stored terms, or `values` of another kind."""

    values: list[int] = Field(
        [], max_length=9, description="to grade or rank: one for each response, as shown"
    )
    side: str = Field("", description="left, right, tie, both_bad")
    choice: str = Field("", description="a, b, tie, both_bad")
    idempotency_key: str = Field(max_length=80, description="the pair's key, or one of your own")
    strength: int | None = Field(None, description="1 slightly, 2 much; with A or B only")
    criteria: dict[str, str] = Field(
        {},
        description="{key: left | tie | right} beside a side, {key: a | tie | b} beside a choice",
    )
    reasons: list[str] = Field([], description="of those the project offers")
    rationale: str = ""
    flags: list[str] = []
    improvement: str = Field("", description="the better answer as you would have it, Markdown")
    active_ms: int | None = None
    runs: RunsIn | None = Field(None, description="of the two runs of agents")
    wall_ms: int | None = None

    def answer(self) -> dict[str, Any]:
        said = self.dict(exclude={"idempotency_key", "runs"})
        return said | ({"runs": self.runs.dict(exclude_none=True)} if self.runs else {})


class VoteOut(NextOut):
    vote: int
    replayed: bool = Field(description="this submit had been stored before")


class RevisionOut(Schema):
    vote: int
    revision: int
    replayed: bool


class SkipIn(Schema):
    reason: str = Field("", max_length=300)


class ComparisonsIn(Schema):
    rows: list[Any] = Field(
        max_length=MOST_ROWS,
        description="objects with prompt, response_a, response_b and optionally id, group, topic, "
        "language, source, licence, gold, origin(_a/_b), origin_ref_a/_b, model_a/_b, stratum, "
        "priority, overlap, metadata, warning, tools; prompt and answers are texts or messages, "
        "of agents with tool_calls and messages of tools",
    )
    batch: str = Field("", max_length=80)
    seed: int = 0
    on_error: Literal["refuse", "skip"] = "refuse"
    identical_answers: Literal["refuse", "warn"] = "refuse"


class VotesIn(Schema):
    rows: list[Any] = Field(
        max_length=MOST_ROWS,
        description="objects with comparison (its id), annotator, choice and optionally cast_at, "
        "strength, rationale",
    )
    on_error: Literal["refuse", "skip"] = "refuse"


class RowProblemOut(Schema):
    row: int
    field: str
    message: str


class VotesReportOut(Schema):
    n_rows: int
    n_created: int
    n_unchanged: int
    n_refused: int
    n_people: int
    seconds: float
    problems: list[RowProblemOut]


class ImportReportOut(Schema):
    n_rows: int
    n_created: int
    n_unchanged: int
    n_refused: int
    n_prompts: int
    n_responses: int
    n_slots: int
    n_review: int = Field(description="wait for a person: an answer holds a constraint phrase")
    seconds: float
    problems: list[RowProblemOut]
    warnings: list[RowProblemOut]


class DecisionOut(Schema):
    comparison: int
    external_id: str
    state: str
    outcome: str
    winner: str | None = Field(description="a, b, tie, both_bad; null while there is none")
    n_a: int
    n_b: int
    n_tie: int
    n_both_bad: int
    share: float
    decided_by: str = Field(description="votes (counted), one_coin, dawid_skene or mace")
    posteriors: dict[str, float] | None = Field(
        description="probability of each choice by the project's model of its voters; null while "
        "none is fitted"
    )
    gold: str | None
    slice: str = Field(description="measuring, training or selected, of pairs that were chosen")
    inclusion_probability: float | None = Field(
        description="with which it was drawn into its slice; null of no slice, and of selected"
    )
    reason: str
    decided_at: datetime


class DecisionsOut(Schema):
    items: list[DecisionOut]
    after: int | None = Field(description="send it as `after` for the next page; null at the end")


class LabelingSettingsOut(Schema):
    """Shares are fractions: of hand-outs for gold, repeat and audit; of the rest for random."""

    task_kind: str = Field(description="what several answers become: pair, rank or grade")
    grade_low: int
    grade_high: int
    grade_low_label: str
    grade_high_label: str
    overlap: int
    max_overlap: int
    least_votes: int
    least_agreeing: int
    least_share: float
    decide_by: str = Field(description="votes, one_coin, dawid_skene or mace")
    least_posterior: float
    stop_early: bool
    lease_seconds: int
    run_lease_seconds: int = Field(description="of pairs of runs of agents")
    random_share: float
    gold_share: float
    repeat_share: float
    audit_share: float
    audit_rate: float
    audit_days: int
    fast_ms: int
    vote_price: float
    label_budget: float
    votes_quota: int = Field(description="answers that are taken in 30 days; 0: no limit")
    currency: str
    skips_to_review: int
    show_tie: bool
    show_both_bad: bool
    show_strength: bool
    show_flags: bool
    show_improve: bool
    ask_outcome: bool = Field(description="three questions about each run of an agent")
    ask_first_error: bool = Field(description="the first wrong step of each run of an agent")
    ask_steps: bool = Field(description="which of two aligned steps of runs is better")
    show_costs: bool = Field(description="steps, tokens and cost stand above runs of agents")
    criteria: list[CriterionOut]
    require_criteria: bool
    show_rationale: bool
    require_rationale: bool
    reasons: list[str]
    acknowledge_guidelines: bool
    show_rulings: bool
    show_gold: bool
    daily_cap: int
    completion_votes: int = Field(description="answers that earn a completion code; 0: none")
    due_on: date | None = Field(description="the last day of the work")
    qualification_pairs: int
    qualification_pass: float
    qualification_attempts: int
    qualification_cooldown_minutes: int
    constraint_phrases: list[str]
    sensitive_topics: list[str] = Field(description="pairs of these are covered by a warning")
    sensitive_cap: int = Field(description="pairs with a warning a person a day; 0: no cap")
    judge_first: bool = Field(description="reviewers rule on disputes before they see votes")
    data_statement: str = Field("", description="what answers are used for; people agree first")
    data_statement_version: int = 0
    remarks_licence: str = Field(
        "", description="of what annotators write; without one it is in no export"
    )


class LabelingSettingsIn(Schema):
    """What is left out stays; what is no setting is refused."""

    model_config = ConfigDict(extra="forbid")

    task_kind: str | None = None
    grade_low: int | None = None
    grade_high: int | None = None
    grade_low_label: str | None = None
    grade_high_label: str | None = None
    overlap: int | None = None
    apply_overlap: bool | None = Field(
        None, description="with `overlap`: for the open comparisons too, not new ones alone"
    )
    max_overlap: int | None = None
    least_votes: int | None = None
    least_agreeing: int | None = None
    least_share: float | None = None
    decide_by: str | None = None
    least_posterior: float | None = None
    stop_early: bool | None = None
    lease_seconds: int | None = None
    run_lease_seconds: int | None = None
    random_share: float | None = None
    gold_share: float | None = None
    repeat_share: float | None = None
    audit_share: float | None = None
    audit_rate: float | None = None
    audit_days: int | None = None
    fast_ms: int | None = None
    vote_price: float | None = None
    label_budget: float | None = None
    votes_quota: int | None = None
    currency: str | None = None
    skips_to_review: int | None = None
    show_tie: bool | None = None
    show_both_bad: bool | None = None
    show_strength: bool | None = None
    show_flags: bool | None = None
    show_improve: bool | None = None
    ask_outcome: bool | None = None
    ask_first_error: bool | None = None
    ask_steps: bool | None = None
    show_costs: bool | None = None
    criteria: list[CriterionOut] | None = None
    require_criteria: bool | None = None
    show_rationale: bool | None = None
    require_rationale: bool | None = None
    reasons: list[str] | None = None
    acknowledge_guidelines: bool | None = None
    data_statement: str | None = None
    remarks_licence: str | None = None
    show_rulings: bool | None = None
    show_gold: bool | None = None
    daily_cap: int | None = None
    completion_votes: int | None = None
    due_on: str | None = Field(None, description="2026-11-30; an empty text takes it away")
    qualification_pairs: int | None = None
    qualification_pass: float | None = None
    qualification_attempts: int | None = None
    qualification_cooldown_minutes: int | None = None
    constraint_phrases: list[str] | None = None
    sensitive_topics: list[str] | None = None
    sensitive_cap: int | None = None
    judge_first: bool | None = None
