"""Rewards that are Python functions of installed packages, by the names of their entry points.

A package declares them in its own `pyproject.toml`:

    [project.entry-points."concord.rewards"]
    brevity = "my_rewards:brevity"

Only the names are read here: nothing is imported.
"""

from importlib.metadata import entry_points

GROUP = "concord.rewards"


def installed_functions() -> tuple[str, ...]:
    """Names of the reward functions that are installed here, sorted."""
    return tuple(sorted({one.name for one in entry_points(group=GROUP)}))
