"""What other libraries call our metrics.

Names alone are not enough: a figure under another definition would be judged by a limit that is
not its own. So each line here was compared with what the library computes, and where it differs
from `docs/metrics.md` in more than an estimator, it is not mapped. What is not mapped is kept under
its own name and drawn.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workers.diagnosis.reading import Point, Value

POLICIES = ("ppo", "grpo")
Convert = Callable[[float], float]


def _size(value: float) -> float:
    """An entropy over tokens is not negative; some log its negative as a loss."""
    return abs(value)


def _rest(value: float) -> float:
    return 1.0 - value


@dataclass(frozen=True, slots=True)
class Alias:
    """`convert` where the library counts the other way round; `source` is whose name it is."""

    theirs: str
    ours: str
    source: str
    convert: Convert | None = None


def _all(source: str, *pairs: tuple[str, str] | tuple[str, str, Convert]) -> list[Alias]:
    return [Alias(pair[0], pair[1], source, *pair[2:]) for pair in pairs]


# Of several that mean one thing, the first in this order is taken.
_POLICY: tuple[Alias, ...] = (
    # TRL, GRPOTrainer. `kl` is k3 per token.
    *_all(
        "TRL GRPO",
        ("reward", "objective/scores"),
        ("reward_std", "objective/scores_std"),
        ("kl", "objective/kl_per_token"),
        ("entropy", "objective/entropy_per_token"),
        ("clip_ratio/region_mean", "policy/clipfrac_avg"),
        ("clip_ratio", "policy/clipfrac_avg"),
        ("frac_reward_zero_std", "grpo/zero_variance_share"),
        ("completions/mean_length", "response/length"),
        ("completion_length", "response/length"),
        ("completions/clipped_ratio", "response/ended_share", _rest),
        ("step_time", "time/step_s"),
        ("profiling/Time taken: GRPOTrainer._calculate_rewards", "time/reward_s"),
    ),
    # TRL, PPOTrainer after 0.12: names are ours, but for the entropy per token.
    *_all(
        "TRL PPO",
        ("policy/entropy_avg", "objective/entropy_per_token"),
        ("lr", "learning_rate"),
    ),
    # TRL, PPOTrainer up to 0.11.
    *_all(
        "TRL PPO before 0.12",
        ("ppo/mean_scores", "objective/scores"),
        ("env/reward_mean", "objective/scores"),
        ("ppo/std_scores", "objective/scores_std"),
        ("env/reward_std", "objective/scores_std"),
        ("objective/kl_coef", "kl_coef"),
        ("ppo/mean_non_score_reward", "objective/non_score_reward"),
        ("ppo/policy/clipfrac", "policy/clipfrac_avg"),
        ("ppo/policy/approxkl", "policy/approxkl_avg"),
        ("ppo/policy/entropy", "objective/entropy_per_token"),
        ("ppo/val/var_explained", "val/explained_variance"),
        ("ppo/val/mean", "val/value_mean"),
        ("ppo/loss/policy", "loss/policy_avg"),
        ("ppo/loss/value", "loss/value_avg"),
        ("ppo/learning_rate", "learning_rate"),
        ("tokens/responses_len_mean", "response/length"),
        ("time/ppo/total", "time/step_s"),
    ),
    # verl. `actor/kl_loss` and `reward_kl_penalty` are per token.
    *_all(
        "verl",
        ("critic/score/mean", "objective/scores"),
        ("critic/rewards/mean", "objective/rlhf_reward"),
        ("actor/reward_kl_penalty", "objective/kl_per_token"),
        ("actor/kl_loss", "objective/kl_per_token"),
        ("actor/reward_kl_penalty_coeff", "kl_coef"),
        ("actor/ppo_kl", "policy/approxkl_avg"),
        ("actor/pg_clipfrac", "policy/clipfrac_avg"),
        ("actor/pg_loss", "loss/policy_avg"),
        ("actor/entropy", "objective/entropy_per_token"),
        ("actor/entropy_loss", "objective/entropy_per_token"),
        ("actor/grad_norm", "grad_norm"),
        ("actor/lr", "learning_rate"),
        ("critic/vf_explained_var", "val/explained_variance"),
        ("critic/vf_loss", "loss/value_avg"),
        ("critic/values/mean", "val/value_mean"),
        ("response_length/mean", "response/length"),
        ("response_length/clip_ratio", "response/ended_share", _rest),
        ("timing_s/step", "time/step_s"),
        ("timing_s/gen", "time/rollout_s"),
        ("timing_s/reward", "time/reward_s"),
        ("timing_s/update_actor", "time/update_s"),
    ),
    # OpenRLHF. `kl` is weighted by length, so per token.
    *_all(
        "OpenRLHF",
        ("ppo_clip_ratio", "policy/clipfrac_avg"),
        ("ppo_kl", "policy/approxkl_avg"),
        ("policy_loss", "loss/policy_avg"),
        ("critic_loss", "loss/value_avg"),
        ("actor_lr", "learning_rate"),
        ("actor_grad_norm", "grad_norm"),
        ("values", "val/value_mean"),
        ("response_length", "response/length"),
        ("timing/step_total", "time/step_s"),
        ("timing/generation", "time/rollout_s"),
    ),
    # NeMo RL.
    *_all(
        "NeMo RL",
        ("kl_penalty", "objective/kl_per_token"),
        ("approx_entropy", "objective/entropy_per_token"),
        ("mean_gen_tokens_per_sample", "response/length"),
        ("timing/train/total_step_time", "time/step_s"),
        ("timing/train/generation", "time/rollout_s"),
        ("timing/train/policy_training", "time/update_s"),
    ),
    # Stable-Baselines3 and CleanRL: one decision is what a token is here.
    *_all(
        "Stable-Baselines3",
        ("rollout/ep_rew_mean", "objective/scores"),
        ("rollout/ep_len_mean", "response/length"),
        ("approx_kl", "policy/approxkl_avg"),
        ("clip_fraction", "policy/clipfrac_avg"),
        ("entropy_loss", "objective/entropy_per_token", _size),
        ("explained_variance", "val/explained_variance"),
        ("policy_gradient_loss", "loss/policy_avg"),
        ("value_loss", "loss/value_avg"),
    ),
    *_all(
        "CleanRL",
        ("charts/episodic_return", "objective/scores"),
        ("charts/episodic_length", "response/length"),
        ("charts/learning_rate", "learning_rate"),
        ("losses/approx_kl", "policy/approxkl_avg"),
        ("losses/clipfrac", "policy/clipfrac_avg"),
        ("losses/entropy", "objective/entropy_per_token"),
        ("losses/explained_variance", "val/explained_variance"),
        ("losses/policy_loss", "loss/policy_avg"),
        ("losses/value_loss", "loss/value_avg"),
    ),
)
# Reward functions of TRL's GRPO, each a component of the reward here.
_COMPONENT = re.compile(r"rewards/(?P<name>[^/]+)(?:/mean)?$")
_KEPT_REWARDS = frozenset({"chosen", "rejected", "margins", "accuracies"})


@dataclass(frozen=True, slots=True)
class Named:
    """`series` under our names where they are known; `taken` says {ours: theirs} of those that
    were renamed."""

    series: dict[str, list[Point]]
    taken: dict[str, str]


def ours(series: Mapping[str, Sequence[Point]], kind: str) -> Named:
    """Rename what is known for a run of `kind`. A name of ours in the file is never overwritten;
    two names for one thing keep the second under its own."""
    plain = {_plain(name): name for name in series}
    found = {plain_name: list(series[theirs]) for plain_name, theirs in plain.items()}
    taken = {new: old for new, old in plain.items() if new != old}
    if kind not in POLICIES:
        return Named(dict(sorted(found.items())), taken)
    for alias in _POLICY:
        if alias.theirs in plain and alias.ours not in found:
            found[alias.ours] = _converted(found[alias.theirs], alias.convert)
            taken[alias.ours] = plain[alias.theirs]
            if alias.theirs != "policy/entropy_avg":  # a name of ours too
                del found[alias.theirs]
                taken.pop(alias.theirs, None)
    for name in [one for one in found if _COMPONENT.match(one)]:
        part = _COMPONENT.match(name)
        new = f"reward/component/{part['name']}" if part else ""
        if part and part["name"] not in _KEPT_REWARDS and new not in found:
            found[new] = found.pop(name)
            taken[new] = plain[name]
    return Named(dict(sorted(found.items())), taken)


def _plain(name: str) -> str:
    """Without the prefixes under which trackers file what a trainer logs."""
    if name.startswith("train/") and len(name) > len("train/"):
        return name.removeprefix("train/")
    if name.startswith("eval_"):
        return f"eval/{name.removeprefix('eval_')}"
    return name


def _converted(points: Sequence[Point], convert: Convert | None) -> list[Point]:
    if convert is None:
        return list(points)
    return [(step, _applied(value, convert)) for step, value in points]


def _applied(value: Value, convert: Convert) -> Value:
    if isinstance(value, str):
        return value
    number = convert(value)
    return number if math.isfinite(number) else value
