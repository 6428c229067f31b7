"""Every line of the page out of what was measured. No torch.

A line whose numbers cannot be had is unmeasured and says why; so is one whose function breaks,
which is a bug: it is logged as an error, and the other lines stand.
"""

import traceback
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import numpy as np

from measures.trust.findings import LINES, Finding, unmeasured
from measures.trust.significance import Pairs
from workers.assess.material import Attack, Material
from workers.trust import right
from workers.trust.attack import damage_probes_line, empty_probes_line, praise_probes_line
from workers.trust.best_of_n import best_of_n
from workers.trust.bias import format_taste, length_matched, length_taste
from workers.trust.calibrated import calibration_line
from workers.trust.ensembles import LEAST_ANSWERS, disagreement
from workers.trust.leakage import metadata_only, prompt_only
from workers.trust.noise import label_noise
from workers.trust.out_of_domain import other_domain
from workers.trust.precision import precision_line
from workers.trust.shapes import policy_range, score_shape
from workers.trust.slices import slices
from workers.trust.words import spurious_words

T = TypeVar("T")
SERVED = "bfloat16"  # what GPUs score in; the scorer refuses any format that did not rank alike

# What only the web side can measure: it knows the people and the votes.
ON_THE_WEB = frozenset({"people_rank", "freshness"})


class Log(Protocol):
    def __call__(self, *lines: str, level: str) -> None: ...


class Missing(Exception):
    """There was nothing to measure a line with; says what to do about it."""


Judgement = Callable[[Material], Finding]


def judge(material: Material, *, log: Log) -> list[Finding]:
    """One finding a line, in the order of the page, without the lines of the web side."""
    return [
        _judged(name, JUDGEMENTS[name], material, log) for name in LINES if name not in ON_THE_WEB
    ]


def _judged(name: str, judgement: Judgement, material: Material, log: Log) -> Finding:
    try:
        return judgement(material)
    except Missing as why:
        return unmeasured(name, str(why))
    except Exception as error:
        log(
            f"The line '{name}' could not be measured:",
            *traceback.format_exc().splitlines(),
            level="error",
        )
        return unmeasured(
            name, f"It could not be computed ({error}). The log of the run has the details."
        )


# --- the lines ---


def _held_out(material: Material) -> Pairs:
    return _given(
        material.held_out,
        material.missing.get("held_out")
        or "The dataset holds no rows out. Freeze one with a held-out file and assess with that.",
    )


def _given(value: T | None, why: str) -> T:
    if value is None:
        raise Missing(why)
    return value


def _accuracy(m: Material) -> Finding:
    return right.accuracy(_held_out(m), words=m.word_margins)


def _beats_length(m: Material) -> Finding:
    return right.beats_length(_held_out(m))


def _beats_words(m: Material) -> Finding:
    return right.beats_words(_held_out(m), m.word_margins)


def _overfit(m: Material) -> Finding:
    return right.overfit(m.train, _held_out(m))


def _unseen_people(m: Material) -> Finding:
    _held_out(m)
    return right.unseen_people(m.same_people, m.unseen_people)


def _slices(m: Material) -> Finding:
    return slices(_held_out(m))


def _calibration(m: Material) -> Finding:
    return calibration_line(_held_out(m), m.fitting)


def _attack(m: Material) -> Attack:
    return _given(
        m.attack,
        m.missing.get("attack") or "There are no answers that people preferred, to be spoilt.",
    )


def _empty_probes(m: Material) -> Finding:
    made = _attack(m)
    return empty_probes_line(made.probes["empty"], made.scores, prompts=made.prompts)


def _praise_probes(m: Material) -> Finding:
    made, pairs = _attack(m), _held_out(m)
    spread = float(np.concatenate([pairs.chosen_scores, pairs.rejected_scores]).std())
    return praise_probes_line(
        made.probes["praise"], made.scores, prompts=made.prompts, spread=spread
    )


def _damage_probes(m: Material) -> Finding:
    made = _attack(m)
    return damage_probes_line(made.probes["damage"], made.scores, prompts=made.prompts)


