"""What may stand in `server`, and how what may not is told."""

import pytest

from workers.config import settings_for
from workers.config.server import OWN_FIELDS, server_errors
from workers.contract.events import RecipeError

FINE = {"url": "https://gpu.example/v1", "model": "policy-7b"}


def told(**fields: object) -> str:
    return "; ".join(server_errors(FINE | fields))


def test_a_server_needs_an_address_and_a_model_and_nothing_else() -> None:
    assert server_errors({}) == server_errors(FINE) == []
    errors = "; ".join(server_errors({"timeout_s": 3}))
    assert "server.url: must begin with https://" in errors
    assert "server.model: must be the name" in errors


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
        with pytest.raises(RecipeError, match="failed_share: must be 0 here"):
            settings_for(kind, config)


def test_a_server_for_an_input_that_nobody_asks_is_refused() -> None:
    config = {"server": FINE | {"serves": "sft"}}
    with pytest.raises(RecipeError, match=r"server\.serves: this run asks nothing of the input"):
        settings_for("generate", config)
    settings_for("generate", config | {"opponent": "baseline"})
    with pytest.raises(RecipeError, match=r"server\.serves"):
        settings_for("probe", config)


def test_check_knows_no_server() -> None:
    """Its answers must come from the weights that it looks into."""
    with pytest.raises(RecipeError, match="server: is no field"):
        settings_for("check", {"server": FINE})


def test_no_field_that_a_request_holds_can_be_said_twice() -> None:
    assert {"model", "messages", "prompt", "seed", "stream"} <= OWN_FIELDS
