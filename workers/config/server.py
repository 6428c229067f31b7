"""An OpenAI-compatible server that speaks for a model: the `server` of a configuration, and a
model that is registered by nothing but its server.

    {"url": "http://127.0.0.1:8000/v1", "model": "policy-7b"}

Empty: the worker loads the model and answers itself. No torch. See docs/servers.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.config.parsing import Section, SettingsError, option, read
from workers.config.rewards import NAME, url_errors

# And names that begin with it: an engineer must not have any other secret sent out.
TOKEN_VARIABLE = "INFERENCE_TOKEN"  # noqa: S105 - a name
CHAT, COMPLETIONS = "chat", "completions"
POLICY, SFT = "policy", "sft"
JUDGE, CRITIC = "judge", "critic"  # inputs that a server answers for as served models alone
DOC = (
    "An OpenAI-compatible server (vLLM, TGI, transformers serve) that answers in place of the "
    'worker, as {"url": "https://…/v1", "model": …}; docs/servers.md has the rest. Empty: none.'
)
# What Concord itself says in a request; `extra` must not say it otherwise.
OWN_FIELDS = frozenset(
    {
        "model",
        "messages",
        "prompt",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "n",
        "stop",
        "stream",
    }
)


@dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """Where a model is served, and how patiently it is asked."""

    url: str = option(
        "",
        "The address before /chat/completions, mostly ending in /v1, of a host that the worker's "
        "INFERENCE_HOSTS names.",
        section=Section.MODEL,
        main=True,
    )
    model: str = option("", "What the server calls the model.", section=Section.MODEL, main=True)
    api: str = option(
        CHAT,
        "chat: the server applies its chat template; completions: the worker applies that of the "
        "input's tokenizer and sends text.",
        choices=(CHAT, COMPLETIONS),
        section=Section.MODEL,
    )
    token_env: str | None = option(
        None,
        f"The worker's environment variable with the bearer token: {TOKEN_VARIABLE} or a name that "
        "begins with it.",
        section=Section.MODEL,
        main=True,
    )
    timeout_s: float = option(
        120.0,
        "For one answer, waiting in the server's queue included.",
        unit="s",
        above=0.0,
        maximum=3600.0,
    )
    retries: int = option(
        4, "Further tries after 429, 5xx and lost connections.", minimum=0, maximum=20
    )
    concurrency: int = option(8, "Requests at a time.", unit="requests", minimum=1, maximum=256)
    n: int = option(
        1,
        "Answers to one prompt asked for in one request, where a prompt is answered several times. "
        "Servers that give one at a time leave it at 1.",
        unit="answers",
        minimum=1,
        maximum=128,
    )
    stop: tuple[str, ...] = option((), "Texts that end an answer, four at most.")
    failed_share: float = option(
        0.0,
        "Share of the requests of a round (one side of the pairs, one revision) that generate "
        "leaves out, each named, when the server fails them for good. Measurements allow none.",
        minimum=0.0,
        maximum=0.5,
    )
    extra: Mapping[str, Any] = option(
        {}, 'Further fields of every request, such as {"min_p": 0.05}; the server must know them.'
    )

    def check(self) -> list[str]:
        told = url_errors(self.url, with_token=bool(self.token_env))
        errors = [f"url: {text}" for text in told]
        if not self.model.strip():
            errors.append("model: must be the name the server has for it")
        name = self.token_env
        if name is not None and not (
            name == TOKEN_VARIABLE
            or (name.startswith(TOKEN_VARIABLE + "_") and NAME.fullmatch(name))
        ):
            errors.append(f"token_env: must be {TOKEN_VARIABLE} or begin with {TOKEN_VARIABLE}_")
        if len(self.stop) > 4 or not all(self.stop):
            errors.append("stop: must hold four texts at most, and none that is empty")
        if own := sorted(OWN_FIELDS & self.extra.keys()):
            errors.append(f"extra: must not hold {', '.join(own)}, which other settings decide")
        return errors


@dataclass(frozen=True, kw_only=True)
class ServerSettings(EndpointSettings):
    """The server of a run, which answers for one of its inputs."""

    serves: str = option(POLICY, "Which input of the run it answers for.", choices=(POLICY, SFT))
    update_weights: bool = option(
        False,
        "Send the input's weights to the server before it is asked: to a vLLM that was started for "
        "it, from a machine with vllm and a GPU.",
    )

    def check(self) -> list[str]:
        errors = super().check()
        if self.update_weights and self.token_env is not None:
            errors.append(
                "update_weights: must be off with a token_env: TRL's client sends no token"
            )
        return errors


@dataclass(frozen=True, kw_only=True)
class ServedModelSettings(EndpointSettings):
    """A model that is registered by its server: nobody here has its weights."""

    tokenizer: str | None = option(
        None,
        "Folder on the worker or hub id of its tokenizer. Only needed for probes, the api "
        "'completions', n over 1, and servers that do not count tokens.",
        section=Section.MODEL,
        main=True,
    )

    def check(self) -> list[str]:
        errors = super().check()
        if self.tokenizer is None:
            if self.api == COMPLETIONS:
                errors.append(
                    "tokenizer: name one: with the api 'completions' its chat template is applied "
                    "here"
                )
            if self.n > 1:
                errors.append(
                    "tokenizer: name one: with n over 1 the tokens of an answer are counted here"
                )
        return errors


def server_errors(
    config: Mapping[str, Any],
    *,
    may_fail: bool = False,
    serves: Sequence[str] = (POLICY, SFT),
) -> list[str]:
    """Everything that is wrong with a `server`, each with its path; none where it is empty.
    `serves`: the inputs that this run asks."""
    if not config:
        return []
    settings, errors = read(ServerSettings, config, where="server.", what="a server")
    if settings and settings.failed_share and not may_fail:
        errors.append(
            "server.failed_share: must be 0 here: what is measured on a part of the prompts does "
            "not compare"
        )
    if settings and settings.serves not in serves:
        errors.append(f"server.serves: this run asks nothing of the input '{settings.serves}'")
    return errors


def read_server(config: Mapping[str, Any]) -> ServerSettings | None:
    """None where it is empty; `SettingsError` with everything that is wrong."""
    if not config:
        return None
    settings, errors = read(ServerSettings, config, where="server.", what="a server")
    if settings is None or errors:
        raise SettingsError(errors)
    return settings
