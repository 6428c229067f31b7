"""Models that are registered by their server: what is saved, who may ask them, what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from apps.monitoring.models import Watch
from apps.monitoring.services import judging
from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import Outcome, Workshop, tiny_llama, user, word_tokenizer
from tests.workers.servers.conftest import SECRET
from tests.workers.servers.stub import Body, Stub, completion, raw, slow, status, text
from workers.artifacts import cache_folder
from workers.config.server import ServedModelSettings
from workers.contract.events import RecipeError
from workers.contract.protocol import Difference, StatedProtocol, differences, stated

SHORT = {"max_new_tokens": 6, "max_prompt_length": 16, "max_prompts": 6}
COUNT = {"reward": {"type": "token_count", "token": "a"}, "latency_requests": 2}


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    shop = Workshop(tmp_path)
    shop.put_snapshot("prompts", train=[{"prompt": user(subject)} for subject in SUBJECTS])
    shop.put_model("own", tiny_llama())
    return shop


def register(shop: Workshop, name: str, config: dict[str, Any]) -> Outcome:
    outcome = shop.run_here(shop.spec(name, "served", {"retries": 0} | config))
    shop.adopt(name, outcome)
    return outcome


def words(*said: str, **fields: Any) -> Callable[[Body, int], Any]:
    return lambda body, k: text(said[k % len(said)], model=body["model"], **fields)


def test_two_served_models_are_asked_and_compared_without_any_weights(
    shop: Workshop, stub: Callable[..., Stub]
) -> None:
    better, worse = stub(words("a cat a dog")), stub(words("the cat"))
    told = register(shop, "better", {"url": better.url, "model": "large"})
    register(
        shop, "worse", {"url": worse.url, "model": "small", "token_env": "INFERENCE_TOKEN_LAB"}
    )
    assert better.bodies[0]["messages"] == [{"role": "user", "content": "Say hello."}]
    assert told.summary | {"at": ""} == {
        "step": 0,
        "registered_as": "a served model",
        "served_model": "large",
        "at": "",
        "says": "large",
        "said": "a cat a dog",
    }
    ref = shop.refs["worse"]
    place = shop.store.get_tree(ref.uri, sha256=ref.sha256, cache=cache_folder())
    assert {path.name for path in place.iterdir()} == {"manifest.json", "server.json"}
    assert SECRET not in (place / "server.json").read_text(), "the variable's name, not its value"

    roles = {"policy": "better", "sft": "worse", "prompts": "prompts"}
    report = shop.run_here(shop.spec("compared", "evaluate", SHORT | COUNT, **roles)).summary
    assert (report["server"]["model"], report["other_server"]["model"]) == ("large", "small")
    assert report["reward"]["win_rate"]["value"] == 1.0
    assert (report["policy"]["kl"], report["policy"]["response_length"]) == (None, 3.0)
    assert report["latency"]["without_score"]["requests"] == 2

    config = SHORT | {"opponent": "baseline"}
    outcome = shop.run_here(shop.spec("pairs", "generate", config, **roles))
    (generated,) = outcome.all("Generated")
    rows = list(shop.store.lines(generated["uri"]))
    assert [row["response_a"]["text"] for row in rows] == ["a cat a dog"] * 6
    assert {row["response_b"]["origin"]["server"]["model"] for row in rows} == {"small"}
    assert {row["response_b"]["origin"]["checkpoint"] for row in rows} == {"worse"}
    assert worse.headers[-1]["Authorization"] == f"Bearer {SECRET}"


def test_another_version_of_the_server_is_the_line_in_which_protocols_differ(
    shop: Workshop, stub: Callable[..., Stub]
) -> None:
    theirs, other = stub(words("a cat")), stub(words("a dog"))
    theirs.version = "0.19.0"
    register(shop, "theirs", {"url": theirs.url, "model": "large"})
    register(shop, "other", {"url": other.url, "model": "small"})
    other.version = "0.19.0"

    def measured(name: str, policy: str) -> StatedProtocol:
        roles = {"policy": policy, "sft": "own", "prompts": "prompts"}
        found = stated(shop.run_here(shop.spec(name, "evaluate", SHORT | COUNT, **roles)).summary)
        assert found is not None
        return found

    first = measured("first", "theirs")
    assert first.content["engine"]["policy"]["version"] == "0.19.0"
    assert first.content["chat_template"]["policy"] is None, "the server applies its own"
    assert measured("another-policy", "other").sha256 == first.sha256
    theirs.version = "0.20.0"
    lines = differences(first.content, measured("upgraded", "theirs").content)
    assert lines == [Difference("engine.policy.version", "0.19.0", "0.20.0")]
    theirs.version = None
    unknown = measured("silent", "theirs").content["engine"]["policy"]["version"]
    assert unknown == ""


def test_one_of_them_is_a_model_here(shop: Workshop, stub: Callable[..., Stub]) -> None:
    register(shop, "theirs", {"url": stub(words("a cat")).url, "model": "large"})
    for name, policy, sft in (("ours", "own", "theirs"), ("theirs-first", "theirs", "own")):
        spec = shop.spec(name, "evaluate", SHORT | COUNT, policy=policy, sft=sft, prompts="prompts")
        report = shop.run_here(spec).summary
        assert report["server"]["model"] == "large"
        assert "other_server" not in report
        assert report["policy"]["kl"] is None, "there is no log-probability of a served model"


def test_a_failed_share_is_left_out_of_pairs_and_of_nothing_else(
    shop: Workshop, stub: Callable[..., Stub]
) -> None:
    def reply(body: Body, k: int) -> Any:
        if body["messages"] == refused:
            return raw(json.dumps(completion("no", reason="content_filter")).encode())
        return text(f"a {k} cat")

    refused = user(SUBJECTS[0])
    served = stub(reply)
    register(shop, "theirs", {"url": served.url, "model": "m", "failed_share": 0.4})
    config = SHORT | {"max_prompts": 100}
    roles = {"policy": "theirs", "prompts": "prompts"}
    summary = shop.run_here(shop.spec("pairs", "generate", config, **roles)).summary
    assert (summary["unanswered"], summary["pairs"]) == (1, len(SUBJECTS) - 1)
    with pytest.raises(RecipeError) as raised:
        shop.run_here(
            shop.spec("measured", "evaluate", config | COUNT, sft="own", **roles), keep=[]
        )
    assert raised.value.kind == "inference_server_answer"


def test_a_probe_counts_with_a_tokenizer_and_needs_none(
    shop: Workshop,
    stub: Callable[..., Stub],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODEL_FOLDERS", str(tmp_path))
    word_tokenizer().save_pretrained(tmp_path / "words")
    served = stub(words("a cat a dog", "the cat", system_fingerprint="fp_1"))
    endpoint = {"url": served.url, "model": "m"}
    register(shop, "bare", endpoint)
    register(shop, "whole", endpoint | {"tokenizer": str(tmp_path / "words")})
    config = {"reward": COUNT["reward"], "eval_prompts": 4, "max_new_tokens": 6}
    found = {}
    for name in ("bare", "whole"):
        spec = shop.spec(f"{name}-probe", "probe", config, policy=name, prompts="prompts")
        found[name] = shop.run_here(spec).summary
        assert found[name]["weights_sha256"] == {}
        assert found[name]["figures"]["response_length"]["mean"] == 3.0
        assert found[name]["server"]["fingerprint"] == "fp_1"
        assert found[name]["figures"]["latency_p50"]["mean"] > 0
    assert "repetition" not in found["bare"]["figures"]
    assert "repetition" in found["whole"]["figures"]
    cold = [body for body in served.bodies if body["temperature"] == 0]
    assert len(cold) == 2 + 2 * 4, "one at registration, and one for each prompt of a probe"


def test_a_model_swapped_behind_its_address_shows_in_the_next_probe_and_so_does_a_slow_one(
    shop: Workshop, stub: Callable[..., Stub], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real server on loopback; what is laid beside each other is what its probes left."""
    how: dict[str, Any] = {"says": "one", "seconds": 0.03}

    def reply(body: Body, k: int) -> Any:
        asked = body["messages"][-1]["content"]
        said = text(f"{how['says']} cat {asked}", model="m", system_fingerprint="fp")
        return slow(how["seconds"], said)

    subjects = [{"prompt": user(f"{SUBJECTS[k % len(SUBJECTS)]} {k}")} for k in range(12)]
    shop.put_snapshot("twelve", train=subjects)
    register(shop, "theirs", {"url": stub(reply).url, "model": "m", "concurrency": 12})
    config = {"reward": COUNT["reward"], "eval_prompts": 12}

    def probe(name: str) -> judging.Brought:
        spec = shop.spec(name, "probe", config, policy="theirs", prompts="twelve")
        outcome = shop.run_here(spec)
        report = SimpleNamespace(
            problem="", data=json.loads((shop.folder(spec) / "probe.json").read_text())
        )
        monkeypatch.setattr(judging, "report_read", lambda run, file: report)
        return judging.brought_by(SimpleNamespace(summary=outcome.summary))

    def rules(found: judging.Brought) -> set[str]:
        watch = Watch(kind="policy")
        return {one["rule"] for one in judging.judge(watch, found, None, baseline).findings}

    baseline = judging.baseline_of(probe("first"))
    assert rules(probe("same")) == set()
    how["says"] = "two"
    swapped = rules(probe("swapped"))
    assert judging.ANSWERS in swapped
    assert judging.LATENCY not in swapped
    how |= {"says": "one", "seconds": 0.8}
    assert rules(probe("slow")) == {judging.LATENCY}


