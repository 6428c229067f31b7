"""What the API answers, as values.

A newer server may send fields that this version does not name: they are kept in `extra` and break
nothing. A compulsory field that is missing is a `ConcordError` (`unreadable`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from typing import Any, Self

from concord.errors import ConcordError


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Something the server sent; `extra` has what this version does not name."""

    extra: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """From decoded JSON. A missing compulsory field is a `ConcordError`."""
        named: dict[str, Any] = {}
        for one in fields(cls):
            if one.name == "extra":
                continue
            if one.name in data:
                value = data[one.name]
                convert = one.metadata.get("read")
                named[one.name] = convert(value) if convert and value is not None else value
            elif one.default is MISSING and one.default_factory is MISSING:
                raise ConcordError(
                    f"The answer has no '{one.name}': is the server of another version?",
                    status=200,
                    code="unreadable",
                    field=one.name,
                )
        return cls(**named, extra={name: data[name] for name in data.keys() - named.keys()})


def _each(kind: type[Answered]) -> dict[str, Any]:
    """Metadata of a field that holds a list of `kind`."""
    return {"read": lambda items: tuple(kind.read(item) for item in items)}


# Metadata of a field that holds a time.
_MOMENT = {"read": datetime.fromisoformat}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Answered):
    """One turn: role is user, assistant, system or tool."""

    role: str
    content: str
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    error: bool | None = None


