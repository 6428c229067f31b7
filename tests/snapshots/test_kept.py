"""A freeze keeps what people did: who is held out by default, and what each setting costs."""

import datetime as dt
import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Prompt, Response, Slot, Vote
from apps.snapshots import dispatch
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import HELD_OUT_SHARE
from apps.snapshots.selectors import snapshots
from apps.snapshots.services import freezing
from measures.splits import fold_of

pytestmark = pytest.mark.django_db
AT = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def no_worker(monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "freeze_send", lambda pk: True)


def voted(project: Project, people: list[User], n: int, votes: int) -> None:
    """`n` pairs with so many votes each, all for A, the people taking turns."""
    prompts = Prompt.objects.bulk_create(
        Prompt(
            project=project,
            messages=[{"role": "user", "content": f"Question {k}: {'what now ' * k}?"}],
            text_hash=f"prompt-{k}",
            group_key=f"group-{k}",
        )
        for k in range(n)
    )
    said = Response.objects.bulk_create(
        Response(
            prompt=prompt,
            messages=[{"role": "assistant", "content": f"{side} of {k}: {side * (k + 1)}"}],
            text_hash=f"{side}-{k}",
        )
        for k, prompt in enumerate(prompts)
        for side in "ab"
    )
    pairs = Comparison.objects.bulk_create(
        Comparison(
            project=project,
            prompt=prompt,
            response_a=said[2 * k],
            response_b=said[2 * k + 1],
            n_votes=votes,
            overlap=votes,
        )
        for k, prompt in enumerate(prompts)
    )
    slots = Slot.objects.bulk_create(
        Slot(
            project=project,
            task=pair,
            position=k + 1,
            state="done",
            annotator=people[(row + k) % len(people)],
        )
        for row, pair in enumerate(pairs)
        for k in range(votes)
    )
    Vote.objects.bulk_create(
        Vote(
            project=project,
            comparison_id=slot.task_id,
            slot=slot,
            annotator=slot.annotator,
            choice="a",
            chosen=slot.task.response_a,
            idempotency_key=f"{slot.pk}",
            source="page",
            cast_at=AT,
        )
        for slot in slots
    )


def people_make(n: int, *, imported: int = 0) -> list[User]:
    return User.objects.bulk_create(
        [
            *(User(username=f"person-{k}", password="!") for k in range(n)),
            *(
                User(username=f"imported.x.w{k}", is_imported=True, is_active=False, password="!")
                for k in range(imported)
            ),
        ]
    )


@pytest.fixture
def small_team(project: Project) -> Project:
    """221 decided pairs, five people and two of an import, three votes each."""
    voted(project, people_make(5, imported=2), 221, 3)
    return project


@pytest.fixture
def emils(emil: User, signed_in: Callable[[User], Client]) -> Client:
    return signed_in(emil)


def create(project: Project) -> str:
    return reverse("snapshots:create", args=[project.slug])


def test_the_default_freeze_of_a_small_team_keeps_its_pairs(
    small_team: Project, emils: Client
) -> None:
    shown = emils.get(create(small_team)).context["form"]
    sent = {
        field.html_name: field.value() for field in shown if field.value() not in (None, "", [])
    }
    page = emils.post(create(small_team), sent | {"name": "by form", "action": "freeze"})
    by_form = Snapshot.objects.get(name="by form")
    assert page.status_code == 302
    assert freezing.snapshot_run(snapshot=by_form.pk) == "frozen"
    draft = emils.post(
        f"/api/v1/projects/{small_team.slug}/snapshots",
        {"name": "by program"},
        content_type="application/json",
    ).json()
    assert freezing.snapshot_run(snapshot=draft["id"]) == "frozen"
    by_program = Snapshot.objects.get(pk=draft["id"])
    by_form.refresh_from_db()
    assert by_form.recipe == by_program.recipe
    for counts in (by_form.counts, by_program.counts):
        assert sum(counts["rows"].values()) >= 215
    told = emils.get(reverse("snapshots:detail", args=[small_team.slug, by_form.pk]))
    assert "Nobody is held out" in told.content.decode()
    assert "can claim to predict people it has not seen" in told.content.decode()


