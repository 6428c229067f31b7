"""The faults of the suite: how each is planted, since when, and the link that it breaks first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.diagnosis_world import planting, rewards
from benchmarks.diagnosis_world.planting import Plant

HEALTHY = "healthy"
FIRST = 1  # the first step of a run
STEPS = 50  # of a run
LATE = 20  # the step from which faults that come while a run goes well are planted
LATE_NUMBERS = 10
SLOW_S = 0.5  # a rollout takes less than a tenth of it


@dataclass(frozen=True, slots=True)
class Fault:
    """`contract` says that it breaks something exact; others can only be seen as statistics.

    `config`, `inputs` and `plant` are what differs from a healthy run.
    """

    name: str
    link: str
    about: str
    contract: bool = False
    since: int = FIRST
    config: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    plant: Plant | None = None
    kind: str = "ppo"


_RATE = 8e-4
PPO: Mapping[str, Any] = {
    "lora_rank": 0,  # a model this small is trained whole
    "steps": STEPS,
    "batch_size": 32,
    "minibatch_size": 16,
    "update_epochs": 2,
    "max_prompt_length": 8,
    "max_new_tokens": 16,
    "learning_rate": _RATE,
    "value_learning_rate": 10 * _RATE,
    "lr_schedule": "constant",
    "warmup_share": 0.08,  # Adam's first step is its largest
    "kl_coef": 0.05,
    "eval_every": 5,
    "eval_prompts": 24,
    "save_every": 1000,
    "sample_every": 10,
    "audit_samples": 1,
    "keep_rollouts": 100_000,  # all of them: gold is asked about them afterwards
    "reward_check": "off",  # it would refuse half of these runs before their first step
}


def _rate(factor: float) -> dict[str, float]:
    return {
        "learning_rate": factor * PPO["learning_rate"],
        "value_learning_rate": factor * PPO["value_learning_rate"],
    }


_ALL = (
    # reward models
    Fault(
        "sign_flip",
        "reward",
        "the reward model's head is negated",
        inputs={"reward": "negated"},
    ),
    Fault(
        "swapped_labels",
        "data",
        "the reward model learned from votes whose sides were swapped",
        inputs={"reward": "swapped", "reward_data": "swapped-votes"},
    ),
    Fault("length_loving", "reward", "the reward model likes length", inputs={"reward": "lengthy"}),
    Fault(
        "saturated",
        "reward",
        "nine answers in ten get the same score",
        plant=planting.reward(lambda world: rewards.capped(world.quantile(0.1))),
    ),
    Fault(
        "sparse",
        "reward",
        "an answer must beat the best of four hundred to get anything",
        plant=planting.reward(lambda world: rewards.rare(world.quantile(1.0))),
    ),
    Fault(
        "outlier",
        "reward",
        "2 % of the rewards are sixty times as large",
        plant=planting.reward(lambda world: rewards.outlying(0.02, 60.0)),
    ),
    Fault(
        "noise",
        "reward",
        "scores say nothing of the answer",
        plant=planting.reward(lambda world: rewards.random(*world.scores())),
    ),
    Fault(
        "refusal_loving",
        "reward",
        "the reward model holds refusals to be best",
        inputs={"reward": "refusing"},
    ),
    # the policy update
    Fault(
        "kl_zero",
        "policy",
        "no price on divergence",
        config={"kl_coef": 0.0, "force_zero_kl": True},
    ),
    Fault("lr_x5", "policy", "five times the step size", config=_rate(5)),
    Fault("lr_x10", "policy", "ten times the step size", config=_rate(10)),
    Fault("lr_x100", "policy", "a hundred times the step size", config=_rate(100)),
    Fault("epochs_x4", "policy", "four times the passes", config={"update_epochs": 8}),
    Fault(
        "reference_aliased",
        "policy",
        "the reference is the policy itself",
        contract=True,
        plant=planting.aliased_reference,
    ),
    Fault(
        "reference_wrong",
        "policy",
        "the reference is another checkpoint",
        contract=True,
        inputs={"reference": "other"},
    ),
    Fault(
        "padding_in_loss",
        "policy",
        "the loss covers padding",
        contract=True,
        plant=planting.padding_in_the_loss,
    ),
    Fault(
        "done_mask",
        "policy",
        "the end of an answer is not an end",
        contract=True,
        plant=planting.no_done,
    ),
    # what the policy learns from
    Fault(
        "stale",
        "freshness",
        "rollouts are eight policy versions old",
        contract=True,
        since=2,
        plant=planting.stale(2, relabelled=False),
    ),
    Fault(
        "stale_relabelled",
        "freshness",
        "rollouts are eight policy versions old and say they are new",
        contract=True,
        since=2,
        plant=planting.stale(2, relabelled=True),
    ),
    Fault(
        "temperature",
        "freshness",
        "answers are drawn at temperature 1.5 and judged at 1",
        contract=True,
        plant=planting.sampler(temperature=lambda t: 1.5 * t),
    ),
    Fault(
        "sampler_mismatch",
        "freshness",
        "the sampler keeps the ten likeliest tokens",
        contract=True,
        plant=planting.sampler(top_k=lambda k: 10),
    ),
    # the rest
    Fault("dead_critic", "critic", "the value head never learns", plant=planting.dead_critic),
    Fault(
        "fp16_overflow",
        "numerics",
        "the loss overflows half precision",
        contract=True,
        since=LATE_NUMBERS,
        plant=planting.half_precision_overflow(from_step=LATE_NUMBERS),
    ),
    Fault(
        "protocol_change",
        "evaluation",
        "evaluations are made another way from the middle on",
        contract=True,
        since=LATE,
        plant=planting.other_protocol(from_step=LATE),
    ),
    Fault(
        "slow_reward",
        "resources",
        "every call of the reward waits",
        plant=planting.slow_reward(SLOW_S),
    ),
)
FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in _ALL}
