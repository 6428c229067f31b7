"""A chain of hashes over the audit log: who changes a row past the trigger is found.

Every minute the events that are not in the chain yet are appended to it: hₙ is the SHA-256 of hₙ₋₁
and the event's own fields, its texts as salted hashes (docs/adr/0020-what-the-chain-knows.md). An
event that a long transaction wrote late stands later in the chain than its number says, and is in
it all the same. Once a day the newest hash is written to the artifact store: whoever may rewrite
events and chain alike would have to rewrite that file too.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from apps.accounts.models import AuditEvent, AuditLink, salted_sha256
from workers.artifacts import ArtifactError, Store

FIRST = "0" * 64  # what the first event is hashed with
SETTLED = timedelta(seconds=30)  # a transaction that is under way may still write an older event
LATEST = timedelta(days=1)  # longer than any transaction lives
MOST = 5000  # events of one sealing
HEADS = "audit/heads"  # folder of the artifact store, a file a day
RESEALED = "audit.resealed"  # once, by the migration that took texts out of what is hashed
ERASED = ("person.erased", "person.erased_again")
NEVER = datetime.min.replace(tzinfo=UTC)
_LOCK = 0x61756469  # of sealings: one at a time
_READ = 2000


def audit_seal(*, now: datetime | None = None) -> int:
    """Append what is not in the chain yet; returns how many events."""
    now = now or timezone.now()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("select pg_try_advisory_xact_lock(%s)", [_LOCK])
            if not cursor.fetchone()[0]:
                return 0
        newest = AuditLink.objects.order_by("-position").first()
        before, position = (newest.sha256, newest.position) if newest else (FIRST, 0)
        sealed = AuditLink.objects.filter(event=OuterRef("pk"))
        fresh = AuditEvent.objects.filter(~Exists(sealed), at__lte=now - SETTLED).order_by("pk")
        if newest and (last := AuditEvent.objects.filter(pk=newest.event).first()):
            fresh = fresh.filter(at__gte=last.at - LATEST)  # and not the whole log every minute
        links = []
        for event in fresh[:MOST]:
            position, before = position + 1, hash_of(before, event)
            links.append(AuditLink(position=position, event=event.pk, sha256=before))
        AuditLink.objects.bulk_create(links)
    return len(links)


def _day(event: AuditEvent) -> str:
    return event.at.date().isoformat()


def audit_head_write(*, now: datetime | None = None) -> bool:
    """The day's head to the artifact store, once; False where it is there, or nothing is sealed."""
    day = (now or timezone.now()).date().isoformat()
    newest = AuditLink.objects.order_by("-position").first()
    store, path = Store(settings.ARTIFACTS_URL), f"{HEADS}/{day}.json"
    if newest is None or store.exists(path):
        return False
    head = {"day": day, "position": newest.position, "sha256": newest.sha256}
    store.write_bytes(path, json.dumps(head, indent=1).encode())
    return True


def hash_of(before: str, event: AuditEvent) -> str:
    return line_sha256(before, hashed(event))


def hashed(event: AuditEvent) -> dict[str, Any]:
    """What the chain knows of an event: ids, numbers and salted hashes of texts."""
    return {
        "id": event.pk,
        "at": event.at.isoformat(),
        "project": event.project_id,
        "actor": event.actor_id,
        "about": event.about_id,
        "action": event.action,
        "sealed": event.sealed,
    }


