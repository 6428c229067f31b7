"""What a run of some settings will hold and compute at once, from the inputs' configurations."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PretrainedConfig

from workers.context import RunContext
from workers.memory.ledger import Held, Kept, ModelShape, Plan
from workers.models.forward import LOGITS_CHUNK
from workers.models.loading import Keep, disable_dropout
from workers.models.lora import attach_policy_lora
from workers.rewards.ensemble import is_ensemble, read_layout

# What a model of some configuration is made of, without allocating it.
#
# The model is built on torch's meta device, where tensors have shapes and no data, and one forward
# pass is run there, so that parameters, adapters and what a backward pass would keep are counted
# for every architecture `transformers` knows, with nothing written down here about any of them.

# A pass keeps a·T + b·B·T + c·B·T² bytes for B rows of T tokens: three passes tell a, b and c.
_T = 32
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
Run = Callable[[int, int], object]


def shape_of(
    config: PretrainedConfig, *, lora_rank: int = 0, dtype: str = "float32", masked: bool = True
) -> ModelShape:
    """The shape of a causal language model of `config`, trained at `lora_rank` in `dtype`.

    `masked`: rows are read with a mask of their padding, which attention then keeps."""
    return _grown(config, lambda keyed: _causal(keyed, lora_rank, dtype, masked))


def frozen_shape(config: PretrainedConfig, *, dtype: str = "float32") -> ModelShape:
    """The shape of the body of any model that only reads: reward models, encoders among them."""
    return _grown(config, lambda keyed: _body(keyed, dtype))


def _grown(config: PretrainedConfig, find: Callable[["_Keyed"], ModelShape]) -> ModelShape:
    """The shape of the whole model from those of one and two of its layers, where all layers are
    alike; a model of 80 layers takes seconds otherwise."""
    layers = config.get_text_config().num_hidden_layers
    if layers <= 2 or not _alike(config.get_text_config()):
        return find(_Keyed(config))
    one, two = find(_Keyed(_cut(config, 1))), find(_Keyed(_cut(config, 2)))

    def grow(name: str, of: Callable[[ModelShape], Any] = lambda shape: shape) -> Any:
        first, second = getattr(of(one), name), getattr(of(two), name)
        return first + (second - first) * (layers - 1)

    return replace(
        one,
        layers=layers,
        kept=Kept(
            **{
                name: grow(name, lambda shape: shape.kept)
                for name in ("per_length", "per_token", "per_pair")
            }
        ),
        **{name: grow(name) for name in ("parameters", "adapters", "kv_per_token")},
    )


# Fields by which some layers of a model differ from others.
_UNEVEN = ("first_k_dense_replace", "mlp_only_layers", "moe_layer_freq", "attn_layer_period")


def _alike(config: PretrainedConfig) -> bool:
    kinds = set(getattr(config, "layer_types", None) or ())
    return len(kinds) <= 1 and not any(getattr(config, name, None) for name in _UNEVEN)


def _cut(config: PretrainedConfig, layers: int) -> PretrainedConfig:
    """A copy with fewer layers."""
    cut = copy.deepcopy(config)
    text = cut.get_text_config()
    text.num_hidden_layers = layers
    if text.__dict__.get("layer_types"):
        text.layer_types = text.layer_types[:layers]
    return cut


class _Keyed:
    """A configuration that equals another with the same content, so that a shape is found once."""

    def __init__(self, config: PretrainedConfig) -> None:
        self.config = config
        self._key = config.to_json_string(use_diff=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=64)
def _causal(keyed: _Keyed, lora_rank: int, dtype: str, masked: bool) -> ModelShape:
    model = _on_meta(AutoModelForCausalLM, keyed.config, dtype)
    parameters = _count(model)
    outputs = model.get_output_embeddings()
    tied = outputs is None or outputs.weight is model.get_input_embeddings().weight
    trained = model
    if lora_rank:
        trained = attach_policy_lora(model, rank=lora_rank, alpha=float(lora_rank))
    return _shape(
        keyed.config,
        dtype,
        lora_rank=lora_rank,
        parameters=parameters,
        output_parameters=0 if tied else _count(outputs),
        adapters=sum(p.numel() for p in trained.parameters() if p.requires_grad) * bool(lora_rank),
        kept=_kept(
            trained,
            keyed.config,
            dtype,
            lambda rows, length: _forward(trained, rows, length, masked=masked, use_cache=False),
        ),
    )


@lru_cache(maxsize=64)
def _body(keyed: _Keyed, dtype: str) -> ModelShape:
    model = _on_meta(AutoModel, keyed.config, dtype)
    return _shape(
        keyed.config,
        dtype,
        lora_rank=0,
        parameters=_count(model),
        output_parameters=0,
        adapters=0,
        kept=_kept(model, keyed.config, dtype, lambda rows, length: _forward(model, rows, length)),
    )


def _kept(model: nn.Module, config: PretrainedConfig, dtype: str, run: Run) -> Kept:
    """`Kept` of `run(rows, length)`. Where a model looks into its data on the way (experts that
    are chosen, encoders that look at their mask) by a rule of thumb, measured on those that do not:
    24 vectors per layer and token, and two scores per head and pair of tokens."""
    try:
        return _fit(model, run)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        text = config.get_text_config()
        per_layer = text.num_hidden_layers * BYTES[dtype]
        return Kept(
            per_length=0.0,
            per_token=24.0 * per_layer * text.hidden_size,
            per_pair=2.0 * per_layer * text.num_attention_heads,
        )


def _shape(config: PretrainedConfig, dtype: str, **counted: Any) -> ModelShape:
    text = config.get_text_config()
    heads = text.num_attention_heads
    head_width = getattr(text, "head_dim", None) or text.hidden_size // heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    return ModelShape(
        family=config.model_type,
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        vocabulary=text.vocab_size,
        kv_per_token=2 * text.num_hidden_layers * kv_heads * head_width,
        dtype=dtype,
        **counted,
    )


def _on_meta(factory: Any, config: PretrainedConfig, dtype: str) -> Any:
    """A model of the shape, without data and without dropout, ready to be trained."""
    with torch.device("meta"):
        model = factory.from_config(copy.deepcopy(config), dtype=getattr(torch, dtype))
    disable_dropout(model)
    return model.train()


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


# --- what a pass keeps ---


def _fit(model: nn.Module, run: Run) -> Kept:
    """`Kept` of `run(rows, length)` on the model, from three passes."""
    with _OnMeta():
        one = kept_bytes(model, lambda: run(1, _T))
        long = kept_bytes(model, lambda: run(1, 2 * _T))
        two = kept_bytes(model, lambda: run(2, _T))
    per_pair = (long - 2 * one) / (2 * _T**2)
    per_row = two - one  # b·T + c·T²
    return Kept(
        per_length=max(0.0, (2 * one - two) / _T),
        per_token=(per_row - per_pair * _T**2) / _T,
        per_pair=max(0.0, per_pair),
    )


def _forward(
    model: nn.Module, rows: int, length: int, *, masked: bool = True, **options: object
) -> object:
    ids = torch.zeros(rows, length, dtype=torch.long, device="meta")
    if not masked:
        return model(input_ids=ids, **options)
    # Four axes: a mask of rows is looked into, and here there is nothing to see.
    mask = torch.ones(rows, 1, length, length, dtype=torch.bool, device="meta")
    positions = torch.zeros(rows, length, dtype=torch.long, device="meta")
    return model(input_ids=ids, attention_mask=mask, position_ids=positions, **options)


def kept_bytes(model: nn.Module, run: Callable[[], object]) -> float:
    """Bytes that calling `run` keeps for a backward pass, the weights of `model` left out; each
    memory once, however often it was saved."""
    own = {_identity(p) for p in model.parameters()}
    seen: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        seen.setdefault(_identity(tensor), tensor.untyped_storage())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = run()  # held until all is counted, so that no memory is used twice
    total = sum(storage.nbytes() for key, storage in seen.items() if key not in own)
    del output
    return float(total)


def _identity(tensor: Tensor) -> int:
    storage = tensor.untyped_storage()
    return storage._cdata if tensor.device.type == "meta" else storage.data_ptr()


class _OnMeta(TorchFunctionMode):
    """On the meta device torch would write attention out, scores and all. Real devices fuse it and
    keep inputs, output, mask and one number per row and head."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            query, key, value = args[:3]
            return _Attention.apply(query, key, value, kwargs.get("attn_mask"))
        if func is torch.Tensor.__bool__ and args[0].device.type == "meta":
            return True  # asked whether positions follow one another, which here they do
        return func(*args, **kwargs)


