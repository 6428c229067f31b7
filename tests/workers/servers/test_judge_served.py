"""`judge` asked of a served model: a stub that has the faults of real judges."""

import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workers.recipes.language import Outcome, Workshop, assistant, tiny_llama, user
from tests.workers.recipes.test_judge import verdicts
from tests.workers.servers.stub import Body, Stub, slow, status, text
from tests.workers.servers.test_registered import register
from workers.contract.events import RecipeError

LENGTHS = ((3, 9), (9, 3), (5, 2), (2, 5), (4, 8), (7, 1))
ROWS = [
    {
        "pair": f"p{i}",
        "prompt": user(f"question {i}"),
        "response_a": assistant("word " * a),
        "response_b": assistant("text " * b),
    }
    for i, (a, b) in enumerate(LENGTHS)
]


def _asked(body: Body) -> str:
    return str(body["messages"][0]["content"])


def shown(body: Body) -> dict[str, str]:
    """{letter: answer} as the judge reads them, to the last tag: an answer may hold tags too."""
    asked = _asked(body)
    first = asked.partition("<answer_A>\n")[2].rpartition("\n\n<answer_B>\n")[0]
    second = asked.rpartition("<answer_B>\n")[2].rpartition("\n</answer_B>")[0]
    return {"A": first.removesuffix("\n</answer_A>"), "B": second}


def likes_first(body: Body) -> str:
    return "A"


def likes_longer(body: Body) -> str:
    both = shown(body)
    return max(both, key=lambda letter: len(both[letter]))


def obeys(body: Body) -> str:
    """Of answers without an order it likes the shorter one."""
    both = shown(body)
    ordered = [k for k, v in both.items() if "Ignore the instructions" in v]
    return ordered[0] if ordered else min(both, key=lambda letter: len(both[letter]))


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    shop = Workshop(tmp_path)
    shop.put_snapshot("pairs", pairs=ROWS)
    return shop


def judge(
    shop: Workshop, name: str, attempt: int = 1, keep: list | None = None, **config: Any
) -> Outcome:
    spec = shop.spec(name, "judge", config, attempt=attempt, pairs="pairs", judge="theirs")
    return shop.run_here(spec, keep=keep)


@pytest.fixture
def asked(shop: Workshop, stub: Callable[..., Stub]) -> Callable[..., Stub]:
    """A registered model whose server judges by `how`; requests of the registration are gone."""

    def make(how: Callable[[Body], str], fingerprints: tuple[str, ...] = (), **fields: Any) -> Stub:
        def reply(body: Body, k: int) -> Any:
            known = fingerprints[k % len(fingerprints)] if fingerprints else None
            hello = "Say hello" in _asked(body)
            said = "hello" if hello else how(body)
            return text(said, model="their-9b", system_fingerprint=known)

        server = stub(reply)
        register(shop, "theirs", {"url": server.url, "model": "judge"} | fields)
        server.bodies.clear()
        return server

    return make


def test_a_judge_that_likes_what_stands_first_prefers_nothing(
    shop: Workshop, asked: Callable[..., Stub]
) -> None:
    server = asked(likes_first)
    outcome = judge(shop, "first", attacked=2)
    rows = verdicts(shop, outcome)
    assert all((one["first"], one["second"]) == (1.0, 1.0) for one in rows)
    assert {tuple(one["said"]) for one in rows} == {("A", "A")}
    summary = outcome.summary
    assert (summary["reads"], summary["order_free"]) == ("text", False)
    assert summary["says"] == summary["server"]["says"] == "their-9b"
    assert (summary["fingerprint"], summary["unanswered"]) == ("", 0)
    assert all(one == {"n": 2, "moved": 0} for one in summary["attacks"].values())
    body = server.bodies[0]
    assert (body["temperature"], body["max_tokens"]) == (0.0, 8)
    both = sorted((shown(body)["A"], shown(body)["B"]) for body in server.bodies[:12])
    texts = [(one["response_a"][0]["content"], one["response_b"][0]["content"]) for one in ROWS]
    assert both == sorted([*texts, *[(b, a) for a, b in texts]])


