"""What the world measures: taken in once, told row by row what does not fit, compared."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.accounts.services import token_create
from apps.common.errors import DomainError
from apps.monitoring.models import Incident, Outcome, ProbeResult, Watch
from apps.monitoring.services.outcomes import outcomes_record
from apps.training.models import Run
from measures.outcomes import Measured, change, opposed, share_deviation
from tests.monitoring.probed import elsewhere_make, model_make, watch_make

pytestmark = pytest.mark.usefixtures("artifacts", "wire")
URL = "/api/v1/projects/arguments/outcomes"


def days_ago(days: float) -> datetime:
    return timezone.now() - timedelta(days=days)


def daily(name: str, values: Sequence[float], **more: Any) -> list[dict[str, Any]]:
    """One measurement a day, the last one today."""
    n = len(values)
    return [
        {"name": name, "value": value, "at": days_ago(n - k), **more}
        for k, value in enumerate(values)
    ]


# --- formulas ---


def test_the_change_of_a_share_is_told_with_its_noise():
    # By hand: sampling variances .85·.15/400 and .75·.25/400, their mean times 4, over 1/1 + 1/1.
    before, after = (Measured(p, 400, share_deviation(p)) for p in (0.85, 0.75))
    found = change([before, after])
    error = (2 * 4 * (0.85 * 0.15 + 0.75 * 0.25) / 2 / 400) ** 0.5
    assert found.value == pytest.approx(-0.10)
    assert found.high == pytest.approx(-0.10 + 1.96 * error)


def test_two_measurements_of_unknown_size_are_too_few():
    found = change([Measured(4.2), Measured(4.8)])
    assert (found.direction, found.p) == (0, None)
    assert found.undefined
    assert change([]).undefined == "no_measurement"


def test_lower_is_better_turns_the_direction():
    series = [Measured(10 + 0.1 * (k % 2)) for k in range(8)] + [Measured(20.0)]
    assert change(series).direction == 1
    assert change(series, higher_is_better=False).direction == -1


def test_a_certain_change_of_no_size_has_no_direction():
    series = [Measured(0.5, 10**9, 0.5)] * 5 + [Measured(0.501, 10**9, 0.5)] * 3
    assert change(series).direction == 0


@pytest.mark.parametrize("kind", ["white", "mirrored", "slow", "heavy"])
def test_clean_series_seldom_part(kind: str):
    """50 pairs of each sort, looked at after every new measurement: at most 5 % with any alarm."""
    rng, fired = np.random.default_rng(5), 0
    for _ in range(50):
        noise = rng.standard_t(3, (2, 30)) if kind == "heavy" else rng.standard_normal((2, 30))
        if kind == "slow":
            for t in range(1, 30):
                noise[:, t] = 0.5 * noise[:, t - 1] + 0.87 * noise[:, t]
        if kind == "mirrored":
            noise[1] = -noise[0]
        one = [Measured(4.2 + 0.04 * x) for x in noise[0]]
        other = [Measured(85 + 1.8 * x) for x in noise[1]]
        fired += any(opposed(change(one[:k]), change(other[:k])) for k in range(2, 31, 2))
    assert fired <= 2


# --- taking in ---


def test_satisfaction_up_while_completion_collapses_is_an_incident(project: Project, emil: User):
    """⊕ The planted fault of SPEC F9, with two measurements of each."""
    rows = [
        *daily("satisfaction", [4.2, 4.8], n=200, deviation=0.8),
        *daily("completion", [85, 12], n=200, unit="%"),
    ]
    outcomes_record(project=project, rows=rows, user=emil)
    incident = Incident.objects.get()
    assert (incident.rule, incident.link, incident.severity) == (
        "outcomes_diverge",
        "evaluation",
        "critical",
    )
    assert "satisfaction improves" in incident.title
    assert "85 to 12 %" in incident.message
    assert AuditEvent.objects.get(action="outcomes.recorded").details["created"] == 4


def test_the_same_without_n_is_found_once_there_are_a_few_days(project: Project):
    rows = [
        *daily("satisfaction", [4.2, 4.25, 4.15, 4.2, 4.22, 4.8, 4.82]),
        *daily("completion", [85, 84, 86, 85, 85, 12, 13]),
    ]
    outcomes_record(project=project, rows=rows)
    assert Incident.objects.get().rule == "outcomes_diverge"


@pytest.mark.parametrize(
    ("satisfaction", "completion", "n"),
    [([4.2, 4.8], [85, 12], None), ([4.2, 4.8], [85, 93], 300), ([4.2, 4.23], [85, 83], 300)],
    ids=["nobody said of how many", "both better", "within noise"],
)
def test_no_incident(
    project: Project, satisfaction: list[float], completion: list[float], n: int | None
):
    rows = [
        *daily("satisfaction", satisfaction, n=n, deviation=0.8),
        *daily("completion", completion, n=n, unit="%"),
    ]
    outcomes_record(project=project, rows=rows)
    assert not Incident.objects.exists()


def probe_rows(watch: Watch, means: Sequence[float]) -> None:
    for k, mean in enumerate(means):
        at = days_ago(len(means) - k)
        run = Run.objects.create(
            project=watch.project, name="probe", kind="probe", state="finished", ended_at=at
        )
        ProbeResult.objects.create(
            watch=watch,
            run=run,
            at=at,
            figures={"score": {"mean": mean, "deviation": 1.0, "n": 64}},
            details={"checkpoint": watch.checkpoint_id, "reward": watch.reward_id},
        )


@pytest.mark.parametrize(
    ("rewards", "told"), [((0.3, 0.3, 0.3, 2.1), 1), ((2.1, 2.1, 2.1, 0.3), 0)]
)
def test_reward_up_while_people_leave_is_an_incident_and_the_reverse_is_none(
    project: Project, rewards: Sequence[float], told: int
):
    watch = watch_make(project)
    probe_rows(watch, rewards)
    values = [85, 84, 86, 85, 60] if told else [60, 61, 59, 60, 85]
    outcomes_record(
        project=project, rows=daily("completion", values, n=500, unit="%", watch=watch.pk)
    )
    assert Incident.objects.filter(link="reward", checkpoint=watch.checkpoint).count() == told


def test_one_incident_a_pair_and_a_new_normal_once_it_is_resolved(project: Project):
    def tell(satisfaction: float, completion: float) -> None:
        rows = [
            {"name": "satisfaction", "value": satisfaction, "n": 200, "deviation": 0.8},
            {"name": "completion", "value": completion, "n": 200, "unit": "%"},
        ]
        outcomes_record(project=project, rows=rows)

    tell(4.2, 85)
    tell(4.8, 12)
    tell(4.81, 11)
    assert Incident.objects.count() == 1
    Incident.objects.update(state="resolved", resolved_at=timezone.now())
    tell(4.82, 12.5)
    tell(4.83, 12)
    assert Incident.objects.count() == 1
    tell(2.1, 97)
    assert Incident.objects.count() == 2


def test_a_checkpoint_under_one_watch_is_that_watchs(project: Project):
    watch = watch_make(project)
    row = {"name": "completion", "value": 1.0, "checkpoint": watch.checkpoint_id}
    outcomes_record(project=project, rows=[row])
    assert Outcome.objects.get().watch == watch


def test_an_outcome_comes_once_however_often_it_is_sent(project: Project):
    row = {"name": "completion", "value": 0.85, "n": 100, "key": "monday"}
    first = outcomes_record(project=project, rows=[row, row])
    again = outcomes_record(project=project, rows=[row])
    assert (len(first.created), first.known, len(again.created)) == (1, 1, 0)
    with pytest.raises(DomainError) as refused:
        outcomes_record(project=project, rows=[row | {"value": 0.12}])
    assert "its value differs" in refused.value.message


def test_every_row_at_fault_is_told_and_nothing_is_stored(project: Project):
    _, foreign = elsewhere_make()
    outcomes_record(project=project, rows=[{"name": "completion", "value": 85, "unit": "%"}])
    good = {"name": "satisfaction", "value": 4.2}
    bad = [
        ("name", {"name": " "}),
        ("name", {"name": "n" * 61}),
        ("value", {"value": float("nan")}),
        ("value", {"value": True}),
        ("n", {"n": 0}),
        ("deviation", {"deviation": -1.0}),
        ("at", {"at": timezone.now() + timedelta(days=3)}),
        ("watch", {"watch": foreign.pk}),
        ("watch", {"watch": "x\x00"}),
        ("checkpoint", {"checkpoint": foreign.checkpoint_id}),
        ("watch", {"watch": "a", "checkpoint": "b"}),
        ("unit", {"name": "completion", "value": 0.85}),
        ("higher_is_better", {"name": "completion", "unit": "%", "higher_is_better": False}),
        ("key", {"key": "k" * 81}),
    ]
    with pytest.raises(DomainError) as refused:
        outcomes_record(project=project, rows=[good, *(good | change for _, change in bad)])
    assert [one["field"] for one in refused.value.details] == [field for field, _ in bad]
    assert [one["row"] for one in refused.value.details] == list(range(2, len(bad) + 2))
    assert Outcome.objects.count() == 1


# --- the API ---


@pytest.fixture
def post(emil: User) -> Callable[..., Any]:
    _, token = token_create(user=emil, name="t", scopes=["read", "write"], days=1)

    def send(body: Any, url: str = URL) -> Any:
        return Client().post(
            url,
            body,
            content_type="application/json",
            headers={"Authorization": f"Bearer {token}"},
        )

    return send


def test_one_and_many_are_taken(project: Project, post: Callable[..., Any]):
    one = post({"name": "completion", "value": 0.85, "n": 100, "at": "2026-05-01T12:00:00Z"})
    assert one.status_code == 201
    assert one.json()["created"] == 1
    rows = [{"name": "completion", "value": 0.8, "key": f"k{k}"} for k in range(1000)]
    assert post(rows).json()["created"] == 1000
    assert post(rows).json() == {"created": 0, "known": 1000, "incidents": 0}


def test_what_does_not_fit_says_in_which_row(project: Project, post: Callable[..., Any]):
    good = {"name": "completion", "value": 0.85}
    shaped = post([good, {"name": "completion"}])
    assert (shaped.status_code, shaped.json()["row"]) == (422, 2)
    meant = post([good, good | {"n": 0}, good | {"name": ""}])
    assert meant.status_code == 400
    assert [one["row"] for one in meant.json()["details"]] == [2, 3]
    assert post([good] * 1001).status_code == 422
    assert post([]).status_code == 422
    assert not Outcome.objects.exists()


def test_a_token_without_the_scope_and_people_without_the_role_may_not(
    project: Project, emil: User, ana: User, olga: User
):
    expected = [(emil, ["read"], 403), (ana, ["read", "write"], 403), (olga, ["write"], 404)]
    for person, scopes, status in expected:
        _, token = token_create(user=person, name="t", scopes=scopes, days=1)
        answer = Client().post(
            URL,
            {"name": "x", "value": 1},
            content_type="application/json",
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.status_code == status


def test_what_was_told_can_be_read_page_by_page(
    project: Project, post: Callable[..., Any], signed_in: Any, emil: User
):
    post([{"name": "completion", "value": k / 10, "key": f"k{k}"} for k in range(5)])
    post({"name": "satisfaction", "value": 4.2, "watch": ""})
    reader = signed_in(emil)
    page = reader.get(f"{URL}?name=completion&limit=2").json()
    assert (page["count"], len(page["items"])) == (5, 2)
    assert page["items"][0].keys() >= {"name", "value", "n", "at", "watch", "checkpoint", "key"}


def test_another_projects_models_are_unknown(project: Project, post: Callable[..., Any]):
    _, foreign = elsewhere_make()
    answer = post({"name": "completion", "value": 1, "watch": foreign.pk})
    assert (answer.status_code, answer.json()["field"]) == (400, "watch")
    assert model_make(project).outcomes.count() == 0
