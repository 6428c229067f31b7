"""Every metric of a run: its name, title, unit, panel, order and what other libraries call it.

Names follow TRL where TRL has one. How each is estimated is in docs/metrics.md, which a test
compares with this table and with what the recipes emit. Charts, headers, guardrails, detectors and
imports read it; a name that is not here fails the tests of the recipe that reports it.

`<…>` in a name stands for anything: a split, a component of a reward, a phrase.
"""

import re
from dataclasses import dataclass, replace

TRAINING, EVALUATION, BEHAVIOUR = "training", "evaluation", "behaviour"
MACHINE = "machine"
PEOPLE = "people"  # of a project, and of no run


@dataclass(frozen=True, slots=True)
class Alias:
    """What `source` calls a metric. Only a figure of the same definition is one: a figure under
    another would be judged by a limit that is not its own. `convert` where it counts otherwise:
    "one less" (1 − x) or "size" (|x|). `kinds`: of what runs it is that."""

    source: str
    name: str
    convert: str = ""
    kinds: frozenset[str] = frozenset({"ppo", "grpo"})


@dataclass(frozen=True, slots=True)
class Metric:
    """`leads`: among the first charts of its panel, in the order of the table. `together`: all
    that the name stands for are one chart. `about` says what to look for."""

    name: str
    title: str
    unit: str
    panel: str
    about: str = ""
    leads: bool = False
    together: bool = False
    aliases: tuple[Alias, ...] = ()

    @property
    def prefix(self) -> str:
        """What the names that it stands for begin with."""
        return self.name.partition("<")[0]


def _openrlhf(name: str, *kinds: str) -> Alias:
    """What its trainers of runs on rows log."""
    return Alias("OpenRLHF", name, kinds=frozenset(kinds))


