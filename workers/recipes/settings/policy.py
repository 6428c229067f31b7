"""Settings of `ppo`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.recipes.settings.parsing import option


@dataclass(frozen=True, kw_only=True)
class PPOSettings:
    """Proximal policy optimisation. A step is one batch of rollouts and its update epochs."""

    # rollouts
    batch_size: int = option(64, "Answers per step.", unit="sequences", minimum=2)
    max_prompt_length: int = option(
        512, "Longer prompts are left out and counted.", unit="tokens", minimum=1
    )
    max_new_tokens: int = option(
        128, "Longest answer; what is cut there has no end token.", unit="tokens", minimum=1
    )
    temperature: float = option(
        1.0, "Of sampling, and of every log-probability compared with it.", above=0.0, maximum=5.0
    )
    # reward
    reward: Mapping[str, Any] = option(
        {"type": "model"},
        "Where rewards come from: {type: model} (input 'reward') or "
        "{type: token_count, token: …, cap: …}. disagreement_threshold beside {type: model} stands "
        "over an ensemble's own.",
    )
    reward_batch_size: int = option(
        64, "Texts scored at once.", unit="texts", minimum=1, maximum=1024
    )
    reward_clip: float = option(
        5.0, "Normalised scores beyond this are cut.", unit="deviations", above=0.0
    )
    missing_eos_penalty: float = option(
        0.0,
        "Taken from the normalised score of an answer that did not end. Raise it when answers "
        "run into the limit.",
        unit="deviations",
        minimum=0.0,
    )
    # divergence from the reference
    kl_coef: float = option(
        0.05, "Price of a nat of divergence, in deviations of the reward; 0.01–0.2.", minimum=0.0
    )
    force_zero_kl: bool = option(False, "Needed to run with kl_coef 0.")
    kl_estimator: str = option(
        "k1", "Per-token estimator in the reward; k1 is unbiased.", choices=("k1", "k2", "k3")
    )
    kl_controller: str = option(
        "fixed", "adaptive moves the coefficient towards kl_target.", choices=("fixed", "adaptive")
    )
    kl_target: float = option(6.0, "Of the adaptive controller.", unit="nats/sequence", above=0.0)
    kl_horizon: float | None = option(
        None,
        "Sequences over which the adaptive controller acts; a tenth of the planned ones if unset.",
        unit="sequences",
        above=0.0,
    )
    reference_differs: bool = option(
        False, "The input 'reference' is meant to be another model than the starting policy."
    )
    # update
    steps: int = option(100, "Batches of rollouts.", unit="steps", minimum=1)
    max_seconds: float | None = option(
        None,
        "Save and finish once an attempt has trained this long; for demos and slow machines.",
        unit="s",
        above=0.0,
    )
    update_epochs: int = option(
        4, "Passes over each batch. Fewer when the clip fraction is over 0.4.", minimum=1
    )
    minibatch_size: int = option(16, "Sequences per optimizer step.", unit="sequences", minimum=1)
    microbatch_size: int | None = option(
        None,
        "Sequences per forward pass; lower it when memory runs out, the result is the same.",
        unit="sequences",
        minimum=1,
    )
    learning_rate: float = option(1e-5, "Peak step size of AdamW for the policy.", above=0.0)
    value_learning_rate: float | None = option(
        None, "Step size of the value head; ten times the policy's if unset.", above=0.0
    )
    lr_schedule: str = option(
        "linear", "How the step size falls over the run.", choices=("linear", "constant")
    )
    warmup_share: float = option(
        0.0, "Share of the steps over which the step size rises.", minimum=0.0, maximum=0.5
    )
    clip: float = option(0.2, "Ratios further from 1 give no gradient.", above=0.0)
    value_clip: float = option(
        0.2, "A value may move this far per update.", unit="deviations", above=0.0
    )
    value_coef: float = option(0.1, "Weight of the value loss.", minimum=0.0)
    entropy_coef: float = option(
        0.0, "Weight of an entropy bonus. Raise it when entropy collapses.", minimum=0.0
    )
    gamma: float = option(
        1.0, "Discount per token; under 1 a long answer forgets its score.", above=0.0, maximum=1.0
    )
    gae_lambda: float = option(
        0.95, "0 trusts the value function, 1 the sampled return.", minimum=0.0, maximum=1.0
    )
    update_kl_target: float = option(
        0.02,
        "KL(old‖new) of an update; past twice this its remaining minibatches are dropped.",
        unit="nats/token",
        above=0.0,
    )
    max_grad_norm: float = option(1.0, "Longer gradients are scaled down to it.", above=0.0)
    # bookkeeping
    eval_every: int = option(10, "Steps between held-out evaluations.", unit="steps", minimum=1)
    eval_prompts: int = option(
        32, "Fixed prompts answered at each evaluation.", unit="prompts", minimum=1
    )
    save_every: int = option(
        20, "Steps between checkpoints; what a crash can cost.", unit="steps", minimum=1
    )
    sample_every: int = option(
        10, "Steps between sampled answers for people to read.", unit="steps", minimum=1
    )
    audit_samples: int = option(
        5, "Answers of each bucket in the audit: highest, lowest, random.", minimum=1
    )

    def check(self) -> list[str]:
        errors = []
        if self.kl_coef == 0 and not self.force_zero_kl:
            errors.append("kl_coef: 0 lets the policy drift; set force_zero_kl to mean it")
        if self.batch_size % self.minibatch_size:
            errors.append("batch_size: must be a multiple of minibatch_size")
        if self.microbatch_size and self.minibatch_size % self.microbatch_size:
            errors.append("minibatch_size: must be a multiple of microbatch_size")
        return errors + _reward_errors(self.reward)


def _reward_errors(reward: Mapping[str, Any]) -> list[str]:
    kind = reward.get("type")
    known = {
        "model": {"type", "max_length", "disagreement_threshold"},
        "token_count": {"type", "token", "cap"},
    }
    if kind not in known:
        return [f"reward.type: '{kind}' is none of {', '.join(known)}"]
    errors = [f"reward.{name}: is no field of {kind}" for name in set(reward) - known[kind]]
    if kind == "token_count" and not (isinstance(reward.get("token"), str) and reward["token"]):
        errors.append("reward.token: must be the word to count")
    cap = reward.get("cap")
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
        errors.append("reward.cap: must be a number from 1")
    length = reward.get("max_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int)):
        errors.append("reward.max_length: must be a number of tokens")
    threshold = reward.get("disagreement_threshold")
    if "disagreement_threshold" in reward and (
        isinstance(threshold, bool) or not isinstance(threshold, int | float) or not threshold > 0
    ):
        errors.append("reward.disagreement_threshold: must be a number over 0")
    return errors
