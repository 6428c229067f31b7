"""Advice on the page and by API from the rows of head-to-heads, evaluations and suites."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.evaluation.models import HeadToHead
from apps.evaluation.selectors.head_to_head import plan_of
from apps.snapshots.advice import Advice, Facts, Method, advise
from apps.snapshots.services.readiness import gather
from apps.training.models import Checkpoint, Run, RunInput
from measures.head_to_head import least_of
from tests.evaluation.promoted import compared_by_people, policy_made, run_made, saved, suite_made
from tests.evaluation.test_protocols import FIRST, WARMER, won

pytestmark = pytest.mark.django_db

PAGE = "/p/arguments/ready/"
SUITE_WORSE = {"difference": {"value": -0.2, "low": -0.3, "high": -0.1, "n": 40}}


@pytest.fixture
def ppo(project: Project) -> Checkpoint:
    return policy_made(project, seeds=1, evaluated=False)


@pytest.fixture
def dpo(project: Project) -> Checkpoint:
    return saved(run_made(project, "dpo", "a DPO policy"))


def judged(model: Checkpoint, value: float, protocol: Any = FIRST, **fields: Any) -> Run:
    summary = {"judge": {"win_rate": won(value)}, "protocol": protocol.to_json()}
    project = fields.pop("project", model.project)
    run = run_made(project, "evaluate", f"evaluation of {model.pk}", summary=summary)
    RunInput.objects.create(run=run, role="policy", checkpoint=model)
    return run


def sixty_forty(ppo: Checkpoint, dpo: Checkpoint, **fields: Any) -> HeadToHead:
    """Twelve people prefer PPO to DPO in three of five votes."""
    return compared_by_people(ppo, 0.6, second=dpo, n=1_200, second_name="DPO", **fields)


def advice(project: Project) -> Advice:
    return advise(Facts(**gather(project).facts | {"pairs": 12_000}))


def piece(found: Advice, key: str) -> Any:
    return next(item for item in found.items if item.key.startswith(key))


def test_twelve_people_decide_for_ppo_though_the_judge_says_dpo(
    ppo: Checkpoint, dpo: Checkpoint
) -> None:
    judged(ppo, 0.55)
    judged(dpo, 0.75)
    assert advice(ppo.project).method is Method.DPO
    asked = sixty_forty(ppo, dpo)
    found = advice(ppo.project)
    assert found.method is Method.PPO
    item = piece(found, "measured")
    assert "60.0 %" in item.evidence
    assert "by 12 people" in item.evidence
    assert [link.url for link in item.links] == [f"/p/arguments/head-to-heads/{asked.pk}/"]
    assert "judge says otherwise" in item.reason


def test_three_people_are_too_few_and_the_number_needed_is_said(
    ppo: Checkpoint, dpo: Checkpoint
) -> None:
    asked = compared_by_people(ppo, 1.0, second=dpo, people=3)
    found = advice(ppo.project)
    assert found.items[0].key == "default"
    needed = least_of(plan_of(asked))[0]
    item = piece(found, "too_few")
    assert f"3 people, 120 votes; {needed} people are needed" in item.evidence


def test_people_asked_by_two_protocols_claim_nothing_and_the_lines_are_named(
    ppo: Checkpoint, dpo: Checkpoint
) -> None:
    """All for PPO, nobody for DPO, against the same baseline: until the margins differ."""
    plan = {"plan": {"margin": 0.05}}
    first = compared_by_people(ppo, 1.0, protocol=plan, protocol_sha256="1" * 64)
    compared_by_people(dpo, 0.55, protocol=plan, protocol_sha256="2" * 64)
    assert advice(ppo.project).method is Method.PPO
    first.protocol = {"plan": {"margin": 0.1}}
    first.save(update_fields=["protocol"])
    found = advice(ppo.project)
    assert found.items[0].key == "default"
    assert "plan.margin is 0.05 and 0.1" in piece(found, "protocols_people").evidence


def test_the_judges_protocols_lead_to_the_page_of_what_differs(
    ppo: Checkpoint, dpo: Checkpoint
) -> None:
    judged(ppo, 0.9)
    judged(dpo, 0.55, WARMER)
    item = piece(advice(ppo.project), "protocols_judge")
    assert "sampling.temperature" in item.evidence
    assert item.links[-1].url.startswith("/p/arguments/protocols/")
    assert "/against/" in item.links[-1].url


def test_a_regressed_suite_is_named_with_its_difference(ppo: Checkpoint, dpo: Checkpoint) -> None:
    sixty_forty(ppo, dpo)
    suite = suite_made(ppo, "worse", ["arithmetic"])
    suite.summary["regression"]["categories"] = {"arithmetic": SUITE_WORSE}
    suite.save(update_fields=["summary"])
    found = advice(ppo.project)
    assert found.method is Method.DPO
    item = piece(found, "against_ppo")
    assert "arithmetic: −20.0 points" in item.evidence
    assert item.links[0].url == f"/p/arguments/runs/{suite.pk}/"


def test_nothing_of_another_project_enters(ppo: Checkpoint, dpo: Checkpoint) -> None:
    """Head-to-heads, evaluations and suites of another project, even of these very models."""
    other = Project.objects.create(slug="other", name="Other")
    before = advice(ppo.project)
    sixty_forty(ppo, dpo, project=other)
    judged(ppo, 0.9, project=other)
    judged(dpo, 0.5, project=other)
    Run.objects.filter(pk=suite_made(dpo, "worse").pk).update(project=other)
    theirs = policy_made(other, "theirs", seeds=1, evaluated=False)
    sixty_forty(theirs, saved(run_made(other, "dpo", "another DPO policy")))
    assert advice(ppo.project) == before
    assert advice(other).method is Method.PPO


def test_a_program_reads_the_same_advice(
    ppo: Checkpoint, dpo: Checkpoint, rita: User, emil: User, signed_in: Callable[[User], Client]
) -> None:
    asked = sixty_forty(ppo, dpo)
    suite = suite_made(dpo, "worse", ["arithmetic"])
    kto = saved(run_made(ppo.project, "kto", "a KTO policy"))
    compared_by_people(ppo, 0.6, second=kto, n=1_200, second_name="KTO")
    address = "/api/v1/projects/arguments/advice"
    stated = {"task": "open", "rules": "none", "baseline": 0.6, "latency_ms": 900}
    answers = {user: signed_in(user).get(address, stated).json() for user in (rita, emil)}
    page = signed_in(rita).get(PAGE, {"task": "open", "rules": "none"}).content.decode()
    for answer in answers.values():
        assert answer["headline"] in page
        assert "task" not in [one["key"] for one in answer["unknown"]]
    items = {user: {one["key"]: one for one in said["items"]} for user, said in answers.items()}
    urls = {
        user: [link["url"] for link in said["against_dpo"]["links"]] for user, said in items.items()
    }
    assert urls == {rita: [], emil: [f"/p/arguments/runs/{suite.pk}/"]}
    assert items[rita]["measured"]["kind"] in ("method", "overruled")
    assert f"/{asked.pk}/" not in str(items[rita])  # against what is not advised anyway
    assert signed_in(rita).get(address, {"baseline": 60}).status_code == 422


def test_the_page_leads_to_the_evidence_and_reviewers_to_no_run(
    ppo: Checkpoint,
    dpo: Checkpoint,
    rita: User,
    emil: User,
    signed_in: Callable[[User], Client],
) -> None:
    sixty_forty(dpo, ppo)
    suite = suite_made(ppo, "worse", ["arithmetic"])
    compared_by_people(
        saved(run_made(ppo.project, "kto", "a KTO policy")), 0.6, second=dpo, n=1_200
    )
    stated = {"task": "open"}
    pages = {user: signed_in(user).get(PAGE, stated).content.decode() for user in (rita, emil)}
    for page in pages.values():
        assert "What this project measured" in page
        assert "PPO is not advised: it became worse at arithmetic" in page
        assert "by 12 people" in page
    assert f"/runs/{suite.pk}/" not in pages[rita]
    assert f'href="/p/arguments/runs/{suite.pk}/"' in pages[emil]
