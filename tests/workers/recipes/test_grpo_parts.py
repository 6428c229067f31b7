"""The parts of GRPO on tiny models: sampling, masks, log-probabilities, advantages, the loss."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel, TrainerControl, TrainerState

from tests.workers.recipes.language import tiny_gpt2, tiny_llama, user, word_tokenizer
from workers.artifacts import Store
from workers.behaviour import Watch
from workers.config import settings_for
from workers.context import RunContext
from workers.contract.events import RecipeError
from workers.contract.jobs import JobSpec
from workers.data.batches import encode_prompt
from workers.data.snapshot import CutAnswer
from workers.grpo.metrics import GroupReward, group_advantages
from workers.grpo.reporting import GroupReporter
from workers.grpo.trainer import GroupTrainer, LeaveOneOutTrainer, Trainer
from workers.models.forward import Reference
from workers.models.loading import load_causal, stop_ids, weights_sha256
from workers.models.lora import attach_policy_lora
from workers.recipes.grpo import Models, trl_config
from workers.rewards.source import Scores

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

TEXTS = ("sun", "the big red dog", "a cat sleeps", "rain")
DOG = word_tokenizer().convert_tokens_to_ids("dog")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models of this size lose more by sharing than they gain."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Source:
    """Scores by a function of the answers' texts."""

    def __init__(self, of: Callable[[Sequence[str]], list[float]], **fields: object) -> None:
        self.of = of
        self.fields = fields

    def score(self, prompts: Sequence, responses: Sequence[str]) -> Scores:
        return Scores(self.of(responses), **self.fields)


def words(responses: Sequence[str]) -> list[float]:
    return [float(len(text.split())) for text in responses]


def make(
    folder: Path,
    model: PreTrainedModel | PeftModel | None = None,
    *,
    source: Source | None = None,
    reference: Reference | None = None,
    tokenizer: object = None,
    **config: object,
) -> GroupTrainer:
    """A trainer of four prompts with four answers each, not yet begun."""
    defaults = {"batch_size": 16, "group_size": 4, "max_new_tokens": 6, "max_prompt_length": 16}
    settings = settings_for("grpo", defaults | config)
    model = tiny_llama() if model is None else model
    tokenizer = tokenizer or word_tokenizer()
    policy = model.get_base_model() if isinstance(model, PeftModel) else model
    reference = reference or Reference.frozen(tiny_llama(), policy=policy)
    models = Models(model, policy, reference, tokenizer)
    spec = JobSpec("parts", 1, "grpo", "tests", 0, str(folder), {}, ())
    context = RunContext(spec, Store(str(folder)), folder)
    reward = GroupReward(
        source or Source(words), tokenizer, settings, stop=stop_ids(policy, tokenizer)
    )
    rows = Dataset.from_list([{"prompt": user(text)} for text in TEXTS])
    of_loss = LeaveOneOutTrainer if settings.loss_type == "rloo" else Trainer
    trainer = of_loss(
        model=model,
        reward_funcs=reward,
        args=trl_config(context, settings, models),
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=tokenizer,
        settings=settings,
        reference=reference,
        evaluation=dict,
        baseline=None,
        watch=Watch(),
    )
    trainer.current_gradient_accumulation_steps = 1  # as the library sets it
    trainer.model.train()
    return trainer


def draw(trainer: GroupTrainer) -> dict[str, Tensor]:
    """A batch of answers, scored, in the order they were drawn."""
    return trainer.draw([user(text) for text in TEXTS for _ in range(4)])


def step(trainer: GroupTrainer, batch: dict[str, Tensor]) -> None:
    """The gradient of a step on answers that are there, as far as the optimizer's."""
    trainer.batch = batch
    trainer.state.global_step += 1  # past the step that draws them
    trainer.settings = replace(trainer.settings, update_epochs=1000)
    trainer.training_step(trainer.model, [])
    trainer.before_update()


def answers(trainer: GroupTrainer) -> list[list[int]]:
    ids = [encode_prompt(trainer.processing_class, user(text)) for text in TEXTS]
    return trainer.answer(ids * 4).ids


# --- drawing ---


def test_the_models_own_generation_defaults_do_not_leak_into_the_samples(tmp_path: Path) -> None:
    plain = answers(make(tmp_path))
    biased = tiny_llama()
    biased.generation_config.repetition_penalty = 5.0
    biased.generation_config.top_k = 1
    biased.generation_config.no_repeat_ngram_size = 2
    biased.generation_config.suppress_tokens = [DOG]
    assert answers(make(tmp_path, biased)) == plain
    assert any(DOG in answer for answer in plain)


