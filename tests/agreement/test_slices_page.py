"""Slices: the right votes in each, the planted bad one named, and no other."""

import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from django.urls import reverse

from apps.accounts.models import Project
from apps.agreement.services import reports
from apps.agreement.services.dimensions import calendar
from apps.labeling.models import Decision, Guideline, Prompt, Response, Vote
from tests.agreement.crowd import crowd_write
from tests.database import as_superuser


def dimension(project: Project, key: str) -> list[dict]:
    found = reports.report_refresh(project=project).figures["slices"]["dimensions"]
    return next(part for part in found if part["key"] == key)["slices"]


def votes_changed(votes, **values) -> None:
    """Votes are kept as they were cast, by a trigger; here they are made up to begin with."""
    with as_superuser():
        votes.update(**values)


def topics_given(comparisons, topic) -> None:
    for number, comparison in enumerate(comparisons):
        Prompt.objects.filter(pk=comparison.prompt_id).update(topic=topic(number))


def coins(n: int, agreement: float, seed: int) -> list[list[str]]:
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        first = draw.choice("ab")
        other = {"a": "b", "b": "a"}[first]
        rows.append([first, first if draw.random() < agreement else other])
    return rows


def test_a_planted_bad_topic_is_named_and_no_other(project: Project, ada, signed_in) -> None:
    good = crowd_write(project, coins(120, 0.85, 1))
    topics_given(good, lambda n: f"topic {n % 3}")
    topics_given(crowd_write(project, coins(50, 0.4, 2)), lambda n: "=the bad one")
    rows = dimension(project, "topic")
    assert [row["label"] for row in rows if row["gap"]["is_worse"]] == ["=the bad one"]
    client = signed_in(ada)
    page = client.get(reverse("agreement:slices", args=[project.slug])).content.decode()
    assert "Topic “=the bad one”: people agree less than elsewhere" in page
    csv = client.get(reverse("agreement:slices_csv", args=[project.slug])).getvalue().decode()
    assert '"\'=the bad one"' in csv  # no formula for a spreadsheet


def test_clean_topics_are_not_named(project: Project, ada, signed_in) -> None:
    made = crowd_write(project, coins(140, 0.7, 3))
    topics_given(made, lambda n: f"topic {n % 4}")
    assert not [row for row in dimension(project, "topic") if row["gap"]["is_worse"]]
    page = signed_in(ada).get(reverse("agreement:slices", args=[project.slug])).content.decode()
    assert "No slice is shown to be worse" in page


def test_rare_topics_are_taken_together(project: Project) -> None:
    made = crowd_write(project, [["a", "a"]] * 40)
    topics_given(made, lambda n: "common" if n < 20 else f"rare {n}")
    rows = dimension(project, "topic")
    assert [(row["label"], row["n_items"]) for row in rows] == [("common", 20), ("20 others", 20)]
    assert rows[1]["gap"]["untested"] == "several values together"


def test_votes_under_one_guideline_version_are_compared_with_each_other(project: Project) -> None:
    versions = [
        Guideline.objects.create(project=project, version=n, body="Choose.") for n in (1, 2)
    ]
    crowd_write(project, [["a", "b", "b"]] * 10)
    votes = Vote.objects.filter(project=project)
    votes_changed(votes.filter(slot__position=1), guideline=versions[0])
    votes_changed(votes.filter(slot__position__gt=1), guideline=versions[1])
    rows = dimension(project, "guideline")
    assert [(row["label"], row["n_items"]) for row in rows] == [("version 1", 0), ("version 2", 10)]
    assert rows[0]["percent"]["undefined"] == "no comparison has two votes"
    assert rows[1]["percent"]["value"] == 1.0  # across versions they differ, within they do not


def test_a_comparison_belongs_to_the_time_of_its_first_vote(project: Project) -> None:
    crowd_write(project, [["a", "b", "a"]] * 4)
    then = datetime(2026, 3, 2, 12, tzinfo=UTC)  # a Monday
    votes = Vote.objects.filter(project=project)
    votes_changed(votes, cast_at=then)
    votes_changed(votes.filter(slot__position=3), cast_at=then + timedelta(days=40))
    assert [(row["label"], row["n_items"]) for row in dimension(project, "time")] == [
        ("2026-03-02", 4)
    ]


@pytest.mark.parametrize(
    ("days", "unit", "first", "last"),
    [
        (10, "day", "2026-01-01", "2026-01-10"),
        (100, "week", "2025-12-29", "2026-04-06"),  # the Monday before
        (400, "month", "2026-01-01", "2027-02-01"),
        (2_000, "quarter", "2026-01-01", "2031-04-01"),
        (5_000, "year", "2026-01-01", "2039-01-01"),
    ],
)
def test_time_is_cut_as_fits_its_span(days: int, unit: str, first: str, last: str) -> None:
    span = np.datetime64("2026-01-01") + np.arange(days)
    found, starts = calendar(span)
    assert (found, str(starts[0]), str(starts[-1])) == (unit, first, last)


def test_sources_are_pairs_whichever_was_a(project: Project) -> None:
    made = crowd_write(project, [["a", "a"]] * 24)
    for number, comparison in enumerate(made):
        names = ("small", "large") if number % 2 else ("large", "small")
        sides = zip((comparison.response_a_id, comparison.response_b_id), names, strict=True)
        for key, name in sides:
            Response.objects.filter(pk=key).update(origin="model", origin_ref=name)
    (row,) = dimension(project, "source")
    assert (row["label"], row["n_items"]) == ("large and small", 24)


def test_the_page_tells_what_annotators_wrote_about_ambiguous_prompts(
    project: Project, rita, signed_in
) -> None:
    split, _ = crowd_write(project, [["a", "b"], ["a", "a"]])
    Decision.objects.create(
        comparison=split, project=project, outcome="needs_votes", n_a=1, n_b=1, share=0.5
    )
    votes_changed(
        Vote.objects.filter(project=project, choice="b"),
        rationale="Both are <fine>.",
        flags=["prompt_unclear"],
    )
    Prompt.objects.filter(project=project).update(messages=[{"role": "user", "content": "Why?"}])
    reports.report_refresh(project=project)
    page = signed_in(rita).get(reverse("agreement:slices", args=[project.slug])).content.decode()
    assert "Both are &lt;fine&gt;." in page
    assert "prompt unclear" in page
    assert "crowd-" not in page  # no word of who wrote it


def test_one_vote_has_pages_that_say_what_is_missing(project: Project, ada, signed_in) -> None:
    crowd_write(project, [["a"]])
    Prompt.objects.filter(project=project).update(messages=[{"role": "user", "content": "Why?"}])
    reports.report_refresh(project=project)
    client = signed_in(ada)
    for name, words in (
        ("overview", "no comparison has two votes"),
        ("slices", "There is nothing to compare yet"),
        ("matrix", "No two people have a comparison in common"),
    ):
        page = client.get(reverse(f"agreement:{name}", args=[project.slug]))
        assert words in page.content.decode(), name
