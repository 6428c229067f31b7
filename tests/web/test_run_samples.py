"""The answers and the alerts of a run, as its page shows them."""

import pytest
from django.utils import timezone

from apps.training.models import Alert, Run, RunAttempt, Sample
from apps.training.selectors.results import samples_chosen
from measures.duplicates import repeated_share
from tests.web.runs import event_add, run_make

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(project, emil) -> Run:
    return run_make(project, by=emil, kind="ppo", config={})


def sample_add(run: Run, seq: int, step: int, bucket: str = "random", **more) -> Sample:
    values = {"prompt": [{"role": "user", "content": "Why?"}], "response": f"Answer {seq}."}
    return Sample.objects.create(
        run=run, attempt=1, seq=seq, step=step, bucket=bucket, **values | more
    )


def page_of(client, run: Run, more: str = ""):
    return client.get(f"/p/arguments/runs/{run.pk}/?tab=samples{more}")


def shown(page) -> list[str]:
    return [one.response for one in page.context["samples"]]


def test_answers_are_found_by_sort_and_step_and_stay_so_in_the_address(emil, signed_in, run):
    sample_add(run, 1, 10, "high", reward=1.0)
    sample_add(run, 2, 10, "high", reward=3.0)
    sample_add(run, 3, 20, "low", reward=-1.0)
    client = signed_in(emil)
    assert shown(page_of(client, run)) == ["Answer 3.", "Answer 2.", "Answer 1."]
    assert shown(page_of(client, run, "&bucket=high")) == ["Answer 2.", "Answer 1."]
    assert shown(page_of(client, run, "&step=20")) == ["Answer 3."]
    # a marker on a chart stands between steps that kept answers
    assert shown(page_of(client, run, "&until=19")) == ["Answer 2.", "Answer 1."]
    assert shown(page_of(client, run, "&until=3")) == ["Answer 2.", "Answer 1."]
    empty = page_of(client, run, "&bucket=flagged&step=20").content.decode()
    assert "No such answers" in empty


def test_an_answer_that_people_must_see_is_among_the_flagged_with_its_reason(emil, signed_in, run):
    sample_add(run, 1, 10, "flagged", response="Both kept and asked about.")
    sample_add(run, 2, 10, "random", response="Only random.")
    for seq, response in ((3, "Both kept and asked about."), (4, "Asked about alone.")):
        body = {"step": 10, "prompt": [], "response": response, "reason": f"reason {seq}"}
        event_add(run, seq, "ReviewRequested", body)
    page = page_of(signed_in(emil), run, "&bucket=flagged")
    assert {(one.response, one.reason) for one in page.context["samples"]} == {
        ("Both kept and asked about.", "reason 3"),
        ("Asked about alone.", "reason 4"),
    }
    assert ("flagged", "Flagged", 2) in page.context["buckets"]


def test_answers_come_page_by_page(emil, signed_in, run):
    for seq in range(45):
        sample_add(run, seq, seq)
    pages = [shown(page_of(signed_in(emil), run, f"&page={n}")) for n in (1, 2, 3)]
    assert [len(one) for one in pages] == [20, 20, 5]
    assert len({answer for one in pages for answer in one}) == 45


def test_answers_of_a_past_that_was_undone_are_not_shown(run):
    sample_add(run, 1, 10)
    sample_add(run, 2, 30)
    RunAttempt.objects.create(run=run, number=2, resumed_from_step=20)
    assert [row[0] for row in samples_chosen(run).rows] == [10]


def test_an_answer_stands_beside_the_baseline_with_all_it_scored(emil, signed_in, run):
    parts = {"helpful": 1.25, "brief": -0.5}
    said = "go on and go on and go on and go"
    sample_add(
        run, 1, 10, response=said, baseline="Go on.", reward=0.75, parts=parts, kl=3.5, tokens=10
    )
    text = page_of(signed_in(emil), run).content.decode()
    for words in ("0.750", "1.25", "−0.500", "3.50 nats", "10 tokens", "Go on.", "2 words"):
        assert words in text, words
    # 7 of its 4-grams of words, 3 of them different: 57 % stood there before
    assert 'class="is-bad">repeated <strong>57 %' in text


@pytest.mark.parametrize(
    ("text", "share"),
    [("a b c", None), ("a b c d", 0.0), ("a b c d a b c d", 1 / 5), ("x " * 10, 6 / 7)],
)
def test_repetition_counts_what_stood_before(text, share):
    assert repeated_share(text) == (None if share is None else pytest.approx(share))


# --- alerts ---


def alert_add(run: Run, rule: str) -> Alert:
    return Alert.objects.create(
        run=run, attempt=1, seq=1, step=9, rule=rule, severity="warning", message="Over.",
        raised_at=timezone.now(),
    )  # fmt: skip


def test_an_alert_says_what_to_do_and_where_to_look(emil, signed_in, run):
    alert = alert_add(run, "length")
    text = signed_in(emil).get(f"/p/arguments/runs/{run.pk}/?tab=alerts").content.decode()
    assert f'id="alert-{alert.pk}"' in text
    assert "Set length_penalty" in text
    assert "?tab=samples&amp;until=9" in text


def test_an_alert_of_an_unknown_rule_is_shown_under_its_name(emil, signed_in, run):
    alert_add(run, "of_another_version")
    text = signed_in(emil).get(f"/p/arguments/runs/{run.pk}/?tab=alerts").content.decode()
    assert "<strong>of_another_version</strong>" in text


# --- tabs of later apps ---


def test_a_tab_of_a_later_app_is_loaded_as_a_fragment_and_is_a_link_without_javascript(
    emil, signed_in, run
):
    page = signed_in(emil).get(f"/p/arguments/runs/{run.pk}/?tab=diagnosis").content.decode()
    where = f"/p/arguments/runs/{run.pk}/diagnosis/"
    assert f'hx-get="{where}"' in page
    assert f'href="{where}"' in page
    names = page.split('<nav class="tabs"')[1].split("</nav>")[0]
    assert names.index("Charts") < names.index("Diagnosis") < names.index("Samples")
