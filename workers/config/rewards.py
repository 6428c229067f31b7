"""The `reward` of a configuration: which source scores, and how. No torch.

    {"type": "model"}                                   the input 'reward': a model or an ensemble
    {"type": "rules", "rules": [{"name": …, "lacks": [...]}, …]}
    {"type": "verifier", "check": "number", "take": "boxed"}
    {"type": "http", "url": "https://…", "version": "2026-11"}
    {"type": "function", "name": "brevity"}             a function of an installed package
    {"type": "sum", "parts": [{"name": …, "weight": 1.0, "source": {…}}, …]}
    {"type": "token_count", "token": "good"}            for trying the engine

`reward_errors` says everything that is wrong, each with its path (`reward.parts[1].source.url: …`);
`read_reward` gives the settings that workers.rewards.build makes sources of. See docs/rewards.md.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import urlsplit

import regex

from workers.config.parsing import SettingsError, option, read

# The names that `workers.rewards.ensemble` has for them; a test compares.
AGGREGATES = ("mean", "min", "median", "mean_minus_lambda_var", "mean_minus_lambda_std")

# How the steps of an answer become one score, and where one ends in an answer of one message.
LEAST, LAST, MEAN, PRODUCT = "least", "last", "mean", "product"
STEPS = (LEAST, LAST, MEAN, PRODUCT)
LINES, PARAGRAPHS = "lines", "paragraphs"

PENALISE, BLOCK, REVIEW = "penalise", "block", "review"
TESTS = (
    "contains",
    "contains_any",
    "lacks",
    "matches",
    "matches_not",
    "words",
    "characters",
    "format",
)
FORMATS = ("json", "boxed", "sections")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")

# Python functions of installed packages. A package declares them in its own `pyproject.toml`:
#
#     [project.entry-points."concord.rewards"]
#     brevity = "my_rewards:brevity"
FUNCTIONS = "concord.rewards"


def installed_functions() -> tuple[str, ...]:
    """Names of the reward functions that are installed here, sorted. Nothing is imported."""
    return tuple(sorted({one.name for one in entry_points(group=FUNCTIONS)}))


CODE_VERIFIER = "CODE_VERIFIER"


def runs_code() -> bool:
    """Whether this machine's owner lets the code of answers be run here (docs/security.md)."""
    return os.environ.get(CODE_VERIFIER, "") == "1"


