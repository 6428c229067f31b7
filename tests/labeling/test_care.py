"""What may upset people is covered, can be left out, and is dealt out in measure."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.labeling import selectors, services
from apps.labeling.models import Annotator, Comparison, LabelingSettings
from apps.labeling.services import Lease, NothingReason, comparisons_settle
from tests.labeling.pairs import annotators_make, leased, vote

SignIn = Callable[[User], Client]


def grim_make(project: Project, n_grim: int = 2, n_mild: int = 2, **settings: Any) -> None:
    """Pairs with a warning (half by the column, half by their topic) and pairs without."""
    LabelingSettings.objects.update_or_create(
        project=project, defaults={"random_share": 1.0, "sensitive_topics": ["war"]} | settings
    )
    rows = [
        {"id": f"grim-{n}", "topic": "war"} if n % 2 else {"id": f"grim-{n}", "warning": "violence"}
        for n in range(n_grim)
    ] + [{"id": f"mild-{n}", "topic": "tea"} for n in range(n_mild)]
    texts = {"response_a": "Yes.", "response_b": "No."}
    services.comparisons_import(
        project=project, rows=[row | texts | {"prompt": f"Is it {row['id']}?"} for row in rows]
    )


def all_for(project: Project, person: User) -> list[str]:
    """The ids of everything this person gets, answering A."""
    got = []
    while isinstance(lease := services.slot_lease_next(project=project, annotator=person), Lease):
        got.append(Comparison.objects.get(pk=lease.comparison).external_id)
        services.vote_cast(slot=lease.slot, annotator=person, idempotency_key=lease.key, choice="a")
    return sorted(got)


@pytest.mark.parametrize(
    ("row", "warning"),
    [
        ({"warning": "blood"}, "blood"),
        ({"metadata": {"content_warning": " self-harm "}}, "self-harm"),
        ({"metadata": {"Unsafe": True}}, "unsafe content"),
        ({"metadata": {"nsfw": "yes"}}, "nsfw content"),
        ({"metadata": {"unsafe": False, "sensitive": "no"}}, ""),
        ({"metadata": {"note": "unsafe"}}, ""),
    ],
)
def test_a_warning_comes_with_the_row(project: Project, row: dict[str, Any], warning: str) -> None:
    texts = {"prompt": "Which?", "response_a": "This.", "response_b": "That."}
    services.comparisons_import(project=project, rows=[texts | row])
    assert Comparison.objects.get().warning == warning


def test_a_lease_carries_the_warning_of_pair_or_topic(project: Project) -> None:
    grim_make(project)
    (ana,) = annotators_make(project, 1)
    warnings = {}
    for _ in range(4):
        lease = leased(project, ana)
        warnings[Comparison.objects.get(pk=lease.comparison).external_id] = lease.warning
        services.slot_skip(slot=lease.slot, annotator=ana)
    assert warnings == {"grim-0": "violence", "grim-1": "war", "mild-0": "", "mild-1": ""}


def test_a_pair_somebody_flags_as_unsafe_carries_a_warning_while_the_flag_stands(
    project: Project,
) -> None:
    grim_make(project, n_grim=0, n_mild=1)
    (ana,) = annotators_make(project, 1)
    cast = vote(project, ana, flags=["unsafe"]).vote
    assert Comparison.objects.get().warning == "Unsafe content"
    services.vote_revise(
        vote=cast.pk, annotator=ana, idempotency_key="again", choice="b", flags=["unsafe"]
    )
    assert Comparison.objects.get().warning == "Unsafe content"
    current = cast.comparison.votes.get(is_current=True)
    services.vote_revise(vote=current.pk, annotator=ana, idempotency_key="third", choice="b")
    assert Comparison.objects.get().warning == ""


@pytest.mark.parametrize(
    ("topics", "sensitive", "got"),
    [
        ([], True, ["mild-0", "mild-1"]),
        (["war"], False, ["grim-0", "mild-0", "mild-1"]),
        (["tea"], True, []),
        ([], False, ["grim-0", "grim-1", "mild-0", "mild-1"]),
    ],
)
def test_nobody_gets_what_they_chose_not_to(
    project: Project, topics: list[str], sensitive: bool, got: list[str]
) -> None:
    grim_make(project)
    ana, ben = annotators_make(project, 2)
    services.annotator_opt_out(
        project=project, user=ana, avoids_topics=topics, avoids_sensitive=sensitive
    )
    assert selectors.remaining_for(project=project, annotator=ana, n_today=0) == len(got)
    status = services.labeling_status(project=project, annotator=ana)
    assert (status.nothing is None) == bool(got)
    assert all_for(project, ana) == got
    assert len(all_for(project, ben)) == 4  # others get them


@pytest.mark.parametrize("stream", ["gold", "repeat"])
def test_streams_of_their_own_spare_people_too(project: Project, stream: str) -> None:
    grim_make(project, n_grim=1, n_mild=0, **{f"{stream}_share": 0.5})
    (ana,) = annotators_make(project, 1)
    if stream == "gold":
        Comparison.objects.update(stratum="gold", gold="a")
    else:
        vote(project, ana)
    services.annotator_opt_out(project=project, user=ana, avoids_topics=[], avoids_sensitive=True)
    for _ in range(20):  # the draw between the streams is random
        got = services.slot_lease_next(project=project, annotator=ana)
        assert isinstance(got, NothingReason)


def test_the_cap_of_the_day_counts_what_was_handed_out(project: Project) -> None:
    grim_make(project, n_grim=6, n_mild=2, sensitive_cap=2)
    ana, ben = annotators_make(project, 2)
    got = all_for(project, ana)
    assert [name for name in got if name.startswith("mild")] == ["mild-0", "mild-1"]
    assert len(got) == 4
    assert Annotator.objects.get(user=ana).sensitive_of_day == 2
    nothing = services.slot_lease_next(project=project, annotator=ana)
    assert isinstance(nothing, NothingReason)
    assert nothing.code == "yours_done"
    assert "2 pairs with a warning" in nothing.text
    assert len(all_for(project, ben)) == 4  # each their own
    Annotator.objects.filter(user=ana).update(sensitive_day="2020-01-01")  # another day
    assert len(all_for(project, ana)) == 2


def test_skipping_and_reloading_count_once(project: Project) -> None:
    grim_make(project, n_grim=4, n_mild=0, sensitive_cap=2)
    (ana,) = annotators_make(project, 1)
    first = leased(project, ana)
    assert leased(project, ana).slot == first.slot
    assert Annotator.objects.get(user=ana).sensitive_of_day == 1
    second = services.slot_skip(slot=first.slot, annotator=ana)
    assert isinstance(second, Lease)
    assert isinstance(services.slot_skip(slot=second.slot, annotator=ana), NothingReason)


def test_who_leaves_a_pair_out_is_nobody_left_for_it(project: Project) -> None:
    grim_make(project, n_grim=1, n_mild=0)
    ana, ben = annotators_make(project, 2)
    vote(project, ana)
    services.annotator_opt_out(project=project, user=ben, avoids_topics=[], avoids_sensitive=True)
    pair = Comparison.objects.get()
    assert comparisons_settle(project=project).contested == [pair.pk]
    services.annotator_opt_out(project=project, user=ben, avoids_topics=[], avoids_sensitive=False)
    assert comparisons_settle(project=project).reopened == [pair.pk]


def test_people_choose_on_a_page_and_by_api(
    project: Project, ana: User, emil: User, signed_in: SignIn
) -> None:
    grim_make(project)
    client, page = signed_in(ana), "/p/arguments/opt-outs/"
    assert client.get(page).status_code == 200
    sent = {"avoids_sensitive": "on", "avoids_topics": ["war"]}
    assert client.post(page, sent).status_code == 302
    api = "/api/v1/projects/arguments/opt-outs"
    assert client.get(api).json() == {"avoids_sensitive": True, "avoids_topics": ["war"]}
    bad = client.put(api, {"avoids_topics": ["peace"]}, content_type="application/json")
    assert (bad.status_code, bad.json()["field"]) == (400, "avoids_topics")
    assert client.put(api, {}, content_type="application/json").json()["avoids_topics"] == []
    assert client.post(page, {"avoids_topics": ["peace"]}).status_code == 200
    assert signed_in(emil).get(page).status_code == 403


def test_the_screen_covers_a_pair_with_a_warning(
    project: Project, ana: User, signed_in: SignIn
) -> None:
    grim_make(project, n_grim=1, n_mild=0)
    page = signed_in(ana).get("/p/arguments/label/").content.decode()
    assert 'data-cover="violence"' in page
    answer = signed_in(ana).post("/api/v1/projects/arguments/next")
    assert answer.json()["pair"]["warning"] == "violence"
