"""What each kind of run reads. Checked before a run exists, so a wrong input costs no machine."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any

from django.db import connection

from apps.common.errors import Conflict, DomainError
from apps.snapshots.models import Snapshot
from apps.training.models import Artifact, Checkpoint, Run, RunInput
from apps.training.selectors.runs import checkpoint_for_use
from workers.config import recipe_config
from workers.contract.jobs import FLOAT32

Config = Mapping[str, Any]
Input = Snapshot | Checkpoint | Run | Artifact

# What a model may be used as, by the kind of run that left it. A registered model has a kind for
# each purpose, so that it is asked no other question than a trained one.
POLICIES = frozenset({"sft", "dpo", "kto", "ppo", "grpo", "register_policy"})
REWARDS = frozenset(Run.REWARD_KINDS)
ENCODERS = frozenset({"register_encoder"})
# What may be asked for answers: a served model has no weights here, so it plays no other role.
ANSWERING = POLICIES | {"served"}
SCORING = REWARDS | {"process_reward"}  # a score of whole answers, or one of each step
MODELS = POLICIES | SCORING | ENCODERS  # kinds of runs that leave one
# What a pipeline's rounds do again.
REPEATED = (POLICIES - {"register_policy"}) | {"reward", "assess", "evaluate", "generate"}
OPTIMISED = frozenset({"ppo", "grpo"})  # kinds that train against the input `reward`
PAIRS = frozenset({"preferences"})
ANSWERS = PAIRS | {"unpaired"}  # a pair is two answers
DEMONSTRATIONS = frozenset({"demonstrations"})
UNLABELLED = frozenset({"pairs"})  # pairs without labels
PROMPTS = frozenset({"prompts", "preferences", "demonstrations"})  # rows of each have a prompt
ROLLOUTS = frozenset({"rollouts.jsonl"})
# Kinds that take a minute at most and go to the queue of such, whatever else is asked for: they
# must not wait for a training, such as the one that they are about.
SHORT = frozenset({"check", "probe", "served"})
# Kinds that leave no more than a report, verdicts, or a server's settings, which a project over its
# quota of disk space may launch.
KEEP_LITTLE = SHORT | {"push", "judge"}


def run_inputs(run: Run) -> dict[str, Input]:
    """{role: what the run reads}, in order of the roles; checkpoints and files with their runs."""
    rows = RunInput.objects.filter(run=run).order_by("role")
    return {
        row.role: given
        for row in rows.select_related("snapshot", "checkpoint__run", "upstream", "artifact__run")
        if (given := row.snapshot or row.checkpoint or row.upstream or row.artifact)
    }


@dataclass(frozen=True, slots=True)
class Role:
    """What may play a role: snapshots of these kinds, checkpoints of runs of these kinds, or files
    of these names that a run left."""

    snapshots: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    by_service: bool = False  # no form asks for it


@dataclass(frozen=True, slots=True)
class Need:
    """One of `roles` must be given, unless the configuration makes it unnecessary; `instead` says
    by what."""

    roles: tuple[str, ...]
    unless: Callable[[Config], bool] | None = None
    instead: str = ""

    def is_met(self, given: Collection[str], config: Config) -> bool:
        return any(role in given for role in self.roles) or (
            self.unless is not None and self.unless(config)
        )


@dataclass(frozen=True, slots=True)
class KindRule:
    roles: Mapping[str, Role]
    needs: tuple[Need, ...] = ()


def _has_base_model(config: Config) -> bool:
    return bool(config.get("base_model"))


_TOY = ", a base_model by name, or 'toy' for a small model that is built from the data"


def _has_base_or_toy(config: Config) -> bool:
    known = recipe_config("sft", config)
    return _has_base_model(known) or bool(known.get("toy"))


def _rewards_itself(config: Config) -> bool:
    """The reward is a rule of the configuration and no model, nor a sum with a model in it."""
    reward = config.get("reward")
    return isinstance(reward, Mapping) and not reads_model(reward)


def reads_model(reward: Config) -> bool:
    kind, parts = reward.get("type", "model"), reward.get("parts")
    if kind != "sum" or not isinstance(parts, list):
        return kind == "model"
    sources = [part.get("source") for part in parts if isinstance(part, Mapping)]
    return any(reads_model(source) for source in sources if isinstance(source, Mapping))


def _check_without(*checks: str) -> Callable[[Config], bool]:
    """Whether a `check` asks none of these questions, which need the input."""
    return lambda config: config.get("check", "reward_plot") not in checks


def _check_rewards_itself(*checks: str) -> Callable[[Config], bool]:
    return lambda config: _check_without(*checks)(config) or _rewards_itself(config)


# A policy against a reward, by whatever algorithm.
_OPTIMISING = KindRule(
    {
        "prompts": Role(snapshots=PROMPTS),
        "sft": Role(models=POLICIES),
        "policy": Role(models=POLICIES),
        "reference": Role(models=POLICIES),
        "reward": Role(models=SCORING),
        "judge": Role(models=SCORING),
        # Asked and never learned from, to tell a reward that points the wrong way from a policy
        # that has found its weakness: pairs whose better answer is known, and the pairs that the
        # reward model itself learned from.
        "canaries": Role(snapshots=PAIRS),
        "reward_data": Role(snapshots=PAIRS),
        "demonstrations": Role(snapshots=DEMONSTRATIONS),  # what answers may have copied
    },
    (
        Need(("prompts",)),
        Need(("sft", "policy")),
        Need(("reward",), unless=_rewards_itself),
    ),
)


def _copied(models: frozenset[str]) -> KindRule:
    """Of a run that registers a model: it reads nothing, unless it copies one of another project
    (`services.sharing`)."""
    return KindRule(
        {
            "base": Role(models=models, by_service=True),
            "licence": Role(models=MODELS, by_service=True),  # what that one began as
        }
    )


KINDS: dict[str, KindRule] = {
    "sft": KindRule(
        {
            "data": Role(snapshots=DEMONSTRATIONS),
            "base": Role(models=POLICIES),
            "general": Role(snapshots=DEMONSTRATIONS),
        },
        (Need(("data",)), Need(("base",), unless=_has_base_or_toy, instead=_TOY)),
    ),
    "reward": KindRule(
        {
            "data": Role(snapshots=PAIRS),
            "hard": Role(snapshots=PAIRS),
            "sft": Role(models=POLICIES),
            "base": Role(models=POLICIES | REWARDS | ENCODERS),
            "canaries": Role(snapshots=PAIRS),
        },
        (Need(("data",)), Need(("sft", "base"), unless=_has_base_model)),
    ),
    "process_reward": KindRule(
        {
            "data": Role(snapshots=frozenset({"stepwise"})),
            "sft": Role(models=POLICIES),
            "base": Role(models=POLICIES),
        },
        (Need(("data",)), Need(("sft", "base"), unless=_has_base_model)),
    ),
    "dpo": KindRule(
        {
            "data": Role(snapshots=PAIRS),
            "sft": Role(models=POLICIES),
            "canaries": Role(snapshots=PAIRS),
            "general": Role(snapshots=DEMONSTRATIONS),
        },
        (Need(("data",)), Need(("sft",))),
    ),
    "kto": KindRule(
        {
            "data": Role(snapshots=ANSWERS),
            "sft": Role(models=POLICIES),
            "general": Role(snapshots=DEMONSTRATIONS),
        },
        (Need(("data",)), Need(("sft",))),
    ),
    "ppo": _OPTIMISING,
    "grpo": _OPTIMISING,
    "generate": KindRule(
        {
            "prompts": Role(snapshots=PROMPTS),
            "policy": Role(models=ANSWERING),
            "sft": Role(models=ANSWERING),
            "critic": Role(models=ANSWERING),  # criticises and rewrites in the policy's place
        },
        (Need(("prompts",)), Need(("policy",))),
    ),
    "evaluate": KindRule(
        {
            "prompts": Role(snapshots=PROMPTS),
            "policy": Role(models=ANSWERING),
            "sft": Role(models=ANSWERING),
            "reward": Role(models=SCORING),
            "judge": Role(models=SCORING),
        },
        (
            Need(("prompts",)),
            Need(("policy",)),
            Need(("sft",)),
            Need(("reward",), unless=_rewards_itself),
        ),
    ),
    "assess": KindRule(
        {
            "reward": Role(models=REWARDS),
            "data": Role(snapshots=PAIRS),
            "other": Role(snapshots=PAIRS),
            "prompts": Role(snapshots=PROMPTS),
            "policy": Role(models=ANSWERING),
            "sft": Role(models=ANSWERING),
            "judge": Role(models=REWARDS),
        },
        (Need(("reward",)), Need(("data",))),
    ),
    "check": KindRule(
        {
            "rollouts": Role(files=ROLLOUTS),
            "policy": Role(models=POLICIES),
            "reference": Role(models=POLICIES),
            "sft": Role(models=POLICIES),
            "reward": Role(models=SCORING),
            "prompts": Role(snapshots=PROMPTS),
            "canaries": Role(snapshots=PAIRS),
            "reward_data": Role(snapshots=PAIRS),
        },
        (
            Need(("rollouts",), _check_without("reward_plot", "rescore")),
            Need(("policy",), _check_without("kl_reference", "sampler", "critic_fit", "protocol")),
            Need(("prompts",), _check_without("kl_reference", "sampler", "critic_fit", "protocol")),
            Need(("reference",), _check_without("kl_reference")),
            Need(("sft",), _check_without("protocol")),
            Need(("canaries",), _check_without("canaries")),
            Need(
                ("reward",),
                _check_rewards_itself("rescore", "canaries", "critic_fit", "protocol", "answers"),
            ),
            Need(
                ("prompts",),
                lambda config: bool(config.get("answers")) or _check_without("answers")(config),
                instead=", or answers in the configuration",
            ),
        ),
    ),
    "probe": KindRule(
        {
            "policy": Role(models=ANSWERING),
            "reward": Role(models=SCORING),
            "prompts": Role(snapshots=PROMPTS),
        },
        (Need(("prompts",)), Need(("reward",), unless=_rewards_itself)),
    ),
    "judge": KindRule(
        {"pairs": Role(snapshots=UNLABELLED), "judge": Role(models=ANSWERING | REWARDS)},
        (Need(("pairs",)), Need(("judge",))),
    ),
    "register_policy": _copied(POLICIES),
    "register_reward": _copied(REWARDS),
    "register_encoder": _copied(ENCODERS),
    "served": KindRule({}),
    "push": KindRule(
        {
            "model": Role(models=MODELS),
            "base": Role(models=MODELS),  # what it began as, whose licence goes along
        },
        (Need(("model",)),),
    ),
    "drill": KindRule(
        {"data": Role(snapshots=PROMPTS), "base": Role(models=frozenset({"drill"}))},
    ),
}


REWARDED = OPTIMISED | {"evaluate"}  # kinds whose input `reward` is what a policy was trained on

_OWN_JUDGE = "A model cannot be its own judge: choose one that learned from other people."
_OWN_BASELINE = (
    "A policy compared with itself differs by chance alone: choose the model it began as."
)
# (role, the role it must differ from, why)
APART: dict[str, tuple[tuple[str, str, str], ...]] = {
    "ppo": (("judge", "reward", _OWN_JUDGE),),
    "grpo": (("judge", "reward", _OWN_JUDGE),),
    "evaluate": (("judge", "reward", _OWN_JUDGE), ("sft", "policy", _OWN_BASELINE)),
    "assess": (
        ("judge", "reward", _OWN_JUDGE),
        ("other", "data", "This is the dataset itself: choose one from elsewhere."),
    ),
}


def inputs_check(
    *,
    project_id: str,
    kind: str,
    config: Config,
    inputs: Mapping[str, Input],
    copied_from: str = "",
) -> None:
    """Raises `DomainError` (field `inputs.<role>`) for the first input that does not fit. Roles
    that a service fills are there for a model of the project `copied_from` alone: whoever names
    them otherwise would have a copy said to be another model."""
    rule = KINDS[kind]
    roles = {name: one for name, one in rule.roles.items() if copied_from or not one.by_service}
    for role, given in inputs.items():
        filled = role in roles and roles[role].by_service
        _check_one(copied_from if filled else project_id, kind, role, given, roles)
    for need in rule.needs:
        if not need.is_met(inputs.keys(), config):
            wanted = " or ".join(f"'{role}'" for role in need.roles)
            raise DomainError(
                f"{_a(kind)} run needs an input {wanted}: {_wanted(rule.roles[need.roles[0]])}"
                f"{need.instead}.",
                code="missing_input",
                field=f"inputs.{need.roles[0]}",
            )
    _check_apart(kind, inputs)
    _check_served(kind, config, inputs)
    if kind == "check" and config.get("check") == "critic_fit":
        _check_state(inputs)


def _check_apart(kind: str, inputs: Mapping[str, Input]) -> None:
    """A model cannot be its own judge, and a dataset is nothing else than itself: either would
    answer a line with yes that nobody asked."""
    for role, other, why in APART.get(kind, ()):
        one, two = inputs.get(role), inputs.get(other)
        if one is not None and two is not None and _used(one) == _used(two):
            raise DomainError(why, code="same_input", field=f"inputs.{role}")


def _check_served(kind: str, config: Config, inputs: Mapping[str, Input]) -> None:
    """An input that is a served model has its server, and none but that."""
    served = {
        role: run
        for role, given in inputs.items()
        if isinstance(given, Checkpoint | Run)
        and (run := given if isinstance(given, Run) else given.run).kind == Run.Kind.SERVED
    }
    server = config.get("server")
    if isinstance(server, Mapping) and server and server.get("serves", "policy") in served:
        raise DomainError(
            "This input is a served model and has its server: leave `server` empty.",
            code="served_already",
            field="config.server",
        )
    if kind == "judge" and "judge" in served and config.get("reads") == "probability":
        raise DomainError(
            "A served model says no probability of a token: read its verdicts as text, or choose "
            "a judge whose weights are here.",
            code="no_weights",
            field="config.reads",
        )


def _used(given: Input) -> Input:
    """The checkpoint that a finished run stands for."""
    return (checkpoint_for_use(given) or given) if isinstance(given, Run) else given


def approval_check(*, kind: str, inputs: Mapping[str, Input], override_reason: str) -> None:
    """A policy is optimised against a reward model that a named person approved, or by somebody who
    says why not. Raises `Conflict` (reward_not_approved, field `override_reason`), and for a model
    that was retired also with a reason."""
    given = inputs.get("reward") if kind in OPTIMISED else None
    if given is None:
        return
    assert isinstance(given, Checkpoint | Run)  # noqa: S101 — `inputs_check` saw to it
    model = given if isinstance(given, Checkpoint) else checkpoint_for_use(given)
    if model is not None and model.status == Checkpoint.Status.RETIRED:
        raise Conflict(
            f"The reward model of step {model.step} is retired; choose another one.",
            code="checkpoint_retired",
            field="inputs.reward",
        )
    if override_reason or (model is not None and model.status == Checkpoint.Status.APPROVED):
        return
    run = given if isinstance(given, Run) else given.run
    raise Conflict(
        "This reward model is not approved. Approve it on its page, or give a "
        "reason for using it without approval."
        if run.kind in REWARDS
        else "Process reward models are not approved: read what it got right on its run's page, "
        "and give your reason for using it.",
        code="reward_not_approved",
        field="override_reason",
    )


def models_hold(models: Collection[str]) -> None:
    """Keep these checkpoints from losing their files until the transaction ends. Raises `Conflict`
    (files_removed) where one has lost them.

    A foreign key is checked at the end of a transaction only, so it does not hold what it points at
    before. Launches do not wait for each other: the lock is shared."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT step, files_removed_at FROM training_checkpoint WHERE id = ANY(%s) "
            "ORDER BY id FOR KEY SHARE",
            [list(models)],
        )
        for step, removed_at in cursor.fetchall():
            if removed_at is not None:
                raise _files_removed("inputs", step, removed_at)


