"""Two systems compared by people: from the pairs to the verdict, and who may see what."""

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Notice, Project, Role, User
from apps.accounts.services import project_archive, project_delete
from apps.common.errors import Conflict, DomainError
from apps.evaluation.forms.head_to_head import rows_of_file
from apps.evaluation.models import HeadToHead, Look
from apps.evaluation.selectors.head_to_head import (
    evaluations,
    model_votes_of,
    overdue,
    people_rates,
    progress_of,
    result_now,
    votes_of,
)
from apps.evaluation.services.head_to_head import (
    Asked,
    head_to_head_end,
    head_to_head_look,
    head_to_head_open,
    head_to_head_share,
    head_to_heads_look,
)
from apps.evaluation.services.ranking import run_uses
from apps.labeling.models import Comparison, LabelingSettings, Slot, Task, Vote
from apps.labeling.services import Lease, slot_lease_next, slot_skip, vote_cast
from apps.monitoring.models import Incident
from apps.snapshots.selectors.snapshots import recipe_default
from apps.snapshots.services.freezing import snapshot_preview
from apps.training.models import Run
from measures.head_to_head import Stopping, Verdict
from tests.evaluation.outputs import assessment_make, checkpoint_make, output
from tests.evaluation.test_protocols import FIRST, WARMER
from tests.labeling.pairs import annotators_make
from tests.people import person_make
from workers.contract.protocol import Protocol

GOOD, POOR = "A full answer", "A poor answer"


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


def rows(n: int = 60) -> list[dict[str, Any]]:
    return [
        {
            "prompt": f"Question {k}: how long is a day?",
            "response_a": f"{GOOD} to {k}.",
            "response_b": f"{POOR} to {k}.",
        }
        for k in range(n)
    ]


def asked(**plan: Any) -> Asked:
    names = {"name": "Tuned or not", "first_name": "Tuned", "second_name": "Base"}
    return Asked(**{"people": 5, **names, **plan})


@pytest.fixture
def emil(project: Project) -> User:
    return person_make("emil", project, Role.ENGINEER)


def opened(project: Project, user: User, n: int = 60, **plan: Any) -> HeadToHead:
    return head_to_head_open(project=project, user=user, asked=asked(**plan), rows=rows(n))


def cast_by(project: Project, person: User, prefers: str, *, at_most: int = 1) -> int:
    """The person answers what comes, the answer that begins with `prefers` (or "tie")."""
    for n in range(at_most):
        lease = slot_lease_next(project=project, annotator=person)
        if not isinstance(lease, Lease):
            return n
        side = "left" if lease.left[-1]["content"].startswith(prefers) else "right"
        vote_cast(
            slot=lease.slot,
            annotator=person,
            idempotency_key=lease.key,
            lease_next=False,
            **({"choice": "tie"} if prefers == "tie" else {"side": side}),
        )
    return at_most


def test_people_decide_it_and_it_ends_by_itself(project: Project, emil: User) -> None:
    found = opened(project, emil, 200, people=10)
    people = annotators_make(project, 10)
    for turn in range(30):
        for person in people:
            cast_by(project, person, POOR if turn % 10 == 9 else GOOD)
        if head_to_heads_look() and HeadToHead.objects.get().ended_at:
            break
    found.refresh_from_db()
    assert found.ended_at is not None
    assert found.ended_by is None
    assert found.verdict == Verdict.BETTER
    result = result_now(found)
    assert result.n < 200  # it did not need all of them
    assert result.estimate is not None
    assert result.estimate.low is not None
    assert result.estimate.low > 0.5
    assert Slot.objects.filter(state="free").count() == 0
    assert not isinstance(slot_lease_next(project=project, annotator=people[0]), Lease)
    assert AuditEvent.objects.filter(action="head_to_head.ended", actor=None).count() == 1
    assert Notice.objects.filter(kind="head_to_head.ended").count() == 1
    assert head_to_heads_look() == 0


def test_a_system_that_people_like_less_is_an_alarm(project: Project, emil: User) -> None:
    found = opened(project, emil, 100, people=10)
    for person in annotators_make(project, 10):
        cast_by(project, person, POOR, at_most=10)
    head_to_heads_look()
    found.refresh_from_db()
    assert found.verdict == Verdict.WORSE  # nobody prefers it once
    second = opened(project, emil, 100, people=10, name="Again")
    for n, person in enumerate(User.objects.filter(username__startswith="annotator-")):
        cast_by(project, person, POOR, at_most=9)
        cast_by(project, person, GOOD if n % 3 else POOR)
    head_to_heads_look()
    second.refresh_from_db()
    assert second.verdict == Verdict.WORSE
    incident = Incident.objects.get()  # the second joined the first
    assert (incident.rule, incident.severity, incident.alerts) == (
        *("people_prefer_other", "critical"),
        2,
    )
    assert "People prefer Base to Tuned" in incident.title


