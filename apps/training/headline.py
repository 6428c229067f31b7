"""The few figures that matter for each kind of run, shown large in its header."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Headline:
    """`names`: metrics in order of preference; the first that was measured is shown."""

    label: str
    names: tuple[str, ...]
    unit: str = ""
    is_count: bool = False


HEADLINES: dict[str, tuple[Headline, ...]] = {
    "sft": (
        Headline("Held-out loss", ("eval/loss",), "nats per token"),
        Headline("Training loss", ("loss",), "nats per token"),
    ),
    "reward": (
        Headline("Held-out accuracy", ("eval/accuracy",), "share of pairs"),
        Headline("Training accuracy", ("accuracy",), "share of pairs"),
    ),
    "dpo": (
        Headline("Held-out accuracy", ("eval/rewards/accuracies",), "share of pairs"),
        Headline("Margin", ("eval/rewards/margins", "rewards/margins"), "nats × β"),
        Headline("KL to the reference", ("objective/kl",), "nats per sequence"),
    ),
    "ppo": (
        Headline("Reward", ("objective/scores",), "raw score, mean of a batch"),
        Headline("Held-out reward", ("eval/held_out_score",), "another model's score"),
        Headline("KL to the reference", ("objective/kl",), "nats per sequence"),
        Headline("Entropy", ("policy/entropy_avg",), "nats per token"),
    ),
    "grpo": (
        Headline("Reward", ("objective/scores",), "raw score, mean of a batch"),
        Headline("On fixed prompts", ("eval/held_out_score", "eval/score"), "by the judge, if any"),
        Headline("Silent groups", ("grpo/zero_variance_share",), "share; they teach nothing"),
        Headline("KL to the reference", ("objective/kl",), "nats per sequence"),
    ),
    "evaluate": (
        Headline("Win rate against SFT", ("eval/win_rate",), "by the held-out judge"),
        Headline("Win rate by the reward", ("eval/win_rate_by_reward",), "what was trained on"),
        Headline("Held-out reward", ("eval/held_out_score",), "another model's score"),
        Headline("KL to the reference", ("eval/kl",), "nats per sequence"),
    ),
    "assess": (
        Headline("Accuracy on unseen pairs", ("assess/accuracy",), "share of pairs"),
        Headline("Red lines", ("assess/red",), "of the reward model's page", is_count=True),
        Headline(
            "Not measured", ("assess/unmeasured",), "of the reward model's page", is_count=True
        ),
    ),
    "drill": (Headline("Value", ("drill/value",)),),
}


def kind_of(run: Any) -> str:
    """What was trained: of an imported run what its importer said, else the run's own kind."""
    if run.kind != "imported":
        return run.kind
    trained = run.config.get("trained_as")
    return trained if isinstance(trained, str) and trained else run.kind


def metric_names(kind: str) -> list[str]:
    """In the order in which they are shown, each once."""
    return list(dict.fromkeys(name for one in HEADLINES.get(kind, ()) for name in one.names))