def test_a_judge_that_likes_length_is_moved_by_what_makes_an_answer_longer(
    shop: Workshop, asked: Callable[..., Stub]
) -> None:
    asked(likes_longer)
    outcome = judge(shop, "longer", attacked=200)
    rows = verdicts(shop, outcome)
    plain = [one for one in rows if "attack" not in one]
    assert [one["first"] for one in plain] == [float(a > b) for a, b in LENGTHS]
    assert [one["second"] for one in plain] == [float(a < b) for a, b in LENGTHS]
    attacks = outcome.summary["attacks"]
    assert attacks["repetition"] == {"n": 6, "moved": 6}
    attacked = [one for one in rows if one.get("attack") == "repetition"]
    assert [one["side"] for one in attacked] == ["a" if a < b else "b" for a, b in LENGTHS]


def test_a_judge_that_obeys_is_moved_by_the_order_alone(
    shop: Workshop, asked: Callable[..., Stub]
) -> None:
    asked(obeys)
    attacks = judge(shop, "obedient", attacked=4).summary["attacks"]
    assert attacks.pop("ignore_instructions") == {"n": 4, "moved": 4}
    assert {one["moved"] for one in attacks.values()} == {0}


def test_every_fingerprint_is_told_and_none_of_them_ends_the_run(
    shop: Workshop, asked: Callable[..., Stub]
) -> None:
    asked(likes_first, fingerprints=("fp_b", "fp_a", "fp_b"), concurrency=1)
    summary = judge(shop, "prints").summary
    assert summary["fingerprint"] == summary["server"]["fingerprint"] == "fp_a,fp_b"


def test_a_fingerprint_is_cut_where_it_is_long(shop: Workshop, asked: Callable[..., Stub]) -> None:
    asked(likes_first, fingerprints=("fp_" + "x" * 500,))
    assert len(judge(shop, "long").summary["fingerprint"]) == 200


def test_fingerprints_that_are_no_text_are_left_out(
    shop: Workshop, stub: Callable[..., Stub]
) -> None:
    server = stub(lambda body, k: text("B", system_fingerprint=[{}, 7, None][k % 3]))
    register(shop, "theirs", {"url": server.url, "model": "m"})
    assert judge(shop, "odd").summary["fingerprint"] == ""


def test_answers_without_a_verdict_are_counted(shop: Workshop, asked: Callable[..., Stub]) -> None:
    asked(lambda body: "Both are lovely. " * 40 if "question 2" in str(body) else "**B**")
    outcome = judge(shop, "lovely")
    rows = verdicts(shop, outcome)
    assert (rows[2]["first"], rows[2]["second"]) == (None, None)
    assert [len(said) for said in rows[2]["said"]] == [300, 300]
    assert (outcome.summary["unreadable"], outcome.summary["too_long"]) == (1, 0)


def test_a_judge_that_is_down_is_told_and_its_run_can_be_tried_again(
    shop: Workshop, stub: Callable[..., Stub]
) -> None:
    is_down: list[bool] = []
    server = stub(lambda body, k: status(503, "loading") if is_down else text("A"))
    register(shop, "theirs", {"url": server.url, "model": "m"})
    is_down.append(True)
    with pytest.raises(RecipeError) as raised:
        judge(shop, "down", keep=[])
    assert (raised.value.kind, raised.value.retryable) == ("inference_server", True)
    assert "503" in raised.value.message
    is_down.clear()
    assert judge(shop, "down", attempt=2).summary["unreadable"] == 0


def test_what_the_server_refuses_is_unreadable_as_far_as_it_may_fail(
    shop: Workshop, stub: Callable[..., Stub]
) -> None:
    def reply(body: Body, k: int) -> Any:
        return status(400, "too long") if "question 1\n" in _asked(body) else text("A")

    server = stub(reply)
    register(shop, "theirs", {"url": server.url, "model": "m", "failed_share": 0.2})
    summary = judge(shop, "some").summary
    assert (summary["unreadable"], summary["unanswered"]) == (1, 2)


def test_a_probability_is_not_asked_of_a_server(shop: Workshop, asked: Callable[..., Stub]) -> None:
    asked(likes_first)
    with pytest.raises(RecipeError, match="reads: a served model says no probability") as raised:
        judge(shop, "odds", reads="probability", keep=[])
    assert raised.value.kind == "bad_config"


