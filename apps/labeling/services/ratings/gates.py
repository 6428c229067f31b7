"""Who may rate just now: the seat of labeling, said in words that fit rating tasks."""

from dataclasses import replace

from django.db.backends.utils import CursorWrapper

from apps.common.errors import Missing
from apps.labeling.services import statements as labeling_sql
from apps.labeling.services.ratings import statements as sql
from apps.labeling.services.results import NothingReason
from apps.labeling.services.seats import Seat, role_check


def seat_lock(cursor: CursorWrapper, project: str, annotator: int) -> Seat:
    """Lock the membership and read the seat; `n_today` counts rating tasks, not pairs.

    Errors: `Missing` for people outside the project, `Refused` for roles that do not label.
    """
    values = {"project": project, "annotator": annotator}
    cursor.execute(labeling_sql.SEAT, values)
    row = cursor.fetchone()
    if row is None:
        raise Missing("There is no such project, or you are not a member of it.")
    seat = Seat.of(row)
    role_check(seat.role)
    cursor.execute(sql.RATED_TODAY, values)
    return replace(seat, n_today=cursor.fetchone()[0])


def closed(seat: Seat) -> NothingReason | None:
    """Why this person gets no task at all just now; None when the queue decides."""
    reason = seat.closed()
    if reason is None:
        return None
    if reason.code == "guideline":
        return replace(reason, text="Read the current version and say so; then go on rating.")
    if reason.code == "daily_cap":
        return replace(
            reason,
            text=f"You have rated {seat.n_today:,} tasks today, as many as this project takes from "
            "one person a day. More come after midnight UTC.",
        )
    return reason
