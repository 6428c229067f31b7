"""May one optimise against this reward model? Every line of its page that a machine can measure.

Inputs: `reward`, and `data`, the preferences it was trained on (another snapshot will do, but then
"unseen" is not). Optional: `other`, pairs of another kind; `prompts` with `policy` and `sft`, whose
answers show what the model will be asked about; `judge`, another reward model for best-of-n. A line
for which nothing was given is not measured, and says so; nothing is green by default.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from measures.messages import Messages
from workers.assess.judging import judge
from workers.assess.material import Phases
from workers.assess.measuring import DRAWN, Subject, look
from workers.assess.protocol import assess_protocol
from workers.assess.scores import SMOKE, splits_of
from workers.assess.writing import publish
from workers.config import settings_for
from workers.config.inference import AssessSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import BFLOAT16, INT8
from workers.contract.protocol import KEY
from workers.data.batches import encode_prompt
from workers.data.snapshot import Preference, Prompt, read_held_out_prompts
from workers.evaluation.answering import engine_here, engine_there, read_by, read_there
from workers.models.loading import freeze, load_causal, load_tokenizer, parameter_count
from workers.rewards.build import build_judge, load_reward
from workers.rewards.model import EnsembleReward, ModelReward, threshold_of
from workers.rewards.source import RewardSource
from workers.rollouts.drawing import answer
from workers.rollouts.local import Sampling, derive_seed
from workers.samples import choose
from workers.servers.answers import fitting_prompts, served_inputs, summaries
from workers.servers.asking import Cancelled

# Answers of the models that are asked about: one to each prompt, and many for best-of-n.


class Models:
    """`looking.Answering` by the checkpoints of the run's inputs. One model is held at a time, and
    none for what is served."""

    def __init__(
        self,
        context: RunContext,
        settings: AssessSettings,
        *,
        drawn: Callable[[float], None] = lambda n: None,
    ) -> None:
        self._context = context
        self._settings = settings
        self._drawn = drawn
        self.served = served_inputs(context, settings.server)
        # For the protocol: what was asked, and of each role that answered its engine, its chat
        # template and the prompts as it read them.
        self.asked: list[Prompt] = []
        self.engine: dict[str, dict[str, Any]] = {}
        self.read: dict[str, tuple[str | None, dict[str, Any]]] = {}
        self._held: tuple[str, PreTrainedModel, PreTrainedTokenizerBase] | None = None

    def has(self, role: str) -> bool:
        return self._context.has_input(role)

    def prompts(self) -> list[Prompt]:
        """Prompts held out from training where there are any, by the run's seed; those that are too
        long for the policy's tokenizer are left out."""
        role = next((role for role in ("policy", "sft") if self.has(role)), None)
        if role is None or not self.has("prompts"):
            return []
        folder = self._context.input_path("prompts")
        rows = read_held_out_prompts(folder, without=(SMOKE,))
        asked = [row.messages for row in rows]
        longest = self._settings.max_prompt_length
        fitting = fitting_prompts(self._context, self.served, role, asked, longest)
        kept = [row for row in rows if row.messages in fitting]
        if len(kept) < len(rows):
            self._context.log(
                f"{len(rows) - len(kept)} of {len(rows)} prompts are longer than "
                f"{self._settings.max_prompt_length} tokens and were left out",
                level="warning",
            )
        seed = derive_seed(self._context.spec.seed, "assess", "prompts")
        self.asked = [kept[i] for i in choose(len(kept), self._settings.max_outputs, seed)]
        return self.asked

    def answers(self, role: str, prompts: Sequence[Messages], *, purpose: str) -> list[str]:
        seed = derive_seed(self._context.spec.seed, "assess", purpose, role)
        sampling = Sampling(
            self._settings.max_new_tokens,
            temperature=self._settings.temperature,
            top_p=self._settings.top_p,
            top_k=self._settings.top_k,
            seed=seed,
        )
        everything = [row.messages for row in self.asked]
        if role in self.served:
            if role not in self.engine:
                self.engine[role] = engine_there(self.served[role])
                self.read[role] = read_there(self.served[role], everything)
            given = self.served[role].answer(
                prompts, sampling, doing=f"asking the server, {purpose}"
            )
            self._drawn(DRAWN * len(prompts))
            return [one.text for one in given]
        model, tokenizer = self._model(role)
        if role not in self.engine:
            self.engine[role] = engine_here(model, self._settings.batch_size)
            self.read[role] = read_by(tokenizer, everything)
        ids = [encode_prompt(tokenizer, prompt) for prompt in prompts]
        texts: list[str] = []
        step = self._settings.batch_size * 4
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            own = replace(sampling, seed=derive_seed(seed, start))
            given = answer(model, tokenizer, part, own, batch_size=self._settings.batch_size)
            texts += [one.text for one in given]
            self._drawn(DRAWN * len(part))
        return texts

    def _model(self, role: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        if self._held is None or self._held[0] != role:
            self._held = None  # freed before the next one comes
            folder = self._context.input_path(role)
            self._held = (role, freeze(load_causal(folder)), load_tokenizer(folder))
        _, model, tokenizer = self._held
        return model, tokenizer


CONFIG = AssessSettings
CHEAPER = (BFLOAT16, INT8)


def run(context: RunContext) -> dict[str, Any]:
    """Score, attack, draw, judge, write; the verdicts are the summary."""
    settings: AssessSettings = settings_for("assess", context.spec.config)
    set_seed(context.spec.seed)
    phases = Phases(context)
    rows = splits_of(context.input_path("data"))
    folder = context.input_path("reward")
    reward = load_reward(folder, name="reward_model", batch_size=settings.batch_size)
    models = Models(context, settings, drawn=phases.done)
    other = _other(context)
    subject = Subject(
        reward=reward,
        rows=rows,
        other=other,
        judge=build_judge(context, batch_size=settings.batch_size),
        answering=models,
        lower=_cheaper(folder, settings) if settings.check_precision else None,
        threshold=threshold_of(reward),
    )
    try:
        material = look(subject, settings, seed=context.spec.seed, progress=phases)
    except Cancelled:
        return {"step": 0}
    if context.should_stop() == "cancel":
        return {"step": 0}
    if material.held_out is None and not material.missing:
        raise RecipeError(
            "no_held_out_rows",
            Fault.DATA,
            "the dataset has training rows only: choose one with a held-out file, since rows that "
            "a model learned from cannot show whether it is right",
        )
    findings = judge(material, log=context.log)
    summary = publish(
        context,
        material,
        findings,
        model=_model(context, reward),
        rows={name: len(of) for name, of in rows.items()},
    )
    protocol = assess_protocol(
        context,
        settings,
        rows=rows,
        other=other,
        asked=models.asked,
        engine={"reward": engine_here(None, settings.batch_size), **models.engine},
        read=models.read,
    )
    phases.finish()
    return summary | {KEY: protocol.to_json()} | summaries(models.served)


def _other(context: RunContext) -> list[Preference]:
    """Rows of every file: the model learned from none of them."""
    if not context.has_input("other"):
        return []
    return [row for rows in splits_of(context.input_path("other")).values() for row in rows]


def _cheaper(folder: Path, settings: AssessSettings) -> Mapping[str, Callable[[], RewardSource]]:
    return {
        name: functools.partial(
            load_reward,
            folder,
            name="reward_model",
            batch_size=settings.batch_size,
            precision=name,
        )
        for name in CHEAPER
    }


def _model(context: RunContext, reward: ModelReward | EnsembleReward) -> dict[str, Any]:
    ref = context.spec.input("reward")
    members = reward.members if isinstance(reward, EnsembleReward) else [reward]
    return {
        "id": ref.id if ref else "",
        "sha256": ref.sha256 if ref else "",
        "members": len(members),
        "parameters": sum(parameter_count(member.model) for member in members),
        "max_length": min(member.max_length for member in members),
    }
