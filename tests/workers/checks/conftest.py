"""A small healthy PPO run, everything it left, and a way to ask questions about it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from apps.common.report.blocks import parts
from measures.blocks import block_from_json
from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import (
    ASSISTANT,
    END,
    PAD,
    TEMPLATE,
    USER,
    WORDS,
    Outcome,
    Workshop,
    assistant,
    tiny_llama,
    user,
)
from workers.artifacts import file_sha256
from workers.contract.jobs import InputRef

GOOD = {"type": "token_count", "token": "good"}
ASKED = {
    "max_prompt_length": 16,
    "max_new_tokens": 8,
    "eval_prompts": 16,
    "reward": GOOD,
}
TRAINED = ASKED | {
    "steps": 4,
    "batch_size": 32,
    "minibatch_size": 16,
    "lora_rank": 0,
    "learning_rate": 1e-4,
    "eval_every": 4,
    "save_every": 2,
    "baseline_answers": 1,
    "reward_check": "off",
}


def whole_tokenizer() -> PreTrainedTokenizerFast:
    """Every token is a word that reads back as itself; it pads with its end, as many do."""
    words = {word: i for i, word in enumerate([PAD, END, USER, ASSISTANT, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=END,
        padding_side="left",
        chat_template=TEMPLATE,
        model_max_length=64,
    )


class Case(Workshop):
    """A workshop that can also hold single files, and asks a check."""

    def put_speaker(self, name: str, model: PreTrainedModel) -> None:
        folder = self.root / "models" / name
        model.save_pretrained(folder)
        whole_tokenizer().save_pretrained(folder)
        self._put(name, folder, "checkpoint")

    def put_file(self, name: str, rows: list[Mapping[str, Any]]) -> None:
        uri = f"files/{name}.jsonl"
        path = self.root / "store" / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.refs[name] = InputRef(name, "artifact", name, uri, file_sha256(path))

    def adopt_file(self, name: str, saved: Mapping[str, Any]) -> None:
        self.refs[name] = InputRef(name, "artifact", name, saved["uri"], saved["sha256"])


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    shop = Case(tmp_path_factory.mktemp("checks"))
    shop.put_speaker("base", tiny_llama())
    shop.put_speaker("stranger", tiny_llama(seed=9))
    shop.put_snapshot("prompts", train=[{"prompt": user(subject)} for subject in SUBJECTS])
    for name, better, worse in (("gold", "good", "bad"), ("turned", "bad", "good")):
        shop.put_snapshot(
            name,
            train=[
                {
                    "prompt": user(f"{subject} {place}"),
                    "chosen": assistant(f"a {better} dog"),
                    "rejected": assistant(f"a {worse} dog"),
                    "group": f"{subject} {place}",
                }
                for subject in SUBJECTS
                for place in ("sun", "rain", "cat", "dog")
            ],
        )
    return shop


@pytest.fixture(scope="session")
def trained(case: Case) -> Outcome:
    outcome = case.run_here(case.spec("ppo", "ppo", TRAINED, sft="base", prompts="prompts"))
    case.adopt("policy", outcome)
    case.adopt_file("rollouts", outcome.all("ArtifactSaved")[-1] | _rollouts(outcome))
    return outcome


def _rollouts(outcome: Outcome) -> dict[str, Any]:
    return [saved for saved in outcome.all("ArtifactSaved") if saved["name"] == "rollouts.jsonl"][
        -1
    ]


@pytest.fixture(scope="session")
def kept(case: Case, trained: Outcome) -> list[dict[str, Any]]:
    """The rows of the run's rollouts.jsonl."""
    return list(case.store.lines(case.refs["rollouts"].uri))


@pytest.fixture
def ask(
    case: Case, trained: Outcome, request: pytest.FixtureRequest
) -> Callable[..., dict[str, Any]]:
    """The summary of a check; keyword arguments are inputs, `config` its further settings."""
    count = iter(range(100))

    def asked(check: str, config: Mapping[str, Any] | None = None, **inputs: str) -> dict[str, Any]:
        name = f"{request.node.name}-{next(count)}".replace("/", "-")
        values = ASKED | {"check": check} | dict(config or {})
        outcome = case.run_here(case.spec(name, "check", values, **inputs))
        saved = outcome.all("ArtifactSaved")[-1]
        assert saved["name"] == "check.json"
        written = json.loads((Path(case.root) / "store" / saved["uri"]).read_text())
        summary = outcome.summary
        assert {key: written[key] for key in ("check", "outcome", "words", "n")} == {
            key: summary[key] for key in ("check", "outcome", "words", "n")
        }
        drawn = parts([block_from_json(block) for block in written["evidence"]])
        assert [part.kind for part in drawn if part.kind == "undrawn"] == []
        return summary | {"details": written["details"]}

    return asked
