"""Judges: which pairs they may be asked about, and their verdicts beside people's votes as arrays.

Everything that compares with people reads a human sample, drawn from the pairs by a hash of their
prompts. Nobody who votes sees a verdict, so a vote is never a copy of one.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, When
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.common.errors import Conflict, DomainError, Missing
from apps.evaluation.models import (
    CertificateUse,
    HeadToHead,
    Judge,
    JudgeMeasurement,
    JudgeRun,
    JudgeVerdict,
    JudgeVersion,
    LabelCertificate,
)
from apps.evaluation.selectors.head_to_head import tasks_of
from apps.labeling.models import (
    Answer,
    Choice,
    Decision,
    PairSelection,
    Response,
    Slot,
    Task,
    whole_prompt,
    whole_response,
)
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import TRAIN
from apps.snapshots.selectors.lineage import before_run, with_parts
from apps.training.models import Checkpoint, Run, RunInput
from apps.training.services.kinds import ANSWERING, REWARDS
from measures.messages import plain, plain_length
from measures.splits import unit_hash

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Part = JudgeMeasurement.Part
PROJECT, BATCH, HEAD_TO_HEAD = "project", "batch", "head_to_head"
SCORES = {Choice.A: 1.0, Choice.B: 0.0, Choice.TIE: 0.5, Choice.BOTH_BAD: 0.5}
SAMPLE_SALT, PART_SALT, AUDIT_SALT = "judge sample", "judge part", "judge audit"
# Of the prompts of the human sample.
PARTS = ((Part.TUNE, 0.3), (Part.CHOOSE, 0.3), (Part.CERTIFY, 0.4))
DISPUTED = "disputed"  # people voted, and it is undecided
_CONTROLS = (Task.Stratum.GOLD, Task.Stratum.PRACTICE)
_MEASURING = ("", Task.Slice.MEASURING)
MOST_ANCESTORS = 30


# --- which pairs ---


@dataclass(frozen=True, slots=True)
class Scope:
    """Which pairs of a project: all, those of a batch, or those of a head-to-head."""

    kind: str = PROJECT
    name: str = ""

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "name": self.name}

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Self:
        return cls(str(kept.get("kind", PROJECT)), str(kept.get("name", "")))

    def overlaps(self, other: "Scope") -> bool:
        """Whether a pair could be in both."""
        return self == other or self.kind != other.kind

    @property
    def words(self) -> str:
        if self.kind == BATCH:
            return f"batch {self.name}"
        return f"head-to-head {self.name}" if self.kind == HEAD_TO_HEAD else "all pairs"


def scope_check(*, project: Project, scope: Scope) -> None:
    """Raises `DomainError` on `scope` for one that the project does not have."""
    if scope.kind == HEAD_TO_HEAD:
        found = HeadToHead.objects.filter(project=project, pk=scope.name).first()
        if found is None:
            raise Missing("There is no such head-to-head.", field="scope")
        if found.is_several:
            raise Conflict(
                "A judge stands beside people where two systems are compared, and this compares "
                "more.",
                code="several_systems",
                field="scope",
            )
    elif scope.kind == BATCH:
        if not Task.objects.filter(project=project, batch=scope.name, kind=Task.Kind.PAIR).exists():
            raise Missing("There is no such batch.", field="scope")
    elif scope.kind != PROJECT:
        raise DomainError(
            f"One of {PROJECT}, {BATCH}, {HEAD_TO_HEAD}.", code="bad_scope", field="scope"
        )


def tasks_in(*, project: Project, scope: Scope) -> QuerySet[Task]:
    """Every pair of the scope that a judge may be asked about."""
    if scope.kind == HEAD_TO_HEAD:
        return tasks_of(HeadToHead.objects.select_related("pairs").get(pk=scope.name))
    rows = Task.objects.filter(project=project, kind=Task.Kind.PAIR)
    rows = rows.exclude(stratum__in=_CONTROLS).exclude(state=Task.State.DROPPED)
    return rows.filter(batch=scope.name) if scope.kind == BATCH else rows


def batches_of(project: Project) -> list[str]:
    """Batches with pairs, newest first."""
    rows = Task.objects.filter(project=project, kind=Task.Kind.PAIR).exclude(batch="")
    found = rows.values("batch").annotate(last=F("batch")).values_list("batch", flat=True)
    return sorted(set(found), reverse=True)[:100]


def pair_rows(tasks: QuerySet[Task]) -> list[dict[str, Any]]:
    """What a run is given: no vote, no source of an answer."""
    rows = tasks.order_by("pk").values_list(
        "pk",
        whole_prompt("prompt"),
        *(whole_response(f"response_{side}") for side in "ab"),
    )
    return [
        {"pair": str(pk), "prompt": prompt, "response_a": a, "response_b": b}
        for pk, prompt, a, b in rows.iterator(chunk_size=1_000)
    ]


def without_verdict(tasks: QuerySet[Task], version: JudgeVersion) -> QuerySet[Task]:
    known = JudgeVerdict.objects.filter(version=version, task=OuterRef("pk"))
    return tasks.filter(~Exists(known))


# Under so many prompts each pair is a unit of its own: what is said then holds for these prompts.
LEAST_UNITS = 40


def pairs_are_units(*, project: Project, scope: Scope) -> bool:
    """Whether pairs, and not prompts, are drawn by hash and hang together in nothing: where so few
    prompts are asked about again and again that they could not be sampled."""
    if scope.kind == HEAD_TO_HEAD:
        return False
    prompts = tasks_in(project=project, scope=scope).order_by().values("prompt").distinct()
    return len(prompts[:LEAST_UNITS]) < LEAST_UNITS


# --- judges ---


def judge_get(*, project: Project, judge_id: int) -> Judge:
    found = Judge.objects.filter(project=project, pk=judge_id).first()
    if found is None:
        raise Missing("There is no such judge in this project.", field="judge")
    return found


def version_get(*, judge: Judge, number: int | None = None) -> JudgeVersion:
    """The version of this number, else the newest."""
    rows = judge.versions.select_related("judge__project", "model__run").order_by("-number")
    found = (rows if number is None else rows.filter(number=number)).first()
    if found is None:
        raise Missing("This judge has no such version.", field="version")
    return found


def versions_of(*, project: Project) -> list[JudgeVersion]:
    """The newest version of every judge that is in use, by name."""
    rows = JudgeVersion.objects.filter(judge__project=project, judge__archived_at__isnull=True)
    newest = rows.order_by("judge__name", "judge_id", "-number").distinct("judge__name", "judge_id")
    return list(newest.select_related("judge", "model__run"))


def could_judge(project: Project) -> list[Checkpoint]:
    """Models that may be judges: reward models, policies, served models; newest first."""
    rows = Checkpoint.objects.filter(
        project=project, run__kind__in=ANSWERING | REWARDS, files_removed_at__isnull=True
    ).exclude(status=Checkpoint.Status.REJECTED)
    return list(rows.filter(tags__contains=["final"]).select_related("run").order_by("-created_at"))


def runs_of(version: JudgeVersion) -> QuerySet[JudgeRun]:
    return version.runs.select_related("run").order_by("-created_at")


def is_shaped(version: JudgeVersion) -> bool:
    """Whether figures of people had been seen when its prompt or its model was chosen, so that only
    pairs that were kept apart can say what it is worth. Figures of the same prompt and model, as of
    a version before its server changed, have shaped nothing; figures of another judge that is asked
    in words may have shaped a prompt, and a reward model has none."""
    earlier = JudgeMeasurement.objects.filter(at__lt=version.created_at).exclude(
        version__config=version.config, version__model=version.model_id
    )
    own = Q(version__judge=version.judge_id)
    if not version.reads_answers_alone:
        prompted = ~Q(version__model__run__kind__in=Run.REWARD_KINDS)
        own |= Q(version__judge__project=version.judge.project_id) & prompted
    tuned = JudgeRun.objects.filter(
        version__judge=version.judge_id,
        version__config=version.config,
        version__model=version.model_id,
        purpose=JudgeRun.Purpose.TUNE,
    )
    return earlier.filter(own).exists() or tuned.exists()


def measurement_of(
    version: JudgeVersion, scope: Scope | None = None, part: str = ""
) -> JudgeMeasurement | None:
    """The newest one; without a part of the one that counts, and without a scope of the project's
    pairs before those of a head-to-head."""
    rows = JudgeMeasurement.objects.filter(version=version)
    if scope is not None:
        rows = rows.filter(scope=scope.to_json())
    rows = rows.filter(part=part or (Part.CERTIFY if is_shaped(version) else Part.ALL))
    elsewhere = Case(When(scope__kind=HEAD_TO_HEAD, then=1), default=0)
    return rows.order_by(elsewhere, "-pk").first()


def measurements_of(version: JudgeVersion) -> list[JudgeMeasurement]:
    """The newest of each set of pairs and part, newest first."""
    rows = JudgeMeasurement.objects.filter(version=version).order_by("-pk")
    found: dict[tuple[str, ...], JudgeMeasurement] = {}
    for one in rows[:500]:
        found.setdefault((one.scope.get("kind", ""), one.scope.get("name", ""), one.part), one)
    return list(found.values())


def is_calibrated(version: JudgeVersion) -> bool:
    """Whether there are figures of it beside people, and its server still answers alike."""
    return is_measured(version, measurement_of(version))


def is_measured(version: JudgeVersion, found: JudgeMeasurement | None) -> bool:
    """The same by the measurement that counts, where it was read already."""
    return version.changed_at is None and found is not None and not found.refused


def trials_of(judge: Judge) -> list[dict[str, Any]]:
    """Trials of prompts, newest first: their versions with figures by part, and which was chosen
    (the one whose part kept apart was read)."""
    found: dict[str, dict[str, Any]] = {}
    rows = JudgeRun.objects.filter(version__judge=judge, purpose=JudgeRun.Purpose.TUNE)
    for asked in rows.order_by("-created_at"):
        wanted = asked.wanted
        one = found.setdefault(
            wanted["trial"], {"key": wanted["trial"], "at": asked.created_at, "live": False}
        )
        one["live"] |= not asked.acted and not asked.problem
        one.setdefault("versions", wanted["versions"])
        one.setdefault("scope", asked.scope)
    for one in found.values():
        versions = JudgeVersion.objects.filter(pk__in=one["versions"]).order_by("number")
        scope = Scope.of(one["scope"])
        one["rows"] = [
            {"version": version}
            | {
                part: measurement_of(version, scope, part)
                for part in (Part.TUNE, Part.CHOOSE, Part.CERTIFY)
            }
            for version in versions
        ]
    return list(found.values())[:10]


def certify_looks(judge: Judge, scope: Scope) -> int:
    """How often the part that is kept apart was read for versions of this judge, in this scope or
    in one that shares pairs with it: all pairs hold every batch's, and two batches hold no pair
    together."""
    measured = JudgeMeasurement.objects.filter(version__judge=judge, part=Part.CERTIFY)
    certified = LabelCertificate.objects.filter(version__judge=judge)
    kept = [*measured.values_list("scope", flat=True), *certified.values_list("scope", flat=True)]
    return sum(scope.overlaps(Scope.of(one)) for one in kept)


def run_uses(run: Run) -> list[str]:
    """What a run's deletion would break, in words (`apps.common.registry`)."""
    models = JudgeVersion.objects.filter(model__run=run).select_related("judge")
    found = [f"the judge {name} asks its model" for name in dict.fromkeys(map(_name, models))]
    taken = JudgeRun.objects.filter(run=run, taken_at__isnull=False)
    asked = taken.exclude(purpose=JudgeRun.Purpose.PROBE).select_related("version__judge")
    return [*found, *(f"the judge {one.version} said its verdicts in it" for one in asked)]


