"""The stages of the diagnosis as people read them, in causal order."""

from workers.rules.rule import STAGES

_NAMES = {
    "data": "data / environment",
    "evaluation": "evaluation protocol",
    "reward": "reward",
    "policy": "policy update",
    "critic": "critic",
    "exploration": "exploration",
    "freshness": "freshness",
    "numerics": "numerics",
    "resources": "resources",
}
STAGE_NAMES: dict[str, str] = {stage: _NAMES[stage] for stage in STAGES}
NO_STAGE = "no stage"


def stage_name(link: str) -> str:
    """An alert of a rule that belongs to no stage has none."""
    return STAGE_NAMES.get(link, NO_STAGE)