def _score_shape(m: Material) -> Finding:
    return score_shape(
        _held_out(m),
        sft_scores=None if m.sft is None else m.sft.scored.values,
        policy_scores=None if m.policy is None else m.policy.scored.values,
    )


def _policy_range(m: Material) -> Finding:
    policy = _given(
        m.policy,
        m.missing.get("policy")
        or "No policy answered prompts. Give the assessment a policy and prompts.",
    )
    train = _given(m.train, "There are no training pairs to know the usual range from.")
    return policy_range(
        np.concatenate([train.chosen_scores, train.rejected_scores]),
        policy.scored.values,
        np.concatenate(train.lengths),
        [len(text) for text in policy.texts],
    )


def _other_domain(m: Material) -> Finding:
    other = _given(
        m.other,
        m.missing.get("other")
        or "No other dataset was given. Choose one of another kind as the input 'other'.",
    )
    return other_domain(m.held_out, other, name="the other dataset")


def _disagreement(m: Material) -> Finding:
    """On answers of the policy where there are enough, else on those that people compared."""
    outputs = next(
        (of for of in (m.policy, m.sft) if of is not None and len(of.texts) >= LEAST_ANSWERS), None
    )
    pairs = _held_out(m)
    if outputs is not None:
        scored, answers = outputs.scored, list(outputs.texts)
        prompts = [prompt.messages[-1]["content"] for prompt in outputs.prompts]
    else:
        scored = _given(m.held_out_scored, "No answers were scored.")
        prompts = [*pairs.prompts, *pairs.prompts]
        answers = [*pairs.chosen_texts, *pairs.rejected_texts]
    return disagreement(
        scored.members,
        threshold=m.threshold,
        spread=scored.disagreement,
        prompts=prompts,
        answers=answers,
        clusters=prompts,
    )


def _precision(m: Material) -> Finding:
    reference = _given(
        m.full_precision,
        m.missing.get("precisions")
        or "Only float32 was tried: the check of cheaper number formats was switched off.",
    )
    return precision_line(reference, m.precisions, served=SERVED)


def _label_noise(m: Material) -> Finding:
    return label_noise(_held_out(m))


def _length_taste(m: Material) -> Finding:
    return length_taste(_held_out(m))


def _length_matched(m: Material) -> Finding:
    return length_matched(_held_out(m))


def _format_taste(m: Material) -> Finding:
    return format_taste(_held_out(m))


def _best_of_n(m: Material) -> Finding:
    draws = _given(
        m.draws,
        m.missing.get("draws")
        or "No answers were drawn. Give the assessment prompts and an SFT model or a policy.",
    )
    return best_of_n(draws.reward, draws.judge, planned_kl=m.planned_kl)


def _spurious_words(m: Material) -> Finding:
    return spurious_words(_held_out(m), m.effects)


def _prompt_only(m: Material) -> Finding:
    return prompt_only(_held_out(m), m.blind_margins)


def _metadata_only(m: Material) -> Finding:
    return metadata_only(_held_out(m))


JUDGEMENTS: Mapping[str, Judgement] = {
    "accuracy": _accuracy,
    "beats_length": _beats_length,
    "beats_words": _beats_words,
    "overfit": _overfit,
    "unseen_people": _unseen_people,
    "slices": _slices,
    "calibration": _calibration,
    "label_noise": _label_noise,
    "length_taste": _length_taste,
    "length_matched": _length_matched,
    "format_taste": _format_taste,
    "spurious_words": _spurious_words,
    "prompt_only": _prompt_only,
    "metadata_only": _metadata_only,
    "best_of_n": _best_of_n,
    "empty_probes": _empty_probes,
    "praise_probes": _praise_probes,
    "damage_probes": _damage_probes,
    "score_shape": _score_shape,
    "policy_range": _policy_range,
    "other_domain": _other_domain,
    "disagreement": _disagreement,
    "precision": _precision,
}
