"""Models from elsewhere: what is registered answers as its folder does; the unfit are refused."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedModel,
)

from tests.workers.recipes.encoders import bert, encoder_folder
from tests.workers.recipes.language import Workshop, tiny_llama, word_tokenizer
from workers.artifacts import MANIFEST, cache_folder
from workers.contract.events import RecipeError
from workers.contract.jobs import InputRef
from workers.models.loading import save_model, weights_sha256

SHORT = {"learning_rate": 1e-3, "batch_size": 8, "max_steps": 2, "log_every": 1}
IDS = torch.tensor([[2, 5, 6, 7, 1, 3]])
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
_count = itertools.count()


def scorer(labels: int = 1) -> PreTrainedModel:
    config = tiny_llama().config
    config.num_labels = labels
    torch.manual_seed(3)
    return LlamaForSequenceClassification(config).eval()


def folder_of(path: Path, model: PreTrainedModel | None = None) -> Path:
    """A model as somebody else would leave it."""
    save_model(
        tiny_llama(seed=7).to(torch.bfloat16) if model is None else model, word_tokenizer(), path
    )
    return path


def adapter_of(path: Path, model: PreTrainedModel, task: str = "CAUSAL_LM") -> PeftModel:
    """A LoRA whose weights are not zero, as its training would leave it in `path`."""
    heads = ["score"] if task == "SEQ_CLS" else None
    config = LoraConfig(task_type=task, r=4, target_modules="all-linear", modules_to_save=heads)
    if task == "CAUSAL_LM":
        config.target_modules = ["q_proj", "v_proj"]
    adapted = get_peft_model(model, config)
    torch.manual_seed(11)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    adapted.save_pretrained(path)
    return adapted.eval()


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def register(shop: Workshop, purpose: str, model: Path | str, **more: Any) -> tuple[str, Any]:
    """(name among the inputs, outcome) of the run."""
    name = f"registered-{next(_count)}"
    config = {"model": str(model)} | {key: str(value) for key, value in more.items()}
    outcome = shop.run_here(shop.spec(name, f"register_{purpose}", config))
    shop.adopt(name, outcome)
    return name, outcome


def stored(shop: Workshop, name: str) -> Path:
    ref = shop.refs[name]
    return shop.store.get_tree(ref.uri, sha256=ref.sha256, cache=cache_folder())


def refused(shop: Workshop, purpose: str, model: Path | str, **more: Any) -> str:
    """What the recipe says; nothing was saved."""
    kept: list[dict[str, Any]] = []
    config = {"model": str(model)} | {key: str(value) for key, value in more.items()}
    spec = shop.spec(f"refused-{next(_count)}", f"register_{purpose}", config)
    with pytest.raises(RecipeError) as raised:
        shop.run_here(spec, keep=kept)
    assert (raised.value.kind, raised.value.fault) == ("model_refused", "configuration")
    assert "CheckpointSaved" not in {envelope["type"] for envelope in kept}
    return raised.value.message


def test_a_bf16_folder_is_registered_in_its_own_precision_and_trained_from(
    workshop: Workshop, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "mine")
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# Mine\n")
    name, outcome = register(workshop, "policy", folder)
    (saved,) = outcome.all("CheckpointSaved")
    assert (saved["step"], saved["tags"]) == (0, ["last", "final"])
    said = outcome.summary
    assert (said["architecture"], said["dtype"]) == ("LlamaForCausalLM", "bfloat16")
    assert (said["licence"], said["chat_template"]) == ("apache-2.0", "its own")
    assert (said["end_token"], said["pad_token"]) == ("[end]", "[pad]")
    assert (said["vocabulary"], said["max_length"]) == (18, 64)

    place = stored(workshop, name)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    ours = AutoModelForCausalLM.from_pretrained(place, dtype="auto")
    assert ours.dtype == torch.bfloat16
    assert {w.dtype for w in load_file(place / "model.safetensors").values()} == {torch.bfloat16}
    assert json.loads((place / "config.json").read_text())["use_cache"] is True
    assert torch.equal(ours(IDS).logits, theirs(IDS).logits)
    assert said["weights_sha256"] == weights_sha256(theirs)
    assert said["parameters"] == theirs.num_parameters()
    assert AutoTokenizer.from_pretrained(place).encode("good dog") == [4, 9]
    assert (place / "README.md").read_text() == (folder / "README.md").read_text()

    config = SHORT | {"sample_prompts": 1, "sample_max_new_tokens": 4, "max_length": 32}
    trained = workshop.run_here(
        workshop.spec(f"dpo-{name}", "dpo", config, sft=name, data="preferences")
    )
    assert trained.curve("eval/rewards/margins")[0] == pytest.approx(0.0, abs=1e-4)
    assert trained.summary["parameters"] == said["parameters"]


def test_a_reward_model_gives_the_scores_of_its_folder_and_judges_a_policy(
    workshop: Workshop, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "scorer", scorer())
    name, outcome = register(workshop, "reward", folder)
    assert outcome.summary["licence"] == "unknown"
    place = stored(workshop, name)
    theirs, ours = (
        AutoModelForSequenceClassification.from_pretrained(path) for path in (folder, place)
    )
    assert ours(IDS).logits.shape == (1, 1)
    assert torch.equal(ours(IDS).logits, theirs(IDS).logits)
    prompts = {"max_prompts": 2, "max_prompt_length": 16, "max_new_tokens": 4}
    spec = workshop.spec(
        f"evaluate-{name}",
        "evaluate",
        prompts | {"bootstrap_replicates": 100},
        policy="base",
        sft="base",
        reward=name,
        prompts="prompts",
    )
    assert workshop.run_here(spec).ending == "Finished"


def test_an_encoder_is_what_a_reward_model_starts_from(workshop: Workshop, tmp_path: Path) -> None:
    name, outcome = register(workshop, "encoder", encoder_folder(tmp_path / "bert", bert()))
    assert outcome.summary["chat_template"] == "none, so a plain one was added"
    spec = workshop.spec(f"reward-{name}", "reward", SHORT, base=name, data="preferences")
    assert workshop.run_here(spec).summary["step"] == 2


@pytest.mark.parametrize("task", ["CAUSAL_LM", "SEQ_CLS"])
def test_an_adapter_is_merged_with_its_base_into_what_peft_answers(
    workshop: Workshop, tmp_path: Path, task: str
) -> None:
    base = folder_of(tmp_path / "base", tiny_llama(seed=7))
    factory, purpose = {
        "CAUSAL_LM": (AutoModelForCausalLM, "policy"),
        "SEQ_CLS": (AutoModelForSequenceClassification, "reward"),
    }[task]
    options = {"num_labels": 1} if purpose == "reward" else {}
    adapted = adapter_of(tmp_path / "adapter", factory.from_pretrained(base, **options), task)
    name, outcome = register(workshop, purpose, base, adapter=tmp_path / "adapter")
    ours = factory.from_pretrained(stored(workshop, name))
    with torch.no_grad(), adapted.disable_adapter():
        alone = adapted(IDS).logits
    assert (ours(IDS).logits - adapted(IDS).logits).abs().max() < 1e-5
    assert (ours(IDS).logits - alone).abs().max() > 1e-3
    assert outcome.summary["adapter"] == str(tmp_path / "adapter")


def test_the_licence_may_stand_in_a_file_of_its_own(workshop: Workshop, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine")
    (folder / "README.md").write_text("---\nlicense: other\n---\n")
    (folder / "LICENSE").write_text("\n  My own licence\nOf 2026.\n")
    name, outcome = register(workshop, "policy", folder)
    assert outcome.summary["licence"] == "My own licence"
    assert (stored(workshop, name) / "LICENSE").is_file()


def lose_tokenizer(folder: Path) -> None:
    for path in [*folder.glob("tokenizer*"), *folder.glob("chat_template*")]:
        path.unlink()


def pickle_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()


def cut_short(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def lose_a_shard(folder: Path) -> None:
    index = {"metadata": {}, "weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def lose_weights(folder: Path) -> None:
    edit(folder / "config.json", num_hidden_layers=3)


def resize(folder: Path) -> None:
    edit(folder / "config.json", hidden_size=64, head_dim=32)


def add_tokens(folder: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.add_tokens(["more", "words"])
    tokenizer.save_pretrained(folder)


BROKEN: list[tuple[Callable[[Path], object], str, str]] = [
    (lose_tokenizer, "holds no tokenizer", "tokenizer.save_pretrained"),
    (pickle_weights, "pickles", "safe_serialization=True"),
    (cut_short, "cut short or damaged", "copy it again"),
    (lose_a_shard, "model-2.safetensors is missing", "copy the folder again"),
    (lose_weights, "weights are in no file", "save the whole model again"),
    (resize, "do not fit", "size"),
    (add_tokens, "20 tokens", "resize the embeddings"),
    (lambda f: edit(f / "config.json", auto_map={"AutoModel": "x.Y"}), "code of its own", "copy"),
    (lambda f: edit(f / "config.json", architectures=["MyLM"]), "'MyLM'", "upgrade the worker"),
    (lambda f: edit(f / "config.json", model_type="mine"), "type `mine`", "upgrade transformers"),
    (lambda f: edit(f / "config.json", quantization_config={}), "quantized", "made from"),
    (lambda f: (f / "config.json").write_text("{"), "config.json is cut short", "copy it again"),
    (lambda f: (f / "tokenizer.json").write_text("{"), "tokenizer cannot be read", "copy it again"),
    (lambda f: (f / "config.json").unlink(), "no config.json", "save_pretrained"),
]


@pytest.mark.parametrize(("damage", "why", "next_step"), BROKEN)
def test_a_folder_that_cannot_be_used_is_refused_with_what_to_do(
    workshop: Workshop, tmp_path: Path, damage: Callable[[Path], object], why: str, next_step: str
) -> None:
    folder = folder_of(tmp_path / "mine")
    damage(folder)
    message = refused(workshop, "policy", folder)
    assert why in message
    assert next_step in message


def test_a_model_is_not_registered_for_what_its_head_cannot_do(
    workshop: Workshop, tmp_path: Path
) -> None:
    causal = folder_of(tmp_path / "causal")
    assert "run of register_policy" in refused(workshop, "reward", causal)
    assert "run of register_policy" in refused(workshop, "encoder", causal)
    score = folder_of(tmp_path / "score", scorer())
    assert "run of register_reward" in refused(workshop, "policy", score)
    three = folder_of(tmp_path / "three", scorer(labels=3))
    assert "with 3 labels" in refused(workshop, "reward", three)
    body = encoder_folder(tmp_path / "bert", bert())
    assert "run of register_encoder" in refused(workshop, "reward", body)


def test_an_adapter_needs_its_own_base(workshop: Workshop, tmp_path: Path) -> None:
    base, adapter = folder_of(tmp_path / "base", tiny_llama(seed=7)), tmp_path / "adapter"
    adapter_of(adapter, AutoModelForCausalLM.from_pretrained(base))
    assert "this folder as `adapter`" in refused(workshop, "policy", adapter)
    wide = folder_of(tmp_path / "wide", tiny_llama(width=64))
    assert "do not fit" in refused(workshop, "policy", wide, adapter=adapter)
    flat = folder_of(tmp_path / "flat", tiny_llama(layers=1))
    assert "no counterpart" in refused(workshop, "policy", flat, adapter=adapter)
    assert "trained for CAUSAL_LM" in refused(workshop, "reward", base, adapter=adapter)
    assert "holds no adapter_config" in refused(workshop, "policy", base, adapter=base)
    pickle = adapter / "adapter_model.safetensors"
    pickle.rename(adapter / "adapter_model.bin")
    assert "pickles" in refused(workshop, "policy", base, adapter=adapter)


def gguf_of(path: Path, model: LlamaForCausalLM) -> list[str]:
    """A GGUF file in float32 as llama.cpp's converter lays it out; returns its vocabulary."""
    words = ["<pad>", "<end>", *sorted(ByteLevel.alphabet()), "ca", "cat"]
    own = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(own.num_hidden_layers)
    writer.add_context_length(own.max_position_embeddings)
    writer.add_embedding_length(own.hidden_size)
    writer.add_feed_forward_length(own.intermediate_size)
    writer.add_head_count(own.num_attention_heads)
    writer.add_head_count_kv(own.num_key_value_heads)
    writer.add_layer_norm_rms_eps(own.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types([3, 3] + [1] * (len(words) - 2))  # control, normal
    writer.add_token_merges(["c a", "ca t"])
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(1)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, own.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):  # halves of a head, interleaved
            heads, width = own.num_attention_heads, weight.shape[0] // own.num_attention_heads
            parts = weight.reshape(heads, 2, width // 2, weight.shape[1])
            weight = parts.transpose(1, 2).reshape(weight.shape)
        told = names.get_name(name, try_suffixes=(".weight",))
        writer.add_tensor(told, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return words


def test_a_gguf_file_is_unpacked_into_the_model_that_it_was_made_of(
    workshop: Workshop, tmp_path: Path
) -> None:
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=260,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=0.1,
    )
    model = LlamaForCausalLM(config).eval()
    (tmp_path / "two").mkdir()
    words = gguf_of(tmp_path / "two" / "one.gguf", model)
    assert len(words) == config.vocab_size
    for named in (tmp_path / "two" / "one.gguf", tmp_path / "two"):
        name, outcome = register(workshop, "policy", named)
        said = outcome.summary
        assert (said["architecture"], said["vocabulary"]) == ("LlamaForCausalLM", len(words))
        assert (said["end_token"], said["pad_token"]) == ("<end>", "<pad>")
        place = stored(workshop, name)
        assert not list(place.glob("*.gguf"))
        ours = AutoModelForCausalLM.from_pretrained(place)
        assert torch.allclose(ours(IDS).logits, model(IDS).logits, atol=1e-5)
        ids = AutoTokenizer.from_pretrained(place)("a cat", add_special_tokens=False)["input_ids"]
        assert [words[i] for i in ids] == ["a", "Ġ", "cat"]
        theirs = AutoTokenizer.from_pretrained(tmp_path / "two", gguf_file="one.gguf")
        assert AutoTokenizer.from_pretrained(place)("a cat").input_ids == theirs("a cat").input_ids
        odd = AutoTokenizer.from_pretrained(place)("<|endoftext|>")["input_ids"]
        assert max(odd) < len(words), "a token of GPT-2, for which this model has no embedding"
    config = SHORT | {"sample_prompts": 1, "sample_max_new_tokens": 4, "max_length": 48}
    spec = workshop.spec(f"dpo-{name}", "dpo", config, sft=name, data="preferences")
    assert workshop.run_here(spec).summary["step"] == 2

    (tmp_path / "two" / "other.gguf").write_bytes(b"GGUF")
    assert "name one of them" in refused(workshop, "policy", tmp_path / "two")
    whole, cut = (tmp_path / "two" / "one.gguf").read_bytes(), tmp_path / "cut.gguf"
    for size in (3, 3000, len(whole) // 2, len(whole) - 1):  # in the words, in the weights
        cut.write_bytes(whole[:size])
        assert "cut.gguf is cut short or damaged" in refused(workshop, "policy", cut)


def test_what_is_not_there_is_refused_by_name(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no folder 'nothing'" in refused(workshop, "policy", tmp_path / "nothing")
    assert "cannot be fetched" in refused(workshop, "policy", "nobody/nothing")
    (tmp_path / "one.gguf").touch()
    monkeypatch.setattr("workers.recipes.register.is_gguf_available", lambda: False)
    assert "install the extra gguf" in refused(workshop, "policy", tmp_path / "one.gguf")
    assert "install the extra gguf" in refused(workshop, "policy", tmp_path)


def test_a_copy_of_another_projects_model_is_the_model_without_its_trainers_state(
    workshop: Workshop, tmp_path: Path
) -> None:
    registered, _ = register(workshop, "policy", folder_of(tmp_path / "mine"))
    config = SHORT | {"sample_prompts": 1, "sample_max_new_tokens": 4, "max_length": 32}
    spec = workshop.spec(
        "before", "dpo", config | {"lora_rank": 2}, sft=registered, data="preferences"
    )
    workshop.adopt("before", workshop.run_here(spec))
    paper = tmp_path / "paper"
    paper.mkdir()
    (paper / "LICENSE").write_text("Some licence\nand its text")
    sha256, _ = workshop.store.put_tree(paper, "inputs/paper")
    workshop.refs["paper"] = InputRef("paper", "checkpoint", "paper", "inputs/paper", sha256)

    config = {"model": "first/abc"}
    spec = workshop.spec("copy", "register_policy", config, base="before", licence="paper")
    outcome = workshop.run_here(spec)
    workshop.adopt("copy", outcome)
    assert outcome.summary == {
        "step": 0,
        "model": "first/abc",
        "registered_as": "a causal language model",
        "architecture": "LlamaForCausalLM",
        "licence": "Some licence",
    }
    before, copy = stored(workshop, "before"), stored(workshop, "copy")
    names = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert {"model.safetensors", "adapter/adapter_model.safetensors", "LICENSE"} <= names
    assert (before / "resume").is_dir()
    assert not (copy / "resume").exists()
    for name in names - {"LICENSE", MANIFEST}:
        assert (copy / name).read_bytes() == (before / name).read_bytes(), name
    more = SHORT | {"sample_prompts": 1, "sample_max_new_tokens": 4, "max_length": 32}
    after = workshop.spec("after", "dpo", more, sft="copy", data="preferences")
    assert workshop.run_here(after).ending == "Finished"