def test_every_step_draws_by_a_seed_of_its_own(tmp_path: Path) -> None:
    trainer = make(tmp_path)
    first = answers(trainer)
    torch.manual_seed(99)
    assert answers(trainer) == first
    trainer.state.global_step = 1
    assert answers(trainer) != first


def test_every_token_that_the_model_names_as_an_end_ends_an_answer(tmp_path: Path) -> None:
    model = tiny_llama()
    model.generation_config.eos_token_id = [1, DOG]
    trainer = make(tmp_path, model, max_new_tokens=12)
    drawn = answers(trainer)
    ended = [answer for answer in drawn if DOG in answer]
    assert ended
    assert all(answer.index(DOG) == len(answer) - 1 for answer in ended)
    draw(trainer)
    judged = trainer.reward.last
    assert [ids[-1] in (1, DOG) for ids in judged.token_ids] == judged.ended


def test_the_end_token_counts_where_the_model_pads_with_it(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    trainer = make(tmp_path, tokenizer=tokenizer, max_new_tokens=12)
    output = draw(trainer)
    ids, mask = output["completion_ids"], output["completion_mask"]
    assert mask.sum(1).tolist() == trainer.reward.last.lengths
    assert ids[mask.bool()].eq(1).sum() == sum(trainer.reward.last.ended) > 0
    assert ids[~mask.bool()].eq(1).all()


def test_an_order_of_groups_is_known_by_position_and_visits_every_prompt(tmp_path: Path) -> None:
    trainer = make(tmp_path, batch_size=8, update_epochs=2)
    batches = [trainer.rows_of_step(step) for step in range(8)]
    assert batches[0::2] == batches[1::2]  # each batch twice
    for batch in batches:
        assert [batch.count(index) for index in batch] == [4] * 8
    for epoch in (batches[0:4], batches[4:8]):
        assert {index for batch in epoch for index in batch} == set(range(4))
    assert make(tmp_path, batch_size=8, update_epochs=2).rows_of_step(5) == batches[5]
    assert batches[0:4] != batches[4:8]


# --- the forward pass ---


def test_padding_moves_no_log_probability_of_a_model_with_absolute_positions(
    tmp_path: Path,
) -> None:
    model = tiny_gpt2()
    reference = Reference.frozen(tiny_gpt2(), policy=model)
    trainer = make(tmp_path, model, reference=reference)
    output = draw(trainer)
    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
    mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
    together = trainer.look(model, output).log_probs
    assert not output["prompt_mask"].bool().all()
    for row in range(len(ids)):
        real = mask[row].bool()
        logits = model(input_ids=ids[row][real].unsqueeze(0)).logits.log_softmax(-1)[0]
        length = int(output["completion_mask"][row].sum())
        alone = logits[:-1].gather(1, ids[row][real][1:].unsqueeze(1)).squeeze(1)[-length:]
        torch.testing.assert_close(together[row][:length], alone, atol=1e-5, rtol=1e-4)


def test_log_probabilities_are_those_of_the_tempered_distribution(tmp_path: Path) -> None:
    trainer = make(tmp_path, temperature=0.5)
    output = draw(trainer)
    row = int(output["completion_mask"].sum(1).argmax())
    prompt = output["prompt_ids"][row][output["prompt_mask"][row].bool()]
    answer = output["completion_ids"][row][output["completion_mask"][row].bool()]
    logits = trainer.policy(input_ids=torch.cat([prompt, answer]).unsqueeze(0)).logits[0]
    wanted = (logits[len(prompt) - 1 : -1] / 0.5).log_softmax(-1).gather(1, answer.unsqueeze(1))
    trainer.compute_loss(trainer.model, output)
    torch.testing.assert_close(
        trainer.seen.log_probs.detach()[row][: len(answer)], wanted.squeeze(1)
    )


def test_the_reference_is_the_model_that_was_given_and_not_the_path_in_the_configuration(
    tmp_path: Path,
) -> None:
    other = tiny_llama(seed=7)
    other.save_pretrained(tmp_path / "elsewhere")
    policy = load_causal(tmp_path / "elsewhere")
    policy.load_state_dict(tiny_llama().state_dict())  # changed in memory: TRL would load `other`
    trainer = make(tmp_path, policy, reference=Reference.frozen(tiny_llama(), policy=policy))
    output = draw(trainer)
    trainer.compute_loss(trainer.model, output)
    figures = trainer.sums.metrics()
    assert figures["objective/kl_per_token"] == pytest.approx(0.0, abs=1e-9)


def test_adapters_switched_off_are_the_reference(tmp_path: Path) -> None:
    adapted = attach_policy_lora(tiny_llama(), rank=4, alpha=8.0)
    trainer = make(tmp_path, adapted, reference=Reference.below_adapters(adapted), lora_rank=4)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    trainer.state.global_step = 1  # past the check that policy and reference begin as one
    output = draw(trainer)
    trainer.compute_loss(trainer.model, output)
    assert trainer.sums.metrics()["objective/kl_per_token"] > 0.001
    ids = [
        output[f"{part}_{kind}"] for part in ("prompt", "completion") for kind in ("ids", "mask")
    ]
    plain = Reference.frozen(tiny_llama(), policy=adapted).logprobs(*ids, temperature=1.0)
    torch.testing.assert_close(output["ref_per_token_logps"], plain)


def test_a_first_step_whose_policy_is_not_its_reference_breaks_the_contract(
    tmp_path: Path,
) -> None:
    policy = tiny_llama()
    reference = Reference.frozen(tiny_llama(seed=3), policy=policy)
    trainer = make(tmp_path, policy, reference=reference)
    with pytest.raises(RecipeError) as raised:
        draw(trainer)
    assert raised.value.kind == "contract_kl_at_start"


# --- advantages ---

FREE = {"missing_eos_penalty": 0.0}


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_are_distances_to_the_mean_of_the_group(tmp_path: Path, scale: str) -> None:
    trainer = make(tmp_path, scale_rewards=scale)
    advantages = draw(trainer)["advantages"].view(4, 4)
    rewards = torch.tensor(trainer.reward.last.scores.values).view(4, 4)
    cut = ~torch.tensor(trainer.reward.last.ended).view(4, 4)
    assert cut.any(), "an answer pays for having no end, in deviations"
    assert not cut.all()
    wanted = rewards - rewards.mean(1, keepdim=True)
    if scale == "group":
        wanted = wanted / (rewards.std(1, keepdim=True) + 1e-4)
    elif scale == "batch":
        wanted = wanted / (rewards.std() + 1e-4)
    unit = rewards.std() + 1e-4 if scale == "none" else 1.0
    wanted = wanted - unit * (cut.float() - cut.float().mean(1, keepdim=True))
    torch.testing.assert_close(advantages, wanted)


def test_rewards_alike_but_for_rounding_give_no_advantage_and_no_step(tmp_path: Path) -> None:
    """Adam makes steps of full size of the smallest gradient, were it rounding."""
    trainer = make(
        tmp_path, source=Source(lambda texts: [0.1] * len(texts)), max_new_tokens=5, **FREE
    )
    trainer.create_optimizer_and_scheduler(num_training_steps=10)
    output = draw(trainer)
    assert output["advantages"].eq(0).all()
    before = weights_sha256(trainer.policy)
    step(trainer, output)
    trainer.optimizer.step()
    assert weights_sha256(trainer.policy) == before
    assert not trainer.optimizer.state


def test_an_answer_nobody_trusts_moves_neither_the_policy_nor_its_groups_mean(
    tmp_path: Path,
) -> None:
    withheld = [i % 4 == 0 for i in range(16)]
    scores = [100.0 if i % 4 == 0 else float(i % 4) for i in range(16)]
    source = Source(lambda texts: scores, withheld=withheld, blocked=withheld)
    trainer = make(tmp_path, source=source, scale_rewards="none", **FREE)
    advantages = draw(trainer)["advantages"].view(4, 4)
    assert advantages.tolist() == [[0.0, -1.0, 0.0, 1.0]] * 4
    assert trainer.drawn[0]["reward/blocked_share"] == 0.25


def test_an_answer_without_an_end_pays_for_it_or_teaches_nothing(tmp_path: Path) -> None:
    same = Source(lambda texts: [1.0] * len(texts))
    trainer = make(tmp_path, source=same, missing_eos_penalty=0.5)
    advantages = draw(trainer)["advantages"].view(4, 4)
    judged = trainer.reward.last
    ended = torch.tensor(judged.ended).view(4, 4)
    assert set(judged.ended) == {True, False}
    assert judged.scores.values == [1.0] * 16, "the penalty is no part of the reward"
    mixed = ended.any(1) & ~ended.all(1)
    apart = [a[e].mean() - a[~e].mean() for a, e in zip(advantages, ended, strict=True)]
    assert [round(float(gap), 6) for gap, both in zip(apart, mixed, strict=True) if both] == [
        0.5
    ] * int(mixed.sum())
    assert [isinstance(text, CutAnswer) for text in judged.texts] == [not e for e in judged.ended]
    masked = make(tmp_path, mask_truncated=True)
    mask = draw(masked)["completion_mask"]
    assert mask.any(1).tolist() == masked.reward.last.ended


def test_a_step_whose_answers_are_all_masked_is_none(tmp_path: Path) -> None:
    trainer = make(tmp_path, mask_truncated=True)
    output = draw(trainer)
    assert output["advantages"].any()
    output["completion_mask"] = torch.zeros_like(output["completion_mask"])
    trainer.create_optimizer()
    step(trainer, output)
    assert all(parameter.grad is None for parameter in trainer.policy.parameters())


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ([None] * 16, "reward_failed", "gave 0 numbers for 16 answers"),
        ([1.0], "reward_failed", "gave 1 numbers for 16 answers"),
        ([float("nan")] * 16, "non_finite", "the reward is not finite"),
    ],
)
def test_a_reward_that_is_no_number_is_refused(
    tmp_path: Path, given: list, kind: str, told: str
) -> None:
    with pytest.raises(RecipeError, match=told) as raised:
        draw(make(tmp_path, source=Source(lambda texts: given)))
    assert raised.value.kind == kind


