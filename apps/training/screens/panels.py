"""The charts of a run in three panels: training, evaluation, behaviour (SPEC F1).

Of each panel the few charts that matter most come first; the others are folded away. A chart holds
one metric, or those that are read together: the components of a reward, the flagged phrases.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from apps.training.headline import metric_names

# What a metric is called on a page, in which unit it is, and what to look for in it.
#
# Titles and hints for people; how each figure is estimated is in docs/metrics.md. A metric that is
# not here is shown under its own name.


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


TRAINING, EVALUATION, BEHAVIOUR = "training", "evaluation", "behaviour"
MOST_LEADING = 4  # charts of a panel that are open when the page is


@dataclass(frozen=True, slots=True)
class Panel:
    key: str
    title: str
    about: str


PANELS = (
    Panel(TRAINING, "Training", "What is optimised, and how the updates go."),
    Panel(
        EVALUATION, "Evaluation", "The same prompts or rows each time, which nothing learns from."
    ),
    Panel(BEHAVIOUR, "Behaviour", "What the answers look like, whatever they score."),
)

_EVALUATION = ("eval/", "report/", "assess/")
_BEHAVIOUR = ("response/", "behaviour/", "reward/phrase_lift/")
_BEHAVIOUR_NAMES = frozenset({"reward/length_correlation", "reward/refusal_lift"})


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics of one chart: those whose names begin so; each is called by what follows."""

    prefix: str
    title: str
    unit: str
    about: str = ""


FAMILIES = (
    Family("reward/component/", "Reward by component", "raw score", "Means of a batch."),
    Family(
        "behaviour/phrase/",
        "Flagged phrases",
        "share of answers",
        "Under the policy; dashed: under the reference, before the first step.",
    ),
    Family(
        "reward/phrase_lift/",
        "What a flagged phrase earns",
        "running deviations",
        "Reward with the phrase less reward without it.",
    ),
)

# Which charts lead, in this order; the headline metrics of the kind come before these.
LEADING = (
    "loss",
    "objective/scores",
    "objective/kl",
    "reward/component/",
    "objective/entropy_per_token",
    "policy/entropy_avg",
    "grpo/zero_variance_share",
    "val/explained_variance",
    "rewards/margins",
    "policy/clipfrac_avg",
    "grad_norm",
    "accuracy",
    "mean_token_accuracy",
    "eval/held_out_score",
    "eval/score",
    "eval/loss",
    "eval/accuracy",
    "eval/rewards/accuracies",
    "eval/canary_accuracy",
    "eval/kl",
    "eval/reward_data_accuracy",
    "eval/win_rate",
    "eval/mean_token_accuracy",
    "response/length",
    "behaviour/phrase/",
    "response/repetition",
    "behaviour/refusal_share",
    "response/distinct",
    "reward/length_correlation",
    "behaviour/template_share",
)
_RANK = {name: rank for rank, name in enumerate(LEADING)}


@dataclass(frozen=True, slots=True)
class Chart:
    """`names` are its metrics, `labels` what each is called in it; `key` is its name in a URL."""

    key: str
    panel: str
    title: str
    unit: str
    about: str
    names: tuple[str, ...]
    labels: tuple[str, ...]
    leads: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def panel_of(name: str) -> str:
    """Where a metric belongs; one that nobody knows is about training."""
    if name.startswith(_EVALUATION):
        return EVALUATION
    if name.startswith(_BEHAVIOUR) or name in _BEHAVIOUR_NAMES:
        return BEHAVIOUR
    return TRAINING


def charts_of(
    kind: str, names: Iterable[str], marked: Collection[str] = frozenset()
) -> list[Chart]:
    """The charts of a run that measured these, panel by panel, leading ones first; a metric on
    which something was found (`marked`) leads whatever it is."""
    charts = _charts(sorted(set(names)))
    places = {name: place for place, name in enumerate(metric_names(kind))}

    def rank(chart: Chart) -> tuple[int, int, str]:
        own = min((places[name] for name in chart.names if name in places), default=None)
        if own is not None:
            return 0, own, chart.key
        return 1, _RANK.get(chart.key, len(_RANK)), chart.key

    arranged: list[Chart] = []
    for panel in PANELS:
        mine = sorted((chart for chart in charts if chart.panel == panel.key), key=rank)
        chosen = [c for c in mine if rank(c)[0] == 0 or c.key in _RANK] or mine
        leading = {chart.key for chart in chosen[:MOST_LEADING]}
        leading |= {chart.key for chart in mine if set(chart.names) & set(marked)}
        arranged += [replace(chart, leads=chart.key in leading) for chart in mine]
    return arranged


def _charts(names: Collection[str]) -> list[Chart]:
    charts = []
    taken: set[str] = set()
    for family in FAMILIES:
        mine = tuple(name for name in names if name.startswith(family.prefix))
        if len(mine) > 1:
            taken |= set(mine)
            charts.append(
                Chart(
                    family.prefix,
                    panel_of(family.prefix),
                    family.title,
                    family.unit,
                    family.about,
                    mine,
                    tuple(name.removeprefix(family.prefix) for name in mine),
                )
            )
    for name in names:
        if name not in taken:
            words = words_of(name)
            charts.append(
                Chart(name, panel_of(name), words.title, words.unit, words.about, (name,), (name,))
            )
    return charts
