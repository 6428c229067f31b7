"""rldoctor and rlprobe on stored runs: paths on standard input, one JSON object on standard output.

Run by the interpreter of `.venv-rivals`. Their own names for figures, their own defaults, each
warning or worse counted. Both look at a run as a whole; so that a delay can be told, they are also
asked every few steps about the run so far, which is what their live monitors do.
"""

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_doctor.detectors.base import Severity
from rl_doctor.diagnosis import diagnose as doctor
from rl_doctor.ingest.base import run_from_records
from rlprobe.doctor.engine import diagnose_view
from rlprobe.doctor.runview import RunView
from rlprobe.schemas import RunManifest, StepRecord

from benchmarks.diagnosis_world.records import Record, read

EVERY = 5  # steps between two looks at a run that continues
Told = list[tuple[str, str]]  # (their name, the link it speaks of), the gravest first

DOCTOR_NAMES = {
    "objective/scores": "reward",
    "objective/scores_std": "reward_std",
    "eval/score": "eval_score",
    "objective/entropy_per_token": "entropy",
    "objective/kl": "kl",
    "policy/clipfrac_avg": "clip_ratio",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "loss/policy_avg": "policy_loss",
    "response/length": "response_length",
    "val/explained_variance": "explained_variance",
    "time/step_s": "step_time",
    "throughput/response_tokens_per_s": "tokens_per_second",
}
PROBE_NAMES = {
    "objective/scores": "reward_mean",
    "objective/scores_std": "reward_std",
    "objective/kl": "kl_mean",
    "objective/entropy_per_token": "entropy_mean",
    "val/ratio": "ratio_mean",
    "policy/clipfrac_avg": "clip_fraction",
    "loss/value_avg": "value_loss",
    "val/explained_variance": "value_explained_variance",
    "loss/policy_avg": "loss",
    "learning_rate": "lr",
    "grad_norm": "grad_norm",
    "response/length": "completion_len_mean",
    "response/repetition": "repetition_rate",
    "response/ended_share": "eos_rate",
    "time/step_s": "step_time_s",
    "time/rollout_s": "generation_time_s",
    "time/update_s": "optimization_time_s",
}
# They name symptoms. This is the link at which a reader of each would begin to look: our reading.
DOCTOR_LINKS = {
    "advantage_collapse": "reward",
    "entropy_collapse": "exploration",
    "reward_hacking": "reward",
    "length_pathology": "reward",
    "clip_saturation": "policy",
    "kl_drift": "policy",
    "gradient_pathology": "numerics",
    "reward_composition": "reward",
    "plateau": "reward",
}
PROBE_LINKS = {
    "KL_BLOWUP": "policy",
    "ENTROPY_COLLAPSE": "exploration",
    "REWARD_HACK_LENGTH": "reward",
    "FORMAT_GAMING": "reward",
    "CLIP_SATURATION": "policy",
    "DEGENERATE_GROUPS": "reward",
    "ADV_COLLAPSE": "reward",
    "VALUE_DIVERGENCE": "critic",
    "GRAD_PATHOLOGY": "numerics",
    "TRUNCATION_STARVE": "reward",
    "REPETITION_SPIRAL": "reward",
    "REWARD_STD_DEATH": "reward",
    "REF_POLICY_DRIFT_ASYMMETRY": "policy",
    "THROUGHPUT_ROT": "resources",
}


def main() -> None:
    warnings.simplefilter("ignore")
    found = {}
    for line in sys.stdin:
        record = read(Path(line.strip()))
        found[record.name] = {
            "rldoctor": looked(record, by_doctor),
            "rlprobe": looked(record, by_probe),
        }
    print(json.dumps(found))


def looked(record: Record, judge: Callable[[Record, int], Told]) -> dict[str, Any]:
    """What is said of the whole run, and the step from which on anything was said."""
    last = max((points[-1][0] for points in record.curves.values() if points), default=0)
    told = judge(record, last)
    step = None
    if told:
        looks = range(EVERY, last, EVERY)
        step = next((until for until in looks if judge(record, until)), last)
    return {
        "step": step,
        "links": list(dict.fromkeys(link for _, link in told)),
        "rules": [rule for rule, _ in told],
    }


def by_doctor(record: Record, until: int) -> Told:
    rows = rows_of(record, DOCTOR_NAMES, until)
    ended = dict(record.curves.get("response/ended_share", []))
    for row in rows:
        if row["step"] in ended:
            row["truncation_rate"] = 1.0 - ended[row["step"]]
    if not rows:
        return []
    run = run_from_records(rows, config={"algorithm": "ppo", **plain(record.config)})
    problems = doctor(run).problems
    return [
        (one.detector, DOCTOR_LINKS.get(one.detector, "reward"))
        for one in problems
        if one.severity >= Severity.WARNING
    ]


def by_probe(record: Record, until: int) -> Told:
    rows = rows_of(record, PROBE_NAMES, until)
    broken = dict(record.curves.get("numerics/non_finite", []))
    steps = []
    for row in rows:
        if row["step"]:
            ended = row.get("eos_rate")
            cut = None if ended is None else 1.0 - ended
            nan = int(broken.get(row["step"], 0))
            steps.append(
                StepRecord(**row, truncation_rate=cut, max_len_hit_frac=cut, nan_count=nan)
            )
    manifest = RunManifest(
        run_id=record.name, created_at="", algorithm="ppo", trainer_config=plain(record.config)
    )
    return [
        (one.signature_id, PROBE_LINKS[one.signature_id])
        for one in diagnose_view(RunView(manifest, steps))
        if one.severity != "info"
    ]


def rows_of(record: Record, names: dict[str, str], until: int) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for ours, theirs in names.items():
        for step, value in record.curves.get(ours, []):
            if step <= until and value is not None:
                rows.setdefault(step, {"step": step})[theirs] = float(value)
    return [rows[step] for step in sorted(rows)]


def plain(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if not isinstance(value, dict)}


if __name__ == "__main__":
    main()