def test_its_votes_are_in_no_dataset_and_no_decision(project: Project, emil: User) -> None:
    opened(project, emil, 30)
    for person in annotators_make(project, 5):
        cast_by(project, person, GOOD, at_most=9)
    assert Task.objects.filter(kind="blind").count() == 30
    assert not Comparison.objects.filter(project=project).exists()
    assert not Vote.objects.filter(project=project).exists()
    preview = snapshot_preview(project=project, recipe=recipe_default(project=project))
    assert not sum(preview.lines.values())


def test_every_look_is_kept_once_a_person_and_number_of_votes(
    project: Project, emil: User, client: Client
) -> None:
    found = opened(project, emil)
    rita = person_make("rita", project, Role.REVIEWER)
    ana, ben = annotators_make(project, 2)
    cast_by(project, ana, GOOD, at_most=3)
    page = reverse("evaluation:head_to_head", args=[project.slug, found.pk])
    for person in (emil, emil, rita):
        client.force_login(person)
        assert client.get(page).status_code == 200
    cast_by(project, ben, GOOD)
    client.get(page)
    looks = list(Look.objects.values_list("by__username", "n_votes"))
    assert looks == [("emil", 3), ("rita", 3), ("rita", 4)]


def test_what_is_told_at_the_end_is_told_to_nobody_before(
    project: Project, emil: User, client: Client
) -> None:
    found = opened(project, emil, 24, stopping=Stopping.AT_THE_END)
    client.force_login(emil)
    page = reverse("evaluation:head_to_head", args=[project.slug, found.pk])
    people = annotators_make(project, 5)
    for n, person in enumerate(people):
        cast_by(project, person, GOOD, at_most=4)
        cast_by(project, person, POOR if n % 2 else GOOD)
        if n == 3:
            text = client.get(page).content.decode()
            assert "told once" in text
            assert "%" not in text.split('id="head-to-head"')[1].split("What was fixed")[0]
            api = client.get(f"/api/v1/projects/{project.slug}/head-to-heads/{found.pk}").json()
            assert (api["value"], api["outcomes"]) == (None, None)
            assert not Look.objects.exists()
    for person in people:
        cast_by(project, person, GOOD, at_most=9)
    client.get(page)
    found.refresh_from_db()
    assert found.verdict == Verdict.BETTER


def test_the_page_says_what_to_do_next(project: Project, emil: User, client: Client) -> None:
    found = opened(project, emil)
    client.force_login(emil)
    page = reverse("evaluation:head_to_head", args=[project.slug, found.pk])
    assert "No votes yet" in client.get(page).content.decode()
    people = annotators_make(project, 5)
    for person in people[:3]:
        cast_by(project, person, GOOD, at_most=8)
    text = client.get(page).content.decode()
    assert "Too few people: 3 of at least 5" in text
    assert "Invite 2 or more" in text
    for person in people[3:]:
        cast_by(project, person, POOR, at_most=8)
    lease = slot_lease_next(project=project, annotator=people[4])
    assert isinstance(lease, Lease)
    slot_skip(slot=lease.slot, annotator=people[4])
    text = client.get(page).content.decode()
    assert "Undecided so far" in text
    assert "Ask more people" in text
    progress = progress_of(found)
    assert progress.n_skips == progress.skips_first_left + progress.skips_second_left == 1
    for name in ("annotator-", "ana"):
        assert name not in text.split('id="head-to-head"')[1].split("What was fixed")[0]


def test_nobody_gives_much_more_than_an_even_share(project: Project, emil: User) -> None:
    found = opened(project, emil, 60, people=10)
    assert found.pairs.most_each == 9  # 6 each would be even
    (ana,) = annotators_make(project, 1)
    assert cast_by(project, ana, GOOD, at_most=60) == 9
    assert len(votes_of(found)) == 9


def test_an_evaluation_is_asked_about_as_it_answered(project: Project, emil: User) -> None:
    lines = [output(k, 1.0) for k in range(24)]
    lines[3]["other_response"] = lines[3]["response"]
    lines[4]["response"] = "  "
    run = assessment_make(checkpoint_make(project), lines)
    with pytest.raises(Conflict, match="evaluation"):
        head_to_head_open(project=project, user=emil, asked=asked(), source=run)
    Run.objects.filter(pk=run.pk).update(kind=Run.Kind.EVALUATE)
    run.refresh_from_db()
    assert evaluations(project=project) == [run]
    found = head_to_head_open(project=project, user=emil, asked=asked(), source=run)
    assert (found.n_prompts, found.n_alike) == (23, 1)
    assert found.first is not None
    assert found.second is not None
    assert (found.first.run.kind, found.second.run.kind) == ("ppo", "sft")
    assert found.protocol["systems"]["first"]["sha256"] == found.first.sha256
    empty = Task.objects.get(prompt__brief__0__content__startswith="Question 4:")
    assert empty.response_a is not None
    assert empty.response_a.messages[-1]["content"] == "(This answer is empty.)"
    assert empty.response_a.origin_ref == found.first.pk
    assert run_uses(run) == ["people compare answers of it (1)"]


