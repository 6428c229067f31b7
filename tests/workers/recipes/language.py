"""A language of a few words, models that speak it, and jobs over them: for tests only.

Everything is made from a seed in a moment, so no test needs a download or a long training.
"""

import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from workers.artifacts import Store
from workers.context import RunContext
from workers.contract.events import (
    Envelope,
    Event,
    Finished,
    Metrics,
    envelope_to_json,
    is_by_time,
)
from workers.contract.jobs import InputRef, JobSpec, Resume, spec_to_json
from workers.contract.metrics import metric_of
from workers.data.snapshot import observe
from workers.train import preflight, recipe_of

# Releases of TRL whose own trainers compute their losses with Triton alone, which processors have
# not: nothing can be compared with them there. Ours hand TRL their numbers, and train on them.
TRITON_ALONE = ("1.15",)
TRL = Version(importlib.metadata.version("trl"))
trl_computes = pytest.mark.skipif(
    f"{TRL.major}.{TRL.minor}" in TRITON_ALONE,
    reason=f"TRL's own trainers cannot run on a processor in {' and '.join(TRITON_ALONE)} alone",
)

WORDS = [
    "good",
    "bad",
    "sun",
    "rain",
    "cat",
    "dog",
    "runs",
    "sleeps",
    "red",
    "blue",
    "the",
    "a",
    "big",
    "small",
]
PAD, END, USER, ASSISTANT = "[pad]", "[end]", "[user]", "[assistant]"
TEMPLATE = (
    "{% for m in messages %}{{ '[' + m['role'] + '] ' + m['content'] + ' [end] ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}"
)
ROOT = Path(__file__).parents[3]

MEASURED = ("time/", "throughput/", "machine/")  # groups of metrics that differ between equal runs


def word_tokenizer(more: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """One token per word, of `more` words too."""
    vocabulary = {word: i for i, word in enumerate([PAD, END, USER, ASSISTANT, *WORDS, *more])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        padding_side="left",
        chat_template=TEMPLATE,
        model_max_length=64,
    )


def tiny_llama(
    seed: int = 0, *, width: int = 32, layers: int = 2, more: Sequence[str] = ()
) -> PreTrainedModel:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS) + 4 + len(more),
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=layers,
            num_attention_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            initializer_range=0.1,
        )
    ).eval()