def line_sha256(before: str, said: dict[str, Any]) -> str:
    text = json.dumps(said, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(f"{before}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()


def fits(sealed: dict[str, Any], values: dict[str, Any], salts: dict[str, str]) -> bool | None:
    """Whether subject and details are those that were sealed; None where some were erased."""
    whole = sealed.keys() == values.keys()
    erased = False
    for name, value in sealed.items():
        if name in salts:
            whole &= salted_sha256(salts[name], values.get(name)) == value
        elif values.get(name) in (None, "") and value not in (None, ""):  # a subject is "" then
            erased = True
        else:
            whole &= values.get(name) == value
    return (None if erased else True) if whole else False


@dataclass(frozen=True, slots=True)
class Broken:
    """One thing that is not as it was sealed; `event` where it is about one."""

    what: str
    event: int | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """erased: events of which an erasure took texts away."""

    sealed: int
    unsealed: int
    heads: int
    broken: tuple[Broken, ...]
    erased: int = 0


def audit_verify() -> Verified:
    """Read the whole log and chain. Each event is hashed with the stored hash before it, so that a
    change is found where it was made, and not in all that follow."""
    known = AuditEvent.objects.filter(action=RESEALED, details__has_key="former_sha256")
    resealed = known.order_by("pk").first()
    broken = [*_broken_links(), *_broken_before(resealed), *(heads := _broken_heads(resealed))[1]]
    sealed = AuditLink.objects.count()
    unsealed = AuditEvent.objects.filter(
        ~Exists(AuditLink.objects.filter(event=OuterRef("pk")))
    ).count()
    erased = AuditEvent.objects.filter(erased_by__isnull=False).count()
    return Verified(sealed, unsealed, heads[0], tuple(broken), erased)


def _broken_before(resealed: AuditEvent | None) -> Iterator[Broken]:
    """What was wrong already when the chain was written again, and hashes of before that are not
    those of that day."""
    if resealed is None:
        return
    for pk in resealed.details["broken"]:
        yield Broken("it was not what was sealed when the chain was resealed", pk)
    links = AuditLink.objects.filter(position__lte=resealed.details["links"]).order_by("position")
    digest = hashlib.sha256()
    for former in links.values_list("former", flat=True).iterator(chunk_size=_READ):
        digest.update(former.encode())
    if digest.hexdigest() != resealed.details["former_sha256"]:
        yield Broken("the hashes of before the chain was resealed were changed", resealed.pk)


def _broken_links() -> Iterator[Broken]:
    before, position = FIRST, 0
    erasures = dict(AuditEvent.objects.filter(action__in=ERASED).values_list("pk", "at"))
    rows = AuditLink.objects.order_by("position").iterator(chunk_size=_READ)
    while part := list(islice(rows, _READ)):
        events = AuditEvent.objects.in_bulk([link.event for link in part])
        for link in part:
            event = events.get(link.event)
            if link.position != position + 1:
                yield Broken(f"links {position + 1:,} to {link.position - 1:,} are gone")
            elif event is None:
                yield Broken("it was deleted", link.event)
            elif why := _why_not(before, event, link, erasures):
                yield Broken(why, link.event)
            before, position = link.sha256, link.position


def _why_not(before: str, event: AuditEvent, link: AuditLink, erasures: dict[int, datetime]) -> str:
    """What is wrong with an event; empty where nothing is."""
    whole = fits(event.sealed, event.values, event.salts)
    if hash_of(before, event) != link.sha256 or whole is False:
        return "it is not what was sealed"
    if whole is None and not event.at <= erasures.get(event.erased_by or 0, NEVER):
        return "its texts are gone and no erasure took them"
    return ""


def _broken_heads(resealed: AuditEvent | None) -> tuple[int, list[Broken]]:
    store, n = Store(settings.ARTIFACTS_URL), 0
    broken: list[Broken] = []
    for name in store.names(HEADS):
        n, path = n + 1, f"{HEADS}/{name}"
        try:
            head = json.loads(store.read_bytes(path))
            link = AuditLink.objects.filter(position=head["position"]).first()
            former = link.former if link and resealed and head["day"] <= _day(resealed) else None
            if link is None or head["sha256"] not in (link.sha256, former):
                broken.append(Broken(f"the chain is not the one of {head['day']}"))
        except (ArtifactError, ValueError, KeyError):
            broken.append(Broken(f"{path} cannot be read"))
    return n, broken
