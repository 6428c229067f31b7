from tests.labeling.inline import inline_parsing
from tests.labeling.pairs import ben

__all__ = ["ben", "inline_parsing"]