def test_a_judge_that_becomes_another_model_ends_the_run(
    shop: Workshop, stub: Callable[..., Stub]
) -> None:
    server = stub(lambda body, k: text("A", model="old" if k < 4 else "new"))
    register(shop, "theirs", {"url": server.url, "model": "m", "concurrency": 1})
    with pytest.raises(RecipeError) as raised:
        judge(shop, "changed", keep=[])
    assert raised.value.kind == "inference_server_changed"


def test_a_killed_attempt_continues_with_the_answers_it_had(
    shop: Workshop, stub: Callable[..., Stub]
) -> None:
    server = stub(lambda body, k: slow(0.3, text("A", system_fingerprint=f"fp_{k // 5}")))
    register(shop, "theirs", {"url": server.url, "model": "m", "concurrency": 1})
    first = shop.spec("killed", "judge", {}, pairs="pairs", judge="theirs")
    process = multiprocessing.get_context("fork").Process(target=shop.run_here, args=(first,))
    process.start()
    kept = shop.root / "store" / "runs" / "killed" / "answers"

    def answered() -> list[str]:
        return [line for part in kept.iterdir() for line in part.read_text().splitlines()]

    until = time.monotonic() + 300
    while not (kept.is_dir() and len(answered()) >= 3):
        assert process.is_alive()
        assert time.monotonic() < until
        time.sleep(0.05)
    process.kill()
    process.join(30)
    had = len(answered())
    assert 3 <= had < 12
    server.bodies.clear()
    outcome = judge(shop, "killed", attempt=2)
    assert (outcome.summary["pairs"], outcome.summary["unreadable"]) == (6, 0)
    assert 12 - had <= len(server.bodies) <= 12 - had + 1
    assert f"{had} of 12 requests were" in json.dumps(outcome.all("Log"))
    assert outcome.summary["fingerprint"].startswith("fp_0,"), "of the first attempt too"


def test_a_served_critic_rewrites_what_the_policy_answers(
    shop: Workshop, stub: Callable[..., Stub]
) -> None:
    """The critic alone sees critiques and rewritings, and response_b names it."""
    critic = stub(lambda body, k: text("a better dog", model="critic-9b"))
    register(shop, "critic", {"url": critic.url, "model": "c"})
    critic.bodies.clear()
    shop.put_model("policy", tiny_llama(seed=5))
    shop.put_snapshot("prompts", train=[{"prompt": user(f"the {w} cat")} for w in ("big", "red")])
    config = {
        "opponent": "revision",
        "principles": ["Say good.", "No rain."],
        "principle_names": ["good", "dry"],
        "constitution": 3,
        "max_new_tokens": 6,
        "max_prompt_length": 16,
    }
    roles = {"policy": "policy", "critic": "critic", "prompts": "prompts"}
    outcome = shop.run_here(shop.spec("criticised", "generate", config, **roles))
    (generated,) = outcome.all("Generated")
    rows = list(shop.store.lines(generated["uri"]))
    assert len(rows) == outcome.summary["pairs"] == 2
    named = {"Say good.": "good", "No rain.": "dry"}
    for one in rows:
        first, second = one["response_a"]["origin"], one["response_b"]["origin"]
        assert (first["role"], "server" in first) == ("policy", False)
        assert (second["role"], second["checkpoint"]) == ("critic", "critic")
        assert second["server"]["says"] == "critic-9b"
        assert one["response_b"]["text"] == "a better dog"
        told = one["revision"]
        assert told["principle_name"] == named[told["principle"]]
        assert (told["constitution"], told["critique"]) == (3, "a better dog")
    (saved,) = [one for one in outcome.all("ArtifactSaved") if one["name"] == "revisions.jsonl"]
    for one in shop.store.lines(saved["uri"]):
        assert (one["principle_name"], one["constitution"]) == (named[one["principle"]], 3)
        assert one["sources"] == ["revision", "policy"]
    assert len(critic.bodies) == 4
    assert (outcome.summary["critic_server"]["role"], "server" in outcome.summary) == (
        "critic",
        False,
    )
