"""What the figures of a probe are called, in the order of the tables."""

from apps.monitoring.selectors.checks import REWARD

# name: (label, whether it is a share, what it says)
FIGURES: dict[str, tuple[str, bool, str]] = {
    REWARD: ("Reward score", False, "raw, by the reward model; it has no origin of its own"),
    "calibrated": ("Calibrated score", True, "against a known good model's answers"),
    "margin": ("Margin", False, "score of the better answer of a pair less the other's"),
    "accuracy": ("Pairs ordered right", True, "of pairs whose better answer is known"),
    "answers_changed": (
        "Answers changed",
        True,
        "at temperature 0, of prompts asked at the baseline too",
    ),
    "latency_p50": ("Latency, median", False, "seconds until an answer was whole"),
    "latency_p99": ("Latency, 99th percentile", False, "seconds; of under 100 prompts the slowest"),
    "response_length": ("Length", False, "tokens of an answer"),
    "characters": ("Characters", False, "of an answer"),
    "ended": ("Ended by itself", True, "answers that were not cut off"),
    "repetition": ("Repetition", True, "of an answer's four-token runs, those said before"),
    "distinct": ("Diversity", True, "of an answer's token pairs, those that are different"),
    "compression": ("Compression", False, "bytes of an answer over its bytes when packed"),
    "refusals": ("Refusals", True, "answers that open as a refusal"),
    "politeness": ("Politeness", True, "answers with a phrase of courtesy"),
}


LATENCIES = ("latency_p50", "latency_p99")


def label_of(name: str) -> str:
    return FIGURES[name][0] if name in FIGURES else name


def is_share(name: str) -> bool:
    return name in FIGURES and FIGURES[name][1]
