"""How the finished models of a reward run do on every split, alone or together."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from measures.ensembles import combine, standardise, to_raw
from workers.config.training import RewardSettings
from workers.context import RunContext
from workers.contract.events import Alert
from workers.data.folds import fold_keys
from workers.data.snapshot import TRAIN
from workers.rewards.layout import EnsembleLayout
from workers.rewards.report import PairReport, pair_report
from workers.trainers.reward_data import EncodedPair, PairData
from workers.trainers.reward_parts import FOLD, Part, Result

OVERFIT_GAP = 0.15  # training − held-out accuracy; SPEC of the project: more is memorised


def ensemble_layout(
    members: Sequence[Result], validation: str, settings: RewardSettings
) -> EnsembleLayout:
    """Scales and threshold from the members' scores on the validation split's answers."""
    split = [result.scores[validation] for result in members]
    return EnsembleLayout.fitted(
        [result.name for result in members],
        [scores.chosen + scores.rejected for scores in split],
        aggregate=settings.aggregate,
        lam=settings.disagreement_coef,
    )


def split_reports(
    results: Sequence[Result],
    data: PairData,
    layout: EnsembleLayout | None,
    settings: RewardSettings,
    *,
    seed: int,
) -> dict[str, PairReport]:
    """A report per split with rows, of the one result or of all together by `layout`."""
    return {
        split: _report(pairs, _margins(results, split, layout), settings, seed=seed)
        for split, pairs in data.splits.items()
        if pairs
    }


def _margins(results: Sequence[Result], split: str, layout: EnsembleLayout | None) -> list[float]:
    if layout is None:
        return results[0].scores[split].margins
    raw = np.array([r.scores[split].chosen + r.scores[split].rejected for r in results])
    z = standardise(raw, layout.scales)
    joint = to_raw(combine(z, layout.aggregate, lam=layout.lam), layout.scales)
    chosen, rejected = np.split(joint, 2)
    return (chosen - rejected).tolist()


def _report(
    pairs: Sequence[EncodedPair], margins: Sequence[float], settings: RewardSettings, *, seed: int
) -> PairReport:
    return pair_report(
        [pair.row for pair in pairs],
        margins,
        chosen_lengths=[len(pair.row.chosen) for pair in pairs],
        rejected_lengths=[len(pair.row.rejected) for pair in pairs],
        truncated=sum(p.chosen.truncated + p.rejected.truncated for p in pairs),
        replicates=settings.bootstrap_replicates,
        seed=seed,
    )


def cross_validation(
    results: Sequence[Result],
    parts: Sequence[Part],
    data: PairData,
    settings: RewardSettings,
    *,
    seed: int,
) -> dict[str, Any] | None:
    """Every training pair judged by the model that did not see its fold; None before all ended."""
    folds = {result.name: result for result in results if result.kind == FOLD}
    if not settings.folds or len(folds) < settings.folds:
        return None
    pairs: list[EncodedPair] = []
    margins: list[float] = []
    accuracies = []
    for part in parts:
        if part.kind != FOLD:
            continue
        own = folds[part.name].scores["fold"].margins
        pairs += [data.train[i] for i in part.held_out]
        margins += own
        accuracies.append(float(np.mean((np.sign(own) + 1) / 2)))
    by, _ = fold_keys([pair.row for pair in data.train], settings.folds)
    report = _report(pairs, margins, settings, seed=seed)
    return {"folds": settings.folds, "by": by, "fold_accuracy": accuracies, **report.plain()}


def gap_of(
    context: RunContext, reports: Mapping[str, PairReport], validation: str, *, step: int
) -> dict[str, Any]:
    """Training − held-out accuracy; an alert where it is over the bar."""
    train, held = reports.get(TRAIN), reports.get(validation)
    if train is None or held is None:
        return {}
    one, other = train.accuracy.value, held.accuracy.value
    if one is None or other is None:
        return {}
    gap = one - other
    if gap > OVERFIT_GAP:
        context.emit(
            Alert(
                rule="overfit",
                severity="warning",
                step=step,
                message=f"{one:.1%} of the training pairs are right and {other:.1%} of the pairs "
                f"of '{validation}': {100 * gap:.0f} points between them. Train for fewer epochs, "
                "set patience, or collect more pairs.",
                value=gap,
                threshold=OVERFIT_GAP,
            )
        )
    return {
        "train_minus_held_out": gap,
        "split": validation,
        "overfit": gap > OVERFIT_GAP,
        "threshold": OVERFIT_GAP,
    }


def publish(
    context: RunContext,
    reports: Mapping[str, PairReport],
    *,
    step: int,
    cross: Mapping[str, Any] | None,
) -> None:
    """The reports as a file, and their figures as the last metric points of the run."""
    for split, report in reports.items():
        context.metrics(
            step,
            {
                f"report/{split}/accuracy": report.accuracy.value,
                f"report/{split}/length_only_accuracy": report.length_only.value,
                f"report/{split}/margin": report.margin_mean,
            },
        )
    path = context.workdir / "report.json"
    plain: dict[str, Any] = {split: report.plain() for split, report in reports.items()}
    if cross is not None:
        plain["cross_validation"] = dict(cross)
    path.write_text(json.dumps(plain, indent=1))
    context.save_artifact(path, media_type="application/json")
