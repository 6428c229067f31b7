"""Everything that was measured about a model, before anything is judged. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from measures.trust.pairs import Floats, Pairs
from measures.trust.probes import Probe, ProbeScores
from measures.trust.words import WordEffect
from workers.assess.scoring import Scored
from workers.data.snapshot import Prompt


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