# --- the loss ---


def by_hand(loss_type: str, surrogate: Tensor, mask: Tensor, longest: int) -> Tensor:
    """surrogate: per token; the mean over tokens, over answers, or over the longest answers."""
    kept = surrogate * mask
    if loss_type == "grpo":
        return (kept.sum(1) / mask.sum(1)).mean()
    return kept.sum() / (mask.sum() if loss_type in ("dapo", "bnpo") else len(mask) * longest)


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo", "bnpo"])
def test_the_loss_is_the_one_that_is_named_and_not_the_librarys_default(
    tmp_path: Path, loss_type: str
) -> None:
    assert settings_for("grpo", {}).loss_type == "dapo"
    trainer = make(
        tmp_path,
        loss_type=loss_type,
        kl_coef=0.5,
        clip=0.2,
        reference_differs=True,
        update_epochs=2,
    )
    output = draw(trainer)
    trainer.state.global_step = 1  # the second step on the batch
    mask = output["completion_mask"]
    noise = 0.4 * torch.randn(mask.shape, generator=torch.Generator().manual_seed(0))
    output["ref_per_token_logps"] = output["ref_per_token_logps"] - noise.flip(0)
    output["old_per_token_logps"] = output["ref_per_token_logps"] + noise
    loss = trainer.compute_loss(trainer.model, output)
    new, old, ref = (
        trainer.seen.log_probs.detach(),
        output["old_per_token_logps"],
        output["ref_per_token_logps"],
    )
    ratio, push = (new - old).exp(), output["advantages"].unsqueeze(1)
    kl = ((ref - new).exp() - (ref - new) - 1) * ratio
    surrogate = -torch.min(ratio * push, ratio.clamp(0.8, 1.2) * push) + 0.5 * kl
    torch.testing.assert_close(loss.detach(), by_hand(loss_type, surrogate, mask, 6))
    figures = trainer.sums.metrics()
    theirs = trainer.trl_metrics()
    assert figures["policy/clipfrac_avg"] == pytest.approx(theirs["clip_ratio/region_mean"])
    assert figures["policy/clipfrac_avg"] > 0
    assert figures["policy/entropy_avg"] == pytest.approx(theirs["entropy"], rel=1e-5)
    assert figures["policy/ratio_max"] == pytest.approx(float(ratio[mask.bool()].max()))


