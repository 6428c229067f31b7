"""GRPO from start to end on a language of a few words."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import Outcome, Workshop, tiny_llama, user
from tests.workers.recipes.test_resume import check_joined, stop_and_resume
from workers.contract.events import RecipeError
from workers.models.loading import load_causal
from workers.recipes import grpo

pytestmark = [
    pytest.mark.recipe,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # inside TRL
]

PLANTED = {
    "reward": {"type": "token_count", "token": "good"},
    "steps": 4,
    "batch_size": 32,
    "group_size": 8,
    "max_prompt_length": 16,
    "max_new_tokens": 8,
    "learning_rate": 3e-3,
    "eval_every": 2,
    "eval_prompts": 8,
    "save_every": 2,
    "sample_every": 2,
    "audit_samples": 2,
    "baseline_answers": 2,
    "missing_eos_penalty": 0.0,  # the planted reward is all that teaches
    "reward_check": "off",  # no reward ranks the words of a model that never learned to speak
}
INPUTS = {"sft": "base", "prompts": "prompts"}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models of this size lose more by sharing than they gain."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def asked(workshop: Workshop) -> Workshop:
    """Prompts that know what is right: the last word of praise or blame must be good."""
    rows = [{"prompt": user(subject), "answer": "good"} for subject in SUBJECTS]
    workshop.put_snapshot("answered", train=rows)
    return workshop


@pytest.fixture(scope="module")
def learned(asked: Workshop) -> Outcome:
    """A verifier pays for saying good last; a rule that is only asked wants good anywhere."""
    config = PLANTED | {
        "reward": {
            "type": "verifier",
            "check": "exact",
            "take": "match",
            "pattern": r"\b(good|bad|red|blue)\b",
        },
        "verifier": {"type": "rules", "rules": [{"name": "kind", "contains": ["good"]}]},
        "steps": 12,
        "learning_rate": 1e-2,
        "batch_size": 48,
        "eval_every": 6,
        "eval_prompts": 16,
        "save_every": 12,
        "sample_every": 6,
    }
    spec = asked.spec("grpo_learned", "grpo", config, sft="base", prompts="answered")
    return asked.run_here(spec)


def test_the_policy_learns_what_a_verifier_can_check(learned: Outcome) -> None:
    scores = learned.curve("eval/score")
    assert scores[12] > scores[0] + 0.3
    assert learned.summary["last"]["eval/score"] == scores[12]


def test_the_policy_learns_what_a_function_of_an_installed_package_pays_for(
    asked: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "paying.py").write_text(
        "def pays(prompts, answers, rows):\n"
        "    return [a.split().count(row['answer']) for a, row in zip(answers, rows)]\n"
    )
    info = tmp_path / "paying-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: paying\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[concord.rewards]\npays = paying:pays\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = PLANTED | {
        "reward": {"type": "function", "name": "pays"},
        "steps": 6,
        "learning_rate": 1e-2,
        "batch_size": 48,
        "eval_every": 6,
        "eval_prompts": 16,
        "save_every": 6,
    }
    spec = asked.spec("grpo_function", "grpo", config, sft="base", prompts="answered")
    scores = asked.run_here(spec).curve("eval/score")
    assert scores[6] > scores[0] + 0.3


def test_a_reward_for_form_alone_is_named_while_answers_stay_wrong(
    asked: Workshop, learned: Outcome
) -> None:
    """The fault: no answer is ever right, and one that can be read costs less than none."""
    rows = [{"prompt": user(subject), "answer": "purple"} for subject in SUBJECTS]
    asked.put_snapshot("never", train=rows)
    judged = {"type": "verifier", "check": "exact", "take": "match", "missing": -1.0}
    config = PLANTED | {
        "reward": judged | {"pattern": r"\b(red)\b"},
        "steps": 30,
        "learning_rate": 1e-3,
        "batch_size": 48,
        "eval_every": 30,
        "save_every": 30,
        "sample_every": 30,
    }
    spec = asked.spec("grpo_form", "grpo", config, sft="base", prompts="never")
    run = asked.run_here(spec)
    assert set(run.curve("verifier/correct_share").values()) == {0.0}
    assert "form_without_answer" in {alert["rule"] for alert in run.all("Alert")}
    assert "form_without_answer" not in {alert["rule"] for alert in learned.all("Alert")}


@pytest.mark.parametrize(
    "algorithm",
    [
        {"loss_type": "rloo", "scale_rewards": "none", "kl_coef": 0.01},
        {
            "importance_sampling_level": "sequence",
            "loss_type": "grpo",
            "clip": 0.02,
            "update_epochs": 2,
        },
    ],
    ids=["rloo", "gspo"],
)
def test_rloo_and_gspo_learn_it_too_and_go_on_bit_for_bit(
    asked: Workshop, algorithm: dict, request: pytest.FixtureRequest
) -> None:
    config = PLANTED | {"steps": 12, "learning_rate": 1e-2, "eval_every": 6, "save_every": 6}
    parts = stop_and_resume(
        asked, "grpo", config | algorithm, 7, prefix=request.node.callspec.id, **INPUTS
    )
    check_joined(*parts)
    scores = parts[0].curve("eval/score")
    assert scores[12] > scores[0] + 0.3
    assert parts[0].curve("objective/kl")[12] > parts[0].curve("objective/kl")[1]


def test_policy_and_reference_are_one_at_the_first_step_and_part_once_weights_move(
    learned: Outcome,
) -> None:
    kl, per_token = learned.curve("objective/kl"), learned.curve("objective/kl_per_token")
    assert abs(kl[1]) < 1e-5
    assert kl[12] > 0.1
    assert 0 <= per_token[1] < 1e-6 < per_token[12]
    assert learned.curve("eval/kl")[12] > 0.1


def test_every_step_says_what_its_groups_had_to_teach(learned: Outcome) -> None:
    for name in ("grpo/zero_variance_share", "grpo/within_group_std", "grpo/advantage_abs"):
        assert sorted(learned.curve(name)) == list(range(1, 13))
    assert 0 <= learned.curve("grpo/zero_variance_share")[1] < 1
    agreement = [v for v in learned.curve("grpo/rank_agreement").values() if v is not None]
    assert agreement
    assert min(agreement) > 0.5  # who says good last has said it


def test_it_ends_with_samples_an_audit_beside_the_reference_and_its_best_checkpoint(
    learned: Outcome,
) -> None:
    audited = [s for s in learned.all("Sample") if s["baseline"] is not None]
    assert {s["bucket"] for s in audited} == {"high", "low", "random"}
    assert len([s for s in learned.all("Sample") if s["baseline"] is None]) == 6
    assert learned.all("Generated")[-1]["purpose"] == "audit"
    tags = [saved["tags"] for saved in learned.all("CheckpointSaved")]
    assert {"last", "final"} <= set(tags[-1])
    assert sum("best" in each for each in tags) >= 1


def test_its_checkpoint_is_a_policy_that_other_runs_can_begin_with(
    asked: Workshop, learned: Outcome
) -> None:
    asked.adopt("grpo_policy", learned)
    config = {"max_new_tokens": 4, "max_prompt_length": 16, "max_prompts": 4}
    spec = asked.spec(
        "grpo_answers", "generate", config, policy="grpo_policy", prompts="prompts", sft="base"
    )
    assert asked.run_here(spec).summary
    saved = learned.all("CheckpointSaved")[-1]
    folder = asked.store.get_tree(
        saved["uri"], sha256=saved["sha256"], cache=asked.root / "looked_at"
    )
    assert load_causal(folder).config.architectures == ["LlamaForCausalLM"]


@pytest.mark.parametrize("kind", ["adapters", "weights"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(workshop: Workshop, kind: str) -> None:
    """The other run takes two steps a batch, and its divergence has no price: a batch that is half
    used is finished before the run stops, and the divergence is measured all the same."""
    config = PLANTED | {"warmup_share": 0.5}
    if kind == "weights":
        config |= {"steps": 6, "lora_rank": 0, "update_epochs": 2, "microbatch_size": 8}
        config |= {"kl_coef": 0, "force_zero_kl": True, "baseline_answers": 0}
    name = f"grpo_{kind}"
    whole = workshop.run_here(workshop.spec(f"{name}_whole", "grpo", config, **INPUTS))
    first = workshop.run_here(workshop.spec(f"{name}_cut", "grpo", config, **INPUTS), after_step=2)
    stopped_at = first.all("CheckpointSaved")[-1]["step"]
    assert stopped_at == {"adapters": 3, "weights": 4}[kind]
    resume = workshop.resume(first)
    again = workshop.spec(f"{name}_cut", "grpo", config, attempt=2, resume=resume, **INPUTS)
    second = workshop.run_here(again)
    check_joined(whole, first, second)
    assert second.summary["last"] == whole.summary["last"]
    assert bests(second)[-1:] == [step for step in bests(whole) if step > stopped_at][-1:]
    kl = whole.curve("objective/kl")
    assert abs(kl[1]) < 1e-5
    assert kl[4] > 0.01


def bests(outcome: Outcome) -> list[int]:
    return [s["step"] for s in outcome.all("CheckpointSaved") if "best" in s["tags"]]


def test_a_cancelled_run_leaves_evaluation_and_audit(workshop: Workshop) -> None:
    spec = workshop.spec("grpo_cancelled", "grpo", PLANTED, **INPUTS)
    outcome = workshop.run_here(spec, command="cancel", after_step=1)
    assert outcome.all("CheckpointSaved")[-1]["tags"] == ["last"]
    assert not outcome.all("Generated")
    assert sorted(outcome.curve("eval/score")) == [0]


def test_a_preflight_looks_and_trains_nothing(workshop: Workshop) -> None:
    config = PLANTED | {"preflight": True, "reward_check": "warn"}
    outcome = workshop.run_here(workshop.spec("grpo_preflight", "grpo", config, **INPUTS))
    assert outcome.summary["step"] == 0
    assert set(outcome.summary["preflight"]["checks"]) >= {"configuration", "reward", "lengths"}
    assert not outcome.all("CheckpointSaved")


def test_groups_of_equal_rewards_teach_nothing_and_are_told(workshop: Workshop) -> None:
    config = PLANTED | {
        "reward": {"type": "token_count", "token": "xylophone"},
        "guards": {"zero_variance": {"patience": 1}},
        "steps": 2,
    }
    outcome = workshop.run_here(workshop.spec("grpo_constant", "grpo", config, **INPUTS))
    assert outcome.curve("grpo/zero_variance_share") == {1: 1.0, 2: 1.0}
    assert outcome.curve("grpo/advantage_abs")[2] == 0.0
    assert outcome.curve("objective/kl")[2] == pytest.approx(0.0, abs=1e-6)
    rules = [alert["rule"] for alert in outcome.all("Alert")]
    assert "zero_variance" in rules
    assert rules.count("constant_reward") == 1


def test_a_reference_that_is_meant_to_be_another_model_is_what_divergence_is_measured_from(
    workshop: Workshop,
) -> None:
    workshop.put_model("grpo_stranger", tiny_llama(seed=9))
    inputs = INPUTS | {"reference": "grpo_stranger"}
    config = PLANTED | {"steps": 1, "baseline_answers": 0, "reference_differs": True}
    outcome = workshop.run_here(workshop.spec("grpo_meant", "grpo", config, **inputs))
    assert outcome.curve("objective/kl")[1] > 0.1


def test_weights_that_explode_end_the_run_with_a_failed_checkpoint(workshop: Workshop) -> None:
    config = PLANTED | {"learning_rate": 1e25, "lora_rank": 0, "lr_schedule": "constant"}
    notebook: list = []
    with pytest.raises(RecipeError) as raised:
        workshop.run_here(workshop.spec("grpo_exploding", "grpo", config, **INPUTS), keep=notebook)
    assert raised.value.kind == "non_finite"
    saved = [e["event"] for e in notebook if e["type"] == "CheckpointSaved"]
    assert saved[-1]["tags"] == ["failed"]


def test_a_reward_that_breaks_ends_the_run_and_says_so(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL would train on what is left."""

    class Broken:
        def score(self, prompts: list, responses: list) -> None:
            raise ZeroDivisionError("the service fell over")

    monkeypatch.setattr(grpo, "build_reward", lambda *args, **options: Broken())
    monkeypatch.setattr(grpo.Outside, "evaluate", lambda self: {"eval_score": 0.0})
    config = PLANTED | {"steps": 1, "baseline_answers": 0}
    with pytest.raises(RecipeError, match="ZeroDivisionError") as raised:
        workshop.run_here(workshop.spec("grpo_broken", "grpo", config, **INPUTS))
    assert raised.value.kind == "reward_failed"


@pytest.mark.parametrize(
    ("config", "inputs", "expected"),
    [
        ({"batch_size": 30}, INPUTS, "multiple of group_size"),
        ({"max_new_tokens": 60}, INPUTS, "positions of this model"),
        ({"reward": {"type": "model"}}, INPUTS, "'reward'"),
        ({}, {"prompts": "prompts"}, "'sft'"),
        ({"max_prompt_length": 3}, INPUTS, "no prompt is left"),
    ],
)
def test_what_cannot_work_is_refused(
    workshop: Workshop, config: dict, inputs: dict, expected: str
) -> None:
    name = f"grpo_refused_{len(json.dumps(config))}"
    with pytest.raises(RecipeError, match=expected):
        workshop.run_here(workshop.spec(name, "grpo", PLANTED | config, **inputs))
