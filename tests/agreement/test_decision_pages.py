"""The decisions page shows what a rule would do before it does it, and admins apply it."""

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.agreement.selectors.decisions import rule_preview
from apps.agreement.services.consensus import consensus_compare
from apps.labeling.models import Decision, LabelingSettings
from apps.labeling.services.redeciding import policy_of
from tests.agreement.large_crowd import crowd_write, people_write, spammed_votes

URL = "/p/arguments/agreement/decisions/"
RULE = {
    "decide_by": "votes",
    "least_votes": "3",
    "least_agreeing": "3",
    "least_share": "0.6",
    "least_posterior": "0.9",
    "max_overlap": "5",
}


@pytest.fixture
def five_votes(project: Project) -> Project:
    """4 pairs with 5–0, 4–1, 3–2 and 2–2–1; the first and the third have gold A and B."""
    people = people_write(project, 5)
    columns = ([0, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [0, 0, 1, 1, 2])
    votes = [
        (item, person, c) for item, cast in enumerate(columns) for person, c in enumerate(cast)
    ]
    crowd_write(project, people, votes, golds=[0, -1, 1, -1])
    LabelingSettings.objects.create(project=project)
    return project


def test_a_preview_counts_what_a_rule_keeps_and_what_would_change(five_votes: Project) -> None:
    policy = policy_of(project=five_votes)
    shown = rule_preview(project=five_votes, policy=policy)
    assert (shown.n, shown.kept, shown.accepted_now) == (4, 3, 3)
    assert (shown.newly_accepted, shown.taken_back, shown.flipped) == (0, 0, 0)
    assert shown.chance == 1.0  # five flips always hold three that agree
    assert shown.gold is not None
    assert (shown.gold.value, shown.gold.n) == (0.5, 2)  # right on the first, wrong on the third
    from dataclasses import replace

    stricter = rule_preview(project=five_votes, policy=replace(policy, least_share=0.7))
    assert (stricter.kept, stricter.taken_back) == (2, 1)
    # 5–0 or 4–1 among 32 outcomes: 2 · (1 + 5) / 32
    assert stricter.chance == pytest.approx(0.375)
    assert stricter.gold is not None
    assert (stricter.gold.value, stricter.gold.n) == (1.0, 1)


def test_the_page_warns_of_a_rule_that_filters_nothing(
    five_votes: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    html = signed_in(ada).get(URL).content.decode()
    assert '<span class="badge bad">100.0 %</span>' in html
    assert "Apply rule" in html
    stricter = signed_in(ada).get(URL, RULE | {"least_share": "0.7"}).content.decode()
    assert "37.5 %" in stricter
    assert "1 no longer accepted" in stricter


def test_looking_gives_the_rule_an_address_without_the_token(
    five_votes: Project, emil: User, signed_in: Callable[[User], Client]
) -> None:
    sent = RULE | {"action": "look", "csrfmiddlewaretoken": "secret"}
    address = signed_in(emil).post(URL + "apply/", sent).headers["Location"]
    assert address.startswith(f"{URL}?decide_by=votes")
    assert "secret" not in address
    assert "Apply rule" not in signed_in(emil).get(address).content.decode()


def test_only_admins_apply_a_rule(
    five_votes: Project, emil: User, ada: User, signed_in: Callable[[User], Client]
) -> None:
    sent = RULE | {"action": "apply", "least_share": "0.7"}
    assert signed_in(emil).post(URL + "apply/", sent).status_code == 403
    assert LabelingSettings.objects.get().least_share == 0.6
    page = signed_in(ada).post(URL + "apply/", sent, follow=True).content.decode()
    assert "2 comparisons accepted, 3 before" in page
    assert Decision.objects.filter(outcome="accepted").count() == 2


def test_errors_stand_at_their_field_and_nothing_changes(
    five_votes: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(ada)
    answer = browser.post(URL + "apply/", RULE | {"action": "apply", "max_overlap": "2"})
    assert answer.status_code == 422
    assert "Maximum votes (" in answer.content.decode()
    few = browser.post(URL + "apply/", RULE | {"action": "apply", "decide_by": "mace"})
    assert few.status_code == 422
    assert "needs 500 votes; there are 20" in few.content.decode()
    for bad in ({"least_share": "x"}, {"least_votes": "9" * 30}, {"decide_by": "oracle"}):
        assert browser.get(URL, RULE | bad).status_code == 200
        assert "note bad" in browser.get(URL + "preview/", RULE | bad).content.decode()
    # where a model has no posterior yet, votes are counted: that must work as well
    bad = {"decide_by": "one_coin", "least_agreeing": "8", "max_overlap": "5"}
    assert "Maximum votes (5) is below" in browser.get(URL, RULE | bad).content.decode()
    assert Decision.objects.filter(outcome="accepted").count() == 3


def test_the_ways_are_compared_on_the_page_and_as_csv(
    project: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    votes, truth = spammed_votes(
        n_items=130, n_people=10, per_item=5, spammers=3, accuracy=0.85, seed=5
    )
    crowd_write(project, people_write(project, 10), votes, golds=truth)
    LabelingSettings.objects.create(project=project)
    browser = signed_in(ada)
    assert "Not compared yet" in browser.get(URL).content.decode()
    consensus_compare(project=project)
    html = browser.get(URL).content.decode()
    for words in ("Counted votes", "One-coin Dawid–Skene", "MACE", "current", "130 comparisons"):
        assert words in html
    assert html.count("<circle") > 20  # the reliability diagrams
    rows = b"".join(browser.get("/p/arguments/agreement/decisions.csv")).decode().splitlines()
    assert len(rows) == 5
    shown = rule_preview_of_model(project)
    assert 0 < shown.kept < 130
    assert 0 < (shown.chance or 0) < 0.7


def rule_preview_of_model(project: Project):
    from dataclasses import replace

    return rule_preview(
        project=project, policy=replace(policy_of(project=project), decide_by="mace")
    )


def test_a_project_without_votes_says_so(
    project: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    html = signed_in(ada).get(URL).content.decode()
    assert "No comparison has votes yet" in html
    html = signed_in(ada).get(URL + "preview/", RULE | {"decide_by": "mace"}).content.decode()
    assert "No comparison has votes yet" in html
    answer = signed_in(ada).post(URL + "compare/", follow=True)
    assert "There are no votes yet" in answer.content.decode()


def test_a_program_previews_a_rule_and_applies_it(
    five_votes: Project, ada: User, emil: User, signed_in: Callable[[User], Client]
) -> None:
    url = "/api/v1/projects/arguments/decisions/"
    program = signed_in(emil)
    shown = program.post(url + "preview", {"least_share": 0.7}, "application/json").json()
    assert (shown["outcomes"]["accepted"], shown["taken_back"]) == (2, 1)
    assert shown["gold"]["value"] == 1.0
    bad = program.post(url + "preview", {"max_overlap": 1}, "application/json")
    assert (bad.status_code, bad.json()["field"]) == (400, "max_votes")
    for beyond in ({"max_overlap": 10**30}, {"least_share": 5e-324}, {"least_posterior": 0.4}):
        bad = program.post(url + "preview", beyond, "application/json")
        assert (bad.status_code, bad.json()["field"]) == (400, *beyond)
    refused = program.post(url + "rule", {"least_share": 0.7}, "application/json")
    assert refused.status_code == 403
    done = signed_in(ada).post(url + "rule", {"least_share": 0.7}, "application/json").json()
    assert (done["before"]["accepted"], done["after"]["accepted"]) == (3, 2)
    few = signed_in(ada).post(url + "rule", {"decide_by": "mace"}, "application/json")
    assert (few.status_code, few.json()["code"]) == (409, "too_few_votes")
    assert program.get(url + "ways").status_code == 404
    ways = program.post(url + "ways", {}, "application/json").json()
    assert [way["method"] for way in ways["ways"]] == ["votes", "one_coin", "dawid_skene", "mace"]
    assert ways["proposed"] == ""
    assert ways["fit"]["n_votes"] == 20
