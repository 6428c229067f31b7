"""One rank of `test_whole_weights`: a small model under each splitting layout, asked and trained.

`python -m torch.distributed.run … -m tests.workers.layouts.whole_ranks FILE`; the first rank writes
to FILE what it found, by layout.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

from workers import ranks
from workers.contract.jobs import FSDP, ZERO3
from workers.layouts.arguments import deepspeed_config, without_compiling
from workers.layouts.gathered import is_split, whole_of, whole_weights

STEPS = 3


def a_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def rows(step: int) -> Tensor:
    """[4, 6] token ids."""
    return torch.randint(1, 32, (4, 6), generator=torch.Generator().manual_seed(step))


def loss_of(model: Any, ids: Tensor) -> Tensor:
    return model(input_ids=ids, labels=ids, use_cache=False).loss


def split_by(layout: str, model: LlamaForCausalLM) -> tuple[Any, Any]:
    """The split model as it is called, and a step of SGD on a loss."""
    if layout == FSDP:
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(loss: Tensor) -> None:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, step
    import deepspeed

    without_compiling()
    said = json.loads(deepspeed_config(ZERO3).read_text())
    said["zero_optimization"]["stage3_param_persistence_threshold"] = 0  # or all are kept whole
    said = {name: value for name, value in said.items() if value != "auto"}
    said |= {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": False}}
    said["gradient_clipping"] = 1000.0  # 1 where nothing is said
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=said)

    def step_inside(loss: Tensor) -> None:
        engine.backward(loss)
        engine.step()

    return engine, step_inside


@torch.no_grad()
def asked(model: nn.Module, times: int) -> Tensor:
    """Logits, `times` over: of the model, and by its output layer called by itself."""
    for _ in range(times):
        states = model.model(input_ids=rows(9), use_cache=False).last_hidden_state
        logits = model.lm_head(states)
        torch.testing.assert_close(logits, model(input_ids=rows(9), use_cache=False).logits)
    return logits


def trial(layout: str) -> dict[str, Any]:
    module, alone = a_model(), a_model()
    model, step = split_by(layout, module)
    plain = torch.optim.SGD(alone.parameters(), lr=0.1)
    own = slice(ranks.rank() * 2, ranks.rank() * 2 + 2)
    far, drift = [], 0.0
    for number in range(STEPS):
        with whole_weights(model), whole_weights(model):
            # Unequally often: ranks that waited for each other would wait for ever.
            found = asked(module, times=1 + 2 * ranks.rank())
            far.append(float((found - asked(alone, times=1)).abs().max()))
        step(loss_of(model, rows(number)[own]))
        loss_of(alone, rows(number)).backward()
        plain.step()
        plain.zero_grad()
    for split, whole in zip(module.parameters(), alone.parameters(), strict=True):
        drift = max(drift, float((whole_of(split) - whole.detach()).abs().max()))
    found = {"far": max(far), "drift": drift, "split": is_split(module)}
    found["held"] = sum(_held(p) for p in module.parameters()) / sum(
        p.numel() for p in alone.parameters()
    )
    if layout == ZERO3:
        try:
            with whole_weights(module):
                found["refused"] = False
        except TypeError:
            found["refused"] = True
    return found


def _held(parameter: Any) -> int:
    """Numbers of it that lie on this rank when nobody asks."""
    return parameter.to_local().numel() if hasattr(parameter, "to_local") else parameter.numel()


def main() -> None:
    distributed.init_process_group("gloo", timeout=timedelta(minutes=2))
    torch.set_num_threads(1)
    found = {layout: trial(layout) for layout in (FSDP, ZERO3)}
    told = ranks.gathered(found)
    if ranks.is_first():
        Path(sys.argv[1]).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