def _name(version: JudgeVersion) -> str:
    return version.judge.name


def certificates_of(judge: Judge) -> QuerySet[LabelCertificate]:
    rows = LabelCertificate.objects.filter(version__judge=judge)
    return rows.select_related("version__judge").order_by("-created_at")


def certificate_get(*, project: Project, certificate_id: str) -> LabelCertificate:
    rows = LabelCertificate.objects.filter(project=project, pk=certificate_id.replace("\x00", ""))
    found = rows.select_related("version__judge", "version__model__run", "project").first()
    if found is None:
        raise Missing("There is no such certificate in this project.", field="certificate")
    return found


def certificates_behind(checkpoint: Checkpoint) -> list[CertificateUse]:
    """Certificates of the labels that a model was trained on, at any distance."""
    return _certificates(with_parts(before_run(checkpoint.run)[1]))


def certificates_within(snapshot: Snapshot) -> list[CertificateUse]:
    """Certificates of the labels in a dataset, or in the parts that it is mixed of."""
    return _certificates(with_parts([snapshot]))


def _certificates(datasets: Collection[str]) -> list[CertificateUse]:
    found = CertificateUse.objects.filter(snapshot__in=datasets)
    return list(found.select_related("snapshot", "certificate__version__judge"))


def pairs_learned(checkpoint: Checkpoint) -> set[int]:
    """Pairs whose votes a model learned from: on these its word is not its own."""
    datasets = with_parts(before_run(checkpoint.run)[1])
    rows = SnapshotRow.objects.filter(snapshot__in=datasets, split=TRAIN)
    return set(rows.values_list("comparison_id", flat=True))


