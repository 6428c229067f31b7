"""What the API of labeling takes and gives."""

from datetime import datetime
from typing import Any, Literal

from ninja import Field, Schema

MOST_ROWS = 50_000  # of one import request; a longer file goes in several


class MessageOut(Schema):
    role: str
    content: str


class PairOut(Schema):
    """A pair in your hands. Nothing in it tells where an answer came from."""

    slot: int
    comparison: int
    key: str = Field(description="send it as idempotency_key with the vote")
    prompt: list[MessageOut]
    left: list[MessageOut]
    right: list[MessageOut]
    leased_until: datetime


class NothingOut(Schema):
    code: str = Field(description="empty, paused, held, yours_done or all_done")
    message: str
    back_at: datetime | None = Field(None, description="for held: when the first comes back")


class NextOut(Schema):
    """Either a pair or the reason why there is none."""

    pair: PairOut | None = None
    nothing: NothingOut | None = None


class VoteIn(Schema):
    """`side` as the pair was shown, or `choice` in stored terms; one of the two."""

    side: str = Field("", description="left, right, tie, both_bad")
    choice: str = Field("", description="a, b, tie, both_bad")
    idempotency_key: str = Field(max_length=80, description="the pair's key, or one of your own")
    strength: int | None = Field(None, description="1 slightly, 2 much; with A or B only")
    rationale: str = ""
    flags: list[str] = []
    active_ms: int | None = None
    wall_ms: int | None = None

    def answer(self) -> dict[str, Any]:
        return self.dict(exclude={"idempotency_key"})


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
        "priority, overlap, metadata",
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


class RowOut(Schema):
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
    problems: list[RowOut]


class ImportReportOut(Schema):
    n_rows: int
    n_created: int
    n_unchanged: int
    n_refused: int
    n_prompts: int
    n_responses: int
    n_slots: int
    seconds: float
    problems: list[RowOut]
    warnings: list[RowOut]


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
    gold: str | None
    reason: str
    decided_at: datetime


class DecisionsOut(Schema):
    items: list[DecisionOut]
    after: int | None = Field(description="send it as `after` for the next page; null at the end")


class LabelingSettingsOut(Schema):
    overlap: int
    max_overlap: int
    least_votes: int
    least_agreeing: int
    least_share: float
    lease_seconds: int
    random_share: float
    show_tie: bool
    show_both_bad: bool
    show_strength: bool
    show_rationale: bool


class LabelingSettingsIn(Schema):
    """What is left out stays."""

    overlap: int | None = None
    max_overlap: int | None = None
    least_votes: int | None = None
    least_agreeing: int | None = None
    least_share: float | None = None
    lease_seconds: int | None = None
    random_share: float | None = None
    show_tie: bool | None = None
    show_both_bad: bool | None = None
    show_strength: bool | None = None
    show_rationale: bool | None = None
