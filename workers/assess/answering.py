"""Answers of the models that are asked about: one to each prompt, and many for best-of-n."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.assess.gather import SMOKE
from workers.assess.looking import DRAWN
from workers.config.inference import AssessSettings
from workers.context import RunContext
from workers.data.encoding import encode_prompt
from workers.data.snapshot import TRAIN, Messages, Prompt, evaluation_splits, read_prompts
from workers.models.loading import freeze, load_causal, load_tokenizer
from workers.rollouts.answers import answer
from workers.rollouts.sampling import Sampling, derive_seed
from workers.servers.answers import served_input
from workers.trainers.samples import choose, encode_fitting


class Models:
    """`looking.Answering` by the checkpoints of the run's inputs. One model is held at a time, and
    none for the one that is served."""

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
        self.served = served_input(context, settings.server)
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
        splits = [name for name in evaluation_splits(folder) if name != SMOKE] or [TRAIN]
        rows = [row for split in splits for row in read_prompts(folder, split)]
        tokenizer = load_tokenizer(self._context.input_path(role))
        fitting, _ = encode_fitting(
            tokenizer, [row.messages for row in rows], self._settings.max_prompt_length
        )
        kept = [row for row in rows if row.messages in fitting]
        if len(kept) < len(rows):
            self._context.log(
                f"{len(rows) - len(kept)} of {len(rows)} prompts are longer than "
                f"{self._settings.max_prompt_length} tokens and were left out",
                level="warning",
            )
        seed = derive_seed(self._context.spec.seed, "assess", "prompts")
        return [kept[i] for i in choose(len(kept), self._settings.max_outputs, seed)]

    def answers(self, role: str, prompts: Sequence[Messages], *, purpose: str) -> list[str]:
        seed = derive_seed(self._context.spec.seed, "assess", purpose, role)
        sampling = Sampling(
            self._settings.max_new_tokens,
            temperature=self._settings.temperature,
            top_p=self._settings.top_p,
            top_k=self._settings.top_k,
            seed=seed,
        )
        if self.served and role == self.served.role:
            given = self.served.answer(prompts, sampling, doing=f"asking the server, {purpose}")
            self._drawn(DRAWN * len(prompts))
            return [one.text for one in given]
        model, tokenizer = self._model(role)
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
