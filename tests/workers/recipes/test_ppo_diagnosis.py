"""Faults planted in tiny PPO runs: each leaves its own piece of evidence, and a fair run none."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.workers.recipes.conftest import SUBJECTS
from tests.workers.recipes.language import Notebook, Outcome, Workshop, assistant, tiny_llama, user
from tests.workers.recipes.test_ppo_faults import ROLES, SHORT, Scaled
from workers import train
from workers.ppo import evaluation, trainer
from workers.recipes import grpo
from workers.recipes import ppo as recipe
from workers.rewards.source import Scores
from workers.rl import losses
from workers.rollouts import drawing
from workers.rules.diagnosis import Baseline

TINY = SHORT | {"steps": 4, "eval_every": 2, "audit_samples": 1, "baseline_answers": 2}
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models of this size lose more by sharing than they gain."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class NoCommand:
    """Nobody wants the run to end."""

    def __call__(self) -> None:
        return None

    def command(self) -> None:
        return None


class GoodWords:
    """A fair reward that is never twice the same: the word good, less the words of the answer."""

    def __init__(self, sign: float = 1.0, drift: float = 0.0) -> None:
        self.sign, self.drift, self.asked = sign, drift, 0

    def score(self, prompts: Any, responses: list[str]) -> Scores:
        self.asked += 1
        values = [
            self.sign * (text.split().count("good") - text.split().count("bad"))
            + 0.001 * (sum(map(ord, text)) % 97)
            + self.drift * self.asked
            for text in responses
        ]
        return Scores(values, {"planted": values})


def rows(*, swapped: bool = False) -> list[dict]:
    pair = (assistant("a good dog"), assistant("a bad dog"))
    chosen, rejected = reversed(pair) if swapped else pair
    return [{"prompt": user(s), "chosen": chosen, "rejected": rejected} for s in SUBJECTS]


@pytest.fixture(scope="module")
def known(workshop: Workshop) -> Workshop:
    """Pairs that everybody agrees about, and the same with their labels swapped."""
    workshop.put_snapshot("known_pairs", train=rows())
    workshop.put_snapshot("swapped_pairs", train=rows(swapped=True))
    workshop.put_model("stranger", tiny_llama(seed=9))
    return workshop


def ran(
    shop: Workshop, name: str, *, inputs: dict[str, str] | None = None, **config: object
) -> Outcome:
    """A run as the trainer runs it, up to its outcome, whatever that is."""
    spec = shop.spec(name, "ppo", TINY | config, **ROLES | (inputs or {}))
    notebook, folder = Notebook(spec), shop.folder(spec)
    folder.mkdir(parents=True)
    train.train(spec, folder, notebook, NoCommand())
    return Outcome(notebook.envelopes)


def said(outcome: Outcome) -> dict[str, dict]:
    """The evidence by its rule."""
    return {one["rule"]: one for one in outcome.all("Evidence")}


def fair(monkeypatch: Patch, **kwargs: float) -> None:
    monkeypatch.setattr(trainer, "build_reward", lambda *a, **k: GoodWords(**kwargs))


def test_an_answer_with_a_blocked_phrase_goes_to_people_at_its_step(workshop: Workshop) -> None:
    """While the run trains, and not when its files are read after the end."""
    spec = workshop.spec("blocked", "ppo", TINY, **ROLES)
    blocked = ("good", "bad", "dog", "cat", "sun", "rain")
    outcome = workshop.run_here(replace(spec, phrases=blocked))
    asked = [one for one in outcome.all("ReviewRequested") if "Blocked phrase" in one["reason"]]
    assert {one["step"] for one in asked} >= {1, 2}
    assert all(any(word in one["response"].split() for word in blocked) for one in asked)
    flagged = [one["response"] for one in outcome.all("Sample") if one["bucket"] == "flagged"]
    assert {one["response"] for one in asked} <= set(flagged)


# --- contracts that end a run ---


def padding_in_the_loss(monkeypatch: Patch) -> None:
    real = drawing.generate

    def whole(*args: Any, **kwargs: Any) -> Any:
        answers = real(*args, **kwargs)
        answers.response_mask = torch.ones_like(answers.response_mask)
        return answers

    monkeypatch.setattr(drawing, "generate", whole)


def another_temperature(monkeypatch: Patch) -> None:
    real = drawing.generate

    def hotter(model: Any, tokenizer: Any, ids: Any, sampling: Any, **kwargs: Any) -> Any:
        return real(model, tokenizer, ids, replace(sampling, temperature=3.0), **kwargs)

    monkeypatch.setattr(drawing, "generate", hotter)


def score_beside_the_last_token(monkeypatch: Patch) -> None:
    def beside(*args: Any, **kwargs: Any) -> Any:
        return torch.roll(losses.shaped_rewards(*args, **kwargs), 1, dims=1)

    monkeypatch.setattr(recipe, "shaped_rewards", beside)


def value_beyond_the_end(monkeypatch: Patch) -> None:
    def beyond(*args: Any, **kwargs: Any) -> Any:
        gains, returns = losses.gae(*args, **kwargs)
        return gains, returns + 0.5

    monkeypatch.setattr(recipe, "gae", beyond)


def drawn_before(change: Callable[[Any, Any], Any], *, from_step: int = 2) -> Callable:
    """A fault in what the rollouts are, from a step on."""

    def plant(monkeypatch: Patch) -> None:
        real, calls = recipe.collect, []

        def collect(actor_critic: Any, reference: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            rollout = real(actor_critic, reference, *args, **kwargs)
            return change(rollout, reference) if len(calls) >= from_step else rollout

        monkeypatch.setattr(recipe, "collect", collect)

    return plant


def _older(rollout: Any, reference: Any) -> Any:
    return replace(rollout, policy_version=rollout.policy_version - 1)


def _other_logprobs(rollout: Any, reference: Any) -> Any:
    return replace(rollout, logprobs=rollout.logprobs - 0.2)


def _moved_reference(rollout: Any, reference: Any) -> Any:
    with torch.no_grad(), reference.weights() as model:
        next(model.parameters()).add_(1e-3)
    return rollout


@pytest.mark.parametrize(
    ("kind", "link", "plant", "config"),
    [
        ("contract_mask", "policy", padding_in_the_loss, {}),
        ("contract_score_position", "policy", score_beside_the_last_token, {}),
        ("contract_done", "policy", value_beyond_the_end, {}),
        ("contract_stale_rollout", "freshness", drawn_before(_older), {}),
        ("contract_first_ratio", "freshness", drawn_before(_other_logprobs), {}),
        ("contract_reference_changed", "policy", drawn_before(_moved_reference), {}),
        (
            "contract_sampler",
            "freshness",
            another_temperature,
            {"batch_size": 64, "minibatch_size": 32},
        ),
    ],
)
def test_a_broken_contract_ends_the_run_and_is_its_evidence(
    known: Workshop, monkeypatch: Patch, kind: str, link: str, plant: Callable, config: dict
) -> None:
    fair(monkeypatch)
    plant(monkeypatch)
    outcome = ran(known, f"broken_{kind}", **config)
    assert outcome.envelopes[-1]["event"]["kind"] == kind
    evidence = said(outcome)[kind]
    assert (evidence["link"], evidence["evidence_class"]) == (link, "contract")
    assert evidence["step"] <= 3
    assert evidence["expected"]


def test_another_reference_is_evidence_before_the_first_update(
    known: Workshop, monkeypatch: Patch
) -> None:
    fair(monkeypatch)
    outcome = ran(known, "strange_reference", inputs={"reference": "stranger"})
    assert outcome.envelopes[-1]["event"]["kind"] == "contract_kl_at_start"
    assert said(outcome)["contract_kl_at_start"]["experiment"] == "kl_reference"


def test_a_reward_without_numbers_is_evidence_of_numerics(
    known: Workshop, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(trainer, "build_reward", lambda *a, **k: Scaled(float("nan")))
    outcome = ran(known, "no_number", baseline_answers=0)
    assert outcome.envelopes[-1]["event"]["kind"] == "non_finite"
    assert said(outcome)["non_finite"]["link"] == "numerics"


# --- what is seen while a run continues ---


def test_a_fair_run_leaves_no_evidence(known: Workshop, monkeypatch: Patch) -> None:
    fair(monkeypatch)
    pairs = {"canaries": "known_pairs", "reward_data": "known_pairs"}
    outcome = ran(known, "fair", inputs=pairs)
    assert outcome.ending == "Finished", outcome.envelopes[-1]
    assert said(outcome) == {}
    assert outcome.curve("eval/canary_accuracy") == {0: 1.0, 2: 1.0, 4: 1.0}
    assert set(outcome.curve("eval/reproducibility").values()) == {0.0}
    assert len(set(outcome.curve("eval/protocol").values())) == 1
    assert outcome.curve("eval/canary_pairs")[0] == len(SUBJECTS)
    saved = outcome.all("CheckpointSaved")[-1]["metrics"]
    assert "eval/score" in saved
    assert "eval/protocol" not in saved  # of the protocol, not of the policy


def test_a_turned_sign_is_told_from_swapped_labels_by_the_canaries(
    known: Workshop, monkeypatch: Patch
) -> None:
    fair(monkeypatch, sign=-1.0)
    turned = ran(known, "turned", inputs={"canaries": "known_pairs", "reward_data": "known_pairs"})
    swapped = ran(
        known, "swapped", inputs={"canaries": "known_pairs", "reward_data": "swapped_pairs"}
    )
    assert (said(turned)["reward_inverted"]["link"]) == "reward"
    assert (said(swapped)["labels_swapped"]["link"]) == "data"
    for outcome, rule in ((turned, "reward_inverted"), (swapped, "labels_swapped")):
        alerts = [one for one in outcome.all("Alert") if one["rule"] == rule]
        assert len(alerts) == 1
        assert alerts[0]["step"] == 0


def test_a_reward_that_drifts_is_not_reproducible(known: Workshop, monkeypatch: Patch) -> None:
    fair(monkeypatch, drift=0.5)
    outcome = ran(known, "drifting")
    evidence = said(outcome)["reward_not_reproducible"]
    assert (evidence["link"], evidence["evidence_class"]) == ("reward", "contract")
    alert = next(a for a in outcome.all("Alert") if a["rule"] == "reward_not_reproducible")
    assert alert["severity"] == "critical"


def test_an_evaluation_that_asks_otherwise_is_another_protocol(
    known: Workshop, monkeypatch: Patch
) -> None:
    fair(monkeypatch)
    real, seeds = evaluation.derive_seed, []

    def another_seed(seed: int, *parts: str) -> int:
        seeds.extend(parts)
        return real(seed, *parts, "again") if seeds.count("eval") > 2 else real(seed, *parts)

    monkeypatch.setattr(evaluation, "derive_seed", another_seed)
    outcome = ran(known, "protocol", steps=6)
    evidence = said(outcome)["protocol_changed"]
    assert (evidence["link"], evidence["onset"]) == ("evaluation", 4)


# --- the guardrail of the diagnosis, and one voice for one problem ---


def test_a_found_cause_stops_the_run_where_that_was_chosen(
    known: Workshop, monkeypatch: Patch
) -> None:
    fair(monkeypatch, sign=-1.0)
    outcome = ran(
        known, "caused", inputs={"canaries": "known_pairs"}, guards={"cause_found": "stop"}
    )
    assert outcome.envelopes[-1]["event"]["kind"] == "guard_cause_found"
    assert outcome.all("CheckpointSaved")[-1]["tags"] == ["failed"]
    assert [one["rule"] for one in outcome.all("Alert")] == ["cause_found"]
    assert "the wrong way" in outcome.all("Alert")[0]["message"]
    assert set(said(outcome)) == {"reward_inverted"}


def test_a_found_cause_that_only_warns_is_told_once(known: Workshop, monkeypatch: Patch) -> None:
    fair(monkeypatch, sign=-1.0)
    outcome = ran(
        known, "caused_warn", inputs={"canaries": "known_pairs"}, guards={"cause_found": "warn"}
    )
    assert outcome.ending == "Finished"
    told = [one["rule"] for one in outcome.all("Alert")]
    assert told.count("cause_found") == 1
    assert "reward_inverted" not in told


def test_a_trouble_that_guardrail_and_diagnosis_see_is_one_alert_and_one_evidence(
    known: Workshop, monkeypatch: Patch
) -> None:
    fair(monkeypatch)
    real, calls = recipe.update, []

    def once(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise recipe.NonFinite("the loss of the update")
        return real(*args, **kwargs)

    monkeypatch.setattr(recipe, "update", once)
    outcome = ran(known, "one_voice")
    assert [one["rule"] for one in outcome.all("Alert")] == ["non_finite"]
    assert [one["rule"] for one in outcome.all("Evidence")] == ["non_finite"]


def test_a_run_is_compared_with_the_healthy_ones_that_its_job_brings(
    known: Workshop, monkeypatch: Patch
) -> None:
    """They moved by a tenth of a nat where this one moves by several."""
    fair(monkeypatch)
    healthy = [{"objective/kl": [(s, 0.1 + 0.01 * run) for s in range(60)]} for run in range(6)]
    config = {"steps": 12, "learning_rate": 5e-3, "kl_coef": 0.01, "update_kl_target": 1.0}
    spec = known.spec("compared", "ppo", TINY | config, **ROLES)
    outcome = known.run_here(replace(spec, baseline=Baseline.of(healthy).to_json()))
    assert max(outcome.curve("objective/kl").values()) > 1.0
    assert said(outcome)["divergence_unusual"]["link"] == "policy"


def test_a_resumed_run_does_not_say_again_what_it_said(known: Workshop, monkeypatch: Patch) -> None:
    fair(monkeypatch, sign=-1.0)
    roles = ROLES | {"canaries": "known_pairs"}
    first = known.run_here(known.spec("again", "ppo", TINY, **roles), after_step=2)
    assert "reward_inverted" in said(first)
    second = known.run_here(
        known.spec("again", "ppo", TINY, attempt=2, resume=known.resume(first), **roles)
    )
    assert "reward_inverted" not in said(second)
    bins = [
        {tuple(one["edges"]) for one in outcome.all("Histogram") if one["name"] == "reward"}
        for outcome in (first, second)
    ]
    assert bins[0] == bins[1]
    assert len(bins[0]) == 1


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # inside TRL
def test_a_run_of_groups_says_the_same_of_itself(known: Workshop, monkeypatch: Patch) -> None:
    monkeypatch.setattr(grpo, "build_reward", lambda *a, **k: GoodWords(sign=-1.0))
    config = {
        "steps": 2,
        "batch_size": 16,
        "group_size": 4,
        "max_prompt_length": 16,
        "max_new_tokens": 8,
        "eval_every": 2,
        "eval_prompts": 4,
        "sample_every": 1,
        "baseline_answers": 2,
        "reward_check": "off",
        "watch_phrases": ["good"],
        "guards": {"cause_found": "warn"},
    }
    spec = known.spec("groups", "grpo", config, **ROLES, canaries="known_pairs")
    outcome = known.run_here(spec)
    assert said(outcome)["reward_inverted"]["step"] == 0
    assert [a["rule"] for a in outcome.all("Alert")].count("cause_found") == 1
    assert outcome.curve("eval/canary_accuracy") == {0: 0.0, 2: 0.0}
    assert outcome.curve("eval/reproducibility") == {0: 0.0, 2: 0.0}
    spread = [(h["step"], h["name"]) for h in outcome.all("Histogram")]
    assert spread == [(s, n) for s in (0, 1, 2) for n in ("reward", "response_length")]
    assert set(outcome.curve("behaviour/phrase/good/reference")) == {0}
    assert set(outcome.curve("behaviour/phrase/good")) == {1, 2}
    saved = outcome.all("CheckpointSaved")[-1]["metrics"]
    assert "eval/score" in saved
    assert "eval/protocol" not in saved
