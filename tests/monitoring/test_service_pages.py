"""The pages of models in service, as Emil sees them."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.monitoring.models import Incident, Watch
from apps.monitoring.services.outcomes import outcomes_record
from apps.training.models import Alert, Run
from tests.monitoring.probed import (
    elsewhere_make,
    model_make,
    probe_fail,
    probe_launched,
    probed,
    prompts_make,
    scores_of,
    watch_make,
)
from tests.monitoring.test_outcomes import daily
from tests.monitoring.test_probes import ASKED

pytestmark = pytest.mark.usefixtures("artifacts", "wire")
HOSTILE = "<script>alert('no')</script>"


@pytest.fixture
def browser(signed_in: Callable[[User], Client], emil: User) -> Client:
    return signed_in(emil)


def base(watch: Watch) -> str:
    return f"/p/{watch.project.slug}/monitoring/watches/{watch.pk}/"


def text_of(browser: Client, path: str) -> str:
    response = browser.get(path)
    assert response.status_code == 200
    return response.content.decode()


def test_an_empty_project_is_told_what_to_do(browser: Client, project: Project):
    html = text_of(browser, "/p/arguments/monitoring/")
    assert "No monitored models" in html
    assert "/projects/arguments/outcomes" in html
    assert "No model yet" in text_of(browser, "/p/arguments/monitoring/watches/new/")
    model_make(project)
    assert "No frozen" in text_of(browser, "/p/arguments/monitoring/watches/new/")


def test_emil_puts_a_model_under_watch_from_its_page(browser: Client, project: Project):
    policy, reward = model_make(project, name="helper"), model_make(project, "reward")
    prompts = prompts_make(project)
    policy.run.config = {"max_new_tokens": 48, "temperature": 0.7}
    policy.run.save()
    page = text_of(browser, f"/p/arguments/models/{policy.pk}/")
    new = f"/p/arguments/monitoring/watches/new/?checkpoint={policy.pk}"
    assert new in page
    assert f'value="checkpoint:{policy.pk}" selected' in text_of(browser, new)
    sent = {
        "name": "assistant",
        "checkpoint": f"checkpoint:{policy.pk}",
        "reward": f"checkpoint:{reward.pk}",
        "prompts": f"snapshot:{prompts.pk}",
        "every_minutes": "60",
        "eval_prompts": "40",
        "max_new_tokens": "",
        "max_seconds": "300",
    }
    wrong = browser.post(new, sent | {"reward": ""})
    assert wrong.status_code == 422
    assert wrong.context["form"].errors["reward"]
    assert browser.post(new, sent).status_code == 302
    watch = Watch.objects.get()
    assert watch.config == {
        "eval_prompts": 40,
        "max_new_tokens": 48,
        "max_seconds": 300.0,
        "temperature": 0.7,
    }
    taken = browser.post(new, sent).content.decode()
    assert "monitored already" in taken
    assert "Monitored" in text_of(browser, f"/p/arguments/models/{policy.pk}/")


def test_the_pages_tell_of_a_watch_in_every_state(browser: Client, project: Project):
    watch = watch_make(project)
    for path in ("/p/arguments/monitoring/", base(watch)):
        assert "first probe" in text_of(browser, path)
    probed(watch, scores_of(1))
    assert "at its baseline" in text_of(browser, base(watch))
    probed(watch, scores_of(1), figures={"response_length": scores_of(4)})
    assert "unchanged" in text_of(browser, "/p/arguments/monitoring/")
    probed(watch, scores_of(2), weights="b" * 64, answers=[HOSTILE] * 40)
    html = text_of(browser, base(watch))
    assert "different model" in html
    assert HOSTILE not in html
    assert "differs from" in text_of(browser, "/p/arguments/monitoring/")
    incident = Incident.objects.get(key=f"watch:{watch.pk}")
    assert base(watch) in text_of(browser, f"/p/arguments/monitoring/incidents/{incident.pk}/")
    probe_fail(probe_launched(watch))
    html = text_of(browser, base(watch))
    assert "does not answer" in html
    assert "last successful" in html


def test_no_line_joins_probes_of_two_protocols(browser: Client, project: Project):
    watch = watch_make(project)

    def lines() -> tuple[int, str]:
        page = browser.get(base(watch))
        (chart,) = page.context["charts"]
        (row,) = page.context["rows"]
        assert len(row.spark.lines) == len(chart.curve.series[0].paths)
        return len(row.spark.lines), chart.curve.summary

    first, other = ASKED, replace(ASKED, sampling={"temperature": 0.8})
    for seed in (1, 2):
        probed(watch, scores_of(seed), protocol=first)
    n, said = lines()
    assert (n, "other protocol" in said) == (1, False)
    for seed in (3, 4):
        probed(watch, scores_of(seed), protocol=other)
    n, said = lines()
    assert (n, said.count("other protocol")) == (2, 1)


def test_the_figures_come_as_csv(browser: Client, project: Project):
    watch = watch_make(project)
    probed(watch, scores_of(1))
    probed(watch, scores_of(2), weights="b" * 64)
    probe_fail(probe_launched(watch))
    body = b"".join(browser.get(f"{base(watch)}figures.csv")).decode()
    rows = list(csv.DictReader(io.StringIO(body)))
    assert [row["figure"] for row in rows] == ["", "score", "score"]
    assert float(rows[1]["baseline"]) == pytest.approx(float(rows[2]["mean"]))
    assert float(rows[1]["change_low"]) < float(rows[1]["change"]) < float(rows[1]["change_high"])


def test_what_people_decide_is_done_without_javascript(
    browser: Client, project: Project, emil: User
):
    watch = watch_make(project)
    probed(watch, scores_of(1))
    other = model_make(project, name="second")

    def post(action: str, **sent: Any) -> Any:
        return browser.post(f"{base(watch)}{action}/", sent)

    assert post("rebase", **{"rebase-reason": ""}).status_code == 422
    assert post("rebase", **{"rebase-reason": "meant"}).status_code == 302
    refused = post("retarget", **{"retarget-checkpoint": "x", "retarget-reason": "typed text"})
    assert refused.status_code == 422
    assert "typed text" in refused.content.decode()
    target = {"retarget-checkpoint": f"checkpoint:{other.pk}", "retarget-reason": "release"}
    assert post("retarget", **target).status_code == 302
    change = {"change-name": "helper", "change-every_minutes": "30", "change-max_seconds": "90"}
    assert post("change", **change).status_code == 302
    assert post("change", **(change | {"change-every_minutes": "1"})).status_code == 422
    assert post("pause", enabled="no").status_code == 302
    watch.refresh_from_db()
    assert (watch.name, watch.checkpoint, watch.enabled) == ("helper", other, False)
    assert watch.config["max_seconds"] == 90
    assert post("probe").status_code == 302
    second = browser.post(f"{base(watch)}probe/", follow=True)
    assert "A probe is running" in second.content.decode()


def test_live_runs_with_alerts_and_outcomes_beside_the_reward_are_shown(
    browser: Client, project: Project
):
    watch = watch_make(project)
    probed(watch, scores_of(1))
    run = Run.objects.create(project=project, name="in problem", kind="ppo", state="running")
    Alert.objects.create(
        run=run, attempt=1, seq=1, step=3, rule="kl", severity="warning", raised_at=timezone.now()
    )
    rows = [
        *daily("satisfaction", [4.2, 4.8], n=200, deviation=0.8, watch=watch.pk),
        *daily("completion", [85, 12], n=200, unit="%", watch=watch.pk),
    ]
    outcomes_record(project=project, rows=rows)
    html = text_of(browser, "/p/arguments/monitoring/")
    assert "in problem" in html
    assert "1 alert<" in html
    assert "satisfaction improves" in html
    assert "Reward score" in html
    assert "Worse: 85.0 → 12.0 %" in html


def test_a_watch_of_another_project_leads_nowhere(browser: Client, project: Project):
    _, foreign = elsewhere_make()
    stem = f"/p/arguments/monitoring/watches/{foreign.pk}/"
    assert browser.get(stem).status_code == 404
    assert browser.get(f"{stem}figures.csv").status_code == 404
    for action in ("probe", "pause", "change", "rebase", "retarget"):
        assert browser.post(f"{stem}{action}/", {"enabled": "no"}).status_code == 404
    foreign.refresh_from_db()
    assert foreign.enabled
    new = f"/p/arguments/monitoring/watches/new/?checkpoint={foreign.checkpoint_id}"
    assert f"checkpoint:{foreign.checkpoint_id}" not in text_of(browser, new)