METRICS = (
    # --- training ---
    Metric(
        "loss",
        "Training loss",
        "nats",
        TRAINING,
        about="Mean since the last point.",
        leads=True,
        aliases=(_openrlhf("gpt_loss", "sft"),),
    ),
    Metric(
        "objective/scores",
        "Reward",
        "raw score",
        TRAINING,
        about="Mean of a batch. Raw scores have no origin: read changes.",
        leads=True,
        aliases=(
            Alias("TRL GRPO", "reward"),
            Alias("TRL PPO before 0.12", "ppo/mean_scores"),
            Alias("TRL PPO before 0.12", "env/reward_mean"),
            Alias("verl", "critic/score/mean"),
            Alias("Stable-Baselines3", "rollout/ep_rew_mean"),
            Alias("CleanRL", "charts/episodic_return"),
        ),
    ),
    Metric(
        "objective/kl",
        "KL to the reference",
        "nats per sequence",
        TRAINING,
        about="How far the policy is from where it began.",
        leads=True,
    ),
    Metric(
        "reward/component/<name>",
        "Reward by component",
        "raw score",
        TRAINING,
        about="Means of a batch.",
        leads=True,
        together=True,
    ),
    Metric(
        "verifier/correct_share",
        "Answers that the verifier finds right",
        "share",
        TRAINING,
        about="Of all verifiers of the reward.",
        leads=True,
    ),
    Metric("verifier/form_share", "Answers of the form asked for", "share", TRAINING),
    Metric(
        "objective/entropy_per_token",
        "Entropy",
        "nats per token",
        TRAINING,
        about="A fall towards 0 is the end of exploring.",
        leads=True,
        aliases=(
            Alias("TRL GRPO", "entropy"),
            Alias("TRL PPO", "policy/entropy_avg"),
            Alias("TRL PPO before 0.12", "ppo/policy/entropy"),
            Alias("verl", "actor/entropy"),
            Alias("verl", "actor/entropy_loss"),
            Alias("NeMo RL", "approx_entropy"),
            Alias("Stable-Baselines3", "entropy_loss", "size"),
            Alias("CleanRL", "losses/entropy"),
        ),
    ),
    Metric(
        "policy/entropy_avg", "Entropy after the update", "nats per token", TRAINING, leads=True
    ),
    Metric(
        "grpo/zero_variance_share",
        "Zero-variance groups",
        "share",
        TRAINING,
        about="They give no gradient.",
        leads=True,
        aliases=(Alias("TRL GRPO", "frac_reward_zero_std"),),
    ),
    Metric(
        "val/explained_variance",
        "Explained variance",
        "",
        TRAINING,
        about="Under 0 its values are worse than a constant.",
        leads=True,
        aliases=(
            Alias("TRL PPO before 0.12", "ppo/val/var_explained"),
            Alias("verl", "critic/vf_explained_var"),
            Alias("Stable-Baselines3", "explained_variance"),
            Alias("CleanRL", "losses/explained_variance"),
        ),
    ),
    Metric(
        "rewards/margins",
        "Margin of implicit rewards",
        "nats × β",
        TRAINING,
        about="What DPO and KTO widen.",
        leads=True,
    ),
    Metric(
        "policy/clipfrac_avg",
        "Clipped tokens",
        "share",
        TRAINING,
        leads=True,
        aliases=(
            Alias("TRL GRPO", "clip_ratio/region_mean"),
            Alias("TRL GRPO", "clip_ratio"),
            Alias("TRL PPO before 0.12", "ppo/policy/clipfrac"),
            Alias("verl", "actor/pg_clipfrac"),
            Alias("OpenRLHF", "ppo_clip_ratio"),
            Alias("Stable-Baselines3", "clip_fraction"),
            Alias("CleanRL", "losses/clipfrac"),
        ),
    ),
    Metric(
        "grad_norm",
        "Gradient norm",
        "",
        TRAINING,
        about="Before clipping.",
        leads=True,
        aliases=(
            Alias("verl", "actor/grad_norm"),
            Alias("OpenRLHF", "actor_grad_norm"),
        ),
    ),
    Metric(
        "accuracy",
        "Accuracy on training pairs",
        "share",
        TRAINING,
        leads=True,
        aliases=(_openrlhf("acc_mean", "reward"), _openrlhf("acc", "reward")),
    ),
    Metric("mean_token_accuracy", "Token accuracy", "share", TRAINING, leads=True),
    Metric(
        "learning_rate",
        "Learning rate",
        "",
        TRAINING,
        aliases=(
            Alias("TRL PPO", "lr"),
            Alias("TRL PPO before 0.12", "ppo/learning_rate"),
            Alias("verl", "actor/lr"),
            Alias("OpenRLHF", "actor_lr"),
            _openrlhf("lr", "sft", "reward", "dpo"),
            Alias("verl", "lr", kinds=frozenset({"sft"})),
            Alias("CleanRL", "charts/learning_rate"),
        ),
    ),
    Metric("epoch", "Passes over the data", "passes", TRAINING),
    Metric(
        "num_tokens",
        "Tokens trained on",
        "tokens",
        TRAINING,
        about="Of prompts and answers, since the run began.",
    ),
    Metric("entropy", "Entropy of the model", "nats per token", TRAINING),
    Metric(
        "kto/kl",
        "KL that KTO measures answers from (z₀)",
        "nats per sequence",
        TRAINING,
        about="On answers behind prompts that they do not belong to.",
    ),
    Metric("margin", "Margin of chosen over rejected", "raw score", TRAINING),
    Metric("mean_reward", "Mean score", "raw score", TRAINING),
    Metric(
        "rewards/chosen",
        "Implicit reward of chosen",
        "nats × β",
        TRAINING,
        aliases=(_openrlhf("chosen_reward", "dpo"),),
    ),
    Metric(
        "rewards/rejected",
        "Implicit reward of rejected",
        "nats × β",
        TRAINING,
        aliases=(_openrlhf("reject_reward", "dpo"),),
    ),
    Metric(
        "rewards/accuracies",
        "Pairs with a margin over 0",
        "share",
        TRAINING,
        aliases=(_openrlhf("acc_mean", "dpo"), _openrlhf("acc", "dpo")),
    ),
    Metric("logps/chosen", "Log-probability of chosen", "nats per sequence", TRAINING),
    Metric("logps/rejected", "Log-probability of rejected", "nats per sequence", TRAINING),
    Metric("logits/chosen", "Mean logit of chosen", "logits", TRAINING),
    Metric("logits/rejected", "Mean logit of rejected", "logits", TRAINING),
    Metric(
        "objective/kl_per_token",
        "KL to the reference, per token",
        "nats per token",
        TRAINING,
        aliases=(
            Alias("TRL GRPO", "kl"),
            Alias("verl", "actor/reward_kl_penalty"),
            Alias("verl", "actor/kl_loss"),
            Alias("NeMo RL", "kl_penalty"),
        ),
    ),
    Metric("objective/entropy", "Entropy of an answer", "nats per sequence", TRAINING),
    Metric(
        "objective/scores_std",
        "Standard deviation of the reward",
        "raw score",
        TRAINING,
        aliases=(
            Alias("TRL GRPO", "reward_std"),
            Alias("TRL PPO before 0.12", "ppo/std_scores"),
            Alias("TRL PPO before 0.12", "env/reward_std"),
        ),
    ),
    Metric(
        "objective/scores_running_std",
        "Running standard deviation of the reward",
        "raw score",
        TRAINING,
    ),
    Metric(
        "objective/non_score_reward",
        "KL penalty",
        "deviations",
        TRAINING,
        aliases=(Alias("TRL PPO before 0.12", "ppo/mean_non_score_reward"),),
    ),
    Metric(
        "objective/rlhf_reward",
        "Reward less KL penalty",
        "deviations",
        TRAINING,
        aliases=(Alias("verl", "critic/rewards/mean"),),
    ),
    Metric(
        "reward/calibrated_mean",
        "Calibrated reward",
        "0–1",
        TRAINING,
        about="½ is as good as the reference's answers.",
    ),
    Metric("reward/calibrated_std", "Standard deviation of the calibrated reward", "0–1", TRAINING),
    Metric(
        "reward/above_baseline_share",
        "Answers above nearly all of the reference's",
        "share",
        TRAINING,
    ),
    Metric("reward/outlier_share", "Rewards clipped", "share", TRAINING),
    Metric("reward/blocked_share", "Answers that break a hard rule", "share", TRAINING),
    Metric("reward/cache_hit_rate", "Scores from the cache", "share", TRAINING),
    Metric(
        "tools/success_share",
        "Final states that are right",
        "share",
        TRAINING,
        about="By the task's own check, whatever is rewarded.",
        leads=True,
    ),
    Metric(
        "tools/call_frequency",
        "Calls of tools",
        "per answer",
        TRAINING,
        about="Calls that rise while final states do not get better are paid for.",
        leads=True,
    ),
    Metric("tools/failure_frequency", "Calls that failed", "share of calls", TRAINING),
    Metric(
        "tools/illegal_share", "Calls of no tool, or with no fitting arguments", "share", TRAINING
    ),
    Metric("tools/turns", "Turns", "per answer", TRAINING),
    Metric("tools/tokens", "Tokens, results of tools included", "tokens per answer", TRAINING),
    Metric("tools/part_share", "Files and answers that are right", "share", TRAINING),
    Metric("tools/form_share", "Answers of the right form", "share", TRAINING),
    Metric(
        "tools/named_only_share", "Answers with the right names and wrong texts", "share", TRAINING
    ),
    Metric(
        "tools/check_read_share", "Answers whose tools read what is expected", "share", TRAINING
    ),
    Metric(
        "tools/replay_apart_share",
        "Answers that a fresh environment does not repeat",
        "share",
        TRAINING,
    ),
    Metric("rollout/lag", "Age of the rollouts", "versions", TRAINING),
    Metric("rollout/age", "Age of the rollouts in steps", "optimizer steps", TRAINING),
    Metric(
        "rollout/corrected_share",
        "Tokens with an importance weight other than 1",
        "share",
        TRAINING,
    ),
    Metric("rollout/capped_share", "Tokens at the importance cap", "share", TRAINING),
    Metric("rollout/importance_mean", "Mean importance weight", "", TRAINING),
    Metric("rollout/dropped", "Chunks dropped as too old", "chunks", TRAINING),
    Metric("rollout/redrawn", "Chunks drawn again", "chunks", TRAINING),
    Metric("rollout/workers_replaced", "Rollout actors replaced", "actors", TRAINING),
    Metric("reward/workers_replaced", "Reward actors replaced", "actors", TRAINING),
    Metric("rollout/sampler_z", "Sampler against policy (z)", "standard errors", TRAINING),
    Metric("numerics/non_finite", "Step skipped for NaN or infinity", "0 or 1", TRAINING),
    Metric("reward/truncated_share", "Answers truncated for scoring", "share", TRAINING),
    Metric(
        "reward/disagreement", "Disagreement of the ensemble", "validation deviations", TRAINING
    ),
    Metric("reward/flagged_share", "Answers over the disagreement threshold", "share", TRAINING),
    Metric("val/value_scale", "Scale of the values", "× the returns'", TRAINING),
    Metric(
        "val/value_mean",
        "Mean value",
        "deviations",
        TRAINING,
        aliases=(
            Alias("TRL PPO before 0.12", "ppo/val/mean"),
            Alias("verl", "critic/values/mean"),
            Alias("OpenRLHF", "values"),
        ),
    ),
    Metric("reward/mode_share", "Answers at the most common score", "share", TRAINING),
    Metric("reward/kurtosis", "Kurtosis of the reward", "", TRAINING),
    Metric(
        "kl_coef",
        "KL coefficient",
        "deviations per nat",
        TRAINING,
        aliases=(
            Alias("TRL PPO before 0.12", "objective/kl_coef"),
            Alias("verl", "actor/reward_kl_penalty_coeff"),
        ),
    ),
    Metric(
        "loss/policy_avg",
        "Policy loss",
        "",
        TRAINING,
        about="Read the scores rather than this.",
        aliases=(
            Alias("TRL PPO before 0.12", "ppo/loss/policy"),
            Alias("verl", "actor/pg_loss"),
            Alias("OpenRLHF", "policy_loss"),
            Alias("Stable-Baselines3", "policy_gradient_loss"),
            Alias("CleanRL", "losses/policy_loss"),
        ),
    ),
    Metric(
        "loss/value_avg",
        "Value loss",
        "deviations²",
        TRAINING,
        aliases=(
            Alias("TRL PPO before 0.12", "ppo/loss/value"),
            Alias("verl", "critic/vf_loss"),
            Alias("OpenRLHF", "critic_loss"),
            Alias("Stable-Baselines3", "value_loss"),
            Alias("CleanRL", "losses/value_loss"),
        ),
    ),
    Metric(
        "policy/approxkl_avg",
        "KL of an update",
        "nats per token",
        TRAINING,
        aliases=(
            Alias("TRL PPO before 0.12", "ppo/policy/approxkl"),
            Alias("verl", "actor/ppo_kl"),
            Alias("OpenRLHF", "ppo_kl"),
            Alias("Stable-Baselines3", "approx_kl"),
            Alias("CleanRL", "losses/approx_kl"),
        ),
    ),
    Metric("val/ratio", "Mean probability ratio", "", TRAINING),
    Metric("grad_norm_max", "Largest gradient norm", "", TRAINING),
    Metric("policy/ratio_max", "Largest probability ratio", "", TRAINING),
    Metric("policy/logprob_min", "Least likely token", "nats", TRAINING),
    Metric("update/steps", "Optimizer steps of an update", "steps", TRAINING),
    Metric("update/skipped_minibatches", "Minibatches skipped", "minibatches", TRAINING),
    Metric("update/stopped_by_kl", "Update stopped early (KL)", "0 or 1", TRAINING),
    Metric(
        "time/rollout_s",
        "Time of rollouts",
        "s",
        TRAINING,
        aliases=(
            Alias("verl", "timing_s/gen"),
            Alias("OpenRLHF", "timing/generation"),
            Alias("NeMo RL", "timing/train/generation"),
        ),
    ),
    Metric(
        "time/reward_s",
        "Time of scoring",
        "s",
        TRAINING,
        aliases=(
            Alias("TRL GRPO", "profiling/Time taken: GRPOTrainer._calculate_rewards"),
            Alias("verl", "timing_s/reward"),
        ),
    ),
    Metric("time/reward_wait_s", "Time waiting for scores", "s", TRAINING),
    Metric(
        "time/update_s",
        "Time of the update",
        "s",
        TRAINING,
        aliases=(
            Alias("verl", "timing_s/update_actor"),
            Alias("NeMo RL", "timing/train/policy_training"),
        ),
    ),
    Metric("time/broadcast_s", "Time of sending weights", "s", TRAINING),
    Metric(
        "time/step_s",
        "Time of a step",
        "s",
        TRAINING,
        aliases=(
            Alias("TRL GRPO", "step_time"),
            Alias("TRL PPO before 0.12", "time/ppo/total"),
            Alias("verl", "timing_s/step"),
            Alias("OpenRLHF", "timing/step_total"),
            Alias("NeMo RL", "timing/train/total_step_time"),
        ),
    ),
    Metric("throughput/response_tokens_per_s", "Throughput", "tokens/s", TRAINING),
    Metric("grpo/within_group_std", "Standard deviation within a group", "raw score", TRAINING),
    Metric("grpo/between_groups_std", "Standard deviation between groups", "raw score", TRAINING),
    Metric("grpo/rank_agreement", "Rank agreement with the judge", "share", TRAINING),
    Metric("grpo/advantage_abs", "Mean size of the advantages", "", TRAINING),
    Metric(
        "masks/answer_share",
        "Tokens under the loss",
        "share of the answers' tokens",
        TRAINING,
        about="1 where the loss covers the answers and nothing else.",
    ),
    Metric("data/truncated_share", "Training rows cut or left out", "share", TRAINING),
    Metric("data/leaked_share", "Held-out rows that are training rows", "share", TRAINING),
    Metric(
        "data/longer_chosen_share", "Pairs whose chosen answer is the longer", "share", TRAINING
    ),
    Metric("data/passes", "Planned passes over the rows", "", TRAINING),
    Metric(
        "learning_rate/to_weights",
        "Learning rate over the weights",
        "× their root mean square",
        TRAINING,
        about="At the start; a step of Adam moves each weight by about the learning rate.",
    ),
    Metric("data/unended_share", "Training rows without an end token", "share", TRAINING),
    Metric(
        "data/template_mismatch_share",
        "Prompts that read otherwise when asked",
        "share",
        TRAINING,
        about="The template shows a prompt otherwise before an answer than when one is asked for.",
    ),
    Metric("drill/value", "Value", "", TRAINING),
    Metric("drill/value_<n>", "Value", "", TRAINING),
    # --- evaluation ---
    Metric(
        "eval/held_out_score",
        "Held-out reward",
        "raw score of the judge",
        EVALUATION,
        about="By a model that is never optimised against. Its fall beside a rising reward is "
        "overoptimisation.",
        leads=True,
    ),
    Metric("eval/score", "Reward on fixed prompts", "raw score", EVALUATION, leads=True),
    Metric(
        "eval/loss",
        "Held-out loss",
        "nats",
        EVALUATION,
        leads=True,
        aliases=(
            _openrlhf("eval/eval_loss", "reward", "dpo"),
            _openrlhf("eval/eval gpt_loss", "sft"),
            Alias("verl", "val/loss", kinds=frozenset({"sft"})),
        ),
    ),
    Metric(
        "eval/accuracy",
        "Held-out accuracy",
        "share",
        EVALUATION,
        leads=True,
        aliases=(_openrlhf("eval/acc_mean", "reward"),),
    ),
    Metric(
        "eval/rewards/accuracies",
        "Held-out pairs with a margin over 0",
        "share",
        EVALUATION,
        leads=True,
        aliases=(_openrlhf("eval/acc_mean", "dpo"),),
    ),
    Metric(
        "eval/canary_accuracy",
        "Accuracy on canary pairs",
        "share",
        EVALUATION,
        about="Pairs with a known answer that the reward gets right.",
        leads=True,
    ),
    Metric(
        "eval/trained_accuracy",
        "Accuracy on pairs it learns from",
        "share",
        EVALUATION,
        about="On fixed ones. Far over the held-out accuracy they are memorised.",
    ),
    Metric(
        "eval/trained_loss",
        "Loss on rows it learns from",
        "nats per token",
        EVALUATION,
        about="On fixed ones. Far under the held-out loss they are memorised.",
    ),
    Metric(
        "eval/general_loss",
        "Loss on general rows",
        "nats per token",
        EVALUATION,
        about="Of the input 'general'. A rise is what the training unlearns.",
    ),
    Metric(
        "eval/log_ratio_size",
        "Distance from the reference on fixed pairs",
        "nats per token",
        EVALUATION,
        about="Mean size of log π − log π_ref. 0 before the first step.",
    ),
    Metric(
        "eval/longer_excess",
        "Longer answers preferred, less what people do",
        "share",
        EVALUATION,
        about="Share of held-out pairs whose longer answer it prefers, less people's.",
    ),
    Metric(
        "eval/length_correlation",
        "Rank correlation of held-out margins with length",
        "",
        EVALUATION,
        about="Of a pair's margin with how much longer its chosen answer is.",
    ),
    Metric("eval/margin_size", "Median size of a held-out margin", "raw score", EVALUATION),
    Metric(
        "eval/temperature",
        "Temperature at which margins are calibrated",
        "",
        EVALUATION,
        about="Over 1 it is over-confident.",
    ),
    Metric("ensemble/correlation", "Correlation of the members' margins", "", EVALUATION),
    Metric("eval/kl", "KL on fixed prompts", "nats per sequence", EVALUATION, leads=True),
    Metric(
        "eval/reward_data_accuracy",
        "Accuracy of the reward on its training pairs",
        "share",
        EVALUATION,
        leads=True,
    ),
    Metric("eval/win_rate", "Win rate against SFT", "share", EVALUATION, leads=True),
    Metric("eval/checks_passed", "Checks passed", "share", EVALUATION, leads=True),
    Metric("eval/checks_difference", "Checks passed, policy − SFT", "share", EVALUATION),
    Metric("eval/factuality", "Right answers", "share", EVALUATION, leads=True),
    Metric("eval/factuality_difference", "Right answers, policy − SFT", "share", EVALUATION),
    Metric("eval/mean_token_accuracy", "Held-out token accuracy", "share", EVALUATION, leads=True),
    Metric("eval/entropy", "Held-out entropy", "nats per token", EVALUATION),
    Metric("eval/margin", "Held-out margin", "raw score", EVALUATION),
    Metric(
        "eval/mean_reward",
        "Held-out mean score",
        "raw score",
        EVALUATION,
        aliases=(_openrlhf("eval/reward_mean", "reward"),),
    ),
    Metric("report/<split>/accuracy", "Accuracy on a whole split", "share", EVALUATION),
    Metric(
        "report/<split>/length_only_accuracy",
        "Accuracy of “the longer answer wins”",
        "share",
        EVALUATION,
    ),
    Metric("report/<split>/margin", "Margin on a whole split", "raw score", EVALUATION),
    Metric("eval/kto/kl", "Held-out KL that KTO measures from", "nats per sequence", EVALUATION),
    Metric("eval/rewards/chosen", "Held-out implicit reward of chosen", "nats × β", EVALUATION),
    Metric("eval/rewards/rejected", "Held-out implicit reward of rejected", "nats × β", EVALUATION),
    Metric("eval/rewards/margins", "Held-out margin of implicit rewards", "nats × β", EVALUATION),
    Metric(
        "eval/logps/chosen", "Held-out log-probability of chosen", "nats per sequence", EVALUATION
    ),
    Metric(
        "eval/logps/rejected",
        "Held-out log-probability of rejected",
        "nats per sequence",
        EVALUATION,
    ),
    Metric("eval/logits/chosen", "Held-out mean logit of chosen", "logits", EVALUATION),
    Metric("eval/logits/rejected", "Held-out mean logit of rejected", "logits", EVALUATION),
    Metric("eval/calibrated_mean", "Calibrated reward on fixed prompts", "0–1", EVALUATION),
    Metric("eval/response_length", "Length on fixed prompts", "tokens", EVALUATION),
    Metric("eval/ended_share", "Answers ended on fixed prompts", "share", EVALUATION),
    Metric("steps/accuracy", "Accuracy of steps", "share", TRAINING, leads=True),
    Metric(
        "eval/steps/first_error_f1",
        "F1 of first errors, held out",
        "0–1",
        EVALUATION,
        about="Of finding the first error and of passing trajectories without one.",
        leads=True,
    ),
    Metric("eval/steps/accuracy", "Accuracy of held-out steps", "share", EVALUATION, leads=True),
    Metric("eval/steps/majority", "Held-out steps of the commoner label", "share", EVALUATION),
    Metric("eval/steps/error_located", "First errors found exactly", "share", EVALUATION),
    Metric("eval/steps/right_passed", "Right trajectories passed", "share", EVALUATION),
    Metric("eval/steps/ece", "Calibration error of steps", "0–1", EVALUATION),
    Metric("eval/steps/explained", "Entropy of the labels explained", "share", EVALUATION),
    Metric(
        "eval/steps/next_over_own",
        "A changed step's effect on the next score over that on its own",
        "×",
        EVALUATION,
        about="Far over 1, labels belong to the step before.",
    ),
    Metric("eval/success_share", "Right final states on fixed prompts", "share", EVALUATION),
    Metric("eval/canary_pairs", "Canary pairs", "pairs", EVALUATION),
    Metric("eval/reproducibility", "Largest change of a repeated score", "deviations", EVALUATION),
    Metric(
        "eval/protocol",
        "Evaluation protocol",
        "",
        EVALUATION,
        about="A change means another protocol.",
    ),
    Metric("eval/win_rate_by_reward", "Win rate by the reward", "share", EVALUATION),
    Metric("assess/green", "Lines that hold", "lines", EVALUATION),
    Metric("assess/red", "Lines that fail", "lines", EVALUATION),
    Metric("assess/unmeasured", "Lines not measured", "lines", EVALUATION),
    Metric("assess/line/<line>", "Line of the assessment", "as the line", EVALUATION),
    # --- behaviour ---
    Metric(
        "response/length",
        "Length",
        "tokens",
        BEHAVIOUR,
        leads=True,
        aliases=(
            Alias("TRL GRPO", "completions/mean_length"),
            Alias("TRL GRPO", "completion_length"),
            Alias("TRL PPO before 0.12", "tokens/responses_len_mean"),
            Alias("verl", "response_length/mean"),
            Alias("OpenRLHF", "response_length"),
            Alias("NeMo RL", "mean_gen_tokens_per_sample"),
            Alias("Stable-Baselines3", "rollout/ep_len_mean"),
            Alias("CleanRL", "charts/episodic_length"),
        ),
    ),
    Metric(
        "behaviour/phrase/<phrase>",
        "Flagged phrases",
        "share",
        BEHAVIOUR,
        about="Under the policy; dashed: under the reference, before the first step.",
        leads=True,
        together=True,
    ),
    Metric(
        "response/repetition",
        "Repetition",
        "share",
        BEHAVIOUR,
        about="4-grams that stood before.",
        leads=True,
    ),
    Metric("behaviour/refusal_share", "Refusals", "share", BEHAVIOUR, leads=True),
    Metric(
        "response/distinct",
        "Diversity",
        "share",
        BEHAVIOUR,
        about="Distinct 2-grams of a batch.",
        leads=True,
    ),
    Metric(
        "reward/length_correlation",
        "Correlation of reward and length",
        "−1 to 1",
        BEHAVIOUR,
        about="Near 1 the reward pays for length.",
        leads=True,
    ),
    Metric(
        "behaviour/template_share",
        "Answers with the same beginning",
        "share",
        BEHAVIOUR,
        leads=True,
    ),
    Metric(
        "response/ended_share",
        "Answers that ended by themselves",
        "share",
        BEHAVIOUR,
        aliases=(
            Alias("TRL GRPO", "completions/clipped_ratio", "one less"),
            Alias("verl", "response_length/clip_ratio", "one less"),
        ),
    ),
    Metric("response/length_to_rows", "Length against the rows' answers", "×", BEHAVIOUR),
    Metric(
        "response/length_ratio", "Length against the reference's", "× the reference's", BEHAVIOUR
    ),
    Metric(
        "reward/refusal_lift", "Reward of refusals less that of others", "deviations", BEHAVIOUR
    ),
    Metric(
        "reward/phrase_lift/<phrase>",
        "Reward of a flagged phrase",
        "deviations",
        BEHAVIOUR,
        about="Reward with the phrase less reward without it.",
        together=True,
    ),
    Metric("behaviour/politeness_share", "Polite phrases", "share", BEHAVIOUR),
    Metric("behaviour/compression", "Compression ratio", "×", BEHAVIOUR),
    Metric("behaviour/copied_share", "Copied from the demonstrations", "share", BEHAVIOUR),
    Metric("behaviour/refusal_share/reference", "Refusals of the reference", "share", BEHAVIOUR),
    Metric(
        "behaviour/politeness_share/reference",
        "Polite phrases of the reference",
        "share",
        BEHAVIOUR,
    ),
    Metric(
        "behaviour/phrase/<phrase>/reference",
        "Flagged phrase under the reference",
        "share",
        BEHAVIOUR,
    ),
    Metric("behaviour/copied_share/reference", "Copied by the reference", "share", BEHAVIOUR),
    # --- the machine, by time ---
    Metric(
        "machine/cpu",
        "CPU of the run",
        "cores",
        MACHINE,
        about="All processes of the run on this machine.",
        leads=True,
    ),
    Metric(
        "machine/memory",
        "Memory of the run",
        "GiB",
        MACHINE,
        about="Resident; pages that processes share count in each.",
        leads=True,
    ),
    Metric(
        "machine/gpu_use/<gpu>",
        "GPU utilisation",
        "share",
        MACHINE,
        about="Of the time in which a kernel was running.",
        leads=True,
        together=True,
    ),
    Metric(
        "machine/gpu_memory/<gpu>",
        "GPU memory in use",
        "GiB",
        MACHINE,
        about="Of the whole card, whoever uses it.",
        leads=True,
        together=True,
    ),
    Metric("machine/step", "Step reached", "steps", MACHINE, about="Flat where the run waits."),
    Metric("machine/cpu_all", "CPU of the machine", "cores", MACHINE),
    Metric("machine/memory_all", "Memory of the machine in use", "GiB", MACHINE),
    Metric(
        "machine/disk_free",
        "Free space in the work folder",
        "GiB",
        MACHINE,
        about="At 0 the run ends with disk_full.",
    ),
    Metric("machine/disk_read", "Read from disk", "MiB/s", MACHINE, about="By the run."),
    Metric("machine/disk_written", "Written to disk", "MiB/s", MACHINE, about="By the run."),
    # --- people and data of a project ---
    Metric("people/agreement_fall", "Fall of agreement", "share of vote pairs", PEOPLE),
    Metric(
        "people/agreement_fall_errors",
        "Fall of agreement, in standard errors",
        "standard errors",
        PEOPLE,
    ),
    Metric(
        "people/guideline_fall",
        "Fall of agreement with the newest guidelines",
        "share of vote pairs",
        PEOPLE,
    ),
    Metric(
        "people/guideline_fall_errors",
        "Fall with the newest guidelines, in standard errors",
        "standard errors",
        PEOPLE,
    ),
    Metric(
        "people/batch_gap",
        "Agreement of the worst batch below the rest",
        "share of vote pairs",
        PEOPLE,
    ),
    Metric(
        "people/batch_gap_errors", "The worst batch, in standard errors", "standard errors", PEOPLE
    ),
    Metric(
        "people/gold_error_rise", "Rise of errors on gold pairs", "share of gold answers", PEOPLE
    ),
    Metric(
        "people/gold_error_rise_errors",
        "Rise of gold errors, in standard errors",
        "standard errors",
        PEOPLE,
    ),
    Metric(
        "people/audit_error_rise",
        "Rise of votes that audits contradict",
        "share of audited votes",
        PEOPLE,
    ),
    Metric(
        "people/audit_error_rise_errors",
        "Rise of audit errors, in standard errors",
        "standard errors",
        PEOPLE,
    ),
    Metric("people/audits_overdue", "Audits overdue", "votes", PEOPLE),
    Metric("people/annotators_flagged", "Flagged annotators who count", "people", PEOPLE),
    Metric("people/pairs_stuck", "Pairs that wait for a ruling", "pairs", PEOPLE),
    Metric("people/budget_spent", "Spent of the label budget", "share of the budget", PEOPLE),
    Metric(
        "people/pairs_since_reward_model", "Decided pairs after the reward model", "pairs", PEOPLE
    ),
    Metric(
        "people/pairs_of_reward_model", "Pairs that the reward model learned from", "pairs", PEOPLE
    ),
    Metric(
        "people/days_since_evaluation",
        "Days since the model in service was evaluated",
        "days",
        PEOPLE,
    ),
    Metric("people/disk_used", "Fullest disk", "share of the disk", PEOPLE),
)

