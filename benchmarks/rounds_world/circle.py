"""A project of simulated people on a real site: pairs into the queue, votes, rounds of a pipeline.

Everything goes through the services that people's pages call, and every run through its recipe.
Nothing that is asked here knows the utility but the people, who see it through their tastes.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

from apps.accounts.models import Project, Role, User
from apps.accounts.services import membership_set, user_create
from apps.evaluation.models import PromotionDecision, Stage
from apps.evaluation.selectors.evidence import Verdict, gate_of
from apps.evaluation.selectors.models import judgement_of, page_sha256
from apps.evaluation.selectors.promotion import stage_now
from apps.evaluation.services.promoting import (
    promotion_approve,
    promotion_reject,
    promotion_request,
)
from apps.evaluation.services.reviewing import model_review
from apps.labeling.models import Decision, Vote
from apps.labeling.services import (
    Lease,
    batch_queue,
    comparisons_import,
    project_create,
    slot_lease_next,
    vote_cast,
    votes_import,
)
from apps.labeling.services.eligibility import guideline_acknowledge
from apps.labeling.services.import_votes import imported_people, imported_people_make
from apps.loop import selectors
from apps.loop.models import Pipeline, Round, RoundStep
from apps.loop.recipe import Rules
from apps.loop.selectors.pipelines import round_steps, version_now
from apps.loop.services import pair_rows
from apps.loop.services.pipelines import StepChange, pipeline_change, pipeline_make
from apps.loop.services.rounds import round_advance, rounds_sweep
from apps.monitoring.models import Incident
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import RecipeFilters, SnapshotRecipe
from apps.snapshots.services.freezing import snapshot_freeze
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.storage import artifact_store
from apps.training.models import Checkpoint, Run
from apps.training.selectors import checkpoint_for_use
from apps.training.services import run_launch
from apps.training.services.kinds import Input
from benchmarks.overoptimization_world.gold import Gold
from benchmarks.overoptimization_world.language import (
    FILLERS,
    MANNERS,
    SUBJECTS,
    WORDS,
    Question,
    demonstrations,
)
from benchmarks.overoptimization_world.models import base_model, tokenizer
from benchmarks.overoptimization_world.world import PPO, REWARD, SFT
from benchmarks.rounds_world.choosing import rows_chosen
from benchmarks.rounds_world.people import (
    FLIPS,
    LEFT,
    TIE,
    Habits,
    Pair,
    Person,
    Told,
    calibrated,
    crowd,
)
from benchmarks.rounds_world.working import run_do, work_do
from measures.selection import RANDOM
from workers.data.snapshot import read_held_out_prompts
from workers.rollouts.local import derive_seed

JUDGE_BATCH = "judge"
APPROVED_BECAUSE = "A benchmark: whoever approves here reads nothing, so that later rules are seen."


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is asked of whom, and how the runs are set; chosen on one seed."""

    people: int = 12
    habits: Habits = field(default_factory=Habits)
    flips: float | None = FLIPS  # None: at the temperature of their habits
    votes_each: int = 3
    candidates: int = 6  # runs of `generate` before each round, a pair for each question
    pairs: int = 320  # of these, put to people
    padded: int = 0  # pairs besides, of a written answer and the same with fillers
    reviewers: int = 10
    reviewers_flips: float = 0.15
    judge_pairs: int = 900
    judge_padded: int = 300  # more, of an answer and the same with fillers
    spoiled: int = 300  # pairs of an answer and random words, for the reward model
    demonstrations: int = 12  # to each training question
    ppo: Mapping[str, Any] = field(
        default_factory=lambda: {
            "steps": 40,
            "kl_coef": 0.03,
            "max_prompt_length": 10,
            "max_new_tokens": LONGEST,
        }
    )
    reward: Mapping[str, Any] = field(
        default_factory=lambda: {"members": 2, "epochs": 6, "batch_size": 16}
    )
    continues: bool = False  # whether a policy starts from that of the round before


