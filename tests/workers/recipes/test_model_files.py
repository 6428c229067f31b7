"""What a checkpoint gives away: a model that `transformers` alone asks as it is asked here."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.workers.recipes.conftest import PLANTED_PPO, SUBJECTS
from tests.workers.recipes.language import Workshop, tiny_llama, user
from tests.workers.recipes.test_dpo_runs import DATA, SHORT, checkpoint
from tests.workers.recipes.test_resume import check_joined, stop_and_resume
from workers.artifacts import ADAPTER, MERGED, model_files
from workers.contract.jobs import Resume
from workers.data.batches import encode_prompt
from workers.models.loading import load_causal, load_tokenizer, stop_ids
from workers.rollouts.local import Sampling, generate

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
PPO = PLANTED_PPO | {"steps": 6, "eval_every": 3}
CHILD = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, prompts = sys.argv[1], json.loads(sys.argv[2])
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
files, found = str(model.dtype), []
for prompt in prompts:
    inputs = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    drawn = model.float().generate(**inputs, max_new_tokens=12, do_sample=False)
    found.append(drawn[0, inputs["input_ids"].shape[1]:].tolist())
loaded = sorted({name.partition(".")[0] for name in sys.modules} & {"workers", "peft", "trl"})
print(json.dumps([files, model.config.use_cache, loaded, found]))
"""


@pytest.fixture(scope="module")
def shop(workshop: Workshop) -> Workshop:
    """With a base in bfloat16 whose own settings would change what is likely."""
    model = tiny_llama(seed=7).to(torch.bfloat16)
    model.generation_config.repetition_penalty = 3.0
    model.generation_config.eos_token_id = None
    workshop.put_model("bf16", model)
    return workshop


def downloaded(folder: Path, place: Path, part: str = MERGED) -> Path:
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, source in model_files(manifest, part).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / source, place / name)
    return place


def asked_alone(folder: Path, prompts: list[Any]) -> list[Any]:
    command = [sys.executable, "-c", CHILD, str(folder), json.dumps(prompts)]
    said = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=True, cwd=folder
    )
    return json.loads(said.stdout.splitlines()[-1])


@pytest.mark.parametrize("rank", [0, 4])
def test_a_download_answers_by_transformers_alone_as_it_does_here(
    shop: Workshop, tmp_path: Path, rank: int
) -> None:
    """Greedily, to the token; in the precision of its base; with no trainer's state."""
    inputs = {"sft": "bf16", "prompts": "prompts"}
    outcome = shop.run_here(
        shop.spec(f"leaving-{rank}", "ppo", PPO | {"lora_rank": rank}, **inputs)
    )
    folder = checkpoint(shop, outcome)
    place = downloaded(folder, tmp_path / MERGED)
    assert {path.name for path in place.iterdir()} == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    prompts = [user(subject) for subject in SUBJECTS[:6]]
    tokenizer, model = load_tokenizer(folder), load_causal(folder)
    drawn = generate(
        model,
        tokenizer,
        [encode_prompt(tokenizer, p) for p in prompts],
        Sampling(12, temperature=0),
        stop=stop_ids(model, tokenizer),
    )
    here = [
        row[mask.bool()].tolist()
        for row, mask in zip(drawn.response_ids, drawn.response_mask, strict=True)
    ]
    files, caches, loaded, there = asked_alone(place, prompts)
    assert there == here
    assert len({tuple(row) for row in here}) > 1
    assert (files, caches, loaded) == ("torch.bfloat16", True, [])
    assert {w.dtype for w in load_file(place / "model.safetensors").values()} == {torch.bfloat16}


def test_an_adapter_that_left_is_loaded_by_peft_on_its_base(shop: Workshop, tmp_path: Path) -> None:
    config = SHORT | {"lora_rank": 4, "learning_rate": 1e-2, "max_steps": 4}
    spec = shop.spec("leaving-adapter", "dpo", config, **DATA | {"sft": "bf16"})
    folder = checkpoint(shop, shop.run_here(spec))
    place = downloaded(folder, tmp_path / ADAPTER, ADAPTER)
    names = {path.name for path in place.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= names
    assert "model.safetensors" not in names
    assert str(shop.root) not in (place / "adapter_config.json").read_text()
    base = AutoModelForCausalLM.from_pretrained(shop.root / "models" / "bf16", dtype=torch.float32)
    ids = torch.tensor([[2, 5, 6, 7, 1, 3]])
    before = base(ids).logits
    adapted = PeftModel.from_pretrained(base, str(place))
    merged = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert not torch.allclose(adapted(ids).logits, before, atol=1e-2)
    assert torch.allclose(adapted(ids).logits, merged(ids).logits, atol=2e-2)  # bfloat16 rounds


@pytest.mark.parametrize("kind", ["sft", "dpo", "ppo", "reward"])
def test_a_run_on_a_base_in_bf16_goes_on_bit_for_bit_where_it_was_stopped(
    shop: Workshop, kind: str
) -> None:
    """Its files round the weights; the exact ones are with the trainer's state."""
    sft = {k: v for k, v in SHORT.items() if k != "max_steps"} | {"batch_size": 4, "eval_every": 3}
    config, inputs = {
        "sft": (sft, {"base": "bf16", "data": "demonstrations"}),
        "dpo": (SHORT, DATA | {"sft": "bf16"}),
        "ppo": (
            PPO | {"critic": "separate", "lora_rank": 0},
            {"sft": "bf16", "prompts": "prompts"},
        ),
        "reward": (
            {k: v for k, v in SHORT.items() if not k.startswith("sample")},
            DATA | {"sft": "bf16"},
        ),
    }[kind]
    parts = stop_and_resume(shop, kind, config, 4, prefix="bf16_", **inputs)
    check_joined(*parts)
    folder = checkpoint(shop, parts[1])
    assert {w.dtype for w in load_file(folder / "model.safetensors").values()} == {torch.bfloat16}
    exact = load_file(folder / "resume" / "weights.safetensors")
    assert {w.dtype for w in exact.values()} == {torch.float32}
    assert not list(folder.glob("*.pt"))


def test_a_checkpoint_of_an_older_version_is_resumed_and_leaves_without_its_state(
    shop: Workshop, tmp_path: Path
) -> None:
    """These had the trainer's state beside the model."""
    config = SHORT | {"precompute_reference": True}
    whole = shop.run_here(shop.spec("older_whole", "dpo", config, **DATA))
    first = shop.run_here(shop.spec("older", "dpo", config, **DATA), after_step=5)
    folder, flat = checkpoint(shop, first), tmp_path / "flat"
    shutil.copytree(folder, flat)
    for path in (flat / "resume").iterdir():
        path.rename(flat / path.name)
    (flat / "resume").rmdir()
    sha256, _ = shop.store.put_tree(flat, "older/flat")
    step = first.all("CheckpointSaved")[-1]["step"]
    resume = Resume("older/flat", sha256, step)
    second = shop.run_here(shop.spec("older", "dpo", config, attempt=2, resume=resume, **DATA))
    check_joined(whole, first, second)
    kept, wanted = (
        model_files(json.loads((at / "manifest.json").read_text())) for at in (flat, folder)
    )
    assert kept == wanted
