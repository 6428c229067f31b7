"""Models at a server, watched: fingerprints, answers at temperature 0, latency, claims."""

import random
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.accounts.services import token_create
from apps.common.errors import DomainError
from apps.monitoring.models import Incident, Watch
from apps.training.models import Checkpoint
from tests.monitoring.probed import (
    N_PROMPTS,
    model_make,
    probed,
    prompts_make,
    scores_of,
    watch_make,
)

pytestmark = pytest.mark.usefixtures("artifacts", "wire")
ANSWERS = [f"{k:064x}" for k in range(N_PROMPTS)]
SERVER = {"says": "assistant", "fingerprint": "fp_1"}


def latency(seconds: float, draw: random.Random | None = None) -> dict[str, list[float]]:
    noise = [draw.uniform(0.8, 1.6) if draw else 1.0 for _ in range(N_PROMPTS)]
    return {"latency_p50": [seconds * x for x in noise]}


def probe(watch: Watch, **more: Any) -> set[str]:
    """The rules of what one probe found."""
    given = {"weights": {}, "server": SERVER, "greedy": ANSWERS, "figures": latency(0.4)} | more
    return {one["rule"] for one in probed(watch, scores_of(), **given).findings}


@pytest.fixture
def served(project: Project) -> Checkpoint:
    return model_make(project, "served")


@pytest.fixture
def watch(project: Project, served: Checkpoint) -> Watch:
    return watch_make(project, checkpoint=served)


def test_the_same_server_fifty_times_is_silent(project: Project, watch: Watch):
    draw = random.Random(4)
    assert probe(watch) == set()
    for k in range(50):
        rounded = [f"other {k}"] * (k % 6) + ANSWERS[k % 6 :]  # up to 5 of 40 by rounding
        assert probe(watch, greedy=rounded, figures=latency(0.4, draw)) == set()
    assert not Incident.objects.filter(project=project).exists()


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"greedy": ["x"] * N_PROMPTS}, "probe_answers"),
        ({"server": SERVER | {"fingerprint": "fp_2"}}, "probe_server"),
        ({"server": SERVER | {"says": "another"}}, "probe_server"),
        ({"figures": latency(4.0)}, "probe_latency"),
    ],
)
def test_a_swapped_or_slow_server_is_found_by_the_next_probe(
    project: Project, watch: Watch, changed: dict[str, Any], rule: str
):
    assert probe(watch) == set()
    assert probe(watch, **changed) == {rule}
    watch.refresh_from_db()
    assert watch.state == Watch.State.DRIFTED
    assert Incident.objects.get(project=project).rule == rule


def test_one_fingerprint_in_common_is_the_same_server(watch: Watch):
    assert probe(watch, server=SERVER | {"fingerprint": "fp_1,fp_2"}) == set()
    assert probe(watch, server=SERVER | {"fingerprint": "fp_2,fp_3"}) == set()
    assert probe(watch, server=SERVER | {"fingerprint": "fp_3"}) == {"probe_server"}


def test_a_quarter_of_other_answers_is_not_yet_a_finding(watch: Watch):
    probe(watch)
    quarter = N_PROMPTS // 4
    assert probe(watch, greedy=["x"] * quarter + ANSWERS[quarter:]) == set()
    assert probe(watch, greedy=["x"] * (quarter + 1) + ANSWERS[quarter + 1 :]) == {"probe_answers"}


def test_a_server_that_names_another_checkpoint_than_claimed_is_found(
    project: Project, served: Checkpoint
):
    ours, other = model_make(project), model_make(project, name="other")
    watch = watch_make(project, checkpoint=served, claims=ours)
    named = SERVER | {"says": f"assistant-{ours.pk}"}
    assert probe(watch, server=named) == set()
    other_name = SERVER | {"says": f"assistant-{other.pk}"}
    second = watch_make(project, "second", checkpoint=served, claims=ours)
    assert probe(second, server=other_name) == {"probe_server"}
    assert second.state == Watch.State.DRIFTED


def test_answers_unlike_those_of_the_claimed_model_are_found(project: Project, served: Checkpoint):
    ours, prompts = model_make(project), prompts_make(project)
    own = watch_make(project, "own", checkpoint=ours, prompts=prompts)
    probe(own, weights="a" * 64, server=None)
    watch = watch_make(project, checkpoint=served, claims=ours, prompts=prompts)
    assert probe(watch) == set()
    unlike = watch_make(project, "unlike", checkpoint=served, claims=ours, prompts=prompts)
    assert probe(unlike, greedy=["x"] * N_PROMPTS) == {"probe_server"}


def test_only_a_served_model_claims_to_be_another(project: Project, served: Checkpoint):
    for given in (
        {"checkpoint": model_make(project), "claims": model_make(project)},
        {"checkpoint": served, "claims": served},
        {"checkpoint": served, "claims": model_make(project, "reward")},
    ):
        with pytest.raises(DomainError) as refused:
            watch_make(project, **given)
        assert refused.value.field == "claims"


def test_a_watch_is_made_by_api(
    project: Project, served: Checkpoint, emil: User, ana: User, olga: User
):
    body = {
        "name": "assistant",
        "checkpoint": served.pk,
        "reward": model_make(project, "reward").pk,
        "prompts": prompts_make(project).pk,
        "claims": model_make(project).pk,
    }

    def post(person: User, scope: str) -> Any:
        _, token = token_create(user=person, name="t", scopes=[scope], days=1)
        return Client().post(
            f"/api/v1/projects/{project.slug}/watches",
            body,
            content_type="application/json",
            headers={"Authorization": f"Bearer {token}"},
        )

    assert [post(emil, "read").status_code, post(ana, "write").status_code] == [403, 403]
    assert post(olga, "write").status_code == 404
    assert not Watch.objects.exists()
    made = post(emil, "write")
    assert made.status_code == 201
    watch = Watch.objects.get(pk=made.json()["id"])
    assert (watch.checkpoint_id, watch.claims_id) == (served.pk, body["claims"])
