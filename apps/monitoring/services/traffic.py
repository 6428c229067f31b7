"""Conversations of a model in service: a sample of them, without personal data, goes to people.

Each that came is counted once: without consent, not sampled, a duplicate, nothing found, or kept.
Nothing is written before consent was seen and personal data replaced; of the sender's id only its
SHA-256 is kept. How uncertain the model was of its answer is what the sender says: the mean
log-probability of the answer's tokens, which a server gives with `logprobs`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.json_limits import storable
from apps.common.numbers import is_number
from apps.common.registry import Flagged, answer_flagged, answer_withdrawn
from apps.labeling.models import Prompt
from apps.labeling.personal_data import scrubbed
from apps.monitoring.models import (
    TrafficBatch,
    TrafficConversation,
    TrafficDay,
    TrafficSetting,
    Watch,
)
from apps.monitoring.services.watches import watch_get
from apps.training.services.scanning import phrases_of
from measures.duplicates import near_families, near_matches
from measures.novelty import Vocabulary, vocabulary
from workers.contract.events import blocked_reason

MOST_ROWS, MOST_CHARACTERS, MOST_MESSAGES = 500, 2_000_000, 100
LONGEST_ID, LONGEST_KEY, LONGEST_OUTCOME = 200, 80, 200
COMPARED = 1000  # of the newest kept, with which near-duplicates are looked for
KNOWN_PROMPTS = 2000  # of the newest prompts, which say what is usual
NUMBERS = ("rating", "latency_ms", "mean_logprob")
FIELDS = (*NUMBERS, "outcome")
RECEIVED, NO_CONSENT, UNSAMPLED = "received", "no_consent", "unsampled"
DUPLICATES, NOTHING, KEPT, SCRUBBED = "duplicates", "nothing_found", "kept", "scrubbed"
RATED, UNCERTAIN, NOVEL = "rated_badly", "uncertain", "out_of_distribution"
PHRASE, RANDOM = "blocked_phrase", "random"
REASONS = {
    RATED: "rated badly",
    UNCERTAIN: "the model was uncertain",
    NOVEL: "out of distribution",
    PHRASE: "blocked phrase",
    RANDOM: "drawn at random",
}
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Conversation:
    """As it was sent, but without personal data; `key` is the SHA-256 of its id."""

    key: str
    messages: list[dict[str, str]]
    at: datetime
    fields: dict[str, Any]
    scrubbed: int

    @property
    def text(self) -> str:
        return "\n".join(one["content"] for one in self.messages)

    @property
    def asked(self) -> str:
        users = [one["content"] for one in self.messages if one["role"] == "user"]
        return users[-1] if users else ""


def traffic_setting(watch: Watch) -> TrafficSetting:
    """As it is stored, or what holds unless set."""
    found = TrafficSetting.objects.filter(watch=watch).first()
    return found or TrafficSetting(watch=watch, fields=list(FIELDS))


@transaction.atomic
def traffic_set(*, project: Project, watch_id: str, user: User, **values: Any) -> TrafficSetting:
    """What is taken from now on. Raises `DomainError` naming the field."""
    watch = watch_get(project=project, watch_id=watch_id, lock=True)
    if watch.kind != Watch.Kind.POLICY:
        raise DomainError("A reward model has no conversations.", code="wrong_kind", field="watch")
    for name in ("share", "random_share"):
        if not is_number(values[name]) or not 0 <= values[name] <= 1:
            raise DomainError("A share from 0 to 1.", code="bad_share", field=name)
    if not 1 <= values["keep_days"] <= 3650:
        raise DomainError("From 1 to 3,650 days.", code="bad_days", field="keep_days")
    if unknown := set(values["fields"]) - set(FIELDS):
        raise DomainError(f"Unknown: {', '.join(sorted(unknown))}.", code="bad", field="fields")
    for name, field in (("worst_rating", "rating"), ("least_logprob", "mean_logprob")):
        if values[name] is not None and field not in values["fields"]:
            raise DomainError(
                f"It decides nothing unless {field} is kept beside the messages.",
                code="not_kept",
                field=name,
            )
    setting, _ = TrafficSetting.objects.update_or_create(watch=watch, defaults=values)
    audit_record(
        action="watch.traffic",
        actor=user,
        project=project,
        subject=watch.pk,
        details={"name": watch.name} | values,
    )
    return setting


def traffic_record(
    *, project: Project, watch_id: str, rows: Sequence[Mapping[str, Any]], key: str = ""
) -> dict[str, int]:
    """Take a batch and say what became of it: whole, or not at all. A batch of a known key (that of
    the sender, or else one of the ids with consent) is answered as before.

    Raises `DomainError` (invalid_traffic) that names rows and fields and repeats no content.
    """
    if not 1 <= len(rows) <= MOST_ROWS:
        raise DomainError(f"From 1 to {MOST_ROWS} at once.", code="too_many", field="conversations")
    with transaction.atomic():
        watch = watch_get(project=project, watch_id=watch_id)
        setting = TrafficSetting.objects.select_for_update().filter(watch=watch).first()
        if setting is None or not setting.enabled:
            raise Conflict(
                "Traffic of this model is not taken; switch it on at its page.",
                code="traffic_off",
                field="watch",
            )
        agreed = [row for row in rows if row.get("consent") is True or not setting.needs_consent]
        found = _read(rows, agreed, setting)
        key = key[:LONGEST_KEY] or _key_of(found)
        known = TrafficBatch.objects.filter(watch=watch, key=key).first() if key else None
        if known is not None:
            return dict(known.counts)
        counts = Counter({RECEIVED: len(rows), NO_CONSENT: len(rows) - len(agreed)})
        _take(watch, setting, found, counts)
        if key:
            TrafficBatch.objects.create(watch=watch, key=key, counts=counts)
        day, _ = TrafficDay.objects.get_or_create(watch=watch, day=timezone.now().date())
        day.counts = Counter(day.counts) + counts
        day.save(update_fields=["counts"])
        return dict(counts)


def _key_of(found: Sequence[Conversation]) -> str:
    """Empty where nobody consented: nothing may be remembered of such a batch."""
    ids = ",".join(sorted(one.key for one in found))
    return sha256(ids.encode()).hexdigest() if ids else ""


def _take(
    watch: Watch, setting: TrafficSetting, found: Sequence[Conversation], counts: Counter[str]
) -> None:
    sampled = [one for one in found if _drawn(one.key, "sample", setting.share)]
    counts[UNSAMPLED] += len(found) - len(sampled)
    fresh = _fresh(watch, sampled)
    counts[DUPLICATES] += len(sampled) - len(fresh)
    phrases, usual = phrases_of(watch.checkpoint.run), _usual(watch)
    for one in fresh:
        reasons = _reasons(one, setting, usual)
        if phrases and (held := phrases.first_in(one.messages[-1]["content"])):
            reasons[PHRASE] = blocked_reason(held.phrase)
        if not reasons:
            counts[NOTHING] += 1
            continue
        counts[KEPT] += 1
        counts[SCRUBBED] += one.scrubbed > 0
        counts.update(list(reasons))
        _keep(watch, one, reasons)


def _keep(watch: Watch, one: Conversation, reasons: Mapping[str, str]) -> None:
    TrafficConversation.objects.create(
        watch=watch,
        run=watch.checkpoint.run,
        id_sha256=one.key,
        messages=one.messages,
        fields=one.fields,
        reasons=list(reasons),
        at=one.at,
    )
    words = f"Traffic of {watch.name}: {'; '.join(reasons.values())}"
    said = one.messages[-1]["content"]
    answer_flagged(watch.checkpoint.run, Flagged(0, one.messages[:-1], said, words))


def _reasons(one: Conversation, setting: TrafficSetting, usual: Vocabulary) -> dict[str, str]:
    found = {}
    rating = one.fields.get("rating")
    if rating is not None and setting.worst_rating is not None and rating <= setting.worst_rating:
        found[RATED] = f"rated {rating:g}"
    sure = one.fields.get("mean_logprob")
    if sure is not None and setting.least_logprob is not None and sure < setting.least_logprob:
        found[UNCERTAIN] = f"the model was uncertain: {sure:.2f} nats a token"
    if usual.is_novel(one.asked):
        share = usual.unseen(one.asked) or 0.0
        found[NOVEL] = f"{100 * share:.0f} % of its words are in no prompt of the project"
    if _drawn(one.key, "random", setting.random_share):
        found[RANDOM] = REASONS[RANDOM]
    return found


def _usual(watch: Watch) -> Vocabulary:
    rows = Prompt.objects.filter(project=watch.project_id).order_by("-pk")
    texts = rows.values_list("brief", flat=True)[:KNOWN_PROMPTS]
    return vocabulary([" ".join(str(m.get("content", "")) for m in one) for one in texts])


def _drawn(key: str, purpose: str, share: float) -> bool:
    """The same for the same id, however often it is sent."""
    return int(sha256(f"{purpose}:{key}".encode()).hexdigest()[:13], 16) / 16**13 < share


def _fresh(watch: Watch, sampled: Sequence[Conversation]) -> list[Conversation]:
    """Without those whose id is known, and near-duplicates of kept ones or of one before them."""
    stored = TrafficConversation.objects.filter(watch=watch)
    keys = {one.key for one in sampled}
    known = set(stored.filter(id_sha256__in=keys).values_list("id_sha256", flat=True))
    rows = stored.filter(deleted_at=None).order_by("-pk")[:COMPARED]
    texts = ["\n".join(m["content"] for m in row.messages) for row in rows]
    new = [one for one in {one.key: one for one in sampled}.values() if one.key not in known]
    said = [one.text for one in new]
    matched, family = near_matches(said, texts).row, near_families(said)
    return [one for k, one in enumerate(new) if matched[k] < 0 and family[k] == k]


# --- reading ---


def _read(
    rows: Sequence[Mapping[str, Any]], agreed: Sequence[Mapping[str, Any]], setting: TrafficSetting
) -> list[Conversation]:
    """Those with consent; all rows are checked."""
    errors = [
        {"row": k, "field": field, "message": message}
        for k, row in enumerate(rows, 1)
        if (fault := _fault(row)) is not None
        for field, message in [fault]
    ]
    if errors:
        first = errors[0]
        raise DomainError(
            f"Row {first['row']}: {first['message']} Nothing was stored.",
            code="invalid_traffic",
            field=str(first["field"]),
            row=int(str(first["row"])),
            details=errors[:50],
        )
    size = sum(len(m["content"]) for row in rows for m in row["messages"])
    if size > MOST_CHARACTERS:
        raise DomainError(
            f"At most {MOST_CHARACTERS:,} characters at once.", code="too_large", field="messages"
        )
    return [_conversation(row, setting) for row in agreed]


def _fault(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """(field, what is wrong), never with what was sent."""
    key, messages = row.get("id"), row.get("messages")
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_ID:
        return "id", f"A text of 1 to {LONGEST_ID} characters."
    if not isinstance(messages, list) or not 2 <= len(messages) <= MOST_MESSAGES:
        return "messages", f"A list of 2 to {MOST_MESSAGES} messages."
    for one in messages:
        if not isinstance(one, Mapping) or one.get("role") not in _ROLES:
            return "messages", f"Each has a role: {', '.join(_ROLES)}."
        if not isinstance(one.get("content"), str):
            return "messages", "Each has a text as content."
    if messages[-1]["role"] != "assistant":
        return "messages", "The last one is the model's answer (assistant)."
    for name in NUMBERS:
        if row.get(name) is not None and not is_number(row[name]):
            return name, "A number."
    if (row.get("mean_logprob") or 0) > 0:
        return "mean_logprob", "A logarithm of a probability: at most 0."
    outcome = row.get("outcome")
    if outcome is not None and (not isinstance(outcome, str) or len(outcome) > LONGEST_OUTCOME):
        return "outcome", f"A text of at most {LONGEST_OUTCOME} characters."
    if not isinstance(row.get("consent", False), bool):
        return "consent", "true or false."
    at = row.get("at")
    if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
        return "at", "A time with its zone, such as 2026-05-01T12:00:00Z."
    return None


def _conversation(row: Mapping[str, Any], setting: TrafficSetting) -> Conversation:
    hidden = 0
    messages = []
    for one in row["messages"]:
        text, n = scrubbed(storable(one["content"]))
        hidden += n
        messages.append({"role": one["role"], "content": text})
    fields = {name: row[name] for name in setting.fields if row.get(name) is not None}
    if "outcome" in fields:
        fields["outcome"], n = scrubbed(storable(fields["outcome"]))
        hidden += n
    return Conversation(
        id_sha256(row["id"]), messages, row.get("at") or timezone.now(), fields, hidden
    )


def id_sha256(key: str) -> str:
    return sha256(key.encode("utf-8", "replace")).hexdigest()


# --- forgetting ---


@transaction.atomic
def traffic_delete(
    *, project: Project, watch_id: str, ids: Sequence[str], user: User | None = None
) -> int:
    """Consent was withdrawn: messages, fields, their entries in the inbox and what people said of
    them are deleted; how many. An id that is not known is remembered, so that it stays out."""
    watch = watch_get(project=project, watch_id=watch_id)
    TrafficSetting.objects.select_for_update().filter(watch=watch).first()
    keys = {id_sha256(one) for one in ids}
    rows = TrafficConversation.objects.select_related("run")
    known = list(rows.filter(watch=watch, id_sha256__in=keys))
    deleted = sum(_forget(row) for row in known)
    now = timezone.now()
    TrafficConversation.objects.bulk_create(
        [
            TrafficConversation(watch=watch, id_sha256=key, at=now, deleted_at=now)
            for key in sorted(keys - {row.id_sha256 for row in known})
        ]
    )
    audit_record(
        action="watch.traffic_deleted",
        actor=user,
        project=project,
        subject=watch.pk,
        details={"name": watch.name, "ids": len(keys), "deleted": deleted},
    )
    return deleted


def traffic_expire(*, now: datetime | None = None) -> int:
    """Delete what is past the days that its model's setting keeps; how many."""
    now, deleted = now or timezone.now(), 0
    for setting in TrafficSetting.objects.all():
        with transaction.atomic():
            before = now - timedelta(days=setting.keep_days)
            rows = TrafficConversation.objects.select_for_update(of=("self",))
            rows = rows.select_related("run")
            old = rows.filter(watch=setting.watch_id, created_at__lt=before, deleted_at=None)
            deleted += sum(_forget(row) for row in old)
            TrafficBatch.objects.filter(watch=setting.watch_id, at__lt=before).delete()
    return deleted


def _forget(row: TrafficConversation) -> bool:
    if row.deleted_at is not None:
        return False
    answer_withdrawn(row.run, row.messages[:-1], row.messages[-1]["content"])
    row.messages, row.fields, row.deleted_at = [], {}, timezone.now()
    row.save(update_fields=["messages", "fields", "deleted_at"])
    return True
