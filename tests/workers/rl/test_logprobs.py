"""Log-probabilities and entropy: compared with torch.distributions."""

import pytest
import torch
from torch.distributions import Categorical

from workers.rl.losses import logprobs_and_entropy, selective_logprobs

LOGITS = torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(0)) * 3
TOKENS = torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_logprobs_are_those_of_the_tempered_distribution(temperature: float) -> None:
    expected = Categorical(logits=LOGITS / temperature).log_prob(TOKENS)
    actual = selective_logprobs(LOGITS, TOKENS, temperature=temperature)
    torch.testing.assert_close(actual, expected)
    together, _ = logprobs_and_entropy(LOGITS, TOKENS, temperature=temperature)
    torch.testing.assert_close(together, expected)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_entropy_is_that_of_the_tempered_distribution(temperature: float) -> None:
    expected = Categorical(logits=LOGITS / temperature).entropy()
    _, actual = logprobs_and_entropy(LOGITS, TOKENS, temperature=temperature)
    torch.testing.assert_close(actual, expected)


def test_a_forbidden_token_adds_nothing_to_the_entropy() -> None:
    logits = torch.tensor([[[0.0, 0.0, -torch.inf]]])
    _, entropy = logprobs_and_entropy(logits, torch.zeros(1, 1, dtype=torch.long))
    assert entropy.item() == pytest.approx(0.6931472)


def test_the_entropy_has_a_gradient_when_asked_for_and_it_points_to_the_uniform() -> None:
    logits = torch.tensor([[[2.0, 0.0, 0.0]]], requires_grad=True)
    token = torch.zeros(1, 1, dtype=torch.long)
    _, entropy = logprobs_and_entropy(logits, token, entropy_gradient=True)
    entropy.sum().backward()
    assert logits.grad[0, 0, 0] < 0 < logits.grad[0, 0, 1]
    _, plain = logprobs_and_entropy(logits, token)
    assert not plain.requires_grad