def test_a_hold_out_that_loses_nearly_all_says_so_beside_its_field_with_the_way_out(
    small_team: Project, emils: Client
) -> None:
    whole = emils.post(create(small_team), {"heldout_annotators": 50, "action": "preview"})
    (line,) = whole.context["form"].losses
    seven = [
        f"user:{pk}"
        for pk in User.objects.filter(username__startswith="person-").values_list("pk", flat=True)
    ] + ["import:w0", "import:w1"]
    held = sum(fold_of(key, 0.5, "concord") for key in seven)
    assert held > 1
    assert line.words.startswith(f"Holding out {held} people loses ")
    assert line.words.endswith(" of 221 pairs.")
    text = whole.content.decode()
    assert "<details open><summary>Advanced" in text
    beside = text.split('id="loss-heldout_annotators"')[1].split("</div></div>")[0]
    assert "note bad" in beside
    assert "Hold out nobody" in beside

    part = emils.post(
        create(small_team),
        {"heldout_annotators": 50, "action": "preview"},
        headers={"HX-Request": "true"},
    ).content.decode()
    updated = re.findall(r'id="(loss-\w+)" hx-swap-oob="true"', part)
    assert "loss-heldout_annotators" in updated
    assert set(updated) == set(re.findall(r'id="(loss-\w+)"', text))  # none without a place

    out = emils.post(create(small_team), {"heldout_annotators": 50, "relax": "heldout_annotators"})
    assert out.context["form"]["heldout_annotators"].value() == "0"
    assert out.context["form"].losses == []
    assert out.context["preview"]["tiles"][0].value == "221"


def test_every_setting_is_weighed_by_itself(small_team: Project, emils: Client) -> None:
    sent = {"least_votes": 4, "least_agreeing": 3, "groups": ["group-1"], "ties": "soft"}
    page = emils.post(create(small_team), sent | {"action": "preview"})
    assert [
        (line.field, line.words.partition(" loses ")[2]) for line in page.context["form"].losses
    ] == [
        ("least_votes", "221 of 221 pairs."),
        ("groups", "220 of 221 pairs."),
    ]
    told = emils.post(
        f"/api/v1/projects/{small_team.slug}/snapshots/preview",
        {"recipe": {"least_votes": 4}},
        content_type="application/json",
    ).json()
    assert told["losses"] == [{"name": "least_votes", "lost": 221, "decided": 221}]
    once = emils.post(create(small_team), sent | {"relax": "least_votes"})
    assert [line.field for line in once.context["form"].losses] == ["groups"]


def test_a_setting_that_loses_little_is_not_said(small_team: Project, emils: Client) -> None:
    page = emils.post(create(small_team), {"heldout_groups": ["group-1"], "action": "preview"})
    assert page.context["form"].losses == []
    assert "<details><summary>Advanced" in page.content.decode()


@pytest.mark.parametrize(
    ("n_people", "votes", "share"),
    [
        (30, 9, HELD_OUT_SHARE),  # nine votes: nearly every pair stays decided without a fifth
        (19, 9, 0.0),  # too few people
        (30, 3, 0.0),  # three votes: every pair with one of theirs is lost
    ],
)
def test_people_are_held_out_by_default_only_where_it_costs_little(
    project: Project, n_people: int, votes: int, share: float
) -> None:
    voted(project, people_make(n_people), 60, votes)
    assert snapshots.recipe_default(project=project).heldout_annotators == share


def test_nobody_is_held_out_by_default_where_votes_name_nobody(project: Project) -> None:
    people = people_make(30, imported=1)
    User.objects.filter(username="imported.x.w0").update(username="imported.x.unknown")
    voted(project, people, 60, 9)
    assert snapshots.recipe_default(project=project).heldout_annotators == 0
