"""Answers and the log-probabilities they are learned from: the pitfalls of other trainers."""

import json
from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import (
    END,
    Outcome,
    Workshop,
    tiny_gpt2,
    tiny_llama,
    user,
    word_tokenizer,
)
from workers.config import settings_for
from workers.data.batches import encode_prompt, pad_left, pad_right
from workers.data.snapshot import Prompt
from workers.evaluation.figures import factuality
from workers.models.forward import answer_logits, score_responses
from workers.models.loading import disable_dropout, stop_ids
from workers.rewards.source import Scores
from workers.rollouts.drawing import Answer
from workers.rollouts.local import Responses, Sampling, derive_seed, generate

TOKENIZER = word_tokenizer()
STOP = (TOKENIZER.eos_token_id,)
PROMPTS = [
    encode_prompt(TOKENIZER, user(text))
    for text in ("sun", "the big red dog runs", "a cat sleeps", "the small blue cat sleeps rain")
]
MODELS = pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
Make = Callable[[], PreTrainedModel]


def draw(model: PreTrainedModel, **options) -> Responses:
    sampling = Sampling(options.pop("max_new_tokens", 10), **options)
    return generate(model, TOKENIZER, PROMPTS, sampling, stop=STOP, keep_logprobs=True)


def look(model: PreTrainedModel, responses: Responses, temperature: float = 1.0) -> torch.Tensor:
    with torch.no_grad():
        return score_responses(
            model,
            responses.prompt_ids,
            responses.prompt_mask,
            responses.response_ids,
            responses.response_mask,
            temperature=temperature,
        ).logprobs


def real(values: torch.Tensor, responses: Responses) -> torch.Tensor:
    return values[responses.response_mask.bool()]


@MODELS
def test_logprobs_of_the_rollout_are_those_of_a_fresh_forward_with_the_same_weights(
    make: Make,
) -> None:
    model = make()
    responses = draw(model)
    fresh = look(model, responses)
    torch.testing.assert_close(
        real(fresh, responses), real(responses.logprobs, responses), atol=1e-4, rtol=0.0
    )
    torch.testing.assert_close(fresh, look(model, responses), atol=0.0, rtol=0.0)