def no_usage(body: Body, k: int) -> Any:
    return text("a cat", usage=None)


@pytest.mark.parametrize(
    ("reply", "more", "kind", "said"),
    [
        (lambda body, k: status(401, "who are you"), {}, "inference_server_refused", "401"),
        (lambda body, k: status(404, "no such model"), {}, "inference_server_refused", "404"),
        (lambda body, k: raw(b"<html>"), {}, "inference_server_refused", "no JSON"),
        (lambda body, k: status(400, "no 'm'"), {}, "inference_server_refused", "no 'm'"),
        (lambda body, k: status(503, "later"), {}, "inference_server", "503"),
        (no_usage, {}, "no_tokenizer", "without a tokenizer"),
        (no_usage, {"url": "http://elsewhere.example/v1"}, "host_not_allowed", "elsewhere"),
        (no_usage, {"tokenizer": "/etc"}, "model_not_allowed", "tokenizer"),
    ],
)
def test_nothing_is_saved_of_a_server_that_runs_could_not_use(
    shop: Workshop, stub: Callable[..., Stub], reply: Any, more: dict, kind: str, said: str
) -> None:
    kept: list[dict[str, Any]] = []
    config = {"url": stub(reply).url, "model": "m", "retries": 0} | more
    with pytest.raises(RecipeError) as raised:
        shop.run_here(shop.spec("refused", "served", config), keep=kept)
    assert raised.value.kind == kind
    assert said in raised.value.message
    assert "CheckpointSaved" not in {envelope["type"] for envelope in kept}


def test_a_served_input_has_one_server(shop: Workshop, stub: Callable[..., Stub]) -> None:
    endpoint = {"url": stub(words("a cat")).url, "model": "m"}
    register(shop, "theirs", endpoint)
    config = SHORT | {"server": endpoint}
    with pytest.raises(RecipeError) as raised:
        shop.run_here(shop.spec("twice", "generate", config, policy="theirs", prompts="prompts"))
    assert raised.value.kind == "served_already"


@pytest.mark.parametrize("more", [{"n": 2}, {"api": "completions"}])
def test_settings_that_count_tokens_here_want_a_tokenizer(more: dict[str, Any]) -> None:
    settings = ServedModelSettings(url="https://a.example/v1", model="m", **more)
    assert [error.partition(":")[0] for error in settings.check()] == ["tokenizer"]