_MESSAGES = _each(Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion(Answered):
    """Something each answer is compared on by itself; definition: what it means."""

    key: str
    label: str
    definition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asks(Answered):
    """What the project asks besides A or B, and what of it is required."""

    tie: bool
    both_bad: bool
    strength: bool
    rationale: bool
    require_rationale: bool
    flags: bool
    improve: bool
    require_criteria: bool
    reasons: tuple[str, ...] = field(metadata={"read": tuple})
    criteria: tuple[Criterion, ...] = field(metadata=_each(Criterion))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(Answered):
    """A pair in your hands until `leased_until`; `key` goes with the vote."""

    slot: int
    comparison: int
    key: str
    prompt: tuple[Message, ...] = field(metadata=_MESSAGES)
    left: tuple[Message, ...] = field(metadata=_MESSAGES)
    right: tuple[Message, ...] = field(metadata=_MESSAGES)
    leased_until: datetime = field(metadata=_MOMENT)
    asks: Asks = field(metadata={"read": Asks.read})
    warning: str = ""  # what may upset whoever reads it


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Answered):
    """Grades from low, the worst, to high (`kind` graded); ranks from 1, the best (ranking)."""

    kind: str
    low: int
    high: int
    low_label: str = ""
    high_label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Answered):
    """Responses to grade or to rank (`kind`), in your hands until `leased_until`."""

    slot: int
    task: int
    kind: str
    key: str
    prompt: tuple[Message, ...] = field(metadata=_MESSAGES)
    responses: tuple[tuple[Message, ...], ...] = field(
        metadata={"read": lambda every: tuple(_MESSAGES["read"](one) for one in every)}
    )
    scale: Scale = field(metadata={"read": Scale.read})
    leased_until: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing(Answered):
    """Why there is no pair; `code` is for programs (held, paused, all_done, …)."""

    code: str
    message: str
    back_at: datetime | None = field(metadata=_MOMENT, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Next(Answered):
    """A pair, a task of another kind where `kinds` asked for those, or why there is neither."""

    pair: Pair | None = field(metadata={"read": Pair.read}, default=None)
    task: Task | None = field(metadata={"read": Task.read}, default=None)
    nothing: Nothing | None = field(metadata={"read": Nothing.read}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote(Next):
    """A stored vote, and the next pair. `replayed`: this submit had been stored before."""

    vote: int
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision(Answered):
    """The new row of a changed vote; the old one stays in the history."""

    vote: int
    revision: int
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProblem(Answered):
    """What is wrong with one row, counted from 1."""

    row: int
    field: str
    message: str


_PROBLEMS = _each(RowProblem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport(Answered):
    """What an import of comparisons did; counts are rows unless they say otherwise."""

    n_rows: int
    n_created: int
    n_unchanged: int
    n_refused: int
    n_prompts: int
    n_responses: int
    n_slots: int
    n_review: int
    seconds: float
    problems: tuple[RowProblem, ...] = field(metadata=_PROBLEMS)
    warnings: tuple[RowProblem, ...] = field(metadata=_PROBLEMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class VotesReport(Answered):
    """What an import of past votes did; n_people counts annotators who were new."""

    n_rows: int
    n_created: int
    n_unchanged: int
    n_refused: int
    n_people: int
    seconds: float
    problems: tuple[RowProblem, ...] = field(metadata=_PROBLEMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Answered):
    """What the votes on one comparison amount to."""

    comparison: int
    external_id: str
    state: str
    outcome: str
    winner: str | None = None
    n_a: int
    n_b: int
    n_tie: int
    n_both_bad: int
    share: float
    decided_by: str
    posteriors: dict[str, float] | None = None
    gold: str | None = None
    slice: str
    inclusion_probability: float | None = None
    reason: str
    decided_at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionsPage(Answered):
    """Decisions by comparison id; `after` asks for the next page, None at the end."""

    items: tuple[Decision, ...] = field(metadata=_each(Decision))
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeRow(Answered):
    """A line of the list. votes, entropy: None where you are to judge before you see them."""

    comparison: int
    external_id: str
    state: str
    prompt: str
    votes: dict[str, int] | None = None
    entropy: float | None = None
    ruled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputesPage(Answered):
    """Disputes, the most undecided votes first, out of `total`."""

    items: tuple[DisputeRow, ...] = field(metadata=_each(DisputeRow))
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling(Answered):
    """One act on a dispute; the newest counts."""

    id: int
    action: str
    cause: str
    choice: str
    comment: str
    guideline: int | None = None
    votes_before: dict[str, int]
    saw_votes: bool | None = None
    at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute(Answered):
    """A comparison to rule on. votes, rulings: None where you are to judge before you see them."""

    comparison: int
    external_id: str
    state: str
    outcome: str
    prompt: tuple[Message, ...] = field(metadata=_each(Message))
    response_a: tuple[Message, ...] = field(metadata=_each(Message))
    response_b: tuple[Message, ...] = field(metadata=_each(Message))
    votes: dict[str, int] | None = None
    rulings: tuple[Ruling, ...] | None = field(default=None, metadata=_each(Ruling))
    seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidelines(Answered):
    """What annotators are asked to do, in Markdown, and whether you have said that you read it.

    acknowledged_version: the last one you acknowledged, 0 for none. must_acknowledge: `next` gives
    nothing until you do.
    """

    version: int
    body: str
    is_major: bool
    published_at: datetime = field(metadata=_MOMENT)
    acknowledged_version: int
    must_acknowledge: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Own(Answered):
    """Your labeling. agreement: with others, of votes a day old or older; None while too few."""

    today: int
    goal: int
    answers: int
    share: int
    left: int
    minutes_per_ten: float | None = None
    agreement: float | None = None
    agreement_low: float | None = None
    agreement_high: float | None = None
    agreement_pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Answered):
    """A finished attempt at the qualification; state: passed or failed."""

    number: int
    state: str
    right: int
    pairs: int
    finished_at: datetime | None = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold(Answered):
    """A pair you answered whose answer is known. yours, known: left, right, tie or both_bad, as the
    pair was shown to you."""

    vote: int
    at: datetime = field(metadata=_MOMENT)
    prompt: str
    yours: str
    known: str
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Answered):
    """How you do yourself; gold pairs, a day old or older, only where `shows_gold`."""

    own: Own = field(metadata={"read": Own.read})
    attempts: tuple[Attempt, ...] = field(metadata=_each(Attempt))
    shows_gold: bool
    gold_right: int
    gold_count: int
    gold: tuple[Gold, ...] = field(metadata=_each(Gold))
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelingSettings(Answered):
    """How a project labels and decides; docs/labeling.md explains each.

    Shares are fractions: of hand-outs for gold, repeat and audit, of the rest for random.
    """

    task_kind: str
    grade_low: int
    grade_high: int
    grade_low_label: str
    grade_high_label: str
    overlap: int
    max_overlap: int
    least_votes: int
    least_agreeing: int
    least_share: float
    decide_by: str
    least_posterior: float
    stop_early: bool
    lease_seconds: int
    run_lease_seconds: int
    random_share: float
    gold_share: float
    repeat_share: float
    audit_share: float
    audit_rate: float
    audit_days: int
    fast_ms: int
    vote_price: float
    label_budget: float
    votes_quota: int
    currency: str
    skips_to_review: int
    show_tie: bool
    show_both_bad: bool
    show_strength: bool
    show_flags: bool
    show_improve: bool
    ask_outcome: bool
    ask_first_error: bool
    ask_steps: bool
    show_costs: bool
    criteria: tuple[Criterion, ...] = field(metadata=_each(Criterion))
    require_criteria: bool
    show_rationale: bool
    require_rationale: bool
    reasons: tuple[str, ...] = field(metadata={"read": tuple})
    acknowledge_guidelines: bool
    daily_cap: int
    qualification_pairs: int
    qualification_pass: float
    qualification_attempts: int
    qualification_cooldown_minutes: int
    constraint_phrases: tuple[str, ...] = field(metadata={"read": tuple})
    show_rulings: bool = False
    show_gold: bool = False
    completion_votes: int = 0
    due_on: str | None = None  # such as 2026-11-30
    sensitive_topics: tuple[str, ...] = field(metadata={"read": tuple}, default=())
    sensitive_cap: int = 0
    judge_first: bool = True
    data_statement: str = ""
    data_statement_version: int = 0
    remarks_licence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Answered):
    """The best, last or final checkpoint of a run, or a registered model. kind: of its run."""

    id: str
    run: str
    name: str
    kind: str
    step: int
    attempt: int
    tags: Sequence[str]
    status: str
    uri: str
    sha256: str
    size_bytes: int
    metrics: Mapping[str, Any]
    files_removed_at: datetime | None = field(metadata=_MOMENT)
    state_removed_at: datetime | None = field(metadata=_MOMENT)
    created_at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsPage(Answered):
    count: int
    items: Sequence[Model] = field(metadata=_each(Model))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOff(Answered):
    """A second person's yes to one more look at a split."""

    look: int
    person: str
    signed_by: str
    reason: str
    at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLooks(Answered):
    """looks: taken; budget: those that need no second person, None for any number. signed: for the
    next look."""

    split: str
    rows: int
    looks: int
    budget: int | None
    next_look: int
    next_alpha: float
    needs_second_person: bool
    signed: Sequence[SignOff] = field(metadata=_each(SignOff))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Answered):
    """A held-out split was read: by a run, or by a person."""

    split: str
    purpose: str
    run: str
    person: str
    protocol_sha256: str
    items: int
    at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks(Answered):
    splits: Sequence[SplitLooks] = field(metadata=_each(SplitLooks))
    readings: Sequence[Reading] = field(metadata=_each(Reading))


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol(Answered):
    """What evaluations were measured by, by its hash. n_runs: that used it."""

    sha256: str
    created_at: datetime = field(metadata=_MOMENT)
    n_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolsPage(Answered):
    count: int
    items: Sequence[Protocol] = field(metadata=_each(Protocol))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolDetail(Protocol):
    """runs: ids of evaluations, newest first."""

    content: Mapping[str, Any]
    runs: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolLine(Answered):
    """A line in which two protocols differ."""

    path: str
    one: Any
    other: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolDifferences(Answered):
    """same: whether results under both may stand on one axis."""

    one: str
    other: str
    same: bool
    differences: Sequence[ProtocolLine] = field(metadata=_each(ProtocolLine))


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapDataset(Answered):
    """A training dataset. rows: None where its file is gone; exact, near: prompts found in it."""

    id: str
    name: str
    sha256: str
    rows: int | None
    exact: int
    near: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapMatch(Answered):
    """A prompt, and what it was found as. similarity: Jaccard, 0 to 1."""

    prompt: str
    trained: str
    dataset: str
    similarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOverlap(Answered):
    """Prompts of an evaluation that its policy was trained on. checked_at: None before they were
    compared; rows: of all `datasets`; unknown: models whose training data is not known."""

    run: str
    checked_at: datetime | None = field(metadata=_MOMENT)
    says: str
    prompts: int
    exact: int
    near: int
    rows: int
    datasets: Sequence[OverlapDataset] = field(metadata=_each(OverlapDataset))
    unknown: Sequence[str]
    matches: Sequence[OverlapMatch] = field(metadata=_each(OverlapMatch))


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteLaunch(Answered):
    """After a policy run: the evaluation that was launched, or why none was (code, problem)."""

    run: str
    evaluation: str | None
    code: str
    problem: str
    at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticSuite(Answered):
    """The suite that every policy is evaluated on. since: None where it is off; launches: newest
    first."""

    since: datetime | None = field(metadata=_MOMENT)
    dataset: str | None
    baseline: str | None
    max_new_tokens: int
    temperature: float
    launches: Sequence[SuiteLaunch] = field(metadata=_each(SuiteLaunch))


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch(Answered):
    """A monitored model. kind: policy or reward; state: new, steady, drifted or broken; figures and
    findings: of the newest probe; stages: those that name this model."""

    id: str
    name: str
    kind: str
    state: str
    enabled: bool
    checkpoint: str
    reward: str | None
    claims: str | None
    every_minutes: int
    next_at: datetime = field(metadata=_MOMENT)
    baseline_at: datetime | None = field(metadata=_MOMENT)
    probed_at: datetime | None = field(metadata=_MOMENT)
    figures: Mapping[str, Any]
    findings: Sequence[Mapping[str, Any]]
    stages: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCounts(Answered):
    """counts: received = no_consent + unsampled + duplicates + nothing_found + kept; also scrubbed,
    and the reasons of those kept."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStep(Answered):
    """A step of a pipeline. kind: run, select, label, decide, freeze, approve, audit, promote;
    copied_from: the run whose settings it takes; inputs: {role: origin, step, type, id}. share,
    hours, pairs: of labeling: percent of the pairs that must have their votes, after how many hours
    the round continues, fresh pairs to wait for where none are generated. plan: of a selection."""

    key: str
    kind: str
    enabled: bool
    copied_from: str
    inputs: Mapping[str, Mapping[str, str]]
    stage: str
    share: int
    hours: int | None
    pairs: int | None
    plan: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Answered):
    """A recipe of rounds. A round starts by itself at `trigger_pairs` fresh accepted pairs, once
    the reward model is `trigger_age_days` old, when a watched model drifted, or by a schedule
    (`next_due`); its budgets end it in order, money by the prices. live_round: the round that has
    not ended. Each None for none. disarmed: triggers that hold since they started a round."""

    id: str
    name: str
    version: int
    created_at: datetime = field(metadata=_MOMENT)
    trigger_pairs: int | None
    trigger_age_days: int | None
    trigger_drift: bool
    trigger_every_days: int | None
    trigger_at_hour: int
    budget_minutes: int | None
    budget_votes: int | None
    budget_gpu_hours: float | None
    budget_money: float | None
    price_vote: float | None
    price_gpu_hour: float | None
    currency: str
    fresh_pairs: int
    disarmed: Sequence[str]
    next_due: datetime | None = field(metadata=_MOMENT)
    live_round: int | None
    steps: Sequence[PipelineStep] = field(metadata=_each(PipelineStep))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStep(Answered):
    """A step of a round: pending, running, waiting, done, failed or skipped; what it read and
    made, by id."""

    key: str
    title: str
    state: str
    attempt: int
    run: str | None
    dataset: str | None
    model: str | None
    inputs: Mapping[str, Any]
    decision: str
    problem: str
    reason: str
    started_at: datetime | None = field(metadata=_MOMENT)
    ended_at: datetime | None = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundWait(Answered):
    """What a round waits for, whose turn it is, and the page where it is done."""

    step: str
    words: str
    who: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRate(Answered):
    """A share with its 95 % interval (None: it has none). of: the split, or the beginning of the
    protocol's hash."""

    value: float
    low: float | None
    high: float | None
    n: int | None
    of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Answered):
    """A pass through a pipeline: running, waiting, paused, finished or stopped. change: of the win
    rate since round `compared_with`, which was evaluated under the same protocol, paired by
    prompts; machine_seconds: wall time of its freezes and runs. accuracy: of the reward model on
    held-out rows, and on people it never met (`new_people`); win_rate by the judge, `by_people` by
    people; kl in nats and length in tokens, per answer; agreement of two votes on one of the pairs
    that the round generated, and the share of those votes for neither answer (`equal`)."""

    pipeline: str
    number: int
    version: int
    state: str
    trigger: str
    started_by: str | None
    fresh_pairs: int
    created_at: datetime = field(metadata=_MOMENT)
    ended_at: datetime | None = field(metadata=_MOMENT)
    reason: str
    machine_seconds: float
    votes: int
    gpu_hours: float
    money: float | None
    waits_for: RoundWait | None = field(metadata={"read": RoundWait.read})
    accuracy: RoundRate | None = field(metadata={"read": RoundRate.read})
    win_rate: RoundRate | None = field(metadata={"read": RoundRate.read})
    compared_with: int | None
    change: RoundRate | None = field(metadata={"read": RoundRate.read})
    new_people: RoundRate | None = field(metadata={"read": RoundRate.read})
    by_people: RoundRate | None = field(metadata={"read": RoundRate.read})
    kl: float | None
    length: float | None
    baseline_length: float | None
    agreement: RoundRate | None = field(metadata={"read": RoundRate.read})
    equal: RoundRate | None = field(metadata={"read": RoundRate.read})
    simulated: int
    steps: Sequence[RoundStep] = field(metadata=_each(RoundStep))


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideMetric(Answered):
    """stderr: standard error; n: samples; each None where the file does not say."""

    name: str
    value: float
    stderr: float | None
    n: int | None
    higher_is_better: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideResult(Answered):
    """A task that lm-evaluation-harness or Inspect measured. Compare only those of one
    `protocol_sha256`; system: what the file says of the model."""

    id: str
    model: str
    program: str
    task: str
    metrics: Sequence[OutsideMetric] = field(metadata=_each(OutsideMetric))
    protocol: Mapping[str, Any]
    protocol_sha256: str
    system: Mapping[str, Any]
    measured_at: str
    file_name: str
    file_sha256: str
    imported_by: str
    created_at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideResultsPage(Answered):
    count: int
    items: Sequence[OutsideResult] = field(metadata=_each(OutsideResult))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer(Answered):
    """What a model said when it was asked by hand. state: waiting, loading, writing; ended, cut (at
    the longest answer), out_of_time, stopped, failed (see `error`). seconds: of writing."""

    model: str
    state: str
    text: str
    tokens: int = 0
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Answered):
    """live: answers are still to come; error: why no model was asked; note: what it waits for."""

    id: str
    live: bool
    answers: Sequence[ModelAnswer] = field(metadata=_each(ModelAnswer))
    error: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart(Answered):
    """What can be downloaded: merged or adapter, and the lines that load or serve it."""

    part: str
    python: str
    serve: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDetail(Model):
    """card: Markdown. parts: none where its files are gone."""

    card: str
    parts: Sequence[ModelPart] = field(metadata=_each(ModelPart))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Answered):
    """state: waiting, queued, running, stopping, finished, failed or cancelled; the last three end
    it."""

    id: str
    name: str
    kind: str
    state: str
    queue: str
    layout: str
    processes: int
    launcher: str
    priority: str
    waits: str
    attempt: int
    command: str
    wish: str = ""  # the former name of `command`
    step: int
    total_steps: int | None
    phase: str
    eta_s: float | None
    seed: int
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    override_reason: str
    group: str
    note: str
    tags: Sequence[str]
    archived_at: datetime | None = field(metadata=_MOMENT)
    code_version: str
    fault: str
    failure_kind: str
    failure_message: str
    created_by: str | None
    created_at: datetime = field(metadata=_MOMENT)
    started_at: datetime | None = field(metadata=_MOMENT)
    ended_at: datetime | None = field(metadata=_MOMENT)

    @property
    def has_ended(self) -> bool:
        return self.state in ("finished", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Answered):
    """What a launch would take, by finished runs like it; None where there is none. memory_bytes:
    by a preflight's ledger. scaled_by: steps, rows, or empty for runs as long as this one."""

    words: str
    basis: str
    runs: int
    seconds: float | None
    least_seconds: float | None
    greatest_seconds: float | None
    seconds_in_all: float | None
    memory_bytes: int | None
    scaled_by: str
    of_project: bool
    by_runs: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceLine(Answered):
    """Bytes of a run or a dataset (of). rest: what is in its folder besides, None where the store
    is not on the server's disk. frees: what intermediate checkpoints and trainer states of an
    ended run take, which go at frees_at by the project's rule; not frees_whole: without states."""

    id: str
    name: str
    of: str
    kind: str
    state: str
    archived: bool
    models: int
    files: int
    data: int
    rest: int | None
    total: int
    frees: int | None
    frees_whole: bool
    frees_at: datetime | None = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space(Answered):
    """Bytes of a project in the artifact store; free: what its disk has left, None elsewhere."""

    models: int
    files: int
    data: int
    rest: int | None
    total: int
    free: int | None
    measured_at: datetime | None = field(metadata=_MOMENT)
    quota: int | None
    keep_days: int | None
    lines: tuple[SpaceLine, ...] = field(metadata=_each(SpaceLine))


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm(Answered):
    """A rule about people and data. state: quiet, raised, missing (not enough to judge) or off;
    since: when it began; inside_since: since when a raised figure is back inside its limit;
    incident: the id of its open one, or empty; page: where to act."""

    rule: str
    title: str
    stage: str
    severity: str
    state: str
    since: datetime | None = field(metadata=_MOMENT)
    inside_since: datetime | None = field(metadata=_MOMENT)
    value: str
    expected: str
    detail: str
    missing: str
    fires: str
    unit: str
    limit: float
    own_limit: float
    action: str
    incident: str
    page: str
    playbook: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms(Answered):
    """Of a project, as of looked_at; None before the first look."""

    looked_at: datetime | None = field(metadata=_MOMENT)
    items: Sequence[Alarm] = field(metadata=_each(Alarm))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Answered):
    """Of a project; None is no limit."""

    runs_at_once: int | None
    space_bytes: int | None
    gpu_hours: int | None
    keep_days: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Principle(Answered):
    """What a model criticises and rewrites answers by."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Constitution(Answered):
    """A version of a project's constitution; hard_rules: a reward that blocks answers, or {}."""

    number: int
    principles: tuple[Principle, ...] = field(metadata=_each(Principle))
    hard_rules: Mapping[str, Any]
    note: str
    created_by: str
    created_at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intermediates(Answered):
    """What was removed of a run: checkpoints (models), trainer states of others, bytes (size)."""

    models: int
    states: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheckpoint(Answered):
    """A model that a run saved; tags: best, last, final, failed."""

    id: str
    step: int
    attempt: int
    tags: Sequence[str]
    status: str
    uri: str
    sha256: str
    size_bytes: int
    metrics: Mapping[str, Any]
    files_removed_at: datetime | None = field(metadata=_MOMENT)
    state_removed_at: datetime | None = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail(Run):
    """judge_people: who is behind the judge and the reward model, where a run has both. looks: at
    held-out splits, with their number and alpha. best_of: of the best of several evaluated models,
    by how many standard errors (`inflation`) it lies too high. judge: of an evaluation, whether
    people agree with its judge, and the judge's taste for length and format."""

    judge_people: Mapping[str, Any] | None
    judge: Mapping[str, Any] | None = None
    looks: Sequence[Mapping[str, Any]] = ()
    best_of: Mapping[str, Any] | None = None
    checkpoints: Sequence[RunCheckpoint] = field(metadata=_each(RunCheckpoint))
    open_alerts: int
    parked_events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPage(Answered):
    count: int
    items: Sequence[Run] = field(metadata=_each(Run))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve(Answered):
    """A metric by step. Of what was measured and is no number, values are "nan", "inf" or "-inf",
    of what was undefined None."""

    steps: Sequence[int]
    values: Sequence[float | str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Answered):
    """Curves by name. Sent again with `cursor`, what came since; where the run went back to a
    checkpoint, drop what you have beyond `discard_after`."""

    series: Mapping[str, Curve] = field(
        metadata={"read": lambda series: {name: Curve.read(one) for name, one in series.items()}}
    )
    cursor: str
    discard_after: int | None

    def rows(self) -> list[dict[str, Any]]:
        """One for each step: {"step": …, metric: value}, for `pandas.DataFrame`."""
        found: dict[int, dict[str, Any]] = {}
        for name, curve in self.series.items():
            for step, value in zip(curve.steps, curve.values, strict=True):
                found.setdefault(step, {"step": step})[name] = (
                    float(value) if isinstance(value, str) else value
                )
        return [found[step] for step in sorted(found)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Answered):
    """An answer that a run kept; reward and kl: "nan", "inf" or "-inf" where they are none."""

    id: int | None = None  # None of a server before verdicts
    step: int
    bucket: str
    prompt: tuple[Message, ...] = field(metadata=_MESSAGES)
    response: str
    baseline: str
    reward: float | str | None
    parts: Mapping[str, Any]
    kl: float | str | None
    tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Answered):
    """What a person said of one answer; sample or answer (an entry of the inbox) says of which."""

    id: int
    sample: int | None
    answer: int | None
    value: str
    note: str
    by: str
    at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlaggedAnswer(Answered):
    """An answer that a person must see. open_by: whoever has it open at the moment."""

    id: int
    run: str
    sample: int | None
    step: int
    kind: str
    reason: str
    state: str
    prompt: tuple[Message, ...] = field(metadata=_MESSAGES)
    response: str
    baseline: str
    reward: float | str | None
    open_by: str
    verdicts: tuple[Verdict, ...] = field(metadata=_each(Verdict))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbox(Answered):
    """Flagged answers, newest first, out of `total`."""

    items: tuple[FlaggedAnswer, ...] = field(metadata=_each(FlaggedAnswer))
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswers(Answered):
    """Answers by their worst verdict. upper: exact one-sided 95 % bound of the share `bad`."""

    n: int
    unjudged: int
    counts: Mapping[str, int]
    bad: float | None
    upper: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LovedAnswer(Answered):
    """An answer over the 0.9 quantile of the reward that people call bad or unsafe."""

    prompt: tuple[Message, ...] = field(metadata=_MESSAGES)
    response: str
    reward: float
    worst: str
    notes: tuple[str, ...] = field(metadata={"read": tuple})


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetResult(Answered):
    """What a finished audit sheet says. random: of the policy, whose bound speaks for it."""

    random: JudgedAnswers = field(metadata={"read": JudgedAnswers.read})
    baseline: JudgedAnswers = field(metadata={"read": JudgedAnswers.read})
    high: JudgedAnswers = field(metadata={"read": JudgedAnswers.read})
    low: JudgedAnswers = field(metadata={"read": JudgedAnswers.read})
    n_over: int
    loved: tuple[LovedAnswer, ...] = field(metadata=_each(LovedAnswer))
    n_twice: int
    n_split: int
    people: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSheet(Answered):
    """A blind audit sheet; `result` is None until it is finished."""

    id: str
    run: str
    checkpoint: str
    baseline: str | None
    state: str
    reason: str
    n_answers: int
    n_done: int
    judged_by: Mapping[str, int]
    created_at: datetime = field(metadata=_MOMENT)
    ended_at: datetime | None = field(
        default=None, metadata={"read": lambda at: at and datetime.fromisoformat(at)}
    )
    result: SheetResult | None = field(
        default=None, metadata={"read": lambda data: data and SheetResult.read(data)}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSheets(Answered):
    """Audit sheets, newest first, out of `total`."""

    items: tuple[AuditSheet, ...] = field(metadata=_each(AuditSheet))
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetItem(Answered):
    """An answer to judge; whose it is, is told nowhere."""

    id: str
    prompt: tuple[Message, ...] = field(metadata=_MESSAGES)
    response: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetVerdict(Answered):
    """What you said of an answer of a sheet."""

    id: int
    item: str
    value: str
    note: str
    at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(Answered):
    """A line of a run's log."""

    attempt: int
    at: datetime = field(metadata=_MOMENT)
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectInfo(Answered):
    """A project you are in, and your role there."""

    slug: str
    name: str
    description: str
    role: str
    created_at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Me(Answered):
    """Whose token this is."""

    username: str
    display_name: str
    projects: tuple[ProjectInfo, ...] = field(metadata=_each(ProjectInfo))


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(Answered):
    """An image of a project. `reference` is how a text names it; the words in its brackets are
    yours. sha256: of what is stored, encoded again without metadata; size in bytes."""

    sha256: str
    media_type: str
    width: int
    height: int
    size: int
    name: str
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Import(Answered):
    """A file on its way in. makes: comparisons, or the kind of dataset. stage: check, import or
    undo; state: draft, queued, running, done, failed, cancelled, interrupted or undone, of that
    stage. check_report: what an import would do. result: what it did, with the id of the `snapshot`
    that it made."""

    id: str
    makes: str
    file_name: str
    file_size: int
    file_sha256: str
    stage: str
    state: str
    settings: Mapping[str, Any]
    preview: Mapping[str, Any]
    check_report: Mapping[str, Any]
    result: Mapping[str, Any]
    error: str
    due_on: str | None
    people: Sequence[int]
    created_at: datetime = field(metadata=_MOMENT)
    started_at: datetime | None = field(metadata=_MOMENT)
    ended_at: datetime | None = field(metadata=_MOMENT)

    @property
    def is_at_work(self) -> bool:
        return self.state in ("queued", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Answered):
    """An error or a warning (`level`) about a row of a file, counted from 1."""

    level: str
    row: int
    field: str
    message: str
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset(Answered):
    """Rows that are frozen, by split in `counts["rows"]`. kind: preferences, demonstrations,
    prompts or unpaired. state: draft while a worker makes it, frozen, or failed with the reason in
    `error`."""

    id: str
    name: str
    kind: str
    state: str
    recipe: Mapping[str, Any]
    counts: Mapping[str, Any]
    sha256: str
    size_bytes: int
    error: str
    created_at: datetime = field(metadata=_MOMENT)
    frozen_at: datetime | None = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFile(Answered):
    """A file of a dataset."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetDetail(Dataset):
    """A dataset with its files. step: what its worker is at, where it is being made."""

    files: tuple[DatasetFile, ...] = field(metadata=_each(DatasetFile))
    step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming(Answered):
    """What a stage (candidate, staging, production) names from `since` to `until`, None while it
    counts. share: per cent of the traffic; rest: the checkpoint that gets what is left. cause:
    promotion, override, revert or share."""

    stage: str
    change: int
    checkpoint: str
    sha256: str
    run: str
    name: str
    step: int
    share: int
    rest: str | None
    cause: str
    reason: str
    by: str
    request: str
    evidence_sha256: str
    since: datetime = field(metadata=_MOMENT)
    until: datetime | None = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamingsPage(Answered):
    count: int
    items: Sequence[Naming] = field(metadata=_each(Naming))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Answered):
    """A line that speaks for a promotion. verdict: green, red, missing, noted."""

    name: str
    label: str
    verdict: str
    required: bool
    says: str
    url: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Answered):
    """The evidence for one stage; `open` where each required line is green."""

    stage: str
    open: bool
    evidence: Sequence[Evidence] = field(metadata=_each(Evidence))


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion(Answered):
    """Somebody asked that a stage names a checkpoint. state: waiting, approved, overridden,
    rejected or withdrawn."""

    id: str
    checkpoint: str
    name: str
    step: int
    stage: str
    share: int
    reason: str
    state: str
    open: bool
    evidence_sha256: str
    requested_by: str
    requested_at: datetime = field(metadata=_MOMENT)
    decided_by: str
    seconded_by: str
    decided_at: datetime | None = field(metadata=_MOMENT)
    decision_reason: str
    signatures: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionDetail(Promotion):
    """With the evidence as it stood when it was asked."""

    gate: Gate = field(metadata={"read": Gate.read})


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionsPage(Answered):
    count: int
    items: Sequence[Promotion] = field(metadata=_each(Promotion))


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionReplay(Answered):
    """kind: selection or depth; state: queued, running, finished or failed; verdict: saves,
    no_evidence, worse or refused (of the depth: depth, breadth, no_evidence or refused), empty
    before the end, and in `words`; result: n, points, ridges, and a curve per strategy, or of the
    depth a cell per way and number of votes."""

    id: str
    kind: str
    state: str
    most_per_prompt: int | None
    verdict: str
    words: str
    result: Mapping[str, Any]
    error: str
    created_at: datetime = field(metadata=_MOMENT)
    ended_at: datetime | None = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine(Answered):
    """way: single, soft_3, majority_3, majority_4 or unanimous_4; labelled: share of the pairs that
    gets a label; days, soonest, latest: until the votes are in, or `no_day` says why there is none;
    measured: the nearest cell of the project's replay of kind depth."""

    way: str
    votes: int
    pairs: int
    labelled: float | None
    money: float | None
    days: float | None
    soonest: float | None
    latest: float | None
    no_day: str
    measured: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelBudget(Answered):
    """words: the recommendation, empty where nothing is measured; price: of one vote; per_day:
    votes a day with 95 % bounds; between_people: standard deviation of people's agreement with the
    others. None: not known."""

    words: str
    price: float | None
    currency: str
    lines: Sequence[BudgetLine] = field(metadata=_each(BudgetLine))
    per_day: float | None
    per_day_low: float | None
    per_day_high: float | None
    seconds: float | None
    agreement: float | None
    alpha: float | None
    people: int
    busiest: float | None
    effective_people: float | None
    between_people: float | None
    votes_by_day: float | None
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsSelected(Answered):
    """Pairs by slice; candidates: that could be compared; left: not queued; refused: of the run's
    pairs those that could not be compared; queued: by this call; known: that were there."""

    plan: Mapping[str, Any]
    candidates: int
    measuring: int
    training: int
    selected: int
    left: int
    refused: int
    queued: int
    known: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceLink(Answered):
    words: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceItem(Answered):
    """kind: method, measured, hybrid, caution, improve or overruled; evidence: the number behind
    it; links: pages that it stands on."""

    key: str
    kind: str
    title: str
    reason: str
    evidence: str
    next_step: str
    links: Sequence[AdviceLink] = field(metadata=_each(AdviceLink))


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFact(Answered):
    """Why it matters, and how to get it."""

    key: str
    name: str
    why: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice(Answered):
    """method: nothing, clean, collect, sft, rules, dpo, kto, grpo, ppo or undecided; provisional:
    one of the `unknown` facts could change it."""

    method: str
    headline: str
    provisional: bool
    items: Sequence[AdviceItem] = field(metadata=_each(AdviceItem))
    unknown: Sequence[MissingFact] = field(metadata=_each(MissingFact))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistItem(Answered):
    """state: done, not_done, unknown or not_applicable."""

    name: str
    label: str
    state: str
    says: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checklist(Answered):
    """Before, during or after a run."""

    name: str
    title: str
    items: Sequence[ChecklistItem] = field(metadata=_each(ChecklistItem))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadToHead(Answered):
    """Systems compared by people. verdict: better or worse (the first system), no_difference,
    undecided, not_decided, waiting, too_few_people, too_few_prompts or one_sided; `says` has it in
    words. value, low, high: the share that the first system wins, ties as half, with the interval
    that its plan allows. Of more than two systems (`more_names`) verdict may also be best,
    not_connected or separated, and `several` has standings, differences and habits.
    `outcomes` is None until the result may be looked at. simulated: votes that no person gave; they
    are evidence of nothing."""

    id: str
    name: str
    first_name: str
    second_name: str
    more_names: tuple[str, ...] = field(metadata={"read": tuple})
    first: str | None
    second: str | None
    source: str | None
    verdict: str
    says: str
    value: float | None
    low: float | None
    high: float | None
    votes: int
    planned: int
    people: int
    simulated: int
    outcomes: Mapping[str, int] | None
    people_needed: int | None
    flips: int | None
    several: Mapping[str, Any] | None
    running: bool
    stopping: str
    margin: float
    protocol: Mapping[str, Any]
    protocol_sha256: str
    created_at: datetime = field(metadata=_MOMENT)
    ended_at: datetime | None = field(metadata=_MOMENT)
    due_at: datetime | None = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue(Answered):
    """People who talk with two blind systems at a time. systems: {"model", "name"}; rates: the
    win share of each with its interval by conversations and people, best first; meetings: every
    two that met; progress: conversations, people, turns, judged and what went wrong; batch: of its
    pairs among the comparisons."""

    id: str
    name: str
    open: bool
    systems: tuple[Mapping[str, Any], ...] = field(metadata={"read": tuple})
    batch: str
    progress: Mapping[str, int]
    rates: tuple[Mapping[str, Any], ...] = field(metadata={"read": tuple})
    meetings: tuple[Mapping[str, Any], ...] = field(metadata={"read": tuple})
    protocol: Mapping[str, Any]
    protocol_sha256: str
    created_at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLink(Answered):
    """path: of the page that anybody may read on this site until then; empty: there is none."""

    path: str
    shared_until: datetime | None = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeScope(Answered):
    """Which pairs: kind project, batch or head_to_head; name: of the batch, or the id of the
    head-to-head, else empty."""

    kind: str
    name: str


_SCOPE = {"read": JudgeScope.read}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMeasurement(Answered):
    """What a version was found to be worth beside people. part: of the human sample (all, tune,
    choose, certify); share: of the prompts, that the sample is; look: how often the part kept apart
    was read; figures: as kept (docs/judges.md); refused: why there are none; simulated votes are
    evidence of nothing."""

    id: int
    judge: int
    version: int
    scope: JudgeScope = field(metadata=_SCOPE)
    part: str
    share: float
    look: int
    n_pairs: int
    n_votes: int
    n_simulated: int
    figures: Mapping[str, Any]
    refused: str
    by: str | None
    at: datetime = field(metadata=_MOMENT)


_MEASURED = {"read": JudgeMeasurement.read}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMeasurements(Answered):
    """Newest first."""

    items: tuple[JudgeMeasurement, ...] = field(metadata=_each(JudgeMeasurement))
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeWorth(Answered):
    """A measurement in short. agreement: with single votes; people: how often two people agree;
    saved: share of human votes that the judge spares; biases: those shown."""

    measurement: int
    part: str
    n_pairs: int
    n_votes: int
    n_simulated: int
    agreement: float | None
    agreement_low: float | None
    agreement_high: float | None
    people: float | None
    saved: float | None
    biases: tuple[str, ...] = field(metadata={"read": tuple})


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeVersion(Answered):
    """A model with everything that decides its verdicts. state: measured, not_measured, or changed
    (its server answers otherwise, and no figure holds). reads_alone: a reward model; shaped: only
    the part of the sample that was kept apart says what it is worth."""

    judge: int
    number: int
    model: str
    config: Mapping[str, Any]
    sha256: str
    fingerprint: str
    state: str
    reads_alone: bool
    shaped: bool
    worth: JudgeWorth | None = field(metadata={"read": JudgeWorth.read})
    note: str
    changed_at: datetime | None = field(metadata=_MOMENT)
    changed_because: str
    created_by: str | None
    created_at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge(Answered):
    """A judge with its newest version. It is no person, and its verdicts are no votes."""

    id: int
    name: str
    version: JudgeVersion = field(metadata={"read": JudgeVersion.read})
    created_at: datetime = field(metadata=_MOMENT)
    archived_at: datetime | None = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeDetail(Judge):
    """With all versions, the newest first."""

    versions: tuple[JudgeVersion, ...] = field(metadata=_each(JudgeVersion))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAsked(Answered):
    """run: the id of the run whose verdicts are waited for; else what was measured at once."""

    run: str | None
    measurement: JudgeMeasurement | None = field(metadata=_MEASURED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeVerdict(Answered):
    """What a judge said of a pair, and no vote. first: P(the answer shown first is better), A
    first; second: the same with B first; None where it could not be read. preference: P(A is
    better)."""

    judge: str
    is_vote: bool
    comparison: int
    first: float | None
    second: float | None
    preference: float
    said: tuple[str, ...] = field(metadata={"read": tuple})


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeVerdicts(Answered):
    """By pair."""

    items: tuple[JudgeVerdict, ...] = field(metadata=_each(JudgeVerdict))
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTried(Answered):
    """A prompt of a trial, by its version; `certify` is there of the one that was chosen."""

    version: int
    note: str
    tune: JudgeMeasurement | None = field(metadata=_MEASURED)
    choose: JudgeMeasurement | None = field(metadata=_MEASURED)
    certify: JudgeMeasurement | None = field(metadata=_MEASURED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTrial(Answered):
    """Prompts tried at once; live: runs of it are under way."""

    key: str
    at: datetime = field(metadata=_MOMENT)
    live: bool
    scope: JudgeScope = field(metadata=_SCOPE)
    versions: tuple[JudgeTried, ...] = field(metadata=_each(JudgeTried))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePresorted(Answered):
    """Pairs that go first, and pairs that keep their place and measure."""

    moved: int
    measuring: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelAudit(Answered):
    """What people say of labels drawn to be checked; low, high: where the error lies, whenever one
    looks; alarm_at: the label after which the certificate was contradicted."""

    n: int
    wrong: float
    low: float
    high: float
    alarm_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateUse(Answered):
    """A dataset with labels under a certificate."""

    dataset: str
    name: str
    n_labels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(Answered):
    """At most a share `error` of a judge's labels is wrong, with probability 1 − `failure`. state:
    valid, nothing_certified (`threshold` is None) or stopped."""

    id: str
    judge: int
    version: int
    state: str
    scope: JudgeScope = field(metadata=_SCOPE)
    against: str
    error: float
    failure: float
    audited: float
    look: int
    threshold: float | None
    temperature: float
    figures: Mapping[str, Any]
    sha256: str
    stopped_at: datetime | None = field(metadata=_MOMENT)
    stopped_because: str
    created_by: str | None
    created_at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateDetail(Certificate):
    """With its labels counted, what people say of them, and datasets that hold them."""

    n_labels: int
    n_audited: int
    audit: LabelAudit = field(metadata={"read": LabelAudit.read})
    uses: tuple[CertificateUse, ...] = field(metadata=_each(CertificateUse))


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates(Answered):
    """Newest first."""

    items: tuple[Certificate, ...] = field(metadata=_each(Certificate))
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateLabelled(Answered):
    """run: the judge is being asked; None: it had judged all of the pairs, and is done."""

    run: str | None
    n_labels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingBatch(Answered):
    """Texts that people are asked for. kind: demonstrations or prompts; review: staff, peers or
    none; texts: how many are in each state."""

    id: str
    name: str
    kind: str
    instruction: str
    per_task: int
    review: str
    least_characters: int
    most_characters: int
    topic: str
    language: str
    licence: str
    is_open: bool
    created_at: datetime = field(metadata=_MOMENT)
    texts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenText(Answered):
    """A text in its newest version; 0: nothing was submitted yet. author: for admins alone."""

    text: int
    batch: str
    state: str
    prompt: tuple[Message, ...] = field(metadata=_MESSAGES)
    version: int
    body: str
    warnings: tuple[str, ...] = field(metadata={"read": tuple})
    submitted_at: datetime | None = field(metadata=_MOMENT)
    author: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPage(Answered):
    """Some texts; ask for the next page with `after`."""

    items: tuple[WrittenText, ...] = field(metadata=_each(WrittenText))
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextToWrite(Answered):
    """A text in your hands until `leased_until`. returned: why it was sent back to you."""

    text: int
    batch: str
    kind: str
    instruction: str
    prompt: tuple[Message, ...] = field(metadata=_MESSAGES)
    key: str
    leased_until: datetime = field(metadata=_MOMENT)
    least_characters: int
    most_characters: int
    draft: str
    draft_number: int
    returned: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingNext(Answered):
    """A text to write, or why there is none."""

    text: TextToWrite | None = field(metadata={"read": TextToWrite.read}, default=None)
    nothing: Nothing | None = field(metadata={"read": Nothing.read}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingDraft(Answered):
    """What was typed so far, kept on the server."""

    number: int
    saved_at: datetime = field(metadata=_MOMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenVersion(Answered):
    """A submitted text. `replayed`: this submit had been stored before."""

    text: int
    version: int
    state: str
    replayed: bool
