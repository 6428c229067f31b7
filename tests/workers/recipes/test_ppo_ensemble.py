"""PPO against an ensemble: what its members disagree about teaches nothing and goes to people."""

from pathlib import Path

import pytest
import torch

from tests.workers.recipes.language import Outcome, Workshop, tiny_llama, word_tokenizer
from tests.workers.recipes.test_ppo_parts import improve, ppo, roll_out
from workers.config import settings_for
from workers.contract.events import RecipeError
from workers.models.loading import load_scorer, save_model
from workers.ppo.evaluation import REVIEWS_PER_STEP
from workers.ppo.model import ActorCritic
from workers.rewards.ensemble import EnsembleLayout, Scale

TINY = {
    "steps": 2,
    "batch_size": 8,
    "minibatch_size": 4,
    "max_prompt_length": 16,
    "max_new_tokens": 6,
    "eval_prompts": 4,
    "audit_samples": 1,
    "learning_rate": 1e-3,
    "reward_check": "off",
}


def put_ensemble(shop: Workshop, name: str, *, threshold: float) -> None:
    folder: Path = shop.root / "ensembles" / name
    names = ("member-0", "member-1")
    for seed, member in enumerate(names):
        save_model(tiny_llama(), word_tokenizer(), folder.parent / f"{name}-base")
        torch.manual_seed(seed)
        scorer = load_scorer(folder.parent / f"{name}-base", word_tokenizer())
        save_model(scorer, word_tokenizer(), folder / member)
    EnsembleLayout(names, (Scale(0.0, 1.0),) * 2, threshold=threshold).write(folder)
    shop._put(name, folder, "checkpoint")


def optimise(shop: Workshop, run: str, ensemble: str, **more: object) -> Outcome:
    roles = {"sft": "base", "prompts": "prompts", "reward": ensemble}
    return shop.run_here(shop.spec(run, "ppo", TINY | more, **roles))


def test_answers_over_the_threshold_move_no_weight_and_the_others_do() -> None:
    """An update that leaves rows out is the update of a batch without their tokens."""
    trusted = torch.tensor([True, False, True, True, False, True, True, False])
    weights = []
    for poison in (0.0, 1e3):  # what the untrusted answers would teach, small or enormous
        actor_critic = ActorCritic(tiny_llama()).eval()
        before = torch.cat([p.detach().flatten() for p in actor_critic.parameters()])
        rollout = roll_out(actor_critic)
        rollout.values[~trusted] += poison
        improve(actor_critic, rollout, ppo(update_kl_target=1.0), trusted=trusted)
        weights.append(torch.cat([p.detach().flatten() for p in actor_critic.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)
    assert not torch.equal(weights[0], before)


def test_a_batch_that_is_trusted_whole_is_learned_from_as_ever() -> None:
    weights = []
    for trusted in (None, torch.ones(8, dtype=torch.bool)):
        actor_critic = ActorCritic(tiny_llama()).eval()
        improve(actor_critic, roll_out(actor_critic), ppo(), trusted=trusted)
        weights.append(torch.cat([p.detach().flatten() for p in actor_critic.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)


def test_flagged_answers_are_counted_and_the_worst_of_each_step_go_to_people(
    workshop: Workshop,
) -> None:
    put_ensemble(workshop, "doubting", threshold=1e-9)  # no two members ever agree this much
    outcome = optimise(workshop, "doubted", "doubting")
    assert outcome.ending == "Finished"
    assert outcome.curve("reward/flagged_share") == {1: 1.0, 2: 1.0}
    assert outcome.curve("reward/disagreement")[1] > 0
    assert "loss/policy_avg" not in outcome.metric_names()  # nothing was learned
    assert [alert["rule"] for alert in outcome.all("Alert")] == ["all_flagged"]  # told once
    asked = outcome.all("ReviewRequested")
    assert [event["step"] for event in asked] == [1] * REVIEWS_PER_STEP + [2] * REVIEWS_PER_STEP
    assert "disagree" in asked[0]["reason"]
    flagged = [sample for sample in outcome.all("Sample") if sample["bucket"] == "flagged"]
    assert [sample["response"] for sample in flagged] == [event["response"] for event in asked]
    assert set(flagged[0]["parts"]) == {"reward_model/member-0", "reward_model/member-1"}
    spreads = [
        abs(s["parts"]["reward_model/member-0"] - s["parts"]["reward_model/member-1"])
        for s in flagged
    ]
    assert spreads[:REVIEWS_PER_STEP] == sorted(spreads[:REVIEWS_PER_STEP], reverse=True)


def test_the_configured_threshold_stands_over_the_ensembles_own(workshop: Workshop) -> None:
    put_ensemble(workshop, "overruled", threshold=1e-9)
    reward = {"type": "model", "disagreement_threshold": 1e9}
    outcome = optimise(workshop, "overruled", "overruled", reward=reward)
    assert outcome.curve("reward/flagged_share") == {1: 0.0, 2: 0.0}
    assert outcome.all("ReviewRequested") == []
    assert "loss/policy_avg" in outcome.metric_names()


@pytest.mark.parametrize("value", [0, -1, True, "much"])
def test_a_threshold_that_is_no_number_over_zero_is_refused(value: object) -> None:
    with pytest.raises(RecipeError, match=r"reward\.disagreement_threshold"):
        settings_for("ppo", {"reward": {"type": "model", "disagreement_threshold": value}})
