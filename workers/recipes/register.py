"""A model from elsewhere becomes a checkpoint, like those that runs train.

`model` and `adapter` name folders on the worker or ids on a hub; with the input `base`, a model of
another project, it is a copy of that one as it is. The kind of run says what the model is for:
`register_policy` a causal language model, `register_reward` a model with one score,
`register_encoder` a body that a reward model may start from. Whatever could not be used later is
refused before anything is saved, with what to do about it: docs/register.md.
"""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import transformers
from huggingface_hub import snapshot_download
from peft import PeftConfig, PeftType
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    set_seed,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)
from transformers.utils import is_gguf_available

from workers.artifacts import files_below, papers, without_state
from workers.config import settings_for
from workers.config.inference import RegisterSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.data.batches import ENCODER_TEMPLATE, PLAIN_TEMPLATE
from workers.models.loading import (
    gguf_options,
    load_as_saved,
    load_tokenizer,
    named_model,
    parameter_count,
    read_config,
    readable_length,
    save_model,
    weights_sha256,
)
from workers.models.lora import adapter_heads, merged_with

CONFIG = RegisterSettings
CAUSAL = frozenset(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
SCORING = frozenset(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.values())
# What is fetched from a hub: no pickle, no code.
FETCHED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "README.md", "LICENSE*"]
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.txt")
PAPERS = ("README.md", "LICENSE*", "NOTICE*")  # kept with the weights, as licences ask
ADAPTER = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a model is registered as: who loads it, and which adapters were trained for it."""

    what: str
    factory: Any
    task: str


PURPOSES = {
    "policy": Purpose("a causal language model", AutoModelForCausalLM, "CAUSAL_LM"),
    "reward": Purpose("a model with one score", AutoModelForSequenceClassification, "SEQ_CLS"),
    "encoder": Purpose("a body to put a score on", AutoModel, "FEATURE_EXTRACTION"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A folder, and the one GGUF file in it that holds the model, if one does."""

    folder: Path
    gguf: str | None = None

    @property
    def options(self) -> dict[str, str]:
        return {"gguf_file": self.gguf} if self.gguf else {}


def run(context: RunContext) -> dict[str, Any]:
    """Read, check, save, and tell what was read."""
    kind = context.spec.kind
    settings: RegisterSettings = settings_for(kind, context.spec.config)
    name = kind.removeprefix("register_")
    purpose = PURPOSES[name]
    set_seed(context.spec.seed)  # of a pooler that no file holds
    context.progress(0, None, "reading")
    if context.spec.input("base") is not None:
        return _copied(context, settings, purpose)
    source = _source("model", settings.model)
    adapter = _source("adapter", settings.adapter).folder if settings.adapter else None
    if adapter is not None:
        _check_adapter(adapter, purpose)
    config = _check_files(source)
    architecture = _check_head(source, config, name, adapted=adapter is not None)
    tokenizer = _tokenizer(source, adapter)
    if source.gguf:
        tokenizer = _of_the_file_alone(tokenizer, config.get_text_config().vocab_size)
    context.progress(0, None, "loading")
    model = _model(source, adapter, purpose)
    _check_vocabulary(model, tokenizer)
    model.config.use_cache = True
    if model.config.get_text_config().pad_token_id is None:  # a score is read off the last token
        model.config.pad_token_id = tokenizer.pad_token_id
        model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    told = _told(settings, purpose, architecture, model, tokenizer)
    told["licence"] = _licence(source.folder)
    if context.should_stop() == "cancel":
        return {"step": 0}
    context.progress(0, None, "saving")
    folder = context.workdir / "model"
    save_model(model, tokenizer, folder)
    for paper in (path for name in PAPERS for path in source.folder.glob(name) if path.is_file()):
        shutil.copyfile(paper, folder / paper.name)
    context.save_checkpoint(folder, step=0, tags=["last", "final"], metrics={})
    context.log(f"Registered {purpose.what}: {architecture}, {told['parameters']:,} parameters.")
    return {"step": 0, **told}


def _copied(context: RunContext, settings: RegisterSettings, purpose: Purpose) -> dict[str, Any]:
    """The input as it is stored, but for the state of its trainer, with the licence of the model
    that it began as (input `licence`)."""
    found = context.input_path("base")
    names, _ = files_below(found)
    folder = context.workdir / "model"
    for name in without_state(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found / name, folder / name)
    if context.spec.input("licence") is not None:
        theirs = context.input_path("licence")
        for name in papers(files_below(theirs)[0]):
            if not (folder / name).exists():
                shutil.copyfile(theirs / name, folder / name)
    if context.should_stop() == "cancel":
        return {"step": 0}
    context.progress(0, None, "saving")
    context.save_checkpoint(folder, step=0, tags=["last", "final"], metrics={})
    context.log(f"Copied {purpose.what} of the project {settings.model.partition('/')[0]}.")
    told = {"model": settings.model, "registered_as": purpose.what, "licence": _licence(folder)}
    if (folder / "config.json").is_file():  # an ensemble has one in each member
        told["architecture"] = next(iter(read_config(folder).architectures or ()), "")
    return {"step": 0, **told}


