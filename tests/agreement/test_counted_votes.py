"""Agreement sees the votes that nobody asked for because of what others had said."""

import random

import pytest
from django.urls import reverse

from apps.accounts.models import Project
from apps.agreement.services import reports
from apps.labeling.models import Comparison, LabelingSettings, Slot, Vote
from tests.agreement.crowd import crowd_write


def figures(project: Project) -> dict:
    return reports.report_refresh(project=project).figures


def extra(comparison: Comparison) -> None:
    """Make the comparison's last slot one that was added while it was contested."""
    slot = comparison.slots.order_by("-position")[0]
    Slot.objects.filter(pk=slot.pk).update(priority=comparison.priority + 1)


def second_look(comparison: Comparison, kind: str, choice: str) -> None:
    """A repeat or audit vote on the first vote of a comparison."""
    first = comparison.votes.order_by("id")[0]
    slot = Slot.objects.create(
        project=comparison.project,
        comparison=comparison,
        position=9,
        kind=kind,
        state="done",
        annotator=first.annotator if kind == "repeat" else comparison.votes.last().annotator,
        measures=first,
    )
    Vote.objects.create(
        project=comparison.project,
        comparison=comparison,
        slot=slot,
        annotator=slot.annotator,
        choice=choice,
        chosen={"a": comparison.response_a, "b": comparison.response_b}[choice],
        idempotency_key=f"{kind}-{comparison.pk}",
        cast_at=first.cast_at,
    )


def test_extra_votes_are_left_out_and_counted(project: Project) -> None:
    for comparison in crowd_write(project, [["a", "b", "a"]] * 12):
        extra(comparison)
    found = figures(project)
    assert found["statistics"]["percent"]["value"] == 0.0  # the first two differ
    assert found["counted"]["left_out"] == {"extra": 12}
    assert found["counted"]["n_votes"] == 24


def test_random_votes_raise_the_alarm_though_contested_pairs_got_more_votes(
    project: Project,
) -> None:
    # Three coins; where they do not agree, two more, as the queue asks for them. With all votes
    # in, agreement would look like 0.59 and Fleiss' kappa like 0.17.
    draw = random.Random(1)
    rows = []
    for _ in range(160):
        row = [draw.choice("ab") for _ in range(3)]
        rows.append(row if len(set(row)) == 1 else [*row, draw.choice("ab"), draw.choice("ab")])
    for comparison in crowd_write(project, rows):
        slots = comparison.slots.filter(position__gt=3)
        slots.update(priority=comparison.priority + 1)
    statistics = figures(project)["statistics"]
    assert statistics["percent"]["level"] == "bad"
    assert statistics["alpha"]["level"] == "critical"
    assert statistics["percent"]["value"] == pytest.approx(0.5, abs=0.05)


def test_a_second_round_counts_with_the_votes_of_the_first(project: Project) -> None:
    (comparison,) = crowd_write(project, [["a", "b", "b", "b", "b"]])
    comparison.slots.filter(position__lte=2).update(kind=Slot.Kind.FORMER)
    found = figures(project)
    assert found["statistics"]["percent"]["value"] == 0.0
    assert found["counted"]["left_out"] == {"round": 3}
    assert found["cost"]["by_purpose"] == {
        "first": 2,
        "repeat": 0,
        "audit": 0,
        "gold": 0,
        "round": 3,
        "extra": 0,
    }


def test_where_labeling_stops_early_the_first_two_votes_count(project: Project) -> None:
    LabelingSettings.objects.create(project=project, stop_early=True)
    crowd_write(project, [["a", "b", "b"]] * 3 + [["a", "a"]] * 3)
    found = figures(project)
    assert found["statistics"]["percent"]["value"] == 0.5
    assert found["counted"]["left_out"] == {"later": 3}


def test_repeats_audits_gold_and_priority_have_their_own_reasons(
    project: Project, ada, signed_in
) -> None:
    one, two = crowd_write(project, [["a", "a"]] * 2)
    second_look(one, "repeat", "b")
    second_look(two, "repeat", "b")
    crowd_write(project, [["a", "b"]], stratum="gold")
    crowd_write(project, [["a", "b"]], stratum="priority")
    found = figures(project)
    assert found["counted"]["left_out"] == {"repeat": 2, "gold": 2, "priority": 2}
    assert found["statistics"]["percent"]["value"] == 1.0
    page = signed_in(ada).get(reverse("agreement:overview", args=[project.slug])).content.decode()
    assert "hidden repeats: the same person again" in page
    assert "picked by priority" in page


def test_twice_the_votes_cost_twice_for_the_same_kept_pairs(project: Project) -> None:
    LabelingSettings.objects.create(project=project, vote_price=0.5)
    crowd_write(project, [["a", "a"]] * 5)
    once = figures(project)["cost"]
    assert once["money"]["value"] == pytest.approx(5.0)
    crowd_write(project, [["a", "a"]] * 5)
    twice = figures(project)["cost"]
    assert twice["money"]["value"] == pytest.approx(2 * once["money"]["value"])
    assert twice["money_per_kept"]["undefined"] == "no pair is kept yet"
