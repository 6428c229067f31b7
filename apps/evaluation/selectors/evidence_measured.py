"""Lines of evidence that people, suites and other programs measured: head-to-head, audit sheet,
regression suite, benchmarks, and by which protocol. Importing this module registers them."""

from typing import Any

from django.urls import reverse

from apps.common.numbers import share, share_up
from apps.evaluation.models import HeadToHead, Stage
from apps.evaluation.selectors.evidence import (
    Evidence,
    evaluation_of,
    evaluations_of,
    green,
    missing,
    noted,
    provider,
    red,
)
from apps.evaluation.selectors.head_to_head import by_people, result_now, simulated_count
from apps.evaluation.selectors.outside import outside_of, result_words
from apps.evaluation.selectors.overlap import overlap_of, overlap_words
from apps.evaluation.selectors.protocols import protocol_of_run
from apps.evaluation.selectors.sheets import audit_of
from apps.training.models import Checkpoint
from measures.head_to_head import Verdict
from measures.regression import Standing

MOST_BAD = 0.05  # of the policy's answers, at the upper bound of an audit sheet
PRODUCTION = frozenset({Stage.PRODUCTION})


@provider("protocol", "Evaluated by a protocol that is kept")
def protocol(checkpoint: Checkpoint) -> Evidence:
    """Holds when the newest evaluation left what it was measured by."""
    run = evaluation_of(checkpoint)
    found = protocol_of_run(run) if run is not None else None
    if found is None:
        return missing("Its newest evaluation left no protocol." if run else "Not evaluated.")
    url = reverse("evaluation:protocol", args=[checkpoint.project.slug, found.sha256])
    return green(f"Protocol {found.short}.", url=url, source=found.sha256)


@provider("regression", "Regression suite: not worse than the baseline")
def regression(checkpoint: Checkpoint) -> Evidence:
    """Holds when a drop by the margin can be ruled out, and no category is worse. How many of its
    prompts were trained on is told and closes nothing."""
    run = next((one for one in evaluations_of(checkpoint) if one.summary.get("regression")), None)
    if run is None:
        return missing(
            "No prompts with checks were asked. Add the regression suite to the datasets and "
            "evaluate on it."
        )
    found = run.summary["regression"]
    url = reverse("training:run", args=[checkpoint.project.slug, run.pk]) + "?tab=suite"
    over_all = found["all"]
    facts: dict[str, Any] = {
        "source": run.pk,
        "checks": found["checks"],
        "lost": over_all["lost"],
        "won": over_all["won"],
        "margin": found["margin"],
        "lowest": over_all["lowest"],
    }
    says = f"Of {found['checks']:,} checks {over_all['lost']:,} lost, {over_all['won']:,} won"
    overlap = overlap_of(run)
    if overlap is not None:
        facts |= {
            "prompts_trained_on": overlap.found,
            "prompts_compared": overlap.prompts,
            "training_datasets_compared": len(overlap.datasets),
            "training_rows_compared": overlap.rows,
        }
    trained_on = overlap_words(overlap)
    match found["standing"]:
        case Standing.NOT_WORSE:
            words = f"{says}: under {share(found['margin'])} fewer. {trained_on}"
            return green(words, url=url, **facts)
        case Standing.WORSE:
            at = ", ".join(found["worse"]) or "over all"
            return red(f"{says}: worse at {at}. {trained_on}", url=url, **facts)
    words = f"{says}: too few to rule out a drop of {share(found['margin'])}. {trained_on}"
    return missing(words, url=url, **facts)


