"""Ten prompts that annotators flip coins on are the ten the page lists first."""

import random
from collections.abc import Callable

from django.test import Client

from apps.accounts.models import Project, User
from apps.labeling import services
from apps.labeling.models import Comparison, Decision, Prompt, Skip
from apps.labeling.selectors.ambiguity import prompt_details, ranking
from tests.labeling.pairs import pairs_make, vote

SignIn = Callable[[User], Client]
PATH = "/p/arguments/comparisons/ambiguous/"


def crowd_make(project: Project, flips: int, clear: int, pairs: int, votes: int) -> None:
    """Prompts with `pairs` pairs each; on the first `flips` of them annotators flip coins.

    Elsewhere nine of ten votes are for A. Topics: "coin" and "clear".
    """
    draw = random.Random(7)
    numbered = range(flips + clear)
    services.comparisons_import(
        project=project,
        rows=[
            {
                "id": f"{prompt}-{pair}",
                "prompt": f"Prompt {prompt}",
                "response_a": f"A of {prompt}-{pair}",
                "response_b": f"B of {prompt}-{pair}",
                "topic": "coin" if prompt < flips else "clear",
            }
            for prompt in numbered
            for pair in range(pairs)
        ],
    )
    Decision.objects.bulk_create(
        _decision(comparison, votes, draw)
        for comparison in Comparison.objects.select_related("prompt").order_by("id")
    )


def _decision(comparison: Comparison, votes: int, draw: random.Random) -> Decision:
    chance = 0.5 if comparison.prompt.topic == "coin" else 0.9
    n_a = sum(draw.random() < chance for _ in range(votes))
    return Decision(
        comparison=comparison,
        project_id=comparison.project_id,
        outcome=Decision.Outcome.ACCEPTED,
        n_a=n_a,
        n_b=votes - n_a,
        share=max(n_a, votes - n_a) / votes,
    )


def test_ten_coin_flip_prompts_fill_the_ten_most_ambiguous(project: Project) -> None:
    crowd_make(project, flips=10, clear=60, pairs=10, votes=5)
    listed = [row.key for row in ranking(project=project).rows[:10]]
    topics = Prompt.objects.filter(pk__in=listed).values_list("topic", flat=True)
    assert list(topics).count("coin") >= 9
    by_topic = ranking(project=project, by="topic").rows
    assert [row.key for row in by_topic] == ["coin", "clear"]
    assert by_topic[0].low < 0.5 < by_topic[0].high
    assert by_topic[1].low < 0.18 < by_topic[1].high  # 2 · 0.9 · 0.1


def test_real_votes_are_what_is_ranked(project: Project, ana: User, ben: User) -> None:
    split, agreed, single = pairs_make(project, 3)
    for person, choices in ((ana, "ab"), (ben, "bb")):
        for comparison, choice in zip((split, agreed), choices, strict=True):
            slot = services.slot_lease_for(comparison=comparison, annotator=person)
            services.vote_cast(
                slot=slot,
                annotator=person,
                idempotency_key=f"k{comparison.pk}",
                choice=choice,
                lease_next=False,
            )
    rows = ranking(project=project).rows
    assert [row.key for row in rows] == [split.prompt_id, agreed.prompt_id]
    assert [(row.observed, row.n_votes, row.n_pairs) for row in rows] == [(1.0, 2, 1), (0.0, 2, 1)]
    assert single.prompt_id not in [row.key for row in rows]


def test_dropped_pairs_and_other_projects_are_left_out(project: Project, ada: User) -> None:
    crowd_make(project, flips=1, clear=0, pairs=2, votes=4)
    services.comparison_drop(comparison=Comparison.objects.earliest("id"), by=ada)
    assert ranking(project=project).rows[0].n_pairs == 1
    elsewhere = Project.objects.create(slug="second", name="Second")
    assert ranking(project=elsewhere).rows == []


def test_only_the_most_split_pairs_of_a_long_prompt_are_linked(project: Project) -> None:
    crowd_make(project, flips=1, clear=0, pairs=9, votes=5)
    (prompt,) = Prompt.objects.all()
    shown = prompt_details(prompts=[prompt.pk])[prompt.pk].pairs
    shares = sorted(Decision.objects.values_list("share", flat=True))
    assert [decision.share for decision in shown] == shares[:6]


def test_complaints_about_a_prompt_are_counted(project: Project, ana: User, ben: User) -> None:
    (pair,) = pairs_make(project, 1)
    vote(project, ana, flags=["prompt_unclear"])
    Skip.objects.create(project=project, task=pair, annotator=ben, reason="Prompt is unclear")
    details = prompt_details(prompts=[pair.prompt_id])[pair.prompt_id]
    assert (details.n_flagged, details.n_skipped) == (1, 1)


def test_the_page_lists_links_and_filters(
    project: Project, rita: User, signed_in: SignIn, django_assert_max_num_queries
) -> None:
    crowd_make(project, flips=2, clear=3, pairs=3, votes=5)
    browser = signed_in(rita)
    page = browser.get(PATH)
    assert page.context["page"].paginator.count == 5
    first = Comparison.objects.get(external_id="0-0")
    assert f'href="/p/arguments/comparisons/{first.pk}/"' in page.content.decode()
    only = browser.get(f"{PATH}?topic=coin").content.decode()
    assert "Prompt 0" in only
    assert "Prompt 4" not in only
    assert 'data-empty="funnel"' in browser.get(f"{PATH}?q=zebra").content.decode()
    assert "topic=coin" in browser.get(f"{PATH}?by=topic").content.decode()
    with django_assert_max_num_queries(15):  # three of them ask what the menu has
        browser.get(PATH)


def test_an_empty_project_says_what_is_missing(
    project: Project, rita: User, signed_in: SignIn
) -> None:
    assert 'data-empty="scale"' in signed_in(rita).get(PATH).content.decode()
