"""What the pages of incidents, mutes and channels send. Malformed filters narrow nothing."""

from datetime import UTC, datetime

from django.http import QueryDict
from django.utils.dateparse import parse_date, parse_datetime

from apps.common.errors import DomainError
from apps.monitoring.selectors.incidents import SORTS, STATES, IncidentFilters
from apps.monitoring.services.channels import PRESETS, preset_end
from apps.monitoring.services.incidents import LEARNED
from apps.monitoring.stages import STAGE_NAMES

SEVERITIES = ("critical", "warning")
MOST_AT_ONCE = 200  # incidents of one bulk action


def filters_of(sent: QueryDict) -> IncidentFilters:
    def one_of(name: str, allowed: object) -> str:
        value = _text(sent, name, 60)
        return value if value in allowed else ""  # type: ignore[operator] # any container of strings

    return IncidentFilters(
        state=one_of("state", STATES),
        severity=one_of("severity", SEVERITIES),
        link=one_of("link", STAGE_NAMES),
        run=_text(sent, "run", 16),
        rule=_text(sent, "rule", 60),
        muted=one_of("muted", ("yes", "no")),
        search=_text(sent, "q", 200),
        sort=one_of("sort", SORTS),
    )


def learned_of(sent: QueryDict) -> tuple[dict[str, str], dict[str, str]]:
    """(what was typed, what the fields held when the page was opened), of fields that were sent."""
    typed = {name: _lines(sent.get(name, "")) for name in LEARNED if name in sent}
    seen = {name: _lines(sent[f"seen_{name}"]) for name in LEARNED if f"seen_{name}" in sent}
    return typed, seen


def mute_end(sent: QueryDict) -> datetime:
    """A preset, or a day or minute (UTC) that was typed, which goes first."""
    typed = sent.get("until_date", "").strip()
    if not typed:
        return preset_end(sent.get("until", ""))
    try:
        at = parse_datetime(typed)
        day = None if at is not None else parse_date(typed)
    except ValueError:
        at = day = None
    if at is None and day is not None:
        at = datetime(day.year, day.month, day.day, tzinfo=UTC)
    if at is None:
        raise DomainError(
            "That is no date. Write it as 2026-01-31 or 2026-01-31T18:00.", field="until"
        )
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def chosen_of(sent: QueryDict) -> list[str]:
    """The incidents that were ticked."""
    chosen = [one[:16] for one in dict.fromkeys(sent.getlist("incident"))]
    if not chosen:
        raise DomainError("Select at least one incident.", field="incident")
    if len(chosen) > MOST_AT_ONCE:
        raise DomainError(f"At most {MOST_AT_ONCE} at once.", field="incident")
    return chosen


def presets() -> list[tuple[str, str]]:
    return [(name, words) for name, (words, _) in PRESETS.items()]


def _text(sent: QueryDict, name: str, longest: int) -> str:
    return sent.get(name, "").replace("\x00", "").strip()[:longest]


def _lines(text: str) -> str:
    """Browsers send line breaks as two characters; stored text has one."""
    return text.replace("\r\n", "\n").replace("\x00", "")


def text_of(sent: QueryDict) -> str:
    return _lines(sent.get("text", ""))