class _Attention(torch.autograd.Function):
    """Keeps what fused attention keeps. query [B, H, T, D]; no data, so no result either."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        rows, heads, length, _ = query.shape
        # The kernels write [B, T, H, D], so that joining the heads afterwards copies nothing.
        output = query.new_empty(rows, length, heads, value.shape[-1]).transpose(1, 2)
        sums = query.new_empty(rows, heads, length, dtype=torch.float32)
        masks = [] if mask is None else [mask.to(query.dtype)]
        ctx.save_for_backward(query, key, value, output, sums, *masks)
        return output


PROPOSED_RANK = 16  # of the adapters a ledger proposes where a run has none


def plan_for(
    context: RunContext,
    kind: str,
    settings: Any,
    *,
    longest_prompt: int | None = None,
    longest_row: int | None = None,
) -> Plan | None:
    """The plan of a ppo, grpo, dpo, kto or sft run; None where no input names a model's
    configuration (a model that is built, or comes from a hub), or its architecture cannot be read
    without its data. `longest_prompt` (of prompts) and `longest_row` (of pairs, single answers or
    demonstrations): tokens, where they are known and under the settings' limit."""
    folder = _start(context)
    if folder is None:
        return None
    try:
        return plan_of(
            kind,
            settings,
            policy=AutoConfig.from_pretrained(folder),
            reference=_other_reference(context, folder),
            readers=_readers(context),
            device="cuda" if torch.cuda.is_available() else "cpu",
            longest_prompt=longest_prompt,
            longest_row=longest_row,
            gpu_bytes=torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else 0,
            gpus=torch.cuda.device_count(),
        )
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        # An estimate that cannot be made is no reason to end a run; why, the log says.
        context.log(f"No estimate of memory: {type(error).__name__}: {error}", level="warning")
        return None