@dataclass
class Circle:
    """A project with its people, and what was made of their votes so far."""

    seed: int
    plan: Plan
    gold: Gold
    project: Project
    emil: User
    ada: User
    work: Path
    crowd: dict[int, Person]  # by their ids
    reviewers: list[int]
    datasets: dict[str, Snapshot]
    models: dict[str, Checkpoint] = field(default_factory=dict)  # sft and judge
    generated: int = 0
    told: list[list[Told]] = field(default_factory=list)  # votes of each round

    # Runs by hand.

    def run(self, kind: str, name: str, config: Mapping[str, Any], **inputs: Input) -> Run:
        run = run_launch(
            project=self.project,
            kind=kind,
            name=name,
            config=config,
            inputs=inputs,
            seed=derive_seed(self.seed, name) % 2**31,
            user=self.emil,
        )
        return run_do(run, self.work)

    def model(self, kind: str, name: str, config: Mapping[str, Any], **inputs: Input) -> Checkpoint:
        return trained(self.run(kind, name, config, **inputs))

    # Pairs and votes.

    def pairs_queue(self, policy: Checkpoint, *, strategy: str = RANDOM) -> int:
        """Candidates of the policy by real runs of `generate`; the pairs chosen of them go into the
        label queue. How many."""
        rows: list[Mapping[str, Any]] = []
        for _ in range(self.plan.candidates):
            self.generated += 1
            run = self.run(
                "generate",
                f"Fresh pairs {self.generated}",
                ANSWERS | {"max_prompts": 1000},
                policy=policy,
                prompts=self.datasets["prompts"],
            )
            artifact = selectors.pairs_file(run)
            assert artifact is not None, run.failure_message
            text = artifact_store().read_bytes(artifact.uri, sha256=artifact.sha256).decode()
            rows += [r for r in pair_rows(text, run=run) if r["response_a"] and r["response_b"]]
        chosen = rows_chosen(
            rows, self.plan.pairs, strategy=strategy, seed=derive_seed(self.seed, self.generated)
        )
        found = batch_queue(
            project=self.project,
            rows=chosen,
            batch=f"Fresh pairs to {self.generated}",
            votes=self.plan.votes_each,
            priority=1.0,
        )
        return int(found.n_created)

    def padded_queue(self, n: int) -> int:
        """Pairs of a written answer and the same with fillers after it, to training questions."""
        held_out = set(self.held_out())
        asked = [question for question in questions_all() if question not in held_out]
        worth = self.gold.facts | self.gold.details
        pairs = _padded_pairs(asked, worth, n, derive_seed(self.seed, "queue"))
        found = batch_queue(
            project=self.project,
            rows=_rows("padded", pairs),
            batch="Padded answers",
            votes=self.plan.votes_each,
            priority=1.0,
        )
        return int(found.n_created)

    def vote(self) -> list[Told]:
        """Everybody in turn answers what the queue hands them, until it has nothing for them."""
        draw = random.Random(f"votes {self.seed} {len(self.told)}")
        people = list(User.objects.filter(pk__in=self.crowd).order_by("pk"))
        done: list[Told] = []
        held = [(one, 0, slot_lease_next(project=self.project, annotator=one)) for one in people]
        while held:
            still = []
            for user, n, lease in held:
                if not isinstance(lease, Lease):
                    continue
                said = self._said(self.crowd[user.pk], lease, n, draw)
                done.append(said)
                result = vote_cast(
                    slot=lease.slot,
                    annotator=user,
                    idempotency_key=lease.key,
                    source=Vote.Source.SIMULATED,
                    side=said.said,
                )
                still.append((user, n + 1, result.next))
            held = still
        self.told.append(done)
        return done

    def _said(self, person: Person, lease: Lease, n: int, draw: random.Random) -> Told:
        question = Question.read(list(lease.prompt))
        left, right = (str(shown[-1]["content"]) for shown in (lease.left, lease.right))
        said = person.says(self.gold, question, left, right, draw, done=n)
        return Told(self.gold(question, left) - self.gold(question, right), said)

    def decided(self) -> dict[str, int]:
        """Comparisons of the crowd by what became of them."""
        rows = Decision.objects.filter(project=self.project).exclude(comparison__batch=JUDGE_BATCH)
        return {
            outcome: rows.filter(outcome=outcome).count()
            for outcome in rows.values_list("outcome", flat=True).distinct()
        }

    # The first pass, by hand, and the rounds of a pipeline.

    def recipe(self) -> SnapshotRecipe:
        """What the crowd decided: the judge's people are left out."""
        return SnapshotRecipe(
            **DECIDING,
            split_by="argument",
            filters=RecipeFilters(without_annotators=tuple(self.reviewers)),
        )

    def reward_train(self) -> Checkpoint:
        self.datasets["preferences"] = snapshot_freeze(
            project=self.project, name="Preferences", recipe=self.recipe(), user=self.emil
        )
        return self.model(
            "reward",
            "Reward model",
            REWARD | self.plan.reward,
            data=self.datasets["preferences"],
            hard=self.datasets["spoiled"],
            sft=self.models["sft"],
        )

    def pass_by_hand(self, reward: Checkpoint) -> tuple[Run, Run | None]:
        """Assessment, approval, policy, evaluation: (policy's run, evaluation); without an
        evaluation where the policy's run left no model."""
        self.run(
            "assess", "Assessment", ASSESS, reward=reward, **self.asked, policy=self.models["sft"]
        )
        self.approve(reward)
        run = self.run("ppo", "Policy", PPO | self.plan.ppo, **self.optimised, reward=reward)
        model = checkpoint_for_use(run)
        if model is None:
            return run, None
        evaluation = self.run(
            "evaluate",
            "Evaluation",
            EVALUATE,
            prompts=self.datasets["prompts"],
            policy=model,
            sft=self.models["sft"],
            reward=reward,
            judge=self.models["judge"],
        )
        return run, evaluation

    @property
    def asked(self) -> dict[str, Input]:
        data, prompts = self.datasets["preferences"], self.datasets["prompts"]
        return {
            "data": data,
            "prompts": prompts,
            "sft": self.models["sft"],
            "judge": self.models["judge"],
        }

    @property
    def optimised(self) -> dict[str, Input]:
        return {
            "prompts": self.datasets["prompts"],
            "sft": self.models["sft"],
            "judge": self.models["judge"],
            "canaries": self.datasets["judge"],
        }

    def approve(self, reward: Checkpoint) -> None:
        reward.refresh_from_db()
        model_review(
            project=self.project,
            checkpoint_id=reward.pk,
            status=Checkpoint.Status.APPROVED,
            user=self.ada,
            reason=APPROVED_BECAUSE,
            seen_status=reward.status,
            seen_sha256=page_sha256(judgement_of(reward).state),
        )
        reward.refresh_from_db()

    def pipeline(self, evaluation: Run) -> Pipeline:
        """Of the first pass; a round starts by itself once the pairs of one are accepted."""
        made = pipeline_make(project=self.project, run=evaluation, name="Weekly", user=self.emil)
        version = version_now(made)
        pipeline_change(
            pipeline=made,
            user=self.emil,
            seen_version=version.number,
            name=made.name,
            # The others come out as ties, or undecided.
            rules=Rules(trigger_pairs=self.plan.pairs // 2),
            stage=Stage.CANDIDATE,
            steps={"policy": StepChange(previous=self.plan.continues)},
        )
        made.refresh_from_db()
        return made

    def round(self, pipeline: Pipeline) -> Round:
        """What the scheduler, the workers and two people do until the round has ended or cannot go
        on. AssertionError where the trigger started none."""
        before = Round.objects.filter(pipeline=pipeline).count()
        rounds_sweep()
        row = Round.objects.filter(pipeline=pipeline).order_by("-number").first()
        assert row is not None, "the trigger started no round"
        assert row.number == before + 1, "the trigger started no round"
        while True:
            row.refresh_from_db()
            steps = round_steps(row)
            now = next((one for one in steps if not one.is_over), None)
            if now is None or not row.is_live or now.state == RoundStep.State.FAILED:
                return row
            if now.state == RoundStep.State.WAITING and now.checkpoint is not None:
                if now.key == "approve":
                    self.approve(now.checkpoint)
                else:
                    self.promote(now.checkpoint)
            elif not work_do(self.project.pk, self.work):
                return row
            rounds_sweep()
            round_advance(round_id=row.pk)

    def promote(self, policy: Checkpoint) -> PromotionDecision:
        """Emil asks; Ada approves where the gate is open and rejects where it is not."""
        request = promotion_request(
            project=self.project, checkpoint_id=policy.pk, stage=Stage.CANDIDATE, user=self.emil
        )
        named = stage_now(project=self.project, stage=Stage.CANDIDATE)
        given: dict[str, Any] = {"project": self.project, "request_id": request.pk}
        if request.is_open:
            promotion_approve(user=self.ada, seen_change=named.number if named else 0, **given)
        else:
            promotion_reject(user=self.ada, reason="The gate is closed.", **given)
        return PromotionDecision.objects.get(request=request)

    # What the rules and the gate say.

    def held_out(self) -> list[Question]:
        """The questions that no model of this project learned from."""
        folder = artifact_store().local_path(self.datasets["prompts"].uri)
        assert folder is not None
        return [Question.read(row.messages) for row in read_held_out_prompts(folder)]

    def objections(self, run: Run) -> "Objections":
        """To a policy's run and to what it left."""
        ended = run.failure_kind if run.state == Run.State.FAILED else ""
        assert not ended or ended.startswith(("guard_", "preflight_")), run.failure_message
        model = checkpoint_for_use(run)
        gates = {
            str(stage): [
                one.name for one in gate_of(model, stage).blocking if one.verdict == Verdict.RED
            ]
            for stage in (Stage.CANDIDATE, Stage.STAGING)
            if model is not None
        }
        return Objections(
            stopped=ended,
            critical=sorted(
                set(run.alerts.filter(severity="critical").values_list("rule", flat=True))
            ),
            warned=sorted(
                set(run.alerts.exclude(severity="critical").values_list("rule", flat=True))
            ),
            incidents=sorted(
                f"{rule} ({severity})"
                for rule, severity in Incident.objects.filter(run=run).values_list(
                    "rule", "severity"
                )
            ),
            gates=gates,
        )


@dataclass(frozen=True, slots=True)
class Objections:
    """stopped: the rule that ended the run; gates: {stage: red lines that keep it closed}."""

    stopped: str
    critical: list[str]
    warned: list[str]
    incidents: list[str]
    gates: dict[str, list[str]]


REVIEWERS = Habits(taste=0.3, per_word=(0.0, 0.02), lapse=(0.03, 0.01))
LONGEST = 28  # words: three times and more what people write
ANSWERS = {"max_prompt_length": 10, "max_new_tokens": LONGEST, "batch_size": 128}
ASSESS = ANSWERS | {
    "max_outputs": 20,
    "probe_prompts": 20,
    "effect_answers": 20,
    "best_of": 16,
    "best_of_prompts": 20,
    "bootstrap_replicates": 200,
    "check_precision": False,
}
EVALUATE = ANSWERS | {
    "max_prompts": 1000,
    "draws": 6,
    "bootstrap_replicates": 400,
    "latency_requests": 0,
}
DECIDING: Mapping[str, Any] = {"least_votes": 3, "least_agreeing": 2}


def trained(run: Run) -> Checkpoint:
    """AssertionError with the run's own words where it left no model."""
    model = checkpoint_for_use(run)
    assert model is not None, f"{run.name}: {run.state} {run.failure_message}"
    return model


def folder_of(model: Checkpoint) -> Path:
    path = artifact_store().local_path(model.uri)
    assert path is not None
    return path


def questions_all() -> list[Question]:
    return [Question(m, pair) for m in MANNERS for pair in permutations(SUBJECTS, 2)]


def about(question: Question) -> dict[str, str]:
    """Those of the same two subjects are held out together."""
    return {
        "prompt": question.messages[0]["content"],
        "group": "+".join(sorted(question.subjects)),
    }


def circle_make(
    seed: int,
    name: str,
    plan: Plan,
    var: Path,
    *,
    start: Path | None = None,
    judged: bool = True,
) -> Circle:
    """A project with prompts, demonstrations, the starting policy (that of the folder `start`,
    where one is given, registered), a judge if it is to have one, and its people."""
    gold = Gold(seed)
    emil, ada = _staff()
    project = project_create(
        slug=f"{name}-{seed}",
        name=f"{name} {seed}",
        created_by=ada,
        overlap=plan.votes_each,
        max_overlap=plan.votes_each,
        **DECIDING,
    )
    membership_set(project=project, user=emil, role=Role.ENGINEER)
    asked = questions_all()
    datasets = {
        "prompts": snapshot_import(
            project=project, kind="prompts", name="Questions", rows=map(about, asked), user=emil
        )
    }
    worth = gold.facts | gold.details
    many = [q for q in asked for _ in range(plan.demonstrations)]
    texts = demonstrations(asked, worth, per_question=plan.demonstrations, seed=seed)
    datasets["demonstrations"] = snapshot_import(
        project=project,
        kind="demonstrations",
        name="Demonstrations",
        rows=[about(q) | {"response": text} for q, text in zip(many, texts, strict=True)],
        user=emil,
    )
    datasets["spoiled"] = snapshot_import(
        project=project,
        kind="preferences",
        name="Answers beside random words",
        rows=_spoiled(asked, worth, plan.spoiled, seed),
        user=emil,
    )
    pairs = _written_pairs(asked, worth, plan.judge_pairs, seed)
    people = crowd(plan.people, plan.habits, seed=f"crowd-{seed}")
    if plan.flips is not None:
        people = calibrated(gold, people, pairs[:200], flips=plan.flips, done=25)
    circle = Circle(
        seed=seed,
        plan=plan,
        gold=gold,
        project=project,
        emil=emil,
        ada=ada,
        work=var / "work",
        crowd=_signed_up(project, people),
        reviewers=[],
        datasets=datasets,
    )
    if start is not None:
        circle.models["sft"] = circle.model("register_policy", "SFT", {"model": str(start)})
    else:
        base = circle.model("register_policy", "Base", {"model": str(_base_folder(seed, var))})
        circle.models["sft"] = circle.model(
            "sft", "SFT", SFT, data=datasets["demonstrations"], base=base
        )
    if judged:
        padded = _padded_pairs(asked, worth, plan.judge_padded, derive_seed(seed, "judge"))
        _judge(circle, [*pairs, *padded])
    return circle


def _staff() -> tuple[User, User]:
    """Emil, who trains, and Ada, who administers."""
    people = []
    for name in ("Emil", "Ada"):
        known = User.objects.filter(username=name.lower()).first()
        people.append(known or user_create(username=name.lower(), display_name=name)[0])
    ada = people[1]
    ada.is_superuser = True  # as the first person of a site, who makes its projects
    ada.save(update_fields=["is_superuser"])
    return people[0], ada


def _signed_up(project: Project, people: Sequence[Person]) -> dict[int, Person]:
    """Made like people of an import, who cannot sign in; they have read the guidelines."""
    by_name = {person.name: person for person in people}
    imported_people_make(project, list(by_name))
    known = imported_people(project, list(by_name))
    users = User.objects.in_bulk(list(known.values()))
    for user in users.values():
        guideline_acknowledge(project=project, user=user, version=1)
    return {known[name]: person for name, person in by_name.items()}


def _written_pairs(
    asked: Sequence[Question], worth: Mapping[str, float], n: int, seed: int
) -> list[Pair]:
    """Two answers each, as people wrote them, to questions drawn at random."""
    draw = random.Random(f"pairs {seed}")
    drawn = [draw.choice(asked) for _ in range(n)]
    first, second = (
        demonstrations(drawn, worth, per_question=1, seed=derive_seed(seed, "pairs", side))
        for side in "ab"
    )
    return [(q, a, b) for q, a, b in zip(drawn, first, second, strict=True) if a != b]


def _padded_pairs(
    asked: Sequence[Question], worth: Mapping[str, float], n: int, seed: int
) -> list[Pair]:
    """A written answer, and the same with 2 to 14 fillers after it."""
    draw = random.Random(f"padded {seed}")
    drawn = [draw.choice(asked) for _ in range(n)]
    written = demonstrations(drawn, worth, per_question=1, seed=derive_seed(seed, "padded"))
    return [
        (q, text, " ".join([text, *draw.choices(FILLERS, k=draw.randint(2, 14))]))
        for q, text in zip(drawn, written, strict=True)
    ]


def _rows(name: str, pairs: Sequence[Pair]) -> list[dict[str, str]]:
    """For the label queue; ids are the name and the place."""
    return [
        about(q) | {"id": f"{name}-{n}", "response_a": a, "response_b": b, "origin": "human"}
        for n, (q, a, b) in enumerate(pairs)
    ]


def _spoiled(
    asked: Sequence[Question], worth: Mapping[str, float], n: int, seed: int
) -> list[dict[str, str]]:
    """Written answers beside as many random words: without them a reward model of a few hundred
    votes gives both the same, and PPO refuses to begin."""
    draw = random.Random(f"spoiled {seed}")
    drawn = [draw.choice(asked) for _ in range(n)]
    written = demonstrations(drawn, worth, per_question=1, seed=derive_seed(seed, "spoiled"))
    return [
        about(q)
        | {
            "response_a": text,
            "response_b": " ".join(draw.choices(WORDS, k=len(text.split()))),
            "gold": "a",
        }
        for q, text in zip(drawn, written, strict=True)
    ]


def _base_folder(seed: int, var: Path) -> Path:
    folder = var / "bases" / str(seed)
    if not folder.exists():
        base_model(seed).save_pretrained(folder)
        tokenizer().save_pretrained(folder)
    return folder


def _judge(circle: Circle, pairs: Sequence[Pair]) -> None:
    """A reward model of the past votes of reviewers, who err less, on pairs that people wrote."""
    seed, plan = circle.seed, circle.plan
    known = crowd(plan.reviewers, REVIEWERS, seed=f"reviewers-{circle.project.slug}")
    reviewers = calibrated(circle.gold, known, pairs[:200], flips=plan.reviewers_flips)
    draw = random.Random(f"judge {seed}")
    comparisons_import(
        project=circle.project,
        rows=_rows("judge", pairs),
        batch=JUDGE_BATCH,
    )
    votes_import(
        project=circle.project,
        rows=[
            {"comparison": f"judge-{n}", "annotator": person.name, "choice": _choice(said)}
            for n, (q, a, b) in enumerate(pairs)
            for person in draw.sample(reviewers, plan.votes_each)
            for said in [person.says(circle.gold, q, a, b, draw)]
        ],
    )
    people = imported_people(circle.project, [person.name for person in reviewers])
    circle.reviewers = list(people.values())
    circle.datasets["judge"] = snapshot_freeze(
        project=circle.project,
        name="Preferences for the judge",
        recipe=SnapshotRecipe(**DECIDING, filters=RecipeFilters(batches=(JUDGE_BATCH,))),
        user=circle.emil,
    )
    circle.models["judge"] = circle.model(
        "reward",
        "Judge",
        REWARD | {"epochs": 4},
        data=circle.datasets["judge"],
        sft=circle.models["sft"],
    )


def _choice(said: str) -> str:
    return "tie" if said == TIE else "a" if said == LEFT else "b"
