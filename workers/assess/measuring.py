"""Measuring a model from every side, one phase after the other; nothing is judged here. No torch.

`look` reads from top to bottom like the page it fills. A phase that has nothing to measure with
says so in `Material.missing`; after a command to stop, so does every phase that was left out.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from measures.corpus import TOKEN
from measures.duplicates import normalise
from measures.intervals import mean_interval
from measures.messages import Messages
from measures.trust.significance import Pairs
from workers.assess.material import Attack, Draws, Material, Outputs
from workers.assess.scores import (
    UNSEEN_PEOPLE,
    Scored,
    Scorer,
    draw,
    fitting_split,
    held_out_split,
    pairs_of,
    same_comparisons,
    same_people_split,
    score_both,
)
from workers.config.inference import AssessSettings
from workers.data.snapshot import TRAIN, Preference, Prompt
from workers.rewards.source import RewardSource
from workers.rollouts.local import derive_seed
from workers.trust.probes import Probe, damage_probes, empty_probes, praise_probes, texts_to_score
from workers.trust.right import word_margins
from workers.trust.words import WordEffect, candidate_words

# Words put into answers, to see what each does to the score. No torch.
#
# A word is put at a random place of an answer that does not hold it. Any word there disturbs the
# sentence, so what counts is the change beyond that of the median word in the same place.

MOST_WORDS = 30
LEAST_ANSWERS = 10  # without the word, for it to be put into


def word_effects(
    pairs: Pairs, rows: Sequence[Preference], score: Scorer, *, seed: int
) -> list[WordEffect]:
    """Of the words that the model favours most in `pairs`, put into the chosen answers of `rows`;
    in standard deviations of the scores of `pairs`. [] where scores do not vary, or where there are
    too few pairs to choose words by."""
    words = candidate_words(pairs, MOST_WORDS)
    spread = float(np.std(np.concatenate([pairs.chosen_scores, pairs.rejected_scores])))
    if not words or not spread > 0:
        return []
    rng = np.random.default_rng(seed)
    held = [set(TOKEN.findall(normalise(row.chosen))) for row in rows]
    tries = [
        (i, k, place)
        for i, row in enumerate(rows)
        for place in [int(rng.integers(len(row.chosen.split()) + 1))]
        for k, word in enumerate(words)
        if not set(word.split()) & held[i]
    ]
    texts = [with_word(rows[i].chosen, words[k], place) for i, k, place in tries]
    before = score([row.prompt for row in rows], [row.chosen for row in rows]).values
    after = score([rows[i].prompt for i, _, _ in tries], texts).values
    change = np.full((len(rows), len(words)), np.nan)
    for (i, k, _), value in zip(tries, after, strict=True):
        change[i, k] = (value - before[i]) / spread
    usable = np.isfinite(change).sum(axis=1) >= min(3, len(words))  # else there is no median word
    change = change[usable]
    if not len(change):
        return []
    change -= np.nanmedian(change, axis=1, keepdims=True)
    found = []
    for k, word in enumerate(words):
        of = change[np.isfinite(change[:, k]), k]
        if len(of) >= LEAST_ANSWERS:
            found.append(WordEffect(word=word, change=mean_interval(of, seed=seed)))
    return found


def with_word(text: str, word: str, place: int) -> str:
    """The text with a word before its word number `place`; other white space stays as it is."""
    at = len(text.rstrip())
    starts = [found.start() for found in re.finditer(r"\S+", text)]
    if place < len(starts):
        at = starts[place]
        return f"{text[:at]}{word} {text[at:]}"
    return f"{text[:at]} {word}{text[at:]}"


STOPPED = "The run was stopped before this was measured; start another assessment."
PRECISION_TEXTS = 400  # answers scored in every number format
DRAWN = 12  # what drawing an answer costs, in answers scored: one pass a token against one in all


class Answering(Protocol):
    """Who answers prompts: the models among the run's inputs, or a stand-in for them."""

    def has(self, role: str) -> bool:
        """Whether there is a "policy", an "sft"."""
        ...

    def prompts(self) -> list[Prompt]:
        """At most `max_outputs`; none where the run was given none."""
        ...

    def answers(self, role: str, prompts: Sequence[Messages], *, purpose: str) -> list[str]:
        """One to each prompt, in order; another `purpose` draws others."""
        ...


