"""A registered model, asked the same things as always, to be laid beside an earlier time.

Inputs: `policy` with `prompts` and a reward (the input `reward`, unless it is a rule), or a
`reward` alone with `prompts` that hold answers (preferences, demonstrations). Prompts, seed and
sampling decide every answer, so between two probes only the model differs. Every figure comes with
its deviation and n, and the answers and scores one by one as the artifact probe.json, so that two
probes can be compared in pairs. The weights' hash is of the model that really answered: a file that
is not what it was named by fails as `damaged_input`, and another model that took its place shows in
the hash. A policy that is served elsewhere (`server`) has none: nobody can read its weights. What
can be known of it is measured instead: how long it took, its fingerprint, and the hashes of its
answers at temperature 0 (`greedy`). It needs no tokenizer; without one, repetition and distinctness
are left out.
"""

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from measures.accuracy import pair_credit
from measures.messages import Messages
from workers.behaviour import compression, distinct, repetition
from workers.checks.asking import BATCH, Speaker, ask, fixed_prompts, fresh_reward, speaker
from workers.checks.fixed import FixedAnswer, answer_id, fixed_answers
from workers.checks.found import Cancelled, Pace, jsonable
from workers.config import settings_for
from workers.config.inference import ProbeSettings
from workers.config.phrases import POLITENESS, REFUSALS, Phrases, plain, refused
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.contract.protocol import KEY, Protocol
from workers.data.batches import pad_right
from workers.evaluation.answering import engine_here, engine_there, read_by, read_there
from workers.evaluation.protocol import probe_protocol
from workers.models.loading import weights_sha256
from workers.rewards.model import EnsembleReward, ModelReward
from workers.rewards.source import RewardSource, Scores, WeightedSum, calibrate
from workers.rollouts.local import Sampling, derive_seed
from workers.samples import flag_answer
from workers.servers import asking
from workers.servers.answers import Served, served_inputs, summaries, token_count

CONFIG = ProbeSettings
FILE, VERSION = "probe.json", 1
MOST_FLAGGED = 20  # answers of a probe that go to people
GREEDY = 32  # prompts that a server is asked at temperature 0 too
_RESAMPLES = 200
Row = dict[str, Any]


def run(context: RunContext) -> dict[str, Any]:
    """Ask, score, write down; figures and hashes are the summary."""
    settings: ProbeSettings = settings_for("probe", context.spec.config)
    reward = fresh_reward(context, settings)
    weights = {"reward": weights_of(reward)}
    pace = Pace(context, max_seconds=settings.max_seconds)
    served: Mapping[str, Served] = {}
    try:
        if context.has_input("policy"):
            served = served_inputs(context, settings.server)
            if "policy" not in served:
                weights["policy"] = weights_sha256((policy := speaker(context, "policy")).model)
                tokenizer: PreTrainedTokenizerBase | None = policy.tokenizer
                say = functools.partial(_say, policy)
                engine, read = (
                    engine_here(policy.model, BATCH),
                    functools.partial(read_by, policy.tokenizer),
                )
            else:
                asked = served["policy"]
                tokenizer, say = asked.tokenizer, functools.partial(_have_said, asked)
                engine, read = engine_there(asked), functools.partial(read_there, asked)
            rows = answered(context, settings, tokenizer, say, reward, pace)
            answer_greedily(context, settings, rows, served.get("policy"), pace)
        else:
            engine, read = engine_here(None, settings.reward_batch_size), None
            rows = scored(context, settings, reward, pace)
    except (Cancelled, asking.Cancelled):
        return {"step": 0}
    broken = [row["id"] for row in rows if not np.isfinite(row["score"])]
    if broken:
        raise RecipeError(
            "non_finite_score",
            Fault.DATA,
            f"the score of {len(broken)} of {len(rows)} answers is no number",
        )
    if pace.over:
        raise RecipeError(
            "too_slow",
            Fault.CONFIGURATION,
            f"the time was up after {len(rows)} rows: a probe must ask everything, or two of them "
            "do not compare; raise max_seconds or ask fewer prompts (eval_prompts)",
        )
    summary = jsonable(
        {
            "figures": figures(rows, settings),
            "weights_sha256": {role: value for role, value in weights.items() if value},
            "rows": len(rows),
            KEY: _protocol(context, settings, rows, engine, read).to_json(),
        }
        | summaries(served)
    )
    path = context.workdir / FILE
    path.write_text(
        json.dumps({"version": VERSION, **summary, "prompts": jsonable(rows)}, indent=1)
    )
    context.save_artifact(path, media_type="application/json")
    context.progress(1, 1, "done")
    return {"step": 1, **summary}


Read = Callable[[Sequence[Messages]], tuple[str | None, dict[str, Any]]]


