"""Loading, saving and identifying models and tokenizers.

Weights are safetensors only and code from a model folder is never run. Whether a hub may be
reached is the environment's business (`HF_HUB_OFFLINE`).
"""

import copy
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
import transformers
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as hf_logging

from workers import ranks
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import NOT_ALLOWED, allowed_folder, is_hub_id
from workers.data.batches import ENCODER_TEMPLATE, PLAIN_TEMPLATE
from workers.layouts.gathered import size_of

Model = TypeVar("Model", bound=nn.Module)

hf_logging.disable_progress_bar()  # a run's log is read line by line


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


def load_causal(source: str | Path, *, device: torch.device | None = None) -> PreTrainedModel:
    """A causal language model in float32, dropout off."""
    model = _load(AutoModelForCausalLM, source, use_safetensors=True, dtype=torch.float32)
    _note_precision(model, source)
    _check_finite(model, source)
    disable_dropout(model)
    return model.to(device or pick_device())


def load_scorer(
    source: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    device: torch.device | None = None,
    dropout: float | None = None,
) -> PreTrainedModel:
    """A model with one score per text: a trained reward model, or any model with a new head.

    The head pools the last token that is not padding, so the model must know the pad token.
    """
    model = _load(
        AutoModelForSequenceClassification,
        source,
        use_safetensors=True,
        dtype=torch.float32,
        num_labels=1,
    )
    _note_precision(model, source)
    _check_finite(model, source)
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    model.config.pad_token_id = tokenizer.pad_token_id
    disable_dropout(model, dropout or 0.0)
    return model.to(device or pick_device())


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


def files_dtype(model: nn.Module) -> torch.dtype:
    """The precision in which a model is saved."""
    dtype: torch.dtype = vars(model).get("files_dtype", model.dtype)
    return dtype


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """A normal model folder: configuration, safetensors, tokenizer; ready to answer."""
    folder.mkdir(parents=True, exist_ok=True)
    dtype, state = files_dtype(model), None
    if dtype != model.dtype:
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
