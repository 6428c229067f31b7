"""Loading, saving and identifying models and tokenizers.

Weights are safetensors only and code from a model folder is never run. Whether a hub may be
reached is the environment's business (`HF_HUB_OFFLINE`).
"""

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import safetensors.torch
import torch
import transformers
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import functional
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BitsAndBytesConfig,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.integrations.liger import apply_liger_kernel
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging as hf_logging

from workers import ranks
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import NOT_ALLOWED, WHOLE_WEIGHTS, allowed_folder, is_hub_id
from workers.data.batches import ENCODER_TEMPLATE, PLAIN_TEMPLATE
from workers.layouts.gathered import size_of

if TYPE_CHECKING:
    from workers.config.precision import PrecisionSettings

Model = TypeVar("Model", bound=nn.Module)

hf_logging.disable_progress_bar()  # a run's log is read line by line


# How weights are kept in memory while a run uses them, by the settings of a training.
#
# Kept in bfloat16, the matrices of linear layers and embeddings take two bytes a weight and are
# widened where they are used, one layer at a time; norms and biases stay float32, and so does what
# passes from layer to layer. So a model computes what it would in float32, to the bit where its
# files hold bfloat16. Under autocast it is what a float32 model is under autocast, without the
# copies that autocast makes of its weights.
#
# Kept in 4 bits they are rounded for good: NF4 with double quantisation. Source: Dettmers et al.
# 2023, "QLoRA: Efficient Finetuning of Quantized LLMs"; bitsandbytes.

HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Keep:
    """`frozen`: float32, bfloat16 or auto. `four_bit`: linear layers in NF4."""

    frozen: str = "float32"
    four_bit: bool = False
    attention: str | None = None
    liger: bool = False

    def in_half(self, files: torch.dtype | str | None, *, half_gpu: bool) -> bool:
        """Whether matrices are kept in bfloat16 where the files hold `files`. `half_gpu`: on a GPU
        that computes in it."""
        if self.frozen == "auto":
            return files in HALF and half_gpu
        return self.frozen == "bfloat16"

    def of(self, model: PreTrainedModel) -> PreTrainedModel:
        """A frozen model in float32, its matrices kept as they are to be, in place."""
        wanted = self.in_half(files_dtype(model), half_gpu=on_half_gpu())
        return hold_in_half(model) if wanted else model


WHOLE = Keep()


def keep(settings: "PrecisionSettings", layout: str, *, trained: bool) -> Keep:
    """How a model of a run under `layout` is kept: one whose weights train, or one that is frozen
    or has adapters over it. Raises `RecipeError` for kernels that need a GPU, where none is."""
    attention = None if settings.attention == "auto" else settings.attention
    for name, asked in (
        ("liger", settings.liger),
        ("attention", attention == "flash_attention_2"),
    ):
        if asked and not torch.cuda.is_available():
            told = f"{name}: this worker has no GPU, which these kernels need"
            raise RecipeError("bad_config", Fault.CONFIGURATION, told)
    if trained:
        return Keep(attention=attention, liger=settings.liger)
    return Keep(
        # Weights that are split must all be of one format.
        frozen=settings.frozen_weights if layout in WHOLE_WEIGHTS else "float32",
        four_bit=settings.base_4bit,
        attention=attention,
        liger=settings.liger,
    )


def files_dtype(model: nn.Module) -> torch.dtype:
    """The precision of the files that a model came from, in which it is saved."""
    dtype: torch.dtype = vars(model).get("files_dtype", model.dtype)
    return dtype


def is_quantised(model: nn.Module) -> bool:
    """Whether linear layers are in 4 bits."""
    return bool(vars(model).get("is_quantized", False))


def on_half_gpu() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported()


# Matrices in bfloat16.


class _Widened(torch.autograd.Function):
    """x·Wᵀ + b by a frozen W [out, in], or x·W + b by one of GPT-2's [in, out]: widened to x's
    format, and again in the backward pass so that no wide copy waits for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, turned: bool) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.turned = turned
        wide = weight.to(x.dtype)
        if not turned:
            return functional.linear(x, wide, bias)
        flat = x.reshape(-1, x.shape[-1])
        return torch.addmm(cast("Tensor", bias), flat, wide).reshape(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None, None]:
        (weight,) = ctx.saved_tensors
        (gradient,) = gradients
        wide = weight.to(gradient.dtype)
        return gradient @ (wide.t() if ctx.turned else wide), None, None, None


def _narrow(module: nn.Module, x: Tensor) -> bool:
    """Whether its weight must be widened by hand: autocast chooses the format itself."""
    weight = cast("Tensor", module.weight)
    return weight.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type)


class HeldLinear(nn.Linear):
    """A linear layer whose weight may be narrower than what it reads."""

    def forward(self, input: Tensor) -> Tensor:
        if not _narrow(self, input):
            return super().forward(input)
        return cast("Tensor", _Widened.apply(input, self.weight, self.bias, False))


class HeldConv1D(Conv1D):
    """The same of GPT-2's layers."""

    def forward(self, x: Tensor) -> Tensor:
        if not _narrow(self, x):
            return cast("Tensor", super().forward(x))
        return cast("Tensor", _Widened.apply(x, self.weight, self.bias, True))


