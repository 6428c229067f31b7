"""Fresh pairs of answers for people to compare.

Inputs: `policy`, `prompts`, for the opponent "baseline" also `sft`, and for "revision" perhaps
`critic`, a model that criticises and rewrites in the place of the policy. They answer here, or
where they are served (`server`, or a model that is registered by its server). Writes
candidates.jsonl, one pair a line, and announces it; the web side puts the pairs into the label
queue. Which of the two stands first is settled there, per person. Pairs with an answer that the
filter blocks are left out; against the opponent "revision" revisions.jsonl holds the same pairs as
preferences.
"""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import set_seed

from measures.messages import Messages
from workers.artifacts import file_sha256
from workers.config import settings_for
from workers.config.inference import AnsweringSettings, GenerateSettings
from workers.config.server import CRITIC, POLICY
from workers.context import RunContext
from workers.contract.events import Alert, Generated
from workers.contract.jobs import InputRef
from workers.data.batches import encode_prompt
from workers.data.snapshot import TRAIN, read_prompts
from workers.models.loading import freeze, load_causal, load_tokenizer, readable_length
from workers.rewards.build import build_reward
from workers.rewards.source import RewardSource
from workers.rollouts.drawing import Answer, answer
from workers.rollouts.local import Sampling, derive_seed
from workers.samples import choose, flag_answer, write_lines
from workers.servers.answers import INPUTS, Served, fitting_prompts, served_inputs, summaries
from workers.servers.asking import Cancelled

# Hard constraints as a filter: what breaks one is blocked, logged, and shown to people.

SHOWN = 20  # of each kind, in the log, as samples and for people; blocked.jsonl has them all


def screen(
    context: RunContext,
    source: RewardSource,
    prompts: Sequence[Messages],
    responses: Sequence[str],
    *,
    step: int = 1,
) -> list[bool]:
    """Per response whether it may be used; the reasons go to blocked.jsonl, the log and people."""
    scores = source.score(prompts, responses)
    blocked = scores.blocked or [False] * len(responses)
    reviews = scores.reviews or [None] * len(responses)
    rows: list[dict[str, Any]] = [
        {"prompt": prompt, "response": text, "reason": reason or "blocked", "blocked": hard}
        for prompt, text, reason, hard in zip(prompts, responses, reviews, blocked, strict=True)
        if hard or reason
    ]
    if not rows:
        return [True] * len(responses)
    path = context.workdir / "blocked.jsonl"
    write_lines(path, rows)
    context.save_artifact(path, media_type="application/x-ndjson")
    for row in rows[:SHOWN]:
        word = "blocked" if row["blocked"] else "for review"
        context.log(f"{word}: {row['reason']}", level="warning")
        flag_answer(context, step, row["prompt"], row["response"], str(row["reason"]))
    if count := sum(blocked):
        context.emit(
            Alert(
                rule="blocked_outputs",
                severity="warning",
                step=step,
                message=f"{count:,} of {len(responses):,} answers break a hard constraint and were "
                "left out. blocked.jsonl has each with its reason.",
                value=count / len(responses),
                threshold=0.0,
            )
        )
    return [not hard for hard in blocked]


# A model criticises an answer by a principle and rewrites it: its own, or as a critic another's.
#
# Source: Bai et al. 2022, "Constitutional AI: Harmlessness from AI Feedback", section 3.1: answer,
# critique request, critique, revision request, revision, with one principle drawn for each prompt.
# Departures: one round, no examples in front, and people may compare the two answers before
# anything
# is trained on them. A model that follows instructions badly criticises and revises badly.

CRITIQUE = (
    "Here is a principle for answers: {principle}\n"
    "Say briefly where your last answer falls short of it. If it does not, say so."
)
REWRITE = (
    "Now rewrite your answer to my question so that it keeps the principle. "
    "Give the new answer alone, without any remark about it."
)

# Conversations to what the model says next; None where a conversation is too long for it.
Ask = Callable[[Sequence[Messages]], list[str | None]]


@dataclass(frozen=True, slots=True)
class Revision:
    """What became of one answer; `text` is None where a conversation grew too long to go on."""

    principle: str
    critique: str = ""
    text: str | None = None
    name: str = ""  # of the principle, where it has one


def revise(
    ask: Ask,
    prompts: Sequence[Messages],
    answers: Sequence[str],
    principles: Sequence[str],
    *,
    seed: int,
    names: Sequence[str] = (),
) -> list[Revision]:
    """In order; the principle of each prompt is drawn by `seed`, each as likely as any other.
    `names`: of the principles, in their order, where they have names."""
    draw = random.Random(seed)
    places = [draw.choice(range(len(principles))) for _ in prompts]
    drawn = [principles[place] for place in places]
    called = [names[place] if names else "" for place in places]
    asked = [
        [*prompt, _said(answer), _request(CRITIQUE.format(principle=principle))]
        for prompt, answer, principle in zip(prompts, answers, drawn, strict=True)
    ]
    critiques = ask(asked)
    going_on = [i for i, critique in enumerate(critiques) if critique is not None]
    rewritten = ask([[*asked[i], _said(critiques[i] or ""), _request(REWRITE)] for i in going_on])
    texts = dict(zip(going_on, rewritten, strict=True))
    return [
        Revision(principle, critiques[i] or "", texts.get(i), called[i])
        for i, principle in enumerate(drawn)
    ]