def _files_removed(field: str, step: int, at: datetime) -> Conflict:
    return Conflict(
        f"The files of the checkpoint of step {step:,} were removed on {at:%-d %B %Y}; choose "
        "another one.",
        code="files_removed",
        field=field,
    )


def _check_state(inputs: Mapping[str, Input]) -> None:
    """A check of the critic reads it from the trainer's state."""
    given = inputs.get("policy")
    model = _used(given) if given is not None else None
    if isinstance(model, Checkpoint) and model.state_removed_at is not None:
        raise Conflict(
            f"The critic of step {model.step:,} was removed with the trainer's state on "
            f"{model.state_removed_at:%-d %B %Y}.",
            code="state_removed",
            field="inputs.policy",
        )


def precision_check(*, kind: str, config: Config, inputs: Mapping[str, Input]) -> None:
    """Reward model and judge read in the number format that their newest assessment found to order
    answers as float32 does. Raises `DomainError` (precision_not_assessed)."""
    precision = config.get("reward_precision", FLOAT32)
    if kind not in OPTIMISED or precision == FLOAT32:
        return
    for role in ("reward", "judge"):
        given = inputs.get(role)
        if not isinstance(given, Checkpoint | Run):
            continue
        model = given if isinstance(given, Checkpoint) else checkpoint_for_use(given)
        if model is None or precision not in assessed_precisions(model):
            raise DomainError(
                f"No assessment of the {'reward model' if role == 'reward' else role} has found "
                f"that it orders answers in {precision} as in float32. Assess it with "
                "check_precision on, or choose float32.",
                code="precision_not_assessed",
                field="config.reward_precision",
            )