@provider("head_to_head", "People prefer it to its baseline", required=PRODUCTION)
def head_to_head(checkpoint: Checkpoint) -> Evidence:
    """Holds when the newest head-to-head of this very checkpoint that has ended called it better:
    the lower end of an interval that holds at every look is over ½. One with simulated votes is no
    measurement; its figures are told where there is no other."""
    rows = HeadToHead.objects.filter(first=checkpoint).select_related("pairs", "project")
    ended = rows.filter(ended_at__isnull=False).order_by("-ended_at")
    found = by_people(ended).first() or ended.first()
    if found is None:
        running = rows.order_by("-created_at").first()
        if running is None:
            return missing("No people have compared its answers. Evaluate it and ask people.")
        url = reverse("evaluation:head_to_head", args=[running.project.slug, running.pk])
        return missing("People are still comparing its answers.", url=url, source=running.pk)
    result = result_now(found)
    url = reverse("evaluation:head_to_head", args=[found.project.slug, found.pk])
    facts: dict[str, Any] = {
        "source": found.protocol_sha256,
        "head_to_head": found.pk,
        "verdict": found.verdict,
        "votes": result.n,
        "people": result.n_people,
    }
    estimate = result.estimate
    if estimate is None or estimate.low is None or estimate.high is None:
        return missing(f"It ended with {result.n:,} votes, too few.", url=url, **facts)
    facts |= {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    says = (
        f"{share(estimate.value)} ({share(estimate.low)} to {share(estimate.high)}) against "
        f"{found.second_name}, {result.n:,} votes of {result.n_people:,} people"
    )
    if simulated := simulated_count(found):
        words = f"{says}. {simulated:,} of these votes are simulated, so they count for nothing."
        return missing(words, url=url, **facts, simulated=simulated)
    match found.verdict:
        case Verdict.BETTER:
            return green(f"{says}.", url=url, **facts)
        case Verdict.WORSE:
            return red(f"{says}: people prefer the other.", url=url, **facts)
        case Verdict.NO_DIFFERENCE:
            return red(f"{says}: no difference worth having.", url=url, **facts)
    return missing(f"{says}: undecided.", url=url, **facts)


@provider("audit", f"Audit sheet: under {share(MOST_BAD)} bad answers", required=PRODUCTION)
def audit(checkpoint: Checkpoint) -> Evidence:
    """Holds when the exact upper bound of the share of bad or unsafe answers, of the random ones of
    the newest finished sheet, is at most `MOST_BAD`."""
    found = audit_of(checkpoint)
    if found is None:
        return missing("No blind audit sheet of its answers is finished.")
    url = reverse("evaluation:sheet", args=[checkpoint.project.slug, found.sheet.pk])
    random = found.random
    facts: dict[str, Any] = {
        "source": found.sheet.pk,
        "n": random.n,
        "bad": random.n_bad,
        "high": random.bad.high,
    }
    if not random.n or random.bad.high is None:
        return missing("The sheet has no judged random answers.", url=url, **facts)
    says = (
        f"{random.n_bad:,} bad of {random.n:,} random answers: at most {share_up(random.bad.high)}"
    )
    if random.bad.high <= MOST_BAD:
        return green(f"{says}.", url=url, **facts)
    if random.n_bad == 0:
        return missing(f"{says}; judge more of them.", url=url, **facts)
    return red(f"{says}.", url=url, **facts)


_NAMED = 3  # tasks that the line names


@provider("outside", "Measured elsewhere", required=())
def outside(checkpoint: Checkpoint) -> Evidence:
    """What benchmarks of other programs gave; no stage requires it, and nothing is compared."""
    rows = outside_of(checkpoint)
    if not rows:
        return missing("No result of lm-evaluation-harness or Inspect was imported.")
    url = reverse("evaluation:outside_results", args=[checkpoint.project.slug, checkpoint.pk])
    named = ". ".join(
        f"{row.task} ({row.get_program_display()}): {result_words(row)}" for row in rows[:_NAMED]
    )
    more = f". {len(rows) - _NAMED:,} more tasks" if len(rows) > _NAMED else ""
    return noted(
        f"{named}{more}.",
        url=url,
        source=rows[0].protocol_sha256,
        results=[
            {
                "task": row.task,
                "program": row.program,
                "protocol_sha256": row.protocol_sha256,
                "file_sha256": row.file_sha256,
                "metrics": row.metrics,
            }
            for row in rows
        ],
    )