@MODELS
def test_padding_changes_no_logprob_on_whichever_side_it_lies(make: Make) -> None:
    model = make()
    responses = draw(model)
    batched = look(model, responses)
    for i, prompt in enumerate(PROMPTS):
        length = int(responses.lengths[i])
        answer = responses.response_ids[i, :length]
        ids = torch.tensor([[*prompt, *answer.tolist()]])
        with torch.no_grad():  # alone: no padding at all
            alone = model(input_ids=ids).logits.log_softmax(-1)
            right_ids, right_mask = pad_right([ids[0].tolist(), [0] * (ids.shape[1] + 5)], 0)
            right = model(input_ids=right_ids[:1], attention_mask=right_mask[:1])
        for log_softmax in (alone, right.logits.log_softmax(-1)):
            own = log_softmax[0, len(prompt) - 1 : len(prompt) - 1 + length]
            expected = own.gather(1, answer.unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(batched[i, :length], expected, atol=1e-4, rtol=0.0)


def test_the_temperature_is_in_the_sampling_and_in_the_logprobs() -> None:
    model = tiny_llama()
    responses = draw(model, temperature=2.0)
    # The sampler's own log-probabilities are untempered; tempering them by hand needs all logits,
    # so compare the mean: what is drawn hot is likelier under the hot policy than under the cold.
    hot, cold = look(model, responses, 2.0), look(model, responses, 0.5)
    assert real(hot, responses).mean() > real(cold, responses).mean()
    torch.testing.assert_close(
        real(look(model, responses, 1.0), responses),
        real(responses.logprobs, responses),
        atol=1e-4,
        rtol=0.0,
    )


def test_nothing_of_the_models_own_generation_defaults_leaks_into_the_samples() -> None:
    plain, spoiled = tiny_llama(), tiny_llama()
    spoiled.generation_config.update(
        do_sample=True,
        top_k=1,
        top_p=0.1,
        temperature=0.01,
        repetition_penalty=5.0,
        no_repeat_ngram_size=1,
        min_new_tokens=9,
    )
    first, second = draw(plain, seed=5), draw(spoiled, seed=5)
    assert torch.equal(first.response_ids, second.response_ids)
    assert spoiled.generation_config.top_k == 1  # and they are put back


def test_equal_seeds_draw_equal_answers_and_other_seeds_others() -> None:
    model = tiny_llama()
    assert draw(model, seed=1).texts == draw(model, seed=1).texts
    assert draw(model, seed=1).texts != draw(model, seed=2).texts
    assert derive_seed(0, "rollout", 1) != derive_seed(0, "rollout", 2)


def test_the_end_token_belongs_to_the_answer_even_where_it_is_the_pad_token_too() -> None:
    model = tiny_llama()
    tokenizer = word_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    responses = generate(model, tokenizer, PROMPTS * 8, Sampling(12, temperature=3.0), stop=STOP)
    assert responses.ended.any()
    for ids, mask, ended in zip(
        responses.response_ids, responses.response_mask, responses.ended, strict=True
    ):
        length = int(mask.sum())
        assert bool(ids[length - 1] == tokenizer.eos_token_id) == bool(ended)
        assert (ids[: length - 1] != tokenizer.eos_token_id).all()
        assert mask[:length].all()


def test_a_stop_token_of_ones_own_ends_the_answer_and_is_kept_in_it() -> None:
    dog = TOKENIZER.convert_tokens_to_ids("dog")
    responses = generate(tiny_llama(), TOKENIZER, PROMPTS * 8, Sampling(12, seed=3), stop=(dog,))
    endings = [
        int(ids[mask.bool()][-1])
        for ids, mask in zip(responses.response_ids, responses.response_mask, strict=True)
    ]
    assert dog in endings
    assert [ending == dog for ending in endings] == responses.ended.tolist()


def test_every_end_token_that_the_model_names_stops_it() -> None:
    model = tiny_llama()
    model.generation_config.eos_token_id = [1, 7]
    assert stop_ids(model, TOKENIZER) == (1, 7)
    assert TOKENIZER.convert_tokens_to_ids(END) == 1


def test_temperature_0_takes_the_likeliest_token_each_time() -> None:
    model = tiny_llama()
    responses = draw(model, temperature=0.0, max_new_tokens=3)
    with torch.no_grad():
        first = model(input_ids=torch.tensor([PROMPTS[1]])).logits[0, -1].argmax()
    assert responses.response_ids[1, 0] == first


def test_two_forwards_in_train_mode_agree_once_dropout_is_off() -> None:
    model = tiny_gpt2().train()
    ids, mask = pad_left(PROMPTS, 0)

    def forward() -> torch.Tensor:
        return model(input_ids=ids, attention_mask=mask).logits

    assert not torch.equal(forward(), forward())
    disable_dropout(model)
    assert torch.equal(forward(), forward())


@MODELS
def test_projecting_answers_only_gives_the_logits_of_the_whole(make: Make) -> None:
    model = make()
    ids, mask = pad_right(PROMPTS, 0)
    keep = torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) < 0.4
    with torch.no_grad():
        whole = model(input_ids=ids, attention_mask=mask).logits[keep]
        thin = answer_logits(model, {"input_ids": ids, "attention_mask": mask}, keep)
    torch.testing.assert_close(thin, whole)


# `generate` and `evaluate`: what a policy says, beside what its SFT model says.


ANSWERING = {"max_new_tokens": 6, "max_prompt_length": 16, "max_prompts": 12}


def candidates(shop: Workshop, outcome: Outcome) -> list[dict]:
    (generated,) = outcome.all("Generated")
    assert generated["purpose"] == "candidates"
    rows = list(shop.store.lines(generated["uri"]))
    shop.store.read_bytes(generated["uri"], sha256=generated["sha256"])
    assert len(rows) == generated["count"] == outcome.summary["pairs"]
    return rows


