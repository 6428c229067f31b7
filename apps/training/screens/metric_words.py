"""What a metric is called on a page, in which unit it is, and what to look for in it.

Titles and hints for people; how each figure is estimated is in docs/metrics.md. A metric that is
not here is shown under its own name.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetricWords:
    title: str
    unit: str = ""
    about: str = ""


WORDS: dict[str, MetricWords] = {
    # --- what is optimised ---
    "loss": MetricWords("Training loss", "nats", "Mean since the last point."),
    "loss/policy_avg": MetricWords("Policy loss", "", "Read the scores rather than this."),
    "loss/value_avg": MetricWords("Value loss", "deviations²"),
    "objective/scores": MetricWords(
        "Reward", "raw score", "Mean of a batch. Raw scores have no origin: read changes."
    ),
    "objective/scores_std": MetricWords("Spread of the reward", "raw score"),
    "objective/scores_running_std": MetricWords("Spread of all rewards so far", "raw score"),
    "objective/rlhf_reward": MetricWords("Reward less the price of KL", "deviations"),
    "objective/non_score_reward": MetricWords("Price of KL", "deviations"),
    "objective/kl": MetricWords(
        "KL to the reference", "nats per sequence", "How far the policy is from where it began."
    ),
    "objective/kl_per_token": MetricWords("KL to the reference, per token", "nats per token"),
    "objective/entropy": MetricWords("Entropy of an answer", "nats per sequence"),
    "objective/entropy_per_token": MetricWords(
        "Entropy", "nats per token", "A fall towards 0 is the end of exploring."
    ),
    "accuracy": MetricWords("Accuracy on training pairs", "share"),
    "margin": MetricWords("Margin of chosen over rejected", "raw score"),
    "mean_reward": MetricWords("Mean score", "raw score"),
    "mean_token_accuracy": MetricWords("Tokens guessed right", "share"),
    "entropy": MetricWords("Entropy", "nats per token"),
    "rewards/margins": MetricWords("Margin", "nats × β", "What DPO widens."),
    "rewards/accuracies": MetricWords("Pairs with a margin over 0", "share"),
    "rewards/chosen": MetricWords("Implicit reward of chosen", "nats × β"),
    "rewards/rejected": MetricWords("Implicit reward of rejected", "nats × β"),
    "logps/chosen": MetricWords("Log-probability of chosen", "nats per sequence"),
    "logps/rejected": MetricWords("Log-probability of rejected", "nats per sequence"),
    # --- the reward ---
    "reward/calibrated_mean": MetricWords(
        "Calibrated reward", "0–1", "½ is as good as the reference's answers."
    ),
    "reward/calibrated_std": MetricWords("Spread of the calibrated reward", "0–1"),
    "reward/above_baseline_share": MetricWords(
        "Answers above nearly all of the reference's", "share"
    ),
    "reward/outlier_share": MetricWords("Rewards cut to the clip", "share"),
    "reward/disagreement": MetricWords("Disagreement of the ensemble", "validation deviations"),
    "reward/flagged_share": MetricWords("Answers not trusted", "share"),
    "reward/blocked_share": MetricWords("Answers that break a hard rule", "share"),
    "reward/cache_hit_rate": MetricWords("Scores known already", "share"),
    "reward/truncated_share": MetricWords("Answers not read to their end", "share"),
    "reward/length_correlation": MetricWords(
        "Reward with length", "rank correlation", "Near 1 the reward pays for length."
    ),
    "reward/mode_share": MetricWords("Answers at the commonest score", "share"),
    "reward/kurtosis": MetricWords("Weight of extreme rewards", "excess kurtosis"),
    "reward/refusal_lift": MetricWords("What a refusal earns", "running deviations"),
    # --- the update ---
    "policy/approxkl_avg": MetricWords("KL of an update", "nats per token"),
    "policy/clipfrac_avg": MetricWords("Clipped tokens", "share"),
    "policy/entropy_avg": MetricWords("Entropy after the update", "nats per token"),
    "policy/ratio_max": MetricWords("Largest ratio of an update"),
    "policy/logprob_min": MetricWords("Least likely token", "nats"),
    "update/steps": MetricWords("Optimizer steps of an update", "steps"),
    "update/stopped_by_kl": MetricWords("Update cut short", "0 or 1"),
    "update/skipped_minibatches": MetricWords("Minibatches skipped", "minibatches"),
    "val/explained_variance": MetricWords(
        "What the critic explains", "", "Under 0 its values are worse than a constant."
    ),
    "val/value_scale": MetricWords("Scale of the values", "× the returns'"),
    "val/value_mean": MetricWords("Mean value", "deviations"),
    "val/ratio": MetricWords("Mean ratio of an update"),
    "grad_norm": MetricWords("Gradient norm", "", "Before clipping."),
    "grad_norm_max": MetricWords("Largest gradient norm"),
    "learning_rate": MetricWords("Learning rate"),
    "kl_coef": MetricWords("Price of a nat of KL", "deviations per nat"),
    "epoch": MetricWords("Passes over the data", "passes"),
    "grpo/zero_variance_share": MetricWords("Silent groups", "share", "They teach nothing."),
    "grpo/within_group_std": MetricWords("Spread within a group", "raw score"),
    "grpo/between_groups_std": MetricWords("Spread between groups", "raw score"),
    "grpo/rank_agreement": MetricWords("Agreement with the judge in a group", "share"),
    "grpo/advantage_abs": MetricWords("Size of the advantages"),
    "rollout/lag": MetricWords("Age of the rollouts", "versions"),
    "rollout/sampler_z": MetricWords("Sampler against policy", "standard errors"),
    "numerics/non_finite": MetricWords("Step skipped for NaN or infinity", "0 or 1"),
    # --- on held-out data ---
    "eval/loss": MetricWords("Held-out loss", "nats"),
    "eval/accuracy": MetricWords("Held-out accuracy", "share"),
    "eval/margin": MetricWords("Held-out margin", "raw score"),
    "eval/mean_reward": MetricWords("Held-out mean score", "raw score"),
    "eval/mean_token_accuracy": MetricWords("Held-out tokens guessed right", "share"),
    "eval/score": MetricWords("Reward on fixed prompts", "raw score"),
    "eval/held_out_score": MetricWords(
        "Held-out reward",
        "raw score of the judge",
        "By a model that is never optimised against. Its fall beside a rising reward is "
        "overoptimisation.",
    ),
    "eval/calibrated_mean": MetricWords("Calibrated reward on fixed prompts", "0–1"),
    "eval/kl": MetricWords("KL on fixed prompts", "nats per sequence"),
    "eval/response_length": MetricWords("Length on fixed prompts", "tokens"),
    "eval/ended_share": MetricWords("Answers ended on fixed prompts", "share"),
    "eval/win_rate": MetricWords("Win rate against SFT", "share"),
    "eval/win_rate_by_reward": MetricWords("Win rate by the reward", "share"),
    "eval/rewards/accuracies": MetricWords("Held-out pairs with a margin over 0", "share"),
    "eval/rewards/margins": MetricWords("Held-out margin", "nats × β"),
    "eval/canary_accuracy": MetricWords(
        "Canary pairs", "share", "Pairs with a known answer that the reward gets right."
    ),
    "eval/reward_data_accuracy": MetricWords("The reward on its own data", "share"),
    "eval/protocol": MetricWords("Evaluation protocol", "", "A change means another protocol."),
    "eval/reproducibility": MetricWords("Same answer, same score", "running deviations"),
    # --- what answers look like ---
    "response/length": MetricWords("Length", "tokens"),
    "response/length_ratio": MetricWords("Length against the reference's", "× the reference's"),
    "response/ended_share": MetricWords("Answers that ended by themselves", "share"),
    "response/repetition": MetricWords("Repetition", "share", "4-grams that stood before."),
    "response/distinct": MetricWords("Diversity", "share", "Distinct 2-grams of a batch."),
    "behaviour/refusal_share": MetricWords("Refusals", "share"),
    "behaviour/politeness_share": MetricWords("Polite phrases", "share"),
    "behaviour/template_share": MetricWords("Same beginning", "share"),
    "behaviour/compression": MetricWords("Compression", "ratio"),
    "behaviour/copied_share": MetricWords("Copied from the demonstrations", "share"),
    # --- time ---
    "time/step_s": MetricWords("A step", "s"),
    "time/rollout_s": MetricWords("Rollouts", "s"),
    "time/reward_s": MetricWords("Scoring", "s"),
    "time/reward_wait_s": MetricWords("Waiting for scores", "s"),
    "time/update_s": MetricWords("The update", "s"),
    "throughput/response_tokens_per_s": MetricWords("Pace", "tokens/s"),
    "assess/accuracy": MetricWords("Accuracy on unseen pairs", "share"),
    "assess/red": MetricWords("Red lines", "lines"),
    "drill/value": MetricWords("Value"),
}


def words_of(name: str) -> MetricWords:
    """Of any metric; one of another version or another trainer goes by its own name."""
    return WORDS.get(name) or MetricWords(name)
