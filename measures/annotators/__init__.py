"""Single annotators: what each one does, beside what others do on the same pairs, and who stands
out by more than honest people do."""

from measures.annotators.figures import FAST_MS, SPEED_EDGES, Crowd, crowd_figures
from measures.annotators.flags import LEVEL, Kind, holm, tests_of
from measures.annotators.work import Repeats, Work

__all__ = [
    "FAST_MS",
    "LEVEL",
    "SPEED_EDGES",
    "Crowd",
    "Kind",
    "Repeats",
    "Work",
    "crowd_figures",
    "holm",
    "tests_of",
]
