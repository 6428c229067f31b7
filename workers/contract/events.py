"""What a trainer tells the web side: one JSON object a line, numbered per attempt from 1."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from workers.contract.wire import VERSION, ContractError, NewerPeer, build, version_check


class Fault(StrEnum):
    """Whose turn it is when a run fails."""

    DATA = "data"
    CONFIGURATION = "configuration"
    MACHINE = "machine"
    BUG = "bug"
    GUARD = "guard"  # a guardrail stopped the run on purpose
    USER = "user"


class RecipeError(Exception):
    """A failure a person can act on. `kind` is a stable code, `fault` says whose turn it is;
    `retryable`: another attempt may fare better, without anybody's doing."""

    def __init__(self, kind: str, fault: Fault, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.fault = fault
        self.message = message
        self.retryable = retryable


@dataclass(frozen=True, slots=True)
class Opened:
    """The trainer is up. `environment` holds library versions, device, host and process id."""

    total_steps: int | None = None
    resumed_from_step: int | None = None  # the last step that is kept from the attempt before
    environment: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the run is. `phase` is a word for people: loading, rollout, update, saving …"""

    step: int
    total_steps: int | None = None
    phase: str = ""
    eta_s: float | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """A block of metric points. `values[name][i]` was measured at `steps[i]`.

    None stands for a value that is undefined at that step; NaN and infinities are sent as the
    strings "nan", "inf", "-inf", so that they are seen rather than lost.
    """

    steps: list[int]
    values: Mapping[str, list[float | str | None]]


def is_by_time(name: str) -> bool:
    """Whether the steps of the metric's points are Unix seconds, not steps of the training."""
    return name.startswith("machine/")


OUTPUT = "output"  # the level of lines that the trainer's process printed, whoever wrote them


@dataclass(frozen=True, slots=True)
class Log:
    """Lines for the log tab. `level` is info, warning, error or `OUTPUT`."""

    lines: list[str]
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Sample:
    """One audited output. `bucket` is high, low, random or flagged."""

    step: int
    bucket: str
    prompt: list[Mapping[str, str]]  # messages
    response: str
    reward: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)  # reward by component
    kl: float | None = None  # nats per sequence, against the reference
    tokens: int | None = None
    baseline: str | None = None  # the SFT model's answer to the same prompt


@dataclass(frozen=True, slots=True)
class Generated:
    """A file of generated responses (JSON Lines) is complete; `count` rows lie at `uri`."""

    uri: str
    sha256: str
    count: int
    purpose: str  # candidates | audit | probe | verdicts


@dataclass(frozen=True, slots=True)
class SplitRead:
    """A file of the dataset that is the input `role` was read: `items` rows of `split`. Once per
    attempt, role and split."""

    role: str
    split: str
    items: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """How a figure was spread at a step: `counts[i]` values lay in `edges[i]` to `edges[i + 1]`."""

    step: int
    name: str
    edges: list[float]
    counts: list[int]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A finding of a rule, for the diagnosis.

    `step` is when it was found, `onset` when the problem began; `samples` are ids of answers in
    the run's rollouts, `experiment` a key of `workers.rules.experiments`.
    """

    link: str
    rule: str
    evidence_class: str  # contract | probe | trend
    step: int
    value: float | None = None
    expected: str = ""
    unit: str = ""
    detail: str = ""
    onset: int | None = None
    samples: list[str] = field(default_factory=list)
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule fired. `severity` is info, warning or critical."""

    rule: str
    severity: str
    step: int
    message: str
    value: float | None = None
    threshold: float | None = None


DISAGREE = "the members of the reward model disagree"


def disagreement_reason(spread: float, most: float) -> str:
    """Of an answer whose scores by the members lie `spread` apart, over `most`."""
    return f"{DISAGREE} about this answer: {spread:.2f}, over {most:.2f}"


BLOCKED_PHRASE = "Blocked phrase"


def blocked_reason(phrase: str) -> str:
    """Of an answer that holds one of the project's blocked phrases."""
    return f"{BLOCKED_PHRASE} “{phrase}”"


@dataclass(frozen=True, slots=True)
class ReviewRequested:
    """A response that a person must see before anything is built on it."""

    step: int
    prompt: list[Mapping[str, str]]
    response: str
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A complete checkpoint lies at `uri`; `tags` are of best, last, failed, final."""

    step: int
    uri: str
    sha256: str
    size_bytes: int
    tags: list[str] = field(default_factory=list)
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArtifactSaved:
    """Any other file a person may want: a report, a histogram, a model card."""

    name: str
    uri: str
    sha256: str
    size_bytes: int
    media_type: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Finished:
    """The run reached its end, or was stopped and kept. `summary` holds its headline figures."""

    step: int
    summary: Mapping[str, Any] = field(default_factory=dict)
    stopped_early: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """`kind` is a stable code (out_of_memory, bad_config, killed, …), `fault` whose turn it is."""

    kind: str
    fault: str
    message: str
    step: int | None = None
    retryable: bool = False
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The run ended because a person asked for it."""

    step: int | None = None
    by_force: bool = False


Event = (
    Opened
    | Progress
    | Metrics
    | Log
    | Sample
    | Generated
    | SplitRead
    | Histogram
    | Evidence
    | Alert
    | ReviewRequested
    | CheckpointSaved
    | ArtifactSaved
    | Finished
    | Failed
    | Cancelled
)

EVENT_TYPES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Opened,
        Progress,
        Metrics,
        Log,
        Sample,
        Generated,
        SplitRead,
        Histogram,
        Evidence,
        Alert,
        ReviewRequested,
        CheckpointSaved,
        ArtifactSaved,
        Finished,
        Failed,
        Cancelled,
    )
}
TERMINAL = (Finished, Failed, Cancelled)


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event with its address. `(run, attempt, seq)` is unique for ever; `at` is Unix seconds."""

    run: str
    attempt: int
    seq: int
    at: float
    event: Event


def envelope_to_json(envelope: Envelope) -> dict[str, Any]:
    """Plain JSON types only; `envelope_from_json` is its inverse."""
    return {
        "version": VERSION,
        "run": envelope.run,
        "attempt": envelope.attempt,
        "seq": envelope.seq,
        "at": envelope.at,
        "type": type(envelope.event).__name__,
        "event": asdict(envelope.event),
    }


def envelope_from_json(data: Mapping[str, Any]) -> Envelope:
    """Raises `ContractError` naming the field when `data` is no valid event, and `NewerPeer` when
    it has an address and only a newer version can say."""
    if not isinstance(data, Mapping):
        raise ContractError(f"event: expected an object, got {type(data).__name__}")
    for name, kind in (("run", str), ("attempt", int), ("seq", int), ("at", (int, float))):
        if not isinstance(data.get(name), kind) or isinstance(data.get(name), bool):
            raise ContractError(f"event.{name}: {data.get(name)!r} does not fit")
    if data["attempt"] < 1 or data["seq"] < 1:
        raise ContractError("event: attempt and seq count from 1")
    version_check(data.get("version"), where="event")
    said = data.get("type")
    if not isinstance(said, str) or not said:
        raise ContractError(f"event.type: {said!r} is no type")
    cls = EVENT_TYPES.get(said)
    if cls is None:
        raise NewerPeer(f"event.type: {said!r:.60} is unknown here")
    event = build(cls, data.get("event"), where=f"event {cls.__name__}")
    return Envelope(data["run"], data["attempt"], data["seq"], float(data["at"]), event)