def second_step(trainer: GroupTrainer) -> tuple[dict[str, Tensor], Tensor]:
    """A batch that was drawn by another policy, and log π / log π_old [B, R] of the present one."""
    output = draw(trainer)
    trainer.state.global_step = 1
    mask = output["completion_mask"]
    noise = 0.4 * torch.randn(mask.shape, generator=torch.Generator().manual_seed(0))
    output["old_per_token_logps"] = output["old_per_token_logps"] + noise
    return output, -noise * mask


def test_ratios_of_sequences_are_those_of_gspo(tmp_path: Path) -> None:
    """exp of the mean log-ratio, one for all tokens of an answer (Zheng et al. 2025, eq. 7)."""
    trainer = make(
        tmp_path,
        loss_type="grpo",
        importance_sampling_level="sequence",
        clip=0.1,
        kl_coef=0.0,
        force_zero_kl=True,
        update_epochs=2,
    )
    output, log_ratio = second_step(trainer)
    mask, push = output["completion_mask"], output["advantages"]
    loss = trainer.compute_loss(trainer.model, output)
    ratio = torch.stack([row[m].mean() for row, m in zip(log_ratio, mask.bool(), strict=True)])
    ratio = ratio.exp()
    wanted = -torch.min(ratio * push, ratio.clamp(0.9, 1.1) * push).mean()
    torch.testing.assert_close(loss.detach(), wanted)
    figures = trainer.sums.metrics()
    assert figures["policy/ratio_max"] == pytest.approx(float(ratio.max()), rel=1e-5)
    clipped = ((ratio < 0.9) & (push < 0)) | ((ratio > 1.1) & (push > 0))
    share = float((clipped.unsqueeze(1) * mask).sum() / mask.sum())
    assert share > 0
    assert figures["policy/clipfrac_avg"] == pytest.approx(share)