def test_the_plan_and_the_answers_are_in_the_hash(project: Project, emil: User) -> None:
    one = opened(project, emil, 60)
    same = opened(project, emil, 60)
    assert one.protocol_sha256 == same.protocol_sha256
    others = [opened(project, emil, 60, margin=0.04), opened(project, emil, 59)]
    changed = rows(60)
    changed[7]["response_a"] += "."
    others.append(head_to_head_open(project=project, user=emil, asked=asked(), rows=changed))
    hashes = {one.protocol_sha256, *(found.protocol_sha256 for found in others)}
    assert len(hashes) == 4


@pytest.mark.parametrize(
    ("field", "plan", "given"),
    [
        ("people", {"people": 4}, rows()),
        ("prompts", {"prompts": 7}, rows()),
        ("people", {"prompts": 10}, rows()),
        ("votes_each", {"votes_each": 6}, rows()),
        ("margin", {"margin": 0.6}, rows()),
        ("second_name", {"second_name": "Tuned "}, rows()),
        ("name", {"name": " "}, rows()),
        ("repeat_days", {"repeat_days": 0}, rows()),
        ("stopping", {"stopping": "never"}, rows()),
        ("priority", {"priority": -1.0}, rows()),
        ("rows", {}, []),
        ("rows", {}, [*rows(40), {"prompt": "x", "response_a": "y"}]),
        ("rows", {}, [*rows(40), {"prompt": "", "response_a": "y", "response_b": "z"}]),
        ("rows", {}, [{**rows(1)[0], "model": "x"}]),
        ("source", {}, rows(7)),
        ("more_names", {"more_names": ["Tuned"]}, rows()),
        ("more_names", {"more_names": [f"System {k}" for k in range(7)]}, rows()),
        ("pairs_each", {"pairs_each": 2}, rows()),
        ("rows", {"more_names": ["Third"]}, rows()),
        ("source", {}, [{**row, "response_b": row["response_a"]} for row in rows()]),
    ],
)
def test_what_cannot_be_asked_asks_nobody(
    project: Project, emil: User, field: str, plan: dict[str, Any], given: list[dict[str, Any]]
) -> None:
    with pytest.raises(DomainError) as refused:
        head_to_head_open(project=project, user=emil, asked=asked(**plan), rows=given)
    assert refused.value.field == field
    assert not Task.objects.exists()
    assert not HeadToHead.objects.exists()


def test_a_bad_row_is_named(project: Project, emil: User) -> None:
    bad = [*rows(40), {"prompt": "x", "response_a": "y"}]
    with pytest.raises(DomainError, match="Row 41: response_b") as refused:
        head_to_head_open(project=project, user=emil, asked=asked(), rows=bad)
    assert refused.value.row == 41


def test_a_prompt_counts_once(project: Project, emil: User) -> None:
    twice = [*rows(30), {**rows(1)[0], "response_a": "Another one."}]
    found = head_to_head_open(project=project, user=emil, asked=asked(), rows=twice)
    assert found.n_prompts == 30


def test_it_ends_once_and_keeps_its_figures(project: Project, emil: User) -> None:
    found = opened(project, emil)
    people = annotators_make(project, 5)
    held = slot_lease_next(project=project, annotator=people[0])
    assert isinstance(held, Lease)
    for person in people[1:]:
        cast_by(project, person, GOOD, at_most=6)
    ended = head_to_head_end(head_to_head=found, by=emil)
    kept = result_now(ended)
    assert (ended.ended_by, kept.n) == (emil, 24)
    vote_cast(slot=held.slot, annotator=people[0], idempotency_key=held.key, side="left")
    again = head_to_head_end(head_to_head=found, by=None)
    assert (again.ended_by, again.ended_at) == (emil, ended.ended_at)
    assert result_now(HeadToHead.objects.get()) == kept
    with pytest.raises(IntegrityError), transaction.atomic():
        HeadToHead.objects.update(result=None)


