"""Figures of runs that never ran: plausible healthy ones, and the faults that are planted in them.

A healthy run improves: its reward rises to a plateau, its divergence grows, its entropy falls, its
critic begins worthless, and every figure has the noise of a batch of 64 answers.
"""

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from workers.rules.engine import Engine, Violation

BATCH = 64
EVAL_EVERY, EVAL_PROMPTS = 10, 32
MetricValues = dict[str, float | None]
Stream = Iterator[tuple[int, MetricValues]]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def healthy_ppo(seed: int, steps: int = 150) -> Stream:
    rng = np.random.default_rng(seed)
    pace = rng.uniform(20, 80)  # steps until most is learned
    gain = rng.uniform(0.3, 2.0)  # in temperatures of the reward model
    spread = rng.uniform(0.8, 1.4)
    baseline = np.quantile(rng.normal(0, spread, 4000), 0.9)
    kl, entropy, kept = rng.uniform(1, 8), rng.uniform(0.6, 2.5), rng.uniform(0.5, 0.9)
    longer, noise = rng.uniform(0.8, 1.5), rng.normal
    other = np.random.default_rng([seed, 1]).normal  # of what only the diagnosis reads
    for step in range(1, steps + 1):
        progress = 1 - math.exp(-step / pace)
        raw = rng.normal(gain * progress, spread * (1 - 0.2 * progress), BATCH)
        calibrated = _sigmoid(raw)
        critic = 0.6 * (1 - math.exp(-step / 12)) - 0.9 * math.exp(-step / 6)
        norm = float(np.exp(noise(-0.5, 0.5)))
        figures: MetricValues = {
            "objective/kl": kl * progress * (1 + noise(0, 0.08)),
            "objective/scores": float(raw.mean()),
            "objective/scores_std": float(raw.std()),
            "objective/scores_running_std": spread,
            "objective/entropy_per_token": entropy * (1 - (1 - kept) * progress + noise(0, 0.03)),
            "policy/clipfrac_avg": float(np.clip(noise(0.12, 0.05), 0, 1)),
            "policy/logprob_min": -14 + float(noise(0, 2)),
            "update/stopped_by_kl": float(rng.random() < 0.01),
            "update/skipped_minibatches": 0.0,
            "val/explained_variance": critic + float(noise(0, 0.12)),
            "val/value_scale": 0.8 * (1 - math.exp(-step / 10)) + abs(float(noise(0, 0.1))),
            "grad_norm": norm,
            "grad_norm_max": norm * float(np.exp(abs(noise(0, 0.4)))),
            "reward/calibrated_mean": float(calibrated.mean()),
            "reward/calibrated_std": float(calibrated.std()),
            "reward/above_baseline_share": float((raw > baseline).mean()),
            "reward/outlier_share": float((abs(raw - raw.mean()) > 5 * spread).mean()),
            "reward/flagged_share": rng.binomial(BATCH, 0.06 + 0.06 * progress) / BATCH,
            "reward/blocked_share": rng.binomial(BATCH, 0.01) / BATCH,
            "response/length_ratio": 1 + (longer - 1) * progress + float(noise(0, 0.06)),
            "response/repetition": abs(0.04 + 0.03 * progress + float(noise(0, 0.01))),
            "response/distinct": 0.7 - 0.12 * progress + float(noise(0, 0.02)),
            "rollout/lag": 0.0,
            "objective/kl_per_token": 0.0 if step == 1 else 0.001 * step,
            "policy/approxkl_avg": abs(float(other(0.01, 0.003))),
            "update/steps": 4.0,
            "kl_coef": 0.05,
            "rollout/sampler_z": float(other()),
            "time/reward_wait_s": abs(float(other(0.1, 0.05))),
            "time/step_s": 1.0,
            "reward/length_correlation": float(other(0.2, 0.2)),
            "reward/mode_share": abs(float(other(0.1, 0.03))),
            "reward/refusal_lift": float(other(0, 0.1)),
            "behaviour/refusal_share": abs(float(other(0.02, 0.01))),
            "numerics/non_finite": 0.0,
        }
        if step % EVAL_EVERY == 0:
            error = spread / math.sqrt(EVAL_PROMPTS) / 2  # the same prompts each time
            figures["eval/score"] = gain * progress + float(noise(0, error))
            figures["eval/held_out_score"] = 0.6 * gain * progress + float(noise(0, error))
            figures |= {"eval/canary_accuracy": 0.8, "eval/reward_data_accuracy": 0.8}
            figures |= {"eval/protocol": 17.0, "eval/reproducibility": 0.0}
            figures["eval/ended_share"] = 0.9 - abs(float(other(0, 0.05)))
        yield step, figures


