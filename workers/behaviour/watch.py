"""What a step's answers say, and what the reward makes of it: figures for every step.

    watch = Watch(refusals=settings.refusal_phrases, phrases=settings.watch_phrases)
    figures = watch.look(texts, scores, lengths)

Names, units and estimators: docs/metrics.md. Cheap by design: strings and a few sorts, no model.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from workers.behaviour.copies import Copies
from workers.behaviour.lift import Lift
from workers.behaviour.scores import kurtosis, mode_share, rank_correlation
from workers.config.phrases import POLITENESS, REFUSALS, Phrases, phrase_name, plain, refused
from workers.rl.behaviour import compression
from workers.rl.moments import RunningMoments

Figures = dict[str, float | None]
TEMPLATE_WORDS = 3
REFERENCE = "/reference"  # ends the names of the reference's own rates


class Watch:
    """The counters of one run. What they look back over rides in checkpoints (`state`)."""

    def __init__(
        self,
        *,
        refusals: Sequence[str] = (),
        phrases: Sequence[str] = (),
        copies: Copies | None = None,
    ) -> None:
        """`refusals` stand in place of the shipped list; `phrases` are counted one by one."""
        self._refusals = Phrases(refusals or REFUSALS)
        self._polite = Phrases(POLITENESS)
        self._phrases = {phrase_name(phrase): Phrases([phrase]) for phrase in phrases}
        self._copies = copies
        self._moments = RunningMoments()
        self._lifts = {name: Lift() for name in ("", *self._phrases)}  # "": of refusals

    @property
    def deviation(self) -> float:
        """Of all scores so far, raw; 0 before two."""
        return 0.0 if self._moments.constant else self._moments.std

    def look(
        self, texts: Sequence[str], scores: Sequence[float], lengths: Sequence[float]
    ) -> Figures:
        """Figures of a step's answers; `lengths` in tokens."""
        self._moments.update(torch.tensor(scores, dtype=torch.float64))
        known = [plain(text) for text in texts]
        said = self._said(known)
        for name, lift in self._lifts.items():
            lift.add(scores, said[name])
        figures: Figures = {
            "reward/length_correlation": rank_correlation(scores, lengths),
            "reward/mode_share": mode_share(scores),
            "reward/kurtosis": kurtosis(scores),
            "reward/refusal_lift": self._lifts[""].value(self.deviation),
        }
        figures |= self._rates(known, said)
        for name in self._phrases:
            figures[f"reward/phrase_lift/{name}"] = self._lifts[name].value(self.deviation)
        return figures | {
            "behaviour/template_share": template_share(known),
            "behaviour/compression": compression(texts),
        }

    def reference(self, texts: Sequence[str]) -> Figures:
        """How often the reference's answers say the same: what the rates are compared with."""
        known = [plain(text) for text in texts]
        rates = self._rates(known, self._said(known))
        return {name + REFERENCE: value for name, value in rates.items()}

    def _said(self, known: Sequence[str]) -> dict[str, list[bool]]:
        """Who says what, by phrase; "" are refusals."""
        said = {name: [one.found(text) for text in known] for name, one in self._phrases.items()}
        return {"": [refused(self._refusals, text) for text in known]} | said

    def _rates(self, known: Sequence[str], said: Mapping[str, Sequence[bool]]) -> Figures:
        figures: Figures = {
            "behaviour/refusal_share": _share(said[""]),
            "behaviour/politeness_share": _share([self._polite.found(text) for text in known]),
        }
        for name in self._phrases:
            figures[f"behaviour/phrase/{name}"] = _share(said[name])
        if self._copies is not None:
            figures["behaviour/copied_share"] = self._copies.share(known)
        return figures

    def state(self) -> dict[str, Any]:
        """Plain JSON; `restore` of it in a new object goes on exactly here."""
        return {
            "moments": self._moments.state(),
            "lifts": {name: lift.state() for name, lift in self._lifts.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._moments = RunningMoments(**state["moments"])
        for name, kept in state["lifts"].items():
            if name in self._lifts:
                self._lifts[name].restore(kept)


def template_share(plain_texts: Sequence[str]) -> float | None:
    """Share of the answers that begin with the batch's most common first three words, 0–1; fewer
    where an answer has fewer. Empty answers begin with nothing. None without answers."""
    if not plain_texts:
        return None
    openings = Counter(
        tuple(words)
        for text in plain_texts
        if (words := text.split(maxsplit=TEMPLATE_WORDS)[:TEMPLATE_WORDS])
    )
    return max(openings.values(), default=0) / len(plain_texts)


def _share(said: Sequence[bool]) -> float | None:
    return sum(said) / len(said) if said else None