# --- the family that an answer is of ---


def family_stem(name: str) -> str:
    """What models of one family share of their names: gpt of `openai/gpt-4o`, smollm of
    `SmolLM2-135M`."""
    last = name.rstrip("/").rsplit("/", 1)[-1].casefold()
    return next(iter(re.findall(r"[a-z]+", last)), "")


@dataclass(frozen=True, slots=True)
class Family:
    """Who is of the judge's own family: models of the project that began as the same one, and
    names that begin alike."""

    root: str
    stems: frozenset[str]

    def holds(self, name: str, roots: Mapping[str, str]) -> float:
        """1 of the family, 0 not, NaN where nobody knows who wrote the answer."""
        if not name:
            return float("nan")
        if name in roots:
            return float(roots[name] == self.root)
        stem = family_stem(name)
        return float(stem in self.stems) if stem else float("nan")


def roots_of(models: Collection[str], *, project: Project) -> dict[str, str]:
    """{model: the model it began as, through all of its trainings} of checkpoints."""
    found: dict[str, str] = {}
    known = set(
        Checkpoint.objects.filter(project=project, pk__in=models).values_list("pk", flat=True)
    )
    for model in known:
        here = model
        for _ in range(MOST_ANCESTORS):
            before = (
                RunInput.objects.filter(
                    run__checkpoints=here,
                    role__in=("policy", "sft", "base"),
                    checkpoint__isnull=False,
                )
                .order_by("role")
                .values_list("checkpoint_id", flat=True)
                .first()
            )
            if before is None:
                break
            here = before
        found[model] = here
    return found


