"""Conversations of a served model: consent, scrubbing, sampling, duplicates, what people see."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import token_create
from apps.common.errors import DomainError
from apps.evaluation.models import FlaggedAnswer
from apps.labeling.models import Prompt
from apps.labeling.services import labeling_settings_update
from apps.monitoring.models import TrafficBatch, TrafficConversation, TrafficDay, Watch
from apps.monitoring.services.traffic import (
    traffic_delete,
    traffic_expire,
    traffic_record,
    traffic_set,
)
from measures.novelty import vocabulary
from tests.monitoring.probed import model_make, watch_make

pytestmark = pytest.mark.usefixtures("artifacts", "wire")
SETTING = {
    "enabled": True,
    "share": 1.0,
    "random_share": 0.0,
    "needs_consent": True,
    "worst_rating": 2.0,
    "least_logprob": -1.5,
    "fields": ["rating", "mean_logprob"],
    "keep_days": 30,
}
PARTS = ("received", "no_consent", "unsampled", "duplicates", "nothing_found", "kept")


@pytest.fixture
def watch(project: Project, emil: User) -> Watch:
    made = watch_make(project, checkpoint=model_make(project, "served"))
    traffic_set(project=project, watch_id=made.pk, user=emil, **SETTING)
    return made


def said(key: str, answer: str = "", **more: Any) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": f"Question {key}"},
        {"role": "assistant", "content": answer or f"An answer to {key} and nothing else"},
    ]
    return {"id": key, "messages": messages, "consent": True, "rating": 1} | more


def send(watch: Watch, *rows: dict[str, Any], key: str = "") -> dict[str, int]:
    counts = traffic_record(project=watch.project, watch_id=watch.pk, rows=rows, key=key)
    assert counts["received"] == sum(counts.get(name, 0) for name in PARTS[1:])
    return counts


def test_a_badly_rated_one_is_in_the_inbox_with_its_reason(watch: Watch):
    counts = send(watch, said("a"), said("b", rating=5))
    assert (counts["kept"], counts["rated_badly"], counts["nothing_found"]) == (1, 1, 1)
    [entry] = FlaggedAnswer.objects.all()
    assert entry.run == watch.checkpoint.run
    assert "rated 1" in entry.reason
    assert watch.name in entry.reason
    assert entry.prompt == [{"role": "user", "content": "Question a"}]


def test_what_the_model_was_uncertain_of_is_in_the_inbox_with_its_reason(watch: Watch):
    counts = send(
        watch,
        said("sure", rating=5, mean_logprob=-0.3),
        said("unsure", rating=5, mean_logprob=-2.25),
        said("unknown", rating=5),
    )
    assert (counts["kept"], counts["uncertain"], counts["nothing_found"]) == (1, 1, 2)
    [entry] = FlaggedAnswer.objects.all()
    assert "the model was uncertain: -2.25 nats a token" in entry.reason


@pytest.mark.parametrize("name", ["worst_rating", "least_logprob"])
def test_a_limit_on_what_is_not_kept_is_refused(watch: Watch, emil: User, name: str):
    asked = SETTING | {"worst_rating": None, "least_logprob": None, name: -1.0, "fields": []}
    with pytest.raises(DomainError, match="kept beside the messages") as refused:
        traffic_set(project=watch.project, watch_id=watch.pk, user=emil, **asked)
    assert refused.value.field == name


def test_a_blocked_phrase_is_in_the_inbox_with_its_reason(
    project: Project, watch: Watch, ada: User
):
    labeling_settings_update(project=project, by=ada, constraint_phrases=["I love you"])
    asked = said("b", rating=5)
    asked["messages"][0]["content"] = "Say: I love you"  # only answers are looked at
    counts = send(watch, said("a", "Yes, I love you too", rating=5), asked)
    assert (counts["kept"], counts["blocked_phrase"], counts["nothing_found"]) == (1, 1, 1)
    [entry] = FlaggedAnswer.objects.all()
    assert entry.response == "Yes, I love you too"
    assert entry.reason == f"Traffic of {watch.name}: Blocked phrase “I love you”"


def test_monitoring_leads_to_the_traffic_of_a_policy(watch: Watch, emil: User):
    client = Client()
    client.force_login(emil)
    shown = client.get(reverse("monitoring:overview", args=[watch.project.slug])).content.decode()
    assert reverse("monitoring:watch_traffic", args=[watch.project.slug, watch.pk]) in shown


def test_the_same_batch_twice_counts_once(watch: Watch):
    rows = [said("a"), said("b", consent=False)]
    assert send(watch, *rows) == send(watch, *rows)
    assert TrafficDay.objects.get().counts["received"] == 2
    assert send(watch, said("a"), said("c"))["duplicates"] == 1


@pytest.mark.django_db(transaction=True)
def test_two_simultaneous_posts_keep_one(watch: Watch):
    def post(k: int) -> None:
        try:
            send(watch, said("a"), key=f"k{k}")
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(post, range(2)))
    day = TrafficDay.objects.get().counts
    assert (day["received"], day["kept"], day["duplicates"]) == (2, 1, 1)
    assert FlaggedAnswer.objects.count() == 1


def test_without_consent_nothing_of_it_is_stored(watch: Watch):
    counts = send(watch, said("secret-id", "a private matter", consent=False))
    assert counts["no_consent"] == 1
    assert not TrafficConversation.objects.exists()
    assert not TrafficBatch.objects.exists()
    assert not FlaggedAnswer.objects.exists()
    assert "secret" not in json.dumps(TrafficDay.objects.get().counts)


def test_personal_data_is_replaced_before_it_is_written(watch: Watch):
    counts = send(watch, said("a", "Write to ann.bell@corp.de or +49 30 1234 5678."))
    assert counts["scrubbed"] == 1
    kept = TrafficConversation.objects.get().messages[-1]["content"]
    assert kept == "Write to [e-mail address] or [phone number]."
    assert FlaggedAnswer.objects.get().response == kept


def test_the_same_text_under_another_id_is_a_duplicate(watch: Watch):
    words = " ".join(f"word{k}" for k in range(60))
    one, near = said("a", words), said("b", f"{words} more")
    near["messages"][0]["content"] = one["messages"][0]["content"]
    counts = send(watch, one, near)
    assert (counts["kept"], counts["duplicates"]) == (1, 1)


def test_sampling_follows_the_id_and_a_share_is_kept_at_random(
    project: Project, watch: Watch, emil: User
):
    more = SETTING | {"share": 0.5, "random_share": 0.2, "worst_rating": None}
    traffic_set(project=project, watch_id=watch.pk, user=emil, **more)
    rows = [said(f"c{k}", f"Text number {k} says {k * 7} of {k * 13}") for k in range(400)]
    counts = send(watch, *rows)
    assert 150 < counts["unsampled"] < 250
    assert 15 < counts["random"] == counts["kept"] < 70
    again = send(watch, *rows, key="another")
    assert again["unsampled"] == counts["unsampled"]
    assert again["duplicates"] == counts["duplicates"] + counts["kept"]
    assert "kept" not in again


def test_what_no_prompt_is_about_is_out_of_distribution(project: Project, watch: Watch):
    for k in range(40):
        text = f"please explain topic {'abcdefgh'[k % 8] * 4} about cooking dinner tonight"
        Prompt.objects.create(
            project=project,
            messages=[{"role": "user", "content": text}],
            text_hash=f"{k:064x}",
            group_key=str(k),
        )
    usual, strange = said("a", rating=5), said("b", rating=5)
    usual["messages"][0]["content"] = "please explain cooking dinner about tonight"
    strange["messages"][0]["content"] = "wie hoch ist eigentlich diese unbekannte Steuer"
    counts = send(watch, usual, strange)
    assert (counts["out_of_distribution"], counts["nothing_found"]) == (1, 1)


def test_novelty_is_measured_against_the_texts_themselves():
    texts = [f"alpha beta gamma delta word{'abc'[k % 3]}" for k in range(30)]
    known = vocabulary(texts)
    assert known.unseen("alpha beta gamma omega") == pytest.approx(0.25)
    assert not known.is_novel("alpha beta gamma omega")
    assert known.is_novel("nothing here was ever said")
    assert known.unseen("two words") is None
    assert vocabulary(texts[:29]).limit is None


def test_bad_rows_are_named_and_nothing_is_half_done(watch: Watch):
    bad = [
        (said("x") | {"id": ""}, "id"),
        (said("x", messages=[]), "messages"),
        (said("x", rating="good"), "rating"),
        (said("x", mean_logprob=0.5), "mean_logprob"),
        (said("x", consent="yes"), "consent"),
    ]
    with pytest.raises(DomainError) as refused:
        send(watch, said("a"), *(row for row, _ in bad))
    assert [(one["row"], one["field"]) for one in refused.value.details] == [
        (k, field) for k, (_, field) in enumerate(bad, 2)
    ]
    assert not TrafficDay.objects.exists()
    assert not TrafficConversation.objects.exists()


def test_withdrawn_consent_deletes_everything_and_keeps_it_out(project: Project, watch: Watch):
    send(watch, said("a"))
    assert traffic_delete(project=project, watch_id=watch.pk, ids=["a", "never-seen"]) == 1
    assert not FlaggedAnswer.objects.exists()
    assert {json.dumps(row.messages) for row in TrafficConversation.objects.all()} == {"[]"}
    counts = send(watch, said("a"), said("never-seen"), key="later")
    assert counts["duplicates"] == 2


def test_what_is_past_its_days_is_deleted(watch: Watch):
    send(watch, said("a"))
    assert traffic_expire() == 0
    assert traffic_expire(now=timezone.now() + timedelta(days=31)) == 1
    assert not FlaggedAnswer.objects.exists()


def test_only_staff_of_the_project_send_and_the_page_shows_sums(
    watch: Watch, emil: User, ana: User, olga: User
):
    def post(person: User, scope: str = "write") -> Any:
        _, token = token_create(user=person, name="t", scopes=[scope], days=1)
        return Client().post(
            f"/api/v1/projects/{watch.project.slug}/traffic",
            {"watch": watch.pk, "conversations": [said("a"), said("b", consent=False)]},
            content_type="application/json",
            headers={"Authorization": f"Bearer {token}"},
        )

    statuses = [post(emil, "read").status_code, post(ana).status_code, post(olga).status_code]
    assert statuses == [403, 403, 404]
    assert not TrafficDay.objects.exists()
    taken = post(emil)
    assert taken.status_code == 200
    assert taken.json()["counts"]["kept"] == 1
    client = Client()
    client.force_login(emil)
    url = reverse("monitoring:watch_traffic", args=[watch.project.slug, watch.pk])
    shown = client.get(url).content.decode()
    assert "kept: 50.0 %" in shown
    assert "Rated badly" in shown
    form = SETTING | {"share": 2, "fields_kept": SETTING["fields"]}
    del form["fields"]
    assert client.post(url, form).status_code == 422
    assert client.post(url, form | {"share": 0.25, "enabled": ""}).status_code == 302
    watch.traffic.refresh_from_db()
    assert (watch.traffic.share, watch.traffic.enabled) == (0.25, False)