def tiny_gpt2(seed: int = 0) -> PreTrainedModel:
    """Absolute positions and dropout: where padding and a second look would show."""
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(WORDS) + 4,
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_positions=64,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            initializer_range=0.1,
        )
    ).eval()


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def assistant(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


@dataclass
class Workshop:
    """A store with models and snapshots in it, and the means to run jobs over them."""

    root: Path
    refs: dict[str, InputRef] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return Store(str(self.root / "store"))

    def put_model(self, name: str, model: PreTrainedModel, more: Sequence[str] = ()) -> None:
        folder = self.root / "models" / name
        model.save_pretrained(folder)
        word_tokenizer(more).save_pretrained(folder)
        self._put(name, folder, "checkpoint")

    def put_snapshot(self, name: str, **files: Iterable[Mapping[str, Any]]) -> None:
        folder = self.root / "snapshots" / name
        folder.mkdir(parents=True)
        for split, rows in files.items():
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self._put(name, folder, "snapshot")

    def _put(self, name: str, folder: Path, kind: str) -> None:
        sha256, _ = self.store.put_tree(folder, f"inputs/{name}")
        self.refs[name] = InputRef(name, kind, name, f"inputs/{name}", sha256)

    def spec(
        self,
        run: str,
        kind: str,
        config: Mapping[str, Any],
        *,
        seed: int = 0,
        attempt: int = 1,
        resume: Resume | None = None,
        **inputs: str,
    ) -> JobSpec:
        """`inputs` maps roles to names of what was put before. SFT without a base builds a toy."""
        if kind == "sft" and "base" not in inputs and "base_model" not in config:
            config = {"toy": True, **config}
        roles = tuple(
            InputRef(role, ref.kind, ref.id, ref.uri, ref.sha256)
            for role, ref in ((role, self.refs[name]) for role, name in inputs.items())
        )
        return JobSpec(
            run=run,
            attempt=attempt,
            kind=kind,
            project="tests",
            seed=seed,
            artifacts_url=str(self.root / "store"),
            config=dict(config),
            inputs=roles,
            resume=resume,
        )

    def start(self, spec: JobSpec) -> subprocess.Popen[bytes]:
        """`python -m workers.train` on the job, on one thread."""
        folder = self.write_job(spec)
        with (folder / "log.txt").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "workers.train", str(folder / "job.json")],
                cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def write_job(self, spec: JobSpec) -> Path:
        """The folder it is to run in."""
        folder = self.folder(spec)
        folder.mkdir(parents=True)
        (folder / "job.json").write_text(json.dumps(spec_to_json(spec)))
        return folder

    def run(self, spec: JobSpec) -> "Outcome":
        self.start(spec).wait(timeout=400)
        return self.outcome(spec)

    def outcome(self, spec: JobSpec) -> "Outcome":
        folder = self.folder(spec)
        lines = (folder / "events.jsonl").read_text().splitlines()
        return Outcome([json.loads(line) for line in lines], (folder / "log.txt").read_text())

    def run_here(
        self,
        spec: JobSpec,
        *,
        command: str = "stop",
        after_step: int | None = None,
        keep: list[dict[str, Any]] | None = None,
    ) -> "Outcome":
        """The recipe in this process, stopped once `after_step` is reported if that is given.

        What it raises comes through; `keep` then holds the events up to there.
        """
        notebook = Notebook(spec, [] if keep is None else keep)
        folder = self.folder(spec)
        folder.mkdir(parents=True)

        def stop() -> str | None:
            return command if after_step is not None and notebook.step >= after_step else None

        ticks = itertools.count(step=10)  # time flies: nothing is bundled or left out
        context = RunContext(
            spec,
            self.store,
            folder,
            notebook,
            stop_signal=stop,
            clock=lambda: next(ticks),
            preflight=preflight,
        )
        observe(context.split_read)
        try:
            summary = recipe_of(spec.kind).run(context)
        finally:
            observe(None)
        context.emit(Finished(step=notebook.step, summary=summary))
        return Outcome(notebook.envelopes)

    def resume(self, outcome: "Outcome") -> Resume:
        """To go on from the last checkpoint of an outcome."""
        saved = outcome.all("CheckpointSaved")[-1]
        return Resume(saved["uri"], saved["sha256"], saved["step"])

    def folder(self, spec: JobSpec) -> Path:
        return self.root / "work" / spec.run / str(spec.attempt)

    def adopt(self, name: str, outcome: "Outcome") -> None:
        """The last checkpoint of a run as an input by `name`."""
        saved = outcome.all("CheckpointSaved")[-1]
        self.refs[name] = InputRef(name, "checkpoint", name, saved["uri"], saved["sha256"])


@dataclass
class Notebook:
    """A writer that keeps events as they would be read from the file."""

    spec: JobSpec
    envelopes: list[dict[str, Any]] = field(default_factory=list)
    step: int = 0

    def write(self, event: Event) -> None:
        if isinstance(event, Metrics) and not all(map(is_by_time, event.values)):
            self.step = max(self.step, *event.steps)
        envelope = Envelope(self.spec.run, self.spec.attempt, len(self.envelopes) + 1, 0.0, event)
        self.envelopes.append(json.loads(json.dumps(envelope_to_json(envelope))))


@dataclass
class Outcome:
    """The events of a finished job, all of whose metrics are registered."""

    envelopes: list[dict[str, Any]]
    log: str = ""

    def __post_init__(self) -> None:
        unknown = sorted(name for name in self.metric_names() if metric_of(name) is None)
        assert not unknown, f"not in workers/contract/metrics.py: {unknown}"

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [e["event"] for e in self.envelopes if e["type"] == kind]

    @property
    def ending(self) -> str:
        return self.envelopes[-1]["type"]

    @property
    def summary(self) -> dict[str, Any]:
        assert self.ending == "Finished", (self.envelopes[-1], self.log[-3000:])
        return self.envelopes[-1]["event"]["summary"]

    def curve(self, name: str) -> dict[int, float]:
        """The points of a metric by step."""
        return {
            step: value
            for event in self.all("Metrics")
            if name in event["values"]
            for step, value in zip(event["steps"], event["values"][name], strict=True)
        }

    def metric_names(self) -> set[str]:
        return {name for event in self.all("Metrics") for name in event["values"]}

    def repeated_names(self) -> set[str]:
        """The metrics that a second run of the same job has as well: neither what is measured by a
        clock nor the machine's curves, which a run of a few seconds ends before."""
        return {name for name in self.metric_names() if not name.startswith(MEASURED)}
