"""Every check confirms its planted fault and refutes it where there is none."""

import itertools
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from measures.kept_rewards import carried_share, mode_of, rank_correlation_within
from tests.workers.checks.conftest import ASKED, GOOD, Case
from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import WORDS, Notebook, Outcome, tiny_llama, user
from workers.artifacts import ArtifactError
from workers.checks import kl_reference, protocol
from workers.checks.asking import Speaker, looked_at, without_cache
from workers.checks.asking import ask as answers_of
from workers.checks.kept import read_kept
from workers.context import RunContext
from workers.contract.events import RecipeError
from workers.contract.protocol import differences, stated
from workers.data.batches import encode_prompt
from workers.models.loading import load_causal, load_tokenizer, weights_sha256
from workers.ppo.checkpoint import KEPT_S, PAUSE_S, Kept
from workers.rollouts.local import Sampling

Ask = Callable[..., dict[str, Any]]
Rows = list[dict[str, Any]]
BAD = {"type": "token_count", "token": "bad"}
NOTHING = {"type": "token_count", "token": "elephant"}


def rows_with(rewards: Sequence[float], tokens: Sequence[int] | None = None) -> Rows:
    lengths = tokens if tokens is not None else [8] * len(rewards)
    return [
        {
            "step": 1 + i * 10 // len(rewards),
            "prompt": user(f"prompt {i}"),
            "response": "a good dog",
            "tokens": int(length),
            "reward": float(reward),
        }
        for i, (reward, length) in enumerate(zip(rewards, lengths, strict=True))
    ]


RNG = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def _same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test draws the same numbers, whatever ran before it."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(4))


HILL = RNG.normal(size=400)
LENGTHS = RNG.integers(5, 60, size=400)
MODEL = {"reward": {"type": "model"}}


@pytest.mark.parametrize(
    ("shape", "rewards", "tokens"),
    [
        ("all alike", np.full(400, 0.5), LENGTHS),
        ("mostly one value", np.where(np.arange(400) % 10 < 7, 0.0, HILL), LENGTHS),
        ("long tail", np.where(np.arange(400) % 133 == 5, 40.0, HILL), LENGTHS),
        ("follows length", HILL + LENGTHS / 6, LENGTHS),
    ],
)
def test_a_reward_that_is_at_fault_is_named_by_its_shape(
    case: Case, ask: Ask, shape: str, rewards: np.ndarray, tokens: np.ndarray
) -> None:
    case.put_file("planted", rows_with(rewards, tokens))
    found = ask("reward_plot", MODEL, rollouts="planted")
    assert (found["outcome"], found["details"]["shape"]) == ("confirms", shape), found["words"]
    assert "n = 400" in found["words"]


def test_a_broad_hill_that_follows_nothing_is_no_fault(case: Case, ask: Ask) -> None:
    case.put_file("hill", rows_with(HILL, LENGTHS))
    found = ask("reward_plot", MODEL, rollouts="hill")
    assert (found["outcome"], found["details"]["shape"]) == ("refutes", "nothing wrong")
    counts = found["details"]["histogram"]["counts"]
    assert sum(counts["all"]) == 400
    assert sum(counts["early"]) == sum(third["n"] for third in found["details"]["thirds"][:1])
    best = max(range(400), key=lambda i: HILL[i])
    assert found["details"]["highest"][0]["reward"] == HILL[best]


def test_length_and_reward_that_only_rise_together_over_the_run_are_no_fault(
    case: Case, ask: Ask
) -> None:
    steps = np.arange(400) * 10 // 400
    case.put_file("rising", rows_with(HILL + 3 * steps, LENGTHS + 20 * steps))
    assert ask("reward_plot", MODEL, rollouts="rising")["outcome"] == "refutes"


def test_a_rule_may_have_two_values_and_still_be_well(case: Case, ask: Ask) -> None:
    case.put_file("rule", rows_with((HILL > 0.3).astype(float), LENGTHS))
    assert ask("reward_plot", rollouts="rule")["outcome"] == "refutes"
    assert ask("reward_plot", MODEL, rollouts="rule")["outcome"] == "confirms"


