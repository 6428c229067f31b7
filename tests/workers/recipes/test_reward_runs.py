"""Whole reward runs on planted pairs: what is learned, kept, reported and resumed."""

import itertools
import json
import math
import random
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.workers.recipes.conftest import preference_rows
from tests.workers.recipes.encoders import bert, encoder_folder, modernbert
from tests.workers.recipes.language import Outcome, Workshop, assistant, tiny_llama, user
from workers.contract.events import RecipeError
from workers.data.batches import encode_pair
from workers.data.snapshot import as_drawn
from workers.models.loading import load_scorer, load_tokenizer
from workers.rewards.ensemble import is_ensemble, read_layout
from workers.rewards.model import EnsembleReward, ModelReward, score_rows
from workers.samples import BUCKETS
from workers.trainers.reward_data import period

QUICK = {
    "learning_rate": 3e-3,
    "batch_size": 16,
    "max_length": 32,
    "log_every": 1,
    "eval_every": 4,
    "save_every": 100,
    "bootstrap_replicates": 100,
}
DATA = {"sft": "base", "data": "preferences"}


def folder_of(workshop: Workshop, outcome: Outcome) -> Path:
    """The last checkpoint of a run on disk."""
    path = workshop.store.local_path(outcome.all("CheckpointSaved")[-1]["uri"])
    assert path is not None
    return path


def dev_rows(workshop: Workshop) -> list[dict]:
    """The held-out pairs of the planted preferences."""
    with workshop.store.open("inputs/preferences/dev.jsonl") as lines:
        return [json.loads(line) for line in lines]


def noise_rows(number: int, *, seed: int) -> list[dict]:
    """Pairs of random answers, preferred by a coin: there is nothing to learn."""
    rng = random.Random(seed)
    words = ["sun", "rain", "cat", "dog", "red", "blue", "big", "small", "runs", "sleeps"]
    return [
        {
            "prompt": user("the cat"),
            "chosen": assistant(" ".join(rng.choices(words, k=6))),
            "rejected": assistant(" ".join(rng.choices(words, k=6))),
            "group": f"g{i}",
        }
        for i in range(number)
    ]


# --- D1: known scores ---


def test_known_scores_are_recovered_from_soft_labels_on_unseen_prompts(workshop: Workshop) -> None:
    """People prefer by σ(good − bad): the distance of two scores must become that difference."""
    rows: dict[str, list[dict]] = {"train": [], "dev": []}
    answers = [("good " * g + "bad " * b + "sun").strip() for g in range(3) for b in range(3)]
    for n, subject in enumerate(("cat", "dog", "rain", "sun", "big cat", "red dog")):
        for one, other in itertools.combinations(answers, 2):
            delta = sum(
                s * (one.split().count(w) - other.split().count(w))
                for w, s in (("good", 1.0), ("bad", -1.0))
            )
            chosen, rejected = (one, other) if delta >= 0 else (other, one)
            share = 1 / (1 + math.exp(-abs(delta)))
            rows["dev" if n == 5 else "train"].append(
                {
                    "prompt": user(subject),
                    "chosen": assistant(chosen),
                    "rejected": assistant(rejected),
                    "confidence": share,
                    "label_probability": share,
                    "group": subject,
                }
            )
    workshop.put_snapshot("known", **rows)
    config = QUICK | {"labels": "soft", "epochs": 8, "eval_every": 100}
    outcome = workshop.run_here(workshop.spec("known", "reward", config, sft="base", data="known"))
    reward = ModelReward(folder_of(workshop, outcome))
    scores = np.array(reward.score([user("red dog")] * len(answers), answers).values)
    truth = np.array([a.split().count("good") - a.split().count("bad") for a in answers])
    slope = np.polyfit(truth, scores, 1)[0]
    assert np.corrcoef(truth, scores)[0, 1] > 0.97
    assert 0.8 < slope < 1.25


# --- D2: backbones ---


