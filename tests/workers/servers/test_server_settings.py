"""What may stand in `server`, and how what may not is told."""

from pathlib import Path
from typing import Any

import pytest
import requests
import torch
from torch import nn

from tests.workers.recipes.language import tiny_llama, user
from tests.workers.servers.conftest import Asking
from tests.workers.servers.stub import text
from workers.config import settings_for
from workers.config.server import OWN_FIELDS, read_server, server_errors
from workers.contract.events import RecipeError
from workers.rollouts.local import Sampling
from workers.servers import answers

FINE = {"url": "https://gpu.example/v1", "model": "policy-7b"}


def told(**fields: object) -> str:
    return "; ".join(server_errors(FINE | fields))


def test_a_server_needs_an_address_and_a_model_and_nothing_else() -> None:
    assert server_errors({}) == server_errors(FINE) == []
    errors = "; ".join(server_errors({"timeout_s": 3}))
    assert "server.url:" in errors
    assert "server.model:" in errors


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"url": "https://me:pw@gpu.example/v1"}, "server.url: must hold no password"),
        (
            {"url": "http://gpu.example/v1", "token_env": "INFERENCE_TOKEN"},
            "server.url: a token goes over https only",
        ),
        ({"token_env": "AWS_SECRET_ACCESS_KEY"}, "server.token_env: must be INFERENCE_TOKEN or"),
        ({"token_env": "INFERENCE_TOKENS"}, "server.token_env: must be INFERENCE_TOKEN or"),
        ({"concurency": 4}, "is 'concurrency' meant?"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "server.stop: must hold four"),
        ({"extra": {"seed": 1, "n": 3}}, "server.extra: must not hold n, seed"),
        ({"failed_share": 0.1}, "server.failed_share: must be 0 here"),
        ({"n": 0}, "server.n: 0 is under"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(fields: dict, words: str) -> None:
    assert words in told(**fields)


def test_only_generate_may_leave_prompts_out() -> None:
    config = {"server": FINE | {"failed_share": 0.1}}
    assert settings_for("generate", config).server["failed_share"] == 0.1
    for kind in ("evaluate", "probe", "assess"):
        assert settings_for(kind, {"server": FINE}).server == FINE
        with pytest.raises(RecipeError, match="failed_share:"):
            settings_for(kind, config)


def test_a_server_for_an_input_that_nobody_asks_is_refused() -> None:
    config = {"server": FINE | {"serves": "sft"}}
    with pytest.raises(RecipeError, match=r"server\.serves:"):
        settings_for("generate", config)
    settings_for("generate", config | {"opponent": "baseline"})
    with pytest.raises(RecipeError, match=r"server\.serves"):
        settings_for("probe", config)


def test_check_knows_no_server() -> None:
    """Its answers must come from the weights that it looks into."""
    with pytest.raises(RecipeError, match="server:"):
        settings_for("check", {"server": FINE})


def test_no_field_that_a_request_holds_can_be_said_twice() -> None:
    assert {"model", "messages", "prompt", "seed", "stream"} <= OWN_FIELDS


# Weights sent to a vLLM server: by a stand-in of TRL's client, which needs vLLM and GPUs.


BASE = {"model": "tiny", "update_weights": True}


class Client:
    """As far as `trl.generation.vllm_client.VLLMClient` is called."""

    calls: list[str]
    given: dict[str, torch.Tensor]
    breaks: dict[str, Exception]

    def __init__(self, base_url: str, connection_timeout: float) -> None:
        self._call(f"open {base_url}")

    def _call(self, what: str) -> None:
        self.calls.append(what)
        if error := self.breaks.get(what.partition(" ")[0]):
            raise error

    def init_communicator(self, device: torch.device) -> None:
        self._call("join")

    def update_model_params(self, model: nn.Module) -> None:
        self._call("send")
        type(self).given = {name: value.data for name, value in model.named_parameters()}

    def reset_prefix_cache(self) -> None:
        self._call("forget")

    def close_communicator(self) -> None:
        self._call("leave")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    from trl.generation.vllm_client import VLLMClient

    for name in ("init_communicator", "update_model_params", "reset_prefix_cache"):
        assert callable(getattr(VLLMClient, name)), "the stand-in has what TRL has"
    assert callable(VLLMClient.close_communicator)
    made = type("Made", (Client,), {"calls": [], "given": {}, "breaks": {}})
    monkeypatch.setattr("trl.generation.vllm_client.VLLMClient", made)
    monkeypatch.setattr(answers, "_gpu", lambda: torch.device("cpu"))
    return made


@pytest.fixture
def policy(tmp_path: Path) -> tuple[Path, nn.Module]:
    model = tiny_llama(seed=5)
    model.save_pretrained(tmp_path / "policy")
    return tmp_path / "policy", model


def test_the_server_has_the_checkpoints_weights_before_it_is_asked(
    asking: Asking, stub: Any, client: type[Client], policy: tuple[Path, nn.Module]
) -> None:
    folder, model = policy
    asked_after: list[list[str]] = []

    def reply(body: dict[str, Any], k: int) -> Any:
        asked_after.append(list(client.calls))
        return text("yes")

    server = stub(reply)
    served = asking.served(server.url, update_weights=True)
    served.send_weights(folder)
    served.answer([user("cat")], Sampling(4, seed=1))
    root = server.url.rstrip("/").removesuffix("/v1")
    assert asked_after == [[f"open {root}", "join", "send", "forget", "leave"]]
    for name, value in model.named_parameters():
        torch.testing.assert_close(client.given[name], value.data, atol=0, rtol=0)
    assert served.as_summary()["weights_sent"] is True
    assert "input 'policy'" in asking.logged()


@pytest.mark.parametrize(
    ("where", "error", "again"),
    [
        ("open", requests.exceptions.ConnectionError("not up after 120 s"), True),
        ("join", RuntimeError("has no weight-transfer engine"), False),
        ("send", Exception("Request failed: 500, shapes differ"), False),
    ],
)
def test_a_server_that_does_not_take_them_ends_the_run_and_says_why(
    asking: Asking,
    stub: Any,
    client: type[Client],
    policy: tuple[Path, nn.Module],
    where: str,
    error: Exception,
    again: bool,
) -> None:
    client.breaks[where] = error
    server = stub(lambda body, k: text("never"))
    served = asking.served(server.url, update_weights=True)
    with pytest.raises(RecipeError) as raised:
        served.send_weights(policy[0])
    assert (raised.value.kind, raised.value.retryable) == ("inference_server_weights", again)
    assert str(error) in raised.value.message
    assert served.server.place in raised.value.message
    assert (client.calls[-1] == "leave") == (where != "open" and where != "join")
    assert server.bodies == []


def test_a_machine_without_vllm_says_so_before_anything_is_sent(tmp_path: Path) -> None:
    settings = read_server({"url": "http://127.0.0.1:9/v1"} | BASE)
    assert settings is not None
    with pytest.raises(RecipeError) as raised:
        answers.send_weights(settings, tmp_path, place="127.0.0.1:9")
    assert raised.value.kind == "missing_package"
    assert "vllm" in raised.value.message


def test_no_token_goes_where_trls_client_sends_none() -> None:
    fields = {"url": "https://judge.example/v1", "token_env": "INFERENCE_TOKEN_LAB"} | BASE
    with pytest.raises(RecipeError, match="update_weights:"):
        read_server(fields)
