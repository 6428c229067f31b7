"""The parts of PPO on a real, tiny model: update, critic, contracts, state."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.workers.recipes.language import tiny_gpt2, tiny_llama, user, word_tokenizer
from workers.config import settings_for
from workers.contract.events import RecipeError
from workers.data.batches import encode_prompt
from workers.models import invariants
from workers.models.forward import Reference
from workers.models.loading import freeze, weights_sha256
from workers.ppo.checkpoint import TrainingState, restore, save
from workers.ppo.model import ActorCritic, NonFinite
from workers.ppo.rollout import Rollout, collect, sequences_of
from workers.ppo.setup import make_optimizer, set_learning_rate
from workers.ppo.update import update
from workers.recipes.ppo import PPOTrainer
from workers.rewards.source import Scores
from workers.rl.losses import RunningMoments, explained_variance
from workers.rollouts.drawing import PromptOrder
from workers.rollouts.local import Sampling

TOKENIZER = word_tokenizer()
MESSAGES = [user(text) for text in ("sun", "the big red dog", "a cat sleeps", "rain") * 2]
IDS = [encode_prompt(TOKENIZER, messages) for messages in MESSAGES]


def ppo(**values):
    defaults = {"batch_size": 8, "minibatch_size": 4, "learning_rate": 1e-3, "max_new_tokens": 8}
    return settings_for("ppo", defaults | values)


def roll_out(actor_critic: ActorCritic, *, temperature: float = 1.0) -> Rollout:
    return collect(
        actor_critic,
        Reference(freeze(tiny_llama())),
        TOKENIZER,
        MESSAGES,
        IDS,
        Sampling(8, temperature=temperature, seed=4),
        policy_version=0,
    )


def improve(actor_critic: ActorCritic, rollout: Rollout, settings, **options):
    """One update towards even and away from odd token ids; returns its stats."""
    advantages = torch.where(rollout.responses.response_ids % 2 == 0, 1.0, -1.0)
    optimizer = options.pop("optimizer", None) or make_optimizer(actor_critic, settings)
    return update(
        actor_critic, optimizer, rollout, advantages, advantages, settings, seed=1, **options
    )


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_the_first_ratio_of_an_update_is_1_and_nothing_is_clipped(temperature: float) -> None:
    actor_critic = ActorCritic(tiny_llama()).eval()
    rollout = roll_out(actor_critic, temperature=temperature)
    settings = ppo(minibatch_size=8, update_epochs=1, temperature=temperature)
    stats = improve(actor_critic, rollout, settings).metrics
    assert stats["val/ratio"] == pytest.approx(1.0, abs=1e-4)
    assert stats["policy/clipfrac_avg"] == 0.0
    assert stats["policy/approxkl_avg"] == pytest.approx(0.0, abs=1e-6)


def test_another_temperature_in_the_update_than_in_the_rollout_breaks_the_contract() -> None:
    actor_critic = ActorCritic(tiny_llama()).eval()
    rollout = roll_out(actor_critic, temperature=1.0)
    with pytest.raises(RecipeError) as raised:
        improve(actor_critic, rollout, ppo(temperature=0.3))
    assert raised.value.kind == "contract_first_ratio"


def test_the_update_makes_good_tokens_likelier_and_bad_ones_less_likely() -> None:
    actor_critic = ActorCritic(tiny_llama()).eval()
    rollout = roll_out(actor_critic)
    improve(actor_critic, rollout, ppo(update_kl_target=1.0))
    after = actor_critic(*sequences_of(rollout.responses, torch.arange(8))[:4], temperature=1.0)
    moved = (after.logprobs - rollout.logprobs).detach()
    even = rollout.responses.response_ids % 2 == 0
    mask = rollout.mask.bool()
    assert moved[even & mask].mean() > 0 > moved[~even & mask].mean()


def test_microbatches_give_the_gradient_of_the_whole_minibatch() -> None:
    weights = []
    for microbatch in (None, 1, 4):
        actor_critic = ActorCritic(tiny_llama()).eval()
        rollout = roll_out(actor_critic)
        settings = ppo(minibatch_size=8, microbatch_size=microbatch, update_epochs=1)
        optimizer = torch.optim.SGD([{"params": actor_critic.parameters(), "base_lr": 0.1}], lr=0.1)
        improve(actor_critic, rollout, settings, optimizer=optimizer)
        weights.append(torch.cat([p.detach().flatten() for p in actor_critic.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(weights[0], weights[2], atol=1e-6, rtol=1e-5)


def test_each_minibatch_sees_the_weights_that_the_one_before_left_in_bfloat16_too() -> None:
    actor_critic = ActorCritic(tiny_llama()).eval()
    settings = ppo(minibatch_size=8, update_epochs=2, update_kl_target=9.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rollout = roll_out(actor_critic)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stats = improve(actor_critic, rollout, settings)
    assert stats.steps == 2
    # Returns of 1 and -1 against the zeros of a new value head cost 0.5, and less after one step.
    assert stats.metrics["loss/value_avg"] < 0.499


def test_an_update_stops_once_it_has_moved_twice_the_allowed_distance() -> None:
    actor_critic = ActorCritic(tiny_llama()).eval()
    rollout = roll_out(actor_critic)
    stats = improve(actor_critic, rollout, ppo(learning_rate=0.1, update_epochs=4))
    assert stats.stopped_by_kl
    assert stats.steps < 8


def moved_by(scores: torch.Tensor, settings) -> tuple[torch.Tensor, float]:
    """How far one SGD step of rate 1 moves every weight on answers of these normalised scores [8],
    and the gradient's norm before it was clipped."""
    actor_critic = ActorCritic(tiny_llama()).eval()
    rollout = roll_out(actor_critic)
    before = torch.cat([p.detach().flatten() for p in actor_critic.parameters()])
    advantages = scores[:, None] * rollout.mask
    optimizer = torch.optim.SGD([{"params": actor_critic.parameters(), "base_lr": 1.0}], lr=1.0)
    stats = update(
        actor_critic, optimizer, rollout, advantages, torch.zeros_like(advantages), settings, seed=1
    )
    after = torch.cat([p.detach().flatten() for p in actor_critic.parameters()])
    return after - before, stats.norms[0]