class Progress(Protocol):
    """Hears what is going on, and says whether a phase may begin."""

    def plan(self, sizes: Mapping[str, float]) -> None: ...

    def begin(self, name: str) -> bool: ...

    def done(self, amount: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The model, and what it is looked at with. rows: {file: rows} of the dataset, with `train`;
    lower: name of a number format -> the same model in it."""

    reward: RewardSource
    rows: Mapping[str, Sequence[Preference]]
    other: Sequence[Preference] = ()
    judge: RewardSource | None = None
    answering: Answering | None = None
    lower: Mapping[str, Callable[[], RewardSource]] | None = None
    threshold: float | None = None


def look(subject: Subject, settings: AssessSettings, *, seed: int, progress: Progress) -> Material:
    return _Look(subject, settings, seed, progress).run()


class _Look:
    """One assessment while it is being made."""

    def __init__(
        self, subject: Subject, settings: AssessSettings, seed: int, progress: Progress
    ) -> None:
        self.subject, self.settings, self.seed, self.progress = subject, settings, seed, progress
        self.score = Scorer(subject.reward, scored=progress.done)
        self.rows = {
            name: draw(rows, settings.max_pairs, derive_seed(seed, "pairs", name))
            for name, rows in subject.rows.items()
        }
        self.material = Material(planned_kl=settings.planned_kl, threshold=subject.threshold)
        self.prompts: list[Prompt] = []

    def run(self) -> Material:
        asked = self.subject.answering
        self.prompts = asked.prompts() if asked is not None else []
        phases = self._phases()
        self.progress.plan({name: size for name, (size, _, _) in phases.items()})
        for name, (_, measure, needed_by) in phases.items():
            if self.progress.begin(name):
                measure()
            else:
                for what in needed_by:
                    self.material.missing.setdefault(what, STOPPED)
        return self.material

    def _phases(self) -> dict[str, tuple[float, Callable[[], None], tuple[str, ...]]]:
        """{phase: (texts to score, what to do, names of what it measures)}."""
        settings, n = self.settings, len(self.prompts)
        pairs = 2 * sum(len(of) for of in self.rows.values())
        draws = min(settings.best_of_prompts, n) * settings.best_of
        return {
            "scoring the pairs": (pairs, self._splits, ("train", "held_out")),
            "scoring the other dataset": (
                2 * min(len(self.subject.other), settings.max_pairs),
                self._other,
                ("other",),
            ),
            "scoring under other prompts": (
                2 * max((len(of) for name, of in self.rows.items() if name != TRAIN), default=0),
                self._blind,
                (),
            ),
            "putting words into answers": (
                MOST_WORDS * settings.effect_answers,
                self._words,
                (),
            ),
            "probing": (40 * settings.probe_prompts, self._probes, ("attack",)),
            "answering prompts": (2 * DRAWN * n, self._outputs, ("policy", "sft")),
            "drawing the best of n": (DRAWN * draws, self._draws, ("draws",)),
            "comparing number formats": (
                2 * PRECISION_TEXTS,
                self._precisions,
                ("precisions",),
            ),
        }

    # --- on pairs that people decided ---

    def _splits(self) -> None:
        scores = {name: score_both(rows, self.score) for name, rows in self.rows.items()}
        scored = {name: self._pairs(name, rows, scores[name]) for name, rows in self.rows.items()}
        sizes = {name: len(rows) for name, rows in self.rows.items()}
        held_out, same = held_out_split(sizes), same_people_split(sizes)
        fitting = fitting_split(sizes, held_out)
        m = self.material
        m.train = scored.pop(TRAIN, None)
        m.splits = scored
        m.held_out = scored[held_out] if held_out else None
        m.held_out_scored = scores[held_out] if held_out else None
        m.same_people = scored[same] if same else None
        m.unseen_people = scored.get(UNSEEN_PEOPLE)
        replicates = self.settings.bootstrap_replicates
        if both := same_comparisons(self.rows, scores, replicates=replicates):
            m.same_people, m.unseen_people = both
        m.fitting = scored[fitting] if fitting else None
        if m.train is not None and m.held_out is not None:
            m.word_margins = word_margins(m.train, m.held_out)

    def _other(self) -> None:
        rows = draw(
            self.subject.other, self.settings.max_pairs, derive_seed(self.seed, "pairs", "other")
        )
        if rows:
            self.material.other = self._pairs("other", rows, score_both(rows, self.score))

    def _pairs(self, name: str, rows: Sequence[Preference], scored: Scored) -> Pairs:
        return pairs_of(name, rows, scored, replicates=self.settings.bootstrap_replicates)

    # --- on texts made for the purpose ---

    def _answered(self, most: int, purpose: str) -> list[Preference]:
        """Rows whose chosen answers are good enough to be spoilt: distinct answers of the held-out
        rows, of as many prompts as there are."""
        known: dict[str, Preference] = {}
        for row in self._held_out_rows():
            if row.confidence > 0.5 and row.chosen.strip():
                known.setdefault(row.chosen, row)
        found = list(known.values())
        by_prompt: dict[str, list[Preference]] = {}
        for i in np.random.default_rng(derive_seed(self.seed, purpose)).permutation(len(found)):
            by_prompt.setdefault(repr(found[i].prompt), []).append(found[i])
        turns = max((len(of) for of in by_prompt.values()), default=0)
        dealt = [of[k] for k in range(turns) for of in by_prompt.values() if k < len(of)]
        return dealt[:most]

    def _held_out_rows(self) -> Sequence[Preference]:
        held_out = self.material.held_out
        return self.rows.get(held_out.split if held_out else TRAIN, [])

    def _words(self) -> None:
        rows = self._answered(self.settings.effect_answers, "words")
        if self.material.held_out is not None and rows:
            self.material.effects = word_effects(
                self.material.held_out, rows, self.score, seed=derive_seed(self.seed, "words")
            )

    def _blind(self) -> None:
        """Answers of the held-out rows under another of their prompts: what is left of the model
        when it cannot know what was asked."""
        rows = self._held_out_rows()
        known = {repr(row.prompt): row.prompt for row in rows}
        if self.material.held_out is None or len(known) < 2:
            return
        names = list(known)
        another = {name: known[names[i - 1]] for i, name in enumerate(names)}
        moved = [replace(row, prompt=another[repr(row.prompt)]) for row in rows]
        values = score_both(moved, self.score).values
        self.material.blind_margins = values[: len(rows)] - values[len(rows) :]

    def _probes(self) -> None:
        rows = self._answered(self.settings.probe_prompts, "probes")
        if not rows:
            return
        prompts, answers = [row.prompt[-1]["content"] for row in rows], [row.chosen for row in rows]
        probes: dict[str, list[Probe]] = {
            name: make(prompts, answers, seed=derive_seed(self.seed, name))
            for name, make in (
                ("empty", empty_probes),
                ("praise", praise_probes),
                ("damage", damage_probes),
            )
        }
        texts = texts_to_score([probe for of in probes.values() for probe in of])
        scored = self.score([rows[i].prompt for i, _ in texts], [text for _, text in texts])
        self.material.attack = Attack(
            prompts=prompts,
            probes=probes,
            scores=dict(zip(texts, scored.values.tolist(), strict=True)),
        )

    # --- on answers of the models it will be asked about ---

    def _outputs(self) -> None:
        asked = self.subject.answering
        if asked is None or not self.prompts:
            return
        messages = [prompt.messages for prompt in self.prompts]
        for role in ("policy", "sft"):
            if not asked.has(role):
                continue
            texts = asked.answers(role, messages, purpose="outputs")
            given = Outputs(prompts=self.prompts, texts=texts, scored=self.score(messages, texts))
            setattr(self.material, role, given)

    def _draws(self) -> None:
        """Of the SFT model where there is one: best-of-n starts where training will start."""
        asked, settings = self.subject.answering, self.settings
        role = next((r for r in ("sft", "policy") if asked is not None and asked.has(r)), None)
        rows = self.prompts[: settings.best_of_prompts]
        if asked is None or role is None or not rows:
            return
        messages = [row.messages for row in rows for _ in range(settings.best_of)]
        texts = asked.answers(role, messages, purpose="draws")
        shape = (len(rows), settings.best_of)
        judge = self.subject.judge
        self.material.draws = Draws(
            reward=self.score(messages, texts).values.reshape(shape),
            judge=None if judge is None else Scorer(judge)(messages, texts).values.reshape(shape),
            role=role,
        )

    def _precisions(self) -> None:
        lower = self.subject.lower
        if not lower:
            return
        rows = self._held_out_rows()
        texts = {
            (repr(row.prompt), text): row.prompt
            for row in rows
            for text in (row.chosen, row.rejected)
        }
        if not texts:
            return
        answers = [text for _, text in texts][:PRECISION_TEXTS]
        prompts = list(texts.values())[:PRECISION_TEXTS]
        self.material.full_precision = self.score(prompts, answers).values
        self.material.precisions = {
            name: Scorer(make(), scored=self.progress.done)(prompts, answers).values
            for name, make in lower.items()
        }
