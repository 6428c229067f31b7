"""Verdicts of a judge on pairs that nobody may have compared: both ways round, and under attack.

Inputs: `pairs` (a dataset of that kind) and `judge`, a policy, a served model or a reward model.
Writes verdicts.jsonl and announces it:

    {"pair", "first", "second", "said"}            first: P(the answer shown first is better), A
                                                   first; second: the same, B first; null where
                                                   no verdict could be read
    {"pair", "attack", "side", "first", …}         the same pair with an attack in answer `side`

A verdict of a model is no vote: whoever reads the file keeps the two apart. docs/judges.md.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from transformers import set_seed

from workers.artifacts import file_sha256
from workers.config import settings_for
from workers.config.judging import JudgeSettings
from workers.config.server import JUDGE
from workers.context import RunContext
from workers.contract.events import Generated
from workers.data.snapshot import UnlabelledPair, read_pairs
from workers.judging.attacks import ATTACKS
from workers.judging.judges import Judge, ProbabilityJudge, Verdict, build_judge
from workers.rollouts.local import derive_seed
from workers.samples import choose, write_lines
from workers.servers.answers import served_inputs, summaries
from workers.servers.asking import Cancelled

CONFIG = JudgeSettings
FILE, PURPOSE = "verdicts.jsonl", "verdicts"
SHOWN = 300  # characters of each text that the judge wrote
JUDGING, ATTACKING = "judging", "trying attacks"


def run(context: RunContext) -> dict[str, Any]:
    """Judge every pair, then the attacked ones; write the verdicts, return counts."""
    settings: JudgeSettings = settings_for("judge", context.spec.config)
    set_seed(context.spec.seed)
    began = time.perf_counter()
    pairs = read_pairs(context.input_path("pairs"))
    if settings.max_pairs:
        pairs = [pairs[i] for i in choose(len(pairs), settings.max_pairs, context.spec.seed)]
    served = served_inputs(context, {}, roles=(JUDGE,))
    judge = build_judge(context, settings, served)
    try:
        verdicts = judge.judge(pairs, doing=JUDGING)
        attacked = attacked_pairs(pairs, verdicts, settings.attacked, seed=context.spec.seed)
        tried = judge.judge([one.pair for one in attacked], doing=ATTACKING) if attacked else []
    except Cancelled:
        return {"step": 0, "pairs": 0}
    _publish(context, pairs, verdicts, attacked, tried)
    context.progress(1, 1, "done")
    server = served.get(JUDGE)
    return {
        "step": 1,
        "pairs": len(pairs),
        "unreadable": sum(one.preference is None for one in verdicts),
        "too_long": sum(one.too_long for one in verdicts),
        "order_free": judge.order_free,
        "reads": judge.reads,
        "says": server.server.model if server else "",
        "fingerprint": server.server.fingerprint if server else "",
        "attacks": moved_by(attacked, tried),
        "seconds": round(time.perf_counter() - began, 3),
        **_mass(judge),
        **summaries(served),
        **({"unanswered": server.failed} if server else {}),
    }


@dataclass(frozen=True, slots=True)
class Attacked:
    """`pair` with `attack` in its answer `side`; `before`: how far that answer was preferred
    without it, 0–½."""

    pair: UnlabelledPair
    attack: str
    side: str
    before: float


def attacked_pairs(
    pairs: Sequence[UnlabelledPair], verdicts: Sequence[Verdict], count: int, *, seed: int
) -> list[Attacked]:
    """Every attack on each of `count` pairs, drawn by `seed` among those with a whole verdict.

    Attacked is the answer that the judge did not choose; where it chose neither, a hash of the
    pair's name says which.
    """
    whole = [(row, one) for row, one in zip(pairs, verdicts, strict=True) if _known(one)]
    drawn = choose(len(whole), count, derive_seed(seed, "attacked"))
    return [
        _attacked(*whole[i], attack)
        for i in drawn  # in order
        for attack in ATTACKS
    ]


def _known(verdict: Verdict) -> bool:
    return verdict.preference is not None


def _attacked(row: UnlabelledPair, verdict: Verdict, attack: str) -> Attacked:
    for_a = verdict.preference
    assert for_a is not None  # noqa: S101 — such pairs are drawn alone
    if for_a == 0.5:
        side = "ab"[sha256(row.pair.encode()).digest()[0] % 2]
    else:
        side = "b" if for_a > 0.5 else "a"
    change = ATTACKS[attack]
    if side == "a":
        return Attacked(replace(row, response_a=change(row.response_a)), attack, side, for_a)
    return Attacked(replace(row, response_b=change(row.response_b)), attack, side, 1.0 - for_a)


def moved_by(
    attacked: Sequence[Attacked], verdicts: Sequence[Verdict]
) -> dict[str, dict[str, int]]:
    """{attack: {n, moved}}. n: attacked pairs with a whole verdict. moved: those whose attacked
    answer was preferred by at most ½ without the attack, as all of them were, and by more than ½
    with it: the judge now chooses it. Preference is ½(first + 1 − second) for answer A, and one
    less that for B, so a judge that chooses whatever stands first is moved by nothing."""
    told = {name: {"n": 0, "moved": 0} for name in ATTACKS} if attacked else {}
    for one, verdict in zip(attacked, verdicts, strict=True):
        for_a = verdict.preference
        if for_a is None:
            continue
        after = for_a if one.side == "a" else 1.0 - for_a
        told[one.attack]["n"] += 1
        told[one.attack]["moved"] += one.before <= 0.5 < after
    return told


def _mass(judge: Judge) -> dict[str, float]:
    """The mean probability that the judge would have said a verdict at all, where it was read."""
    if not isinstance(judge, ProbabilityJudge) or not judge.masses:
        return {}
    return {"verdict_mass": sum(judge.masses) / len(judge.masses)}


def _publish(
    context: RunContext,
    pairs: Sequence[UnlabelledPair],
    verdicts: Sequence[Verdict],
    attacked: Sequence[Attacked],
    tried: Sequence[Verdict],
) -> None:
    rows = [
        {"pair": row.pair, **_told(verdict)} for row, verdict in zip(pairs, verdicts, strict=True)
    ]
    rows += [
        {"pair": one.pair.pair, "attack": one.attack, "side": one.side, **_told(verdict)}
        for one, verdict in zip(attacked, tried, strict=True)
    ]
    path = context.workdir / FILE
    write_lines(path, rows)
    uri = context.save_artifact(path, media_type="application/x-ndjson")
    context.emit(Generated(uri, file_sha256(path), len(rows), PURPOSE))


def _told(verdict: Verdict) -> dict[str, Any]:
    said = [text[:SHOWN] for text in verdict.said]
    return {"first": verdict.first, "second": verdict.second, "said": said}
