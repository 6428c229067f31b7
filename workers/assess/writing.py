"""What an assessment leaves: two files, samples, metric points and a summary. No torch."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from measures.trust.findings import Finding, Verdict, finding_to_json
from workers.assess.material import Material, Outputs
from workers.context import RunContext
from workers.contract.events import Sample
from workers.contract.reasons import in_words
from workers.data.snapshot import TRAIN
from workers.samples import Output, pick, publish_outputs
from workers.trust.shapes import tops as highest_and_lowest

VERSION = 1
ASSESSMENT = "assessment.json"
TOPS = 10  # highest and lowest answers to read
SHOWN = 4  # samples of each bucket


def publish(
    context: RunContext,
    material: Material,
    findings: Sequence[Finding],
    *,
    model: Mapping[str, Any],
    rows: Mapping[str, int],
) -> dict[str, Any]:
    """Writes and announces everything; returns the summary. rows: {file: rows in the dataset}."""
    report = {
        "version": VERSION,
        "model": {**model, "truncated_share": _truncated_share(material)},
        "findings": [in_words(finding_to_json(finding)) for finding in findings],
        "tops": tops(material),
        "splits": splits(material, rows),
        "stopped_early": bool(material.missing),
    }
    path = context.workdir / ASSESSMENT
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False), "utf-8")
    context.save_artifact(path, media_type="application/json")
    _publish_outputs(context, material)
    context.metrics(1, points(findings))
    return {"step": 1, **summary(findings), "precisions": _precisions(findings)}


def _precisions(findings: Sequence[Finding]) -> list[str]:
    """Number formats in which the model was seen to order answers as in float32."""
    return [
        name
        for finding in findings
        if finding.line == "precision"
        for name in finding.facts.get("alike", ())
    ]


def summary(findings: Sequence[Finding]) -> dict[str, Any]:
    """Verdicts counted and by line, and the figure of each line that has one."""
    counts = {
        verdict.value: sum(finding.verdict is verdict for finding in findings)
        for verdict in Verdict
    }
    return counts | {
        "lines": {finding.line: finding.verdict.value for finding in findings},
        "figures": {
            finding.line: {
                "value": finding.figure.value,
                "low": finding.figure.low,
                "high": finding.figure.high,
                "n": finding.figure.n,
            }
            for finding in findings
            if finding.figure is not None and finding.figure.value is not None
        },
        "temperature": next(
            (one.facts.get("temperature") for one in findings if one.line == "calibration"), None
        ),
    }


def points(findings: Sequence[Finding]) -> dict[str, float]:
    """Metric points: the counts, and the figure of each line that has one."""
    found = summary(findings)
    return {f"assess/{verdict.value}": float(found[verdict.value]) for verdict in Verdict} | {
        f"assess/line/{line}": float(figure["value"]) for line, figure in found["figures"].items()
    }


def _truncated_share(material: Material) -> float | None:
    """Of the held-out answers, those whose end the model could not read."""
    scored = material.held_out_scored
    return None if scored is None else scored.truncated / len(scored.values)


def tops(material: Material) -> dict[str, Any]:
    """The answers that score highest and lowest: of the policy, else of people's held-out pairs; of
    few answers so few that none is both."""
    outputs, pairs = material.policy or material.sft, material.held_out
    if outputs is not None:
        of = "the policy's answers" if material.policy else "the SFT model's answers"
        prompts = [prompt.messages[-1]["content"] for prompt in outputs.prompts]
        top, bottom = highest_and_lowest(
            prompts, outputs.texts, outputs.scored.values, k=max(1, min(TOPS, len(prompts) // 2))
        )
    elif pairs is not None:
        of = f"answers of the file {pairs.split}"
        top, bottom = highest_and_lowest(
            [*pairs.prompts, *pairs.prompts],
            [*pairs.chosen_texts, *pairs.rejected_texts],
            np.concatenate([pairs.chosen_scores, pairs.rejected_scores]),
            k=max(1, min(TOPS, len(pairs) // 2)),
        )
    else:
        of, top, bottom = "", (), ()
    return {
        "of": of,
        "top": [asdict(example) for example in top],
        "bottom": [asdict(example) for example in bottom],
    }


def splits(material: Material, rows: Mapping[str, int]) -> dict[str, Any]:
    """{file: rows, rows scored, and what it was used for}."""
    uses = {
        "held out": material.held_out,
        "people behind training": material.same_people,
        "people it never met": material.unseen_people,
        "fitting the temperature": material.fitting,
        "learned from": material.train,
    }
    scored = dict(material.splits)
    if material.train is not None:
        scored = {TRAIN: material.train, **scored}
    return {
        name: {
            "rows": rows.get(name, len(pairs)),
            "scored": len(pairs),
            "used_for": [use for use, of in uses.items() if of is not None and of.split == name],
        }
        for name, pairs in scored.items()
    }


def _publish_outputs(context: RunContext, material: Material) -> None:
    """Answers that people can be asked to rank, and the most telling of them as samples."""
    first = material.policy or material.sft
    if first is None:
        return
    second = material.sft if material.policy else None
    outputs = [_output(i, first, second) for i in range(len(first.texts))]
    publish_outputs(context, outputs)
    for bucket, i in pick([one.score for one in outputs], SHOWN, seed=context.spec.seed):
        one = outputs[i]
        context.emit(
            Sample(
                step=1,
                bucket=bucket,
                prompt=list(one.prompt),
                response=one.response,
                reward=one.score,
                baseline=one.other_response,
            )
        )


def _output(i: int, first: Outputs, second: Outputs | None) -> Output:
    apart = first.scored.disagreement
    return Output(
        prompt=list(first.prompts[i].messages),
        response=first.texts[i],
        score=float(first.scored.values[i]),
        disagreement=None if apart is None else float(apart[i]),
        other_response=None if second is None else second.texts[i],
        other_score=None if second is None else float(second.scored.values[i]),
    )