def test_few_answers_decide_nothing_and_a_reward_that_is_no_number_does(
    case: Case, ask: Ask
) -> None:
    case.put_file("few", rows_with(HILL[:20]))
    assert ask("reward_plot", MODEL, rollouts="few")["outcome"] == "undecided"
    case.put_file("broken", rows_with([*HILL[:99], float("nan")]))
    assert ask("reward_plot", MODEL, rollouts="broken")["outcome"] == "confirms"


def test_the_answers_a_run_kept_score_the_same_again_and_otherwise_by_another_reward(
    ask: Ask,
) -> None:
    same = ask("rescore", rollouts="rollouts")
    assert (same["outcome"], same["figures"]["largest_difference"]) == ("refutes", 0.0)
    assert same["n"] == 128
    other = ask("rescore", {"reward": BAD}, rollouts="rollouts")
    assert other["outcome"] == "confirms"
    assert "another model" in other["words"]


def test_a_reward_that_only_moved_is_told_from_another_one(
    case: Case, ask: Ask, kept: Rows
) -> None:
    case.put_file("moved", [row | {"reward": row["reward"] + 10} for row in kept])
    moved = ask("rescore", rollouts="moved")
    assert moved["outcome"] == "confirms"
    assert "same amount" in moved["words"]


def test_a_cached_score_would_prove_nothing() -> None:
    inner = {"type": "sum", "parts": [{"name": "m", "source": {"type": "model"}}]}
    assert without_cache({}) == {"cache": False}
    assert without_cache(inner)["parts"][0]["source"] == {"type": "model", "cache": False}
    assert without_cache(GOOD) == GOOD


@pytest.mark.parametrize(
    ("shape", "reward", "own", "outcome"),
    [
        ("points the right way", GOOD, "gold", "refutes"),
        ("swapped labels", BAD, "turned", "confirms"),
        ("flipped sign", BAD, "gold", "confirms"),
        ("noise", NOTHING, "gold", "confirms"),
    ],
)
def test_canaries_tell_swapped_labels_a_flipped_sign_and_noise_apart(
    ask: Ask, shape: str, reward: dict[str, Any], own: str, outcome: str
) -> None:
    found = ask("canaries", {"reward": reward}, canaries="gold", reward_data=own)
    assert (found["outcome"], found["details"]["shape"]) == (outcome, shape), found["words"]


def test_a_handful_of_canaries_decides_nothing(ask: Ask) -> None:
    found = ask("canaries", {"max_pairs": 12}, canaries="gold")
    assert found["outcome"] == "undecided"


def test_the_registered_reference_gives_the_very_divergence_that_was_reported(
    ask: Ask, trained: Outcome
) -> None:
    reported = trained.curve("eval/kl")[4]
    found = ask(
        "kl_reference",
        {"reported": reported, "step": 4},
        policy="policy",
        reference="base",
        prompts="prompts",
        rollouts="rollouts",
    )
    assert found["outcome"] == "refutes", found["words"]
    assert found["figures"]["kl_per_answer"]["value"] == pytest.approx(reported, abs=1e-5)
    assert found["figures"]["reference_apart"] < 1e-4
    assert found["figures"]["kept_answers"] > 100


def test_another_model_in_the_place_of_the_reference_is_found_by_the_kept_answers(
    ask: Ask,
) -> None:
    found = ask(
        "kl_reference",
        policy="policy",
        reference="stranger",
        prompts="prompts",
        rollouts="rollouts",
    )
    assert found["outcome"] == "confirms"
    assert "another model" in found["words"]


def test_a_run_that_compared_the_policy_with_itself_is_told(
    case: Case, ask: Ask, kept: Rows
) -> None:
    alias = Speaker(
        load_causal(case.root / "models" / "stranger"),
        load_tokenizer(case.root / "models" / "stranger"),
    )
    case.put_file("aliased", own_answers(alias, temperature=1.0))
    found = ask(
        "kl_reference", policy="stranger", reference="base", prompts="prompts", rollouts="aliased"
    )
    assert found["outcome"] == "confirms"
    assert "with itself" in found["words"]