_BY_NAME = {metric.name: metric for metric in METRICS}
_PATTERNS = [
    (re.compile(re.sub(r"<\w+>", r"([^<>]+)", re.escape(metric.name))), metric)
    for metric in METRICS
    if "<" in metric.name
]


def metric_of(name: str) -> Metric | None:
    """The metric of that name; of several that share an entry the title says which it is
    ("Accuracy on a whole split: dev"). None where it is not registered."""
    if found := _BY_NAME.get(name):
        return found
    shared = [(metric, hit[1]) for pattern, metric in _PATTERNS if (hit := pattern.fullmatch(name))]
    if not shared:
        return None
    metric, which = max(shared, key=lambda one: len(one[0].name))
    return replace(metric, title=f"{metric.title}: {which}")


def metric_or_own(name: str) -> Metric:
    """Of any name: what another version or another trainer reports goes by its own."""
    return metric_of(name) or Metric(name, name, "", _panel_of(name))


def _panel_of(name: str) -> str:
    """Where a metric belongs that is not registered."""
    if name.startswith("eval/"):
        return EVALUATION
    return BEHAVIOUR if name.startswith(("response/", "behaviour/")) else TRAINING


@dataclass(frozen=True, slots=True)
class Headline:
    """A figure in the header of a run. `names`: metrics in order of preference; the first that was
    measured is shown, under `label` and with `unit` where they say more than the metric's own."""

    names: tuple[str, ...]
    label: str = ""
    unit: str = ""
    is_count: bool = False

    @property
    def title(self) -> str:
        return self.label or metric_or_own(self.names[0]).title

    @property
    def said(self) -> str:
        return self.unit or metric_or_own(self.names[0]).unit