def test_two_draws_of_the_policy_make_a_pair_that_can_be_traced_to_its_checkpoint(
    models: Workshop,
) -> None:
    spec = models.spec("pairs", "generate", ANSWERING, policy="policy", prompts="prompts")
    rows = candidates(models, models.run_here(spec))
    assert 6 <= len(rows) <= 12
    for row in rows:
        assert row["prompt"] in [user(subject) for subject in SUBJECTS]
        assert row["response_a"]["text"] != row["response_b"]["text"]
        for side in ("response_a", "response_b"):
            assert row[side]["origin"]["sha256"] == models.refs["policy"].sha256
    assert rows[0]["sampling"]["max_new_tokens"] == 6


def test_the_opponent_can_be_the_sft_model(models: Workshop) -> None:
    spec = models.spec(
        "against",
        "generate",
        ANSWERING | {"opponent": "baseline"},
        policy="policy",
        sft="base",
        prompts="prompts",
    )
    for row in candidates(models, models.run_here(spec)):
        assert row["response_a"]["origin"]["role"] == "policy"
        assert row["response_b"]["origin"]["sha256"] == models.refs["base"].sha256


def test_identical_answers_are_no_pair_and_are_counted(models: Workshop) -> None:
    spec = models.spec(
        "greedy",
        "generate",
        ANSWERING | {"temperature": 0.0},
        policy="policy",
        prompts="prompts",
    )
    outcome = models.run_here(spec)
    assert candidates(models, outcome) == []
    assert outcome.summary["identical"] == 12


def evaluate(models: Workshop, name: str, policy: str, **config) -> Outcome:
    settings = ANSWERING | {"draws": 2, "latency_requests": 0} | config
    roles = {"sft": "base", "prompts": "prompts", "reward": "scorer", "judge": "judge"}
    return models.run_here(models.spec(name, "evaluate", settings, policy=policy, **roles))


def test_a_policy_is_compared_with_its_sft_model_by_reward_and_by_judge(models: Workshop) -> None:
    outcome = evaluate(models, "evaluated", "policy", latency_requests=4)
    report = outcome.summary
    assert report["prompts"] == 24
    assert report["policy"]["kl"] > 0.1
    for source in ("reward", "judge"):
        means = {name: report[source][name]["value"] for name in ("policy", "sft", "difference")}
        assert means["difference"] == pytest.approx(means["policy"] - means["sft"])
        assert report[source]["win_rate"]["n_clusters"] == 12
        assert 0.0 <= report[source]["win_rate"]["value"] <= 1.0
    timed, saved, outputs = outcome.all("ArtifactSaved")
    stored = json.loads(models.store.read_bytes(saved["uri"], sha256=saved["sha256"]))
    assert stored == {k: v for k, v in report.items() if k != "step"}
    assert timed["uri"].endswith("latency.json")
    for path in ("without_score", "with_score"):
        found = report["latency"][path]
        assert found["requests"] == 4
        assert 0 < found["p50_ms"] <= found["p99_ms"]
    shown = outcome.all("Sample")
    assert shown
    assert all(sample["baseline"] is not None for sample in shown)
    # Every answer of both models is kept, of which audit sheets are drawn.
    text = models.store.read_bytes(outputs["uri"], sha256=outputs["sha256"]).decode()
    rows = [json.loads(line) for line in text.splitlines()]
    (announced,) = outcome.all("Generated")
    assert (len(rows), announced["count"], announced["purpose"]) == (24, 24, "audit")
    mean = sum(row["score"] for row in rows) / 24
    assert mean == pytest.approx(report["reward"]["policy"]["value"])
    others = sum(row["other_score"] for row in rows) / 24
    assert others == pytest.approx(report["reward"]["sft"]["value"])
    first = shown[0]
    assert (rows[0]["prompt"], rows[0]["response"]) == (first["prompt"], first["response"])
    assert rows[0]["other_response"] == first["baseline"]