def _protocol(
    context: RunContext,
    settings: ProbeSettings,
    rows: Sequence[Row],
    engine: Mapping[str, Any],
    read: Read | None,
) -> Protocol:
    """read: the template and the prompts as the policy reads them; None without a policy."""
    template, rendered = read([row["prompt"] for row in rows]) if read else (None, {})
    return probe_protocol(
        context,
        settings,
        [row["prompt"] if read else [row["prompt"], row["response"]] for row in rows],
        seed=context.spec.seed,
        code=(answered, scored, figures, compression, distinct, repetition),
        engine=engine,
        chat_template=template,
        rendered=rendered,
    )


@dataclass(frozen=True, slots=True)
class Said:
    """Answers to the prompts of `rows`; ids and mask are [B, R], the end token among them where
    the model itself spoke, None where nothing here reads tokens. seconds: of a server's answers."""

    rows: slice
    texts: list[str]
    lengths: Sequence[int | None]
    ended: list[bool]
    ids: Tensor | None
    mask: Tensor | None
    seconds: Sequence[float | None] = ()


# Prompts, their ids, how to draw, and the parts to go by.
Say = Callable[[Sequence[Messages], Sequence[list[int]], Sampling, Iterator[slice]], Iterator[Said]]


def _say(
    policy: Speaker,
    messages: Sequence[Messages],
    ids: Sequence[list[int]],
    sampling: Sampling,
    parts: Iterator[slice],
) -> Iterator[Said]:
    for part in ask(policy, ids, sampling, parts):
        given = part.responses
        yield Said(
            part.rows,
            given.texts,
            given.lengths.tolist(),
            given.ended.tolist(),
            given.response_ids,
            given.response_mask,
        )


def _have_said(
    served: Served,
    messages: Sequence[Messages],
    ids: Sequence[list[int]],
    sampling: Sampling,
    parts: Iterator[slice],
) -> Iterator[Said]:
    """Ids are those of the text, as the policy's tokenizer reads it."""
    for rows in parts:
        own = replace(sampling, seed=derive_seed(sampling.seed, "batch", rows.start))
        given = served.say(messages[rows], own)
        texts = [one.text for one in given]
        tokens: Sequence[int | None] = [one.tokens for one in given]
        padded: tuple[Tensor, Tensor] | None = None
        if (reads := served.tokenizer) is not None:
            tokens = [token_count(one, reads) for one in given]
            padded = pad_right(
                [reads(text, add_special_tokens=False)["input_ids"] for text in texts], 0
            )
        ended, seconds = [one.ended for one in given], [one.seconds for one in given]
        read, mask = padded or (None, None)
        yield Said(rows, texts, tokens, ended, read, mask, seconds)


def answer_greedily(
    context: RunContext,
    settings: ProbeSettings,
    rows: Sequence[Row],
    served: Served | None,
    pace: Pace,
) -> None:
    """Give rows the SHA-256 of the answer at temperature 0 (`greedy`). A server is asked once more
    where the probe draws, about the first GREEDY prompts; a model here has its weights' hash."""
    if settings.temperature == 0:
        texts = [row["response"] for row in rows]
    elif served is not None:
        seed = derive_seed(context.spec.seed, "greedy")
        sampling = Sampling(settings.max_new_tokens, temperature=0.0, seed=seed)
        asked = [row["prompt"] for row in rows[:GREEDY]]
        texts = []
        for part in pace.parts(len(asked), BATCH, "answering at temperature 0"):
            texts += [one.text for one in served.say(asked[part], sampling)]
    else:
        return
    for row, text in zip(rows, texts, strict=False):
        row["greedy"] = sha256(text.encode()).hexdigest()


def answered(
    context: RunContext,
    settings: ProbeSettings,
    tokenizer: PreTrainedTokenizerBase | None,
    say: Say,
    reward: RewardSource,
    pace: Pace,
) -> list[Row]:
    """One row a prompt: the mean over its draws, and the first answer to read. Answers that a rule
    of the reward sends to people go to them."""
    prompts = fixed_prompts(context, settings, tokenizer)
    rows: list[Row] = []
    refusals, courtesies = Phrases(REFUSALS), Phrases(POLITENESS)
    messages = [prompt for prompt in prompts.messages for _ in range(settings.draws)]
    ids = [row for row in prompts.ids for _ in range(settings.draws)]
    sampling = Sampling(
        settings.max_new_tokens,
        temperature=settings.temperature,
        seed=derive_seed(context.spec.seed, "probe"),
    )
    drawn: list[Row] = []
    flagged = 0
    for said in say(messages, ids, sampling, pace.parts(len(ids), BATCH, "answering")):
        judged = reward.score(messages[said.rows], said.texts)
        scores = judged.values
        flagged += _flag(context, messages[said.rows], said.texts, judged, MOST_FLAGGED - flagged)
        repeated, different = _variety(said)
        for i, (text, score) in enumerate(zip(said.texts, scores, strict=True)):
            drawn.append(
                {
                    "prompt": messages[said.rows][i],
                    "response": text,
                    "score": score,
                    "response_length": said.lengths[i],
                    "ended": float(said.ended[i]),
                    "characters": len(text),
                    "latency": said.seconds[i] if said.seconds else None,
                    "repetition": repeated[i],
                    "refusals": float(refused(refusals, plain(text))),
                    "politeness": float(courtesies.found(plain(text))),
                    "compression": compression([text]),
                    "distinct": different[i],
                }
            )
    for start in range(0, len(drawn), settings.draws):
        same = drawn[start : start + settings.draws]
        rows.append(
            {"id": answer_id(same[0]["prompt"]), **same[0]}
            | {name: _mean([row[name] for row in same]) for name in MEASURED if name in same[0]}
        )
    return rows