def healthy_trainer(seed: int, steps: int = 200, *, start: float = 0.693) -> Stream:
    """Of a preference model or a fine-tuning: the loss falls, the held-out loss falls less."""
    rng = np.random.default_rng(seed)
    end, pace = rng.uniform(0.3, 0.8) * start, rng.uniform(20, 80)
    for step in range(1, steps + 1):
        progress = 1 - math.exp(-step / pace)
        course = start + (end - start) * progress
        figures: MetricValues = {
            "loss": course * (1 + float(rng.normal(0, 0.15 * progress + 0.02))),
            "grad_norm": float(np.exp(rng.normal(0, 0.6))),
        }
        if step % EVAL_EVERY == 0:
            figures["eval/loss"] = (course + 0.05 * progress) * (1 + float(rng.normal(0, 0.02)))
        yield step, figures


def planted(
    stream: Stream,
    fault: Callable[[int, MetricValues], Mapping[str, float | None]],
    *,
    since: int = 60,
) -> Stream:
    """The stream with what `fault` says of a step written over it, from step `since`."""
    for step, figures in stream:
        yield step, figures | dict(fault(step, figures)) if step >= since else figures


def watch(engine: Engine, stream: Stream) -> list[Violation]:
    return [violation for step, figures in stream for violation in engine.check(step, figures)]


def series_of(stream: Stream) -> dict[str, list[tuple[int, float | None]]]:
    """The stream as the curves of a run that is over."""
    series: dict[str, list[tuple[int, float | None]]] = {}
    for step, figures in stream:
        for name, value in figures.items():
            series.setdefault(name, []).append((step, value))
    return series


def level_after(step: int) -> Callable[[int, MetricValues], Mapping[str, float | None]]:
    """A divergence that alarms, and from `step` on answers that grow and a clip that is hit."""
    return lambda now, figures: (
        {"objective/kl": 14.0}
        | ({"response/length_ratio": 3.0, "policy/clipfrac_avg": 0.7} if now >= step else {})
    )


def healthy_tools(seed: int, steps: int = 80) -> Stream:
    """Of GRPO with tools: calls rise, the form is learned first, final states follow."""
    rng = np.random.default_rng(seed)
    pace, gain = rng.uniform(8, 25), rng.uniform(0.3, 0.7)
    for step in range(1, steps + 1):
        progress, formed = 1 - math.exp(-step / pace), 1 - math.exp(-step / 5)
        success = rng.binomial(BATCH, 0.1 + gain * progress) / BATCH
        yield (
            step,
            {
                "tools/success_share": success,
                "tools/part_share": min(1.0, success + 0.1),
                "tools/form_share": rng.binomial(BATCH, 0.5 + 0.45 * formed) / BATCH,
                "tools/named_only_share": rng.binomial(BATCH, 0.2 * (1 - progress)) / BATCH,
                "tools/call_frequency": 0.4 + 1.6 * progress + float(rng.normal(0, 0.1)),
                "tools/failure_frequency": 0.1,
                "tools/illegal_share": 0.05,
                "tools/turns": 1.4 + 1.4 * progress + float(rng.normal(0, 0.1)),
                "tools/tokens": 60 + 60 * progress + float(rng.normal(0, 4)),
                "tools/check_read_share": 0.0,
                "tools/replay_apart_share": 0.0,
                "objective/scores": success,
                "objective/scores_std": 0.4,
                "response/ended_share": 0.95,
            },
        )