def family_of(version: JudgeVersion, roots: Mapping[str, str]) -> Family:
    model = version.model
    names = [str(model.run.config.get(name) or "") for name in ("model", "base_model")]
    stems = frozenset(stem for name in [*names, version.fingerprint] if (stem := family_stem(name)))
    return Family(roots.get(model.pk, model.pk), stems)


# --- verdicts and votes ---

_HASHES = ("prompt__text_hash", "response_a__text_hash", "response_b__text_hash")


def pair_key(prompt: str, a: str, b: str) -> str:
    """What a pair is drawn by where pairs are units, from the hashes of its texts: another database
    with the same texts has the same sample."""
    return f"{prompt} {a} {b}"


def part_of(key: str) -> str:
    """Of the human sample, to which each unit belongs by its hash."""
    place = unit_hash(key, PART_SALT)
    for name, share in PARTS:
        if place < share:
            return name
        place -= share
    return PARTS[-1][0]


def sampled_tasks(
    *, project: Project, scope: Scope, share: float, parts: Collection[str]
) -> list[int]:
    """Pairs of the human sample that belong to these parts and have votes."""
    by_pair = pairs_are_units(project=project, scope=scope)
    voted = Answer.objects.filter(
        is_current=True, slot__kind=Slot.Kind.REGULAR, task=OuterRef("pk")
    )
    rows = tasks_in(project=project, scope=scope).filter(Exists(voted), slice__in=_MEASURING)
    found = []
    for task, *texts in rows.order_by("pk").values_list("pk", *_HASHES):
        key = pair_key(*texts) if by_pair else texts[0]
        if unit_hash(key, SAMPLE_SALT) < share and part_of(key) in parts:
            found.append(task)
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """Pairs with a verdict, in order: n of them; and their votes: v of them.

    task: (n,) ids; prompt: (n,) ids of the units that hang together, prompts unless
    `pairs_are_units`; key: (n,) what each unit is drawn by; first, second: (n,) NaN where
    unreadable; preference: (n,) for A;
    length_a, length_b: (n,) characters; own_a, own_b: (n,) of the judge's family, NaN unknown;
    decided: (n,) a or b as people decided, neither where their votes are for neither, disputed
    where their votes decide nothing yet, empty while votes are missing; measuring: (n,) whether its
    votes may measure anything: it was not chosen by a model, and the judge did not learn from it;
    drawn_from: (n,) whether it measures, or would had a judge not moved it in the queue: what the
    pairs that measure are a sample of; spoiled: (n,) whether it was for tuning or choosing while
    the units were others; pair: (v,) the place of each vote's pair; score: (v,) 1 for A, ½, 0 for
    B; person: (v,) ids; simulated: (v,) whether no person gave it. Votes stand in the order they
    were cast.
    """

    task: Ints
    prompt: Ints
    key: list[str]
    first: Floats
    second: Floats
    preference: Floats
    length_a: Floats
    length_b: Floats
    own_a: Floats
    own_b: Floats
    decided: list[str]
    measuring: Bools
    drawn_from: Bools
    spoiled: Bools
    pair: Ints
    score: Floats
    person: Ints
    simulated: Bools

    def __len__(self) -> int:
        return len(self.task)

    def part(self, *parts: str) -> Bools:
        """(n,) whether a pair belongs to one of these parts of the sample."""
        known = {key: Part.ALL in parts or part_of(key) in parts for key in set(self.key)}
        rows = np.array([known[key] for key in self.key], dtype=bool)
        return rows & ~self.spoiled if tuple(parts) == (Part.CERTIFY,) else rows

    def sampled(self, share: float) -> Bools:
        """(n,) whether a pair is in the human sample of this share of the prompts."""
        known = {key: unit_hash(key, SAMPLE_SALT) < share for key in set(self.key)}
        return np.array([known[key] for key in self.key], dtype=bool)

    def only(self, rows: Bools) -> "Judged":
        """These pairs, with their votes."""
        places = np.full(len(self), -1, dtype=np.int64)
        places[rows] = np.arange(int(rows.sum()))
        kept = rows[self.pair]
        names = ("task", "prompt", "first", "second", "preference", "length_a", "length_b")
        by_pair = {name: getattr(self, name)[rows] for name in (*names, "own_a", "own_b")}
        return Judged(
            **by_pair,
            measuring=self.measuring[rows],
            drawn_from=self.drawn_from[rows],
            spoiled=self.spoiled[rows],
            decided=[one for one, is_in in zip(self.decided, rows, strict=True) if is_in],
            key=[one for one, is_in in zip(self.key, rows, strict=True) if is_in],
            pair=places[self.pair[kept]],
            score=self.score[kept],
            person=self.person[kept],
            simulated=self.simulated[kept],
        )

    @property
    def voted(self) -> Bools:
        """(n,) whether a pair has a vote."""
        found = np.zeros(len(self), dtype=bool)
        found[self.pair] = True
        return found