def test_without_kept_answers_the_reported_figure_decides(ask: Ask, trained: Outcome) -> None:
    inputs = {"policy": "stranger", "reference": "base", "prompts": "prompts"}
    truth = ask("kl_reference", **inputs)
    assert truth["outcome"] == "undecided"
    value = truth["figures"]["kl_per_answer"]["value"]
    assert value > 1.0
    assert ask("kl_reference", {"reported": 0.0}, **inputs)["outcome"] == "confirms"
    assert ask("kl_reference", {"reported": 1.02 * value}, **inputs)["outcome"] == "refutes"


def own_answers(by: Speaker, *, temperature: float) -> Rows:
    """Answers drawn at `temperature`, written down as a run at temperature 1 would."""
    prompts = [user(subject) for subject in SUBJECTS for _ in range(4)]
    ids = [encode_prompt(by.tokenizer, prompt) for prompt in prompts]
    rows: Rows = []
    drawn = answers_of(by, ids, Sampling(8, temperature=temperature, seed=3), iter([slice(0, 64)]))
    for part in drawn:
        seen = looked_at(by.model, part.responses, part.rows, 1.0)
        totals = (seen.own * seen.responses.response_mask).sum(1).tolist()
        for i, total in enumerate(totals):
            rows.append(
                {
                    "step": 7,
                    "prompt": prompts[i],
                    "response": part.responses.texts[i],
                    "tokens": int(part.responses.lengths[i]),
                    "ended": bool(part.responses.ended[i]),
                    "temperature": 1.0,
                    "reward": 0.0,
                    "logprob": total,
                    "kl": 0.0,
                }
            )
    return rows


@pytest.mark.parametrize(
    ("temperature", "outcome", "word"),
    [(1.0, "refutes", "that learns"), (2.5, "confirms", "wider")],
)
def test_answers_of_another_temperature_betray_the_sampler(
    case: Case, ask: Ask, temperature: float, outcome: str, word: str
) -> None:
    by = Speaker(
        load_causal(case.root / "models" / "stranger"),
        load_tokenizer(case.root / "models" / "stranger"),
    )
    case.put_file(f"drawn-{temperature}", own_answers(by, temperature=temperature))
    found = ask("sampler", policy="stranger", prompts="prompts", rollouts=f"drawn-{temperature}")
    assert (found["outcome"], word in found["words"]) == (outcome, True), found["words"]
    assert found["figures"]["kept_answers"] == 64


def test_kept_answers_of_an_older_policy_are_not_held_against_the_sampler(
    ask: Ask,
) -> None:
    found = ask("sampler", policy="stranger", prompts="prompts", rollouts="rollouts")
    assert found["outcome"] == "refutes"
    assert "has moved by" in found["words"]


def test_a_critic_whose_states_say_nothing_cannot_be_fitted_and_a_live_one_can(
    case: Case, ask: Ask
) -> None:
    live = ask("critic_fit", {"reported": 0.02}, policy="policy", prompts="prompts")
    assert live["outcome"] == "refutes", live["words"]
    assert "explained 2 %" in live["words"]
    dead = tiny_llama()
    with torch.no_grad():
        dead.model.norm.weight.zero_()
    case.put_speaker("dead", dead)
    found = ask("critic_fit", policy="dead", prompts="prompts")
    assert found["outcome"] == "confirms", found["words"]
    assert found["figures"]["explained_after"] < 0.1


def test_a_change_that_was_measured_alike_comes_out_again(ask: Ask, trained: Outcome) -> None:
    curve = trained.curve("eval/score")
    inputs = {"policy": "policy", "sft": "base", "prompts": "prompts"}
    found = ask("protocol", {"reported": curve[4] - curve[0]}, **inputs)
    assert found["outcome"] == "refutes", found["words"]
    assert found["figures"]["now"] == pytest.approx(curve[4])
    assert ask("protocol", {"reported": curve[4] - curve[0] + 5}, **inputs)["outcome"] == "confirms"
    assert ask("protocol", **inputs)["outcome"] == "undecided"