def refuse(why: str) -> NoReturn:
    """`why` names the setting, what is wrong and what to do."""
    raise RecipeError("model_refused", Fault.CONFIGURATION, why)


def _source(name: str, given: str) -> Source:
    """Where the setting `name` leads to, fetched from a hub if it is an id there."""
    place = named_model(given, name)
    if isinstance(place, str):
        try:
            return Source(Path(snapshot_download(place, allow_patterns=FETCHED)))
        except (OSError, ValueError) as error:
            refuse(
                f"{name}: '{given}' cannot be fetched from the hub; check the id, or copy the "
                f"model to a folder of the worker and name that ({error})"
            )
    if not place.exists():
        refuse(f"{name}: there is no folder '{place.name}' on this worker; copy the model there")
    if place.is_file():
        if place.suffix != ".gguf":
            refuse(f"{name}: '{place.name}' is a file; name the folder that it lies in")
        return _with_gguf(name, place.parent, place.name)
    files = sorted(path.name for path in place.glob("*.gguf"))
    if files and not list(place.glob("*.safetensors")):
        if len(files) > 1:
            refuse(f"{name}: the folder holds {len(files)} GGUF files; name one of them")
        return _with_gguf(name, place, files[0])
    return Source(place)


def _with_gguf(name: str, folder: Path, file: str) -> Source:
    if not is_gguf_available():
        refuse(
            f"{name}: '{file}' is GGUF; install the extra gguf on the worker, or name safetensors"
        )
    from gguf import GGUFReader

    try:
        GGUFReader(folder / file)
    except Exception as error:  # whatever its parsing meets first
        refuse(f"{name}: {file} is cut short or damaged; copy it again ({error})")
    return Source(folder, file)


def _check_adapter(folder: Path, purpose: Purpose) -> None:
    if not (folder / ADAPTER).is_file():
        refuse(
            f"adapter: '{folder.name}' holds no {ADAPTER}; name what peft's save_pretrained left"
        )
    _check_weights("adapter", folder)
    config = PeftConfig.from_pretrained(str(folder))
    if config.peft_type != PeftType.LORA:
        refuse(f"adapter: {config.peft_type} cannot be merged; merge it yourself, or train a LoRA")
    if config.task_type not in (None, purpose.task):
        refuse(
            f"adapter: it was trained for {config.task_type}, and {purpose.what} takes "
            f"{purpose.task}; register it as another kind of model"
        )


def _check_files(source: Source) -> PretrainedConfig:
    """The configuration of a folder that holds weights anybody may read."""
    folder = source.folder
    if source.gguf is None:
        if not (folder / "config.json").is_file():
            if (folder / ADAPTER).is_file():
                refuse(
                    f"model: '{folder.name}' is an adapter; name the model that it was trained on, "
                    "and this folder as `adapter`"
                )
            refuse(
                f"model: '{folder.name}' holds no config.json; save the model with save_pretrained"
            )
        _check_weights("model", folder)
    for name in ("config.json", "tokenizer_config.json"):
        values = _read_json(folder / name) if (folder / name).is_file() else {}
        if "auto_map" in values:
            refuse(
                f"model: {name} asks for code of its own (auto_map), which is never run here; if "
                "transformers knows the architecture, take auto_map out of a copy"
            )
        if "quantization_config" in values:
            refuse("model: its weights are quantized; register the model that they were made from")
    try:
        return read_config(folder, **source.options)
    except RecipeError as error:
        refuse(f"{error}; upgrade transformers on the worker, or choose another model")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        refuse(f"model: {path.name} is cut short or damaged; copy it again ({error})")
    return values


def _check_weights(name: str, folder: Path) -> None:
    """safetensors only, all of them there and whole."""
    found = {path.name for path in folder.glob("*.safetensors")}
    for index in folder.glob("*.safetensors.index.json"):
        missing = sorted(set(_read_json(index)["weight_map"].values()) - found)
        if missing:
            refuse(f"{name}: {missing[0]} is missing; copy the folder again")
    if not found:
        refuse(
            f"{name}: '{folder.name}' holds no safetensors, and pickles (pytorch_model.bin) are "
            "never read; load it where you trust it and save_pretrained(safe_serialization=True)"
        )
    for file in sorted(found):
        try:
            with safe_open(folder / file, framework="pt") as weights:
                weights.keys()
        except (SafetensorError, OSError) as error:
            refuse(f"{name}: {file} is cut short or damaged; copy it again ({error})")


def _check_head(source: Source, config: PretrainedConfig, name: str, *, adapted: bool) -> str:
    """The architecture, whose head serves the purpose `name`; an adapter of a score brings it."""
    if source.gguf:
        architecture = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type, "")
    else:
        architecture = next(iter(config.architectures or ()), "")
    if not hasattr(transformers, architecture or "-"):
        refuse(
            f"model: transformers {transformers.__version__} knows no architecture "
            f"'{architecture}'; upgrade the worker, or choose another model"
        )
    scores = architecture in SCORING
    labels = f" with {config.num_labels} labels" if scores else ""
    fits = {
        "policy": architecture in CAUSAL,
        "reward": adapted or (scores and config.num_labels == 1),
        "encoder": not scores
        and architecture not in CAUSAL
        and config.model_type in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    }
    if not fits[name]:
        others = [f"register_{other}" for other in fits if fits[other]]
        refuse(
            f"model: {architecture}{labels} is not {PURPOSES[name].what}; "
            + (f"register it by a run of {others[0]}" if others else "choose another model")
        )
    return architecture