class HeldEmbedding(nn.Embedding):
    """Rows of a narrow table, widened as they are read."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).float()


_HELD: dict[type, type] = {nn.Linear: HeldLinear, Conv1D: HeldConv1D, nn.Embedding: HeldEmbedding}


def hold_in_half(model: PreTrainedModel) -> PreTrainedModel:
    """The matrices of `model` in bfloat16 and all else in float32, in place. Layers of other
    classes than these stay float32, and the heads and poolers of classifiers, which train; so does
    a table that one of them shares."""
    parts = [model.base_model, model.get_output_embeddings()]
    inside = {module for part in parts if part is not None for module in part.modules()}
    if (pooler := getattr(model.base_model, "pooler", None)) is not None:
        inside -= set(pooler.modules())
    narrow: dict[Tensor, bool] = {}
    for module in model.modules():
        holds = module in inside and type(module) in _HELD
        for name, parameter in module.named_parameters(recurse=False):
            fits = holds and name == "weight"
            narrow[parameter] = narrow.get(parameter, True) and fits
    made = {
        parameter: nn.Parameter(
            parameter.detach().to(torch.bfloat16 if half else torch.float32),
            requires_grad=parameter.requires_grad,
        )
        for parameter, half in narrow.items()
    }
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, made[parameter])  # tied ones stay one
        if type(module) in _HELD:
            module.__class__ = _HELD[type(module)]
    return model


# Linear layers in 4 bits.


def four_bits() -> BitsAndBytesConfig:
    """What the library is asked for; products are made in what the passes are made in."""
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16 if on_half_gpu() else torch.float32,
    )


def _keep_gradients(model: nn.Module) -> None:
    """On a processor with AVX512-BF16, a pass without gradients makes bitsandbytes repack a weight
    for a kernel that has none, also for the passes of training that follow: dropout is off here, so
    it takes a model that trains for one that answers. Its own layout is kept instead."""
    from bitsandbytes.nn import Linear4bit

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False


def use_liger(model: PreTrainedModel) -> None:
    """Its kernels in the layers of `model`, in place; losses are ours."""
    apply_liger_kernel(model, {"fused_linear_cross_entropy": False, "cross_entropy": False})


# Loading.


def pick_device() -> torch.device:
    """The accelerator of this process if there is one, else the processor."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", ranks.local_rank()) if ranks.world() > 1 else torch.device("cuda")


def load_tokenizer(source: str | Path, **options: object) -> PreTrainedTokenizerBase:
    """The tokenizer of a hub id or folder, padding on the left, with a chat template.

    One without a pad token pads with its end token; masks are never made by comparing ids with
    the pad token, so that is safe. One without a template gets a plain one, an encoder's with its
    marks of beginning and end, for its head reads the first token.
    """
    tokenizer = _load(AutoTokenizer, source, **options)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.chat_template is None:
        marks = tokenizer.cls_token is not None and tokenizer.sep_token is not None
        tokenizer.chat_template = ENCODER_TEMPLATE if marks else PLAIN_TEMPLATE
    tokenizer.padding_side = "left"
    return tokenizer


def named_model(name: str, setting: str = "base_model") -> str | Path:
    """What the `setting` of a configuration leads to. Raises `RecipeError` for a path that nobody
    who runs this worker listed, whether there is something or not."""
    if (folder := allowed_folder(name)) is not None:
        return folder
    # A relative path looks like an id and would be read from the trainer's folder.
    if is_hub_id(name) and not Path(name).exists():
        return name
    raise RecipeError("model_not_allowed", Fault.CONFIGURATION, f"{setting}: {NOT_ALLOWED}")


def load_causal(
    source: str | Path, *, device: torch.device | None = None, keep: Keep = WHOLE
) -> PreTrainedModel:
    """A causal language model in float32, or kept as it is said, dropout off."""
    model = _kept(AutoModelForCausalLM, source, keep, device or pick_device())
    disable_dropout(model)
    return model