def test_evaluations_asked_in_another_way_at_the_end_are_found(case: Case, ask: Ask) -> None:
    """The run's last evaluation let answers grow to 24 words, so that more of them were good."""
    inputs = {"policy": "policy", "sft": "base", "prompts": "prompts"}
    short = ask("protocol", **inputs)["figures"]["first"]
    long = ask("protocol", {"max_new_tokens": 24}, **inputs)["figures"]["now"]
    found = ask("protocol", {"reported": long - short}, **inputs)
    assert found["outcome"] == "confirms", found["words"]


def test_a_file_that_is_not_what_it_was_named_by_is_damaged(case: Case, ask: Ask) -> None:
    case.put_file("damaged", rows_with(HILL))
    (case.root / "store" / case.refs["damaged"].uri).write_text("")
    with pytest.raises(RecipeError) as raised:
        ask("reward_plot", rollouts="damaged")
    assert (raised.value.kind, "rollouts" in raised.value.message) == ("damaged_input", True)
    with pytest.raises(RecipeError, match="role 'rollouts'"):
        ask("reward_plot")
    with pytest.raises(RecipeError, match="must be a file"):
        ask("reward_plot", rollouts="base")


def test_a_cancelled_check_says_nothing_and_a_slow_one_tells_what_it_has(
    case: Case, trained: Outcome, ask: Ask
) -> None:
    spec = case.spec("cancelled", "check", ASKED | {"check": "rescore"}, rollouts="rollouts")
    outcome = case.run_here(spec, command="cancel", after_step=0)
    assert outcome.summary == {"step": 0}
    ticks = itertools.count()
    slow = {"max_seconds": 1e-9, "reward_batch_size": 32}
    found = ask("rescore", slow, rollouts="rollouts")
    assert (found["n"], "cut short" in found["words"], next(ticks)) == (32, True, 0)


def test_ranks_within_steps_are_those_of_plain_ranks_where_there_is_one_step() -> None:
    reward, length = [3.0, 1.0, 2.0, 5.0, 4.0] * 4, [30, 10, 20, 50, 40] * 4
    assert rank_correlation_within(reward, length, ["one"] * 20).value == pytest.approx(1.0)
    two = ["one"] * 10 + ["two"] * 10
    assert rank_correlation_within(reward, length[:10] + [-x for x in length[10:]], two).value == (
        pytest.approx(0.0)
    )


def test_the_mode_and_the_tail_are_as_counted_by_hand() -> None:
    mode = mode_of([1.0, 1.0 + 1e-9, 2.0, 3.0])
    assert (mode.value, mode.share, mode.distinct) == (pytest.approx(1.0), 0.5, 3)
    assert mode_of([4.0] * 5).share == 1.0
    assert carried_share([0.0] * 99 + [10.0]) == 1.0
    assert carried_share([2.0] * 9) is None
    normal = np.random.default_rng(0).normal(size=50_000)
    assert carried_share(normal) == pytest.approx(0.0845, abs=0.005)


def test_a_difference_within_the_noise_of_both_measurements_is_none() -> None:
    """Two means of 25 answers with deviation 1 differ by more than 3·√2/5 = 0.85 in 0.3 %."""
    from measures.intervals import mean_interval

    values = np.random.default_rng(2).normal(size=25)
    fresh = mean_interval(values + 4)
    error = 0.2
    assert kl_reference.judge(None, fresh, error, float(fresh.value) + 0.8)[0] == "refutes"
    assert kl_reference.judge(None, fresh, error, float(fresh.value) + 0.9)[0] == "confirms"
    assert protocol.judge(fresh, error, float(fresh.value) - 0.9)[0] == "confirms"


# What a live run lets others read of its answers, and how they are read.


def test_the_answers_of_a_run_are_published_with_every_checkpoint(
    case: Case, trained: Outcome
) -> None:
    saved = [one for one in trained.all("ArtifactSaved") if one["name"] == "rollouts.jsonl"]
    assert [len(list(case.store.lines(one["uri"]))) for one in saved] == [64, 128]
    for one in saved:  # each still is what it was named by
        case.store.get_file(one["uri"], sha256=one["sha256"], cache=case.root)