def test_one_that_is_repeated_is_due_again(project: Project, emil: User) -> None:
    found = opened(project, emil, repeat_days=7)
    now = timezone.now()
    assert overdue(project=project, now=now + timedelta(days=99)) == []  # it runs
    head_to_head_end(head_to_head=found, by=emil)
    assert overdue(project=project, now=now + timedelta(days=6)) == []
    assert overdue(project=project, now=now + timedelta(days=8)) == [found]
    opened(project, emil, repeat_days=7)
    assert overdue(project=project, now=now + timedelta(days=8)) == []


def test_pairs_that_go_to_review_are_not_counted_on(project: Project, emil: User) -> None:
    LabelingSettings.objects.update_or_create(
        project=project,
        defaults={
            "constraint_phrases": [
                "poor answer to 1",
                "poor answer to 2",
                "poor answer to 3",
                "poor answer to 4",
                "poor answer to 5",
            ]
        },
    )
    found = opened(project, emil, 60)
    assert found.n_prompts == 55  # five wait for somebody to look at them
    with pytest.raises(DomainError, match="to review"):
        opened(project, emil, 12, people=8)
    assert HeadToHead.objects.count() == 1


def test_a_project_goes_with_its_head_to_heads(project: Project, emil: User) -> None:
    run = assessment_make(checkpoint_make(project), [output(k, 1.0) for k in range(24)])
    Run.objects.filter(pk=run.pk).update(kind=Run.Kind.EVALUATE)
    run.refresh_from_db()
    found = head_to_head_open(project=project, user=emil, asked=asked(), source=run)
    for person in annotators_make(project, 5):
        cast_by(project, person, GOOD)
    head_to_head_look(head_to_head=found, by=emil)
    ada = person_make("ada", project, Role.ADMIN)
    project_archive(project=project, by=ada)
    project_delete(project=project, typed=project.name, by=ada)
    assert not HeadToHead.objects.exists()
    assert not Task.objects.exists()


# The pages and the API.