def load_scorer(
    source: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    device: torch.device | None = None,
    dropout: float | None = None,
    keep: Keep = WHOLE,
) -> PreTrainedModel:
    """A model with one score per text: a trained reward model, or any model with a new head.

    The head pools the last token that is not padding, so the model must know the pad token.
    """
    _refuse_step_scorer(source)
    place = device or pick_device()
    model = _kept(AutoModelForSequenceClassification, source, keep, place, num_labels=1)
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    model.config.pad_token_id = tokenizer.pad_token_id
    disable_dropout(model, dropout or 0.0)
    return model


STEP_SCORER = "ForTokenClassification"  # ends the name of its architecture


def load_step_scorer(
    source: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    keep: Keep = WHOLE,
    device: torch.device | None = None,
) -> PreTrainedModel:
    """A process reward model: one score for each token, of which those at the ends of steps count.
    Raises `RecipeError` (not_causal) for a model that reads a step with those behind it: in use
    they are not there yet."""
    config = read_config(source)
    causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    both_ways = type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(
        config, "is_decoder", False
    )
    if not causal or both_ways:
        raise RecipeError(
            "not_causal",
            Fault.CONFIGURATION,
            f"model '{Path(source).name}' reads in both directions: a step would be judged by the "
            "steps behind it. Start from a causal language model.",
        )
    place = device or pick_device()
    model = _kept(AutoModelForTokenClassification, source, keep, place, num_labels=1)
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    model.config.pad_token_id = tokenizer.pad_token_id
    disable_dropout(model)
    return model


def is_step_scorer(source: str | Path) -> bool:
    """Whether a model scores single steps, as its architecture says."""
    named = getattr(read_config(source), "architectures", None) or ()
    return any(name.endswith(STEP_SCORER) for name in named)


def _refuse_step_scorer(source: str | Path) -> None:
    """A process reward model has no score of a whole answer: loaded as one, a head of noise."""
    if is_step_scorer(source):
        raise RecipeError(
            "process_reward_model",
            Fault.CONFIGURATION,
            f"model '{Path(source).name}' is a process reward model: it scores single steps, and "
            "no whole answer. Choose a reward model.",
        )


def _kept(
    factory: Any, source: str | Path, keep: Keep, device: torch.device, **options: object
) -> PreTrainedModel:
    options |= {"use_safetensors": True, "dtype": torch.float32}
    if keep.attention is not None:
        options["attn_implementation"] = keep.attention
    if keep.four_bit:
        options |= {"quantization_config": four_bits(), "device_map": {"": device}}
    model: Any = _load(factory, source, **options)
    _note_precision(model, source)
    _check_finite(model, source)
    if keep.liger:
        use_liger(model)
    if keep.four_bit:
        _keep_gradients(model)
    held: Any = model if keep.four_bit else keep.of(model)
    placed: PreTrainedModel = held if keep.four_bit else held.to(device)
    return placed


def read_config(source: str | Path, **options: object) -> PretrainedConfig:
    """Raises `RecipeError` for a model that transformers does not know."""
    config: PretrainedConfig = _load(AutoConfig, source, **options)
    return config


def load_as_saved(
    factory: Any, source: str | Path, **options: object
) -> tuple[PreTrainedModel, set[str]]:
    """A model in the precision of its files, on the processor, and the names of those of its
    weights that no file holds."""
    options |= {"use_safetensors": True, "dtype": "auto", "output_loading_info": True}
    model, info = _load(factory, source, **options)
    _check_finite(model, source)
    return model, set(info["missing_keys"])


def gguf_options(file: str) -> dict[str, Any]:
    """How a factory is told to unpack the GGUF file of that name; older releases always do."""
    options: dict[str, Any] = {"gguf_file": file}
    if hasattr(transformers, "GgufConfig"):
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    return options


