"""The charts of a run in three panels: training, evaluation, behaviour (SPEC F1).

Of each panel the few charts that matter most come first; the others are folded away. A chart holds
one metric, or those that are read together: the components of a reward, the flagged phrases.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from apps.training.headline import metric_names
from apps.training.screens.metric_words import words_of

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