def assessed_precisions(model: Checkpoint) -> Collection[str]:
    """What the newest finished assessment of a reward model found to order answers alike."""
    return _assessed(model).get("precisions", ())


def assessed_temperature(model: Checkpoint) -> float | None:
    """T at which the newest finished assessment of a reward model found its margins calibrated."""
    found = _assessed(model).get("temperature")
    if isinstance(found, int | float) and isfinite(found) and found > 0:
        return float(found)
    return None


def _assessed(model: Checkpoint) -> Mapping[str, Any]:
    """The summary of the newest finished assessment; empty without one."""
    run = (
        Run.objects.filter(
            kind=Run.Kind.ASSESS,
            state=Run.State.FINISHED,
            inputs__role="reward",
            inputs__checkpoint=model,
        )
        .order_by("-ended_at")
        .first()
    )
    return run.summary if run is not None else {}


def _a(kind: str) -> str:
    return f"An {kind}" if kind[0] in "aeiou" else f"A {kind}"


def _check_one(
    project_id: str, kind: str, role: str, given: Input, roles: Mapping[str, Role]
) -> None:
    field = f"inputs.{role}"
    allowed = roles.get(role)
    if allowed is None:
        known = ", ".join(roles) or "nothing"
        raise DomainError(
            f"{_a(kind)} run has no input '{role}'; it reads: {known}.",
            code="unknown_input",
            field=field,
        )
    if not isinstance(given, Snapshot | Checkpoint | Run | Artifact):
        raise DomainError(
            f"Input '{role}' must be a snapshot, a checkpoint, a run or a file of a run.",
            code="wrong_input",
            field=field,
        )
    owner = given.run if isinstance(given, Artifact) else given
    if owner.project_id != project_id:
        # As if it did not exist: what other projects have is none of this one's business.
        raise DomainError(
            f"Input '{role}': there is no such thing in this project.",
            code="unknown_input",
            field=field,
        )
    if isinstance(given, Snapshot):
        _check_snapshot(field, role, given, allowed)
    elif isinstance(given, Artifact):
        if given.name not in allowed.files:
            raise DomainError(
                f"Input '{role}' must be {_wanted(allowed)}, not the file {given.name}.",
                code="wrong_input",
                field=field,
            )
    else:
        _check_model(field, role, given, allowed)