_SOURCE = ("origin", "origin_ref", "metadata")  # of which `Response.model_name` is made
_READ = (
    *("task_id", "task__prompt_id", "task__slice", "task__batch"),
    *("first", "second", "preference"),
    *("task__response_a__brief", "task__response_b__brief"),
    *(f"task__response_{side}__{name}" for side in "ab" for name in _SOURCE),
    *(f"task__{name}" for name in _HASHES),
)


def judged(*, version: JudgeVersion, scope: Scope) -> Judged:
    """The version's verdicts on the pairs of a scope, with people's current votes on them."""
    project = version.judge.project
    tasks = tasks_in(project=project, scope=scope)
    by_pair = pairs_are_units(project=project, scope=scope)
    learned = pairs_learned(version.model)
    rows = JudgeVerdict.objects.filter(version=version, task__in=tasks).order_by("task_id")
    # As columns: thousands of rows with their answers are no objects here.
    found = list(zip(*rows.values_list(*_READ), strict=True)) or [()] * len(_READ)
    ids, prompts, slices, batches, firsts, seconds, preferences, texts_a, texts_b = found[:9]
    names_a, names_b = _model_names(*found[9:12]), _model_names(*found[12:15])
    of_prompts = found[15]
    of_pairs = [pair_key(*texts) for texts in zip(*found[15:18], strict=True)]
    places = {pk: place for place, pk in enumerate(ids)}
    measures = [of in _MEASURING and pk not in learned for pk, of in zip(ids, slices, strict=True)]
    models = {name for name in [*names_a, *names_b] if name} | {version.model_id}
    roots = roots_of(models, project=project)
    family = family_of(version, roots)
    votes = _votes(project, tasks, version)
    votes = [vote for vote in votes if vote[0] in places]
    decisions = Decision.objects.filter(comparison__in=tasks.values("pk"))
    columns = ("comparison_id", "outcome", "winner", "task_votes", "rule__least_votes")
    decided = {
        pk: outcome_for(outcome, winner) or (DISPUTED if least and n >= least else "")
        for pk, outcome, winner, n, least in decisions.annotate(
            task_votes=F("comparison__n_votes")
        ).values_list(*columns)
    }
    before = _parts_before(version, by_pair=by_pair)
    chosen = set(PairSelection.objects.filter(project=project).values_list("batch", flat=True))
    return Judged(
        task=np.array(ids, dtype=np.int64),
        prompt=np.array(ids if by_pair else prompts, dtype=np.int64),
        key=of_pairs if by_pair else list(of_prompts),
        first=_floats(firsts),
        second=_floats(seconds),
        preference=_floats(preferences),
        length_a=_lengths([one or [] for one in texts_a]),
        length_b=_lengths([two or [] for two in texts_b]),
        own_a=_floats(family.holds(one, roots) for one in names_a),
        own_b=_floats(family.holds(one, roots) for one in names_b),
        decided=[decided.get(pk, "") for pk in ids],
        measuring=np.array(measures, dtype=bool),
        drawn_from=np.array(
            [
                fair or (of == Task.Slice.SELECTED and batch not in chosen and pk not in learned)
                for fair, of, batch, pk in zip(measures, slices, batches, ids, strict=True)
            ],
            dtype=bool,
        ),
        spoiled=np.array(
            [
                before and part_of(other) != Part.CERTIFY
                for other in (of_prompts if by_pair else of_pairs)
            ],
            dtype=bool,
        ),
        pair=np.array([places[vote[0]] for vote in votes], dtype=np.int64),
        score=_floats(SCORES[Choice(vote[2])] for vote in votes),
        person=np.array([vote[1] for vote in votes], dtype=np.int64),
        simulated=np.array([vote[3] == Answer.Source.SIMULATED for vote in votes], dtype=bool),
    )


