"""Single annotators: what each one does, beside what others do on the same pairs, and who stands
out by more than honest people do."""

from measures.annotators.figures import FAST_MS, SPEED_EDGES, Crowd, crowd_figures
from measures.annotators.flags import LEVEL, Kind, holm, tests_of
from measures.annotators.report import Figure, Flag, Person, people_of
from measures.annotators.words import LABELS
from measures.annotators.work import Repeats, Work

__all__ = [
    "FAST_MS",
    "LABELS",
    "LEVEL",
    "SPEED_EDGES",
    "Crowd",
    "Figure",
    "Flag",
    "Kind",
    "Person",
    "Repeats",
    "Work",
    "crowd_figures",
    "holm",
    "people_of",
    "tests_of",
]
