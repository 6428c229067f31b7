"""Everything that was measured about a model, before anything is judged. No torch."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from measures.trust.significance import Floats, Pairs
from workers.assess.scores import Scored
from workers.context import RunContext
from workers.data.snapshot import Prompt
from workers.trust.probes import Probe, ProbeScores
from workers.trust.words import WordEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Probes of each kind against n answers of people. scores: {(prompt, text): score} of every
    text in them."""

    prompts: Sequence[str]
    probes: Mapping[str, Sequence[Probe]]
    scores: ProbeScores


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """One answer of a model to each of n prompts."""

    prompts: Sequence[Prompt]
    texts: Sequence[str]
    scored: Scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """reward and judge: (prompts, draws) raw scores of the same answers of the model `role`."""

    reward: Floats
    judge: Floats | None
    role: str


@dataclass(slots=True, kw_only=True)
class Material:
    """None where there was nothing to measure with; `missing` says why where a run was stopped."""

    planned_kl: float
    threshold: float | None = None  # disagreement over which an ensemble's answer is not trusted
    splits: Mapping[str, Pairs] = field(default_factory=dict)  # evaluation files of the dataset
    train: Pairs | None = None
    held_out: Pairs | None = None  # the strictest of `splits`
    held_out_scored: Scored | None = None  # of its answers: all chosen, then all rejected
    same_people: Pairs | None = None  # decided by people behind training rows
    unseen_people: Pairs | None = None
    fitting: Pairs | None = None  # what a temperature may be fitted on
    word_margins: Floats | None = None  # on `held_out`, of words counted in `train`
    other: Pairs | None = None  # the other dataset
    effects: Sequence[WordEffect] = ()  # of words put into answers
    blind_margins: Floats | None = None  # of `held_out`, answers scored under other prompts
    attack: Attack | None = None
    policy: Outputs | None = None
    sft: Outputs | None = None
    draws: Draws | None = None
    full_precision: Floats | None = None  # scores in float32 …
    precisions: Mapping[str, Floats] = field(default_factory=dict)  # … and of the same, lower
    missing: dict[str, str] = field(default_factory=dict)


# Where an assessment is, what is left, and whether anybody asked it to end.


class Phases:
    """`looking.Progress` for a run: its phases in order, each with its size in texts scored.

    The time that remains is what is left of the sizes at the speed so far: an estimate. A command
    to stop ends the run with what was measured by then; the phases after it may not begin.
    """

    def __init__(self, context: RunContext, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._sizes: dict[str, float] = {}
        self._began = clock()
        self._current = ""
        self._within = 0.0

    def plan(self, sizes: Mapping[str, float]) -> None:
        self._sizes = dict(sizes)

    def begin(self, name: str) -> bool:
        if self._context.should_stop():
            return False
        self._current, self._within = name, 0.0
        self._report()
        return True

    def done(self, amount: float) -> None:
        """So many texts more of the current phase."""
        self._within += amount
        self._report()

    def finish(self) -> None:
        total = max(1, len(self._sizes))
        self._context.progress(total, total, "done")

    def _report(self) -> None:
        if self._current not in self._sizes:
            return
        names = list(self._sizes)
        at = names.index(self._current)
        behind = sum(self._sizes[name] for name in names[:at])
        behind += min(self._within, self._sizes[self._current])
        left = sum(self._sizes.values()) - behind
        eta = (self._clock() - self._began) / behind * left if behind > 0 else None
        self._context.progress(at, len(names), self._current, eta)