def _parts_before(version: JudgeVersion, *, by_pair: bool) -> bool:
    """Whether the judge was measured by other units: few prompts were asked about, and are many
    now, or are many in all and few in a batch. Then other pairs were shown for tuning."""
    rows = JudgeMeasurement.objects.filter(
        version__judge=version.judge_id, figures__by_pair=not by_pair
    )
    return rows.exclude(scope__kind=HEAD_TO_HEAD).exists()


def outcome_for(outcome: str, winner: str) -> str:
    """a, b, neither, or empty while votes are missing."""
    if outcome == Decision.Outcome.NEEDS_VOTES:
        return ""
    settled = outcome in (Decision.Outcome.ACCEPTED, Decision.Outcome.ADJUDICATED)
    return winner if settled and winner in (Choice.A, Choice.B) else "neither"


def _votes(
    project: Project, tasks: QuerySet[Task], version: JudgeVersion
) -> list[tuple[int, int, str, str]]:
    """(task, person, choice, source) of current votes that decide, in the order they were cast."""
    rows = Answer.objects.filter(
        project=project,
        is_current=True,
        slot__kind=Slot.Kind.REGULAR,
        task__in=tasks.values("pk"),
        task__verdicts_of_judges__version=version,
    )
    return list(rows.order_by("pk").values_list("task_id", "annotator_id", "choice", "source"))


