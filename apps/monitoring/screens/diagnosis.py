"""The Diagnosis tab in words: the chain, the verdict, the evidence. No queries."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.urls import reverse

from apps.common.numbers import figure
from apps.common.playbook import advice
from apps.common.registry import playbook_url
from apps.common.report.axes import words
from apps.monitoring.selectors.diagnosis import Diagnosed
from apps.monitoring.stages import STAGE_NAMES
from apps.training.models import Run
from apps.training.screens.charts import samples_near
from workers.contract.metrics import metric_or_own
from workers.rules.choices import diagnosing_rules
from workers.rules.diagnosis import CONSEQUENCE, FIRST, OK, UNKNOWN, Finding, Verdict
from workers.rules.rule import STAGES

ALTERNATIVE = "alternative"
# As the subject of a sentence.
SUBJECTS = {
    "data": "The data or the environment",
    "evaluation": "The evaluation protocol",
    "reward": "The reward",
    "policy": "The policy update",
    "critic": "The critic",
    "exploration": "Exploration",
    "freshness": "The freshness of the answers",
    "numerics": "The numerics",
    "resources": "The resources",
}
# And within one.
NOUNS = {
    "data": "the data",
    "evaluation": "the evaluation protocol",
    "reward": "the reward",
    "policy": "the policy update",
    "critic": "the critic",
    "exploration": "exploration",
    "freshness": "freshness",
    "numerics": "the numerics",
    "resources": "the resources",
}
STATES = {
    FIRST: ("Broke first", "bad", "circle-x"),
    ALTERNATIVE: ("May have broken first", "warn", "circle-help"),
    CONSEQUENCE: ("Followed", "warn", "triangle-alert"),
    OK: ("Nothing found", "good", "circle-check"),
    UNKNOWN: ("Not judged", "", "circle-help"),
}
CLASSES = {
    "contract": ("contract", "An exact invariant: no false alarms."),
    "probe": ("probe", "A statistic on fixed prompts or known pairs."),
    "trend": (
        "trend",
        "Compared with the run's own history, or with healthy runs at the same step.",
    ),
}
SHOWN_MISSING = 3
NO_RULE = "no rule for this kind of run"


@dataclass(frozen=True, slots=True)
class StageView:
    """`missing` are metrics without which the stage could not be judged, `why` the reason where
    that is none of them."""

    number: int
    stage: str
    name: str
    state: str
    words: str
    tone: str
    icon: str
    since: str
    missing: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class FindingView:
    finding: Finding
    title: str
    stage: str
    evidence_class: str
    class_words: str
    start_step: str
    found_at: str
    cleared: str
    value: str
    expected: str
    detail: str
    playbook: str
    samples: str
    suspects: str


@dataclass(frozen=True, slots=True)
class UnjudgedView:
    title: str
    stage: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiagnosisView:
    """`sentence` says it all at once; `first` is None when nothing was found."""

    sentence: str
    basis: str
    chain: list[StageView]
    summary: str
    first: FindingView | None
    alternatives: list[FindingView]
    consequences: list[FindingView]
    unjudged: list[UnjudgedView]
    judged: tuple[str, ...]


def diagnosis_view(run: Run, found: Diagnosed) -> DiagnosisView:
    said = found.verdict
    chain = _chain(found, said)
    view = _views(run)
    return DiagnosisView(
        sentence=_sentence(found, said),
        basis=_basis(run, found),
        chain=chain,
        summary=" ".join(
            f"{one.number}. {one.name}: {one.words.lower()}{one.since and f', {one.since}'}."
            for one in chain
        ),
        first=view(said.first) if said else None,
        alternatives=[view(one) for one in said.alternatives] if said else [],
        consequences=[view(one) for one in said.consequences] if said else [],
        unjudged=[
            UnjudgedView(one.title, STAGE_NAMES.get(one.stage, ""), _titles(one.missing))
            for one in found.unjudged
        ],
        judged=_titles(found.judged),
    )


def at_step(step: int) -> str:
    return "from the beginning" if step <= 0 else f"at step {step:,}"


def _sentence(found: Diagnosed, said: Verdict | None) -> str:
    if said is None:
        if not found.judged:
            return "Not enough data yet."
        return f"No problem found in {_counted(len(found.judged), 'metric')}."
    first = said.first
    text = f"{SUBJECTS[first.stage]} broke first, {at_step(first.start_step)} ({_measured(first)})"
    others = _stages(said.alternatives, but={first.stage})
    followed = _stages(said.consequences, but={first.stage, *(f.stage for f in said.alternatives)})
    if followed:
        text += f"; {_and(followed)} followed"
    text += "."
    if first.cleared_step is not None:
        text += f" Cleared at step {first.cleared_step:,}."
    if others:
        text += f" Possibly {_or(others)} instead: they started at the same time."
    return text


def _measured(one: Finding) -> str:
    """ "the reward follows length: 0.81, expected at most 0.7"."""
    title = one.title[:1].lower() + one.title[1:]
    if one.value is None:
        return title
    against = f", expected {one.expected}" if one.expected else ""
    return f"{title}: {figure(one.value)}{against}"


def _basis(run: Run, found: Diagnosed) -> str:
    """What was looked at, and over how many steps."""
    if found.last_step is None:
        return "The run has reported no metrics yet."
    text = (
        f"Analysed {_counted(len(found.judged), 'metric')} over "
        f"{_counted(found.steps, 'step')}, {found.first_step:,} to {found.last_step:,}"
    )
    if found.analysed_steps < found.steps:
        text += f", {found.analysed_steps:,} of them, evenly spread and with every evaluation"
    if found.compared_with:
        text += f"; compared with {_counted(found.compared_with, 'healthy run')} at the same steps"
        if found.wider > 1:
            text += f", of other inputs of the same sizes, so with limits {found.wider:g} × as wide"
    return text + (", still running." if run.is_live else ".")


def _chain(found: Diagnosed, said: Verdict | None) -> list[StageView]:
    judged = set(found.judged_stages)
    states = {one.stage: one.state for one in said.chain} if said else {}
    for one in said.alternatives if said else ():
        states[one.stage] = ALTERNATIVE
    ruled = {rule.stage for rule in diagnosing_rules(found.kind)}
    views = []
    for number, stage in enumerate(STAGES, 1):
        state = states.get(stage, OK if stage in judged else UNKNOWN)
        own = [one for one in found.findings if one.stage == stage]
        label, tone, icon = STATES[state]
        views.append(
            StageView(
                number=number,
                stage=stage,
                name=STAGE_NAMES[stage][:1].upper() + STAGE_NAMES[stage][1:],
                state=state,
                words=label,
                tone=tone,
                icon=icon,
                since=at_step(min(one.start_step for one in own)) if own else "",
                missing=_titles(_missing(found, stage)[:SHOWN_MISSING]) if state == UNKNOWN else (),
                why=NO_RULE if state == UNKNOWN and stage not in ruled else "",
            )
        )
    return views


def _missing(found: Diagnosed, stage: str) -> tuple[str, ...]:
    named = [name for one in found.unjudged if one.stage == stage for name in one.missing]
    if not named:
        named = [
            n for rule in diagnosing_rules(found.kind) if rule.stage == stage for n in rule.metrics
        ]
    return tuple(dict.fromkeys(named))


def _titles(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(metric_or_own(name).title for name in names)


class _views:
    """Findings of one run as rows."""

    def __init__(self, run: Run) -> None:
        self._slug, self._run = run.project.slug, run

    def __call__(self, one: Finding) -> FindingView:
        name, explained = CLASSES.get(one.evidence_class, (one.evidence_class, ""))
        url = playbook_url(self._slug, one.rule)
        suspects = [NOUNS[stage] for stage in one.suspects if stage in NOUNS]
        return FindingView(
            finding=one,
            title=one.title,
            stage=STAGE_NAMES[one.stage],
            evidence_class=name,
            class_words=explained,
            start_step=f"{one.start_step:,}"
            + (f" to {one.start_step + one.slack:,}" if one.slack else ""),
            found_at=f"{one.step:,}",
            cleared="" if one.cleared_step is None else f"{one.cleared_step:,}",
            value=words(one.value) if one.value is not None else "—",
            expected=one.expected,
            detail=one.detail or advice(one.rule),
            playbook=f"{url}?run={self._run.pk}" if url else "",
            samples=samples_near(self._run, one.step),
            suspects=_or(suspects),
        )


def tab_url(run: Run, tab: str = "diagnosis") -> str:
    return f"{reverse('training:run', args=[run.project.slug, run.pk])}?tab={tab}"


def _stages(findings: Sequence[Finding], *, but: set[str]) -> list[str]:
    return [NOUNS[one] for one in dict.fromkeys(f.stage for f in findings) if one not in but]


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _and(names: Sequence[str]) -> str:
    return _joined(names, "and")


def _or(names: Sequence[str]) -> str:
    return _joined(names, "or")


def _joined(names: Sequence[str], word: str) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"
