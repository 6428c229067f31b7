"""What a report is computed from: decided pairs with their texts, and the votes behind them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReportPair:
    """A row of a decided file. Texts are all turns joined by a blank line.

    won_first: the winner was stored first (is response A). chosen_key and rejected_key name the
    texts: equal where the same argument stands in several pairs. share: of votes for the winner.
    chosen_from, rejected_from: where the answers come from, "" where unknown.
    gold: whether the winner is the known right one; None without a known answer.
    """

    id: int
    split: str
    prompt: str
    chosen: str
    rejected: str
    chosen_key: str
    rejected_key: str
    won_first: bool
    share: float
    votes: tuple[int, ...]
    group: str = ""
    topic: str = ""
    language: str = ""
    source: str = ""
    batch: str = ""
    stratum: str = ""
    chosen_from: str = ""
    rejected_from: str = ""
    gold: bool | None = None


@dataclass(frozen=True, slots=True)
class ReportVote:
    """A vote that decided a pair.

    for_winner: True for, False against, None a tie or both bad. winner_left: whether the winner
    stood left, None where unknown. at: seconds since 1970. reasons: chips that were ticked;
    criteria: {criterion: "winner" | "tie" | "loser"}.
    """

    id: int
    person: int
    at: float
    for_winner: bool | None
    winner_left: bool | None = None
    reasons: tuple[str, ...] = ()
    criteria: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportMaterial:
    """pairs: every decided file's, in order; votes: by id; the project's words for reasons.

    n_train: training rows in all, where `pairs` holds a random part of them; else 0.
    criteria: {key: label} that voters are asked about; reasons: chips that are offered.
    """

    pairs: tuple[ReportPair, ...]
    votes: Mapping[int, ReportVote]
    criteria: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    n_train: int = 0