def _model_names(*columns: Sequence[Any]) -> list[str]:
    """`Response.model_name` of each; empty where there is no answer."""
    return [
        Response(**dict(zip(_SOURCE, one, strict=True))).model_name if one[0] else ""
        for one in zip(*columns, strict=True)
    ]


def _said_in(response: Response | None) -> str:
    return plain(response.messages) if response else ""


def _floats(values: Any) -> Floats:
    return np.array([np.nan if one is None else one for one in values], dtype=np.float64)


def _lengths(messages: Sequence[Any]) -> Floats:
    return np.array([plain_length(one) for one in messages], dtype=np.float64)


def verdicts_of(version: JudgeVersion) -> QuerySet[JudgeVerdict]:
    return version.verdicts.select_related(
        "task__prompt", "task__response_a", "task__response_b"
    ).order_by("task_id")


MOST_SHOWN = 20


def disagreements(version: JudgeVersion, *, scope: Scope, share: float) -> list[dict[str, Any]]:
    """Pairs of the part for tuning on which it differs most from people's votes: what a better
    prompt is written from. No pair that chooses or certifies is ever shown, nor one that people
    may still vote on."""
    found = judged(version=version, scope=scope)
    rows = found.part(Part.TUNE) & found.sampled(share) & found.voted & found.measuring
    kept = found.only(rows)
    if not len(kept):
        return []
    n = np.bincount(kept.pair, minlength=len(kept))
    voted = np.bincount(kept.pair, weights=kept.score, minlength=len(kept)) / n
    gap = np.abs(voted - kept.preference)
    order = [place for place in np.argsort(-gap, kind="stable").tolist() if gap[place] > 0.5]
    chosen = {int(kept.task[place]): place for place in order[: 5 * MOST_SHOWN]}
    closed = Task.objects.filter(pk__in=list(chosen)).exclude(state=Task.State.OPEN)
    tasks = {one.pk: one for one in closed.select_related("prompt", "response_a", "response_b")}
    said = dict(version.verdicts.filter(task__in=list(chosen)).values_list("task_id", "said"))
    shown = [
        {
            "task": tasks[task],
            "prompt": plain(tasks[task].prompt.messages),
            "a": _said_in(tasks[task].response_a),
            "b": _said_in(tasks[task].response_b),
            "people": float(voted[place]),
            "votes": int(n[place]),
            "judge": float(kept.preference[place]),
            "said": [text for text in said.get(task, []) if text],
        }
        for task, place in chosen.items()
        if task in tasks
    ]
    return shown[:MOST_SHOWN]


def due_runs() -> QuerySet[JudgeRun]:
    """Those that have ended and whose verdicts nobody has taken; also those that had failed, were
    resumed, and have finished since."""
    resumed = Q(run__state=Run.State.FINISHED, run__ended_at__gt=F("updated_at"))
    return JudgeRun.objects.filter(
        Q(problem="") | resumed, taken_at__isnull=True, run__state__in=Run.ENDED_STATES
    )
