"""A critic that can learn is seen to learn, a dead one is named, and neither is changed by it."""

import itertools

import pytest
import torch

from tests.workers.recipes.language import tiny_llama
from workers.models.loading import disable_dropout, weights_sha256
from workers.models.lora import attach_policy_lora
from workers.ppo.model import ActorCritic, critic_of
from workers.preflight.critic import FixedRollout, critic_finding, fit_critic
from workers.preflight.findings import CriticParts, critic_parts


def rollout(seed: int = 0) -> FixedRollout:
    """Sixteen answers; the return of each is how often the token 4 is in it."""
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(4, 18, (16, 5), generator=generator)
    answer = torch.randint(4, 8, (16, 6), generator=generator)
    mask = torch.ones_like(answer)
    mask[3, 4:] = 0
    counts = ((answer == 4) * mask).sum(1).float()
    returns = ((counts - counts.mean()) / counts.std())[:, None] * mask
    return FixedRollout(prompt, torch.ones_like(prompt), answer, mask, returns)


def actor_critic(kind: str) -> ActorCritic:
    policy = tiny_llama()
    disable_dropout(policy)
    adapted = attach_policy_lora(policy, rank=8, alpha=16.0) if kind == "lora" else None
    critic = critic_of(policy) if kind == "separate" else None
    return ActorCritic(policy, adapted=adapted, critic=critic).eval()


@pytest.mark.parametrize("kind", ["shared", "lora", "separate"])
def test_a_live_critic_passes_and_is_put_back_to_the_last_bit(kind: str) -> None:
    model = actor_critic(kind)
    before = weights_sha256(model)
    first = model.value_head.weight
    first.grad = torch.full_like(first, 3.0)
    fit = fit_critic(critic_parts(model), rollout(), max_seconds=60)
    finding = critic_finding(fit, answers=16)
    assert fit.before == pytest.approx(0.0, abs=1e-6)  # its head begins at zero
    assert (finding.level, fit.after >= 0.5) == ("ok", True)
    assert weights_sha256(model) == before
    assert torch.equal(first.grad, torch.full_like(first, 3.0))
    assert all(p.grad is None for p in model.parameters() if p is not first)


def test_it_draws_no_random_numbers() -> None:
    state = torch.random.get_rng_state()
    fit_critic(critic_parts(actor_critic("shared")), rollout(), steps=2)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_frozen_head_is_a_dead_critic() -> None:
    model = actor_critic("shared")
    model.value_head.requires_grad_(False)
    finding = critic_finding(fit_critic(critic_parts(model), rollout()), answers=16)
    assert finding.level == "warn"
    assert "no gradient reaches its weights" in finding.message


def test_detached_states_are_a_dead_critic() -> None:
    model = actor_critic("shared")
    parts = CriticParts(lambda *rows: model.values(*rows).detach(), list(model.critic_parameters()))
    finding = critic_finding(fit_critic(parts, rollout()), answers=16, level="block")
    assert finding.level == "block"


def test_states_that_say_nothing_are_a_dead_critic() -> None:
    """Gradient there is; the same value for every token is all it can learn."""
    model = actor_critic("shared")

    def blind(*rows: torch.Tensor) -> torch.Tensor:
        return model.value_head.bias.expand_as(rows[2])

    fit = fit_critic(CriticParts(blind, [model.value_head.bias]), rollout())
    assert fit.gradient
    finding = critic_finding(fit, answers=16)
    assert finding.level == "warn"
    assert finding.figures["explained_variance"] < 0.3


def test_running_out_of_time_is_no_verdict() -> None:
    clock = itertools.count(step=5)
    model = actor_critic("shared")
    fit = fit_critic(
        critic_parts(model), rollout(), max_seconds=4, clock=lambda: float(next(clock))
    )
    assert fit.out_of_time
    assert critic_finding(fit, answers=16).level == "unknown"


def test_returns_that_are_all_alike_are_no_verdict() -> None:
    given = rollout()
    same = FixedRollout(*given.sequences, returns=given.response_mask * 0.0)
    finding = critic_finding(fit_critic(critic_parts(actor_critic("shared")), same), answers=16)
    assert finding.level == "unknown"
    assert "all alike" in finding.message
