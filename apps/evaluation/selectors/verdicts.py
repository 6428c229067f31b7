"""What people said of answers: the newest verdict of each person, and what an answer came to."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from apps.accounts.models import Project, User
from apps.evaluation.models import FlaggedAnswer, Verdict
from apps.labeling.models import Comparison, Response, whole_response
from apps.labeling.texts import fingerprint
from apps.training.models import Run, RunInput, Sample
from measures.answer_audit import worst_of
from measures.messages import plain

Value = Verdict.Value
TONES = {
    Value.FINE: "good",
    Value.BAD: "bad",
    Value.UNSAFE: "bad",
    Value.WRONG_REWARD: "warn",
    Value.LABELING: "accent",
}
OF_THE_DATA = frozenset({Run.Kind.REWARD, Run.Kind.SFT})  # beside what stands an answer of it
AGAINST = frozenset({Value.BAD, Value.UNSAFE, Value.WRONG_REWARD})  # not what one would reward


def newest_of_each(rows: QuerySet[Verdict], target: str) -> list[Verdict]:
    """The newest row of every person about every answer; `target` names the column of the answer.
    One that takes a verdict back is among them."""
    order = (f"{target}_id", "by_id", "by_name")
    return list(rows.order_by(*order, "-id").distinct(*order))


def verdicts_of(target: str, keys: Collection[int | str]) -> dict[int | str, list[Verdict]]:
    """{answer: what counts, oldest first}; answers without a verdict are left out. target: sample,
    flagged or item."""
    rows = Verdict.objects.filter(**{f"{target}__in": keys})
    found: dict[int | str, list[Verdict]] = defaultdict(list)
    for row in sorted(newest_of_each(rows, target), key=lambda row: row.pk):
        if row.value != Value.WITHDRAWN:
            found[getattr(row, f"{target}_id")].append(row)
    return dict(found)


def verdicts_of_flagged(rows: Iterable[FlaggedAnswer]) -> dict[int, list[Verdict]]:
    """By the entry's key; a verdict stands on the sample, where there is one."""
    rows = list(rows)
    by_sample = verdicts_of("sample", {row.sample_id for row in rows if row.sample_id})
    by_entry = verdicts_of("flagged", {row.pk for row in rows if not row.sample_id})
    return {
        row.pk: by_sample.get(row.sample_id, []) if row.sample_id else by_entry.get(row.pk, [])
        for row in rows
    }


def last_verdict(*, project: Project, user: User, sample: Sample | None = None) -> Verdict | None:
    """The newest verdict of the person that counts, of the inbox and of samples, or on this one."""
    mine = Verdict.objects.filter(project=project, by=user, item=None)
    if sample is not None:
        mine = mine.filter(sample=sample)
    newest = newest_of_each(mine.exclude(sample=None), "sample")
    newest += newest_of_each(mine.exclude(flagged=None), "flagged")
    kept = [row for row in newest if row.value != Value.WITHDRAWN]
    return max(kept, key=lambda row: row.pk, default=None)


def recent_verdicts(*, project: Project, limit: int = 10) -> list[Verdict]:
    """Newest first, of the inbox and of samples; also those taken back."""
    rows = Verdict.objects.filter(project=project, item=None)
    return list(rows.select_related("sample__run", "flagged__run").order_by("-id")[:limit])


def run_verdicts(run: Run) -> list[Verdict]:
    """What counts of a run's samples and entries, newest first."""
    rows = Verdict.objects.filter(Q(sample__run=run) | Q(flagged__run=run))
    found = newest_of_each(rows.exclude(sample=None), "sample")
    found += newest_of_each(rows.exclude(flagged=None), "flagged")
    kept = [row for row in found if row.value != Value.WITHDRAWN]
    return sorted(kept, key=lambda row: -row.pk)


@dataclass(frozen=True, slots=True)
class Tally:
    """How a run's answers were judged, each by its worst verdict. n: answers with a verdict."""

    n: int
    by_value: Mapping[str, int]


def tally_of(project: Project) -> Tally:
    """Of all samples and entries of the project, each by its worst verdict."""
    rows = Verdict.objects.filter(project=project, item=None)
    said: dict[tuple[str, int], list[str]] = defaultdict(list)
    for target in ("sample", "flagged"):
        for row in newest_of_each(rows.exclude(**{target: None}), target):
            if row.value != Value.WITHDRAWN:
                said[target, getattr(row, f"{target}_id")].append(row.value)
    counts = dict.fromkeys((value.value for value in Value if value != Value.WITHDRAWN), 0)
    for values in said.values():
        counts[worst_of(values)] += 1
    return Tally(len(said), counts)


def baseline_answers(run: Run, samples: Iterable[Sample]) -> dict[int, str]:
    """{sample: the baseline's answer to its prompt} of samples of one run, where there is one: its
    own, else one that the same baseline gave in another run of the project or that lies among the
    answers people compare. None of a run that shows answers of the data."""
    samples = list(samples)
    if run.kind in OF_THE_DATA:
        return {}
    found = {one.pk: one.baseline for one in samples if one.baseline.strip()}
    keys = {one.pk: prompt_key(one.prompt) for one in samples if one.pk not in found}
    wanted = {pk: key for pk, key in keys.items() if key}
    baseline = RunInput.objects.filter(run=run, role="sft").values_list("checkpoint", flat=True)
    model = baseline.first() if wanted else None
    if model is None:
        return found
    prompts = [one.prompt for one in samples if one.pk in wanted]
    known = _given_before(run.project, model, prompts, set(wanted.values()))
    return found | {pk: known[key] for pk, key in wanted.items() if key in known}


def prompt_key(prompt: Any) -> str:
    """By which stored prompts are found; "" of what a trainer sent and is no conversation."""
    try:
        return fingerprint(prompt)
    except (KeyError, TypeError, AttributeError):
        return ""


def _given_before(
    project: Project, model: str, prompts: list[Any], keys: Collection[str]
) -> dict[str, str]:
    """{fingerprint of a prompt: the model's answer to it}."""
    stored = Response.objects.filter(
        prompt__project=project, prompt__text_hash__in=keys, origin_ref=model
    ).order_by("pk")
    known = {
        key: plain(messages)
        for key, messages in stored.values_list("prompt__text_hash", whole_response())
    }
    runs = RunInput.objects.filter(role="sft", checkpoint=model).values("run")
    rows = Sample.objects.filter(run__in=runs, run__project=project, prompt__in=prompts)
    rows = rows.exclude(run__kind__in=OF_THE_DATA)
    for prompt, answer in rows.exclude(baseline="").values_list("prompt", "baseline"):
        known[prompt_key(prompt)] = answer
    return {key: answer for key, answer in known.items() if answer.strip()}


def sent_pairs(samples: Collection[Sample]) -> dict[int, int]:
    """{sample: the comparison it became}, of those sent to labeling."""
    if not samples:
        return {}
    project = next(iter(samples)).run.project_id
    names = {pair_id(sample): sample.pk for sample in samples}
    rows = Comparison.objects.filter(project=project, external_id__in=names)
    return {names[name]: pk for pk, name in rows.values_list("pk", "external_id")}


def pair_id(sample: Sample) -> str:
    """The comparison's own id, by which a sample is sent once."""
    return f"verdict-{sample.pk}"


def pair_batch(sample: Sample) -> str:
    return f"verdict {sample.pk}"
