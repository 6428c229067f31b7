"""Is the model still trained on what people say?"""

from measures.blocks import Table, listed, percent, share
from measures.estimate import Interval
from measures.intervals import wilson
from measures.trust.findings import Finding, Verdict, unmeasured

# SPEC D15 asks for advice from new votes and age; the figures are this project's choice.
MOST_DAYS = 30
MOST_NEW = 0.2


def freshness(
    age_days: float | None,
    votes_at_training: int | None,
    votes_since: int | None,
    flipped: tuple[int, int] | None = None,
) -> Finding:
    """Red where the model is over 30 days old, or over 20 votes came since for every 100 that it
    was trained on; the sentence then advises to retrain.

    flipped: (comparisons whose winner is another now, comparisons it was trained on), shown only.
    """
    if age_days is None or votes_at_training is None or votes_since is None:
        return unmeasured(
            "freshness", "When the model was trained, or on which votes, is not known."
        )
    if not votes_at_training:
        return unmeasured("freshness", "The model was trained on none of this project's votes.")
    new = votes_since / votes_at_training
    reasons = []
    if age_days > MOST_DAYS:
        reasons.append(f"it is over {MOST_DAYS} days old")
    if new > MOST_NEW:
        reasons.append(f"over {percent(MOST_NEW)} as many votes came since")
    says = (
        f"Trained {_days(age_days)} ago on {votes_at_training:,} votes; {votes_since:,} came "
        f"since, {percent(new)} as many"
    )
    rows: list[tuple[object, ...]] = [
        ("days since training", age_days, MOST_DAYS),
        ("new votes for each it was trained on", new, MOST_NEW),
    ]
    turned: Interval | None = None
    if flipped is not None and flipped[1]:
        turned = wilson(*flipped)
        says += f"; {share(turned)} of {flipped[1]:,} comparisons have another winner now"
    if reasons:
        says += f". Retrain it: {listed(reasons)}"
    return Finding(
        line="freshness",
        verdict=Verdict.RED if reasons else Verdict.GREEN,
        says=f"{says}.",
        figure=Interval(value=new, low=None, high=None, n=votes_at_training, no_interval="counted"),
        evidence=(
            Table(
                title="How old",
                columns=("", "now", "at most"),
                formats=("text", "number", "number"),
                rows=tuple(rows),
            ),
        ),
        facts={
            "age_days": age_days,
            "votes_at_training": votes_at_training,
            "votes_since": votes_since,
            "new_share": new,
            "flipped_share": turned.value if turned else None,
            "retrain": bool(reasons),
        },
    )


def _days(age: float) -> str:
    whole = int(age)
    if whole < 1:
        return "less than a day"
    return "1 day" if whole == 1 else f"{whole:,} days"
