"""A process reward model as a source of rewards: what it says of each step, as one score.

A step is a message of the assistant; the results of tools and the words of others are read and not
judged. An answer of one message has a step in each of its lines, or paragraphs. The score is in
log-odds: of the step least likely to be right, of the last, of the mean over steps, or of all being
right together.

Sources: Lightman et al. 2023 ("Let's Verify Step by Step"), section 2.6 (product and least); Wang
et al. 2024 ("Math-Shepherd"), least; Cheng et al. 2025 ("Stop Summation: Min-Form Credit
Assignment Is All Process Reward Model Needs for Reasoning"), why a sum over steps is no choice: it
pays for each further step.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.special import expit, log_expit, logit
from transformers import PreTrainedModel

from measures.messages import Messages, said
from workers.config.rewards import LAST, LEAST, LINES, MEAN, PARAGRAPHS
from workers.data.batches import Encoded, encode_prompt, encode_step, pad_right
from workers.data.snapshot import Turns
from workers.models.loading import load_step_scorer, readable_length
from workers.rewards.model import ModelReward, batches_of
from workers.rewards.source import Scores

MOST = 20.0  # log-odds; what lies beyond is rounding
# Of an answer without a step, which has no wrong one either and must not be the best.
NO_STEP = float(logit(0.001))


class StepsReward(ModelReward):
    """Scores answers with a token classifier of one label, in batches of similar length."""

    steps = LEAST  # of workers.config.rewards.STEPS
    steps_end = LINES  # or PARAGRAPHS

    def _load(self, folder: Path, device: torch.device | None) -> PreTrainedModel:
        return load_step_scorer(folder, self.tokenizer, device=device)

    def encode(
        self, prompts: Sequence[Messages], responses: Sequence[str]
    ) -> list[tuple[Encoded, ...]]:
        """Per answer the ids of its prompt and of each step, whole ones up to `max_length` tokens.
        Of a step that is judged, the response begins at 0; of another, at its end."""
        return [self._encoded(*both) for both in zip(prompts, responses, strict=True)]

    def _encoded(self, prompt: Messages, response: str) -> tuple[Encoded, ...]:
        asked = encode_prompt(self.tokenizer, prompt)
        room, rows, cut = self.max_length - len(asked), [], False
        for text, role in steps_of(response, self.steps_end):
            ids = encode_step(self.tokenizer, text, role)
            room -= len(ids)
            if cut := room < 0:
                break
            rows.append(Encoded(ids, 0 if role == "assistant" else len(ids)))
        return Encoded(asked, len(asked), cut), *rows

    def score_rows(self, texts: Sequence[tuple[Encoded, ...]]) -> Scores:
        """Scores of answers as `encode` left them, with what it says of the steps in `reasons`."""
        found = self._log_odds(texts)
        values = [together(steps, self.steps) for steps in found]
        cut = [rows[0].truncated for rows in texts]
        return Scores(
            values, {self._name: values}, sum(cut), cut=cut, reasons=[reason(one) for one in found]
        )

    @torch.no_grad()
    def _log_odds(self, texts: Sequence[tuple[Encoded, ...]]) -> list[list[float]]:
        """Of each judged step that it is right. Answers with equal tokens are read once; padded as
        `workers.rewards.model.score_together` says, so the same answer has the same score."""
        whole = [tuple(one for row in rows for one in row.ids) for rows in texts]
        ends = [_ends(rows) for rows in texts]
        asked = {ids for ids, places in zip(whole, ends, strict=True) if places}
        most = readable_length(self.model, self.tokenizer) if self.model.device.type == "cpu" else 0
        read: dict[tuple[int, ...], list[float]] = {}
        distinct = sorted(asked, key=lambda ids: (len(ids), ids))
        for batch, length in batches_of(distinct, batch_size=self._batch_size, most=most):
            ids, mask = pad_right(batch, self.tokenizer.pad_token_id, length)
            device = self.model.device
            output = self.model(input_ids=ids.to(device), attention_mask=mask.to(device))
            read.update(zip(batch, output.logits.squeeze(-1).float().tolist(), strict=True))
        return [
            [read[ids][place] for place in places] for ids, places in zip(whole, ends, strict=True)
        ]


def steps_of(response: str, steps_end: str) -> list[tuple[str, str]]:
    """(text, role) of every step of an answer; blank ones are none."""
    if isinstance(response, Turns):
        steps = [(said(message), str(message["role"])) for message in response.messages]
    else:
        between = "\n\n" if steps_end == PARAGRAPHS else "\n"
        steps = [(text.strip(), "assistant") for text in response.split(between)]
    return [(text, role) for text, role in steps if text.strip()]


def together(log_odds: Sequence[float], how: str) -> float:
    """One score for the steps of an answer, in log-odds within ±MOST."""
    if not log_odds:
        return NO_STEP
    z = np.asarray(log_odds, dtype=np.float64)
    if not np.isfinite(z).all():
        return float("nan")  # whoever asks refuses it by name
    z = z.clip(-MOST, MOST)
    if how == LEAST:
        return float(z.min())
    if how == LAST:
        return float(z[-1])
    if how == MEAN:
        return float(logit(expit(z).mean()).clip(-MOST, MOST))
    all_right = log_expit(z).sum()  # the log of the product
    return float((all_right - np.log(-np.expm1(all_right))).clip(-MOST, MOST))


def reason(log_odds: Sequence[float]) -> str:
    """Which step is least likely to be right."""
    if not log_odds:
        return "no step to judge"
    worst = int(np.argmin(log_odds))
    told = f"{expit(log_odds[worst]):.2f}"
    return f"step {worst + 1} of {len(log_odds)} is least likely to be right: {told}"


def _ends(rows: Sequence[Encoded]) -> list[int]:
    """Where the last tokens of judged steps stand."""
    places, at = [], 0
    for row in rows:
        at += len(row.ids)
        if row.prompt_length < len(row.ids):
            places.append(at - 1)
    return places
