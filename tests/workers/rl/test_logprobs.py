"""Log-probabilities and entropy: compared with torch.distributions."""

import pytest
import torch
from torch.distributions import Categorical

from workers.rl.logprobs import entropy, selective_logprobs

LOGITS = torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(0)) * 3
TOKENS = torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_logprobs_are_those_of_the_tempered_distribution(temperature: float) -> None:
    expected = Categorical(logits=LOGITS / temperature).log_prob(TOKENS)
    actual = selective_logprobs(LOGITS, TOKENS, temperature=temperature)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_entropy_is_that_of_the_tempered_distribution(temperature: float) -> None:
    expected = Categorical(logits=LOGITS / temperature).entropy()
    torch.testing.assert_close(entropy(LOGITS, temperature=temperature), expected)


def test_a_forbidden_token_adds_nothing_to_the_entropy() -> None:
    logits = torch.tensor([[[0.0, 0.0, -torch.inf]]])
    assert entropy(logits).item() == pytest.approx(0.6931472)