def _check_snapshot(field: str, role: str, snapshot: Snapshot, allowed: Role) -> None:
    if snapshot.kind not in allowed.snapshots:
        raise DomainError(
            f"Input '{role}' must be {_wanted(allowed)}, not a snapshot of {snapshot.kind}.",
            code="wrong_input",
            field=field,
        )
    if snapshot.state != Snapshot.State.FROZEN:
        raise Conflict(
            f"Snapshot '{snapshot.name}' is {snapshot.state}; only a frozen one can be used.",
            code="snapshot_not_frozen",
            field=field,
        )


def _check_model(field: str, role: str, given: Checkpoint | Run, allowed: Role) -> None:
    run = given if isinstance(given, Run) else given.run
    if run.kind not in allowed.models:
        raise DomainError(
            f"Input '{role}' must be {_wanted(allowed)}, not a {run.kind} run's.",
            code="wrong_input",
            field=field,
        )
    if isinstance(given, Checkpoint):
        if given.files_removed_at is not None:
            raise _files_removed(field, given.step, given.files_removed_at)
        if given.status == Checkpoint.Status.REJECTED:
            raise Conflict(
                f"The checkpoint of step {given.step} was rejected.",
                code="checkpoint_rejected",
                field=field,
            )
    elif given.state in (Run.State.FAILED, Run.State.CANCELLED):
        raise Conflict(
            f"Run '{given.name}' is {given.state}; resume it, or choose one of its checkpoints.",
            code="upstream_failed",
            field=field,
        )


def _wanted(role: Role) -> str:
    if role.files:
        return f"the file {' or '.join(sorted(role.files))} of a run"
    if role.snapshots:
        return f"a snapshot of {' or '.join(sorted(role.snapshots))}"
    return f"a model of a {' or '.join(sorted(role.models))} run"