@pytest.mark.parametrize("build", [bert, modernbert])
@pytest.mark.parametrize("rank", [0, 4])
def test_any_encoder_folder_with_its_own_tokenizer_learns(
    workshop: Workshop, tmp_path: Path, build, rank: int
) -> None:
    base = encoder_folder(tmp_path / "encoder", build())
    name = f"{build.__name__}_{rank}"
    config = QUICK | {"base_model": base, "epochs": 6, "lora_rank": rank, "eval_every": 50}
    config |= {"learning_rate": 1e-2} if rank else {}
    outcome = workshop.run_here(workshop.spec(name, "reward", config, data="preferences"))
    assert outcome.summary["splits"]["dev"]["accuracy"]["value"] > 0.9
    if rank:
        preflight = outcome.summary["preflight"]
        assert preflight["trainable_parameters"] < 0.5 * preflight["parameters"]


def test_a_head_alone_learns_and_leaves_the_embeddings_as_they_were(
    workshop: Workshop, tmp_path: Path
) -> None:
    base = encoder_folder(tmp_path / "encoder", bert())
    config = QUICK | {"base_model": base, "max_steps": 4, "head_only": True, "learning_rate": 1e-2}
    outcome = workshop.run_here(workshop.spec("head", "reward", config, data="preferences"))
    summary = outcome.summary
    assert summary["trained_parameters"] < 0.5 * summary["parameters"]
    saved = workshop.store.local_path(outcome.all("CheckpointSaved")[-1]["uri"])
    trained = load_scorer(saved, load_tokenizer(base))
    before = load_scorer(base, load_tokenizer(base)).state_dict()
    moved = {
        name for name, now in trained.state_dict().items() if not torch.equal(now, before[name])
    }
    assert moved
    assert all("pooler" in name or name.startswith("classifier") for name in moved), moved


