"""Models in service as their pages print them: stages, evidence, the history, checklists."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import User
from apps.accounts.permissions import ADMIN, JUDGES, STAFF
from apps.common.report.levels import LOOKS, Level, Look, look_of
from apps.evaluation.models import PromotionRequest, Stage, StageChange
from apps.evaluation.selectors.checklists import Checklist, Item, State
from apps.evaluation.selectors.evidence import Evidence, Gate
from apps.evaluation.selectors.promotion import Naming, Served, back_of, decision_of, served_of
from apps.monitoring.models import Watch
from apps.training.models import Checkpoint

VERDICT_WORDS = {
    "green": "holds",
    "red": "does not hold",
    "missing": "not measured",
    "noted": "for information",
}
STAGE_HELP = {
    Stage.CANDIDATE: "Under review, serves nobody.",
    Stage.STAGING: "Serves tests and people who try it.",
    Stage.PRODUCTION: "Serves users.",
}


def model_name(model: Checkpoint) -> str:
    return f"{model.run.name}, step {model.step:,}"


@dataclass(frozen=True, slots=True)
class EvidenceView:
    """One line; `now` is its verdict today in words, where that differs from the kept one."""

    name: str
    label: str
    look: Look
    words: str
    says: str
    url: str
    is_required: bool
    now: str = ""


def evidence_views(gate: Gate, now: Gate | None = None) -> list[EvidenceView]:
    today = {one.name: one for one in now.lines} if now else {}
    return [
        EvidenceView(
            name=one.name,
            label=one.label,
            look=look_of(one.verdict),
            words=VERDICT_WORDS[one.verdict],
            says=one.says,
            url=one.url,
            is_required=one.name in gate.required,
            now=_now(one, today.get(one.name)),
        )
        for one in gate.lines
    ]


def _now(kept: Evidence, today: Evidence | None) -> str:
    if today is None or today.verdict == kept.verdict:
        return ""
    return f"{VERDICT_WORDS[today.verdict]} now: {today.says}"


def gate_look(gate: Gate) -> Look:
    return LOOKS[Level.OK if gate.is_open else Level.BAD]


def gate_sentence(gate: Gate) -> str:
    n = len(gate.blocking)
    if not n:
        return f"The gate for {gate.stage} is open: all {len(gate.required)} required lines hold."
    some = "1 required line does" if n == 1 else f"{n} required lines do"
    return f"The gate for {gate.stage} is closed: {some} not hold."


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage and what it names; `change` is None where it names nothing. back: what *revert*
    returns to. served: what of it is monitored."""

    name: str
    label: str
    what: str
    change: StageChange | None
    model: str
    rest: str
    back: str
    served: Served | None

    @property
    def is_canary(self) -> bool:
        return self.change is not None and self.change.share < 100


def stage_view(stage: str, change: StageChange | None, watches: Sequence[Watch]) -> StageView:
    back = back_of(change)
    return StageView(
        name=stage,
        label=Stage(stage).label,
        what=STAGE_HELP[Stage(stage)],
        change=change,
        model=model_name(change.checkpoint) if change else "",
        rest=model_name(change.rest) if change and change.rest else "",
        back=model_name(back.checkpoint) if back else "",
        served=served_of(change, watches) if change else None,
    )


@dataclass(frozen=True, slots=True)
class HistoryRow:
    change: StageChange
    model: str
    until: datetime | None


def history_rows(found: Sequence[Naming]) -> list[HistoryRow]:
    return [HistoryRow(one.change, model_name(one.change.checkpoint), one.until) for one in found]


# What a person may do with a request.


@dataclass(frozen=True, slots=True)
class Offers:
    """What the page of a request offers a person; `why_not` says why it offers no approval."""

    approve: bool
    reject: bool
    override: bool
    withdraw: bool
    why_not: str


def offers_of(request: PromotionRequest, now: Gate, user: User, role: str) -> Offers:
    if decision_of(request) is not None:
        return Offers(False, False, False, False, "")
    own = request.requested_by_id == user.pk
    signed = request.signatures.filter(by=user).exists()
    admin = role == ADMIN and not own
    closed = not (request.is_open and now.is_open)
    return Offers(
        approve=admin and not closed,
        reject=admin,
        override=role in JUDGES and not own and not request.is_open and not signed,
        withdraw=own,
        why_not=_why_not(request, now, own=own, signed=signed, role=role),
    )


def _why_not(request: PromotionRequest, now: Gate, *, own: bool, signed: bool, role: str) -> str:
    if own:
        return "You asked for this: another person decides."
    if request.is_open and not now.is_open:
        lines = ", ".join(one.label for one in now.blocking)
        return f"The evidence has changed since: {lines}. It has to be asked again."
    if signed:
        return "You have signed the override: another person must sign too."
    if role not in (*STAFF, *JUDGES):
        return ""
    if role != ADMIN and request.is_open:
        return "An admin decides."
    return ""


# Checklists.

STATE_LOOKS = {
    State.DONE: ("good", "circle-check", "Done"),
    State.NOT_DONE: ("bad", "circle-x", "Not done"),
    State.UNKNOWN: ("", "circle-help", "Not known"),
    State.NOT_APPLICABLE: ("", "equal", "Does not apply"),
}


@dataclass(frozen=True, slots=True)
class ItemView:
    item: Item
    tone: str
    icon: str
    word: str


@dataclass(frozen=True, slots=True)
class ChecklistView:
    name: str
    title: str
    tally: str
    items: list[ItemView]


def checklist_views(found: Sequence[Checklist]) -> list[ChecklistView]:
    return [
        ChecklistView(
            name=one.name,
            title=one.title,
            tally=f"{one.done} of {one.asked} done",
            items=[ItemView(item, *STATE_LOOKS[item.state]) for item in one.items],
        )
        for one in found
    ]
