"""The ways a PPO policy can be made: adapters over the reference, a critic of its own, budgets."""

from pathlib import Path

import pytest
import torch

from tests.workers.recipes.language import tiny_gpt2, tiny_llama, user, word_tokenizer
from tests.workers.recipes.test_ppo_parts import IDS, MESSAGES, improve, ppo
from workers.contract.events import RecipeError
from workers.models.forward import Reference
from workers.models.loading import disable_dropout, load_causal, weights_sha256
from workers.models.lora import attach_policy_lora
from workers.ppo.checkpoint import TrainingState, restore, save
from workers.ppo.model import ActorCritic, critic_of
from workers.ppo.rollout import Rollout, collect, parts_of, sequences_of
from workers.ppo.setup import make_optimizer
from workers.rl.losses import explained_variance
from workers.rollouts.local import Responses, Sampling

TOKENIZER = word_tokenizer()


def adapted(make=tiny_llama, *, seed: int = 0, critic: bool = False) -> ActorCritic:
    policy = make(seed)
    disable_dropout(policy)  # as every loaded model has it
    own = critic_of(policy) if critic else None
    torch.manual_seed(seed)
    handle = attach_policy_lora(policy, rank=4, alpha=8)
    return ActorCritic(policy, adapted=handle, critic=own).eval()


def roll_out(actor_critic: ActorCritic, **options) -> Rollout:
    reference = Reference.below_adapters(actor_critic.adapted)
    sampling = Sampling(8, seed=4)
    return collect(
        actor_critic, reference, TOKENIZER, MESSAGES, IDS, sampling, policy_version=0, **options
    )


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
def test_adapters_switched_off_are_the_base_after_training_and_switched_on_are_not(make) -> None:
    base = make(0)
    actor_critic = adapted(make)
    reference = Reference.below_adapters(actor_critic.adapted)
    rollout = roll_out(actor_critic)
    torch.testing.assert_close(rollout.logprobs, rollout.ref_logprobs, rtol=0, atol=1e-6)
    improve(actor_critic, rollout, ppo(learning_rate=1e-2, update_kl_target=1.0))
    *sequences, _ = sequences_of(rollout.responses, torch.arange(8))
    untouched = Reference(base.requires_grad_(False)).logprobs(*sequences, temperature=1.0)
    mask = sequences[-1].bool()
    off = reference.logprobs(*sequences, temperature=1.0)
    torch.testing.assert_close(off[mask], untouched[mask], rtol=0, atol=1e-6)
    on = actor_critic(*sequences, temperature=1.0).logprobs
    assert (on - off)[mask].abs().max() > 1e-3
    reference.check()


def test_a_weight_below_the_adapters_that_moves_is_seen() -> None:
    actor_critic = adapted()
    reference = Reference.below_adapters(actor_critic.adapted)
    with torch.no_grad():
        actor_critic.policy.model.norm.weight[0] += 1e-3
    with pytest.raises(RecipeError) as raised:
        reference.check()
    assert raised.value.kind == "contract_reference_changed"


def test_only_adapters_and_critic_train() -> None:
    names = set(adapted().trained_names().values())
    assert names
    assert all("lora_" in name or name.startswith("value_head") for name in names)
    names = set(adapted(critic=True).trained_names().values())
    assert any(name.startswith("critic.") for name in names)


@pytest.mark.parametrize("critic", [False, True])
def test_a_saved_policy_with_adapters_loads_as_a_plain_model_and_resumes_bit_for_bit(
    tmp_path: Path, critic: bool
) -> None:
    settings = ppo()
    actor_critic = adapted(critic=critic)
    optimizer = make_optimizer(actor_critic, settings)
    rollout = roll_out(actor_critic)
    improve(actor_critic, rollout, settings, optimizer=optimizer)
    save(tmp_path / "c", actor_critic, TOKENIZER, optimizer, TrainingState(kl_coef=0.1, step=1))

    other = adapted(critic=critic)
    other.load(tmp_path / "c")
    other_optimizer = make_optimizer(other, settings)
    restore(tmp_path / "c", other, other_optimizer)
    assert weights_sha256(other) == weights_sha256(actor_critic)
    for learner, its_optimizer in ((actor_critic, optimizer), (other, other_optimizer)):
        improve(learner, roll_out(learner), settings, optimizer=its_optimizer)
    assert weights_sha256(other) == weights_sha256(actor_critic)

    plain = load_causal(tmp_path / "c")
    *sequences, _ = sequences_of(rollout.responses, torch.arange(8))
    fresh = adapted(critic=critic)
    fresh.load(tmp_path / "c")
    mask = sequences[-1].bool()
    torch.testing.assert_close(
        Reference(plain).logprobs(*sequences, temperature=1.0)[mask],
        fresh(*sequences, temperature=1.0).logprobs.detach()[mask],
        rtol=0,
        atol=1e-4,
    )


def test_a_critic_of_its_own_learns_a_fixed_rollout_and_leaves_the_policy_alone() -> None:
    policy = tiny_gpt2()
    actor_critic = ActorCritic(policy, critic=critic_of(policy)).eval()
    before = weights_sha256(actor_critic.policy)
    responses = _responses()
    *sequences, _ = sequences_of(responses, torch.arange(4))
    assert actor_critic.values(*sequences).eq(0).all()
    mask = sequences[-1]
    returns = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(actor_critic.critic_parameters(), lr=3e-3)
    for _ in range(100):
        values = actor_critic.values(*sequences)
        loss = ((values - returns) ** 2)[mask.bool()].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert explained_variance(values.detach(), returns, mask) > 0.9
    assert weights_sha256(actor_critic.policy) == before


