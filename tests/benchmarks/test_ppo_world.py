"""The models that PPO is timed on: their answers end by chance, and as often as was asked."""

import pytest
import torch

from benchmarks.ppo_sides.world import plant_end
from tests.workers.recipes.language import tiny_llama, word_tokenizer


@pytest.mark.parametrize("probability", [1 / 48, 1e-9])
def test_the_planted_end_is_about_as_likely_after_any_text(probability: float) -> None:
    model, tokenizer = tiny_llama(), word_tokenizer()
    model.set_output_embeddings(model.get_input_embeddings())  # tied, as the benchmark's models are
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    texts = torch.randint(4, 18, (8, 20), generator=torch.Generator().manual_seed(0))
    plant_end(model, tokenizer, texts.tolist(), probability)
    with torch.no_grad():
        states = model.model(texts).last_hidden_state
        logits = states @ model.get_input_embeddings().weight.T
    seen = logits.softmax(-1)[..., tokenizer.eos_token_id]
    assert seen.min() > probability / 3
    assert seen.max() < 3 * probability