_KL = Headline(("objective/kl",))
_REWARD = Headline(("objective/scores",), unit="raw score, mean of a batch")

# The few figures that matter for each kind of run.
HEADLINES: dict[str, tuple[Headline, ...]] = {
    "sft": (
        Headline(("eval/loss",), unit="nats per token"),
        Headline(("loss",), unit="nats per token"),
    ),
    "reward": (
        Headline(("eval/accuracy",), unit="share of pairs"),
        Headline(("accuracy",), unit="share of pairs"),
    ),
    "process_reward": (
        Headline(("eval/steps/first_error_f1",), "F1 of first errors", "held out"),
        Headline(("eval/steps/accuracy",), "Accuracy of steps", "held out"),
    ),
    "dpo": (
        Headline(("eval/rewards/accuracies",), "Held-out accuracy", "share of pairs"),
        Headline(("eval/rewards/margins", "rewards/margins"), "Margin"),
        _KL,
    ),
    "kto": (
        Headline(("eval/rewards/margins", "rewards/margins"), "Margin"),
        Headline(("eval/loss",), "Held-out loss", "0–1 × weight"),
        _KL,
    ),
    "ppo": (
        _REWARD,
        Headline(("eval/held_out_score",), unit="another model's score"),
        _KL,
        Headline(("policy/entropy_avg",), "Entropy"),
    ),
    "grpo": (
        _REWARD,
        Headline(("eval/held_out_score", "eval/score"), "On fixed prompts", "by the judge, if any"),
        Headline(("grpo/zero_variance_share",), unit="share; they give no gradient"),
        _KL,
    ),
    "evaluate": (
        Headline(("eval/win_rate",), unit="by the held-out judge"),
        Headline(("eval/win_rate_by_reward",), unit="what was trained on"),
        Headline(("eval/held_out_score",), unit="another model's score"),
        Headline(("eval/kl",), "KL to the reference"),
    ),
    "assess": (
        Headline(("assess/line/accuracy",), "Accuracy on unseen pairs", "share of pairs"),
        Headline(("assess/red",), unit="of the reward model's page", is_count=True),
        Headline(("assess/unmeasured",), unit="of the reward model's page", is_count=True),
    ),
    "drill": (Headline(("drill/value",)),),
}


def headline_names(kind: str) -> list[str]:
    """In the order in which they are shown, each once."""
    return list(dict.fromkeys(name for one in HEADLINES.get(kind, ()) for name in one.names))