def test_an_outlier_moves_the_weights_no_further_than_the_clips_allow() -> None:
    """One score of 60 deviations among 400. What the recipe makes of it moves the weights as far as
    the same scores cut by hand, and never further than the largest gradient."""
    penalties = {"missing_eos_penalty": 0.0, "length_penalty": 0.0}
    settings = ppo(minibatch_size=8, update_epochs=1, max_grad_norm=0.05, **penalties)
    rng = np.random.default_rng(0)
    earlier, ordinary = rng.normal(size=392), rng.normal(size=7)
    rollout = roll_out(ActorCritic(tiny_llama()).eval())
    for outlier in (60.0, 6000.0):
        raw = np.array([*ordinary, outlier])
        state = SimpleNamespace(moments=RunningMoments())
        state.moments.update(torch.tensor(earlier))
        given = replace(rollout, scores=Scores(raw.tolist()))
        run = SimpleNamespace(settings=settings, state=state, baseline=None)
        made = PPOTrainer.normalise(run, given, torch.ones(8, dtype=torch.bool)).float()
        everything = np.concatenate([earlier, raw])
        z = (raw - everything.mean()) / everything.std(ddof=1)
        assert z[-1] > settings.reward_clip
        moved, norm = moved_by(made, settings)
        by_hand, _ = moved_by(torch.tensor([*z[:-1], settings.reward_clip]).float(), settings)
        uncut, _ = moved_by(torch.tensor(z).float(), settings)
        torch.testing.assert_close(moved, by_hand, atol=1e-6, rtol=1e-4)
        if outlier == 60.0:  # of 6,000 the running scale has shrunk all other differences
            assert (moved - uncut).norm() > 0.1 * moved.norm()
        assert norm > 0.05
        assert float(moved.norm()) == pytest.approx(0.05, rel=1e-3)