def _variety(said: Said) -> tuple[Sequence[float | None], list[float | None]]:
    """(repetition, distinctness) of each answer; None where its tokens are not read here."""
    if said.ids is None or said.mask is None:
        return [None] * len(said.texts), [None] * len(said.texts)
    parts = [slice(i, i + 1) for i in range(len(said.texts))]
    return repetition(said.ids, said.mask), [
        distinct(said.ids[one], said.mask[one]) for one in parts
    ]


def _flag(
    context: RunContext,
    prompts: Sequence[Messages],
    texts: Sequence[str],
    judged: Scores,
    most: int,
) -> int:
    """Have people look at up to `most` answers that a rule sends to them; how many."""
    rows = zip(prompts, texts, judged.reviews or [], judged.values, strict=False)
    sent = [(prompt, text, reason, value) for prompt, text, reason, value in rows if reason][:most]
    for prompt, text, reason, value in sent:
        flag_answer(context, 1, prompt, text, reason, reward=value)
    return len(sent)


def scored(
    context: RunContext, settings: ProbeSettings, reward: RewardSource, pace: Pace
) -> list[Row]:
    """One row a fixed answer, of pairs with the margin beside it."""
    answers = fixed_answers(
        context.input_path("prompts"),
        most=settings.eval_prompts,
        seed=derive_seed(context.spec.seed, "probe"),
    )
    values: list[float] = []
    for part in pace.parts(len(answers), settings.reward_batch_size, "scoring fixed answers"):
        batch = answers[part]
        values += reward.score(
            [answer.prompt for answer in batch], [answer.response for answer in batch]
        ).values
    rows: list[Row] = [
        {"id": one.id, "prompt": one.prompt, "response": one.response, "score": value}
        for one, value in zip(answers, values, strict=False)
    ]
    for better, margin in _margins(answers[: len(values)], values).items():
        rows[better] |= {"margin": margin, "accuracy": float(pair_credit([margin])[0])}
    return rows


MEASURED = (
    "score",
    "calibrated",
    "response_length",
    "characters",
    "latency",
    "ended",
    "repetition",
    "refusals",
    "politeness",
    "compression",
    "distinct",
    "margin",
    "accuracy",
)


def figures(rows: Sequence[Row], settings: ProbeSettings) -> dict[str, dict[str, float | int]]:
    """{name: {mean, deviation, n}} over rows, the deviation of single rows; docs/checks.md."""
    for row in rows:
        if settings.baseline_mean is not None:
            row["calibrated"] = float(
                calibrate([row["score"]], settings.baseline_mean, settings.score_temperature)[0]
            )
    found: dict[str, dict[str, float | int]] = {}
    for name in MEASURED:
        values = [row[name] for row in rows if row.get(name) is not None]
        if values and name == "latency":
            found |= {f"latency_p{q}": _quantile(values, q / 100) for q in (50, 99)}
        elif values:
            found[name] = {
                "mean": float(np.mean(values)),
                "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
                "n": len(values),
            }
    return found


def _quantile(values: Sequence[float], q: float) -> dict[str, float | int]:
    """`mean` is the quantile, in seconds; deviation / √n its standard error by the bootstrap (Efron
    1979) over prompts."""
    drawn = np.random.default_rng(0).choice(values, (_RESAMPLES, len(values)))
    error = float(np.quantile(drawn, q, axis=1).std())
    found = float(np.quantile(values, q))
    return {"mean": found, "deviation": error * len(values) ** 0.5, "n": len(values)}


def weights_of(source: RewardSource) -> str:
    """The hash of the model that scores; of an ensemble or a sum, of all hashes in order. Empty
    for a rule or a service."""
    if isinstance(source, ModelReward):
        return weights_sha256(source.model)
    inner: Sequence[RewardSource] = ()
    if isinstance(source, EnsembleReward):
        inner = source.members
    elif isinstance(source, WeightedSum):
        inner = [part.source for part in source.parts]
    if not inner:
        return ""
    hashes = [known for one in inner if (known := weights_of(one))]
    return hashes[0] if len(hashes) == 1 else sha256("".join(hashes).encode()).hexdigest()


def _margins(answers: Sequence[FixedAnswer], values: Sequence[float]) -> Mapping[int, float]:
    """The place of each better answer -> its score less that of the other one of its pair."""
    pairs: dict[str, dict[bool, int]] = defaultdict(dict)
    for place, one in enumerate(answers):
        if one.better is not None:
            pairs[one.pair][one.better] = place
    return {
        both[True]: values[both[True]] - values[both[False]]
        for both in pairs.values()
        if len(both) == 2
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
