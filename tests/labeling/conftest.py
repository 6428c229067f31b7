from tests.labeling.pairs import ben

__all__ = ["ben"]