def test_rloo_is_reinforce_on_whole_answers_clipped(tmp_path: Path) -> None:
    trainer = make(tmp_path, loss_type="rloo", scale_rewards="none", clip=0.3, update_epochs=2)
    output, log_ratio = second_step(trainer)
    push = output["advantages"]
    loss = trainer.compute_loss(trainer.model, output)
    ratio = log_ratio.sum(1).exp()
    wanted = -torch.min(ratio * push, ratio.clamp(0.7, 1.3) * push).mean()
    torch.testing.assert_close(loss.detach(), wanted)
    figures, theirs = trainer.sums.metrics(), trainer.trl_metrics()
    assert figures["policy/ratio_max"] == pytest.approx(float(ratio.max()), rel=1e-4)
    assert theirs["clip_ratio/region_mean"] > 0
    assert figures["policy/entropy_avg"] == pytest.approx(theirs["entropy"], rel=1e-5)


def test_an_rloo_advantage_is_the_distance_to_the_mean_of_the_others_less_the_divergence(
    tmp_path: Path,
) -> None:
    other = Reference.frozen(tiny_llama(seed=3), policy=tiny_llama())
    trainer = make(
        tmp_path,
        reference=other,
        reference_differs=True,
        loss_type="rloo",
        scale_rewards="none",
        kl_coef=0.5,
        update_epochs=2,
        **FREE,
    )
    output = draw(trainer)
    nats = output["old_per_token_logps"] - output["ref_per_token_logps"]
    worth = torch.tensor(trainer.reward.last.scores.values)
    worth = (worth - 0.5 * (nats * output["completion_mask"]).sum(1)).view(4, 4)
    wanted = [
        [group[i] - torch.cat([group[:i], group[i + 1 :]]).mean() for i in range(4)]
        for group in worth
    ]
    torch.testing.assert_close(output["advantages"], torch.tensor(wanted).flatten())


def test_an_answer_that_is_withheld_counts_among_no_others() -> None:
    rewards = torch.tensor([1.0, 2.0, torch.nan, 6.0, 5.0, torch.nan, torch.nan, torch.nan])
    found = group_advantages(
        rewards,
        torch.zeros(8),
        torch.tensor([False, False]),
        scale="none",
        leave_one_out=True,
    )
    assert found.tolist() == pytest.approx([-3.0, -1.5, 0.0, 4.5, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    "config", [{}, {"loss_type": "rloo"}, {"importance_sampling_level": "sequence"}]
)
def test_microbatches_give_the_gradient_of_the_whole_batch(tmp_path: Path, config: dict) -> None:
    gradients = []
    for size in (16, 4):
        trainer = make(tmp_path, microbatch_size=size, **config)
        output = draw(trainer)
        trainer.create_optimizer()
        step(trainer, output)
        gradients.append(torch.cat([p.grad.flatten() for p in trainer.policy.parameters()]))
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-7, rtol=1e-4)


# --- checkpoints ---


def test_the_best_evaluation_is_kept_and_patience_ends_the_run(tmp_path: Path) -> None:
    settings = settings_for("grpo", {"patience": 2, "eval_every": 1})
    context = RunContext(
        JobSpec("parts", 1, "grpo", "tests", 0, str(tmp_path), {}, ()),
        Store(str(tmp_path)),
        tmp_path,
    )
    reporter = GroupReporter(context, settings, lambda step: None)
    told = []
    for step, judged in enumerate([0.1, 0.5, 0.4, 0.5]):
        control, state = TrainerControl(), TrainerState(global_step=step)
        scores = {"eval_score": float(step), "eval_held_out_score": judged}
        reporter.on_evaluate(None, state, control, scores)
        told.append((reporter.is_best, control.should_save, control.should_training_stop))
    assert told == [
        (True, False, False),  # before the first step there is nothing to save
        (True, True, False),
        (False, False, False),
        (False, True, True),
    ]
    reporter.context.writer = object()
    reporter.finish_folder(tmp_path)
    again = GroupReporter(context, settings, lambda step: None)
    again.restore(tmp_path)
    assert (again.best_score, again.not_better) == (0.5, 2)
