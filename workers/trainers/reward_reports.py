"""How the finished models of a reward run do on every split, alone or together."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from measures.accuracy import pair_credit
from measures.calibration import calibration, randomise_orientation
from measures.estimate import Interval
from measures.intervals import dyadic_interval, mean_interval
from workers.config.training import RewardSettings
from workers.context import RunContext
from workers.contract.events import Alert, ReviewRequested, Sample
from workers.contract.jobs import PEOPLE
from workers.contract.reasons import in_words
from workers.data.batches import ANNOTATOR, fold_keys, padded_tokens, parts_under
from workers.data.snapshot import CHOSEN, REJECTED, TRAIN, Preference
from workers.rewards.ensemble import EnsembleLayout, combine, standardise, to_raw
from workers.samples import pick
from workers.trainers.reward_data import FOLD, EncodedPair, PairData, Part, Result, Scores
from workers.trainers.reward_trainer import StepCollator

# How good a reward model is on decided pairs, and on those that people decided.


@dataclass(frozen=True, slots=True)
class PairReport:
    """One split. Accuracies count a tie as ½; lengths are in characters of the whole answers, so
    that the rule sees what a person saw even where the model's text was cut."""

    rows: int
    accuracy: Interval
    length_only: Interval  # "the longer answer wins", on the same rows
    difference: Interval  # accuracy − length_only, paired
    margin_mean: float  # score of chosen − score of rejected
    longer_preferred: float  # share of pairs in which the model scores the longer answer higher
    ece: float | None  # expected calibration error of σ(margin), 0–1
    truncated_share: float  # of all answers, 0–1
    by_people: int = 0  # rows whose label people gave
    people: "PairReport | None" = None  # of those alone, where a model labelled others

    def plain(self) -> dict[str, object]:
        told = dict(in_words(asdict(replace(self, people=None))))
        del told["people"]
        return told | ({"people": self.people.plain()} if self.people else {})


def pair_report(
    rows: Sequence[Preference],
    margins: Sequence[float],
    *,
    chosen_lengths: Sequence[int],
    rejected_lengths: Sequence[int],
    truncated: int,
    replicates: int,
    seed: int,
) -> PairReport:
    """Accuracy with its interval next to the length-only rule on the same rows."""
    delta = np.asarray(margins, dtype=float)
    length_delta = np.subtract(chosen_lengths, rejected_lengths).astype(float)
    credit, by_length = pair_credit(delta), pair_credit(length_delta)
    calibrated = calibration(*randomise_orientation(delta, seed=seed))

    def interval(values: np.ndarray) -> Interval:
        return _interval(values, rows, replicates=replicates, seed=seed)

    return PairReport(
        rows=len(rows),
        accuracy=_share(interval(credit)),
        length_only=_share(interval(by_length)),
        difference=interval(credit - by_length),
        margin_mean=float(delta.mean()) if len(rows) else 0.0,
        longer_preferred=_longer_preferred(delta, length_delta),
        ece=calibrated.ece,
        truncated_share=truncated / (2 * len(rows)) if len(rows) else 0.0,
    )


def _interval(
    values: np.ndarray, rows: Sequence[Preference], *, replicates: int, seed: int
) -> Interval:
    """Resamples what rows share: both responses where responses recur, else their cluster."""
    if rows and all(row.units is not None for row in rows):
        first, second = zip(*(row.units for row in rows if row.units), strict=True)
        return dyadic_interval(values, first, second)
    clusters = [row.cluster for row in rows]
    return mean_interval(values, clusters=clusters, replicates=replicates, seed=seed)


def _share(found: Interval) -> Interval:
    """Bounds by a normal approximation may leave 0–1 where nearly all or nearly none are right."""
    if found.low is None or found.high is None:
        return found
    return replace(found, low=max(0.0, found.low), high=min(1.0, found.high))


def _longer_preferred(delta: np.ndarray, length_delta: np.ndarray) -> float:
    differ = length_delta != 0
    if not differ.any():
        return float("nan")
    return float(pair_credit(delta[differ] * np.sign(length_delta[differ])).mean())


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
    """Of all pairs, and once more of those that people labelled where a model labelled others."""
    whole = _report_of(pairs, margins, settings, seed=seed)
    own = [i for i, pair in enumerate(pairs) if pair.row.labelled_by == PEOPLE]
    if not 0 < len(own) < len(pairs):
        return replace(whole, by_people=len(own))
    people = _report_of([pairs[i] for i in own], [margins[i] for i in own], settings, seed=seed)
    return replace(whole, by_people=len(own), people=replace(people, by_people=len(own)))


