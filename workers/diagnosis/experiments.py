"""The next confirming experiments, in the order in which a link's walkthrough asks for them."""

from workers.diagnosis.verdict import Experiment

_ALL = (
    Experiment(
        "reward_plot",
        "Plot the rewards of the last 1,000 answers",
        "Are the rewards spread as they should be, and what do they follow?",
        "All alike, mostly one value, a few far out, or ordered by length: the reward is at fault.",
        "A broad hill that does not follow length: look at the policy.",
        "reward_plot",
        needs=("rollouts",),
    ),
    Experiment(
        "rescore",
        "Score the kept answers again with the registered reward model",
        "Does the reward say the same of the same answer?",
        "It does not: another model, a truncated text or chance decides the reward.",
        "Equal to the last digit: the reward is reproducible.",
        "rescore",
        needs=("rollouts", "reward"),
    ),
    Experiment(
        "canaries",
        "Ask the reward model about pairs whose better answer is known",
        "Does the reward point the right way at all?",
        "Under half right: its sign or its labels are swapped; about half: it is noise.",
        "Mostly right: the policy has found a weakness, not a wrong sign.",
        "canaries",
        needs=("reward", "canaries"),
    ),
    Experiment(
        "kl_reference",
        "Recompute the divergence from the registered reference",
        "Is the divergence that the run reports the true one?",
        "It differs: the run held another model, or itself, for the reference.",
        "It agrees: the policy has really moved this far.",
        "kl_reference",
        needs=("policy", "reference", "prompts"),
    ),
    Experiment(
        "sampler",
        "Draw answers again and compare their surprise with the entropy",
        "Do answers come from the very distribution that learns?",
        "They do not: temperature, a filter or old weights lie between sampler and trainer.",
        "They do: look at what the update makes of them.",
        "sampler",
        needs=("policy", "prompts"),
    ),
    Experiment(
        "critic_fit",
        "Fit the critic alone on one frozen batch",
        "Can the critic learn the returns at all?",
        "It cannot: a dead head, a step size of nothing, or states that say nothing of the return.",
        "It can: its problem comes from a policy that moves under it.",
        "critic_fit",
        needs=("policy", "reward", "prompts"),
    ),
    Experiment(
        "protocol",
        "Repeat the evaluation under the fixed protocol",
        "Is the change in the model or in how it was asked?",
        "First and last checkpoint agree when both are asked the same way: the protocol changed.",
        "They differ in the same way: the model changed.",
        "protocol",
        needs=("policy", "prompts"),
    ),
    Experiment(
        "minimal",
        "Reproduce it in small",
        "Does the problem come back in a run of a minute?",
        "It does: from now on every change can be tried in a minute.",
        "It does not: it needs the length, the data or the size of the full run.",
        "minimal",
    ),
    Experiment(
        "slower",
        "Try a tenth of the learning rate",
        "Does the problem go away with smaller steps?",
        "It does: the updates were too large.",
        "It stays: the step size is not to blame.",
        "one_change",
        {"learning_rate": 0.1},
    ),
    Experiment(
        "fewer_epochs",
        "Try one pass over each batch",
        "Does the problem go away when each batch is used once?",
        "It does: too many passes over the same answers.",
        "It stays: look at the step size.",
        "one_change",
        {"update_epochs": "1"},
    ),
    Experiment(
        "dearer_kl",
        "Try four times the price of divergence",
        "Does the policy stay when leaving is costlier?",
        "It does: the price was too low for this reward.",
        "It leaves all the same: the steps are too large.",
        "one_change",
        {"kl_coef": 4.0},
    ),
    Experiment(
        "more_entropy",
        "Try a bonus on entropy",
        "Does variety come back when it is paid for?",
        "It does: exploration had no price.",
        "It does not: the reward itself wants one answer.",
        "one_change",
        {"entropy_coef": "0.01"},
    ),
)
EXPERIMENTS: dict[str, Experiment] = {one.id: one for one in _ALL}

# From the outside in: what to try first when this link broke first.
NEXT: dict[str, tuple[str, ...]] = {
    "data": ("canaries", "reward_plot", "minimal"),
    "evaluation": ("protocol", "reward_plot", "canaries"),
    "reward": ("canaries", "reward_plot", "rescore", "minimal"),
    "policy": ("kl_reference", "slower", "fewer_epochs", "dearer_kl", "minimal"),
    "critic": ("critic_fit", "reward_plot", "slower"),
    "exploration": ("reward_plot", "more_entropy", "dearer_kl"),
    "freshness": ("sampler", "kl_reference", "minimal"),
    "numerics": ("minimal", "slower", "rescore"),
    "resources": ("rescore", "minimal"),
}


def next_experiments(link: str, *, first: str = "") -> list[Experiment]:
    """In order; `first` is the one that the finding itself asks for."""
    ids = dict.fromkeys((first, *NEXT[link])) if first in EXPERIMENTS else NEXT[link]
    return [EXPERIMENTS[name] for name in ids]