def plan_of(
    kind: str,
    settings: Any,
    *,
    policy: PretrainedConfig,
    reference: PretrainedConfig | None = None,
    readers: Mapping[str, tuple[PretrainedConfig, int]] | None = None,
    device: str = "cpu",
    weight_bytes: int = 4,
    longest_prompt: int | None = None,
    longest_row: int | None = None,
    gpu_bytes: int = 0,
    gpus: int = 1,
) -> Plan:
    """The plan from configurations alone. `reference` is given where it is another model than the
    start; readers: role (reward, judge) to configuration and members; `gpu_bytes`: all of the
    device's, of which vLLM takes a share; `gpus`: what a reward may be spread over."""
    precision = _precision(settings, device)
    rank = getattr(settings, "lora_rank", 0)
    masked = kind != "ppo"  # whose rows are read without their padding

    def seen(config: PretrainedConfig, lora_rank: int = 0) -> ModelShape:
        return shape_of(config, lora_rank=lora_rank, dtype=precision, masked=masked)

    def kept(config: PretrainedConfig) -> float:
        """Bytes of a weight below adapters."""
        if getattr(settings, "base_4bit", False):
            return seen(config).four_bit_bytes
        return _frozen_bytes(settings, device, config)

    models = [
        Held(
            role="policy",
            shape=seen(policy, rank),
            trained=True,
            weight_bytes=kept(policy) if rank else weight_bytes,
            adapted=None if rank else seen(policy, PROPOSED_RANK),
        )
    ]
    if _needs_reference(kind, settings) and (reference is not None or not rank):
        held = seen(reference or policy)
        # Of the same weights as the start: adapters, once there are any, make it superfluous.
        spare = reference is None
        own = _frozen_bytes(settings, device, reference or policy)
        models.append(Held(role="reference", shape=held, weight_bytes=own, spare=spare))
    if getattr(settings, "critic", "") == "separate":
        models.append(
            Held(role="critic", shape=seen(policy), trained=True, weight_bytes=weight_bytes)
        )
    reads = getattr(settings, "reward_precision", "float32")
    for role, (config, members) in (readers or {}).items():
        shape = frozen_shape(config, dtype="float32")
        over = max(1, gpus) if getattr(settings, "spread_reward", False) else 1
        models.append(
            Held(role=role, shape=shape, weight_bytes=BYTES[reads], copies=members, spread=over)
        )
    plan = Plan(
        models=tuple(models),
        device=device,
        precision=precision,
        optimizer=getattr(settings, "optimizer", "adamw"),
        gradient_checkpointing=_checkpointing(settings, device),
        value_head=kind == "ppo" and getattr(settings, "critic", "shared") == "shared",
        # On an accelerator the others' are made in pieces too.
        logits_chunk=LOGITS_CHUNK if kind == "ppo" or device == "cuda" else None,
        # The others' split models project on the vocabulary within their own pass.
        chunks_when_split=kind == "ppo",
    )
    rolls_out = hasattr(settings, "max_new_tokens") or hasattr(settings, "max_completion_length")
    if rolls_out:
        return _rolling(plan, settings, longest_prompt, gpu_bytes)
    return _reading(plan, kind, settings, longest_row)