def test_a_nan_in_the_loss_stops_the_update_before_it_touches_the_weights() -> None:
    actor_critic = ActorCritic(tiny_llama()).eval()
    rollout = roll_out(actor_critic)
    before = weights_sha256(actor_critic)
    advantages = torch.full_like(rollout.logprobs, torch.nan)
    with pytest.raises(NonFinite):
        update(
            actor_critic,
            make_optimizer(actor_critic, ppo()),
            rollout,
            advantages,
            advantages,
            ppo(),
            seed=1,
        )
    assert weights_sha256(actor_critic) == before


def test_a_new_critic_values_everything_at_zero_and_can_learn_a_fixed_rollout() -> None:
    actor_critic = ActorCritic(tiny_gpt2()).eval()
    rollout = collect(
        actor_critic,
        Reference(freeze(tiny_gpt2())),
        TOKENIZER,
        MESSAGES,
        IDS,
        Sampling(8),
        policy_version=0,
    )
    assert rollout.values.eq(0).all()
    returns = torch.randn(rollout.values.shape, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(actor_critic.parameters(), lr=3e-3)
    sequences = sequences_of(rollout.responses, torch.arange(8))[:4]
    for _ in range(150):
        values = actor_critic(*sequences, temperature=1.0).values
        loss = ((values - returns) ** 2)[rollout.mask.bool()].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert explained_variance(values.detach(), returns, rollout.mask) > 0.9


def test_trimmed_columns_are_padding_in_every_row_and_change_no_logprob() -> None:
    actor_critic = ActorCritic(tiny_gpt2()).eval()
    rollout = collect(
        actor_critic,
        Reference(freeze(tiny_gpt2())),
        TOKENIZER,
        MESSAGES,
        IDS,
        Sampling(8),
        policy_version=0,
    )
    rows = torch.tensor([0, 3])  # the short prompts
    *sequences, width = sequences_of(rollout.responses, rows)
    assert sequences[0].shape[1] < rollout.responses.prompt_ids.shape[1]
    with torch.no_grad():
        again = actor_critic(*sequences, temperature=1.0).logprobs
    mask = rollout.mask[rows, :width].bool()
    torch.testing.assert_close(
        again[mask], rollout.logprobs[rows, :width][mask], atol=1e-5, rtol=0.0
    )


def test_the_step_size_rises_then_falls_and_the_value_head_keeps_its_own() -> None:
    settings = ppo(steps=10, warmup_share=0.2, learning_rate=1.0, value_learning_rate=5.0)
    optimizer = make_optimizer(ActorCritic(tiny_llama()), settings)
    rates = [set_learning_rate(optimizer, settings, step) for step in range(1, 11)]
    assert rates[0] < rates[1] > rates[2] > rates[9] > 0
    assert optimizer.param_groups[1]["lr"] == pytest.approx(5 * rates[9])


def test_the_prompt_order_passes_over_all_prompts_before_any_comes_again() -> None:
    order = PromptOrder(5, seed=3)
    first, second = order.take(0, 5), order.take(5, 5)
    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    assert first != second
    assert order.take(3, 4) == (first + second)[3:7]


# --- contracts: each broken once ---


def _raised(check, *arguments) -> str:
    with pytest.raises(RecipeError) as raised:
        check(*arguments)
    return raised.value.kind


def test_a_reference_that_is_or_shares_the_policy_is_refused() -> None:
    policy, reference = tiny_llama(), freeze(tiny_llama())
    invariants.check_distinct(policy, reference)
    assert _raised(invariants.check_distinct, policy, policy) == "contract_reference_aliased"
    reference.model.norm.weight = policy.model.norm.weight
    assert _raised(invariants.check_distinct, policy, reference) == "contract_reference_aliased"


def test_a_reference_that_would_train_or_has_changed_is_refused() -> None:
    policy, reference = tiny_llama(), tiny_llama()
    assert _raised(invariants.check_distinct, policy, reference) == "contract_reference_trains"
    sha256 = weights_sha256(reference)
    invariants.check_unchanged(weights_sha256(reference), sha256)
    with torch.no_grad():
        reference.model.norm.weight[0] += 1e-3
    assert (
        _raised(invariants.check_unchanged, weights_sha256(reference), sha256)
        == "contract_reference_changed"
    )


def test_another_checkpoint_as_reference_is_seen_before_the_first_update() -> None:
    rollout = roll_out(ActorCritic(tiny_llama(seed=1)).eval())
    kind = _raised(
        invariants.check_kl_at_start, rollout.logprobs, rollout.ref_logprobs, rollout.mask
    )
    assert kind == "contract_kl_at_start"
    invariants.check_kl_at_start(rollout.logprobs, rollout.logprobs, rollout.mask)


@pytest.mark.parametrize("mask", [[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 1], [0, 1, 1, 0]])
def test_a_mask_that_covers_anything_but_the_answer_is_refused(mask: list[int]) -> None:
    ids = torch.tensor([[5, 1, 0, 0]])
    invariants.check_mask(torch.tensor([[1, 1, 0, 0]]), ids, (1,))
    assert _raised(invariants.check_mask, torch.tensor([mask]), ids, (1,)) == "contract_mask"


def test_an_answer_without_an_end_is_covered_to_its_last_token() -> None:
    ids = torch.tensor([[5, 6, 7]])
    invariants.check_mask(torch.ones(1, 3, dtype=torch.long), ids, (1,))
    short = torch.tensor([[1, 1, 0]])
    assert _raised(invariants.check_mask, short, ids, (1,)) == "contract_mask"


def test_a_stale_rollout_and_a_reward_that_is_no_number_are_refused() -> None:
    assert _raised(invariants.check_fresh, 8, 4) == "contract_stale_rollout"
    assert _raised(invariants.check_finite, "a reward", torch.tensor([0.0, torch.nan])) == (
        "non_finite"
    )


# --- state ---


def test_a_restored_run_has_policy_critic_optimizer_and_scales_as_they_were(
    tmp_path: Path,
) -> None:
    settings = ppo()
    actor_critic = ActorCritic(tiny_llama()).eval()
    optimizer = make_optimizer(actor_critic, settings)
    improve(actor_critic, roll_out(actor_critic), settings, optimizer=optimizer)
    state = TrainingState(kl_coef=0.07, step=3, policy_version=24, position=24, best=1.5)
    state.moments.update(torch.tensor([0.1, 0.7]))
    save(tmp_path / "c", actor_critic, TOKENIZER, optimizer, state)

    other = ActorCritic(type(actor_critic.policy).from_pretrained(tmp_path / "c")).eval()
    other.load(tmp_path / "c")
    other_optimizer = make_optimizer(other, settings)
    assert restore(tmp_path / "c", other, other_optimizer) == state
    assert weights_sha256(other) == weights_sha256(actor_critic)
    mine, theirs = optimizer.state_dict()["state"], other_optimizer.state_dict()["state"]
    assert mine.keys() == theirs.keys()
    for index, moments in mine.items():
        assert all(torch.equal(moments[key], theirs[index][key]) for key in moments)


def test_a_checkpoint_of_another_shape_is_refused_by_name(tmp_path: Path) -> None:
    settings = ppo()
    actor_critic = ActorCritic(tiny_llama()).eval()
    optimizer = make_optimizer(actor_critic, settings)
    improve(actor_critic, roll_out(actor_critic), settings, optimizer=optimizer)
    save(tmp_path / "c", actor_critic, TOKENIZER, optimizer, TrainingState(kl_coef=0.1))
    wider = ActorCritic(tiny_llama(width=64)).eval()
    with pytest.raises(RecipeError, match="does not fit") as raised:
        restore(tmp_path / "c", wider, make_optimizer(wider, settings))
    assert raised.value.kind == "damaged_checkpoint"