def name_error(name: str) -> list[str]:
    """Names become parts of metric names."""
    if NAME.fullmatch(name):
        return []
    return [f"name: {name!r} must be 1 to 40 letters, digits, - and _"]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Both ends inclusive; one may be left open."""

    least: int | None = option(None, "The fewest allowed.", minimum=0)
    most: int | None = option(None, "The most allowed.", minimum=0)

    def check(self) -> list[str]:
        if self.least is None and self.most is None:
            return ["least or most must be given"]
        if self.least is not None and self.most is not None and self.least > self.most:
            return [f"least: {self.least} is over most, {self.most}"]
        return []


@dataclass(frozen=True, kw_only=True)
class RuleSettings:
    """One rule: a name, one test, and what it earns or costs."""

    name: str = option("", "What the rule is called in metrics, logs and reviews.")
    contains: tuple[str, ...] = option((), "Phrases of which every one must occur.")
    contains_any: tuple[str, ...] = option((), "Phrases of which one must occur.")
    lacks: tuple[str, ...] = option((), "Phrases of which none may occur.")
    matches: str = option("", "A regular expression that must match somewhere.")
    matches_not: str = option("", "A regular expression that may match nowhere.")
    words: Mapping[str, Any] | None = option(None, "Length bounds: {least, most}.", unit="words")
    characters: Mapping[str, Any] | None = option(
        None, "Length bounds: {least, most}.", unit="characters"
    )
    format: str | None = option(
        None,
        "json: the response is JSON, alone or in one code fence; boxed: it holds one \\boxed{…} "
        "that is not empty; sections: the headings of `sections` stand in it in that order.",
        choices=FORMATS,
    )
    sections: tuple[str, ...] = option((), "Headings of the format sections, each on its own line.")
    ignore_case: bool | None = option(
        None, "Unless set, phrases and headings ignore case and expressions do not."
    )
    score: float = option(0.0, "Earned by a response that keeps the rule.", unit="score")
    penalty: float | None = option(
        None,
        "Taken from a response that breaks it; 1 unless set where on_violation is penalise, and "
        "none elsewhere.",
        unit="score",
        minimum=0.0,
    )
    on_violation: str = option(
        PENALISE,
        "penalise: the penalty is all; block: the response teaches nothing (with a penalty: only "
        "the penalty) and is kept out of what is generated; review: people see it.",
        choices=(PENALISE, BLOCK, REVIEW),
    )

    @property
    def test(self) -> str:
        """The name of the one test that is set."""
        return next(name for name in TESTS if getattr(self, name))

    @property
    def cost(self) -> float:
        if self.penalty is not None:
            return self.penalty
        return 1.0 if self.on_violation == PENALISE else 0.0

    @property
    def withholds(self) -> bool:
        """Whether a response that breaks the rule must give no gradient."""
        return self.on_violation == BLOCK and not self.penalty

    def check(self) -> list[str]:
        errors = name_error(self.name)
        given = [name for name in TESTS if getattr(self, name)]
        if len(given) != 1:
            listed = ", ".join(given) or "none"
            errors.append(
                f"contains: give exactly one test of {', '.join(TESTS)} (given: {listed})"
            )
        for name in ("contains", "contains_any", "lacks", "sections"):
            errors += [
                f"{name}[{i}]: must not be empty"
                for i, phrase in enumerate(getattr(self, name))
                if not phrase.strip()
            ]
        errors += [
            f"{name}: {told}"
            for name in ("matches", "matches_not")
            if getattr(self, name) and (told := expression_error(getattr(self, name)))
        ]
        for name in ("words", "characters"):
            if getattr(self, name) is not None:
                errors += read(Bounds, getattr(self, name), where=f"{name}.", what="a length")[1]
        if (self.format == "sections") != bool(self.sections):
            errors.append("sections: belongs to the format sections, which needs it")
        return errors


def expression_error(pattern: str) -> str | None:
    """Why this is no regular expression; None if it is one."""
    try:
        regex.compile(pattern)
    except regex.error as error:
        return f"is no regular expression ({error})"
    return None


CODE = "code"
FINAL_STATE = "final_state"
CHECKS = ("exact", "number", "maths", CODE, "pattern", "order", "shape", FINAL_STATE)
TAKEN = ("whole", "last_line", "boxed", "after", "match")


@dataclass(frozen=True, kw_only=True)
class VerifierSettings:
    """A check against what is known to be right: each prompt's own `answer`, or a shape."""

    check_: str = option(
        "exact",
        "exact: the same text but for case, width of characters and white space; number: the same "
        "number within the tolerances; maths: the same mathematics, compared by sympy; code: its "
        "Python passes the tests in the prompt's answer, where the worker allows it; pattern: "
        "the prompt's answer is a regular expression that matches all of it; order: the prompt's "
        "answer is a list whose items must occur in that order; shape: JSON of this shape, "
        "whatever the prompt; final_state: the files and the answer that the prompt's check wants, "
        "once a policy has acted in its environment.",
        choices=CHECKS,
    )
    take: str = option(
        "whole",
        "Which part of the response is the answer. after: what follows the last `marker` on its "
        "line; match: the first group of `pattern` where it matches last.",
        choices=TAKEN,
    )
    marker: str = option("Answer:", "Stands before the answer, for take: after.")
    pattern: str = option("", "Finds the answer, for take: match.")
    tolerance: float = option(1e-6, "Numbers this close are the same.", minimum=0.0)
    relative_tolerance: float = option(
        0.0, "Numbers this close are the same, as a share of the right one.", minimum=0.0
    )
    shape: Mapping[str, Any] = option(
        {}, "JSON Schema, of which type, enum, const, properties, required, … are understood."
    )
    score: float = option(1.0, "Of a right answer.", unit="score")
    wrong: float = option(0.0, "Of a wrong one.", unit="score")
    missing: float | None = option(
        None, "Where no answer is found in the response; as a wrong one unless set.", unit="score"
    )
    partial: bool = option(
        False,
        "order: the share of pairs in the right order, code: the share of tests passed, "
        "final_state: the share of files and answer that are right, between wrong and score.",
    )
    seconds: float = option(
        5.0,
        "code: for all calls of an answer's function, or for each run of its program.",
        unit="s",
        above=0.0,
        maximum=60.0,
    )
    memory_mb: int = option(
        512, "code: memory of an answer's process.", unit="MB", minimum=64, maximum=16_384
    )
    on_wrong: str = option(
        PENALISE,
        "penalise: the score is all; block: and a wrong response is kept out of what is generated; "
        "review: people see it.",
        choices=(PENALISE, BLOCK, REVIEW),
    )
    without_answer: str = option(
        "refuse",
        "Prompts that have no answer: refuse to start, or give each of their responses 0.",
        choices=("refuse", "zero"),
    )

    def check(self) -> list[str]:
        errors = []
        if self.take == "match" and not self.pattern:
            errors.append("pattern: is needed to take a match")
        if self.pattern and (told := expression_error(self.pattern)):
            errors.append(f"pattern: {told}")
        if self.take == "after" and not self.marker.strip():
            errors.append("marker: must not be empty")
        if self.check_ == "shape":
            errors += [f"shape{told}" for told in shape_errors(self.shape)]
            errors += [] if self.shape else ["shape: is needed to check a shape"]
        return errors

    @property
    def needs_answers(self) -> bool:
        return self.check_ != "shape"


_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_KEYWORDS: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "type": str,
    "enum": list,
    "const": object,
    "properties": dict,
    "required": list,
    "additionalProperties": bool,
    "items": dict,
    "minItems": int,
    "maxItems": int,
    "minimum": (int, float),
    "maximum": (int, float),
    "minLength": int,
    "maxLength": int,
    "pattern": str,
}