def _rolling(plan: Plan, settings: Any, longest_prompt: int | None, gpu_bytes: int) -> Plan:
    """PPO and GRPO: answers are drawn, looked at, scored, stored and learned from."""
    answer = _first(settings, "max_new_tokens", "max_completion_length", default=128)
    prompt = _first(settings, "max_prompt_length", default=512)
    prompt = min(prompt, longest_prompt or prompt)
    length = prompt + answer
    batch = settings.batch_size
    chunk = min(batch, _first(settings, "rollout_chunk", "generation_batch_size", default=batch))
    micro = _first(settings, "microbatch_size", "minibatch_size", default=batch)
    micro = max(1, micro // _first(settings, "gradient_accumulation", default=1))
    readers = [held for held in plan.models if held.role in ("reward", "judge")]
    return replace(
        plan,
        update_rows=_rows(settings, min(micro, batch), length),
        update_length=length,
        update_response=answer,
        look_rows=_rows(settings, batch, length),
        generate_rows=chunk,
        generate_length=length,
        engine_bytes=settings.vllm_memory * gpu_bytes
        if getattr(settings, "rollout_engine", "") == "vllm"
        else 0.0,
        scoring_rows=min(batch, _first(settings, "reward_batch_size", default=64))
        if readers
        else 0,
        scoring_length=length if readers else 0,
        rollout_rows=batch,
        rollout_prompt=prompt,
        rollout_response=answer,
    )


def _reading(plan: Plan, kind: str, settings: Any, longest_row: int | None) -> Plan:
    """SFT, DPO and KTO: rows are read; of pairs both answers count, each behind its prompt."""
    rows = max(1, settings.batch_size // getattr(settings, "gradient_accumulation", 1))
    rows *= 2 if kind == "dpo" else 1
    length = min(settings.max_length, longest_row or settings.max_length)
    at_once = _rows(settings, rows, length)
    if getattr(settings, "packing", False):  # no more tokens than apart, in rows that may be longer
        tokens = min(rows * length, max(length, settings.max_tokens_per_batch or rows * length))
        length = min(settings.max_length, tokens)
        at_once = -(-tokens // length)
    return replace(
        plan,
        update_rows=at_once,
        update_length=length,
        update_response=length,
    )


def _rows(settings: Any, rows: int, length: int) -> int:
    """Rows of full length that are computed at once under the token budget, where there is one."""
    budget = getattr(settings, "max_tokens_per_batch", None)
    return rows if budget is None else max(1, min(rows, budget // length))


def _first(settings: Any, *names: str, default: int) -> int:
    """The first of these fields that is there and set."""
    values = (getattr(settings, name, None) for name in names)
    return next((value for value in values if value is not None), default)


def _needs_reference(kind: str, settings: Any) -> bool:
    if kind == "grpo":
        return _price(settings) > 0
    return kind in ("ppo", "dpo", "kto") and not getattr(settings, "precompute_reference", False)


def _price(settings: Any) -> float:
    return getattr(settings, "beta", None) or getattr(settings, "kl_coef", None) or 0.0


def _precision(settings: Any, device: str) -> str:
    command = getattr(settings, "precision", "float32")
    if command == "auto":
        return "bfloat16" if device == "cuda" else "float32"
    return command


def _frozen_bytes(settings: Any, device: str, config: PretrainedConfig) -> int:
    """Of a weight that does not train."""
    kept = Keep(frozen=getattr(settings, "frozen_weights", "float32"))
    halved = kept.in_half(config.dtype, half_gpu=device == "cuda")
    return BYTES["bfloat16" if halved else "float32"]


def _checkpointing(settings: Any, device: str) -> bool:
    command = getattr(settings, "gradient_checkpointing", False)
    return command is True or command == "on" or (command == "auto" and device == "cuda")


# --- inputs ---


def _start(context: RunContext) -> Path | None:
    for role in ("policy", "sft"):
        if context.has_input(role):
            return _model_folder(context.input_path(role))
    return None


def _other_reference(context: RunContext, start: Path) -> PretrainedConfig | None:
    if not context.has_input("reference"):
        return None
    folder = _model_folder(context.input_path("reference"))
    return None if folder is None or folder == start else AutoConfig.from_pretrained(folder)


def _readers(context: RunContext) -> dict[str, tuple[PretrainedConfig, int]]:
    """Reward model and judge: an ensemble counts as so many of its first member."""
    found: dict[str, tuple[PretrainedConfig, int]] = {}
    for role in ("reward", "judge"):
        if not context.has_input(role):
            continue
        folder, members = context.input_path(role), 1
        if is_ensemble(folder):
            names = read_layout(folder).members
            folder, members = folder / names[0], len(names)
        if _model_folder(folder) is not None:
            found[role] = (AutoConfig.from_pretrained(folder), members)
    return found


def _model_folder(folder: Path) -> Path | None:
    return folder if (folder / "config.json").is_file() else None
