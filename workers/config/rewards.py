"""The `reward` of a configuration: which source scores, and how. No torch.

    {"type": "model"}                                   the input 'reward': a model or an ensemble
    {"type": "rules", "rules": [{"name": …, "lacks": [...]}, …]}
    {"type": "verifier", "check": "number", "take": "boxed"}
    {"type": "http", "url": "https://…", "version": "2026-11"}
    {"type": "sum", "parts": [{"name": …, "weight": 1.0, "source": {…}}, …]}
    {"type": "token_count", "token": "good"}            for trying the engine

`reward_errors` says everything that is wrong, each with its path (`reward.parts[1].source.url: …`);
`read_reward` gives the settings that workers.rewards.build makes sources of. See docs/rewards.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from measures.ensembles import AGGREGATES
from workers.config.parsing import option, read
from workers.config.reward_rules import NAME, RuleSettings, VerifierSettings, name_error
from workers.context import RecipeError
from workers.contract.events import Fault

# And names that begin with it: an engineer must not have any other secret sent out.
TOKEN_VARIABLE = "REWARD_TOKEN"  # noqa: S105 - a name
LOOPBACK = ("localhost", "127.0.0.1", "::1")
DEEPEST = 4  # sums within sums


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """Remember scores: policies repeat themselves, and epochs repeat prompts."""

    cache: bool = option(
        True, "Ask once for each text of a prompt and its response; off to have each scored anew."
    )
    cache_entries: int = option(
        1_000_000, "Scores remembered; the least recently used go first.", minimum=1
    )
    cache_seconds: float = option(
        3600.0, "How long a score is remembered in Redis, where there is one.", unit="s", above=0.0
    )


@dataclass(frozen=True, kw_only=True)
class ModelSettings(CacheSettings):
    """A reward model or an ensemble: the input 'reward'."""

    max_length: int | None = option(
        None,
        "Longer texts are cut, and counted; what the model reads if unset.",
        unit="tokens",
        minimum=1,
    )
    disagreement_threshold: float | None = option(
        None,
        "Answers over it teach nothing and go to people; an ensemble's own if unset.",
        unit="validation deviations",
        above=0.0,
    )
    aggregate: str | None = option(
        None, "How members become one score; as the ensemble says if unset.", choices=AGGREGATES
    )
    lambda_: float | None = option(
        None,
        "Price of disagreement in the aggregates that subtract it; the ensemble's if unset.",
        minimum=0.0,
    )


@dataclass(frozen=True, kw_only=True)
class TokenCountSettings:
    """How often a word occurs. For trying the engine, not for people."""

    token: str = option("", "The word to count, whatever its case.")
    cap: int | None = option(None, "More count as so many.", minimum=1)

    def check(self) -> list[str]:
        return [] if self.token else ["token: must be the word to count"]


@dataclass(frozen=True, kw_only=True)
class RulesSettings:
    """Rules and hard constraints; the score is what they earn and cost together."""

    rules: tuple[Mapping[str, Any], ...] = option((), "At least one; see RuleSettings.")

    @property
    def each(self) -> list[RuleSettings]:
        return [rule for entry in self.rules if (rule := read(RuleSettings, entry)[0])]

    def check(self) -> list[str]:
        if not self.rules:
            return ["rules: must hold at least one rule"]
        errors = []
        for i, entry in enumerate(self.rules):
            errors += read(RuleSettings, entry, where=f"rules[{i}].", what="a rule")[1]
        return errors + _twice("rules", [str(entry.get("name")) for entry in self.rules])


@dataclass(frozen=True, kw_only=True)
class HttpSettings(CacheSettings):
    """A service that scores. What it must answer: docs/rewards.md."""

    url: str = option("", "Where batches are posted: https, or http on this machine.")
    version: str | None = option(
        None,
        "The version the service must say it is, and part of the cache's key; unset, no cache.",
    )
    token_env: str | None = option(
        None,
        f"The worker's environment variable with the bearer token: {TOKEN_VARIABLE} or a name that "
        "begins with it.",
    )
    timeout_s: float = option(30.0, "For one answer.", unit="s", above=0.0, maximum=600.0)
    retries: int = option(
        4, "Further tries after 429, 5xx and lost connections.", minimum=0, maximum=20
    )
    batch_size: int = option(32, "Texts posted at once.", unit="texts", minimum=1, maximum=256)
    concurrency: int = option(2, "Requests at a time.", unit="requests", minimum=1, maximum=32)

    def check(self) -> list[str]:
        errors = [f"url: {told}" for told in url_errors(self.url, with_token=bool(self.token_env))]
        name = self.token_env
        if name is not None and not (
            name == TOKEN_VARIABLE
            or (name.startswith(TOKEN_VARIABLE + "_") and NAME.fullmatch(name))
        ):
            errors.append(f"token_env: must be {TOKEN_VARIABLE} or begin with {TOKEN_VARIABLE}_")
        if self.version == "":
            errors.append("version: must not be empty")
        return errors


@dataclass(frozen=True, kw_only=True)
class PartSettings:
    """A component of a sum."""

    name: str = option("", "What it is called in metrics.")
    weight: float = option(1.0, "Its score is multiplied by this; negative for a price.")
    source: Mapping[str, Any] = option({}, "Any other source.")

    def check(self) -> list[str]:
        return name_error(self.name)


@dataclass(frozen=True, kw_only=True)
class SumSettings:
    """A weighted sum, with every component in the metrics."""

    parts: tuple[Mapping[str, Any], ...] = option((), "At least one; see PartSettings.")

    @property
    def each(self) -> list[PartSettings]:
        return [part for entry in self.parts if (part := read(PartSettings, entry)[0])]

    def check(self) -> list[str]:
        if not self.parts:
            return ["parts: must hold at least one component"]
        errors = []
        for i, entry in enumerate(self.parts):
            errors += read(PartSettings, entry, where=f"parts[{i}].", what="a part")[1]
        return errors + _twice("parts", [str(entry.get("name")) for entry in self.parts])


SourceSettings = (
    ModelSettings
    | TokenCountSettings
    | RulesSettings
    | VerifierSettings
    | HttpSettings
    | SumSettings
)
SOURCES: dict[str, type] = {
    "model": ModelSettings,
    "token_count": TokenCountSettings,
    "rules": RulesSettings,
    "verifier": VerifierSettings,
    "http": HttpSettings,
    "sum": SumSettings,
}


def reward_errors(config: Mapping[str, Any], where: str = "reward") -> list[str]:
    """Everything that is wrong with a `reward`, each with its path; empty if it can be built."""
    return _read(config, where, DEEPEST)[1]


def read_reward(config: Mapping[str, Any], where: str = "reward") -> SourceSettings:
    """The settings of the source, or `RecipeError` (bad_config) with everything that is wrong."""
    settings, errors = _read(config, where, DEEPEST)
    if settings is None or errors:
        raise RecipeError("bad_config", Fault.CONFIGURATION, "; ".join(sorted(errors)))
    return settings


def needs_model(config: Mapping[str, Any]) -> bool:
    """Whether the input 'reward' is read."""
    kind = config.get("type")
    parts = config.get("parts") or () if kind == "sum" else ()
    return kind == "model" or any(needs_model(part.get("source") or {}) for part in parts)


def _read(
    config: Mapping[str, Any], where: str, depth: int
) -> tuple[SourceSettings | None, list[str]]:
    own = dict(config)
    kind = own.pop("type", None)
    cls = SOURCES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        return None, [f"{where}.type: {kind!r} is none of {', '.join(SOURCES)}"]
    settings, errors = read(cls, own, where=f"{where}.", what=f"the source {kind}")
    parts = own.get("parts") if cls is SumSettings else None
    for i, part in enumerate(parts if isinstance(parts, list | tuple) else ()):
        source = part.get("source", {}) if isinstance(part, Mapping) else None
        path = f"{where}.parts[{i}].source"
        if not isinstance(source, Mapping):
            continue  # `read` said so
        errors += (
            _read(source, path, depth - 1)[1] if depth > 1 else [f"{path}: is nested too deep"]
        )
    return settings, errors


def url_errors(url: str, *, with_token: bool) -> list[str]:
    """Why nothing should be posted to this address."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return [f"is no address ({error})"]
    if parts.scheme not in ("http", "https") or not host:
        return ["must begin with https:// (or http://) and name a host"]
    errors = []
    if parts.username or parts.password:
        errors.append("must hold no password: name the variable of a token in token_env")
    if parts.fragment:
        errors.append("must have no fragment")
    if with_token and parts.scheme == "http" and host not in LOOPBACK:
        errors.append("a token goes over https only, or stays on this machine")
    return errors


def _twice(field: str, names: list[str]) -> list[str]:
    return [
        f"{field}[{i}].name: {name!r} is the name of another one"
        for i, name in enumerate(names)
        if name in names[:i] and name != "None"
    ]