def _report_of(
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
    """Every training pair judged by the model that did not see its fold; None before all ended.

    Over annotators it is every vote for a side, judged by the model of the fold that knows neither
    the pair nor any vote of this person.
    """
    folds = {result.name: result for result in results if result.kind == FOLD}
    if not settings.folds or len(folds) < settings.folds:
        return None
    pairs: list[EncodedPair] = []
    margins: list[float] = []
    accuracies: list[float | None] = []
    for part in parts:
        if part.kind != FOLD:
            continue
        judged = zip(
            (data.train[i] for i in part.held_out),
            folds[part.name].scores["fold"].margins,
            strict=True,
        )
        own = [vote for pair, margin in judged for vote in _held_votes(pair, margin, part.people)]
        pairs += [pair for pair, _ in own]
        margins += [margin for _, margin in own]
        right = pair_credit([margin for _, margin in own])
        accuracies.append(float(right.mean()) if own else None)
    found: dict[str, Any] = {"folds": settings.folds, "by": ANNOTATOR, "fold_accuracy": accuracies}
    if any(part.people for part in parts):
        found["seen_minus_unseen"] = dict(in_words(asdict(_people_gap(folds, parts, data))))
    else:
        found["by"], _ = fold_keys([pair.row for pair in data.train], settings.folds)
    return {**found, **_report(pairs, margins, settings, seed=seed).plain()}


def _held_votes(
    pair: EncodedPair, margin: float, people: frozenset[str]
) -> list[tuple[EncodedPair, float]]:
    """The pair as each of `people` who voted for a side would have it, with the margin that way
    round; without people the pair itself."""
    if not people:
        return [(pair, margin)]
    other = replace(
        pair,
        row=replace(pair.row, chosen=pair.row.rejected, rejected=pair.row.chosen),
        chosen=pair.rejected,
        rejected=pair.chosen,
    )
    ways = {CHOSEN: (pair, margin), REJECTED: (other, -margin)}
    return [ways[vote] for name, vote in pair.row.voters if name in people and vote in ways]


def _people_gap(folds: Mapping[str, Result], parts: Sequence[Part], data: PairData) -> Interval:
    """How much more often a model is right about the votes of people it learned from than about
    those of its fold, on the same pairs, none of which it was trained on. 0–1, signed.

    The interval is the wider of two: over what pairs share and over the people left out.
    """
    gaps: list[float] = []
    clusters: list[str] = []
    names: list[str] = []
    for part in parts:
        if not part.people:
            continue
        margins = folds[part.name].scores["fold"].margins
        for i, margin in zip(part.held_out, margins, strict=True):
            row = data.train[i].row
            credit = float(pair_credit([margin])[0])
            right = {CHOSEN: credit, REJECTED: 1 - credit}
            seen = [right[v] for n, v in row.voters if n not in part.people and v in right]
            for name, vote in row.voters:
                if seen and name in part.people and vote in right:
                    gaps.append(float(np.mean(seen)) - right[vote])
                    clusters.append(row.cluster)
                    names.append(name)
    by_pair = mean_interval(gaps, clusters=clusters)
    by_person = mean_interval(gaps, clusters=names)
    return max(by_pair, by_person, key=lambda found: (found.high or 0.0) - (found.low or 0.0))


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
    """The reports as a file, and their metrics as the last metric points of the run."""
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


SHOWN, FLAGGED = 8, 4  # held-out pairs of each bucket, and those that people are asked about
SURE = 0.9  # confidence of people from which a pair that it ranks otherwise is flagged


def show_pairs(
    context: RunContext, pairs: Sequence[EncodedPair], scores: Scores, *, step: int
) -> None:
    """Held-out pairs as samples, the chosen answer beside the rejected one: the surest right ones
    (high), the surest wrong ones (low), and others. The surest wrong ones of which people were
    sure go to their inbox."""
    margins = scores.margins
    for bucket, i in pick(margins, SHOWN, seed=context.spec.seed):
        context.emit(_pair_sample(pairs[i], scores, i, bucket=bucket, step=step))
    wrong = [i for i, pair in enumerate(pairs) if margins[i] < 0 and pair.row.confidence >= SURE]
    for i in sorted(wrong, key=lambda i: margins[i])[:FLAGGED]:
        row = pairs[i].row
        more = f"the other scores {-margins[i]:.2f} more"
        reason = f"rule surest_wrong: people chose this answer, and {more}"
        context.emit(ReviewRequested(step, list(row.prompt), row.chosen, reason))
        context.emit(_pair_sample(pairs[i], scores, i, bucket="flagged", step=step))


def _pair_sample(pair: EncodedPair, scores: Scores, i: int, *, bucket: str, step: int) -> Sample:
    return Sample(
        step=step,
        bucket=bucket,
        prompt=list(pair.row.prompt),
        response=pair.row.chosen,
        reward=scores.chosen[i],
        parts={"margin": scores.margins[i]},
        tokens=pair.chosen.response_length,
        baseline=pair.row.rejected,
    )


# What a reward run will do, counted and timed before it does it.

PROBED_PAIRS = 8  # on a processor; an accelerator is timed on a whole step
FORWARD_SHARE = 1 / 3  # of a step's time: a backward pass costs about two forward passes
MB = 1e6
LIKELY_DUPLICATES = 0.01  # share of held-out pairs among the training pairs worth a warning


def preflight(
    model: nn.Module, data: PairData, parts: Sequence[Part], settings: RewardSettings, pad_id: int
) -> dict[str, Any]:
    """Rows, truncation, ties, duplicates; steps, seconds and memory of the whole run.

    Seconds come from one timed step on pairs of median length, and memory from what that step keeps
    for its backward pass, scaled to the largest part: both are estimates, good to a factor of two.
    """
    counted = count(data, settings)
    steps = [part_steps(len(part.rows), settings) for part in parts]
    probe = _probe(model, data.train, settings, pad_id)
    tokens = _epoch_tokens(data.train, settings)
    seconds = 0.0
    for part, part_step_count in zip(parts, steps, strict=True):
        share = len(part.rows) / len(data.train)
        passes = part_step_count / max(1, ceil(len(part.rows) / settings.batch_size))
        evaluations = 1 + ceil(part_step_count / settings.eval_every)
        watched = min((_epoch_tokens(s, settings) for s in data.held_out.values() if s), default=0)
        everything = sum(_epoch_tokens(s, settings) for s in data.splits.values() if s)
        seconds += probe["seconds_per_token"] * (
            tokens * share * passes + FORWARD_SHARE * (evaluations * watched + everything)
        )
    if settings.max_seconds is not None:
        seconds = min(seconds, settings.max_seconds)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    held = sum(p.numel() * p.element_size() for p in model.parameters())
    return counted | {
        "models": len(parts),
        "steps": sum(steps),
        "seconds": float(f"{seconds:.2g}"),
        "tokens_per_pass": tokens,
        # Gradients and Adam's two moments, in float32, beside the weights.
        "memory_mb": round((held + 12 * trainable + probe["activation_bytes"]) / MB, 1),
        "parameters": sum(p.numel() for p in model.parameters()),
        "trainable_parameters": trainable,
    }


def part_steps(rows: int, settings: RewardSettings) -> int:
    """Optimizer steps of one training, as the library counts them."""
    steps = ceil(ceil(rows / settings.batch_size) * settings.epochs)
    return settings.max_steps or max(1, steps)


def count(data: PairData, settings: RewardSettings) -> dict[str, Any]:
    """What the rows say by themselves."""
    overlong = [pair for pair in data.train if pair.cut]
    dropped = data.left_out.get("overlong", 0)
    return {
        "rows": {split: len(pairs) for split, pairs in data.splits.items()},
        "pairs_truncated": len(overlong),
        "tokens_cut_mean": round(sum(p.cut for p in overlong) / len(overlong), 1)
        if overlong
        else 0.0,
        "tokens_cut_most": max((p.cut for p in overlong), default=0),
        "pairs_trl_would_drop": len(overlong) + dropped,
        "pairs_dropped_as_overlong": dropped,
        "pairs_of_weight_zero": data.left_out.get("zero_weight", 0),
        "ties": sum(p.row.confidence == 0.5 for p in data.train),
        "pairs_alike_after_truncation": sum(p.chosen.ids == p.rejected.ids for p in data.train),
        "held_out_also_in_train": duplicates(data),
    }


def duplicates(data: PairData) -> dict[str, int]:
    """By split: held-out pairs that are training pairs too, whatever the order of the answers."""
    seen = {_key(pair) for pair in data.train}
    return {s: sum(_key(pair) in seen for pair in pairs) for s, pairs in data.held_out.items()}


def warnings_of(found: dict[str, Any]) -> list[str]:
    """What a person should know before the run, one sentence each."""
    rows = found["rows"]
    told = []
    if found["pairs_truncated"]:
        told.append(
            f"{found['pairs_truncated']} of {rows['train']} training pairs are longer than "
            f"max_length and are cut, by {found['tokens_cut_mean']} tokens on average and "
            f"{found['tokens_cut_most']} at most."
        )
    if found["pairs_dropped_as_overlong"]:
        told.append(
            f"{found['pairs_dropped_as_overlong']} training pairs are longer than max_length and "
            "are left out."
        )
    if found["pairs_of_weight_zero"]:
        told.append(f"{found['pairs_of_weight_zero']} training pairs weigh nothing: left out.")
    if found["pairs_alike_after_truncation"]:
        told.append(
            f"{found['pairs_alike_after_truncation']} training pairs hold the same tokens twice "
            "and teach nothing."
        )
    for split, number in found["held_out_also_in_train"].items():
        if number > LIKELY_DUPLICATES * rows[split]:
            told.append(f"{number} of {rows[split]} pairs of '{split}' are training pairs too.")
    return told


def _key(pair: EncodedPair) -> tuple[str, frozenset[str]]:
    answers = frozenset(" ".join(text.split()) for text in (pair.row.chosen, pair.row.rejected))
    return repr(pair.row.prompt), answers


def _epoch_tokens(pairs: Sequence[EncodedPair], settings: RewardSettings) -> int:
    """Tokens of one pass, padding included: pairs of similar length share a step."""
    ordered = sorted(pairs, key=lambda pair: pair.longest)
    size = settings.batch_size
    return sum(
        padded_tokens([n for pair in ordered[start : start + size] for n in pair.lengths])
        for start in range(0, len(ordered), size)
    )


def _probe(
    model: nn.Module, pairs: Sequence[EncodedPair], settings: RewardSettings, pad_id: int
) -> dict[str, float]:
    """Seconds per padded token of a step, and bytes that the largest part keeps for its backward
    pass. Leaves no gradient behind."""
    device = next(model.parameters()).device
    ordered = sorted(pairs, key=lambda pair: pair.longest)
    size = settings.batch_size if device.type == "cuda" else PROBED_PAIRS
    size = min(size, settings.batch_size, len(ordered))
    middle = (len(ordered) - size) // 2
    parts = StepCollator(settings, pad_id)(ordered[middle : middle + size])
    tokens = sum(ids.numel() for part in parts for ids, _ in part["rectangles"])
    model.train()
    kept = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    seconds = 0.0
    for attempt in range(2):  # the first one warms up, and is counted instead of timed
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        started = time.perf_counter()
        for part in parts:
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                scores = torch.cat(
                    [
                        _forward(
                            model, ids.to(device), mask.to(device), hooks if not attempt else None
                        )
                        for ids, mask in part["rectangles"]
                    ]
                )
                loss = scores.float().square().mean()
            loss.backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
    model.zero_grad(set_to_none=True)
    longest = ordered[-settings.batch_size :]
    largest = max(
        padded_tokens([n for i in part for n in longest[i].lengths])
        for part in parts_under(
            [pair.lengths for pair in longest],
            budget=settings.max_tokens_per_batch,
            at_least=settings.gradient_accumulation,
        )
    )
    return {
        "seconds_per_token": seconds / tokens,
        "activation_bytes": kept * largest / tokens,
    }


def _forward(model: nn.Module, ids: Tensor, mask: Tensor, hooks: Any) -> Tensor:
    if hooks is None:
        return model(input_ids=ids, attention_mask=mask).logits.squeeze(-1)
    with hooks:
        return model(input_ids=ids, attention_mask=mask).logits.squeeze(-1)