def _said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def _request(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


CONFIG = GenerateSettings


def run(context: RunContext) -> dict[str, Any]:
    """Answer the prompts twice, write the pairs, return counts."""
    settings: GenerateSettings = settings_for("generate", context.spec.config)
    set_seed(context.spec.seed)
    rows = read_prompts(context.input_path("prompts"), TRAIN)
    served = served_inputs(context, settings.server, roles=(*INPUTS, CRITIC))
    asked = [row.messages for row in rows]
    prompts = fitting_prompts(context, served, "policy", asked, settings.max_prompt_length)
    prompts = [prompts[i] for i in choose(len(prompts), settings.max_prompts, context.spec.seed)]
    try:
        return _generate(context, settings, prompts, served)
    except Cancelled:
        return {"step": 1, "pairs": 0}


def _generate(
    context: RunContext,
    settings: GenerateSettings,
    prompts: list[Messages],
    served: Mapping[str, Served],
) -> dict[str, Any]:
    context.progress(0, 2, "answering as policy")
    answers = _answers(context, settings, prompts, "policy", "a", served)
    prompts, first = _answered(prompts, answers)
    answered = len(prompts)
    if context.should_stop() == "cancel":
        return {"step": 1, "pairs": 0}
    if settings.opponent == "revision":
        context.progress(1, 2, "criticising and rewriting")
        revisions = _revisions(context, settings, prompts, first, served)
        kept = [i for i, revision in enumerate(revisions) if revision.text is not None]
        revisions = [revisions[i] for i in kept]
        second = [revision.text or "" for revision in revisions]
        role = _reviser(context)
    else:
        role = "policy" if settings.opponent == "self" else "sft"
        context.progress(1, 2, f"answering as {role}")
        revisions = []
        others = _answers(context, settings, prompts, role, "b", served)
        kept = [i for i, other in enumerate(others) if other is not None]
        second = [other.text for other in others if other is not None]
    prompts, first = [prompts[i] for i in kept], [first[i] for i in kept]
    if context.should_stop() == "cancel":
        return {"step": 2, "pairs": 0}

    usable = _usable(context, settings, prompts, first, second)
    differ = [a.strip() != b.strip() for a, b in zip(first, second, strict=True)]
    pairs = [
        _pair(context, settings, prompts[i], first[i], second[i], role, served)
        | (_revised(revisions[i], settings) if revisions else {})
        for i in range(len(prompts))
        if usable[i] and differ[i]  # else there is nothing to choose between
    ]
    policy = served.get("policy")
    if policy and settings.temperature and settings.opponent == "self" and not any(differ):
        context.log(
            "the server said the same twice to every prompt: it may not sample at all. See what "
            "its model's generation_config says (do_sample)",
            level="warning",
        )
    _publish(context, pairs)
    if settings.opponent == "revision":
        _publish_preferences(context, pairs)
    context.progress(2, 2, "done")
    told: dict[str, Any] = {"step": 2, "pairs": len(pairs), "identical": differ.count(False)}
    if settings.filter:
        told["blocked"] = usable.count(False)
    if settings.opponent == "revision":
        told["too_long"] = answered - len(prompts)
    if served:
        failed = sum(one.failed for one in served.values())
        told |= summaries(served) | {"unanswered": failed}
    return told


def _answers(
    context: RunContext,
    settings: GenerateSettings,
    prompts: Sequence[Messages],
    role: str,
    side: str,
    served: Mapping[str, Served],
) -> Sequence[Answer | None]:
    sampling = sampling_of(settings, derive_seed(context.spec.seed, "candidates", side))
    if role in served:
        return served[role].answer_most(prompts, sampling)
    folder = context.input_path(role)
    tokenizer = load_tokenizer(folder)
    return answer(
        freeze(load_causal(folder)),
        tokenizer,
        [encode_prompt(tokenizer, prompt) for prompt in prompts],
        sampling,
        batch_size=settings.batch_size,
    )


def _answered(
    prompts: Sequence[Messages], answers: Sequence[Answer | None]
) -> tuple[list[Messages], list[str]]:
    """Prompts that have an answer, and its text."""
    both = [(prompt, one.text) for prompt, one in zip(prompts, answers, strict=True) if one]
    return [prompt for prompt, _ in both], [text for _, text in both]


def _revisions(
    context: RunContext,
    settings: GenerateSettings,
    prompts: Sequence[Messages],
    answers: Sequence[str],
    served: Mapping[str, Served],
) -> list[Revision]:
    """The critic, or the policy itself, on the policy's answers. A conversation that leaves no room
    for an answer ends."""
    seed = derive_seed(context.spec.seed, "principles")
    role = _reviser(context)
    if role in served:
        asker = _asking_server(context, settings, served[role])
    else:
        asker = _asking(context, settings, role)
    names = settings.principle_names
    return revise(asker, prompts, answers, settings.principles, seed=seed, names=names)


def _reviser(context: RunContext) -> str:
    """The input that criticises and rewrites."""
    return CRITIC if context.has_input(CRITIC) else POLICY


def _asking_server(context: RunContext, settings: GenerateSettings, served: Served) -> Ask:
    """The server says what is too long for it, as one of the failures it is allowed."""
    rounds = itertools.count()

    def ask(conversations: Sequence[Messages]) -> list[str | None]:
        seed = derive_seed(context.spec.seed, "revision", next(rounds))
        given = served.answer_most(conversations, sampling_of(settings, seed), doing="revising")
        return [one.text if one else None for one in given]

    return ask


def _asking(context: RunContext, settings: GenerateSettings, role: str) -> Ask:
    folder = context.input_path(role)
    tokenizer = load_tokenizer(folder)
    model = freeze(load_causal(folder))
    room = readable_length(model, tokenizer) - settings.max_new_tokens
    rounds = itertools.count()

    def ask(conversations: Sequence[Messages]) -> list[str | None]:
        seed = derive_seed(context.spec.seed, "revision", next(rounds))
        ids = [encode_prompt(tokenizer, conversation) for conversation in conversations]
        fitting = [i for i, row in enumerate(ids) if len(row) <= room]
        given = answer(
            model,
            tokenizer,
            [ids[i] for i in fitting],
            sampling_of(settings, seed),
            batch_size=settings.batch_size,
        )
        said = {i: one.text for i, one in zip(fitting, given, strict=True)}
        return [said.get(i) for i in range(len(ids))]

    return ask


def _usable(
    context: RunContext,
    settings: GenerateSettings,
    prompts: Sequence[Messages],
    first: Sequence[str],
    second: Sequence[str],
) -> list[bool]:
    """Per pair whether the filter lets both of its answers pass."""
    if not settings.filter:
        return [True] * len(prompts)
    source = build_reward(context, settings.filter, batch_size=settings.batch_size, where="filter")
    passed = screen(context, source, [*prompts, *prompts], [*first, *second])
    half = len(prompts)
    return [a and b for a, b in zip(passed[:half], passed[half:], strict=True)]


def _pair(
    context: RunContext,
    settings: GenerateSettings,
    prompt: Messages,
    first: str,
    second: str,
    role: str,
    served: Mapping[str, Served],
) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "response_a": {"text": first, "origin": _origin(context, "policy", served)},
        "response_b": {"text": second, "origin": _origin(context, role, served)},
        "sampling": {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
            "max_new_tokens": settings.max_new_tokens,
            "seed": context.spec.seed,
        },
    }