def _check_finite(model: nn.Module, source: str | Path) -> None:
    """A checkpoint of a run that blew up is refused here, not by whatever breaks on it first."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise RecipeError(
                "non_finite_weights",
                Fault.DATA,
                f"model '{Path(source).name}': the weights '{name}' hold NaN or infinite values",
            )


def _load(factory: Any, source: str | Path, **options: object) -> Any:
    try:
        return factory.from_pretrained(str(source), trust_remote_code=False, **options)
    except (OSError, ValueError) as error:
        raise RecipeError(
            "model_unavailable",
            Fault.CONFIGURATION,
            f"model '{Path(source).name if Path(source).exists() else source}' cannot be loaded: "
            f"{error}",
        ) from error


# A model is trained in float32 and saved in the precision of the files that it came from.

EXACT = "weights.safetensors"  # among the trainer's state: the weights as they are trained


def _note_precision(model: PreTrainedModel, source: str | Path) -> None:
    vars(model)["files_dtype"] = read_config(source).dtype or model.dtype  # rides in copies


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """A normal model folder: configuration, safetensors, tokenizer; ready to answer."""
    folder.mkdir(parents=True, exist_ok=True)
    dtype, state = files_dtype(model), None
    if any(p.dtype != dtype for p in model.parameters() if p.is_floating_point()):
        own = model.state_dict(keep_vars=True)
        cast = {id(t): t for t in own.values()}  # once for each, for tied ones stay one
        cast = {key: t.detach().to(dtype) for key, t in cast.items() if t.is_floating_point()}
        state = {name: cast.get(id(t), t) for name, t in own.items()}
    model.save_pretrained(folder, state_dict=state)
    config = copy.deepcopy(model.config)
    for part in (config, config.get_text_config()):
        part.dtype = dtype
        if hasattr(part, "use_cache"):
            part.use_cache = True
    config.save_pretrained(folder)
    if model.can_generate():
        _generation(model, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _generation(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> GenerationConfig:
    """Ends where answers end here. Of the model's own it keeps how answers are drawn, and nothing
    that changes what is likely (a repetition penalty), for no training heeds that."""
    ends, own = list(stop_ids(model, tokenizer)), model.generation_config
    drawn = {}
    if own is not None and own.do_sample:
        names = ("do_sample", "temperature", "top_p", "top_k")
        drawn = {n: v for n in names if (v := getattr(own, n)) is not None}
    return GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ends[0] if len(ends) == 1 else ends or None,
        pad_token_id=tokenizer.pad_token_id,
        **drawn,
    )


def save_exact(model: nn.Module, folder: Path) -> None:
    """The weights as they are, where the files of the model round them."""
    if files_dtype(model) != model.dtype:
        safetensors.torch.save_model(model, str(folder / EXACT))


def load_exact(model: nn.Module, folder: Path) -> None:
    """Put them back, where there are some."""
    if (folder / EXACT).is_file():
        safetensors.torch.load_model(model, folder / EXACT)


def weights_sha256(model: nn.Module) -> str:
    """Identity of the weights by content: names, shapes and bytes, in order of name."""
    return state_sha256(model.state_dict())


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that is split over the ranks of a job, for which every rank must ask; any
    other tensor itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def laid_like(parameter: Tensor, value: Tensor) -> Tensor:
    """A whole `value` on the device of `parameter`, and split over the ranks of a job as it is."""
    value = value.to(parameter.device)
    if not isinstance(parameter, DTensor):
        return value
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def state_sha256(state: Mapping[str, Tensor]) -> str:
    """The same of some of a model's weights, by name."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = whole(state[name])
        if tensor.dtype in HALF:  # it says the same, and may be kept either way
            tensor = tensor.float()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def shares_memory(first: nn.Module, second: nn.Module) -> bool:
    """Whether any parameter of one is a parameter of the other: training one would move both."""
    pointers = {p.data_ptr() for p in first.parameters()}
    return any(p.data_ptr() in pointers for p in second.parameters())


def freeze_body(model: PreTrainedModel) -> PreTrainedModel:
    """Leave the score head to train, and the pooler of encoders that have one: it feeds no other
    layer, so what the body says of a text stays the same."""
    body = model.base_model.requires_grad_(False)
    if (pooler := getattr(body, "pooler", None)) is not None:
        pooler.requires_grad_(True)
    return model


def freeze(model: Model) -> Model:
    """No gradients, no dropout, for good."""
    model.eval()
    return model.requires_grad_(False)


def disable_dropout(model: nn.Module, probability: float = 0.0) -> None:
    """Set every dropout: log-probabilities must not change between two looks at one text."""
    module: Any
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
        elif hasattr(module, "attention_dropout") and isinstance(module.attention_dropout, float):
            module.attention_dropout = probability


def readable_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens the model can read: the smaller of what its tokenizer and its positions allow.

    A reward run saves its own limit as the tokenizer's, so scoring cuts where training cut.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return min(tokenizer.model_max_length, positions or tokenizer.model_max_length)


def parameter_count(model: nn.Module) -> int:
    return sum(size_of(p) for p in model.parameters())


def trained_parameter_count(model: nn.Module) -> int:
    return sum(size_of(p) for p in model.parameters() if p.requires_grad)


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every token that ends an answer: the tokenizer's end token and those the model names."""
    named = getattr(model, "generation_config", None) and model.generation_config.eos_token_id
    ids = {tokenizer.eos_token_id} | set(named if isinstance(named, list) else [named])
    return tuple(sorted(i for i in ids if i is not None))
