"""TRL's GRPO and RLOO trainers with our answers, forward pass, reference and evaluation.

The loss is that of TRL's `compute_loss`, which is handed what our forward pass says where it would
call the model. What else TRL 1.16 would do, and why not:

- its sampler fills what its configuration leaves open from the model's own generation defaults, so
  a repetition penalty or a ban on n-grams there would shape the samples and not their
  log-probabilities; and it draws from the global generator, whose state after a resume is another;
- its forward pass gives no positions, so on a model with absolute positions the padding on the
  left shifts them;
- its reference is loaded from the path in the model's configuration, which for a policy that was
  changed in memory, or resumed, is another model;
- its order of prompts begins again with each pass, and a resumed run would repeat the first one;
- its checkpoints hold adapters only, which no other program can load by themselves.

Its hooks for drawing (`rollout_func`, `tools`, `environment_factory`) leave it the old
log-probabilities and the shares of ranks, so answers, rewards and advantages are made here. With
tools its loss gets the mask of what they wrote by the name that it reads, `tool_mask`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from trl import GRPOTrainer, RLOOTrainer

from measures.groups import silent_groups
from measures.messages import Messages
from workers import ranks
from workers.behaviour import Watch
from workers.config.grpo import GRPOSettings
from workers.data.batches import encode_prompt, pad_left, pad_right
from workers.environments.worlds import Episode
from workers.grpo.engine import Answers, MergedWeights
from workers.grpo.metrics import (
    GroupReward,
    Judged,
    MetricValues,
    UpdateSums,
    answer_metrics,
    averaged,
    episode_metrics,
    group_advantages,
)
from workers.layouts.gathered import is_split
from workers.models import invariants
from workers.models.forward import LOGITS_CHUNK, Reference, score_responses
from workers.models.loading import stop_ids
from workers.models.lora import body_of
from workers.ppo.evaluation import Baseline, spoken
from workers.rl.losses import importance_metrics, importance_weights, masked_sum
from workers.rollouts.drawing import Draw, PromptOrder
from workers.rollouts.local import Sampling, derive_seed, generate
from workers.rollouts.tools import ToolRollouts
from workers.trainers.trainer_bridge import BelowTRL, OverTRL, alone

if TYPE_CHECKING:
    from trl import GRPOConfig, RLOOConfig

# A group-relative step on several ranks: each draws its share of the answers, all hold the batch.
#
# Answers, rewards, groups and advantages are those of one process on every rank alike, so that
# what is decided by them is too. Only the work is shared: ranks draw chunks of answers in turns,
# and each computes the gradient of its rows of a forward pass, times the ranks, so that the mean
# over the ranks is the step of one process. Where weights or the optimizer are split, who splits
# them takes that mean; answers are drawn and looked at with all weights on every rank.


def learnt(inputs: Mapping[str, Any]) -> Tensor:
    """[B, R] 1 = a token that the loss may read: of an answer, and not written by a tool."""
    mask: Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask


def own_rows(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], float, float]:
    """This rank's rows of a forward pass, their share of its rows, and their share of its tokens.
    A rank without any takes one that counts nothing."""
    if ranks.world() == 1:
        return dict(inputs), 1.0, 1.0
    world, rank = ranks.world(), ranks.rank()
    mask = learnt(inputs)
    count = len(mask)
    rows = torch.arange(rank, count, world, device=mask.device)
    taken = len(rows)
    if not taken:
        rows = torch.zeros(1, dtype=torch.long, device=mask.device)
    own = {
        name: value[rows] if isinstance(value, Tensor) and value.dim() else value
        for name, value in inputs.items()
    }
    tokens = float(learnt(own).sum()) if taken else 0.0
    return own, taken / count, tokens / max(1.0, float(mask.sum()))


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


def own_tokens(drawn: Answers) -> list[list[int]]:
    """The tokens that the policy drew, without those that tools wrote."""
    if drawn.learnt is None:
        return drawn.ids
    both = zip(drawn.ids, drawn.learnt, strict=True)
    return [[one for one, own in zip(ids, mask, strict=True) if own] for ids, mask in both]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a forward pass says of the answers; the names are those that TRL's loss reads."""

    log_probs: Tensor  # [B, R] nats, tempered
    entropy: Tensor  # [B, R] nats