def test_older_ones_make_room_after_a_while_and_nothing_is_published_twice(case: Case) -> None:
    spec = case.spec("publishing", "ppo", {})
    notebook = Notebook(spec)
    folder = case.root / "publishing"
    folder.mkdir()
    time = [0.0]
    context = RunContext(spec, case.store, folder, notebook, clock=lambda: time[0])
    kept = Kept(10)

    def saved() -> list[dict]:
        return [envelope["event"] for envelope in notebook.envelopes]

    kept.publish(context)
    assert saved() == [], "there is nothing yet"
    for step, moment in enumerate((0.0, 1.0, PAUSE_S, PAUSE_S + KEPT_S + 1.0)):
        time[0] = moment
        kept.add([{"step": step}])
        for _ in range(2):
            kept.publish(context, pause_s=PAUSE_S)
    assert len(saved()) == 3, "the second came too soon"
    there = [case.store.exists(one["uri"]) for one in saved()]
    assert there == [False, False, True]
    with pytest.raises(ArtifactError, match="missing"):
        case.store.get_file(saved()[0]["uri"], sha256=saved()[0]["sha256"], cache=folder)
    kept.add([{"step": 9}])
    kept.publish(context)
    assert len(saved()) == 4, "the end does not wait"


def test_kept_answers_are_named_by_step_and_place_and_bad_lines_by_their_number(
    case: Case, kept: list[dict]
) -> None:
    spec = case.spec("reading", "check", {}, rollouts="rollouts")
    context = RunContext(spec, case.store, case.root)
    rows = read_kept(context, last=40)
    assert [row.id for row in rows[:2]] == ["3/24", "3/25"]
    assert (rows[-1].id, rows[-1].reward) == ("4/31", kept[-1]["reward"])
    case.put_file("bad", [*kept[:3], {"step": 1}])
    context = RunContext(case.spec("bad", "check", {}, rollouts="bad"), case.store, case.root)
    with pytest.raises(RecipeError, match="line 4:"):
        read_kept(context, last=40)
    case.put_file("torn", kept[:2])
    ref = case.refs["torn"]
    path = case.root / "store" / ref.uri
    path.write_text(path.read_text() + json.dumps(kept[2])[:20])
    with pytest.raises(RecipeError) as raised:
        read_kept(
            RunContext(case.spec("torn", "check", {}, rollouts="torn"), case.store, case.root),
            last=40,
        )
    assert raised.value.kind == "damaged_input"


# A probe says the same of the same model, and something else of another one.


Report = dict[str, Any]
_count = iter(range(1000))


def probed(case: Case, config: Mapping[str, Any] | None = None, **inputs: str) -> Report:
    spec = case.spec(f"probe-{next(_count)}", "probe", ASKED | dict(config or {}), **inputs)
    outcome = case.run_here(spec)
    written = json.loads(
        (case.root / "store" / outcome.all("ArtifactSaved")[-1]["uri"]).read_text()
    )
    assert written["version"] == 1
    return outcome.summary | {"prompts": written["prompts"]}


def scorer(seed: int) -> LlamaForSequenceClassification:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS) + 4,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        pad_token_id=1,
        num_labels=1,
        initializer_range=0.3,
    )
    return LlamaForSequenceClassification(config).eval()


@pytest.fixture(scope="module")
def watched(case: Case) -> Case:
    for seed in (0, 1):
        case.put_speaker(f"scorer-{seed}", scorer(seed))
    return case


POLICY = {"policy": "base", "prompts": "prompts"}


def test_probes_of_two_policies_are_measured_by_one_protocol(watched: Case) -> None:
    one = probed(watched, **POLICY)
    other = probed(watched, **POLICY | {"policy": "stranger"})
    cooler = probed(watched, {"temperature": 0.9}, **POLICY)
    first = stated(one)
    assert first is not None
    assert stated(other) == first
    lines = differences(first.content, stated(cooler).content)
    assert [line.path for line in lines] == ["sampling.temperature"]


