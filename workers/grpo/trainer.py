"""TRL's GRPO trainer with our sampling, our forward pass, our reference and our evaluation.

What TRL 1.16 would do instead, and why not:

- its sampler fills what its configuration leaves open from the model's own generation defaults, so
  a repetition penalty or a ban on n-grams there would shape the samples and not their
  log-probabilities; and it draws from the global generator, whose state after a resume is another;
- its forward pass gives no positions, so on a model with absolute positions the padding on the
  left shifts them;
- its reference is loaded from the path in the model's configuration, which for a policy that was
  changed in memory, or resumed, is another model;
- its order of prompts begins again with each pass, and a resumed run would repeat the first one;
- its checkpoints hold adapters only, which no other program can load by themselves.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.data import Sampler
from trl import GRPOTrainer
from trl.trainer import grpo_trainer

from workers import ranks
from workers.behaviour import Watch
from workers.config.grpo import GRPOSettings
from workers.data.batches import encode_prompt
from workers.data.snapshot import Messages
from workers.grpo.metrics import (
    GroupReward,
    Judged,
    MetricValues,
    UpdateSums,
    answer_metrics,
    averaged,
)
from workers.layouts.gathered import is_split
from workers.models import invariants
from workers.models.forward import LOGITS_CHUNK, Reference, score_responses
from workers.models.loading import stop_ids
from workers.models.lora import body_of, load_adapter, merged, save_adapter
from workers.ppo.evaluation import Baseline
from workers.rollouts.drawing import PromptOrder
from workers.rollouts.local import Sampling, derive_seed, generate
from workers.trainers.trainer_bridge import GuardedTrainer

if TYPE_CHECKING:
    from trl import GRPOConfig

# Which prompts a step of TRL's loop sees.


class GroupOrder(Sampler[int]):
    """Indices of prompts for a whole run: each `group_size` times in a row, each batch of `groups`
    prompts `repeats` times. Known by position alone, so resumed runs continue where they were."""

    def __init__(
        self, count: int, *, groups: int, group_size: int, rollouts: int, repeats: int, seed: int
    ) -> None:
        self.order = PromptOrder(count, seed=seed)
        self.groups = groups
        self.group_size = group_size
        self.rollouts = rollouts
        self.repeats = repeats

    def __iter__(self) -> Iterator[int]:
        for rollout in range(self.rollouts):
            prompts = self.order.take(rollout * self.groups, self.groups)
            batch = [index for index in prompts for _ in range(self.group_size)]
            for _ in range(self.repeats):
                yield from batch

    def __len__(self) -> int:
        return self.rollouts * self.repeats * self.groups * self.group_size


# A group-relative step on several ranks: each draws its share of the answers, all hold the batch.
#
# Answers, rewards, groups and advantages are those of one process on every rank alike, so that
# what
# is decided by them is too. Only the work is shared: ranks draw chunks of answers in turns, and
# each
# computes the gradient of its rows of a forward pass, times the ranks, so that the mean over the
# ranks is the step of one process. Where weights or the optimizer are split, who splits them takes
# that mean; answers are drawn and looked at with all weights on every rank.


class Alone:
    """An accelerator as TRL would find it in a process of its own, where every rank has all rows:
    nothing is gathered, and no rank takes a slice."""

    num_processes, process_index = 1, 0

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accelerator, name)

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor

    def reduce(self, tensor: Tensor, reduction: str = "sum") -> Tensor:
        return tensor


@contextmanager
def alone(trainer: Any) -> Iterator[None]:
    """Inside, TRL computes as one process would."""
    if ranks.world() == 1:
        yield
        return
    accelerator, kept = trainer.accelerator, (grpo_trainer.gather, grpo_trainer.gather_object)
    trainer.accelerator = Alone(accelerator)
    grpo_trainer.gather = grpo_trainer.gather_object = _same
    try:
        yield
    finally:
        trainer.accelerator = accelerator
        grpo_trainer.gather, grpo_trainer.gather_object = kept


def _same(value: Any) -> Any:
    return value


def own_rows(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], float, float]:
    """This rank's rows of a forward pass, their share of its rows, and their share of its tokens.
    A rank without any takes one that counts nothing."""
    if ranks.world() == 1:
        return dict(inputs), 1.0, 1.0
    world, rank = ranks.world(), ranks.rank()
    mask: Tensor = inputs["completion_mask"]
    count = len(mask)
    rows = torch.arange(rank, count, world, device=mask.device)
    taken = len(rows)
    if not taken:
        rows = torch.zeros(1, dtype=torch.long, device=mask.device)
    own = {
        name: value[rows] if isinstance(value, Tensor) and value.dim() else value
        for name, value in inputs.items()
    }
    tokens = float(own["completion_mask"].sum()) if taken else 0.0
    return own, taken / count, tokens / max(1.0, float(mask.sum()))


def same_randomness() -> None:
    """torch's own generator as the first rank's: TRL shuffles the batch by it, and a run that
    continues with more processes than before has a new one on some of them."""
    if ranks.world() > 1:
        torch.set_rng_state(ranks.from_first(torch.get_rng_state()))


@contextmanager
def unlearning(trainer: Any) -> Iterator[None]:
    """Inside, a step in which no answer was better than another is none under DeepSpeed too. That
    steps in the last backward pass, by momentum where there is no gradient, unless the gradient is
    no number; then it leaves weights and moments as they are."""
    accelerator = trainer.accelerator
    backward = accelerator.backward

    def unless_silent(loss: Tensor, **kwargs: Any) -> None:
        if accelerator.sync_gradients and not ranks.any_of(trainer.teaches):
            loss = loss * math.nan
        backward(loss, **kwargs)

    accelerator.backward = unless_silent
    try:
        yield
    finally:
        del accelerator.backward  # the class has its own


@torch.no_grad()
def average_gradients(model: nn.Module) -> None:
    """Over the ranks, all at once. The wrapper that would do so (DistributedDataParallel) does
    nothing where it is not called itself, and answers are looked at through the policy inside."""
    if ranks.world() == 1:
        return
    gradients = [p.grad for p in model.parameters() if p.requires_grad and p.grad is not None]
    if not gradients:
        return
    total = ranks.summed(torch.cat([gradient.flatten() for gradient in gradients]))
    parts = (total / ranks.world()).split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


# TRL prints prompt and answer wherever a reward is withheld; ours are withheld on purpose.
logging.getLogger("trl.trainer.grpo_trainer").addFilter(
    lambda record: "returned None" not in record.getMessage()
)


class Trainer(GuardedTrainer, GRPOTrainer):
    """`evaluation` answers the fixed prompts and returns metrics named eval_…."""

    args: "GRPOConfig"
    train_dataset: Any
    eval_dataset: Any
    processing_class: Any
    reward_funcs: list[Any]

    def __init__(
        self,
        *args: Any,
        settings: GRPOSettings,
        reference: Reference,
        evaluation: Callable[[], dict[str, float]],
        baseline: Baseline | None,
        watch: Watch,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.settings = settings
        self.evaluation = evaluation
        self.baseline = baseline
        self.watch = watch
        self.policy = body_of(self.model)
        # TRL put its fused output layer here; our forward pass asks for none.
        self.policy.__dict__.pop("forward", None)
        # TRL was told β = 0, for else it would have made a reference of its own.
        self.beta = settings.kl_coef
        self.ref_model: Any = reference
        self.eos_token_ids = list(stop_ids(self.policy, self.processing_class))
        self.reward: GroupReward = self.reward_funcs[0]
        self.known_ids: dict[str, list[int]] = {}
        self.drawn: list[MetricValues] = []  # of the batches since the last point
        self.sums = self._no_sums()
        self.teaches = False  # whether an answer of the step under way has an advantage
        self.seen: tuple[Tensor, Tensor] | None = None  # of the last forward pass
        self.seconds = {"rollout": 0.0, "reward": 0.0, "step": 0.0}

    def in_precision(self) -> AbstractContextManager[Any]:
        """Inside, passes are computed in the precision of the run. Under DeepSpeed the library does
        not know it (`workers.layouts.arguments.weights_in_float32`)."""
        told: Any = self.args.deepspeed or {}
        if told.get("torch_autocast", {}).get("enabled"):
            return torch.autocast(self.args.device.type, torch.bfloat16)
        return self.accelerator.autocast()

    # --- drawing answers ---

    def _get_train_sampler(self, dataset: Any = None) -> Sampler[int]:
        """Every batch of answers once for each pass of TRL's loop that it is used in."""
        assert self.args.steps_per_generation is not None  # noqa: S101 — TRL works it out
        return GroupOrder(
            len(self.train_dataset),
            groups=self.settings.batch_size // self.settings.group_size,
            group_size=self.settings.group_size,
            rollouts=-(-self.args.max_steps // self.num_iterations),
            repeats=self.num_iterations * self.args.steps_per_generation,
            seed=self.args.seed,
        )

    def _tokenize_prompts(self, prompts: list[Messages]) -> tuple[list[list[int]], None, dict]:
        """By our own encoding: what looks like a control token in a message stays text."""
        keys = [repr(prompt) for prompt in prompts]
        for key, prompt in zip(keys, prompts, strict=True):
            if key not in self.known_ids:
                self.known_ids[key] = encode_prompt(self.processing_class, prompt)
        return [self.known_ids[key] for key in keys], None, {}

    def _generate_single_turn(
        self, prompt_ids: Sequence[list[int]], *_: Any, **__: Any
    ) -> tuple[list[list[int]], None]:
        """From the whole tempered distribution, with a seed of this step's own."""
        started = time.monotonic()
        self.check_speech(prompt_ids[0])
        was_training = self.model.training
        self.model.eval()
        drawn: dict[int, list[list[int]]] = {}
        chunk = self.settings.rollout_chunk
        for start in range(ranks.rank() * chunk, len(prompt_ids), ranks.world() * chunk):
            seed = derive_seed(self.args.seed, "rollout", self.state.global_step, start)
            with self.in_precision():
                responses = generate(
                    self.policy,
                    self.processing_class,
                    prompt_ids[start : start + chunk],
                    Sampling(
                        self.settings.max_new_tokens,
                        temperature=self.settings.temperature,
                        seed=seed,
                    ),
                    stop=self.eos_token_ids,
                )
            drawn[start] = [
                ids[mask.bool()].tolist()
                for ids, mask in zip(responses.response_ids, responses.response_mask, strict=True)
            ]
        for told in ranks.gathered(drawn):
            drawn |= told
        self.model.train(was_training)
        self.seconds["rollout"] += time.monotonic() - started
        return [answer for start in sorted(drawn) for answer in drawn[start]], None

    @torch.no_grad()
    def check_speech(self, prompt_ids: list[int]) -> None:
        """Ends the run where the policy's logits are no numbers: drawing from them would end in an
        error of the device, and no later step could repair it."""
        ids = torch.tensor([prompt_ids], device=self.policy.device)
        with self.in_precision():
            logits = self.policy(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                logits_to_keep=1,
                use_cache=False,
            ).logits
        if not torch.isfinite(logits).all():
            self._tell(self.state.global_step, "the policy's output", again=True)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        with self.whole_everywhere():
            return self._drawn_and_scored(inputs)

    def _drawn_and_scored(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        step = self.state.global_step + 1
        due = step % self.settings.sample_every < self.settings.update_epochs
        self.reward.ask_check = due or not self.reward.check_is_model
        with alone(self):
            output = super()._generate_and_score_completions(inputs)
        same_randomness()
        self.seconds["reward"] += self.reward.seconds
        mask, ids = output["completion_mask"], output["completion_ids"]
        whole = mask.bool().any(1) if self.settings.mask_truncated else torch.ones_like(mask[:, 0])
        invariants.check_mask(mask[whole.bool()], ids[whole.bool()], tuple(self.eos_token_ids))
        sequences = (
            torch.cat([output["prompt_ids"], ids], dim=1),
            torch.cat([output["prompt_mask"], mask], dim=1),
            ids.shape[1],
            self.args.per_device_train_batch_size,
        )
        if "ref_per_token_logps" not in output:  # β = 0: measured all the same
            ref = self._get_per_token_logps_and_entropies(self.ref_model, *sequences)[0]
            output["ref_per_token_logps"] = ref
        fresh = self.state.global_step == 0 and not self.settings.reference_differs
        if fresh and mask.any():
            # Of the very same batches: in half precision other ones round differently.
            with torch.no_grad():
                own = self._get_per_token_logps_and_entropies(self.policy, *sequences)[0]
            invariants.check_kl_at_start(own, output["ref_per_token_logps"], mask)
        judged = self.reward.last
        assert judged is not None  # noqa: S101 — the answers were just judged
        self._hush(output["advantages"], judged)
        self.drawn.append(
            answer_metrics(judged, self.settings.group_size, ids, mask, self.baseline)
            | self.watch.look(judged.texts, judged.scores.values, judged.lengths)
        )
        return output

    def _hush(self, advantages: Tensor, judged: Judged) -> None:
        """Exactly 0 where a group's rewards are alike. TRL leaves what rounding made of their
        distance to their mean, and Adam would make steps of full size of it."""
        size = self.settings.group_size
        silent = torch.from_numpy(judged.silent(size)).to(advantages.device)
        advantages.view(-1, size)[silent] = 0.0

    # --- the forward pass ---

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **_: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        """log π [B, R] of the last `logits_to_keep` tokens, nats, tempered, and the entropy [B, R]
        where it is asked for. The reference is known by being what `ref_model` holds."""
        # Weights that are split are together in the pass of what was wrapped, and in no other: the
        # output layer cannot be called by itself then, as it is to read logits in pieces.
        learns = self._apart and torch.is_grad_enabled()
        asked = model if learns else self.policy
        chunk = None if learns and is_split(self.policy) else LOGITS_CHUNK
        size = batch_size or len(input_ids)
        split = input_ids.shape[1] - logits_to_keep
        logprobs, entropy = [], []
        for start in range(0, len(input_ids), size):
            ids, mask = input_ids[start : start + size], attention_mask[start : start + size]
            sequences = (ids[:, :split], mask[:, :split], ids[:, split:], mask[:, split:])
            with self.in_precision():
                if model is self.ref_model:
                    logprobs.append(
                        self.ref_model.logprobs(*sequences, temperature=self.temperature)
                    )
                    continue
                outputs = score_responses(
                    asked,
                    *sequences,
                    temperature=self.temperature,
                    with_entropy=compute_entropy,
                    entropy_gradient=self.entropy_coef != 0,
                    logits_chunk=chunk,
                )
            logprobs.append(outputs.logprobs)
            if outputs.entropy is not None:
                entropy.append(outputs.entropy)
        found = torch.cat(logprobs)
        self.seen = (found.detach(), torch.cat(entropy).detach()) if compute_entropy else None
        return found, torch.cat(entropy) if compute_entropy else None, None

    def _compute_loss(self, model: torch.nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        inputs, rows, tokens = own_rows(inputs)
        by = {"dapo": float(rows > 0), "bnpo": tokens}.get(self.loss_type, rows)
        coef = self.entropy_coef
        self.entropy_coef = coef * tokens / by if by else 0.0  # the bonus is a mean over tokens
        try:
            with alone(self):
                loss = super()._compute_loss(model, inputs) * (by * ranks.world())
        finally:
            self.entropy_coef = coef
        if not rows:
            return loss
        assert self.seen is not None  # noqa: S101 — the loss asks for the entropy
        logprobs, entropy = self.seen
        ref, mask = inputs["ref_per_token_logps"], inputs["completion_mask"]
        old = inputs.get("old_per_token_logps", logprobs)
        fresh = self.state.global_step % self.num_iterations == 0
        if fresh and mask.any():
            invariants.check_first_ratio(logprobs, old, mask)
        teaching = (inputs["advantages"] != 0) & mask.bool().any(1)
        self.teaches = self.teaches or bool(teaching.any())
        self.sums.add(logprobs, old, ref, entropy, inputs["advantages"], mask, fresh=fresh)
        return loss

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        started = time.monotonic()
        with unlearning(self) if self._steps_inside else nullcontext():
            loss = super().training_step(*args, **kwargs)
        self.seconds["step"] += time.monotonic() - started
        return loss

    def _clip_grad_norm(self, model: torch.nn.Module) -> Tensor:
        """A step in which no answer was better than another is none: without gradients (None, not
        zero) the optimizer leaves weights and moments as they are."""
        if not self._apart:
            average_gradients(self.model)
        silent = not ranks.any_of(self.teaches)
        self.teaches = False
        if silent and self._steps_inside and not ranks.any_of(bool(self._found)):
            self._pass_over()
            return torch.zeros(())
        norm = super()._clip_grad_norm(model)
        if silent:
            model.zero_grad(set_to_none=True)
        return norm

    # --- metrics ---

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Our metrics in place of TRL's, which leave out NaN in silence."""
        for gathered in self._metrics.values():
            gathered.clear()
        if "loss" in logs:
            self.sums = UpdateSums.of_all(ranks.gathered(self.sums))
            logs |= averaged(self.drawn) | self.sums.metrics() | self._times()
            self.drawn, self.sums = [], self._no_sums()
            self.seconds = dict.fromkeys(self.seconds, 0.0)
        super().log(logs, start_time)

    def _no_sums(self) -> UpdateSums:
        low = self.settings.clip
        return UpdateSums(clip_low=low, clip_high=self.settings.clip_high or low)

    def _times(self) -> MetricValues:
        """Seconds a step, over the steps since the last point."""
        steps = max(1, self._since_point)
        drawing, scoring = self.seconds["rollout"], self.seconds["reward"]
        tokens = self.sums.tokens
        return {
            "time/rollout_s": drawing / steps,
            "time/reward_s": scoring / steps,
            "time/update_s": (self.seconds["step"] - drawing - scoring) / steps,
            "time/step_s": self.seconds["step"] / steps,
            "throughput/response_tokens_per_s": tokens / max(self.seconds["step"], 1e-9),
        }

    @torch.no_grad()
    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """The fixed prompts, always with the same seed, in place of TRL's groups; the metrics are
        those of the first rank."""
        was_training = self.model.training
        self.model.eval()
        with self.whole_everywhere(), self.in_precision():
            self.check_speech(encode_prompt(self.processing_class, self.eval_dataset[0]["prompt"]))
            metrics = ranks.from_first(self.evaluation())
        self.model.train(was_training)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    # --- checkpoints ---

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        self.ref_model.check()  # by all ranks, over which its weights may be split
        super().save_model(output_dir, _internal_call)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """A normal model folder; with adapters the merged weights, and the adapters beside."""
        folder = Path(str(output_dir or self.args.output_dir))
        if not isinstance(self.model, PeftModel):
            super()._save(str(folder), state_dict)
        elif self.args.should_save:
            merged(self.model).save_pretrained(folder)
            self.processing_class.save_pretrained(folder)
            save_adapter(self.model, folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if isinstance(self.model, PeftModel):
            load_adapter(self.model, Path(resume_from_checkpoint))
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