def test_an_encoder_reads_its_marks_around_the_conversation(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(encoder_folder(tmp_path, bert()))
    row = encode_pair(tokenizer, user("the cat"), "runs", max_length=64)
    assert tokenizer.convert_ids_to_tokens(row.ids) == [
        "[CLS]",
        "user:",
        "the",
        "cat",
        "assistant:",
        "runs",
        "[SEP]",
    ]


@pytest.mark.parametrize("answer", ["runs", "a cat runs  ", "runs\n", ""])
def test_an_answer_that_a_limit_cut_is_read_without_an_end(tmp_path: Path, answer: str) -> None:
    tokenizer = load_tokenizer(encoder_folder(tmp_path, bert()))
    whole = encode_pair(tokenizer, user("the cat"), answer, max_length=64)
    cut = encode_pair(tokenizer, user("the cat"), as_drawn(answer, False), max_length=64)
    assert cut.ids == whole.ids[:-1]
    assert tokenizer.convert_ids_to_tokens(whole.ids[-1]) == "[SEP]"
    assert as_drawn(answer, True) == answer
    assert encode_pair(tokenizer, user("the cat"), as_drawn(answer, True), max_length=64) == whole


# --- LoRA ---


def test_adapters_are_merged_into_a_folder_that_anything_loads_and_resumed_bit_for_bit(
    workshop: Workshop,
) -> None:
    config = QUICK | {"lora_rank": 4, "learning_rate": 1e-2, "max_steps": 8, "epochs": 2}
    whole = workshop.run_here(workshop.spec("lora_whole", "reward", config, **DATA))
    first = workshop.run_here(workshop.spec("lora_cut", "reward", config, **DATA), after_step=6)
    second = workshop.run_here(
        workshop.spec(
            "lora_cut", "reward", config, attempt=2, resume=workshop.resume(first), **DATA
        )
    )
    for name in ("loss", "eval/loss", "report/dev/margin"):
        assert second.curve(name)[8] == whole.curve(name)[8], name
    folder = folder_of(workshop, second)
    assert (folder / "adapter" / "adapter_config.json").exists()
    tokenizer = load_tokenizer(folder)
    model = load_scorer(folder, tokenizer)
    assert not any("lora" in name for name, _ in model.named_parameters())
    prompts = [user("the red sun")] * 2
    rows = [
        encode_pair(tokenizer, p, a, max_length=32)
        for p, a in zip(prompts, ("good", "bad"), strict=True)
    ]
    good, bad = score_rows(model.eval(), tokenizer, rows, batch_size=2)
    assert good > bad
    # the head was saved: with another one the margin the run reported would not come back
    dev_report = second.summary["splits"]["dev"]
    pairs = dev_rows(workshop)
    reward = ModelReward(folder)
    sides = [
        reward.score([p["prompt"] for p in pairs], [p[side][-1]["content"] for p in pairs]).values
        for side in ("chosen", "rejected")
    ]
    margin = np.mean(np.subtract(*sides))
    assert margin == pytest.approx(dev_report["margin_mean"], abs=1e-4)


# --- batches ---


def test_the_curve_is_the_same_however_a_step_is_split(workshop: Workshop) -> None:
    config = QUICK | {"max_steps": 6, "center_coef": 0.01}
    curves = [
        workshop.run_here(workshop.spec(f"split_{name}", "reward", config | more, **DATA))
        for name, more in (
            ("whole", {}),
            ("budget", {"max_tokens_per_batch": 60}),
            ("parts", {"gradient_accumulation": 8}),
            ("checkpointing", {"gradient_checkpointing": True}),
        )
    ]
    for name in ("loss", "grad_norm", "eval/loss"):
        whole = curves[0].curve(name)
        for other in curves[1:]:
            assert other.curve(name) == pytest.approx(whole, rel=2e-3, abs=2e-4), name


# --- stopping ---


def test_memorising_is_stopped_told_and_the_best_weights_are_kept(workshop: Workshop) -> None:
    workshop.put_snapshot("noise", train=noise_rows(40, seed=1), dev=noise_rows(40, seed=2))
    config = QUICK | {"epochs": 40, "batch_size": 8}
    stopped = workshop.run_here(
        workshop.spec("noise_patient", "reward", config | {"patience": 2}, sft="base", data="noise")
    )
    curve = stopped.curve("eval/loss")
    at = stopped.summary["stopped_at"]
    assert "2 evaluations" in at["reason"]
    assert curve[at["weights_of_step"]] == min(curve.values())
    assert at["step"] == at["weights_of_step"] + 2 * config["eval_every"] < 200
    final = stopped.all("CheckpointSaved")[-1]
    assert {"final", "best"} <= set(final["tags"])
    # the weights in the folder are those of the lowest loss, measured again
    reward = ModelReward(folder_of(workshop, stopped))
    rows = noise_rows(40, seed=2)
    chosen, rejected = (
        np.array(
            reward.score([r["prompt"] for r in rows], [r[s][0]["content"] for r in rows]).values
        )
        for s in ("chosen", "rejected")
    )
    assert np.log1p(np.exp(rejected - chosen)).mean() == pytest.approx(
        min(curve.values()), abs=1e-4
    )

    greedy = workshop.run_here(
        workshop.spec("noise_greedy", "reward", config | {"epochs": 20}, sft="base", data="noise")
    )
    (alert,) = [a for a in greedy.all("Alert") if a["rule"] == "overfit"]
    assert alert["value"] > 0.15
    assert greedy.summary["gap"]["overfit"]


def test_clean_preferences_raise_no_alert(workshop: Workshop) -> None:
    outcome = workshop.run_here(workshop.spec("clean", "reward", QUICK | {"epochs": 4}, **DATA))
    assert outcome.all("Alert") == []
    assert outcome.summary["gap"]["overfit"] is False
    assert outcome.summary["stopped_at"]["reason"] == "the schedule ended"


def test_a_learning_rate_that_moves_nothing_is_told(workshop: Workshop) -> None:
    config = QUICK | {"learning_rate": 1e-9, "max_steps": 6, "eval_every": 2}
    outcome = workshop.run_here(workshop.spec("still", "reward", config, **DATA))
    (alert,) = [one for one in outcome.all("Alert") if one["rule"] == "learning_rate"]
    assert "too low" in alert["message"]


# --- preflight ---


def test_the_preflight_counts_what_would_be_cut_dropped_and_doubled(workshop: Workshop) -> None:
    def pair(chosen: str, rejected: str, **more: object) -> dict:
        sides = {"chosen": assistant(chosen), "rejected": assistant(rejected)}
        return {"prompt": user("cat"), **sides, **more}

    def spec(name: str, **more: object):
        given = QUICK | {"max_length": 8, "preflight": True} | more
        return workshop.spec(name, "reward", given, sft="base", data="looked_at")

    # a conversation is 6 tokens and its answer's words: [user] cat [end] [assistant] … [end]
    rows = [
        pair("good", "bad"),
        pair("good " * 9, "bad"),  # 14 tokens: 6 over 8 … of the chosen
        pair("good " * 4, "bad " * 5),  # 1 and 2 over
        pair("sun", "rain", weight=0.0),
        pair("dog", "cat", confidence=0.5),
        pair("sun sun sun sun", "sun sun sun sun sun"),  # alike once cut
    ]
    dev = [pair("bad", "good"), pair("red", "blue")]
    workshop.put_snapshot("looked_at", train=rows, dev=dev)
    outcome = workshop.run_here(spec("preflight"))
    found = outcome.summary["preflight"]
    assert found["rows"] == {"train": 5, "dev": 2}
    assert found["pairs_truncated"] == found["pairs_trl_would_drop"] == 3
    assert found["tokens_cut_most"] == 6
    assert found["tokens_cut_mean"] == pytest.approx((6 + 3 + 3) / 3)
    assert (found["ties"], found["pairs_of_weight_zero"]) == (1, 1)
    assert found["pairs_alike_after_truncation"] == 1
    assert found["held_out_also_in_train"] == {"dev": 1}
    assert found["steps"] == 1
    assert found["seconds"] > 0
    assert found["memory_mb"] > 0
    assert outcome.all("CheckpointSaved") == []
    warnings = [
        line for log in outcome.all("Log") if log["level"] == "warning" for line in log["lines"]
    ]
    assert any("3 of 5 training pairs" in line for line in warnings)

    with pytest.raises(RecipeError, match="3 of 5"):
        workshop.run_here(spec("overlong", on_overlong="fail"))
    dropped = workshop.run_here(spec("dropped", on_overlong="drop")).summary["preflight"]
    assert dropped["rows"]["train"] == 2
    assert dropped["pairs_trl_would_drop"] == dropped["pairs_dropped_as_overlong"] == 3


# --- weights ---


def test_recency_and_hard_pairs_count_as_asked_and_missing_dates_are_named(
    workshop: Workshop,
) -> None:
    def rows(word: str, date: str | None) -> list[dict]:
        return [
            {
                "prompt": user(subject),
                "chosen": assistant(word),
                "rejected": assistant("good" if word == "bad" else "bad"),
                "decided_at": date,
                "group": subject,
            }
            for subject in ("cat", "dog", "sun", "rain")
        ]

    old, new = rows("bad", "2024-01-01T00:00:00Z"), rows("good", "2025-01-01T00:00:00Z")
    workshop.put_snapshot("changed", train=old + new, dev=new)
    workshop.put_snapshot("undated", train=old + rows("good", None), dev=new)
    workshop.put_snapshot("adversarial", train=new)
    config = QUICK | {"epochs": 15, "batch_size": 4, "eval_every": 50}

    def accuracy(name: str, **more: object) -> float:
        inputs = {"sft": "base", "data": str(more.pop("data", "changed"))}
        inputs |= {"hard": "adversarial"} if "hard_weight" in more else {}
        outcome = workshop.run_here(workshop.spec(name, "reward", config | more, **inputs))
        return outcome.summary["splits"]["dev"]["accuracy"]["value"]

    assert (
        accuracy("recent", recency_half_life_days=30.0) == 1.0
    )  # the new taste counts 4,000 times
    assert accuracy("hard", hard_weight=10.0) == 1.0
    with pytest.raises(RecipeError, match=r"4 of 8 .* 'decided_at'"):
        accuracy("undated", recency_half_life_days=30.0, data="undated")
    with pytest.raises(RecipeError, match=r"date_input: 4 of 8"):
        accuracy("undated_input", date_input="month", data="undated")
    with pytest.raises(RecipeError, match="'strength'"):
        accuracy("ungraded", margin_coef=1.0)


DATES = ("Decided", "in", "2024.", "2025.")


def dated_rows(year: int, kind: str, *, seed: int, n: int = 60) -> list[dict]:
    """`turned`: people preferred good in 2025, and bad before. `steady`: always big."""
    rng, rows = random.Random(f"{year} {kind} {seed}"), []
    better, worse = ("good", "bad") if kind == "turned" else ("big", "small")
    if kind == "turned" and year == 2024:
        better, worse = worse, better
    for i in range(n):
        words = rng.sample(["sun", "rain", "cat", "dog", "runs", "sleeps", "red", "blue"], 3)
        place = rng.randrange(4)
        chosen, rejected = ([*words[:place], word, *words[place:]] for word in (better, worse))
        rows.append(
            {
                "prompt": user(rng.choice(["the cat", "the dog", "the sun"])),
                "chosen": assistant(" ".join(chosen)),
                "rejected": assistant(" ".join(rejected)),
                "decided_at": f"{year}-0{rng.randint(1, 9)}-01T00:00:00Z",
                "group": f"{kind} {year} {seed} {i}",
            }
        )
    return rows


def test_a_preference_that_turned_is_learned_by_recency_or_by_the_date_as_an_input(
    workshop: Workshop,
) -> None:
    """Half of the pairs on one matter were decided before people turned, half after; those on
    another are mostly old. Without the date the two halves cancel out."""
    workshop.put_model("dated", tiny_llama(more=DATES), DATES)
    train = [*dated_rows(2024, "turned", seed=1), *dated_rows(2025, "turned", seed=1)]
    workshop.put_snapshot(
        "turned",
        train=[
            *train,
            *dated_rows(2024, "steady", seed=1),
            # Without any, a model may take "big" for the taste of 2024: docs/reward-training.md.
            *dated_rows(2025, "steady", seed=1, n=10),
        ],
        turned=dated_rows(2025, "turned", seed=2),
        steady=dated_rows(2025, "steady", seed=2),
    )
    config = QUICK | {"epochs": 12, "eval_every": 100}

    def learned(name: str, **more: object) -> tuple[Outcome, float, float]:
        spec = workshop.spec(name, "reward", config | more, sft="dated", data="turned")
        outcome = workshop.run_here(spec)
        splits = outcome.summary["splits"]
        return outcome, *(splits[one]["accuracy"]["value"] for one in ("turned", "steady"))

    _, turned, steady = learned("mixed-up")
    assert turned < 0.7
    assert steady > 0.95
    _, turned, steady = learned("weighted", recency_half_life_days=30.0)
    assert turned > 0.95
    outcome, turned, steady = learned("read", date_input="year")
    assert min(turned, steady) > 0.95

    # The saved template asks what is preferred now, and of another year when it is told so.
    folder = folder_of(workshop, outcome)
    tokenizer, model = load_tokenizer(folder), load_scorer(folder, load_tokenizer(folder))

    def score(answer: str, **date: str) -> float:
        one = encode_pair(tokenizer, user("the cat"), answer, max_length=32, **date)
        with torch.no_grad():
            return float(model(torch.tensor([one.ids])).logits)

    for date in ({}, {"decided_in": "2025"}):
        assert score("good dog", **date) > score("bad dog", **date)
    assert score("good dog", decided_in="2024") < score("bad dog", decided_in="2024")
    # Continued from, the template has one line, of the new newest date.
    later = dated_rows(2025, "turned", seed=3)
    workshop.put_snapshot("later", train=later, dev=later[:10])
    workshop.adopt("read", outcome)
    more = config | {"date_input": "month", "epochs": 1}
    after = workshop.run_here(
        workshop.spec("read-again", "reward", more, base="read", data="later")
    )
    template = load_tokenizer(folder_of(workshop, after)).chat_template
    assert template.count("Decided in") == 1
    assert 'decided_in or "2025-09"' in template


@pytest.mark.parametrize(
    ("length", "said"), [("year", "2026"), ("quarter", "2026-Q4"), ("month", "2026-11")]
)
def test_a_date_is_cut_to_the_period_that_was_asked_for(length: str, said: str) -> None:
    assert period(datetime(2026, 11, 30, 23, tzinfo=UTC).timestamp(), length) == said


@pytest.mark.parametrize("sampling", ["stratified", "inverse_frequency"])
def test_every_sampling_learns_and_resumes(workshop: Workshop, sampling: str) -> None:
    config = QUICK | {"sampling": sampling, "max_steps": 8, "epochs": 2}
    whole = workshop.run_here(workshop.spec(f"{sampling}_w", "reward", config, **DATA))
    name = f"{sampling}_c"
    first = workshop.run_here(workshop.spec(name, "reward", config, **DATA), after_step=6)
    second = workshop.run_here(
        workshop.spec(name, "reward", config, attempt=2, resume=workshop.resume(first), **DATA)
    )
    assert second.curve("loss")[8] == whole.curve("loss")[8]


# --- folds and members ---


def test_a_cross_validation_judges_every_pair_by_a_model_that_did_not_see_it(
    workshop: Workshop,
) -> None:
    config = QUICK | {"folds": 2, "epochs": 4, "eval_every": 50}
    outcome = workshop.run_here(workshop.spec("folds", "reward", config, **DATA))
    found = outcome.summary["cross_validation"]
    assert (found["folds"], found["by"]) == (2, "cluster")
    assert found["rows"] == outcome.summary["train_rows"] == found["accuracy"]["n"]
    assert found["accuracy"]["value"] > 0.9
    folder = folder_of(workshop, outcome)
    assert not is_ensemble(folder)
    assert ModelReward(folder).score([user("cat")], ["good"]).values


def test_an_ensemble_is_trained_resumed_and_loaded_without_training_a_member_twice(
    workshop: Workshop,
) -> None:
    config = QUICK | {"members": 3, "max_steps": 6, "patience": 5}
    whole = workshop.run_here(workshop.spec("members_whole", "reward", config, **DATA))
    # stopped inside the third member: step 12 is where the second one ended
    first = workshop.run_here(workshop.spec("members_cut", "reward", config, **DATA), after_step=15)
    stopped = first.all("CheckpointSaved")[-1]
    assert 12 < stopped["step"] < 18
    halfway = folder_of(workshop, first)
    assert read_layout(halfway).members == ("member-0", "member-1")  # two are done: loadable
    second = workshop.run_here(
        workshop.spec(
            "members_cut", "reward", config, attempt=2, resume=workshop.resume(first), **DATA
        )
    )
    assert min(second.curve("loss")) > stopped["step"]
    assert second.curve("loss")[18] == whole.curve("loss")[18]
    assert second.summary["members"] == whole.summary["members"]
    assert second.summary["splits"] == whole.summary["splits"]
    assert [m["seed"] for m in whole.summary["members"].values()] == [0, 1, 2]
    assert len({m["loss"] for m in whole.summary["members"].values()}) == 3

    folder = folder_of(workshop, second)
    assert not (folder / "model.safetensors").exists()
    reward = EnsembleReward(folder)
    assert reward.threshold == second.summary["ensemble"]["threshold"]
    # what the run reported of the ensemble is what its folder scores
    rows = dev_rows(workshop)
    sides = [
        reward.score([r["prompt"] for r in rows], [r[s][0]["content"] for r in rows])
        for s in ("chosen", "rejected")
    ]
    margin = np.mean(np.subtract(sides[0].values, sides[1].values))
    assert margin == pytest.approx(second.summary["splits"]["dev"]["margin_mean"], abs=1e-4)
    # the threshold comes from the same answers; see workers.rewards.ensemble for how it is found
    disagreement = [*sides[0].disagreement, *sides[1].disagreement]
    assert 0 < reward.threshold <= np.quantile(disagreement, 0.95) + 1e-4


def test_a_run_that_was_killed_after_its_last_member_only_reports(workshop: Workshop) -> None:
    config = QUICK | {"members": 2, "max_steps": 3}
    whole = workshop.run_here(workshop.spec("killed", "reward", config, **DATA))
    again = workshop.run_here(
        workshop.spec("killed", "reward", config, attempt=2, resume=workshop.resume(whole), **DATA)
    )
    assert again.curve("loss") == {}
    assert again.summary["splits"] == whole.summary["splits"]


def test_the_surest_pairs_are_kept_for_people_and_the_surest_wrong_ones_are_asked_about(
    workshop: Workshop,
) -> None:
    """Half of the held-out labels are turned round, so that it must be wrong on them."""
    rows = preference_rows(1)
    for row in rows[::2]:
        row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    workshop.put_snapshot("half_turned", train=preference_rows(0), dev=rows)
    config = QUICK | {"learning_rate": 3e-3, "max_steps": 40, "eval_every": 20}
    spec = workshop.spec("surest", "reward", config, sft="base", data="half_turned")
    outcome = workshop.run_here(spec)
    samples = outcome.all("Sample")
    kept = {b: [s["parts"]["margin"] for s in samples if s["bucket"] == b] for b in BUCKETS}
    assert min(kept["high"]) > 0 > max(kept["low"])
    assert kept["random"]
    asked = outcome.all("ReviewRequested")
    assert 1 <= len(asked) <= 4
    assert all("people chose this answer" in one["reason"] for one in asked)