def test_the_same_model_answers_the_same_to_the_last_digit(watched: Case) -> None:
    first, again = probed(watched, **POLICY), probed(watched, **POLICY)
    assert first == again
    model = load_causal(watched.root / "models" / "base")
    assert first["weights_sha256"] == {"policy": weights_sha256(model)}
    assert set(first["figures"]) == {
        "score",
        "response_length",
        "characters",
        "ended",
        "repetition",
        "distinct",
        "refusals",
        "politeness",
        "compression",
    }
    scores = [row["score"] for row in first["prompts"]]
    assert first["figures"]["score"]["n"] == len(scores) == 8 * 2
    assert first["figures"]["score"]["mean"] == pytest.approx(sum(scores) / len(scores))


def test_another_model_in_its_place_shows_in_hash_answers_and_figures(watched: Case) -> None:
    mine, other = probed(watched, **POLICY), probed(watched, **POLICY | {"policy": "stranger"})
    assert mine["weights_sha256"] != other["weights_sha256"]
    assert [row["id"] for row in mine["prompts"]] == [row["id"] for row in other["prompts"]]
    assert mine["figures"]["response_length"] != other["figures"]["response_length"]


def test_several_draws_are_one_row_a_prompt(watched: Case) -> None:
    found = probed(watched, {"draws": 3}, **POLICY)
    assert found["figures"]["score"]["n"] == 16
    thirds = [3 * row["refusals"] % 1 for row in found["prompts"]]
    assert thirds == [0.0] * 16


def test_a_score_with_an_origin_is_calibrated(watched: Case) -> None:
    found = probed(watched, {"baseline_mean": 0.0, "score_temperature": 2.0}, **POLICY)
    for row in found["prompts"]:
        assert row["calibrated"] == pytest.approx(1 / (1 + 2.718281828 ** (-row["score"] / 2)))


def test_a_reward_model_alone_is_probed_on_answers_that_stay_the_same(watched: Case) -> None:
    model = {"reward": {"type": "model"}}
    mine = probed(watched, model, reward="scorer-0", prompts="gold")
    assert mine == probed(watched, model, reward="scorer-0", prompts="gold")
    other = probed(watched, model, reward="scorer-1", prompts="gold")
    assert mine["weights_sha256"] != other["weights_sha256"]
    assert mine["figures"]["score"]["n"] == 32
    right = [row["accuracy"] for row in mine["prompts"] if "accuracy" in row]
    assert mine["figures"]["accuracy"]["mean"] == sum(right) / 16
    with pytest.raises(RecipeError, match="no answers"):
        probed(watched, model, reward="scorer-0", prompts="prompts")


@pytest.mark.parametrize(("draws", "sent"), [(1, 16), (2, 20)])
def test_what_a_rule_sends_to_people_is_sent_by_a_probe_too(
    watched: Case, draws: int, sent: int
) -> None:
    """All sixteen answers of one draw; of 32 the first twenty."""
    rule = {"name": "length", "characters": {"least": 10_000}, "on_violation": "review"}
    config = ASKED | {"draws": draws, "reward": {"type": "rules", "rules": [rule]}}
    outcome = watched.run_here(watched.spec(f"sent-{draws}", "probe", config, **POLICY))
    asked, kept = outcome.all("ReviewRequested"), outcome.all("Sample")
    assert len(asked) == len(kept) == sent
    assert {one["bucket"] for one in kept} == {"flagged"}
    assert [one["response"] for one in asked] == [one["response"] for one in kept]
    assert all(one["reason"].startswith("rule length") for one in asked)


def test_a_damaged_model_is_named(watched: Case) -> None:
    copied = watched.root / "store" / "inputs" / "damaged"
    shutil.copytree(watched.root / "store" / watched.refs["base"].uri, copied)
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8] + b"12345678")
    ref = watched.refs["base"]
    watched.refs["damaged"] = type(ref)("damaged", ref.kind, "d", "inputs/damaged", ref.sha256)
    with pytest.raises(RecipeError) as raised:
        probed(watched, policy="damaged", prompts="prompts")
    assert raised.value.kind == "damaged_input"
    assert "model.safetensors" in raised.value.message


def test_a_probe_that_had_no_time_for_all_prompts_is_no_probe(watched: Case) -> None:
    slow = {"draws": 4, "max_seconds": 1e-9}
    with pytest.raises(RecipeError, match="raise max_seconds"):
        probed(watched, slow, **POLICY)
