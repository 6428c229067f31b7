"""What a run read and left, as far as a check of it can use: models, files, datasets, figures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from apps.common.errors import DomainError
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import PRIVATE_SPLITS
from apps.training.models import Artifact, Checkpoint, Run, RunInput
from apps.training.selectors import checkpoint_for_use, checkpoints, metric_series
from apps.training.services.kinds import OPTIMISED, PAIRS, PROMPTS, REWARDS, Input, reads_model
from workers.config import recipe_config, recipe_fields
from workers.rules.experiments import Experiment

ROLLOUTS = "rollouts.jsonl"
TRAIN = "train"
# How a check asks is how the run asked: settings that both know.
_ASKED = (
    "max_prompt_length",
    "max_new_tokens",
    "temperature",
    "reward",
    "eval_prompts",
    "reward_batch_size",
)
_MINIMAL = {"max_new_tokens": 32, "eval_prompts": 8}  # workers.preflight.minimal
_REPORTED = {
    "kl_reference": "eval/kl",
    "protocol": "eval/score",
    "critic_fit": "val/explained_variance",
}
_MOST_POINTS = 100_000

Points = dict[int, float]


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """A check that could be launched: its configuration and its inputs by role."""

    config: dict[str, Any]
    inputs: dict[str, Any]


@dataclass
class RunOutputs:
    """Read once for all the experiments of a run. `step` is where the problem is, if known."""

    run: Run
    step: int | None = None
    _points: dict[str, Points] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> dict[str, Snapshot | Checkpoint]:
        """By role; of a run that is an input, the checkpoint that it stands for."""
        return _inputs(self.run)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The run's settings, with its preset and the defaults of its kind written out."""
        fields_ = {one.name: one.default for one in recipe_fields(self.run.kind)}
        own = fields_ | recipe_config(self.run.kind, self.run.config)
        if own.get("minimal"):
            for name, most in _MINIMAL.items():
                if isinstance(own.get(name), int):
                    own[name] = min(own[name], most)
        return own

    @property
    def asked(self) -> dict[str, Any]:
        return {name: self.config[name] for name in _ASKED if self.config.get(name) is not None}

    @cached_property
    def rollouts(self) -> Artifact | None:
        rows = Artifact.objects.filter(run=self.run, name=ROLLOUTS).select_related("run")
        return rows.order_by("-attempt", "-seq").first()

    @cached_property
    def models(self) -> list[Checkpoint]:
        """Checkpoints that can be asked, those nearest the problem first, else the newest first.
        What a run saved when its numbers broke holds such numbers itself."""
        broken = self.run.failure_kind.startswith("non_finite")
        rows = [
            row
            for row in checkpoints(self.run)
            if row.tags
            and row.files_removed_at is None
            and row.status != Checkpoint.Status.REJECTED
            and not (broken and "failed" in row.tags)
        ]
        if (step := self.step) is not None:
            rows.sort(key=lambda row: (abs(row.step - step), -row.step))
        return rows

    @property
    def start(self) -> Checkpoint | None:
        found = self.inputs.get("policy") or self.inputs.get("sft")
        return found if isinstance(found, Checkpoint) else None

    @property
    def reward(self) -> Checkpoint | None:
        """The model that pays, or the one that this run trains."""
        if self.run.kind in REWARDS:
            return self.models[0] if self.models else None
        found = self.inputs.get("reward")
        return found if isinstance(found, Checkpoint) else None

    @property
    def rewarded_by_model(self) -> bool:
        return self.run.kind in REWARDS or reads_model(self.config.get("reward") or {})

    @cached_property
    def learned_from(self) -> Snapshot | None:
        """The pairs that the reward model was trained on."""
        known = self.inputs.get("reward_data")
        if isinstance(known, Snapshot):
            return known
        model = self.reward
        data = _inputs(model.run).get("data") if model is not None else None
        return data if isinstance(data, Snapshot) and data.kind in PAIRS else None

    def points(self, name: str) -> Points:
        if name not in self._points:
            series = metric_series(run=self.run, names=[name], max_points=_MOST_POINTS)
            self._points[name] = {
                step: value
                for step, value in series.get(name, ())
                if isinstance(value, int | float)
            }
        return self._points[name]

    def plan(self, experiment: Experiment) -> CheckPlan:
        """How the check is asked of this run. Raises `DomainError` saying what is missing and what
        to do."""
        check = experiment.check
        if self.run.kind == Run.Kind.IMPORTED:
            raise _missing(
                "run",
                "This run was trained elsewhere: its curves are here, its models and answers are "
                "not. Make the same check where it was trained.",
            )
        if check != "canaries" and self.run.kind not in OPTIMISED:
            raise _missing(
                "run",
                "This run follows no reward, so there is nothing to ask here.",
            )
        if self.run.kind not in OPTIMISED | REWARDS:
            raise _missing("run", "This run has no reward.")
        return getattr(self, f"_{check}")()

    # --- one method a check; the name is the check's ---

    def _reward_plot(self) -> CheckPlan:
        return CheckPlan(
            {"check": "reward_plot", "reward": self.asked["reward"]}, {"rollouts": self._kept()}
        )

    def _rescore(self) -> CheckPlan:
        kept = self._kept()
        config = {name: self.asked[name] for name in ("reward", "reward_batch_size")}
        return CheckPlan({"check": "rescore", **config}, {"rollouts": kept, **self._paid()})

    def _canaries(self) -> CheckPlan:
        reward = {} if self.run.kind in REWARDS else {"reward": self.asked["reward"]}
        inputs: dict[str, Any] = self._paid()
        rows = "all"
        gold = self.inputs.get("canaries")
        if gold is None:
            gold, rows = self._held_out(), "held_out"
        inputs["canaries"] = gold
        if self.learned_from is not None and self.learned_from.counts.get("rows", {}).get(TRAIN, 1):
            inputs["reward_data"] = self.learned_from
        return CheckPlan({"check": "canaries", "canary_rows": rows, **reward}, inputs)

    def _kl_reference(self) -> CheckPlan:
        model = self._model("kl_reference")
        reference = self.inputs.get("reference") or self.start
        if not isinstance(reference, Checkpoint):
            raise _missing("reference", "The model that this run began with is not known here.")
        inputs: dict[str, Input] = {
            "policy": model,
            "reference": reference,
            "prompts": self._prompts(),
        }
        if self.rollouts is not None:
            inputs["rollouts"] = self.rollouts
        return CheckPlan(
            self._at(model, "kl_reference") | {"reported": self.points("eval/kl").get(model.step)},
            inputs,
        )

    def _sampler(self) -> CheckPlan:
        model = self._model()
        inputs: dict[str, Input] = {"policy": model, "prompts": self._prompts()}
        if self.rollouts is not None:
            inputs["rollouts"] = self.rollouts
        return CheckPlan(self._at(model, "sampler"), inputs)

    def _critic_fit(self) -> CheckPlan:
        if self.run.kind != Run.Kind.PPO:
            raise _missing("run", f"A {self.run.get_kind_display()} run has no critic.")
        model = self._model()
        if model.state_removed_at is not None:
            raise _missing("policy", "The critic was removed with the trainer's state of the run.")
        told = self.points(_REPORTED["critic_fit"])
        before = [step for step in told if step <= model.step]
        return CheckPlan(
            self._at(model, "critic_fit") | {"reported": told[max(before)] if before else None},
            {"policy": model, "prompts": self._prompts(), **self._paid()},
        )

    def _protocol(self) -> CheckPlan:
        model, told = self._model("protocol"), self.points("eval/score")
        if self.start is None:
            raise _missing("sft", "The model that this run began with is not known here.")
        first = min(told, default=model.step)
        known = model.step in told and model.step != first
        return CheckPlan(
            self._at(model, "protocol")
            | {"reported": told[model.step] - told[first] if known else None},
            {"policy": model, "sft": self.start, "prompts": self._prompts(), **self._paid()},
        )

    # --- what several need ---

    def _at(self, model: Checkpoint, check: str) -> dict[str, Any]:
        return {"check": check, "step": model.step, **self.asked}

    def _kept(self) -> Artifact:
        if self.rollouts is None:
            raise _missing(
                "rollouts",
                "This run has kept no answers. "
                + (
                    "They are written with its next checkpoint: come back then."
                    if self.run.is_live and self.run.kind == Run.Kind.PPO
                    else "Only a PPO run keeps its newest answers (keep_rollouts), and writes them "
                    "with each checkpoint."
                ),
            )
        return self.rollouts

    def _model(self, check: str = "") -> Checkpoint:
        """The one to ask; where the run's own figure is compared, one of a step that has it."""
        if not self.models:
            raise _missing(
                "policy",
                "This run has no checkpoint to ask yet. "
                + (
                    f"It saves every {self.config.get('save_every', '?')} steps: come back then."
                    if self.run.is_live
                    else "It ended before its first one; launch it again with a smaller save_every."
                ),
            )
        told = self.points(_REPORTED[check]) if check else {}
        return next((row for row in self.models if row.step in told), self.models[0])

    def _prompts(self) -> Snapshot:
        found = self.inputs.get("prompts")
        if not isinstance(found, Snapshot) or found.kind not in PROMPTS:
            raise _missing("prompts", "The prompts of this run are not known here.")
        return found

    def _paid(self) -> dict[str, Checkpoint]:
        """The input `reward`, where the reward is a model."""
        if not self.rewarded_by_model:
            return {}
        if self.reward is None:
            raise _missing("reward", "This run has no reward model that could be asked.")
        return {"reward": self.reward}

    def _held_out(self) -> Snapshot:
        """Pairs of the reward model's own dataset that it did not learn from."""
        data = self.learned_from
        apart = [
            name
            for name, count in (data.counts.get("rows", {}) if data else {}).items()
            if name != TRAIN and name not in PRIVATE_SPLITS and count
        ]
        if data is None or not apart:
            raise _missing(
                "canaries",
                "There are no pairs whose better answer is known and that the reward did not learn "
                "from. Give the run an input 'canaries', or train the reward model on a dataset "
                "with a held-out file.",
            )
        return data


def _inputs(run: Run) -> dict[str, Snapshot | Checkpoint]:
    rows = RunInput.objects.filter(run=run).select_related(
        "snapshot", "checkpoint__run", "upstream"
    )
    found: Mapping[str, Any] = {
        row.role: row.snapshot
        or row.checkpoint
        or (checkpoint_for_use(row.upstream) if row.upstream else None)
        for row in rows
    }
    return {role: thing for role, thing in found.items() if thing is not None}


def _missing(field_: str, message: str) -> DomainError:
    return DomainError(message, code="nothing_to_check", field=field_)