def shape_errors(shape: Mapping[str, Any], where: str = "") -> list[str]:
    """What of a shape would not be checked, or could not be: nothing is ignored in silence."""
    errors = []
    for key, value in shape.items():
        wanted = _KEYWORDS.get(key)
        if wanted is None:
            errors.append(f"{where}.{key}: is not understood (known: {', '.join(_KEYWORDS)})")
        elif not isinstance(value, wanted) or (
            isinstance(value, bool) and wanted in (int, (int, float))
        ):
            errors.append(f"{where}.{key}: does not take {json.dumps(value)}")
        elif key == "type" and value not in _TYPES:
            errors.append(f"{where}.type: {value!r} is none of {', '.join(_TYPES)}")
        elif key == "pattern" and (told := expression_error(value)):
            errors.append(f"{where}.pattern: {told}")
        elif key == "items":
            errors += shape_errors(value, f"{where}.items")
        elif key == "properties":
            for name, inner in value.items():
                path = f"{where}.properties.{name}"
                fits = isinstance(inner, dict)
                errors += shape_errors(inner, path) if fits else [f"{path}: must be an object"]
    return errors


# And names that begin with it: an engineer must not have any other secret sent out.
TOKEN_VARIABLE = "REWARD_TOKEN"  # noqa: S105 - a name
LOOPBACK = ("localhost", "127.0.0.1", "::1")
DEEPEST = 4  # sums within sums


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """Remember scores: policies repeat themselves, and epochs repeat prompts."""

    cache: bool = option(
        True, "Ask once for each text of a prompt and its response; off to have each scored again."
    )
    cache_entries: int = option(
        1_000_000, "Scores remembered; the least recently used go first.", minimum=1
    )
    cache_seconds: float = option(
        3600.0, "How long a score is remembered in Redis, where there is one.", unit="s", above=0.0
    )


@dataclass(frozen=True, kw_only=True)
class ModelSettings(CacheSettings):
    """A reward model, an ensemble or a process reward model: the input 'reward'."""

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
    steps: str | None = option(
        None,
        "Of a process reward model, how steps become one score: least (the step least likely to be "
        "right; the one if unset), last, mean, product (that all are right).",
        choices=STEPS,
    )
    steps_end: str | None = option(
        None,
        "Of a process reward model, what ends a step in an answer of one message: lines (if unset) "
        "or paragraphs.",
        choices=(LINES, PARAGRAPHS),
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
class FunctionSettings:
    """A Python function of a package that is installed on the worker."""

    name: str = option("", "The name of its entry point, in the group concord.rewards.")
    options: Mapping[str, Any] = option({}, "Given to the function as keyword arguments.")
    timeout_s: float = option(
        30.0, "For one batch of answers.", unit="s", above=0.0, maximum=3600.0
    )

    def check(self) -> list[str]:
        taken = {"prompts", "answers", "rows"} & self.options.keys()
        return name_error(self.name) + [
            f"options.{name}: is what every reward function is given" for name in sorted(taken)
        ]


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
    | FunctionSettings
    | SumSettings
)
SOURCES: dict[str, type] = {
    "model": ModelSettings,
    "token_count": TokenCountSettings,
    "rules": RulesSettings,
    "verifier": VerifierSettings,
    "http": HttpSettings,
    "function": FunctionSettings,
    "sum": SumSettings,
}


def reward_errors(config: Mapping[str, Any], where: str = "reward") -> list[str]:
    """Everything that is wrong with a `reward`, each with its path; empty if it can be built."""
    return _read(config, where, DEEPEST)[1]


def read_reward(config: Mapping[str, Any], where: str = "reward") -> SourceSettings:
    """The settings of the source, or `SettingsError` with everything that is wrong."""
    settings, errors = _read(config, where, DEEPEST)
    if settings is None or errors:
        raise SettingsError(errors)
    return settings


def needs_model(config: Mapping[str, Any]) -> bool:
    """Whether the input 'reward' is read."""
    kind = config.get("type")
    parts = config.get("parts") or () if kind == "sum" else ()
    return kind == "model" or any(needs_model(part.get("source") or {}) for part in parts)


def functions_named(config: Mapping[str, Any], where: str = "reward") -> list[tuple[str, str]]:
    """(path, name) of every Python function in a sound `reward`."""
    if config.get("type") == "function":
        return [(f"{where}.name", str(config.get("name")))]
    return [
        found
        for i, part in enumerate(config.get("parts") or () if config.get("type") == "sum" else ())
        for found in functions_named(part.get("source") or {}, f"{where}.parts[{i}].source")
    ]


def verifiers_by(check: str, config: Mapping[str, Any], where: str = "reward") -> list[str]:
    """Paths of every verifier of a sound `reward` that checks so; CODE runs the code of answers."""
    if config.get("type") == "verifier":
        return [f"{where}.check"] if config.get("check") == check else []
    return [
        found
        for i, part in enumerate(config.get("parts") or () if config.get("type") == "sum" else ())
        for found in verifiers_by(check, part.get("source") or {}, f"{where}.parts[{i}].source")
    ]


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