def test_a_policy_that_is_its_sft_model_wins_half_and_lies_at_distance_zero(
    models: Workshop,
) -> None:
    report = evaluate(models, "itself", "base").summary
    assert report["judge"]["win_rate"]["value"] == 0.5
    assert report["judge"]["difference"]["value"] == 0.0
    assert report["policy"]["kl"] == pytest.approx(0.0, abs=1e-5)


def test_the_divergence_is_left_out_where_only_part_of_the_distribution_is_sampled(
    models: Workshop,
) -> None:
    assert evaluate(models, "nucleus", "policy", top_p=0.9).summary["policy"]["kl"] is None


def test_right_answers_are_counted_by_match_and_by_the_judge_where_they_are_known() -> None:
    known = ("Paris", "42", "", "the Rhine")
    rows = [Prompt(user(str(i)), answer=answer) for i, answer in enumerate(known)]
    said = ["paris. ", "It is 42", "whatever", "The  Rhine"]
    before = ["Lyon", "41", "whatever", "the Rhine"]
    answers, others = ([Answer(text, 3, True) for text in of] for of in (said, before))

    class Longer:
        def score(self, prompts, responses):
            return Scores([float(len(text)) for text in responses])

    def found(how: str, judge=None):
        settings = settings_for("evaluate", {"factuality": how})
        judged = judge and (judge, [float(len(one.text)) for one in answers])
        return factuality(rows, answers, others, judged, settings, 0)

    shares = {how: found(how)["policy"]["value"] for how in ("exact", "normalised", "contains")}
    assert shares == pytest.approx({"exact": 0, "normalised": 2 / 3, "contains": 1})
    by_judge = found("normalised", Longer())
    assert by_judge["policy"]["n"] == 3, "one prompt has no known answer"
    assert by_judge["sft"]["value"] == pytest.approx(1 / 3)
    assert by_judge["difference"]["value"] == pytest.approx(1 / 3)
    assert by_judge["judge_against_right"]["value"] == 1.0
    assert found("off") == {}


def test_a_policy_trained_on_a_rule_is_evaluated_by_that_rule(models: Workshop) -> None:
    check = json.dumps({"category": "says something", "test": "answers"})
    asked = [{"prompt": user(subject), "answer": "a", "check": check} for subject in SUBJECTS]
    models.put_snapshot("known_answers", train=asked[:1], dev=asked[1:])
    settings = ANSWERING | {"reward": {"type": "token_count", "token": "a", "cap": 3}}
    settings |= {"latency_requests": 0, "factuality": "contains"}
    roles = {"policy": "policy", "sft": "base", "prompts": "known_answers"}
    outcome = models.run_here(models.spec("by-rule", "evaluate", settings, **roles))
    report = outcome.summary
    told = outcome.curve("eval/factuality")
    assert list(told.values()) == [report["factuality"]["policy"]["value"]]
    assert 0.0 <= report["reward"]["policy"]["value"] <= 3.0
    assert "judge" not in report
    checks = report["regression"]
    assert checks["checks"] == report["prompts"]
    assert set(checks["categories"]) == {"says something"}
    told = outcome.curve("eval/checks_passed")
    assert list(told.values()) == [checks["all"]["after"]["value"]]
    saved = {one["name"]: one["uri"] for one in outcome.all("ArtifactSaved")}
    lines = models.store.read_bytes(saved["outputs.jsonl"]).decode().splitlines()
    kept = [json.loads(line) for line in lines]
    assert {json.dumps(row["prompt"]) for row in kept} <= {json.dumps(r["prompt"]) for r in asked}
    assert len(kept) == report["prompts"]  # one answer to each
    scores = [row["score"] for row in kept]
    assert sum(scores) / len(scores) == pytest.approx(report["reward"]["policy"]["value"])
    assert all(isinstance(row["other_response"], str) for row in kept)