NAMES = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")  # TRL's


class GroupTrainer(OverTRL):
    """What does not depend on the loss. `evaluation` answers the fixed prompts and returns metrics
    named eval_…."""

    args: "GRPOConfig | RLOOConfig"
    temperature: float
    train_dataset: Any
    eval_dataset: Any
    processing_class: Any
    use_vllm: bool
    vllm_generation: Any
    reward_funcs: list[Any]

    def __init__(
        self,
        *,
        settings: GRPOSettings,
        reference: Reference,
        evaluation: Callable[[], dict[str, float]],
        baseline: Baseline | None,
        watch: Watch,
        rollouts: ToolRollouts | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.use_own_forward()
        self.settings = settings
        self.evaluation = evaluation
        self.baseline = baseline
        self.watch = watch
        self.rollouts = rollouts
        self.policy = body_of(self.model)
        self.reference = reference
        self.ends = list(stop_ids(self.policy, self.processing_class))
        self.reward: GroupReward = self.reward_funcs[0]
        self.order = PromptOrder(len(self.train_dataset), seed=self.args.seed)
        self.known_ids: dict[str, list[int]] = {}
        self.batch: dict[str, Tensor] | None = None  # the answers in use
        self.drawn: list[MetricValues] = []  # of the batches since the last point
        self.sums = self.no_sums()
        self.teaches = False  # whether an answer of the step under way has an advantage
        self.seen: Seen | None = None  # of the last forward pass
        self.seconds = {"rollout": 0.0, "reward": 0.0, "step": 0.0}
        if self.use_vllm and isinstance(self.model, PeftModel):
            self.vllm_generation.model = MergedWeights(self.model)

    def in_precision(self) -> AbstractContextManager[Any]:
        """Inside, passes are computed in the precision of the run. Under DeepSpeed the library does
        not know it (`workers.layouts.arguments.weights_in_float32`)."""
        told: Any = self.args.deepspeed or {}
        if told.get("torch_autocast", {}).get("enabled"):
            return torch.autocast(self.args.device.type, torch.bfloat16)
        return self.accelerator.autocast()

    # --- drawing answers ---

    def rows_of_step(self, step: int) -> list[int]:
        """Each prompt as often as it is answered, and the same ones for every step on a batch."""
        groups = self.settings.batch_size // self.settings.group_size
        prompts = self.order.take(step // self.settings.update_epochs * groups, groups)
        return [index for index in prompts for _ in range(self.settings.group_size)]

    def passes(self, step: int) -> float:
        """By the prompts that were answered, each in one group."""
        groups = self.settings.batch_size // self.settings.group_size
        return -(-step // self.settings.update_epochs) * groups / len(self.train_dataset)

    def step_tokens(self, step: int) -> int:
        """Of the answers in use, all of which a step reads; every rank holds them."""
        batch = self.batch
        return int(batch["prompt_mask"].sum() + batch["completion_mask"].sum()) if batch else 0

    def prompt_ids(self, prompts: Sequence[Messages]) -> list[list[int]]:
        """By our own encoding: what looks like a control token in a message stays text."""
        keys = [repr(prompt) for prompt in prompts]
        for key, prompt in zip(keys, prompts, strict=True):
            if key not in self.known_ids:
                self.known_ids[key] = (
                    self.rollouts.encode(prompt)
                    if self.rollouts
                    else encode_prompt(self.processing_class, prompt)
                )
        return [self.known_ids[key] for key in keys]

    def answer(self, prompt_ids: Sequence[list[int]]) -> Answers:
        """From the whole tempered distribution, with a seed of this step's own."""
        started = time.monotonic()
        was_training = self.model.training
        self.model.eval()
        told = self.by_engine(prompt_ids) if self.use_vllm else self.by_policy(prompt_ids)
        self.model.train(was_training)
        self.seconds["rollout"] += time.monotonic() - started
        return told

    def by_policy(self, prompt_ids: Sequence[list[int]]) -> Answers:
        """Ranks draw chunks in turns."""
        drawn: dict[int, list[tuple[list[int], list[int], str]]] = {}
        draw: Draw = self.rollouts or generate
        chunk = self.settings.rollout_chunk
        for start in range(ranks.rank() * chunk, len(prompt_ids), ranks.world() * chunk):
            seed = derive_seed(self.args.seed, "rollout", self.state.global_step, start)
            with self.in_precision():
                responses = draw(
                    self.policy,
                    self.processing_class,
                    prompt_ids[start : start + chunk],
                    Sampling(
                        self.settings.max_new_tokens,
                        temperature=self.settings.temperature,
                        seed=seed,
                    ),
                    stop=self.ends,
                )
            drawn[start] = [
                (ids[mask.bool()].tolist(), own[mask.bool()].tolist(), text)
                for ids, mask, own, text in zip(
                    responses.response_ids,
                    responses.response_mask,
                    responses.drawn_mask,
                    responses.texts,
                    strict=True,
                )
            ]
        for told in ranks.gathered(drawn):
            drawn |= told
        rows = [row for start in sorted(drawn) for row in drawn[start]]
        ids = [row[0] for row in rows]
        if self.rollouts is None:
            return Answers(ids)
        episodes = [text for *_, text in rows if isinstance(text, Episode)]
        return Answers(ids, learnt=[row[1] for row in rows], episodes=episodes)

    def by_engine(self, prompt_ids: Sequence[list[int]]) -> Answers:
        """By TRL's vLLM beside this rank, which is given the weights first; ranks take groups in
        turns. Each answer of a group has a seed of its own, counted from the prompt's."""
        engine, size = self.vllm_generation, self.settings.group_size
        engine.sync_weights()
        mine = range(ranks.rank() * size, len(prompt_ids), ranks.world() * size)
        engine.generation_kwargs = {
            "n": size,
            "seed": derive_seed(self.args.seed, "rollout", self.state.global_step, ranks.rank()),
            "stop_token_ids": self.ends,
        }
        _, ids, logprobs, _ = engine.generate([prompt_ids[start] for start in mine], None, size)
        found = {
            start + i: (list(ids[n * size + i]), [value for (value,) in logprobs[n * size + i]])
            for n, start in enumerate(mine)
            for i in range(size)
        }
        for told in ranks.gathered(found):
            found |= told
        rows = [found[n] for n in range(len(prompt_ids))]
        return Answers([row for row, _ in rows], [values for _, values in rows])

    @torch.no_grad()
    def can_speak(self, prompt: Messages) -> bool:
        """Whether the policy's logits are numbers. If not the run ends: drawing from them would be
        an error of the device, and no later step could repair it."""
        ids = torch.tensor(self.prompt_ids([prompt]), device=self.policy.device)
        with self.in_precision():
            logits = self.policy(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                logits_to_keep=1,
                use_cache=False,
            ).logits
        broken = ranks.any_of(not bool(torch.isfinite(logits).all()))
        if broken and self.guard is not None:
            self.guard.not_finite(self.state.global_step, "the policy's output", again=True)
        return not broken

    @torch.no_grad()
    def draw(self, prompts: list[Messages]) -> dict[str, Tensor]:
        """Answers to the prompts, judged and looked at; every rank holds all of them. B answers of
        at most R tokens, prompts padded left and answers right; the names are TRL's."""
        step = self.state.global_step + 1
        due = step % self.settings.sample_every < self.settings.update_epochs
        self.reward.ask_check = due or not self.reward.check_is_model
        prompt_ids = self.prompt_ids(prompts)
        drawn = self.answer(prompt_ids)
        answers = drawn.ids
        rewards = self.reward(
            prompts=prompts, completion_ids=own_tokens(drawn), episodes=drawn.episodes
        )
        self.seconds["reward"] += self.reward.seconds
        judged = self.reward.last
        assert judged is not None  # noqa: S101 — the answers were just judged
        device, pad_id = self.args.device, self.processing_class.pad_token_id
        sequences = [
            told.to(device) for told in (*pad_left(prompt_ids, pad_id), *pad_right(answers, pad_id))
        ]
        ids, mask = sequences[2:]
        if self.settings.mask_truncated:
            mask[~torch.tensor(judged.ended, device=device)] = 0
        found: dict[str, Tensor] = dict(zip(NAMES, sequences, strict=True))
        if drawn.learnt is not None and drawn.episodes is not None:
            found["tool_mask"] = pad_right(drawn.learnt, 0)[0].to(device)
            invariants.check_tool_mask(learnt(found), [one.tokens for one in drawn.episodes], mask)
        else:
            full = mask.bool().any(1) if self.settings.mask_truncated else slice(None)
            invariants.check_mask(mask[full], ids[full], tuple(self.ends))
        mask = learnt(found)
        found["ref_per_token_logps"] = self.reference_logprobs(sequences)
        fresh = self.state.global_step == 0 and not self.settings.reference_differs
        if self.settings.update_epochs > 1 or fresh or self.prices_answers or self.use_vllm:
            found["old_per_token_logps"] = self.policy_logprobs(sequences)
        if fresh and mask.any():
            invariants.check_kl_at_start(
                found["old_per_token_logps"], found["ref_per_token_logps"], mask
            )
        corrections: MetricValues = {}
        if drawn.logprobs is not None:
            theirs = [
                torch.tensor([torch.nan if value is None else value for value in row])
                for row in drawn.logprobs
            ]
            told = nn.utils.rnn.pad_sequence(theirs, batch_first=True, padding_value=torch.nan)
            weights = self.corrected(found, told.to(device))
            found["importance_sampling_ratio"] = weights
            corrections |= importance_metrics(weights, mask, cap=self.settings.importance_cap)
        values = torch.tensor([torch.nan if r is None else r for r in rewards], device=device)
        found["advantages"] = self.advantages(values, judged, found)
        if self.settings.update_epochs == 1:
            found.pop("old_per_token_logps", None)  # the policy that learns is the one that drew
        found["num_items_in_batch"] = mask.sum()
        said = [spoken(text) for text in judged.texts]
        self.drawn.append(
            answer_metrics(judged, self.settings.group_size, ids, mask, self.baseline)
            | self.watch.look(said, judged.scores.values, judged.lengths)
            | corrections
            | (episode_metrics(drawn.episodes, self.settings.environment) if drawn.episodes else {})
        )
        return found

    def corrected(self, found: Mapping[str, Tensor], drawn: Tensor) -> Tensor:
        """[B, R] what a token's loss is multiplied by, of what the engine says that it drew with
        (nats, tempered; NaN where it does not say, which is left uncorrected)."""
        logprobs = found["old_per_token_logps"]
        return importance_weights(
            logprobs,
            torch.where(drawn.isnan(), logprobs, drawn),
            found["completion_mask"],
            cap=self.settings.importance_cap,
        )

    # --- what the losses differ in ---

    @property
    def prices_answers(self) -> bool:
        """Whether the divergence of an answer is taken off its reward."""
        return False

    def advantages(self, rewards: Tensor, judged: Judged, drawn: Mapping[str, Tensor]) -> Tensor:
        """[B] of rewards [B], NaN where one was withheld."""
        return group_advantages(
            rewards,
            torch.tensor(judged.fees, device=rewards.device),
            torch.from_numpy(judged.silent(self.settings.group_size)).to(rewards.device),
            scale=self.settings.scale_rewards,
        )

    def log_ratio(self, logprobs: Tensor, old: Tensor, mask: Tensor) -> Tensor:
        """Of the policy to the one that drew, as the loss clips it: [B, R] or [B, 1], nats."""
        raise NotImplementedError

    def trl_loss(self, seen: Seen, inputs: dict[str, Any], rows: float, tokens: float) -> Tensor:
        """TRL's loss of a part on this rank's share of its `rows` and `tokens`."""
        raise NotImplementedError

    # --- the forward pass ---

    def reference_logprobs(self, sequences: Sequence[Tensor]) -> Tensor:
        """log π_ref [B, R], nats, tempered; the batches are those of the steps."""
        return self.in_batches(
            sequences, lambda rows: self.reference.logprobs(*rows, temperature=self.temperature)
        )

    def policy_logprobs(self, sequences: Sequence[Tensor]) -> Tensor:
        """log π [B, R] with all weights at hand, in the very same batches: in half precision
        other ones round differently."""
        return self.in_batches(
            sequences,
            lambda rows: score_responses(self.policy, *rows, temperature=self.temperature).logprobs,
        )

    def in_batches(
        self, sequences: Sequence[Tensor], of: Callable[[list[Tensor]], Tensor]
    ) -> Tensor:
        rows = zip(*(told.split(self.part_size) for told in sequences), strict=True)
        with self.in_precision():
            return torch.cat([of(list(part)) for part in rows])

    @property
    def part_size(self) -> int:
        """Answers of a forward pass, on all ranks together."""
        return self.settings.batch_size // self.settings.gradient_accumulation

    def look(self, model: Any, inputs: Mapping[str, Tensor]) -> Seen:
        """What the policy says of the answers, with its gradient: tempered, [B, R]."""
        # Weights that are split are together in the pass of what was wrapped, and in no other: the
        # output layer cannot be called by itself then, as it is to read logits in pieces.
        split = self.apart and is_split(self.policy)
        with self.in_precision():
            outputs = score_responses(
                model if self.apart else self.policy,
                inputs["prompt_ids"],
                inputs["prompt_mask"],
                inputs["completion_ids"],
                inputs["completion_mask"],
                temperature=self.temperature,
                with_entropy=True,
                entropy_gradient=self.settings.entropy_coef != 0,
                logits_chunk=None if split else LOGITS_CHUNK,
            )
        assert outputs.entropy is not None  # noqa: S101 — it was asked for
        return Seen(outputs.logprobs, outputs.entropy)

    # --- a step ---

    @property
    def draws_now(self) -> bool:
        """Whether the step begins a new batch of answers, as each training does."""
        return self.batch is None or self.state.global_step % self.settings.update_epochs == 0

    def parts_of(self, inputs: Any) -> list[dict[str, Any]]:
        """The answers in use in as many forward passes as a step has; new ones for each batch."""
        if self.draws_now:
            with self.whole_everywhere():
                self.batch = self.draw([row["prompt"] for row in inputs])
        size, batch = self.part_size, self.batch
        assert batch is not None  # noqa: S101 — just drawn, or in use
        return [
            {
                name: value[start : start + size] if value.dim() else value
                for name, value in batch.items()
            }
            | {"taken": 1.0}
            for start in range(0, self.settings.batch_size, size)
        ]

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> Tensor:
        started = time.monotonic()
        if self.draws_now:
            with self.whole_everywhere():
                speaks = self.can_speak(inputs[0]["prompt"])
            if not speaks:
                return torch.zeros((), device=self.args.device)
        loss = super().training_step(model, inputs, num_items_in_batch)
        if not self.apart:
            average_gradients(self.model)
        self.seconds["step"] += time.monotonic() - started
        return loss

    def is_silent(self) -> bool:
        """A step in which no answer was better than another is none: the optimizer leaves weights
        and moments as they are."""
        teaches, self.teaches = ranks.any_of(self.teaches), False
        return not teaches

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """This rank's share of a part's share of the step's loss, by TRL's formula."""
        inputs, rows, tokens = own_rows(inputs)
        self.seen = seen = self.look(model, inputs)
        with alone(self):
            loss = self.trl_loss(seen, inputs, rows, tokens)
        if rows:
            self.note(inputs, seen)
        return loss

    def note(self, inputs: Mapping[str, Tensor], seen: Seen) -> None:
        """What a forward pass says about the update; breaks the run where its first step is not
        one of the policy that drew."""
        logprobs, entropy = seen.log_probs.detach(), seen.entropy.detach()
        ref, mask = inputs["ref_per_token_logps"], learnt(inputs)
        old = inputs.get("old_per_token_logps", logprobs)
        fresh = self.state.global_step % self.settings.update_epochs == 0
        if fresh and mask.any():
            invariants.check_first_ratio(logprobs, old, mask)
        teaching = (inputs["advantages"] != 0) & mask.bool().any(1)
        self.teaches = self.teaches or bool(teaching.any())
        self.sums.add(
            logprobs,
            old,
            ref,
            entropy,
            inputs["advantages"],
            mask,
            log_ratio=self.log_ratio(logprobs, old, mask).expand_as(mask),
            fresh=fresh,
        )

    # --- metrics ---

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Our metrics in place of TRL's, which leave out NaN in silence."""
        self.trl_metrics()
        if "loss" in logs:
            self.sums = UpdateSums.of_all(ranks.gathered(self.sums))
            logs |= averaged(self.drawn) | self.sums.metrics() | self.times()
            self.drawn, self.sums = [], self.no_sums()
            self.seconds = dict.fromkeys(self.seconds, 0.0)
        super().log(logs, start_time)

    def no_sums(self) -> UpdateSums:
        low = self.settings.clip
        return UpdateSums(clip_low=low, clip_high=self.settings.clip_high or low)

    def times(self) -> MetricValues:
        """Seconds a step, over the steps since the last point."""
        steps = max(1, self.steps_since)
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
            if not self.can_speak(self.eval_dataset[0]["prompt"]):
                return {}
            metrics = ranks.from_first(self.evaluation())
        self.model.train(was_training)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    # --- checkpoints ---

    def save_model(self, output_dir: str | None = None, *args: Any, **kwargs: Any) -> None:
        self.reference.check()  # by all ranks, over which its weights may be split
        super().save_model(output_dir, *args, **kwargs)


class Trainer(GroupTrainer, GRPOTrainer, BelowTRL):
    """GRPO, and GSPO where ratios are those of whole answers."""

    def __init__(self, *, settings: GRPOSettings, **kwargs: Any) -> None:
        super().__init__(settings=settings, **kwargs)
        # TRL was told β = 0, for else it would have made a reference of its own.
        self.beta = settings.kl_coef

    def log_ratio(self, logprobs: Tensor, old: Tensor, mask: Tensor) -> Tensor:
        if self.importance_sampling_level == "token":
            return logprobs - old
        return masked_sum(logprobs - old, mask, 1).unsqueeze(1) / mask.sum(1, True).clamp(min=1)

    def trl_loss(self, seen: Seen, inputs: dict[str, Any], rows: float, tokens: float) -> Tensor:
        by = {"dapo": float(rows > 0), "bnpo": tokens}.get(self.loss_type, rows)
        parts = self.settings.gradient_accumulation
        over_parts = 1 if self.loss_type == "dapo" else parts  # its sum is over the step's tokens
        coef = self.entropy_coef
        # The bonus is a mean over tokens.
        self.entropy_coef = coef * tokens / by * over_parts / parts if by else 0.0
        try:
            loss: Tensor = GRPOTrainer.compute_loss(self, lambda **_: seen, inputs)
        finally:
            self.entropy_coef = coef
        return loss * (by / over_parts)


class LeaveOneOutTrainer(GroupTrainer, RLOOTrainer, BelowTRL):
    """REINFORCE leave-one-out. The divergence from the reference, summed over an answer, is taken
    off its reward, and the ratio is that of the whole answer.

    Source: Ahmadian et al. 2024 (RLOO), equations 7 and 8. TRL's loss; its advantages are made by
    `group_advantages`, which differ where they are scaled: by the rewards' deviation, not by that
    of the advantages.
    """

    @property
    def prices_answers(self) -> bool:
        return self.settings.kl_coef > 0

    def advantages(self, rewards: Tensor, judged: Judged, drawn: Mapping[str, Tensor]) -> Tensor:
        silent, size = judged.silent(self.settings.group_size), self.settings.group_size
        if self.prices_answers:
            nats = drawn["old_per_token_logps"] - drawn["ref_per_token_logps"]
            cost = self.settings.kl_coef * masked_sum(nats, learnt(drawn), 1)
            rewards = rewards - cost
            counts = judged.grouped(judged.counts, size)
            priced = rewards.nan_to_num().view(-1, size).cpu().numpy()
            silent &= silent_groups(priced, counts)
        return group_advantages(
            rewards,
            torch.tensor(judged.fees, device=rewards.device),
            torch.from_numpy(silent).to(rewards.device),
            scale=self.settings.scale_rewards,
            leave_one_out=True,
        )

    def log_ratio(self, logprobs: Tensor, old: Tensor, mask: Tensor) -> Tensor:
        return masked_sum(logprobs - old, mask, 1).unsqueeze(1)

    def trl_loss(self, seen: Seen, inputs: dict[str, Any], rows: float, tokens: float) -> Tensor:
        old = inputs.get("old_per_token_logps", seen.log_probs.detach())
        mask = learnt(inputs)  # TRL's own knows no tools, and reads this mask alone
        read = inputs | {"completion_mask": mask, "old_logps": masked_sum(old, mask, 1)}
        loss: Tensor = RLOOTrainer.compute_loss(self, lambda **_: seen, read)
        return loss * (rows / self.settings.gradient_accumulation)