def test_emil_brings_a_file_and_watches(project: Project, emil: User, client: Client) -> None:
    client.force_login(emil)
    new = reverse("evaluation:head_to_head_new", args=[project.slug])
    assert "No evaluation of this project has finished yet" in client.get(new).content.decode()
    form = {
        "name": "Ours or theirs",
        "first_name": "Ours",
        "second_name": "Theirs",
        "prompts": 50,
        "people": 5,
        "votes_each": 1,
        "margin_points": 5,
        "stopping": "any_time",
        "priority": 1,
    }
    bad = client.post(new, form).content.decode()
    assert "Choose an evaluation or a file" in bad
    lines = "\n".join(json.dumps(row) for row in rows(30))
    file = SimpleUploadedFile("answers.jsonl", lines.encode())
    response = client.post(new, form | {"file": file}, follow=True)
    text = response.content.decode()
    assert "Ours against Theirs" in text
    assert "No votes yet" in text
    listed = client.get(reverse("evaluation:head_to_heads", args=[project.slug]))
    assert "Ours or theirs" in listed.content.decode()
    found = HeadToHead.objects.get()
    act = reverse("evaluation:head_to_head_act", args=[project.slug, found.pk])
    votes = reverse("evaluation:head_to_head_csv", args=[project.slug, found.pk])
    assert client.get(votes).status_code == 404
    assert client.post(act, {"action": "nothing"}).status_code == 404
    client.post(act, {"action": "end"})
    assert client.get(votes).content.decode().splitlines()[0].startswith("prompt,preferred")
    again = client.get(f"{new}?again={found.pk}").content.decode()
    assert "Ours or theirs, again" in again


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"prompt": "x"}\n{"prompt"', "Line 2 is not JSON"),
        (b'{"prompt": "x"}\n[1]', "Line 2 is not an object"),
        (b"\xff\xfe{", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(content: bytes, said: str) -> None:
    with pytest.raises(Exception, match=said):
        rows_of_file("answers", content)


def test_csv_is_read_as_json_lines_are() -> None:
    text = 'prompt,response_a,response_b\n"What, now?",Yes,"No\nnever"\n'
    assert rows_of_file("a.csv", text.encode()) == [
        {"prompt": "What, now?", "response_a": "Yes", "response_b": "No\nnever"}
    ]


def test_who_may_see_and_change_it(project: Project, emil: User, client: Client) -> None:
    found = opened(project, emil)
    page = reverse("evaluation:head_to_head", args=[project.slug, found.pk])
    act = reverse("evaluation:head_to_head_act", args=[project.slug, found.pk])
    api = f"/api/v1/projects/{project.slug}/head-to-heads"
    people = {
        role: person_make(f"some-{role}", project, role) for role in (Role.ANNOTATOR, Role.REVIEWER)
    }
    outsider = User.objects.create(username="outsider")
    expected = {
        people[Role.ANNOTATOR]: (403, 403, 403),
        people[Role.REVIEWER]: (200, 403, 200),
        outsider: (404, 404, 404),
    }
    for person, (read, change, by_api) in expected.items():
        client.force_login(person)
        assert client.get(page).status_code == read
        assert client.post(act, {"action": "end"}).status_code == change
        assert client.get(f"{api}/{found.pk}").status_code == by_api
    found.refresh_from_db()
    assert found.ended_at is None


def test_a_link_shows_the_figures_to_anybody_and_nothing_else(
    project: Project, emil: User, client: Client
) -> None:
    found = opened(project, emil)
    for person in annotators_make(project, 5):
        cast_by(project, person, GOOD, at_most=5)
    client.force_login(emil)
    act = reverse("evaluation:head_to_head_act", args=[project.slug, found.pk])
    client.post(act, {"action": "share", "days": 3})
    found.refresh_from_db()
    link = reverse("evaluation:shared", args=[found.share_key])
    assert (
        link
        in client.get(
            reverse("evaluation:head_to_head", args=[project.slug, found.pk])
        ).content.decode()
    )
    anybody = Client()
    looks = Look.objects.count()
    shown = anybody.get(link)
    text = shown.content.decode()
    assert shown.status_code == 200
    assert "Tuned" in text
    assert shown["X-Robots-Tag"] == "noindex"
    for hidden in ("annotator-", "emil", "Emil", "how long is a day", GOOD, project.slug):
        assert hidden not in text
    assert Look.objects.count() == looks
    HeadToHead.objects.update(shared_until=timezone.now() - timedelta(seconds=1))
    assert anybody.get(link).status_code == 404
    client.post(act, {"action": "share", "days": 3})
    assert anybody.get(link).status_code == 404  # the link before has ended
    found.refresh_from_db()
    link = reverse("evaluation:shared", args=[found.share_key])
    assert anybody.get(link).status_code == 200
    client.post(act, {"action": "unshare"})
    assert anybody.get(link).status_code == 404
    assert anybody.get(reverse("evaluation:shared", args=["x"])).status_code == 404


def test_the_api_opens_looks_ends_and_shares(project: Project, emil: User, client: Client) -> None:
    client.force_login(emil)
    api = f"/api/v1/projects/{project.slug}/head-to-heads"
    body = {"name": "N", "first_name": "F", "second_name": "S", "people": 5, "rows": rows(30)}

    def post(path: str, given: Any = None) -> Any:
        return client.post(path, json.dumps(given or {}), content_type="application/json")

    wrong = post(api, body | {"margin": 0.9})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "margin")
    assert post(api, body | {"source": "nothing"}).json()["field"] == "source"
    made = post(api, body)
    assert made.status_code == 201, made.content
    one = f"{api}/{made.json()['id']}"
    assert client.get(one).json()["verdict"] == "waiting"
    for person in annotators_make(project, 5):
        cast_by(project, person, GOOD, at_most=2)
    seen = client.get(one).json()
    assert (seen["votes"], seen["outcomes"]["win"], seen["running"]) == (10, 10, True)
    assert seen["verdict"] == "too_few_prompts"
    assert [row["id"] for row in client.get(api).json()] == [made.json()["id"]]
    link = post(f"{one}/link", {"days": 2}).json()
    assert Client().get(link["path"]).status_code == 200
    assert client.delete(f"{one}/link").json()["path"] == ""
    ended = post(f"{one}/end").json()
    assert (ended["running"], ended["votes"]) == (False, 10)


def test_two_looks_at_once_end_it_once(project: Project, emil: User) -> None:
    found = opened(project, emil, 20)
    for person in annotators_make(project, 5):
        cast_by(project, person, GOOD, at_most=3)
        cast_by(project, person, "tie")
    stale = HeadToHead.objects.select_related("pairs").get()
    head_to_head_look(head_to_head=found, by=emil)
    head_to_head_look(head_to_head=stale, by=None)
    assert AuditEvent.objects.filter(action="head_to_head.ended").count() == 1


def test_an_evaluation_s_page_leads_to_people_and_back(
    project: Project, emil: User, client: Client
) -> None:
    run = assessment_make(checkpoint_make(project), [output(k, 1.0) for k in range(24)])
    Run.objects.filter(pk=run.pk).update(kind=Run.Kind.EVALUATE)
    client.force_login(emil)
    assert (
        "People"
        in client.get(reverse("training:run", args=[project.slug, run.pk])).content.decode()
    )
    tab = reverse("evaluation:run_people", args=[project.slug, run.pk])
    new = reverse("evaluation:head_to_head_new", args=[project.slug])
    assert f"{new}?run={run.pk}" in client.get(tab).content.decode()
    form = client.get(f"{new}?run={run.pk}").content.decode()
    assert "a ppo run" in form
    assert "a sft run" in form
    run.refresh_from_db()
    found = head_to_head_open(project=project, user=emil, asked=asked(), source=run)
    assert found.name in client.get(tab, headers={"HX-Request": "true"}).content.decode()


def test_a_reviewer_is_led_to_no_page_of_a_run_that_only_staff_may_open(
    project: Project, emil: User, client: Client
) -> None:
    run = assessment_make(checkpoint_make(project), [output(k, 1.0) for k in range(24)])
    Run.objects.filter(pk=run.pk).update(kind=Run.Kind.EVALUATE)
    run.refresh_from_db()
    found = head_to_head_open(project=project, user=emil, asked=asked(), source=run)
    to_run = reverse("training:run", args=[project.slug, run.pk])
    pages = [
        reverse("evaluation:head_to_head", args=[project.slug, found.pk]),
        reverse("evaluation:run_people", args=[project.slug, run.pk]),
        reverse("evaluation:run_checks", args=[project.slug, run.pk]),
    ]
    for person, linked in ((person_make("rita", project, Role.REVIEWER), False), (emil, True)):
        client.force_login(person)
        for page in pages:
            text = client.get(page).content.decode()
            assert run.name in text
            assert (f'href="{to_run}"' in text) is linked, page


def test_one_that_is_due_again_waits_on_the_overview(
    project: Project, emil: User, client: Client
) -> None:
    head_to_head_end(head_to_head=opened(project, emil, repeat_days=7), by=emil)
    HeadToHead.objects.update(ended_at=timezone.now() - timedelta(days=8))
    client.force_login(emil)
    page = client.get(reverse("loop:overview", args=[project.slug])).content.decode()
    assert "head-to-head is due again" in page
    listed = client.get(reverse("evaluation:head_to_heads", args=[project.slug]))
    assert "due again" in listed.content.decode()


# More than two systems.


def evaluation_of(project: Project, style: str, protocol: Protocol = FIRST, n: int = 60) -> Run:
    """A finished evaluation of a policy of its own, beside the same baseline."""
    lines = [output(k, 1.0, response=f"{style}, says {k}.") for k in range(n)]
    run = assessment_make(checkpoint_make(project), lines)
    summary = {"protocol": protocol.to_json()}
    Run.objects.filter(pk=run.pk).update(kind=Run.Kind.EVALUATE, summary=summary)
    Run.objects.filter(pk=run.inputs.get(role="policy").checkpoint.run_id).update(name=style)
    run.refresh_from_db()
    return run


def test_policies_of_several_evaluations_are_compared_with_their_baseline(
    project: Project, emil: User, client: Client
) -> None:
    ppo, dpo, short = (evaluation_of(project, name) for name in ("PPO", "DPO", "GRPO"))
    found = head_to_head_open(
        project=project, user=emil, asked=asked(), source=ppo, more_sources=[dpo, short]
    )
    assert found.more_names == ["DPO", "GRPO"]
    assert found.protocol["more_evaluations"] == [dpo.pk, short.pk]
    policies = [run.inputs.get(role="policy").checkpoint for run in (dpo, short)]
    assert [one["sha256"] for one in found.protocol["systems"]["more"]] == [
        policy.sha256 for policy in policies
    ]
    texts = {
        (task.external_id.split("-")[2 + side], answer.messages[-1]["content"].split(",")[0])
        for task in Task.objects.filter(kind="blind").select_related("response_a", "response_b")
        for side, answer in enumerate((task.response_a, task.response_b))
    }
    assert texts == {("0", "PPO"), ("1", "It depends on the planet"), ("2", "DPO"), ("3", "GRPO")}
    origins = set(
        Task.objects.filter(kind="blind").values_list("response_a__origin_ref", flat=True)
    )
    assert {policy.pk for policy in policies} < origins
    client.force_login(emil)
    new = reverse("evaluation:head_to_head_new", args=[project.slug])
    again = client.get(f"{new}?again={found.pk}").context["form"]
    assert again["more_sources"].value() == [dpo.pk, short.pk]
    plan = {name: again[name].value() for name in again.fields if again[name].value() is not None}
    asked_by_page = client.post(new, plan | {"name": "By page", "people": 5})
    assert asked_by_page.status_code == 302, asked_by_page.context["form"].errors
    api = f"/api/v1/projects/{project.slug}/head-to-heads"
    body = {"name": "N", "first_name": "PPO", "second_name": "SFT", "source": ppo.pk, "people": 5}
    made = client.post(api, body | {"more_sources": [dpo.pk]}, content_type="application/json")
    assert made.status_code == 201, made.content
    assert made.json()["more_names"] == ["DPO"]


def test_prompts_that_one_evaluation_did_not_ask_are_asked_about_nobody(
    project: Project, emil: User
) -> None:
    most, fewer = evaluation_of(project, "PPO"), evaluation_of(project, "DPO", n=45)
    found = head_to_head_open(
        project=project, user=emil, asked=asked(), source=most, more_sources=[fewer]
    )
    assert found.n_prompts == 45


def test_equal_answers_of_one_policy_make_no_other_protocol_against_a_baseline(
    project: Project, emil: User
) -> None:
    """Rates of two policies against one baseline are comparable, however often each says the same
    as the baseline; other prompts are another protocol."""

    def stated(style: str, alike: int, n: int = 60) -> str:
        lines = [output(k, 1.0, response=f"{style}, says {k}.") for k in range(n)]
        for line in lines[:alike]:
            line["response"] = line["other_response"]
        run = assessment_make(checkpoint_make(project), lines)
        Run.objects.filter(pk=run.pk).update(kind=Run.Kind.EVALUATE)
        run.refresh_from_db()
        found = head_to_head_open(project=project, user=emil, asked=asked(), source=run)
        assert found.n_alike == alike
        head_to_head_end(head_to_head=found, by=emil)
        (rate,) = people_rates(project)[found.first.run_id]
        return rate.protocol.sha256

    assert stated("PPO", 3) == stated("DPO", 0)
    assert stated("GRPO", 0, n=50) != stated("KTO", 0)


def test_evaluations_that_cannot_be_set_side_by_side_ask_nobody(
    project: Project, emil: User, client: Client
) -> None:
    one, warm = evaluation_of(project, "PPO"), evaluation_of(project, "DPO", WARMER)

    def refused(*more: Run, **plan: Any) -> DomainError:
        with pytest.raises(DomainError) as found:
            head_to_head_open(
                project=project, user=emil, asked=asked(**plan), source=one, more_sources=more
            )
        return found.value

    assert "sampling.temperature is 0.7 and 0.8" in refused(warm).message
    assert refused(one).code == "twice"
    assessed = evaluation_of(project, "KTO")
    Run.objects.filter(pk=assessed.pk).update(kind=Run.Kind.ASSESS)
    assessed.refresh_from_db()
    assert refused(assessed).field == "more_sources"
    other = evaluation_of(project, "GRPO")
    assert refused(other, more_names=["A", "B"]).code == "two_systems"
    assert refused(other, more_names=["Base"]).field == "more_names"
    assert not HeadToHead.objects.exists()
    client.force_login(emil)
    api = f"/api/v1/projects/{project.slug}/head-to-heads"
    body = {"name": "N", "first_name": "PPO", "second_name": "SFT", "more_sources": [other.pk]}
    answer = client.post(api, body, content_type="application/json")
    assert (answer.status_code, answer.json()["field"]) == (400, "source")
    answer = client.post(
        api, body | {"source": one.pk, "more_sources": ["nothing"]}, content_type="application/json"
    )
    assert answer.json()["field"] == "more_sources"


def rows_of_three(n: int = 60) -> list[dict[str, Any]]:
    return [row | {"response_c": f"Another answer to {k}."} for k, row in enumerate(rows(n))]


def opened_three(project: Project, user: User, n: int = 60, **plan: Any) -> HeadToHead:
    more = {"more_names": ["Other"], **plan}
    return head_to_head_open(project=project, user=user, asked=asked(**more), rows=rows_of_three(n))


def test_three_systems_meet_as_often_and_stand_on_each_side_as_often(
    project: Project, emil: User
) -> None:
    found = opened_three(project, emil, 60, pairs_each=2)
    assert (found.n_prompts, found.n_pairs) == (60, 120)
    places = [
        tuple(name.split("-")[2:])
        for name in Task.objects.filter(kind="blind").values_list("external_id", flat=True)
    ]
    met = Counter(frozenset(pair) for pair in places)
    assert set(met.values()) == {40}
    as_a = Counter(pair[0] for pair in places)
    assert max(as_a.values()) - min(as_a.values()) <= 2
    assert found.protocol["plan"]["multiplicity"] == "Holm over all differences"


def test_people_rank_three_systems_by_page_and_api(
    project: Project, emil: User, client: Client
) -> None:
    found = opened_three(project, emil, 90, people=6)
    people = annotators_make(project, 6)
    for turn in range(12):
        for n, person in enumerate(people):
            cast_by(project, person, GOOD if (turn + n) % 3 else POOR)
    votes = model_votes_of(found)
    assert len(votes) == 72
    assert set(votes.side.tolist()) == {-0.5, 0.5}
    client.force_login(emil)
    page = reverse("evaluation:head_to_head", args=[project.slug, found.pk])
    text = client.get(page).content.decode()
    assert "Tuned against Base and Other" in text
    assert "Every two systems" in text
    told = client.get(f"/api/v1/projects/{project.slug}/head-to-heads/{found.pk}").json()
    assert told["more_names"] == ["Other"]
    assert len(told["several"]["differences"]) == 3
    assert {one["name"] for one in told["several"]["standings"]} == {"Tuned", "Base", "Other"}
    ended = head_to_head_end(head_to_head=found, by=emil)
    kept = result_now(HeadToHead.objects.get(pk=ended.pk))
    assert kept.several is not None
    assert kept.several.standings[0].n > 0
    head_to_head_share(head_to_head=ended, by=emil, days=3)
    client.logout()
    ended.refresh_from_db()
    shared = client.get(reverse("evaluation:shared", args=[ended.share_key])).content.decode()
    assert "Every two systems" in shared
    assert "votes that both answers are bad are counted and left out" in shared
    assert "count as half" not in shared
    assert "log odds" not in shared


@pytest.mark.parametrize("more", [{}, {"people": 10, "name": "Twelve", "n": 12}])
def test_what_has_ended_is_asked_again_and_not_voted_on_further(
    project: Project, emil: User, client: Client, more: dict[str, Any]
) -> None:
    found = opened(project, emil, **more)
    for person in annotators_make(project, 3):
        cast_by(project, person, GOOD)
    least = 8 if more else 5
    client.force_login(emil)
    page = reverse("evaluation:head_to_head", args=[project.slug, found.pk])
    assert f"Invite {least - 3} or more" in client.get(page).content.decode()
    head_to_head_end(head_to_head=found, by=emil)
    text = client.get(page).content.decode()
    assert f"Ask again, with {least} people or more." in text
    assert "Invite" not in text


def test_three_that_ended_undecided_are_asked_again_about_more(
    project: Project, emil: User, client: Client
) -> None:
    found = opened_three(project, emil, 90, people=6)
    people = annotators_make(project, 6)
    for turn in range(12):
        for n, person in enumerate(people):
            cast_by(project, person, GOOD if (turn + n) % 3 else POOR)
    client.force_login(emil)
    page = reverse("evaluation:head_to_head", args=[project.slug, found.pk])
    assert "Undecided so far" in client.get(page).content.decode()
    head_to_head_end(head_to_head=found, by=emil)
    text = client.get(page).content.decode()
    assert "Undecided, and no more votes come" in text
    assert "Ask again, for more than" in text
    assert "more votes may decide it" not in text


def test_a_link_for_no_number_of_days_names_the_field(
    project: Project, emil: User, client: Client
) -> None:
    found = opened(project, emil)
    client.force_login(emil)
    act = reverse("evaluation:head_to_head_act", args=[project.slug, found.pk])
    answer = client.post(act, {"action": "share", "days": "many"}, follow=True)
    assert "Days: a whole number from 1 to 365. No link was made." in answer.content.decode()
    found.refresh_from_db()
    assert not found.share_key


def test_systems_that_answer_alike_wherever_they_meet_are_refused_by_name(
    project: Project, emil: User
) -> None:
    same = [row | {"response_c": row["response_b"]} for row in rows(60)]
    found = head_to_head_open(
        project=project, user=emil, asked=asked(more_names=["Twin"]), rows=same
    )
    assert found.n_pairs == 60  # Base and Twin meet over Tuned
    twins = [
        row | {"response_a": "One.", "response_b": "One.", "response_c": "One."} for row in same
    ]
    with pytest.raises(DomainError, match="same answer"):
        head_to_head_open(project=project, user=emil, asked=asked(more_names=["Twin"]), rows=twins)


def test_too_few_prompts_of_each_system_are_refused_with_the_number(
    project: Project, emil: User
) -> None:
    with pytest.raises(DomainError, match="20 are needed for each system") as refused:
        opened_three(project, emil, 24)
    assert refused.value.field == "pairs_each"
    assert opened_three(project, emil, 24, pairs_each=3).n_pairs == 72


def test_twelve_prompts_are_told_by_the_exact_interval(project: Project, emil: User) -> None:
    found = opened(project, emil, 12, people=12)
    assert found.protocol["plan"]["interval"].startswith("exact")
    for person in annotators_make(project, 12):
        cast_by(project, person, GOOD)
    result = head_to_head_look(head_to_head=found, by=emil)
    assert result.verdict == Verdict.BETTER
    assert result.estimate is not None
    assert result.estimate.exact_votes == 12
