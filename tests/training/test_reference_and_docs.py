"""Which past runs a run is compared with, and what it takes from them."""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Project
from apps.common.playbook import pages
from apps.snapshots.models import Snapshot
from apps.training.models import Alert, Run, RunAttempt, RunInput
from apps.training.selectors.reference import baseline_of, healthy_like
from tests.training.reports import report
from workers.contract import Fault, Finished, Metrics, Opened
from workers.rules.diagnosis import baseline_from_json

pytestmark = pytest.mark.usefixtures("wire", "artifacts")
KL = "objective/kl"


@pytest.fixture
def trained(project: Project, snapshot_make: Callable[..., Snapshot]) -> Callable[..., Run]:
    prompts = snapshot_make("prompts")

    def make(kl: float = 0.1, inputs: Snapshot | None = None, **config: Any) -> Run:
        run = Run.objects.create(project=project, name="p", kind="ppo", attempt=1, config=config)
        RunAttempt.objects.create(run=run, number=1)
        RunInput.objects.create(run=run, role="prompts", snapshot=inputs or prompts)
        points = Metrics(list(range(60)), {KL: [kl * step for step in range(60)]})
        report(run, Opened(), points, Finished(step=60))
        run.refresh_from_db()
        return run

    return make


def test_runs_that_differ_in_seed_or_step_size_are_its_reference(
    trained: Callable[..., Run],
) -> None:
    run, fast = trained(), trained(learning_rate=1e-3)
    longer = trained(max_new_tokens=500)
    assert healthy_like(run).runs == [fast]
    assert healthy_like(longer).runs == []


def test_runs_with_a_warning_or_other_prompts_are_none(
    trained: Callable[..., Run], snapshot_make: Callable[..., Snapshot]
) -> None:
    run, ill, other = trained(), trained(), trained(inputs=snapshot_make("prompts"))
    alert = {"attempt": 1, "seq": 99, "step": 3, "rule": "ratio", "message": "!"}
    Alert.objects.create(run=ill, severity="warning", raised_at=ill.created_at, **alert)
    told = trained()
    Alert.objects.create(run=told, severity="info", raised_at=told.created_at, **alert)
    assert healthy_like(run).runs == [told]
    assert other not in healthy_like(run).runs


def test_a_baseline_says_what_they_were_like_at_the_same_step(trained: Callable[..., Run]) -> None:
    run = trained()
    assert baseline_of(run) is None
    for kl in (0.08, 0.1, 0.1, 0.12):
        trained(kl=kl)
    usual = baseline_of(run).at(KL, 52)
    assert usual is not None
    assert usual.mean == pytest.approx(5.2), "steps 50 to 54, four runs of 0.1 nats a step"
    assert usual.runs == 4
    assert usual.z(50.0) > 4
    assert abs(usual.z(5.5)) < 1


def test_where_they_are_too_few_runs_with_inputs_of_the_same_size_are_taken_with_wider_limits(
    trained: Callable[..., Run], snapshot_make: Callable[..., Snapshot]
) -> None:
    """Such as after the reward model, or the prompts, were made again."""

    def prompts(rows: int) -> Snapshot:
        return snapshot_make("prompts", rows={"train": rows})

    run = trained(inputs=prompts(1000))
    near = [trained(inputs=prompts(rows)) for rows in (900, 950, 1050, 1100)]
    trained(inputs=prompts(5000))
    found = healthy_like(run)
    assert found.near
    assert {one.pk for one in found.runs} == {one.pk for one in near}
    baseline = baseline_of(run)
    assert baseline is not None
    assert baseline.at(KL, 52).wider == 1.5
    assert baseline_from_json(baseline.to_json()).wider == 1.5


def test_a_new_run_takes_it_along(
    trained: Callable[..., Run], snapshot_make: Callable[..., Snapshot]
) -> None:
    from apps.training.services.attempts import run_dispatch

    for _ in range(4):
        trained()
    run = trained()
    attempt = run_dispatch(run=run, cause="resume")
    assert attempt is not None
    assert len(attempt.spec["baseline"]["means"][KL]["3"]) == 4


# `docs/jobs.md` is complete: every way a run can fail is explained to who has to act on it.


ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"[a-z]+(_[a-z]+)*")


def kinds_in_code() -> dict[str, str]:
    """kind -> a file that emits it: the first argument of Failed(…) and RecipeError(…), `kind=` of
    whatever ends a run, the pairs of `died_of`, and the constants that name a kind."""
    found: dict[str, str] = {}
    for path in [*ROOT.glob("workers/**/*.py"), *ROOT.glob("apps/training/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            for text in _kinds(node):
                found[text] = str(path.relative_to(ROOT))
    return found


def _kinds(node: ast.AST) -> list[str]:
    match node:
        case ast.Call(func=ast.Name(id="Failed" | "RecipeError"), args=[first, *_]):
            return _texts(first)
        case ast.Call(func=ast.Name(id="run_end" | "run_fail_or_retry" | "Failed"), keywords=given):
            return [text for word in given if word.arg == "kind" for text in _texts(word.value)]
        case ast.FunctionDef(name="died_of"):
            returns = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
            return [text for pair in returns for text in _texts(pair.elts[0])]
        case ast.Assign(targets=[ast.Name(id="VIOLATION" | "OUTSIDE")], value=value):
            return _texts(value)
    return []


def _texts(node: ast.AST) -> list[str]:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return [node.value] if is_text and CODE.fullmatch(node.value) else []


def documented() -> dict[str, str]:
    """kind -> fault, of the table in docs/jobs.md."""
    table = (ROOT / "docs/jobs.md").read_text().partition("## Failure kinds")[2]
    return dict(re.findall(r"^\| `([a-z_]+)` \| (\w+) \|", table, re.M))


def test_every_failure_kind_in_the_code_is_documented() -> None:
    in_code = kinds_in_code()
    assert {"killed", "bug", "lost", "bad_config", "contract_violation", "exited"} <= set(in_code)
    missing = {kind: file for kind, file in in_code.items() if kind not in documented()}
    assert missing == {}


def test_no_failure_kind_is_documented_that_the_code_does_not_know() -> None:
    assert set(documented()) - set(kinds_in_code()) == set()


def test_every_documented_failure_has_its_next_step_on_the_page_of_the_run() -> None:
    told = {kind for page in pages().values() for kind in page.next_steps}
    # Findings of probes stand there too: they are of a monitored model, and fail no run.
    of_groups = {
        kind for kind in told if kind.startswith(("preflight_", "probe_")) or kind.endswith("*")
    }
    assert told - of_groups == set(documented())


def test_every_documented_fault_is_one_of_the_contract() -> None:
    assert set(documented().values()) <= set(Fault)


def test_every_state_of_a_run_is_documented() -> None:
    states = (ROOT / "docs/jobs.md").read_text().partition("## The lease")[0]
    assert set(re.findall(r"^\| `([a-z]+)` \|", states, re.M)) == set(Run.State)


def test_the_documented_fault_of_a_kind_is_the_one_the_code_gives() -> None:
    """As far as both stand in one call: `Failed("kind", Fault.X, …)`."""
    table = documented()
    for path in [*ROOT.glob("workers/**/*.py"), *ROOT.glob("apps/training/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="Failed" | "RecipeError"),
                    args=[ast.Constant(value=str(kind)), ast.Attribute(attr=fault), *_],
                ):
                    assert table.get(kind) == Fault[fault], f"{kind} in {path.name}"
