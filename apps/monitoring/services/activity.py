"""Votes, decisions and frozen datasets, told to the channels that ask for them.

They are looked for every minute rather than written where they happen, so that a vote costs no
more. Each channel remembers until when it was told; what is younger than `SETTLED` waits, since a
transaction may still be under way. A sum of votes or decisions is one message a look.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Max
from django.utils import timezone

from apps.labeling.models import Decision, Vote
from apps.monitoring.models import Channel
from apps.monitoring.services.notifications import iso, page_url, project_tell
from apps.snapshots.models import Snapshot

SETTLED = timedelta(seconds=30)
_Tells = Channel.Tells
_LOOKED_FOR = (_Tells.VOTES, _Tells.DECISIONS, _Tells.DATASETS)


def activity_tell(*, now: datetime | None = None) -> int:
    """Returns how many messages were written."""
    until = (now or timezone.now()) - SETTLED
    channels = Channel.objects.filter(enabled=True, told_until__lt=until)
    asks = [one for one in channels.values_list("pk", "tells") if set(one[1]) & set(_LOOKED_FOR)]
    return sum(_channel_tell(pk, until) for pk, _ in asks)


@transaction.atomic
def _channel_tell(pk: int, until: datetime) -> int:
    channel = (
        Channel.objects.select_for_update(of=("self",), skip_locked=True, no_key=True)
        .select_related("project")
        .filter(pk=pk, enabled=True, told_until__lt=until)
        .first()
    )
    if channel is None:
        return 0
    since, told = channel.told_until, 0
    for about, look in zip(_LOOKED_FOR, (_votes, _decisions, _datasets), strict=True):
        if about not in channel.tells:
            continue
        for event, body in look(channel, since, until):
            told += project_tell(
                project=channel.project, about=about, event=event, body=body, only=channel
            )
    channel.told_until = until
    channel.save(update_fields=["told_until"])
    return told


Said = list[tuple[str, dict[str, Any]]]


def _votes(channel: Channel, since: datetime, until: datetime) -> Said:
    found = Vote.objects.filter(
        project=channel.project_id, cast_at__gt=since, cast_at__lte=until
    ).aggregate(n=Count("pk"), newest=Max("pk"))
    if not found["n"]:
        return []
    return [("votes.cast", {"votes": _span(since, until) | found})]


def _decisions(channel: Channel, since: datetime, until: datetime) -> Said:
    rows = Decision.objects.filter(
        project=channel.project_id, updated_at__gt=since, updated_at__lte=until
    )
    by_outcome = dict(rows.values_list("outcome").annotate(n=Count("pk")).order_by())
    if not by_outcome:
        return []
    said = {"n": sum(by_outcome.values()), "by_outcome": by_outcome}
    return [("decisions.changed", {"decisions": _span(since, until) | said})]


def _datasets(channel: Channel, since: datetime, until: datetime) -> Said:
    rows = Snapshot.objects.filter(
        project=channel.project_id, frozen_at__gt=since, frozen_at__lte=until
    )
    return [
        (
            "dataset.frozen",
            {
                "dataset": {
                    "id": row.pk,
                    "name": row.name,
                    "kind": row.kind,
                    "sha256": row.sha256,
                    "rows": row.counts.get("rows", {}),
                    "url": page_url("snapshots:detail", channel.project.slug, row.pk),
                }
            },
        )
        for row in rows.order_by("frozen_at", "pk")
    ]


def _span(since: datetime, until: datetime) -> dict[str, str]:
    return {"since": iso(since), "until": iso(until)}