def _tokenizer(source: Source, adapter: Path | None) -> PreTrainedTokenizerBase:
    """The adapter's own where it has one, else that of its model."""
    own = adapter if adapter is not None and _holds_tokenizer(adapter) else None
    if own is None and source.gguf is None and not _holds_tokenizer(source.folder):
        refuse(
            f"model: '{source.folder.name}' holds no tokenizer; put the one it was trained with "
            "there (tokenizer.save_pretrained)"
        )
    try:
        tokenizer = load_tokenizer(own or source.folder, **({} if own else source.options))
    except Exception as error:  # the library of tokenizers raises nothing narrower
        refuse(
            "model: its tokenizer cannot be read; copy it again, or install what the error names "
            f"({error})"
        )
    if tokenizer.pad_token_id is None:
        refuse(
            "model: the tokenizer has neither an end nor a pad token; name them in its "
            "tokenizer_config.json"
        )
    return tokenizer


def _of_the_file_alone(tokenizer: PreTrainedTokenizerBase, size: int) -> PreTrainedTokenizerBase:
    """transformers adds the end token of GPT-2 to every byte-level vocabulary of a GGUF file. Where
    that is a new token, such as Llama 3's, the model has no embedding for it."""
    own = set(tokenizer.all_special_tokens)
    extra = {
        word for word, id_ in tokenizer.get_added_vocab().items() if id_ >= size and word not in own
    }
    if not extra or not isinstance(tokenizer, PreTrainedTokenizerFast):
        return tokenizer
    told = json.loads(tokenizer.backend_tokenizer.to_str())
    told["added_tokens"] = [one for one in told["added_tokens"] if one["content"] not in extra]
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(told)),
        chat_template=tokenizer.chat_template,
        padding_side=tokenizer.padding_side,
        model_max_length=tokenizer.model_max_length,
        **tokenizer.special_tokens_map,
    )


def _holds_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZERS)


def _model(source: Source, adapter: Path | None, purpose: Purpose) -> PreTrainedModel:
    """Whole: every weight comes from a file."""
    options: dict[str, Any] = gguf_options(source.gguf) if source.gguf else {}
    if adapter is not None and purpose.task == "SEQ_CLS":
        options["num_labels"] = 1
    try:
        model, missing = load_as_saved(purpose.factory, source.folder, **options)
        if adapter is not None:
            missing -= adapter_heads(adapter)
            model = merged_with(model, adapter)
    except (RuntimeError, ValueError) as error:
        refuse(f"the weights do not fit the configuration or each other: {error}")
    # A pooler is no part of what a masked language model saves; the head of a score may use it.
    missing = {name for name in missing if not name.startswith("pooler.")}
    if missing:
        refuse(
            f"model: {len(missing)} weights are in no file, such as {min(missing)}; save the whole "
            "model again"
        )
    return model


def _check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    known = cast("Tensor", model.get_input_embeddings().weight).shape[0]
    if len(tokenizer) > known:
        refuse(
            f"model: its tokenizer has {len(tokenizer):,} tokens and its embeddings {known:,}; "
            "name the tokenizer that it was trained with, or resize the embeddings"
        )


def _told(
    settings: RegisterSettings,
    purpose: Purpose,
    architecture: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> dict[str, Any]:
    """What was read, as the pages of run and model show it."""
    plain = tokenizer.chat_template in (PLAIN_TEMPLATE, ENCODER_TEMPLATE)
    return {
        "model": settings.model,
        "adapter": settings.adapter,
        "registered_as": purpose.what,
        "architecture": architecture,
        "parameters": parameter_count(model),
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_length": readable_length(model, tokenizer),
        "vocabulary": len(tokenizer),
        "chat_template": "none, so a plain one was added" if plain else "its own",
        "end_token": tokenizer.eos_token,
        "pad_token": tokenizer.pad_token,
        "weights_sha256": weights_sha256(model),
    }


def _licence(folder: Path) -> str:
    """As the model card's front matter or the first line of a LICENSE file has it."""
    card = folder / "README.md"
    text = card.read_text(errors="replace") if card.is_file() else ""
    front = text.split("---", 2)[1] if text.startswith("---") and text.count("---") > 1 else ""
    named = re.search(r"^license(?:_name)?: *(?!other\b)(\S.*)$", front, re.M)
    if named is not None:
        return named[1].strip()[:80]
    for path in sorted(folder.glob("LICENSE*")):
        lines = (line.strip() for line in path.read_text(errors="replace").splitlines())
        return next(filter(None, lines), "unknown")[:80]
    return "unknown"
