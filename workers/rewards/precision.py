"""Cheaper number formats for scoring, and whether they still order answers alike.

`lower` changes a frozen model in place:

    float32             as it was trained and is judged
    bfloat16, float16   weights and activations; the score head and its input stay float32, since a
                        score rounded to eight bits ties answers that the model tells apart
    int8                weights of the backbone's linear layers as 8-bit integers with one scale per
                        output, inputs rounded to 8 bits with one scale per row as they come

Source of int8: Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", in its dynamic form (torch.ao's `quantize_dynamic`, which is
deprecated in the installed torch, with one scale per output and per row instead of per tensor).
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

FLOAT32, BFLOAT16, FLOAT16, INT8 = "float32", "bfloat16", "float16", "int8"
PRECISIONS = (FLOAT32, BFLOAT16, FLOAT16, INT8)
_HALF = {BFLOAT16: torch.bfloat16, FLOAT16: torch.float16}


def lower(model: PreTrainedModel, precision: str) -> PreTrainedModel:
    """The model in `precision`, changed in place. It must be frozen: there is no way back."""
    if precision == FLOAT32:
        return model
    if precision in _HALF:
        backbone = model.base_model
        backbone.to(_HALF[precision])
        backbone.register_forward_hook(_widen)
        return model
    if precision == INT8:
        return quantise(model, bits=8)
    raise ValueError(f"precision '{precision}' is none of {', '.join(PRECISIONS)}")


def _widen(module: nn.Module, arguments: Any, output: Any) -> Any:
    """The backbone's last states in float32 again, for the head."""
    if isinstance(output, Tensor):
        return output.float()
    for key, value in list(output.items()):
        if isinstance(value, Tensor) and value.is_floating_point():
            output[key] = value.float()
    return output


def quantise(model: PreTrainedModel, *, bits: int) -> PreTrainedModel:
    """Every linear layer of the backbone with integer weights of `bits` bits, in place."""
    for module in list(model.base_model.modules()):
        for name, layer in module.named_children():
            if isinstance(layer, nn.Linear | Conv1D):
                setattr(module, name, IntegerLinear(layer, bits=bits))
    return model


class IntegerLinear(nn.Module):
    """x·Wᵀ + b with integer weights [out, in] and inputs rounded per row as they come.

    Symmetric: W ≈ scale·Q with |Q| ≤ 2^(bits−1) − 1 and one scale per output; inputs always have 8
    bits. The products are summed as integers, so nothing but the two roundings is lost.
    """

    def __init__(self, layer: nn.Module, *, bits: int) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        weight = weight.t() if isinstance(layer, Conv1D) else weight
        integers, scale = _rounded(weight, most=2 ** (bits - 1) - 1)
        self.register_buffer("integers", integers.t().contiguous())  # [in, out]
        self.register_buffer("scale", scale.squeeze(-1))  # [out]
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        integers, scale = _rounded(rows.float(), most=127)
        if integers.is_cuda:  # CUDA's integer product wants shapes of eights; float64 is as exact
            total = (integers.double() @ self.integers.double()).float()
        else:
            total = torch._int_mm(integers, self.integers).float()
        out = total * scale * self.scale
        if self.bias is not None:
            out = out + self.bias
        return out.to(x.dtype).reshape(*x.shape[:-1], -1)


def _rounded(values: Tensor, *, most: int) -> tuple[Tensor, Tensor]:
    """[R, C] -> integers [R, C] in ±most, scale [R, 1]; a row of zeros keeps scale 1."""
    largest = values.abs().amax(dim=-1, keepdim=True)
    scale = torch.where(largest > 0, largest / most, torch.ones_like(largest))
    return (values / scale).round().clamp(-most, most).to(torch.int8), scale