def _revised(revision: Revision, settings: GenerateSettings) -> dict[str, Any]:
    """`response_b` is a rewriting of `response_a`, and this is how it came about."""
    return {
        "revision": {
            "principle": revision.principle,
            "principle_name": revision.name,
            "constitution": settings.constitution,
            "critique": revision.critique,
        }
    }


def _publish(context: RunContext, pairs: Sequence[Mapping[str, Any]]) -> None:
    path = context.workdir / "candidates.jsonl"
    write_lines(path, pairs)
    uri = context.save_artifact(path, media_type="application/x-ndjson")
    context.emit(Generated(uri, file_sha256(path), len(pairs), "candidates"))


def _publish_preferences(context: RunContext, pairs: Sequence[Mapping[str, Any]]) -> None:
    """revisions.jsonl: the same pairs as preferences for the rewritten answer, for whoever wants to
    train on the word of the model that rewrote it. Nobody has compared them."""
    rows = [
        {
            "prompt": pair["prompt"],
            "chosen": [{"role": "assistant", "content": pair["response_b"]["text"]}],
            "rejected": [{"role": "assistant", "content": pair["response_a"]["text"]}],
            "sources": ["revision", "policy"],
            **pair["revision"],
        }
        for pair in pairs
    ]
    path = context.workdir / "revisions.jsonl"
    write_lines(path, rows)
    context.save_artifact(path, media_type="application/x-ndjson")


def sampling_of(settings: AnsweringSettings, seed: int) -> Sampling:
    return Sampling(
        settings.max_new_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        seed=seed,
    )


def _origin(context: RunContext, role: str, served: Mapping[str, Served]) -> dict[str, Any]:
    """Which checkpoint wrote a response, for lineage; hidden from whoever compares. Of a server
    nobody can say which weights it holds: the checkpoint is then what it was said to serve."""
    ref: InputRef | None = context.spec.input(role)
    assert ref is not None  # noqa: S101 — its folder was read before
    own = {"role": role, "checkpoint": ref.id, "sha256": ref.sha256, "run": context.spec.run}
    return own | ({"server": served[role].as_summary()} if role in served else {})
