"""The source of rewards a job's configuration names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from measures.messages import Messages
from workers.config.rewards import (
    FunctionSettings,
    HttpSettings,
    ModelSettings,
    RulesSettings,
    SourceSettings,
    SumSettings,
    TokenCountSettings,
    VerifierSettings,
    read_reward,
)
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.contract.jobs import FLOAT32
from workers.data.snapshot import TRAIN, Prompt, evaluation_splits, read_prompts
from workers.models.loading import is_step_scorer
from workers.rewards.cache import ByRows, CachedReward, cache_of, template_version
from workers.rewards.ensemble import is_ensemble
from workers.rewards.external import FunctionReward, HttpReward
from workers.rewards.model import EnsembleReward, ModelReward
from workers.rewards.rules import RulesReward
from workers.rewards.source import Part, RewardSource, Scores, TokenCount, WeightedSum
from workers.rewards.steps import StepsReward
from workers.rewards.verifier import Verifier


def load_reward(
    folder: Path,
    *,
    name: str,
    batch_size: int,
    max_length: int | None = None,
    precision: str = FLOAT32,
    spread_out: bool = False,
) -> ModelReward | EnsembleReward:
    """A reward model's folder, whether it is one model, an ensemble (layout.py) or a process reward
    model."""
    kind: type[ModelReward | EnsembleReward] = ModelReward
    if is_ensemble(folder):
        kind = EnsembleReward
    elif is_step_scorer(folder):
        kind = StepsReward
    return kind(
        folder,
        name=name,
        batch_size=batch_size,
        max_length=max_length,
        precision=precision,
        spread_out=spread_out,
    )


@dataclass(frozen=True, slots=True)
class _Setting:
    """What every part of a reward is built with."""

    context: RunContext
    batch_size: int
    given: Sequence[Prompt] | None
    precision: str
    spread_out: bool

    def prompts(self) -> list[Prompt]:
        return _prompts(self.context) if self.given is None else list(self.given)

    @property
    def has_prompts(self) -> bool:
        return self.given is not None or self.context.has_input("prompts")


def build_reward(
    context: RunContext,
    reward: Mapping[str, Any],
    *,
    batch_size: int,
    where: str = "reward",
    prompts: Sequence[Prompt] | None = None,
    precision: str = FLOAT32,
    spread_out: bool = False,
) -> RewardSource:
    """The source of `reward`, a field of the configuration called `where`. A model comes from the
    input 'reward', and reads in `precision`, on one device or `spread_out`; what is right from
    `prompts`, or the input 'prompts'. Raises `RecipeError` where the configuration or an
    input does not fit."""
    given = _Setting(context, batch_size, prompts, precision, spread_out)
    return _build(given, read_reward(reward, where), where)


def build_judge(
    context: RunContext, *, batch_size: int, precision: str = FLOAT32, spread_out: bool = False
) -> RewardSource | None:
    """The held-out reward model (input 'judge'): it is asked, and never optimised against."""
    if not context.has_input("judge"):
        return None
    return load_reward(
        context.input_path("judge"),
        name="judge",
        batch_size=batch_size,
        precision=precision,
        spread_out=spread_out,
    )


def _build(given: _Setting, settings: SourceSettings, where: str) -> RewardSource:
    match settings:
        case ModelSettings():
            return _model(given, settings, where)
        case TokenCountSettings():
            return TokenCount(settings.token, cap=settings.cap)
        case RulesSettings():
            return RulesReward(settings.each, where=where)
        case VerifierSettings():
            known = given.prompts() if settings.needs_answers else []
            return Verifier(settings, known, where=where)
        case HttpSettings():
            return _service(settings)
        case FunctionSettings():
            rows = given.prompts() if given.has_prompts else []
            return FunctionReward(settings, rows, where=where)
        case SumSettings():
            return _sum(given, settings, where)


def _model(given: _Setting, settings: ModelSettings, where: str) -> RewardSource:
    source = load_reward(
        given.context.input_path("reward"),
        name="reward_model",
        batch_size=given.batch_size,
        max_length=settings.max_length,
        precision=given.precision,
        spread_out=given.spread_out,
    )
    version = f"{_sha256(given.context)}:{given.precision}"
    if isinstance(source, EnsembleReward):
        own = source.layout
        source.layout = replace(
            own,
            aggregate=settings.aggregate or own.aggregate,
            lam=own.lam if settings.lambda_ is None else settings.lambda_,
            threshold=settings.disagreement_threshold or own.threshold,
        )
        if (source.layout.aggregate, source.layout.lam) != (own.aggregate, own.lam):
            version += f":{source.layout.aggregate}:{source.layout.lam!r}"
    elif settings.aggregate or settings.lambda_ is not None:
        field = "aggregate" if settings.aggregate else "lambda"
        raise _other_model(f"{where}.{field}", "one model, not an ensemble")
    if isinstance(source, StepsReward):
        source.steps = settings.steps or source.steps
        source.steps_end = settings.steps_end or source.steps_end
        version += f":{source.steps}:{source.steps_end}"
    elif settings.steps or settings.steps_end:
        field = "steps" if settings.steps else "steps_end"
        raise _other_model(f"{where}.{field}", "no process reward model: it scores whole answers")
    if not settings.cache:
        return source
    cache = cache_of(entries=settings.cache_entries, seconds=settings.cache_seconds)
    template = template_version(each.chat_template for each in source.tokenizers)
    return CachedReward(source, version, cache, template=template)


def _other_model(field: str, it_is: str) -> RecipeError:
    told = f"{field}: the input 'reward' is {it_is}"
    return RecipeError("bad_config", Fault.CONFIGURATION, told)


def _service(settings: HttpSettings) -> RewardSource:
    source = HttpReward(settings)
    if not settings.cache or settings.version is None:
        return source
    cache = cache_of(entries=settings.cache_entries, seconds=settings.cache_seconds)
    return CachedReward(source, f"{settings.url} {settings.version}", cache)


def _sum(given: _Setting, settings: SumSettings, where: str) -> WeightedSum:
    parts = []
    for i, part in enumerate(settings.each):
        inner = f"{where}.parts[{i}].source"
        source = _build(given, read_reward(part.source, inner), inner)
        parts.append(Part(part.name, part.weight, source))
    return WeightedSum(parts)


def _sha256(context: RunContext) -> str:
    reference = context.spec.input("reward")
    return reference.sha256 if reference else ""


def _prompts(context: RunContext) -> list[Prompt]:
    """Every prompt a run may be asked about, with its answer: of all splits."""
    folder = context.input_path("prompts")
    splits = [TRAIN, *evaluation_splits(folder)]
    return [prompt for split in splits for prompt in read_prompts(folder, split)]


# A source without its caches: what it would say if it were asked again.


@dataclass(frozen=True, slots=True)
class _Asked:
    source: ByRows

    def score(self, prompts: Sequence[Messages], responses: Sequence[str]) -> Scores:
        return self.source.score_rows(self.source.encode(prompts, responses))


def without_cache(source: RewardSource) -> RewardSource:
    """The same source, that makes every score again; also those of a sum's parts."""
    if isinstance(source, CachedReward):
        return _Asked(source.source)
    if isinstance(source, WeightedSum):
        return WeightedSum(
            [replace(part, source=without_cache(part.source)) for part in source.parts]
        )
    return source
