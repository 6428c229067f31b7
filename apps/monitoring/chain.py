"""The links of the chain as people read them, from the outside in."""

from workers.contract.guards import LINKS

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
LINK_NAMES: dict[str, str] = {link: _NAMES[link] for link in LINKS}
NO_LINK = "no stage"


def link_name(link: str) -> str:
    """An alert of a rule that belongs to no link has none."""
    return LINK_NAMES.get(link, NO_LINK)