@pytest.mark.parametrize("critic", [False, True])
def test_the_critics_warm_up_moves_no_weight_of_the_policy(critic: bool) -> None:
    actor_critic = adapted(critic=critic)
    before = weights_sha256(actor_critic.policy)
    head = actor_critic.value_head.weight.detach().clone()
    improve(actor_critic, roll_out(actor_critic), ppo(), critic_alone=True)
    assert weights_sha256(actor_critic.policy) == before
    assert not torch.equal(actor_critic.value_head.weight, head)


@pytest.mark.parametrize("budget", [16, 40, 4096])
def test_a_token_budget_changes_the_parts_and_not_the_gradient(budget: int) -> None:
    weights = []
    for limit in (None, budget):
        actor_critic = adapted()
        settings = ppo(minibatch_size=8, update_epochs=1, max_tokens_per_batch=limit)
        rollout = roll_out(actor_critic)
        optimizer = torch.optim.SGD(
            [{"params": list(actor_critic.trained_names()), "base_lr": 0.1}], lr=0.1
        )
        improve(actor_critic, rollout, settings, optimizer=optimizer)
        weights.append(torch.cat([p.detach().flatten() for p in actor_critic.trained_names()]))
    torch.testing.assert_close(*weights, atol=1e-6, rtol=1e-5)


def test_parts_hold_every_row_once_within_the_budget_and_similar_lengths_together() -> None:
    responses = _responses(lengths=(2, 9, 3, 8, 1, 9), prompts=(3, 4, 3, 5, 3, 3))
    parts = parts_of(responses, torch.arange(6), most_rows=3, most_tokens=30)
    assert sorted(i for part in parts for i in part.tolist()) == list(range(6))
    for part in parts:
        width = int(
            responses.prompt_mask[part].sum(1).max() + responses.response_mask[part].sum(1).max()
        )
        assert len(part) == 1 or len(part) * width <= 30
        assert len(part) <= 3
    assert {1, 3} <= set(parts[0].tolist())  # the longest ones
    packed = parts_of(responses, torch.arange(6), most_rows=None, most_tokens=30, packed=True)
    assert [part.tolist() for part in packed] == [[1, 3], [5, 2, 0, 4]]  # 26 and 27 tokens


def test_answers_drawn_in_chunks_are_looked_at_like_any_and_told_of_as_they_come() -> None:
    heard: list[int] = []
    actor_critic = adapted()
    rollout = roll_out(
        actor_critic, chunk=3, max_tokens=48, on_drawn=lambda asked, texts: heard.append(len(texts))
    )
    assert heard == [3, 3, 2]
    assert rollout.prompts == MESSAGES
    *sequences, width = sequences_of(rollout.responses, torch.arange(8))
    again = actor_critic(*sequences, temperature=1.0).logprobs
    mask = sequences[-1].bool()
    torch.testing.assert_close(again[mask], rollout.logprobs[:, :width][mask], rtol=0, atol=1e-5)
    texts = TOKENIZER.batch_decode(rollout.responses.response_ids[0:1], skip_special_tokens=True)
    assert texts[0].split() == rollout.responses.texts[0].split()


def test_the_exact_divergence_is_the_expectation_of_k1() -> None:
    actor_critic = adapted()
    improve(actor_critic, roll_out(actor_critic), ppo(learning_rate=2e-2, update_kl_target=1.0))
    reference = Reference.below_adapters(actor_critic.adapted)
    many = [user("the big red dog")] * 400
    ids = [IDS[1]] * 400
    rollout = collect(
        actor_critic,
        reference,
        TOKENIZER,
        many,
        ids,
        Sampling(3, seed=1),
        policy_version=0,
        exact_kl=True,
    )
    real = rollout.mask.bool()
    assert (rollout.kl("full")[real] >= -1e-6).all()
    sampled, exact = rollout.kl("k1")[real], rollout.kl("full")[real]
    error = float((sampled - exact).std() / len(sampled) ** 0.5)
    assert float(exact.mean()) > 1e-3
    assert abs(float((sampled - exact).mean())) < 4 * error


def test_records_carry_version_seed_sampling_and_parts() -> None:
    rollout = roll_out(adapted())
    record = rollout.records(step=3, calibrated=None)[0]
    assert (record["step"], record["policy_version"], record["seed"]) == (3, 0, 4)
    assert record["temperature"] == 1.0
    assert record["tokens"] == int(rollout.responses.lengths[0])
    assert record["logprob"] == pytest.approx(
        float(rollout.logprobs[0][rollout.mask[0].bool()].sum()), abs=1e-5
    )


def _responses(lengths=(5, 8, 3, 8), prompts=(4, 4, 2, 3)) -> Responses:
    """Made up answers of these lengths."""
    generator = torch.Generator().manual_seed(3)
    wide, long = max(prompts), max(lengths)
    return Responses(
        prompt_ids=torch.randint(4, 18, (len(lengths), wide), generator=generator),
        prompt_mask=torch.tensor([[0] * (wide - n) + [1] * n for n in prompts]),
        response_ids=torch.randint(4, 18, (len(lengths), long), generator=generator),
        response_mask=torch.tensor([[1] * n + [0] * (long - n) for n in lengths]),
        ended=torch.zeros(len(lengths), dtype=torch.bool),
        texts=[""] * len(lengths),
    )
